//! Files that lose their bytes, by a cut or by holes, and bus errors that are not the library's.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::Options;
use rustix::fs::FallocateFlags;

use super::peers::{ANSWERED, Company};
use super::{FIXED, file_of, heal, small, works};
use crate::harness::damage::{Before, HANDLED, end_of, leave_no_core, set_up_bus_errors, words};
use crate::harness::{Folder, PATIENCE, Random, alone_for, awaited, fork, say, shared};

#[test]
fn file_that_is_cut_short_kills_no_peer() {
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
fn open_fails_or_works_while_the_file_is_cut_short() {
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
fn holes_in_the_file_cause_errors_but_no_crash_or_hang() {
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
            // A hole reads as zeros, and a segment with only zeros between its first bytes and its
            // last is a fresh one.
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

/// The guard must not replace pages one by one: the kernel would soon refuse more mappings.
#[test]
fn large_file_that_is_cut_short_kills_no_peer() {
    alone_for(PATIENCE, || {
        fork(|| {
            leave_no_core();
            let folder = Folder::new();
            // Each slot takes a page.
            let large = Options::new().slots(35_000).request_bytes(4000).reply_bytes(0);
            let segment = large.create(folder.join("segment")).unwrap();
            file_of(&segment).set_len(0).unwrap();
            // `stats` looks at every slot.
            segment.stats();
            assert_eq!(segment.audit().map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
        })
        .join();
    });
}

// ---------------------------------------------------------------- bus errors of other causes

#[test]
fn foreign_bus_error_acts_as_without_the_library() {
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
                assert!(segment.audit().is_err(), "the library catches its own bus error");
                segment.unlink().unwrap();
                let path = folder.join("theirs");
                fs::write(&path, [1; 8192]).unwrap();
                let file = File::options().read(true).write(true).open(&path).unwrap();
                let theirs = words(&file);
                file.set_len(0).unwrap();
                panic!("read {} behind the end", theirs[0].load(Ordering::SeqCst));
            });
            assert_eq!(end_of(child), end, "{before:?}");
        }
    });
}

/// As by `kill -BUS`: no instruction of the library caused it.
#[test]
fn bus_error_sent_by_a_process_acts_as_without_the_library() {
    alone_for(PATIENCE, || {
        let folder = Folder::new();
        let ends = [
            (Before::Nothing, Err(libc::SIGBUS)),
            (Before::Ignored, Ok(0)),
            (Before::Handled, Ok(HANDLED)),
            // The runtime's handler is for overflowing stacks, and lets every other signal through.
            (Before::Runtime, Ok(0)),
        ];
        for (nth, (before, end)) in ends.into_iter().enumerate() {
            let ready = shared(2);
            let path = folder.join(&format!("segment-{nth}"));
            let child = fork(|| {
                leave_no_core();
                set_up_bus_errors(before);
                let segment = small().create(&path).unwrap();
                ready[0].store(1, Ordering::SeqCst);
                awaited(&ready[1]);
                // A process that survives is still guarded.
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
