//! On what the figures were measured: without it no rate means anything.

use std::fmt;

use serde::Serialize;

/// The facts of a machine, as far as the system tells them.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Its processor's name.
    pub processor: String,
    /// How many threads run at once.
    pub processor_count: usize,
    /// The system's kernel.
    pub kernel: String,
    /// The file system of the measured directory.
    pub file_system: String,
    /// How many threads wanted to run in the last minute, beside those of the benchmark: a machine
    /// that has other work gives figures with a large spread.
    pub load: String,
    /// The linked SQLite.
    pub sqlite: &'static str,
    /// How many interleaved pairs each figure is the median of; `None` where nothing is paired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_count: Option<usize>,
}

impl Machine {
    /// This one, for files in `directory`.
    #[must_use]
    pub fn here(directory: &std::path::Path, pair_count: Option<usize>) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let known = |text: Option<&str>| text.unwrap_or("unknown").trim().to_owned();
        let processors = read("/proc/cpuinfo");
        let name = processors.lines().find_map(|line| line.strip_prefix("model name"));
        Self {
            processor: known(name.and_then(|rest| rest.split_once(':')).map(|(_, name)| name)),
            processor_count: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: known(Some(read("/proc/sys/kernel/osrelease").as_str())),
            file_system: file_system(&read("/proc/mounts"), directory),
            load: known(read("/proc/loadavg").split(' ').next()),
            sqlite: counterfoil_store::sqlite::sqlite_version(),
            pair_count,
        }
    }
}

/// The type of the innermost mount above `directory`.
fn file_system(mounts: &str, directory: &std::path::Path) -> String {
    let directory = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let above = mounts.lines().filter_map(mount).filter(|(at, _)| directory.starts_with(at));
    above.max_by_key(|(at, _)| at.len()).map_or_else(|| "unknown".into(), |(_, kind)| kind)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, processor_count, kernel, file_system, load, sqlite, pair_count } =
            self;
        write!(
            f,
            "{processor}, {processor_count} threads, Linux {kernel}, {file_system}, SQLite {sqlite}; \
             load before the run {load}",
        )?;
        if let Some(count) = pair_count {
            write!(f, "; medians of {count} interleaved pairs")?;
        }
        writeln!(f, ".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_told() {
        // Promise: figures name the file system that they were measured on.
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        let cases = [("/no/such/place", "ext4"), ("/tmp/no/such/place", "tmpfs")];
        for (place, kind) in cases {
            assert_eq!(file_system(mounts, std::path::Path::new(place)), kind, "{place}");
        }
    }
}
