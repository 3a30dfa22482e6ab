//! A disk for SQLite that fails, fills up, tears and loses power on purpose, for the fault lab.
//!
//! [`Disk::over`] takes a directory. From then on every database file that SQLite opens below it in
//! this process goes through a shim over the usual file system layer: it counts calls, fails the
//! one that a [`Fault`] names, and keeps what was *written* apart from what was *synchronised*.
//! Files elsewhere are not touched, and the program under test needs no switch for it: the shim is
//! the process's default.
//!
//! When the power goes off nothing is written any more. [`Disk::restart`] then leaves in the
//! directory what a disk may have kept: all that was synchronised, and of the rest what a
//! [`Loss`] says, names of files included.
//!
//! What it does not see is what the program does to files without SQLite: a rename or a new file is
//! taken for durable at once.

mod disk;
mod image;
mod vfs;

pub use disk::{Call, Disk, Failure, Fault};
pub use image::Loss;
