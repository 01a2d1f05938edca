//! Receivers that come and go at one FIFO: each gets the messages that the one before it left.

use crate::{Folder, clean, fails, left_to_test_all, sh};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Waits until no process has a file of this folder as its standard input, as keepers have.
fn wait_until_keepers_end(folder: &Path) {
    let folder = folder.canonicalize().unwrap();
    let keeps = |process: &fs::DirEntry| {
        fs::read_link(process.path().join("fd/0")).is_ok_and(|input| input.starts_with(&folder))
    };
    for _ in 0..5000 {
        if !fs::read_dir("/proc").unwrap().flatten().any(|process| keeps(&process)) {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("a keeper stays");
}

#[test]
fn receiver_that_leaves_first_loses_no_message() {
    let folder = Folder::new();
    for (send, recv) in [("", ""), ("--mixed", "--mixed"), ("--zstd", "--zstd")] {
        // The senders are gone before the first message is taken, and each receiver before the
        // next.
        let script = format!(
            "rm -f f; mkfifo f; pipework send --to f {send} a b c d & pipework recv --from f {recv} --lines --count 1; wait
             pipework recv --from f {recv} --lines --count 2
             pipework recv --from f {recv} --lines --count 1
             pipework recv --from f {recv} --count 1 --timeout 0.05; echo $?"
        );
        let done = sh(&folder, &script);
        assert_eq!(done.out, "a\nb\nc\nd\n124\n", "{send}: {}", done.err);
    }
    wait_until_keepers_end(&folder);
}

/// A receiver opens the FIFO twice, for its turn and to read. Senders may come and leave in between.
#[test]
fn receiver_ends_although_its_senders_left_before_it_read() {
    let script = "mkfifo f; for round in $(seq 60); do
        timeout 20 pipework recv --from f --lines || echo $? & pipework send --to f $round; wait; done";
    let expected: String = (1..=60).map(|round| format!("{round}\n")).collect();
    let done = sh(&Folder::new(), script);
    assert_eq!((&*done.out, &*done.err), (&*expected, ""));
}

/// Bytes in the FIFO count as a sender's, even if only a keeper or another receiver holds them now.
#[test]
fn receiver_ends_although_its_senders_left_before_it_started() {
    let behind_a_keeper = "mkfifo f; pipework send --to f a b c & pipework recv --from f --count 1; wait
        timeout 20 pipework recv --from f --lines --count 1 || echo $?
        timeout 20 pipework recv --from f --lines || echo $?";
    assert_eq!(clean(behind_a_keeper), "ab\nc\n");
    // The first receiver lets others read while its command runs. That ends after the second's.
    let beside_another = "mkfifo f; pipework send --to f a b & sender=$!
        pipework recv --from f --count 1 --exec sh -c 'cat; : > taken; until [ -e done ]; do sleep 0.01; done' &
        until [ -e taken ]; do sleep 0.01; done; wait $sender
        timeout 20 pipework recv --from f --exec cat || echo $?; : > done; wait";
    assert_eq!(clean(beside_another), "ab");
}

/// A leaving receiver briefly holds a writing end, to see whether bytes remain. strace makes that
/// moment long.
#[test]
fn leaving_receiver_does_not_count_as_a_sender() {
    if left_to_test_all("it waits for 20 seconds") {
        return;
    }
    let script = "mkfifo f out
        slowly='strace -qq -o /dev/null -e trace=ioctl,fcntl -e inject=ioctl,fcntl:delay_enter=50000'
        $slowly true 2> /dev/null || slowly=
        $slowly pipework recv --from f --count 1 > out & exec 8< out
        head -c 200000 /dev/zero | pipework send --to f
        timeout 20 pipework recv --from f --lines & next=$!
        until ls -l /proc/$(pgrep -P $next)/fd 2> /dev/null | grep -q '/f$'; do :; done
        cat <&8 > /dev/null; pipework send --to f --timeout 10 next; wait";
    assert_eq!(clean(script), "next\n");
}

#[test]
fn receiver_without_write_permission_reports_the_bytes_it_loses() {
    // The superuser may write to any file unless it drops that capability.
    let script = "mkfifo f; exec 9<> f; pipework send --to f a b; chmod 444 f
        [ $(id -u) != 0 ] || bound='setpriv --bounding-set=-dac_override'
        $bound pipework recv --from f --count 1 --lines 9>&-; pipework recv --from f --count 1";
    let done = sh(&Folder::new(), script);
    assert_eq!((done.status, &*done.out), (Some(0), "a\nb"), "{done:?}");
    assert!(done.err.contains("unread bytes are lost unless"), "{done:?}");
}

#[test]
fn loop_of_receivers_gets_every_job() {
    let folder = Folder::new();
    let script = "mkfifo f; (seq 40 | pipework send --lines --to f) &
        while job=$(pipework recv --from f --count 1 --timeout 20) && [ $job -lt 40 ]; do echo $job; done
        echo $job; wait; pipework send --to f --timeout 0.05 x 2>&1";
    let done = sh(&folder, script);
    let expected: String = (1..=40).map(|job| format!("{job}\n")).collect();
    let rest = done.out.strip_prefix(&expected).unwrap_or_else(|| panic!("{done:?}"));
    // The process that keeps messages is no reader.
    assert!(rest.contains("no reader opened it"), "{done:?}");
    wait_until_keepers_end(&folder);
}

#[test]
fn many_loops_receive_each_job_of_a_fifo_once() {
    // Some jobs have many parts, which two simultaneous readers would tear.
    let folder = Folder::new();
    let jobs: Vec<String> = (0..120).map(|job| format!("{job}-{}", "x".repeat(job * 331 % 20_000))).collect();
    fs::write(folder.join("jobs"), jobs.join("\n") + "\n").unwrap();
    let worker =
        "for n in $(seq 30); do pipework recv --from f --count 1 --lines >> out.$w || echo $? >&2; done";
    let script = format!(
        "mkfifo f; exec 9<>f; (pipework send --lines --to f < jobs) 9>&- &
         for w in 1 2 3 4; do ({worker}) 9>&- & done; wait; cat out.*"
    );
    let done = sh(&folder, &script);
    let found: BTreeSet<&str> = done.out.lines().collect();
    assert!(done.err.is_empty() && found == jobs.iter().map(String::as_str).collect(), "{}", done.err);
    assert_eq!(done.out.lines().count(), 120);
}

#[test]
fn commands_of_several_receivers_run_at_the_same_time() {
    // Each command waits for the other one, so a single receiver would never end.
    let folder = Folder::new();
    let script = "mkfifo f; exec 9<>f
        meet() { pipework recv --from f --count 1 --exec sh -c 'id=$(cat); : > here.$id
            until [ -e here.1 ] && [ -e here.2 ]; do sleep 0.01; done; echo $id'; }
        meet 9>&- & meet 9>&- & pipework send --to f 1 2 9>&-; wait";
    let done = sh(&folder, script);
    assert_eq!(done.out.lines().collect::<BTreeSet<_>>(), BTreeSet::from(["1", "2"]), "{done:?}");
    fails(
        124,
        &["f: another receiver"],
        "mkfifo f; exec 9<>f; pipework recv --from f 9>&- & until pipework send --to f --timeout 1 x; do :; done
         sleep 0.1; pipework recv --from f --timeout 0.1; s=$?; kill $!; exit $s",
    );
}

#[test]
fn receiver_that_fails_keeps_the_remaining_messages() {
    for failing in ["> /dev/full", "--exec false"] {
        let script = format!(
            "mkfifo f; pipework send --to f a b c & pipework recv --from f -n 1 {failing} 2> /dev/null
             echo $?; wait; pipework recv --from f --count 2 --lines"
        );
        assert_eq!(clean(&script), "1\nb\nc\n");
    }
}

#[test]
fn fifo_keeper_ends_when_its_fifo_is_removed() {
    let folder = Folder::new();
    let script = "mkfifo f; pipework send --to f a b & pipework recv --from f --count 1; wait; rm f";
    assert_eq!(sh(&folder, script).out, "a");
    wait_until_keepers_end(&folder);
}

#[test]
fn receiver_reports_an_interleaved_message_that_it_loses() {
    let folder = Folder::new();
    // The first of two parts, before the message that is asked for.
    let mut begun = Vec::new();
    for word in [7u32, 9, 1, 4] {
        begun.extend(word.to_ne_bytes());
    }
    begun.extend(b"head");
    fs::write(folder.join("begun"), begun).unwrap();
    let script = "(cat begun; pipework send whole) | pipework recv --lines --count 1";
    let done = sh(&folder, script);
    assert_eq!((done.status, done.out.as_str()), (Some(3), "whole\n"));
    assert!(done.err.contains("writer 7:9"), "{}", done.err);
    let script = "(printf begun; pipework send -m whole) | pipework recv -m --lines --count 1";
    assert_eq!(clean(script), "whole\nbegun");
}

/// Runs the loop of `pipework recv --help`, and one with `--exec`, and signals its receivers at any moment.
#[test]
fn loop_of_receivers_loses_no_job_when_signals_end_them() {
    const JOBS: usize = 60;
    let workers = [
        "while job=$(exec pipework recv --from f --count 1) && [ \"$job\" ]; do echo $job >> done; done",
        "while pipework recv --from f --count 1 --exec sh -c 'echo \"$(cat)\" >> done'; do :; done",
    ];
    // A loop ends with the first receiver that a signal ends; then the next loop begins. A signal
    // does not end a receiver that has printed its job, or the loop would lose that job. The sender
    // fails if a receiver comes and leaves before it writes; it writes all jobs at once. Each loop has
    // some time before the first signal, or it would hardly get a job.
    let script = |worker: &str| {
        format!(
        "mkfifo f; : > done; until seq {JOBS} | pipework send --lines --to f 2>> err; do :; done &
        until [ $(wc -l < done) = {JOBS} ]; do ({worker}) 2>> err & w=$!
            while kill -0 $w 2> gone; do for signal in TERM HUP; do
                n=$((n + 1)); sleep 0.$((n % 10 == 0))$((n % 7))5
                for id in $(cat /proc/$w/task/$w/children 2> gone); do kill -$signal $id 2> gone; done; done; done
            wait $w; done; sort -n done"
    )
    };
    for worker in workers {
        let folder = Folder::new();
        let done = sh(&folder, &script(worker));
        assert_eq!(done.out, clean(&format!("seq {JOBS}")), "{worker}: {done:?}");
        wait_until_keepers_end_after_removal(&folder);
    }
}

fn wait_until_keepers_end_after_removal(folder: &Path) {
    fs::remove_file(folder.join("f")).unwrap();
    wait_until_keepers_end(folder);
}

/// When the signal comes, one receiver waits for standard output and the other for its turn.
#[test]
fn receiver_ended_by_a_signal_leaves_undelivered_messages_in_the_fifo() {
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        // Only the receivers have the FIFO open when the signal ends them. `out` is full.
        let script = format!(
            "mkfifo f out; exec 8<> out; head -c 65536 /dev/zero >&8
            seq 500 | pipework send --lines --to f & sender=$!
            env --default-signal=INT,QUIT pipework recv --from f --lines >&8 8>&- & one=$!
            wait $sender
            until grep -q \"FLOCK.* $one \" /proc/locks; do sleep 0.01; done
            env --default-signal=INT,QUIT pipework recv --from f --lines > other 8>&- & two=$!
            until ls -l /proc/$two/fd | grep -q '/f$'; do sleep 0.01; done
            kill -{signal} $two; wait $two; echo $?; kill -{signal} $one; wait $one; echo $?
            exec 8>&-; timeout 60 pipework recv --from f --lines; cat other"
        );
        let done = sh(&Folder::new(), &script);
        let expected = format!("{status}\n{status}\n{}", clean("seq 500"));
        assert!(done.out == expected, "{signal}: {} bytes, {}", done.out.len(), done.err);
    }
}

/// The receiver reads the begun message to its end: the rest would be useless to another receiver.
#[test]
fn receiver_finishes_a_begun_message_after_a_signal() {
    let folder = Folder::new();
    let script = "mkfifo f; exec 9<> f; pipework recv --from f > out 9>&- & R=$!
        head -c 50000000 /dev/zero | pipework send --to f & S=$!
        until [ $(grep rchar /proc/$R/io | cut -c 8-) -gt 1000000 ]; do :; done
        kill $R; wait $R; echo $?; wait $S; echo $?; wc -c < out";
    let done = sh(&folder, script);
    assert_eq!(done.out, "143\n0\n50000000\n", "{done:?}");
    // The rest never comes: the receiver reports that in time.
    let mut begun = Vec::new();
    for word in [7u32, 9, 1, 4] {
        begun.extend(word.to_ne_bytes());
    }
    begun.extend(b"head");
    fs::write(folder.join("begun"), begun).unwrap();
    let script = "rm f; mkfifo f; exec 9<> f; pipework recv --from f > out 2> err 9>&- & R=$!; cat begun >&9
        until [ $(grep rchar /proc/$R/io | cut -c 8-) -gt 20 ] && sleep 0.3; do :; done; kill $R; wait $R; echo $?; cat err";
    let done = sh(&folder, script);
    assert!(done.out.starts_with("143\n") && done.out.contains("writer 7:9"), "{done:?}");
}

#[test]
fn receiver_keeps_messages_of_a_fifo_that_was_renamed() {
    // Another FIFO gets the name, or none does.
    for then in ["mkfifo f", ":"] {
        let script = format!(
            "mkfifo f out; pipework send --to f a b c & sender=$!
            pipework recv --from f --count 1 --exec sh -c 'cat; echo; read x < out' & R=$!
            wait $sender; until [ -e /proc/$R/task/$R/children ] && [ \"$(cat /proc/$R/task/$R/children)\" ]; do sleep 0.01; done
            mv f g; {then}; echo > out; wait $R; echo $?; timeout 20 pipework recv --from g --lines"
        );
        assert_eq!(clean(&script), "a\n0\nb\nc\n", "{then}");
    }
}

#[test]
fn create_refuses_a_fifo_of_another_user() {
    let folder = Folder::new();
    let path = folder.join("f");
    pipework::atomic::create_fifo(&path).unwrap();
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        // Only the superuser may give files away, so other users skip this test.
        return;
    }
    let script = "exec 9<> f; pipework send --to f --timeout 0.01 x; pipework recv --from f --create; echo $?
        pipework recv --from f --create --exec true; echo $?; pipework recv --from f -n 1 9>&-";
    let script = script.replace("pipework send --to f --timeout 0.01 x", "pipework send x >&9");
    let done = sh(&folder, &script);
    assert_eq!(done.out, "1\n1\nx", "{done:?}");
    assert_eq!(done.err.matches("f: it belongs to another user").count(), 2, "{done:?}");
}

#[test]
fn recv_ends_with_status_6_if_count_was_not_reached() {
    let script = "pipework send a b | pipework recv --count 3 --lines";
    let done = sh(&Folder::new(), script);
    let words = "pipework: the senders have left; of the messages that --count asks for, 1 did not come\n";
    assert_eq!((done.status, &*done.out, &*done.err), (Some(6), "a\nb\n", words));
    assert_eq!(clean("pipework send a b | pipework recv --count 2 --lines"), "a\nb\n");
}

/// The first reader leaves between the open and the first write of the sender.
#[test]
fn sender_waits_for_the_next_reader_if_the_first_takes_nothing() {
    let left = |send: &str, input: &str| {
        format!(
            "mkfifo f; (until [ -e go ]; do sleep 0.02; done; {input}) | pipework send {send} --to f 2> err & S=$!
            : < f; : > go"
        )
    };
    for (send, input) in [
        ("", "printf hello"),
        ("--lines", "echo hello"),
        ("--zstd", "printf hello"),
        ("--mixed --burst", "printf hello"),
    ] {
        let kind = if send.contains("zstd") {
            "--zstd"
        } else if send.contains("mixed") {
            "--mixed"
        } else {
            ""
        };
        let script = format!(
            "{}; pipework recv --from f {kind} --count 1 --lines; wait $S; echo $?; cat err",
            left(send, input)
        );
        assert_eq!(clean(&script), "hello\n0\n", "{send}");
    }
    // The reader may have had a part of a longer one.
    let script = format!("{}; wait $S; echo $?; cat err", left("", "head -c 10000 /dev/zero"));
    assert_eq!(clean(&script), "1\npipework: the reader has left; no message was sent\n");
    let script = format!("{}; wait $S; echo $?; cat err", left("--timeout 1", "echo hello"));
    assert_eq!(clean(&script), "124\npipework: f: no reader opened it in time\n");
}
