//! Payloads in pieces: how they are cut, how many may be on their way, and how they are put
//! together again.

use bytes::{Buf, Bytes};
use std::cell::Cell;
use tokio::sync::Notify;

/// Bytes of the largest piece.
const PIECE: usize = 128 << 10;
/// NATS counts this towards its largest message besides the payload: the headers of a piece.
const HEADERS: usize = 512;
/// Pieces that may be on their way without an acknowledgement.
const WINDOW: u64 = 32;
/// After how many pieces they are acknowledged.
const ACKNOWLEDGED: u64 = 8;

/// Bytes of a piece where the server takes messages of `max_payload` bytes.
pub(crate) fn piece_bytes(max_payload: usize) -> usize {
    PIECE.min(max_payload.saturating_sub(HEADERS).max(1))
}

/// Takes the next piece of the rest.
pub(crate) fn cut(rest: &mut Bytes, bytes: usize) -> Bytes {
    let piece = rest.slice(..rest.len().min(bytes));
    rest.advance(piece.len());
    piece
}

/// The pieces that one side has sent. Those that were acknowledged make space for others.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    sent: Cell<u64>,
    taken: Cell<u64>,
    acknowledged: Notify,
}

impl Sent {
    /// The number of pieces so far, which is the number of the next.
    pub(crate) fn count(&self) -> u64 {
        self.sent.get()
    }

    /// Counts one.
    pub(crate) fn add(&self) {
        self.sent.set(self.sent.get() + 1);
    }

    /// Whether another one may be sent.
    pub(crate) fn has_space(&self) -> bool {
        self.sent.get() - self.taken.get() < WINDOW
    }

    /// Waits until another one may be sent.
    pub(crate) async fn space(&self) {
        while !self.has_space() {
            self.acknowledged.notified().await;
        }
    }

    /// The other side has taken all before number `next`.
    pub(crate) fn acknowledge(&self, next: u64) {
        // It cannot have taken pieces that were not sent.
        self.taken.set(self.taken.get().max(next.min(self.sent.get())));
        self.acknowledged.notify_one();
    }
}

/// The pieces that one side has received.
#[derive(Debug)]
pub(crate) struct Received {
    next: u64,
    acknowledged: u64,
    part: Vec<u8>,
    max_message: usize,
}

/// Why a piece cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// One before it was lost.
    Gap,
    /// The part is too long.
    TooLong,
}

impl Received {
    /// None yet; `max_message` are the bytes of the longest part.
    pub(crate) fn new(max_message: usize) -> Received {
        Received { next: 0, acknowledged: 0, part: Vec::new(), max_message }
    }

    /// Takes piece `number`; the part, if this is the last of its pieces.
    pub(crate) fn take(&mut self, number: u64, more: bool, piece: &[u8]) -> Result<Option<Vec<u8>>, Misfit> {
        let part = self.end(number, piece)?;
        self.next += 1;
        if more {
            self.part = part;
            return Ok(None);
        }
        Ok(Some(part))
    }

    /// The same for the message that ends a call, which is not counted.
    pub(crate) fn end(&mut self, number: u64, piece: &[u8]) -> Result<Vec<u8>, Misfit> {
        if number != self.next {
            return Err(Misfit::Gap);
        }
        if self.part.len().saturating_add(piece.len()) > self.max_message {
            return Err(Misfit::TooLong);
        }
        let mut part = std::mem::take(&mut self.part);
        part.extend_from_slice(piece);
        Ok(part)
    }

    /// The number to acknowledge now, if any.
    pub(crate) fn due(&mut self) -> Option<u64> {
        let is_due = self.next - self.acknowledged >= ACKNOWLEDGED;
        if is_due {
            self.acknowledged = self.next;
        }
        is_due.then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_the_original_payload() {
        for len in [0, 1, 99, 100, 101, 1000] {
            let whole: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let (mut rest, mut received, mut number) = (Bytes::from(whole.clone()), Received::new(1000), 0);
            let part = loop {
                let piece = cut(&mut rest, 100);
                if let Some(part) = received.take(number, !rest.is_empty(), &piece).unwrap() {
                    break part;
                }
                number += 1;
            };
            assert_eq!(part, whole);
        }
    }

    #[test]
    fn gaps_and_excess_bytes_are_refused() {
        let mut received = Received::new(10);
        assert_eq!(received.take(0, true, b"12345"), Ok(None));
        assert_eq!(received.take(2, true, b"6"), Err(Misfit::Gap));
        assert_eq!(received.take(0, true, b"6"), Err(Misfit::Gap));
        assert_eq!(received.take(1, false, b"678901"), Err(Misfit::TooLong));
        assert_eq!(received.end(1, b"67890"), Ok(b"1234567890".to_vec()));
    }

    #[test]
    fn window_closes_when_full_and_opens_as_pieces_are_taken() {
        let (sent, mut received) = (Sent::default(), Received::new(1 << 20));
        let mut most = 0;
        for number in 0..1000 {
            assert!(sent.has_space(), "{number}");
            sent.add();
            received.take(number, true, b"x").unwrap();
            if let Some(next) = received.due() {
                sent.acknowledge(next);
            }
            most = most.max(number + 1 - received.acknowledged);
        }
        assert_eq!(most, ACKNOWLEDGED - 1);
        (0..WINDOW).for_each(|_| sent.add());
        assert!(!sent.has_space());
        // Pieces that were not sent cannot be taken.
        sent.acknowledge(u64::MAX);
        assert!(sent.has_space());
        assert_eq!(sent.taken.get(), sent.count());
    }

    #[test]
    fn piece_never_exceeds_the_limit_of_the_server() {
        assert_eq!(piece_bytes(1 << 20), PIECE);
        assert_eq!(piece_bytes(1024), 512);
        assert_eq!(piece_bytes(100), 1);
    }
}
