//! Arbitrary bytes as parts. The properties of every input are asserted beside the code:
//! `pipework::fuzzing::frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::frame(data));
