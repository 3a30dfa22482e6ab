//! What can only be brought about from inside: a commit whose acknowledgement is lost, and a record
//! whose result retention has taken.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use counterfoil_core::admission::{Decision, LedgerTime, decide};
use counterfoil_core::direct::Report as DirectReport;
use counterfoil_core::limits::MAX_RESULT_BYTES;
use counterfoil_core::observation::{EffectSeen, Snapshot};
use counterfoil_core::operation::Verdict;
use counterfoil_core::record::Record;
use counterfoil_core::refusal::Refusal;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::commands::{Command, Done, Session};
use super::direct::{Done as Directly, Opened as Turned};
use super::log::{self, Helper, LOG_LIMIT_BYTES};
use super::open::{self, Opened};
use super::outbox;
use super::readers::Question;
use super::rows::{self, Found};
use super::writer::{Job, Writer};
use super::{SqliteStore, check};
use crate::contract::{Answer, Finish, Resolve, Resolved, Store, Submission};
use crate::direct::{Begin, Hold};
use crate::error::StoreError;
use crate::keys::KeyCheck;
use crate::outbox::{Accepted, RevokeOrder};
use crate::suite::calls::{BOOT, TestCall, call};
use crate::suite::clock::TestClock;
use crate::suite::direct as suite;
use crate::suite::effects::{First, Goes, Probe, note, probe, two_steps};
use crate::suite::factories::Sqlite;
use crate::suite::outbox as items;
use crate::suite::{Bench, Factory};

type Reply = oneshot::Receiver<Result<Done, StoreError>>;

/// A writer that runs in the test's own thread.
struct Bed {
    factory: Sqlite,
    clock: Arc<TestClock>,
    writer: Writer,
}

fn bed() -> Bed {
    let bench = Bench::<Sqlite>::new();
    let (factory, clock) = (bench.factory, bench.clock);
    let Opened { session, row } =
        open::open(&factory.options, &factory.options.path).expect("opens");
    let writer = Writer::new(session, row.backend_id, Duration::ZERO, 2048);
    Bed { factory, clock, writer }
}

impl Bed {
    fn run(&mut self, commands: Vec<Command>) -> Vec<Result<Done, StoreError>> {
        let (mut jobs, replies): (Vec<Job>, Vec<Reply>) =
            commands.into_iter().map(Job::new).unzip();
        self.writer.run_batch(&mut jobs);
        replies.into_iter().map(answer).collect()
    }

    /// Runs the commands in one committed transaction, and loses the acknowledgement.
    fn run_unacknowledged(&mut self, commands: Vec<Command>) -> Vec<Result<Done, StoreError>> {
        let session = self.writer.session.as_mut().expect("open");
        session.connection.execute_batch("BEGIN IMMEDIATE").expect("begins");
        let (mut jobs, replies): (Vec<Job>, Vec<Reply>) =
            commands.into_iter().map(Job::new).unzip();
        for job in &mut jobs {
            job.held = Some(Ok(session.run(&job.command).expect("works")));
        }
        session.connection.execute_batch("COMMIT").expect("commits");
        self.writer.recall(&mut jobs);
        jobs.into_iter().for_each(Job::answer);
        replies.into_iter().map(answer).collect()
    }

    fn session(&mut self) -> &mut Session {
        self.writer.session.as_mut().expect("open")
    }

    fn fresh(&mut self, call: &TestCall, effect: &Probe) -> Record {
        match self.run(vec![submit(call, effect)]).remove(0) {
            Ok(Done::Answer(Answer::Fresh(record))) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// The next commit ends in an error that leaves no transaction, and commits nothing.
    fn lose_next_commit(&mut self) {
        let hook = Some(|| true);
        self.session().connection.commit_hook(hook).expect("a hook");
    }
}

fn answer(mut reply: Reply) -> Result<Done, StoreError> {
    reply.try_recv().expect("answered")
}

fn submit(call: &TestCall, effect: &Probe) -> Command {
    Command::Submit(Submission { admitted: call.admit(), effect: Arc::new(effect.clone()) })
}

fn finish(begun: &Record) -> Command {
    let effect = Arc::new(two_steps(Goes::Well, Goes::Well));
    Command::Finish(Finish { key: begun.key, boot: BOOT, fence: 1, effect })
}

fn resolve(call: &TestCall, verdict: Verdict, proof: Option<&str>) -> Command {
    Command::Resolve(Resolve {
        tenant: call.tenant(),
        operation_id: call.operation_id(),
        verdict,
        who: "olga".into(),
        reason: "seen".into(),
        proof: proof.map(str::to_owned),
    })
}

#[test]
fn a_lost_commit_is_unknown_and_the_same_operation_decides() {
    // Promise: when a commit fails in a way that leaves its outcome open, no caller is told that
    // it happened or that it did not; sent again, each takes effect once.
    for count in [1, 3] {
        let mut bed = bed();
        let commands = || {
            (0..count).map(|n| submit(&call(&format!("op-{n}")), &note("body"))).collect::<Vec<_>>()
        };
        bed.lose_next_commit();
        for answer in bed.run(commands()) {
            assert_eq!(answer.err(), Some(StoreError::CommitUnknown));
        }
        for answer in bed.run(commands()) {
            assert!(matches!(answer, Ok(Done::Answer(Answer::Fresh(_)))), "{answer:?}");
        }
        for answer in bed.run(commands()) {
            assert!(matches!(answer, Ok(Done::Answer(Answer::Replayed(_)))), "{answer:?}");
        }
    }
}

#[test]
fn a_commit_that_stands_is_found_by_its_own_mark() {
    // Promise: whoever's commit is in the ledger after all is told its answer; whoever only read
    // through that transaction is told to ask again.
    let mut bed = bed();
    let begun = bed.fresh(&call("begun"), &two_steps(Goes::Well, Goes::Well));
    bed.fresh(&call("resolved"), &two_steps(Goes::Well, Goes::Well));
    bed.clock.pass(Duration::from_secs(30));
    let key = KeyCheck { id: 4, value: [4; 16] };
    let mut answers = bed.run_unacknowledged(vec![
        submit(&call("op-1"), &note("body")),
        submit(&call("op-1"), &note("body")),
        finish(&begun),
        resolve(&call("resolved"), Verdict::NotApplied, Some("moved")),
        Command::BindKeys(vec![key]),
    ]);
    assert!(matches!(answers.remove(0), Ok(Done::Answer(Answer::Fresh(_)))));
    assert_eq!(answers.remove(0).err(), Some(StoreError::CommitUnknown));
    assert!(matches!(answers.remove(0), Ok(Done::Answer(Answer::Fresh(_)))));
    assert!(matches!(answers.remove(0), Ok(Done::Resolved(Resolved::Done(_)))));
    assert!(matches!(answers.remove(0), Ok(Done::KeysBound)));
}

#[test]
fn nothing_of_another_is_taken_for_ones_own() {
    // Promise: after a lost commit somebody else's settlement, decision or key is not taken for
    // the one that was lost.
    let mut bed = bed();
    let begun = bed.fresh(&call("begun"), &two_steps(Goes::Well, Goes::Well));
    bed.clock.pass(Duration::from_secs(30));
    let lost = vec![
        finish(&begun),
        resolve(&call("begun"), Verdict::NotApplied, Some("another proof")),
        resolve(&call("absent"), Verdict::Applied, None),
        Command::BindKeys(vec![KeyCheck { id: 4, value: [4; 16] }]),
    ];
    bed.run(vec![resolve(&call("begun"), Verdict::NotApplied, Some("moved"))]);
    let (mut jobs, replies): (Vec<Job>, Vec<Reply>) = lost.into_iter().map(Job::new).unzip();
    jobs[2].held = Some(Err(StoreError::EffectPanicked));
    bed.writer.recall(&mut jobs);
    jobs.into_iter().for_each(Job::answer);
    let mut answers: Vec<_> = replies.into_iter().map(answer).collect();
    // A command's own error left nothing to commit, so it stands.
    assert_eq!(answers.remove(2).err(), Some(StoreError::EffectPanicked));
    for answer in answers {
        assert_eq!(answer.err(), Some(StoreError::CommitUnknown));
    }
}

#[test]
fn a_ledger_that_cannot_be_opened_again_answers_and_recovers() {
    // Promise: after a lost commit, with the file gone, every caller is answered; when the file is
    // back the writer goes on by itself.
    let mut bed = bed();
    let path = bed.factory.options.path.clone();
    let aside = path.with_extension("aside");
    let (mut jobs, replies): (Vec<Job>, Vec<Reply>) =
        [submit(&call("op-1"), &note("x"))].into_iter().map(Job::new).unzip();
    bed.writer.session = None;
    std::fs::rename(&path, &aside).expect("moves");
    bed.writer.recall(&mut jobs);
    jobs.into_iter().for_each(Job::answer);
    for reply in replies {
        assert_eq!(answer(reply).err(), Some(StoreError::CommitUnknown));
    }
    let refused = bed.run(vec![submit(&call("op-1"), &note("x"))]).remove(0);
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    std::fs::rename(&aside, &path).expect("moves back");
    bed.fresh(&call("op-1"), &note("x"));
}

#[tokio::test]
async fn a_purged_record_is_still_a_record() {
    // Promise: when retention has taken the stored result, the record stays sound and says so.
    let mut bed = bed();
    let record = bed.fresh(&call("op-1"), &note("body"));
    let session = bed.session();
    let Ok(Found::Kept(mut kept)) = rows::find_by_key(&session.connection, record.key) else {
        panic!("no record")
    };
    kept.record.result = None;
    kept.record.purged = true;
    rows::update(&session.connection, &kept).expect("writes");
    drop(bed.writer);
    let store = SqliteStore::open(&bed.factory.options).expect("opens");
    let tenant = call("op-1").tenant();
    let found = store.look_up(&tenant, &call("op-1").operation_id()).await.expect("reads");
    let expected = Snapshot::Found { record: Box::new(kept.record), effect: EffectSeen::Same };
    assert_eq!(found, expected);
    let report = check(&bed.factory.options.path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_half_written_record_is_never_believed() {
    // Promise: a row between its insert and its update, were it ever committed, is damaged.
    let mut bed = bed();
    let session = bed.session();
    let kept = crate::steps::Kept::begin(&call("op-1").admit(), session.mark.now());
    session
        .connection
        .execute_batch("INSERT INTO tenants VALUES (1, CAST('local' AS BLOB))")
        .expect("ok");
    rows::insert(&session.connection, 1, &kept).expect("writes");
    let found = rows::find_by_key(&session.connection, kept.record.key).expect("reads");
    assert!(matches!(found, Found::Damaged(damage) if damage.column == "row_check"), "{found:?}");
}

#[test]
fn a_command_that_fails_beneath_its_effect_leaves_no_tenant() {
    // Promise: a tenant's number that was rolled back is not used as if it were there.
    let mut bed = bed();
    let call = TestCall { tenant: "new", ..call("op-1") };
    let failing = probe(First::FailsAfterInsert);
    let answers = bed.run(vec![submit(&call, &failing), submit(&call, &note("body"))]);
    assert!(matches!(answers[0], Err(StoreError::EffectFailed { .. })));
    assert!(matches!(answers[1], Ok(Done::Answer(Answer::Fresh(_)))));
    bed.fresh(&TestCall { id: "op-2".into(), ..call }, &note("body"));
    let report = check(&bed.factory.options.path).expect("a ledger");
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_record_found_under_a_shared_digest_is_a_conflict() {
    // Promise: a call whose ID only shares its digest with another's record never meets it.
    let mut bed = bed();
    let record = bed.fresh(&call("op-1"), &note("body"));
    let time = LedgerTime { now: record.created_at, horizon: record.created_at };
    let found = decide(&call("op-2").admit(), Some(&record), time);
    assert_eq!(found, Decision::Refuse(Refusal::conflict(call("op-2").operation_id())));
}

#[test]
fn durability_is_set_and_asserted() {
    // Promise: every connection writes through a log with full synchronisation.
    let mut bed = bed();
    let ask = |connection: &Connection, name: &str| {
        let text = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
        connection.query_row(&text, [], |row| row.get::<_, String>(0)).expect(name)
    };
    let reader = open::reader(&bed.factory.options.path, Duration::ZERO).expect("opens");
    for connection in [&bed.session().connection, &reader] {
        assert_eq!(ask(connection, "journal_mode"), "wal");
        assert_eq!(ask(connection, "synchronous"), "2");
        assert_eq!(ask(connection, "foreign_keys"), "1");
        assert_eq!(ask(connection, "trusted_schema"), "0");
    }
    assert!(reader.execute("DELETE FROM keys", []).is_err(), "a reader cannot write");
    assert_eq!(Sqlite::NAME, "sqlite");
}

#[test]
fn the_log_is_cut_when_it_has_grown_large() {
    // Promise: the write-ahead log does not keep the size of its largest moment; a reader that
    // stands in the way delays that and breaks nothing.
    let mut bed = bed();
    let path = bed.factory.options.path.clone();
    let log_bytes = || std::fs::metadata(open::beside(&path, "-wal")).expect("a log").len();
    let reader = Connection::open(&path).expect("opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM operations").expect("reads");
    let big = probe(First::Result(MAX_RESULT_BYTES - 2));
    let commands = (0..5).map(|number| submit(&call(&format!("op-{number}")), &big)).collect();
    for answer in bed.run(commands) {
        assert!(matches!(answer, Ok(Done::Answer(Answer::Fresh(_)))));
    }
    let large = log_bytes();
    assert!(large > LOG_LIMIT_BYTES, "{large} bytes");
    bed.writer.keep_log();
    assert_eq!(log_bytes(), large, "a reader still needs it");
    drop(reader);
    bed.writer.log.cut_after = Instant::now();
    bed.writer.keep_log();
    assert_eq!(log_bytes(), 0);
    bed.fresh(&call("after"), &note("x"));
}

#[test]
fn the_log_begins_anew_beside_a_busy_writer() {
    // Promise: the log is written back by a reading connection, asked once at a time; then it
    // begins anew and does not grow with every operation.
    let mut bed = bed();
    let path = bed.factory.options.path.clone();
    let log_bytes = || std::fs::metadata(open::beside(&path, "-wal")).expect("a log").len();
    let reader = open::reader(&path, Duration::ZERO).expect("opens");
    let (questions, asked) = channel();
    bed.writer.log.helper = Some(Helper::new(questions));
    let big = probe(First::Result(MAX_RESULT_BYTES - 2));
    bed.fresh(&call("op-1"), &big);
    let once = log_bytes();
    bed.writer.keep_log();
    let Ok(Question::WriteBack { done }) = asked.try_recv() else { panic!("nobody was asked") };
    bed.writer.keep_log();
    assert!(asked.try_recv().is_err(), "asked while it was busy");
    log::write_back(&reader);
    drop(done);
    bed.writer.keep_log();
    bed.fresh(&call("op-2"), &big);
    assert!(log_bytes() < once + once / 2, "{} bytes after {once}", log_bytes());
}

#[test]
fn a_probe_writes_though_the_mark_is_there() {
    // Promise: "a write would commit" is proved by a write, also within the millisecond whose mark
    // the ledger has; a command that has nothing to write and meets that mark writes no page.
    let mut bed = bed();
    let path = bed.factory.options.path.clone();
    let log_bytes = || std::fs::metadata(open::beside(&path, "-wal")).expect("a log").len();
    bed.fresh(&call("op-1"), &note("x"));
    let before = log_bytes();
    let replayed = bed.run(vec![submit(&call("op-1"), &note("x"))]);
    assert!(matches!(replayed[..], [Ok(Done::Answer(Answer::Replayed(_)))]), "{replayed:?}");
    assert_eq!(log_bytes(), before);
    assert!(matches!(bed.run(vec![Command::Probe])[..], [Ok(Done::Probed)]));
    assert!(log_bytes() > before, "a probe wrote nothing");
}

fn direct(command: super::direct::Command) -> Command {
    Command::Direct(command)
}

fn begin_direct(id: &str, ready: bool) -> Command {
    let asked = Begin { ready, ..suite::begin(&call(id)) };
    direct(super::direct::Command::Begin(Box::new(asked)))
}

fn conclude(hold: Hold) -> Command {
    let said = suite::plain(hold, DirectReport::Lost);
    direct(super::direct::Command::Conclude(vec![(said, None)]))
}

impl Bed {
    /// Begins a direct operation.
    fn hold(&mut self, id: &str, ready: bool) -> Hold {
        match self.run(vec![begin_direct(id, ready)]).remove(0) {
            Ok(Done::Direct(Directly::Begun(Turned::Send(hold, _) | Turned::Wait(hold, _)))) => {
                hold
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lost_commit_of_a_direct_operation_is_found_by_its_hold() {
    // Promise: what is in the ledger under a run and fence is told to whoever sent it, and whoever only
    // read through that transaction asks again.
    let mut bed = bed();
    let (sent, claimed) = (bed.hold("sent", true), bed.hold("claimed", false));
    let answers = bed.run_unacknowledged(vec![
        begin_direct("op-1", true),
        begin_direct("op-2", false),
        direct(super::direct::Command::Dispatch(claimed, suite::LEASE)),
        conclude(sent),
        begin_direct("op-1", true),
    ]);
    let told: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(told, [true, true, true, true, false], "{answers:?}");
    assert!(matches!(answers[0], Ok(Done::Direct(Directly::Begun(Turned::Send(..))))));
    assert!(matches!(answers[1], Ok(Done::Direct(Directly::Begun(Turned::Wait(..))))));
    assert!(matches!(answers[2], Ok(Done::Direct(Directly::Dispatched(Some(_))))));
    assert!(matches!(answers[3], Ok(Done::Direct(Directly::Concluded(_)))));
}

#[test]
fn a_commit_of_a_direct_operation_that_does_not_stand_is_unknown() {
    // Promise: nobody is told to send, or that a report was taken, by a commit that is not there; said
    // again each takes effect.
    let mut bed = bed();
    let (sent, claimed) = (bed.hold("sent", true), bed.hold("claimed", false));
    let commands = || {
        vec![
            begin_direct("op-1", true),
            direct(super::direct::Command::Dispatch(claimed, suite::LEASE)),
            conclude(sent),
        ]
    };
    bed.lose_next_commit();
    for answer in bed.run(commands()) {
        assert_eq!(answer.err(), Some(StoreError::CommitUnknown));
    }
    for answer in bed.run(commands()) {
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[test]
fn a_revocation_holds_for_what_shares_its_transaction() {
    // Promise: what a transaction has read of revocations is not older than what it wrote itself, and
    // not what a command wrote that was rolled back.
    let mut bed = bed();
    let caller = crate::suite::calls::caller(call("x").tenant, call("x").principal);
    let revoke = |revoked| {
        let (tenant, principal) = (caller.tenant.clone(), Some(caller.principal.clone()));
        let (who, reason) = ("olga".to_owned(), "left".to_owned());
        let order = RevokeOrder { tenant, principal, revoked, who, reason };
        Command::Outbox(outbox::Command::SetRevoked(order))
    };
    let accept = |id| {
        let asked = items::acceptance(&call(id), items::DESK, items::terms(items::KEY));
        Command::Outbox(outbox::Command::Accept(Box::new(asked)))
    };
    let answers = bed.run(vec![
        accept("op-1"),
        revoke(true),
        accept("op-2"),
        submit(&call("op-3"), &probe(First::FailsAfterInsert)),
        accept("op-4"),
        revoke(false),
        accept("op-5"),
    ]);
    let is_fresh = |at: usize| match &answers[at] {
        Ok(Done::Outbox(outbox::Done::Accepted(accepted))) => {
            matches!(accepted, Accepted::Fresh(_))
        }
        other => panic!("{other:?}"),
    };
    assert!(answers[3].is_err());
    assert_eq!([0, 2, 4, 6].map(is_fresh), [true, false, false, true]);
}
