//! `counterfoil-lab bench wrap`: what it costs to stand between a client and a server, beside a relay
//! that only copies bytes, and what a guarded call costs beside two synced appends.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;

use super::figures::{Check, Figure, Report, Round, Spread, over, over_pairs};
use super::machine::Machine;
use super::plan::Plan;
use super::wrap_side::{Side, Tool, data_dir};

/// The median call that is passed on, in calls through the copying relay.
const OF_COPIED: f64 = 1.25;
/// What a guarded call adds, in two synced appends.
const OF_APPENDS: f64 = 1.3;
/// The guarded rate with 16 in flight, as a part of the copying relay's.
const OF_COPIED_RATE: f64 = 0.40;
/// From the server's start to its first byte, in milliseconds.
const FIRST_BYTE_MS: f64 = 15.0;
/// Gateway and reaper together, resident, in bytes.
const RESIDENT_BYTES: f64 = 30.0 * 1_048_576.0;
/// What a large result costs, in copies of itself.
const COPIES: f64 = 3.0;

const IN_FLIGHT: usize = 16;
const LARGE_BYTES: usize = 10 * 1024 * 1024;

/// How a wrap is measured.
#[derive(Debug, Args)]
pub struct WrapArgs {
    /// Print JSON instead of Markdown tables
    #[arg(long)]
    json: bool,
    /// See whether everything runs; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Where the files are made: on the disk that is to be measured [default: a temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many interleaved rounds each figure is the median of
    #[arg(long)]
    pairs: Option<usize>,
}

/// Measures, and gives what is printed. The product's binary is taken from beside this one.
///
/// # Errors
/// If something under measurement fails.
pub fn run(args: &WrapArgs) -> anyhow::Result<String> {
    let mut plan = if args.quick { Plan::quick() } else { Plan::standard() };
    plan.pair_count = args.pairs.unwrap_or(plan.pair_count).max(1);
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let place = tempfile::tempdir_in(&parent)
        .with_context(|| format!("nothing can be written in {}", parent.display()))?;
    let machine = Some(Machine::here(place.path(), Some(plan.pair_count)));
    let lab = std::env::current_exe()?;
    let mut report = Report { machine, ..Report::default() };
    report.add(calls(&plan, &lab, place.path())?);
    report.add(starts(&plan, &lab, place.path())?);
    report.add(large(&plan, &lab, place.path())?);
    Ok(if args.json { serde_json::to_string_pretty(&report)? } else { report.to_table() })
}

/// The sides of one call after the other.
const COPIED: usize = 0;
const PASSED: usize = 1;
const GUARDED: usize = 2;

fn calls(plan: &Plan, lab: &Path, place: &Path) -> anyhow::Result<Report> {
    let place = place.join("calls");
    let mut copier = Side::copier(lab)?;
    let mut wrap = Side::guarded(lab, &place)?;
    let warm_up = plan.slice * 10;
    copier.round(Tool::Echo, 1, warm_up)?;
    wrap.round(Tool::Echo, 1, warm_up)?;
    let append_bytes = commit_bytes(&mut wrap, &place, plan)?;
    let mut appends = Appends::open(&place, append_bytes)?;
    let none = || vec![Round::default(); plan.pair_count];
    let mut single = [none(), none(), none(), none()];
    for turn in plan.turns(4) {
        let round = match turn.side {
            COPIED => copier.round(Tool::Echo, 1, plan.slice)?,
            PASSED => wrap.round(Tool::Echo, 1, plan.slice)?,
            GUARDED => wrap.round(Tool::Note, 1, plan.slice)?,
            _ => appends.round(plan.slice)?,
        };
        single[turn.side][turn.pair].add(round);
    }
    let mut many = [none(), none(), none()];
    for turn in plan.turns(3) {
        let round = match turn.side {
            COPIED => copier.round(Tool::Echo, IN_FLIGHT, plan.slice)?,
            PASSED => wrap.round(Tool::Echo, IN_FLIGHT, plan.slice)?,
            _ => wrap.round(Tool::Note, IN_FLIGHT, plan.slice)?,
        };
        many[turn.side][turn.pair].add(round);
    }
    let [gateway, reaper] = wrap.pids()?;
    let resident = memory(gateway, "VmRSS:")? + memory(reaper, "VmRSS:")?;
    copier.stop()?;
    wrap.stop()?;
    let mut report = told(&single, &many, append_bytes);
    report.checks.push(Check::at_most(
        "wrap: resident bytes of gateway and reaper",
        resident as f64,
        RESIDENT_BYTES,
    ));
    Ok(report)
}

fn told(single: &[Vec<Round>; 4], many: &[Vec<Round>; 3], append_bytes: u64) -> Report {
    let p50 = |round: &Round| round.percentile_ms(0.5);
    let [copied, passed, guarded, appends] = single;
    let slower = over_pairs(passed, copied, p50);
    let added = Spread::of(
        (0..guarded.len()).map(|at| (p50(&guarded[at]) - p50(&passed[at])) / p50(&appends[at])),
    );
    let rate = over_pairs(&many[GUARDED], &many[COPIED], Round::rate);
    let mut adding = Figure::paired("wrap_guarded", "limit: two appends", 1, guarded, appends);
    adding.wal_bytes_per_op = Some(2.0 * append_bytes as f64);
    let copied_many = over(&many[COPIED], Round::rate).median;
    let results = vec![
        Figure::paired("wrap_pass", "limit: copier", 1, passed, copied),
        adding,
        Figure::alone("copier", "copies bytes", 1, copied),
        Figure::alone("appends", "two, each synced", 1, appends),
        Figure::paired("wrap_pass", "limit: copier", IN_FLIGHT, &many[PASSED], &many[COPIED]),
        Figure::alone("wrap_guarded", "limit: copier", IN_FLIGHT, &many[GUARDED])
            .against(copied_many, rate),
        Figure::alone("copier", "copies bytes", IN_FLIGHT, &many[COPIED]),
    ];
    let checks = vec![
        Check::at_most("wrap, passed on: median time in the copier's", slower, OF_COPIED),
        Check::at_most("wrap, guarded: time added, in two synced appends", added, OF_APPENDS),
        Check::at_least(
            "wrap, guarded, 16 in flight: part of the copier's rate",
            rate,
            OF_COPIED_RATE,
        ),
    ];
    Report { results, checks, ..Report::default() }
}

/// How many bytes a commit of a guarded call appends to the ledger's log. A call has two.
fn commit_bytes(wrap: &mut Side, place: &Path, plan: &Plan) -> anyhow::Result<u64> {
    let ledger = data_dir(place).join("ledger.db");
    wrap.round(Tool::Note, 1, plan.slice)?;
    let reader = rusqlite::Connection::open(&ledger)?;
    // While somebody reads, the log only grows.
    reader.execute_batch("BEGIN; SELECT count(*) FROM operations;")?;
    let log = ledger.with_file_name("ledger.db-wal");
    let before = std::fs::metadata(&log)?.len();
    let calls = wrap.round(Tool::Note, 1, plan.slice * 4)?.count() as u64;
    let grown = std::fs::metadata(&log)?.len().saturating_sub(before);
    ensure!(grown > 0, "the log did not grow: no call was recorded");
    Ok(grown / calls / 2)
}

/// A file that only grows.
struct Appends {
    file: File,
    bytes: Vec<u8>,
}

impl Appends {
    fn open(place: &Path, count: u64) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(place.join("appended"))?;
        Ok(Self { file, bytes: vec![b'x'; usize::try_from(count)?] })
    }

    /// Two appends, each synced, again and again.
    fn round(&mut self, slice: Duration) -> anyhow::Result<Round> {
        let mut latencies = Vec::new();
        let start = Instant::now();
        while start.elapsed() < slice {
            let begun = Instant::now();
            for _ in 0..2 {
                self.file.write_all(&self.bytes)?;
                self.file.sync_data()?;
            }
            latencies.push(begun.elapsed());
        }
        Ok(Round::new(start.elapsed(), latencies))
    }
}

/// Starts on a ledger that is there.
fn starts(plan: &Plan, lab: &Path, place: &Path) -> anyhow::Result<Report> {
    let place = place.join("starts");
    Side::guarded(lab, &place)?.stop()?;
    let (mut bytes, mut answers, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.pair_count.max(3) {
        let side = Side::guarded(lab, &place)?;
        bytes.push(side.first_byte);
        answers.push(side.first_answer);
        side.stop()?;
        let side = Side::copier(lab)?;
        copied.push(side.first_answer);
        side.stop()?;
    }
    let first_byte = Spread::of(bytes.iter().map(|time| time.as_secs_f64() * 1e3));
    let one = |time: &Duration| Round::new(*time, vec![*time]);
    let answers: Vec<Round> = answers.iter().map(one).collect();
    let copied: Vec<Round> = copied.iter().map(one).collect();
    let figure = Figure::paired("wrap_start", "to the first answer", 1, &answers, &copied);
    let words = "wrap: ms from the server's start to its first byte";
    let check = Check::at_most(words, first_byte, FIRST_BYTE_MS);
    Ok(Report { results: vec![figure], checks: vec![check], ..Report::default() })
}

/// Peak memory of a large result, passed on and guarded.
fn large(plan: &Plan, lab: &Path, place: &Path) -> anyhow::Result<Report> {
    let mut checks = Vec::new();
    for (tool, word) in [(Tool::Echo, "passed on"), (Tool::Note, "guarded")] {
        let mut copies = Vec::new();
        for round in 0..plan.pair_count.min(3) {
            let mut side = Side::guarded(lab, &place.join(format!("large-{word}-{round}")))?;
            side.round(tool, 1, plan.slice)?;
            let [gateway, _] = side.pids()?;
            let before = memory(gateway, "VmRSS:")?;
            let count = side.large(tool, LARGE_BYTES)?;
            let peak = memory(gateway, "VmHWM:")?;
            copies.push(peak.saturating_sub(before) as f64 / count as f64);
            side.stop()?;
        }
        let words = format!("wrap, {word}: copies of a result of 10 MiB at the peak");
        checks.push(Check::at_most(words, Spread::of(copies), COPIES));
    }
    Ok(Report { checks, ..Report::default() })
}

/// A line of a process's status, in bytes.
fn memory(pid: u32, line: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("Linux")?;
    let told = status.lines().find_map(|it| it.strip_prefix(line)).context("no such line")?;
    let kib: u64 = told.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
