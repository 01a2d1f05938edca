//! Which messages have come, by their names: a stream that keeps one twice gives the second copy a
//! number of its own. Pure.
//!
//! `publish` names a message by its journal and the place where it ends, and says behind which one
//! it came. So the messages of a journal that have come are a few spans of places: exact in any
//! order, and however long ago. Of other names a stream promises only that each stands for one
//! message within its duplicate window; so it is here, for the names that came last.

use crate::envelope::Piece;
use crate::journal::Place;
use crate::message::text;
use async_nats::HeaderMap;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The name that a stream knows a message, or a piece of one, by.
pub(crate) const ID: &str = "Nats-Msg-Id";
/// The place that the message before it has.
pub(crate) const AFTER: &str = "Pipework-After";

/// Spans that are remembered, of all journals together.
const SPANS: usize = 1 << 16;
/// Other names that are remembered.
const OTHERS: usize = 1 << 16;

/// A message's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// All that lies in a journal's stream behind `after`, up to `place`.
    Span { journal: u64, after: Place, place: Place },
    /// The digest of any other name.
    Other(u128),
}

impl Name {
    /// The name in the headers of a message, or of a piece of one.
    pub(crate) fn read(headers: Option<&HeaderMap>, piece: Option<&Piece>) -> Option<Name> {
        let headers = headers?;
        let id = text(headers, ID)?;
        let name = piece.map_or(id, |piece| &piece.message);
        let span = || {
            let (journal, place) = name.split_once('.')?;
            let is_name =
                journal.len() == 16 && journal.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            let journal = u64::from_str_radix(journal, 16).ok().filter(|_| is_name)?;
            let (after, place) = (Place::read(text(headers, AFTER)?)?, Place::read(place)?);
            (after < place).then_some(Name::Span { journal, after, place })
        };
        Some(span().unwrap_or_else(|| Name::Other(digest(name.as_bytes()))))
    }
}

/// FNV-1a, of 128 bits.
pub(crate) fn digest(bytes: &[u8]) -> u128 {
    let basis = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes
        .iter()
        .fold(basis, |digest: u128, byte| (digest ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b))
}

/// The names that have come.
#[derive(Debug)]
pub(crate) struct Names {
    journals: HashMap<u64, Journal>,
    spans: usize,
    /// The journals by the turn in which each was last heard of; the next turn.
    turns: BTreeMap<u64, u64>,
    turn: u64,
    /// Other names, with the time at which the stream took each, and in which order they came.
    others: HashMap<u128, u64>,
    order: VecDeque<u128>,
    /// The stream's duplicate window, in nanoseconds.
    window: u64,
}

/// The messages of a journal's stream that have come: by its last place, behind which place each
/// span begins. The spans do not touch each other.
#[derive(Debug, Default)]
struct Journal {
    spans: BTreeMap<Place, Place>,
    turn: u64,
}

impl Names {
    pub(crate) fn new(window: u64) -> Names {
        Names {
            journals: HashMap::new(),
            spans: 0,
            turns: BTreeMap::new(),
            turn: 0,
            others: HashMap::new(),
            order: VecDeque::new(),
            window,
        }
    }

    /// Whether a message has come that the stream took at `time`, in nanoseconds.
    pub(crate) fn has(&self, name: &Name, time: u64) -> bool {
        match name {
            Name::Span { journal, after, place } => self.journals.get(journal).is_some_and(|journal| {
                journal.spans.range(place..).next().is_some_and(|(_, behind)| behind <= after)
            }),
            Name::Other(digest) => {
                self.others.get(digest).is_some_and(|then| then.abs_diff(time) <= self.window)
            }
        }
    }

    /// It has come.
    pub(crate) fn add(&mut self, name: &Name, time: u64) {
        match *name {
            Name::Span { journal: name, after, place } => {
                let journal = self.journals.entry(name).or_default();
                self.spans -= journal.spans.len();
                journal.add(after, place);
                self.spans += journal.spans.len();
                self.turns.remove(&journal.turn);
                self.turn += 1;
                journal.turn = self.turn;
                self.turns.insert(self.turn, name);
                self.keep_within_limit();
            }
            Name::Other(digest) => {
                if self.others.insert(digest, time).is_none() {
                    self.order.push_back(digest);
                }
                if self.order.len() > OTHERS {
                    let oldest = self.order.pop_front();
                    oldest.map(|digest| self.others.remove(&digest));
                }
            }
        }
    }

    /// Forgets the oldest names of the journals that were quiet for longest.
    fn keep_within_limit(&mut self) {
        while self.spans > SPANS {
            let Some(quiet) = self.turns.first_entry() else { return };
            let name = *quiet.get();
            let Some(journal) = self.journals.get_mut(&name) else { return };
            journal.spans.pop_first();
            self.spans -= 1;
            if journal.spans.is_empty() {
                quiet.remove();
                self.journals.remove(&name);
            }
        }
    }

    /// All of them, so that adding them in this order makes the same names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Name, u64)> {
        let spans = self.turns.values().flat_map(|&journal| {
            let spans = self.journals[&journal].spans.iter();
            spans.map(move |(&place, &after)| (Name::Span { journal, after, place }, 0))
        });
        spans.chain(self.order.iter().map(|digest| (Name::Other(*digest), self.others[digest])))
    }

    pub(crate) fn len(&self) -> usize {
        self.spans + self.order.len()
    }
}

impl Journal {
    fn add(&mut self, after: Place, place: Place) {
        let (mut after, mut place) = (after, place);
        // Those that touch it become one with it.
        while let Some((&last, &behind)) = self.spans.range(after..).next() {
            if behind > place {
                break;
            }
            self.spans.remove(&last);
            (after, place) = (after.min(behind), place.max(last));
        }
        self.spans.insert(place, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn span(journal: u64, after: u64, end: u64) -> Name {
        let place = |end| Place { end, nth: 0 };
        Name::Span { journal, after: place(after), place: place(end) }
    }

    #[test]
    fn names_match_the_vectors() {
        let all: Value = serde_json::from_str(include_str!("../../../vectors/nats/messages.json")).unwrap();
        for vector in all["names"].as_array().unwrap() {
            let mut headers = HeaderMap::new();
            for (name, value) in vector["headers"].as_object().unwrap() {
                headers.insert(name.as_str(), value.as_str().unwrap());
            }
            let piece = crate::envelope::Envelope::read(Some(&headers)).unwrap().piece;
            let read = Name::read(Some(&headers), piece.as_ref());
            let place = |which: &str| {
                let place = &vector[which];
                Place { end: place[0].as_u64().unwrap(), nth: place[1].as_u64().unwrap() }
            };
            let expected = match (vector["journal"].as_str(), vector["other"].as_str()) {
                (Some(journal), None) => Some(Name::Span {
                    journal: u64::from_str_radix(journal, 16).unwrap(),
                    after: place("after"),
                    place: place("place"),
                }),
                (None, Some(other)) => Some(Name::Other(digest(other.as_bytes()))),
                _ => None,
            };
            assert_eq!(read, expected, "{}", vector["about"]);
        }
        assert_eq!(Name::read(None, None), None);
    }

    #[test]
    fn digest_is_fnv_1a() {
        assert_eq!(digest(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(digest(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(digest(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    /// A name is known once it has come, in any order, and never before.
    #[test]
    fn name_of_a_journal_is_known_after_it_came() {
        let mut names = Names::new(0);
        // 37 and 100 have no divisor in common, so this is each of 0 to 99.
        let order = (0..100).map(|nth| nth * 37 % 100);
        for (nth, number) in order.clone().enumerate() {
            let name = span(1, 10 * number, 10 * number + 10);
            assert!(!names.has(&name, 0), "{number}");
            names.add(&name, 0);
            for (other_nth, other) in order.clone().enumerate() {
                assert_eq!(names.has(&span(1, 10 * other, 10 * other + 10), 0), other_nth <= nth);
            }
            assert!(!names.has(&span(2, 10 * number, 10 * number + 10), 0), "another journal");
        }
        assert_eq!(names.len(), 1, "all are one span");
        assert!(names.has(&span(1, 500, 1000), 0) && !names.has(&span(1, 990, 1001), 0));
        // Lines that end at one place.
        let line = |nth| Name::Span {
            journal: 1,
            after: Place { end: 1000, nth },
            place: Place { end: 1000, nth: nth + 1 },
        };
        names.add(&line(1), 0);
        assert!(names.has(&line(1), 0) && !names.has(&line(0), 0) && !names.has(&line(2), 0));
    }

    #[test]
    fn overlapping_name_is_not_known() {
        let mut names = Names::new(0);
        names.add(&span(1, 10, 20), 0);
        names.add(&span(1, 30, 40), 0);
        for (after, end) in [(5, 15), (15, 25), (5, 25), (15, 35), (20, 30), (9, 20), (0, 50)] {
            assert!(!names.has(&span(1, after, end), 0), "{after} {end}");
        }
        assert!(names.has(&span(1, 12, 18), 0));
        names.add(&span(1, 15, 35), 0);
        assert!(names.has(&span(1, 10, 40), 0));
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn other_names_are_known_for_the_duplicate_window() {
        let mut names = Names::new(100);
        let name = |number: u64| Name::Other(u128::from(number));
        names.add(&name(0), 1000);
        assert!(names.has(&name(0), 1100) && names.has(&name(0), 900));
        assert!(!names.has(&name(0), 1101) && !names.has(&name(1), 1000));
        names.add(&name(0), 2000);
        assert!(names.has(&name(0), 2050));
        for number in 1..=OTHERS as u64 {
            names.add(&name(number), 2000);
        }
        assert!(!names.has(&name(0), 2000) && names.has(&name(1), 2000));
        assert_eq!(names.len(), OTHERS);
    }

    #[test]
    fn names_limit_their_memory_and_keep_active_journals() {
        let mut names = Names::new(0);
        for nth in 0..=SPANS as u64 {
            names.add(&span(1, 10 * nth, 10 * nth + 10), 0);
            names.add(&span(2, 100 * (nth / 4), 100 * (nth / 4) + 10), 0);
            names.add(&span(3 + nth, 0, 10), 0);
        }
        assert_eq!(names.len(), SPANS);
        assert!(names.has(&span(1, 0, 10 * SPANS as u64), 0));
        assert!((0..SPANS as u64 / 4).all(|nth| names.has(&span(2, 100 * nth, 100 * nth + 10), 0)));
        assert!(!names.has(&span(3, 0, 10), 0));
        let mut same = Names::new(0);
        names.iter().for_each(|(name, time)| same.add(&name, time));
        assert!(names.iter().eq(same.iter()));
    }
}
