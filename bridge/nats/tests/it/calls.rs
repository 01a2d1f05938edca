//! Calls that get through, and failures with their reasons.

use crate::harness::{SOON, Scene, echo, has_nats, has_server, wait_until, work};
use pipework::reqrep::{ClientOptions, Message};
use pipework::{Deadline, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

#[test]
fn calls_of_every_size_arrive_with_their_flags() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), echo);
    let _bridges = scene.bridges(&[]);
    let client = scene.client();
    for len in [0, 1, 4096, 4097, 131_071, 131_072, 131_073, 1_048_576, 5_000_000] {
        let request: Vec<u8> = (0..len).map(|at: usize| (at * 7 + at / 256) as u8).collect();
        let reply = client.call(Message::new(&request).flags(len as u32 + 1), SOON).expect("a reply");
        assert!(*reply == *request, "{len} bytes");
        assert_eq!(reply.flags(), len as u32 + 1);
    }
    assert_eq!(scene.here.audit().unwrap().free, 256);
    wait_until("the far channel is free", || scene.there.audit().unwrap().free == 256);
}

#[test]
fn simultaneous_calls_get_their_own_replies() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    (0..2).for_each(|_| drop(work(scene.server(), echo)));
    let _bridges = scene.bridges(&["--concurrency", "16"]);
    thread::scope(|scope| {
        for caller in 0..32u32 {
            let client = scene.client();
            scope.spawn(move || {
                for turn in 0..50u32 {
                    let request = [caller.to_le_bytes(), turn.to_le_bytes()].concat();
                    assert_eq!(*client.call(&request, SOON).expect("a reply"), request);
                }
            });
        }
    });
}

#[test]
fn parts_arrive_as_they_are_sent() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let (go_on, wait) = mpsc::channel::<()>();
    let server = scene.server();
    thread::spawn(move || {
        for _ in 0..2 {
            let mut request = server.recv(Deadline::NEVER).unwrap();
            for number in 0..200u32 {
                let part = number.to_string();
                assert!(request.part(Message::new(&part).flags(number), SOON).unwrap());
                if number == 0 {
                    wait.recv().unwrap();
                }
            }
            let large = vec![b'x'; 300_000];
            assert!(request.part(&large, SOON).unwrap());
            request.reply("end").unwrap();
        }
    });
    let _bridges = scene.bridges(&[]);
    let client = scene.client();
    let mut stream = client.stream("count", SOON).unwrap();
    for number in 0..200u32 {
        let part = stream.next_part(SOON).unwrap().unwrap();
        assert_eq!((&*part, part.flags()), (number.to_string().as_bytes(), number));
        if number == 0 {
            // The first came before the second was given.
            go_on.send(()).unwrap();
        }
    }
    assert_eq!(stream.next_part(SOON).unwrap().unwrap().len(), 300_000);
    assert_eq!(&*stream.next_part(SOON).unwrap().unwrap(), b"end");
    assert!(stream.next_part(SOON).unwrap().is_none());

    go_on.send(()).unwrap();
    let whole = client.call("count", SOON).unwrap();
    assert!(whole.starts_with(b"0123456789101112") && whole.ends_with(b"xend"));
}

#[test]
fn an_empty_reply_keeps_its_flags() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let server = scene.server();
    thread::spawn(move || {
        while let Ok(mut request) = server.recv(Deadline::NEVER) {
            if &*request == b"parts" {
                assert!(request.part("x", SOON).unwrap());
            }
            request.reply(Message::new("").flags(7)).unwrap();
        }
    });
    let _bridges = scene.bridges(&[]);
    for (request, answer) in [("whole", ""), ("parts", "x")] {
        let reply = scene.client().call(request, SOON).unwrap();
        assert_eq!((&*reply, reply.flags()), (answer.as_bytes(), 7), "{request}");
    }
}

#[test]
fn failure_arrives_with_its_reason() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), |request| {
        request.fail("out of paper");
    });
    let _bridges = scene.bridges(&[]);
    let error = scene.client().call("print", SOON).unwrap_err();
    assert_eq!((error.kind(), &**error.reason().unwrap()), (ErrorKind::Failed, &b"out of paper"[..]));
}

#[test]
fn call_without_a_worker_waits_or_fails() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let worker = scene.server();
    let _bridges = scene.bridges(&[]);
    // The last worker leaves.
    drop(worker);
    let client = scene.client();
    let needy = scene.here.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    let told = needy.call("x", SOON).map_err(|error| error.kind());
    assert_eq!(told.err(), Some(ErrorKind::NoServer));
    wait_until("the bridge has left", || !has_server(&scene.here));
    let waits = thread::spawn(move || client.call("y", SOON).map(|reply| reply.to_vec()));
    thread::sleep(Duration::from_millis(300));
    work(scene.server(), echo);
    assert_eq!(waits.join().unwrap().unwrap(), b"y");
}

#[test]
fn excess_calls_wait_for_a_slot() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let (most, now) = (Arc::clone(&most), Arc::clone(&now));
        work(scene.server(), move |request| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
            now.fetch_sub(1, Ordering::SeqCst);
            echo(request);
        });
    }
    // Two may be at work there, and eight may be asked for here.
    let _expose = scene.bridge("expose", "there", &["--concurrency", "2"]);
    let _attach = scene.bridge("attach", "here", &["--concurrency", "8"]);
    scene.wait_for_server();
    thread::scope(|scope| {
        for _ in 0..16 {
            let client = scene.client();
            scope.spawn(move || (0..10).for_each(|_| assert_eq!(&*client.call("x", SOON).unwrap(), b"x")));
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[test]
fn calls_prefer_local_workers_and_never_loop() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let slowly = |name: &'static str| {
        move |request: pipework::reqrep::Request<'_>| {
            thread::sleep(Duration::from_millis(40));
            let _ = request.reply(name);
        }
    };
    work(scene.here.server().unwrap(), slowly("here"));
    work(scene.server(), slowly("there"));
    let _bridges = ["here", "there"].map(|channel| scene.bridge("join", channel, &["--overflow", "0.02"]));
    for segment in [&scene.here, &scene.there] {
        wait_until("both are attached", || {
            segment
                .members()
                .unwrap()
                .iter()
                .filter(|member| member.role == pipework::reqrep::Role::Server)
                .count()
                == 2
        });
    }
    let client = scene.client();
    // One at a time is for the worker here.
    for _ in 0..5 {
        assert_eq!(&*client.call("x", SOON).unwrap(), b"here");
    }
    // Excess calls overflow to the other side; if both sides are busy, they wait.
    let answers: Vec<Vec<u8>> = thread::scope(|scope| {
        let callers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| client.call("x", SOON).unwrap().to_vec())).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().any(|answer| answer == b"there"), "{answers:?}");
    assert!(answers.iter().any(|answer| answer == b"here"), "{answers:?}");
}
