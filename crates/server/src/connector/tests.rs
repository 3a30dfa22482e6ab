//! Connectors as they are written: every mistake with its place, and requests as they are made.
