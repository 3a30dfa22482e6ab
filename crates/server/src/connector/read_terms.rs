//! Reads the numbers of a connector: its contract, its patience, and how hard it may be pressed.

use std::time::Duration;

use counterfoil_core::delivery::{Contract, Terms};
use counterfoil_engine::TargetLimits;

use super::form::Form;
use super::network::Network;
use super::rules::Timeouts;

/// Neither time-out is longer.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// `timeout` and `connect_timeout`.
pub(super) fn timeouts(form: &Form<'_>) -> Option<Timeouts> {
    let connect = form.span("connect_timeout", Duration::from_secs(5));
    let total = form.span("timeout", Duration::from_secs(30));
    let (connect, total) = (connect?, total?);
    let mut is_good = true;
    for (key, span) in [("connect_timeout", connect), ("timeout", total)] {
        if span.is_zero() || span > LONGEST_TIMEOUT {
            is_good = false;
            if let Some(field) = form.field(key) {
                field.problem("a time-out is more than 0 and at most 10 minutes");
            }
        }
    }
    if is_good && connect > total {
        is_good = false;
        let words = "this is longer than timeout, which holds the whole request; lower it";
        match form.field("connect_timeout") {
            Some(field) => field.problem(words),
            // The default is longer than a total that was set.
            None => return Some(Timeouts { connect: total, total }),
        }
    }
    is_good.then_some(Timeouts { connect, total })
}

/// `contract` and the `[delivery]` table.
pub(super) fn terms(form: &Form<'_>, timeouts: Timeouts) -> Option<Terms> {
    const CONTRACTS: &str = "use \"key\", \"lookup\", \"key+lookup\", \"never\", or \
                             \"at_least_once\" where a double is acceptable";
    let word = form.needed("contract", CONTRACTS, |text| {
        let known = ["key", "lookup", "key+lookup", "never", "at_least_once"].contains(&text);
        if known {
            Ok(text.to_owned())
        } else {
            Err(format!("there is no such contract; {CONTRACTS}"))
        }
    });
    let inner = form.table("delivery");
    if form.has("delivery") && inner.is_none() {
        return None;
    }
    let field = |key: &'static str| inner.as_ref().and_then(|table| table.field(key));
    let optional = |key: &'static str| match field(key) {
        Some(field) => field.span().map(Some),
        None => Some(None),
    };
    let lifetime = optional("key_lifetime");
    let absence_after = optional("absence_after");
    let deliver_within = optional("deliver_within");
    let span = |key, standard| inner.as_ref().map_or(Some(standard), |it| it.span(key, standard));
    let backoff_base = span("backoff_base", Duration::from_secs(1));
    let backoff_cap = span("backoff_cap", Duration::from_secs(300));
    let attempts = inner.as_ref().map_or(Some(10), |it| it.count("max_attempts", (1, 1000), 10));
    let contract = word.zip(lifetime).zip(absence_after).and_then(|((word, lifetime), absence)| {
        contract(form, inner.as_ref(), &word, lifetime, absence)
    });
    let terms = || {
        Some(Terms {
            contract: contract?,
            max_attempts_count: u32::try_from(attempts?).unwrap_or(u32::MAX),
            backoff_base: backoff_base?,
            backoff_cap: backoff_cap?,
            send_limit: timeouts.total,
            deliver_within: deliver_within?,
        })
    };
    let checked = terms().and_then(|terms| match terms.check() {
        Ok(terms) => Some(terms),
        Err(error) => {
            let place = inner.as_ref().filter(|it| it.has(error.setting)).unwrap_or(form);
            match place.field(error.setting) {
                Some(field) => field.problem(error.rule),
                None => form.problem(error.to_string()),
            }
            None
        }
    });
    if let Some(inner) = inner {
        inner.finish();
    }
    checked
}

fn contract(
    form: &Form<'_>,
    inner: Option<&Form<'_>>,
    word: &str,
    lifetime: Option<Duration>,
    absence_after: Option<Duration>,
) -> Option<Contract> {
    let has_key = matches!(word, "key" | "key+lookup");
    let has_lookup = matches!(word, "lookup" | "key+lookup");
    let unused = |key: &'static str, of: &str| {
        if let Some(field) = inner.and_then(|inner| inner.field(key)) {
            field.problem(format!("contract \"{word}\" has no {of}; remove this"));
        }
    };
    if !has_key && lifetime.is_some() {
        unused("key_lifetime", "key");
    }
    if !has_lookup && absence_after.is_some() {
        unused("absence_after", "lookup");
    }
    if has_key && lifetime.is_none() {
        form.missing(
            "delivery.key_lifetime",
            "say how long the target remembers a key, for example \"24h\"",
        );
        return None;
    }
    Some(match (word, lifetime) {
        ("key", Some(lifetime)) => Contract::Key { lifetime },
        ("key+lookup", Some(lifetime)) => Contract::KeyAndLookup { lifetime, absence_after },
        ("lookup", _) => Contract::Lookup { absence_after },
        ("at_least_once", _) => Contract::AtLeastOnce,
        _ => Contract::Never,
    })
}

/// The `[limits]` table.
pub(super) fn limits(form: &Form<'_>, timeouts: Timeouts) -> Option<TargetLimits> {
    let standard = TargetLimits {
        concurrency_count: 8,
        rate_per_s: None,
        // The connection is made inside the lease too.
        send_limit: timeouts.connect + timeouts.total,
        breaker_failures_count: 5,
        breaker_open: (Duration::from_secs(5), Duration::from_secs(300)),
    };
    let Some(table) = form.table("limits") else {
        return (!form.has("limits")).then_some(standard);
    };
    let concurrency = table.count("concurrency", (1, 1024), 8);
    let rate = match table.field("rate") {
        None => Some(None),
        Some(field) => field.positive().map(Some),
    };
    let failures = table.count("breaker_failures", (0, 1_000_000), 5);
    let open = table.span("breaker_open", standard.breaker_open.0);
    let longest = table.span("breaker_open_max", standard.breaker_open.1);
    if let (Some(open), Some(longest)) = (open, longest) {
        if open.is_zero() {
            let words = "this is more than 0; breaker_failures = 0 switches the breaker off";
            table.field("breaker_open")?.problem(words);
        } else if longest < open {
            table.problem("has a breaker_open_max below breaker_open; give it at least as much");
        }
    }
    table.finish();
    Some(TargetLimits {
        concurrency_count: usize::try_from(concurrency?).ok()?,
        rate_per_s: rate?,
        breaker_failures_count: u32::try_from(failures?).ok()?,
        breaker_open: (open?, longest?),
        ..standard
    })
}

/// `allow_networks`.
pub(super) fn networks(form: &Form<'_>) -> Option<Vec<Network>> {
    let Some(field) = form.field("allow_networks") else { return Some(Vec::new()) };
    let parsed = field.texts()?.iter().map(|text| Network::parse(text)).collect();
    match parsed {
        Ok(networks) => Some(networks),
        Err(rule) => {
            field.problem(rule);
            None
        }
    }
}
