//! The simulation.
