//! A soak: a server with a durable ledger at half of its full load, for an hour. Memory, open files
//! and the log are looked at each second; what still grows in the last third is a leak.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::figures::{Check, Figure, Report, Round, Spread};
use super::mcp::McpServer as _;
use super::stdio::Server;
use super::work::{ENDLESS, Ids, Pool, Workload};
use crate::child::ChildOptions;

const IN_FLIGHT: usize = 16;
/// The load is given in strokes: what half the rate makes of this time, then a rest.
const STROKE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_secs(1);
/// Operations before the full load is measured: caches and the log have their size afterwards.
const WARM_UP_COUNT: usize = 20_000;
const FULL_LOAD_COUNT: usize = 20_000;
/// Shorter soaks show that it runs, and nothing is judged.
const LEAST_JUDGED: Duration = Duration::from_secs(60);

/// Memory may come to this part more between the second and the last third.
const MEMORY_PART: f64 = 1.05;
const LOG_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
const LOG_PART: f64 = 1.25;

/// What was seen in one second.
#[derive(Debug, Clone)]
struct Look {
    resident_bytes: f64,
    file_count: f64,
    log_bytes: f64,
    round: Round,
}

/// Runs for `length`.
///
/// # Errors
/// If the server fails, or the system does not tell of it (only Linux does).
pub async fn run(directory: &Path, length: Duration) -> anyhow::Result<Report> {
    let place = directory.join("soak");
    let options = ChildOptions { real_clock: true, ..ChildOptions::new(&place) };
    let mut server = Server::start(&options).await?;
    let mut workload = Workload::new(Ids::TimeOrdered)?;
    let mut pool = |count| Pool::fill(count, ENDLESS, || workload.issue());
    server.round(IN_FLIGHT, pool(WARM_UP_COUNT)).await?;
    let full = server.round(IN_FLIGHT, pool(FULL_LOAD_COUNT)).await?;
    let stroke_count = (full.rate() / 2.0 * STROKE.as_secs_f64()).ceil() as usize;
    let eyes = Eyes::on(server.process().pid().as_raw_nonzero().get(), &options.ledger());
    let mut looks: Vec<Look> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < length {
        let begun = Instant::now();
        let mut round = Round::default();
        while begun.elapsed() < LOOK {
            let stroke = Instant::now();
            round.add(server.round(IN_FLIGHT, pool(stroke_count)).await?);
            tokio::time::sleep(STROKE.saturating_sub(stroke.elapsed())).await;
        }
        // Its time is that of the whole load, rests included.
        looks.push(eyes.look(round.lasting(begun.elapsed()))?);
    }
    server.stop().await?;
    told(&looks, full.rate() / 2.0, length)
}

fn told(looks: &[Look], half_rate: f64, length: Duration) -> anyhow::Result<Report> {
    ensure!(looks.len() >= 3, "a soak of {} s is too short: give it 3 s", length.as_secs());
    let rounds: Vec<Round> = looks.iter().map(|look| look.round.clone()).collect();
    let variant = format!("half load for {:.1} minutes", length.as_secs_f64() / 60.0);
    let ratio = Spread::of(rounds.iter().map(|round| round.rate() / half_rate));
    let figure = Figure::alone("soak", &variant, IN_FLIGHT, &rounds).against(half_rate, ratio);
    let mut report = Report { results: vec![figure], ..Report::default() };
    if length < LEAST_JUDGED {
        return Ok(report);
    }
    // The first third may still grow: caches fill and the log gets its size.
    let third = looks.len() / 3;
    let (before, last) = (&looks[third..2 * third], &looks[2 * third..]);
    let middle = |looks: &[Look], value: fn(&Look) -> f64| Spread::of(looks.iter().map(value));
    let memory = |look: &Look| look.resident_bytes;
    let parts = middle(last, memory).median / middle(before, memory).median;
    let files = |look: &Look| look.file_count;
    let more_files = middle(last, files).max - middle(before, files).max;
    let log = |look: &Look| look.log_bytes;
    let log_parts = middle(last, log).max / middle(before, log).max.max(1.0);
    report.checks = vec![
        Check::at_most("soak: resident memory, last third by second", parts, MEMORY_PART),
        Check::at_most("soak: open files more in the last third", more_files, 0.0),
        Check::at_most("soak: largest log, last third by second", log_parts, LOG_PART),
        Check::at_most("soak: bytes of the largest log", middle(looks, log).max, LOG_BYTES),
    ];
    Ok(report)
}

/// Looks at a process and its ledger from outside.
struct Eyes {
    process: PathBuf,
    log: PathBuf,
}

impl Eyes {
    fn on(process: i32, ledger: &Path) -> Self {
        let log = ledger.with_extension("db-wal");
        Self { process: format!("/proc/{process}").into(), log }
    }

    /// Resident memory is `VmRSS` of proc(5), open files are the entries of its directory `fd`.
    fn look(&self, round: Round) -> anyhow::Result<Look> {
        let status = std::fs::read_to_string(self.process.join("status"))
            .context("memory is read from /proc, which Linux has")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kib: f64 = kib.context("there is no VmRSS in /proc/PID/status")?.trim().parse()?;
        let file_count = std::fs::read_dir(self.process.join("fd"))?.count() as f64;
        let log_bytes = std::fs::metadata(&self.log).map_or(0, |found| found.len()) as f64;
        Ok(Look { resident_bytes: kib * 1024.0, file_count, log_bytes, round })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A soak of a minute, whose values are those of `grows` at each second.
    fn checks(grows: impl Fn(f64) -> [f64; 3]) -> Vec<bool> {
        let round = Round::new(LOOK, vec![Duration::from_millis(1); 3]);
        let looks: Vec<Look> = (0..60)
            .map(|second| {
                let [resident_bytes, file_count, log_bytes] = grows(f64::from(second));
                Look { resident_bytes, file_count, log_bytes, round: round.clone() }
            })
            .collect();
        let report = told(&looks, 3.0, LEAST_JUDGED).expect("long enough");
        report.checks.iter().map(|check| check.met).collect()
    }

    #[test]
    fn what_grows_is_found_and_what_has_grown_is_not() {
        // Promise: a soak fails by memory, files or a log that go on growing, and not by caches
        // that fill at first.
        let mib = |count: f64| count * 1024.0 * 1024.0;
        assert_eq!(checks(|_| [mib(20.0), 12.0, mib(16.0)]), [true; 4]);
        let fills = |at: f64| [mib(20.0 + at.min(19.0)), 12.0 + at.min(5.0), mib(at.min(16.0))];
        assert_eq!(checks(fills), [true; 4]);
        let leaks = |at: f64| [mib(20.0 + at), 12.0, mib(16.0)];
        assert_eq!(checks(leaks), [false, true, true, true]);
        let keeps = |at: f64| [mib(20.0), 12.0 + at, mib(16.0)];
        assert_eq!(checks(keeps), [true, false, true, true]);
        let swells = |at: f64| [mib(20.0), 12.0, mib(at)];
        assert_eq!(checks(swells), [true, true, false, true]);
        assert_eq!(checks(|_| [mib(20.0), 12.0, mib(80.0)]), [true, true, true, false]);
    }
}
