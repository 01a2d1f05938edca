//! Copies between every pair of kinds: targets that are full, signals, disks, SIGPIPE.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use pipework::fd::{copy_all, read_full, sendfile_all, set_option_number, slurp, splice_all, write_all};
use pipework::{Deadline, ErrorKind, Unfinished};
use rustix::event::PollFlags;

use super::{KINDS, Kind, SHORT, drain, pattern, refusal};
use crate::harness::{Folder, PATIENCE, alarms, alone, cost, let_sigpipe_kill, ring_alarms, say, wait_for};

#[test]
fn copy_to_a_full_target_loses_nothing() {
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
                    // On a busy machine the thread may begin later than `SHORT`.
                    wait_for(&source, PollFlags::IN);
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

/// Repeats `step`, which gets the number of bytes done so far, while signals end it; returns the
/// total.
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

/// Another process shares the socket and peeks into it at an offset, which moves with every look by
/// either of them.
#[test]
fn socket_with_a_peek_offset_is_copied_from_its_beginning() {
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
fn copy_ended_by_a_signal_resumes_without_loss() {
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
                // A file is filled before and read afterwards; anything that waits has a thread at
                // its other end.
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
fn copy_to_a_full_disk_leaves_the_rest_in_the_source() {
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
        // Only copies choose a way; a splice was requested by name.
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"stays").unwrap();
        assert_eq!(refusal(splice_all(&read, &appended, 5, PATIENCE)).1, ErrorKind::Invalid);
        let (target, out) = Kind::Tcp.ends();
        assert_eq!(splice_all(&read, &target, 5, PATIENCE), Ok(5));
        let mut got = [0; 5];
        assert_eq!(read_full(&out, &mut got, PATIENCE), Ok(5));
        assert_eq!(&got, b"stays");
        // A deadline applies to the source too.
        assert_eq!(refusal(splice_all(&out, &write, 5, SHORT)), (0, ErrorKind::TimedOut, None));
        assert_eq!(refusal(copy_all(&read, &target, 5, SHORT)), (0, ErrorKind::TimedOut, None));
    });
}

#[test]
fn calls_on_a_closed_end_raise_no_sigpipe() {
    alone(|| {
        let_sigpipe_kill();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        for kind in [Kind::Pipe, Kind::Local, Kind::Tcp] {
            for deadline in [Deadline::NEVER, PATIENCE.into()] {
                let (target, out) = kind.ends();
                drop(out);
                let until_closed = |step: &dyn Fn() -> Result<u64, Unfinished>| {
                    let closed = (0..1000).find_map(|_| {
                        // The peer of a closed TCP connection reports that only after the first
                        // bytes arrive.
                        thread::sleep(Duration::from_micros(100));
                        step().err()
                    });
                    assert_eq!(
                        closed.expect("a closed end is noticed").kind(),
                        ErrorKind::Closed,
                        "{kind:?}"
                    );
                };
                until_closed(&|| write_all(&target, b"to nobody", deadline).map(|()| 9));
                until_closed(&|| copy_all(&file, &target, 100, deadline));
                until_closed(&|| sendfile_all(&target, &file, 0, 100, deadline));
                let (read, mut write) = std::io::pipe().unwrap();
                write.write_all(&[0; 100]).unwrap();
                until_closed(&|| splice_all(&read, &target, 1, deadline));
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
