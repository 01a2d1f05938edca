//! `pipework run` with many commands: arguments, how many run at a time, how they stop, and their
//! standard error.

use crate::run::{gone, send_signal, started};
use crate::{Folder, clean, fails, outcome, sh, shell};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, Read};
use std::os::unix::process::ExitStatusExt;

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}

#[test]
fn run_starts_each_command_for_each_argument() {
    // Lines are passed unchanged: empty ones, ones that a shell would split, and an unfinished one.
    let lines = r"printf '%s\n%s\n\n%s' 'a  b' '$(echo c) \x' last";
    let out = "a  b\n$(echo c) \\x\n\nlast\n";
    assert_eq!(clean(&format!("{lines} | pipework run -P 1 -a - echo")), out);
    assert_eq!(clean(&format!("{lines} | pipework run -P 1 -a - -s 'printf \"%s\\n\" {{}}'")), out);
    assert_eq!(clean("echo x > in; pipework run --arg-file in printf '{}-%s-' '<{}>'"), "x-<x>-\n");
    let nul = r"printf 'a\nb\0c' | pipework run -P 1 -a - --arg-nul echo";
    assert_eq!(clean(nul), "a\nb\nc\n");
    assert_eq!(clean("pipework run -a /dev/null echo"), "");
    // Arguments come from standard input, so the commands get an empty one.
    assert_eq!(clean("seq 3 | pipework run -P 1 -a - --shell 'cat; echo {}'"), "1\n2\n3\n");
    // Each command for each argument.
    let out = clean("seq 2 | pipework run --tag -a - echo a ::: basename");
    assert_eq!(sorted(&out), ["[basename 1] 1", "[basename 2] 2", "[echo 1] a 1", "[echo 2] a 2"]);
    let out = clean("printf '%s\\n' /a/b c | pipework run --tag -a - echo");
    assert_eq!(sorted(&out), ["[/a/b] /a/b", "[c] c"]);

    fails(1, &["no-such-file"], "pipework run -a no-such-file true");
    fails(1, &["descriptor 77"], "pipework run -a /dev/fd/77 true");
    fails(1, &[".", "Is a directory"], "pipework run -a . true");
    fails(2, &["--arg-file"], "pipework run --arg-nul true");
    fails(2, &["--jobs"], "pipework run --jobs=-1 true");
    // Bytes that cannot be an argument fail their own command only.
    let done = sh(&Folder::new(), "printf 'a\\0b\\nc\\n' | pipework run -P 1 -a - echo");
    assert_eq!((done.status, &*done.out), (Some(126), "c\n"), "{done:?}");
    let script = "(head -c 300000 /dev/zero | tr '\\0' x; echo; echo short) | pipework run -P 1 -a - echo";
    let done = sh(&Folder::new(), script);
    assert_eq!((done.status, &*done.out), (Some(126), "short\n"));
    assert!(done.err.contains("line 1 of standard input: Argument list too long"), "{}", done.err);
    fails(1, &["line 1 of /dev/zero is longer"], "pipework run -a /dev/zero echo");
}

/// The JSON objects distinguish names that are no text.
#[test]
fn json_encodes_arguments_that_are_not_utf_8() {
    let out = clean("printf '\\377\\n\\376\\nplain\\n' | pipework run --json -P 1 -a - true");
    let expected = [
        r#"{"type":"exit","command_base64":"/w==","status":0}"#,
        r#"{"type":"exit","command_base64":"/g==","status":0}"#,
        r#"{"type":"exit","command":"plain","status":0}"#,
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    fails(2, &["exec:", "--json"], "pipework run --json -m exec:cat true");
    fails(2, &["exec:", "--nul"], "pipework run --nul -m exec:cat true");
}

#[test]
fn run_uses_an_argument_as_soon_as_it_is_read() {
    let script = "(echo one; until [ -e used ]; do sleep 0.01; done; echo two) | \
                  pipework run -a - --shell ': > used; echo {}'";
    assert_eq!(sorted(&clean(script)), ["one", "two"]);
}

#[test]
fn keep_order_prints_outputs_in_the_order_of_arguments() {
    // The first command ends when the second has nothing left to do but to print.
    let script = "pipework run OPTIONS --tag -s 'until [ -e out ]; do sleep 0.01; done; echo first; exit 1' \
            -s 'printf \"%0100000d\\n\" 2 > big; : > out; echo second; echo err >&2; cat big; exit 2' no-such-one
        echo $?";
    for (options, merged) in [("-k", false), ("--keep-order --stderr merged", true), ("-kP 3", false)] {
        let done = sh(&Folder::new(), &script.replace("OPTIONS", options));
        let lines: Vec<&str> = done.out.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        let mut expected = vec!["first", "second"];
        expected.extend(merged.then_some("err"));
        assert_eq!(lines[..expected.len()], expected, "{done:?}");
        assert_eq!((lines[expected.len()].len(), lines[expected.len() + 1]), (100_000, "127"), "{options}");
        let said: Vec<&str> = done.err.lines().filter(|line| line.starts_with("pipework: ")).collect();
        assert_eq!(said.len(), 3, "{done:?}");
        assert!(said[1].ends_with("exit status: 1") && said[2].ends_with("exit status: 2"), "{done:?}");
    }
    let script =
        "pipework run -k --json -a - -s '[ {} = 1 ] && until [ -e two ]; do sleep 0.01; done; : > two'";
    let out = clean(&format!("printf '1\\n2\\n3\\n' | {script}"));
    let names: Vec<&str> = out.lines().map(|line| line.split('"').nth(7).unwrap()).collect();
    assert_eq!(names, ["1", "2", "3"]);
    // Signals reach commands whose output waits for its turn.
    let script = "exec pipework run -k -s 'echo begun; exec sleep 1000' -s 'exec yes' -s 'sleep 1000; :'";
    let (mut child, first, _out) = started(script);
    assert_eq!(first, "begun");
    send_signal(child.id(), Signal::TERM);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn run_starts_at_most_as_many_commands_as_jobs_says() {
    let one = "seq 30 | pipework run --jobs 1 -a - --shell 'mkdir lock; echo {}; rmdir lock'";
    assert_eq!(clean(one), clean("seq 30"));
    // Three commands wait for each other; then three more run.
    let meet = ": > up.{}; until [ $(ls up.* | wc -l) -ge 3 ]; do sleep 0.01; done; echo";
    assert_eq!(clean(&format!("seq 6 | pipework run -P 3 -a - --shell '{meet}' | wc -l")), "6\n");
    // Commands of the command line all run at the same time by default.
    let meet = ": > up.$$; until [ $(ls up.* | wc -l) -ge 3 ]; do sleep 0.01; done";
    let all = ["--shell"; 3].map(|option| format!("{option} '{meet}'")).join(" ");
    clean(&format!("pipework run {all}"));
    let one = "mkdir lock && rmdir lock";
    let all = ["--shell"; 9].map(|option| format!("{option} '{one}'")).join(" ");
    clean(&format!("pipework run -P 1 {all}"));
}

#[test]
fn run_starts_fewer_at_a_time_if_descriptors_are_few() {
    let script =
        "ulimit -n 256; seq 300 | pipework run --jobs 0 --stderr tagged -a - --shell 'echo {} >&2; echo {}'";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.status, Some(0), "{}", done.err);
    let numbers = clean("seq 300 | sort");
    assert!(sorted(&done.out) == sorted(&numbers), "{}", done.out);
    let (own, tagged): (Vec<&str>, Vec<&str>) =
        done.err.lines().partition(|line| line.starts_with("pipework:"));
    assert!(own.len() == 1 && own[0].contains("commands run at a time"), "{own:?}");
    let expected: Vec<String> = numbers.lines().map(|number| format!("[{number}] {number}")).collect();
    assert!(sorted(&tagged.join("\n")) == sorted(&expected.join("\n")), "{tagged:?}");
    // Too few descriptors for even one command.
    let script = "ulimit -n 7; pipework run true; echo $?";
    let done = sh(&Folder::new(), script);
    assert!(["1\n", "126\n"].contains(&&*done.out) && done.err.contains("Too many open files"), "{done:?}");
}

#[test]
fn run_names_each_failure_and_returns_the_highest_status() {
    let done = sh(&Folder::new(), "printf '0\\n3\\n2\\n' | pipework run -P 1 -a - --shell 'exit {}'");
    assert_eq!((done.status, &*done.out), (Some(3), ""));
    assert_eq!(done.err, "pipework: 3: exit status: 3\npipework: 2: exit status: 2\n");
    // A single command reports its failure by its status alone.
    let done = sh(&Folder::new(), "pipework run sh -c 'exit 3'");
    assert_eq!((done.status, &*done.err), (Some(3), ""));
    let done = sh(&Folder::new(), "seq 2 | pipework run --json -P 1 -a - --shell 'exit {}'");
    let object = |n| format!("{{\"type\":\"exit\",\"command\":\"{n}\",\"status\":{n}}}\n");
    assert_eq!((done.status, done.out, &*done.err), (Some(2), object(1) + &object(2), ""));
    let done = sh(&Folder::new(), "pipework run --json no-such-command");
    assert_eq!(done.out, "{\"type\":\"exit\",\"command\":\"no-such-command\",\"status\":127}\n");
}

#[test]
fn fail_fast_stops_all_commands_after_a_failure() {
    let done = sh(
        &Folder::new(),
        "printf '0\\n5\\n9\\n' | pipework run --fail-fast -P 1 -a - --shell 'echo {}; exit {}'",
    );
    assert_eq!((done.status, &*done.out, &*done.err), (Some(5), "0\n5\n", "pipework: 5: exit status: 5\n"));
    // Running commands end with all their children; run passes on their last output.
    let script = "setsid pipework run --fail-fast \
                  --shell 'sleep 1000 & echo $!; trap \"echo bye; exit 9\" TERM; : > up; wait' \
                  --shell 'until [ -e up ]; do sleep 0.01; done; sleep 1000 & exit 4'";
    let done = sh(&Folder::new(), script);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!((done.status, lines.len(), lines[1]), (Some(4), 2, "bye"), "{done:?}");
    gone(lines[0]);
    // A command that ignores SIGTERM is killed. A command that cannot start counts as a failure.
    let script = "pipework run --fail-fast --grace 0.1 --shell 'trap \"\" TERM; while :; do sleep 1; done' \
                  ::: ./no-such-command";
    let script = script.replace("::: ", "");
    fails(127, &["no-such-command"], &script);
    // Without --fail-fast all commands run.
    assert_eq!(sh(&Folder::new(), "pipework run --shell 'exit 3' --shell 'echo on'").out, "on\n");
}

#[test]
fn timeout_stops_a_command_that_takes_too_long() {
    let script = "pipework run --timeout 1 --tag --shell 'echo begun; sleep 1000' --shell 'echo short'";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.status, Some(124), "{done:?}");
    assert_eq!(sorted(&done.out), ["[echo begun; sleep 1000] begun", "[echo short] short"]);
    assert_eq!(done.err, "pipework: echo begun; sleep 1000: it took too long, and was stopped\n");
    fails(124, &["sleep"], "pipework run --timeout 1 sleep 1000");
    // SIGKILL follows if SIGTERM does not end it. A process that only holds the pipe delays nothing.
    let deaf = "trap \"\" TERM; echo $$; while :; do sleep 1; done";
    let done = sh(&Folder::new(), &format!("pipework run --timeout 1 --grace 0.1 --shell '{deaf}'"));
    assert_eq!(done.status, Some(124));
    gone(done.out.trim());
    let script = "pipework run --timeout 1 --shell 'setsid sleep 1000 2> /dev/null & echo $!'";
    let done = sh(&Folder::new(), script);
    assert_eq!((done.status, &*done.err), (Some(0), ""), "the command itself was in time");
    send_signal(done.out.trim().parse().unwrap(), Signal::KILL);
    assert_eq!(clean("pipework run --timeout 1000 echo in time"), "in time\n");
    fails(2, &["seconds"], "pipework run --timeout soon true");
}

/// The command ends in time, and its output waits for a slow reader.
#[test]
fn timeout_ignores_the_time_that_a_reader_takes() {
    let printer = "sh -c 'yes | head -c 380000; : > done'";
    let script = format!(
        "pipework run --timeout 1 {printer} 2> err | {{ until [ -e done ]; do sleep 0.01; done; sleep 1.2; wc -c; }}
        pipework run --timeout 1 --stderr tagged --messages log -- {printer} 2>> err | wc -c; cat err"
    );
    assert_eq!(clean(&script), "380000\n380000\n");
}

#[test]
fn warning_never_splits_a_tagged_line() {
    // A long line is cut into several; the warning comes while the first of them is half written.
    let script = "pipework run --stderr tagged -s 'head -c 3000000 /dev/zero | tr \"\\0\" x >&2' 2>&1 | \
        tr -s x | grep -v '] x$'";
    let out = clean(script);
    assert!(out.starts_with("pipework: ") && out.ends_with("was cut into several\n"), "{out}");
    assert_eq!(out.lines().count(), 1, "{out}");
}

#[test]
fn stderr_option_leaves_tags_or_merges_standard_error() {
    let job = "--shell 'echo out; echo err >&2; printf rest >&2'";
    let with = |options: &str| sh(&Folder::new(), &format!("pipework run {options} {job}"));
    assert_eq!(with("").err, "err\nrest");
    let done = with("--stderr tagged");
    assert_eq!((done.status, &*done.out, &*done.err), (Some(0), "out\n", "[echo] err\n[echo] rest\n"));
    let done = with("--tag --stderr merged");
    assert_eq!((&*done.out, &*done.err), ("[echo] out\n[echo] err\n[echo] rest\n", ""));
    let done = with("--json --stderr merged");
    assert_eq!(done.out.matches("\"type\":\"line\"").count(), 3, "{}", done.out);
    // A message on standard error counts as a message only where standard error is merged.
    let send = "--shell 'pipework send --mixed hello >&2'";
    let script =
        format!("pipework run --stderr tagged {send} 2> err; head -c 11 err; tail -c 7 err | head -c 5");
    assert_eq!(clean(&script), "[pipework] hello");
    assert_eq!(clean(&format!("pipework run --stderr merged {send}")), "hello\n");
    fails(2, &["tagged", "merged"], "pipework run --stderr split true");
}

#[test]
fn run_handles_a_standard_error_that_it_cannot_write() {
    let job = "--stderr tagged --shell 'echo err >&2; echo out'";
    assert_eq!(clean(&format!("pipework run {job} 2>/dev/full; echo $?")), "out\n1\n");
    // In that case no command runs.
    assert_eq!(clean(&format!("pipework run {job} 2>&-; echo $?")), "1\n");
    // After the reader of standard error has left, the commands get SIGPIPE.
    let script = "(pipework run --stderr tagged yes 2>&1 >&3 3>&- | :) 3>&1; echo done";
    let script = script.replace("yes", "sh -c 'yes >&2'");
    assert_eq!(clean(&script), "done\n");
}

#[test]
fn append_adds_messages_to_a_file() {
    let script = "for i in 1 2; do pipework run --append -m log -- pipework send --mixed $i; done; cat log";
    assert_eq!(clean(script), "1\n2\n");
    let script = "for i in 1 2; do pipework run -m log -- pipework send --mixed $i; done; cat log";
    assert_eq!(clean(script), "2\n");
    // A message starts on its own line, even behind an unfinished line of another writer.
    let send = "pipework send --mixed two";
    let script = format!(
        "printf half > log; pipework run --append -m log -- {send}; cat log
        printf half > log; pipework run -m fd:3 -- {send} 3>> log; cat log; printf 'one\\0' > log
        pipework run --append --nul -m log -- {send}; tr '\\0' , < log"
    );
    assert_eq!(clean(&script), "half\ntwo\nhalf\ntwo\none,two,");
    fails(2, &["--messages"], "pipework run --append true");
    fails(1, &["messages", "No space"], "pipework run --append -m /dev/full pipework send -m x");
}

#[test]
fn message_that_finds_no_space_leaves_no_part_in_the_file() {
    let script = "(ulimit -f 8; exec pipework run -m log sh -c 'seq -w 2000 | pipework send -lm' 2> err)
        grep -c 'too large' err; tail -c 5 log; wc -c < log
        (ulimit -f 8; exec pipework run -m fd:3 sh -c 'seq -w 2000 | pipework send -lm' 2>> err 3> log)
        echo end >> log; tail -n 2 log | wc -c";
    let done = sh(&Folder::new(), script);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!((lines.len(), done.err.as_str()), (4, ""), "{done:?}");
    let size: usize = lines[2].parse().unwrap();
    assert!(size > 3000 && size.is_multiple_of(5), "{done:?}");
    assert_eq!(lines[1].parse::<usize>().unwrap(), size / 5, "{done:?}");
    assert_eq!(lines[3], "9");
}

/// Tries each file size limit: complete entries stay complete, and run reports the missing ones.
#[test]
fn full_disk_cuts_no_complete_entry_at_any_size() {
    let script = "for size in $(seq 0 420); do
            prlimit --fsize=$size pipework run --json -m log.$size pipework send -m one 'the second' \
                2>&1 > /dev/null | cat > err.$size
        done";
    let folder = Folder::new();
    sh(&folder, script);
    let mut most = 0;
    for size in 0..=420 {
        let read = |name: &str| fs::read_to_string(folder.join(format!("{name}.{size}"))).unwrap();
        let (log, err) = (read("log"), read("err"));
        assert!(log.is_empty() || log.ends_with('\n'), "{size}: {log}");
        let kinds: Vec<String> = log
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].to_string())
            .collect();
        let all = ["\"message\"", "\"message\"", "\"exit\""];
        assert!(all.starts_with(&kinds.iter().map(String::as_str).collect::<Vec<_>>()), "{size}: {log}");
        most = most.max(kinds.len());
        // Each object is shorter than 120 bytes.
        assert!(kinds.len() == 3 || log.len() + 120 > size, "{size}: {log}");
        let says = if kinds.len() == 3 { 0 } else { 1 };
        assert_eq!(err.matches("messages: File too large").count(), says, "{size}: {err}");
        assert!(!err.contains("cut"), "{size}: {err}");
    }
    assert_eq!(most, 3);
}

#[test]
fn run_waits_for_a_reader_of_its_messages_fifo() {
    let script = "mkfifo log; pipework run -m log pipework send -m hello 2> err & \
        until grep -q 'log: waiting' err 2> /dev/null; do sleep 0.01; done; cat log; wait";
    assert_eq!(clean(script), "hello\n");
}

#[test]
fn run_ends_when_an_output_fails_although_arguments_remain() {
    fails(1, &["standard output", "No space"], "yes | pipework run -a - echo > /dev/full");
    let script = "(yes | pipework run -a - --stderr tagged echo; echo $? > status) | head -n 2; cat status";
    assert_eq!(clean(script), "y\ny\n141\n");
    fails(1, &["standard output is closed"], "echo a | pipework run -a - echo >&-");
    // run notices that the reader has left although it prints nothing.
    let script = "mkfifo in; exec 9<> in; (pipework run -a in echo; echo $? > status) | :; cat status";
    assert_eq!(clean(script), "141\n");
}

#[test]
fn run_refuses_arguments_that_no_command_can_take() {
    fails(
        126,
        &["echo with line 2 of standard input", "NUL byte"],
        "printf 'a\\nb\\0c\\n' | pipework run -a - echo",
    );
    let long = "(echo a; head -c 300000 /dev/zero | tr '\\0' x; echo; echo b) > list; pipework run -a list";
    fails(126, &["echo with line 2 of list", "too long"], &format!("{long} echo > out"));
    fails(126, &["sh with line 2 of list", "too long"], &format!("{long} -s 'echo {{}}' > out"));
    fails(
        1,
        &["line 1 of list is longer than"],
        "head -c 9000000 /dev/zero > list; pipework run -a list echo",
    );
    for line in ["echo '{}'", "echo \"{}\""] {
        let script = "echo a | pipework run -a - --shell \"$LINE\"";
        let done = outcome(shell(&Folder::new(), script).env("LINE", line).output().unwrap());
        assert_eq!((done.status, done.err.contains("without quotes")), (Some(2), true), "{done:?}");
    }
    fails(2, &["missing beside :::"], "pipework run :::");
    fails(2, &["missing beside :::"], "pipework run true :::");
}

#[test]
fn run_starts_no_command_after_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let run = "exec pipework run -P 2 -a <(yes) --shell ': {}; echo $$; exec sleep 1000'";
        let (mut child, first, mut out) = started(&format!("exec bash -c \"{}\"", run.replace('$', "\\$")));
        let mut second = String::new();
        out.read_line(&mut second).unwrap();
        send_signal(child.id(), signal);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!((&*rest, child.wait().unwrap().signal()), ("", Some(signal.as_raw())));
        gone(&first);
        gone(second.trim());
    }
}

#[test]
fn run_refuses_an_argument_inside_arithmetic() {
    fails(2, &["arithmetic", "n={}"], "seq 2 | pipework run -a - --shell 'echo $(({} * 2))'");
    assert_eq!(clean("seq 2 | pipework run -P 1 -a - --shell 'n={}; echo $((n * 2))'"), "2\n4\n");
}

#[test]
fn joblog_has_an_entry_for_each_command_beside_tagged_output() {
    let folder = Folder::new();
    let script = "pipework run --tag -P 1 --timeout 20 --joblog log -- echo a ::: sh -c 'sleep 0.2; exit 3' \\
        ::: sh -c 'kill -9 $$' ::: ./missing 2> err; echo $?";
    let done = sh(&folder, script);
    assert_eq!(done.out, "[echo] a\n137\n", "{done:?}");
    let log = fs::read_to_string(folder.join("log")).unwrap();
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts: Vec<_> = entries
        .iter()
        .map(|entry| (entry["index"].as_u64(), entry["status"].as_u64(), entry["signal"].as_i64()))
        .collect();
    let expected = [(1, 0, None), (2, 3, None), (3, 137, Some(9)), (4, 127, None)]
        .map(|(index, status, signal)| (Some(index), Some(status), signal));
    assert_eq!(facts, expected, "{log}");
    let number = |key: &str, nth: usize| entries[nth][key].as_f64().unwrap();
    assert!(number("seconds", 1) >= 0.2 && number("start", 2) >= number("start", 1) + 0.2, "{log}");
    assert_eq!(entries[0]["command"], "echo");
    // The entries of a log that is standard output lie between the lines.
    let both = clean("pipework run --joblog /dev/stdout echo a ::: echo b | grep -c '^{\\|^[ab]$'");
    assert_eq!(both, "4\n");
    assert!(clean("pipework run --joblog - printf x").starts_with("x\n{\"index\":1,"));
    fails(1, &["no/log"], "pipework run --joblog no/log true");
}
