//! The layer by itself, with contents of its own.
