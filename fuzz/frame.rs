//! Arbitrary bytes as parts. What must hold for every input is asserted beside the code:
//! `pipework::fuzzing::frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::frame(data));
