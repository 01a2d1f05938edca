//! Messages that come in pieces, put together again. Pure.
//!
//! Pieces may come in any order, and more than once. A publisher may cut a message again, smaller,
//! so pieces may also overlap: each says which bytes of the message it has. Memory has a limit:
//! past it, the message that waited longest for a piece is forgotten.

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
    /// By their offsets and lengths.
    pieces: BTreeMap<(u64, usize), (Bytes, T)>,
    /// The length of the message, once its last piece has come.
    total: Option<u64>,
    /// All bytes before this one have come.
    covered: u64,
    /// The bytes of all pieces.
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
        let Piece { message, offset, more } = piece;
        let mut begun = match self.begun.remove(&message) {
            Some(begun) => {
                self.held -= begun.cost();
                begun
            }
            None => Begun { pieces: BTreeMap::new(), total: None, covered: 0, bytes: 0, latest: now },
        };
        begun.latest = now;
        let len = data.len();
        begun.bytes += len;
        if begun.pieces.insert((offset, len), (data, kept)).is_some() {
            begun.bytes -= len;
        }
        let end = offset.checked_add(len as u64);
        let is_fit = end.is_some_and(|end| end <= self.max_message as u64 && begun.extend(offset, end, more));
        if !is_fit || begun.cost() > self.limit() {
            return Step::Unfit(begun.kept());
        }
        if begun.total == Some(begun.covered) {
            return Step::Whole(begun.whole());
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

    /// Notes that the bytes from `offset` to `end` have come; false if that contradicts others.
    fn extend(&mut self, offset: u64, end: u64, more: bool) -> bool {
        let last = self.pieces.keys().next_back().map_or(0, |&(offset, _)| offset);
        let total = if more { self.total } else { Some(*self.total.get_or_insert(end)) };
        let is_beyond = match total {
            // Behind a piece with `more` there are others, and none begins at the end or behind it.
            Some(total) => end > total || (more && end == total) || (!more && end != total) || last > total,
            None => false,
        };
        if is_beyond {
            return false;
        }
        if offset <= self.covered && end > self.covered {
            let mut from = self.covered;
            self.covered = end;
            // Pieces that came early.
            while let reach = self.reach(from)
                && reach > self.covered
            {
                (from, self.covered) = (self.covered, reach);
            }
        }
        true
    }

    /// The end of the bytes that have come, of pieces that begin at `from` or later, without a gap.
    fn reach(&self, from: u64) -> u64 {
        let reached = self.pieces.range((from, 0)..=(self.covered, usize::MAX));
        reached.map(|(&(offset, len), _)| offset + len as u64).max().unwrap_or(0)
    }

    /// The message, all of which has come.
    fn whole(self) -> Whole<T> {
        let mut data = Vec::with_capacity(self.covered as usize);
        let mut kept = Vec::with_capacity(self.pieces.len());
        for ((offset, _), (piece, each)) in self.pieces {
            let known = data.len() as u64 - offset;
            data.extend_from_slice(piece.get(known as usize..).unwrap_or_default());
            kept.push(each);
        }
        Whole { data, kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(message: &str, offset: u64, more: bool) -> Piece {
        Piece { message: message.into(), offset, more }
    }

    #[test]
    fn pieces_in_any_order_and_repeated_make_the_message() {
        let now = Instant::now();
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut gathering = Gathering::new(100);
            for (nth, number) in order.into_iter().enumerate() {
                let data = Bytes::from(vec![b'0' + number as u8; 2]);
                let take = |gathering: &mut Gathering<u64>| {
                    gathering.take(piece("a", 2 * number, number < 2), data.clone(), number, now)
                };
                let step = take(&mut gathering);
                if nth < 2 {
                    assert_eq!(step, Step::Unfinished);
                    assert_eq!(take(&mut gathering), Step::Unfinished);
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

    /// A publisher has cut the message once for each size, and some pieces of each are there, until
    /// all of the last one are.
    #[test]
    fn pieces_that_were_cut_differently_make_the_message() {
        use std::hash::{BuildHasher, RandomState};
        let (now, text) = (Instant::now(), b"0123456789abcdefghijklmnopqrstuvwxyz");
        for _ in 0..1000 {
            let seed = RandomState::new();
            let mut pieces: Vec<(usize, usize)> = Vec::new();
            for size in [16, 7, 12, 5] {
                let cuts = (0..text.len()).step_by(size).map(|at| (at, text.len().min(at + size)));
                pieces.extend(cuts.filter(|cut| size == 5 || seed.hash_one((size, cut)) % 2 == 0));
            }
            pieces.sort_by_key(|cut| seed.hash_one(cut));
            let mut gathering = Gathering::new(100);
            let mut covered = [false; 36];
            for (nth, &(from, to)) in pieces.iter().enumerate() {
                covered[from..to].fill(true);
                let (data, more) = (Bytes::from_static(&text[from..to]), to < text.len());
                match gathering.take(piece("a", from as u64, more), data, nth, now) {
                    Step::Whole(whole) => {
                        assert!(covered.iter().all(|is_there| *is_there));
                        assert_eq!(whole.data, text);
                        assert!(whole.kept.len() <= nth + 1);
                        break;
                    }
                    step => {
                        assert_eq!(step, Step::Unfinished, "{pieces:?}");
                        assert!(covered.iter().any(|is_there| !is_there), "{pieces:?}");
                    }
                }
            }
            assert_eq!((gathering.begun.len(), gathering.held), (0, 0), "{pieces:?}");
        }
    }

    #[test]
    fn incomplete_message_is_unfit() {
        let now = Instant::now();
        let mut gathering = Gathering::new(10);
        let mut take =
            |offset, more, len| gathering.take(piece("a", offset, more), vec![0; len].into(), offset, now);
        assert_eq!(take(0, true, 6), Step::Unfinished);
        assert_eq!(take(6, true, 6), Step::Unfit(vec![0, 6]));
        // Behind the last one, and a last one that others follow.
        assert_eq!(take(3, false, 1), Step::Unfinished);
        assert_eq!(take(4, true, 1), Step::Unfit(vec![3, 4]));
        assert_eq!(take(8, true, 1), Step::Unfinished);
        assert_eq!(take(3, false, 1), Step::Unfit(vec![3, 8]));
        assert_eq!(take(3, false, 1), Step::Unfinished);
        assert_eq!(take(3, true, 1), Step::Unfit(vec![3]));
        // Two ends, and a place that no message has.
        assert_eq!(take(3, false, 1), Step::Unfinished);
        assert_eq!(take(2, false, 1), Step::Unfit(vec![2, 3]));
        assert_eq!(take(u64::MAX, true, 1), Step::Unfit(vec![u64::MAX]));
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
