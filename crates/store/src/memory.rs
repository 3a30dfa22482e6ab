//! Keeps nothing: for trying things out and for tests. Being written.
