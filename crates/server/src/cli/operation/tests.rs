//! What an operator reads, from records made by hand.

use super::*;
