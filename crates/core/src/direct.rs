//! Effects that are sent while the caller waits, without IO: what an upstream's answer means, what a
//! call may do, and where an operation goes next. The store runs these inside its transactions; who
//! sends only reports what it saw.
//!
//! A request is recorded as sent before its first byte leaves, and a request that may have taken
//! effect is never followed by the same one. What is unknown waits for evidence: a late answer, a
//! look at the upstream, or an operator.

mod decide;
mod item;
mod meaning;
mod step;

pub use decide::{LEG_LIMIT, Leg, Turn, decide};
pub use item::{Direct, Reply, ReplyKind, Upstream};
pub use meaning::{AnswerShape, ErrorMeans, Meaning, meaning};
pub use step::{
    Change, LookupEnd, Report, UNSENT_LIMIT, lapse, late_contradiction, look_up_ended, report,
};
