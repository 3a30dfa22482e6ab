//! Fault lab.
fn main() {}
