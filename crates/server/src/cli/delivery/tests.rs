//! What an operator reads of a delivery, from items made by hand.
