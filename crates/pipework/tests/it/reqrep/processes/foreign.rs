//! Programs that close descriptors of the library, and open their own under the numbers: the library
//! never closes, reads, writes or locks these, whatever they are.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Client, ClientOptions, Options, Segment, Server};
use pipework::{ErrorKind, atomic};
use rustix::event::PollFlags;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::{kind, options, sleep_until_killed};
use crate::harness::damage::{close, close_below, set_variable};
use crate::harness::theirs::{Kind, Material, Theirs};
use crate::harness::{Folder, PATIENCE, Random, alone, awaited, fork, is_ready, say, seed, shared, wait_for};

/// Longer than a slot, so it travels as a blob.
const LONG: usize = 100_000;
/// Files that the program makes in a folder that it watches.
const EVENTS: usize = 200;
/// Close loops leave the numbers from here on.
const OWN: u32 = 900;

/// The numbers that are open, below [`OWN`], and what they refer to.
fn open_numbers() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = entries.filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let link = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        // Not the folder that is being read.
        (2 < number && number < OWN as i32 && !link.ends_with("/fd")).then_some((number, link))
    });
    open.collect()
}

/// Waits until a thread of this process hears of deaths. Returns the number of its descriptor.
fn until_it_listens(client: &Client) -> i32 {
    let ticket = client.send("nobody answers", PATIENCE).unwrap();
    let began = Instant::now();
    let instance = loop {
        assert_eq!(kind(client.recv(ticket, Duration::from_millis(60))), Some(ErrorKind::TimedOut));
        let is_instance = |(_, link): &(i32, String)| link == "anon_inode:inotify";
        if let Some((number, _)) = open_numbers().into_iter().find(is_instance) {
            break number;
        }
        assert!(began.elapsed() < PATIENCE, "it listens");
    };
    assert!(client.cancel(ticket).unwrap().is_none());
    instance
}

fn folder() -> (Folder, std::path::PathBuf) {
    let folder = Folder::new();
    let path = folder.join("segment");
    fs::create_dir(folder.join("watched")).unwrap();
    (folder, path)
}

/// Both directions of a long call in one process.
fn call_long(client: &Client, server: &Server) {
    let ticket = client.send(&[1; LONG], PATIENCE).unwrap();
    let request = server.recv(PATIENCE).unwrap();
    request.reply(&[2; LONG]).unwrap();
    assert_eq!(client.recv(ticket, PATIENCE).unwrap().len(), LONG);
}

/// Uses everything that may have a descriptor. What lost its own fails, and must do no more.
fn use_all(segment: &Segment, client: &Client, server: &Server) {
    let mut cx = Context::from_waker(Waker::noop());
    let _ = pin!(server.recv_async()).poll(&mut cx);
    if let Ok(Some(ticket)) = client.try_send("a") {
        let _ = pin!(client.recv_async(ticket)).poll(&mut cx);
        let _ = client.cancel(ticket);
    }
    for bell in [client.doorbell(), client.send_doorbell(), server.doorbell()] {
        drop(bell);
    }
    use_without_threads(segment, client, server);
}

/// As [`use_all`], without what starts a thread.
fn use_without_threads(segment: &Segment, client: &Client, server: &Server) {
    for request in [&b"short"[..], &[3; LONG]] {
        let ticket = client.try_send(request).ok().flatten();
        if let Ok(Some(request)) = server.try_recv() {
            let _ = request.reply(&[4; LONG]);
        }
        if let Some(ticket) = ticket {
            let _ = client.try_recv(ticket);
            let _ = client.cancel(ticket);
        }
    }
    let _ = client.recv_any(Duration::from_millis(1));
    let _ = server.recv(Duration::from_millis(1));
    let _ = (segment.recover(), segment.members(), segment.audit(), segment.blob_audit());
    let _ = (segment.client(), segment.server());
}

/// A program with a client, a server, tasks, doorbells, blobs and a thread that hears of deaths
/// closes what it does not know, and opens descriptors of that kind until it has all numbers.
fn becomes_a_daemon(kind: Kind) {
    let (folder, path) = folder();
    let material = Material::new(folder, path.clone(), OWN as i32);
    let segment = options().create(&path).unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let idle = segment.client().unwrap();
    for bell in [client.doorbell(), client.send_doorbell(), server.doorbell(), idle.doorbell()] {
        mem::forget(bell.unwrap());
    }
    call_long(&client, &server);
    let held = client.send(&[5; LONG], PATIENCE).unwrap();
    let request = server.recv(PATIENCE).unwrap();
    let instance = until_it_listens(&client);
    let last = open_numbers().into_iter().map(|(number, _)| number).max().expect("it has some");

    close_below(OWN);
    let mut theirs = Vec::new();
    while theirs.last().is_none_or(|theirs: &Theirs| theirs.number() < last) {
        // A user has few inotify instances: some go around the number of the library's.
        let next = theirs.last().map_or(3, |theirs| theirs.number() + 1);
        let is_far = kind == Kind::Inotify && (next - instance).abs() > 4;
        theirs.push(Theirs::make(if is_far { Kind::File } else { kind }, &material));
    }
    let assert_intact = |what: &str| theirs.iter().for_each(|theirs| theirs.assert_intact(what));
    for _ in 0..3 {
        // The kernel reports this to the thread.
        drop(File::open(&path).unwrap());
        thread::sleep(Duration::from_millis(5));
        use_all(&segment, &client, &server);
        assert_intact("it was used");
    }
    for number in 0..EVENTS {
        File::create(material.folder.join(&format!("watched/{number}"))).unwrap();
        drop(File::open(&path).unwrap());
    }
    let _ = request.reply(&[6; LONG]);
    let _ = client.recv(held, Duration::from_millis(1));
    assert_intact("the call was answered");
    drop(client);
    assert_intact("the client was dropped");
    drop(server);
    assert_intact("the server was dropped");
    drop((idle, segment));
    assert_intact("the segment was dropped");
    for theirs in theirs.iter().filter(|theirs| theirs.kind == Kind::Inotify) {
        assert_eq!(theirs.take_events(), EVENTS, "events were taken");
    }
}

#[test]
fn descriptors_under_the_numbers_of_closed_ones_stay_the_programs() {
    alone(|| {
        let programs = Kind::ALL.map(|kind| fork(|| becomes_a_daemon(kind)));
        programs.into_iter().for_each(|program| program.join());
    });
}

/// The library's side of a doorbell is an eventfd, and the program's an epoll instance around it.
#[test]
fn doorbell_that_is_made_after_the_program_closed_the_first_rings() {
    alone(|| {
        fork(|| {
            let (folder, path) = folder();
            let segment = options().create(&path).unwrap();
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            for bell in [client.doorbell(), server.doorbell()] {
                mem::forget(bell.unwrap());
            }
            let bells = open_numbers().into_iter().filter(|(_, link)| link.contains("[event"));
            bells.for_each(|(number, _)| close(number));
            let theirs: Vec<_> = (0..4).map(|_| File::open("/dev/null").unwrap()).collect();
            let (replies, requests) = (client.doorbell().unwrap(), server.doorbell().unwrap());
            let ticket = client.send("a", PATIENCE).unwrap();
            wait_for(&requests, PollFlags::IN);
            let request = server.try_recv().unwrap().expect("it was sent");
            assert!(!is_ready(&replies, PollFlags::IN, Duration::ZERO));
            assert_eq!(request.reply("b"), Ok(true));
            wait_for(&replies, PollFlags::IN);
            assert_eq!(&*client.try_recv(ticket).unwrap().expect("it was answered"), b"b");
            assert!(!is_ready(&replies, PollFlags::IN, Duration::ZERO));
            drop((theirs, folder));
        })
        .join();
    });
}

/// All doorbells come from the library, and only the eventfds behind them are its own.
#[test]
fn doorbell_under_the_number_of_another_clients_eventfd_stays_open() {
    alone(|| {
        fork(|| {
            let (folder, path) = folder();
            let segment = options().create(&path).unwrap();
            let [first, second] = [segment.client().unwrap(), segment.client().unwrap()];
            let _bells = [first.doorbell().unwrap(), second.doorbell().unwrap()];
            let eventfds = open_numbers().into_iter().filter(|(_, link)| link == "anon_inode:[eventfd]");
            let lost = eventfds.map(|(number, _)| number).min().expect("there are two");
            close(lost);
            let bell = second.doorbell().unwrap();
            assert_eq!(bell.as_raw_fd(), lost);
            drop(first);
            let ticket = second.send("a", PATIENCE).unwrap();
            segment.server().unwrap().recv(PATIENCE).unwrap().reply("b").unwrap();
            wait_for(&bell, PollFlags::IN);
            assert_eq!(&*second.recv(ticket, PATIENCE).unwrap(), b"b");
            drop(folder);
        })
        .join();
    });
}

/// Its members have lost their locks, and so has the thread that hears of deaths.
#[test]
fn client_that_closed_all_descriptors_notices_a_death_when_it_opens_the_channel_again() {
    alone(|| {
        let (folder, path) = folder();
        let segment = options().create(&path).unwrap();
        let flags = shared(1);
        let program = fork(|| {
            let old = Options::new().open(&path).unwrap();
            let idle = old.client().unwrap();
            until_it_listens(&idle);
            close_below(OWN);
            let material = Material::new(Folder::new(), path.clone(), OWN as i32);
            fs::create_dir(material.folder.join("watched")).unwrap();
            let theirs: Vec<_> = (0..12).map(|_| Theirs::make(Kind::Inotify, &material)).collect();
            let again = Options::new().open(&path).unwrap();
            let client = again.client_with(&ClientOptions::new()).unwrap();
            drop((idle, old));
            let ticket = client.send("a", PATIENCE).unwrap();
            let dying = fork(|| {
                let server = Options::new().open(&path).unwrap().server().unwrap();
                let _request = server.recv(PATIENCE).unwrap();
                flags[0].store(1, std::sync::atomic::Ordering::SeqCst);
                sleep_until_killed();
            });
            awaited(&flags[0]);
            dying.kill();
            assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
            theirs.iter().for_each(|theirs| theirs.assert_intact("a death was noticed"));
        });
        program.join();
        drop((segment, folder));
    });
}

// ---------------------------------------------------------------- any order

/// What the program and the library have at the moment. No thread of the library runs: one that opens a
/// file while the program closes numbers could not tell whose it is.
struct Scene {
    path: std::path::PathBuf,
    material: Material,
    random: Random,
    theirs: Vec<Theirs>,
    segments: Vec<Segment>,
    clients: Vec<Client>,
    servers: Vec<Server>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (folder, path) = folder();
        let segment = options().create(&path).unwrap();
        Scene {
            material: Material::new(folder, path.clone(), OWN as i32),
            path,
            random: Random::new(seed),
            theirs: Vec::new(),
            segments: vec![segment],
            clients: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// A number of the library's.
    fn number(&mut self) -> Option<i32> {
        let numbers = self.numbers();
        (!numbers.is_empty()).then(|| numbers[self.random.below(numbers.len())])
    }

    fn numbers(&self) -> Vec<i32> {
        let theirs: BTreeSet<i32> = self.theirs.iter().flat_map(Theirs::numbers).collect();
        open_numbers()
            .into_iter()
            .map(|(number, _)| number)
            .filter(|number| !theirs.contains(number))
            .collect()
    }

    fn step(&mut self) -> &'static str {
        let any = self.random.next() as usize;
        let at = |len: usize| (len > 0).then(|| any % len.max(1));
        let (segment, client) = (at(self.segments.len()), at(self.clients.len()));
        let (server, their) = (at(self.servers.len()), at(self.theirs.len()));
        match self.random.below(20) {
            // The library.
            0 => {
                let opened = Options::new().open(&self.path);
                self.segments.extend(opened.ok().filter(|_| self.segments.len() < 3));
                "opens the segment"
            }
            1 => {
                if let Some(at) = segment {
                    drop(self.segments.swap_remove(at));
                }
                "drops a segment"
            }
            2 | 3 => {
                let made = segment.and_then(|at| self.segments[at].client().ok());
                self.clients.extend(made);
                "makes a client"
            }
            4 => {
                let made = segment.and_then(|at| self.segments[at].server().ok());
                self.servers.extend(made);
                "makes a server"
            }
            5 => {
                if let Some(at) = client {
                    drop(self.clients.swap_remove(at));
                }
                "drops a client"
            }
            6 => {
                if let Some(at) = server {
                    drop(self.servers.swap_remove(at));
                }
                "drops a server"
            }
            7..12 => {
                if let (Some(segment), Some(client), Some(server)) = (segment, client, server) {
                    let ends = (&self.clients[client], &self.servers[server]);
                    use_without_threads(&self.segments[segment], ends.0, ends.1);
                }
                "uses all"
            }
            12 => {
                drop(File::open(&self.path));
                thread::sleep(Duration::from_millis(1));
                "touches the file"
            }
            // The program.
            13 | 14 => {
                if let Some(number) = self.number() {
                    close(number);
                }
                "closes a descriptor"
            }
            15 => {
                self.numbers().into_iter().for_each(close);
                "closes all descriptors"
            }
            16 => {
                let number = self.number();
                let copy = their.zip(number).map(|(at, number)| self.theirs[at].duplicate(Some(number)));
                self.theirs.extend(copy);
                "puts one of its own in the place of another"
            }
            17 | 18 => {
                let kind = Kind::ALL[any % Kind::ALL.len()];
                // A user has few inotify instances.
                let count = self.theirs.iter().filter(|theirs| theirs.kind == Kind::Inotify).count();
                if kind != Kind::Inotify || count < 3 {
                    self.theirs.push(Theirs::make(kind, &self.material));
                }
                "opens one of its own"
            }
            _ => {
                if self.theirs.len() > 20 {
                    their.map(|at| self.theirs.swap_remove(at));
                }
                "closes one of its own"
            }
        }
    }

    fn assert_intact(&self, what: &str) {
        self.theirs.iter().for_each(|theirs| theirs.assert_intact(what));
    }
}

#[test]
fn descriptors_of_the_program_stay_intact_in_any_order_of_actions() {
    alone(|| {
        let seed = seed();
        say(&format!("PIPEWORK_SEED={seed}"));
        let runs = (0..6).map(|run| {
            fork(move || {
                set_variable(c"PIPEWORK_DEATH_THREAD", c"off");
                let mut scene = Scene::new(seed.wrapping_add(run));
                for step in 0..400 {
                    let what = scene.step();
                    scene.assert_intact(&format!("run {run}, step {step}: it {what}"));
                }
                let Scene { clients, servers, segments, .. } = &mut scene;
                drop((mem::take(clients), mem::take(servers), mem::take(segments)));
                scene.assert_intact("all was dropped");
            })
        });
        runs.collect::<Vec<_>>().into_iter().for_each(|run| run.join());
    });
}

// ---------------------------------------------------------------- ends of pipes

fn ends_are_dropped(kind: Kind) {
    let (folder, path) = folder();
    options().create(&path).unwrap();
    let material = Material::new(folder, path, OWN as i32);
    let fifo = material.folder.join("fifo");
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let ends = atomic::Options::new();
    let (reader, mut writer) = ends.pair().unwrap();
    let (fifo_reader, listener) = (ends.read_fifo(&fifo).unwrap(), ends.listen_fifo(&fifo).unwrap());
    let fifo_writer = ends.write_fifo(&fifo, PATIENCE).unwrap();
    let clones = (reader.try_clone().unwrap(), writer.try_clone().unwrap(), listener.try_clone().unwrap());
    // What is pending is written when the writer is dropped.
    while writer.pending() == 0 {
        writer.try_send([1; LONG]).unwrap();
    }
    let last = open_numbers().into_iter().map(|(number, _)| number).max().expect("it has some");

    close_below(OWN);
    let mut theirs: Vec<Theirs> = Vec::new();
    while theirs.last().is_none_or(|theirs| theirs.number() < last) {
        let is_far = kind == Kind::Inotify && theirs.len() > 6;
        theirs.push(Theirs::make(if is_far { Kind::File } else { kind }, &material));
    }
    drop((reader, writer, fifo_reader, listener, fifo_writer, clones));
    theirs.iter().for_each(|theirs| theirs.assert_intact("the ends were dropped"));
}

#[test]
fn ends_of_pipes_that_lost_their_descriptors_close_and_write_nothing() {
    alone(|| {
        let programs = Kind::ALL.map(|kind| fork(|| ends_are_dropped(kind)));
        programs.into_iter().for_each(|program| program.join());
    });
}
