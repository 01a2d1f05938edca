//! `ls`, `top` and `doctor` on broadcasts, and the commands for calls, which refuse them.

use crate::ls::wait_until;
use crate::terminal::Terminal;
use crate::{Folder, sh};
use pipework::broadcast::{Options, Publisher, Segment, Subscriber, SubscriberOptions};
use serde_json::{Value, json};
use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// A small segment.
fn segment(path: impl AsRef<Path>) -> Segment {
    Options::new().messages(4).members(8).message_bytes(100).create(path).unwrap()
}

fn must_see_all(segment: &Segment) -> Subscriber {
    segment.subscriber_with(&SubscriberOptions::new().must_see_all(true)).unwrap()
}

fn publish(publisher: &Publisher, messages: u64) {
    for _ in 0..messages {
        publisher.publish("news", SOON).unwrap();
    }
}

/// A publisher, a subscriber that must see all and is 4 messages behind, so that the ring is full, and
/// one that is 1 behind and has missed 2.
fn busy(path: impl AsRef<Path>) -> (Segment, Publisher, [Subscriber; 2]) {
    let segment = segment(path);
    let (publisher, mut lagging) = (segment.publisher().unwrap(), segment.subscriber().unwrap());
    publish(&publisher, 2);
    let all = must_see_all(&segment);
    publish(&publisher, 4);
    assert_eq!(lagging.recv(SOON).map(drop).unwrap_err().missed(), Some(2));
    (0..3).for_each(|_| drop(lagging.recv(SOON).unwrap()));
    (segment, publisher, [all, lagging])
}

/// A process that is a publisher and a subscriber that must see all.
fn member(segment: &Segment) -> Child {
    let before = segment.members().unwrap().len();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["broadcast::member_process", "--exact", "--ignored", "--nocapture"]);
    command.env("PIPEWORK_MEMBER", segment.path().unwrap()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    wait_until("it attaches", || segment.members().unwrap().len() == before + 2);
    child
}

#[test]
#[ignore = "a process that other tests start"]
fn member_process() {
    let Some(path) = env::var_os("PIPEWORK_MEMBER") else { return };
    let segment = Options::new().open(path).unwrap();
    let _members = (segment.publisher().unwrap(), must_see_all(&segment));
    std::thread::sleep(Duration::from_secs(600));
}

/// Makes a segment and kills its only members.
fn left(path: impl AsRef<Path>) {
    let segment = segment(path);
    kill(&mut member(&segment));
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn objects(folder: &Folder, script: &str) -> Vec<Value> {
    let done = sh(folder, script);
    assert!(done.err.is_empty(), "{done:?}");
    done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ls_shows_broadcasts_with_their_subscribers() {
    let folder = Folder::new();
    let _busy = busy(folder.join("busy"));
    let _open = segment(folder.join("open"));
    left(folder.join("left"));
    drop(segment(folder.join("cut")));
    File::options().write(true).open(folder.join("cut")).unwrap().set_len(5000).unwrap();
    fs::copy(folder.join("left"), folder.join("copy")).unwrap();
    let before = fs::read(folder.join("busy")).unwrap();
    let listed = objects(&folder, "pipework ls --json .");
    let facts = |object: &Value| {
        assert_eq!(object["kind"], "broadcast", "{object}");
        [&object["path"], &object["state"]].map(|fact| fact.as_str().unwrap().to_string())
    };
    let states: Vec<_> = listed.iter().map(facts).collect();
    let expected = [
        ["./busy", "in use"],
        ["./copy", "broken"],
        ["./cut", "broken"],
        ["./left", "left"],
        ["./open", "open"],
    ];
    assert_eq!(states, expected);
    let [busy, copy, cut, left, _] = &listed[..] else { panic!() };
    assert!(copy["reason"].as_str().unwrap().contains("copy"), "{copy}");
    assert!(cut["reason"].as_str().unwrap().contains("cut short"), "{cut}");
    assert_eq!([&left["dead"], &left["publishers"], &left["subscribers"]], [2, 0, 0]);
    assert_eq!([&busy["publishers"], &busy["subscribers"], &busy["dead"]], [1, 2, 0]);
    assert_eq!([&busy["newest"], &busy["messages"], &busy["message_bytes"]], [6, 4, 100]);
    assert_eq!(busy["observers"], false);
    let facts = |member: &Value| {
        assert_eq!((&member["pid"], &member["alive"]), (&std::process::id().into(), &true.into()));
        ["role", "must_see_all", "lag"].map(|fact| member[fact].clone())
    };
    let members: Vec<_> = busy["members"].as_array().unwrap().iter().map(facts).collect();
    let (publisher, subscriber) = (json!("publisher"), json!("subscriber"));
    let expected = [
        [publisher, Value::Null, Value::Null],
        [subscriber.clone(), json!(false), json!(1)],
        [subscriber, json!(true), json!(4)],
    ];
    assert_eq!(members, expected);
    let text = sh(&folder, "pipework ls busy left").out;
    assert!(
        text.contains("in use  broadcast  ") && text.contains("  1 publisher, 2 subscribers\n"),
        "{text}"
    );
    assert!(text.ends_with("  left  0 publishers, 0 subscribers, 2 dead\n"), "{text}");
    assert_eq!(sh(&folder, "pipework ls --unused --nul . | tr '\\0' ' '").out, "./copy ./cut ./left ");
    assert!(fs::read(folder.join("busy")).unwrap() == before, "the file has changed");
}

#[test]
fn top_shows_the_metrics_of_a_broadcast() {
    let folder = Folder::new();
    let _busy = busy(folder.join("news"));
    let before = fs::read(folder.join("news")).unwrap();
    let [object] = &objects(&folder, "pipework top --once --json --interval 0.2 news")[..] else { panic!() };
    assert_eq!((&object["kind"], &object["path"]), (&"broadcast".into(), &"news".into()));
    let number = |key: &str| object[key].as_u64().unwrap();
    let keys = ["newest", "messages", "writing", "publishers", "subscribers", "dead", "lag"];
    assert_eq!(keys.map(number), [6, 4, 0, 1, 2, 0, 4]);
    let counters = json!({
        "published": 6, "skipped": 0, "missed": 2, "full": 0, "dead_members": 0, "recovered": 0,
    });
    assert_eq!(object["counters"], counters);
    assert_eq!(object["per_second"], json!({ "published": 0.0, "missed": 0.0 }));
    assert_eq!(
        (&object["members"][2]["must_see_all"], &object["members"][2]["lag"]),
        (&true.into(), &4.into())
    );
    assert!(object["members"][0]["command"].as_str().unwrap().contains("/it-"), "{object}");

    let done = sh(&folder, "pipework top --once --interval 0.1 news");
    let lines: Vec<_> = done.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    let columns = ["MSGS/S", "LAG", "KEEPS", "WRITING", "MISSED", "FULL", "P/S", "NEWEST", "BROADCAST"];
    assert_eq!(lines[0], columns);
    assert_eq!(lines[1], ["0", "4!", "4", "0", "2", "0", "1/2", "6", "news"]);
    assert!(done.out.contains("news: published 6   passed over 0   missed 2   full 0"), "{}", done.out);
    assert!(done.out.contains("  subscriber  all      "), "{}", done.out);
    assert!(done.out.contains("  subscriber  may lag  "), "{}", done.out);
    assert!(fs::read(folder.join("news")).unwrap() == before, "the file has changed");
}

#[test]
fn top_shows_broadcasts_on_its_screen() {
    let folder = Folder::new();
    let (news, _publisher, _subscribers) = busy(folder.join("news"));
    let _calls = crate::ls::segment(folder.join("work"));
    let script = "exec pipework top --interval 0.1 work news";
    let mut terminal = Terminal::run(&folder, (24, 80), script);
    terminal.wait_for("1/2       6  news");
    assert!(
        terminal.text().starts_with("pipework top   1 channel, 1 broadcast, 0 pipes"),
        "{}",
        terminal.text()
    );
    terminal.press("j");
    terminal.wait_for("published 6   passed over 0");
    // A channel for calls takes the name.
    news.unlink().unwrap();
    terminal.wait_for("news: gone");
    let _calls = crate::ls::segment(folder.join("news"));
    terminal.wait_for("news: it is a channel fo");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn prometheus_page_has_the_metrics_of_broadcasts() {
    let folder = Folder::new();
    let _busy = busy(folder.join("news"));
    let _calls = crate::ls::segment(folder.join("work"));
    let (mut child, address) = crate::top::page(&folder, "news work");
    let body = crate::top::ask(&address, "GET /metrics HTTP/1.0\r\n\r\n");
    for line in [
        "# TYPE pipework_broadcast_published counter",
        "pipework_up{channel=\"news\"} 1",
        "pipework_up{channel=\"work\"} 1",
        "pipework_broadcast_published_total{channel=\"news\"} 6",
        "pipework_broadcast_skipped_total{channel=\"news\"} 0",
        "pipework_broadcast_missed_total{channel=\"news\"} 2",
        "pipework_broadcast_full_total{channel=\"news\"} 0",
        "pipework_broadcast_messages{channel=\"news\"} 4",
        "pipework_broadcast_newest{channel=\"news\"} 6",
        "pipework_broadcast_writing{channel=\"news\"} 0",
        "pipework_broadcast_subscribers{channel=\"news\",must_see_all=\"true\"} 1",
        "pipework_broadcast_lag{channel=\"news\",must_see_all=\"true\"} 4",
        "pipework_broadcast_lag{channel=\"news\",must_see_all=\"false\"} 1",
        "pipework_dead_members_total{channel=\"news\"} 0",
        "pipework_blob_bytes{channel=\"news\"} 0",
        "pipework_members{channel=\"news\",role=\"publisher\",alive=\"true\"} 1",
        "pipework_members{channel=\"work\",role=\"server\",alive=\"true\"} 0",
    ] {
        assert!(body.lines().any(|other| other == line), "no {line} in\n{body}");
    }
    sh(&folder, &format!("kill -TERM {}", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn doctor_finds_what_is_wrong_with_a_broadcast() {
    let folder = Folder::new();
    let (segment, publisher, subscribers) = busy(folder.join("news"));
    let id = std::process::id();
    let done = sh(&folder, "pipework doctor news");
    let held_up = format!("publishers wait for process {id}, which must see all and is 4 messages behind");
    assert!(done.status == Some(3) && done.out.contains(&held_up), "{done:?}");
    drop(subscribers);
    let done = sh(&folder, "pipework doctor news");
    assert!(done.status == Some(0) && done.out.contains("1 publisher, 0 subscribers: nothing"), "{done:?}");

    kill(&mut member(&segment));
    let done = sh(&folder, "pipework doctor news");
    let dead = "2 members died without leaving, and others may wait for what they held";
    assert!(done.status == Some(3) && done.out.contains(dead), "{done:?}");
    let done = sh(&folder, "pipework doctor --yes news");
    assert!(done.status == Some(0) && done.out.contains("taken back from 2 dead members"), "{done:?}");
    assert_eq!(segment.members().unwrap().len(), 1);

    // Nobody uses it, and it goes with its messages and its blobs.
    let long = vec![7; 5000];
    publisher.publish(&long, SOON).unwrap();
    let done = sh(&folder, "pipework ls news");
    assert!(done.out.contains("in 1 blob file"), "{done:?}");
    drop((segment, publisher));
    let done = sh(&folder, "pipework doctor --yes .");
    assert!(done.status == Some(0) && done.out.contains("    removed"), "{done:?}");
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0);
}

#[test]
fn doctor_keeps_blobs_of_a_broadcast_that_a_process_has_open() {
    let folder = Folder::new();
    let (segment, publisher, subscribers) = busy(folder.join("news"));
    drop(subscribers);
    publisher.publish(&vec![7; 5000], SOON).unwrap();
    // Unlike `unlink`, this leaves the blobs.
    fs::remove_file(folder.join("news")).unwrap();
    let done = sh(&folder, "pipework doctor --yes .");
    let open = format!("not removed: process {} has the channel open", std::process::id());
    assert!(done.status == Some(3) && done.out.contains(&open), "{done:?}");
    drop((segment, publisher));
    sh(&folder, "pipework doctor --yes .");
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0);
}

#[test]
fn commands_for_calls_refuse_a_broadcast() {
    let folder = Folder::new();
    let _segment = segment(folder.join("news"));
    for command in ["call news x", "call --wait --timeout 9 news x", "serve news -- cat"] {
        let done = sh(&folder, &format!("pipework {command}"));
        assert_eq!(done.status, Some(1), "{done:?}");
        assert_eq!(done.err, "pipework: news: it is a broadcast, and no channel for calls\n", "{command}");
    }
}
