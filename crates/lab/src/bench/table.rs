//! The tables that people read, in Markdown, so that they can be pasted into a document.

use std::fmt::Write as _;

use super::figures::{Check, Figure, Report};

impl Report {
    /// The machine, the promises and the figures. Rates are operations in a second; a ratio is the
    /// median of the pairs, its spread the least and the greatest of them.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        if let Some(machine) = &self.machine {
            text.push_str(&machine.to_string());
            text.push('\n');
        }
        text.push_str("| must reach | bound | measured | spread | |\n|---|--:|--:|--:|---|\n");
        self.checks.iter().for_each(|check| check.write_row(&mut text));
        text.push_str(
            "\n| name | variant | callers | ops/s | limit | ratio | spread | p50 ms | p99 ms | \
             notes |\n|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n",
        );
        self.results.iter().for_each(|figure| figure.write_row(&mut text));
        text
    }
}

impl Check {
    fn write_row(&self, text: &mut String) {
        let side = if self.at_least { ">=" } else { "<=" };
        let word = if self.met { "met" } else { "**not met**" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {side} {} | {} | {} | {word} |",
            self.promise,
            short(self.bound),
            short(self.measured),
            between(self.spread),
        );
    }
}

impl Figure {
    fn write_row(&self, text: &mut String) {
        let or_dash = |value: Option<f64>| value.map_or_else(|| "-".into(), short);
        let mut notes = Vec::new();
        notes.extend(self.p99_ratio.map(|ratio| format!("p99 {ratio:.2} x limit's")));
        notes.extend(self.wal_bytes_per_op.map(|bytes| format!("{bytes:.0} WAL B/op")));
        notes.extend(self.disk_bytes_per_op.map(|bytes| format!("{bytes:.0} disk B/op")));
        let mib = |bytes: u64| format!("{:.1} MiB peak", bytes as f64 / 1_048_576.0);
        notes.extend(self.peak_memory_bytes.map(mib));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {} | {} | {} | {:.3} | {:.3} | {} |",
            self.name,
            self.variant,
            self.callers,
            self.ops_per_s,
            or_dash(self.limit_ops_per_s),
            or_dash(self.ratio),
            between(self.ratio_spread),
            self.p50_ms,
            self.p99_ms,
            notes.join(", "),
        );
    }
}

fn between(spread: Option<[f64; 2]>) -> String {
    spread.map_or_else(|| "-".into(), |[min, max]| format!("{} to {}", short(min), short(max)))
}

/// Two digits behind the point where they say something.
fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_met_is_seen_at_once() {
        // Promise: the table says of every promise what was measured and whether it was kept.
        let checks =
            vec![Check::at_least("rate", 0.8, 0.85), Check::at_most("bytes", 650.0, 700.0)];
        let table = Report { checks, ..Report::default() }.to_table();
        assert!(table.contains("| rate | >= 0.85 | 0.80 | - | **not met** |"), "{table}");
        assert!(table.contains("| bytes | <= 700 | 650 | - | met |"), "{table}");
    }
}
