//! `pipework run`: whole lines, separate messages, exit statuses and signals.

use crate::terminal::Terminal;
use crate::{Folder, clean, fails, outcome, sh, shell};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What `ExitStatus::signal` says of a process that has ended by it.
pub(crate) const TERM: i32 = Signal::TERM.as_raw();

pub(crate) fn send_signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Starts a script and reads its first line, which it prints once all its processes run.
pub(crate) fn started(script: &str) -> (Child, String, BufReader<ChildStdout>) {
    let mut child = shell(&Folder::new(), script).current_dir("/").stderr(Stdio::inherit()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (child, line.trim_end().to_string(), out)
}

#[test]
fn run_keeps_lines_of_many_commands_whole() {
    // Each line is written in three pieces, so that the pieces of all would mix on one pipe.
    let line = "for i in $(seq 300); do printf aaaa; printf $i-; echo bbbb; done";
    let lines = ["--shell"; 4].map(|option| format!("{option} '{line}'")).join(" ");
    let out = clean(&format!("pipework run --tag {lines}"));
    let mut expected: Vec<String> =
        (1..=4).flat_map(|job| (1..=300).map(move |i| format!("{job}] aaaa{i}-bbbb"))).collect();
    // A long shell line is named by its two ends, with a number if another has the same name.
    let tag = "[for i in $(seq 300)…-; echo bbbb; done.";
    let mut found: Vec<String> =
        out.lines().filter_map(|line| line.strip_prefix(tag)).map(String::from).collect();
    expected.sort();
    found.sort();
    assert!(found == expected, "{} lines", found.len());
}

#[test]
fn tag_names_the_command_of_each_line() {
    let out = clean("pipework run --tag echo one ::: printf 'no end' ::: echo three");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    assert_eq!(lines, ["[echo one] one", "[echo three] three", "[printf] no end"]);
    assert_eq!(clean("pipework run --separator + -- echo ::: + true"), ":::\n");
    // The output of a single command passes unchanged.
    assert_eq!(clean("pipework run printf 'a\\r\\nb'"), "a\r\nb");
    assert_eq!(clean("echo input | pipework run cat"), "input\n");
    assert_eq!(clean("echo input | pipework run cat ::: cat"), "");
    fails(2, &["missing", ":::"], "pipework run echo a :::");
    fails(2, &["CMD"], "pipework run");
}

#[test]
fn run_sends_messages_to_the_chosen_destination() {
    let job = "--shell 'echo text; pipework send --mixed one \"t w o\"; echo more'";
    assert_eq!(clean(&format!("pipework run {job}")), "text\none\nt w o\nmore\n");
    let script = format!("pipework run --messages log {job}; echo --; cat log");
    assert_eq!(clean(&script), "text\nmore\n--\none\nt w o\n");
    let script = format!("pipework run --nul --messages fd:3 {job} 3> log; echo --; cat log");
    assert_eq!(clean(&script), "text\nmore\n--\none\0t w o\0");
    let command = "--messages exec:'echo \"$PIPEWORK_TYPE $(cat)\" >> log'";
    let script = format!("pipework run {command} {job}; echo --; cat log");
    assert_eq!(clean(&script), "text\nmore\n--\nmessage one\nmessage t w o\n");
    let out = clean(&format!("pipework run --json {job}"));
    let mut objects: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exit = objects.pop().unwrap();
    assert_eq!(exit, serde_json::json!({"type": "exit", "command": "echo", "status": 0}));
    let found: Vec<_> = objects
        .iter()
        .map(|object| ["type", "command", "data"].map(|key| object[key].as_str().unwrap()))
        .collect();
    let expected = [("line", "text"), ("message", "one"), ("message", "t w o"), ("line", "more")];
    assert_eq!(found, expected.map(|(kind, data)| [kind, "echo", data]));
    fails(1, &["descriptor 77"], "pipework run --messages fd:77 true");
    fails(2, &["fd:3"], "pipework run --messages fd:x true");
    fails(1, &["Is a directory"], "pipework run --messages . true");
}

#[test]
fn run_delivers_large_and_compressed_messages() {
    let script = "head -c 3000000 /dev/urandom > in; \
                  pipework run --messages out --shell 'pipework send --mixed < in; echo done'; \
                  echo >> in; cmp in out";
    assert_eq!(clean(script), "done\n");
    assert_eq!(clean("pipework run --zstd -- pipework send --mixed --zstd hello"), "hello\n");
}

#[test]
fn run_returns_the_highest_exit_status() {
    let status = |script: &str| sh(&Folder::new(), script).status;
    assert_eq!(status("pipework run sh -c 'exit 7'"), Some(7));
    assert_eq!(status("pipework run sh -c 'kill -9 $$'"), Some(137));
    assert_eq!(status("pipework run --shell 'exit 3' --shell 'exit 9' --shell true"), Some(9));
    fails(127, &["cannot run no-such-command"], "pipework run no-such-command ::: true");
    fails(126, &["cannot run ./file"], "echo > file; pipework run ./file");
    // A message that cannot be delivered is a failure, but the command's own status is returned.
    let send = "pipework send --mixed x";
    fails(1, &["exit status: 5"], &format!("pipework run --messages exec:'exit 5' {send}"));
    let script = format!("pipework run --messages exec:'exit 5' --shell '{send}; exit 7'");
    assert_eq!(status(&script), Some(7));
}

/// What the command has printed is there when its time is over, and its own status counts.
#[test]
fn command_that_ends_in_time_keeps_its_status_although_a_process_stays_behind() {
    for (end, status) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)] {
        for stderr in ["", "--stderr tagged"] {
            let script = format!(
                "pipework run --timeout 1 {stderr} -- sh -c 'sleep 1000 & echo $! > left; seq 3; printf end; {end}'
                echo \" $?\"; kill $(cat left) && echo 'it stays'"
            );
            assert_eq!(clean(&script), format!("1\n2\n3\nend {status}\nit stays\n"), "{end} {stderr}");
        }
    }
}

/// The first of two parts of a message of writer 7:9, in mixed mode.
fn torn_part() -> Vec<u8> {
    let mut part = vec![0x0e, 0x10];
    for word in [7u32, 9, 1, 4] {
        part.extend(word.to_ne_bytes());
    }
    part.extend(b"head\x0f");
    part
}

#[test]
fn run_reports_a_torn_message() {
    let folder = Folder::new();
    fs::write(folder.join("torn"), torn_part()).unwrap();
    let done = sh(&folder, "pipework run --shell 'echo a; cat torn; echo b'");
    assert_eq!((done.status, done.out.as_str()), (Some(3), "a\nb\n"));
    assert!(done.err.contains("echo: message of writer 7:9"), "{}", done.err);
}

#[test]
fn run_passes_a_signal_to_all_commands() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        // Both commands must have started before the signal comes.
        let command = "trap 'echo ended; exit 5' INT TERM HUP QUIT; echo ready; while :; do sleep 0.01; done";
        let script = format!("exec pipework run --shell \"{command}\" --shell \"{command}\"");
        let (mut child, first, mut out) = started(&script);
        assert_eq!(first, "ready");
        let mut second = String::new();
        out.read_line(&mut second).unwrap();
        assert_eq!(second, "ready\n");
        send_signal(child.id(), signal);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "ended\nended\n", "what they still print is printed");
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
    }
}

/// A shell ends its script only if the signal itself ended the command, not on exit status 130.
#[test]
fn ctrl_c_ends_the_shell_script_around_the_command() {
    for (command, seen) in [
        ("pipework run -s \"echo running; exec sleep 1000\"", "running"),
        ("sleep 1000 | pipework tee -c --interval 0.1", "0 messages"),
    ] {
        let folder = Folder::new();
        let script =
            format!("trap : INT; bash -c 'for i in 1 2 3; do {command}; done; echo went on'; echo over");
        let mut terminal = Terminal::run(&folder, (10, 80), &script);
        terminal.wait_for(seen);
        terminal.press("\x03");
        terminal.wait_for("over");
        assert!(!terminal.text().contains("went on"), "{command}");
        terminal.end();
    }
}

#[test]
fn run_reads_from_background_processes_but_a_signal_ends_it() {
    // The command ends at once; its background process prints later, on the same pipe.
    let script = "mkfifo go; echo > go & \
                  pipework run --shell '(cat go > /dev/null; echo late) & echo early'; echo $?";
    let out = clean(script);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    assert_eq!(lines, ["0", "early", "late"]);
    assert!(out.ends_with("0\n"), "{out}");
    // Here the background process would hold the pipe for ever.
    for started_as in SESSIONS {
        let script = format!("exec {started_as} pipework run --shell 'setsid sleep 1000 & echo $!'");
        let (mut child, left, mut out) = started(&script);
        send_signal(child.id(), Signal::TERM);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), child.wait().unwrap().signal()), ("", Some(TERM)));
        send_signal(left.parse().unwrap(), Signal::KILL);
    }
}

/// Without a terminal, commands get process groups of their own; with one, they share that of
/// `pipework`.
const SESSIONS: [&str; 2] = ["setsid", ""];

#[test]
fn run_leaves_no_orphans_after_a_signal() {
    let shells = [
        // A shell that waits for its children, and one that ends before them.
        "sleep 1000 & echo $!; sleep 1000",
        "(trap \"\" INT; sleep 1000) & echo $!; sleep 1000",
        "sleep 1000 & echo $!",
        "sh -c \"sleep 1000 & echo \\$!; wait\"; echo never",
        // A stopped process.
        "sleep 1000 & kill -STOP $!; echo $!; wait",
    ];
    for line in shells {
        let script = format!("exec setsid pipework run --shell '{line}'");
        let (mut child, orphan, mut out) = started(&script);
        send_signal(child.id(), Signal::TERM);
        out.read_to_string(&mut String::new()).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(TERM), "{line}");
        gone(&orphan);
    }
    // Commands that receive messages end with the second signal.
    let script = "exec setsid pipework run --messages exec:'trap \"\" TERM; sleep 1000 & \
                  echo $! >&2; wait; wait' pipework send -m x 2>&1";
    let (mut child, orphan, _out) = started(script);
    while child.try_wait().unwrap().is_none() {
        send_signal(child.id(), Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    gone(&orphan);
}

/// Waits until a process has ended; it may still be a zombie.
pub(crate) fn gone(id: &str) {
    let id: u32 = id.parse().unwrap();
    let alive = || {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    };
    for _ in 0..5000 {
        if !alive() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    send_signal(id, Signal::KILL);
    panic!("process {id} was left behind");
}

#[test]
fn second_signal_kills_commands_that_ignore_the_first() {
    let script = "exec pipework run --shell \"trap '' TERM; echo \\$\\$; while :; do sleep 0.01; done\"";
    let (mut child, _, mut out) = started(script);
    // Signals that come at nearly the same time count as one, so the test sends many.
    while child.try_wait().unwrap().is_none() {
        send_signal(child.id(), Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().signal(), Some(TERM));
    out.read_to_string(&mut String::new()).unwrap();
}

/// Waits for a process that must end without further help.
fn ended(child: &mut Child, what: &str) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > Duration::from_secs(100) {
            let _ = child.kill();
            panic!("{what}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn run_kills_commands_after_the_grace_of_one_signal() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let script = "exec setsid pipework run --grace 0.2 -s 'trap \"\" TERM INT HUP; echo $$; \
                      while :; do sleep 0.01; done'";
        let (mut child, command, _out) = started(script);
        send_signal(child.id(), signal);
        let status = ended(&mut child, "--grace does not apply to a signal");
        assert_eq!(status.signal(), Some(signal.as_raw()));
        gone(&command);
    }
}

#[test]
fn signal_does_not_postpone_a_kill_that_is_due() {
    let deaf = "trap \"echo told\" TERM; trap \"\" INT; echo ready; while :; do sleep 0.01; done";
    let run = format!("pipework run --timeout 0.2 --grace 1 -s '{deaf}'");
    let (mut child, _, mut out) = started(&format!("exec {run}"));
    let mut told = String::new();
    out.read_line(&mut told).unwrap();
    assert_eq!(told, "told\n");
    send_signal(child.id(), Signal::INT);
    let status = ended(&mut child, "the signal has put off the end of --timeout");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    // Ctrl-C starts no grace, but a kill that is due stays due, before SIGTERM as well as after it.
    for seen in ["ready\r\n", "told\r\n"] {
        let (mut child, mut typed, mut shown) = on_a_terminal(&run.replace('\'', "'\\''"));
        until(&mut shown, seen);
        typed.write_all(b"\x03").unwrap();
        assert_eq!(ended(&mut child, "Ctrl-C has put off the end").code(), Some(130), "{seen}");
    }
}

#[test]
fn run_obeys_a_signal_while_its_output_is_full() {
    let (mut child, first, mut out) = started("exec pipework run sh -c 'echo ready; exec yes'");
    assert_eq!(first, "ready");
    // A full pipe may hold less than 64 KiB, because a short write takes a whole page.
    while rustix::io::ioctl_fionread(out.get_ref()).unwrap() < 40_000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    send_signal(child.id(), Signal::TERM);
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"y\n"), "the rest of the output was lost");
    assert_eq!(child.wait().unwrap().signal(), Some(TERM));
}

#[test]
fn run_ends_its_commands_when_its_output_closes() {
    let script = "(pipework run yes; echo $? > status) | head -n 2; cat status";
    assert_eq!(clean(script), "y\ny\n141\n");
}

/// The command gets SIGPIPE then, whose status would be 141.
#[test]
fn run_fails_with_status_1_if_it_cannot_read_the_output_of_a_command() {
    fails(1, &["is `mixed` set on both sides?"], "pipework run -s 'pipework send x; exec yes'");
}

#[test]
fn run_writes_one_output_completely_after_the_other_closed() {
    // The message is larger than the pipe `apart`, which has no reader until standard output has
    // closed.
    let script = "mkfifo apart; exec 3<>apart
        (pipework run --messages fd:3 --shell '
             trap \"\" PIPE; until [ -e closed ]; do sleep 0.01; done
             head -c 200000 /dev/zero | pipework send --mixed
             while echo text 2> /dev/null; do sleep 0.01; done; : > gone'
         echo $? > status) | {
            exec <&-; : > closed; until [ -e gone ]; do sleep 0.01; done
            timeout 60 head -c 200001 <&3 | wc -c; }
        cat status";
    assert_eq!(clean(script), "200001\n141\n");
    // The other way round. Here run reports the loss, because the user did not ask for it.
    let script = "(pipework run --messages fd:3 --shell '
             until [ -e closed ]; do sleep 0.01; done
             head -c 100000 /dev/zero | tr \"\\0\" \"\\n\"; pipework send --mixed x' 3>&1 >out) | {
            exec <&-; : > closed; }; wc -c < out";
    let done = sh(&Folder::new(), script);
    assert_eq!(done.out, "100000\n", "{}", done.err);
    assert!(done.err.contains("messages: Broken pipe"), "{}", done.err);
}

#[test]
fn commands_inherit_default_signals_and_no_descriptors() {
    // A Rust program ignores SIGPIPE, and this one blocks other signals. Its commands inherit
    // neither.
    let signals = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    assert_eq!(clean(&format!("pipework run {signals}")), clean(signals));
    let script = format!("pipework run --messages exec:\"{signals} >&2\" pipework send -m x");
    let done = sh(&Folder::new(), &script);
    assert_eq!(done.err, clean(signals));
    // Standard output is blocking, and only the caller's descriptors are open.
    let out = clean("pipework run cat /proc/self/fdinfo/1");
    let flags = out.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    assert_eq!(i32::from_str_radix(flags, 8).unwrap() & 0o4000, 0, "O_NONBLOCK");
    let open = "ls /proc/self/fd";
    assert_eq!(clean(&format!("pipework run {open}")), clean(open));
    assert_eq!(clean(&format!("pipework run --messages fd:7 {open} 7> log")), clean(open));
}

#[test]
fn run_keeps_an_ignored_interrupt_ignored() {
    // Scripts start background jobs that way, and nohup does the same.
    let script = "trap '' INT; pipework run --shell 'kill -INT $PPID; kill -INT $$; echo alive'";
    let done = outcome(shell(&Folder::new(), script).output().unwrap());
    assert_eq!((done.status, done.out.as_str()), (Some(0), "alive\n"));
}

#[test]
fn run_passes_any_bytes_of_one_command_unchanged() {
    let script = "printf 'a\\016b\\017c\\016\\020d\\017\\000\\377\\016' > in; head -c 300000 /dev/urandom >> in; \
                  pipework run -- cat in | cmp - in";
    assert_eq!(clean(script), "");
    // Machine code contains many bytes that could begin a part.
    let script = "for file in /bin/ls /bin/sh /bin/tar; do \
                  pipework run -- cat $file > out; echo $?; cmp out $file; done";
    assert_eq!(clean(script), "0\n0\n0\n");
    let burst = "pipework send --mixed --burst data";
    assert_eq!(clean(&format!("pipework run -m /dev/null {burst}")), "\u{e}data\u{f}");
    assert_eq!(clean(&format!("pipework run -m out --bursts {burst}; cat out")), "data\n");
}

/// A program that starts `run` as a coprocess can answer the questions of its command.
#[test]
fn run_passes_a_question_without_a_newline_through_a_pipe() {
    let asks = "printf \"name? \"; read name; echo \"hello $name\"";
    let script = format!(
        "mkfifo in out; pipework run sh -c '{asks}' < in > out & exec 3> in 4< out
        head -c 6 <&4; echo you >&3; cat <&4"
    );
    assert_eq!(clean(&script), "name? hello you\n");
}

#[test]
fn run_passes_an_endless_line_in_bounded_memory() {
    let script = "(ulimit -v 100000; exec pipework run head -c 150000000 /dev/zero) | wc -c";
    assert_eq!(clean(script), "150000000\n");
}

/// A long line of a single command passes unchanged. With tags or objects between its pieces it is
/// cut, and a warning says so.
#[test]
fn run_cuts_lines_over_the_limit_only_between_several_commands() {
    let long = "0123456789abcdefghijABCDEFG";
    let run = |options: &str| {
        sh(&Folder::new(), &format!("pipework run --max-message 10 {options} echo {long}; echo $?"))
    };
    assert_eq!(run("").out, format!("{long}\n0\n"));
    assert_eq!(run("--nul").out, format!("{long}\x000\n"));
    let done = run("--tag");
    assert_eq!(done.out, "[echo] 0123456789\n[echo] abcdefghij\n[echo] ABCDEFG\n3\n");
    assert_eq!(done.err.matches("echo: a line longer than --max-message was cut").count(), 1, "{}", done.err);
    let done = run("--json");
    assert_eq!(done.out.matches("\"continued\":true").count(), 2, "{}", done.out);
    assert!(
        done.out
            .ends_with("\"data\":\"ABCDEFG\"}\n{\"type\":\"exit\",\"command\":\"echo\",\"status\":0}\n3\n"),
        "{}",
        done.out
    );
}

#[test]
fn json_reports_torn_messages_as_objects() {
    let folder = Folder::new();
    fs::write(folder.join("torn"), torn_part()).unwrap();
    for script in [
        "pipework run --json cat torn",
        "(pipework run --json --messages fd:3 cat torn) 3>&1 >/dev/null",
        "cat torn | pipework recv --mixed --json",
    ] {
        let done = sh(&folder, script);
        assert_eq!((done.status, done.err.as_str()), (Some(3), ""), "{script}");
        let object: serde_json::Value = serde_json::from_str(done.out.lines().next().unwrap()).unwrap();
        assert_eq!(object["type"], "torn");
        assert_eq!((&object["writer"], &object["bytes"]), (&"7:9".into(), &4.into()), "{script}");
        assert!(object["reason"].as_str().unwrap().contains("writer 7:9"), "{object}");
        assert_eq!(object.get("command").is_some(), script.contains("run"), "{object}");
    }
}

/// Starts a command on its own terminal; returns the keyboard's and the screen's end.
fn on_a_terminal(command: &str) -> (Child, std::process::ChildStdin, ChildStdout) {
    let mut child = shell(&Folder::new(), &format!("exec script -qec '{command}' /dev/null"))
        .current_dir("/")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let (typed, shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (child, typed, shown)
}

/// Reads the terminal's output up to `words`, which must come.
fn until(shown: &mut ChildStdout, words: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(words.as_bytes()) {
        let mut byte = [0];
        assert_eq!(shown.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&text));
        text.extend(byte);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn run_shows_a_question_without_a_newline_on_a_terminal() {
    let ask = "printf \"name? \"; read name; echo \"hello $name\"; pipework send -q -m message; printf bye";
    let (mut child, mut typed, mut shown) = on_a_terminal(&format!("pipework run -s '\\''{ask}'\\''"));
    until(&mut shown, "name? ");
    typed.write_all(b"you\n").unwrap();
    let rest = until(&mut shown, "bye");
    assert!(rest.replace('\r', "").ends_with("\nhello you\nmessage\nbye"), "{rest:?}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn ctrl_c_and_signals_end_all_commands_on_a_terminal() {
    let trap = "trap \"echo ended; exit 5\" INT; echo ready; while :; do sleep 0.01; done";
    let (mut child, mut typed, mut shown) = on_a_terminal(&format!("pipework run -s '\\''{trap}'\\''"));
    until(&mut shown, "ready\r\n");
    typed.write_all(b"\x03").unwrap();
    until(&mut shown, "ended\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let run = "pipework run -s \"sleep 1000 & echo \\$!; sleep 1000\"; echo status $?";
    let script = format!("({run}) & wait");
    let (mut child, _typed, mut shown) = on_a_terminal(&script);
    let orphan = until(&mut shown, "\n").trim().to_string();
    let parent = |id: &str| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().to_string()
    };
    send_signal(parent(&parent(&orphan)).parse().unwrap(), Signal::TERM);
    until(&mut shown, "status 143\r\n");
    assert!(child.wait().unwrap().success());
    gone(&orphan);
}

#[test]
fn run_writes_a_message_in_time_linear_in_its_size() {
    // Compares the CPU time of 40 times as many bytes; a quadratic algorithm would take 1600 times.
    let cpu = |bytes: usize| {
        let script = format!(
            "head -c {bytes} /dev/zero > in; \
             bash -c 'TIMEFORMAT=%U; time pipework run -m /dev/null pipework send -m -f in' 2>&1"
        );
        clean(&script).trim().parse::<f64>().unwrap()
    };
    let (small, large) = (cpu(6_000_000), cpu(240_000_000));
    assert!(large < 200.0 * small.max(0.01), "{small} s for 6 MB, {large} s for 240 MB");
}
