//! Receivers that come and go at one FIFO: what one does not take, the next one gets.

use crate::{Folder, clean, fails, sh};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Waits until no process has a file of this folder as its standard input, as keepers have.
fn no_keeper_stays(folder: &Path) {
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
fn a_receiver_that_leaves_first_drops_nothing() {
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
    no_keeper_stays(&folder);
}

/// It opens the FIFO twice, to take its turn and to read: senders may come and leave in between.
#[test]
fn a_receiver_ends_with_senders_that_were_quick() {
    let script = "mkfifo f; for round in $(seq 60); do
        timeout 20 pipework recv --from f --lines || echo $? & pipework send --to f $round; wait; done";
    let expected: String = (1..=60).map(|round| format!("{round}\n")).collect();
    let done = sh(&Folder::new(), script);
    assert_eq!((&*done.out, &*done.err), (&*expected, ""));
}

/// What lies in the FIFO came from senders, also if a keeper or another receiver has held it since.
#[test]
fn a_receiver_ends_with_senders_that_had_left_before_it_came() {
    let behind_a_keeper = "mkfifo f; pipework send --to f a b c & pipework recv --from f --count 1; wait
        timeout 20 pipework recv --from f --lines --count 1 || echo $?
        timeout 20 pipework recv --from f --lines || echo $?";
    assert_eq!(clean(behind_a_keeper), "ab\nc\n");
    // The first one lets others read while its command runs, which ends when the second one has.
    let beside_another = "mkfifo f; pipework send --to f a b & sender=$!
        pipework recv --from f --count 1 --exec sh -c 'cat; : > taken; until [ -e done ]; do sleep 0.01; done' &
        until [ -e taken ]; do sleep 0.01; done; wait $sender
        timeout 20 pipework recv --from f --exec cat || echo $?; : > done; wait";
    assert_eq!(clean(beside_another), "ab");
}

/// For a moment, the one that leaves holds a writing end, to see whether it leaves something
/// behind. With strace the moment is long.
#[test]
fn a_receiver_that_leaves_is_no_sender_to_the_next_one() {
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
fn a_receiver_that_may_not_write_says_what_it_cannot_keep() {
    // The superuser may write to anything, unless told otherwise.
    let script = "mkfifo f; exec 9<> f; pipework send --to f a b; chmod 444 f
        [ $(id -u) != 0 ] || bound='setpriv --bounding-set=-dac_override'
        $bound pipework recv --from f --count 1 --lines 9>&-; pipework recv --from f --count 1";
    let done = sh(&Folder::new(), script);
    assert_eq!((done.status, &*done.out), (Some(0), "a\nb"), "{done:?}");
    assert!(done.err.contains("bytes that nobody has read are lost unless"), "{done:?}");
}

#[test]
fn a_loop_in_a_shell_gets_every_job() {
    let folder = Folder::new();
    let script = "mkfifo f; (seq 40 | pipework send --lines --to f) &
        while job=$(pipework recv --from f --count 1 --timeout 20) && [ $job -lt 40 ]; do echo $job; done
        echo $job; wait; pipework send --to f --timeout 0.05 x 2>&1";
    let done = sh(&folder, script);
    let expected: String = (1..=40).map(|job| format!("{job}\n")).collect();
    let rest = done.out.strip_prefix(&expected).unwrap_or_else(|| panic!("{done:?}"));
    // What keeps messages is no reader.
    assert!(rest.contains("nobody came"), "{done:?}");
    no_keeper_stays(&folder);
}

#[test]
fn many_loops_share_the_jobs_of_one_fifo() {
    // Jobs of many parts, too, which two who read at once would tear.
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
fn commands_of_many_receivers_run_side_by_side() {
    // Each command waits for the other one, so one receiver alone would never come to an end.
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
fn a_failure_keeps_what_has_not_been_taken() {
    for failing in ["> /dev/full", "--exec false"] {
        let script = format!(
            "mkfifo f; pipework send --to f a b c & pipework recv --from f -n 1 {failing} 2> /dev/null
             echo $?; wait; pipework recv --from f --count 2 --lines"
        );
        assert_eq!(clean(&script), "1\nb\nc\n");
    }
}

#[test]
fn a_keeper_ends_with_its_fifo() {
    let folder = Folder::new();
    let script = "mkfifo f; pipework send --to f a b & pipework recv --from f --count 1; wait; rm f";
    assert_eq!(sh(&folder, script).out, "a");
    no_keeper_stays(&folder);
}

#[test]
fn what_begins_between_and_is_not_taken_is_told_of() {
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

/// The loop of `pipework recv --help`, whose receivers get signals at any moment of their lives.
#[test]
fn a_loop_of_receivers_loses_no_job_to_signals() {
    const JOBS: usize = 60;
    let folder = Folder::new();
    let worker =
        "while job=$(exec pipework recv --from f --count 1) && [ \"$job\" ]; do echo $job >> done; done";
    // A loop ends with the first receiver that a signal ends; then the next one begins. A receiver
    // that has printed its job is not ended by a signal, or the loop would lose what it was given.
    let script = format!(
        "mkfifo f; : > done; seq {JOBS} | pipework send --lines --to f &
        until [ $(wc -l < done) = {JOBS} ]; do ({worker}) 2>> err & w=$!
            while kill -0 $w 2> gone; do for signal in TERM HUP; do
                for id in $(cat /proc/$w/task/$w/children 2> gone); do kill -$signal $id 2> gone; done
                n=$((n + 1)); sleep 0.$((n % 10 == 0))$((n % 7))5; done; done
            wait $w; done; sort -n done"
    );
    let done = sh(&folder, &script);
    assert_eq!(done.out, clean(&format!("seq {JOBS}")), "{done:?}");
    no_keeper_stays_after(&folder);
}

fn no_keeper_stays_after(folder: &Path) {
    fs::remove_file(folder.join("f")).unwrap();
    no_keeper_stays(folder);
}

/// A signal finds one of them waiting for standard output, and the other one for its turn.
#[test]
fn receivers_that_a_signal_ends_leave_in_the_fifo_what_they_have_not_delivered() {
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        // Nobody but the receivers has the FIFO open when they are ended. `out` is full.
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

/// Its end takes what has begun to come: another receiver could make nothing of the rest.
#[test]
fn a_signal_leaves_a_message_that_has_begun_whole() {
    let folder = Folder::new();
    let script = "mkfifo f; exec 9<> f; pipework recv --from f > out 9>&- & R=$!
        head -c 50000000 /dev/zero | pipework send --to f & S=$!
        until [ $(grep rchar /proc/$R/io | cut -c 8-) -gt 1000000 ]; do :; done
        kill $R; wait $R; echo $?; wait $S; echo $?; wc -c < out";
    let done = sh(&folder, script);
    assert_eq!(done.out, "143\n0\n50000000\n", "{done:?}");
    // It never comes whole: that is reported in time.
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
fn a_receiver_keeps_what_is_left_in_a_fifo_that_has_another_name_by_now() {
    // Another FIFO has its name, or none has.
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
fn create_refuses_the_fifo_of_another_user() {
    let folder = Folder::new();
    let path = folder.join("f");
    pipework::atomic::create_fifo(&path).unwrap();
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        // Only the superuser may give files away, and nobody else can be tempted here.
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
fn fewer_messages_than_count_are_a_status_of_their_own() {
    let script = "pipework send a b | pipework recv --count 3 --lines";
    let done = sh(&Folder::new(), script);
    let words = "pipework: the senders have left; of the messages that --count asks for, 1 did not come\n";
    assert_eq!((done.status, &*done.out, &*done.err), (Some(6), "a\nb\n", words));
    assert_eq!(clean("pipework send a b | pipework recv --count 2 --lines"), "a\nb\n");
}
