//! A very large number of parts through one pipe: none is torn, lost, doubled or out of order.
//!
//! PIPEWORK_PARTS=1000000000 for a release.

use std::time::{Duration, Instant};

use pipework::atomic;
use pipework::{Deadline, ErrorKind};

use crate::harness::{Child, PATIENCE, alone_for, fork, say, setting};

const WRITERS: u64 = 4;
/// Messages that a writer sends at once; they share writes.
const BATCH: u64 = 64;
/// The number of parts of the last message of a batch.
const LONG: usize = 3;

#[test]
fn no_part_is_torn_among_very_many() {
    let wanted = setting("PIPEWORK_PARTS").unwrap_or(400_000);
    // Each batch has as many parts as it has short messages, plus those of the long one.
    let batches = wanted.div_ceil(WRITERS * (BATCH - 1 + LONG as u64));
    alone_for(PATIENCE + Duration::from_micros(10) * wanted as u32, || {
        let (mut reader, mut writer) = atomic::pair().unwrap();
        let rest = vec![0x5A; writer.max_part() * (LONG - 1)];
        let children: Vec<Child> = (0..WRITERS)
            .map(|number| {
                fork(|| {
                    for batch in 0..batches {
                        let mut messages: Vec<Vec<u8>> =
                            (0..BATCH).map(|nth| head(number, batch * BATCH + nth).to_vec()).collect();
                        messages[BATCH as usize - 1].extend(&rest);
                        writer.send_many(&messages, Deadline::NEVER).unwrap();
                    }
                })
            })
            .collect();
        drop(writer);

        let began = Instant::now();
        let (mut parts, mut next) = (0, [0; WRITERS as usize]);
        loop {
            let message = match reader.recv(PATIENCE) {
                Ok(message) => message,
                Err(error) if error.kind() == ErrorKind::Closed => break,
                Err(error) => panic!("after {parts} parts: {error}"),
            };
            let number = usize::from(message[0]);
            assert_eq!(message[..8], head(number as u64, next[number]), "after {parts} parts");
            next[number] += 1;
            let is_long = next[number] % BATCH == 0;
            assert!(if is_long { message[8..] == rest } else { message.len() == 8 }, "after {parts} parts");
            parts += u64::from(message.parts);
        }
        children.into_iter().for_each(Child::join);
        assert_eq!(next, [batches * BATCH; WRITERS as usize], "every message came");
        assert!(parts >= wanted, "{parts} parts");
        say(&format!("parts: {parts} in {:.1?}, none torn", began.elapsed()));
    });
}

/// The beginning of a message: its sender, and its number.
fn head(number: u64, nth: u64) -> [u8; 8] {
    let mut head = nth.to_be_bytes();
    head[0] = number as u8;
    head
}
