//! Arbitrary bytes as mixed text. The properties of every input are asserted beside the code:
//! `pipework::fuzzing::mixed`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::mixed(data));
