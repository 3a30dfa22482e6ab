//! The counterfoil command.
fn main() {}
