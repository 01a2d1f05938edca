//! Messages from pipe to pipe through a stream that three servers keep, while servers and both
//! bridges are killed: none is lost, and none comes twice but those that a killed bridge says are
//! in doubt.
//!
//! PIPEWORK_NATS_MESSAGES says how many messages.

use crate::cluster::{random, setting};
use crate::harness::{Folder, Nats, Process, free_port, has_nats};
use async_nats::jetstream::{self, stream};
use pipework::Deadline;
use pipework::atomic::{Item, Options, create_fifo};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: u64 = 3;
const SUBJECT: &str = "test.stream";
const STREAM: &str = "KEPT";

struct Cluster {
    folder: Folder,
    ports: [u16; 3],
    routes: [u16; 3],
}

impl Cluster {
    fn server(&self, idx: usize) -> Nats {
        let routes = self.routes.map(|port| format!("nats://127.0.0.1:{port}"));
        let store = self.folder.0.join(format!("store-{idx}")).display().to_string();
        let name = format!("server-{idx}");
        let options = ["--cluster", &routes[idx], "--cluster_name", "test", "--routes", &routes.join(",")];
        let options = [&options[..], &["-js", "-sd", &store, "-n", &name]].concat();
        Nats::start_at(self.ports[idx], &options)
    }

    fn urls(&self) -> String {
        self.ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn bridge(&self, command: &str, options: &[&str]) -> Process {
        let mut program = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
        program.current_dir(&self.folder.0).args([command, "--subject", SUBJECT]).args(options);
        program.stdout(Stdio::null()).env("NATS_URL", self.urls());
        let said = OpenOptions::new().append(true).create(true).open(self.path("said")).unwrap();
        Process::start(program.stderr(said))
    }

    fn publish(&self) -> Process {
        self.bridge("publish", &["inbox", "--forever", "--jetstream", STREAM, "--journal", "in.journal"])
    }

    fn subscribe(&self) -> Process {
        self.bridge("subscribe", &["--durable", "there", "--to", "outbox", "--journal", "out.journal"])
    }

    /// Makes the stream as soon as the servers agree to.
    fn make_stream(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = async_nats::connect(self.urls().split(',').collect::<Vec<_>>()).await.unwrap();
            let jetstream = jetstream::new(client);
            let config = stream::Config {
                name: STREAM.into(),
                subjects: vec![SUBJECT.into()],
                num_replicas: 3,
                ..Default::default()
            };
            let begin = Instant::now();
            while let Err(error) = jetstream.create_stream(config.clone()).await {
                assert!(begin.elapsed() < Duration::from_secs(60), "{error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }
}

/// One in a hundred has several parts.
fn len(number: u64) -> usize {
    if number.is_multiple_of(100) { 9000 } else { 64 }
}

#[test]
fn killing_servers_and_bridges_loses_and_repeats_no_message() {
    if !has_nats() {
        return;
    }
    let messages = setting("PIPEWORK_NATS_MESSAGES", 20_000);
    // Three copies of all of them are too much for /dev/shm.
    let folder = Folder::at(env!("CARGO_TARGET_TMPDIR"));
    let (ports, routes) = ([0; 3].map(|_| free_port()), [0; 3].map(|_| free_port()));
    let cluster = Cluster { folder, ports, routes };
    let mut servers = [0, 1, 2].map(|idx| Some(cluster.server(idx)));
    cluster.make_stream();
    let _kept: Vec<File> = ["inbox", "outbox"]
        .map(|name| {
            create_fifo(cluster.path(name)).unwrap();
            OpenOptions::new().read(true).write(true).open(cluster.path(name)).unwrap()
        })
        .into();
    let (mut publish, mut subscribe) = (cluster.publish(), cluster.subscribe());
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut kills = BTreeMap::<&str, u64>::new();
    let begin = Instant::now();
    let times = thread::scope(|scope| {
        for nth in 0..WRITERS {
            let mut writer = Options::new().write_fifo(cluster.path("inbox"), Deadline::NEVER).unwrap();
            scope.spawn(move || {
                for number in (nth..messages).step_by(WRITERS as usize) {
                    let mut data = vec![7; len(number)];
                    data[..8].copy_from_slice(&number.to_le_bytes());
                    writer.send(data, Deadline::NEVER).unwrap();
                }
            });
        }
        let (received, is_over) = (&received, &is_over);
        let mut reader = Options::new().read_fifo(cluster.path("outbox")).unwrap();
        let reading = scope.spawn(move || {
            let mut times = vec![0u8; messages as usize];
            while received.load(Ordering::Relaxed) < messages {
                match reader.next_item(Duration::from_secs(120)) {
                    Ok(Item::Message(message)) => {
                        let number = u64::from_le_bytes(message[..8].try_into().unwrap());
                        assert_eq!(message.len(), len(number));
                        let times = &mut times[number as usize];
                        *times += 1;
                        received.fetch_add(u64::from(*times == 1), Ordering::Relaxed);
                    }
                    // Of a bridge that was killed in the middle of it.
                    Ok(Item::Torn(_)) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        eprintln!("{error} after {}", received.load(Ordering::Relaxed));
                        break;
                    }
                }
            }
            // Second copies come soon.
            while let Ok(Item::Message(message)) = reader.next_item(Duration::from_secs(3)) {
                times[u64::from_le_bytes(message[..8].try_into().unwrap()) as usize] += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            times
        });
        let mut last = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(300 + random() % 1000));
            match random() % 3 {
                // The next one only when there can be a majority again.
                0 if last.elapsed() > Duration::from_secs(10) => {
                    let idx = random() as usize % 3;
                    drop(servers[idx].take());
                    thread::sleep(Duration::from_millis(random() % 1000));
                    servers[idx] = Some(cluster.server(idx));
                    last = Instant::now();
                    *kills.entry("servers").or_default() += 1;
                }
                0 => {}
                1 => {
                    publish.kill();
                    publish = cluster.publish();
                    *kills.entry("publishers").or_default() += 1;
                }
                _ => {
                    subscribe.kill();
                    subscribe = cluster.subscribe();
                    *kills.entry("subscribers").or_default() += 1;
                }
            }
        }
        reading.join().unwrap()
    });
    let (lost, twice) = (times.iter().filter(|times| **times == 0), times.iter().filter(|times| **times > 1));
    let (lost, twice) = (lost.count(), twice.count());
    let said = fs::read_to_string(cluster.path("said")).unwrap();
    let doubts = said.lines().filter(|line| line.contains("may be in the pipe twice")).count();
    // A bridge that was started a moment ago could not handle the signal yet.
    thread::sleep(Duration::from_secs(2));
    let memory = [publish.memory(), subscribe.memory()];
    eprintln!(
        "{messages} messages, {lost} lost, {twice} twice, {doubts} in doubt, {kills:?} killed, {:?}; bridges {memory:?} kB",
        begin.elapsed()
    );
    assert_eq!(lost, 0);
    assert!(twice <= doubts, "{twice} came twice, and {doubts} were in doubt");
    assert!(memory.iter().all(|kb| *kb < 200_000), "{memory:?}");
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
}
