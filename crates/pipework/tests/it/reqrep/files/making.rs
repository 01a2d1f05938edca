//! Making a segment when a resource is missing, and when many processes make it at once.

use std::fs::{self, File};
use std::iter;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;

use pipework::reqrep::Options;
use pipework::{Error, ErrorKind};
use rustix::process::{Resource, Rlimit};

use super::{answers, errno, names, small};
use crate::harness::damage::{enter_mount_namespace, leave_no_core, mount_tmpfs, tmpfs};
use crate::harness::{Folder, PATIENCE, alone, descriptors, fork, left_out, shared};

// ---------------------------------------------------------------- missing resources

#[test]
fn create_fails_on_a_full_file_system() {
    alone(|| {
        fork(|| {
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=64k") else { return };
            let large = small().slots(32).request_bytes(4096);
            for path in [mount.join("segment"), mount.join("again")] {
                assert_eq!(errno(large.create(&path)), Some(libc::ENOSPC));
                assert_eq!(errno(large.open_or_create(&path)), Some(libc::ENOSPC));
                assert_eq!(names(&mount), [""; 0]);
            }
            // A segment that fits is made, and works after the file system is full as well.
            let fits = small().create(mount.join("fits")).unwrap();
            answers(&fits, &fits);
            fits.unlink().unwrap();
            drop(fits);
            assert_eq!(names(&mount), [""; 0]);
        })
        .join();
    });
}

#[test]
fn each_missing_descriptor_is_an_error_and_nothing_leaks() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = small().create(&path).unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let rich = rustix::process::getrlimit(Resource::Nofile);
        let open = descriptors();
        let with_spare = |spare: usize, act: &dyn Fn() -> Result<(), Error>| {
            let poor = Rlimit { current: Some(open as u64 + 16), ..rich };
            rustix::process::setrlimit(Resource::Nofile, poor).unwrap();
            let mut hoard: Vec<_> = iter::from_fn(|| File::open("/dev/null").ok()).collect();
            hoard.truncate(hoard.len() - spare);
            let outcome = act();
            drop(hoard);
            rustix::process::setrlimit(Resource::Nofile, rich).unwrap();
            assert_eq!((descriptors(), names(&folder.join(""))), (open, vec!["segment".into()]));
            outcome
        };
        type Act<'a> = &'a dyn Fn() -> Result<(), Error>;
        let acts: [(&str, usize, Act<'_>); 6] = [
            ("reqrep create", 1, &|| small().create(folder.join("new"))?.unlink().map(drop)),
            ("reqrep create", 1, &|| small().anonymous().map(drop)),
            ("reqrep open", 1, &|| Options::new().open(&path).map(drop)),
            ("reqrep attach client", 1, &|| segment.client().map(drop)),
            ("reqrep attach server", 1, &|| segment.server().map(drop)),
            ("reqrep attach client", 2, &|| Options::new().open(&path)?.client().map(drop)),
        ];
        for (op, needed, act) in acts {
            for spare in 0..needed {
                let error = with_spare(spare, act).expect_err("it lacks a descriptor");
                let said = (error.op(), error.kind(), error.errno());
                let first = if spare + 1 == needed { op } else { "reqrep open" };
                assert_eq!(said, (first, ErrorKind::Os, Some(libc::EMFILE)));
            }
            with_spare(needed, act).unwrap_or_else(|error| panic!("{needed} descriptors suffice: {error}"));
        }
        // Attached members need no further descriptor.
        with_spare(0, &|| {
            let ticket = client.send("a", PATIENCE)?;
            assert!(server.recv(PATIENCE)?.reply("b")?);
            client.recv(ticket, PATIENCE).map(drop).map_err(Error::from)
        })
        .unwrap();
        assert_eq!(segment.members().unwrap().len(), 2);
    });
}

#[test]
fn each_of_thousands_of_mapped_segments_is_guarded() {
    const MANY: usize = 2000;
    alone(|| {
        fork(|| {
            leave_no_core();
            // Each segment has a descriptor.
            let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
            if limit.is_some_and(|limit| limit < MANY as u64 + 100) {
                return left_out("thousands of segments", "this process may not open so many files");
            }
            let all = Rlimit { current: limit, maximum: limit };
            rustix::process::setrlimit(Resource::Nofile, all).unwrap();
            let folder = Folder::new();
            let path = folder.join("segment");
            let made = small().create(&path).unwrap();
            let segments: Vec<_> = (0..MANY).map(|_| Options::new().open(&path).unwrap()).collect();
            answers(&made, &segments[MANY - 1]);
            // The last mapping gets an error for the shortened file; the process is not killed.
            File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
            let members = segments[MANY - 1].members().map_err(|error| error.kind());
            assert_eq!(members, Err(ErrorKind::Corrupt));
        })
        .join();
    });
}

/// Mounts a tmpfs over /proc, so that no descriptor can be looked up there.
#[test]
fn create_and_open_work_by_path_without_proc() {
    alone(|| {
        fork(|| {
            let folder = Folder::new();
            if !enter_mount_namespace() || !mount_tmpfs(Path::new("/proc"), "size=64k") {
                left_out("segments without /proc", "this process may not mount anything");
                return;
            }
            assert!(!Path::new("/proc/self").exists());
            let path = folder.join("segment");
            let made = small().create(&path).unwrap();
            answers(&made, &Options::new().open(&path).unwrap());
            assert_eq!(names(path.parent().unwrap()), ["segment"]);
            assert_eq!(errno(small().anonymous().unwrap().client()), Some(libc::ENOENT));
            assert_eq!(made.unlink(), Ok(true));
            assert_eq!(errno(made.client()), Some(libc::ENOENT), "its name leads nowhere");
        })
        .join();
    });
}

// ---------------------------------------------------------------- many at once

#[test]
fn open_or_create_by_many_processes_makes_one_segment() {
    const PROCESSES: usize = 8;
    const ROUNDS: usize = 60;
    alone(|| {
        let folder = Folder::new();
        // How many processes are ready for a round, how many have answered in it, and the inode
        // that each opened.
        let board = shared(2 + PROCESSES);
        // In every second round an empty file exists at the path.
        for round in (1..ROUNDS).step_by(2) {
            File::create(folder.join(&format!("segment-{round}"))).unwrap();
        }
        let children: Vec<_> = (0..PROCESSES)
            .map(|me| {
                let folder = &folder;
                fork(move || {
                    for round in 0..ROUNDS {
                        let path = folder.join(&format!("segment-{round}"));
                        board[0].fetch_add(1, Ordering::SeqCst);
                        while board[0].load(Ordering::SeqCst) < (PROCESSES * (round + 1)) as u64 {
                            std::hint::spin_loop();
                        }
                        let segment = small().open_or_create(&path).unwrap();
                        board[2 + me].store(rustix::fs::fstat(&segment).unwrap().st_ino, Ordering::SeqCst);
                        let client = segment.client().unwrap();
                        let ticket =
                            client.try_send("a").unwrap().or_else(|| client.send("a", PATIENCE).ok());
                        assert!(
                            client
                                .cancel(ticket.expect("each process gets a slot in time"))
                                .unwrap()
                                .is_none()
                        );
                        board[1].fetch_add(1, Ordering::SeqCst);
                        while board[1].load(Ordering::SeqCst) < (PROCESSES * (round + 1)) as u64 {
                            thread::yield_now();
                        }
                        let all: Vec<u64> =
                            board[2..].iter().map(|seen| seen.load(Ordering::SeqCst)).collect();
                        assert!(all.iter().all(|seen| *seen == all[0]), "round {round}: {all:x?}");
                    }
                })
            })
            .collect();
        children.into_iter().for_each(|child| child.join());
        assert_eq!(
            names(&folder.join("")).len(),
            ROUNDS,
            "the processes that came second leave no file behind"
        );
    });
}

#[test]
fn open_or_create_replaces_an_empty_file_of_this_user_and_no_other_file() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let empty = File::create(&path).unwrap();
    assert_eq!(errno(small().create(&path)), Some(libc::EEXIST), "create replaces nothing");
    assert_eq!(small().open(&path).unwrap_err().kind(), ErrorKind::Incompatible, "open makes nothing");
    let segment = small().mode(0o640).open_or_create(&path).unwrap();
    answers(&segment, &Options::new().open(&path).unwrap());
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(empty.metadata().unwrap().len(), 0, "the empty file itself is left as it is");
    assert_eq!(names(&folder.join("")), ["segment"]);
    for text in ["x", &"x".repeat(127), &"x".repeat(128)] {
        let other = folder.join("other");
        fs::write(&other, text).unwrap();
        assert!(small().open_or_create(&other).is_err(), "{}", text.len());
        assert_eq!(fs::read_to_string(&other).unwrap(), text);
    }
    // The path is a symbolic link to an empty file.
    let (target, link) = (folder.join("target"), folder.join("link"));
    File::create(&target).unwrap();
    symlink(&target, &link).unwrap();
    assert!(small().open_or_create(&link).is_err());
    assert!(link.is_symlink() && target.exists());
    if rustix::process::geteuid().is_root() {
        let others = folder.join("others");
        chown(&File::create(&others).unwrap());
        for options in [small(), small().any_owner(true)] {
            assert!(options.open_or_create(&others).is_err(), "another user's file");
        }
        assert_eq!(others.metadata().unwrap().len(), 0);
    }
}

#[test]
fn open_or_create_gives_up_on_an_empty_file_that_another_program_keeps_locked() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("locked");
        File::create(&path).unwrap();
        let board = shared(2);
        let holder = fork(|| {
            let file = File::options().write(true).open(&path).unwrap();
            rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
            board[0].store(1, Ordering::SeqCst);
            while board[1].load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
        });
        while board[0].load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(small().open_or_create(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(path.metadata().unwrap().len(), 0);
        board[1].store(1, Ordering::SeqCst);
        holder.join();
        let segment = small().open_or_create(&path).unwrap();
        answers(&segment, &segment);
    });
}

fn chown(file: &File) {
    let somebody = rustix::process::Uid::from_raw(12_345);
    rustix::fs::fchown(file, Some(somebody), None).unwrap();
}

#[test]
fn create_by_many_processes_succeeds_once() {
    let folder = Folder::new();
    for round in 0..50 {
        let path = folder.join(&format!("segment-{round}"));
        let start = Barrier::new(4);
        let made: Vec<_> = thread::scope(|scope| {
            let create = || {
                start.wait();
                small().create(&path)
            };
            let threads = [(); 4].map(|()| scope.spawn(create));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let refused = made.iter().filter_map(|made| made.as_ref().err()?.errno());
        assert_eq!(refused.collect::<Vec<_>>(), [libc::EEXIST; 3]);
        let made = made.into_iter().find_map(Result::ok).expect("one has made it");
        answers(&made, &Options::new().open(&path).unwrap());
    }
}
