//! `pipework doctor`: its findings, its fixes, and the files that it does not touch.

use crate::ls::{left, segment, wait_until, worker};
use crate::terminal::Terminal;
use crate::{Folder, Outcome, PIPEWORK, clean, fails, left_out, sh, shell};
use pipework::atomic::create_fifo;
use pipework::reqrep::{Blob, Options, Segment};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// Runs a script that must print all of `words` and end with that status.
fn says(folder: &Folder, status: i32, words: &[&str], script: &str) -> Outcome {
    let done = sh(folder, script);
    assert_eq!((done.status, &*done.err), (Some(status), ""), "{}", done.out);
    for word in words {
        assert!(done.out.contains(word), "{script}: no {word:?} in {}", done.out);
    }
    done
}

#[test]
fn doctor_changes_nothing_if_nothing_is_wrong() {
    let folder = Folder::new();
    let used = segment(folder.join("used"));
    let _server = used.server().unwrap();
    let _open = segment(folder.join("open"));
    create_fifo(folder.join("fifo")).unwrap();
    let done =
        says(&folder, 0, &["used: in use, 1 server", "open: open, 0 servers"], "pipework doctor --yes .");
    assert_eq!(done.out.matches("nothing is wrong").count(), 3, "{}", done.out);
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 3);
}

#[test]
fn doctor_takes_back_the_slots_of_dead_members() {
    let folder = Folder::new();
    left(folder.join("work"));
    let segment = Options::new().open(folder.join("work")).unwrap();
    let client = segment.client().unwrap();
    let dead = || segment.members().unwrap().iter().filter(|member| !member.is_alive).count();
    // The client took the dead server's number, and recovered it.
    assert_eq!(dead(), 0);
    let mut server = worker(&segment);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(dead(), 1);
    says(&folder, 3, &["in use, 0 servers, 1 client, 1 dead", "1 member died"], "pipework doctor work");
    assert_eq!(dead(), 1);
    says(&folder, 0, &["taken back from 1 dead member"], "pipework doctor --yes work");
    assert_eq!(dead(), 0);
    drop(client);
}

#[test]
fn doctor_removes_abandoned_channels_only_after_a_yes() {
    let folder = Folder::new();
    left(folder.join("left"));
    fs::copy(folder.join("left"), folder.join("copy")).unwrap();
    let finds = ["copy: broken, it is a copy", "left: left, 0 servers, 0 clients, 1 dead", "and it takes"];
    says(&folder, 3, &finds, "pipework doctor .");
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 2);
    let done = says(&folder, 3, &["removed"], "pipework doctor --json --yes .");
    let objects: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[1]["findings"].as_array().unwrap().last().unwrap()["fixed"], true);
    // Someone made the copy on purpose, so only a person may remove it.
    assert_eq!(objects[0]["findings"][0]["fixed"], false);
    assert!(folder.join("copy").exists() && !folder.join("left").exists());
    let mut terminal = Terminal::run(&folder, (24, 80), "exec pipework doctor copy");
    terminal.wait_for("remove it? [y/N] ");
    terminal.press("y\n");
    assert_eq!(terminal.end().code(), Some(0));
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0);
}

#[test]
fn doctor_never_removes_an_open_file() {
    let folder = Folder::new();
    left(folder.join("cut"));
    let file = File::options().write(true).open(folder.join("cut")).unwrap();
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
    drop(file);
    // The channel is unusable, but a process reads it.
    let mut holds = shell(&folder, "exec 9< cut; echo; exec sleep 60").spawn().unwrap();
    holds.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let refused = format!("not removed: process {} has it open", holds.id());
    says(&folder, 3, &[&refused], "pipework doctor --yes .");
    holds.kill().unwrap();
    holds.wait().unwrap();
    assert!(folder.join("cut").exists());
    says(&folder, 0, &["removed"], "pipework doctor --yes .");
}

/// A blob that this process holds, and a file beside it as a process leaves it that dies.
fn held_and_left(segment: &Segment) -> Blob {
    let blob = segment.blob(5000).unwrap().freeze().unwrap();
    let held = fs::read_dir(segment.blob_folder()).unwrap().next().unwrap().unwrap().path();
    fs::copy(&held, held.with_file_name("0".repeat(32))).unwrap();
    blob
}

#[test]
fn views_show_blobs_and_doctor_frees_those_that_a_death_left() {
    let folder = Folder::new();
    let segment = segment(folder.join("work"));
    let client = segment.client().unwrap();
    let blob = held_and_left(&segment);
    let counts = json!({
        "files": 2, "bytes": 24576, "held": 1, "named": 0, "left": 1, "left_bytes": 12288,
    });
    for view in ["ls --json work", "top --once --json work", "doctor --json work"] {
        let done = sh(&folder, &format!("pipework {view}"));
        let object: Value = serde_json::from_str(done.out.lines().next().unwrap()).unwrap();
        assert_eq!(object["blobs"], counts, "{view}: {}", done.out);
    }
    for view in ["ls work", "top --once work"] {
        says(&folder, 0, &["in 2 blob files, 1 left behind"], &format!("pipework {view}"));
    }
    says(&folder, 3, &["dead processes left blobs: 1 file"], "pipework doctor work");
    says(&folder, 0, &["taken back from 0 dead members, and"], "pipework doctor --yes work");
    assert_eq!((segment.blob_audit().files, segment.blob_audit().held, blob.len()), (1, 1, 5000));
    says(&folder, 0, &["nothing is wrong"], "pipework doctor work");
    drop(client);
}

#[test]
fn doctor_removes_blobs_of_a_gone_channel_unless_a_process_has_it_open() {
    let folder = Folder::new();
    let segment = segment(folder.join("work"));
    let blob = held_and_left(&segment);
    says(&folder, 3, &["work: open"], "pipework doctor .");
    // Unlike `unlink`, this leaves the blobs.
    fs::remove_file(folder.join("work")).unwrap();
    let open = format!("not removed: process {} has the channel open", std::process::id());
    says(&folder, 3, &["the channel of these blobs is gone", &open], "pipework doctor --yes .");
    drop((blob, segment));
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1);
    says(&folder, 3, &["the channel of these blobs is gone"], "pipework doctor .");
    let done = says(&folder, 0, &["in 1 file"], "pipework doctor --yes --json .");
    let object: Value = serde_json::from_str(done.out.trim()).unwrap();
    assert_eq!((&object["kind"], &object["findings"][0]["fixed"]), (&json!("blobs"), &json!(true)));
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0);
}

#[test]
fn doctor_removes_the_blobs_with_their_channel() {
    let folder = Folder::new();
    left(folder.join("left"));
    let segment = Options::new().open(folder.join("left")).unwrap();
    drop(held_and_left(&segment));
    drop(segment);
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 2);
    says(&folder, 0, &["removed"], "pipework doctor --yes .");
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0);
}

/// A message of the command begins with the same eight bytes as a channel.
#[test]
fn log_of_the_command_is_not_taken_for_a_channel() {
    let folder = Folder::new();
    sh(&folder, "seq 6 | pipework run --arg-file - false 2> errors.log; test -s errors.log");
    let log = fs::read(folder.join("errors.log")).unwrap();
    assert!(log.starts_with(b"pipework") && log.len() > 128, "{log:?}");
    sh(&folder, "pipework doctor --yes .");
    assert_eq!(fs::read(folder.join("errors.log")).unwrap(), log);
    let done = sh(&folder, "pipework doctor --yes errors.log");
    assert!(done.err.contains("neither a channel nor a FIFO"), "{}", done.err);
    assert_eq!(fs::read(folder.join("errors.log")).unwrap(), log);
}

/// A segment with a forgotten request: its client will not ask for the reply.
fn forgotten(path: &Path) -> Segment {
    let segment = segment(path);
    let client = segment.client().unwrap();
    client.forget(client.send("work", SOON).unwrap()).unwrap();
    segment
}

#[test]
fn doctor_drops_requests_only_if_a_person_confirms() {
    let folder = Folder::new();
    let segment = forgotten(&folder.join("work"));
    says(&folder, 3, &["1 request without a server: is it still to be started?"], "pipework doctor --yes .");
    drop(segment);
    let words = ["1 request without a server would be lost"];
    says(&folder, 3, &words, "pipework doctor --yes .");
    for (keys, status) in [("\n", 3), ("n\n", 3), ("\u{4}", 3), ("yes\n", 0)] {
        let mut terminal = Terminal::run(&folder, (24, 80), "exec pipework doctor work");
        terminal.wait_for("remove it? [y/N] ");
        assert!(terminal.text().contains(words[0]));
        terminal.press(keys);
        assert_eq!(terminal.end().code(), Some(status), "{keys:?}");
        assert_eq!(folder.join("work").exists(), status == 3, "{keys:?}");
    }
}

/// The channel was empty when doctor asked the person.
#[test]
fn request_sent_before_the_answer_keeps_the_channel() {
    loop {
        let folder = Folder::new();
        let path = folder.join("work");
        drop(segment(&path));
        let mut terminal = Terminal::run(&folder, (24, 80), "exec pipework doctor work");
        terminal.wait_for("remove it? [y/N] ");
        let open = pipework::reqrep::Options::new().open(&path).unwrap();
        let client = open.client().unwrap();
        client.forget(client.send("work", SOON).unwrap()).unwrap();
        drop((client, open));
        terminal.press("yes\n");
        terminal.wait_for("not removed: ");
        // A process that another test starts has copies of this process's descriptors until it runs its
        // program.
        if !terminal.text().contains("a process has it open") {
            terminal.wait_for("not removed: requests wait in it by now: 1");
            assert_eq!(terminal.end().code(), Some(3));
            assert!(path.exists());
            return;
        }
    }
}

#[test]
fn requests_of_dead_clients_do_not_keep_a_channel() {
    let folder = Folder::new();
    let segment = segment(folder.join("work"));
    fs::write(folder.join("text"), "a\nb\n").unwrap();
    let mut client = Command::new(PIPEWORK)
        .args(["demo-peer", "--start=0", "--len=4", "--segment"])
        .arg(folder.join("work"))
        .stdin(File::open(folder.join("text")).unwrap())
        .spawn()
        .unwrap();
    wait_until("its requests wait", || segment.waiting() == 2);
    client.kill().unwrap();
    client.wait().unwrap();
    drop(segment);
    says(&folder, 0, &["taken back from 1 dead member", "    removed"], "pipework doctor --yes work");
    assert!(!folder.join("work").exists());
}

#[test]
fn doctor_keeps_fifos_of_many_users_where_proc_hides_processes() {
    let folder = Folder::new();
    let enter = "mount -t tmpfs none /mnt && mount -t proc -o hidepid=2 proc /proc";
    if sh(&folder, &format!("unshare --mount sh -c '{enter}'")).status != Some(0) {
        assert!(std::env::var_os("PIPEWORK_MUST_MOUNT").is_none(), "this process may not mount /proc");
        return left_out("FIFOs where /proc hides processes", "this process may not mount it");
    }
    let script = format!(
        "unshare --mount sh -ec '{enter}; cp $(command -v pipework) /mnt; cd /mnt; chmod 777 .
            as_nobody=\"setpriv --reuid 65534 --regid 65534 --clear-groups\"
            $as_nobody mkfifo -m 666 shared; $as_nobody mkfifo -m 600 own
            status=0; $as_nobody ./pipework doctor --yes --fifos . || status=$?
            echo *; exit $status'"
    );
    says(
        &folder,
        3,
        &["own: unused", "removed\n", "do not show what they have open", "pipework shared\n"],
        &script,
    );
}

#[test]
fn doctor_removes_only_unused_fifos_and_only_with_fifos() {
    let folder = Folder::new();
    for name in ["unused", "used", "read", "written", "logged", "sent", "stream"] {
        create_fifo(folder.join(name)).unwrap();
    }
    let mut uses = shell(&folder, "exec 9<>used; echo; exec sleep 60").spawn().unwrap();
    uses.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut waiting = ["exec cat read", "exec cat /dev/null > written"]
        .map(|script| shell(&folder, script).spawn().unwrap());
    let wait = |id: u32| fs::read_to_string(format!("/proc/{id}/wchan")).unwrap() == "wait_for_partner";
    let ids = waiting.each_ref().map(|child| child.id());
    wait_until("both wait", || ids.into_iter().all(wait));
    // These programs poll instead of waiting in the kernel.
    let mut trying = [
        ("logged", "exec pipework run -m logged true"),
        ("sent", "exec pipework send --timeout 1000 --to sent x"),
        ("stream", "exec 9<>used; exec pipework tee stream <&9 > out"),
    ]
    .map(|(name, script)| (name, shell(&folder, script).spawn().unwrap()));
    wait_until("all try", || {
        trying.iter().all(|(name, child)| {
            let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
            open.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path.ends_with(name)))
        })
    });
    says(&folder, 0, &["unused: unused"], "pipework doctor --yes .");
    assert!(folder.join("unused").exists());
    says(&folder, 3, &["not removed: process", "  removed\n"], "pipework doctor --yes --fifos .");
    let mut names: Vec<_> = fs::read_dir(&*folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["logged", "out", "read", "sent", "stream", "used", "written"]);
    assert!(ids.into_iter().all(wait), "a waiting process went on");
    for child in waiting.iter_mut().chain([&mut uses]).chain(trying.iter_mut().map(|(_, child)| child)) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    says(&folder, 0, &["removed"], "pipework doctor --yes --fifos .");
    // The text that tee passed on.
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1);
}

#[test]
fn doctor_reports_unread_bytes_in_a_pipe_without_a_reader() {
    let folder = Folder::new();
    create_fifo(folder.join("jobs")).unwrap();
    let script = "exec 9<>jobs; pipework send --to jobs one two 9>&-; pipework recv --from jobs --count 1 9>&-; \
                  exec 8>jobs 9>&-; pipework doctor jobs";
    says(&folder, 3, &["one", "wait, and no process reads"], script);
}

#[test]
fn doctor_reports_damage() {
    let folder = Folder::new();
    let work = segment(folder.join("work"));
    let _server = work.server().unwrap();
    // The head of the last slot, behind its handles, gets a state that does not exist.
    let file = File::options().write(true).open(folder.join("work")).unwrap();
    let sizes = work.geometry();
    let first = (4096 + 128 * sizes.members + 8 * sizes.queue).next_multiple_of(64);
    let end = file.metadata().unwrap().len() - 64;
    let stride = (end - u64::from(first)) / u64::from(sizes.slots);
    file.write_all_at(&[0x0F], end - stride + u64::from(64 * (sizes.blobs + 1))).unwrap();
    says(&folder, 3, &["1 slot hold"], "pipework doctor --yes work");
    assert!(folder.join("work").exists());
}

#[test]
fn doctor_system_checks_this_machine() {
    let folder = Folder::new();
    let done = sh(&folder, "ulimit -n 200; pipework doctor --system --json");
    let checks: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    let expected = [
        "kernel",
        "call",
        "news of deaths",
        "seccomp",
        "/dev/shm",
        "pipe",
        "pipe-user-pages-soft",
        "pipe-user-pages-hard",
        "CPUs",
        "CPU quota",
        "RLIMIT_NOFILE",
    ];
    assert_eq!(names, expected);
    assert!(checks.iter().all(|check| check["meaning"].as_str().unwrap().len() > 10));
    assert_eq!((&checks[1]["level"], &checks[10]["level"]), (&"ok".into(), &"note".into()));
    let is_sick = checks.iter().any(|check| check["level"] == "problem");
    assert_eq!(done.status, Some(if is_sick { 3 } else { 0 }));
}

#[test]
fn doctor_fails_on_bad_arguments() {
    fails(1, &["missing: No such file"], "pipework doctor missing");
    fails(2, &["--system"], "pipework doctor --system .");
    fails(2, &["--system", "--yes"], "pipework doctor --system --yes");
    fails(2, &["--system", "--fifos"], "pipework doctor --system --fifos");
    let nothing = sh(&Folder::new(), "pipework doctor .");
    assert_eq!(
        (nothing.status, &*nothing.out, &*nothing.err),
        (Some(0), "", "pipework: nothing found in .\n")
    );
    assert_eq!(clean("pipework doctor --json .; pipework doctor --quiet ."), "");
}
