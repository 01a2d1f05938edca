//! Programs that close descriptors of the library: living members lose nothing, dead members are
//! noticed, and a member that lost its descriptors gets an error.

use std::fs::File;
use std::iter;
use std::mem;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Client, ClientOptions, Options, Server};
use pipework::{Error, ErrorKind, Result};
use rustix::event::PollFlags;

use super::{
    SEVERAL_SLICES, assert_all_free, assert_answers, assert_prompt, kind, options, server,
    sleep_until_killed, small,
};
use crate::harness::damage::{close, close_all, descriptors_of, eventfd_at};
use crate::harness::{Folder, PATIENCE, alone, awaited, fork, in_a_task, shared, wait_for};

/// Opens another file under every descriptor number that is free.
fn take_all_numbers(folder: &Folder) -> Vec<File> {
    let other = folder.join("another file");
    (0..16).map(|_| File::options().create(true).append(true).open(&other).expect("a file")).collect()
}

fn assert_bad_descriptor(error: Error) {
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::EBADF)), "{error}");
}

#[test]
fn member_with_foreign_files_under_its_numbers_counts_no_peer_as_dead() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let (one, two) = (server(&segment), server(&segment));
        let client = segment.client().unwrap();
        assert_answers(&client, "before");
        // Let a living member hold a call as well.
        let (flags, slow) = (shared(2), segment.client().unwrap());
        let ticket = slow.send("x", PATIENCE).unwrap();
        for reopens in [false, true] {
            fork(|| {
                let mine = reopens.then(|| Options::new().open(&path).unwrap());
                let segment = mine.unwrap_or_else(|| segment.clone());
                close_all();
                let _others = if reopens { take_all_numbers(&folder) } else { vec![] };
                segment.recover().map_err(assert_bad_descriptor).unwrap_err();
                segment.members().map(drop).map_err(assert_bad_descriptor).unwrap_err();
                // The drop closes only descriptors that are its own.
                let before = crate::harness::descriptors();
                drop(segment);
                assert_eq!(crate::harness::descriptors(), before);
            })
            .join();
        }
        assert_eq!((segment.recover(), segment.stats().dead_members), (Ok(0), 0));
        assert_eq!(*slow.recv(ticket, PATIENCE).unwrap(), *b"X");
        assert_answers(&client, "after");
        flags[0].store(1, SeqCst);
        one.kill();
        two.kill();
    });
}

/// The number of the segment's descriptor is reused for a lock, and a lock cannot be seen through
/// its own descriptor.
#[test]
fn recover_through_a_lock_does_not_count_the_lock_holder_as_dead() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        options().create(&path).unwrap();
        fork(|| {
            let [one, two] = [(); 2].map(|()| Options::new().open(&path).unwrap());
            let first = *descriptors_of(&path).iter().min().expect("two are open");
            close(first);
            let client = two.client().unwrap();
            assert!(descriptors_of(&path).contains(&first), "the lock has taken the number");
            one.recover().map_err(assert_bad_descriptor).unwrap_err();
            drop(one);
            assert_eq!(two.recover(), Ok(0));
            assert!(two.members().unwrap()[0].is_alive, "its lock was not closed");
            drop(client);
            assert_eq!(two.members(), Ok(vec![]));
        })
        .join();
    });
}

#[test]
fn server_that_becomes_a_daemon_goes_on_and_its_death_is_noticed() {
    alone(|| a_daemon_serves(false));
}

#[test]
fn task_of_a_server_that_becomes_a_daemon_goes_on_and_its_death_is_noticed() {
    alone(|| a_daemon_serves(true));
}

/// The descriptors that it opens get the old numbers and are of the same file. Only the library can
/// tell which handle they belong to.
#[test]
fn daemon_keeps_a_reopened_segment_when_its_old_handles_are_dropped() {
    alone(|| {
        // The numbers are reused in the same order, or the segment's number goes to a lock or to an
        // eventfd.
        for taken in 0..4 {
            let folder = Folder::new();
            let path = folder.join("segment");
            let segment = options().create(&path).unwrap();
            let flags = shared(1);
            let daemon = fork(|| {
                let old = Options::new().open(&path).unwrap();
                let ends = (old.server().unwrap(), old.client().unwrap());
                mem::forget(ends.0.doorbell().unwrap());
                close_all();
                let others: Vec<_> = (0..taken).map(|_| File::open("/dev/null").unwrap()).collect();
                let segment = Options::new().open(&path).unwrap();
                drop(others);
                let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
                // There is one more if the old server's thread has just taken its lock again.
                let open = descriptors_of(&path);
                drop((old, ends));
                let mine = descriptors_of(&path);
                assert_eq!(mine.len(), 3, "the old handles must not close these");
                assert!(mine.iter().all(|fd| open.contains(fd)));
                drop(client);
                let _request = server.recv(PATIENCE).unwrap();
                flags[0].store(1, SeqCst);
                sleep_until_killed();
            });
            let client = segment.client().unwrap();
            let ticket = client.send("a", PATIENCE).unwrap();
            awaited(&flags[0]);
            assert_eq!(segment.recover(), Ok(0), "living members lose nothing");
            let killed = Instant::now();
            daemon.kill();
            assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
            assert_prompt(killed);
        }
    });
}

fn a_daemon_serves(in_task: bool) {
    let folder = Folder::new();
    let path = folder.join("segment");
    let segment = options().create(&path).unwrap();
    let flags = shared(2);
    let daemon = fork(|| {
        let server = Options::new().open(&path).unwrap().server().unwrap();
        close_all();
        let _others = take_all_numbers(&folder);
        flags[0].store(1, SeqCst);
        let recv = || if in_task { in_a_task(server.recv_async()) } else { server.recv(PATIENCE) };
        // At the end of a slice it takes its lock again.
        let request = recv().unwrap();
        let answer = request.to_ascii_uppercase();
        request.reply(&answer).unwrap();
        let _request = recv().unwrap();
        flags[1].store(1, SeqCst);
        sleep_until_killed();
    });
    awaited(&flags[0]);
    thread::sleep(Duration::from_millis(150));
    let client = segment.client().unwrap();
    let members = segment.members().unwrap();
    assert_eq!(members.iter().map(|member| member.number).collect::<Vec<_>>(), [1, 2]);
    assert!(members.iter().all(|member| member.is_alive), "{members:?}");
    assert_answers(&client, "to a daemon");
    let ticket = client.send("b", PATIENCE).unwrap();
    awaited(&flags[1]);
    let killed = Instant::now();
    daemon.kill();
    assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
    assert_prompt(killed);
    assert_all_free(&segment);
}

/// Another member has the number before its first holder tries to take it again.
#[test]
fn member_that_lost_its_number_rejoins_under_another() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let flags = shared(3);
        let number = |client: &Client| {
            let pid = std::process::id();
            let members = client.segment().members().unwrap();
            members.iter().find(|member| member.pid == pid).map(|member| member.number)
        };
        let loser = fork(|| {
            let segment = Options::new().open(&path).unwrap();
            let open = descriptors_of(&path);
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            let ticket = client.send("lost", PATIENCE).unwrap();
            let request = server.recv(PATIENCE).unwrap();
            // Closes the two locks, not the segment.
            descriptors_of(&path).into_iter().filter(|fd| !open.contains(fd)).for_each(close);
            flags[0].store(1, SeqCst);
            awaited(&flags[1]);
            assert_eq!(kind(request.reply("too late")), Some(ErrorKind::Stale));
            assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::Stale));
            assert_eq!(kind(server.recv(Duration::ZERO)), Some(ErrorKind::TimedOut));
            let ticket = client.send("found", PATIENCE).unwrap();
            assert_eq!(number(&client), Some(3));
            let _request = server.recv(PATIENCE).unwrap();
            assert_eq!(kind(client.recv(ticket, SEVERAL_SLICES)), Some(ErrorKind::TimedOut));
            flags[2].store(1, SeqCst);
            sleep_until_killed();
        });
        awaited(&flags[0]);
        let clients: Vec<_> = iter::repeat_with(|| segment.client().unwrap()).take(2).collect();
        assert_eq!(segment.members().unwrap().iter().map(|member| member.number).collect::<Vec<_>>(), [1, 2]);
        assert_all_free(&segment);
        let held = clients[1].send("held", PATIENCE).unwrap();
        assert!(clients[1].cancel(held).unwrap().is_none());
        flags[1].store(1, SeqCst);
        awaited(&flags[2]);
        assert_eq!(segment.members().unwrap().len(), 4);
        loser.kill();
        assert_eq!(segment.recover(), Ok(2), "neither of them shares a number");
        drop(clients);
        assert_all_free(&segment);
    });
}

/// A member's number finds its calls, and the number belongs to the next holder as soon as that one
/// joins.
#[test]
fn member_that_lost_its_number_takes_no_call_of_the_next_holder() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let server = segment.server().unwrap();
        let answer = || server.recv(PATIENCE).unwrap().reply("the heir's").unwrap();
        for way in ["recv any", "forget all", "pending"] {
            let mine = Options::new().open(&path).unwrap();
            let open = descriptors_of(&path);
            let loser = mine.client().unwrap();
            let ticket = loser.send("the first holder's", PATIENCE).unwrap();
            answer();
            loser.recv(ticket, PATIENCE).unwrap();
            descriptors_of(&path).into_iter().filter(|fd| !open.contains(fd)).for_each(close);
            let heir = segment.client().unwrap();
            assert_eq!(segment.members().unwrap().len(), 2, "the next holder has the number");
            let ticket = heir.send("a", PATIENCE).unwrap();
            match way {
                "recv any" => {
                    answer();
                    assert!(
                        !matches!(loser.recv_any(Duration::ZERO), Ok(Some(_))),
                        "the call is the next holder's"
                    );
                }
                "forget all" => {
                    assert_eq!(loser.forget_all(), 0);
                    answer();
                }
                _ => {
                    assert_eq!((loser.pending(), heir.pending()), (0, 1));
                    answer();
                }
            }
            assert_eq!(*heir.recv(ticket, PATIENCE).unwrap(), *b"the heir's");
            drop((loser, heir));
        }
        assert_all_free(&segment);
    });
}

/// What it does then does not concern the request, which is another server's.
#[test]
fn a_server_that_was_taken_for_dead_reads_no_long_request() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let (client, server) =
            (segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap(), segment.server().unwrap());
        let flags = shared(2);
        let loser = fork(|| {
            let segment = Options::new().open(&path).unwrap();
            let open = descriptors_of(&path);
            let server = segment.server().unwrap();
            let mut request = server.claim(PATIENCE).unwrap();
            descriptors_of(&path).into_iter().filter(|fd| !open.contains(fd)).for_each(close);
            flags[0].store(1, SeqCst);
            awaited(&flags[1]);
            assert_eq!(kind(request.read()), Some(ErrorKind::Stale));
        });
        let long = [7; 100];
        let ticket = client.send(&long, PATIENCE).unwrap();
        awaited(&flags[0]);
        // The client's thread may have recovered already.
        segment.recover().unwrap();
        let request = server.recv(PATIENCE).unwrap();
        assert_eq!((&*request, request.redeliveries()), (&long[..], 1));
        flags[1].store(1, SeqCst);
        loser.join();
        assert_eq!(request.reply("done"), Ok(true));
        assert_eq!(&*client.recv(ticket, PATIENCE).unwrap(), b"done");
    });
}

/// A segment without a name cannot be opened again.
#[test]
fn recv_fails_within_a_slice_when_the_lock_cannot_be_taken_again() {
    alone(|| {
        let segment = small();
        let living = segment.client().unwrap();
        fork(|| {
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            close_all();
            let began = Instant::now();
            server.recv(PATIENCE).map(drop).map_err(assert_bad_descriptor).unwrap_err();
            assert_prompt(began);
            drop((client, server));
        })
        .join();
        assert_eq!(segment.recover(), Ok(2));
        assert_eq!(segment.members().unwrap().len(), 1);
        drop(living);
    });
}

/// A thread of the library notices it for these waiters.
#[test]
fn tasks_and_event_loops_fail_within_a_slice_when_the_lock_is_lost() {
    type Way<'a> = dyn Fn(&Client, &Server) -> Result<()> + Sync + 'a;
    let looped = |bell: OwnedFd, look: &dyn Fn() -> Result<()>| {
        loop {
            wait_for(&bell, PollFlags::IN);
            look()?;
        }
    };
    let ways: [&Way<'_>; 6] = [
        &|_, server| in_a_task(server.recv_async()).map(drop),
        &|_, server| looped(server.doorbell()?, &|| server.try_recv().map(drop)),
        &|client, _| {
            let ticket = client.send("a", PATIENCE)?;
            in_a_task(client.recv_async(ticket)).map(drop).map_err(Error::from)
        },
        &|client, _| {
            let ticket = client.send("a", PATIENCE)?;
            looped(client.doorbell()?, &|| client.try_recv(ticket).map(drop).map_err(Error::from))
        },
        &|client, _| {
            while client.try_send("a")?.is_some() {}
            in_a_task(client.send_async("b")).map(drop)
        },
        &|client, _| {
            while client.try_send("a")?.is_some() {}
            looped(client.send_doorbell()?, &|| client.try_send("b").map(drop))
        },
    ];
    alone(|| {
        for way in ways {
            let lost = fork(|| {
                let folder = Folder::new();
                let path = folder.join("segment");
                options().create(&path).unwrap();
                let segment = Options::new().open(&path).unwrap();
                let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
                // An unlinked segment cannot be opened again.
                let lost = descriptors_of(&path);
                assert!(lost.len() == 3 && segment.unlink().unwrap());
                let began = thread::scope(|scope| {
                    let waiting =
                        scope.spawn(|| way(&client, &server).map_err(assert_bad_descriptor).unwrap_err());
                    thread::sleep(Duration::from_millis(20));
                    lost.into_iter().for_each(close);
                    let began = Instant::now();
                    waiting.join().unwrap();
                    began
                });
                assert_prompt(began);
            });
            lost.join();
        }
    });
}

/// The member takes its lock again although the client itself never waits.
#[test]
fn client_that_becomes_a_daemon_keeps_the_calls_of_its_tasks() {
    alone(|| assert_daemon_keeps_its_calls(|_| close_all()));
}

/// Eventfds under the old numbers cannot be opened again through /proc, as files could.
#[test]
fn client_whose_numbers_became_eventfds_keeps_the_calls_of_its_tasks() {
    alone(|| {
        // Each is replaced in one step, because a newly opened descriptor would get another number.
        assert_daemon_keeps_its_calls(|path| descriptors_of(path).into_iter().for_each(eventfd_at));
    });
}

fn assert_daemon_keeps_its_calls(becomes_daemon: impl Fn(&Path)) {
    let folder = Folder::new();
    let path = folder.join("segment");
    let segment = options().create(&path).unwrap();
    let flags = shared(1);
    let daemon = fork(|| {
        let client = Options::new().open(&path).unwrap().client().unwrap();
        let ticket = client.send("x", PATIENCE).unwrap();
        becomes_daemon(&path);
        let _others = take_all_numbers(&folder);
        flags[0].store(1, SeqCst);
        assert_eq!(*in_a_task(client.recv_async(ticket)).unwrap(), *b"X");
    });
    awaited(&flags[0]);
    let began = Instant::now();
    while !segment.members().unwrap()[0].is_alive {
        thread::sleep(Duration::from_millis(1));
        assert_prompt(began);
    }
    assert_eq!(segment.recover(), Ok(0));
    let server = server(&segment);
    daemon.join();
    server.kill();
}

/// Its earlier call has ended, and the call that it sends as a new member rings that member's bell.
#[test]
fn task_gets_stale_when_its_client_was_taken_for_dead() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let flags = shared(2);
        let loser = fork(|| {
            let segment = Options::new().open(&path).unwrap();
            let open = descriptors_of(&path);
            let client = segment.client().unwrap();
            let ticket = client.send("lost", PATIENCE).unwrap();
            let mut thief = None;
            let stale = in_a_task(async {
                tokio::select! {
                    biased;
                    reply = client.recv_async(ticket) => kind(reply),
                    // While it waits, it loses its lock, and its number before it looks.
                    () = async {
                        while segment.stats().dead_members == 0 {
                            drop(thief.take());
                            descriptors_of(&path).into_iter().filter(|fd| !open.contains(fd)).for_each(close);
                            thief = Some(segment.client().unwrap());
                        }
                        std::future::pending().await
                    } => None,
                }
            });
            assert_eq!(stale, Some(ErrorKind::Stale));
            flags[0].store(1, SeqCst);
            awaited(&flags[1]);
            let began = Instant::now();
            assert_eq!(*in_a_task(client.call_async("a")).unwrap(), *b"A");
            assert_prompt(began);
        });
        awaited(&flags[0]);
        let server = server(&segment);
        flags[1].store(1, SeqCst);
        loser.join();
        server.kill();
    });
}
