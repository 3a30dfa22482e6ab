//! The end: the client leaves, or a signal comes.

use rustix::process::Signal;

use crate::world::{Wrap, until};

#[test]
fn the_end_of_input_ends_the_server_after_its_answers() {
    // Promise: what was asked before the end of input is answered yet.
    let mut wrap = Wrap::start("").initialized();
    wrap.call("1", "slow", r#"{"ms":200}"#);
    wrap.close_input();
    let ended = wrap.wait();
    assert_eq!(ended.code, Some(0));
    assert!(ended.rest.len() == 1 && ended.rest[0].contains("\"id\":1"), "{ended:?}");
    // A client that only looks whether it can be started.
    let ended = Wrap::start("").end();
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}

#[test]
fn a_signal_ends_a_server_that_ignores_it() {
    // Promise: SIGTERM ends wrap and server with code 0, even one that is deaf to SIGTERM.
    for (signal, role) in [(Signal::TERM, "deaf-to-term stays"), (Signal::INT, "stays")] {
        let dir = tempfile::tempdir().expect("a directory");
        let births = dir.path().join("births").display().to_string();
        let wrap = Wrap::start(&format!("{role} births={births}")).initialized();
        wrap.signal(signal);
        let ended = wrap.wait();
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{}", ended.stderr);
        let pid = std::fs::read_to_string(births).expect("a birth");
        assert!(!crate::world::lives(pid.trim()));
    }
}

#[test]
fn a_client_that_reads_no_more_is_no_panic() {
    // Promise: a closed stdout ends the wrap with code 0.
    let mut wrap = Wrap::start("").initialized();
    wrap.close_output();
    // A closed pipe is noticed by who writes to it.
    until("the wrap ends", || !wrap.tries_to_call());
    let ended = wrap.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn stderr_is_passed_on_behind_the_servers_name() {
    // Promise: a person sees whose words they are.
    let wrap = Wrap::of(&["sh", "-c", "echo one >&2; printf two >&2; cat >/dev/null"]);
    let ended = wrap.end();
    assert_eq!(ended.stderr, "[srv] one\n[srv] two\n");
}
