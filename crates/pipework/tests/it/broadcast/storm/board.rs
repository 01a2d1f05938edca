//! What every number of a run stands for, and the state of every process, in memory that outlives them.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::Run;
use crate::harness::{PROMPT, shared, tolerance};

/// Numbers that the board has space for. Publishers are [slowed down](Board::pace) so that a run makes fewer.
const NUMBERS: usize = 1 << 22;
/// Messages of all publishers in a millisecond.
const MESSAGES_A_MS: u64 = 60;
/// Gaps that the board has space for.
const GAPS: usize = 1 << 12;

/// Events that are counted over all runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Kills,
    Stops,
    Published,
    /// Published in a blob.
    Long,
    /// Published with a blob.
    Attached,
    /// Attempts that found no room.
    NoRoom,
    TimedOut,
    /// Received by one that may lag.
    Received,
    /// Received by one that must see all.
    ReceivedAll,
    /// Received by one that may only read.
    Observed,
    /// Reports of missed messages, and how many those were.
    Lagged,
    Missed,
    /// Times that a process has subscribed.
    Joined,
    /// Received by a child that was forked from a subscriber.
    InChild,
    /// Numbers that were passed over.
    Skipped,
    DeadMembers,
    /// The longest wait, in nanoseconds.
    LongestNs,
}

const COUNTS: [Count; 17] = [
    Count::Kills,
    Count::Stops,
    Count::Published,
    Count::Long,
    Count::Attached,
    Count::NoRoom,
    Count::TimedOut,
    Count::Received,
    Count::ReceivedAll,
    Count::Observed,
    Count::Lagged,
    Count::Missed,
    Count::Joined,
    Count::InChild,
    Count::Skipped,
    Count::DeadMembers,
    Count::LongestNs,
];

/// Shared by all processes of a run. A copy is the same board.
#[derive(Clone, Copy)]
pub(super) struct Board {
    began: Instant,
    counts: &'static [AtomicU64],
    /// Whether publishing has ended, whether all has; the newest number that was published; gaps.
    orders: &'static [AtomicU64],
    /// For every process: when it was last continued; the largest number while it is stopped.
    moving_ns: &'static [AtomicU64],
    /// For every number: the [id](Board::id) of its message, [`NOTHING`], or 0 if nobody knows.
    numbers: &'static [AtomicU64],
    /// Three words for every gap: the numbers around it, and how many of those between were missed.
    gaps: &'static [AtomicU64],
}

/// The number was passed over.
const NOTHING: u64 = u64::MAX;

impl Board {
    pub(super) fn counts() -> &'static [AtomicU64] {
        shared(COUNTS.len())
    }

    pub(super) fn new(counts: &'static [AtomicU64], parties: usize) -> Board {
        let (orders, moving_ns, numbers) = (shared(4), shared(parties), shared(NUMBERS));
        Board { began: Instant::now(), counts, orders, moving_ns, numbers, gaps: shared(3 * GAPS) }
    }

    /// Never 0.
    pub(super) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    pub(super) fn add(&self, count: Count, number: u64) {
        self.counts[count as usize].fetch_add(number, SeqCst);
    }

    pub(super) fn end_publishing(&self) {
        self.orders[0].store(1, SeqCst);
    }

    pub(super) fn publishing_has_ended(&self) -> bool {
        self.orders[0].load(SeqCst) != 0
    }

    pub(super) fn end(&self) {
        self.orders[1].store(1, SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.orders[1].load(SeqCst) != 0
    }

    /// The process is about to be stopped.
    pub(super) fn stands(&self, party: usize) {
        self.moving_ns[party].store(u64::MAX, SeqCst);
    }

    /// The process goes on, or is dead.
    pub(super) fn moves(&self, party: usize) {
        self.moving_ns[party].store(self.now_ns(), SeqCst);
    }

    // ------------------------------------------------------------ numbers

    /// The number stands for this message.
    pub(super) fn is(&self, number: u64, id: u64, what: &str) {
        let Some(place) = self.numbers.get(number as usize) else { return };
        match place.compare_exchange(0, id, SeqCst, SeqCst) {
            Ok(_) => {}
            Err(before) => assert_eq!(before, id, "{what}: number {number} is {before:#x}, not {id:#x}"),
        }
    }

    /// Its publisher has published this message under that number.
    pub(super) fn published(&self, number: u64, id: u64) {
        self.is(number, id, "published");
        self.orders[2].fetch_max(number, SeqCst);
    }

    /// The newest number of which its publisher has told.
    pub(super) fn newest(&self) -> u64 {
        self.orders[2].load(SeqCst)
    }

    /// All numbers between the two were passed over.
    pub(super) fn nothing_between(&self, last: u64, next: u64, what: &dyn Fn() -> String) {
        for number in last + 1..next {
            let Some(place) = self.numbers.get(number as usize) else { return };
            let before = place.compare_exchange(0, NOTHING, SeqCst, SeqCst).unwrap_or_else(|before| before);
            assert!(
                [0, NOTHING].contains(&before),
                "{number} is {before:#x}, and was not received: {}",
                what()
            );
        }
    }

    /// Of the numbers between the two, that many were missed, and the others were passed over.
    pub(super) fn missed_between(&self, last: u64, next: u64, missed: u64, what: &dyn Fn() -> String) {
        let gone = next - last - 1;
        assert!(missed <= gone, "{missed} missed between {last} and {next}: {}", what());
        if missed == 0 {
            self.nothing_between(last, next, what);
        } else if missed < gone {
            self.check_gap(last, next, missed);
            let nth = self.orders[3].fetch_add(1, SeqCst) as usize;
            // Messages may become known later.
            if let Some(gap) = self.gaps.get(3 * nth..3 * nth + 3) {
                gap.iter().zip([last, next, missed]).for_each(|(word, number)| word.store(number, SeqCst));
            }
        }
    }

    fn check_gap(&self, last: u64, next: u64, missed: u64) {
        let known = |number: &u64| {
            let word = self.numbers.get(*number as usize).map_or(0, |word| word.load(SeqCst));
            word != 0 && word != NOTHING
        };
        let were_there = (last + 1..next).filter(known).count() as u64;
        assert!(
            were_there <= missed,
            "{missed} missed between {last} and {next}, of {were_there} that were there"
        );
    }

    // ------------------------------------------------------------ time

    /// Checks a wait that has begun at that time and has ended now. It is not checked if a process was stopped
    /// meanwhile: all the others may have waited for it.
    pub(super) fn waited(&self, since_ns: u64, what: &dyn Fn() -> String) {
        if self.publishing_has_ended() {
            return;
        }
        let moving = self.moving_ns.iter().map(|moving_ns| moving_ns.load(SeqCst)).max().unwrap_or(0);
        let Some(waited_ns) = self.now_ns().checked_sub(since_ns.max(moving)) else { return };
        self.counts[Count::LongestNs as usize].fetch_max(waited_ns, SeqCst);
        let waited = Duration::from_nanos(waited_ns);
        assert!(waited < PROMPT + tolerance(), "waited {waited:?}: {}", what());
    }

    /// How long a publisher should rest, so that the board has space.
    pub(super) fn pace(&self) -> Option<Duration> {
        let due = self.began.elapsed().as_millis() as u64 * MESSAGES_A_MS + 100;
        (self.newest() > due).then_some(Duration::from_micros(200))
    }

    // ------------------------------------------------------------ the end

    /// After a run: no more numbers were passed over than processes were killed, and no report of missed
    /// messages was too low.
    pub(super) fn settle(&self, run: &Run) {
        let newest = (self.newest() as usize).min(NUMBERS - 1);
        let words = || self.numbers[..=newest].iter().map(|word| word.load(SeqCst));
        let passed = words().filter(|word| *word == NOTHING).count();
        assert!(passed <= run.kills, "{passed} numbers were passed over: {run:?}");
        let gaps = (self.orders[3].load(SeqCst) as usize).min(GAPS);
        for gap in self.gaps[..3 * gaps].chunks(3) {
            let [last, next, missed] = [0, 1, 2].map(|nth| gap[nth].load(SeqCst));
            if next > 0 {
                self.check_gap(last, next, missed);
            }
        }
    }

    pub(super) fn report(counts: &[AtomicU64]) -> String {
        let mut report = String::new();
        for count in COUNTS {
            let number = counts[count as usize].load(SeqCst);
            let _ = match count {
                Count::LongestNs => write!(report, "the longest wait {:.0?}", Duration::from_nanos(number)),
                count => write!(report, "{count:?} {number}, "),
            };
        }
        report
    }

    /// The events that never happened.
    pub(super) fn never(counts: &[AtomicU64]) -> Vec<Count> {
        COUNTS.into_iter().filter(|count| counts[*count as usize].load(SeqCst) == 0).collect()
    }
}
