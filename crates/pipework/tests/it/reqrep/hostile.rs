//! Peers that break every rule: they scribble over the segment, cut its file short and punch holes into it, while clients and servers use it. These get
//! errors and lose service; none of them dies, hangs beyond its deadline or grows.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Geometry, Options, Segment};
use pipework::{Error, ErrorKind, Result};
use rustix::fs::FallocateFlags;
use rustix::process::{Resource, Rlimit};

use crate::harness::damage::{Before, HANDLED, end_of, leave_no_core, set_up_bus_errors, words};
use crate::harness::{Child, Folder, PATIENCE, Random, alone_for, awaited, fork, say, seed, shared};

/// How long each wait of a peer may take.
const WAIT: Duration = Duration::from_millis(40);
/// What a busy machine, and a search through a ring that leads nowhere, may add to it.
const SLACK: Duration = Duration::from_secs(5);
/// Bytes by which a peer's own memory may grow.
const GROWTH: u64 = 16 << 20;

fn small() -> Options {
    Options::new().slots(6).members(8).request_bytes(300).reply_bytes(300)
}

fn file_of(segment: &Segment) -> File {
    segment.as_fd().try_clone_to_owned().expect("descriptors are left").into()
}

// ---------------------------------------------------------------- where everything is

/// Offsets in words, computed anew from SEGMENT.md.
struct Map {
    members: usize,
    ring: usize,
    slots: usize,
    stride: usize,
    geometry: Geometry,
}

/// Words of the header that nobody reads twice; the last of them is the last of the file as well.
const FIXED: usize = 16;

impl Map {
    fn new(geometry: &Geometry) -> Map {
        let round_up = |bytes: usize, to: usize| bytes.div_ceil(to) * to;
        let ring = 4096 + 128 * geometry.members as usize;
        let reply = round_up(40 + geometry.request_bytes as usize, 8);
        Map {
            members: 4096 / 8,
            ring: ring / 8,
            slots: round_up(ring + 8 * geometry.queue as usize, 64) / 8,
            stride: round_up(reply + geometry.reply_bytes as usize, 64) / 8,
            geometry: *geometry,
        }
    }

    fn slot(&self, random: &mut Random) -> usize {
        self.slots + self.stride * random.below(self.geometry.slots as usize)
    }
}

#[test]
fn the_parts_are_where_the_text_says() {
    let segment = small().anonymous().unwrap();
    let (map, words) = (Map::new(segment.geometry()), words(&file_of(&segment)));
    assert_eq!(map.slots + map.stride * segment.geometry().slots as usize + 8, words.len());
    let get = |at: usize| words[at].load(Ordering::SeqCst);
    let client = segment.client().unwrap();
    assert_eq!(get(map.members), 1 << 8 | 1, "the first epoch of a client");
    let ticket = client.try_send("eight by").unwrap().expect("a slot is free");
    assert_eq!(get(map.ring), 1 << 23 | (ticket.to_bits() & 0xFF_FFFF), "lap 0, full");
    let slot = map.slots + map.stride * (ticket.to_bits() & 0xFF_FFFF) as usize;
    assert_eq!(get(slot), 1 << 24 | 1 << 8 | 2, "the first generation, sent by member 1");
    assert_eq!((get(slot + 2), get(slot + 5)), (8, u64::from_le_bytes(*b"eight by")));
}

// ---------------------------------------------------------------- the peers

/// What two clients and two servers share with whoever watches them.
struct Company {
    peers: Vec<Child>,
    /// Whether to stop; how many are under way; how many calls were answered; and then errors, by the number of their kind.
    board: &'static [AtomicU64],
}

const STOP: usize = 0;
const READY: usize = 1;
const ANSWERED: usize = 2;
const ERRORS: usize = 3;

impl Company {
    /// Forks them, and waits until each has attached itself to what `open` opens.
    fn new(seed: u64, open: impl Fn() -> Segment) -> Company {
        let board = shared(ERRORS + 32);
        let peers: Vec<_> = (0..4)
            .map(|nth: u64| {
                let open = &open;
                fork(move || {
                    let (segment, random) = (open(), Random::new(seed ^ nth << 32));
                    let mut peer = Peer { segment, board, random, has_doorbell: nth < 2 };
                    if nth.is_multiple_of(2) { peer.call() } else { peer.serve() }
                })
            })
            .collect();
        let company = Company { peers, board };
        company.wait(READY, 4);
        company
    }

    /// Waits until a number of the board has grown to `least`.
    fn wait(&self, number: usize, least: u64) {
        let began = Instant::now();
        while self.board[number].load(Ordering::SeqCst) < least {
            assert!(began.elapsed() < PATIENCE, "stuck for {PATIENCE:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Heals the segment until they come to themselves again. Once may not do: somebody can be about to store what belongs to the time before.
    fn recover(&self, heal: impl Fn()) {
        let began = Instant::now();
        loop {
            let before = self.board[ANSWERED].load(Ordering::SeqCst);
            heal();
            thread::sleep(Duration::from_millis(50));
            if self.board[ANSWERED].load(Ordering::SeqCst) > before + 20 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "stuck for {PATIENCE:?}");
        }
    }

    /// Lets all of them end, which they must do well; what happened to them, in words.
    fn stop(self) -> String {
        self.board[STOP].store(1, Ordering::SeqCst);
        self.peers.into_iter().for_each(Child::join);
        let errors = self.board[ERRORS..].iter().enumerate().filter_map(|(kind, count)| {
            let count = count.load(Ordering::SeqCst);
            (count > 0).then(|| format!("{count} errors of kind {kind}"))
        });
        let answered = self.board[ANSWERED].load(Ordering::SeqCst);
        format!("{answered} calls answered, {}", errors.collect::<Vec<_>>().join(", "))
    }
}

struct Peer {
    segment: Segment,
    board: &'static [AtomicU64],
    random: Random,
    /// Whether a thread of its own waits at a doorbell as well.
    has_doorbell: bool,
}

impl Peer {
    fn call(&mut self) {
        let has_doorbell = self.has_doorbell;
        let attach = |segment: &Segment| {
            let client = segment.client()?;
            if has_doorbell { client.doorbell().map(|_| client) } else { Ok(client) }
        };
        self.live(attach, |peer, client| {
            let len = peer.random.below(300);
            let request = peer.random.bytes(len);
            match peer.random.below(8) {
                0 => {
                    if let Some(Some(ticket)) = peer.timed("try_send", || client.try_send(&request)) {
                        peer.timed("try_recv", || client.try_recv(ticket));
                        peer.timed("cancel", || client.cancel(ticket));
                    }
                }
                1 => {
                    if let Some(ticket) = peer.timed("send", || client.send(&request, WAIT)) {
                        peer.timed("recv", || client.recv(ticket, WAIT));
                        peer.timed("cancel", || client.cancel(ticket));
                    }
                }
                2 => {
                    let insistent = client.clone().redeliveries(3).needs_server(true);
                    peer.timed("call", || insistent.call(&request, WAIT));
                }
                _ => {
                    if let Some(reply) = peer.timed("call", || client.call(&request, WAIT)) {
                        assert!(reply.len() <= 300);
                        peer.board[ANSWERED].fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            assert!(client.pending() <= 6);
        });
    }

    fn serve(&mut self) {
        let has_doorbell = self.has_doorbell;
        let attach = |segment: &Segment| {
            let server = segment.server()?;
            if has_doorbell { server.doorbell().map(|_| server) } else { Ok(server) }
        };
        self.live(attach, |peer, server| {
            let taken = match peer.random.below(16) {
                0 => peer.timed("drain", || server.drain(usize::MAX)).unwrap_or_default(),
                1 => peer.timed("recv_many", || server.recv_many(usize::MAX, WAIT)).unwrap_or_default(),
                2 => {
                    peer.timed("clear", || server.clear());
                    vec![]
                }
                _ => peer.timed("recv", || server.recv(WAIT)).into_iter().collect(),
            };
            assert!(taken.len() <= 6);
            for request in taken {
                assert!(request.len() <= 300 && request.deliveries() <= 3);
                if peer.random.below(16) > 0 {
                    let answer = request.to_vec();
                    peer.timed("reply", || request.reply(&answer));
                }
            }
        });
    }

    /// Attaches, acts, asks, leaves and comes again, until it is to stop.
    fn live<E>(&mut self, attach: impl Fn(&Segment) -> Result<E>, act: impl Fn(&mut Peer, &E)) {
        let segment = self.segment.clone();
        let mut end = Some(attach(&segment).expect("nobody has done any damage yet"));
        self.board[READY].fetch_add(1, Ordering::SeqCst);
        let mut begun = None;
        for turn in 1.. {
            if self.board[STOP].load(Ordering::SeqCst) != 0 {
                break;
            }
            match &end {
                Some(end) => act(self, end),
                None => thread::sleep(Duration::from_millis(1)),
            }
            if end.is_none() || self.random.below(200) == 0 {
                // What was attached leaves first.
                self.timed("leave", || {
                    end = None;
                    Ok(())
                });
                end = self.timed("attach", || attach(&segment));
            }
            if self.random.below(50) == 0 {
                self.ask();
            }
            if turn == 50 {
                begun = Some(own_memory());
            }
        }
        self.timed("leave", || {
            drop(end);
            Ok(())
        });
        let grown = begun.map_or(0, |begun| own_memory().saturating_sub(begun));
        assert!(grown < GROWTH, "grown by {grown} bytes");
    }

    fn ask(&mut self) {
        let segment = self.segment.clone();
        if let Some(audit) = self.timed("audit", || segment.audit()) {
            let sum = audit.free + audit.filling + audit.waiting + audit.taken;
            assert_eq!(sum + audit.dropped + audit.done + audit.damaged, 6);
        }
        self.timed("recover", || segment.recover());
        let members = self.timed("members", || segment.members());
        assert!(members.is_none_or(|members| members.len() <= 8));
        let len = self.timed("numbers", || Ok(segment.len()));
        assert!(len.is_none_or(|len| len <= segment.geometry().queue as usize));
        self.timed("stats", || Ok(segment.stats()));
    }

    /// The outcome of an operation that must end in time; an error is counted.
    fn timed<T>(&self, name: &str, operation: impl FnOnce() -> Result<T>) -> Option<T> {
        let began = Instant::now();
        let outcome = operation();
        let took = began.elapsed();
        assert!(took < WAIT + SLACK, "{name} took {took:?}");
        let count = |error: Error| self.board[ERRORS + error.kind() as usize].fetch_add(1, Ordering::SeqCst);
        outcome.map_err(count).ok()
    }
}

/// Bytes of memory that this process has and shares with nobody.
fn own_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells it");
    1024 * line.trim_end_matches("kB").trim().parse::<u64>().expect("a number")
}

/// With zeros between its first bytes and its last, the segment is as good as new.
fn heal(words: &[AtomicU64]) {
    let last = words.len() - 1;
    words[FIXED..last].iter().for_each(|word| word.store(0, Ordering::SeqCst));
    words[last].store(words[FIXED - 1].load(Ordering::SeqCst), Ordering::SeqCst);
}

fn works(segment: &Segment) {
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    for turn in 0..100u64 {
        let ticket = client.send(&turn.to_ne_bytes(), PATIENCE).unwrap();
        let request = server.recv(PATIENCE).unwrap();
        let answer = request.to_vec();
        assert!(request.reply(&answer).unwrap());
        assert_eq!(&*client.recv(ticket, PATIENCE).unwrap(), turn.to_ne_bytes());
    }
    drop((client, server));
    assert_eq!(segment.audit().unwrap().free, segment.geometry().slots as usize);
    assert_eq!(segment.members().unwrap(), []);
}

// ---------------------------------------------------------------- scribbling

/// Writes what it likes behind the fixed bytes, in bursts; now and then it heals everything, so that there is something to disturb again.
fn scribble(words: &[AtomicU64], map: &Map, mut random: Random) {
    let put = |at: usize, word: u64| words[at].store(word, Ordering::SeqCst);
    loop {
        let way = random.below(10);
        for _ in 0..random.below(300) {
            let anywhere = FIXED + random.below(words.len() - FIXED);
            match way {
                0 => put(anywhere, random.next()),
                1 => put(anywhere, 0),
                2 => put(anywhere, u64::MAX),
                3 => put(anywhere, words[FIXED + random.below(words.len() - FIXED)].load(Ordering::SeqCst)),
                // A word as slots have them, of about that time.
                4 => {
                    let at = map.slot(&mut random);
                    let generation = (words[at].load(Ordering::SeqCst) >> 24).wrapping_add(random.next() % 2);
                    put(at, (generation << 24) | ((random.next() % 10) << 8) | (random.next() % 256));
                }
                // The lengths, and who calls.
                5 => put(map.slot(&mut random) + 1 + random.below(4), random.next() % (1 << 34)),
                // A cell as the ring has them.
                6 => {
                    let at = map.ring + random.below(map.geometry.queue as usize);
                    let lap = (words[at].load(Ordering::SeqCst) >> 24).wrapping_add(random.next() % 3);
                    put(at, (lap << 24) | ((random.next() % 2) << 23) | (random.next() % 8));
                }
                // Head, tail, events and counters.
                7 => put(FIXED + random.below(36), random.next() >> random.below(64)),
                // Members that are not there, and events of those who are.
                8 => put(map.members + random.below(16 * map.geometry.members as usize), random.next() % 512),
                // A request that is never the same at two looks.
                _ => {
                    let at = map.slot(&mut random);
                    for generation in 0..2000 {
                        put(at, generation << 24 | 1 << 8 | 2);
                    }
                }
            }
        }
        if random.below(20) == 0 {
            heal(words);
        }
        thread::sleep(Duration::from_micros(random.next() % 2000));
    }
}

#[test]
fn whoever_scribbles_costs_service_and_nothing_else() {
    alone_for(2 * PATIENCE, || {
        let folder = Folder::new();
        let path = folder.join("segment");
        let seed = seed();
        say(&format!("scribbling with PIPEWORK_SEED={seed}"));
        for place in ["a file", "memory"] {
            let segment = match place {
                "a file" => small().create(&path).unwrap(),
                _ => small().anonymous().unwrap(),
            };
            let open =
                || if place == "a file" { Options::new().open(&path).unwrap() } else { segment.clone() };
            let company = Company::new(seed, open);
            company.wait(ANSWERED, 100);
            let words = words(&file_of(&segment));
            let scribbler = fork(|| scribble(words, &Map::new(segment.geometry()), Random::new(seed)));
            thread::sleep(Duration::from_millis(1500));
            scribbler.kill();
            company.recover(|| heal(words));
            say(&format!("scribbled over a segment in {place}: {}", company.stop()));
            heal(words);
            works(&segment);
        }
    });
}

/// Roles that nobody has, as many as there are numbers.
#[test]
fn however_many_seem_to_have_died_a_short_wait_ends() {
    const SLOTS: u32 = 1 << 14;
    alone_for(PATIENCE, || {
        let options = Options::new().slots(SLOTS).members(65_535).request_bytes(0).reply_bytes(0);
        let segment = options.anonymous().unwrap();
        let client = segment.client().unwrap();
        for _ in 0..SLOTS {
            client.try_send("").unwrap().expect("a slot is free");
        }
        let (map, words) = (Map::new(segment.geometry()), words(&file_of(&segment)));
        for number in 1..65_535 {
            words[map.members + 16 * number].store(1 << 8 | 1, Ordering::SeqCst);
        }
        thread::sleep(Duration::from_millis(60));
        assert!(client.try_send("").unwrap().is_none());
        let waited = client.send("", Duration::from_millis(1)).map_err(|error| error.kind());
        assert_eq!(waited, Err(ErrorKind::TimedOut));
        // Both have stopped looking long before the end.
        let found = segment.stats().torn_off;
        assert!(found < 65_534 / 2, "{found}");
        // Who does nothing else sees them all.
        let found = found + segment.recover().unwrap() as u64;
        assert_eq!((found, segment.members().unwrap().len()), (65_534, 1));
    });
}

/// A length that fits into the segment, and not into what is left to this process.
#[test]
fn a_payload_that_memory_is_missing_for_is_an_error() {
    const LARGE: u32 = 1 << 30;
    alone_for(PATIENCE, || {
        fork(|| {
            let options = Options::new().slots(1).members(4).request_bytes(LARGE).reply_bytes(LARGE);
            let segment = options.sparse(true).anonymous().unwrap();
            let (map, words) = (Map::new(segment.geometry()), words(&file_of(&segment)));
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            let rich = rustix::process::getrlimit(Resource::As);
            rustix::process::setrlimit(Resource::As, Rlimit { current: Some(1 << 30), ..rich }).unwrap();
            let told =
                |error: Error| assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::ENOMEM)));
            let ticket = client.try_send("a").unwrap().expect("a slot is free");
            words[map.slots + 2].store(u64::from(LARGE), Ordering::SeqCst);
            server.try_recv().map(drop).map_err(told).unwrap_err();
            let failed = client.recv(ticket, PATIENCE).map(drop);
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Failed);
            // And the other way round.
            let ticket = client.try_send("a").unwrap().expect("a slot is free");
            assert!(server.try_recv().unwrap().expect("it was sent").reply("b").unwrap());
            words[map.slots + 3].store(u64::from(LARGE), Ordering::SeqCst);
            client.recv(ticket, PATIENCE).map(drop).map_err(told).unwrap_err();
            drop((client, server));
            works(&segment);
        })
        .join();
    });
}

// ---------------------------------------------------------------- files that lose their bytes

#[test]
fn a_file_that_is_cut_short_kills_nobody() {
    alone_for(2 * PATIENCE, || {
        let folder = Folder::new();
        let path = folder.join("segment");
        for cut in 0..5 {
            let segment = small().create(&path).unwrap();
            let file = file_of(&segment);
            let whole = file.metadata().unwrap().len();
            let company = Company::new(cut, || Options::new().open(&path).unwrap());
            company.wait(ANSWERED, 100);
            let len = [0, 1, 4096, whole / 2, whole - 1][cut as usize];
            file.set_len(len).unwrap();
            thread::sleep(Duration::from_millis(150));
            file.set_len(whole).unwrap();
            thread::sleep(Duration::from_millis(50));
            say(&format!("cut from {whole} to {len} bytes: {}", company.stop()));
            assert_eq!(segment.unlink(), Ok(true));
        }
    });
}

#[test]
fn whoever_opens_a_file_that_was_cut_short_meanwhile_is_told_or_lives() {
    alone_for(PATIENCE, || {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = small().create(&path).unwrap();
        let whole = file_of(&segment).metadata().unwrap().len();
        let bytes = fs::read(&path).unwrap();
        let vandal = fork(|| {
            let file = File::options().write(true).open(&path).unwrap();
            let mut random = Random::new(7);
            loop {
                file.set_len(random.next() % whole).unwrap();
                file.write_all_at(&bytes[..8 * FIXED], 0).unwrap();
                file.set_len(whole).unwrap();
                file.write_all_at(&bytes[whole as usize - 8..], whole - 8).unwrap();
            }
        });
        let (mut opened, began) = (0, Instant::now());
        while began.elapsed() < Duration::from_millis(500) {
            match Options::new().open(&path) {
                Ok(segment) => {
                    opened += 1;
                    if let (Ok(client), Ok(_server)) = (segment.client(), segment.server()) {
                        client.call("a", Duration::ZERO).map(drop).unwrap_err();
                    }
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible)),
            }
        }
        vandal.kill();
        say(&format!("a file that changes its length all the time was opened {opened} times"));
    });
}

#[test]
fn holes_punched_into_it_cost_service_and_nothing_else() {
    alone_for(2 * PATIENCE, || {
        let folder = Folder::new();
        for place in ["a file", "memory"] {
            let segment = match place {
                "a file" => small().create(folder.join("segment")).unwrap(),
                _ => small().anonymous().unwrap(),
            };
            let file = file_of(&segment);
            let len = file.metadata().unwrap().len();
            let company = Company::new(3, || segment.clone());
            company.wait(ANSWERED, 100);
            let (mut random, first) = (Random::new(len), 8 * FIXED as u64);
            for _ in 0..300 {
                let off = first + random.next() % (len - first);
                punch(&file, off, 1 + random.next() % len);
                thread::sleep(Duration::from_micros(random.next() % 4000));
            }
            // A hole is zeros, and nothing but zeros is a beginning, between the first bytes and the last.
            let whole = words(&file);
            company.recover(|| {
                punch(&file, first, len);
                heal(whole);
            });
            say(&format!("holes in a segment in {place}: {}", company.stop()));
            heal(words(&file));
            works(&segment);
        }
    });
}

fn punch(file: &File, off: u64, len: u64) {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, hole, off, len).expect("a file in memory or of a common kind can have holes");
}

/// If each of its pages were replaced by itself, the kernel would soon allow no more mappings.
#[test]
fn a_large_file_that_is_cut_short_kills_nobody_either() {
    alone_for(PATIENCE, || {
        fork(|| {
            leave_no_core();
            let folder = Folder::new();
            // Slots of a page each.
            let large = Options::new().slots(35_000).request_bytes(4000).reply_bytes(0);
            let segment = large.create(folder.join("segment")).unwrap();
            file_of(&segment).set_len(0).unwrap();
            // It looks at every slot.
            segment.stats();
            assert_eq!(segment.audit().map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
        })
        .join();
    });
}

// ---------------------------------------------------------------- SIGBUS that is not for us

#[test]
fn another_bus_error_goes_where_it_went_before() {
    alone_for(PATIENCE, || {
        let folder = Folder::new();
        for (before, end) in [
            (Before::Runtime, Err(libc::SIGBUS)),
            (Before::Nothing, Err(libc::SIGBUS)),
            (Before::Ignored, Err(libc::SIGBUS)),
            (Before::Handled, Ok(HANDLED)),
            (Before::HandledInFull, Ok(HANDLED)),
        ] {
            let child = fork(|| {
                leave_no_core();
                set_up_bus_errors(before);
                let path = folder.join("segment");
                let segment = small().create(&path).unwrap();
                file_of(&segment).set_len(0).unwrap();
                assert!(segment.audit().is_err(), "our own is kept away");
                segment.unlink().unwrap();
                let path = folder.join("theirs");
                fs::write(&path, [1; 8192]).unwrap();
                let file = File::options().read(true).write(true).open(&path).unwrap();
                let theirs = words(&file);
                file.set_len(0).unwrap();
                panic!("read {} where nothing is", theirs[0].load(Ordering::SeqCst));
            });
            assert_eq!(end_of(child), end, "{before:?}");
        }
    });
}

/// `kill -BUS`: no instruction of ours met it.
#[test]
fn a_bus_error_that_a_process_sends_does_what_it_did_before() {
    alone_for(PATIENCE, || {
        let folder = Folder::new();
        for (nth, (before, end)) in
            [(Before::Nothing, Err(libc::SIGBUS)), (Before::Ignored, Ok(0)), (Before::Handled, Ok(HANDLED))]
                .into_iter()
                .enumerate()
        {
            let ready = shared(2);
            let path = folder.join(&format!("segment-{nth}"));
            let child = fork(|| {
                leave_no_core();
                set_up_bus_errors(before);
                let segment = small().create(&path).unwrap();
                ready[0].store(1, Ordering::SeqCst);
                awaited(&ready[1]);
                // Who goes on is still guarded.
                file_of(&segment).set_len(0).unwrap();
                let _ = segment.stats();
            });
            awaited(&ready[0]);
            let pid = rustix::process::Pid::from_raw(child.pid()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::BUS).unwrap();
            thread::sleep(Duration::from_millis(20));
            ready[1].store(1, Ordering::SeqCst);
            assert_eq!(end_of(child), end, "{before:?}");
        }
    });
}
