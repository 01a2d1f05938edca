//! Every system call of every operation, made to fail in turn: the error names its operation and has the
//! kernel's number, nothing is left behind, no message is lost, and the channel still works.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::shared::{Shared, cursor};
use super::word::Cursor;
use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::deaths::held;
use crate::sync::Ordering;
use crate::sys::Errno;
use crate::sys::fault::{self, Fault};

/// Longer than a first slice.
const A_SLICE: Duration = Duration::from_millis(60);

/// Errors that the kernel may return for any call.
const REFUSALS: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::INTR];

/// Calls that are repeated when a signal interrupts them.
const REPEATED: [&str; 2] = ["fallocate", "truncate"];

/// Operations that close idle files and try again when no descriptor is left.
const WITH_DESCRIPTORS: [&str; 3] =
    ["broadcast attach publisher", "broadcast attach subscriber", "broadcast publish"];

/// A channel with four cells at a path in its own folder, a publisher, a subscriber that may lag, one that
/// must see all, and an observer.
struct FaultScene {
    folder: PathBuf,
    segment: Segment,
    observed: Segment,
    publisher: Publisher,
    subscribers: Mutex<[Subscriber; 3]>,
}

impl FaultScene {
    fn new(name: &str) -> FaultScene {
        let folder = std::env::temp_dir().join(format!("pipework-{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a new folder");
        let path = folder.join("segment");
        let segment = options().create(&path).expect("a segment");
        let observed = Options::new().read_only(true).open(&path).expect("it may be observed");
        let publisher = segment.publisher().expect("a place");
        let all = SubscriberOptions::new().must_see_all(true);
        let subscribers = [segment.subscriber(), segment.subscriber_with(&all), observed.subscriber()];
        let subscribers = subscribers.map(|subscriber| subscriber.expect("a place")).into();
        let scene = FaultScene { folder, segment, observed, publisher, subscribers };
        // A publisher that waits for room listens for deaths. That opens descriptors, and takes locks whose
        // refusal is no error.
        (0..4).for_each(|_| assert!(scene.publisher.try_publish("full").expect("whole").is_some()));
        let facts = fs::metadata(&path).expect("it is there");
        while !held::listens(Some((facts.dev(), facts.ino()))) {
            held::settle();
            timed_out(scene.publisher.publish("more", A_SLICE)).expect("the ring is full");
        }
        scene.all_receive(b"full", 4);
        scene.works();
        scene
    }

    fn name(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).expect("it was made here")
    }

    /// The folder's files, and the number of this process's descriptors and mappings of files in it
    /// or with its name.
    fn traces(&self) -> (Vec<String>, usize, usize) {
        let entries = |folder| fs::read_dir(folder).expect("it can be read").filter_map(|entry| entry.ok());
        let files = entries(self.folder.as_path()).map(|entry| entry.file_name().to_string_lossy().into());
        let links = entries("/proc/self/fd".as_ref()).filter_map(|entry| fs::read_link(entry.path()).ok());
        let descriptors = links.filter(|link| link.to_string_lossy().contains(self.name())).count();
        let maps = fs::read_to_string("/proc/self/maps").expect("it can be read");
        (files.collect(), descriptors, maps.matches(self.name()).count())
    }

    /// Makes the `nth` call of each name fail in each way, for every `nth` that `run` reaches;
    /// except by a signal if the call is repeated then. `run` must fail as the operation `op` with
    /// each fault, and succeed otherwise.
    fn refuse<T, E: Into<Error>>(
        &self,
        op: &str,
        calls: &[&'static str],
        run: impl Fn() -> std::result::Result<T, E>,
    ) {
        let refusals = calls.iter().flat_map(|call| REFUSALS.map(|errno| (*call, errno)));
        let is_repeated = |(call, errno): &(&str, Errno)| *errno == Errno::INTR && REPEATED.contains(call);
        for (call, errno) in refusals.filter(|refusal| !is_repeated(refusal)) {
            let (mut nth, mut tries) = (0, 0);
            loop {
                let before = self.traces();
                fault::order(call, nth, Fault::Errno(errno.number()));
                let outcome = run().map_err(Into::into);
                if !fault::all_met() {
                    let error = outcome.err();
                    assert_eq!(error, None, "{op} without the call {nth} of {call}");
                    tries += 1;
                    // On a busy machine, a deadline may pass before the wait starts.
                    if nth > 0 || tries == 100 {
                        break;
                    }
                    continue;
                }
                // Where no descriptor is left, files that other tests of this process keep are closed,
                // and it is tried again.
                let is_retried =
                    WITH_DESCRIPTORS.contains(&op) && [Errno::MFILE, Errno::NFILE].contains(&errno);
                let Err(error) = outcome else {
                    assert!(is_retried, "call {nth} of {call} was refused");
                    nth += 1;
                    continue;
                };
                assert_eq!((error.op(), error.errno()), (op, Some(errno.number())), "call {nth} of {call}");
                // Files that are kept for later blobs may be given up, also for another test.
                let (after, what) = (self.traces(), format!("after {error} at call {nth} of {call}"));
                assert_eq!(after.0, before.0, "{what}");
                assert!(after.1 <= before.1 && after.2 <= before.2, "{after:?}, not {before:?} {what}");
                self.works();
                nth += 1;
            }
            assert!(nth > 0, "{op} makes no call of {call}");
        }
    }

    /// Every subscriber gets every message, however often the ring comes round.
    fn works(&self) {
        self.all_receive(b"", 0);
        for turn in 0..6u32 {
            let text = turn.to_le_bytes();
            assert!(self.publisher.try_publish(&text).expect("whole").is_some(), "there is room");
            self.all_receive(&text, 1);
        }
        let audit = self.segment.audit().expect("the kernel reports the locks");
        assert_eq!(audit, Audit { done: 4, ..Audit::default() });
    }

    fn with<T>(&self, who: usize, act: impl FnOnce(&mut Subscriber) -> T) -> T {
        act(&mut self.subscribers.lock().expect("no test has failed")[who])
    }

    /// Receives all with each subscriber, in a thread whose calls do not fail.
    fn all_receive(&self, text: &[u8], count: usize) {
        let receive = || {
            for subscriber in &mut *self.subscribers.lock().expect("no test has failed") {
                let next = || subscriber.try_recv().expect("nothing is missed");
                let received: Vec<_> = std::iter::from_fn(next).collect();
                assert!(received.len() == count && received.iter().all(|message| **message == *text));
            }
        };
        thread::scope(|scope| scope.spawn(receive).join().expect("they receive it"));
    }
}

impl Drop for FaultScene {
    fn drop(&mut self) {
        // Best effort: the folder is among the temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn options() -> Options {
    Options::new().messages(4).message_bytes(40).members(12).observers(true)
}

/// A wait without a result is right if it ended by its deadline.
fn timed_out<T, E: Into<Error>>(outcome: std::result::Result<T, E>) -> Result<()> {
    match outcome.map_err(Into::into) {
        Ok(_) => panic!("nothing was to come"),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
        Err(error) => Err(error),
    }
}

// ---------------------------------------------------------------- birth, opening, members

#[test]
fn channel_that_cannot_be_made_or_opened_leaves_nothing() {
    let world = FaultScene::new("broadcast-making");
    let (path, new) = (world.folder.join("segment"), world.folder.join("new"));
    world.refuse("broadcast create", &["tmpfile", "chmod", "fallocate", "mmap", "fstat", "link"], || {
        options().create(&new).and_then(|segment| segment.unlink())
    });
    world.refuse("broadcast create", &["memfd", "fallocate", "mmap", "seal"], || {
        options().memfd(world.name())
    });
    world.refuse("broadcast open", &["open", "fstat", "pread", "mmap"], || Options::new().open(&path));
    world.refuse("broadcast open", &["open", "fstat", "pread", "mmap"], || {
        Options::new().read_only(true).open(&path)
    });
    world.refuse("broadcast unlink", &["lstat", "unlink"], || {
        let path = world.folder.join("other");
        let unlinked = options().create(&path).expect("a segment").unlink();
        assert_eq!(unlinked.is_err(), path.exists());
        fs::remove_file(path).ok();
        unlinked
    });
}

#[test]
fn end_that_cannot_be_attached_leaves_no_member_and_no_cursor() {
    let world = FaultScene::new("broadcast-attaching");
    let segment = &world.segment;
    world.refuse("broadcast attach publisher", &["open", "lock"], || segment.publisher());
    for start in [Start::Now, Start::Oldest, Start::Latest, Start::After(1)] {
        for must_see_all in [false, true] {
            let begin = SubscriberOptions::new().start(start).must_see_all(must_see_all);
            world
                .refuse("broadcast attach subscriber", &["open", "lock"], || segment.subscriber_with(&begin));
        }
    }
    // Leaving cannot report an error; publishers do not wait for it in any case.
    let all = SubscriberOptions::new().must_see_all(true);
    let (before, leaving) = (world.traces(), segment.subscriber_with(&all).unwrap());
    fault::order("lock", 0, Fault::Errno(Errno::IO.number()));
    drop(leaving);
    assert!(fault::all_met());
    assert_eq!((world.traces(), segment.members().unwrap().len()), (before, 3));
    world.works();
}

#[test]
fn failed_members_audit_sync_and_recover_change_nothing() {
    let world = FaultScene::new("broadcast-asking");
    let (segment, shared) = (&world.segment, world.segment.shared());
    for asked in [segment, &world.observed] {
        world.refuse("broadcast members", &["lock"], || asked.members());
        world.refuse("broadcast audit", &["lock"], || asked.audit());
    }
    world.refuse("broadcast sync", &["msync"], || segment.sync());
    world.refuse("broadcast recover", &["lock"], || {
        // As a dead subscriber would leave it. No process has its number, so none holds its lock.
        let dead = shared.member(9).expect("there are twelve");
        dead.word.store(Role::Subscriber as u64, Ordering::Relaxed);
        cursor(dead).store(Cursor::new(0, 0).to_bits(), Ordering::Relaxed);
        let stopped = segment.recover();
        if stopped.is_err() {
            // Restore everything for the messages that follow.
            assert_eq!(segment.recover(), Ok(1));
        }
        assert!(Shared::role(dead.word.load(Ordering::Relaxed)).is_none());
        stopped
    });
    let stats = segment.stats();
    assert!(stats.dead_members == stats.recovered && stats.recovered > REFUSALS.len() as u64);
}

// ---------------------------------------------------------------- messages

#[test]
fn recv_can_be_repeated_after_a_failed_system_call() {
    let world = FaultScene::new("broadcast-waiting");
    for who in 0..3 {
        world.refuse("broadcast recv", &["futex"], || {
            let waited = timed_out(world.with(who, |subscriber| subscriber.recv(A_SLICE)));
            world.publisher.try_publish("next")?.expect("there is room");
            world.all_receive(b"next", 1);
            waited
        });
    }
}

#[test]
fn publish_that_fails_while_waiting_for_room_publishes_nothing() {
    let world = FaultScene::new("broadcast-full");
    world.refuse("broadcast publish", &["futex", "lock"], || {
        for _ in 0..4 {
            world.publisher.try_publish("full")?.expect("there is room");
        }
        let waited = timed_out(world.publisher.publish("more", A_SLICE));
        world.all_receive(b"full", 4);
        waited
    });
}

#[test]
fn long_message_that_cannot_be_made_takes_no_number() {
    const OP: &str = "broadcast blob for a long message";
    let world = FaultScene::new("broadcast-long");
    let long = vec![7; 5000];
    // It keeps no file to use it again.
    let segment = Options::new().blob_pool(0).open(world.folder.join("segment")).unwrap();
    let publisher = segment.publisher().unwrap();
    let publish = || {
        let before = segment.newest();
        let published = publisher.try_publish(&long).map(|number| number.expect("there is room"));
        match published {
            Ok(number) => {
                assert_eq!(number, before + 1);
                world.all_receive(&long, 1);
            }
            Err(_) => assert_eq!(segment.newest(), before),
        }
        published
    };
    publish().expect("nothing is refused");
    world.works();
    world.refuse(OP, &["tmpfile", "chmod", "fallocate", "link", "mmap"], publish);
    // The later ones are for the files of messages that leave the ring, which a sweep frees then.
    fault::order("lock", 0, Fault::Errno(Errno::IO.number()));
    let refused = publish().expect_err("the first lock is that of the new file");
    assert_eq!((refused.op(), refused.errno(), fault::all_met()), (OP, Some(Errno::IO.number()), true));
    fault::order("lock", 1, Fault::Errno(Errno::IO.number()));
    publish().expect("the message needs no other lock");
    fault::all_met();
    world.works();
}

#[test]
fn long_message_that_cannot_be_received_now_stays() {
    let world = FaultScene::new("broadcast-receiving");
    let long = vec![7; 200_000];
    for who in 0..3 {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR] {
            for call in ["open", "fstat", "mmap", "lock", "pread"] {
                let publisher =
                    Options::new().open(world.folder.join("segment")).unwrap().publisher().unwrap();
                publisher.try_publish(&long).unwrap().expect("there is room");
                fault::order(call, 0, Fault::Errno(errno.number()));
                let first = world.with(who, |subscriber| subscriber.try_recv());
                if fault::all_met() {
                    let error = first.map(drop).expect_err("a call has failed");
                    assert_eq!(Error::from(error).errno(), Some(errno.number()), "{call}");
                } else {
                    assert!(first.is_ok_and(|first| first.is_some_and(|first| *first == *long)));
                    world.with(who, |subscriber| {
                        assert!(subscriber.try_recv().is_ok_and(|next| next.is_none()))
                    });
                    publisher.try_publish(&long).unwrap().expect("there is room");
                }
                for subscriber in &mut *world.subscribers.lock().unwrap() {
                    while let Some(message) = subscriber.try_recv().expect("there is all that it needs") {
                        assert_eq!(*message, *long);
                    }
                }
                world.works();
            }
        }
    }
}

#[test]
fn doorbell_or_task_that_gets_no_thread_or_descriptor_leaves_nothing() {
    let world = FaultScene::new("broadcast-doorbells");
    for call in ["thread", "eventfd"] {
        for errno in [Errno::MFILE, Errno::NOMEM] {
            let refused = |error: Option<Error>| {
                assert!(fault::all_met(), "it makes no call of {call}");
                // Where no descriptor is left, it may be tried again.
                let is_retried = errno == Errno::MFILE && error.is_none();
                assert!(
                    is_retried || error.and_then(|error| error.errno()) == Some(errno.number()),
                    "{call}"
                );
                world.works();
            };
            let order = || fault::order(call, 0, Fault::Errno(errno.number()));
            for who in 0..2 {
                order();
                refused(world.with(who, |subscriber| subscriber.doorbell().err()));
            }
            order();
            refused(world.publisher.doorbell().err());
        }
    }
    fault::order("thread", 0, Fault::Errno(Errno::NOMEM.number()));
    let mut task = Context::from_waker(Waker::noop());
    let polled = world.segment.subscriber().unwrap().poll_recv(&mut task);
    let Poll::Ready(Err(RecvError::Failed(error))) = polled else { panic!("{polled:?}") };
    assert_eq!((error.errno(), fault::all_met()), (Some(Errno::NOMEM.number()), true));
    let _kept = world.with(1, |subscriber| subscriber.doorbell()).expect("nothing is refused");
    world.works();
}
