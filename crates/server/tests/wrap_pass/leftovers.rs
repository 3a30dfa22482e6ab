//! Nothing of a server outlives the wrap, whoever ends it and how.

use std::fs;

use rustix::process::{Signal, set_child_subreaper};

use crate::world::{Wrap, lives, until};

#[test]
fn a_killed_gateway_leaves_no_process() {
    // Promise: after many reconnects and a kill -9 of the gateway, no child, no grandchild that made
    // itself a daemon, and no zombie is left.
    // What outlives its parent comes to us and not to a process that may collect nobody.
    set_child_subreaper(Some(rustix::process::getpid())).expect("Linux");
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let role = format!("births={}", path("births"));
    for n in 0..100 {
        let wrap = Wrap::start(&role).initialized();
        if n % 10 == 0 {
            let file = path(&format!("orphan{n}"));
            wrap.call("1", "orphan", &format!("{{\"file\":\"{file}\"}}"));
            wrap.line();
        }
        if n < 99 {
            assert_eq!(wrap.end().code, Some(0));
            continue;
        }
        wrap.call("1", "orphan", &format!("{{\"file\":\"{}\"}}", path("orphan-last")));
        wrap.line();
        wrap.signal(Signal::KILL);
        assert_eq!(wrap.wait().signal, Some(9));
    }
    let mut pids: Vec<String> = Vec::new();
    for entry in fs::read_dir(dir.path()).expect("a directory") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("text");
        pids.extend(text.lines().map(str::to_owned));
    }
    assert_eq!(pids.len(), 111);
    until("all of them are gone", || {
        // The reaper itself comes to us when its gateway is killed.
        collect();
        pids.iter().all(|pid| !lives(pid))
    });
}

/// Collects the reapers that have come to us and ended. None of this test program's own children:
/// other tests wait for those.
fn collect() {
    let own = rustix::process::getpid().as_raw_nonzero();
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{own}/task")).expect("Linux");
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace().filter(|pid| stat(pid).contains(") Z")) {
            let is_reaper = stat(pid).contains("(counterfoil) Z") && !is_ours(pid);
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw)
                && is_reaper
            {
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
            }
        }
    }
}

/// Reapers lead a process group of their own; wraps that tests start do not.
fn is_ours(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let group = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(2).map(str::to_owned));
    group.as_deref() != Some(pid)
}
