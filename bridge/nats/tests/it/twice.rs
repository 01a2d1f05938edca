//! A stream that keeps a message twice: it is written into the pipe once.

use crate::harness::{Nats, Process, SOON, has_nats, wait_until};
use crate::messages::{PUBLISH, Pipes, STREAM, SUBJECT, SUBSCRIBE, config};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::PullConsumer;
use pipework::ErrorKind;
use pipework::atomic::{Reader, Writer};
use std::collections::HashSet;
use std::ops::Range;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A stream with this duplicate window knows no name any more when it has passed.
const WINDOW: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(120);

/// One in ten goes in three pieces.
fn send(writer: &mut Writer, numbers: Range<usize>) {
    for number in numbers {
        let len = if number % 10 == 7 { 2_500_000 } else { 100 };
        writer.send(vec![number as u8; len], SOON).unwrap();
    }
}

/// The number of stream messages that those make.
fn pieces(numbers: Range<usize>) -> u64 {
    numbers.map(|number| if number % 10 == 7 { 3 } else { 1 }).sum()
}

fn receives(reader: &mut Reader, numbers: Range<usize>) {
    for number in numbers {
        let message = reader.recv(SOON).unwrap();
        assert!(message.iter().all(|byte| *byte == number as u8), "{} instead of {number}", message[0]);
    }
}

fn receives_no_more(reader: &mut Reader) {
    let more = reader.recv(Duration::from_millis(500)).map(|message| message[0]);
    assert_eq!(more.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
}

impl Pipes {
    /// Starts the server again, which then remembers the names of the window only.
    fn forget_names(&mut self) {
        thread::sleep(2 * WINDOW);
        self.nats.process.kill();
        let store = self.path("store").display().to_string();
        self.nats = Nats::start_at(self.nats.port, &["-js", "-sd", &store]);
    }

    /// Publishes each name that the stream has once more, the last first.
    fn copy_all(&mut self) {
        self.forget_names();
        self.ask(async |jetstream| {
            let mut stream = jetstream.get_stream(STREAM).await.unwrap();
            let last = stream.info().await.unwrap().state.last_sequence;
            let mut names = HashSet::new();
            for number in (1..=last).rev() {
                let message = stream.get_raw_message(number).await.unwrap();
                if !names.insert(message.headers.get("Nats-Msg-Id").unwrap().to_string()) {
                    continue;
                }
                let sent = jetstream.publish_with_headers(SUBJECT, message.headers, message.payload);
                assert!(!sent.await.unwrap().await.unwrap().duplicate);
            }
        });
    }

    fn all_acknowledged(&self) {
        wait_until("all is acknowledged", || {
            let info = self.ask(async |jetstream| {
                let stream = jetstream.get_stream(STREAM).await.unwrap();
                let consumer: PullConsumer = stream.get_consumer("there").await.unwrap();
                consumer.cached_info().clone()
            });
            info.num_pending == 0 && info.num_ack_pending == 0
        });
    }
}

#[test]
fn second_copy_is_not_written_even_after_a_restart() {
    if !has_nats() {
        return;
    }
    let mut pipes = Pipes::with(WINDOW);
    let publish = pipes.run("publish", &PUBLISH);
    let mut subscribe = pipes.run("subscribe", &SUBSCRIBE);
    let (mut writer, mut reader) = (pipes.writer(), pipes.reader());
    send(&mut writer, 0..20);
    receives(&mut reader, 0..20);
    pipes.all_acknowledged();
    subscribe.kill();
    send(&mut writer, 20..30);
    wait_until("all is stored", || pipes.stored() == pieces(0..30));
    // Of the items in the pipe, and of those not in it yet.
    pipes.copy_all();
    assert_eq!(pipes.stored(), 2 * pieces(0..30));
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    receives(&mut reader, 20..30);
    pipes.all_acknowledged();
    pipes.copy_all();
    receives_no_more(&mut reader);
    pipes.all_acknowledged();
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
}

/// As a bridge that comes back when the stream has forgotten the names of the messages that it has.
#[test]
fn journal_without_the_needed_ranges_repeats_nothing() {
    if !has_nats() {
        return;
    }
    let mut pipes = Pipes::with(WINDOW);
    let publish = pipes.run("publish", &PUBLISH);
    let mut writer = pipes.writer();
    send(&mut writer, 0..1);
    wait_until("it is stored", || pipes.stored() == 1);
    pipes.nats.process.kill();
    send(&mut writer, 1..20);
    let (journal, aside) = (pipes.path("in.journal"), pipes.path("aside"));
    let len = || std::fs::metadata(&journal).unwrap().len();
    wait_until("all is in the journal", || {
        let before = len();
        thread::sleep(Duration::from_millis(300));
        before > 5_000_000 && len() == before
    });
    std::fs::copy(&journal, &aside).unwrap();
    let store = pipes.path("store").display().to_string();
    pipes.nats = Nats::start_at(pipes.nats.port, &["-js", "-sd", &store]);
    wait_until("all is stored", || pipes.stored() == pieces(0..20));
    assert!(publish.stop().success());
    std::fs::rename(&aside, &journal).unwrap();
    pipes.forget_names();
    let publish = pipes.run("publish", &PUBLISH);
    wait_until("it is stored again", || pipes.stored() == 2 * pieces(0..20) - 1);
    send(&mut writer, 20..22);
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    let mut reader = pipes.reader();
    receives(&mut reader, 0..22);
    receives_no_more(&mut reader);
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
}

#[test]
fn foreign_message_ids_are_deduplicated_like_the_stream_does() {
    if !has_nats() {
        return;
    }
    let mut pipes = Pipes::with(WINDOW);
    // The last one looks as if a journal had made it.
    let names = ["a", "b", "00c0ffee00c0ffee.96"];
    let all = |pipes: &mut Pipes, data: Range<u8>| {
        pipes.forget_names();
        pipes.ask(async |jetstream| {
            for (name, data) in names.into_iter().zip(data) {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", name);
                let sent = jetstream.publish_with_headers(SUBJECT, headers, vec![data].into()).await;
                assert!(!sent.unwrap().await.unwrap().duplicate);
            }
        });
    };
    let mut reader = pipes.reader();
    all(&mut pipes, 0..3);
    all(&mut pipes, 3..6);
    let mut subscribe = pipes.run("subscribe", &SUBSCRIBE);
    // The window has passed: others have the same name.
    receives(&mut reader, 0..6);
    pipes.all_acknowledged();
    subscribe.kill();
    all(&mut pipes, 100..103);
    all(&mut pipes, 103..106);
    // As if it had not passed.
    pipes.ask(async |jetstream| jetstream.update_stream(config(LONG)).await.map(drop).unwrap());
    let mut subscribe = pipes.run("subscribe", &SUBSCRIBE);
    receives_no_more(&mut reader);
    pipes.all_acknowledged();
    subscribe.kill();
    pipes.ask(async |jetstream| jetstream.publish(SUBJECT, vec![6].into()).await.unwrap().await.unwrap());
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    receives(&mut reader, 6..7);
    receives_no_more(&mut reader);
    assert!(subscribe.stop().success());
}

#[test]
fn second_subscribe_with_a_durable_name_is_refused() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::with(LONG);
    let publish = pipes.run("publish", &PUBLISH);
    let first = pipes.run("subscribe", &SUBSCRIBE);
    let (mut writer, mut reader) = (pipes.writer(), pipes.reader());
    send(&mut writer, 0..1);
    receives(&mut reader, 0..1);
    for (journal, why) in [("out.journal", "durable name"), ("other.journal", "durable name")] {
        let options = ["--durable", "there", "--to", "outbox", "--journal", journal];
        let second = pipes.command("subscribe", &options).output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    // By another name the same journal is in use.
    let options = ["--durable", "elsewhere", "--to", "outbox", "--journal", "out.journal"];
    let second = pipes.command("subscribe", &options).output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("another program uses this journal"));
    // Killed, it leaves the name to the next one.
    drop(first);
    let next = pipes.run("subscribe", &SUBSCRIBE);
    send(&mut writer, 1..3);
    receives(&mut reader, 1..3);
    receives_no_more(&mut reader);
    assert!(next.stop().success());
    assert!(publish.stop().success());
}

/// The examples that the help of each command has, as a shell runs them.
#[test]
fn the_examples_of_the_help_work() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::with(LONG);
    let example = |command: &str| {
        let help = pipes.command(command, &[]).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let (_, rest) = help.split_once("    pipework nats").expect("an example");
        let (example, _) = rest.split_once("\n\n").unwrap();
        let program = env!("CARGO_BIN_EXE_pipework-nats");
        let script = format!("exec {program}{example}").replace("jobs", SUBJECT).replace("JOBS", STREAM);
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(pipes.path("")).env("NATS_URL", pipes.nats.url());
        Process::start(&mut shell)
    };
    let (publish, subscribe) = (example("publish"), example("subscribe"));
    let (mut writer, mut reader) = (pipes.writer(), pipes.reader());
    send(&mut writer, 0..8);
    receives(&mut reader, 0..8);
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
}
