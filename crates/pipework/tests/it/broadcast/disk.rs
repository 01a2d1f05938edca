//! Channels on a file system that is full.

use std::fs::File;
use std::path::Path;

use pipework::broadcast::{Options, Publisher};
use pipework::{Error, ErrorKind};
use rustix::fs::FallocateFlags;

use crate::harness::damage::{leave_no_core, tmpfs};
use crate::harness::{Folder, PATIENCE, alone, blob_files, fork};

/// Fills the rest of the file system.
fn fill(mount: &Path) -> File {
    let filler = File::create(mount.join("filler")).unwrap();
    let mut len = 0;
    while rustix::fs::fallocate(&filler, FallocateFlags::empty(), len, 4096).is_ok() {
        len += 4096;
    }
    filler
}

fn is_full(error: &Error) -> bool {
    (error.kind(), error.errno()) == (ErrorKind::Os, Some(libc::ENOSPC))
}

#[test]
fn publication_of_a_long_message_on_a_full_disk_fails_before_a_number_is_taken() {
    alone(|| {
        fork(|| {
            leave_no_core();
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=1m") else { return };
            let options = Options::new().messages(8).message_bytes(64).members(4).blob_pool(0);
            let segment = options.create(mount.join("channel")).unwrap();
            let publisher = segment.publisher().unwrap();
            let mut subscriber = segment.subscriber().unwrap();
            let long = vec![7; 100_000];
            assert_eq!(publisher.publish(&long, PATIENCE), Ok(1));
            let filler = fill(&mount);
            let refused = |outcome: Result<(), Error>| {
                let error = outcome.expect_err("the disk is full");
                assert!(is_full(&error), "{error}");
                assert_eq!(segment.newest(), 1, "no number was taken");
            };
            refused(publisher.publish(&long, PATIENCE).map(drop));
            refused(publisher.try_publish(&long).map(drop));
            refused(publisher.publish_many([&long], PATIENCE).map(drop).map_err(Error::from));
            refused(segment.blob(100_000).map(drop));
            let audit = segment.audit().unwrap();
            assert_eq!((audit.done, audit.writing, audit.skipped, audit.empty), (1, 0, 0, 7));
            // Messages that fit into a cell need no memory.
            assert_eq!(publisher.publish("short", PATIENCE), Ok(2));
            assert_eq!(*subscriber.recv(PATIENCE).unwrap(), *long);
            assert_eq!(&*subscriber.recv(PATIENCE).unwrap(), b"short");
            drop(filler);
            rustix::fs::unlink(mount.join("filler")).unwrap();
            assert_eq!(publisher.publish(&long, PATIENCE), Ok(3));
            assert_eq!(*subscriber.recv(PATIENCE).unwrap(), *long);
            goes_on(&publisher);
            assert_eq!(blob_files(&segment).len(), 0, "the ring has gone on");
        })
        .join();
    });
}

fn goes_on(publisher: &Publisher) {
    for _ in 0..8 {
        publisher.publish("", PATIENCE).unwrap();
    }
}

#[test]
fn channel_on_a_full_disk_is_not_made() {
    alone(|| {
        fork(|| {
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=1m") else { return };
            let error = Options::new().create(mount.join("channel")).expect_err("it takes 1.5 MiB");
            assert!(is_full(&error), "{error}");
            assert_eq!(std::fs::read_dir(&mount).unwrap().count(), 0, "nothing is left");
        })
        .join();
    });
}
