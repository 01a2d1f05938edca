//! Standard output, standard error or a log is a full pipe without a reader. One signal still ends
//! every subcommand, and it reports its losses where it can.

use crate::{Folder, shell};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// `full` is a full pipe; `inbox` a FIFO with one message.
const BEFORE: &str = "mkfifo full inbox; exec 9<> full 8<> inbox
    dd if=/dev/zero of=full bs=4096 count=64 oflag=nonblock 2> dd
    pipework send --to inbox message 2> sent;";

/// A subcommand, its script, the words that it must print if standard error is a file, and its exit
/// status if that is not 128 plus the signal's number. Each script ends with `exec pipework`. The
/// file `ready` exists when the signal may come; a script that makes none may get the signal as soon
/// as the command runs.
const CASES: &[(&str, &str, &str, Option<i32>)] = &[
    // Standard output.
    (
        "run",
        "exec pipework run -s 'echo text; : > ready; exec sleep 1000' > full 2> said",
        "standard output: not taken in time: 5 bytes left out",
        None,
    ),
    (
        "run",
        "exec pipework run -s 'echo text; trap \"\" TERM INT; : > ready; sleep 1000; :' > full 2> said",
        "standard output: not taken in time: 5 bytes left out",
        None,
    ),
    (
        "run",
        "exec pipework run --json -s 'echo text; : > ready; exec sleep 1000' > full 2> said",
        "standard output: not taken in time: ",
        None,
    ),
    (
        "run",
        "exec pipework run --keep-order -s 'echo text; : > ready; exec sleep 1000' -s 'echo more' > full 2> said",
        "standard output: not taken in time: ",
        None,
    ),
    (
        "tee",
        "(printf '%5000s' x; : > ready; exec sleep 1000) > inbox &
         exec pipework tee log < inbox > full 2> said",
        "standard output: not taken in time: ",
        None,
    ),
    ("recv", "exec pipework recv --from inbox > full", "", None),
    ("send", "exec pipework send hello > full", "", None),
    ("call", "pipework serve -q channel -- cat & exec pipework call --wait channel hello > full", "", None),
    ("ls", "exec pipework ls . > full", "", None),
    ("doctor", "exec pipework doctor . > full", "", None),
    ("top", "exec pipework top --once --interval 0.1 full > full", "", None),
    ("top", "exec pipework top --json --once --interval 0.1 full > full", "", None),
    ("bench", "exec pipework bench --quick pipe > full", "", None),
    ("demo", "exec pipework demo --quick > full", "", None),
    ("completions", "exec pipework completions bash > full", "", None),
    ("man", "exec pipework man > full", "", None),
    // Standard error.
    ("run", "exec pipework run -s 'exit 1' -s ': > ready; exec sleep 1000' 2> full", "", None),
    // The command has only its report left to print.
    ("run", "exec pipework run -s 'exit 1' -s ': > ready; exit 2' 2> full", "", None),
    (
        "run",
        "exec pipework run --stderr tagged -s 'echo text >&2; : > ready; exec sleep 1000' 2> full",
        "",
        None,
    ),
    ("tee", "(seq 10; : > ready; exec sleep 1000) > inbox & exec pipework tee log < inbox 2> full", "", None),
    (
        "tee",
        "(pipework send x; : > ready; exec sleep 1000) > inbox & exec pipework tee -c < inbox 2> full",
        "",
        None,
    ),
    (
        "recv",
        "(sleep 1000 > inbox) & exec pipework recv --from inbox --exec sh -c ': > ready; exit 1' 2> full",
        "",
        Some(1),
    ),
    ("recv", "seq 100 > inbox; exec pipework recv --from inbox 2> full", "", None),
    ("top", "exec pipework top --prometheus 0 2> full", "", Some(0)),
    ("serve", "exec pipework serve channel -- cat 2> full", "", Some(0)),
    ("ls", "mkdir none; cd none; exec pipework ls . 2> ../full", "", None),
    ("send", "exec pipework send --to none hello 2> full", "", None),
    ("call", "exec pipework call none hello 2> full", "", None),
    ("doctor", "exec pipework doctor none 2> full", "", None),
    // A log.
    (
        "run",
        "exec pipework run -m full -s 'pipework send -m x; : > ready; exec sleep 1000' 2> said",
        "messages: not taken in time: 1 message left out",
        None,
    ),
    // A started command holds a message.
    ("run", "exec pipework run -m exec:': > ready; exec sleep 1000' pipework send -m x", "", None),
    (
        "tee",
        "(pipework send x; : > ready; exec sleep 1000) > inbox & exec pipework tee full < inbox 2> said",
        "full: not written in time: entries left out, at most: 2",
        None,
    ),
];

/// The subcommands without output of their own.
const NONE: [&str; 1] = ["nats"];

#[test]
fn one_signal_ends_every_subcommand_whose_output_is_full() {
    let names: BTreeSet<_> = CASES.iter().map(|case| case.0.to_string()).collect();
    let all = crate::every::subcommands();
    assert_eq!(names, all.into_iter().filter(|name| !NONE.contains(&name.as_str())).collect());
    thread::scope(|scope| {
        for case in CASES {
            for signal in [Signal::INT, Signal::TERM] {
                scope.spawn(move || check(*case, signal));
            }
        }
    });
}

fn check((name, script, says, status): (&str, &str, &str, Option<i32>), signal: Signal) {
    let folder = Folder::new();
    let mut command = shell(&folder, &format!("{BEFORE} {script}"));
    let mut child = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = child.id();
    let group = Pid::from_raw(id as i32).unwrap();
    let began = Instant::now();
    let mut wait = |what: &str, holds: &mut dyn FnMut(&mut Child) -> bool| {
        while !holds(&mut child) {
            let is_in_time = began.elapsed() < Duration::from_secs(100);
            if !is_in_time {
                let _ = kill_process_group(group, Signal::KILL);
            }
            assert!(is_in_time, "{script}: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let runs = || fs::read(format!("/proc/{id}/comm")).is_ok_and(|name| name == b"pipework\n");
    // Subcommands that report something or end with another status install their handlers first.
    let holds = || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or("0");
        u64::from_str_radix(blocked.trim(), 16).is_ok_and(|set| set & 1 << (signal.as_raw() - 1) != 0)
    };
    let is_caught = || (says.is_empty() && status.is_none()) || name == "recv" || holds();
    let is_ready = || !script.contains("ready") || folder.join("ready").exists();
    // With the signal before its error, it would end with the status of the error.
    let is_printing = || {
        let mut threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let call =
            |thread: fs::DirEntry| fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        !script.starts_with("seq 100") || threads.any(|thread| call(thread).split(' ').nth(1) == Some("0x2"))
    };
    wait("it does not run", &mut |_| runs() && is_caught() && is_ready() && is_printing());
    crate::run::send_signal(id, signal);
    let mut ended = None;
    wait(&format!("it does not end after {signal:?}"), &mut |child| {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    let shown = ended.and_then(|ended| ended.code().or(ended.signal().map(|number| 128 + number)));
    assert_eq!(shown, Some(status.unwrap_or(128 + signal.as_raw())), "{script}");
    let said = fs::read_to_string(folder.join("said")).unwrap_or_default();
    assert!(said.contains(says), "{script}: {said}");
    // Ends the background processes of the script.
    let _ = kill_process_group(group, Signal::KILL);
}
