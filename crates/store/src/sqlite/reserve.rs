//! Space that is kept for settling. When the disk is full, no new work is begun; but what was begun
//! must still be settled, so a file beside the ledger holds some room and gives it up for that.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Enough for some hundred settlements: each takes a few pages of the log.
const RESERVE_BYTES: u64 = 1024 * 1024;

/// The file that holds the room.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// The reserve of the ledger at `ledger`. Without room for it there is none; that only means
    /// that a full disk stops settlements too, until space is freed.
    pub(super) fn beside(ledger: &Path) -> Self {
        let mut name = ledger.to_owned().into_os_string();
        name.push("-reserve");
        let reserve = Self { path: name.into() };
        if let Err(error) = reserve.fill() {
            let path = reserve.path.display().to_string();
            tracing::warn!(path, %error, "no space could be kept for settling on a full disk");
        }
        reserve
    }

    /// Gives the room up; says whether there was any.
    pub(super) fn release(&self) -> bool {
        let released = fs::remove_file(&self.path).is_ok();
        if released {
            tracing::error!("the ledger's disk is full: settling from the reserve, no new work");
        }
        released
    }

    /// Tries to have the room back; says whether it is there.
    pub(super) fn refill(&self) -> bool {
        let filled = self.fill().is_ok();
        if filled {
            tracing::info!("the ledger's disk has room again");
        }
        filled
    }

    fn fill(&self) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(found) if found.len() >= RESERVE_BYTES => return Ok(()),
            _ => {}
        }
        let allocate = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&self.path)?;
            // Written, not only sized: a sparse file holds no room.
            let zeros = vec![0_u8; 64 * 1024];
            for _ in 0..RESERVE_BYTES / zeros.len() as u64 {
                file.write_all(&zeros)?;
            }
            file.sync_all()
        };
        allocate().inspect_err(|_| {
            let _ = fs::remove_file(&self.path);
        })
    }
}
