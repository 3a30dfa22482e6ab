//! Every limit of the product, with its unit. What is over a limit is refused with the limit named.

use std::time::Duration;

/// An operation ID has at most this many bytes of UTF-8.
pub const MAX_OPERATION_ID_BYTES: usize = 128;
/// A principal, tenant, backend or tool version has at most this many bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 128;
/// A tool has at most this many bytes of UTF-8: that of an upstream bears its upstream's name too.
pub const MAX_TOOL_BYTES: usize = 256;
/// An upstream's name has at most this many bytes of UTF-8: the name of a guarded tool begins with it.
pub const MAX_UPSTREAM_BYTES: usize = 64;
/// A stored result has at most this many bytes.
pub const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// An issue's title has at most this many bytes.
pub const MAX_TITLE_BYTES: usize = 512;
/// An issue's body has at most this many bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// A reason or a proof given by an operator has at most this many bytes.
pub const MAX_NOTE_BYTES: usize = 2048;
/// A page of a list holds so many operations unless another count is asked for.
pub const DEFAULT_PAGE_COUNT: u16 = 50;
/// A page of a list holds at most so many operations.
pub const MAX_PAGE_COUNT: u16 = 200;
/// An operation ID that carries its time may be at most this far ahead of the store's clock.
pub const MAX_ID_AHEAD: Duration = Duration::from_secs(5 * 60);
/// For this long after it began an operation nobody but its owner may settle it, on the store's
/// clock. The lease is not renewed: after it the fence alone decides.
pub const OWNER_LEASE: Duration = Duration::from_secs(30);
/// Where the horizon may stand at most: this long before now.
pub const DEFAULT_HORIZON: Duration = Duration::from_secs(400 * 86_400);
