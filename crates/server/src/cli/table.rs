//! Tables and lists of fields, as people read them.

use std::fmt::Write as _;

use crate::output::printable;

/// A table with its head, each column as wide as its widest cell, without a line end after its last
/// line. What would steer a terminal is shown, not obeyed.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let shown = |row: &[String; N]| row.clone().map(|cell| printable(&cell).replace('\n', " "));
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(shown));
    let width = |at: usize| lines.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Names and values, one a line; a value of more lines is set below itself.
pub(super) fn fields(lines: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in lines {
        let value = printable(value).replace('\n', "\n                 ");
        let _ = writeln!(text, "{name:<15}  {value}");
    }
    text
}

/// Two lower-case digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
