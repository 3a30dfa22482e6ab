//! Tokens are shown once, kept as digests, and refused as soon as the file says so.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const NOW: i64 = 1_800_000_000_000;

fn now() -> Timestamp {
    Timestamp::from_ms(NOW)
}

fn caller(tenant: &str, principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse(tenant).unwrap(),
        principal: Principal::parse(principal).unwrap(),
    }
}

fn new(tenant: &str, principal: &str) -> NewToken {
    NewToken { caller: caller(tenant, principal), rights: vec![Right::Tools], expires_at: None }
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    (dir, path)
}

#[test]
fn the_file_never_holds_a_token() {
    // Promise: who reads the file, or a message about it, cannot call.
    let (_dir, path) = scratch();
    let made = create(&path, &new("acme", "alice"), now()).unwrap();
    let secret = made.secret.reveal();
    assert!(secret.starts_with("cf_") && secret.len() == 46, "{} characters", secret.len());
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&secret[3..]), "the file holds the token");
    assert!(!format!("{made:?}").contains(&secret[3..]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let other = create(&path, &new("acme", "alice"), now()).unwrap();
    assert_ne!(other.secret.reveal(), secret);
    assert_eq!(list(&path).unwrap().len(), 2);
}

#[test]
fn a_running_server_sees_each_change_at_its_next_request() {
    // Promise: a token counts as soon as it is made and stops as soon as it is revoked.
    let (_dir, path) = scratch();
    let live = LiveTokens::open(&path).unwrap();
    assert!(live.usable() && !live.any_live(now()));
    assert_eq!(live.authenticate("cf_x", now()), Err(Denied::Invalid));
    let alice = create(&path, &new("acme", "alice"), now()).unwrap();
    let bob = create(&path, &new("other", "bob"), now()).unwrap();
    let who = |token: &CreatedToken| live.authenticate(token.secret.reveal(), now());
    assert_eq!(who(&alice).unwrap().caller, caller("acme", "alice"));
    assert_eq!(who(&bob).unwrap().caller, caller("other", "bob"));
    assert_eq!(who(&alice).unwrap().token_id, alice.id);
    assert!(who(&alice).unwrap().may(Right::Tools) && !who(&alice).unwrap().may(Right::Metrics));
    assert!(revoke(&path, &alice.id, now()).unwrap());
    assert!(!revoke(&path, &alice.id, now()).unwrap(), "it was not live any more");
    assert_eq!(who(&alice), Err(Denied::Invalid));
    assert!(who(&bob).is_ok());
    fs::remove_file(&path).unwrap();
    assert_eq!(who(&bob), Err(Denied::Invalid));
}

#[test]
fn a_token_ends_at_its_expiry() {
    // Promise: an expired token is refused, at that very millisecond and after it.
    let (_dir, path) = scratch();
    let expires_at = Some(now().plus(Duration::from_secs(60)));
    let made = create(&path, &NewToken { expires_at, ..new("acme", "alice") }, now()).unwrap();
    let live = LiveTokens::open(&path).unwrap();
    let at = |ms: i64| live.authenticate(made.secret.reveal(), Timestamp::from_ms(NOW + ms));
    assert!(at(59_999).is_ok());
    assert_eq!(at(60_000), Err(Denied::Invalid));
    assert_eq!(at(60_001), Err(Denied::Invalid));
}

#[test]
fn a_file_that_cannot_be_used_lets_nobody_in() {
    // Promise: a damaged or exposed file grants nothing, says what is wrong, and shows no value.
    let entry = |change: fn(&mut serde_json::Value)| {
        let mut entry = serde_json::json!({
            "id": "a1", "sha256": "00".repeat(32), "tenant": "t", "principal": "p",
            "rights": ["tools"], "created_at": "2026-01-31T09:30:00Z",
            "expires_at": null, "revoked_at": null
        });
        change(&mut entry);
        serde_json::json!({ "version": 1, "tokens": [entry] }).to_string()
    };
    let secret = "cf_SENTINELSENTINELSENTINELSENTINELSENTINELSEN";
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "line 1, column 0 does not fit"),
        ("{}".into(), "does not fit"),
        (format!("{{\"{secret}\":1}}"), "does not fit"),
        ("{\"version\":2,\"tokens\":[]}".into(), "its version is 2, and not 1"),
        (entry(|e| e["sha256"] = "cf_SENTINEL".into()), "sha256 must be 64 hexadecimal digits"),
        (entry(|e| e["sha256"] = "0".repeat(63).into()), "sha256 must be 64 hexadecimal digits"),
        (entry(|e| e["expires_at"] = "tomorrow SENTINEL".into()), "a time must be RFC 3339"),
        (entry(|e| e["tenant"] = "".into()), "does not fit"),
        (entry(|e| e["rights"] = serde_json::json!(["root"])), "does not fit"),
        (entry(|e| e["expires"] = "x".into()), "does not fit"),
        (entry(|e| e["id"] = "a b".into()), "id must be letters and digits"),
    ];
    let (_dir, path) = scratch();
    let made = create(&path, &new("acme", "alice"), now()).unwrap();
    let good = fs::read(&path).unwrap();
    let live = LiveTokens::open(&path).unwrap();
    let write = |bytes: &[u8]| {
        // Replaced as a whole, as the commands do it.
        let beside = path.with_extension("tmp");
        fs::write(&beside, bytes).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&beside, &path).unwrap();
    };
    for (text, expected) in &cases {
        write(text.as_bytes());
        let error = list(&path).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("SENTINEL"), "{error}");
        assert_eq!(live.authenticate(made.secret.reveal(), now()), Err(Denied::Unavailable));
        assert!(!live.usable());
    }
    write(&good);
    assert!(live.authenticate(made.secret.reveal(), now()).is_ok());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(list(&path), Err(TokensError::Exposed { mode: 0o640, .. })));
    assert_eq!(live.authenticate(made.secret.reveal(), now()), Err(Denied::Unavailable));
}

#[test]
fn two_changes_at_once_are_both_kept() {
    // Promise: a revocation is not lost to a token that is made at the same moment.
    let (_dir, path) = scratch();
    let made = create(&path, &new("acme", "alice"), now()).unwrap();
    std::thread::scope(|scope| {
        for at in 0..8 {
            let path = &path;
            let principal = format!("p{at}");
            scope.spawn(move || create(path, &new("acme", &principal), now()).unwrap());
        }
        scope.spawn(|| revoke(&path, &made.id, now()).unwrap());
    });
    let entries = list(&path).unwrap();
    assert_eq!(entries.len(), 9);
    assert!(!entries[0].is_live(now()));
    let error = revoke(&path, "zz", now()).expect_err("no such token").to_string();
    assert!(error.contains("lists no token zz"), "{error}");
}
