//! The project itself: the rules for its tree, the defaults and options that its pages name, how its tests are
//! run, and whether the sanitizers are awake.

mod defaults;
mod options;
mod make_test;
mod sanitizer;
mod tidy;
