//! Arbitrary bytes as a segment of a broadcast, and written into one while it is in use. The properties of every
//! input are asserted beside the code: `pipework::fuzzing::broadcast`.

#![no_main]

use std::time::{Duration, Instant};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (before, began) = (threads(), Instant::now());
    pipework::fuzzing::broadcast(data);
    // The search for leaks would count memory of a thread that is about to end as lost.
    while threads() > before {
        assert!(began.elapsed() < Duration::from_secs(9), "a thread is left");
        std::thread::yield_now();
    }
});

/// Threads of this process, those of the fuzzer among them.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
