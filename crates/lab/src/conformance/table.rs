//! The table of what passes, as it stands in the documentation, and the same read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::suite::{Found, Results, Way};

/// A column: a revision, one way.
pub type Column = (Way, &'static str);

/// Everything that was run.
#[derive(Debug, Default)]
pub struct Table {
    columns: BTreeMap<Column, Results>,
}

/// Scenarios of which something does not pass, and why: way, scenario, reason.
const WHY: &[(Way, &str, &str)] = &include!("why.in");

impl Table {
    /// Adds a column.
    pub fn add(&mut self, column: Column, results: Results) {
        self.columns.insert(column, results);
    }

    /// What does not pass and has no reason on record.
    #[must_use]
    pub fn unexplained(&self) -> Vec<String> {
        let cells = self.columns.iter().flat_map(|((way, revision), results)| {
            results.iter().map(move |(scenario, found)| (*way, *revision, scenario, found))
        });
        let bad = cells
            .filter(|(way, _, scenario, found)| !found.passes() && why(*way, scenario).is_none());
        bad.map(|(way, revision, scenario, found)| {
            let failed = found.failed.join(", ");
            format!("{scenario} ({}, {revision}): failed: {failed}", way.word())
        })
        .collect()
    }

    /// What `document` counts as passing and does not pass now. Columns that were not run are not
    /// judged.
    #[must_use]
    pub fn regressions(&self, document: &str) -> Vec<String> {
        let mut headings: Vec<String> = Vec::new();
        let mut worse = Vec::new();
        for line in document.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if cells[0] == "scenario" {
                headings = cells.iter().map(|cell| (*cell).to_owned()).collect();
                continue;
            }
            for (heading, cell) in headings.iter().zip(&cells).skip(1) {
                let of = self.columns.iter().find(|(column, _)| title(**column) == *heading);
                let Some((_, results)) = of else { continue };
                let Some((passed, all)) = cell.split_once('/') else { continue };
                let now = results.get(cells[0]).cloned().unwrap_or_default();
                if passed == all && now.cell() != **cell {
                    worse.push(format!("{} ({heading}): was {cell}, is {}", cells[0], now.cell()));
                }
            }
        }
        worse
    }

    /// The tables for people.
    #[must_use]
    pub fn document(&self) -> String {
        let mut text = String::from(include_str!("head.md"));
        for (title, ways) in [
            ("Servers", [Way::Direct, Way::Wrapped].as_slice()),
            ("The client", [Way::Client].as_slice()),
        ] {
            let chosen: Vec<_> =
                self.columns.iter().filter(|((way, _), _)| ways.contains(way)).collect();
            let _ = write!(text, "\n## {title}\n\n");
            rows(&mut text, &chosen);
            let names: BTreeSet<_> = WHY.iter().filter(|(way, ..)| ways.contains(way)).collect();
            for (way, scenario, reason) in names {
                let _ = write!(text, "\n- `{scenario}`, {}: {reason}", way.word());
            }
            text.push('\n');
        }
        text
    }

    /// Everything for programs.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let cells = self.columns.iter().flat_map(|((way, revision), results)| {
            results.iter().map(move |(scenario, found)| {
                serde_json::json!({
                    "way": way.word(), "revision": revision, "scenario": scenario,
                    "passed": found.passed, "failed": found.failed,
                    "why": why(*way, scenario),
                })
            })
        });
        cells.collect()
    }

    /// One line for each column.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (column, results) in &self.columns {
            let (passed, all) = sum(results);
            let _ = writeln!(
                text,
                "{}: {passed} of {all} checks, {} scenarios",
                title(*column),
                results.len()
            );
        }
        text
    }
}

fn why(way: Way, scenario: &str) -> Option<&'static str> {
    let found = WHY.iter().find(|(of, name, _)| *of == way && *name == scenario);
    found.map(|(.., reason)| *reason)
}

fn sum(results: &Results) -> (usize, usize) {
    let passed: usize = results.values().map(|found| found.passed).sum();
    let failed: usize = results.values().map(|found| found.failed.len()).sum();
    (passed, passed + failed)
}

fn title((way, revision): Column) -> String {
    format!("{revision} {}", way.word())
}

fn rows(text: &mut String, columns: &[(&Column, &Results)]) {
    let titles: Vec<String> = columns.iter().map(|(column, _)| title(**column)).collect();
    let _ = writeln!(text, "| scenario | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    let scenarios: BTreeSet<&String> =
        columns.iter().flat_map(|(_, results)| results.keys()).collect();
    for scenario in scenarios {
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, results)| results.get(scenario).map_or_else(String::new, Found::cell))
            .collect();
        let _ = writeln!(text, "| {scenario} | {} |", cells.join(" | "));
    }
    let sums = columns.iter().map(|(_, results)| sum(results));
    let sums: Vec<String> = sums.map(|(passed, all)| format!("{passed} of {all}")).collect();
    let _ = writeln!(text, "| all checks | {} |", sums.join(" | "));
}

impl Found {
    fn passes(&self) -> bool {
        self.failed.is_empty() && self.passed > 0
    }

    fn cell(&self) -> String {
        format!("{}/{}", self.passed, self.passed + self.failed.len())
    }
}

impl Way {
    /// As it stands in a heading.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Wrapped => "wrap",
            Self::Client => "client",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_before_and_does_not_now_is_told() {
        // Promise: a scenario that the documentation counts as passing cannot be lost in silence.
        let found = |passed, failed: &[&str]| Found {
            passed,
            failed: failed.iter().map(|&name| name.to_owned()).collect(),
        };
        let table = |a: Found| {
            let mut table = Table::default();
            let results = [("a".to_owned(), a), ("b".to_owned(), found(1, &["x"]))];
            table.add((Way::Direct, "2026-07-28"), results.into());
            table
        };
        let good = table(found(2, &[]));
        let document = good.document();
        assert!(document.contains("| a | 2/2 |"), "{document}");
        assert_eq!(good.regressions(&document), Vec::<String>::new());
        for worse in [found(1, &["y"]), found(0, &[]), found(1, &[])] {
            assert_eq!(table(worse).regressions(&document).len(), 1);
        }
        let without = document.replace("| a | 2/2 |", "| gone | 2/2 |");
        assert_eq!(good.regressions(&without).len(), 1, "a scenario that was not run");
        assert_eq!(good.unexplained().len(), 1, "b fails, and nobody said why");
    }
}
