//! Small file systems, where the machine lets a test mount one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; it goes with the value.
pub struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Mounts a tmpfs of that size at `path`; where that is not possible, says so loudly.
pub fn tmpfs(path: &Path, size: &str) -> Option<Mounted> {
    let options = format!("size={size},mode=0700");
    match mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], path) {
        Ok(()) => Some(Mounted(path.to_owned())),
        Err(why) => {
            eprintln!("NOT TESTED: no tmpfs can be mounted here ({why}); run the tests as root");
            None
        }
    }
}

/// Makes a mounted file system read-only.
pub fn read_only(path: &Path) {
    mount(&["-o", "remount,ro"], path).expect("what was just mounted can be remounted");
}

fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(path).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
