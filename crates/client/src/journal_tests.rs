//! The journal: what is on disk, who may read it, and what a crash leaves.

use super::*;

fn id(text: &str) -> OperationId {
    OperationId::parse(text).expect("valid")
}

fn entry(operation_id: Option<&str>) -> Entry {
    Entry::new(operation_id.map(id), "create_issue", "prog", Timestamp::from_ms(0))
}

#[test]
fn an_identity_is_on_disk_before_save_returns() {
    // Promise: the file is private, has one JSON object per line, and no field for an argument.
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state/deep/calls.jsonl");
    let journal = Journal::open(&path).expect("opened");
    journal.save(&entry(Some("op-1"))).expect("saved");
    journal.save(&entry(None)).expect("saved");
    journal.save(&entry(Some("op-2"))).expect("saved");
    journal.settle(Some(&id("op-1")), "prog", Outcome::Applied).expect("settled");

    let text = fs::read_to_string(&path).expect("text");
    assert_eq!(
        text.lines().next(),
        Some(
            "{\"kind\":\"saved\",\"operationId\":\"op-1\",\"tool\":\"create_issue\",\
             \"server\":\"prog\",\"savedAt\":\"1970-01-01T00:00:00.000Z\"}"
        )
    );
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("has one")), 0o700);
    let read = Journal::read(&path).expect("read");
    let settled: Vec<_> = read.iter().map(|saved| saved.settled).collect();
    assert_eq!(settled, [Some(Outcome::Applied), None, None]);
    assert_eq!(read[1].entry, entry(None));
}

#[test]
fn an_outcome_closes_the_calls_that_it_is_of_and_no_other() {
    // Promise: what is of one call leaves an earlier, lost one with the same ID open; what is of
    // the operation closes all its calls at that server; a call is never forgotten.
    use Outcome::{Answered, Applied, Named, NotApplied, NotSent, Partial, Refused};
    type Saves<'s> = &'s [Option<&'s str>];
    type Case<'s> = (Saves<'s>, Option<&'s str>, &'s str, &'s [Outcome], Saves<'s>);
    let (a, b) = (Some("a"), Some("b"));
    let cases: [Case<'_>; 11] = [
        (&[a, a], a, "prog", &[NotSent], &[a]),
        (&[a, a], a, "prog", &[Refused], &[a]),
        (&[a, a], a, "prog", &[Answered], &[a]),
        (&[a, a], a, "prog", &[NotSent, Refused], &[]),
        (&[a, b, a], a, "prog", &[Applied], &[b]),
        (&[a, a], a, "prog", &[Refused, Partial], &[]),
        (&[a, a], a, "prog", &[NotApplied], &[]),
        (&[a], a, "other", &[Applied], &[a]),
        (&[None, a], None, "prog", &[Named], &[a]),
        (&[a], b, "prog", &[Applied], &[a]),
        (&[], a, "prog", &[NotSent, Applied], &[]),
    ];
    for (saves, id_of, server, outcomes, expected) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.jsonl");
        assert_eq!(Journal::pending(&path).expect("no file is no call"), []);
        let journal = Journal::open(&path).expect("opened");
        for save in saves {
            journal.save(&entry(*save)).expect("saved");
        }
        for outcome in outcomes {
            journal.settle(id_of.map(id).as_ref(), server, *outcome).expect("noted");
        }
        let pending = Journal::pending(&path).expect("read");
        let expected: Vec<_> = expected.iter().map(|save| entry(*save)).collect();
        assert_eq!(pending, expected, "{saves:?} {outcomes:?}");
    }
}

#[test]
fn a_torn_line_loses_itself_alone() {
    // Promise: a crash in mid-write costs that line, never the ones before it or after it.
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("calls.jsonl");
    let journal = Journal::open(&path).expect("opened");
    journal.save(&entry(Some("op-1"))).expect("saved");
    let whole = fs::read(&path).expect("bytes");
    for cut in 0..whole.len() {
        let torn = [&whole[..], &whole[..cut]].concat();
        fs::write(&path, &torn).expect("written");
        let read = Journal::read(&path).expect("read");
        // Cut before its newline alone, the line is whole.
        let expected = if cut == whole.len() - 1 { 2 } else { 1 };
        assert_eq!(read.len(), expected, "cut at {cut}");
        let journal = Journal::open(&path).expect("opened again");
        journal.save(&entry(Some("op-2"))).expect("saved");
        let read = Journal::read(&path).expect("read");
        assert_eq!(read.last().expect("one").entry, entry(Some("op-2")), "cut at {cut}");
        assert_eq!(read.len(), expected + 1, "cut at {cut}");
    }
}

#[test]
fn a_journal_that_cannot_be_trusted_or_written_is_an_error_that_names_it() {
    // Promise: a failed save is an error with value, rule and remedy, so that nothing is sent.
    let dir = tempfile::tempdir().expect("a directory");
    let open = dir.path().join("open.jsonl");
    fs::write(&open, "").expect("written");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("set");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    let cases = [
        (open, "mode 0644"),
        (dir.path().to_owned(), "cannot be opened"),
        (file.join("calls.jsonl"), "cannot be opened"),
    ];
    for (path, words) in cases {
        let error = Journal::open(&path).expect_err("refused").to_string();
        assert!(error.contains(words) && error.contains(&*path.to_string_lossy()), "{error}");
    }
    let full = Journal::open("/dev/full").expect("opened");
    let error = full.save(&entry(Some("op-1"))).expect_err("no space").to_string();
    assert!(error.contains("/dev/full cannot be written"), "{error}");
}
