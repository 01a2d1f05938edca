//! Every system call of every operation, made to fail in turn: the error names its operation and
//! has the kernel's number, nothing is left behind, and the segment still works.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use super::shared::Shared;
use super::*;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::event::FIRST_SLICE;
use crate::segment::deaths::held::settle;
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
const WITH_DESCRIPTORS: [&str; 2] = ["reqrep attach client", "reqrep attach server"];

/// A segment with two slots at a path in its own folder, a client and a server.
struct FaultScene {
    folder: PathBuf,
    segment: Segment,
    client: Client,
    server: Server,
}

impl FaultScene {
    fn new(name: &str) -> FaultScene {
        let folder = std::env::temp_dir().join(format!("pipework-{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a new folder");
        let segment = options().create(folder.join("segment")).expect("a segment");
        let (client, server) = (segment.client().expect("a place"), segment.server().expect("a place"));
        // Now, because it opens descriptors.
        settle();
        client.sender().liveness().look_after([0], "listen for deaths").expect("a first look");
        FaultScene { folder, segment, client, server }
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
                assert_eq!(self.traces(), before, "after {error} at call {nth} of {call}");
                self.works();
                nth += 1;
            }
            assert!(nth > 0, "{op} makes no call of {call}");
        }
    }

    fn works(&self) {
        for turn in 0..100u32 {
            let ticket = self.client.try_send(&turn.to_le_bytes()).expect("whole").expect("a slot is free");
            let request = self.server.try_recv().expect("whole").expect("it was sent");
            assert_eq!(&*request, turn.to_le_bytes());
            assert_eq!(request.reply("yes"), Ok(true));
            assert_eq!(&*self.client.recv(ticket, Deadline::now()).expect("it was answered"), b"yes");
        }
        let audit = self.segment.audit().expect("the kernel reports the locks");
        // Entries of cancelled calls are removed by the next server that passes them.
        assert_eq!(Audit { entries: 0, ..audit }, Audit { free: 2, ..Audit::default() });
    }
}

impl Drop for FaultScene {
    fn drop(&mut self) {
        // Best effort: the folder is among the temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn options() -> Options {
    Options::new().slots(2).members(8).request_bytes(100).reply_bytes(100)
}

/// A wait without a result is right if it ended by its deadline.
fn timed_out<T, E: Into<Error>>(outcome: std::result::Result<T, E>) -> Result<()> {
    match outcome.map_err(Into::into) {
        Ok(_) => panic!("nothing was to come"),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
        Err(error) => Err(error),
    }
}

// ---------------------------------------------------------------- birth and opening

#[test]
fn create_that_fails_leaves_no_file() {
    let world = FaultScene::new("making");
    let path = world.folder.join("new");
    let create = |options: &Options| options.create(&path).and_then(|segment| segment.unlink());
    world.refuse("reqrep create", &["tmpfile", "chmod", "fallocate", "mmap", "fstat", "link"], || {
        create(&options())
    });
    let sparse = options().request_bytes(5000).sparse(true);
    world.refuse("reqrep create", &["truncate", "fallocate"], || create(&sparse));
    world.refuse("reqrep create", &["memfd", "chmod", "fallocate", "mmap", "seal"], || {
        options().memfd(world.name())
    });
    // File systems without unnamed files, and unnamed files that cannot be given a name.
    let otherwise = |call, errno: Errno| {
        fault::order(call, 0, Fault::Errno(errno.number()));
        create(&options())
    };
    world.refuse("reqrep create", &["create", "chmod", "fallocate", "mmap", "rename"], || {
        otherwise("tmpfile", Errno::OPNOTSUPP)
    });
    world.refuse("reqrep create", &["create", "rename"], || otherwise("link", Errno::NOENT));
}

#[test]
fn create_names_only_a_whole_segment_on_any_file_system() {
    let world = FaultScene::new("naming");
    for (call, errno) in [("tmpfile", Errno::OPNOTSUPP), ("link", Errno::NOENT)] {
        let path = world.folder.join(call);
        fault::order(call, 0, Fault::Errno(errno.number()));
        let made = options().create(&path).unwrap();
        assert!(fault::all_met());
        let (client, server) =
            (made.client().unwrap(), Options::new().open(&path).unwrap().server().unwrap());
        let ticket = client.try_send("a").unwrap().expect("a slot is free");
        assert!(server.try_recv().unwrap().expect("it was sent").reply("b").unwrap());
        assert_eq!(&*client.recv(ticket, Deadline::now()).unwrap(), b"b");
        fault::order(call, 0, Fault::Errno(errno.number()));
        let again = options().create(&path).map(drop).map_err(|error| error.errno());
        assert_eq!((again, fault::all_met()), (Err(Some(Errno::EXIST.number())), true));
    }
    let mut files = world.traces().0;
    files.sort();
    assert_eq!(files, ["link", "segment", "tmpfile"]);
}

#[test]
fn open_that_fails_leaves_no_descriptor_or_mapping() {
    let world = FaultScene::new("opening");
    let path = world.folder.join("segment");
    world.refuse("reqrep open", &["open", "fstat", "pread", "mmap"], || Options::new().open(&path));
    let memfd = options().memfd(world.name()).unwrap();
    world.refuse("reqrep open", &["fcntl", "fstat", "pread", "mmap"], || {
        let fd = memfd.as_fd().try_clone_to_owned().expect("descriptors are left");
        Options::new().from_fd(fd)
    });
}

// ---------------------------------------------------------------- members

#[test]
fn attach_that_fails_leaves_no_member() {
    let world = FaultScene::new("attaching");
    let segment = &world.segment;
    world.refuse("reqrep attach client", &["open", "lock"], || segment.client());
    world.refuse("reqrep attach server", &["open", "lock"], || segment.server());
    // Leaving cannot report an error; the member's slots are freed in any case.
    let (before, client) = (world.traces(), segment.client().unwrap());
    fault::order("lock", 0, Fault::Errno(Errno::IO.number()));
    drop(client);
    assert!(fault::all_met());
    assert_eq!((world.traces(), segment.members().unwrap().len()), (before, 2));
    world.works();
}

#[test]
fn attach_without_proc_opens_the_path_if_it_is_the_same_file() {
    let world = FaultScene::new("procless");
    let without_proc = || fault::order("open", 0, Fault::Errno(Errno::NOENT.number()));
    let refused = |segment: &Segment| segment.client().map(drop).map_err(|error| error.errno());
    without_proc();
    drop(world.segment.client().unwrap());
    assert!(fault::all_met());
    fs::rename(world.folder.join("segment"), world.folder.join("elsewhere")).unwrap();
    let other = options().create(world.folder.join("segment")).unwrap();
    for segment in [&world.segment, &options().anonymous().unwrap()] {
        without_proc();
        assert_eq!(refused(segment), Err(Some(Errno::NOENT.number())));
        assert!(fault::all_met());
    }
    assert_eq!((world.segment.unlink(), other.unlink()), (Ok(false), Ok(true)));
    world.works();
}

#[test]
fn recovery_continues_after_a_failed_system_call() {
    let world = FaultScene::new("recovering");
    let shared = world.segment.shared();
    world.refuse("reqrep recover", &["lock"], || {
        // As a dead client would leave it: its role, and a slot. No process has its number, so none
        // holds its lock.
        let dead = shared.member(5).expect("there are eight");
        dead.word.store(Role::Client as u64, Ordering::Relaxed);
        shared.slot(1).expect("there are two").acquire(5).expect("it is free");
        let stopped = world.segment.recover();
        if stopped.is_err() {
            // Restore everything else for the calls that follow.
            assert_eq!(world.segment.recover(), Ok(1));
        }
        assert!(Shared::role(dead.word.load(Ordering::Relaxed)).is_none());
        stopped
    });
    let stats = world.segment.stats();
    assert!(stats.dead_members == stats.recovered && stats.recovered > REFUSALS.len() as u64);
}

// ---------------------------------------------------------------- calls

#[test]
fn call_that_fails_frees_its_slot() {
    let world = FaultScene::new("calling");
    let FaultScene { client, server, .. } = &world;
    world.refuse("reqrep call", &["futex"], || timed_out(client.call("a", Duration::from_millis(5))));
    world.refuse("reqrep recv", &["futex"], || timed_out(server.recv(Duration::from_millis(5))));
    let wary = world.segment.client_with(&ClientOptions::new().needs_server(true)).expect("a place");
    world.refuse("reqrep send", &["lock"], || {
        // After this time the kernel is asked again.
        std::thread::sleep(FIRST_SLICE);
        let ticket = wary.try_send("a")?.expect("a slot is free");
        wary.cancel(ticket).map(drop)
    });
}

#[test]
fn recv_can_be_repeated_after_a_failed_system_call() {
    let world = FaultScene::new("waiting");
    let FaultScene { client, server, .. } = &world;
    world.refuse("reqrep recv", &["futex", "lock"], || {
        let ticket = client.try_send("a")?.expect("a slot is free");
        let request = server.try_recv()?.expect("it was sent");
        // At the end of the slice it asks whether the server is alive.
        let waited = timed_out(client.recv(ticket, A_SLICE));
        assert_eq!(request.reply("b"), Ok(true));
        assert_eq!(&*client.recv(ticket, Deadline::now()).expect("the ticket stays good"), b"b");
        waited
    });
}

#[test]
fn send_that_fails_while_waiting_for_a_slot_sends_nothing() {
    let world = FaultScene::new("sending");
    let client = &world.client;
    world.refuse("reqrep send", &["futex", "lock"], || {
        let tickets = ["a", "b"].map(|text| client.try_send(text).expect("whole").expect("a slot is free"));
        let waited = timed_out(client.send("c", A_SLICE));
        assert_eq!(client.pending(), 2);
        tickets.iter().for_each(|ticket| assert_eq!(client.cancel(*ticket), Ok(None)));
        waited
    });
}

// ---------------------------------------------------------------- the rest

#[test]
fn failed_members_audit_sync_and_unlink_change_nothing() {
    let world = FaultScene::new("asking");
    let FaultScene { segment, client, .. } = &world;
    world.refuse("reqrep members", &["lock"], || segment.members());
    world.refuse("reqrep audit", &["lock"], || {
        let ticket = client.try_send("a")?.expect("a slot is free");
        let audit = segment.audit().map(drop);
        client.cancel(ticket).expect("no server took it");
        audit
    });
    world.refuse("reqrep sync", &["msync"], || segment.sync());
    world.refuse("reqrep unlink", &["lstat", "unlink"], || {
        let path = world.folder.join("other");
        let unlinked = options().create(&path).expect("a segment").unlink();
        assert_eq!(unlinked.is_err(), path.exists());
        fs::remove_file(path).ok();
        unlinked
    });
}
