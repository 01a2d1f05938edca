//! Processes that look dead but are alive: they lose nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{ClientOptions, Segment};

use super::{
    SEVERAL_SLICES, assert_all_free, assert_answers, assert_prompt, hold, holder, kind, serve, server,
    sleep_until_killed, small,
};
use crate::harness::{
    Child, PATIENCE, alone, awaited, enter_pid_namespace, fork, leave_thread, left_out, shared, use_one_cpu,
};

type Start = fn(&Segment, &AtomicU64, &AtomicU64) -> Child;

/// A server has a request and looks dead for longer than several slices. Everything that could take
/// the request away is present: a waiting caller that allows redelivery, another server, and a
/// process that recovers.
fn is_not_robbed(look_dead: impl FnOnce(&Child), look_alive: impl FnOnce(&Child), start: Start) {
    let (segment, marks) = (small(), shared(2));
    let child = start(&segment, &marks[0], &marks[1]);
    let client = segment.client_with(&ClientOptions::new().redeliveries(3)).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.call("still mine", PATIENCE));
        awaited(&marks[0]);
        look_dead(&child);
        assert_stays_taken(&segment);
        look_alive(&child);
        marks[1].store(1, SeqCst);
        assert_eq!(*waiting.join().unwrap().unwrap(), *b"STILL MINE");
    });
    child.join();
    assert_eq!(segment.stats().redelivered, 0);
    segment.recover().unwrap();
    assert_all_free(&segment);
}

fn assert_stays_taken(segment: &Segment) {
    let (members, rival) = (segment.members().unwrap(), segment.server().unwrap());
    assert_eq!(kind(rival.recv(SEVERAL_SLICES)), Some(ErrorKind::TimedOut));
    assert_eq!(segment.recover(), Ok(0));
    let audit = segment.audit().unwrap();
    assert_eq!((audit.taken, audit.orphaned), (1, 0));
    drop(rival);
    assert!(members.iter().all(|member| member.is_alive), "{members:?}");
    assert_eq!(segment.members().unwrap(), members);
}

#[test]
fn stopped_server_counts_as_alive() {
    alone(|| {
        let stop = |child: &Child| {
            child.stop();
            child.settle('T');
        };
        is_not_robbed(stop, Child::resume, holder);
    });
}

#[test]
fn server_in_a_debugger_counts_as_alive() {
    alone(|| {
        let permitted = Cell::new(true);
        let seize = |child: &Child| permitted.set(child.seize());
        let release = |child: &Child| {
            if permitted.get() {
                child.release();
            }
        };
        is_not_robbed(seize, release, holder);
        if !permitted.get() {
            left_out("server_in_a_debugger_counts_as_alive", "processes cannot be traced here");
        }
    });
}

#[test]
fn server_without_its_main_thread_counts_as_alive() {
    fn start(segment: &Segment, taken: &AtomicU64, may_answer: &AtomicU64) -> Child {
        fork(|| {
            // The scope does not end before the process does, because this thread's stack must
            // stay.
            thread::scope(|scope| {
                scope.spawn(|| hold(&segment.server().unwrap(), taken, may_answer));
                leave_thread();
            });
        })
    }
    alone(|| is_not_robbed(|child| child.settle('Z'), |_| (), start));
}

#[test]
fn stopped_client_counts_as_alive() {
    alone(|| {
        let (segment, marks) = (small(), shared(2));
        let server = segment.server().unwrap();
        let slots = segment.geometry().slots as usize;
        let child = fork(|| {
            let client = segment.client().unwrap();
            let tickets: Vec<_> = (0..slots).map(|_| client.send("a", PATIENCE).unwrap()).collect();
            marks[0].store(1, SeqCst);
            awaited(&marks[1]);
            tickets.into_iter().for_each(|ticket| assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"b"));
        });
        awaited(&marks[0]);
        // One reply waits for it, one request is being served, the rest wait for a server.
        assert_eq!(server.recv(PATIENCE).unwrap().reply("b"), Ok(true));
        let request = server.recv(PATIENCE).unwrap();
        child.stop();
        child.settle('T');
        marks[1].store(1, SeqCst);
        let other = segment.client().unwrap();
        assert_eq!(kind(other.send("no slot is free", SEVERAL_SLICES)), Some(ErrorKind::TimedOut));
        assert_eq!(segment.recover(), Ok(0));
        assert!(request.is_wanted());
        assert_eq!(request.reply("b"), Ok(true));
        for request in server.drain(usize::MAX).unwrap() {
            assert_eq!(request.reply("b"), Ok(true));
        }
        child.resume();
        child.join();
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

#[test]
fn members_in_other_pid_namespaces_work_and_count_as_alive() {
    alone(|| {
        let (segment, marks) = (small(), shared(3));
        let client = segment.client().unwrap();
        let container = fork(|| {
            marks[2].store(1 + u64::from(enter_pid_namespace()), SeqCst);
            fork(|| {
                let server = segment.server().unwrap();
                serve(&server, 1);
                hold(&server, &marks[0], &marks[1]);
                marks[0].store(0, SeqCst);
                let _request = server.recv(PATIENCE).unwrap();
                marks[0].store(1, SeqCst);
                sleep_until_killed();
            })
            .join();
        });
        if awaited(&marks[2]) == 1 {
            container.kill();
            return left_out("processes in other pid namespaces", "none may be made here");
        }
        assert_answers(&client, "from outside");
        assert_eq!(segment.members().unwrap()[1].pid, 1, "the pid in its own namespace");
        let other = segment.client_with(&ClientOptions::new().redeliveries(3)).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| other.call("still mine", PATIENCE));
            awaited(&marks[0]);
            assert_stays_taken(&segment);
            marks[1].store(1, SeqCst);
            assert_eq!(*waiting.join().unwrap().unwrap(), *b"STILL MINE");
        });
        while marks[0].load(SeqCst) != 0 {
            thread::yield_now();
        }
        let ticket = client.send("its last", PATIENCE).unwrap();
        awaited(&marks[0]);
        let killed = Instant::now();
        container.kill();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
        assert_prompt(killed);
        drop(other);
        assert_all_free(&segment);
    });
}

#[test]
fn calls_and_recovery_work_on_one_cpu() {
    const CALLS: usize = 500;
    alone(|| {
        use_one_cpu();
        let segment = small();
        let [stays, goes] = [server(&segment), server(&segment)];
        let clients = [(); 3].map(|()| {
            fork(|| {
                let client = segment.client().unwrap();
                let mut died = 0;
                for _ in 0..CALLS {
                    match client.call("quick", PATIENCE) {
                        Ok(reply) => assert_eq!(*reply, *b"QUICK"),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::PeerDied);
                            died += 1;
                        }
                    }
                }
                assert!(died <= 1, "one server was killed, which had one request at a time");
            })
        });
        thread::sleep(Duration::from_millis(5));
        goes.kill();
        clients.into_iter().for_each(Child::join);
        stays.kill();
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}
