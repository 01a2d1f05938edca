//! The memory of a stream does not grow with the number of its parts, on either side.

use super::*;
use crate::harness::{alone, awaited, fork, memory_kib, shared};

/// After this many parts, both sides have allocated everything that they need.
const WARM: u64 = 100;
const MOST_KIB: u64 = 1024;

/// The bytes of a part; the first eight are its number.
struct Part(Vec<u8>);

impl Part {
    fn new(len: usize) -> Part {
        Part(Random::new(5).bytes(len))
    }

    /// The bytes of the part with that number.
    fn number(&mut self, number: u64) -> &[u8] {
        self.0[..8].copy_from_slice(&number.to_le_bytes());
        &self.0
    }
}

/// Runs all steps of one side; returns by how many KiB its peak memory grew.
fn grown_kib(steps: u64, mut step: impl FnMut(u64)) -> u64 {
    (0..WARM).for_each(&mut step);
    let before = memory_kib("VmHWM");
    (WARM..steps).for_each(step);
    memory_kib("VmHWM") - before
}

/// Streams a reply of that many parts.
fn goes_through(parts: u64, len: usize) {
    let options = Options::new().slots(4).members(8).request_bytes(len as u32).reply_bytes(len as u32);
    let segment = options.anonymous().expect("a segment");
    let grown = &shared(1)[0];
    let child = fork(|| {
        let (server, mut part) = (segment.server().unwrap(), Part::new(len));
        let mut request = server.recv(PATIENCE).unwrap();
        let kib = grown_kib(parts, |n| assert_eq!(request.part(part.number(n), PATIENCE), Ok(true)));
        grown.store(1 + kib, SeqCst);
        request.reply("").unwrap();
    });
    let (client, mut part) = (segment.client().unwrap(), Part::new(len));
    let mut stream = client.stream("go", PATIENCE).unwrap();
    let kib = grown_kib(parts, |n| {
        let got = stream.next_part(PATIENCE).unwrap().expect("a part");
        assert!(*got == *part.number(n), "part {n}");
    });
    assert!(kib < MOST_KIB && awaited(grown) <= MOST_KIB, "{kib} and {grown:?} KiB");
    assert!(stream.next_part(PATIENCE).unwrap().is_none());
    child.join();
    assert_all_free(&segment);
}

#[test]
fn memory_is_flat_over_a_million_short_parts() {
    alone(|| goes_through(1_000_000, 12));
}

#[test]
fn memory_is_flat_over_a_gigabyte() {
    alone(|| goes_through(16384, 65536));
}
