//! The shim: a table of C functions over SQLite's usual one, which asks the disk first.
//!
//! A file of ours is our own head, and behind it the file of the layer below. Files that no disk is
//! over are handed to the layer below as they are, and never come here again.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use crate::disk::{Call, FileId, Shared, Verdict};
use crate::image::Change;

/// The layer below.
struct Below(*mut sqlite3_vfs);

// SAFETY: SQLite's own file system layer is registered once, never changed, and made to be called
// from every thread.
unsafe impl Send for Below {}
// SAFETY: as above.
unsafe impl Sync for Below {}

static BELOW: OnceLock<Below> = OnceLock::new();
static DISKS: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// The files that tell what is committed. Others are SQLite's scratch paper.
const KEPT: c_int = ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL;

/// Makes the shim the process's default; once.
pub(crate) fn install() {
    BELOW.get_or_init(|| {
        // SAFETY: both functions may be called at any time; SQLite starts by itself with the first.
        let below = unsafe {
            ffi::sqlite3_initialize();
            ffi::sqlite3_vfs_find(std::ptr::null())
        };
        assert!(!below.is_null(), "SQLite has a default file system layer");
        // SAFETY: `below` is a registered layer, which lives as long as the process.
        let mut shim = unsafe { *below };
        shim.zName = c"counterfoil-fault-disk".as_ptr();
        shim.pNext = std::ptr::null_mut();
        let head = c_int::try_from(size_of::<File>()).expect("a head is a few bytes");
        shim.szOsFile += head;
        shim.xOpen = Some(open);
        shim.xDelete = Some(delete);
        shim.xSetSystemCall = None;
        shim.xGetSystemCall = None;
        shim.xNextSystemCall = None;
        shim.iVersion = 2;
        // SAFETY: the table is leaked, so it lives as long as SQLite may use it. The functions that
        // it shares with `below` look at nothing in it that differs.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(shim)), 1) };
        assert_eq!(code, ffi::SQLITE_OK, "the shim could not be registered");
        Below(below)
    });
}

pub(crate) fn mount(disk: &Arc<Shared>) {
    disks().push(Arc::clone(disk));
}

pub(crate) fn unmount(disk: &Arc<Shared>) {
    disks().retain(|mounted| !Arc::ptr_eq(mounted, disk));
}

fn disks() -> std::sync::MutexGuard<'static, Vec<Arc<Shared>>> {
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn disk_of(path: &Path) -> Option<Arc<Shared>> {
    let directory = path.parent()?;
    disks().iter().find(|disk| disk.directory == directory).map(Arc::clone)
}

fn below() -> *mut sqlite3_vfs {
    BELOW.get().expect("the shim is installed before it is called").0
}

/// A file's name as SQLite gives it: absolute, and it lives as long as the file.
///
/// # Safety
/// `name` is null or ends with a zero byte.
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// Our head of a file.
#[repr(C)]
struct File {
    base: sqlite3_file,
    handle: *mut Handle,
}

/// What we keep of an open file.
struct Handle {
    disk: Arc<Shared>,
    id: Option<FileId>,
    /// A new log or journal, whose directory is synchronised with it the first time.
    is_new: AtomicBool,
}

/// The file of the layer below.
///
/// # Safety
/// `file` was opened by [`open`] as ours.
unsafe fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: SQLite gave `szOsFile` bytes: our head and then the other file.
    unsafe { file.cast::<u8>().add(size_of::<File>()).cast() }
}

/// # Safety
/// As [`real`], and the file is not closed yet.
unsafe fn handle<'a>(file: *mut sqlite3_file) -> &'a Handle {
    // SAFETY: `open` put the handle there, and `close` alone takes it away.
    unsafe { &*(*file.cast::<File>()).handle }
}

/// Calls a function of the layer below.
macro_rules! pass {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: the file is ours and open, so the one below is open too and has its methods; the
        // arguments are those that SQLite gave for it.
        unsafe {
            let real = real($file);
            match (*(*real).pMethods).$method {
                Some(method) => method(real $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: `below` is registered, and every layer can open.
    let open_below = |file| match unsafe { (*below()).xOpen } {
        // SAFETY: SQLite's own arguments, and room for at least the file of the layer below.
        Some(open) => unsafe { open(below(), name, file, flags, out_flags) },
        None => ffi::SQLITE_CANTOPEN,
    };
    // SAFETY: SQLite's names end with a zero byte.
    let path = unsafe { path_of(name) }.filter(|_| flags & KEPT != 0);
    let Some((path, disk)) = path.and_then(|path| Some((path, disk_of(path)?))) else {
        return open_below(file);
    };
    let head = file.cast::<File>();
    // SAFETY: SQLite gave room for our head; without methods it does not close the file.
    unsafe { (*head).base.pMethods = std::ptr::null() };
    let mut state = disk.lock();
    if let Verdict::Fail { code, .. } = disk.ask(&mut state, Call::Open, None, None) {
        return code;
    }
    let was_there = path.exists();
    // SAFETY: the room behind our head is the other file's.
    let code = open_below(unsafe { real(file) });
    if code != ffi::SQLITE_OK {
        // SAFETY: a layer that could not open may leave methods to close with.
        unsafe {
            let real = real(file);
            if let Some(methods) = (*real).pMethods.as_ref()
                && let Some(close) = methods.xClose
            {
                close(real);
            }
        }
        return code;
    }
    let content = was_there.then(|| content(file));
    let id = disk.opened(&mut state, path, content);
    drop(state);
    let is_new = !was_there && flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    let handle = Box::new(Handle { disk, id, is_new: AtomicBool::new(is_new) });
    // SAFETY: as above.
    unsafe {
        (*head).handle = Box::into_raw(handle);
        (*head).base.pMethods = &raw const METHODS;
    }
    ffi::SQLITE_OK
}

/// Everything in a file that is just being opened.
fn content(file: *mut sqlite3_file) -> Vec<u8> {
    let mut length: sqlite3_int64 = 0;
    pass!(file, xFileSize, &raw mut length);
    let mut content = vec![0_u8; usize::try_from(length).unwrap_or(0)];
    if let Ok(length) = c_int::try_from(length) {
        pass!(file, xRead, content.as_mut_ptr().cast(), length, 0);
    }
    content
}

unsafe extern "C" fn delete(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: as in `open`.
    let delete_below = || match unsafe { (*below()).xDelete } {
        // SAFETY: SQLite's own arguments.
        Some(delete) => unsafe { delete(below(), name, sync_directory) },
        None => ffi::SQLITE_IOERR_DELETE,
    };
    // SAFETY: SQLite's names end with a zero byte.
    let Some(path) = (unsafe { path_of(name) }) else { return delete_below() };
    let Some(disk) = disk_of(path) else { return delete_below() };
    let mut state = disk.lock();
    if let Verdict::Fail { code, .. } = disk.ask(&mut state, Call::Delete, None, None) {
        return code;
    }
    let inode = std::fs::metadata(path).ok().map(|found| found.ino());
    let code = delete_below();
    if code == ffi::SQLITE_OK {
        disk.deleted(&mut state, inode, sync_directory != 0);
    }
    code
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Without memory maps of the file, so that every change comes by.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let code = pass!(file, xClose);
    let head = file.cast::<File>();
    // SAFETY: `open` made the handle, and SQLite closes a file once.
    let handle = unsafe { Box::from_raw((*head).handle) };
    // SAFETY: the head is still SQLite's memory for this file.
    unsafe { (*head).base.pMethods = std::ptr::null() };
    handle.disk.lock().closed();
    code
}

/// Asks the disk about a call that changes nothing.
///
/// # Safety
/// As [`handle`].
unsafe fn ask(file: *mut sqlite3_file, call: Call) -> Verdict {
    // SAFETY: the caller's promise.
    let handle = unsafe { handle(file) };
    handle.disk.ask(&mut handle.disk.lock(), call, handle.id, None)
}

/// # Safety
/// As [`handle`].
unsafe fn is_off(file: *mut sqlite3_file) -> bool {
    // SAFETY: the caller's promise.
    unsafe { handle(file) }.disk.lock().is_off()
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    length: c_int,
    at: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    match unsafe { ask(file, Call::Read) } {
        Verdict::Fail { code, .. } => code,
        Verdict::Pass => pass!(file, xRead, to, length, at),
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    let handle = unsafe { handle(file) };
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: SQLite gives that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
    let place = u64::try_from(at).unwrap_or(0);
    let change = |bytes: &[u8]| Change::Write { at: place, bytes: bytes.to_vec() };
    let whole = change(bytes);
    let mut state = handle.disk.lock();
    let (code, done) = match handle.disk.ask(&mut state, Call::Write, handle.id, Some(&whole)) {
        Verdict::Pass => (None, length),
        Verdict::Fail { code, done_bytes } => (Some(code), done_bytes),
    };
    if done == 0 {
        return code.unwrap_or(ffi::SQLITE_OK);
    }
    let count = c_int::try_from(done).expect("no more than SQLite gave");
    let written = pass!(file, xWrite, from, count, at);
    if let (ffi::SQLITE_OK, Some(id)) = (written, handle.id) {
        state.change(id, if done == length { whole } else { change(&bytes[..done]) });
    }
    code.unwrap_or(written)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, length: sqlite3_int64) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    let handle = unsafe { handle(file) };
    let change = Change::Truncate { length: u64::try_from(length).unwrap_or(0) };
    let mut state = handle.disk.lock();
    let asked = handle.disk.ask(&mut state, Call::Truncate, handle.id, Some(&change));
    if let Verdict::Fail { code, .. } = asked {
        return code;
    }
    let code = pass!(file, xTruncate, length);
    if let (ffi::SQLITE_OK, Some(id)) = (code, handle.id) {
        state.change(id, change);
    }
    code
}

/// What is durable is kept beside the file, so the machine's own disk need not be waited for.
unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    let handle = unsafe { handle(file) };
    let mut state = handle.disk.lock();
    let asked = handle.disk.ask(&mut state, Call::Sync, handle.id, None);
    if let Verdict::Fail { code, .. } = asked {
        return code;
    }
    if let Some(id) = handle.id {
        let directory_too = handle.is_new.swap(false, Ordering::Relaxed);
        handle.disk.synced(&mut state, id, directory_too);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    if unsafe { is_off(file) } {
        return ffi::SQLITE_IOERR_FSTAT;
    }
    pass!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    if unsafe { is_off(file) } {
        return ffi::SQLITE_IOERR_LOCK;
    }
    pass!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    pass!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    pass!(file, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, op: c_int, arg: *mut c_void) -> c_int {
    pass!(file, xFileControl, op, arg)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    pass!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    pass!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    page_bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls with an open file of ours.
    match unsafe { ask(file, Call::ShmMap) } {
        Verdict::Fail { code, .. } => {
            // SAFETY: SQLite's own place for the address; none is given with an error.
            unsafe { *out = std::ptr::null_mut() };
            code
        }
        Verdict::Pass => pass!(file, xShmMap, page, page_bytes, extend, out),
    }
}

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // Giving a lock back never fails.
    if flags & ffi::SQLITE_SHM_UNLOCK == 0
        // SAFETY: SQLite calls with an open file of ours.
        && let Verdict::Fail { code, .. } = unsafe { ask(file, Call::ShmLock) }
    {
        return code;
    }
    pass!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: as in `pass`.
    unsafe {
        let real = real(file);
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    pass!(file, xShmUnmap, delete)
}
