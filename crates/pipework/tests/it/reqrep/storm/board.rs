//! The fate of every call and every process of a run, in memory that outlives them.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::Run;
use super::ends::Name;
use crate::harness::{PROMPT, shared, tolerance};

/// Calls that the board has space for. A run makes hardly a fifth of them.
const CALLS: usize = 1 << 20;
/// The most calls that one process has in progress.
pub(super) const IN_PROGRESS: usize = 8;

/// Events that are counted over all runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Kills,
    Stops,
    Calls,
    Replies,
    PeerDied,
    Failed,
    TimedOut,
    Cancelled,
    NoServer,
    /// A call that was not sent: no slot was free, or its time ran out before.
    NotSent,
    /// Cancelled by a client that left.
    Left,
    /// Sent, and left to the servers.
    Forgotten,
    /// Taken by a server, once for each delivery.
    Taken,
    /// Answered after its client had stopped waiting.
    Unheard,
    /// Answered where the request or the reply went in parts.
    InParts,
    /// Answered with the blob of the request.
    HandedBack,
    /// Answered by its ticket after the server kept it.
    Kept,
    Redelivered,
    DeadMembers,
    /// The longest wait for a process that had died, or for a wake-up that may have died with one,
    /// in nanoseconds.
    LongestNs,
}

const COUNTS: [Count; 20] = [
    Count::Kills,
    Count::Stops,
    Count::Calls,
    Count::Replies,
    Count::PeerDied,
    Count::Failed,
    Count::TimedOut,
    Count::Cancelled,
    Count::NoServer,
    Count::NotSent,
    Count::Left,
    Count::Forgotten,
    Count::Taken,
    Count::Unheard,
    Count::InParts,
    Count::HandedBack,
    Count::Kept,
    Count::Redelivered,
    Count::DeadMembers,
    Count::LongestNs,
];

/// Shared by all processes of a run. A copy is the same board.
#[derive(Clone, Copy)]
pub(super) struct Board {
    began: Instant,
    counts: &'static [AtomicU64],
    /// The counts before this run.
    before: [u64; COUNTS.len()],
    orders: &'static [AtomicU64],
    parties: &'static [AtomicU64],
    calls: &'static [AtomicU64],
}

/// A process, by its number. 0 where no event has happened yet.
pub(super) struct PartyMarks {
    /// When the process was to be killed.
    pub(super) doomed_ns: &'static AtomicU64,
    /// When it was last continued; the largest number while it is stopped.
    pub(super) moving_ns: &'static AtomicU64,
}

/// A call, by its number. 0 where no event has happened yet.
pub(super) struct CallMarks {
    /// Bit n: taken in delivery n. [`ANSWERED`], [`FAILED`], [`FORGOTTEN`].
    pub(super) events: &'static AtomicU64,
    /// The number of the last server that took it, counted from 1.
    pub(super) taker: &'static AtomicU64,
    /// When `send` had returned.
    pub(super) sent_ns: &'static AtomicU64,
    /// When its server was about to let go of it.
    pub(super) done_ns: &'static AtomicU64,
}

/// The server was about to answer.
pub(super) const ANSWERED: u64 = 1 << 8;
/// The server was about to fail it.
pub(super) const FAILED: u64 = 1 << 9;
/// Its client waits for no reply.
pub(super) const FORGOTTEN: u64 = 1 << 10;
/// A server has taken it, in any delivery.
const TAKEN: u64 = ANSWERED - 1;

impl Board {
    pub(super) fn counts() -> &'static [AtomicU64] {
        shared(COUNTS.len())
    }

    pub(super) fn new(counts: &'static [AtomicU64], parties: usize) -> Board {
        let before = COUNTS.map(|count| counts[count as usize].load(SeqCst));
        let (orders, parties, calls) = (shared(3), shared(2 * parties), shared(4 * CALLS));
        Board { began: Instant::now(), counts, before, orders, parties, calls }
    }

    /// Never 0.
    pub(super) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    pub(super) fn add(&self, count: Count, number: u64) {
        self.counts[count as usize].fetch_add(number, SeqCst);
    }

    pub(super) fn end_calls(&self) {
        self.orders[0].store(1, SeqCst);
    }

    pub(super) fn calls_have_ended(&self) -> bool {
        self.orders[0].load(SeqCst) != 0
    }

    pub(super) fn count_dismissed(&self) {
        self.orders[1].fetch_add(1, SeqCst);
    }

    pub(super) fn dismissed(&self) -> u64 {
        self.orders[1].load(SeqCst)
    }

    /// Returns the number of a new call.
    pub(super) fn begin_call(&self) -> u32 {
        self.add(Count::Calls, 1);
        self.orders[2].fetch_add(1, SeqCst) as u32
    }

    /// Whether there is space for more calls: as many as all processes together may start before
    /// they ask again.
    pub(super) fn has_space(&self) -> bool {
        self.orders[2].load(SeqCst) as usize + 16 * IN_PROGRESS < CALLS
    }

    pub(super) fn party(&self, number: usize) -> PartyMarks {
        let [doomed_ns, moving_ns] = self.parties[2 * number..].first_chunk().expect("a party has a number");
        PartyMarks { doomed_ns, moving_ns }
    }

    pub(super) fn call(&self, n: u32) -> CallMarks {
        let marks = self.calls[4 * n as usize..].first_chunk();
        let [events, taker, sent_ns, done_ns] = marks.expect("a call has a number");
        CallMarks { events, taker, sent_ns, done_ns }
    }

    /// Checks a wait against the promise. It could have ended at the last of the times in
    /// `since_ns`, and has ended now. It is not checked if one of the `parties` was stopped
    /// meanwhile.
    pub(super) fn waited(&self, since_ns: &[u64], parties: &[usize], what: &dyn Fn() -> String) {
        let moving = |number: &usize| self.party(*number).moving_ns.load(SeqCst);
        let latest_ns = parties.iter().map(moving).chain(since_ns.iter().copied()).max().unwrap_or(0);
        let Some(waited_ns) = self.now_ns().checked_sub(latest_ns) else { return };
        self.counts[Count::LongestNs as usize].fetch_max(waited_ns, SeqCst);
        let waited = Duration::from_nanos(waited_ns);
        assert!(waited < PROMPT + tolerance(), "waited {waited:?}: {}", what());
    }

    /// After a run: every call that was begun has ended, except those that killed processes had in
    /// progress.
    pub(super) fn settle(&self, run: &Run) {
        let made = |count: Count| self.counts[count as usize].load(SeqCst) - self.before[count as usize];
        use Count::*;
        let ends = [Replies, PeerDied, Failed, TimedOut, Cancelled, NoServer, NotSent, Left, Forgotten];
        let (begun, ended) = (made(Calls), ends.map(made).iter().sum());
        // In addition to each call in progress, each kill may have come between a step and its
        // count.
        let lost = run.kills * (IN_PROGRESS + 2);
        assert!((ended..=ended + lost as u64).contains(&begun), "{begun} begun, {ended} ended, {run:?}");
        // A forgotten request is lost only with its server.
        if run.spares_servers() {
            for n in 0..self.orders[2].load(SeqCst) as u32 {
                let (name, events) = (Name::new(run, n), self.call(n).events.load(SeqCst));
                let is_lost = events & FORGOTTEN != 0 && events & TAKEN == 0;
                assert!(!is_lost, "{name:?} is lost, {run:?}");
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
