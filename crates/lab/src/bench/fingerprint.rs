//! What a fingerprint costs before the ledger is asked at all.

use std::hint::black_box;
use std::time::Instant;

use counterfoil_core::fingerprint::{CallBinding, Profile, SecretKey, fingerprint};
use counterfoil_core::json::{Object, Value};

use super::figures::{Check, Figure, Report, Round};
use super::plan::Plan;

/// The size of the arguments, in bytes of JSON.
const ARGUMENT_BYTES: usize = 4096;
/// How long one may take.
const BOUND_US: f64 = 20.0;
/// Each timed call makes this many, so that the clock's own cost does not count.
const REPEATS: u32 = 100;

/// Measures both profiles.
///
/// # Errors
/// If the arguments have no canonical form.
pub fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for profile in [Profile::StrictV1, Profile::JcsV1] {
        let mut rounds = Vec::new();
        for _ in 0..plan.pair_count {
            rounds.push(round(profile)?);
        }
        let variant = format!("{}, 4 KiB", profile.as_str());
        let figure = Figure::alone("fingerprint", &variant, 1, &rounds);
        let promise = format!("{variant}: microseconds for a fingerprint");
        let checks = vec![Check::at_most(promise, figure.p50_ms * 1e3, BOUND_US)];
        report.add(Report { results: vec![figure], checks, ..Report::default() });
    }
    Ok(report)
}

fn round(profile: Profile) -> anyhow::Result<Round> {
    let key = SecretKey::from_bytes(&[7; 32])?;
    let arguments = arguments();
    let call = CallBinding {
        tenant: "local",
        principal: Some("alice"),
        tool_id: "create_issue",
        tool_version: "1",
        arguments: &arguments,
        continuation_state: None,
        input_responses: None,
    };
    let mut latencies = Vec::new();
    let start = Instant::now();
    for _ in 0..50 {
        let begun = Instant::now();
        for _ in 0..REPEATS {
            black_box(fingerprint(profile, &key, black_box(&call))?);
        }
        latencies.push(begun.elapsed() / REPEATS);
    }
    // The rate is that of fingerprints: each entry stands for as many as were made in it.
    Ok(Round::new(start.elapsed() / REPEATS, latencies))
}

/// Members of several types and lengths, as tools have them, up to the wanted size.
fn arguments() -> Value {
    let mut object = Object::default();
    for at in 0.. {
        object.insert(format!("note_{at}"), Value::from("The pump in hall 3 \"loses\" pressure."));
        object.insert(format!("count_{at}"), Value::from(i64::from(at)));
        if Value::Object(object.clone()).to_json().len() >= ARGUMENT_BYTES {
            break;
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_arguments_have_the_size_that_is_told() {
        // Promise: the figure for 4 KiB is not one for less.
        let length = arguments().to_json().len();
        assert!((ARGUMENT_BYTES..ARGUMENT_BYTES + 128).contains(&length), "{length}");
    }
}
