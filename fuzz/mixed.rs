//! Arbitrary bytes as mixed text. What must hold for every input is asserted beside the code:
//! `pipework::fuzzing::mixed`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::mixed(data));
