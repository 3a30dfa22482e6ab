//! The process's limit of open files: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a server needs besides its connections: the ledger, its log and its readers, the
/// standard streams, and some to spare.
const OTHER_FILES: u64 = 64;

/// Raises this process's limit of open files, as far as it may, to hold that many connections.
/// Says how many there is room for.
#[must_use]
pub fn make_room_for(connections: usize) -> usize {
    let wanted = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    // No limit is told as none.
    let Some(current) = limit.current.filter(|current| *current < wanted) else {
        return connections;
    };
    let possible = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
    let files = if setrlimit(Resource::Nofile, raised).is_ok() { possible } else { current };
    let room = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(connections).max(1);
    if room < connections {
        tracing::warn!(
            files,
            room,
            "this process may not open enough files for http.max_connections; raise the limit \
             (ulimit -n, LimitNOFILE)"
        );
    }
    room.min(connections)
}
