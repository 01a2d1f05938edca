//! Arbitrary bytes through a real pipe into a whole reader. What must hold for every input is asserted beside the
//! code: `pipework::fuzzing::reader`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::reader(data));
