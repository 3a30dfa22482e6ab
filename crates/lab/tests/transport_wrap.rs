//! Faults on both pipes of `counterfoil wrap`: between the client and the gateway, and between the
//! gateway and the server that is wrapped. What happened is read from that server's own file.

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use common::{LAB, note};
use counterfoil_lab::process::{Launch, Process};
use counterfoil_lab::transport::plan::{Direction, Fault, Position};
use counterfoil_lab::within::within;
use counterfoil_lab::wrapped::gateway::{Gateway, May, Told};
use counterfoil_lab::wrapped::world::{Kind, World};
use rustix::process::Signal;
use tokio::task::JoinSet;

/// The settings without the way to look for a note.
const BLIND: &str = "[wrap]\nname = \"notes\"\n\n[wrap.tools.find_notes]\neffect = \"read\"\n\n\
                     [wrap.tools.add_note]\neffect = \"write\"\n";
/// The client gives up this long after it called.
const DEADLINE: Duration = Duration::from_millis(400);
const AT_ONCE: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pipe {
    Client,
    Server,
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    pipe: Pipe,
    fault: Fault,
    direction: Direction,
    position: Position,
    /// Whether the gateway can look for the note.
    looks: bool,
}

#[derive(Debug)]
struct Outcome {
    struck: bool,
    told: Vec<Told>,
    effect_count: usize,
}

fn cells() -> Vec<Cell> {
    use Position::{After, First, Last, Middle};
    let mut cells = Vec::new();
    for (pipe, looks) in [(Pipe::Client, true), (Pipe::Server, true), (Pipe::Server, false)] {
        for direction in [Direction::Request, Direction::Reply] {
            for fault in
                [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Truncate, Fault::Corrupt]
            {
                for position in [First, Middle, Last, After] {
                    // Nothing is left that could be late. And a request that reaches the server
                    // twice is two calls: that is the control below.
                    let whole_twice =
                        fault == Fault::Duplicate && matches!(position, First | After);
                    if (fault == Fault::Delay && position == After)
                        || (pipe == Pipe::Server && direction == Direction::Request && whole_twice)
                    {
                        continue;
                    }
                    cells.push(Cell { pipe, fault, direction, position, looks });
                }
            }
        }
        let (direction, position) = (Direction::Reply, First);
        cells.push(Cell { pipe, fault: Fault::Misname, direction, position, looks });
    }
    cells
}

/// Whether the server's answer cannot have come to the gateway as an answer.
fn is_unreadable(cell: &Cell) -> bool {
    if cell.pipe != Pipe::Server || cell.direction != Direction::Reply {
        return false;
    }
    match (cell.fault, cell.position) {
        (Fault::Misname, _) => true,
        // Of a fault in the line's end the answer itself is whole: the gateway finds messages
        // between other output, and may take it or not.
        (_, Position::Last | Position::After) | (Fault::Delay, _) => false,
        (Fault::Duplicate, position) => position != Position::First,
        (Fault::Drop | Fault::Truncate | Fault::Corrupt, _) => true,
        _ => false,
    }
}

fn word(value: &impl clap::ValueEnum) -> OsString {
    value.to_possible_value().expect("a value has a name").get_name().into()
}

fn pipe_words(cell: &Cell, once: &Path) -> Vec<OsString> {
    let position = format!("{:?}", cell.position).to_lowercase();
    let mut words: Vec<OsString> = vec!["fault-pipe".into(), "--fault".into(), word(&cell.fault)];
    words.extend(["--direction".into(), word(&cell.direction), "--position".into()]);
    words.extend([position.into(), "--call".into(), "effect-000001".into()]);
    words.extend(["--once".into(), once.into(), "--".into()]);
    words
}

/// A gateway of `place`, behind or before the fault.
fn launch(cell: &Cell, world: &World, place: &Path) -> Launch {
    let product = Path::new(LAB).with_file_name("counterfoil");
    let once = place.join("struck");
    let mut words: Vec<OsString> = vec!["wrap".into(), "--data-dir".into()];
    words.push(place.join("data").into());
    words.extend(["--name", "lab", "--drain", "200ms", "--preset"].map(OsString::from));
    let blind = place.join("blind.toml");
    words.push(if cell.looks { world.preset().clone() } else { blind.into() });
    words.push("--".into());
    if cell.pipe == Pipe::Server {
        words.push(LAB.into());
        words.extend(pipe_words(cell, &once));
    }
    words.extend(world.command().iter().cloned());
    if cell.pipe == Pipe::Server || once.exists() {
        return Launch::server(&product, words);
    }
    let mut all = pipe_words(cell, &once);
    all.push(product.into());
    all.extend(words);
    Launch::server(Path::new(LAB), all)
}

async fn open(launch: &Launch) -> anyhow::Result<(Process, Gateway)> {
    let (process, pipes) = launch.start().await?;
    let gateway = Gateway::open(pipes).await;
    let gateway = gateway.with_context(|| format!("no gateway: {}", process.stderr()))?;
    Ok((process, gateway))
}

async fn run(cell: Cell, place: PathBuf) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(&place)?;
    let product = Path::new(LAB).with_file_name("counterfoil");
    let world = World::make(Kind::Notes, &place, &product)?;
    std::fs::write(place.join("blind.toml"), BLIND)?;
    let (tool, arguments) = world.call(1);
    let (mut process, gateway) = open(&launch(&cell, &world, &place)).await?;
    let mut told = Vec::new();
    let call = gateway.call(tool, arguments.clone(), "effect-000001");
    told.push(tokio::time::timeout(DEADLINE, call).await.unwrap_or(Told::Lost));
    let once = place.join("struck");
    gateway.close().await;
    // A pipe that swallows everything keeps what is behind it waiting for more: it is stopped.
    if tokio::time::timeout(Duration::from_secs(4), process.ended()).await.is_err() {
        let _ = process.signal(Signal::TERM);
        process.ended().await?;
    }
    let struck = once.exists();
    let (mut process, gateway) = open(&launch(&cell, &world, &place)).await?;
    for _ in 0..if cell.looks { 10 } else { 2 } {
        let reply = within("a reply", gateway.call(tool, arguments.clone(), "effect-000001"));
        let reply = reply.await?;
        let is_settled = matches!(&reply, Told::Reply { may: May::Rest, .. });
        told.push(reply);
        told.push(within("a status", gateway.status("effect-000001")).await?);
        if is_settled {
            break;
        }
    }
    gateway.close().await;
    process.ended().await?;
    let effect_count = world.effects()?.get(&1).copied().unwrap_or(0);
    Ok(Outcome { struck, told, effect_count })
}

fn found(cell: &Cell, outcome: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, words: &str| {
        if !holds {
            found.push(words.to_owned());
        }
    };
    let applied = |told: &Told| matches!(told, Told::Reply { state, .. } if state == "applied");
    let any_applied = outcome.told.iter().any(applied);
    check(outcome.struck, "the fault did not happen");
    check(outcome.effect_count <= 1, "the note was written twice");
    check(!any_applied || outcome.effect_count == 1, "told as applied, and there is no note");
    check(!is_unreadable(cell) || !applied(&outcome.told[0]), "a damaged answer was taken");
    check(
        cell.looks || !is_unreadable(cell) || !any_applied,
        "nothing can prove it, and it was told as applied",
    );
    // What was found to be there stays so.
    check(
        !cell.looks || outcome.effect_count == 0 || outcome.told.last().is_some_and(applied),
        "the note is there, and looking for it did not settle the call",
    );
    found
}

async fn run_all(cells: Vec<Cell>) -> Vec<(Cell, Outcome)> {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut running, mut outcomes) = (JoinSet::new(), Vec::new());
    for (number, cell) in cells.into_iter().enumerate() {
        if running.len() >= AT_ONCE {
            outcomes.push(running.join_next().await.expect("one runs").expect("no panic"));
        }
        let place = folder.path().join(number.to_string());
        running.spawn(async move {
            let outcome = run(cell, place).await;
            (cell, outcome.unwrap_or_else(|error| panic!("{cell:?}: {error:#}")))
        });
    }
    while let Some(outcome) = running.join_next().await {
        outcomes.push(outcome.expect("no panic"));
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_on_either_pipe_of_wrap_repeats_an_effect() {
    // Promise: whatever happens to a call or its answer on either side of the gateway, the server
    // writes once at most, and nothing is told as applied that the server's answer, or a look at its
    // notes, does not show.
    let outcomes = run_all(cells()).await;
    let failed: Vec<_> = outcomes
        .iter()
        .map(|(cell, outcome)| (cell, outcome, found(cell, outcome)))
        .filter(|(.., found)| !found.is_empty())
        .collect();
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    let with_note = outcomes.iter().filter(|(_, outcome)| outcome.effect_count == 1).count();
    let lost = outcomes.iter().filter(|(_, outcome)| outcome.told[0] == Told::Lost).count();
    note(&format!("wrap: {} cells, {with_note} with a note, {lost} calls lost", outcomes.len()));
    assert!(with_note > 0 && lost > 0, "the faults were none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_reaches_the_server_twice_is_seen() {
    // Promise: the judgement can fail: behind the gateway nobody can take back a second request, and
    // its second note is counted.
    let cell = Cell {
        pipe: Pipe::Server,
        fault: Fault::Duplicate,
        direction: Direction::Request,
        position: Position::First,
        looks: true,
    };
    let outcomes = run_all(vec![cell]).await;
    let (cell, outcome) = &outcomes[0];
    assert_eq!(outcome.effect_count, 2, "{outcome:?}");
    assert!(found(cell, outcome).iter().any(|it| it.contains("twice")), "{outcome:?}");
}
