//! SQLite on the disk: it counts, fails where it is told to, and loses what was not synchronised.

use std::path::Path;

use counterfoil_fault_disk::{Call, Disk, Failure, Fault, Loss};
use rusqlite::Connection;

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

fn count(path: &Path) -> i64 {
    let connection = open(path).expect("opens");
    let verdict: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("readable");
    assert_eq!(verdict, "ok");
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("readable")
}

/// A database with one row on a disk of its own.
fn made() -> (tempfile::TempDir, Disk, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::over(directory.path()).expect("a disk");
    let path = directory.path().canonicalize().expect("there").join("t.db");
    let connection = open(&path).expect("opens");
    connection.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").expect("works");
    (directory, disk, path)
}

#[test]
fn each_kind_of_call_can_be_made_to_fail() {
    // Promise: the fault that was asked for is the one that happens, or enumerating them is void.
    for call in Call::ALL {
        let (_directory, disk, path) = made();
        disk.set(Some(Fault::Fail { call, nth: 1, failure: Failure::Io, for_ever: true }));
        let outcome = open(&path).and_then(|connection| {
            connection.execute_batch("INSERT INTO t VALUES (2)")?;
            connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
            connection.close().map_err(|(_, error)| error)
        });
        assert!(disk.hits_count() > 0, "{call:?}");
        // SQLite leaves a log that it cannot delete, and says nothing.
        assert_eq!(outcome.is_err(), call != Call::Delete, "{call:?}: {outcome:?}");
        disk.set(None);
        assert!(count(&path) >= 1, "{call:?}");
    }
}

#[test]
fn a_commit_survives_the_power_and_what_was_not_synchronised_need_not() {
    // Promise: what was committed with an honest disk is there after every loss; with a disk that
    // lies it is missed, so that a loss can be seen at all.
    for (lies, lost_is_wanted) in [(false, false), (true, true)] {
        let mut lost = 0;
        for loss in Loss::ALL {
            let (_directory, disk, path) = made();
            disk.lie_about_sync(lies);
            let connection = open(&path).expect("opens");
            connection.execute_batch("INSERT INTO t VALUES (2)").expect("commits");
            disk.power_off();
            connection.execute_batch("INSERT INTO t VALUES (3)").expect_err("no power");
            drop(connection);
            disk.restart(loss, 7).expect("all is closed");
            disk.lie_about_sync(false);
            lost += i32::from(count(&path) != 2);
        }
        assert_eq!(lost > 0, lost_is_wanted, "{lost}");
    }
}

#[test]
fn files_elsewhere_are_left_alone() {
    // Promise: a disk over one directory fails nobody else.
    let (_directory, disk, path) = made();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let other = open(&elsewhere.path().join("t.db")).expect("opens");
    disk.power_off();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").expect("has power");
    assert!(open(&path).and_then(|it| it.execute_batch("INSERT INTO t VALUES (2)")).is_err());
}
