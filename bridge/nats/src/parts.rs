//! Messages in pieces, first their blobs and then their payload: how they are cut, how many pieces
//! may be on their way, and how they are put together again.

use crate::message::{Step, Wrong};
use bytes::{Buf, Bytes};
use pipework::reqrep::{Blob, MAX_BLOBS};
use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
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

/// Whether a piece belongs to a blob or to the payload of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Blob,
    Payload,
}

/// A piece of a message. With `more` the blob or the payload goes on with the next one.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) of: Of,
    pub(crate) more: bool,
    pub(crate) bytes: Bytes,
}

impl Piece {
    pub(crate) fn is_last_of_message(&self) -> bool {
        self.of == Of::Payload && !self.more
    }

    /// The step that sends it.
    pub(crate) fn step(&self, number: u64, flags: u32) -> Step {
        match self.of {
            Of::Blob => Step::Blob { number, more: self.more },
            Of::Payload => Step::Part { number, more: self.more, flags },
        }
    }
}

/// The pieces of a message that were not sent yet.
#[derive(Debug)]
pub(crate) struct Pieces {
    blobs: VecDeque<Blob>,
    /// How much of the first blob was sent.
    sent: usize,
    /// `None` once its last piece was sent.
    payload: Option<Bytes>,
}

impl Pieces {
    pub(crate) fn new(payload: Bytes, blobs: &[Blob]) -> Pieces {
        Pieces { blobs: blobs.iter().cloned().collect(), sent: 0, payload: Some(payload) }
    }

    /// The next piece, of at most `bytes` bytes; `None` after the last.
    ///
    /// The pieces of a blob are copies. The kernel refuses to send memory from a file that was cut
    /// short, and then the connection would end.
    ///
    /// # Errors
    ///
    /// The file of a blob was cut short.
    pub(crate) fn next(&mut self, bytes: usize) -> Result<Option<Piece>, pipework::Error> {
        if let Some(blob) = self.blobs.front() {
            let rest = &blob[self.sent..];
            let piece = Bytes::copy_from_slice(&rest[..rest.len().min(bytes)]);
            let more = piece.len() < rest.len();
            self.sent += piece.len();
            if !more {
                blob.check()?;
                self.blobs.pop_front();
                self.sent = 0;
            }
            return Ok(Some(Piece { of: Of::Blob, more, bytes: piece }));
        }
        let Some(mut rest) = self.payload.take() else { return Ok(None) };
        let piece = cut(&mut rest, bytes);
        let more = !rest.is_empty();
        self.payload = more.then_some(rest);
        Ok(Some(Piece { of: Of::Payload, more, bytes: piece }))
    }
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

/// A message that has come in pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) blobs: Vec<Vec<u8>>,
    pub(crate) payload: Bytes,
}

/// The pieces that one side has received.
///
/// Blobs are collected on the heap until their message is complete. So a sender that announces much
/// and sends little takes no shared memory.
#[derive(Debug)]
pub(crate) struct Received {
    next: u64,
    acknowledged: u64,
    /// The message so far: `begun` says whether its last blob, or its payload, is unfinished.
    blobs: Vec<Vec<u8>>,
    payload: Vec<u8>,
    begun: Option<Of>,
    /// Bytes of the message so far.
    len: usize,
    max_message: usize,
}

/// Why a piece cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// One before it was lost.
    Gap,
    /// The message is too long.
    TooLong,
    /// It does not belong here.
    Malformed(Wrong),
}

impl Received {
    /// None yet; `max_message` are the bytes of the longest message, with its blobs.
    pub(crate) fn new(max_message: usize) -> Received {
        let (blobs, payload) = (Vec::new(), Vec::new());
        Received { next: 0, acknowledged: 0, blobs, payload, begun: None, len: 0, max_message }
    }

    /// Takes piece `number`. Returns the message if this is the last of its pieces.
    pub(crate) fn take(&mut self, number: u64, piece: &Piece) -> Result<Option<Whole>, Misfit> {
        self.add(number, piece.of, &piece.bytes)?;
        self.next += 1;
        self.begun = piece.more.then_some(piece.of);
        Ok(piece.is_last_of_message().then(|| self.whole()))
    }

    /// The same for the message that ends a call, which is not counted.
    pub(crate) fn end(&mut self, number: u64, piece: &[u8]) -> Result<Whole, Misfit> {
        self.add(number, Of::Payload, piece)?;
        Ok(self.whole())
    }

    fn add(&mut self, number: u64, of: Of, piece: &[u8]) -> Result<(), Misfit> {
        if number != self.next {
            return Err(Misfit::Gap);
        }
        if self.len.saturating_add(piece.len()) > self.max_message {
            return Err(Misfit::TooLong);
        }
        let Received { blobs, payload, .. } = self;
        let into = match (of, self.begun) {
            (Of::Blob, Some(Of::Payload)) => return Err(Misfit::Malformed("a blob within a payload")),
            (Of::Payload, Some(Of::Blob)) => return Err(Misfit::Malformed("a payload within a blob")),
            (Of::Blob, None) if blobs.len() == MAX_BLOBS as usize => {
                return Err(Misfit::Malformed("more blobs than a message may have"));
            }
            (Of::Blob, None) => blobs.push_mut(Vec::new()),
            (Of::Blob, Some(Of::Blob)) => blobs.last_mut().expect("one was begun"),
            (Of::Payload, _) => payload,
        };
        into.extend_from_slice(piece);
        self.len += piece.len();
        Ok(())
    }

    fn whole(&mut self) -> Whole {
        self.len = 0;
        Whole { blobs: mem::take(&mut self.blobs), payload: mem::take(&mut self.payload).into() }
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

    fn piece(of: Of, more: bool, bytes: &'static [u8]) -> Piece {
        Piece { of, more, bytes: Bytes::from_static(bytes) }
    }

    #[test]
    fn pieces_join_to_the_original_message() {
        let segment = pipework::reqrep::Options::new().anonymous().unwrap();
        let bytes = |len: usize, first: usize| (first..first + len).map(|at| at as u8).collect::<Vec<_>>();
        for lens in [&[][..], &[0], &[1, 0, 99], &[100, 101], &[1000, 0, 0, 0, 0, 0, 0, 300]] {
            for len in [0, 1, 99, 100, 101, 1000] {
                let whole = Whole {
                    blobs: lens.iter().zip(1..).map(|(len, first)| bytes(*len, first)).collect(),
                    payload: bytes(len, 0).into(),
                };
                let blobs: Vec<Blob> = whole.blobs.iter().map(|bytes| blob(&segment, bytes)).collect();
                let mut received = Received::new(3000);
                // One after the other, so that nothing of the first is in the second.
                for _ in 0..2 {
                    let mut pieces = Pieces::new(whole.payload.clone(), &blobs);
                    let taken = loop {
                        let piece = pieces.next(100).unwrap().expect("the message is not complete");
                        assert!(piece.bytes.len() <= 100);
                        if let Some(taken) = received.take(received.next, &piece).unwrap() {
                            break taken;
                        }
                    };
                    assert_eq!(taken, whole);
                    assert!(pieces.next(100).unwrap().is_none());
                }
            }
        }
    }

    fn blob(segment: &pipework::reqrep::Segment, bytes: &[u8]) -> Blob {
        let mut draft = segment.blob(bytes.len()).unwrap();
        draft.copy_from_slice(bytes);
        draft.freeze().unwrap()
    }

    #[test]
    fn gaps_and_excess_bytes_are_refused() {
        let mut received = Received::new(10);
        assert_eq!(received.take(0, &piece(Of::Blob, false, b"12")), Ok(None));
        assert_eq!(received.take(1, &piece(Of::Payload, true, b"345")), Ok(None));
        let next = piece(Of::Payload, true, b"6");
        assert_eq!(received.take(3, &next), Err(Misfit::Gap));
        assert_eq!(received.take(1, &next), Err(Misfit::Gap));
        assert_eq!(received.take(2, &piece(Of::Payload, false, b"678901")), Err(Misfit::TooLong));
        let whole = Whole { blobs: vec![b"12".to_vec()], payload: b"34567890"[..].into() };
        assert_eq!(received.end(2, b"67890"), Ok(whole));
        assert_eq!(received.end(2, b"1234567890").map(|whole| whole.payload.len()), Ok(10));
    }

    #[test]
    fn pieces_out_of_order_are_malformed() {
        let begun = |of| {
            let mut received = Received::new(10);
            received.take(0, &piece(of, true, b"1")).unwrap();
            received
        };
        let is_malformed = |taken| matches!(taken, Err(Misfit::Malformed(_)));
        assert!(is_malformed(begun(Of::Payload).take(1, &piece(Of::Blob, false, b"2"))));
        assert!(is_malformed(begun(Of::Blob).take(1, &piece(Of::Payload, false, b"2"))));
        assert!(is_malformed(begun(Of::Blob).end(1, b"2").map(Some)));
        let mut received = Received::new(10);
        for number in 0..u64::from(MAX_BLOBS) {
            assert_eq!(received.take(number, &piece(Of::Blob, false, b"")), Ok(None));
        }
        assert!(is_malformed(received.take(MAX_BLOBS.into(), &piece(Of::Blob, false, b""))));
    }

    #[test]
    fn window_closes_when_full_and_opens_as_pieces_are_taken() {
        let (sent, mut received) = (Sent::default(), Received::new(1 << 20));
        let mut most = 0;
        for number in 0..1000 {
            assert!(sent.has_space(), "{number}");
            sent.add();
            received.take(number, &piece(Of::Payload, true, b"x")).unwrap();
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
