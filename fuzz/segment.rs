//! Arbitrary bytes as a segment, and written into one while it is in use. What must hold for every
//! input is asserted beside the code: `pipework::fuzzing::segment`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::segment(data));
