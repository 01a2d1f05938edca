//! A pipe is shared: with programs that do not know this crate, with kernels and users that refuse
//! a request, with a process that has no descriptor left. The library changes nothing that belongs
//! to others, and a refusal is reported and has no other effect.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pipework::atomic::{Item, Options, Reader, Writer, Zstd, create_fifo, max_capacity, pair};
use pipework::{Deadline, Error, ErrorKind};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit};

use crate::harness::{
    Folder, PATIENCE, again, alone, become_nobody, descriptors, fork, is_alone, left_out, lent, say, within,
};

const SHORT: Duration = Duration::from_millis(20);

fn refusal<T>(outcome: Result<T, Error>) -> (ErrorKind, Option<i32>) {
    outcome.err().map(|error| (error.kind(), error.errno())).expect("a refusal")
}

/// Every call that writes, on a pipe that is full at first, and every call that reads, until it is
/// empty. The rest stays pending.
fn exercise(reader: &mut Reader, writer: &mut Writer) {
    let was_full = Barrier::new(2);
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while writer.pending() == 0 {
                sent += usize::from(writer.try_send([1; 5000]).unwrap().is_some());
            }
            assert_eq!(refusal(writer.send("too late", SHORT)), (ErrorKind::TimedOut, None));
            assert!(!writer.try_flush().unwrap());
            // In plain mode a burst is bare bytes; these are those of an empty message of process
            // 1.
            let empty = [1u32, 0, 0, 0].map(u32::to_ne_bytes).concat();
            sent += usize::from(writer.try_burst(&empty).unwrap());
            was_full.wait();
            assert!(writer.send([2; 100_000], PATIENCE).unwrap() > 24);
            assert!(writer.send([3; 100_000], Deadline::NEVER).unwrap() > 24);
            assert_eq!(writer.send_many(&[[4; 700]; 50], PATIENCE), Ok(50));
            assert_eq!(writer.enqueue("the last"), Ok(1));
            writer.flush(Deadline::NEVER).unwrap();
            sent + 53
        });
        was_full.wait();
        let mut come = 0;
        loop {
            let message = match come % 3 {
                0 => reader.recv(PATIENCE).map(Some).unwrap(),
                1 => reader.recv(Deadline::NEVER).map(Some).unwrap(),
                _ => reader.try_recv().unwrap(),
            };
            come += usize::from(message.is_some());
            if message.is_some_and(|message| &*message == b"the last") {
                assert_eq!(sender.join().unwrap(), come);
                return come;
            }
        }
    });
    assert!(sent > 53);
    assert_eq!(reader.try_recv(), Ok(None));
    assert_eq!(refusal(reader.recv(SHORT)), (ErrorKind::TimedOut, None));
}

// ---------------------------------------------------------------- open files that others share

#[test]
fn flags_of_an_open_file_are_not_changed() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let open = |options: &mut fs::OpenOptions| OwnedFd::from(options.open(&path).unwrap());
        for nonblocking in [OFlags::empty(), OFlags::NONBLOCK] {
            let both = open(File::options().read(true).write(true));
            let fifo = (open(File::options().read(true)), open(File::options().write(true)));
            for (read, write) in [rustix::pipe::pipe().unwrap(), fifo] {
                let flags = |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).unwrap();
                for fd in [&read, &write] {
                    rustix::fs::fcntl_setfl(fd, flags(fd) | nonblocking).unwrap();
                }
                let before = [flags(&read), flags(&write)];
                let mut reader = Options::new().dup_reader(&read).unwrap();
                let mut writer = Options::new().dup_writer(&write).unwrap();
                assert_eq!(reader.try_recv(), Ok(None));
                exercise(&mut reader, &mut writer);
                let mut twins = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
                exercise(&mut twins.0, &mut twins.1);
                assert_eq!([flags(&read), flags(&write)], before);
                drop((reader, writer, twins));
                assert_eq!([flags(&read), flags(&write)], before);
            }
            drop(both);
        }
    });
}

#[test]
fn lent_descriptors_are_neither_closed_nor_changed() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let _both = File::options().read(true).write(true).open(&path).unwrap();
        for (cloexec, nonblocking) in [(false, false), (false, true), (true, false), (true, true)] {
            let fifo = (File::open(&path).unwrap(), File::options().write(true).open(&path).unwrap());
            let (near, far) = UnixStream::pair().unwrap();
            let (read, write) = std::io::pipe().unwrap();
            let kinds: [(OwnedFd, OwnedFd); 3] =
                [(read.into(), write.into()), (fifo.0.into(), fifo.1.into()), (near.into(), far.into())];
            for (read, write) in &kinds {
                let (read, write) = (lent(read), lent(write));
                let marks = if cloexec { FdFlags::CLOEXEC } else { FdFlags::empty() };
                let modes = if nonblocking { OFlags::NONBLOCK } else { OFlags::empty() };
                let flags = |fd| (rustix::io::fcntl_getfd(fd).unwrap(), rustix::fs::fcntl_getfl(fd).unwrap());
                for fd in [read, write] {
                    rustix::io::fcntl_setfd(fd, marks).unwrap();
                    rustix::fs::fcntl_setfl(fd, flags(fd).1 | modes).unwrap();
                }
                let before = [flags(read), flags(write)];
                // A second time, on the state that the first has left behind.
                for _ in 0..2 {
                    let mut reader = Options::new().reader_on(read).unwrap();
                    let mut writer = Options::new().writer_on(write).unwrap();
                    assert_eq!(reader.as_fd().as_raw_fd(), read.as_raw_fd());
                    exercise(&mut reader, &mut writer);
                    let mut twins = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
                    exercise(&mut twins.0, &mut twins.1);
                    for twin in [twins.0.as_fd(), twins.1.as_fd()] {
                        assert_eq!(rustix::io::fcntl_getfd(twin), Ok(FdFlags::CLOEXEC), "their own");
                    }
                    assert_eq!([flags(read), flags(write)], before);
                    drop(twins);
                    writer.enqueue("written by the drop").unwrap();
                    drop(writer);
                    assert_eq!(*reader.recv(PATIENCE).unwrap(), *b"written by the drop");
                    assert_eq!(reader.try_recv(), Ok(None), "not the end: a writer is left");
                    drop(reader);
                    assert_eq!([flags(read), flags(write)], before);
                }
            }
        }
    });
}

#[test]
fn refused_descriptors_are_not_changed() {
    let pipe = std::io::pipe().unwrap();
    let (read, write) = (lent(&pipe.0), lent(&pipe.1));
    for fd in [read, write] {
        rustix::io::fcntl_setfd(fd, FdFlags::empty()).unwrap();
    }
    assert_eq!(refusal(Options::new().reader_on(write)), (ErrorKind::Invalid, None));
    assert_eq!(refusal(Options::new().writer_on(read)), (ErrorKind::Invalid, None));
    assert_eq!([read, write].map(rustix::io::fcntl_getfd), [Ok(FdFlags::empty()); 2]);

    let folder = Folder::new();
    let path = folder.join("log");
    let file = File::create(&path).unwrap();
    let log = lent(&file);
    rustix::io::fcntl_setfd(log, FdFlags::empty()).unwrap();
    assert_eq!(refusal(Options::new().writer_on(log)), (ErrorKind::Invalid, None));
    for _ in 0..2 {
        let mut writer = Options::new().or_print(true).writer_on(log).unwrap();
        writer.send("a line", PATIENCE).unwrap();
    }
    assert_eq!(rustix::io::fcntl_getfd(log), Ok(FdFlags::empty()));
    assert_eq!(fs::read(&path).unwrap(), b"a line\na line\n");
}

/// `seq` and a writer print to the same open file, which is mostly full: `seq` gives up if one of
/// its writes is refused.
#[test]
fn a_program_on_the_same_open_file_is_not_disturbed() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let options = Options::new().mixed(true);
        print_beside_seq(options.pair().unwrap());
        let reader = options.read_fifo(&path).unwrap();
        print_beside_seq((reader, options.write_fifo(&path, PATIENCE).unwrap()));
    });
}

fn print_beside_seq((mut reader, mut writer): (Reader, Writer)) {
    const LAST: usize = 200_000;
    let stdout = Stdio::from(writer.as_fd().try_clone_to_owned().unwrap());
    let child = Command::new("seq").arg(LAST.to_string()).stdout(stdout).spawn().expect("seq runs");
    let sender = thread::spawn(move || {
        let mut sent = 0;
        for n in 0..300u32 {
            sent += u32::from(writer.try_send(n.to_ne_bytes().repeat(3000)).unwrap().is_some());
            // A message that times out here has been written in part or not at all, and the reader
            // reports its parts.
            sent += u32::from(writer.send([7; 9000], Duration::from_millis(1)).is_ok());
        }
        writer.close(PATIENCE).unwrap();
        sent
    });
    let (mut numbers, mut messages) = (0, 0);
    for item in reader.items() {
        match item.unwrap() {
            Item::Line(line) => {
                numbers += 1;
                assert_eq!(line.content(), numbers.to_string().as_bytes());
                if numbers % 5000 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
            }
            Item::Message(_) => messages += 1,
            Item::Torn(_) => {}
            item => panic!("{item:?}"),
        }
    }
    assert!(within(PATIENCE, child).success(), "seq was disturbed");
    assert_eq!(numbers, LAST);
    assert_eq!(sender.join().unwrap(), messages);
}

// ---------------------------------------------------------------- refusals

#[test]
fn without_descriptors_calls_fail_and_leak_nothing() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let listener = Options::new().listen_fifo(&path).unwrap();
        let (mut reader, mut writer) = pair().unwrap();
        let mut to_fifo = Options::new().write_fifo(&path, PATIENCE).unwrap();
        let options = Options::new();
        // Each with the number of descriptors that it needs.
        type Call<'a> = (&'static str, usize, &'a dyn Fn() -> Result<(), Error>);
        let calls: [Call<'_>; 8] = [
            ("pair", 2, &|| pair().map(drop)),
            ("read_fifo", 1, &|| options.read_fifo(&path).map(drop)),
            ("listen_fifo", 2, &|| options.listen_fifo(&path).map(drop)),
            ("write_fifo", 1, &|| options.write_fifo(&path, PATIENCE).map(drop)),
            ("dup_reader", 1, &|| options.dup_reader(&reader).map(drop)),
            ("dup_writer", 1, &|| options.dup_writer(&writer).map(drop)),
            ("clone writer", 1, &|| writer.try_clone().map(drop)),
            ("clone listener", 2, &|| listener.try_clone().map(drop)),
        ];
        // Fills the gaps, so that the free numbers are those from `first` on.
        let fillers = [(); 64].map(|()| File::open("/dev/null").unwrap());
        let first = File::open("/dev/null").unwrap().as_raw_fd() as usize;
        let used = descriptors();
        let rich = rustix::process::getrlimit(Resource::Nofile);
        let leave = |free: usize| {
            let limit = Rlimit { current: Some((first + free) as u64), maximum: rich.maximum };
            rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        };
        for (name, needed, call) in calls {
            for free in 0..needed {
                leave(free);
                let outcome = call();
                rustix::process::setrlimit(Resource::Nofile, rich).unwrap();
                let refusal = refusal(outcome);
                assert_eq!(refusal, (ErrorKind::Os, Some(libc::EMFILE)), "{name} with {free} descriptors");
                assert_eq!(descriptors(), used, "{name} with {free} descriptors");
            }
        }
        // Open ends continue to work, with deadlines and without, although no FIFO can be reopened.
        leave(0);
        let mut listener = listener;
        for message in ["one", "two"] {
            writer.send(message, PATIENCE).unwrap();
            to_fifo.send(message, PATIENCE).unwrap();
            assert!(to_fifo.try_send(message).unwrap().is_some());
            assert_eq!(&*reader.recv(PATIENCE).unwrap(), message.as_bytes());
            assert_eq!(&*listener.recv(PATIENCE).unwrap(), message.as_bytes());
            assert_eq!(&*listener.recv(Deadline::NEVER).unwrap(), message.as_bytes());
        }
        rustix::process::setrlimit(Resource::Nofile, rich).unwrap();
        drop(fillers);
    });
}

#[test]
fn a_refused_capacity_leaves_the_pipe_as_it_was() {
    alone(|| {
        let max = max_capacity().unwrap();
        fork(|| {
            let (mut reader, mut writer) = pair().unwrap();
            let before = writer.capacity().unwrap();
            // The pipe holds two pages.
            writer.send([1; 4000], PATIENCE).unwrap();
            writer.send([2; 4000], PATIENCE).unwrap();
            for refused in [reader.set_capacity(1), writer.set_capacity(4096)] {
                assert_eq!(refusal(refused), (ErrorKind::Os, Some(libc::EBUSY)));
            }
            assert_eq!(writer.capacity(), Ok(before));
            if become_nobody() || !rustix::process::geteuid().is_root() {
                for refused in [reader.set_capacity(2 * max), writer.set_capacity(2 * max)] {
                    assert_eq!(refusal(refused), (ErrorKind::Os, Some(libc::EPERM)));
                }
                assert_eq!(reader.capacity(), Ok(before));
            }
            assert!(writer.set_capacity(usize::MAX).is_err());
            assert_eq!(writer.set_capacity_or_max(2 * max), Ok(max));
            assert_eq!(reader.recv(PATIENCE).as_deref(), Ok(&[1; 4000][..]));
            assert_eq!(reader.recv(PATIENCE).as_deref(), Ok(&[2; 4000][..]));
            assert_eq!(reader.set_capacity_or_max(1), Ok(writer.pipe_buf()));
            exercise(&mut reader, &mut writer);
        })
        .join();
    });
}

/// A user with many pipes gets small ones from then on, which cannot grow.
#[test]
fn small_pipes_of_a_user_with_many_pipes_work() {
    alone(|| {
        fork(|| {
            become_nobody();
            let mut many = Vec::new();
            let (mut reader, mut writer) = loop {
                let (reader, mut writer) = pair().unwrap();
                if writer.capacity().unwrap() < 64 << 10 {
                    break (reader, writer);
                }
                let grown = writer.set_capacity_or_max(usize::MAX);
                many.push((reader, writer));
                // Root with its rights, or a system without that limit.
                if grown.is_ok() && many.len() == 200 {
                    return say(
                        "small_pipes_of_a_user_with_many_pipes_work did not run: nothing is limited here",
                    );
                }
            };
            let capacity = writer.capacity().unwrap();
            assert_eq!(refusal(writer.set_capacity(64 << 10)), (ErrorKind::Os, Some(libc::EPERM)));
            assert_eq!(writer.capacity(), Ok(capacity));
            exercise(&mut reader, &mut writer);
        })
        .join();
    });
}

/// A process that gave up root's rights may not open its own FIFO a second time. Calls that must
/// not wait on a FIFO do that.
#[test]
fn fifo_opened_with_more_rights_works_after_giving_them_up() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let mut listener = Options::new().listen_fifo(&path).unwrap();
        let mut writer = Options::new().write_fifo(&path, PATIENCE).unwrap();
        let mut reader = Options::new().reader(File::open(&path).unwrap()).unwrap();
        fork(|| {
            if !become_nobody() {
                return left_out(
                    "fifo_opened_with_more_rights_works_after_giving_them_up",
                    "it takes root to give up rights",
                );
            }
            let proc = format!("/proc/self/fd/{}", writer.as_fd().as_raw_fd());
            assert!(File::options().write(true).open(proc).is_err(), "it cannot be opened again");
            exercise(&mut reader, &mut writer);
            assert_eq!(listener.try_recv(), Ok(None));
        })
        .join();
        drop(listener);
    });
}

// ---------------------------------------------------------------- the system calls themselves

/// Traces a process that sends in every way, and checks each of its writes to a pipe.
#[test]
fn no_write_is_larger_than_pipe_buf() {
    const NAME: &str = "atomic::strangers::no_write_is_larger_than_pipe_buf";
    if is_alone() {
        return send_in_every_way();
    }
    let folder = Folder::new();
    let trace = folder.join("trace");
    // Every call that puts bytes into a descriptor; -y shows what the descriptor is.
    let calls = "trace=write,writev,pwrite64,pwritev,pwritev2,splice,vmsplice,tee,sendfile,sendto,sendmsg";
    let through = ["strace", "-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-e", calls, "-o"];
    let through = [&through[..], &[trace.to_str().unwrap()]].concat();
    if Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .map_or(true, |status| !status.success())
    {
        return left_out(NAME, "no strace, or it is not permitted");
    }
    let child = again(&through, NAME).stdout(Stdio::null()).spawn().unwrap();
    assert!(within(PATIENCE, child).success());

    let (mut writes, mut bytes) = (0, 0);
    for line in BufReader::new(File::open(&trace).unwrap()).lines() {
        let line = line.unwrap();
        // `123 pwritev2(4<pipe:[5]>, [{iov_base=""..., iov_len=4096}], 1, -1, RWF_NOWAIT) = 4096`
        if !line.contains("<pipe:[") && !line.contains("/pipe>") || line.contains("unfinished") {
            continue;
        }
        let result = line.rsplit_once(" = ").expect("a result").1.split(' ').next().unwrap();
        let len: i64 = result.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
        assert!(line.contains("write"), "no bytes go into a pipe in this way: {line}");
        assert!(len <= 4096, "larger than PIPE_BUF: {line}");
        if let Some(asked) = line.split("iov_len=").nth(1) {
            let asked = asked.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            assert!(asked.parse::<i64>().unwrap() <= 4096, "larger than PIPE_BUF: {line}");
        }
        writes += i64::from(len > 0);
        bytes += len.max(0);
    }
    say(&format!("strace: {bytes} bytes in {writes} writes of at most 4096"));
    assert!(bytes > 12 * 300_000 && writes * 4096 >= bytes);
}

fn send_in_every_way() {
    let folder = Folder::new();
    let path = folder.join("pipe");
    create_fifo(&path).unwrap();
    for (mixed, zstd, fifo) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
        let options = Options::new().mixed(mixed);
        let options = if zstd { options.zstd(Zstd::new().with_level(1)) } else { options };
        let (mut reader, mut writer) = if fifo {
            (options.read_fifo(&path).unwrap(), options.write_fifo(&path, PATIENCE).unwrap())
        } else {
            options.pair().unwrap()
        };
        // Bytes that do not compress.
        let large = crate::harness::Random::new(1).bytes(300_000);
        let drain = thread::spawn(move || reader.items().map(|item| drop(item.unwrap())).count());
        writer.send(&large, Deadline::NEVER).unwrap();
        writer.send(&large, PATIENCE).unwrap();
        if mixed {
            writer.burst("burst", PATIENCE).unwrap();
        }
        writer.send_many(&[&large[..4000], &large[..890], &large[..890], &large], PATIENCE).unwrap();
        writer.try_send(&large).unwrap();
        writer.enqueue(&large[..5000]).unwrap();
        writer.enqueue("").unwrap();
        drop(writer);
        assert_eq!(drain.join().unwrap(), if mixed { 10 } else { 9 });
    }
}
