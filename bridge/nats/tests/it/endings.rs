//! The end of calls when a caller gives up, or a process dies or is stopped.

use crate::harness::{SOON, Scene, bridge, echo, has_nats, long_way, wait_until, work};
use pipework::reqrep::{ClientOptions, Options};
use pipework::{Deadline, ErrorKind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How often a worker comes and leaves.
const COMINGS: usize = 10;

/// In a process of its own: takes one request at the channel, and holds it.
#[test]
fn holding_worker() {
    let Some(channel) = std::env::var_os("PIPEWORK_TEST_HOLD") else { return };
    let server = Options::new().open(channel).unwrap().server().unwrap();
    let _held = server.recv(Deadline::NEVER).unwrap();
    println!("taken");
    thread::sleep(SOON);
}

fn hold(scene: &Scene) -> crate::harness::Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["endings::holding_worker", "--exact", "--nocapture"]);
    command.stdout(std::process::Stdio::null());
    crate::harness::Process::start(command.env("PIPEWORK_TEST_HOLD", scene.folder.0.join("there")))
}

fn is_taken(scene: &Scene) -> bool {
    scene.there.audit().unwrap().taken == 1
}

#[test]
fn death_of_a_remote_worker_is_reported_or_redelivered() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    for allowed in [0, 1] {
        let mut worker = hold(&scene);
        let _bridges = scene.bridges(&[]);
        let client = scene.here.client_with(&ClientOptions::new().redeliveries(allowed)).unwrap();
        let call = thread::spawn(move || client.call("x", SOON).map(|reply| reply.to_vec()));
        wait_until("the worker has it", || is_taken(&scene));
        let heir = (allowed > 0).then(|| work(scene.server(), echo));
        let begin = Instant::now();
        worker.kill();
        let outcome = call.join().unwrap().map_err(|error| error.kind());
        match heir {
            None => assert_eq!(outcome, Err(ErrorKind::PeerDied)),
            Some(_) => assert_eq!(outcome, Ok(b"x".to_vec())),
        }
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    }
}

#[test]
fn remote_worker_learns_that_its_caller_gave_up() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let (tell, told) = mpsc::channel();
    let server = scene.server();
    thread::spawn(move || {
        let request = server.recv(Deadline::NEVER).unwrap();
        let begin = Instant::now();
        while request.is_wanted() && begin.elapsed() < SOON {
            thread::sleep(Duration::from_millis(5));
        }
        tell.send(begin.elapsed()).unwrap();
    });
    let _bridges = scene.bridges(&[]);
    let given_up = scene.client().call("x", Duration::from_millis(300)).map_err(|error| error.kind());
    assert_eq!(given_up.err(), Some(ErrorKind::TimedOut));
    assert!(told.recv_timeout(SOON).unwrap() < Duration::from_secs(3));
    wait_until("the slot is free", || scene.there.audit().unwrap().free == 256);
}

#[test]
fn killed_bridges_leave_no_call_waiting() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    for which in [0, 1] {
        let worker = hold(&scene);
        let mut bridges = scene.bridges(&["--silence", "2"]);
        let client = scene.client();
        let call = thread::spawn(move || client.call("x", SOON).map(|reply| reply.to_vec()));
        wait_until("the worker has it", || is_taken(&scene));
        thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        bridges[which].kill();
        let outcome = call.join().unwrap().map_err(|error| error.kind());
        assert_eq!(outcome, Err(ErrorKind::PeerDied));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        // The worker's call is cancelled, whichever bridge has died.
        wait_until("its caller has gone", || {
            scene.there.audit().unwrap().taken == 0 || {
                scene.there.recover().unwrap();
                false
            }
        });
        drop(worker);
        wait_until("the slot is free", || {
            scene.there.recover().is_ok() && scene.there.audit().unwrap().free == 256
        });
    }
}

#[test]
fn bridge_finishes_its_calls_after_a_doubled_signal() {
    if !has_nats() {
        return;
    }
    for which in ["expose", "attach"] {
        let scene = Scene::new();
        work(scene.server(), |request| {
            thread::sleep(Duration::from_millis(600));
            echo(request);
        });
        let [expose, attach] = scene.bridges(&[]);
        let client = scene.client();
        let call = thread::spawn(move || client.call("x", SOON).map(|reply| reply.to_vec()));
        wait_until("the worker has it", || is_taken(&scene));
        let (told, other) = if which == "expose" { (expose, attach) } else { (attach, expose) };
        // As timeout(1) does it: to the process, and to its group.
        told.terminate();
        let status = told.stop();
        assert_eq!(call.join().unwrap(), Ok(b"x".to_vec()), "{which}");
        assert!(status.success(), "{which}: {status}");
        drop(other);
    }
}

/// A machine whose last worker has just left answers a request that NATS sent it, so that it is sent
/// again.
#[test]
fn leaving_of_the_last_worker_loses_no_call() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let third = Options::new().open_or_create(scene.folder.0.join("third")).unwrap();
    work(third.server().unwrap(), echo);
    let _third = scene.bridge("expose", "third", &[]);
    // A few milliseconds away: many calls are on their way when it unsubscribes.
    let url = format!("nats://127.0.0.1:{}", long_way(scene.nats.port, Duration::from_millis(5)));
    let far = bridge("expose", &scene.folder.0.join("there"), &url, &[]);
    let _attach = scene.bridge("attach", "here", &[]);
    scene.wait_for_server();
    let (is_over, came_there) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let client = scene.here.client_with(&ClientOptions::new().max_in_flight(16)).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let calls = (0..16).map(|_| client.send("x", SOON).unwrap()).collect::<Vec<_>>();
                    for call in calls {
                        let outcome = client.recv(call, SOON).map(|reply| reply.to_vec());
                        if outcome.as_deref() != Ok(b"x") {
                            is_over.store(true, Ordering::Relaxed);
                            panic!("{outcome:?}");
                        }
                    }
                }
            });
        }
        // It comes for a moment, again and again.
        for _ in 0..COMINGS {
            let server = scene.there.server().unwrap();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(300) && !is_over.load(Ordering::Relaxed) {
                if let Ok(request) = server.recv(Duration::from_millis(10)) {
                    came_there.fetch_add(1, Ordering::Relaxed);
                    echo(request);
                }
            }
            drop(server);
            thread::sleep(Duration::from_millis(300));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(came_there.load(Ordering::Relaxed) > COMINGS, "hardly any call went there");
    assert!(far.stop().success());
}

#[test]
fn timeout_ends_the_call_on_the_remote_side() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let _worker = hold(&scene);
    let _bridges = scene.bridges(&["--timeout", "0.4"]);
    let begin = Instant::now();
    let outcome = scene.client().call("x", SOON).map_err(|error| error.kind());
    assert_eq!(outcome.err(), Some(ErrorKind::Failed));
    assert!(begin.elapsed() < Duration::from_secs(3));
    wait_until("it is cancelled there", || scene.there.audit().unwrap().dropped == 1);
}

#[test]
fn bridges_reconnect_to_a_restarted_server() {
    if !has_nats() {
        return;
    }
    let mut scene = Scene::new();
    work(scene.server(), echo);
    let _bridges = scene.bridges(&["--silence", "2"]);
    let client = scene.client();
    client.call("before", SOON).unwrap();
    scene.nats.process.kill();
    let needy = scene.here.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    let during = needy.call("during", SOON).map_err(|error| error.kind());
    // The caller gets `NoServer`, or, if the request was on its way, that it is lost.
    assert!(matches!(during, Err(ErrorKind::NoServer | ErrorKind::PeerDied)), "{during:?}");
    scene.nats = crate::harness::Nats::start_at(scene.nats.port, &[]);
    assert_eq!(&*client.call("after", SOON).unwrap(), b"after");
}

#[test]
fn only_one_attach_serves_a_channel() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), echo);
    let [_expose, mut first] = scene.bridges(&[]);
    let _second = scene.bridge("attach", "here", &[]);
    let both_ways = scene.bridge("expose", "here", &[]);
    let status = { both_ways }.0.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let client = scene.client();
    client.call("x", SOON).unwrap();
    first.kill();
    // The second was waiting for that.
    assert_eq!(&*client.call("y", SOON).unwrap(), b"y");
}
