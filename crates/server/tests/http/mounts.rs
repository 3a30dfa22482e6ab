//! Small file systems, where the machine lets a test mount one.
#![allow(
    clippy::print_stderr,
    reason = "what cannot be tested here is said, not skipped in silence"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; it goes with the value.
pub(crate) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Mounts a tmpfs of that size at `path`; where that is not possible, says so loudly.
pub(crate) fn tmpfs(path: &Path, size: &str) -> Option<Mounted> {
    let options = format!("size={size},mode=0700");
    let arguments = ["-t", "tmpfs", "-o", &options, "tmpfs"];
    match Command::new("mount").args(arguments).arg(path).output() {
        Ok(output) if output.status.success() => Some(Mounted(path.to_owned())),
        _ => {
            eprintln!("NOT TESTED: no tmpfs can be mounted here; run the tests as root");
            None
        }
    }
}
