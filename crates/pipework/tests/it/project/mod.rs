//! The project itself: the rules for its tree, and whether the sanitizers are awake.

mod sanitizer;
mod tidy;
