//! `pipework recv --exec`: several commands at a time, their failures, and how it is stopped.

use crate::run::{gone, send_signal, started};
use crate::{Folder, clean, fails, sh};
use pipework::atomic::{Options, create_fifo};
use rustix::process::Signal;
use std::fs::File;
use std::io::{BufRead, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// Three commands that wait for each other.
const MEET: &str =
    "id=$(cat); : > here.$id; until [ $(ls here.* | wc -l) -ge 3 ]; do sleep 0.01; done; echo $id";

#[test]
fn so_many_commands_run_at_a_time() {
    let script = format!("seq 3 | pipework send --lines | pipework recv -P 3 --exec sh -c '{MEET}' | sort");
    assert_eq!(clean(&script), "1\n2\n3\n");
    // Those that have ended make place for others, and one at a time is the default.
    let one = "sh -c 'mkdir lock; cat; echo; rmdir lock'";
    let script = format!("seq 30 | pipework send --lines | pipework recv --exec {one}");
    assert_eq!(clean(&script), clean("seq 30"));
    let script =
        "seq 300 | pipework send --lines | pipework recv --jobs 64 --exec sh -c 'echo $(cat)' | sort -n";
    assert_eq!(clean(script), clean("seq 300"));
    fails(2, &["--exec"], "pipework recv --jobs 2");
    fails(2, &["from 1"], "pipework recv --jobs 0 --exec true");
}

#[test]
fn more_commands_than_descriptors() {
    // All 300 run at the same time, until `go` is opened; a command costs no descriptor.
    let script = ": > log; mkfifo go; (seq 300 | pipework send --lines |
        (ulimit -n 256; pipework recv -P 300 --exec sh -c 'echo $(cat); read x < go; :')) > log &
        until [ $(wc -l < log) -ge 300 ]; do sleep 0.05; done; : > go; wait; sort -n log";
    assert_eq!(clean(script), clean("seq 300"));
}

#[test]
fn each_failure_is_told_with_its_message() {
    let script =
        "printf '%s\\n' 0 3 0 4 | pipework send --lines | pipework recv -P 2 --exec sh -c 'exit $(cat)'";
    let done = sh(&Folder::new(), script);
    assert_eq!((done.status, &*done.out), (Some(1), ""));
    let mut lines: Vec<&str> = done.err.lines().collect();
    lines.sort();
    let ends =
        ["pipework: 2 of the commands failed", "pipework: sh: exit status: 3, for message 2 of writer "];
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0] == ends[0] && lines[1].starts_with(ends[1]), "{lines:?}");
    assert!(lines[2].starts_with("pipework: sh: exit status: 4, for message 4 of"), "{lines:?}");
    // As soon as it has failed, though no other message comes.
    let script = ": > log; mkfifo f; exec 9<>f; pipework recv --from f -P 2 --exec sh -c 'exit 3' 2> log 9>&- & \
                  pipework send --to f x; until grep -q 'status: 3' log; do sleep 0.01; done; \
                  exec 9>&-; wait $!; echo $?";
    assert_eq!(clean(script), "1\n");
}

#[test]
fn others_read_while_all_places_are_taken() {
    // Two receivers with two places each: all four messages are in hand at the same time.
    let meet = MEET.replace("-ge 3", "-ge 4");
    let recv = format!("pipework recv --from f -P 2 --count 2 --exec sh -c '{meet}' 9>&- &");
    let script = format!("mkfifo f; exec 9<>f; {recv} {recv} seq 4 | pipework send --lines --to f; wait");
    let out = clean(&script);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    assert_eq!(lines, ["1", "2", "3", "4"]);
    // One that has all it wants does not wait for a turn, which another one may keep for long.
    let script = "mkfifo f up; exec 9<>f; pipework send --to f x &
        pipework recv --from f --count 1 --exec sh -c ': > up; echo done' 9>&- & A=$!
        cat up > /dev/null; pipework recv --from f --exec cat 9>&- & B=$!; wait $A; echo $?; kill $B";
    assert_eq!(clean(script), "done\n0\n");
}

/// docs/recipes/queue.md promises it.
#[test]
fn workers_of_the_library_take_turns_with_the_command() {
    let folder = Folder::new();
    let path = folder.join("f");
    create_fifo(&path).unwrap();
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let _kept = open();
    let take_100 = || -> Vec<u32> {
        let jobs = open();
        let mut reader = Options::new().dup_reader(&jobs).unwrap();
        reader.set_exact(1);
        let mut take = || {
            jobs.lock().unwrap();
            let job = String::from_utf8(reader.recv(Duration::from_secs(60)).unwrap().to_vec()).unwrap();
            jobs.unlock().unwrap();
            // The command has its turn as well.
            thread::sleep(Duration::from_millis(1));
            job.parse().unwrap()
        };
        (0..100).map(|_| take()).collect()
    };
    let take_20 = "for n in $(seq 20); do pipework recv --from f --count 1 --lines; done";
    let mut taken = thread::scope(|scope| {
        let workers = [scope.spawn(take_100), scope.spawn(take_100)];
        let script = format!("seq 220 | pipework send --lines --to f & {take_20}; wait");
        let done = sh(&folder, &script);
        assert_eq!((done.status, &*done.err), (Some(0), ""), "nobody is taken for a rival");
        let mut taken: Vec<u32> = done.out.lines().map(|line| line.parse().unwrap()).collect();
        workers.into_iter().for_each(|worker| taken.extend(worker.join().unwrap()));
        taken
    });
    taken.sort_unstable();
    assert_eq!(taken, (1..=220).collect::<Vec<_>>());
}

#[test]
fn what_is_in_hand_is_finished_after_a_signal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let folder = Folder::new();
        let path = folder.to_str().unwrap();
        create_fifo(folder.join("f")).unwrap();
        // Nobody else keeps what is sent before the receiver is there.
        let keeper = File::options().read(true).write(true).open(folder.join("f")).unwrap();
        let work = "echo $(cat); until [ -e go ]; do sleep 0.01; done; echo finished";
        let script = format!(
            "cd {path}; seq 9 | pipework send --lines --to f & \
             exec pipework recv --from f --forever -P 2 --exec sh -c '{work}'"
        );
        let (mut child, first, mut out) = started(&script);
        let mut second = String::new();
        out.read_line(&mut second).unwrap();
        assert_eq!(first.parse::<u8>().unwrap() + second.trim().parse::<u8>().unwrap(), 1 + 2);
        drop(keeper);
        send_signal(child.id(), signal);
        // Once it has heard the signal there is no more to be taken.
        File::create(folder.join("go")).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let ended = child.wait().unwrap().signal();
        assert_eq!((&*rest, ended), ("finished\nfinished\n", Some(signal.as_raw())));
        // What was not taken is there for others.
        let rest = sh(&folder, "timeout 20 pipework recv --from f --lines");
        assert_eq!(rest.out, "3\n4\n5\n6\n7\n8\n9\n");
    }
}

#[test]
fn a_signal_ends_who_has_nothing_in_hand() {
    // While it waits for the first sender, for a message, and for its turn.
    let other =
        "exec 9<>f; pipework recv --from f 9>&- & echo $!; while flock -n f true; do sleep 0.01; done";
    for before in ["echo", "exec 9<>f; echo", other] {
        let script = format!("mkfifo f; {before}; exec pipework recv --from f --exec true");
        let folder = Folder::new();
        let mut child = crate::shell(&folder, &script).stderr(Stdio::inherit()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        // Signals may come before it is there, and do the same.
        send_signal(child.id(), Signal::TERM);
        let status = child.wait().unwrap();
        let ended = status.signal() == Some(15);
        if let Ok(id) = line.trim().parse() {
            send_signal(id, Signal::KILL);
        }
        assert!(ended, "{before}: {status}");
    }
}

#[test]
fn a_second_signal_gives_up() {
    let script = "pipework send x | (exec pipework recv --exec sh -c 'echo $$ $PPID; exec sleep 1000')";
    let mut child = crate::shell(&Folder::new(), script).current_dir("/").spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
    while child.try_wait().unwrap().is_none() {
        send_signal(ids[1], Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    send_signal(ids[0], Signal::KILL);
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("sh: still running, for message 1"), "{told}");
    gone(&ids[0].to_string());
}

#[test]
fn a_failing_output_loses_none_in_hand() {
    // In mixed mode text goes to standard output, which is full; the command in hand is waited for.
    let script = "mkfifo go; (pipework send -m x; cat go; echo text) | \
                  pipework recv -m -P 2 --exec sh -c 'cat > taken; : > go; sleep 0.1; : > finished' > /dev/full; \
                  echo $?; cat taken; ls finished";
    let done = sh(&Folder::new(), script);
    assert_eq!((&*done.out, done.status), ("1\nxfinished\n", Some(0)), "{}", done.err);
    assert!(done.err.contains("standard output: No space"), "{}", done.err);
    // The time given is kept.
    let mut child = crate::shell(&Folder::new(), "pipework recv --timeout 0.2 -P 2 --exec cat; echo $?")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(out, "124\n");
    drop(stdin);
    child.wait().unwrap();
}

/// What is there and executable may still not start; the message is in hand by then.
#[test]
fn a_message_that_nothing_was_started_for_is_named() {
    // The program that its first line names is there, and cannot be started either.
    let script = "printf '#!/nonexistent\n' > shell; echo \"#!$PWD/shell\" > work; chmod +x shell work; mkfifo jobs; exec 3<> jobs
        pipework send --to jobs one two
        pipework recv --from jobs --exec ./work; echo $?
        pipework recv --from jobs --count 1";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.out, "1\ntwo");
    let words = "message 1 of writer ";
    assert!(done.err.contains(words) && done.err.contains(" is lost: cannot run ./work"), "{}", done.err);
}
