//! Standard streams that are closed, full, non-blocking or shared: each loss is reported and gives a
//! failing status.

use crate::{Folder, PIPEWORK, clean, fails, left_to_test_all, sh, shell};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Every way to print to standard output.
const PRINTERS: [&str; 17] = [
    "pipework recv --from inbox",
    "pipework run echo text",
    // The command may notice that `run` is about to end, and fail.
    "pipework run --json sh -c 'pipework send -m message 2>&-; :'",
    "pipework tee log < inbox",
    "pipework ls .",
    "pipework doctor .",
    "pipework top --once --interval 0.1 inbox",
    "pipework bench --quick pipe",
    "pipework demo --quick",
    "pipework completions bash",
    "pipework completions fish",
    "pipework man",
    "pipework --help",
    "pipework -h",
    "pipework help",
    "pipework help recv",
    "pipework --version",
];

/// Puts a message into `inbox`, where it waits for the next receiver.
const INBOX: &str = "mkfifo inbox; exec 9<>inbox; pipework send --to inbox kept 9>&-;";

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for printer in PRINTERS {
        fails(1, &["standard output", "No space"], &format!("{INBOX} {printer} > /dev/full"));
        fails(1, &["standard output is closed"], &format!("{INBOX} {printer} >&-"));
        // Standard output is open, but only for reading.
        fails(1, &["standard output", "Bad file"], &format!("{INBOX} {printer} 1< /dev/null"));
        let closed = "until [ -e closed ]; do sleep 0.01; done";
        let script = format!(
            "{INBOX} ({closed}; {printer}; echo $? > status) | {{ exec <&-; : > closed; }}; cat status"
        );
        assert_eq!(clean(&script), "141\n", "{printer}");
    }
}

#[test]
fn recv_with_closed_standard_output_takes_no_message() {
    let rest = "pipework recv --from inbox --count 1";
    for lost in ["pipework recv --from inbox >&-", "pipework recv --exec cat --from inbox >&-"] {
        let script = format!("{INBOX} {lost} 2> err; echo $?; {rest}; cat err");
        assert_eq!(clean(&script), "1\nkeptpipework: standard output is closed\n");
    }
}

#[test]
fn closed_standard_input_is_not_taken_for_an_empty_one() {
    let send = "(pipework send OPTIONS <&-; echo $? > status) | pipework recv --json; cat status >&2";
    for options in ["", "--lines", "--nul", "--files -", "--files /dev/stdin"] {
        let done = sh(&Folder::new(), &send.replace("OPTIONS", options));
        assert_eq!(done.out, "", "{options}: nothing was sent");
        assert!(done.err.contains("standard input is closed") && done.err.ends_with("1\n"), "{}", done.err);
    }
    fails(1, &["standard input is closed"], "pipework recv <&-");
    fails(1, &["standard output is closed"], "pipework send x >&-");
    // If no message can be printed, the status still says it.
    for silent in ["pipework recv 2>&- <&-", "pipework run --messages fd:2 echo 2>&-"] {
        assert_eq!(sh(&Folder::new(), silent).status, Some(1), "{silent}");
    }
    assert_eq!(clean("pipework send x 2>&- | pipework recv 2>&-"), "x");
}

/// Names and reasons from other processes are shown without their control characters.
#[test]
fn names_and_reasons_are_escaped_on_a_terminal() {
    let folder = Folder::new();
    let script = "bad=$(printf 'a\\033[2J\\233b'); mkfifo $bad; mkdir d; : > d/$bad
        pipework serve channel$bad -- sh -c 'printf \"\\033[2Jbad\\n\" >&2; exit 1' 2> served & S=$!
        pipework call --wait channel$bad x; kill $S
        pipework call no$bad x; pipework send --to no$bad x; pipework send --to d/$bad x
        pipework recv --from no$bad; pipework recv --from d/$bad; pipework tee no$bad/x < $bad & : > $bad; wait
        pipework run no$bad; pipework run --tag sh -c 'exit 3' $bad; pipework run -m no$bad/x true
        pipework run -a no$bad echo; pipework ls .; pipework ls no$bad; pipework doctor . no$bad
        pipework doctor --yes --fifos $bad; pipework top --once no$bad; pipework send --dictionary no$bad x; :";
    let done = shell(&folder, script).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "{out}\n{err}");
    assert!(err.matches("\\x1b[2J").count() > 10 && out.contains("\\x1b[2J"), "{out}\n{err}");
}

#[test]
fn recv_exec_takes_no_message_if_its_command_is_missing() {
    for (command, status) in [("no-such-command", 127), ("./no-such-file", 127), ("./plain", 126)] {
        let script = format!(
            ": > plain; {INBOX} pipework recv --from inbox --exec {command} 2> err; echo $?; \
             pipework recv --from inbox --count 1; echo; cat err"
        );
        let out = clean(&script);
        assert!(out.starts_with(&format!("{status}\nkept\n")), "{out}");
        assert!(out.contains(command) && out.contains("no message was taken"), "{out}");
    }
}

/// Runs `command` with one of its streams a pipe that another process has made non-blocking, and
/// that is slower than the command.
#[test]
fn non_blocking_streams_lose_nothing() {
    let folder = Folder::new();
    let lines: String = (0..300_000).map(|i| format!("{i} {}\n", "x".repeat(i % 80))).collect();
    fs::write(folder.join("in"), &lines).unwrap();

    let slowly = |mut reader: io::PipeReader| {
        let mut all = Vec::new();
        let mut piece = vec![0; 200_000];
        while let len @ 1.. = reader.read(&mut piece).unwrap() {
            all.extend_from_slice(&piece[..len]);
            thread::yield_now();
        }
        all
    };
    for command in [
        "pipework send --lines < in | pipework recv --lines",
        "pipework run cat in",
        "pipework run -j cat in",
    ] {
        let (reader, writer) = io::pipe().unwrap();
        ioctl_fionbio(&writer, true).unwrap();
        let mut child = shell(&folder, command).stdout(writer).stderr(Stdio::inherit()).spawn().unwrap();
        let all = slowly(reader);
        assert!(child.wait().unwrap().success(), "{command}");
        if command.contains("-j") {
            // One more line for the end of the command.
            assert_eq!(all.iter().filter(|byte| **byte == b'\n').count(), 300_001, "{command}");
        } else {
            assert!(all == lines.as_bytes(), "{command}: {} of {} bytes", all.len(), lines.len());
        }
    }

    let (reader, mut writer) = io::pipe().unwrap();
    ioctl_fionbio(&reader, true).unwrap();
    let mut sender = Command::new(PIPEWORK)
        .args(["send", "--lines"])
        .stdin(reader)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut receiver = shell(&folder, "pipework recv --lines | cmp - in")
        .stdin(sender.stdout.take().unwrap())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    for piece in lines.as_bytes().chunks(1_000_000) {
        writer.write_all(piece).unwrap();
        thread::yield_now();
    }
    drop(writer);
    assert!(sender.wait().unwrap().success() && receiver.wait().unwrap().success());
}

/// Standard output or standard error is a full pipe without a reader.
#[test]
fn signal_ends_recv_and_serve_although_an_output_is_full() {
    if left_to_test_all("it waits for seconds in each of many cases") {
        return;
    }
    let text = "while echo text; do pipework send -m x; done | pipework";
    let cases = [
        (1, "(yes | pipework send --lines --to f) & exec pipework recv --from f --lines".to_string()),
        (1, "(yes | pipework send --lines --to f) & exec pipework recv --from f --forever --json".into()),
        (1, "yes | pipework send --lines | pipework recv --lines".into()),
        (1, format!("{text} recv --mixed --exec true")),
        (2, "(yes | pipework send --lines --to f) & exec pipework recv --from f --exec false".into()),
        (
            2,
            "(while head -c 9000 /dev/zero; do :; done | pipework send -l --to f) & \
             exec pipework recv --from f --max-message 1"
                .into(),
        ),
        (
            2,
            "(pipework call --wait ch x &); exec pipework serve ch -- \
             sh -c 'yes | head -c 1000000 >&2'"
                .into(),
        ),
        (
            2,
            "(pipework call --wait ch x &); exec pipework serve --lines ch -- \
             sh -c 'while read x; do yes | head -c 1000000 >&2; echo; done'"
                .into(),
        ),
    ];
    for (stream, script) in &cases {
        for signal in [Signal::TERM, Signal::INT] {
            let folder = Folder::new();
            let (_reader, writer) = io::pipe().unwrap();
            ioctl_fionbio(&writer, true).unwrap();
            while (&writer).write(&[b'x'; 4096]).is_ok() {}
            ioctl_fionbio(&writer, false).unwrap();
            let script = format!("mkfifo f; {script}");
            let mut command = shell(&folder, &script);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            match stream {
                1 => command.stdout(writer),
                _ => command.stderr(writer),
            };
            command.process_group(0);
            let mut child = command.spawn().unwrap();
            let id = receiver(&child);
            until_still(id);
            kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
            let began = Instant::now();
            while Path::new(&format!("/proc/{id}/fd/0")).exists() {
                assert!(began.elapsed() < Duration::from_secs(60), "{script}: {signal:?}");
                thread::sleep(Duration::from_millis(10));
            }
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait().unwrap();
        }
    }
}

/// Finds the process of `pipework recv` or `serve` among a shell and its children.
fn receiver(child: &Child) -> i32 {
    let is_one = |id: &i32| {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.starts_with(b"pipework\0recv\0") || words.starts_with(b"pipework\0serve\0")
    };
    loop {
        let mut ids = vec![child.id() as i32];
        let mut next = 0;
        while let Some(id) = ids.get(next) {
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            ids.extend(children.split_whitespace().filter_map(|id| id.parse::<i32>().ok()));
            next += 1;
        }
        if let Some(id) = ids.into_iter().find(is_one) {
            return id;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a process makes no more progress.
fn until_still(id: i32) {
    let io = || fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let mut last = String::new();
    let mut same = 0;
    while same < 25 {
        let now = io();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        thread::sleep(Duration::from_millis(20));
    }
}
