//! What a forked child inherits from a member, and what a started program does not.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Client, Options, Role};
use pipework::{Deadline, ErrorKind};

use super::{
    assert_all_free, assert_answers, assert_prompt, kind, options, serve, server, sleep_until_killed, small,
};
use crate::harness::{
    Folder, PATIENCE, alone, alone_for, awaited, fork, fork_in_handlers, fork_past_handlers, fork_unnoticed,
    outlive_parent, say, setting, shared,
};

#[test]
fn inherited_client_becomes_another_member_in_the_child() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        let ticket = client.send("the parent's", PATIENCE).unwrap();
        let before = segment.members().unwrap();
        fork(|| {
            for stale in [
                kind(client.try_recv(ticket)),
                kind(client.recv(ticket, PATIENCE)),
                kind(client.cancel_unless_done(ticket)),
            ] {
                assert_eq!(stale, Some(ErrorKind::Stale));
            }
            let server = segment.server().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| serve(&server, 2));
                assert_answers(&client, "the child's");
            });
            let members = segment.members().unwrap();
            assert!(members.starts_with(&before), "the parent has its place: {members:?}");
            let own: Vec<_> = members[1..].iter().map(|member| (member.pid, member.role)).collect();
            let pid = std::process::id();
            assert_eq!(own, [(pid, Role::Client), (pid, Role::Server)]);
        })
        .join();
        assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"THE PARENT'S");
        assert_eq!(segment.recover(), Ok(1), "the child's member was never detached");
        assert_eq!(segment.members(), Ok(before));
        assert_all_free(&segment);
    });
}

#[test]
fn inherited_server_becomes_another_member_in_the_child() {
    alone(|| {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let child = fork(|| serve(&server, 2));
        assert_answers(&client, "to the child");
        let members = segment.members().unwrap();
        let servers = members.iter().filter(|member| member.role == Role::Server);
        assert!(servers.map(|member| member.pid).eq([std::process::id(), child.pid() as u32]));
        assert_answers(&client, "once more");
        child.join();
        thread::scope(|scope| {
            scope.spawn(|| serve(&server, 1));
            assert_answers(&client, "to the parent");
        });
    });
}

#[test]
fn forked_child_does_not_affect_its_parents_calls() {
    alone(|| {
        let segment = small();
        let (mut client, mut server) = (segment.client().ok(), segment.server().ok());
        let ticket = client.as_ref().unwrap().send("a", PATIENCE).unwrap();
        let mut request = server.as_ref().unwrap().recv(PATIENCE).ok().map(|request| request.into_owned());
        // One child drops the handles, one answers the request, and one just ends.
        fork(|| drop((request.take(), client.take(), server.take()))).join();
        fork(|| assert_eq!(kind(request.take().unwrap().reply("the child's")), Some(ErrorKind::Stale)))
            .join();
        fork(|| ()).join();
        assert_eq!(segment.recover(), Ok(0), "no child has joined");
        assert!(request.as_ref().unwrap().is_wanted());
        assert_eq!(request.unwrap().reply("the parent's"), Ok(true));
        assert_eq!(*client.unwrap().recv(ticket, PATIENCE).unwrap(), *b"the parent's");
        drop(server);
        assert_eq!((segment.members().unwrap(), segment.stats().dead_members), (vec![], 0));
    });
}

/// `_Fork` and a bare `clone` fork without running fork handlers.
#[test]
fn child_forked_without_fork_handlers_does_not_affect_its_parents_calls() {
    alone(|| {
        let segment = small();
        let (mut client, mut server) = (segment.client().ok(), segment.server().ok());
        let ticket = client.as_ref().unwrap().send("a", PATIENCE).unwrap();
        let mut request = server.as_ref().unwrap().recv(PATIENCE).ok().map(|request| request.into_owned());
        fork_past_handlers(|| drop((request.take(), client.take(), server.take()))).join();
        fork_past_handlers(|| {
            assert_eq!(kind(request.take().unwrap().reply("the child's")), Some(ErrorKind::Stale))
        })
        .join();
        // The child becomes its own member, and so does its own child.
        fork_past_handlers(|| {
            let client = client.as_ref().unwrap();
            assert_eq!(kind(client.try_recv(ticket)), Some(ErrorKind::Stale));
            fork_past_handlers(|| assert!(client.try_send("the child's").unwrap().is_some())).join();
            assert_eq!(segment.members().unwrap().len(), 4);
        })
        .join();
        assert_eq!(segment.recover(), Ok(2), "the child and its own");
        assert!(request.as_ref().unwrap().is_wanted());
        assert_eq!(request.unwrap().reply("the parent's"), Ok(true));
        assert_eq!(*client.unwrap().recv(ticket, PATIENCE).unwrap(), *b"the parent's");
        drop(server);
        assert_eq!(segment.members(), Ok(vec![]));
        assert_all_free(&segment);
        // A child that has used a handle keeps no lock of its parent's open.
        let (flags, client) = (shared(2), segment.client().unwrap());
        let ticket = client.send("b", PATIENCE).unwrap();
        let parent = fork(|| {
            let server = segment.server().unwrap();
            let _request = server.recv(PATIENCE).unwrap();
            let _heir = fork_past_handlers(|| {
                outlive_parent();
                assert!(segment.client().is_ok());
                flags[0].store(1, SeqCst);
                awaited(&flags[1]);
            });
            sleep_until_killed();
        });
        awaited(&flags[0]);
        let killed = Instant::now();
        parent.kill();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
        assert_prompt(killed);
        flags[1].store(1, SeqCst);
    });
}

#[test]
fn grandchildren_become_members() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        let server = server(&segment);
        let numbers = shared(3);
        let number = |client: &Client| {
            assert_answers(client, "from any depth");
            let members = client.segment().members().unwrap();
            let own = members.iter().find(|member| member.pid == std::process::id()).expect("a member");
            u64::from(own.number)
        };
        // Of two children, one uses the handle that it passes on.
        for uses in [true, false] {
            fork(|| {
                if uses {
                    numbers[1].store(number(&client), SeqCst);
                }
                fork(|| numbers[2].store(number(&client), SeqCst)).join();
                assert!(!uses || number(&client) == numbers[1].load(SeqCst));
            })
            .join();
            numbers[0].store(number(&client), SeqCst);
            let [own, child, grandchild] = [0, 1, 2].map(|n| numbers[n].load(SeqCst));
            assert!(own != child && own != grandchild && (child != grandchild || !uses));
        }
        server.kill();
    });
}

#[test]
fn fork_works_while_other_threads_use_the_same_handles() {
    alone(|| {
        let segment = options().slots(8).members(16).anonymous().unwrap();
        let client = segment.client().unwrap();
        let server = server(&segment);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        assert_answers(&client, "by a thread");
                    }
                });
            }
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    assert_answers(&segment.client().unwrap(), "by one that comes and goes");
                }
            });
            for _ in 0..100 {
                fork(|| {
                    assert_answers(&client, "by a child");
                    assert_answers(&segment.client().unwrap(), "by a child that attaches");
                })
                .join();
            }
            over.store(true, SeqCst);
        });
        server.kill();
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

/// `PIPEWORK_HANDLER_FORKS` sets how many.
#[test]
fn fork_in_a_signal_handler_never_waits_for_the_interrupted_thread() {
    alone_for(4 * PATIENCE, || {
        // The program has no other threads, so a handler may call the C library's fork.
        fork(|| {
            let segment = small();
            let (client, server) = (segment.client().unwrap(), server(&segment));
            assert_answers(&client, "by the parent");
            let joins_and_leaves = || {
                let other = small();
                let (client, server) = (other.client().unwrap(), other.server().unwrap());
                let ticket = client.send("a", PATIENCE).unwrap();
                server.recv(PATIENCE).unwrap().reply("b").unwrap();
                assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"b");
                drop((client, server));
                let pipe = pipework::pipe::pipe(100).unwrap();
                drop(pipe);
            };
            let inherited = client.clone();
            let forks = setting("PIPEWORK_HANDLER_FORKS").unwrap_or(500) as usize;
            fork_in_handlers(forks, joins_and_leaves, move || assert_answers(&inherited, "by a child"));
            assert_answers(&client, "by the parent");
            server.kill();
            say(&format!("heirs: {forks} forks in a signal handler"));
        })
        .join();
    });
}

/// Another thread may be in the middle of making the table for a server's first kept request.
#[test]
fn child_can_keep_requests_when_a_parents_thread_was_making_the_table() {
    alone(|| {
        // Large enough that making an entry for each slot takes a thread some time.
        let options = Options::new().slots(1 << 17).request_bytes(64).reply_bytes(64);
        let segment = options.sparse(true).anonymous().unwrap();
        for round in 0..40 {
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            let answered = |ticket, answer: &str| {
                assert_eq!(server.kept(ticket).unwrap().expect("it was kept").reply(answer), Ok(true));
                assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *answer.as_bytes());
            };
            let ticket = client.send("the parent's", PATIENCE).unwrap();
            let request = server.recv(PATIENCE).unwrap().into_owned();
            let begins = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    begins.store(true, SeqCst);
                    request.keep();
                });
                while !begins.load(SeqCst) {
                    std::hint::spin_loop();
                }
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(5 * round) {}
                let child = fork(|| {
                    let ticket = client.send("the child's", PATIENCE).unwrap();
                    server.recv(PATIENCE).unwrap().keep();
                    answered(ticket, "to the child");
                });
                child.join();
            });
            answered(ticket, "to the parent");
        }
        assert_all_free(&segment);
    });
}

#[test]
fn child_with_an_inherited_handle_does_not_keep_its_parents_lock() {
    alone(|| {
        let segment = small();
        // A member leaves, and a child lives on that has not even closed the inherited descriptors.
        let client = segment.client().unwrap();
        let heir = fork_unnoticed();
        drop(client);
        assert_eq!(segment.members(), Ok(vec![]));
        let client = segment.client().unwrap();
        assert_eq!(segment.members().unwrap()[0].number, 1);
        // A member is killed, and its child lives on.
        let (numbers, over) = (shared(3), &shared(1)[0]);
        let ticket = client.send("a", PATIENCE).unwrap();
        let parent = fork(|| {
            let server = segment.server().unwrap();
            let _request = server.recv(PATIENCE).unwrap();
            let _heir = fork(|| {
                outlive_parent();
                numbers[0].store(1, SeqCst);
                awaited(over);
                numbers[1].store(1, SeqCst);
            });
            sleep_until_killed();
        });
        awaited(&numbers[0]);
        let killed = Instant::now();
        parent.kill();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
        assert_prompt(killed);
        assert_eq!(numbers[1].load(SeqCst), 0, "the child is alive");
        over.store(1, SeqCst);
        awaited(&numbers[1]);
        heir.kill();
        assert_all_free(&segment);
    });
}

#[test]
fn member_is_gone_after_exec() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        let ticket = client.send("a", PATIENCE).unwrap();
        let (stdin, _stays_open) = rustix::pipe::pipe().unwrap();
        let child = fork(|| {
            let server = segment.server().unwrap();
            let _request = server.recv(PATIENCE).unwrap();
            let failed = Command::new("cat").stdin(stdin.try_clone().unwrap()).exec();
            panic!("cat: {failed}");
        });
        while !name(child.pid()).starts_with("cat") {
            thread::yield_now();
        }
        let replaced = Instant::now();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
        assert_prompt(replaced);
        child.settle('S');
        child.kill();
        assert_eq!(segment.recover(), Ok(0), "its end is known already");
        assert_all_free(&segment);
    });
}

#[test]
fn program_started_by_a_member_keeps_no_lock() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        let ticket = client.send("a", PATIENCE).unwrap();
        let (stdin, stays_open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let started = &shared(1)[0];
        let child = fork(|| {
            let server = segment.server().unwrap();
            let _request = server.recv(PATIENCE).unwrap();
            let mut command = Command::new("cat");
            let mut cat = command.stdin(stdin.try_clone().unwrap()).stdout(Stdio::null()).spawn().unwrap();
            started.store(cat.id().into(), SeqCst);
            panic!("this process was not killed in time: {:?}", cat.wait());
        });
        let cat = awaited(started) as i32;
        let killed = Instant::now();
        child.kill();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
        assert_prompt(killed);
        assert_eq!(name(cat), "cat\n", "it has outlived its parent");
        drop(stays_open);
        assert_all_free(&segment);
    });
}

/// The name of a process in /proc.
fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).expect("it is there")
}

#[test]
fn closed_member_is_gone_at_once() {
    alone(|| {
        let segment = small();
        let flags = shared(2);
        let child = fork(|| {
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            let _ticket = client.send("a", PATIENCE).unwrap();
            let request = server.recv(PATIENCE).unwrap();
            drop((client, request));
            drop(server);
            flags[0].store(1, SeqCst);
            awaited(&flags[1]);
        });
        awaited(&flags[0]);
        assert_eq!((segment.members(), segment.recover()), (Ok(vec![]), Ok(0)));
        assert_all_free(&segment);
        flags[1].store(1, SeqCst);
        child.join();
        assert_eq!(segment.stats().dead_members, 0);
    });
}

#[test]
fn unlinked_segment_still_works_for_attached_members() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = options().create(&path).unwrap();
        let old = server(&segment);
        assert_eq!((segment.unlink(), segment.unlink()), (Ok(true), Ok(false)));
        assert_eq!(options().open(&path).unwrap_err().errno(), Some(libc::ENOENT));
        let client = segment.client().unwrap();
        assert_answers(&client, "without a name");
        // Another segment under the same name is a different segment.
        let other = options().create(&path).unwrap();
        let stranger = other.client().unwrap();
        assert_eq!(kind(stranger.call("no server is here", Deadline::now())), Some(ErrorKind::TimedOut));
        assert_eq!(segment.unlink(), Ok(false), "the name leads elsewhere");
        let new = fork(|| serve(&options().open(&path).unwrap().server().unwrap(), usize::MAX));
        assert_answers(&stranger, "with a name");
        assert_answers(&segment.client().unwrap(), "without a name");
        old.kill();
        new.kill();
        assert_eq!(other.unlink(), Ok(true));
    });
}
