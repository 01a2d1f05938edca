//! Arbitrary bytes in the decoder, and through a real pipe in a whole reader. The properties of
//! every input are asserted beside the code: `pipework::fuzzing::reader`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pipework::fuzzing::reader(data));
