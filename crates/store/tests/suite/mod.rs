//! The conformance suite: what every back end must do, in cases that know no back end.
pub mod calls;
pub mod clock;
pub mod effects;
