//! Messages from pipe to pipe over one server, and the effects of kills.

use crate::harness::{Folder, Nats, Process, SOON, figures, free_port, has_nats, wait_until};
use async_nats::HeaderMap;
use async_nats::jetstream::{self, stream};
use futures_util::StreamExt;
use pipework::atomic::{Item, Options, Reader, Writer, create_fifo};
use pipework::{Deadline, ErrorKind};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) const SUBJECT: &str = "test.messages";
pub(crate) const STREAM: &str = "MESSAGES";

/// A server, two FIFOs, and descriptors that keep them.
pub(crate) struct Pipes {
    pub(crate) nats: Nats,
    folder: Folder,
    _kept: [File; 2],
}

impl Pipes {
    fn new() -> Pipes {
        Pipes::with(Duration::from_secs(120))
    }

    /// With a stream that has this duplicate window.
    pub(crate) fn with(window: Duration) -> Pipes {
        let folder = Folder::new();
        let store = folder.0.join("store").display().to_string();
        let nats = Nats::start(&["-js", "-sd", &store]);
        let kept = ["inbox", "outbox"].map(|name| {
            create_fifo(folder.0.join(name)).unwrap();
            OpenOptions::new().read(true).write(true).open(folder.0.join(name)).unwrap()
        });
        let pipes = Pipes { nats, folder, _kept: kept };
        pipes.ask(async |jetstream| jetstream.create_stream(config(window)).await.map(drop).unwrap());
        pipes
    }

    /// Asks the server as any client can.
    pub(crate) fn ask<T>(&self, task: impl AsyncFnOnce(jetstream::Context) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = async_nats::connect(self.nats.url()).await.unwrap();
            let jetstream = jetstream::new(client.clone());
            let done = tokio::time::timeout(SOON, task(jetstream)).await.expect("it ends");
            client.flush().await.unwrap();
            done
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    pub(crate) fn run(&self, command: &str, options: &[&str]) -> Process {
        Process::start(self.command(command, options).stdout(Stdio::null()))
    }

    pub(crate) fn command(&self, command: &str, options: &[&str]) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
        program.current_dir(&self.folder.0).args([command, "--subject", SUBJECT]).args(options);
        program.env("NATS_URL", self.nats.url());
        program
    }

    pub(crate) fn writer(&self) -> Writer {
        Options::new().write_fifo(self.path("inbox"), SOON).unwrap()
    }

    pub(crate) fn reader(&self) -> Reader {
        Options::new().read_fifo(self.path("outbox")).unwrap()
    }

    pub(crate) fn stored(&self) -> u64 {
        self.ask(async |jetstream| jetstream.get_stream(STREAM).await.unwrap().cached_info().state.messages)
    }
}

pub(crate) fn config(window: Duration) -> stream::Config {
    let subjects = vec![SUBJECT.into()];
    stream::Config { name: STREAM.into(), subjects, duplicate_window: window, ..Default::default() }
}

pub(crate) const PUBLISH: [&str; 6] =
    ["inbox", "--forever", "--jetstream", STREAM, "--journal", "in.journal"];
pub(crate) const SUBSCRIBE: [&str; 6] = ["--durable", "there", "--to", "outbox", "--journal", "out.journal"];

#[test]
fn messages_of_any_size_travel_from_pipe_to_pipe() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::new();
    let publish = pipes.run("publish", &PUBLISH);
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    let mut writer = pipes.writer();
    let sizes = [0, 1, 5000, 100_000, (1 << 20) - 1024, 1 << 20, 3_500_000, 7];
    let sending = thread::spawn(move || {
        for (nth, len) in sizes.into_iter().enumerate() {
            writer.send(vec![nth as u8; len], SOON).unwrap();
        }
    });
    let mut reader = pipes.reader();
    for (nth, len) in sizes.into_iter().enumerate() {
        let message = reader.recv(SOON).unwrap();
        assert_eq!(message.len(), len);
        assert!(message.iter().all(|byte| *byte == nth as u8));
    }
    sending.join().unwrap();
    // 1 MiB goes in two pieces, 3.5 MB in four.
    wait_until("all is stored", || pipes.stored() == 6 + 2 + 4);
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
    assert_eq!(
        reader.recv(Duration::from_millis(100)).map_err(|error| error.kind()).err(),
        Some(ErrorKind::TimedOut)
    );
}

#[test]
fn headers_name_lines_and_writers() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::new();
    let (reading, writing) = std::io::pipe().unwrap();
    let mut publish = pipes.command("publish", &["--mixed", "--lines", "--jetstream", STREAM]);
    let publish = publish.stdin(reading).spawn().unwrap();
    let mut writer = Options::new().mixed(true).writer(writing.try_clone().unwrap()).unwrap();
    let mut text = writing;
    text.write_all(b"loading\n").unwrap();
    writer.send("message", SOON).unwrap();
    writer.burst("burst", SOON).unwrap();
    text.write_all(b"no end").unwrap();
    let key = writer.key().to_string();
    drop((writer, text));
    let mut publish = Process(publish);
    assert!(publish.0.wait().unwrap().success(), "it ends with its pipe");
    let stored = pipes.ask(async |jetstream| {
        let stream = jetstream.get_stream(STREAM).await.unwrap();
        let mut stored = Vec::new();
        for number in 1..=4 {
            let message = stream.get_raw_message(number).await.unwrap();
            let header = |name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
            stored.push((
                String::from_utf8(message.payload.to_vec()).unwrap(),
                header("Pipework-Type"),
                header("Pipework-Writer"),
            ));
        }
        stored
    });
    let of = |data: &str, kind: Option<&str>, writer: Option<String>| {
        (data.to_owned(), kind.map(str::to_owned), writer)
    };
    assert_eq!(
        stored,
        [
            of("loading", Some("line"), None),
            of("message", None, Some(key)),
            of("burst", Some("burst"), None),
            of("no end", Some("line"), None),
        ]
    );
}

#[test]
fn killed_publishers_lose_and_repeat_nothing() {
    if !has_nats() {
        return;
    }
    const WRITERS: u32 = 3;
    const EACH: u32 = 4000;
    let pipes = Pipes::new();
    let mut publish = pipes.run("publish", &PUBLISH);
    let mut subscribe = pipes.run("subscribe", &SUBSCRIBE);
    let mut reader = pipes.reader();
    let mut times = vec![0u8; (WRITERS * EACH) as usize];
    thread::scope(|scope| {
        for nth in 0..WRITERS {
            let mut writer = pipes.writer();
            scope.spawn(move || {
                for number in nth * EACH..(nth + 1) * EACH {
                    // Some of several parts, among those of others.
                    let mut data = vec![7; [4, 12_000, 100, 5000][number as usize % 4]];
                    data[..4].copy_from_slice(&number.to_le_bytes());
                    writer.send(data, Deadline::NEVER).unwrap();
                }
            });
        }
        let (mut received, mut doubts) = (0, 0);
        while received < WRITERS * EACH {
            match reader.next_item(SOON).unwrap() {
                Item::Message(message) => {
                    let number = u32::from_le_bytes(message[..4].try_into().unwrap());
                    times[number as usize] += 1;
                    if times[number as usize] > 1 {
                        continue;
                    }
                    received += 1;
                }
                // Of a subscriber that was killed in the middle of it.
                Item::Torn(_) => continue,
                other => panic!("{other:?}"),
            }
            if received % 1000 == 250 {
                publish.kill();
                publish = pipes.run("publish", &PUBLISH);
            }
            if received % 1000 == 500 {
                subscribe.kill();
                doubts += 1;
                subscribe = pipes.run("subscribe", &SUBSCRIBE);
            }
        }
        // Each kill, in the very moment in which a message arrives, may leave it in doubt.
        assert!(times.iter().all(|times| *times > 0));
        let again: usize = times.iter().map(|times| usize::from(times - 1)).sum();
        assert!(again <= doubts, "{again} came again, {doubts} were killed");
    });
    assert_eq!(pipes.stored(), u64::from(WRITERS * EACH));
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
    let left = std::fs::metadata(pipes.path("in.journal")).unwrap().len();
    assert!(left < 64 << 20, "{left} bytes are kept");
}

#[test]
fn publish_reads_no_faster_than_the_server_acknowledges() {
    if !has_nats() {
        return;
    }
    let mut pipes = Pipes::new();
    let options = [&PUBLISH[..], &["--window", "8"]].concat();
    let publish = pipes.run("publish", &options);
    let mut writer = pipes.writer();
    writer.send("first", SOON).unwrap();
    wait_until("it is stored", || pipes.stored() == 1);
    pipes.nats.process.kill();
    let mut sent = 0;
    while writer.send(vec![0; 1000], Duration::from_millis(500)).is_ok() {
        sent += 1;
        assert!(sent < 1000, "publish accepts messages without end");
    }
    let store = pipes.path("store").display().to_string();
    pipes.nats = Nats::start_at(pipes.nats.port, &["-js", "-sd", &store]);
    wait_until("all are stored", || pipes.stored() == 1 + sent);
    assert!(publish.stop().success());
}

/// Published before the restart, some messages are larger than the server takes after it.
#[test]
fn messages_arrive_although_the_server_returns_with_a_smaller_limit() {
    if !has_nats() {
        return;
    }
    let limited = |pipes: &mut Pipes| {
        let (store, conf) = (pipes.path("store").display().to_string(), pipes.path("conf"));
        std::fs::write(&conf, "max_payload: 65536\n").unwrap();
        let options = ["-js", "-sd", &store, "-c", &conf.display().to_string()];
        pipes.nats = Nats::start_at(pipes.nats.port, &options);
    };
    let sizes = [300_000, 100, 2_000_000, 64_000];
    for (publish, subscribe) in [(&PUBLISH[..], &SUBSCRIBE[..]), (&["inbox"], &["--to", "outbox"])] {
        let has_stream = publish.contains(&STREAM);
        let mut pipes = Pipes::new();
        let metrics = format!("127.0.0.1:{}", free_port());
        let publish = pipes.run("publish", publish);
        let subscribe = pipes.run("subscribe", &[subscribe, &["--metrics", &metrics]].concat());
        let listens = || figures(&metrics).contains("pipework_nats_subscribed 1");
        wait_until("it listens", listens);
        let (mut writer, mut reader) = (pipes.writer(), pipes.reader());
        writer.send("before", SOON).unwrap();
        assert_eq!(&*reader.recv(SOON).unwrap(), b"before");
        pipes.nats.process.kill();
        if !has_stream {
            // Nobody keeps a message for a subscriber that has not come back.
            limited(&mut pipes);
            wait_until("it is back", || figures(&metrics).contains("pipework_nats_connects_total 2"));
        }
        let sending = thread::spawn(move || {
            for (nth, len) in sizes.into_iter().enumerate() {
                writer.send(vec![nth as u8; len], SOON).unwrap();
            }
            writer
        });
        if has_stream {
            // They are on their way by then.
            thread::sleep(Duration::from_millis(500));
            limited(&mut pipes);
        }
        let mut received = [false; 4];
        for _ in sizes {
            let message = reader.recv(SOON).unwrap();
            let nth = usize::from(message[0]);
            assert!(message.len() == sizes[nth] && message.iter().all(|byte| usize::from(*byte) == nth));
            assert!(!std::mem::replace(&mut received[nth], true), "twice: {nth}");
        }
        drop(sending.join().unwrap());
        assert!(publish.stop().success());
        assert!(subscribe.stop().success());
    }
}

#[test]
fn messages_without_a_stream_go_to_current_subscribers() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::new();
    let metrics = format!("127.0.0.1:{}", free_port());
    let subscribe = pipes.run("subscribe", &["--to", "outbox", "--metrics", &metrics]);
    let mut reader = pipes.reader();
    let page = || figures(&metrics);
    wait_until("it listens", || page().contains("pipework_nats_subscribed 1"));
    let publish = pipes.run("publish", &["inbox"]);
    let mut writer = pipes.writer();
    for len in [3, 2_500_000, 4] {
        writer.send(vec![len as u8; len], SOON).unwrap();
        assert_eq!(reader.recv(SOON).unwrap().len(), len);
    }
    // A stranger's, and those that make no sense.
    pipes.ask(async |jetstream| {
        let client = jetstream.client();
        for (name, value) in [
            ("Pipework-Offset", "0"),
            ("Pipework-Message", ""),
            ("Pipework-Type", "song"),
            ("Pipework-Writer", "me"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            client.publish_with_headers(SUBJECT, headers, "wrong".into()).await.unwrap();
        }
        // Pieces without end, without a beginning, and of one that is too long.
        for (offset, more) in [(0, true), (7000, false), (u64::MAX, true), (3000, false)] {
            let mut headers = HeaderMap::new();
            headers.insert("Pipework-Message", "x");
            headers.insert("Pipework-Offset", offset.to_string());
            if more {
                headers.insert("Pipework-More", "1");
            }
            client.publish_with_headers(SUBJECT, headers, vec![0; 1000].into()).await.unwrap();
        }
        client.publish(SUBJECT, "a stranger's".into()).await.unwrap();
    });
    assert_eq!(&*reader.recv(SOON).unwrap(), b"a stranger's");
    let text = page();
    for line in [
        "refused_total{reason=\"malformed\"} 4",
        "messages_total{side=\"subscribe\",outcome=\"written\"} 4",
        "in_flight{side=\"subscribe\"} 0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    drop(writer);
    drop(publish);
    assert_eq!(subscribe.stop().code(), Some(3), "messages were lost, and it says so");
}

#[test]
fn publish_sends_its_messages_before_it_stops() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::new();
    for turn in 1..=5 {
        let publish = pipes.run("publish", &["inbox", "--jetstream", STREAM]);
        let mut writer = pipes.writer();
        for number in 0..20u32 {
            writer.send(number.to_le_bytes(), SOON).unwrap();
        }
        drop(writer);
        // As soon as it reads at all.
        let kept = &pipes._kept[0];
        wait_until("it reads", || {
            pipework::fd::poll(
                &mut [pipework::fd::PollFd::new(&kept, pipework::fd::PollFlags::IN)],
                Duration::ZERO,
            ) == Ok(0)
        });
        assert!(publish.stop().success());
        assert_eq!(pipes.stored(), 20 * turn);
    }
}

#[test]
fn slow_or_leaving_readers_lose_no_message() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::new();
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    pipes.ask(async |jetstream| {
        for number in 0..2000u32 {
            let data = vec![number as u8; 300];
            jetstream.publish(SUBJECT, data.into()).await.unwrap().await.unwrap();
        }
    });
    // More than the pipe holds; several readers continue one after the other.
    let mut received = 0;
    while received < 2000 {
        let mut reader = pipes.reader();
        reader.set_exact(1);
        for _ in 0..500 {
            assert_eq!(reader.recv(SOON).unwrap()[0], received as u8);
            received += 1;
        }
    }
    assert!(subscribe.stop().success());
    let known = pipes.ask(async |jetstream| {
        let stream = jetstream.get_stream(STREAM).await.unwrap();
        let mut consumer: jetstream::consumer::PullConsumer = stream.get_consumer("there").await.unwrap();
        consumer.info().await.unwrap().num_ack_pending
    });
    assert_eq!(known, 0, "all are acknowledged");
}

#[test]
fn invalid_setups_are_refused_with_a_reason() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::new();
    let fails = |command: &str, options: &[&str], why: &str| {
        let run =
            pipes.command(command, options).stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{why} in {said}");
    };
    std::fs::write(
        pipes.path("file"),
        "a file that is longer than a journal's head is, and no journal at all",
    )
    .unwrap();
    fails("publish", &["inbox", "--jetstream", "NONE"], "there is none");
    fails("publish", &["file"], "not a FIFO");
    fails("publish", &[], "standard input is no pipe");
    fails("publish", &["inbox", "--journal", "file"], "no journal");
    fails("subscribe", &["--durable", "x", "--jetstream", "NONE", "--to", "outbox"], "there is none");
    fails("subscribe", &["--durable", "x", "--to", "file"], "file");
    fails("subscribe", &["--durable", "x", "--to", "outbox", "--journal", "file"], "no journal");
    let publish = pipes.run("publish", &PUBLISH);
    wait_until("the journal is there", || pipes.path("in.journal").exists());
    fails("publish", &["outbox", "--jetstream", STREAM, "--journal", "in.journal"], "another program");
    assert!(publish.stop().success());
    fails("publish", &["outbox", "--mixed", "--journal", "in.journal"], "other options");
    pipes.ask(async |jetstream| {
        let mut next = jetstream.client().subscribe("nobody").await.unwrap();
        next.unsubscribe().await.unwrap();
        assert!(next.next().await.is_none());
    });
}
