//! Blobs whose files a group may write to, blobs that travel with long requests, and blobs when
//! memory or descriptors run out.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::{slice, thread};

use pipework::reqrep::{
    Blob, Client, ClientOptions, Message, Options, Request, Segment, Server, ServerOptions,
};
use pipework::{Error, ErrorKind, Result};
use rustix::process::{Resource, Rlimit};

use crate::harness::damage::{leave_no_core, tmpfs};
use crate::harness::{
    Folder, PATIENCE, alone, awaited, blob_files, blob_folder, blob_of, descriptors, fork,
    fork_past_handlers, let_sigxfsz_kill, outlive_parent, shared,
};

fn small() -> Options {
    Options::new().slots(2).members(8).request_bytes(16).reply_bytes(16)
}

/// A channel opened twice, as two processes would open it.
fn open_twice(path: &Path, options: &Options) -> [Segment; 2] {
    [options.create(path).unwrap(), options.open(path).unwrap()]
}

fn errno<T: std::fmt::Debug, E: Into<Error> + std::fmt::Debug>(
    outcome: std::result::Result<T, E>,
) -> Option<i32> {
    outcome.unwrap_err().into().errno()
}

/// Sends a blob to the server and gets it back.
fn exchange(client: &Client, server: &Server, blob: &Blob) -> Result<Blob> {
    let ticket = client.send(Message::new("ping").attach(blob), PATIENCE)?;
    let request = server.recv(PATIENCE)?;
    let came = request.blobs().to_vec();
    assert!(came.len() == 1 && *came[0] == **blob);
    assert_eq!(request.reply(Message::new("pong").attach(&came)), Ok(true));
    let reply = client.recv(ticket, PATIENCE)?;
    Ok(reply.blobs()[0].clone())
}

/// Checks that the channel answers calls without blobs.
fn answers(client: &Client, server: &Server) {
    for _ in 0..100 {
        let ticket = client.send("ping", PATIENCE).unwrap();
        assert_eq!(server.recv(PATIENCE).unwrap().reply("pong"), Ok(true));
        assert_eq!(&*client.recv(ticket, PATIENCE).unwrap(), b"pong");
    }
}

#[test]
fn blob_is_copied_on_receipt_when_the_group_may_write() {
    for (mode, copies) in [(0o660, true), (0o640, false)] {
        let folder = Folder::new();
        let [near, far] = open_twice(&folder.join("channel"), &small().mode(mode).blob_pool(0));
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        let blob = blob_of(&near, &[7; 5000]);
        let ticket = client.send(Message::new("ping").attach(&blob), PATIENCE).unwrap();
        let request = server.recv(PATIENCE).unwrap();
        let came = request.blobs()[0].clone();
        assert_eq!((&*came, came.is_copied(), blob.is_copied()), (&[7; 5000][..], copies, false));
        // A copy becomes another blob, which is copied here as well.
        assert_eq!(request.reply(Message::new("pong").attach(&came)), Ok(true));
        let back = client.recv(ticket, PATIENCE).unwrap().blobs()[0].clone();
        assert_eq!((&*back, back.is_copied()), (&[7; 5000][..], copies));
        let copied = if copies { [1, 2] } else { [0, 0] };
        assert_eq!([&near, &far].map(|segment| segment.blob_stats().copied), copied);
        drop((blob, came, back));
        assert_eq!(blob_files(&near), [] as [&Path; 0]);
    }
}

#[test]
fn copies_of_blobs_are_limited_by_max_message_and_by_blob_limit() {
    let folder = Folder::new();
    let options = small().reply_bytes(200).mode(0o660);
    let path = folder.join("channel");
    let [near, far] = [options.create(&path).unwrap(), options.blob_limit(20_000).open(&path).unwrap()];
    let client = near.client_with(&ClientOptions::new().max_message(8000)).unwrap();
    let server = far.server_with(&ServerOptions::new().max_message(8000)).unwrap();
    let refused = |blobs: &[Blob]| {
        let ticket = client.send(Message::new("ping").attach(blobs), PATIENCE).unwrap();
        assert!(server.try_recv().unwrap().is_none());
        client.recv(ticket, PATIENCE).unwrap_err().to_string()
    };
    let blobs = [4000, 4000, 1].map(|len| blob_of(&near, &vec![7; len]));
    assert!(refused(&blobs).contains("`max_message`"));

    let ticket = client.send(Message::new("ping").attach(&blobs[..2]), PATIENCE).unwrap();
    let request = server.recv(PATIENCE).unwrap();
    assert_eq!(far.blob_stats().held, 8000);
    let more = blob_of(&near, &[8; 12_001]);
    let waiting = client.send(Message::new("ping").attach(slice::from_ref(&more)), PATIENCE).unwrap();
    let error = server.try_recv().map(drop).unwrap_err();
    assert!(error.to_string().contains("`blob_limit`"), "{error}");
    assert_eq!((near.waiting(), client.cancel(waiting)), (1, Ok(None)));
    let back = [request.blobs(), slice::from_ref(&blobs[2])].concat();
    assert_eq!(request.reply(Message::new("pong").attach(&back)), Ok(true));
    let too_long = client.recv(ticket, PATIENCE).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::TooLong);
    assert!(too_long.to_string().contains("`max_message`"), "{too_long}");

    drop(back);
    assert_eq!(far.blob_stats().held, 0);
    assert_eq!(*exchange(&client, &server, &blobs[0]).unwrap(), [7; 4000]);

    // A claimed request has its blobs already when its bytes are read.
    let ticket = client.send(Message::new("ping").attach(&blobs[..2]), PATIENCE).unwrap();
    let (before, mut request) = (far.blob_stats().copied, server.claim(PATIENCE).unwrap());
    assert_eq!(request.read().unwrap(), b"ping");
    assert_eq!(request.blobs().len(), 2);
    assert_eq!((far.blob_stats().held, far.blob_stats().copied - before), (8000, 2));
    assert_eq!(request.reply("pong"), Ok(true));
    client.recv(ticket, PATIENCE).unwrap();
}

#[test]
fn forgotten_long_request_keeps_its_blob() {
    let folder = Folder::new();
    let [near, far] = open_twice(&folder.join("channel"), &small());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let blob = blob_of(&near, &[7; 5000]);
    let long = [1; 100];
    thread::scope(|scope| {
        let call = scope.spawn(|| client.call(Message::new(&long).attach(&blob), PATIENCE));
        let request = loop {
            match server.try_recv().unwrap() {
                Some(request) => break request,
                None => thread::yield_now(),
            }
        };
        assert_eq!((request.payload(), request.blobs().len()), (&[1; 100][..], 1));
        assert_eq!(&*request.blobs()[0], &[7; 5000]);
        assert_eq!(request.reply("pong"), Ok(true));
        call.join().unwrap().unwrap();
    });
}

/// A message has its blobs once, whether it travels in one piece or in parts.
#[test]
fn long_message_delivers_its_blobs_once() {
    let folder = Folder::new();
    let [near, far] = open_twice(&folder.join("channel"), &small().blob_pool(0));
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let (long, last) = ([1; 100], [2; 100]);
    let [first, second] = [3, 4].map(|byte| blob_of(&near, &[byte; 5000]));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                let mut request = server.recv(PATIENCE).unwrap();
                assert_eq!((request.payload(), request.blobs().len()), (&long[..], 1));
                let blobs = [request.blobs()[0].clone(), blob_of(&far, &[5; 5000])];
                let part = Message::new(&long).attach(&blobs[..1]);
                assert_eq!(request.part(part, PATIENCE), Ok(true));
                assert_eq!(request.reply(Message::new(&last).attach(&blobs[1..])), Ok(true));
            }
        });
        let bytes_of = |blobs: &[Blob]| blobs.iter().map(|blob| blob[4999]).collect::<Vec<_>>();
        let reply = client.call(Message::new(&long).attach(&first), PATIENCE).unwrap();
        assert_eq!((&reply[..], bytes_of(reply.blobs())), (&[long, last].concat()[..], vec![3, 5]));
        let parts = client.stream(Message::new(&long).attach(&second), PATIENCE).unwrap();
        let parts: Vec<_> = parts.map(|part| bytes_of(part.unwrap().blobs())).collect();
        assert_eq!(parts, [[4], [5]]);
    });
}

#[test]
fn kept_and_adopted_requests_have_their_blobs() {
    alone(|| {
        let folder = Folder::new();
        let [near, far] = open_twice(&folder.join("channel"), &small().blob_pool(0));
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        for is_adopted in [false, true] {
            let blob = blob_of(&near, &[7; 5000]);
            let ticket = client.send(Message::new("ping").attach(&blob), PATIENCE).unwrap();
            drop(blob);
            let kept = server.recv(PATIENCE).unwrap().keep();
            let answer = |mut request: Request<'_>| {
                assert_eq!(request.read().unwrap(), b"ping");
                let came = request.blobs().to_vec();
                assert!(came.len() == 1 && *came[0] == [7; 5000]);
                assert_eq!(request.reply(Message::new("pong").attach(&came)), Ok(true));
            };
            if is_adopted {
                fork(|| answer(server.adopt(kept).unwrap())).join();
            } else {
                answer(server.kept(kept).unwrap().unwrap());
            }
            assert_eq!(&*client.recv(ticket, PATIENCE).unwrap().blobs()[0], &[7; 5000]);
            near.recover().unwrap();
            assert_eq!(blob_files(&near), [] as [&Path; 0]);
        }
    });
}

#[test]
fn blobs_still_work_after_their_folder_was_removed() {
    let folder = Folder::new();
    let [near, far] = open_twice(&folder.join("channel"), &small());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    for byte in 0..5 {
        // The dropped file stays in the pool for the next blob.
        drop(near.blob(5000).unwrap());
        assert_eq!(blob_files(&near).len(), 1);
        fs::remove_dir_all(blob_folder(&near)).unwrap();
        let blob = blob_of(&near, &[byte; 5000]);
        assert_eq!(&*exchange(&client, &server, &blob).unwrap(), &[byte; 5000]);
    }
}

#[test]
fn full_file_system_fails_blobs_but_not_calls() {
    alone(|| {
        fork(|| {
            leave_no_core();
            let folder = Folder::new();
            let Some(mount) = tmpfs(&folder, "size=1m") else { return };
            let [near, far] = open_twice(&mount.join("channel"), &small());
            let (client, server) = (near.client().unwrap(), far.server().unwrap());
            let mut blobs = vec![];
            let full = loop {
                match near.blob(60_000) {
                    Ok(mut draft) => {
                        draft.fill(blobs.len() as u8);
                        blobs.push(draft.freeze().unwrap());
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!((full.kind(), full.errno()), (ErrorKind::Os, Some(libc::ENOSPC)));
            assert!(blobs.len() > 5, "{blobs:?}");
            answers(&client, &server);

            // The client of a reply that does not fit learns why, as far as a slot has space.
            let ticket = client.send("", PATIENCE).unwrap();
            let error = server.recv(PATIENCE).unwrap().reply(&[0; 60_000]).unwrap_err();
            assert_eq!(error.errno(), Some(libc::ENOSPC));
            let failed = client.recv(ticket, PATIENCE).unwrap_err();
            let reason = failed.reason().unwrap();
            assert!(reason.len() > 9 && error.to_string().as_bytes().starts_with(reason), "{failed}");

            for (nth, blob) in blobs.iter().enumerate() {
                let back = exchange(&client, &server, blob).unwrap();
                assert!(back.iter().all(|byte| *byte == nth as u8));
            }
            // Files that were made while there was space are kept, and removed to make space for a
            // larger one. That is not kept: the others would lack its space.
            drop(blobs);
            assert!((5..10).contains(&blob_files(&near).len()));
            drop(near.blob(700_000).unwrap());
            assert_eq!(blob_files(&near), [] as [&Path; 0]);

            // The same holds for files of a process whose death was not noticed.
            drop((near, client));
            let is_full = &shared(1)[0];
            let child = fork(|| {
                let segment = small().open(mount.join("channel")).unwrap();
                let _kept: Vec<_> = std::iter::from_fn(|| segment.blob(60_000).ok()).collect();
                is_full.store(1, SeqCst);
                thread::park();
            });
            awaited(is_full);
            child.kill();
            assert!(blob_files(&far).len() > 5);
            drop(far.blob(700_000).unwrap());
            assert_eq!(blob_files(&far), [] as [&Path; 0]);

            // What idle processes keep leaves half of the space.
            let idle: Vec<_> = (0..9).map(|_| small().open(mount.join("channel")).unwrap()).collect();
            for segment in &idle {
                drop(segment.blob(300_000).unwrap());
            }
            drop(far.blob(500_000).unwrap());
        })
        .join();
    });
}

#[test]
fn exhausted_descriptors_fail_blobs_but_not_calls() {
    alone(|| {
        let folder = Folder::new();
        let [near, far] = open_twice(&folder.join("channel"), &small().blob_pool(0));
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        let blob = blob_of(&near, &[7; 5000]);
        // All descriptor numbers below this one are in use.
        let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
        let rich = rustix::process::getrlimit(Resource::Nofile);
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..rich }).unwrap();
        assert_eq!(errno(near.blob(10)), Some(libc::EMFILE));
        for _ in 0..10 {
            let ticket = client.send(Message::new("ping").attach(&blob), PATIENCE).unwrap();
            assert_eq!(errno(server.recv(PATIENCE)), Some(libc::EMFILE));
            assert_eq!(near.waiting(), 1, "it stays");
            assert_eq!(client.cancel(ticket), Ok(None));
        }
        answers(&client, &server);
        rustix::process::setrlimit(Resource::Nofile, rich).unwrap();
        assert_eq!(&*exchange(&client, &server, &blob).unwrap(), &[7; 5000]);
        drop(blob);
        assert_eq!(blob_files(&near), [] as [&Path; 0]);
    });
}

#[test]
fn jobs_are_all_done_by_a_server_with_few_descriptors() {
    const JOBS: usize = 600;
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("channel");
        let near = small().slots(1024).create(&path).unwrap();
        let client = near.client().unwrap();
        for _ in 0..JOBS {
            client.forget(client.send(&[7; 40_000], PATIENCE).unwrap()).unwrap();
        }
        fork(|| {
            let few = Rlimit { current: Some(256), ..rustix::process::getrlimit(Resource::Nofile) };
            rustix::process::setrlimit(Resource::Nofile, few).unwrap();
            let server = Options::new().open(&path).unwrap().server().unwrap();
            let (mut done, mut refused) = (0, None);
            while done < JOBS {
                let requests = server.drain(1000).unwrap();
                done += requests.len();
                if done < JOBS {
                    refused = server.drain(1000).err().and_then(|error| error.errno());
                }
                requests.into_iter().for_each(|request| assert_eq!(request.reply(""), Ok(false)));
            }
            assert_eq!(refused, Some(libc::EMFILE));
        })
        .join();
        assert_eq!(near.audit().unwrap().free, 1024);
    });
}

#[test]
fn first_blob_of_a_process_removes_the_folder_of_a_channel_whose_processes_were_killed() {
    alone(|| {
        let (left, done) = (small().anonymous().unwrap(), shared(2));
        let client = fork(|| {
            let client = left.client().unwrap();
            for _ in 0..2 {
                let blob = blob_of(&left, &[7; 5000]);
                client.send(Message::new("ping").attach(&blob), PATIENCE).unwrap();
            }
            done[0].store(1, SeqCst);
            thread::park();
        });
        awaited(&done[0]);
        let server = fork(|| {
            let server = left.server().unwrap();
            let request = server.recv(PATIENCE).unwrap();
            let blob = blob_of(&left, &[8; 5000]);
            assert_eq!(request.reply(Message::new("pong").attach(&blob)), Ok(true));
            drop(blob);
            let taken = server.recv(PATIENCE).unwrap();
            done[1].store(1, SeqCst);
            thread::park();
            drop(taken);
        });
        awaited(&done[1]);
        let folder = blob_folder(&left);
        client.kill();
        server.kill();
        drop(left);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "messages name them");
        // The first blob of all is one of a channel with a path.
        let beside = Folder::new();
        drop(blob_of(&small().create(beside.join("channel")).unwrap(), &[1; 10]));
        assert!(folder.exists());
        drop(blob_of(&small().anonymous().unwrap(), &[1; 10]));
        assert!(!folder.exists());
    });
}

#[test]
fn child_of_a_process_that_has_removed_such_folders_removes_those_of_its_own_time() {
    alone(|| {
        drop(blob_of(&small().anonymous().unwrap(), &[1; 10]));
        for _ in 0..2 {
            let (left, [is_made]) = (small().anonymous().unwrap(), shared(1)) else {
                unreachable!("there is one")
            };
            let maker = fork(|| {
                let _blob = blob_of(&left, &[7; 5000]);
                is_made.store(1, SeqCst);
                thread::park();
            });
            awaited(is_made);
            let folder = blob_folder(&left);
            maker.kill();
            drop(left);
            assert!(folder.exists());
            fork(|| drop(blob_of(&small().anonymous().unwrap(), &[1; 10]))).join();
            assert!(!folder.exists());
        }
    });
}

#[test]
fn server_skips_a_request_whose_blob_was_removed_while_no_process_had_the_channel() {
    alone(|| {
        let (left, [is_sent]) = (small().anonymous().unwrap(), shared(1)) else {
            unreachable!("there is one")
        };
        let fd = left.as_fd().try_clone_to_owned().unwrap();
        let folder = blob_folder(&left);
        let client = fork(|| {
            let client = left.client().unwrap();
            let blob = blob_of(&left, &[7; 5000]);
            let ticket = client.send(Message::new("ping").attach(&blob), PATIENCE).unwrap();
            client.forget(ticket).unwrap();
            is_sent.store(1, SeqCst);
            thread::park();
        });
        awaited(is_sent);
        client.kill();
        drop(left);
        drop(blob_of(&small().anonymous().unwrap(), &[1; 10]));
        assert!(!folder.exists());
        let segment = Options::new().from_fd(fd).unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        client.send("the next", PATIENCE).unwrap();
        let mut next = server.recv(PATIENCE).unwrap();
        assert_eq!(next.read().unwrap(), b"the next");
        drop(next);
        assert_eq!(segment.audit().unwrap().waiting, 0);
        answers(&client, &server);
        let blob = blob_of(&segment, &[7; 5000]);
        assert_eq!(&*exchange(&client, &server, &blob).unwrap(), &[7; 5000]);
    });
}

#[test]
fn first_blob_of_a_process_leaves_the_folder_of_a_channel_that_a_process_has_open() {
    alone(|| {
        // The process that makes the channel dies, and its child has not used the channel before.
        let [forked, sent, go, received] = shared(4) else { unreachable!("there are four") };
        let maker = fork(|| {
            let segment = small().anonymous().unwrap();
            let child = fork(|| {
                outlive_parent();
                forked.store(1, SeqCst);
                awaited(go);
                let server = segment.server().unwrap();
                assert_eq!(&*server.recv(PATIENCE).unwrap().blobs()[0], &[7; 5000]);
                received.store(1, SeqCst);
            });
            awaited(forked);
            let (client, blob) = (segment.client().unwrap(), blob_of(&segment, &[7; 5000]));
            let ticket = client.send(Message::new("ping").attach(&blob), PATIENCE).unwrap();
            client.forget(ticket).unwrap();
            sent.store(1, SeqCst);
            thread::park();
            child.join();
        });
        awaited(sent);
        maker.kill();
        drop(blob_of(&small().anonymous().unwrap(), &[1; 10]));
        go.store(1, SeqCst);
        awaited(received);
    });
}

#[test]
fn held_blobs_do_not_change_in_a_child_for_which_no_fork_handler_ran() {
    alone(|| {
        let folder = Folder::new();
        let [near, far] = open_twice(&folder.join("channel"), &small());
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        for round in 0..20 {
            let (made, there) = (blob_of(&near, &[7; 100_000]), blob_of(&far, &[8; 100_000]));
            let ticket = client.send(Message::new("ping"), PATIENCE).unwrap();
            let request = server.recv(PATIENCE).unwrap();
            assert_eq!(request.reply(Message::new("pong").attach(&there)), Ok(true));
            let received = client.recv(ticket, PATIENCE).unwrap().blobs()[0].clone();
            drop(there);
            let go = &shared(1)[0];
            let held = (made, received);
            let child = fork_past_handlers(|| {
                awaited(go);
                assert!(held.0.iter().all(|byte| *byte == 7), "round {round}: one that it made");
                assert!(held.1.iter().all(|byte| *byte == 8), "round {round}: one that it received");
            });
            drop(held);
            for segment in [&near, &far] {
                let _later: Vec<_> = (0..4).map(|_| blob_of(segment, &[9; 100_000])).collect();
            }
            go.store(1, SeqCst);
            child.join();
        }
        drop((client, server));
        near.recover().unwrap();
        drop(far);
        let files = blob_files(&near).len();
        assert!(files <= 5, "files are used again when there is no child: {files}");
    });
}

/// Lowers the limit of this process for descriptors, and returns the one before.
fn limit_descriptors(most: u64) -> Rlimit {
    let rich = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..rich }).unwrap();
    rich
}

#[test]
fn idle_files_of_all_channels_together_leave_descriptors_to_the_program() {
    alone(|| {
        let folder = Folder::new();
        limit_descriptors(256);
        let segments: Vec<_> =
            (0..20).map(|number| small().create(folder.join(&number.to_string())).unwrap()).collect();
        let before = descriptors();
        for segment in segments.iter().chain(&segments) {
            drop((0..30).map(|_| blob_of(segment, &[1; 100])).collect::<Vec<_>>());
            assert!(descriptors() <= before + 256 / 8, "{} of {before}", descriptors());
        }
        assert!(segments.iter().map(|segment| blob_files(segment).len()).sum::<usize>() <= 256 / 8);
        // The channel that was used last has its files.
        let files = blob_files(&segments[19]);
        assert_eq!(files.len(), 30);
        let _again: Vec<_> = (0..30).map(|_| blob_of(&segments[19], &[2; 100])).collect();
        let mut now = blob_files(&segments[19]);
        now.retain(|file| !files.contains(file));
        assert_eq!(now, [] as [&Path; 0]);
    });
}

#[test]
fn idle_files_are_closed_before_the_library_is_out_of_descriptors() {
    alone(|| {
        let folder = Folder::new();
        let [near, far] = open_twice(&folder.join("channel"), &small());
        let keep = |segment| drop([1, 2, 3, 4].map(|byte| blob_of(segment, &[byte; 100])));
        let none_is_left = || {
            keep(&near);
            keep(&far);
            limit_descriptors(File::open("/dev/null").unwrap().as_raw_fd() as u64)
        };
        let rich = none_is_left();
        assert!(File::open("/dev/null").is_err());
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        answers(&client, &server);
        rustix::process::setrlimit(Resource::Nofile, rich).unwrap();
        none_is_left();
        let other = small().create(folder.join("other")).unwrap();
        drop(blob_of(&other, &[1; 100]));
    });
}

#[test]
fn child_that_uses_no_channel_keeps_no_idle_file_of_a_killed_parent() {
    alone(|| {
        let folder = Folder::new();
        let segment = small().create(folder.join("channel")).unwrap();
        let [ready, done] = shared(2) else { unreachable!("there are two") };
        let parent = fork(|| {
            drop((0..10).map(|_| blob_of(&segment, &[7; 10_000])).collect::<Vec<_>>());
            let _child = fork(|| {
                outlive_parent();
                ready.store(1, SeqCst);
                awaited(done);
            });
            thread::park();
        });
        awaited(ready);
        assert_eq!(blob_files(&segment).len(), 10);
        parent.kill();
        segment.recover().unwrap();
        assert_eq!(blob_files(&segment), [] as [&Path; 0]);
        done.store(1, SeqCst);
    });
}

#[test]
fn unlink_frees_the_blobs_of_processes_that_have_ended() {
    alone(|| {
        for dies_later in [false, true] {
            let folder = Folder::new();
            let segment = small().create(folder.join("channel")).unwrap();
            let client = segment.client().unwrap();
            let (sent, go) = (&shared(1)[0], &shared(1)[0]);
            let child = fork(|| {
                let (client, kept) = (segment.client().unwrap(), blob_of(&segment, &[7; 10_000]));
                client.send(Message::new("ping").attach(&kept), PATIENCE).unwrap();
                sent.store(1, SeqCst);
                awaited(go);
                std::mem::forget((client, kept)); // It ends without closing anything.
            });
            awaited(sent);
            if !dies_later {
                go.store(1, SeqCst);
                child.join();
                drop(blob_of(&segment, &[8; 10_000]));
                assert_eq!(segment.unlink(), Ok(true));
                assert!(!blob_folder(&segment).exists(), "this process may end without closing it");
            } else {
                assert_eq!(segment.unlink(), Ok(true));
                assert_eq!(blob_files(&segment).len(), 1, "a process holds it");
                go.store(1, SeqCst);
                child.join();
            }
            drop((segment, client));
            assert_eq!(fs::read_dir(folder.join(".")).unwrap().count(), 0);
        }
    });
}

#[test]
fn channel_with_the_longest_name_carries_long_payloads() {
    for len in [231, 232, 233, 255] {
        let folder = Folder::new();
        // The byte at which the folder's name is cut is inside of a character.
        let name = "é".repeat(len / 2) + &"e".repeat(len % 2);
        let [near, far] = open_twice(&folder.join(&name), &small());
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        let ticket = client.send(&[1; 50_000], PATIENCE).unwrap();
        let request = server.recv(PATIENCE).unwrap();
        assert_eq!(*request, [1; 50_000]);
        assert_eq!(request.reply(&[2; 50_000]), Ok(true));
        assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), [2; 50_000]);
        assert_eq!(near.blob_folder(), far.blob_folder());
        drop((client, server, far));
        assert_eq!(near.unlink(), Ok(true));
        drop(near);
        assert_eq!(fs::read_dir(folder.join(".")).unwrap().count(), 0, "{len}");
    }
}

#[test]
fn limit_for_the_length_of_files_is_an_error_and_no_signal() {
    alone(|| {
        let_sigxfsz_kill();
        let folder = Folder::new();
        let [near, far] = open_twice(&folder.join("channel"), &small());
        let (client, server) = (near.client().unwrap(), far.server().unwrap());
        let rich = rustix::process::getrlimit(Resource::Fsize);
        rustix::process::setrlimit(Resource::Fsize, Rlimit { current: Some(100_000), ..rich }).unwrap();
        for sparse in [false, true] {
            let options = Options::new().slots(1000).sparse(sparse);
            assert_eq!(errno(options.create(folder.join("other"))), Some(libc::EFBIG), "{sparse}");
            assert_eq!(errno(options.anonymous()), Some(libc::EFBIG), "{sparse}");
        }
        assert_eq!(errno(client.send(&vec![1; 200_000], PATIENCE)), Some(libc::EFBIG));
        assert_eq!(errno(near.blob(200_000)), Some(libc::EFBIG));
        let ticket = client.send("ping", PATIENCE).unwrap();
        assert_eq!(errno(server.recv(PATIENCE).unwrap().reply(&vec![1; 200_000])), Some(libc::EFBIG));
        assert_eq!(client.recv(ticket, PATIENCE).unwrap_err().kind(), ErrorKind::Failed);
        answers(&client, &server);
    });
}
