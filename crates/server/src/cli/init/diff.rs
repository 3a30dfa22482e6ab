//! The lines of a file that change, without those around them: a client's settings hold secrets.

/// A longer line is cut.
const MAX_LINE_CHARS: usize = 400;

/// The lines that go (`-`) and come (`+`), each run under its line number in the old file.
pub(super) fn between(old: &[u8], new: &[u8]) -> String {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut shown = Vec::new();
    let mut is_in_run = false;
    for step in steps(&old, &new) {
        match step {
            Step::Both => is_in_run = false,
            Step::Old(at) | Step::New(at, _) if !is_in_run => {
                is_in_run = true;
                shown.push(format!("@@ line {} @@", at + 1));
                shown.push(line(&step, &old, &new));
            }
            Step::Old(_) | Step::New(..) => shown.push(line(&step, &old, &new)),
        }
    }
    shown.join("\n")
}

/// One line of the comparison, by its place in the old file and in the new one.
enum Step {
    Both,
    Old(usize),
    New(usize, usize),
}

fn line(step: &Step, old: &[&str], new: &[&str]) -> String {
    let (mark, text) = match step {
        Step::Both => (' ', ""),
        Step::Old(at) => ('-', old[*at]),
        Step::New(_, at) => ('+', new[*at]),
    };
    let mut shown: String = text.chars().take(MAX_LINE_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{mark}{shown}")
}

/// The shortest way from one to the other, found on what is left between equal ends.
fn steps(old: &[&str], new: &[&str]) -> Vec<Step> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
    let mut steps: Vec<Step> = (0..start).map(|_| Step::Both).collect();
    // Servers stand close together; where they do not, a table would be too big.
    if a.len().saturating_mul(b.len()) > 4_000_000 {
        steps.extend((0..a.len()).map(|i| Step::Old(start + i)));
        steps.extend((0..b.len()).map(|j| Step::New(start + a.len(), start + j)));
        return steps;
    }
    let mut common = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            steps.push(Step::Both);
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
            steps.push(Step::Old(start + i));
            i += 1;
        } else {
            steps.push(Step::New(start + i, start + j));
            j += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_change_are_shown() {
        // Promise: a change can be judged, and a key beside it is not shown.
        let old = "{\n  \"command\": \"npx\",\n  \"args\": [\n    \"x\"\n  ],\n  \"env\": \"s3cret\"\n}\n";
        let new =
            old.replace("npx", "counterfoil").replace("    \"x\"", "    \"wrap\",\n    \"x\"");
        assert_eq!(
            between(old.as_bytes(), new.as_bytes()),
            "@@ line 2 @@\n-  \"command\": \"npx\",\n+  \"command\": \"counterfoil\",\n@@ line 4 @@\n+    \"wrap\","
        );
        assert_eq!(between(b"a\nb", b"a\nb"), "");
        assert_eq!(between(b"", b"a"), "@@ line 1 @@\n+a");
        assert_eq!(between(b"a\nb\n", b"b\n"), "@@ line 1 @@\n-a");
    }
}
