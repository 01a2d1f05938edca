//! `pipework tee`: the stream passes whole even if the log fails, and losses in the log are
//! reported.

use crate::run::TERM;
use crate::terminal::Terminal;
use crate::{Folder, clean, fails, sh, shell};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

/// Sends messages of many sizes between text, in pieces that end anywhere.
const STREAM: &str = "{ echo begin; head -c 300000 /dev/urandom | base64 -w 70 | pipework send -l --mixed; \
     head -c 200000 /dev/urandom > big; pipework send --mixed --files big; printf end; } | \
     dd bs=777 2> /dev/null > stream;";

#[test]
fn tee_passes_the_stream_unchanged_and_logs_its_messages() {
    let script = format!(
        "{STREAM} for form in --lines-are-the-default --nul --json; do
            [ $form = --lines-are-the-default ] && form=
            dd bs=999 if=stream 2> err | pipework tee --mixed $form log | cat > out
            cmp stream out; cat stream | pipework recv --mixed --json > all; echo \"$(wc -l < log) of $(wc -l < all)\"
        done; cat stream | pipework tee --mixed --text --json log > out; cmp all log
        cat stream | pipework tee -m log | pipework recv -m --json | cmp - all"
    );
    let folder = Folder::new();
    let done = sh(&folder, &script);
    assert_eq!((done.status, &*done.err), (Some(0), ""), "{}", done.out);
    let big = fs::read(folder.join("big")).unwrap();
    let newlines = big.iter().filter(|byte| **byte == b'\n').count();
    let log = fs::read(folder.join("log")).unwrap();
    assert!(log.ends_with(&[&*big, b"\n"].concat()));
    let messages = 300_000usize.div_ceil(3) * 4 / 70 + 1;
    let lines: Vec<&str> = done.out.lines().collect();
    // Besides the messages the stream has two lines of text.
    assert_eq!(lines[0], format!("{} of {}", messages + 1 + newlines, messages + 3));
    assert_eq!(lines[2], format!("{} of {}", messages + 1, messages + 3));
}

#[test]
fn tee_logs_plain_streams_to_files_and_descriptors() {
    let script = "echo old > log; pipework send one | pipework tee --append log | pipework recv -l
        pipework send two | pipework tee log | pipework recv -l; cat log
        pipework send three | pipework tee /dev/fd/3 3>> log | pipework recv -l
        : | pipework tee - 2> /dev/null > out; echo $?; cat log; wc -c < out";
    assert_eq!(clean(script), "one\ntwo\ntwo\nthree\n1\ntwo\nthree\n0\n");
}

#[test]
fn tee_counts_as_text_and_json() {
    let stream = "{ echo one; printf 'a\\nbb\\n' | pipework send -lm; printf two; }";
    let done = sh(&Folder::new(), &format!("{stream} | pipework tee -mc | wc -c"));
    assert_eq!(done.err, "2 messages, 3 bytes, 2 lines of text, 0 damaged\n");
    let out = clean(&format!("{stream} | pipework tee -mcj counts | wc -c > size; cat counts"));
    let rest = out.split_once(',').unwrap().1;
    assert_eq!(rest, "\"messages\":2,\"bytes\":3,\"lines\":2,\"damaged\":0}\n");
    // The first count comes before the stream ends.
    let script = "mkfifo go; { pipework send -m a; cat go; pipework send -m b; } | \
        pipework tee -mc --interval 0.1 counts > /dev/null & \
        until grep -q '^1 message,' counts 2> err; do sleep 0.01; done; : > go; wait; tail -n 1 counts";
    assert_eq!(clean(script), "2 messages, 2 bytes, 0 lines of text, 0 damaged\n");
}

#[test]
fn tee_passes_the_stream_although_the_disk_is_full() {
    let script = "seq 1000 | pipework send -l | pipework tee /dev/full | { pipework recv -l | cksum; }; \
        seq 1000 | cksum";
    let done = sh(&Folder::new(), script);
    let sums: Vec<&str> = done.out.lines().collect();
    assert_eq!(sums[0], sums[1], "{}", done.err);
    assert!(done.err.contains("/dev/full: No space"), "{}", done.err);
    assert!(done.err.ends_with("1000 entries were left out\n"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 2, "{}", done.err);
    for options in ["", "--count"] {
        let script = format!("pipework send x | pipework tee {options} /dev/full > /dev/null");
        fails(1, &["No space", "1 entry"], &script);
    }
}

#[test]
fn entry_that_finds_no_space_leaves_no_part_in_the_log() {
    let script = "seq -w 2000 | pipework send -l | (ulimit -f 8; exec pipework tee log 2> err) | wc -c > size
        tail -n 1 err; tail -c 1 log | od -An -c; wc -c < log; seq -w 3 | pipework send -l | pipework tee -a log > out
        tail -n 3 log | wc -c; printf half > log; pipework send new | pipework tee -a log > out; cat log";
    let done = sh(&Folder::new(), script);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines[1].trim(), "\\n", "{done:?}");
    let size: usize = lines[2].parse().unwrap();
    assert!(size > 3000 && size.is_multiple_of(5), "{done:?}");
    assert!(lines[0].ends_with(&format!(" {} entries were left out", 2000 - size / 5)), "{done:?}");
    assert_eq!(lines[3..], ["6", "half", "new"]);
}

/// Tries each file size limit: complete entries stay complete, and tee reports the missing ones.
#[test]
fn full_disk_cuts_no_complete_entry_of_a_log_at_any_size() {
    let script = "for size in $(seq 0 60); do
            seq -w 8 12 | pipework send --lines | prlimit --fsize=$size pipework tee log.$size 2>&1 > /dev/null | cat > err.$size
        done";
    let folder = Folder::new();
    sh(&folder, script);
    for size in 0..=60 {
        let read = |name: &str| fs::read_to_string(folder.join(format!("{name}.{size}"))).unwrap();
        let (log, err) = (read("log"), read("err"));
        let entries = 5.min(size / 3);
        assert_eq!(log, "08\n09\n10\n11\n12\n"[..3 * entries], "{size}: {err}");
        assert_eq!(err.contains("left out"), entries < 5, "{size}: {err}");
    }
}

/// The stream does not wait for a reader of the log; the log's entries wait for it.
#[test]
fn tee_passes_the_stream_although_its_fifo_has_no_reader() {
    let script = "mkfifo log out; (pipework send hello | pipework tee log 2> err > out; echo $? > status) &
        pipework recv --lines < out; until grep -q 'no reader yet' err; do sleep 0.01; done; cat log; wait; cat status";
    assert_eq!(clean(script), "hello\nhello\n0\n");
    // No reader comes: one signal ends tee.
    let script = "mkfifo log; pipework send x | cat > stream; pipework tee log < stream > out 2> err & TEE=$!
        until grep -q 'no reader yet' err 2> /dev/null; do sleep 0.01; done
        kill -TERM $TEE; wait $TEE; echo $?; tail -n 1 err";
    // The shell names the signal on standard error.
    assert_eq!(sh(&Folder::new(), script).out, "143\npipework: log: 1 entry was left out\n");
}

#[test]
fn tee_reports_entries_that_a_second_signal_drops() {
    let folder = Folder::new();
    let script = "mkfifo log; exec 9<> log; : > begun; exec pipework tee log < stream 2> err > out";
    sh(&folder, "seq 100000 | pipework send --lines | cat > stream");
    let mut child = shell(&folder, script).spawn().unwrap();
    sh(&folder, "until [ -e out ] && cmp -s stream out; do sleep 0.01; done");
    let id = child.id();
    let status = loop {
        sh(&folder, &format!("kill -TERM {id}; sleep 0.2"));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    let said = fs::read_to_string(folder.join("err")).unwrap();
    assert_eq!(status.signal(), Some(TERM));
    assert!(said.contains("entries left out, at most: "), "{said}");
}

/// The log has no reader until the stream has passed. The stream does not wait for it, and tee
/// counts the entries for which the log had no space.
#[test]
fn tee_passes_the_stream_although_its_log_is_full() {
    for (backlog, is_whole) in [("10M", true), ("2K", false)] {
        let script = format!(
            "mkfifo log out; exec 9<> log 8< log 9<&-
            (seq 100000 | pipework send -l | pipework tee --backlog {backlog} log 2> err > out; echo $? > status) &
            pipework recv --lines --from out | tail -n 1
            cat <&8 > logged; wait; cat status; echo \"$(wc -l < logged) $(cat err)\""
        );
        let done = sh(&Folder::new(), &script);
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!((done.err.as_str(), lines[0]), ("", "100000"), "{backlog}");
        if is_whole {
            assert_eq!(lines[1..], ["0", "100000 "]);
        } else {
            let (logged, said) = lines[2].split_once(' ').unwrap();
            assert!(said.contains("--backlog is full: entries are left out"), "{said}");
            let lost = lines[3].split(' ').nth(2).unwrap();
            assert_eq!(lines[1], "1");
            let numbers = [logged, lost].map(|number| number.parse::<u64>().unwrap());
            // The count depends on when the log's thread runs.
            assert!(numbers[0] > 0 && numbers[1] > 0, "{}", lines[2]);
            assert_eq!(numbers[0] + numbers[1], 100_000, "{}", lines[2]);
        }
    }
}

#[test]
fn tee_passes_bytes_that_are_no_message() {
    let script =
        "seq 1000 | pipework tee log | tail -n 1; seq 1001 | pipework tee -c > out; echo $?; tail -n 1 out";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.out, "1000\n1\n1001\n", "{}", done.err);
    assert!(done.err.contains("--mixed is needed; the stream goes on"), "{}", done.err);
    // tee passes the bytes of a torn message on unchanged, and reports it.
    let script = "head -c 9000 /dev/zero | pipework send -m --files - | head -c 5000 > stream
        cat stream | pipework tee -m log | cmp - stream; cat stream | pipework tee -mj log > out; echo $?; \
        cut -c 1-14 log";
    let done = sh(&Folder::new(), script);
    assert!(done.out.starts_with("3\n{\"type\":\"torn\""), "{done:?}");
    assert_eq!(done.err.matches("4963 bytes").count(), 1, "{done:?}");
}

#[test]
fn tee_ends_quietly_when_its_reader_leaves() {
    let script = "mkfifo in; { { pipework send x; cat in; } | { pipework tee log; echo $? > status; }; } | \
        { pipework recv --count 1; exec <&-; yes | pipework send --lines > in; } > out 2> err
        until [ -s status ]; do sleep 0.01; done; cat out status log";
    assert_eq!(clean(script), "x141\nx\n");
}

#[test]
fn tee_passes_the_bytes_in_the_pipe_after_a_signal() {
    for (signal, status) in [("TERM", 143), ("HUP", 129)] {
        // A writer stays, so only the signal ends tee. The reader waits until then.
        let script = format!(
            "mkfifo in out; exec 8<> in 9<> out
            (exec pipework tee -c log < in > out) & T=$!
            until [ -e log ]; do sleep 0.01; done; seq 10 | pipework send -l --to in
            pipework recv --count 10 --lines --from out > first
            kill -{signal} $T; wait $T; echo $?; wc -l < first; cat log"
        );
        let expected = format!("{status}\n10\n10 messages, 11 bytes, 0 lines of text, 0 damaged\n");
        assert_eq!(sh(&Folder::new(), &script).out, expected);
    }
    // Its output has no reader: a second signal ends tee.
    let folder = Folder::new();
    let script = "mkfifo out; exec 9<> out; exec pipework tee -c log < /dev/zero > out";
    let mut child = shell(&folder, script).spawn().unwrap();
    while fs::metadata(folder.join("log")).is_err() {
        std::thread::yield_now();
    }
    let id = child.id();
    let status = loop {
        sh(&folder, &format!("kill -TERM {id}; sleep 0.2"));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.signal(), Some(TERM));
}

#[test]
fn tee_ends_with_ctrl_c_on_a_terminal() {
    let folder = Folder::new();
    let script =
        "{ pipework send -m hello; sleep 100; } | { pipework tee -mc; echo \"status $?\"; } | cat -v";
    let mut terminal = Terminal::run(&folder, (10, 80), script);
    terminal.wait_for("hello");
    terminal.press("\x03");
    terminal.wait_for("1 message, 5 bytes");
    terminal.end();
}

#[test]
fn tee_counts_and_logs_lines_over_the_limit() {
    let stream = "{ printf 0123456789abcdefghijABCDEFG; echo; pipework send -m x; echo end; }";
    let tee = format!("{stream} | pipework tee --mixed --max-message 10");
    let done = sh(&Folder::new(), &format!("{tee} --count | wc -c"));
    assert!(done.err.contains(", 2 lines of text, 0 damaged"), "{}", done.err);
    let done = sh(&Folder::new(), &format!("{tee} --text log > out; echo $?; cat log"));
    assert_eq!((&*done.out, &*done.err), ("0\n0123456789abcdefghijABCDEFG\nx\nend\n", ""));
    let done = sh(&Folder::new(), &format!("{tee} --text --json log > out; echo $?; grep -c continued log"));
    assert_eq!(done.out, "3\n2\n", "{}", done.err);
    let recv = "pipework recv --mixed --max-message 10";
    assert_eq!(clean(&format!("{stream} | {recv} --nul | tr '\\0' ,")), "0123456789abcdefghijABCDEFG,x,end,");
    let done = sh(&Folder::new(), &format!("{stream} | ({recv} --json; echo $?)"));
    assert!(done.out.matches("\"continued\":true").count() == 2 && done.out.ends_with("}\n3\n"), "{done:?}");
}

#[test]
fn tee_says_that_it_reads_from_a_terminal() {
    let mut terminal = Terminal::run(&Folder::new(), (10, 80), "pipework tee -mc");
    terminal.wait_for("Ctrl-D ends it");
    terminal.press("text\r\x04");
    terminal.wait_for("1 line of text");
    terminal.end();
}

#[test]
fn tee_passes_bytes_without_waiting_for_more() {
    let folder = Folder::new();
    let mut child = shell(&folder, "exec pipework tee -mc log").stdin(Stdio::piped()).spawn().unwrap();
    let (mut writer, mut reader) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for byte in [b'a', 0x0e, b'\r', b'\n', 0, 0xff] {
        writer.write_all(&[byte]).unwrap();
        let mut read = [1];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(read, [byte]);
    }
    drop(writer);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// By default the kernel silently kills a process that exceeds the limit on a file's size.
#[test]
fn tee_treats_a_file_size_limit_as_a_full_disk() {
    let script = "seq 20000 | pipework send -l | (ulimit -f 10; exec pipework tee log) \
                  | pipework recv -l | cksum; seq 20000 | cksum";
    let done = sh(&Folder::new(), script);
    let sums: Vec<&str> = done.out.lines().collect();
    assert_eq!((sums.len(), sums[0]), (2, sums[1]), "{}", done.err);
    assert!(done.err.contains("log: File too large") && done.err.contains("entries"), "{}", done.err);
    // Started commands keep the kernel's default.
    let script = "(ulimit -f 1; pipework run sh -c 'head -c 9999 /dev/zero > out'; echo $?)";
    assert_eq!(sh(&Folder::new(), script).out, "153\n");
}

#[test]
fn tee_refuses_bad_arguments() {
    fails(2, &["missing: FILE"], "pipework tee < /dev/null");
    fails(2, &["--mixed"], "pipework tee --text log < /dev/null");
    fails(2, &["--count"], "pipework tee --interval 1 log < /dev/null");
    fails(2, &["above 0"], "pipework tee -c --interval 0 < /dev/null");
    fails(2, &["nul"], "pipework tee -c --nul < /dev/null");
    fails(2, &["bytes"], "pipework tee --backlog 0 log < /dev/null");
    fails(1, &["nowhere/log", "No such file"], "pipework tee nowhere/log < /dev/null");
    fails(1, &["Is a directory"], "pipework tee . < /dev/null");
    fails(1, &["descriptor 7 is closed"], "pipework tee /dev/fd/7 < /dev/null");
    fails(1, &["standard input is closed"], "pipework tee log <&-");
    fails(1, &["standard input", "Is a directory"], "pipework tee log < .");
    assert_eq!(
        clean(
            "echo text > in; pipework tee -m in < in 2> err; echo $?; cat in; grep -c 'comes from there' err"
        ),
        "1\ntext\n1\n"
    );
    fails(1, &["stream itself"], "pipework tee out < /dev/null > out");
    fails(1, &["stream itself"], "pipework tee -c /dev/stdout < /dev/null");
}
