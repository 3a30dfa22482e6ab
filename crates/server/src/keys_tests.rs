//! Keys are made once, kept private, and never guessed.

use super::*;
use counterfoil_core::identity::BackendId;
use std::os::unix::fs::PermissionsExt;

fn ledger(has_operations: bool, key_ids: &[u32]) -> LedgerInfo {
    LedgerInfo {
        backend_id: BackendId::parse("b").expect("valid"),
        incarnation: 1,
        schema_version: 1,
        has_operations,
        key_ids: key_ids.to_vec(),
    }
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("keys")
    }

    fn put(&self, name: &str, text: &str, mode: u32) -> &Self {
        make_private(&self.path()).expect("made");
        let file = self.path().join(name);
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        self
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).map(Vec::from_iter).unwrap_or_default();
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("listed").file_name();
        let mut names: Vec<String> =
            entries.into_iter().map(|entry| name(entry).into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }
}

const GOOD: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

#[test]
fn a_retired_key_is_kept_and_replaces_nothing() {
    // Promise: a key is never lost by a command: retired, it lies under another name, and neither
    // the active key nor an older retired one is touched.
    let dir = Dir::new();
    dir.put("1.key", GOOD, 0o600).put("2.key", GOOD, 0o600).put("active", "2\n", 0o600);
    assert!(matches!(retire(&dir.path(), KeyId(2), None), Err(KeysError::StillActive { .. })));
    let active = Some(KeyId(1));
    assert!(matches!(retire(&dir.path(), KeyId(1), active), Err(KeysError::StillActive { .. })));
    assert!(matches!(retire(&dir.path(), KeyId(3), None), Err(KeysError::Absent { .. })));
    let file = retire(&dir.path(), KeyId(1), None).expect("retired");
    assert_eq!(file, dir.path().join("1.key.retired"));
    assert_eq!(dir.names(), ["1.key.retired", "2.key", "active"]);
    assert_eq!(load(&dir.path(), None).expect("good").iter().len(), 1);
    dir.put("1.key", GOOD, 0o600);
    let again = retire(&dir.path(), KeyId(1), None);
    assert!(matches!(again, Err(KeysError::AlreadyRetired { .. })), "{again:?}");
    assert_eq!(dir.names(), ["1.key", "1.key.retired", "2.key", "active"]);
}

#[test]
fn a_retirement_that_was_cut_short_is_finished_by_the_next() {
    // Promise: an end between the two steps of a retirement leaves nothing that only a person who
    // renames files could mend.
    let dir = Dir::new();
    dir.put("1.key", GOOD, 0o600).put("2.key", GOOD, 0o600).put("active", "2\n", 0o600);
    fs::hard_link(dir.path().join("1.key"), dir.path().join("1.key.retired")).expect("linked");
    retire(&dir.path(), KeyId(1), None).expect("retired");
    assert_eq!(dir.names(), ["1.key.retired", "2.key", "active"]);
}

#[test]
fn an_empty_ledger_gets_a_private_key_that_later_starts_find() {
    // Promise: the first start makes a key of 32 random bytes, mode 0600, and the next one uses it.
    let dir = Dir::new();
    let first = load_or_generate(&dir.path(), None, &ledger(false, &[])).expect("made");
    assert_eq!(dir.names(), ["1.key", "active"]);
    for name in dir.names() {
        let mode = fs::metadata(dir.path().join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let text = fs::read_to_string(dir.path().join("1.key")).expect("read");
    assert_eq!(text.trim_end().len(), 64);
    let again = load_or_generate(&dir.path(), None, &ledger(true, &[1])).expect("loaded");
    assert_eq!(first.active().1.check_value(), again.active().1.check_value());
    let other = load_or_generate(&Dir::new().path(), None, &ledger(false, &[])).expect("made");
    assert_ne!(first.active().1.check_value(), other.active().1.check_value());
}

#[test]
fn a_ledger_with_operations_never_gets_a_new_first_key() {
    // Promise: lost keys refuse the start, and the message says what to restore.
    let dir = Dir::new();
    let error = load_or_generate(&dir.path(), None, &ledger(true, &[1, 2])).expect_err("lost");
    let text = error.to_string();
    assert!(text.contains("the keys 1, 2") && text.contains("2.key from the backup"), "{text}");
    assert!(matches!(
        generate(&dir.path(), Some(KeyId(3)), Some(&ledger(true, &[1, 2]))),
        Err(KeysError::MissingWithOperations { .. })
    ));
    assert!(dir.names().is_empty());
    // Bound to a key and never used: the next number is free of any record.
    let ring = load_or_generate(&dir.path(), None, &ledger(false, &[1])).expect("made");
    assert_eq!(ring.active().0, KeyId(2));
}

#[test]
fn two_first_starts_end_with_one_key() {
    // Promise: servers that start together on a new ledger agree on its key.
    let dir = Dir::new();
    let path = dir.path();
    let start = || {
        load_or_generate(&path, None, &ledger(false, &[])).map(|ring| ring.active().1.check_value())
    };
    // A start that was stopped after its key and before naming it active.
    dir.put("1.key", GOOD, 0o600);
    let first = start().expect("completed");
    assert_eq!(start().expect("loaded"), first);
    assert_eq!(dir.names(), ["1.key", "active"]);
    assert!(!create(&path, "1.key", b"other").expect("no fault"), "a key is never replaced");
    assert_eq!(fs::read_to_string(path.join("1.key")).expect("read"), GOOD);
}

#[test]
fn bad_keys_refuse_to_load_and_say_how_to_mend_it() {
    // Promise: no weak, exposed, missing or ambiguous key is ever used.
    type Files<'a> = &'a [(&'a str, &'a str, u32)];
    let short = &GOOD[..62];
    let cases: &[(Files<'_>, Option<u32>, &str)] = &[
        (&[], None, "run `counterfoil key generate`"),
        (&[("1.key", GOOD, 0o644), ("active", "1", 0o600)], None, "mode 0644); run `chmod 600 "),
        (&[("1.key", GOOD, 0o640), ("active", "1", 0o600)], None, "run `chmod 600 "),
        (&[("1.key", GOOD, 0o602), ("active", "1", 0o600)], None, "run `chmod 600 "),
        (
            &[("1.key", short, 0o600), ("active", "1", 0o600)],
            None,
            "31 bytes; it needs at least 32",
        ),
        (&[("1.key", "", 0o600), ("active", "1", 0o600)], None, "0 bytes; it needs at least 32"),
        (&[("1.key", "secret!", 0o600), ("active", "1", 0o600)], None, "not a hexadecimal digit"),
        (&[("1.key", "é", 0o600), ("active", "1", 0o600)], None, "not a hexadecimal digit"),
        (
            &[("1.key", &GOOD[1..], 0o600), ("active", "1", 0o600)],
            None,
            "has 63 digits; 64 or more, an even number, are needed",
        ),
        (&[("1.key", GOOD, 0o600)], None, "`counterfoil key activate N` with one of: 1"),
        (&[("1.key", GOOD, 0o600), ("active", "2", 0o600)], None, "2.key does not exist"),
        (&[("1.key", GOOD, 0o600), ("active", "1", 0o600)], Some(7), "7.key does not exist"),
        (&[("1.key", GOOD, 0o600), ("active", "one", 0o600)], None, "does not hold a key's number"),
        (&[("1.key", GOOD, 0o600), ("01.key", GOOD, 0o600)], None, "01.key is not a key's file"),
        (&[("0.key", GOOD, 0o600)], None, "0.key is not a key's file"),
        (&[("backup.key", GOOD, 0o600)], None, "backup.key is not a key's file"),
    ];
    for (files, active, words) in cases {
        let dir = Dir::new();
        for (name, text, mode) in *files {
            dir.put(name, text, *mode);
        }
        let error = load(&dir.path(), active.map(KeyId)).expect_err(words).to_string();
        assert!(error.contains(words), "{words}\n{error}");
        assert!(error.contains(&dir.path().display().to_string()), "{error}");
        assert!(!error.contains("0001020304") && !error.contains("secret!"), "{error}");
    }
}

#[test]
fn a_keys_directory_that_others_can_change_is_refused() {
    // Promise: nobody else can give a ledger a key, or take one away.
    for (mode, is_good) in
        [(0o700, true), (0o755, true), (0o770, false), (0o777, false), (0o702, false)]
    {
        let dir = Dir::new();
        dir.put("1.key", GOOD, 0o600).put("active", "1", 0o600);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("set");
        let loaded = load(&dir.path(), None);
        assert_eq!(loaded.is_ok(), is_good, "{mode:o}: {loaded:?}");
        let Err(error) = loaded else { continue };
        let words = error.to_string();
        assert!(words.contains(&format!("run `chmod 700 {}`", dir.path().display())), "{words}");
        assert!(words.contains(&format!("mode {mode:04o}")), "{words}");
    }
}

#[test]
fn keys_that_are_missing_are_listed() {
    // Promise: whoever lost a key sees which, and where its file belongs.
    let dir = Dir::new();
    dir.put("2.key", GOOD, 0o600).put("active", "4", 0o600);
    let needed = [KeyId(1), KeyId(2)];
    let listed = |dir: &Dir, needed: &[KeyId]| -> Vec<(u32, bool, bool)> {
        let entries = list(&dir.path(), None, needed).expect("listed");
        entries.iter().map(|e| (e.id.0, e.active, e.check.is_some())).collect()
    };
    assert_eq!(listed(&dir, &needed), [(1, false, false), (2, false, true), (4, true, false)]);
    let entries = list(&dir.path(), None, &needed).expect("listed");
    assert_eq!(entries[0].file, dir.path().join("1.key"));
    assert_eq!(listed(&Dir::new(), &[KeyId(1)]), [(1, false, false)]);
    assert!(matches!(list(&Dir::new().path(), None, &[]), Err(KeysError::None { .. })));
}

#[test]
fn keys_are_distributed_then_activated() {
    // Promise: a new key is not active before somebody says so, and none is ever replaced.
    let dir = Dir::new();
    let path = dir.path();
    let first = generate(&path, None, None).expect("made");
    assert_eq!((first.id, first.active), (KeyId(1), true));
    let second = generate(&path, None, Some(&ledger(true, &[1, 4]))).expect("made");
    assert_eq!((second.id, second.active), (KeyId(5), false));
    assert!(matches!(generate(&path, Some(KeyId(5)), None), Err(KeysError::Exists { .. })));
    assert!(matches!(
        generate(&path, Some(KeyId(4)), Some(&ledger(true, &[4]))),
        Err(KeysError::NumberUsed { .. })
    ));
    let active = || {
        let entries = list(&path, None, &[]).expect("listed");
        let found: Vec<u32> = entries.iter().filter(|e| e.active).map(|e| e.id.0).collect();
        (entries.len(), found)
    };
    assert_eq!(active(), (2, vec![1]));
    activate(&path, KeyId(5)).expect("activated");
    assert_eq!(active(), (2, vec![5]));
    assert!(matches!(activate(&path, KeyId(3)), Err(KeysError::ActiveAbsent { .. })));
    assert_eq!(active(), (2, vec![5]));
    assert_eq!(dir.names(), ["1.key", "5.key", "active"], "no temporary file stays");
}

#[test]
fn what_a_crash_left_beside_a_key_never_costs_the_key() {
    // Promise: no key is ever replaced, not even where a process with this one's number (in a
    // container it is always 1) died between giving a new key its name and dropping the first.
    let dir = Dir::new();
    let path = dir.path();
    dir.put("1.key", GOOD, 0o600).put("active", "1\n", 0o600);
    let left = path.join(format!(".1.key.{}", std::process::id()));
    fs::hard_link(path.join("1.key"), left).expect("linked");
    let taken = generate(&path, Some(KeyId(1)), None);
    assert!(matches!(taken, Err(KeysError::Exists { .. })), "{taken:?}");
    assert_eq!(fs::read_to_string(path.join("1.key")).expect("read"), GOOD);
}

#[test]
fn what_is_listed_tells_nothing_of_a_key() {
    // Promise: `key list` and debug output never hold key material.
    let dir = Dir::new();
    dir.put("1.key", GOOD, 0o600).put("active", "1\n", 0o600);
    let entries = list(&dir.path(), None, &[]).expect("listed");
    assert_eq!(entries[0].check.as_ref().expect("there").len(), 8);
    let shown = format!("{entries:?}{:?}{:?}", load(&dir.path(), None), ephemeral());
    assert!(!shown.contains(&GOOD[..8]), "{shown}");
}
