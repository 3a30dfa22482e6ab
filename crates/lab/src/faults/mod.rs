//! Faults by enumeration: what is left, and what was told, wherever something goes wrong.

pub mod disk;
