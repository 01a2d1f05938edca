//! Servers that have forgotten everything, and disks that are full.

use crate::harness::{Nats, Process, SOON, figures, free_port, has_nats, wait_until};
use crate::messages::{PUBLISH, Pipes, STREAM, SUBJECT, SUBSCRIBE, config};
use async_nats::jetstream::consumer::pull;
use pipework::ErrorKind;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(120);

/// Replaces the server by one with an empty store.
fn forget_everything(pipes: &mut Pipes) {
    let port = pipes.nats.port;
    pipes.nats.process.kill();
    fs::remove_dir_all(pipes.path("store")).unwrap();
    let store = pipes.path("store").display().to_string();
    pipes.nats = Nats::start_at(port, &["-js", "-sd", &store]);
}

/// Runs a bridge whose standard error goes to the file that [`said`] reads.
fn saying(pipes: &Pipes, command: &str, options: &[&str]) -> Process {
    let said = File::create(pipes.path(&format!("{command}.said"))).unwrap();
    Process::start(pipes.command(command, options).stdout(Stdio::null()).stderr(said))
}

fn said(pipes: &Pipes, command: &str) -> String {
    fs::read_to_string(pipes.path(&format!("{command}.said"))).unwrap()
}

/// Waits until a bridge ends by itself.
fn ends(bridge: &mut Process) -> Option<i32> {
    let mut ended = None;
    wait_until("it ends", || {
        ended = bridge.0.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap().code()
}

#[test]
fn server_with_an_empty_store_gets_unacknowledged_messages() {
    if !has_nats() {
        return;
    }
    let mut pipes = Pipes::with(WINDOW);
    let metrics = format!("127.0.0.1:{}", free_port());
    let publish = saying(&pipes, "publish", &[&PUBLISH[..], &["--metrics", &metrics]].concat());
    let mut subscribe = saying(&pipes, "subscribe", &SUBSCRIBE);
    let (mut writer, mut reader) = (pipes.writer(), pipes.reader());
    writer.send("before", SOON).unwrap();
    assert_eq!(&*reader.recv(SOON).unwrap(), b"before");
    let known = "{side=\"publish\",outcome=\"acknowledged\"} 1";
    wait_until("publish knows that it is stored", || figures(&metrics).contains(known));
    writer.send("meanwhile", SOON).unwrap();
    forget_everything(&mut pipes);
    // It ends instead of waiting for ever.
    assert_eq!(ends(&mut subscribe), Some(1), "{}", said(&pipes, "subscribe"));
    assert!(said(&pipes, "subscribe").contains("stream MESSAGES is not there any more"));
    // This one has messages that exist nowhere else, and goes on.
    assert!(said(&pipes, "publish").contains("published again until it is"), "{}", said(&pipes, "publish"));
    pipes.ask(async |jetstream| jetstream.create_stream(config(WINDOW)).await.map(drop).unwrap());
    wait_until("it is stored", || pipes.stored() == 1);
    // The stream counts from the beginning, so the journal is of another one.
    let again = pipes.command("subscribe", &SUBSCRIBE).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("of another stream"));
    fs::remove_file(pipes.path("out.journal")).unwrap();
    subscribe = pipes.run("subscribe", &SUBSCRIBE);
    assert_eq!(&*reader.recv(SOON).unwrap(), b"meanwhile");
    assert!(publish.stop().success());
    assert!(subscribe.stop().success());
}

/// A stream that was deleted and made again counts from the beginning: its messages have numbers
/// that are known already, and must not be acknowledged as if they were written.
#[test]
fn recreated_stream_is_not_taken_for_the_old_one() {
    if !has_nats() {
        return;
    }
    let mut pipes = Pipes::with(WINDOW);
    let mut subscribe = saying(&pipes, "subscribe", &SUBSCRIBE);
    let publish = pipes.run("publish", &PUBLISH);
    let (mut writer, mut reader) = (pipes.writer(), pipes.reader());
    writer.send("old", SOON).unwrap();
    assert_eq!(&*reader.recv(SOON).unwrap(), b"old");
    assert!(publish.stop().success());
    // Both are created again before the bridges notice their absence.
    forget_everything(&mut pipes);
    pipes.ask(async |jetstream| {
        let stream = jetstream.create_stream(config(WINDOW)).await.unwrap();
        let durable = pull::Config {
            durable_name: Some("there".into()),
            filter_subject: SUBJECT.into(),
            ..Default::default()
        };
        stream.create_consumer(durable).await.unwrap();
        jetstream.publish(SUBJECT, "new".into()).await.unwrap().await.unwrap();
    });
    let code = ends(&mut subscribe);
    let said = said(&pipes, "subscribe");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the durable name there was created again"), "{said}");
    fs::remove_file(pipes.path("out.journal")).unwrap();
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    assert_eq!(&*reader.recv(SOON).unwrap(), b"new");
    assert!(subscribe.stop().success());
}

/// Runs a bridge twice in mounts of its own: with a full disk under its journal, and when there is
/// space again, for as long as the test. `None` if mounting is not permitted here. Files hold its
/// first output, and how it ended.
fn on_a_full_disk(pipes: &Pipes, command: &str, options: &[&str]) -> Option<Process> {
    let may_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("PIPEWORK_MUST_MOUNT").is_none(), "this process may not mount");
        return None;
    }
    fs::create_dir(pipes.path("disk")).unwrap();
    let script = "mount -t tmpfs -o size=256k pipework-test disk
        head -c 240k /dev/zero >disk/filler
        setpriv --pdeathsig KILL \"$@\" 2>said; echo $? >ended
        rm disk/filler
        exec \"$@\"";
    let bridge = pipes.command(command, options);
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh"]).arg(bridge.get_program()).args(bridge.get_args());
    shell.current_dir(pipes.path("")).env("NATS_URL", pipes.nats.url()).stdout(Stdio::null());
    Some(Process::start(&mut shell))
}

fn said_that_the_disk_is_full(pipes: &Pipes) {
    wait_until("the disk is full", || fs::read(pipes.path("ended")).is_ok_and(|ended| !ended.is_empty()));
    let said = fs::read_to_string(pipes.path("said")).unwrap();
    assert_eq!(fs::read_to_string(pipes.path("ended")).unwrap(), "1\n", "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn full_disk_under_the_journal_of_publish_loses_nothing() {
    if !has_nats() {
        return;
    }
    let pipes = Pipes::with(WINDOW);
    let mut writer = pipes.writer();
    // More than the disk takes; the rest stays in the pipe.
    for number in 0..50u8 {
        writer.send(vec![number; 1000], SOON).unwrap();
    }
    let options = ["inbox", "--forever", "--jetstream", STREAM, "--journal", "disk/in.journal"];
    let Some(publish) = on_a_full_disk(&pipes, "publish", &options) else { return };
    said_that_the_disk_is_full(&pipes);
    wait_until("all are stored", || pipes.stored() == 50);
    assert!(publish.stop().success());
    let subscribe = pipes.run("subscribe", &SUBSCRIBE);
    let mut reader = pipes.reader();
    for number in 0..50u8 {
        assert_eq!(&*reader.recv(SOON).unwrap(), &[number; 1000]);
    }
    assert!(subscribe.stop().success());
}

#[test]
fn full_disk_under_the_journal_of_subscribe_loses_nothing() {
    if !has_nats() {
        return;
    }
    const MESSAGES: u32 = 1000;
    let pipes = Pipes::with(WINDOW);
    pipes.ask(async |jetstream| {
        for number in 0..MESSAGES {
            jetstream
                .publish("test.messages", number.to_le_bytes().to_vec().into())
                .await
                .unwrap()
                .await
                .unwrap();
        }
    });
    let options = ["--durable", "there", "--to", "outbox", "--journal", "disk/out.journal"];
    let Some(subscribe) = on_a_full_disk(&pipes, "subscribe", &options) else { return };
    let mut reader = pipes.reader();
    let mut times = vec![0u8; MESSAGES as usize];
    while times.contains(&0) {
        let message = reader.recv(SOON).unwrap();
        times[u32::from_le_bytes((*message).try_into().unwrap()) as usize] += 1;
    }
    said_that_the_disk_is_full(&pipes);
    let more = reader.recv(Duration::from_millis(500)).map(|message| message.len());
    assert_eq!(more.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    // The one that was being written when the disk was full is in doubt.
    assert!(times.iter().map(|times| u32::from(*times)).sum::<u32>() <= MESSAGES + 1);
    assert!(subscribe.stop().success());
}
