//! A disk that fails, tears and loses power beneath the ledger, by enumeration.
//! `COUNTERFOIL_TEST_FULL=1` tries every place; otherwise every so-manieth is tried.

use counterfoil_lab::faults::disk::{DiskArgs, Report, Row, explore, run};

fn is_full() -> bool {
    std::env::var("COUNTERFOIL_TEST_FULL").is_ok_and(|value| value == "1")
}

fn asked(work: Option<&str>, stride: u64, seeds: u64) -> DiskArgs {
    DiskArgs {
        work: work.map(str::to_owned),
        trial: None,
        stride: if is_full() { 1 } else { stride },
        seeds: if is_full() { 4 } else { seeds },
        seed: 1,
        json: false,
    }
}

fn check(report: &Report) {
    for row in &report.rows {
        let Row { work, kind, problems, bad_count, .. } = row;
        assert_eq!(*bad_count, 0, "{work}, {kind}: {problems:#?}");
        assert!(row.hits_count > 0, "{work}, {kind}: nothing went wrong, so nothing was shown");
    }
    assert!(report.control.bad_count > 0, "a disk that lies about what it synchronised was missed");
    assert!(report.is_good());
}

#[tokio::test]
async fn no_fault_of_the_disk_makes_an_answer_false() {
    // Promise: wherever a call of the disk fails or the power goes off, what was acknowledged is
    // there, what was refused is not, the check is clean, and the work can be brought to its end.
    check(&explore(&asked(None, 13, 1)).await.expect("the lab works"));
}

#[tokio::test]
async fn a_new_ledger_is_whole_or_not_there() {
    // Promise: a ledger that could not be written whole is never given its name; nobody is told
    // to restore a backup because the disk was full while it was made.
    check(&explore(&asked(Some("fresh-ledger"), 7, 1)).await.expect("the lab works"));
}

#[tokio::test]
async fn what_these_trials_once_found_stays_mended() {
    // Promise: a draft whose log was not written back is no ledger; a page that cannot be read
    // now is not told as damage.
    for (work, trial) in [
        ("fresh-ledger", "read:6:io:once"),
        ("fresh-ledger", "read:11:io:once"),
        ("fresh-ledger", "power:76:everything:1"),
        ("migration", "read:11:io:for-ever"),
        ("recovery", "read:21:io:once"),
    ] {
        let args = DiskArgs { trial: Some(trial.to_owned()), ..asked(Some(work), 1, 1) };
        let (told, good) = run(&args).await.expect("the lab works");
        assert!(good, "{told}");
    }
}
