//! Tests that need the inside of the crate: system calls that move little or fail on order,
//! compared with a naive copy; descriptors that are not open.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::OFlags;

use super::raw::tests::nobody;
use super::*;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Unfinished};
use crate::sys::fault::{Fault, KERNEL, all_met, order, unmet, with_deadly_sigpipe};
use crate::sys::{Blocking, write_nosignal};

const NOW: Duration = Duration::ZERO;
const PATIENCE: Duration = Duration::from_secs(60);

/// A file without a name.
fn file(content: &[u8]) -> File {
    let mut file = File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    file
}

fn content(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Bytes in which a shift or repetition always shows.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

// ---------------------------------------------------------------- copying

#[derive(Clone, Copy, Debug)]
enum CopyEnd {
    File,
    Appended,
    Pipe,
    Local,
    Tcp,
}

impl CopyEnd {
    /// A writing and a reading end, which are one file or are connected.
    fn ends(self) -> (OwnedFd, OwnedFd) {
        match self {
            CopyEnd::File | CopyEnd::Appended => {
                let file = file(b"");
                let again = file.try_clone().unwrap();
                if let CopyEnd::Appended = self {
                    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).unwrap();
                }
                (file.into(), again.into())
            }
            CopyEnd::Pipe => {
                let (read, write) = std::io::pipe().unwrap();
                (write.into(), read.into())
            }
            CopyEnd::Local => {
                let (near, far) = UnixStream::pair().unwrap();
                (near.into(), far.into())
            }
            CopyEnd::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                (near.into(), listener.accept().unwrap().0.into())
            }
        }
    }

    fn is_file(self) -> bool {
        matches!(self, CopyEnd::File | CopyEnd::Appended)
    }
}

fn place() -> impl Strategy<Value = CopyEnd> {
    prop::sample::select(vec![CopyEnd::File, CopyEnd::Appended, CopyEnd::Pipe, CopyEnd::Local, CopyEnd::Tcp])
}

/// A system call of the copying thread that moves little, is interrupted, returns EAGAIN or is
/// refused.
fn mishap() -> impl Strategy<Value = (&'static str, usize, Fault)> {
    let ways = vec!["copy_file_range", "sendfile", "splice"];
    let waits = vec!["sendfile", "splice", "tee", "send", "write", "write_nowait"];
    let calls =
        vec!["copy_file_range", "sendfile", "splice", "tee", "send", "write", "read", "recv", "pread"];
    let refusals = vec![libc::EINVAL, libc::EXDEV, libc::ENOSYS, libc::EPERM];
    let refused = (prop::sample::select(ways), 0usize..3, prop::sample::select(refusals));
    prop_oneof![
        2 => refused.prop_map(|(call, nth, errno)| (call, nth, Fault::Errno(errno))),
        2 => (prop::sample::select(waits), 0usize..6).prop_map(|(call, nth)| (call, nth, Fault::Errno(libc::EAGAIN))),
        2 => (prop::sample::select(calls.clone()), 0usize..6).prop_map(|(call, nth)| (call, nth, Fault::Errno(libc::EINTR))),
        4 => (prop::sample::select(calls), 0usize..8, 1usize..9000).prop_map(|(call, nth, len)| (call, nth, Fault::Short(len))),
    ]
}

fn set_nonblocking(fd: &OwnedFd, nonblocking: bool) {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap() - OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(fd, if nonblocking { flags | OFlags::NONBLOCK } else { flags }).unwrap();
}

fn drain(fd: OwnedFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::from(fd).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Repeats `step` while it is interrupted or times out; returns the sum of the amounts done.
fn persist(mut step: impl FnMut(u64) -> std::result::Result<u64, Unfinished>) -> u64 {
    let mut done = 0;
    for _ in 0..100_000 {
        match step(done) {
            Ok(last) => return done + last,
            Err(why) => {
                let again = [ErrorKind::Interrupted, ErrorKind::TimedOut];
                assert!(again.contains(&why.kind()), "{why}");
                done += why.done;
            }
        }
    }
    panic!("no progress");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn copy_all_matches_a_naive_copy_under_faults(
        from in place(),
        to in place(),
        size in 0usize..200_000,
        limit in prop_oneof![3 => Just(u64::MAX), 1 => 0u64..200_000],
        nonblocking in any::<(bool, bool)>(),
        // How long one attempt may take, in milliseconds; 0 is for ever.
        patience_ms in 0u64..3,
        mishaps in prop::collection::vec(mishap(), 0..8),
    ) {
        let sent = pattern(size);
        let expected = &sent[..size.min(usize::try_from(limit).unwrap_or(usize::MAX))];
        let (into, source) = from.ends();
        let (target, out) = to.ends();
        set_nonblocking(&source, nonblocking.0);
        set_nonblocking(&target, nonblocking.1);
        let flags = [&source, &target].map(|fd| rustix::fs::fcntl_getfl(fd).unwrap());

        let (copied, came, rest) = thread::scope(|scope| {
            // Files are filled first and read afterwards; anything that waits has a thread at its
            // other end.
            let fill = || File::from(into).write_all(&sent).unwrap();
            if from.is_file() {
                fill();
                rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
            } else {
                scope.spawn(fill);
            }
            let (drained, kept) = if to.is_file() { (None, Some(out)) } else { (Some(scope.spawn(|| drain(out))), None) };

            mishaps.iter().for_each(|(call, nth, fault)| order(call, *nth, *fault));
            let deadline = || if patience_ms == 0 { Deadline::NEVER } else { Duration::from_millis(patience_ms).into() };
            let copied = persist(|done| copy_all(&source, &target, limit - done, deadline()));
            all_met();
            assert_eq!([&source, &target].map(|fd| rustix::fs::fcntl_getfl(fd).unwrap()), flags);

            drop(target);
            let came = match (drained, kept) {
                (Some(drained), _) => drained.join().unwrap(),
                (None, kept) => content(&File::from(kept.unwrap())),
            };
            // The bytes that were not requested are still there.
            set_nonblocking(&source, false);
            (copied, came, drain(source))
        });
        prop_assert_eq!(copied, expected.len() as u64);
        prop_assert!(came == expected, "{} bytes arrived of {}", came.len(), expected.len());
        prop_assert!(rest == sent[expected.len()..], "{} bytes were left of {}", rest.len(), size - expected.len());
    }
}

#[test]
fn copy_by_hand_leaves_the_rest_of_a_packet_in_its_pipe() {
    let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::DIRECT;
    let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
    let sent = pattern(3000);
    rustix::io::write(&write, &sent).unwrap();
    drop(write);
    let to = file(b"");
    for (len, so_far) in [(1000, 1000), (u64::MAX, 3000)] {
        order("splice", 0, Fault::Errno(libc::EINVAL));
        order("write", 0, Fault::Short(700));
        assert_eq!(copy_all(&read, &to, len, Deadline::NEVER).unwrap(), len.min(2000));
        assert!(all_met(), "copied by hand, in pieces");
        assert!(content(&to) == sent[..so_far], "after {so_far} bytes");
    }
}

#[test]
fn copy_all_tries_the_next_way_after_a_refusal() {
    let sent = pattern(100_000);
    for (call, errno) in [("copy_file_range", libc::EXDEV), ("sendfile", libc::EINVAL)] {
        order("copy_file_range", 0, Fault::Errno(libc::EXDEV));
        order(call, usize::from(call == "copy_file_range"), Fault::Errno(errno));
        let (from, to) = (file(&sent), file(b""));
        assert_eq!(copy_all(&from, &to, u64::MAX, PATIENCE), Ok(100_000));
        assert_eq!(content(&to), sent);
        all_met();
    }
    // A length of 0 is not believed before a read has returned it.
    order("copy_file_range", 0, Fault::Short(0));
    let (from, to) = (file(&sent), file(b""));
    assert_eq!(copy_all(&from, &to, u64::MAX, PATIENCE), Ok(100_000));
    assert!(all_met());

    let (from, to) = (file(&sent), file(b""));
    for call in ["copy_file_range", "sendfile", "read"] {
        order(call, 0, Fault::Errno(libc::EPERM));
    }
    let refused = copy_all(&from, &to, u64::MAX, PATIENCE).unwrap_err();
    assert_eq!((refused.done, refused.kind(), refused.error.errno()), (0, ErrorKind::Os, Some(libc::EPERM)));
    assert!(all_met());
}

#[test]
fn failed_copy_reports_done_bytes_and_leaves_the_rest() {
    let sent = pattern(200_000);
    for from in [CopyEnd::File, CopyEnd::Pipe, CopyEnd::Local, CopyEnd::Tcp] {
        let (into, source) = from.ends();
        let to = file(b"");
        rustix::fs::fcntl_setfl(&to, OFlags::APPEND).unwrap();
        // By hand, for any source: its second block meets a full disk.
        for call in ["copy_file_range", "sendfile"] {
            order(call, 0, Fault::Errno(libc::EINVAL));
        }
        order("write", 1, Fault::Errno(libc::ENOSPC));
        let (full, rest) = thread::scope(|scope| {
            let fill = || File::from(into).write_all(&sent).unwrap();
            if from.is_file() {
                fill();
                rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
            } else {
                scope.spawn(fill);
            }
            (copy_all(&source, &to, u64::MAX, PATIENCE).unwrap_err(), drain(source))
        });
        all_met();
        assert_eq!((full.kind(), full.error.errno()), (ErrorKind::Os, Some(libc::ENOSPC)), "{from:?}");
        assert_eq!(full.done as usize + rest.len(), sent.len(), "{from:?}");
        assert!(full.done > 0 && content(&to) == sent[..full.done as usize], "{from:?}");
        assert!(rest == sent[full.done as usize..], "{from:?}");
    }
}

#[test]
fn sendfile_all_starts_at_its_offset_and_keeps_the_position() {
    let sent = pattern(300_000);
    let mut from = file(&sent);
    from.seek(SeekFrom::Start(7)).unwrap();
    for refused in [false, true] {
        let (target, out) = CopyEnd::Tcp.ends();
        set_nonblocking(&target, true);
        if refused {
            order("sendfile", 0, Fault::Errno(libc::EINVAL));
        }
        for nth in 1..4 {
            order("sendfile", nth, Fault::Errno(libc::EINTR));
            order("pread", nth, Fault::Short(100 * nth));
        }
        let came = thread::scope(|scope| {
            let drained = scope.spawn(|| drain(out));
            let sent = persist(|done| sendfile_all(&target, &from, 1000 + done, 250_000 - done, PATIENCE));
            assert_eq!(sent, 250_000);
            drop(target);
            drained.join().unwrap()
        });
        all_met();
        assert!(came == sent[1000..251_000]);
        assert_eq!(from.stream_position().unwrap(), 7);
    }
}

// ---------------------------------------------------------------- bytes

#[test]
fn read_full_and_write_all_continue_after_short_counts() {
    let sent = pattern(50_000);
    for deadline in [Deadline::NEVER, PATIENCE.into()] {
        let (write, read) = CopyEnd::Local.ends();
        thread::scope(|scope| {
            scope.spawn(|| {
                for call in ["write", "send"] {
                    order(call, 0, Fault::Short(1));
                    order(call, 0, Fault::Errno(libc::EAGAIN));
                    order(call, 1, Fault::Short(4000));
                }
                write_all(&write, &sent, deadline).unwrap();
                all_met();
            });
            for call in ["read", "recv"] {
                order(call, 0, Fault::Short(1));
                order(call, 0, Fault::Errno(libc::EAGAIN));
            }
            let mut got = vec![0; sent.len()];
            assert_eq!(read_full(&read, &mut got, deadline), Ok(sent.len()));
            all_met();
            assert!(got == sent);
        });
        drop(write);
        assert_eq!(read_full(&read, &mut [0; 10], deadline), Ok(0));
    }
}

/// Kernels before 6.18, and anything without a vectored write, such as an eventfd.
#[test]
fn write_all_works_if_nosignal_is_refused() {
    let _turn = KERNEL.lock();
    let (mut near, far) = UnixStream::pair().unwrap();
    let (_read, pipe) = std::io::pipe().unwrap();
    let eventfd = crate::sys::eventfd().unwrap();
    let mut file = file(b"old");
    let name = File::options().write(true).open("/proc/thread-self/comm").unwrap();
    let number = 7u64.to_ne_bytes();
    // On other kernels, any test may discover at any time that the flag is unknown.
    let is_known_here = write_nosignal(pipe.as_fd(), &number, Blocking::Native).is_ok();
    for (fd, is_the_kernel) in [
        (far.as_fd(), true),
        (pipe.as_fd(), true),
        (file.as_fd(), true),
        (eventfd.as_fd(), false),
        (name.as_fd(), false),
    ] {
        NOSIGNAL_REFUSED.set(false);
        order("nosignal", 0, Fault::Errno(libc::EOPNOTSUPP));
        write_all(fd, &number, Deadline::NEVER).unwrap();
        assert!(all_met() || !is_known_here);
        assert!(NOSIGNAL_REFUSED.is_set() == is_the_kernel || !is_known_here, "{fd:?}");
    }
    NOSIGNAL_REFUSED.set(false);
    let mut written = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut written).unwrap();
    assert_eq!(written, number);
    let mut got = [0; 8];
    near.read_exact(&mut got).unwrap();
    assert_eq!(got, number);
    assert_eq!((read_full(&eventfd, &mut got, NOW), got), (Ok(8), number));
}

/// As `trace_pipe` and files of FUSE do: poll reports that they are always ready.
#[test]
fn file_that_polls_ready_and_returns_eagain_is_retried_with_pauses() {
    const MOST: usize = 10_000;
    let again = |call: &'static str| (0..MOST).for_each(|_| order(call, 0, Fault::Errno(libc::EAGAIN)));
    let short = || Deadline::after(Duration::from_millis(100));
    let pipe = std::io::pipe().unwrap();
    let full = file(&pattern(3000));
    type Call<'a> = (&'static str, Box<dyn Fn() -> Unfinished + 'a>);
    let calls: [Call<'_>; 5] = [
        ("read", Box::new(|| read_full(&full, &mut [0; 10], short()).unwrap_err())),
        ("read", Box::new(|| slurp(&full, &mut vec![], 1 << 20, short()).unwrap_err())),
        ("write", Box::new(|| write_all(&full, b"x", short()).unwrap_err())),
        ("copy_file_range", Box::new(|| copy_all(&full, file(b""), 10, short()).unwrap_err())),
        ("read", Box::new(|| copy_all(&full, &pipe.1, 10, short()).unwrap_err())),
    ];
    for (call, fails) in calls {
        again(call);
        let unfinished = fails();
        let asked = MOST - unmet();
        assert_eq!((unfinished.done, unfinished.kind()), (0, ErrorKind::TimedOut), "{call}");
        assert!((2..200).contains(&asked), "{call}: asked {asked} times in 100 ms");
    }
    // The call continues as soon as the file has something.
    (0..5).for_each(|_| order("read", 0, Fault::Errno(libc::EAGAIN)));
    assert_eq!(read_full(&full, &mut [0; 10], PATIENCE).unwrap(), 10);
    assert!(all_met());
}

#[test]
fn unfinished_calls_report_how_far_they_got() {
    let far = |outcome: Unfinished| (outcome.done, outcome.kind(), outcome.error.errno());
    let (read, write) = std::io::pipe().unwrap();
    write_all(&write, b"0123456789", NOW).unwrap();
    let mut buf = [0; 20];
    assert_eq!(read_full(&read, &mut buf[..4], NOW), Ok(4));
    let short = read_full(&read, &mut buf, Duration::from_millis(5)).unwrap_err();
    assert_eq!((far(short), &buf[..6]), ((6, ErrorKind::TimedOut, None), &b"456789"[..]));
    assert_eq!(short.to_string(), "fd read full: the deadline has passed; 6 done");

    let full = write_all(&write, &pattern(1 << 20), Duration::from_millis(5)).unwrap_err();
    assert_eq!((full.kind(), full.done >= 4096), (ErrorKind::TimedOut, true));
    let mut got = Vec::new();
    let late = slurp(&read, &mut got, usize::MAX, Duration::from_millis(5)).unwrap_err();
    assert_eq!((far(late), got.len() as u64), ((full.done, ErrorKind::TimedOut, None), full.done));

    order("write", 0, Fault::Short(3));
    order("write", 0, Fault::Errno(libc::EINTR));
    let stopped = write_all(&write, b"abcdef", Deadline::NEVER).unwrap_err();
    assert_eq!(far(stopped), (3, ErrorKind::Interrupted, Some(libc::EINTR)));
    order("write", 0, Fault::Short(0));
    assert_eq!(
        far(write_all(&write, b"abc", Deadline::NEVER).unwrap_err()),
        (0, ErrorKind::Os, Some(libc::EIO))
    );

    let sent = file(&pattern(1000));
    for (call, nth, fault, expected) in [
        ("pread", 0, Fault::Errno(libc::EINTR), (0, ErrorKind::Interrupted, Some(libc::EINTR))),
        ("pread", 1, Fault::Errno(libc::EIO), (4, ErrorKind::Os, Some(libc::EIO))),
    ] {
        order("pread", 0, if nth == 0 { fault } else { Fault::Short(4) });
        order("pread", 0, fault);
        assert_eq!(far(pread_full(&sent, &mut [0; 8], 990).unwrap_err()), expected, "{call}");
        all_met();
    }
    order("pwrite", 0, Fault::Short(5));
    order("pwrite", 0, Fault::Errno(libc::ENOSPC));
    assert_eq!(far(pwrite_all(&sent, &[1; 8], 0).unwrap_err()), (5, ErrorKind::Os, Some(libc::ENOSPC)));
    assert!(all_met());
}

#[test]
fn slurp_reads_everything_up_to_max_bytes() {
    for size in [0, 1, 16 * 1024, 100_000] {
        let sent = pattern(size);
        let mut got = b"before".to_vec();
        assert_eq!(slurp(file(&sent), &mut got, size, NOW), Ok(size));
        assert!(got[..6] == *b"before" && got[6..] == sent);
        for deadline in [Deadline::NEVER, PATIENCE.into()] {
            let (write, read) = CopyEnd::Pipe.ends();
            let mut got = Vec::new();
            let done = thread::scope(|scope| {
                scope.spawn(|| File::from(write).write_all(&sent).unwrap());
                slurp(&read, &mut got, size, deadline)
            });
            assert_eq!(done, Ok(size));
            assert!(got == sent);
        }
        if size > 0 {
            let mut got = Vec::new();
            let over = slurp(file(&sent), &mut got, size - 1, NOW).unwrap_err();
            assert_eq!((over.kind(), over.done), (ErrorKind::TooLong, got.len() as u64));
            assert!(got == sent[..got.len()]);
        }
    }
    // A file that claims more bytes than fit into memory.
    let hole = file(b"");
    rustix::fs::ftruncate(&hole, i64::MAX as u64).unwrap();
    let error = slurp(&hole, &mut Vec::new(), usize::MAX, NOW).unwrap_err();
    assert_eq!((error.done, error.error.errno()), (0, Some(libc::ENOMEM)));
}

#[test]
fn closed_end_gives_an_error_without_a_signal() {
    with_deadly_sigpipe(|| {
        for place in [CopyEnd::Pipe, CopyEnd::Local] {
            for deadline in [Deadline::NEVER, PATIENCE.into()] {
                let (target, out) = place.ends();
                drop(out);
                let gone = |outcome: Unfinished| (outcome.done, outcome.kind());
                assert_eq!(
                    gone(write_all(&target, b"to nobody", deadline).unwrap_err()),
                    (0, ErrorKind::Closed)
                );
                let from = file(&pattern(100));
                assert_eq!(
                    gone(copy_all(&from, &target, u64::MAX, deadline).unwrap_err()),
                    (0, ErrorKind::Closed)
                );
                assert_eq!(
                    gone(sendfile_all(&target, &from, 0, 100, deadline).unwrap_err()),
                    (0, ErrorKind::Closed)
                );
                assert_eq!(content(&from).len(), 100);
            }
        }
    });
}

/// The signal is taken back because of the error, so no other error may replace it.
#[test]
fn copy_reports_a_closed_end_although_the_source_cannot_be_rewound() {
    with_deadly_sigpipe(|| {
        let (target, out) = CopyEnd::Pipe.ends();
        drop(out);
        let from = file(&pattern(100));
        order("seek", 0, Fault::Errno(libc::EIO));
        let outcome = copy_all(&from, &target, u64::MAX, Deadline::NEVER).unwrap_err();
        assert!(all_met(), "the source could not be rewound");
        assert_eq!((outcome.done, outcome.kind()), (0, ErrorKind::Closed));
    });
}

// ---------------------------------------------------------------- connections

/// A non-blocking listener and connections that wait to be accepted.
fn waiting(count: usize) -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let clients = (0..count).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
    (listener, clients)
}

#[test]
fn a_failing_accept_loses_nothing_that_was_accepted() {
    for (errno, no_descriptors) in
        [(libc::EMFILE, true), (libc::ENFILE, true), (libc::ENOMEM, false), (libc::ENOBUFS, false)]
    {
        let (listener, _clients) = waiting(3);
        order("accept", 2, Fault::Errno(errno));
        let accepted = accept_many(&listener, 64);
        assert!(all_met());
        assert_eq!(accepted.connections.len(), 2);
        match accepted.stopped {
            Stopped::NoDescriptors(error) => assert!(no_descriptors && error.errno() == Some(errno)),
            Stopped::Failed(error) => assert!(!no_descriptors && error.errno() == Some(errno)),
            other => panic!("{other:?}"),
        }
        let rest = accept_many(&listener, 64);
        assert_eq!((rest.connections.len(), rest.stopped), (1, Stopped::WouldBlock));
    }
}

#[test]
fn accept_many_continues_after_a_lost_connection() {
    // All errors that accept(2) attributes to the connection.
    let errors = [
        libc::ECONNABORTED,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::EINTR,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::ENONET,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EPERM,
        libc::EPROTO,
        libc::EPROTONOSUPPORT,
        libc::ESOCKTNOSUPPORT,
        libc::ETIMEDOUT,
    ];
    for errno in errors {
        let (listener, _clients) = waiting(3);
        order("accept", 1, Fault::Errno(errno));
        let accepted = accept_many(&listener, 64);
        assert_eq!((accepted.connections.len(), accepted.stopped), (3, Stopped::WouldBlock));
        // A kernel that always returns this error is not asked for ever.
        (0..10).for_each(|_| order("accept", 0, Fault::Errno(errno)));
        let accepted = accept_many(&listener, 10);
        assert_eq!((accepted.connections.len(), accepted.stopped), (0, Stopped::Limit));
        assert!(all_met());
    }
}

#[test]
fn accept_fds_appends_non_blocking_descriptors() {
    let (listener, mut clients) = waiting(3);
    let mut fds = Vec::new();
    assert_eq!(accept_fds(&listener, 2, &mut fds), Stopped::Limit);
    order("accept", 1, Fault::Errno(libc::EMFILE));
    assert!(matches!(accept_fds(&listener, 9, &mut fds), Stopped::NoDescriptors(_)));
    assert_eq!(accept_fds(&listener, 9, &mut fds), Stopped::WouldBlock);
    assert_eq!(fds.len(), 3, "earlier entries stay");
    for (client, fd) in clients.iter_mut().zip(&fds) {
        client.write_all(b"in order").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(read_full(fd, &mut bytes, Duration::from_secs(5)).ok(), Some(8));
    }
    let flags = rustix::fs::fcntl_getfl(&fds[0]).unwrap();
    assert!(flags.contains(OFlags::NONBLOCK));
}

#[test]
fn accept_many_fails_on_a_socket_that_does_not_listen() {
    let (socket, _other) = UnixDatagram::pair().unwrap();
    let accepted = accept_many(&socket, 10);
    let Stopped::Failed(error) = accepted.stopped else { panic!("{accepted:?}") };
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
}

#[test]
fn shed_takes_a_lost_reserve_again() {
    let (listener, mut clients) = waiting(2);
    order("eventfd", 0, Fault::Errno(libc::EMFILE));
    assert_eq!(Reserve::new().unwrap_err().errno(), Some(libc::EMFILE));
    let mut reserve = Reserve::new().unwrap();
    order("eventfd", 0, Fault::Errno(libc::EMFILE));
    assert_eq!(reserve.shed(&listener, 1), Shed { turned_away: 1, stopped: Stopped::Limit });
    assert!(!reserve.is_held());
    assert_eq!(reserve.shed(&listener, 9), Shed { turned_away: 1, stopped: Stopped::WouldBlock });
    assert!(reserve.is_held() && all_met());
    for client in &mut clients {
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }
}

// ---------------------------------------------------------------- datagrams, names

#[test]
fn send_many_reports_how_many_datagrams_were_sent() {
    let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let all = [(&b"one"[..], None), (b"two", None), (b"three", None)];
    order("sendmmsg", 0, Fault::Short(1));
    order("sendmmsg", 0, Fault::Errno(libc::EAGAIN));
    order("sendmmsg", 0, Fault::Short(1));
    order("sendmmsg", 0, Fault::Errno(libc::EACCES));
    let stopped = send_many(&here, &all, PATIENCE).unwrap_err();
    assert_eq!((stopped.done, stopped.error.errno()), (2, Some(libc::EACCES)));

    let mut inbox = Inbox::new(3, 4).unwrap();
    order("recvmmsg", 0, Fault::Errno(libc::EAGAIN));
    assert_eq!(inbox.recv(&there, PATIENCE), Ok(2));
    assert_eq!(inbox.iter().map(|one| one.bytes).collect::<Vec<_>>(), [b"one", b"two"]);
    order("recvmmsg", 0, Fault::Errno(libc::ECONNREFUSED));
    assert_eq!(inbox.recv(&there, PATIENCE).unwrap_err().errno(), Some(libc::ECONNREFUSED));
    assert_eq!(inbox.iter().len(), 0);
    assert!(all_met());
}

#[test]
fn mkstemp_at_skips_names_that_exist() {
    let folder = std::env::temp_dir();
    let folder = File::open(&folder).unwrap();
    let template = std::ffi::OsStr::new("pipework-unit-XXXXXXXX");
    (0..3).for_each(|_| order("create", 0, Fault::Errno(libc::EEXIST)));
    let (fd, name) = mkstemp_at(&folder, template).unwrap();
    assert!(all_met());
    assert!(file::exists(folder.as_fd(), &name).unwrap());
    rustix::fs::unlinkat(&folder, &name, rustix::fs::AtFlags::empty()).unwrap();
    drop(fd);

    (0..100).for_each(|_| order("create", 0, Fault::Errno(libc::EEXIST)));
    assert_eq!(mkstemp_at(&folder, template).unwrap_err().errno(), Some(libc::EEXIST));
    order("create", 0, Fault::Errno(libc::EROFS));
    assert_eq!(mkstemp_at(&folder, template).unwrap_err().errno(), Some(libc::EROFS));
    order("lstat", 0, Fault::Errno(libc::EACCES));
    assert_eq!(mktemp_at(&folder, template).unwrap_err().errno(), Some(libc::EACCES));
    assert!(all_met());
}

// ---------------------------------------------------------------- descriptors that are not open

#[test]
fn a_descriptor_that_is_not_open_is_an_error_everywhere() {
    let (none, some) = (nobody(), file(b"content"));
    let bad = (ErrorKind::Invalid, Some(libc::EBADF));
    let is_bad = |error: Error| assert_eq!((error.kind(), error.errno()), bad);
    for deadline in [Deadline::NEVER, Deadline::now(), PATIENCE.into()] {
        is_bad(copy_all(none, &some, 1, deadline).unwrap_err().error);
        is_bad(copy_all(&some, none, 1, deadline).unwrap_err().error);
        is_bad(sendfile_all(none, &some, 0, 1, deadline).unwrap_err().error);
        is_bad(splice_all(none, &some, 1, deadline).unwrap_err().error);
        is_bad(read_full(none, &mut [0; 1], deadline).unwrap_err().error);
        is_bad(write_all(none, b"1", deadline).unwrap_err().error);
        is_bad(slurp(none, &mut Vec::new(), 1, deadline).unwrap_err().error);
        is_bad(send_many(none, &[(b"1", None)], deadline).unwrap_err().error);
        is_bad(Inbox::new(1, 1).unwrap().recv(none, deadline).unwrap_err());
    }
    is_bad(pread_full(none, &mut [0; 1], 0).unwrap_err().error);
    is_bad(pwrite_all(none, b"1", 0).unwrap_err().error);
    is_bad(mkstemp_at(none, "aXXXXXX".as_ref()).unwrap_err());
    is_bad(mktemp_at(none, "aXXXXXX".as_ref()).unwrap_err());
    is_bad(option_number(none, 1, 1).unwrap_err());
    is_bad(set_option_number(none, 1, 1, 1).unwrap_err());
    is_bad(option_bytes(none, 1, 1, &mut []).unwrap_err());
    let accepted = accept_many(none, 1);
    assert!(matches!(accepted.stopped, Stopped::Failed(error) if error.errno() == bad.1));
    let shed = Reserve::new().unwrap().shed(none, 1);
    assert!(matches!(shed.stopped, Stopped::Failed(error) if error.errno() == bad.1));
    let mut polled = [PollFd::from_borrowed_fd(none, PollFlags::IN)];
    assert_eq!(poll(&mut polled, PATIENCE), Ok(1));
    assert!(polled[0].revents().contains(PollFlags::NVAL));
}
