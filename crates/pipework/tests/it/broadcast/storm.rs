//! The promises of the module under SIGKILL and SIGSTOP: eight processes publish and subscribe, some of them
//! are killed or stopped wherever they are, and the promises must allow everything that the others receive.
//!
//! A message is a function of the run's seed, its publisher and a count. So every process knows every byte
//! that it receives. What each number stands for is recorded on a [`Board`] in memory that outlives all
//! processes, by the first that knows it: its publisher, or any subscriber. All others must agree. A
//! subscriber that must see all and gets a message behind a number that it has not got records that the
//! number stands for nothing, so that nobody may have published or received it.
//!
//! PIPEWORK_KILLS=1000000 for a release; PIPEWORK_SEED repeats a run's choices (but not the moments
//! of its kills).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use pipework::broadcast::{Options, Publisher, Segment, Subscriber};

use crate::harness::{
    Child, Doomed, Folder, PATIENCE, Random, alone_for, blob_files, blob_folder, fork, left_to_test_all, say,
    seed, setting,
};
use board::{Board, Count};

mod board;
mod publishing;
mod subscribing;

/// Processes that live at the same time.
const PARTIES: usize = 8;
/// Kills of one run.
const KILLS_A_RUN: usize = 600;
/// A process has up to three handles, its child as many, and killed processes may hold their places for a
/// moment.
const MEMBERS: u32 = 8 * PARTIES as u32;

#[test]
fn storm_of_kills_and_stops_breaks_no_promise() {
    if left_to_test_all("5,000 kills") {
        return;
    }
    let kills = setting("PIPEWORK_KILLS").unwrap_or(5_000) as usize;
    alone_for(PATIENCE * 3 + Duration::from_millis(60) * kills as u32, || {
        let (seed, counts) = (seed(), Board::counts());
        say(&format!("broadcast storm: PIPEWORK_SEED={seed} PIPEWORK_KILLS={kills}"));
        let rounds = kills.div_ceil(KILLS_A_RUN);
        for round in 0..rounds {
            let kills = KILLS_A_RUN.min(kills - round * KILLS_A_RUN);
            // Each run in its own process, whose exit frees the board.
            fork(|| Run::new(seed, round, kills).hold(Board::new(counts, PARTIES + kills))).join();
        }
        say(&format!("broadcast storm: {rounds} runs, {}", Board::report(counts)));
        let never = Board::never(counts);
        assert!(
            never.is_empty() || kills < 5_000,
            "these events never happened, so they were not tested: {never:?}"
        );
    });
}

// ---------------------------------------------------------------- a run

/// One channel and everything that happens to it.
#[derive(Debug)]
struct Run {
    seed: u64,
    kills: usize,
    /// How many of the [`PARTIES`] are publishers; the others are subscribers.
    publishers: usize,
    prey: Prey,
    messages: u32,
    /// Bytes of a cell.
    message_bytes: usize,
    /// Bytes of the longest message.
    max_bytes: usize,
    /// Bytes of the long messages that a publisher keeps in the ring.
    keep_bytes: u64,
    spins: bool,
    /// Bytes that each process keeps for later blobs.
    blob_pool: u64,
    /// Whether the channel has a name, by which some processes open it, some of them only to read.
    named: bool,
    /// The longest pause between two kills or stops, in microseconds.
    pace_us: usize,
}

/// Which processes are killed.
#[derive(Clone, Copy, Debug)]
enum Prey {
    All,
    Publishers,
    Subscribers,
}

/// A running process, and the time to continue it if it is stopped.
struct Party {
    child: Child,
    number: usize,
    stopped_until_ns: Option<u64>,
}

impl Run {
    /// Each choice has its own period, so that all combinations occur in time.
    fn new(seed: u64, round: usize, kills: usize) -> Run {
        Run {
            seed: Random::new(seed ^ round as u64).next(),
            kills,
            publishers: [3, 1, 2, 5][round % 4],
            prey: [Prey::All, Prey::Publishers, Prey::Subscribers][round % 3],
            messages: [4, 64, 2, 1024, 8][round % 5],
            message_bytes: [64, 8, 1000][round / 2 % 3],
            max_bytes: [3_000, 50_000, 64][round / 3 % 3],
            keep_bytes: [1 << 28, 10_000][round / 2 % 2],
            spins: round.is_multiple_of(2),
            blob_pool: [1 << 20, 0][round / 3 % 2],
            named: round % 3 != 1,
            pace_us: [1500, 5000, 600][round / 4 % 3],
        }
    }

    fn options(&self) -> Options {
        let options = Options::new().messages(self.messages).members(MEMBERS).observers(self.named);
        let options = options.message_bytes(self.message_bytes as u32).blobs(2).blob_pool(self.blob_pool);
        if self.spins { options } else { options.spin(Duration::ZERO) }
    }

    fn hold(&self, board: Board) {
        let folder = Folder::new();
        let path = self.named.then(|| folder.join("channel"));
        let options = self.options();
        let segment = path.as_ref().map_or_else(|| options.anonymous(), |path| options.create(path));
        let hall = Hall { run: self, board, segment: segment.expect("a segment"), path };
        hall.kill_and_stop();
        hall.settle();
        let blobs = blob_folder(&hall.segment);
        drop(hall);
        let left = fs::read_dir(blobs).map_or(0, Iterator::count);
        assert_eq!(left, 0, "blobs left at the end: {self:?}");
    }
}

/// The state that all processes of a run share.
struct Hall<'a> {
    run: &'a Run,
    board: Board,
    segment: Segment,
    path: Option<PathBuf>,
}

/// Handles that some parties inherit. Each takes its own copy.
struct Inherited {
    publisher: Publisher,
    /// It may lag, because the process that it belongs to never receives.
    subscriber: RefCell<Option<Subscriber>>,
}

impl Hall<'_> {
    /// Keeps all parties running, kills some, stops some, and finally lets the survivors finish.
    fn kill_and_stop(&self) {
        let mut random = Random::new(self.run.seed);
        let inherited = Inherited {
            publisher: publishing::attach(&self.segment, self.run),
            subscriber: RefCell::new(Some(self.segment.subscriber().expect("a place"))),
        };
        let mut parties: Vec<Party> = Vec::new();
        let start = |number: usize, place: usize| Party {
            child: fork(|| self.take_part(number, place, &inherited)),
            number,
            stopped_until_ns: None,
        };
        (0..PARTIES).for_each(|place| parties.push(start(place, place)));
        let (mut dying, mut kills) = (VecDeque::new(), 0);
        while kills < self.run.kills {
            sleep(Duration::from_micros(random.below(self.run.pace_us) as u64));
            let now_ns = self.board.now_ns();
            let due = |party: &&mut Party| party.stopped_until_ns.is_some_and(|until_ns| until_ns <= now_ns);
            parties.iter_mut().filter(due).for_each(|party| self.resume(party));
            let place = match self.run.prey {
                Prey::All => random.below(PARTIES),
                Prey::Publishers => random.below(self.run.publishers),
                Prey::Subscribers => self.run.publishers + random.below(PARTIES - self.run.publishers),
            };
            let party = &mut parties[place];
            match random.below(100) {
                // Longer than any slice.
                0 => self.stop(party, now_ns + 400_000_000),
                1..20 => self.stop(party, now_ns + random.below(5_000_000) as u64),
                _ => {
                    let number = PARTIES + kills;
                    // A stopped party is gone; its successor moves.
                    let dead = std::mem::replace(party, start(number, place));
                    dying.push_back(dead.child.doom());
                    self.board.moves(dead.number);
                    kills += 1;
                }
            }
            if dying.len() > PARTIES / 2 {
                dying.drain(..1).for_each(Doomed::bury);
            }
        }
        dying.into_iter().for_each(Doomed::bury);
        self.board.add(Count::Kills, kills as u64);
        parties.iter_mut().for_each(|party| self.resume(party));
        self.board.end_publishing();
        let subscribers = parties.split_off(self.run.publishers);
        parties.into_iter().for_each(|party| party.child.join());
        self.board.end();
        subscribers.into_iter().for_each(|party| party.child.join());
    }

    fn stop(&self, party: &mut Party, until_ns: u64) {
        if party.stopped_until_ns.is_none() {
            // From here on, waits are not measured.
            self.board.stands(party.number);
            party.child.stop();
            self.board.add(Count::Stops, 1);
        }
        party.stopped_until_ns = Some(until_ns);
    }

    fn resume(&self, party: &mut Party) {
        if party.stopped_until_ns.take().is_some() {
            party.child.resume();
            self.board.moves(party.number);
        }
    }

    /// The life of one process.
    fn take_part(&self, number: usize, place: usize, inherited: &Inherited) {
        // A lower priority than the killer's, which must get its turn among many busy processes.
        rustix::process::nice(5).expect("a process may lower its own priority");
        let is_publisher = place < self.run.publishers;
        let segment = match &self.path {
            Some(path) if number % 3 == 1 => {
                let options = Options::new().blob_pool(self.run.blob_pool);
                options.read_only(!is_publisher && number % 2 == 1).open(path).expect("a segment")
            }
            _ => self.segment.clone(),
        };
        let inherits = number.is_multiple_of(3);
        if is_publisher {
            publishing::publish(self, number, &segment, inherits.then(|| inherited.publisher.clone()));
        } else {
            let subscriber = inherited.subscriber.borrow_mut().take().filter(|_| inherits);
            subscribing::subscribe(self, number, &segment, subscriber);
        }
    }

    /// The deaths of processes that were not members at the time were not noticed, but each member
    /// that joins sweeps for a while. After that, only the ring names blobs.
    fn sweep_blobs(&self) {
        let has_garbage = || self.segment.blob_audit().named < blob_files(&self.segment).len();
        for _ in (0..100).take_while(|_| has_garbage()) {
            drop(publishing::attach(&self.segment, self.run));
        }
        assert!(!has_garbage(), "{:?}: {:?}", blob_files(&self.segment), self.run);
    }

    /// Checks that nothing is missing when all processes have ended.
    fn settle(&self) {
        self.segment.recover().expect("recovery works");
        self.sweep_blobs();
        let audit = self.segment.audit().expect("the audit works");
        assert_eq!((audit.writing, audit.orphaned), (0, 0), "{audit:?}: {:?}", self.run);
        assert_eq!(self.segment.members(), Ok(vec![]), "{:?}", self.run);
        assert_eq!(self.segment.recover(), Ok(0), "a second time");
        self.board.settle(self.run);
        let stats = self.segment.stats();
        assert!(stats.skipped <= stats.dead_members, "{stats:?}: {:?}", self.run);
        self.board.add(Count::DeadMembers, stats.dead_members);
        self.board.add(Count::Skipped, stats.skipped);
        // The ring works, and frees what it had.
        let publisher = publishing::attach(&self.segment, self.run);
        let mut subscriber = self.segment.subscriber().expect("a place");
        for _ in 0..self.run.messages {
            publisher.try_publish("").expect("no error").expect("there is room");
        }
        for _ in 0..self.run.messages {
            assert!(subscriber.try_recv().expect("no error").is_some_and(|received| received.is_empty()));
        }
        drop((publisher, subscriber));
        assert_eq!(blob_files(&self.segment).len(), 0, "{:?}", self.run);
    }
}
