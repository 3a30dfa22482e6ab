//! `counterfoil-lab challenge --cmd 'PROGRAM'`: the rules of continuation replay as
//! questions to anybody's implementation, over JSON lines on its stdin and stdout.
//! `docs/challenge.md` is its reference.
//!
//! Each challenge has a process of its own and operation IDs that nobody used before, so that
//! memory and disk of the program do not matter.

mod pack;
mod program;

use clap::Args;
use serde::Serialize;

pub use pack::CHALLENGES;
use program::Program;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct ChallengeArgs {
    /// The program, as a shell would run it
    #[arg(long, value_name = "PROGRAM")]
    cmd: String,
    /// How long one answer may take, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience_s: u64,
    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

/// What became of one challenge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Its name.
    pub challenge: &'static str,
    /// What an implementation must do.
    pub rule: &'static str,
    /// Whether this one does.
    pub passed: bool,
    /// Why not.
    pub words: String,
}

/// Runs all challenges; what to print, and whether the program passes all.
///
/// # Errors
/// If the system gives no randomness.
pub async fn run(args: &ChallengeArgs) -> anyhow::Result<(String, bool)> {
    let salt = getrandom::u64()?;
    let mut verdicts = Vec::new();
    for challenge in &CHALLENGES {
        let operation_id = format!("{}-{salt:016x}", challenge.name);
        let asked = ask(args, challenge, &operation_id).await;
        let words = asked.err().map(|error| format!("{error:#}")).unwrap_or_default();
        verdicts.push(Verdict {
            challenge: challenge.name,
            rule: challenge.rule,
            passed: words.is_empty(),
            words,
        });
    }
    let passed = verdicts.iter().all(|verdict| verdict.passed);
    let text = if args.json { json(&verdicts)? } else { table(&verdicts) };
    Ok((text, passed))
}

async fn ask(
    args: &ChallengeArgs,
    challenge: &pack::Challenge,
    operation_id: &str,
) -> anyhow::Result<()> {
    let patience = std::time::Duration::from_secs(args.patience_s);
    let mut program = Program::start(&args.cmd, patience)?;
    let asked = pack::put(challenge, &mut program, operation_id).await;
    program.end().await;
    asked
}

fn json(verdicts: &[Verdict]) -> anyhow::Result<String> {
    let passed_count = verdicts.iter().filter(|verdict| verdict.passed).count();
    let failed_count = verdicts.len() - passed_count;
    Ok(serde_json::to_string_pretty(&serde_json::json!({
        "challenges": verdicts, "passedCount": passed_count, "failedCount": failed_count,
    }))?)
}

fn table(verdicts: &[Verdict]) -> String {
    let mut lines = Vec::new();
    for verdict in verdicts {
        let word = if verdict.passed { "pass" } else { "FAIL" };
        lines.push(format!("{word}  {:<22} {}", verdict.challenge, verdict.rule));
        if !verdict.passed {
            lines.push(format!("      {}", verdict.words));
        }
    }
    let passed_count = verdicts.iter().filter(|verdict| verdict.passed).count();
    lines.push(format!("{passed_count} of {} passed", verdicts.len()));
    lines.join("\n")
}
