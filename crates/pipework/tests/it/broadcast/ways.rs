//! Observers: processes of another user that may only read the file.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use pipework::broadcast::{Options, RecvError, Segment, Start, SubscriberOptions};
use pipework::{Error, ErrorKind};

use crate::harness::damage::{end_of, leave_no_core, mapped_to_read, write_to};
use crate::harness::{Folder, PATIENCE, alone, awaited, become_nobody, fork, left_out, shared};

fn observed(folder: &Folder) -> Segment {
    let options = Options::new().messages(8).message_bytes(64).members(8).observers(true).mode(0o644);
    options.create(folder.join("channel")).unwrap()
}

fn opened(folder: &Folder) -> Segment {
    Options::new().read_only(true).any_owner(true).open(folder.join("channel")).expect("it may be read")
}

#[test]
fn observer_of_another_user_receives_and_can_change_nothing() {
    alone(|| {
        let folder = Folder::new();
        let segment = observed(&folder);
        let publisher = segment.publisher().unwrap();
        let mut sees_all = segment.subscriber_with(&SubscriberOptions::new().must_see_all(true)).unwrap();
        let [ready, asked, sleeps] = shared(3) else { panic!("there are three") };
        let child = fork(|| {
            if !become_nobody() {
                left_out("an observer of another user", "this process is not root's");
            }
            let segment = opened(&folder);
            let mut observer =
                segment.subscriber_with(&SubscriberOptions::new().start(Start::Oldest)).unwrap();
            let path = folder.join("channel");
            let is_nobody = rustix::process::geteuid().as_raw() != 0;
            let refused = Options::new().any_owner(true).open(&path).map(drop).map_err(|error| error.kind());
            assert!(!is_nobody || refused == Err(ErrorKind::Os), "{refused:?}");
            let unsupported = |error: Option<Error>| {
                assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
            };
            unsupported(segment.publisher().err());
            unsupported(segment.subscriber_with(&SubscriberOptions::new().must_see_all(true)).err());
            unsupported(segment.recover().err());
            unsupported(segment.unlink().err());
            unsupported(segment.blob(1).err());
            ready.store(1, SeqCst);
            awaited(asked);
            assert_eq!(&*observer.recv(PATIENCE).unwrap(), b"first");
            assert!(observer.recv(PATIENCE).unwrap().starts_with(b"long"));
            sleeps.store(1, SeqCst);
            assert_eq!(&*observer.recv(PATIENCE).unwrap(), b"awaited");
        });
        awaited(ready);
        let members = segment.members().unwrap();
        assert_eq!(members.len(), 2, "an observer is no member: {members:?}");
        publisher.publish("first", PATIENCE).unwrap();
        let long = [b"long".to_vec(), vec![7; 5000]].concat();
        publisher.publish(&long, PATIENCE).unwrap();
        asked.store(1, SeqCst);
        awaited(sleeps);
        std::thread::sleep(Duration::from_millis(20));
        publisher.publish("awaited", PATIENCE).unwrap();
        child.join();
        let lengths = [(); 3].map(|()| sees_all.recv(PATIENCE).unwrap().len());
        assert_eq!(lengths, [5, long.len(), 7]);
    });
}

/// The observer writes through the mapping that the library has made.
#[test]
fn write_through_the_mapping_of_an_observer_kills_it_and_disturbs_nobody() {
    alone(|| {
        let folder = Folder::new();
        let segment = observed(&folder);
        let publisher = segment.publisher().unwrap();
        let mut subscriber = segment.subscriber().unwrap();
        publisher.publish("before", PATIENCE).unwrap();
        let before = std::fs::read(folder.join("channel")).unwrap();
        for at in [0, 192, 256, 4096, before.len() - 8] {
            let child = fork(|| {
                leave_no_core();
                become_nobody();
                let segment = opened(&folder);
                let mut observer =
                    segment.subscriber_with(&SubscriberOptions::new().start(Start::Oldest)).unwrap();
                assert_eq!(&*observer.recv(PATIENCE).unwrap(), b"before");
                let start = mapped_to_read(&folder.join("channel"));
                write_to(start + at);
            });
            assert_eq!(end_of(child), Err(libc::SIGSEGV), "at {at}");
        }
        assert!(std::fs::read(folder.join("channel")).unwrap() == before, "nothing has changed");
        publisher.publish("after", PATIENCE).unwrap();
        let received = [(); 2].map(|()| subscriber.recv(PATIENCE).unwrap().into_vec());
        assert_eq!(received, [b"before".to_vec(), b"after".to_vec()]);
        assert_eq!(segment.recover(), Ok(0), "no member died");
    });
}

/// A descriptor that may only read cannot be mapped to write, nor locked as a member.
#[test]
fn descriptor_of_an_observer_gives_no_right_to_write() {
    alone(|| {
        let folder = Folder::new();
        let segment = observed(&folder);
        fork(|| {
            if !become_nobody() {
                return;
            }
            let path = folder.join("channel");
            assert!(File::options().write(true).open(&path).is_err());
            let file = File::open(&path).unwrap();
            // Neither does opening it again by its descriptor.
            let again = format!("/proc/self/fd/{}", file.as_raw_fd());
            assert!(File::options().write(true).open(again).is_err());
        })
        .join();
        assert!(segment.publisher().unwrap().publish("", PATIENCE).is_ok());
    });
}

/// It holds up nobody, and learns how many it has missed.
#[test]
fn stopped_observer_holds_up_nobody() {
    alone(|| {
        let folder = Folder::new();
        let segment = observed(&folder);
        let publisher = segment.publisher().unwrap();
        let [ready, over] = shared(2) else { panic!("there are two") };
        let child = fork(|| {
            become_nobody();
            let mut observer = opened(&folder).subscriber().unwrap();
            ready.store(1, SeqCst);
            awaited(over);
            assert_eq!(observer.recv(PATIENCE).unwrap_err(), RecvError::Lagged(92));
            assert_eq!(observer.recv(PATIENCE).unwrap().number(), 93);
        });
        awaited(ready);
        child.stop();
        for number in 1..=100 {
            assert_eq!(publisher.try_publish("more"), Ok(Some(number)));
        }
        over.store(1, SeqCst);
        child.resume();
        child.join();
    });
}
