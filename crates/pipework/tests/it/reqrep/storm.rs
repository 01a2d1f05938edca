//! Promises P2 to P6 and P13 under SIGKILL and SIGSTOP: eight processes call and serve, some of
//! them are killed or stopped wherever they are, and the promises must allow every reply, every
//! error and every wait of the others.
//!
//! A request is a function of the run's seed, its caller and the number of the call, and its reply
//! is a function of the request. So both sides know every byte and the call that it belongs to.
//! Some requests carry a blob, which some replies hand back. The fate of each call is recorded on a
//! [`Board`] in memory that outlives all processes.
//!
//! PIPEWORK_KILLS=1000000 for a release; PIPEWORK_SEED repeats a run's choices (but not the moments
//! of its kills).

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;

use pipework::reqrep::{Audit, Options, Segment};

use crate::harness::{
    Child, Doomed, Folder, PATIENCE, Random, alone_for, blob_files, blob_folder, fork, left_to_test_all, say,
    seed, setting,
};
use board::{Board, Count};
use ends::{Asking, Serving};

mod board;
mod calling;
mod ends;
mod serving;

/// Processes that live at the same time.
const PARTIES: usize = 8;
/// Kills of one run.
const KILLS_A_RUN: usize = 600;
/// A process has up to three handles, and killed processes may hold their places for a moment.
const MEMBERS: u32 = 4 * PARTIES as u32;

#[test]
fn storm_of_kills_and_stops_breaks_no_promise() {
    if left_to_test_all("10,000 kills") {
        return;
    }
    let kills = setting("PIPEWORK_KILLS").unwrap_or(10_000) as usize;
    alone_for(PATIENCE * 3 + Duration::from_millis(60) * kills as u32, || {
        let (seed, counts) = (seed(), Board::counts());
        say(&format!("reqrep storm: PIPEWORK_SEED={seed} PIPEWORK_KILLS={kills}"));
        let rounds = kills.div_ceil(KILLS_A_RUN);
        for round in 0..rounds {
            let kills = KILLS_A_RUN.min(kills - round * KILLS_A_RUN);
            // Each run in its own process, whose exit frees the board.
            fork(|| Run::new(seed, round, kills).hold(Board::new(counts, PARTIES + kills))).join();
        }
        say(&format!("reqrep storm: {rounds} runs, {}", Board::report(counts)));
        let never = Board::never(counts);
        assert!(
            never.is_empty() || kills < 10_000,
            "these events never happened, so they were not tested: {never:?}"
        );
    });
}

// ---------------------------------------------------------------- a run

/// One segment and everything that happens to it.
#[derive(Debug)]
struct Run {
    seed: u64,
    kills: usize,
    /// How many of the [`PARTIES`] are servers; the others are clients.
    servers: usize,
    prey: Prey,
    slots: u32,
    /// Bytes of the largest request and reply.
    max_bytes: usize,
    /// Bytes of a part.
    part_bytes: usize,
    redeliveries: u8,
    needs_server: bool,
    spins: bool,
    /// Bytes that each process keeps for later blobs.
    blob_pool: u64,
    /// Whether the segment has a name, by which some processes open it.
    named: bool,
    /// The longest pause between two kills or stops, in microseconds.
    pace_us: usize,
}

/// Which processes are killed.
#[derive(Clone, Copy, Debug)]
enum Prey {
    All,
    Servers,
    Clients,
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
        let named = round % 4 == 3;
        // Payloads of eight bytes leave no space for parts.
        let max_bytes = if round % 4 == 1 { 8 } else { [100, 50_000, 1000][round / 4 % 3] };
        let part_bytes = [max_bytes, 8 + max_bytes / 8][round / 2 % 2];
        Run {
            seed: Random::new(seed ^ round as u64).next(),
            kills,
            servers: [4, 2, 1, 6, 3][round % 5],
            prey: [Prey::All, Prey::Servers, Prey::Clients][round % 3],
            slots: [4, 1, 64, 2][round / 2 % 4],
            max_bytes,
            part_bytes,
            redeliveries: [0, 3, 0, 1][round / 3 % 4],
            needs_server: round % 7 == 5,
            spins: round.is_multiple_of(2),
            blob_pool: [1 << 20, 0][round / 3 % 2],
            named,
            pace_us: [1500, 5000, 600][round / 5 % 3],
        }
    }

    fn options(&self) -> Options {
        let bytes = self.part_bytes as u32;
        let options =
            Options::new().slots(self.slots).members(MEMBERS).request_bytes(bytes).reply_bytes(bytes);
        let options = options.blob_pool(self.blob_pool);
        if self.spins { options } else { options.spin(Duration::ZERO) }
    }

    /// Whether no server is killed.
    fn spares_servers(&self) -> bool {
        matches!(self.prey, Prey::Clients)
    }

    fn hold(&self, board: Board) {
        let folder = Folder::new();
        let path = self.named.then(|| folder.join("segment"));
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

impl Hall<'_> {
    /// Keeps all parties running, kills some, stops some, and finally lets the survivors finish.
    fn kill_and_stop(&self) {
        let mut random = Random::new(self.run.seed);
        // Some parties use inherited handles. A run that needs a server gets none: the inherited
        // server would count as one without serving.
        let inherited = (!self.run.needs_server)
            .then(|| (Asking::attach(&self.segment, self.run), Serving::attach(&self.segment)));
        let mut parties: Vec<Party> = Vec::new();
        let start = |number: usize, place: usize| Party {
            child: fork(|| self.take_part(number, place, inherited.as_ref())),
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
                Prey::Servers => random.below(self.run.servers),
                Prey::Clients => self.run.servers + random.below(PARTIES - self.run.servers),
            };
            let party = &mut parties[place];
            match random.below(100) {
                // Longer than any slice.
                0 => self.stop(party, now_ns + 400_000_000),
                1..20 => self.stop(party, now_ns + random.below(5_000_000) as u64),
                _ => {
                    let number = PARTIES + kills;
                    self.board.party(party.number).doomed_ns.store(self.board.now_ns(), SeqCst);
                    dying.push_back(std::mem::replace(party, start(number, place)).child.doom());
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
        self.board.end_calls();
        let clients = parties.split_off(self.run.servers);
        clients.into_iter().for_each(|party| party.child.join());
        self.dismiss(parties);
    }

    fn stop(&self, party: &mut Party, until_ns: u64) {
        if party.stopped_until_ns.is_none() {
            // From here on, waits that involve this party are not measured.
            self.board.party(party.number).moving_ns.store(u64::MAX, SeqCst);
            party.child.stop();
            self.board.add(Count::Stops, 1);
        }
        party.stopped_until_ns = Some(until_ns);
    }

    fn resume(&self, party: &mut Party) {
        if party.stopped_until_ns.take().is_some() {
            party.child.resume();
            self.board.party(party.number).moving_ns.store(self.board.now_ns(), SeqCst);
        }
    }

    /// Dismisses every server.
    fn dismiss(&self, servers: Vec<Party>) {
        let client = Asking::attach(&self.segment, self.run);
        while self.board.dismissed() < servers.len() as u64 {
            // A dismissal that no server takes was one too many.
            client.dismiss(Duration::from_millis(20));
        }
        servers.into_iter().for_each(|party| party.child.join());
    }

    /// The life of one process.
    fn take_part(&self, number: usize, place: usize, inherited: Option<&(Asking, Serving)>) {
        // A lower priority than the killer's, which must get its turn among many busy processes.
        rustix::process::nice(5).expect("a process may lower its own priority");
        let segment = match &self.path {
            Some(path) if number % 3 == 1 => {
                Options::new().blob_pool(self.run.blob_pool).open(path).expect("a segment")
            }
            _ => self.segment.clone(),
        };
        let inherited = inherited.filter(|_| number.is_multiple_of(3));
        if place < self.run.servers {
            serving::serve(self, number, &segment, inherited.map(|(_, server)| server.clone()));
        } else {
            calling::call(self, number, &segment, inherited.map(|(client, _)| client.clone()));
        }
    }

    /// The deaths of processes that were not members at the time were not noticed, but each member
    /// that joins sweeps for a while. After that, only slots hold blobs.
    fn sweep_blobs(&self) {
        let named = self.segment.audit().expect("the audit works").waiting;
        let has_garbage = || blob_files(&self.segment).len() > named;
        for _ in (0..100).take_while(|_| has_garbage()) {
            drop(Serving::attach(&self.segment));
        }
        assert!(!has_garbage(), "{:?}: {:?}", blob_files(&self.segment), self.run);
    }

    /// Checks that nothing is missing when all processes have ended.
    fn settle(&self) {
        self.segment.recover().expect("recovery works");
        self.sweep_blobs();
        // Forgotten requests that were queued for another server when the last one had gone.
        let server = Serving::attach(&self.segment);
        while let Some(forgotten) = server.try_recv().expect("no error") {
            let name = forgotten.name(self.run);
            assert!(!forgotten.reply(self.run, name), "its caller does not wait");
        }
        drop(server);
        let mut expected = Audit::default();
        expected.free = self.run.slots as usize;
        let mut audit = self.segment.audit().expect("the audit works");
        // Cancelled calls may have left entries in the ring.
        audit.entries = 0;
        assert_eq!(audit, expected, "{:?}", self.run);
        assert_eq!(self.segment.members(), Ok(vec![]), "{:?}", self.run);
        assert_eq!(self.segment.recover(), Ok(0), "a second time");
        let (client, server) = (Asking::attach(&self.segment, self.run), Serving::attach(&self.segment));
        for _ in 0..100 {
            serving::echo(self.run, &client, &server);
        }
        // `try_recv` removes the entries of ended calls from the ring.
        assert!(server.try_recv().expect("no error").is_none(), "{:?}", self.run);
        drop((client, server));
        assert_eq!(self.segment.audit(), Ok(expected), "{:?}", self.run);
        self.board.settle(self.run);
        let stats = self.segment.stats();
        self.board.add(Count::DeadMembers, stats.dead_members);
        self.board.add(Count::Redelivered, stats.redelivered);
    }
}
