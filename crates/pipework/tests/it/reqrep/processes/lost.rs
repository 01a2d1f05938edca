//! Programs that close descriptors which they do not know: the living are not robbed, the dead are
//! noticed, and who lost something is told.

use std::fs::File;
use std::future::Future;
use std::iter;
use std::mem;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Waker};
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

/// Opens something else under every number that is free now.
fn take_all_numbers(folder: &Folder) -> Vec<File> {
    let other = folder.join("another file");
    (0..16).map(|_| File::options().create(true).append(true).open(&other).expect("a file")).collect()
}

fn told(error: Error) {
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::EBADF)), "{error}");
}

#[test]
fn who_asks_a_strangers_file_takes_nobody_for_dead() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let (one, two) = (server(&segment), server(&segment));
        let client = segment.client().unwrap();
        assert_answers(&client, "before");
        // The living hold a call, too.
        let (flags, slow) = (shared(2), segment.client().unwrap());
        let ticket = slow.send("x", PATIENCE).unwrap();
        for reopens in [false, true] {
            fork(|| {
                let mine = reopens.then(|| Options::new().open(&path).unwrap());
                let segment = mine.unwrap_or_else(|| segment.clone());
                close_all();
                let _others = if reopens { take_all_numbers(&folder) } else { vec![] };
                segment.recover().map_err(told).unwrap_err();
                segment.members().map(drop).map_err(told).unwrap_err();
                // It closes nothing that is not its own.
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

/// The number of the segment's descriptor becomes that of a lock, through which that lock is not
/// seen.
#[test]
fn who_asks_through_a_lock_takes_its_holder_for_nobody() {
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
            one.recover().map_err(told).unwrap_err();
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
fn a_server_that_becomes_a_daemon_goes_on_and_its_death_is_noticed() {
    alone(|| a_daemon_serves(false));
}

#[test]
fn so_it_is_where_a_task_waits() {
    alone(|| a_daemon_serves(true));
}

/// What it opens gets the old numbers, and is of the same file: only the library can tell whose
/// they are.
#[test]
fn a_daemon_that_opens_its_segment_again_does_not_lose_it_with_the_old_handles() {
    alone(|| {
        // The numbers come back in the same order, or the segment's is that of a lock, or of an
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
                // And one more, if the old server's thread has just got its lock back.
                let open = descriptors_of(&path);
                drop((old, ends));
                let mine = descriptors_of(&path);
                assert_eq!(mine.len(), 3, "they are not the old handles' to close");
                assert!(mine.iter().all(|fd| open.contains(fd)));
                drop(client);
                let _request = server.recv(PATIENCE).unwrap();
                flags[0].store(1, SeqCst);
                sleep_until_killed();
            });
            let client = segment.client().unwrap();
            let ticket = client.send("a", PATIENCE).unwrap();
            awaited(&flags[0]);
            assert_eq!(segment.recover(), Ok(0), "the living hold what they have");
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

/// Somebody has the number by the time that its first holder comes back.
#[test]
fn who_lost_its_number_joins_anew_and_shares_none() {
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
            // The two locks, not the segment.
            descriptors_of(&path).into_iter().filter(|fd| !open.contains(fd)).for_each(close);
            flags[0].store(1, SeqCst);
            awaited(&flags[1]);
            assert_eq!(kind(request.reply("to nobody")), Some(ErrorKind::Stale));
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

/// A number finds calls, and it is the next holder's from the moment that this one joins.
#[test]
fn who_lost_its_number_takes_nothing_of_the_next_holder() {
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
            let ticket = loser.send("its own", PATIENCE).unwrap();
            answer();
            loser.recv(ticket, PATIENCE).unwrap();
            descriptors_of(&path).into_iter().filter(|fd| !open.contains(fd)).for_each(close);
            let heir = segment.client().unwrap();
            assert_eq!(segment.members().unwrap().len(), 2, "the number is the heir's");
            let ticket = heir.send("a", PATIENCE).unwrap();
            match way {
                "recv any" => {
                    answer();
                    assert!(!matches!(loser.recv_any(Duration::ZERO), Ok(Some(_))), "it is not its call");
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

/// Whatever it does then, the request is another's, and so is what the slot says of its server.
#[test]
fn a_server_that_was_taken_for_dead_asks_for_no_more_of_a_request() {
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
            assert_eq!(kind(request.next_part(PATIENCE)), Some(ErrorKind::Stale));
        });
        let long = [7; 100];
        let mut sending = pin!(client.send_async(&long));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sending.as_mut().poll(&mut context).is_pending());
        awaited(&flags[0]);
        // Unless the client's thread has done so already.
        segment.recover().unwrap();
        let mut request = server.claim(PATIENCE).unwrap();
        assert_eq!(kind(request.next_part(Duration::ZERO)), Some(ErrorKind::TimedOut));
        flags[1].store(1, SeqCst);
        loser.join();
        assert!(sending.as_mut().poll(&mut context).is_ready());
        assert_eq!(request.next_part(PATIENCE), Ok(true));
        assert_eq!(request.read().unwrap(), &long[64..]);
        assert_eq!(request.reply("done"), Ok(true));
    });
}

/// A segment without a name cannot be opened again.
#[test]
fn who_cannot_take_its_lock_again_is_told_within_a_slice() {
    alone(|| {
        let segment = small();
        let living = segment.client().unwrap();
        fork(|| {
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            close_all();
            let began = Instant::now();
            server.recv(PATIENCE).map(drop).map_err(told).unwrap_err();
            assert_prompt(began);
            drop((client, server));
        })
        .join();
        assert_eq!(segment.recover(), Ok(2));
        assert_eq!(segment.members().unwrap().len(), 1);
        drop(living);
    });
}

/// Those who are told by somebody else, who notices it for them.
#[test]
fn who_does_not_wait_itself_is_told_within_a_slice() {
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
                // A segment that has no name any more cannot be opened again.
                let lost = descriptors_of(&path);
                assert!(lost.len() == 3 && segment.unlink().unwrap());
                let began = thread::scope(|scope| {
                    let waiting = scope.spawn(|| way(&client, &server).map_err(told).unwrap_err());
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

/// It takes its lock again although it never waits itself.
#[test]
fn a_client_that_becomes_a_daemon_is_not_robbed_of_what_its_tasks_wait_for() {
    alone(|| daemon_is_not_robbed(|_| close_all()));
}

/// What has its numbers then cannot be opened by way of /proc, as a file could.
#[test]
fn nor_is_one_whose_numbers_are_those_of_eventfds() {
    alone(|| {
        // In one step: what is opened again meanwhile has other numbers.
        daemon_is_not_robbed(|path| descriptors_of(path).into_iter().for_each(eventfd_at));
    });
}

fn daemon_is_not_robbed(becomes_daemon: impl Fn(&Path)) {
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

/// What it had is over, and what it sends as another member is told of at the other's bell.
#[test]
fn a_task_hears_that_its_client_was_taken_for_dead() {
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
                    // Once it waits: loses its lock, and its number before it looks.
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
