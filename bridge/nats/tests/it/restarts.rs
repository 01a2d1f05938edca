//! Restarts of the NATS server under bridges that count messages, and bridges that are stopped while
//! it is down.

use crate::cluster::{random, setting};
use crate::harness::{
    Folder, Nats, Process, SOON, SUBJECT, Scene, bridge, echo, free_port, has_nats, wait_until,
};
use crate::strangers::{code, stranger};
use async_nats::client::RequestErrorKind;
use pipework::ErrorKind;
use pipework::reqrep::{ClientOptions, Options, Segment, Server};
use std::collections::{BTreeSet, HashSet};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const RESTARTS: u64 = 10;
/// How long a call may take while everything is killed again and again.
const STORM: Duration = Duration::from_secs(120);

/// A worker that answers until it is dropped, and counts.
struct Worker {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    fn new(segment: &Segment) -> Worker {
        let server: Server = segment.server().unwrap();
        let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ending, count) = (Arc::clone(&is_over), Arc::clone(&answered));
        let thread = thread::spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                if let Ok(request) = server.recv(Duration::from_millis(10)) {
                    count.fetch_add(1, Ordering::Relaxed);
                    echo(request);
                }
            }
        });
        Worker { is_over, answered, thread: Some(thread) }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// A bridge counts the messages of a subscription, and so does the server, but only those of one
/// connection. If they disagree, a machine whose last worker leaves stays in the queue group, and
/// takes requests that nobody answers.
#[test]
fn leaving_of_the_last_worker_after_a_server_restart_loses_no_call() {
    if !has_nats() {
        return;
    }
    let mut scene = Scene::new();
    let third = Options::new().open_or_create(scene.folder.0.join("third")).unwrap();
    let _bridges = [
        scene.bridge("expose", "there", &[]),
        scene.bridge("expose", "third", &[]),
        scene.bridge("attach", "here", &[]),
    ];
    let client = scene.client();
    let calls = setting("PIPEWORK_NATS_CALLS", 4000).min(40_000) / RESTARTS;
    for restart in 0..RESTARTS {
        let (one, other) = (Worker::new(&scene.there), Worker::new(&third));
        let are_asked = |more: u64| {
            let (first, second) = (one.answered(), other.answered());
            wait_until("both machines are asked", || {
                (0..50).for_each(|_| drop(client.call("before", SOON)));
                one.answered() > first + more && other.answered() > second + more
            });
        };
        are_asked(100);
        scene.nats.process.kill();
        scene.nats = Nats::start_at(scene.nats.port, &[]);
        are_asked(0);
        drop(other);
        for call in 0..calls / 2 {
            let outcome = client.call("x", SOON).map(|reply| reply.to_vec());
            assert_eq!(outcome.as_deref(), Ok(&b"x"[..]), "restart {restart}, call {call}");
        }
        stranger(&scene, async |nats| {
            for call in 0..calls / 2 {
                // The machine without workers says so until it has left: its callers ask again.
                let answer = loop {
                    let answer = nats.request(SUBJECT, "x".into()).await;
                    let answer = answer.unwrap_or_else(|why| panic!("{restart}, {call}: {why}"));
                    if code(&answer) != Some("503") {
                        break answer;
                    }
                };
                assert_eq!(&*answer.payload, b"x");
            }
        });
        drop(one);
        stranger(&scene, async |nats| {
            for _ in 0..20 {
                match nats.request(SUBJECT, "x".into()).await {
                    Ok(answer) => assert!(matches!(code(&answer), Some("503") | None)),
                    Err(error) => assert_eq!(error.kind(), RequestErrorKind::NoResponders),
                }
            }
        });
    }
}

/// What a storm can kill: each bit of a combination is one of these.
const KINDS: u64 = 4;

/// One server, one machine with callers and two with workers. Callers allow redelivery, and call
/// again after `PeerDied`: so every call has to be answered, whatever is killed.
#[test]
fn killing_server_bridges_and_workers_in_all_combinations_loses_no_call() {
    if !has_nats() {
        return;
    }
    let calls = setting("PIPEWORK_NATS_CALLS", 4000);
    let (folder, port) = (Folder::new(), free_port());
    let [here, there, third] =
        ["here", "there", "third"].map(|name| Options::new().create(folder.0.join(name)).expect("a channel"));
    let url = format!("nats://127.0.0.1:{port}");
    let start_bridge =
        |direction: &str, name: &str| bridge(direction, &folder.0.join(name), &url, &["--silence", "1"]);
    let logs = AtomicU64::new(0);
    let start_worker = |name: &str| {
        let log = folder.0.join(format!("log-{}", logs.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["cluster::worker", "--exact", "--nocapture"]).stdout(Stdio::null());
        command.stderr(Stdio::null()).env("PIPEWORK_TEST_LOG", log);
        Process::start(command.env("PIPEWORK_TEST_WORK", folder.0.join(name)))
    };
    let mut nats = Nats::start_at(port, &[]);
    let machines = ["there", "third"];
    let mut exposed = machines.map(|name| start_bridge("expose", name));
    let mut attached = start_bridge("attach", "here");
    // The second machine has one worker, which is its last one each time that it dies.
    let worked_at = ["there", "there", "third"];
    let mut workers = worked_at.map(start_worker);
    let (next, is_over, is_enough) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let again = AtomicU64::new(0);
    let mut combinations = BTreeSet::new();
    let mut rounds = 0u64;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let client = here.client_with(&ClientOptions::new().redeliveries(u8::MAX)).unwrap();
                let (next, again, is_enough) = (&next, &again, &is_enough);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= calls && is_enough.load(Ordering::Relaxed) {
                            break;
                        }
                        let reply = loop {
                            match client.call(&number.to_le_bytes(), STORM) {
                                Ok(reply) => break reply,
                                // Each of its redeliveries has met a death, too.
                                Err(error) if error.kind() == ErrorKind::PeerDied => {
                                    again.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => panic!("call {number}: {error}"),
                            }
                        };
                        assert_eq!(*reply, (!number).to_le_bytes());
                    }
                })
            })
            .collect();
        let waits = scope.spawn(|| {
            let ended: Vec<_> = callers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().all(|ended| ended.is_ok())
        });
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100 + random() % 400));
            let combination = 1 + rounds % ((1 << KINDS) - 1);
            let has = |kind: u64| combination >> kind & 1 == 1;
            let (machine, worker) = (random() as usize % 2, random() as usize % 3);
            if has(0) {
                nats.process.kill();
            }
            if has(1) {
                exposed[machine].kill();
            }
            if has(2) {
                attached.kill();
            }
            if has(3) {
                workers[worker].kill();
            }
            // They come back in any order.
            let first = random() % KINDS;
            for kind in (0..KINDS).map(|nth| (first + nth) % KINDS).filter(|kind| has(*kind)) {
                thread::sleep(Duration::from_millis(random() % 100));
                match kind {
                    0 => nats = Nats::start_at(port, &[]),
                    1 => exposed[machine] = start_bridge("expose", machines[machine]),
                    2 => attached = start_bridge("attach", "here"),
                    _ => workers[worker] = start_worker(worked_at[worker]),
                }
            }
            combinations.insert(combination);
            rounds += 1;
            is_enough.store(rounds >= 2 * ((1 << KINDS) - 1), Ordering::Relaxed);
        }
        assert!(waits.join().unwrap(), "a call was lost");
    });
    let (next, again) = (next.into_inner(), again.into_inner());
    eprintln!("{} calls answered, {again} of them at a later try, {rounds} rounds of kills", next - 8);
    assert_eq!(combinations.len() as u64, (1 << KINDS) - 1);
    let done: HashSet<u64> = std::fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("log-"))
        .flat_map(|entry| {
            let log = std::fs::read(entry.path()).unwrap();
            log.chunks_exact(8).map(|each| u64::from_le_bytes(each.try_into().unwrap())).collect::<Vec<_>>()
        })
        .collect();
    assert!((0..calls).all(|number| done.contains(&number)));
    drop((exposed, attached, workers));
    wait_until("all slots are free", || {
        [&here, &there, &third]
            .iter()
            .all(|segment| segment.recover().is_ok() && segment.audit().is_ok_and(|audit| audit.free == 256))
    });
}

/// Its status, if it ends soon after SIGTERM.
fn stops(what: &str, mut process: Process) -> ExitStatus {
    process.terminate();
    let mut status = None;
    wait_until(what, || {
        status = process.0.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn signal_ends_an_idle_bridge_while_the_server_is_down() {
    if !has_nats() {
        return;
    }
    // After calls and messages, and without any.
    for is_used in [true, false] {
        for command in ["expose", "attach", "join", "subscribe", "publish"] {
            let mut scene = Scene::new();
            let url = scene.nats.url();
            let path = |name: &str| scene.folder.0.join(name);
            let process = match command {
                "subscribe" | "publish" => {
                    let mut options = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
                    options.arg(command).args(["--subject", "test.messages"]).env("NATS_URL", &url);
                    let (fifo, name) = (path("fifo"), if command == "publish" { None } else { Some("--to") });
                    pipework::atomic::create_fifo(&fifo).unwrap();
                    options.args(name).arg(&fifo).args((command == "publish").then_some("--forever"));
                    Process::start(&mut options)
                }
                _ => scene.bridge(command, if command == "attach" { "here" } else { "there" }, &[]),
            };
            let fifo = path("fifo");
            let _keeps_it = fifo
                .exists()
                .then(|| std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap());
            let worker = Worker::new(&scene.there);
            match command {
                "expose" | "join" => stranger(&scene, async |nats| {
                    for _ in 0..if is_used { 20 } else { 0 } {
                        while nats.request(SUBJECT, "x".into()).await.is_err() {
                            thread::sleep(Duration::from_millis(20));
                        }
                    }
                }),
                "subscribe" => stranger(&scene, async |nats| {
                    for _ in 0..if is_used { 20 } else { 0 } {
                        nats.publish("test.messages", "x".into()).await.unwrap();
                    }
                    nats.flush().await.unwrap();
                }),
                _ => {}
            }
            if !is_used {
                // It may be connecting for the first time.
                thread::sleep(Duration::from_millis(random() % 100));
            }
            scene.nats.process.kill();
            // The last worker leaves while the server is down, or later than the signal.
            let worker = if random().is_multiple_of(2) { Some(worker) } else { None };
            thread::sleep(Duration::from_millis(random() % 500));
            let what = format!("{command} ends, {is_used}, {}", worker.is_some());
            let status = stops(&what, process);
            assert!(status.success(), "{what}: {status}");
        }
    }
}
