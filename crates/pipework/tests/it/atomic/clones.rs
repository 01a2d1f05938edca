//! Clones of a reader and of a writer in several threads.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use pipework::atomic::{Options, Zstd, pair};
use pipework::{Deadline, ErrorKind};

use crate::harness::{PATIENCE, alone, fork};

#[test]
fn each_message_goes_to_one_clone_and_all_see_the_end() {
    alone(|| {
        let (reader, writer) = pair().unwrap();
        let (writers, each, readers) = (3u64, 4000u64, 4);
        let (sender, come) = channel();
        thread::scope(|scope| {
            for number in 0..writers {
                let mut writer = writer.try_clone().unwrap();
                scope.spawn(move || {
                    for n in 0..each {
                        let bytes = [number.to_ne_bytes(), n.to_ne_bytes()].concat();
                        let message = bytes.repeat(if n % 10 == 0 { 1000 } else { 1 });
                        match n % 3 {
                            0 => assert!(writer.send(message, Deadline::NEVER).is_ok()),
                            1 => assert!(writer.send(message, PATIENCE).is_ok()),
                            _ => assert!(writer.try_send(message).unwrap().is_some()),
                        }
                    }
                });
            }
            drop(writer);
            for nth in 0..readers {
                let (mut reader, sender) = (reader.try_clone().unwrap(), sender.clone());
                scope.spawn(move || {
                    loop {
                        match reader.recv(if nth == 0 { Deadline::NEVER } else { PATIENCE.into() }) {
                            Ok(message) => sender.send((nth, message.into_vec())).unwrap(),
                            Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed),
                        }
                    }
                });
            }
            drop((reader, sender));
        });
        let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut latest = HashMap::new();
        for (reader, message) in come {
            assert!(message.chunks(16).all(|chunk| chunk == &message[..16]), "spliced");
            let word = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().unwrap());
            let before = latest.insert((reader, word(0)), word(8));
            assert!(before.is_none_or(|before| before < word(8)), "out of order");
            *counts.entry(message[..16].to_vec()).or_default() += 1;
        }
        assert_eq!(counts.len() as u64, writers * each);
        assert!(counts.values().all(|count| *count == 1));
    });
}

/// Several messages arrive in one block, of which one clone takes the first: the others must not
/// wait while bytes are in the buffer. The deadline of one of them passes at about that moment, and
/// it leaves: it must not consume the others' wake-up.
#[test]
fn no_clone_is_left_waiting() {
    const READERS: usize = 4;
    const ROUNDS: u64 = 20_000;
    alone(|| {
        let (reader, mut writer) = pair().unwrap();
        let (begin, start, deadline) = (Instant::now(), Barrier::new(READERS + 1), AtomicU64::new(0));
        let (sender, come) = channel();
        thread::scope(|scope| {
            for nth in 0..READERS {
                let (mut reader, sender) = (reader.try_clone().unwrap(), sender.clone());
                let (start, deadline) = (&start, &deadline);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        start.wait();
                        let until = begin + Duration::from_nanos(deadline.load(SeqCst));
                        let outcome =
                            reader.recv(if nth == 0 { Deadline::at(until) } else { Deadline::NEVER });
                        let taken = outcome.map(drop).map_err(|error| error.kind());
                        assert!(
                            taken.is_ok() || (nth == 0 && taken == Err(ErrorKind::TimedOut)),
                            "{taken:?}"
                        );
                        sender.send(taken.is_ok()).unwrap();
                    }
                });
            }
            drop(sender);
            for round in 0..ROUNDS {
                let until = begin.elapsed() + Duration::from_micros(60);
                deadline.store(until.as_nanos() as u64, SeqCst);
                start.wait();
                // From before the deadline to well after it: a sleep ends some 50 microseconds
                // late.
                let moment = until + Duration::from_micros(round % 100) - Duration::from_micros(20);
                while begin.elapsed() < moment {}
                assert_eq!(writer.send_many(&["all in one write"; READERS], PATIENCE), Ok(READERS));
                let outcomes =
                    (0..READERS).map(|_| come.recv_timeout(PATIENCE / 2).expect("a clone waits for ever"));
                if outcomes.filter(|taken| *taken).count() < READERS {
                    assert!(
                        reader.try_clone().unwrap().try_recv().unwrap().is_some(),
                        "one message is left over"
                    );
                }
            }
        });
    });
}

/// Bytes that are no whole part are useless to every clone, and no reason to wake one.
#[test]
fn waiting_clones_sleep() {
    alone(|| {
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
            // User and system time of the process, in hundredths of a second; the name before them
            // ends with a bracket.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        let (reader, writer) = pair().unwrap();
        rustix::io::write(&writer, b"a stranger").unwrap();
        let before = ticks();
        thread::scope(|scope| {
            for _ in 0..3 {
                let mut clone = reader.try_clone().unwrap();
                scope.spawn(move || {
                    let error = clone.recv(Duration::from_secs(1)).map(drop).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                });
            }
        });
        let used = ticks() - before;
        assert!(used < 10, "{used} hundredths of a second of CPU in one second of waiting");
    });
}

/// A thread that a forked child does not have may have held the clones' lock: no call in the child
/// waits for it.
#[test]
fn calls_do_not_hang_in_a_child_forked_while_a_clone_read() {
    alone(|| {
        let (reader, mut writer) = Options::new().mixed(true).pair().unwrap();
        let mut clone = reader.try_clone().unwrap();
        let mut idle = reader.try_clone().unwrap();
        let over = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while over.load(SeqCst) == 0 {
                    drop(clone.try_next_item());
                }
            });
            for _ in 0..200 {
                writer.send("something to look at", PATIENCE).unwrap();
                fork(|| {
                    assert!(!idle.is_eof());
                    assert!(idle.peek().is_none() && idle.zstd().is_none() && idle.next_timeout().is_none());
                    let _ = idle.buffered();
                    let _ = (idle.read_size(), idle.is_mixed(), format!("{idle:?}"));
                    idle.set_read_size(1);
                    idle.set_exact(1);
                    idle.set_keep_compressed(false);
                    let _ = (idle.set_mixed(true), idle.set_zstd(None), idle.try_clone().map(drop));
                    for refused in [
                        idle.try_next_item().map(drop),
                        idle.read_ahead(Deadline::NEVER).map(drop),
                        idle.wait_eof(Deadline::NEVER).map(drop),
                        idle.recv(Deadline::NEVER).map(drop),
                    ] {
                        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Stale);
                    }
                })
                .join();
            }
            over.store(1, SeqCst);
        });
    });
}

#[test]
fn clones_decompress_by_the_latest_set_zstd_of_any_of_them() {
    let zstd = Zstd::new().with_dictionary(b"what all messages have in common".repeat(4));
    let (mut reader, mut writer) = Options::new().zstd(zstd.clone()).max_message(100_000).pair().unwrap();
    let mut clone = reader.try_clone().unwrap();
    let message = b"what all messages have in common, and one byte: 1".repeat(100);
    let mut send = |zstd: Option<Zstd>| {
        writer.set_zstd(zstd).unwrap();
        writer.send(&message, PATIENCE).unwrap();
    };
    (0..2).for_each(|_| send(Some(zstd.clone())));
    assert_eq!(reader.recv(PATIENCE).unwrap()[..], message);
    clone.set_keep_compressed(true);
    let kept = reader.recv(PATIENCE).unwrap();
    assert_eq!(kept[..], message);
    assert!(kept.compressed.is_some_and(|frame| frame.len() < message.len() / 2));

    // The other clone gets different settings; a message that cannot be unpacked is reported, and
    // the next arrives.
    send(Some(Zstd::new().with_dictionary(b"another one".repeat(9))));
    send(None);
    let error = clone.recv(PATIENCE).map(drop).unwrap_err();
    assert_eq!((error.kind(), clone.torn().unwrap().kind), (ErrorKind::Corrupt, ErrorKind::Corrupt));
    reader.set_zstd(None).unwrap();
    assert_eq!(clone.recv(PATIENCE).unwrap()[..], message);
    send(Some(Zstd::new()));
    assert_eq!(clone.recv(PATIENCE).map(drop).unwrap_err().kind(), ErrorKind::Incompatible);

    // The last of them continues alone.
    reader.set_zstd(Some(zstd.clone())).unwrap();
    drop(clone);
    send(Some(zstd));
    assert_eq!(reader.recv(PATIENCE).unwrap()[..], message);
}
