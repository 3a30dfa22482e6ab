//! Which file system holds a path, and whether a ledger is safe there.
//!
//! SQLite's write-ahead log shares memory between the processes that use a ledger and trusts the
//! file system's locks and its `fsync`. Network and host-shared file systems break one of these,
//! and two writers then lose commits without any error. So they are recognised before the ledger
//! is opened, from the mount table in the format of proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The type of the file system, for example `ext4`.
    pub fs_type: String,
    /// What is mounted: a device, or `server:/path`.
    pub source: String,
    id: u64,
    parent: u64,
}

/// What a type of file system means for a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// A local file system.
    Good,
    /// A directory of the host that a container or a virtual machine sees. It works as long as
    /// nobody on the other side opens the same ledger.
    HostShare,
    /// Other machines can open the same file, or locks and shared memory do not work.
    Unsafe,
}

/// The operator's word that a host share is used from one side only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyThisHost;

impl OnlyThisHost {
    /// The word. It says what the operator vouches for, so that it cannot be given by accident.
    pub const WORD: &str = "only-this-host-opens-this-ledger";
}

/// A path on which a ledger could lose commits. Nothing was made there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeFilesystem {
    /// No override helps.
    #[error(
        "{} lies on `{fs_type}` ({source_name}, mounted at {}): a ledger there can lose \
         acknowledged commits, because locks and shared memory do not reach everybody who can \
         open the file; give --data-dir a directory on a local disk",
        .path.display(), .mount_point.display()
    )]
    Never {
        /// The path that was asked for.
        path: PathBuf,
        /// The file system's type.
        fs_type: String,
        /// What is mounted.
        source_name: String,
        /// Where.
        mount_point: PathBuf,
    },
    /// The operator can vouch that one side only uses the file.
    #[error(
        "{} lies on `{fs_type}` (mounted at {}), a directory shared with the host of this \
         container or virtual machine: if both sides open the ledger, commits are lost; give \
         --data-dir a directory on a local disk or a named volume, or, if nothing but this host \
         ever opens it, set filesystem_override = \"{word}\"",
        .path.display(), .mount_point.display(), word = OnlyThisHost::WORD
    )]
    HostShare {
        /// The path that was asked for.
        path: PathBuf,
        /// The file system's type.
        fs_type: String,
        /// Where it is mounted.
        mount_point: PathBuf,
    },
}

/// Refuses a path on whose file system a ledger is not safe. `path` need not exist.
///
/// Where the mount table does not say what holds the path, nothing is refused.
///
/// # Errors
/// [`UnsafeFilesystem`] by the type of the file system.
pub fn check(
    table: &[u8],
    path: &Path,
    vouched: Option<OnlyThisHost>,
) -> Result<(), UnsafeFilesystem> {
    let Some(mount) = find(table, &resolve(path)) else { return Ok(()) };
    match (fitness(&mount.fs_type), vouched) {
        (Fitness::Good, _) | (Fitness::HostShare, Some(OnlyThisHost)) => Ok(()),
        (Fitness::HostShare, None) => Err(UnsafeFilesystem::HostShare {
            path: path.to_owned(),
            fs_type: mount.fs_type,
            mount_point: mount.mount_point,
        }),
        (Fitness::Unsafe, _) => Err(UnsafeFilesystem::Never {
            path: path.to_owned(),
            fs_type: mount.fs_type,
            source_name: mount.source,
            mount_point: mount.mount_point,
        }),
    }
}

/// The mount that holds `path`, which must be absolute and free of symbolic links; `None` if the
/// table does not tell.
///
/// Walks as the kernel does: from the root, each time into the first mount on the way that hangs
/// on the current one. A mount that a later one covers is thereby never entered.
#[must_use]
pub fn find(table: &[u8], path: &Path) -> Option<Mount> {
    let mounts: Vec<Mount> = table.split(|byte| *byte == b'\n').filter_map(parse_line).collect();
    let is_top = |mount: &Mount| {
        mount.parent == mount.id || !mounts.iter().any(|other| other.id == mount.parent)
    };
    let mut holder: Option<&Mount> = None;
    // Each step goes one level down, so a table whose parents form a ring cannot hold us.
    for _ in 0..mounts.len() {
        let next = mounts
            .iter()
            .filter(|mount| match holder {
                None => is_top(mount),
                Some(holder) => mount.parent == holder.id && mount.id != holder.id,
            })
            .filter(|mount| path.starts_with(&mount.mount_point))
            // Of two on one place the later line is on top.
            .rev()
            .min_by_key(|mount| mount.mount_point.components().count());
        match next {
            Some(mount) => holder = Some(mount),
            None => break,
        }
    }
    holder.cloned()
}

/// What `fs_type` means for a ledger. Unknown types are taken for local ones, except that nobody
/// can say what an unknown FUSE program does with locks.
#[must_use]
pub fn fitness(fs_type: &str) -> Fitness {
    const UNSAFE: &[&str] = &[
        // Network file systems.
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "coda",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "gpfs",
        "panfs",
        "pvfs2",
        "orangefs",
        "davfs",
        "webdav",
        "afpfs",
        // Cluster file systems: shared memory ends at the machine.
        "gfs",
        "gfs2",
        "ocfs2",
        "acfs",
    ];
    const HOST_SHARES: &[&str] = &[
        // Also what WSL shows of a Windows drive (9p, drvfs), and Docker Desktop of a Mac's
        // directory.
        "9p",
        "drvfs",
        "virtiofs",
        "vboxsf",
        "vmhgfs",
        "prl_fs",
        "osxfs",
        "fakeowner",
        "fuse.vmhgfs-fuse",
        "fuse.grpcfuse",
        "fuse.osxfs",
        "fuse.virtiofs",
        "fuse.prl_fsd",
    ];
    const LOCAL_FUSE: &[&str] =
        &["fuseblk", "fuse.fuse-overlayfs", "fuse.fuse2fs", "fuse.ext2", "fuse.ext4", "fuse.zfs"];
    if HOST_SHARES.contains(&fs_type) {
        Fitness::HostShare
    } else if LOCAL_FUSE.contains(&fs_type) {
        Fitness::Good
    } else if UNSAFE.contains(&fs_type) || fs_type == "fuse" || fs_type.starts_with("fuse.") {
        Fitness::Unsafe
    } else {
        Fitness::Good
    }
}

/// `path` with its symbolic links followed as far as it exists: the rest would be made there.
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for existing in absolute.ancestors() {
        if let Ok(real) = existing.canonicalize() {
            let rest = absolute.strip_prefix(existing).expect("an ancestor is a prefix");
            // Joining an empty rest would add a slash.
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    absolute
}

/// `ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mount_point = fields.nth(2)?;
    let mut tail = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = tail.next()?;
    let source = tail.next().unwrap_or_default();
    Some(Mount {
        mount_point: PathBuf::from(OsString::from_vec(unescape(mount_point))),
        fs_type: String::from_utf8_lossy(&unescape(fs_type)).into_owned(),
        source: String::from_utf8_lossy(&unescape(source)).into_owned(),
        id,
        parent,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Space, tab, line feed, backslash and `#` stand in the table as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) =
            (first, after)
        {
            bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
mod tests;
