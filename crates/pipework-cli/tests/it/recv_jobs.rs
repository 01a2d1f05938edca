//! `pipework recv --exec`: several commands at a time, their failures, and how signals stop it.

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
fn recv_exec_runs_at_most_as_many_commands_as_jobs_says() {
    let script = format!("seq 3 | pipework send --lines | pipework recv -P 3 --exec sh -c '{MEET}' | sort");
    assert_eq!(clean(&script), "1\n2\n3\n");
    // Ended commands make place for others. The default is one at a time.
    let one = "sh -c 'mkdir lock; cat; echo; rmdir lock'";
    let script = format!("seq 30 | pipework send --lines | pipework recv --exec {one}");
    assert_eq!(clean(&script), clean("seq 30"));
    let script =
        "seq 300 | pipework send --lines | pipework recv --jobs 64 --exec sh -c 'echo $(cat)' | sort -n";
    assert_eq!(clean(script), clean("seq 300"));
    assert_eq!(clean("pipework send x | pipework recv --exec -- sh -c 'cat; echo'"), "x\n");
    fails(2, &["--exec"], "pipework recv --jobs 2");
    fails(2, &["from 1"], "pipework recv --jobs 0 --exec true");
}

#[test]
fn recv_exec_runs_more_commands_than_it_has_descriptors() {
    // All 300 run at the same time, until `go` is opened; a command costs no descriptor.
    let script = ": > log; mkfifo go; (seq 300 | pipework send --lines |
        (ulimit -n 256; pipework recv -P 300 --exec sh -c 'echo $(cat); read x < go; :')) > log &
        until [ $(wc -l < log) -ge 300 ]; do sleep 0.05; done; : > go; wait; sort -n log";
    assert_eq!(clean(script), clean("seq 300"));
}

#[test]
fn recv_exec_names_the_message_of_each_failed_command() {
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
    // recv reports the failure at once, although no other message comes.
    let script = ": > log; mkfifo f; exec 9<>f; pipework recv --from f -P 2 --exec sh -c 'exit 3' 2> log 9>&- & \
                  pipework send --to f x; until grep -q 'status: 3' log; do sleep 0.01; done; \
                  exec 9>&-; wait $!; echo $?";
    assert_eq!(clean(script), "1\n");
}

#[test]
fn recv_exec_lets_others_read_while_all_its_jobs_run() {
    // Two receivers with two places each: all four messages are in hand at the same time.
    let meet = MEET.replace("-ge 3", "-ge 4");
    let recv = format!("pipework recv --from f -P 2 --count 2 --exec sh -c '{meet}' 9>&- &");
    let script = format!("mkfifo f; exec 9<>f; {recv} {recv} seq 4 | pipework send --lines --to f; wait");
    let out = clean(&script);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    assert_eq!(lines, ["1", "2", "3", "4"]);
    // A receiver that has all its messages does not wait for a turn, which another may keep for
    // long.
    let script = "mkfifo f up; exec 9<>f; pipework send --to f x &
        pipework recv --from f --count 1 --exec sh -c ': > up; echo done' 9>&- & A=$!
        cat up > /dev/null; pipework recv --from f --exec cat 9>&- & B=$!; wait $A; echo $?; kill $B";
    assert_eq!(clean(script), "done\n0\n");
}

/// docs/recipes/queue.md promises it.
#[test]
fn readers_with_flock_take_turns_with_the_command() {
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
            // The command gets its turn, too.
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
        assert_eq!((done.status, &*done.err), (Some(0), ""), "recv took a reader for a rival");
        let mut taken: Vec<u32> = done.out.lines().map(|line| line.parse().unwrap()).collect();
        workers.into_iter().for_each(|worker| taken.extend(worker.join().unwrap()));
        taken
    });
    taken.sort_unstable();
    assert_eq!(taken, (1..=220).collect::<Vec<_>>());
}

#[test]
fn recv_exec_finishes_running_commands_after_a_signal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let folder = Folder::new();
        let path = folder.to_str().unwrap();
        create_fifo(folder.join("f")).unwrap();
        // The test itself must hold the FIFO open until the receiver has started.
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
        // After the signal the receiver takes no more messages.
        File::create(folder.join("go")).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let ended = child.wait().unwrap().signal();
        assert_eq!((&*rest, ended), ("finished\nfinished\n", Some(signal.as_raw())));
        // The messages that it did not take are there for others.
        let rest = sh(&folder, "timeout 20 pipework recv --from f --lines");
        assert_eq!(rest.out, "3\n4\n5\n6\n7\n8\n9\n");
    }
}

#[test]
fn signal_ends_a_receiver_that_runs_no_command() {
    // The receiver waits for the first sender, for a message, or for its turn.
    let other =
        "exec 9<>f; pipework recv --from f 9>&- & echo $!; while flock -n f true; do sleep 0.01; done";
    for before in ["echo", "exec 9<>f; echo", other] {
        let script = format!("mkfifo f; {before}; exec pipework recv --from f --exec true");
        let folder = Folder::new();
        let mut child = crate::shell(&folder, &script).stderr(Stdio::inherit()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        // A signal that comes before the receiver is ready ends it as well.
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
fn second_signal_ends_the_running_commands() {
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
fn recv_exec_finishes_running_commands_when_its_output_fails() {
    // In mixed mode text goes to standard output, which is full; recv waits for the running command.
    let script = "mkfifo go; (pipework send -m x; cat go; echo text) | \
                  pipework recv -m -P 2 --exec sh -c 'cat > taken; : > go; sleep 0.1; : > finished' > /dev/full; \
                  echo $?; cat taken; ls finished";
    let done = sh(&Folder::new(), script);
    assert_eq!((&*done.out, done.status), ("1\nxfinished\n", Some(0)), "{}", done.err);
    assert!(done.err.contains("standard output: No space"), "{}", done.err);
    // The timeout still holds.
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

/// An executable file may still fail to start, after recv has taken the message.
#[test]
fn recv_exec_names_a_message_whose_command_cannot_start() {
    // The interpreter that the first line names exists, but cannot start either.
    let script = "printf '#!/nonexistent\n' > shell; echo \"#!$PWD/shell\" > work; chmod +x shell work; mkfifo jobs; exec 3<> jobs
        pipework send --to jobs one two
        pipework recv --from jobs --exec ./work; echo $?
        pipework recv --from jobs --count 1";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.out, "1\ntwo");
    let words = "message 1 of writer ";
    assert!(done.err.contains(words) && done.err.contains(" is lost: cannot run ./work"), "{}", done.err);
}
