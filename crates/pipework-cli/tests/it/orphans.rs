//! Processes that commands leave behind, where the kernel gives them to `pipework`: as the first
//! process of a container, and as a process that has asked for orphans, as here.

use crate::ls::wait_until;
use crate::run::send_signal;
use crate::{Folder, sh, shell};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

/// Starts a program that the kernel gives orphans to: PR_SET_CHILD_SUBREAPER is 36.
const ADOPT: &str =
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])";
/// Leaves a process that ends a little later.
const LEAVE: &str = "(sleep 0.05 > /dev/null 2>&1 &)";

fn adopting(folder: &Folder, command: &str) -> Child {
    shell(folder, &format!("exec python3 -c '{ADOPT}' {command}")).spawn().unwrap()
}

/// The state of each child of a process.
fn children(id: u32) -> Vec<char> {
    let state = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, behind) = stat.rsplit_once(") ")?;
        let mut fields = behind.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(id)).then_some(state)
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(state).collect()
}

#[test]
fn serve_leaves_no_zombie_of_the_orphans_that_it_gets() {
    let folder = Folder::new();
    let mut server = adopting(&folder, &format!("pipework serve --workers 4 ch -- sh -c '{LEAVE}; cat'"));
    let called = sh(&folder, "seq 60 | pipework call --wait --lines -n 4 ch | sort -n | tail -n 1");
    assert_eq!((&*called.out, &*called.err), ("60\n", ""));
    wait_until("only the server is left", || children(server.id()).len() == 1);
    send_signal(server.id(), Signal::TERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!folder.join("ch").exists(), "it has ended as it should");
}

#[test]
fn run_and_recv_get_the_statuses_of_their_own_commands_beside_orphans() {
    let folder = Folder::new();
    let leave = [LEAVE; 20].join("; ") + "; : > left";
    for command in [
        format!("pipework run sh -c '{leave}; until [ -e go ]; do sleep 0.02; done; exit 7'"),
        format!("pipework run -P 1 sh -c '{leave}; exit 7' ::: sh -c 'until [ -e go ]; do sleep 0.02; done'"),
        format!(
            "pipework recv --from f --create --exec sh -c '{leave}; until [ -e go ]; do sleep 0.02; done; exit 7'"
        ),
    ] {
        for name in ["go", "left"] {
            let _ = fs::remove_file(folder.join(name));
        }
        let mut child = adopting(&folder, &command);
        if command.contains("recv") {
            sh(&folder, "until [ -p f ]; do sleep 0.02; done; pipework send --to f x");
        }
        let is_left = || folder.join("left").exists() && children(child.id()).len() == 1;
        wait_until("the orphans have been reaped", is_left);
        fs::write(folder.join("go"), "").unwrap();
        let status = child.wait().unwrap().code();
        assert_eq!(status, Some(if command.contains("recv") { 1 } else { 7 }), "{command}");
    }
    // As the first process of a container, where that may be made.
    let is_allowed = sh(&folder, "unshare --pid --fork --mount-proc true").status == Some(0);
    if is_allowed {
        let script = format!(
            "unshare --pid --fork --mount-proc pipework run sh -c '{leave}; sleep 0.2
             until [ $(grep -l \") Z \" /proc/[0-9]*/stat | wc -l) = 0 ]; do sleep 0.05; done; echo $PPID; exit 7'; echo $?"
        );
        let done = sh(&folder, &format!("timeout 60 sh -c '{}'", script.replace('\'', "'\\''")));
        assert_eq!(done.out.lines().last(), Some("7"), "{done:?}");
    }
    // A signal that ends it, ends all of it.
    let mut child = adopting(&folder, "pipework run sh -c ': > runs; exec sleep 1000'");
    wait_until("it runs", || folder.join("runs").exists());
    send_signal(child.id(), Signal::TERM);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}
