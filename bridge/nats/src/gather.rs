//! Messages that come in pieces, put together again. Pure.
//!
//! Pieces may come in any order, and more than once. Memory has a limit: past it, the message that
//! waited longest for a piece is forgotten.

use crate::envelope::Piece;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The cost of a piece besides its bytes.
const OVERHEAD: usize = 256;
/// So many messages of the largest size may be unfinished.
const AT_ONCE: usize = 4;

/// A whole message, with the value kept for each of its pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole<T> {
    pub(crate) data: Vec<u8>,
    pub(crate) kept: Vec<T>,
}

/// The result of taking a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<T> {
    Whole(Whole<T>),
    /// Others are missing.
    Unfinished,
    /// It will never be whole, for it is too long, or its pieces contradict each other; this
    /// contains the values kept for them.
    Unfit(Vec<T>),
}

#[derive(Debug)]
struct Begun<T> {
    pieces: BTreeMap<u32, (Bytes, T)>,
    /// The number of pieces, once the last one has come.
    count: Option<u64>,
    bytes: usize,
    latest: Instant,
}

#[derive(Debug)]
pub(crate) struct Gathering<T> {
    begun: HashMap<String, Begun<T>>,
    max_message: usize,
    held: usize,
}

impl<T> Gathering<T> {
    pub(crate) fn new(max_message: usize) -> Gathering<T> {
        Gathering { begun: HashMap::new(), max_message, held: 0 }
    }

    /// Bytes of the longest message.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    /// Takes a piece, and a value to be kept with it.
    pub(crate) fn take(&mut self, piece: Piece, data: Bytes, kept: T, now: Instant) -> Step<T> {
        let Piece { message, number, more } = piece;
        let mut begun = match self.begun.remove(&message) {
            Some(begun) => {
                self.held -= begun.cost();
                begun
            }
            None => Begun { pieces: BTreeMap::new(), count: None, bytes: 0, latest: now },
        };
        begun.latest = now;
        begun.bytes += data.len();
        if let Some((again, _)) = begun.pieces.insert(number, (data, kept)) {
            begun.bytes -= again.len();
        }
        let behind = u64::from(number) + 1;
        let last = begun.pieces.last_key_value().map_or(0, |(number, _)| u64::from(*number));
        let count = begun.count.or((!more).then_some(behind));
        let contradicts = count.is_some_and(|count| last >= count) || (more && count == Some(behind));
        begun.count = count;
        if contradicts || begun.bytes > self.max_message || begun.cost() > self.limit() {
            return Step::Unfit(begun.kept());
        }
        if count == Some(begun.pieces.len() as u64) {
            let mut data = Vec::with_capacity(begun.bytes);
            let mut kept = Vec::with_capacity(begun.pieces.len());
            for (piece, each) in begun.pieces.into_values() {
                data.extend_from_slice(&piece);
                kept.push(each);
            }
            return Step::Whole(Whole { data, kept });
        }
        self.held += begun.cost();
        self.begun.insert(message, begun);
        Step::Unfinished
    }

    /// Forgets messages until all keep the limit; how many.
    pub(crate) fn keep_within_limit(&mut self) -> u64 {
        let mut forgotten = 0;
        while self.held > self.limit() {
            let oldest = self.begun.iter().min_by_key(|(_, begun)| begun.latest);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            self.remove(&name);
            forgotten += 1;
        }
        forgotten
    }

    /// Gives up the messages for which no piece has come for `silence`; returns the values kept for
    /// their pieces.
    pub(crate) fn give_up(&mut self, silence: Duration, now: Instant) -> Vec<Vec<T>> {
        let is_silent = |begun: &Begun<T>| now.saturating_duration_since(begun.latest) >= silence;
        let names: Vec<_> =
            self.begun.iter().filter(|(_, begun)| is_silent(begun)).map(|(name, _)| name.clone()).collect();
        names.iter().filter_map(|name| self.remove(name)).map(Begun::kept).collect()
    }

    /// The values kept for all pieces.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &T> {
        self.begun.values().flat_map(|begun| begun.pieces.values()).map(|(_, kept)| kept)
    }

    fn remove(&mut self, name: &str) -> Option<Begun<T>> {
        let begun = self.begun.remove(name)?;
        self.held -= begun.cost();
        Some(begun)
    }

    fn limit(&self) -> usize {
        self.max_message.saturating_mul(AT_ONCE).max(1 << 20)
    }
}

impl<T> Begun<T> {
    fn cost(&self) -> usize {
        self.bytes + OVERHEAD * (1 + self.pieces.len())
    }

    fn kept(self) -> Vec<T> {
        self.pieces.into_values().map(|(_, kept)| kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(message: &str, number: u32, more: bool) -> Piece {
        Piece { message: message.into(), number, more }
    }

    #[test]
    fn pieces_in_any_order_and_repeated_make_the_message() {
        let now = Instant::now();
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut gathering = Gathering::new(100);
            for (nth, number) in order.into_iter().enumerate() {
                let data = Bytes::from(vec![b'0' + number as u8; 2]);
                let step = gathering.take(piece("a", number, number < 2), data.clone(), number, now);
                if nth < 2 {
                    assert_eq!(step, Step::Unfinished);
                    let again = gathering.take(piece("a", number, number < 2), data, number, now);
                    assert_eq!(again, Step::Unfinished);
                    let other = gathering.take(piece("b", 7, true), Bytes::new(), 7, now);
                    assert_eq!(other, Step::Unfinished);
                } else {
                    let whole = Whole { data: b"001122".to_vec(), kept: vec![0, 1, 2] };
                    assert_eq!(step, Step::Whole(whole));
                }
            }
            assert_eq!(gathering.kept().count(), 1);
            assert_eq!(gathering.give_up(Duration::ZERO, now), [[7]]);
            assert_eq!((gathering.begun.len(), gathering.held), (0, 0));
        }
    }

    #[test]
    fn incomplete_message_is_unfit() {
        let now = Instant::now();
        let mut gathering = Gathering::new(10);
        let mut take =
            |number, more, len| gathering.take(piece("a", number, more), vec![0; len].into(), number, now);
        assert_eq!(take(0, true, 6), Step::Unfinished);
        assert_eq!(take(1, true, 6), Step::Unfit(vec![0, 1]));
        // Behind the last one, and a last one that others follow.
        assert_eq!(take(1, false, 1), Step::Unfinished);
        assert_eq!(take(2, true, 1), Step::Unfit(vec![1, 2]));
        assert_eq!(take(u32::MAX, true, 1), Step::Unfinished);
        assert_eq!(take(3, false, 1), Step::Unfit(vec![3, u32::MAX]));
        assert_eq!(take(3, false, 1), Step::Unfinished);
        assert_eq!(take(3, true, 1), Step::Unfit(vec![3]));
    }

    #[test]
    fn gather_limits_its_memory() {
        let now = Instant::now();
        let mut gathering = Gathering::new(1 << 20);
        let mut forgotten = 0;
        for nth in 0..10_000u32 {
            let later = now + Duration::from_millis(u64::from(nth));
            let step = gathering.take(piece(&nth.to_string(), 1, true), vec![0; 1000].into(), nth, later);
            assert_eq!(step, Step::Unfinished);
            forgotten += gathering.keep_within_limit();
            assert!(gathering.held <= 4 << 20);
        }
        assert!(forgotten > 5000);
        assert!(gathering.kept().all(|nth| *nth > 5000), "the oldest go");
        let held: usize = gathering.begun.values().map(Begun::cost).sum();
        assert_eq!(held, gathering.held);
    }
}
