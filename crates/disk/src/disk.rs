//! The disk: counts calls, decides which fails, and knows what would be left without power.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;

use crate::image::{Change, Image, Loss, Random};
use crate::vfs;

/// What SQLite asks of a file system, as far as it can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// A file is opened.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is synchronised.
    Sync,
    /// A file is cut.
    Truncate,
    /// A file is deleted.
    Delete,
    /// Shared memory is mapped.
    ShmMap,
    /// A lock in shared memory is taken.
    ShmLock,
}

impl Call {
    /// Every call.
    pub const ALL: [Self; 8] = [
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Truncate,
        Self::Delete,
        Self::ShmMap,
        Self::ShmLock,
    ];

    /// SQLite's code when it fails.
    pub(crate) const fn code(self) -> i32 {
        match self {
            Self::Open => ffi::SQLITE_CANTOPEN,
            Self::Read => ffi::SQLITE_IOERR_READ,
            Self::Write => ffi::SQLITE_IOERR_WRITE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Self::Delete => ffi::SQLITE_IOERR_DELETE,
            Self::ShmMap => ffi::SQLITE_IOERR_SHMMAP,
            Self::ShmLock => ffi::SQLITE_IOERR_SHMLOCK,
        }
    }

    /// Whether it changes what a power loss leaves.
    const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Sync | Self::Truncate | Self::Delete)
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// With an I/O error, and nothing done.
    Io,
    /// With an I/O error, after half of a write was done.
    Half,
    /// For want of room, after half of a write was done. Of other calls than writes: as [`Io`](Self::Io).
    Full,
}

/// What goes wrong, and when. Calls are counted from the moment at which it is set, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One kind of call fails.
    Fail {
        /// Which.
        call: Call,
        /// The first that fails.
        nth: u64,
        /// How.
        failure: Failure,
        /// Whether all after it fail too.
        for_ever: bool,
    },
    /// The power goes off.
    PowerOff {
        /// At this call of those that change something: write, synchronise, cut, delete.
        nth: u64,
    },
}

/// What a call may do.
pub(crate) enum Verdict {
    Pass,
    /// A write does this many bytes, then fails.
    Fail {
        code: i32,
        done_bytes: usize,
    },
}

pub(crate) type FileId = u64;

/// A disk over one directory.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
}

impl Disk {
    /// Puts the database files of a directory on such a disk. What is in them now is durable.
    ///
    /// # Errors
    /// If the directory cannot be found.
    pub fn over(directory: &Path) -> io::Result<Self> {
        vfs::install();
        let shared = Arc::new(Shared {
            directory: directory.canonicalize()?,
            state: Mutex::new(State::default()),
        });
        vfs::mount(&shared);
        Ok(Self { shared })
    }

    /// Sets what goes wrong from now on, or that nothing does, and counts from zero. It does not
    /// bring the power back.
    pub fn set(&self, fault: Option<Fault>) {
        let mut state = self.shared.lock();
        state.fault = fault;
        state.counts = [0; Call::ALL.len()];
        state.changes = 0;
        state.hits = 0;
    }

    /// Has the disk say that it synchronised what it did not: the control that shows that a loss
    /// is seen.
    pub fn lie_about_sync(&self, lies: bool) {
        self.shared.lock().lies = lies;
    }

    /// How many calls of a kind there were.
    #[must_use]
    pub fn count(&self, call: Call) -> u64 {
        self.shared.lock().counts[call as usize]
    }

    /// How many calls there were that change something.
    #[must_use]
    pub fn changes_count(&self) -> u64 {
        self.shared.lock().changes
    }

    /// How many calls failed by the fault.
    #[must_use]
    pub fn hits_count(&self) -> u64 {
        self.shared.lock().hits
    }

    /// How many files are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.shared.lock().open_count
    }

    /// Takes the power away now, unless it is off.
    pub fn power_off(&self) {
        let mut state = self.shared.lock();
        self.shared.power_off(&mut state);
    }

    /// Brings the power back: leaves in the directory what the disk kept. The seed chooses where
    /// the loss leaves a choice.
    ///
    /// # Errors
    /// If a file is still open, or the directory cannot be written.
    pub fn restart(&self, loss: Loss, seed: u64) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.open_count > 0 {
            let open = state.open_count;
            return Err(io::Error::other(format!(
                "{open} files are still open; close the database before the power comes back"
            )));
        }
        self.shared.power_off(&mut state);
        let mut random = Random::new(seed);
        let survivors = state.survivors(loss, &mut random);
        self.shared.replace_files(&state, &survivors, &mut random)?;
        *state = State { lies: state.lies, ..State::default() };
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vfs::unmount(&self.shared);
    }
}

/// What the shim sees of a disk.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    fault: Option<Fault>,
    lies: bool,
    counts: [u64; Call::ALL.len()],
    changes: u64,
    hits: u64,
    open_count: usize,
    next_id: FileId,
    files: BTreeMap<FileId, Image>,
    by_inode: BTreeMap<u64, FileId>,
    /// The names whose directory entries are durable.
    durable_names: BTreeMap<OsString, FileId>,
    /// The names at the moment at which the power went off.
    off: Option<BTreeMap<OsString, FileId>>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and says what it may do. A write that meets the end of the power is on its way.
    pub(crate) fn ask(
        &self,
        state: &mut State,
        call: Call,
        file: Option<FileId>,
        change: Option<&Change>,
    ) -> Verdict {
        let refused = Verdict::Fail { code: call.code(), done_bytes: 0 };
        if state.off.is_some() {
            return refused;
        }
        state.counts[call as usize] += 1;
        state.changes += u64::from(call.changes());
        let count = state.counts[call as usize];
        match state.fault {
            Some(Fault::PowerOff { nth }) if call.changes() && state.changes == nth => {
                state.hits += 1;
                if let (Some(id), Some(change)) = (file, change) {
                    state.change(id, change.clone());
                }
                self.power_off(state);
                refused
            }
            Some(Fault::Fail { call: failing, nth, failure, for_ever })
                if failing == call && (count == nth || (for_ever && count > nth)) =>
            {
                state.hits += 1;
                let half = match change {
                    Some(Change::Write { bytes, .. }) => bytes.len() / 2,
                    _ => 0,
                };
                match failure {
                    Failure::Full if call == Call::Write => {
                        Verdict::Fail { code: ffi::SQLITE_FULL, done_bytes: half }
                    }
                    Failure::Half => Verdict::Fail { code: call.code(), done_bytes: half },
                    Failure::Full | Failure::Io => refused,
                }
            }
            _ => Verdict::Pass,
        }
    }

    fn power_off(&self, state: &mut State) {
        if state.off.is_none() {
            state.off = Some(self.names(state));
        }
    }

    /// The files that this disk knows, by the names that they have now.
    fn names(&self, state: &State) -> BTreeMap<OsString, FileId> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let known = entries.filter_map(|entry| {
            let inode = entry.metadata().ok()?.ino();
            Some((entry.file_name(), *state.by_inode.get(&inode)?))
        });
        known.collect()
    }

    /// A file was opened; says which it is. `content` is what it holds, `None` if it is new.
    ///
    /// The content comes from SQLite's own handle: to open and close the file here would take the
    /// process's locks away.
    pub(crate) fn opened(
        &self,
        state: &mut State,
        path: &Path,
        content: Option<Vec<u8>>,
    ) -> Option<FileId> {
        state.open_count += 1;
        let inode = fs::metadata(path).ok()?.ino();
        let name = path.file_name().unwrap_or_default().to_owned();
        let Some(content) = content else { return Some(state.add(inode, Image::default())) };
        let known = state.by_inode.get(&inode).copied();
        // An inode is used again after its file was deleted without us.
        if let Some(id) = known.filter(|id| state.files[id].live() == content) {
            // One with another durable name was renamed without us.
            if state.durable_names.values().any(|named| *named == id) {
                state.durable_names.retain(|_, named| *named != id);
                state.durable_names.insert(name, id);
            }
            return Some(id);
        }
        let id = state.add(inode, Image::durable(content));
        state.durable_names.insert(name, id);
        Some(id)
    }

    /// A file was synchronised. The first time SQLite synchronises a new log or journal, it
    /// synchronises its directory too.
    pub(crate) fn synced(&self, state: &mut State, id: FileId, directory_too: bool) {
        if state.lies {
            return;
        }
        if let Some(image) = state.files.get_mut(&id) {
            image.sync();
        }
        if directory_too {
            self.directory_synced(state);
        }
    }

    pub(crate) fn deleted(&self, state: &mut State, inode: Option<u64>, directory_too: bool) {
        if let Some(inode) = inode {
            state.by_inode.remove(&inode);
        }
        if directory_too && !state.lies {
            self.directory_synced(state);
        }
    }

    fn directory_synced(&self, state: &mut State) {
        state.durable_names = self.names(state);
    }

    /// Puts the survivors in the place of all files that the disk knows. What was in shared memory
    /// is gone, or it is rubbish.
    fn replace_files(
        &self,
        state: &State,
        survivors: &BTreeMap<OsString, Vec<u8>>,
        random: &mut Random,
    ) -> io::Result<()> {
        let known = state.durable_names.keys().chain(state.off.iter().flat_map(BTreeMap::keys));
        let known: Vec<&OsStr> = known.map(OsString::as_os_str).collect();
        for entry in fs::read_dir(&self.directory)? {
            let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
            let is_shm = name.to_string_lossy().ends_with("-shm");
            if is_shm && random.coin() {
                let mut rubbish = fs::read(&path)?;
                for part in rubbish.chunks_mut(8) {
                    let bytes = random.next().to_le_bytes();
                    part.copy_from_slice(&bytes[..part.len()]);
                }
                fs::write(&path, rubbish)?;
            } else if is_shm || known.contains(&name.as_os_str()) {
                fs::remove_file(&path)?;
            }
        }
        for (name, content) in survivors {
            fs::write(self.directory.join(name), content)?;
        }
        Ok(())
    }
}

impl State {
    pub(crate) fn change(&mut self, id: FileId, change: Change) {
        if let Some(image) = self.files.get_mut(&id) {
            image.change(change);
        }
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.off.is_some()
    }

    pub(crate) const fn closed(&mut self) {
        self.open_count = self.open_count.saturating_sub(1);
    }

    fn add(&mut self, inode: u64, image: Image) -> FileId {
        self.next_id += 1;
        self.by_inode.insert(inode, self.next_id);
        self.files.insert(self.next_id, image);
        self.next_id
    }

    /// The files that are left, by name. A name whose entry was not synchronised is the old or the
    /// new file, or none, as a disk may choose.
    fn survivors(&self, loss: Loss, random: &mut Random) -> BTreeMap<OsString, Vec<u8>> {
        let nothing = BTreeMap::new();
        let live = self.off.as_ref().unwrap_or(&nothing);
        let mut left = BTreeMap::new();
        let names = self.durable_names.keys().chain(live.keys());
        for name in names.collect::<std::collections::BTreeSet<_>>() {
            let (old, new) = (self.durable_names.get(name), live.get(name));
            let kept = match loss {
                Loss::Everything => old,
                Loss::Nothing => new,
                _ if old == new || random.coin() => new,
                _ => old,
            };
            if let Some(image) = kept.and_then(|id| self.files.get(id)) {
                left.insert(name.clone(), image.survivor(loss, random));
            }
        }
        left
    }
}
