//! Segments on file systems that are full, that lose data, or that show one file under two
//! identities.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pipework::reqrep::{ClientOptions, Options, Segment, Server};
use pipework::{Deadline, Error, ErrorKind, Result};
use rustix::event::PollFlags;
use rustix::fs::FallocateFlags;

use crate::harness::damage::{leave_no_core, mount_bind, mount_overlay, not_mounted, tmpfs};
use crate::harness::{
    Child, Folder, PATIENCE, PROMPT, Random, alone, alone_for, awaited, fork, in_a_task, say, seed, setting,
    shared, tolerance, wait_for,
};

// ---------------------------------------------------------------- full

const LARGEST: usize = 60_000;
const IN_FLIGHT: usize = 8;

/// Random bytes, all equal and not zero.
fn payload(random: &mut Random) -> Vec<u8> {
    let most = [100, 6_000, LARGEST][random.below(3)];
    vec![1 + (random.next() % 255) as u8; random.below(most)]
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte != 0 && *byte == bytes[0])
}

/// Fills the rest of the file system with a file called "filler"; returns it and its length.
fn fill(mount: &Path) -> (File, u64) {
    let filler = File::create(mount.join("filler")).unwrap();
    let mut len = 0;
    while rustix::fs::fallocate(&filler, FallocateFlags::empty(), len, 4096).is_ok() {
        len += 4096;
    }
    (filler, len)
}

fn kind<T, E: Into<Error>>(outcome: std::result::Result<T, E>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.into().kind())
}

fn is_full(error: &Error) -> bool {
    (error.kind(), error.errno()) == (ErrorKind::Os, Some(libc::ENOSPC))
}

/// PIPEWORK_DISK_CALLS=100000 is the long form.
#[test]
fn calls_on_a_full_disk_fail_or_return_the_right_bytes() {
    const CALLS: u64 = 500;
    alone_for(4 * PATIENCE, || {
        fork(|| {
            leave_no_core();
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=1m") else { return };
            let (seed, rounds) = (seed(), setting("PIPEWORK_DISK_CALLS").unwrap_or(10_000).div_ceil(CALLS));
            say(&format!("{rounds} rounds at a full disk with PIPEWORK_SEED={seed}"));
            // Answered; refused at the client; failed at the server; wrong.
            let counts = shared(4);
            for round in 0..rounds {
                let path = mount.join("segment");
                let options = Options::new().slots(16).members(4).sparse(true);
                let sizes = options.request_bytes(LARGEST as u32).reply_bytes(LARGEST as u32);
                let segment = sizes.create(&path).unwrap();
                at_a_full_disk(&segment, &mount, CALLS, Random::new(seed ^ round), counts);
                assert_eq!(segment.unlink(), Ok(true));
            }
            let [answered, refused, failed, wrong] = [0, 1, 2, 3].map(|nth| counts[nth].load(SeqCst));
            say(&format!(
                "at a full disk: {answered} answered, {refused} refused, {failed} failed, {wrong} wrong"
            ));
            assert_eq!(wrong, 0);
            assert!(answered > 0 && refused > 0 && failed > 0);
        })
        .join();
    });
}

fn at_a_full_disk(
    segment: &Segment,
    mount: &Path,
    calls: u64,
    mut random: Random,
    counts: &'static [AtomicU64],
) {
    let count = |nth: usize| {
        counts[nth].fetch_add(1, SeqCst);
    };
    let over = &shared(1)[0];
    let mut answers = Random::new(random.next());
    let server = fork(move || {
        let server = segment.server().unwrap();
        while over.load(SeqCst) == 0 {
            let Ok(request) = server.recv(Duration::from_millis(20)) else { continue };
            if !is_whole(&request) {
                count(3);
            }
            if let Err(error) = request.reply(&payload(&mut answers)) {
                assert!(is_full(&error), "{error}");
            }
        }
    });
    // Fill the disk, then release part of the filler.
    let (filler, len) = fill(mount);
    filler.set_len(random.next() % len).unwrap();
    let client = segment.client().unwrap();
    for _ in 0..calls / IN_FLIGHT as u64 {
        let mut tickets = Vec::new();
        for _ in 0..IN_FLIGHT {
            match client.send(&payload(&mut random), PATIENCE) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    count(1);
                }
            }
        }
        for ticket in tickets {
            match client.recv(ticket, PATIENCE) {
                Ok(reply) => count(if is_whole(&reply) { 0 } else { 3 }),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
                    count(2);
                }
            }
        }
    }
    // Once there is space again, every slot works again.
    fs::remove_file(mount.join("filler")).unwrap();
    drop(filler);
    for _ in 0..32 {
        let reply = client.call(&[7; 10], PATIENCE);
        assert!(reply.map_or_else(|error| error.kind() == ErrorKind::Failed, |reply| is_whole(&reply)));
    }
    over.store(1, SeqCst);
    server.join();
    drop(client);
    assert_eq!(segment.audit().unwrap().free, 16);
}

/// Touches a page that could not be reserved: a hole punched into a segment on a full file system.
#[test]
fn segment_reports_corrupt_after_a_page_was_lost() {
    alone(|| {
        fork(|| {
            leave_no_core();
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=256k") else { return };
            let options = Options::new().slots(1).members(4).request_bytes(20_000).reply_bytes(20_000);
            let segment = options.create(mount.join("segment")).unwrap();
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            assert!(client.cancel(client.send(&[7; 20_000], PATIENCE).unwrap()).unwrap().is_none());
            let file = File::from(segment.as_fd().try_clone_to_owned().unwrap());
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, hole, 12_288, 4096).unwrap();
            let _filler = fill(&mount);
            let corrupt = Err(ErrorKind::Corrupt);
            for _ in 0..2 {
                assert_eq!(client.try_send(&[7; 20_000]).map(drop).map_err(|error| error.kind()), corrupt);
                assert_eq!(server.try_recv().map(drop).map_err(|error| error.kind()), corrupt);
                assert_eq!(segment.client().map(drop).map_err(|error| error.kind()), corrupt);
                assert_eq!(segment.audit().map(drop).map_err(|error| error.kind()), corrupt);
                assert_eq!(segment.recover().map(drop).map_err(|error| error.kind()), corrupt);
            }
            assert_eq!(client.send("a", PATIENCE).map_err(|error| error.kind()).map(drop), corrupt);
        })
        .join();
    });
}

// ---------------------------------------------------------------- large

/// What the kernel says of this process's mapping of the file at `path`, in one line of `smaps`.
fn of_mapping(path: &Path, line: &str) -> String {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mapping = maps.split(path.to_str().unwrap()).nth(1).expect("it is mapped");
    mapping.lines().find_map(|text| text.strip_prefix(line)).unwrap().trim().to_owned()
}

/// KiB that this process has touched of the file at `path`.
fn touched_kib(path: &Path) -> u64 {
    of_mapping(path, "Rss:").strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn calls_touch_only_the_slots_that_they_use() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let options = Options::new().slots(4096).request_bytes(1 << 20).reply_bytes(4096).sparse(true);
        drop(options.create(&path).unwrap());
        let segment = Options::new().open(&path).unwrap();
        // Random reads: a page that is touched makes the kernel read none of its neighbours.
        let flags = of_mapping(&path, "VmFlags:");
        assert!(flags.split(' ').any(|flag| flag == "rr"), "{flags}");
        // The slots take 4096 pages.
        let check = |what: &str| {
            let touched = touched_kib(&path);
            assert!(touched < 1024, "{what}: {touched} KiB");
        };
        let client = segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap();
        let server = segment.server().unwrap();
        check("attached");
        let ticket = client.send("a", PATIENCE).unwrap();
        check("sent");
        assert_eq!(client.pending(), 1);
        let request = server.recv(PATIENCE).unwrap();
        assert_eq!(request.reply("b"), Ok(true));
        assert_eq!(client.recv_any(PATIENCE).unwrap().unwrap().ticket, ticket);
        assert!(client.recv_any(PATIENCE).unwrap().is_none());
        check("received");
        // The limit is counted, and a descriptor watches the calls in progress.
        let client = segment.client_with(&ClientOptions::new().max_in_flight(2)).unwrap();
        let bell = client.doorbell().unwrap();
        let tickets = client.send_many(["c", "d"], PATIENCE).unwrap();
        assert_eq!(tickets.len(), 2);
        assert_eq!(client.try_send("e").unwrap(), None);
        for request in server.drain(8).unwrap() {
            request.reply("f").unwrap();
        }
        wait_for(&bell, PollFlags::IN);
        while client.recv_any(PATIENCE).unwrap().is_some() {}
        assert_eq!(kind(client.call("g", Duration::from_millis(120))), Some(ErrorKind::TimedOut));
        assert_eq!(client.forget_all(), 0);
        check("after several calls and two ticks");
    });
}

// ---------------------------------------------------------------- cut short

/// Some files regain their length at once: then no thread touches a missing page, but the contents
/// are new pages.
#[test]
fn every_waiter_gets_corrupt_after_the_file_was_cut_short() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        for (cut, regrows) in
            [(0, true), (4096, true), (5, true), (3, true), (1, true), (0, false), (1, false)]
        {
            let options = Options::new().slots(2).members(8).request_bytes(5000).reply_bytes(5000);
            let segment = options.create(&path).unwrap();
            let file = File::from(segment.as_fd().try_clone_to_owned().unwrap());
            let whole = file.metadata().unwrap().len();
            // 5, 3 and 1 are the number of bytes cut off; 0 and 4096 are the bytes left.
            let len = if [0, 4096].contains(&cut) { cut } else { whole - cut };
            let flags = shared(8);
            let waits = |nth: usize, wait: &dyn Fn() -> Option<ErrorKind>| {
                flags[nth].store(1, SeqCst);
                assert_eq!(wait(), Some(ErrorKind::Corrupt), "{cut} {regrows} {nth}");
                flags[4 + nth].store(1, SeqCst);
            };
            let busy = segment.server().unwrap();
            let client = fork(|| {
                let client = segment.client().unwrap();
                let ticket = client.send("a", PATIENCE).unwrap();
                waits(0, &|| client.recv(ticket, Deadline::NEVER).err().map(|error| error.kind()));
            });
            let _request = busy.recv(PATIENCE).unwrap();
            let server = |nth: usize, wait: &dyn Fn(&Server) -> Result<()>| {
                fork(|| {
                    let server = segment.server().unwrap();
                    waits(nth, &|| wait(&server).err().map(|error| error.kind()));
                })
            };
            let idle = [
                server(1, &|server| server.recv(Deadline::NEVER).map(drop)),
                server(2, &|server| in_a_task(server.recv_async()).map(drop)),
                server(3, &|server| {
                    wait_for(&server.doorbell()?, PollFlags::IN);
                    server.try_recv().map(drop)
                }),
            ];
            let own = segment.client().unwrap();
            for flag in &flags[..4] {
                awaited(flag);
            }
            std::thread::sleep(Duration::from_millis(20));
            file.set_len(len).unwrap();
            if regrows {
                file.set_len(whole).unwrap();
            }
            let began = Instant::now();
            let called = own.call("c", Deadline::NEVER).map(drop).map_err(|error| error.kind());
            assert_eq!(called, Err(ErrorKind::Corrupt));
            assert_eq!(segment.members().map(drop).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
            for flag in &flags[4..] {
                awaited(flag);
            }
            let took = began.elapsed();
            assert!(took < PROMPT + tolerance(), "{took:?}");
            let opened = Options::new().open(&path).map(drop).unwrap_err().kind();
            assert!(matches!(opened, ErrorKind::Corrupt | ErrorKind::Incompatible), "{opened:?}");
            client.join();
            idle.into_iter().for_each(Child::join);
            fs::remove_file(&path).unwrap();
        }
    });
}

// ---------------------------------------------------------------- seen in two ways

#[test]
fn open_on_overlayfs_accepts_only_the_path_that_made_the_file() {
    alone(|| {
        fork(|| {
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=4m") else { return };
            let names = ["lower", "upper", "work", "merged", "bound"];
            let [_, upper, _, merged, bound] = names.map(|name| mount.join(name));
            names.iter().for_each(|name| fs::create_dir(mount.join(name)).unwrap());
            if !mount_overlay(&merged) {
                return not_mounted("an overlay");
            }
            let small = || Options::new().slots(2).members(4);
            for (made, other, nth) in [(&merged, &upper, 0), (&upper, &merged, 1)] {
                let name = format!("segment-{nth}");
                let segment = small().create(made.join(&name)).unwrap();
                let elsewhere = Options::new().open(other.join(&name)).map(drop).unwrap_err();
                assert_eq!(elsewhere.kind(), ErrorKind::Incompatible, "{elsewhere}");
                // A bind mount shows the same file, and so does a descriptor.
                assert!(mount_bind(made, &bound));
                for again in [made.join(&name), bound.join(&name)] {
                    let opened = Options::new().open(&again).unwrap();
                    let _client = opened.client().unwrap();
                    assert!(segment.members().unwrap()[0].is_alive);
                }
                let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&segment.as_fd()));
                let by_fd = File::options().read(true).write(true).open(link).unwrap();
                Options::new().from_fd(by_fd.into()).unwrap();
            }
        })
        .join();
    });
}
