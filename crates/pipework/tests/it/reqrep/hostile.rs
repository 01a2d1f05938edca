//! Peers that break every rule: they scribble over the segment, cut its file short and punch holes
//! into it while clients and servers use it. The clients and servers get errors and lose service;
//! none of them dies, hangs beyond its deadline or grows.
//!
//! PIPEWORK_SCRIBBLE_MS sets how long the peers scribble.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pipework::reqrep::{Geometry, Options, Segment};
use pipework::{Error, ErrorKind};
use rustix::process::{Resource, Rlimit};

use crate::harness::damage::words;
use crate::harness::{Folder, PATIENCE, Random, alone_for, fork, say, seed, setting};
use peers::{ANSWERED, Company};

mod peers;
mod lost_bytes;
mod blobs;

/// How long each wait of a peer may take.
const WAIT: Duration = Duration::from_millis(40);
/// Extra time for a busy machine, and for a search through a ring whose entries lead nowhere.
const SLACK: Duration = Duration::from_secs(5);
/// Bytes by which a peer's own memory may grow.
const GROWTH: u64 = 16 << 20;

fn small() -> Options {
    Options::new().slots(6).members(8).request_bytes(300).reply_bytes(300)
}

fn file_of(segment: &Segment) -> File {
    segment.as_fd().try_clone_to_owned().expect("descriptors are left").into()
}

// ---------------------------------------------------------------- the layout

/// Offsets in words, computed from SEGMENT.md and FILE.md independently of the library.
struct Map {
    members: usize,
    ring: usize,
    /// Of the handles in front of each slot's head.
    handles: usize,
    /// The head of the first slot.
    slots: usize,
    stride: usize,
    geometry: Geometry,
}

/// Words of the header that are read only once; the last of them is also the last of the file.
const FIXED: usize = 16;

impl Map {
    fn new(geometry: &Geometry) -> Map {
        let round_up = |bytes: usize, to: usize| bytes.div_ceil(to) * to;
        let ring = 4096 + 128 * geometry.members as usize;
        let place = |at: usize, bytes: usize| {
            let at = round_up(at, 4);
            if at % 64 + bytes <= 64 { at } else { round_up(at, 64) }
        };
        let (request_bytes, reply_bytes) = (geometry.request_bytes as usize, geometry.reply_bytes as usize);
        let reply = place(32 + request_bytes, reply_bytes);
        let handles = round_up(2 * 32 * (geometry.blobs as usize + 1), 64);
        Map {
            members: 4096 / 8,
            ring: ring / 8,
            handles: handles / 8,
            slots: (round_up(ring + 8 * geometry.queue as usize, 64) + handles) / 8,
            stride: (handles + round_up(reply + reply_bytes, 64)) / 8,
            geometry: *geometry,
        }
    }

    fn slot(&self, random: &mut Random) -> usize {
        self.slots + self.stride * random.below(self.geometry.slots as usize)
    }
}

#[test]
fn layout_agrees_with_segment_md() {
    let segment = small().anonymous().unwrap();
    let (map, words) = (Map::new(segment.geometry()), words(&file_of(&segment)));
    let end = map.slots - map.handles + map.stride * segment.geometry().slots as usize;
    assert_eq!(end + 8, words.len());
    let get = |at: usize| words[at].load(Ordering::SeqCst);
    let client = segment.client().unwrap();
    assert_eq!(get(map.members), 1 << 8 | 1, "the first epoch of a client");
    let ticket = client.try_send("eight by").unwrap().expect("a slot is free");
    assert_eq!(
        get(map.ring),
        1 << 24 | 1 << 20 | (ticket.to_bits() & 0xF_FFFF),
        "lap 0, full, the first call"
    );
    let slot = map.slots + map.stride * (ticket.to_bits() & 0xFF_FFFF) as usize;
    assert_eq!(get(slot), 1 << 24 | 1 << 8 | 2, "the first generation, sent by member 1");
    assert_eq!((get(slot + 2), get(slot + 4)), (8, u64::from_le_bytes(*b"eight by")));
}

/// Writes zeros between the first bytes and the last, which makes the segment as good as new.
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

/// Writes arbitrary words behind the fixed bytes, in bursts. Now and then it heals the segment, so
/// that there is service to disturb again.
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
                // A plausible slot word of a recent generation.
                4 => {
                    let at = map.slot(&mut random);
                    let generation = (words[at].load(Ordering::SeqCst) >> 24).wrapping_add(random.next() % 2);
                    put(at, (generation << 24) | ((random.next() % 10) << 8) | (random.next() % 256));
                }
                // The lengths, and the calling member.
                5 => put(map.slot(&mut random) + 1 + random.below(4), random.next() % (1 << 34)),
                // A plausible cell of the ring.
                6 => {
                    let at = map.ring + random.below(map.geometry.queue as usize);
                    let lap = (words[at].load(Ordering::SeqCst) >> 25).wrapping_add(random.next() % 3);
                    put(
                        at,
                        (lap << 25)
                            | ((random.next() % 2) << 24)
                            | ((random.next() % 4) << 20)
                            | (random.next() % 8),
                    );
                }
                // Head, tail, events and counters.
                7 => put(FIXED + random.below(36), random.next() >> random.below(64)),
                // Roles of missing members, and events of present ones.
                8 => put(map.members + random.below(16 * map.geometry.members as usize), random.next() % 512),
                // A request that changes between two reads.
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
fn scribbling_causes_errors_but_no_crash_or_hang() {
    let time = Duration::from_millis(setting("PIPEWORK_SCRIBBLE_MS").unwrap_or(1500));
    alone_for(2 * (PATIENCE + time), || {
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
            thread::sleep(time);
            scribbler.kill();
            company.recover(|| heal(words));
            say(&format!("scribbled over a segment in {place}: {}", company.stop()));
            heal(words);
            works(&segment);
        }
    });
}

/// Gives every member number a role without a living member.
#[test]
fn short_wait_ends_in_time_with_65534_dead_members() {
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
        // Both calls stopped looking long before the end of the list.
        let found = segment.stats().dead_members;
        assert!(found < 65_534 / 2, "{found}");
        // `recover` looks at all of them.
        let found = found + segment.recover().unwrap() as u64;
        assert_eq!((found, segment.members().unwrap().len()), (65_534, 1));
    });
}

/// A length that fits into the segment but exceeds the memory limit of this process.
#[test]
fn payload_that_memory_is_missing_for_is_an_error() {
    const LARGE: u32 = 1 << 30;
    alone_for(PATIENCE, || {
        fork(|| {
            let options = Options::new().slots(1).members(4).request_bytes(LARGE).reply_bytes(LARGE);
            let segment = options.sparse(true).anonymous().unwrap();
            let (map, words) = (Map::new(segment.geometry()), words(&file_of(&segment)));
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            let rich = rustix::process::getrlimit(Resource::As);
            rustix::process::setrlimit(Resource::As, Rlimit { current: Some(1 << 30), ..rich }).unwrap();
            let assert_no_memory =
                |error: Error| assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::ENOMEM)));
            let ticket = client.try_send("a").unwrap().expect("a slot is free");
            words[map.slots + 2].store(u64::from(LARGE), Ordering::SeqCst);
            server.try_recv().map(drop).map_err(assert_no_memory).unwrap_err();
            assert_eq!((segment.waiting(), client.cancel(ticket)), (1, Ok(None)));
            // The same for a reply.
            let ticket = client.try_send("a").unwrap().expect("a slot is free");
            assert!(server.try_recv().unwrap().expect("it was sent").reply("b").unwrap());
            words[map.slots + 3].store(u64::from(LARGE), Ordering::SeqCst);
            client
                .recv(ticket, PATIENCE)
                .map(drop)
                .map_err(Error::from)
                .map_err(assert_no_memory)
                .unwrap_err();
            drop((client, server));
            works(&segment);
        })
        .join();
    });
}
