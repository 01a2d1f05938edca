//! The project itself: the rules for its tree, the defaults that its pages name, and whether the sanitizers are awake.

mod defaults;
mod sanitizer;
mod tidy;
