//! The cost of waiting: waiting ends sleep, and ends that need not wait make no system call.

use std::io::{Read, Write};
use std::process::Command;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pipework::Deadline;
use pipework::pipe::{CAPACITY, Reader, Writer, pipe};

use crate::harness::{Folder, PATIENCE, again, alone, is_alone, left_out, within};

/// How many times the thread `id` of this process has gone to sleep by itself, and whether it
/// sleeps now.
fn sleeps(id: i32) -> (u64, bool) {
    let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there").trim();
    (field("voluntary_ctxt_switches:").parse().unwrap(), field("State:").starts_with('S'))
}

fn thread_id() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse().ok()).expect("PID/task/TID")
}

#[test]
fn waiting_end_sleeps_until_the_other_end_acts() {
    alone(|| {
        let (reader, writer) = pipe(8).unwrap();
        let (sender, ids) = std::sync::mpsc::channel();
        let other = sender.clone();
        let waiting_reader = thread::spawn(move || {
            other.send(thread_id()).unwrap();
            let mut reader = reader;
            let got = reader.recv(&mut [0; 8], Deadline::NEVER).unwrap();
            (reader, got)
        });
        let (mut other_reader, mut full) = pipe(1).unwrap();
        let waiting_writer = thread::spawn(move || {
            sender.send(thread_id()).unwrap();
            full.write_all(b"ab").unwrap();
        });
        for id in ids.iter().take(2) {
            let begin = Instant::now();
            while !sleeps(id).1 {
                assert!(begin.elapsed() < PATIENCE, "the thread does not go to sleep");
                thread::sleep(Duration::from_millis(1));
            }
            let before = sleeps(id);
            thread::sleep(Duration::from_millis(100));
            assert_eq!(sleeps(id), before, "the thread wakes up for nothing");
        }
        let mut writer = writer;
        writer.write_all(b"abc").unwrap();
        assert_eq!(waiting_reader.join().unwrap().1, 3);
        other_reader.read_exact(&mut [0; 2]).unwrap();
        waiting_writer.join().unwrap();
    });
}

/// Observes the process from outside: between two marks that it makes, there is no system call at
/// all.
#[test]
fn calls_that_need_not_wait_make_no_system_call() {
    const NAME: &str = "pipe::costs::calls_that_need_not_wait_make_no_system_call";
    const MARKS: [&str; 2] = ["/pipework-mark-begin", "/pipework-mark-end"];
    if is_alone() {
        let (mut reader, mut writer) = pipe(CAPACITY).unwrap();
        let mut task = Context::from_waker(Waker::noop());
        let mut buf = [0; 1024];
        let mut round = |reader: &mut Reader, writer: &mut Writer| {
            for len in 1..buf.len() {
                writer.write_all(&buf[..len]).unwrap();
                reader.read_exact(&mut buf[..len]).unwrap();
                let (space, _) = writer.reserve(1, PATIENCE).unwrap();
                space[0] = 1;
                writer.commit(1).unwrap();
                assert_eq!(reader.peek(1, PATIENCE).unwrap().0.len(), 1);
                reader.consume(1).unwrap();
            }
        };
        round(&mut reader, &mut writer);
        let _ = std::fs::metadata(MARKS[0]);
        round(&mut reader, &mut writer);
        let (mut reader, mut writer) = (reader.into_async(), writer.into_async());
        for len in 1..buf.len() {
            while writer.poll_send(&mut task, &buf[..len]).is_pending() {}
            while reader.poll_recv(&mut task, &mut buf[..len]).is_pending() {}
        }
        let _ = std::fs::metadata(MARKS[1]);
        return;
    }
    let folder = Folder::new();
    let trace = folder.join("trace");
    let through = ["strace", "-f", "-qq", "-e", "signal=none", "-o", trace.to_str().unwrap()];
    if Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .map_or(true, |status| !status.success())
    {
        return left_out(NAME, "no strace, or it is not permitted");
    }
    let child = again(&through, NAME).stdout(std::process::Stdio::null()).spawn().unwrap();
    assert!(within(PATIENCE, child).success());
    let trace = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let [begin, end] = MARKS.map(|mark| lines.iter().position(|line| line.contains(mark)).expect("the mark"));
    // Ignore other threads of the test harness.
    let who = lines[begin].split_whitespace().next().unwrap();
    let calls: Vec<_> = lines[begin + 1..end].iter().filter(|line| line.starts_with(who)).collect();
    assert!(calls.iter().all(|line| line.contains("resumed")), "{calls:?}");
}
