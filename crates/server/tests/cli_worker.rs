//! `counterfoil worker`, as a person starts it.

mod command;

use command::Bench;

#[test]
fn a_worker_that_could_deliver_nothing_says_so_and_makes_nothing() {
    // Promise: a worker that can do nothing ends at once with the remedy and exit code 2, and
    // leaves no ledger behind.
    let memory = ("COUNTERFOIL_STORE", "memory");
    type Case<'a> = (&'a [&'a str], Option<(&'a str, &'a str)>, &'a str);
    let cases: [Case<'_>; 5] = [
        (&[], None, "no connector is configured"),
        (&["--target", "desk"], None, "no connector is configured"),
        (&[], Some(memory), "seen by its own process alone"),
        (&["--target", "Big Desk"], None, "cannot name a target"),
        (&["--drain", "2h"], None, "this wait is at most one hour"),
    ];
    for (arguments, variable, words) in cases {
        let mut bench = Bench::new();
        if let Some((name, value)) = variable {
            bench = bench.with_env(name, value);
        }
        let mut line = vec!["worker"];
        line.extend_from_slice(arguments);
        let ended = bench.run(&line);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
        assert!(!bench.data("ledger.db").exists(), "{arguments:?}: nothing is made");
    }
}
