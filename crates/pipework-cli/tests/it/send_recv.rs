//! `pipework send` and `pipework recv`, alone and against each other.

use crate::{Folder, PIPEWORK, clean, fails, fails_in_pipe, sh, shell};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn send_takes_each_argument_as_a_message() {
    assert_eq!(clean("pipework send one 'two 2' '' | pipework recv --lines"), "one\ntwo 2\n\n");
    assert_eq!(clean("pipework send a b | pipework recv"), "ab");
    assert_eq!(clean("pipework send a b | pipework recv -0 | tr '\\0' .").as_str(), "a.b.");
}

#[test]
fn send_takes_standard_input_as_one_message_of_any_size() {
    let folder = Folder::new();
    let content: Vec<u8> = (0..3_000_017u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    fs::write(folder.join("in"), &content).unwrap();
    let done = sh(&folder, "pipework send < in | pipework recv --count 1 > out");
    assert_eq!(done.status, Some(0), "{done:?}");
    assert!(fs::read(folder.join("out")).unwrap() == content);
    assert_eq!(clean("pipework send < /dev/null | pipework recv --lines"), "\n");
}

#[test]
fn send_lines_and_nul_take_each_record_as_a_message() {
    let records = |options: &str, input: &str| {
        clean(&format!("printf '{input}' | pipework send {options} | pipework recv --json"))
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"].clone())
            .map(|data| data.as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(records("--lines", "a\\n\\nb b\\n"), ["a", "", "b b"]);
    assert_eq!(records("--lines", "a\\nunfinished"), ["a", "unfinished"]);
    assert_eq!(records("--nul", "a\\nb\\0\\0c\\0"), ["a\nb", "", "c"]);
    assert_eq!(records("--lines", ""), [""; 0]);
}

#[test]
fn send_lines_keeps_the_order_of_many_records() {
    let folder = Folder::new();
    let lines: String = (0..200_000).map(|i| format!("{i} {}\n", "x".repeat((i * 7) % 90))).collect();
    let long = "y".repeat(300_000);
    fs::write(folder.join("in"), format!("{lines}{long}\n{lines}")).unwrap();
    let done = sh(&folder, "pipework send --lines < in | pipework recv --lines | cmp - in");
    assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{}", done.out);
}

#[test]
fn send_lines_delivers_records_of_every_length() {
    let folder = Folder::new();
    let line = "0123456789".repeat(1300);
    let lines: String = (0..3000usize).map(|i| format!("{}\n", &line[..i * i * 7 % 13_000])).collect();
    fs::write(folder.join("in"), lines).unwrap();
    for mode in ["", "--mixed", "--mixed --zstd"] {
        let script =
            format!("pipework send --lines {mode} < in | pipework recv --lines {mode} 2>&1 | cmp - in");
        let done = sh(&folder, &script);
        assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{mode}: {}", done.out);
    }
}

#[test]
fn send_lines_sends_a_record_before_it_reads_the_next() {
    let folder = Folder::new();
    let mut child = shell(&folder, "pipework send --lines | pipework recv --lines")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for number in 0..5 {
        // The next line is written only when this one has come out at the other end.
        writeln!(input, "line {number}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, format!("line {number}\n"));
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn send_files_takes_each_file_as_a_message() {
    let script = "printf one > a; printf two > b; \
                  printf three | pipework send --files a - b | pipework recv --lines";
    assert_eq!(clean(script), "one\nthree\ntwo\n");
    fails_in_pipe(1, &["nothing-here: No such file"], "pipework send --files nothing-here");
}

#[test]
fn recv_json_describes_a_message() {
    let script = "head -c 10000 /dev/zero | tr '\\0' x | pipework send | pipework recv --json; \
                  printf '\\377\\0' | pipework send | pipework recv --json";
    let out = clean(script);
    let objects: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["type"], "message");
    assert_eq!(objects[0]["parts"], 3);
    assert_eq!(objects[0]["data"].as_str().unwrap(), "x".repeat(10_000));
    let pid = objects[0]["pid"].as_i64().unwrap();
    assert!(objects[0]["writer"].as_str().unwrap().starts_with(&format!("{pid}:")));
    assert_eq!(objects[1]["data_base64"], "/wA=");
}

#[test]
fn mixed_mode_carries_text_messages_and_bursts() {
    let sender = "(echo before; pipework send --mixed message; \
                  pipework send --mixed --burst burst; printf after)";
    assert_eq!(clean(&format!("{sender} | pipework recv --mixed --lines")), "before\nmessage\nburst\nafter");
    let out = clean(&format!("{sender} | pipework recv --mixed --json"));
    let kinds: Vec<String> = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].to_string())
        .collect();
    assert_eq!(kinds, ["\"line\"", "\"message\"", "\"burst\"", "\"line\""]);
}

#[test]
fn zstd_works_with_and_without_a_dictionary() {
    let words = "the quick brown fox jumps over the lazy dog";
    for options in ["--zstd", "--zstd=-5", "--zstd=19", "-z"] {
        let script = format!("pipework send {options} '{words}' | pipework recv --zstd");
        assert_eq!(clean(&script), words);
    }
    let script = format!(
        "echo 'the lazy dog jumps over the quick brown fox' > dictionary; \
         pipework send --dictionary dictionary '{words}' | pipework recv --dictionary dictionary"
    );
    assert_eq!(clean(&script), words);
    fails_in_pipe(2, &["--zstd"], "pipework send --zstd=23 x");
}

#[test]
fn recv_exec_runs_a_command_for_each_message() {
    let script = "pipework send one two | pipework recv --exec \
                  sh -c 'echo \"$PIPEWORK_TYPE $PIPEWORK_PARTS ${PIPEWORK_WRITER%:*} $(cat)\"'";
    let out = clean(script);
    let fields: Vec<Vec<&str>> = out.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(fields.len(), 2, "{out}");
    assert_eq!([&fields[0][..2], &fields[0][3..]].concat(), ["message", "1", "one"]);
    assert_eq!(fields[0][2], fields[1][2]);
    // The command need not read its input. Failures are counted at the end.
    assert_eq!(clean("seq 9 | pipework send --lines | pipework recv --exec true"), "");
    fails(
        1,
        &["false: exit status: 1", "2 of the commands failed"],
        "pipework send a b | pipework recv --exec false",
    );
}

#[test]
fn recv_count_leaves_later_messages_in_the_pipe() {
    for mixed in ["", "--mixed"] {
        let script = format!(
            "seq 1000 | pipework send --lines {mixed} | (for n in 1 2 3 500; do \
             pipework recv {mixed} --lines --count $n; done; pipework recv {mixed} --lines)"
        );
        let expected: String = (1..=1000).map(|i| format!("{i}\n")).collect();
        assert_eq!(clean(&script), expected, "{mixed}");
    }
    // Bursts are the shortest items.
    let script = "(for n in 1 2 3 4; do pipework send --mixed --burst $n; done) | \
                  (pipework recv -m -n 1; echo; pipework recv -m -n 2; echo; pipework recv -m)";
    assert_eq!(clean(script), "1\n23\n4");
}

#[test]
fn many_senders_share_a_fifo() {
    const SENDERS: usize = 40;
    // The shell holds the FIFO open, so that the receiver sees no end before all have sent.
    let script = format!(
        "mkfifo inbox; exec 9<>inbox; pipework recv --from inbox --json 9>&- & \
         for n in $(seq {SENDERS}); do \
         pipework send --to inbox $n-$(printf '%20000s' | tr ' ' y) $n-short 9>&- & \
         senders=\"$senders $!\"; done; \
         wait $senders; exec 9>&-; wait"
    );
    let mut seen = HashSet::new();
    for line in clean(&script).lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let data = object["data"].as_str().unwrap();
        let (number, rest) = data.split_once('-').unwrap();
        assert!(rest == "short" || rest == "y".repeat(20_000), "{}", &data[..60]);
        assert!(seen.insert((number.to_string(), rest.len())), "{number} twice");
    }
    assert_eq!(seen.len(), 2 * SENDERS);
}

#[test]
fn recv_forever_continues_after_its_writers_leave() {
    let folder = Folder::new();
    let mut receiver = Command::new(PIPEWORK)
        .args(["recv", "--from", "inbox", "--create", "--forever", "--lines"])
        .current_dir(&*folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(receiver.stdout.take().unwrap());
    for message in ["one", "two", "three"] {
        let script = format!("until [ -p inbox ]; do sleep 0.01; done; pipework send --to inbox {message}");
        assert_eq!(sh(&folder, &script).status, Some(0));
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), message);
    }
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}

/// One part of an unfinished message, on the wire.
fn unfinished_part() -> Vec<u8> {
    let mut part = Vec::new();
    part.extend(7i32.to_ne_bytes());
    part.extend(9i32.to_ne_bytes());
    part.extend(1u32.to_ne_bytes());
    part.extend(4u32.to_ne_bytes());
    part.extend(b"head");
    part
}

#[test]
fn recv_reports_a_torn_message_and_continues() {
    let folder = Folder::new();
    fs::write(folder.join("torn"), unfinished_part()).unwrap();
    let done = sh(&folder, "(cat torn; pipework send whole) | pipework recv --lines");
    assert_eq!((done.status, done.out.as_str()), (Some(3), "whole\n"));
    assert!(done.err.contains("writer 7:9"), "{}", done.err);
    let script = "(head -c 5000 /dev/zero | pipework send; pipework send whole) | \
                  pipework recv --lines --max-message 4K";
    let done = sh(&folder, script);
    assert_eq!((done.status, done.out.as_str()), (Some(3), "whole\n"));
    assert!(done.err.contains("larger than the limit"), "{}", done.err);
}

#[test]
fn send_reports_that_its_reader_has_left() {
    let folder = Folder::new();
    let script = "(yes | pipework send --lines; echo $? > status) | head -c 100 > /dev/null";
    let done = sh(&folder, script);
    assert!(done.err.contains("the reader has left"), "{}", done.err);
    assert_eq!(fs::read_to_string(folder.join("status")).unwrap(), "1\n");
}

#[test]
fn recv_ends_quietly_when_the_reader_of_its_output_leaves() {
    // More than one message, because the shell may close its own copy of the reading end a little
    // later.
    let script = "mkfifo inbox; exec 9<>inbox; \
                  (pipework recv --from inbox --lines; echo $? > status) | { exec <&-; \
                  until [ -e status ]; do pipework send --to inbox x; sleep 0.01; done; }; cat status";
    assert_eq!(clean(script), "141\n");
    let closed = "until [ -e closed ]; do sleep 0.01; done";
    for command in ["man", "completions bash"] {
        let script = format!(
            "({closed}; pipework {command}; echo $? > status) | {{ exec <&-; : > closed; }}; cat status"
        );
        assert_eq!(clean(&script), "141\n", "{command}");
    }
}

#[test]
fn errors_of_send_and_recv_name_a_remedy() {
    fails(1, &["it is a file", "| pipework recv", "--to"], "pipework send x > file");
    fails(1, &["it is a device", "pipework send", "--from"], "pipework recv < /dev/null");
    fails(1, &["mkfifo inbox", "--create"], "pipework send --to inbox x");
    fails(1, &["inbox", "--create"], "pipework recv --from inbox");
    fails(1, &["file: it is not a FIFO but a file", "mkfifo"], "echo > file; pipework send --to file x");
    fails(
        1,
        &["file: it is not a FIFO but a file", "mkfifo"],
        "echo > file; pipework recv --from file --create",
    );
    fails(1, &[".: it is not a FIFO but a folder"], "pipework recv --from .");
    fails(1, &["no/f: No such file"], "pipework recv --from no/f --create");
    fails(1, &["--mixed", "both sides"], "pipework send x | pipework recv --mixed");
    fails(2, &["--timeout", "negative"], "pipework recv --timeout -1");
    fails(2, &["--max-message", "from 1"], "pipework recv --max-message 0");
    fails_in_pipe(1, &["no-dictionary"], "pipework send --dictionary no-dictionary x");
    fails_in_pipe(1, &["--burst"], "head -c 5000 /dev/zero | pipework send --mixed --burst");
    fails_in_pipe(2, &["--mixed"], "pipework send --burst x");
    fails_in_pipe(2, &["--lines"], "pipework send --lines --nul");
    fails(2, &["seconds"], "pipework recv --timeout soon");
    fails(1, &["--mixed"], "echo some text that is no message | pipework recv");
    fails(3, &["no message", "--mixed (3 bytes)"], "echo hi | pipework recv");
    fails(3, &["sent without --zstd", "and 1 byte)"], "pipework send x | pipework recv --zstd");
    fails(3, &["is --zstd set on both sides?"], "pipework send --zstd x | pipework recv");
}

#[test]
fn timeout_ends_send_and_recv() {
    let folder = Folder::new();
    let timed = |script: &str, words: &str| {
        let done = sh(&folder, script);
        assert_eq!(done.status, Some(124), "{script}: {done:?}");
        assert!(done.err.contains(words), "{script}: {}", done.err);
    };
    timed("mkfifo f; pipework send --to f --timeout 0.05 x", "no reader opened it");
    timed("pipework recv --from f --timeout 0.05", "no complete message arrived");
    // Bytes of an unfinished message do not end the wait.
    fs::write(folder.join("begun"), unfinished_part()).unwrap();
    let begun = "exec 9<>f; cat begun >&9;";
    timed(&format!("{begun} pipework recv --from f --timeout 0.05"), "no complete message arrived");
    timed("exec 9<>f; head -c 2000000 /dev/zero | pipework send --to f --timeout 0.05", "did not make space");
    // A timeout may be very long.
    assert_eq!(clean("pipework send x | pipework recv --timeout 1e18"), "x");
    // Messages that came before are still printed.
    let script = "exec 9<>f; pipework send --to f x; pipework recv --from f --lines --timeout 0.05";
    let done = sh(&folder, script);
    assert_eq!((done.status, done.out.as_str()), (Some(124), "x\n"), "{}", done.err);
}

/// `PIPEWORK_RELAYS=100` makes 100 rounds of 200,000 small records each.
#[test]
fn records_arrive_whole_through_any_relay() {
    let folder = Folder::new();
    let rounds: usize = std::env::var("PIPEWORK_RELAYS").map_or(1, |text| text.parse().unwrap());
    let many = if rounds > 1 { 200_000 } else { 20_000 };
    let small: String = (0..many).map(|i| format!("message {i}\n")).collect();
    let large: String =
        (0..many / 50).map(|i| format!("{}\n", "0123456789".repeat(2 + i * 7919 % 898))).collect();
    for (input, relay) in [small, large].iter().flat_map(|input| {
        [
            "cat",
            "tee /dev/null",
            "dd bs=1000 status=none",
            "dd bs=32k status=none",
            "dd bs=1400 status=none | cat",
        ]
        .map(|relay| (input, relay))
    }) {
        fs::write(folder.join("in"), input).unwrap();
        for round in 0..rounds {
            let script =
                format!("pipework send -m --lines < in | {relay} | pipework recv -m --lines | cmp - in");
            let done = sh(&folder, &script);
            assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{relay}, {round}: {}", done.out);
        }
    }
}

/// Two readers of one FIFO lose messages to each other, unless they take turns.
#[test]
fn recv_warns_a_second_reader_of_a_fifo() {
    let folder = Folder::new();
    let script = "mkfifo f go; exec 3<>f; pipework send --to f x
        pipework recv --from f --count 1 --exec sh -c ': > started; cat go' 3>&- &
        until [ -e started ]; do sleep 0.01; done
        pipework recv --from f --timeout 0.1 2>&1; : > go; wait";
    let done = sh(&folder, script);
    assert!(done.out.contains("another process reads from the same FIFO"), "{done:?}");
}

#[test]
fn messages_up_to_the_limit_arrive_from_several_senders_at_once() {
    // Each message is more than half of the limit, so together they exceed it.
    let script = "mkfifo f; exec 9<>f; for n in 1 2 3 4; do
            (head -c 6000000 /dev/zero | tr '\\0' $n | pipework send --to f) 9>&- & done
        pipework recv --from f --count 4 --lines --max-message 6M 9>&- |
            fold -w 1000000 | sort | uniq -c | sed 's/^ *//' | cut -c 1-3";
    assert_eq!(clean(script), "6 1\n6 2\n6 3\n6 4\n");
}

#[test]
fn timeout_ends_recv_although_bytes_keep_arriving() {
    let script = "cat /dev/zero | timeout -s KILL 60 pipework recv --mixed --timeout 0.1";
    fails(124, &["no complete message arrived"], script);
}

#[test]
fn advice_names_options_of_the_command() {
    let wants = "standard output cannot take messages: it is a file, where no reader decodes messages; \
                 pipe it into a receiver, as in `pipework send ... | pipework recv`";
    fails(1, &[wants], "pipework send x > file");
    fails(1, &["is --mixed set on both sides?"], "pipework send --mixed x | pipework recv");
}

#[test]
fn send_refuses_what_a_receiver_would_drop() {
    let limit = "a message is longer than 4 bytes";
    for (input, send, sent) in [
        ("printf 12345", "", "no message was sent"),
        ("yes", "", "no message was sent"),
        ("printf '1234\\n1\\n12345\\n1\\n'", "--lines", "2 messages were sent before"),
        ("printf '1234\\n'; yes | tr -d '\\n'", "--lines", "1 message was sent before"),
        ("true", "--files long", "no message was sent"),
    ] {
        let script = format!(
            "head -c 4096 /dev/zero > long; ({input}) | (pipework send --max-message 4 {send}; echo $? > status) | \
                              pipework recv --lines > out; cat status"
        );
        let done = sh(&Folder::new(), &script);
        assert_eq!(done.out, "1\n", "{input}: {done:?}");
        assert!(done.err.contains(limit) && done.err.contains(sent), "{input}: {}", done.err);
    }
    // By default the limit of send is that of receivers.
    let script = "head -c 268435457 /dev/zero | pipework send | pipework recv | wc -c
        head -c 268435456 /dev/zero | pipework send | pipework recv | wc -c";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.out, "0\n268435456\n", "{done:?}");
    assert!(done.err.contains("268435456 bytes") && done.err.contains("no message was sent"), "{done:?}");
}
