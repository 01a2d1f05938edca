//! Room `fd` on real descriptors: storms of connections, a process without descriptors, every pair of kinds, signals, full disks.
//!
//! Every test runs in a process of its own, which counts its descriptors before and after.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipework::fd::{
    Accepted, CWD, Inbox, PollFd, PollFlags, Reserve, Shed, SocketAddrAny, Stopped, accept_many, copy_all,
    mkstemp_at, mktemp_at, option_bytes, option_number, poll, pread_full, pwrite_all, read_full, send_many,
    sendfile_all, set_option_number, slurp, splice_all, write_all,
};
use pipework::{Deadline, Error, ErrorKind, Unfinished};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit};

use crate::harness::{
    Folder, PATIENCE, Random, alarms, alone, cost, descriptors, let_sigpipe_kill, ring_alarms, say,
};

const SHORT: Duration = Duration::from_millis(20);

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

fn clients(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect()
}

fn refusal(outcome: Result<u64, Unfinished>) -> (u64, ErrorKind, Option<i32>) {
    let unfinished = outcome.expect_err("a refusal");
    (unfinished.done, unfinished.kind(), unfinished.error.errno())
}

/// Bytes that no shift leaves alike.
fn pattern(len: usize) -> Vec<u8> {
    Random::new(4).bytes(len)
}

// ---------------------------------------------------------------- accepting

#[test]
fn all_who_wait_are_accepted_and_named() {
    alone(|| {
        let listener = listener();
        let waiting = clients(&listener, 100);
        let Accepted { connections, stopped } = accept_many(&listener, 60);
        assert_eq!((connections.len(), stopped), (60, Stopped::Limit));
        let rest = accept_many(&listener, usize::MAX);
        assert_eq!((rest.connections.len(), rest.stopped), (40, Stopped::WouldBlock));
        for (mut client, connection) in
            waiting.into_iter().zip(connections.into_iter().chain(rest.connections))
        {
            let peer = SocketAddr::try_from(connection.peer.expect("TCP has addresses"));
            assert_eq!(peer, Ok(client.local_addr().unwrap()));
            assert_eq!(rustix::io::fcntl_getfd(&connection.fd).unwrap(), FdFlags::CLOEXEC);
            assert!(rustix::fs::fcntl_getfl(&connection.fd).unwrap().contains(OFlags::NONBLOCK));
            write_all(&connection.fd, b"served", PATIENCE).unwrap();
            drop(connection.fd);
            let mut got = String::new();
            client.read_to_string(&mut got).unwrap();
            assert_eq!(got, "served");
        }
        let none = accept_many(&listener, 0);
        assert_eq!((none.connections.len(), none.stopped), (0, Stopped::Limit));
    });
}

#[test]
fn a_listener_that_blocks_is_not_waited_for_and_stays_as_it_is() {
    alone(|| {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        let clients: Vec<_> = (0..3).map(|_| UnixStream::connect(folder.join("socket")).unwrap()).collect();
        let accepted = accept_many(&listener, 64);
        assert_eq!((accepted.connections.len(), accepted.stopped), (3, Stopped::WouldBlock));
        assert!(!rustix::fs::fcntl_getfl(&listener).unwrap().contains(OFlags::NONBLOCK));
        drop(clients);
    });
}

#[test]
fn a_process_without_descriptors_serves_some_turns_some_away_and_loses_none() {
    alone(|| {
        const SPARE: usize = 5;
        let listener = listener();
        let mut reserve = Reserve::new().unwrap();
        let waiting = clients(&listener, 20);
        leave_descriptors(SPARE);
        let accepted = accept_many(&listener, 64);
        assert_eq!(accepted.connections.len(), SPARE);
        let Stopped::NoDescriptors(error) = accepted.stopped else { panic!("{:?}", accepted.stopped) };
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::EMFILE)));
        // Trying again comes to nothing, at once.
        assert_eq!(accept_many(&listener, 64).stopped, Stopped::NoDescriptors(error));

        assert_eq!(reserve.shed(&listener, 10), Shed { turned_away: 10, stopped: Stopped::Limit });
        assert!(reserve.is_held());
        let mut waiting = waiting.into_iter();
        for mut turned_away in waiting.by_ref().skip(SPARE).take(10) {
            assert_eq!(turned_away.read(&mut [0; 1]).unwrap(), 0);
        }
        // Whoever was not turned away has waited, and is served as others leave.
        drop(accepted.connections);
        let rest = accept_many(&listener, 64);
        assert_eq!(rest.connections.len(), 5);
        for (mut client, connection) in waiting.zip(&rest.connections) {
            write_all(&connection.fd, b"!", PATIENCE).unwrap();
            assert_eq!(client.read(&mut [0; 2]).unwrap(), 1);
        }
    });
}

/// Lets this process open `count` descriptors more, and says what its limit was.
fn leave_descriptors(count: usize) -> Rlimit {
    let before = rustix::process::getrlimit(Resource::Nofile);
    // A new descriptor has the lowest number that is free, and the limit is one on numbers.
    let next: Vec<_> = (0..=count).map(|_| rustix::io::dup(std::io::stdin()).unwrap()).collect();
    let limit = next[count].as_raw_fd() as u64;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    before
}

#[test]
fn many_threads_accept_each_connection_once() {
    alone(|| {
        const ASKERS: usize = 2;
        const EACH: usize = 200;
        let (listener, served) = (listener(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while served.load(Ordering::SeqCst) < ASKERS * EACH {
                        poll(&mut [PollFd::new(&listener, PollFlags::IN)], SHORT).unwrap();
                        for connection in accept_many(&listener, 16).connections {
                            write_all(&connection.fd, b"1", PATIENCE).unwrap();
                            served.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            for _ in 0..ASKERS {
                scope.spawn(|| {
                    for mut client in clients(&listener, EACH) {
                        let mut got = String::new();
                        client.read_to_string(&mut got).unwrap();
                        assert_eq!(got, "1");
                    }
                });
            }
        });
        assert_eq!(served.into_inner(), ASKERS * EACH);
    });
}

// ---------------------------------------------------------------- copying

/// What bytes go into and come out of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    File,
    Pipe,
    Local,
    Tcp,
}

const KINDS: [Kind; 4] = [Kind::File, Kind::Pipe, Kind::Local, Kind::Tcp];

impl Kind {
    /// Where to write and where to read.
    fn ends(self) -> (OwnedFd, OwnedFd) {
        match self {
            Kind::File => {
                let (fd, path) =
                    mkstemp_at(CWD, std::env::temp_dir().join("pipework-test-XXXXXX").as_os_str()).unwrap();
                let again = File::open(&path).unwrap();
                fs::remove_file(path).unwrap();
                (fd, again.into())
            }
            Kind::Pipe => {
                let (read, write) = std::io::pipe().unwrap();
                (write.into(), read.into())
            }
            Kind::Local => {
                let (near, far) = UnixStream::pair().unwrap();
                (near.into(), far.into())
            }
            Kind::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                (near.into(), listener.accept().unwrap().0.into())
            }
        }
    }
}

fn drain(fd: impl AsFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    slurp(fd, &mut bytes, usize::MAX, PATIENCE).unwrap();
    bytes
}

#[test]
fn a_target_that_is_full_costs_time_and_nothing_else() {
    alone(|| {
        let sent = pattern(20 << 20);
        for from in KINDS {
            for to in [Kind::Pipe, Kind::Local, Kind::Tcp] {
                let ((into, source), (target, out)) = (from.ends(), to.ends());
                let flags = [&source, &target].map(|fd| rustix::fs::fcntl_getfl(fd).unwrap());
                thread::scope(|scope| {
                    let fill = || write_all(&{ into }, &sent, PATIENCE).unwrap();
                    if from == Kind::File {
                        fill()
                    } else {
                        scope.spawn(fill);
                    }
                    let begin = Instant::now();
                    let (first, why, _) = refusal(copy_all(&source, &target, u64::MAX, SHORT));
                    assert_eq!(why, ErrorKind::TimedOut, "{from:?} to {to:?}");
                    assert!(first >= 4096 && begin.elapsed() < PATIENCE, "{from:?} to {to:?}: {first}");
                    assert_eq!([&source, &target].map(|fd| rustix::fs::fcntl_getfl(fd).unwrap()), flags);

                    let drained = scope.spawn(move || drain(out));
                    let second = copy_all(&source, &target, u64::MAX, PATIENCE).unwrap();
                    drop(target);
                    assert_eq!(first + second, sent.len() as u64, "{from:?} to {to:?}");
                    assert!(drained.join().unwrap() == sent, "{from:?} to {to:?}");
                });
            }
        }
    });
}

/// Repeats `step`, which is told what has been done, for as long as signals end it; what was done in all.
fn persist(step: impl Fn(u64) -> Result<u64, Unfinished>) -> u64 {
    let mut done = 0;
    loop {
        match step(done) {
            Ok(last) => return done + last,
            Err(why) => {
                assert_eq!(why.kind(), ErrorKind::Interrupted);
                done += why.done;
            }
        }
    }
}

/// Somebody who shares the socket peeks into it at an offset, which moves with every look of
/// everybody.
#[test]
fn a_socket_that_is_peeked_into_at_an_offset_is_copied_from_its_beginning() {
    alone(|| {
        let sent = pattern(300_000);
        let folder = Folder::new();
        for kind in [Kind::Local, Kind::Tcp] {
            for (off, patience) in [0, 1, 5000].into_iter().flat_map(|off| [(off, true), (off, false)]) {
                let (into, source) = kind.ends();
                if set_option_number(&source, libc::SOL_SOCKET, libc::SO_PEEK_OFF, off).is_err() {
                    say(&format!("no peek offset for {kind:?} sockets here"));
                    continue;
                }
                let deadline = if patience { Deadline::from(PATIENCE) } else { Deadline::NEVER };
                let path = folder.join("copy");
                let copied = thread::scope(|scope| {
                    scope.spawn(|| write_all(&{ into }, &sent, PATIENCE).unwrap());
                    copy_all(&source, File::create(&path).unwrap(), u64::MAX, deadline).unwrap()
                });
                assert_eq!(copied, sent.len() as u64);
                assert!(fs::read(&path).unwrap() == sent, "{kind:?}, offset {off}");
            }
            // With nothing behind the offset, a copy waits for its deadline, and sleeps meanwhile.
            let (into, source) = kind.ends();
            if set_option_number(&source, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 3).is_ok() {
                write_all(&into, b"abc", PATIENCE).unwrap();
                let (begin, before) = (Instant::now(), cost().0);
                let target = File::create(folder.join("copy")).unwrap();
                let (done, why, _) = refusal(copy_all(&source, &target, u64::MAX, 10 * SHORT));
                assert_eq!((done, why), (3, ErrorKind::TimedOut));
                assert!(begin.elapsed() < PATIENCE && cost().0 - before < 5 * SHORT);
            }
        }
    });
}

#[test]
fn signals_end_a_copy_and_it_goes_on_where_it_was() {
    alone(|| {
        let sent = pattern(3 << 20);
        ring_alarms();
        for from in KINDS {
            for to in KINDS {
                let ((into, source), (target, out)) = (from.ends(), to.ends());
                let fill = || {
                    let rest = |done: u64| write_all(&into, &sent[done as usize..], Deadline::NEVER);
                    persist(|done| rest(done).map(|()| sent.len() as u64 - done));
                    drop(into);
                };
                let empty = || {
                    let bytes = std::cell::RefCell::new(Vec::new());
                    persist(|_| {
                        slurp(&out, &mut bytes.borrow_mut(), usize::MAX, PATIENCE).map(|len| len as u64)
                    });
                    bytes.into_inner()
                };
                let copy = || {
                    let copied = persist(|_| copy_all(&source, &target, u64::MAX, Deadline::NEVER));
                    assert_eq!(copied, sent.len() as u64, "{from:?} to {to:?}");
                    drop(target);
                };
                // A file is filled before and read afterwards; whatever waits has somebody at its other end.
                let came = thread::scope(|scope| match (from, to) {
                    (Kind::File, Kind::File) => {
                        fill();
                        copy();
                        empty()
                    }
                    (Kind::File, _) => {
                        fill();
                        scope.spawn(copy);
                        empty()
                    }
                    (_, Kind::File) => {
                        scope.spawn(fill);
                        copy();
                        empty()
                    }
                    _ => {
                        scope.spawn(fill);
                        scope.spawn(copy);
                        empty()
                    }
                });
                assert!(came == sent, "{from:?} to {to:?}");
            }
        }
        say(&format!("{} alarms rang", alarms()));
        assert!(alarms() > 0);
    });
}

#[test]
fn a_file_of_unknown_length_is_copied_whole() {
    alone(|| {
        for path in ["/proc/self/status", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled"]
        {
            let Ok(source) = File::open(path) else { continue };
            let (target, out) = Kind::File.ends();
            let copied = copy_all(&source, &target, u64::MAX, PATIENCE).unwrap();
            let came = drain(&out);
            assert!(copied > 0 && copied == came.len() as u64, "{path}");
            if path != "/proc/self/status" {
                assert!(came == fs::read(path).unwrap(), "{path}");
            }
        }
    });
}

#[test]
fn a_full_disk_takes_nothing_from_the_source() {
    alone(|| {
        let sent = pattern(100_000);
        let full = File::options().write(true).open("/dev/full").unwrap();
        for from in KINDS {
            for deadline in [Deadline::NEVER, PATIENCE.into()] {
                let (into, source) = from.ends();
                thread::scope(|scope| {
                    let fill = || write_all(&{ into }, &sent, PATIENCE).unwrap();
                    if from == Kind::File {
                        fill()
                    } else {
                        scope.spawn(fill);
                    }
                    assert_eq!(
                        refusal(copy_all(&source, &full, u64::MAX, deadline)),
                        (0, ErrorKind::Os, Some(libc::ENOSPC)),
                        "{from:?}"
                    );
                    assert!(drain(&source) == sent, "{from:?}");
                });
            }
        }
    });
}

#[test]
fn devices_and_appended_files_are_copied_by_hand() {
    alone(|| {
        let folder = Folder::new();
        let mut appended = File::options().append(true).create(true).open(folder.join("log")).unwrap();
        appended.write_all(b"first ").unwrap();
        let zero = File::open("/dev/zero").unwrap();
        assert_eq!(copy_all(&zero, &appended, 10_000, PATIENCE), Ok(10_000));
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b" last").unwrap();
        drop(write);
        assert_eq!(copy_all(&read, &appended, u64::MAX, Deadline::NEVER), Ok(5));
        let log = fs::read(folder.join("log")).unwrap();
        assert_eq!((log.len(), &log[..6], &log[10_006..]), (10_011, &b"first "[..], &b" last"[..]));
        // Only copies choose; a splice was asked for by name.
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"stays").unwrap();
        assert_eq!(refusal(splice_all(&read, &appended, 5, PATIENCE)).1, ErrorKind::Invalid);
        let (target, out) = Kind::Tcp.ends();
        assert_eq!(splice_all(&read, &target, 5, PATIENCE), Ok(5));
        let mut got = [0; 5];
        assert_eq!(read_full(&out, &mut got, PATIENCE), Ok(5));
        assert_eq!(&got, b"stays");
        // A deadline holds for the source too.
        assert_eq!(refusal(splice_all(&out, &write, 5, SHORT)), (0, ErrorKind::TimedOut, None));
        assert_eq!(refusal(copy_all(&read, &target, 5, SHORT)), (0, ErrorKind::TimedOut, None));
    });
}

#[test]
fn nobody_is_killed_by_sigpipe() {
    alone(|| {
        let_sigpipe_kill();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        for kind in [Kind::Pipe, Kind::Local, Kind::Tcp] {
            for deadline in [Deadline::NEVER, PATIENCE.into()] {
                let (target, out) = kind.ends();
                drop(out);
                let until_told = |step: &dyn Fn() -> Result<u64, Unfinished>| {
                    let told = (0..1000).find_map(|_| {
                        // The first bytes to a closed TCP connection are what makes its peer say so.
                        thread::sleep(Duration::from_micros(100));
                        step().err()
                    });
                    assert_eq!(told.expect("a closed end is noticed").kind(), ErrorKind::Closed, "{kind:?}");
                };
                until_told(&|| write_all(&target, b"to nobody", deadline).map(|()| 9));
                until_told(&|| copy_all(&file, &target, 100, deadline));
                until_told(&|| sendfile_all(&target, &file, 0, 100, deadline));
                let (read, mut write) = std::io::pipe().unwrap();
                write.write_all(&[0; 100]).unwrap();
                until_told(&|| splice_all(&read, &target, 1, deadline));
                assert!(sigpipe_is_not_pending());
            }
        }
    });
}

fn sigpipe_is_not_pending() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let bits = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let sigpipe = 1 << (libc::SIGPIPE - 1);
    (bits("SigPnd:") | bits("SigBlk:")) & sigpipe == 0
}

// ---------------------------------------------------------------- wrong ones

/// One of each kind of descriptor, by name.
fn zoo(folder: &Folder) -> Vec<(&'static str, OwnedFd)> {
    let (read, write) = std::io::pipe().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let file = folder.join("file");
    fs::write(&file, "content").unwrap();
    vec![
        ("folder", File::open(std::env::temp_dir()).unwrap().into()),
        ("path", rustix::fs::open(&file, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()),
        ("file to read", File::open(&file).unwrap().into()),
        ("file to write", File::options().write(true).open(&file).unwrap().into()),
        ("pipe to read", read.into()),
        ("pipe to write", write.into()),
        ("stream", near.into()),
        ("its peer", far.into()),
        ("listener", listener().into()),
        (
            "unconnected",
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
                .unwrap(),
        ),
        ("datagrams", UdpSocket::bind("127.0.0.1:0").unwrap().into()),
        ("epoll", epoll),
        ("eventfd", rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()),
        ("null", File::options().read(true).write(true).open("/dev/null").unwrap().into()),
        ("zero", File::open("/dev/zero").unwrap().into()),
    ]
}

#[test]
fn whatever_the_descriptor_is_the_answer_is_an_answer() {
    alone(|| {
        let folder = Folder::new();
        let soon = || Deadline::after(Duration::from_millis(2));
        let zoo = zoo(&folder);
        let before = descriptors();
        let mut tries = 0;
        for (name, fd) in &zoo {
            let begin = Instant::now();
            for len in [0, 1, 1 << 16, u64::MAX] {
                let (mut buf, bytes) = (vec![0; len.min(1 << 17) as usize], vec![0; len.min(100) as usize]);
                let _ = read_full(fd, &mut buf, soon());
                let _ = write_all(fd, &bytes, soon());
                let _ = slurp(fd, &mut Vec::new(), len.min(1 << 20) as usize, soon());
                for offset in [0, len, u64::MAX] {
                    let _ = pread_full(fd, &mut buf, offset);
                    let _ = pwrite_all(fd, &bytes, offset);
                }
                // "/dev/zero" has no end, so a copy of all of it would only end with its deadline.
                for (_, other) in &zoo {
                    let _ = copy_all(fd, other, len, soon());
                    let _ = splice_all(fd, other, len, soon());
                    let _ = sendfile_all(other, fd, len, len, soon());
                    tries += 3;
                }
                let _ = accept_many(fd, len as usize);
                let _ = option_number(fd, len as i32, len as i32);
                let _ = option_bytes(fd, 1, len as i32, &mut buf);
                let _ = set_option_number(fd, len as i32, 1, -1);
            }
            let _ = Inbox::new(usize::MAX, 100).unwrap().recv(fd, soon());
            let _ = send_many(fd, &[(b"?", None), (b"", None)], soon());
            let _ = mkstemp_at(fd, "never/XXXXXX".as_ref());
            let _ = mktemp_at(fd, "never/XXXXXX".as_ref());
            assert!(begin.elapsed() < PATIENCE / 2, "{name} is waited for");
            assert_eq!(descriptors(), before, "{name} leaves something open");
        }
        say(&format!("{tries} copies of each kind to each other"));
        assert_eq!(Inbox::new(1, usize::MAX).map(drop).unwrap_err().errno(), Some(libc::ENOMEM));
        assert_eq!(Inbox::new(2, usize::MAX).map(drop).unwrap_err().errno(), Some(libc::ENOMEM));
        assert_eq!(Inbox::new(0, 1).map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_wrong_kind_is_told_by_its_kind() {
    alone(|| {
        let folder = Folder::new();
        let zoo = zoo(&folder);
        let get = |name: &str| &zoo.iter().find(|(known, _)| *known == name).expect("it is there").1;
        let kind = |outcome: Result<u64, Unfinished>| outcome.unwrap_err().kind();
        assert_eq!(kind(copy_all(get("folder"), get("null"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("file to write"), get("null"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("file to read"), get("pipe to read"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("file to read"), get("file to write"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("pipe to read"), get("pipe to write"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("datagrams"), get("null"), 1, SHORT)), ErrorKind::Unsupported);
        assert_eq!(kind(copy_all(get("zero"), get("datagrams"), 1, SHORT)), ErrorKind::Unsupported);
        assert_eq!(kind(splice_all(get("file to read"), get("null"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(sendfile_all(get("null"), get("pipe to read"), 0, 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(
            kind(pread_full(get("pipe to read"), &mut [0; 1], 0).map(|len| len as u64)),
            ErrorKind::Invalid
        );
        assert_eq!(kind(pwrite_all(get("stream"), b"1", 0).map(|()| 1)), ErrorKind::Invalid);
        assert_eq!(
            kind(send_many(get("stream"), &[(b"1", None)], SHORT).map(|()| 1)),
            ErrorKind::Unsupported
        );
        assert_eq!(kind(send_many(get("epoll"), &[(b"1", None)], SHORT).map(|()| 1)), ErrorKind::Invalid);
        let failed = |name| match accept_many(get(name), 1).stopped {
            Stopped::Failed(error) => error.kind(),
            other => panic!("{other:?}"),
        };
        assert_eq!(["stream", "datagrams", "file to read", "unconnected"].map(failed), {
            use ErrorKind::{Invalid, Unsupported};
            [Invalid, Unsupported, Invalid, Invalid]
        });
        assert_eq!(
            option_number(get("null"), libc::SOL_SOCKET, libc::SO_TYPE).unwrap_err().kind(),
            ErrorKind::Invalid
        );
        assert_eq!(
            option_number(get("stream"), libc::SOL_SOCKET, 12345).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        let longer = option_number(get("stream"), libc::SOL_SOCKET, libc::SO_PEERCRED).unwrap_err().kind();
        assert_eq!(longer, ErrorKind::Incompatible);
    });
}

#[test]
fn whatever_runs_out_half_way_nothing_stays_open() {
    alone(|| {
        let folder = Folder::new();
        let (into, source) = Kind::Pipe.ends();
        write_all(&into, b"content", PATIENCE).unwrap();
        let appended = File::options().append(true).create(true).open(folder.join("log")).unwrap();
        let tight = |error: Error| assert_eq!(error.errno(), Some(libc::EMFILE));
        for spare in 0..2 {
            let free = leave_descriptors(spare);
            let before = descriptors_left(spare);
            // A pipe of its own takes two.
            tight(copy_all(&source, &appended, u64::MAX, SHORT).unwrap_err().error);
            if spare == 0 {
                tight(Reserve::new().map(drop).unwrap_err());
                tight(mkstemp_at(CWD, folder.join("XXXXXX").as_os_str()).map(drop).unwrap_err());
            }
            assert_eq!(descriptors_left(spare), before);
            rustix::process::setrlimit(Resource::Nofile, free).unwrap();
        }
        drop(into);
        assert_eq!(copy_all(&source, &appended, u64::MAX, PATIENCE), Ok(7));
        assert_eq!(fs::read(folder.join("log")).unwrap(), b"content");
        assert_eq!(fs::read_dir(folder.join("log").parent().unwrap()).unwrap().count(), 1);
    });
}

/// How many descriptors can be opened, `most` at most.
fn descriptors_left(most: usize) -> usize {
    let taken: Vec<_> = (0..=most).map_while(|_| rustix::io::dup(std::io::stdin()).ok()).collect();
    taken.len()
}

// ---------------------------------------------------------------- files, options, datagrams

#[test]
fn records_are_read_one_a_call_and_files_at_any_position() {
    alone(|| {
        let (target, out) = Kind::File.ends();
        let sent = pattern(10_000);
        pwrite_all(&target, &sent[5000..], 5000).unwrap();
        pwrite_all(&target, &sent[..5000], 0).unwrap();
        let mut record = [0; 1234];
        let records: Vec<_> = std::iter::from_fn(|| {
            let len = read_full(&out, &mut record, PATIENCE).unwrap();
            (len > 0).then(|| record[..len].to_vec())
        })
        .collect();
        assert_eq!(records.iter().map(Vec::len).collect::<Vec<_>>(), [&[1234; 8][..], &[128]].concat());
        assert!(records.concat() == sent);
        let mut got = vec![0; 3000];
        assert_eq!(pread_full(&out, &mut got, 8000), Ok(2000));
        assert!(got[..2000] == sent[8000..]);
        // The position is the descriptor's own, and a slurp begins there.
        let mut file = File::from(out);
        file.seek(SeekFrom::Start(9000)).unwrap();
        assert!(drain(&file) == sent[9000..]);
        assert!(drain(File::open("/proc/self/status").unwrap()).len() > 100);
        assert_eq!(drain(File::open("/dev/null").unwrap()), b"");
    });
}

#[test]
fn temporary_names_are_new_private_and_in_their_folder() {
    alone(|| {
        let folder = Folder::new();
        fs::create_dir(folder.join("sub")).unwrap();
        let sub = File::open(folder.join("sub")).unwrap();
        let made: Vec<_> = (0..50).map(|_| mkstemp_at(&sub, "a-XXXXXX".as_ref()).unwrap()).collect();
        let names: std::collections::BTreeSet<_> = made.iter().map(|(_, name)| name.clone()).collect();
        assert_eq!((names.len(), fs::read_dir(folder.join("sub")).unwrap().count()), (50, 50));
        for (fd, name) in &made {
            assert!(name.len() == 8 && name.to_str().unwrap().starts_with("a-"));
            let (by_fd, by_name) = (File::from(fd.try_clone().unwrap()), folder.join("sub").join(name));
            assert_eq!(by_fd.metadata().unwrap().ino(), fs::symlink_metadata(&by_name).unwrap().ino());
            assert_eq!(by_fd.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(rustix::io::fcntl_getfd(fd).unwrap(), FdFlags::CLOEXEC);
        }
        // All of the X at the end are replaced, and none before them.
        let (_, long) = mkstemp_at(&sub, "XXXXXX-XXXXXXXXXXXXXXXXXXXX".as_ref()).unwrap();
        assert!(long.to_str().unwrap().starts_with("XXXXXX-") && !long.to_str().unwrap().ends_with("XXXXXX"));
        let free = mktemp_at(CWD, folder.join("free-XXXXXX").as_os_str()).unwrap();
        assert!(!fs::exists(free).unwrap());
        for bad in ["", "XXXXX", "XXXXXXx", "a-XXXXXX.txt"] {
            assert_eq!(mkstemp_at(&sub, bad.as_ref()).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
            assert_eq!(mktemp_at(&sub, bad.as_ref()).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
        for bad in ["nowhere/XXXXXX", "a\0XXXXXX"] {
            assert!(mkstemp_at(&sub, bad.as_ref()).is_err(), "{bad:?}");
        }
    });
}

#[test]
fn options_go_in_and_come_out_as_numbers() {
    alone(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (name, value) in [(libc::SO_KEEPALIVE, 1), (libc::SO_BROADCAST, 1), (libc::SO_BROADCAST, 0)] {
            set_option_number(&socket, libc::SOL_SOCKET, name, value).unwrap();
            assert_eq!(option_number(&socket, libc::SOL_SOCKET, name), Ok(value));
        }
        assert_eq!(option_number(&socket, libc::SOL_SOCKET, libc::SO_TYPE), Ok(libc::SOCK_DGRAM));
        let mut long = [7; 100];
        assert_eq!(option_bytes(&socket, libc::SOL_SOCKET, libc::SO_LINGER, &mut long), Ok(8));
        assert_eq!(long, [0; 100]);
    });
}

#[test]
fn datagrams_come_in_order_with_their_sender_and_are_cut_openly() {
    alone(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0"));
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to: SocketAddrAny = receiver.local_addr().unwrap().into();
        let bodies: Vec<Vec<u8>> = (0..150u8).map(|i| vec![i; usize::from(i)]).collect();
        let all: Vec<(&[u8], _)> = bodies.iter().map(|body| (body.as_slice(), Some(&to))).collect();
        send_many(&here, &all, PATIENCE).unwrap();
        let mut inbox = Inbox::new(64, 120).unwrap();
        let mut come = 0;
        while come < bodies.len() {
            let got = inbox.recv(&receiver, PATIENCE).unwrap();
            assert!((1..=Inbox::MOST).contains(&got) && got == inbox.iter().len());
            for datagram in inbox.iter() {
                let body = &bodies[come];
                assert_eq!(datagram.bytes, &body[..body.len().min(120)]);
                assert_eq!(datagram.is_cut, body.len() > 120);
                let from = SocketAddr::try_from(datagram.from.unwrap().clone());
                assert_eq!(from, Ok(here.local_addr().unwrap()));
                come += 1;
            }
        }
        assert_eq!(inbox.recv(&receiver, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(inbox.iter().len(), 0);
        if let Ok(there) = there {
            let error = send_many(&there, &[(b"other family", Some(&to))], PATIENCE).unwrap_err();
            assert_eq!(error.done, 0);
        }
        assert_eq!(
            send_many(&here, &[(&[0; 70_000], Some(&to))], PATIENCE).unwrap_err().error.errno(),
            Some(libc::EMSGSIZE)
        );
    });
}

#[test]
fn a_full_queue_of_a_stranger_is_waited_for_without_spinning() {
    alone(|| {
        let folder = Folder::new();
        let receiver = UnixDatagram::bind(folder.join("socket")).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let to = rustix::net::SocketAddrUnix::new(folder.join("socket")).unwrap().into();
        let all: Vec<(&[u8], _)> = (0..1000).map(|_| (&b"more than it holds"[..], Some(&to))).collect();
        // User and system time of this process, in hundredths of a second: fields 14 and 15, counted from behind the name.
        let cpu = || {
            let stat = fs::read_to_string("/proc/self/stat").unwrap();
            let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
            fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
        };
        let before = cpu();
        let stopped = send_many(&sender, &all, Duration::from_millis(400)).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::TimedOut);
        let used = cpu() - before;
        assert!(used < 20, "{used} hundredths of a second of CPU in 40 of waiting");
        let mut inbox = Inbox::new(64, 100).unwrap();
        let mut come = 0;
        thread::scope(|scope| {
            let rest = scope.spawn(|| send_many(&sender, &all[stopped.done as usize..], PATIENCE));
            while come < all.len() {
                come += inbox.recv(&receiver, PATIENCE).unwrap();
            }
            rest.join().unwrap().unwrap();
        });
        assert_eq!(come, all.len());
    });
}

#[test]
fn descriptors_that_strangers_send_are_not_kept() {
    alone(|| {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (near, far) = UnixDatagram::pair().unwrap();
        let before = descriptors();
        let gift = [near.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&gift)));
        sendmsg(&near, &[std::io::IoSlice::new(b"a gift")], &mut ancillary, SendFlags::empty()).unwrap();
        let mut inbox = Inbox::new(2, 100).unwrap();
        assert_eq!(inbox.recv(&far, PATIENCE), Ok(1));
        assert_eq!(inbox.iter().next().unwrap().bytes, b"a gift");
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn a_poll_ends_with_its_deadline_or_with_what_it_waits_for() {
    alone(|| {
        let (read, mut write) = std::io::pipe().unwrap();
        let mut watched = [PollFd::new(&read, PollFlags::IN)];
        assert_eq!(poll(&mut watched, SHORT), Ok(0));
        assert_eq!(poll(&mut [], SHORT), Ok(0));
        write.write_all(b"1").unwrap();
        assert_eq!(poll(&mut watched, Deadline::NEVER), Ok(1));
        assert!(watched[0].revents().contains(PollFlags::IN));
    });
}
