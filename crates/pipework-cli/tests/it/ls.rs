//! `pipework ls`: channels and FIFOs with their users; looking changes nothing.

use crate::{Folder, PIPEWORK, clean, fails, outcome, sh, shell};
use pipework::atomic::create_fifo;
use pipework::reqrep::{Options, Segment};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A small segment.
pub(crate) fn segment(path: impl AsRef<Path>) -> Segment {
    Options::new().slots(4).members(4).request_bytes(100).reply_bytes(100).create(path).unwrap()
}

/// A process that is a server of the segment.
pub(crate) fn worker(segment: &Segment) -> Child {
    let before = segment.members().unwrap().len();
    let path = segment.path().unwrap();
    let child = Command::new(PIPEWORK).arg("demo-peer").arg(format!("--segment={}", path.display())).spawn();
    wait_until("it attaches", || segment.members().unwrap().len() > before);
    child.unwrap()
}

/// Makes a segment and kills its only member.
pub(crate) fn left(path: impl AsRef<Path>) {
    let segment = segment(path);
    let mut child = worker(&segment);
    child.kill().unwrap();
    child.wait().unwrap();
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited too long: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The objects that `pipework ls --json` prints for a path, each with its file's name.
fn listed(folder: &Folder, path: &str) -> Vec<(String, Value)> {
    let done = sh(folder, &format!("pipework ls --json {path}"));
    assert_eq!((done.status, &*done.err), (Some(0), ""));
    let objects = done.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let named = |object: Value| {
        let path = Path::new(object["path"].as_str().unwrap());
        (path.file_name().unwrap().to_str().unwrap().into(), object)
    };
    objects.map(named).collect()
}

/// The checksum of a header, as FILE.md defines it.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[test]
fn ls_shows_the_state_of_each_channel() {
    let folder = Folder::new();
    let used = segment(folder.join("used"));
    let _server = used.server().unwrap();
    let _open = segment(folder.join("open"));
    left(folder.join("left"));
    drop(segment(folder.join("cut")));
    File::options().write(true).open(folder.join("cut")).unwrap().set_len(5000).unwrap();
    drop(segment(folder.join("version")));
    let other = File::options().read(true).write(true).open(folder.join("version")).unwrap();
    let mut header = [0; 120];
    other.read_exact_at(&mut header, 0).unwrap();
    header[8] = 9;
    other.write_all_at(&header, 0).unwrap();
    other.write_all_at(&fnv1a(&header).to_le_bytes(), 120).unwrap();
    // A file that begins like a channel but is none.
    fs::write(folder.join("errors.log"), "pipework: `false`: it ended with status 1\n".repeat(9)).unwrap();
    fs::copy(folder.join("left"), folder.join("copy")).unwrap();
    // None of these is a channel.
    fs::write(folder.join("text"), "pipework").unwrap();
    fs::write(folder.join("page"), [b'p'; 9000]).unwrap();
    fs::write(folder.join("shut"), [b'p'; 9000]).unwrap();
    std::os::unix::fs::symlink("used", folder.join("link")).unwrap();
    fs::create_dir(folder.join("inside")).unwrap();
    drop(segment(folder.join("inside/other")));

    let listed = listed(&folder, ".");
    let states: Vec<_> =
        listed.iter().map(|(name, object)| (&**name, object["state"].as_str().unwrap())).collect();
    let expected = [
        ("copy", "broken"),
        ("cut", "broken"),
        ("left", "left"),
        ("open", "open"),
        ("used", "in use"),
        ("version", "broken"),
    ];
    assert_eq!(states, expected);
    let of = |name: &str| &listed.iter().find(|(other, _)| other == name).unwrap().1;
    assert!(of("copy")["reason"].as_str().unwrap().contains("copy"));
    assert!(of("cut")["reason"].as_str().unwrap().contains("cut short"));
    assert!(of("version")["reason"].as_str().unwrap().contains("another version"));
    assert_eq!((&of("left")["dead"], &of("left")["servers"]), (&1.into(), &0.into()));
    let used = of("used");
    assert_eq!((&used["servers"], &used["clients"], &used["slots"]), (&1.into(), &0.into(), &4.into()));
    assert_eq!(used["open_in"], Value::from(vec![std::process::id()]));
    assert_eq!(used["members"][0]["pid"], std::process::id());
    let unused = sh(&folder, "pipework ls --unused --nul . | tr '\\0' ' '");
    assert_eq!(unused.out, "./copy ./cut ./left ./version ");
    let text = sh(&folder, "pipework ls used left").out;
    assert!(text.starts_with("STATE   KIND"), "{text}");
    assert!(text.contains("  used  1 server, 0 clients\n"), "{text}");
    assert!(text.ends_with("  left  0 servers, 0 clients, 1 dead\n"), "{text}");
}

#[test]
fn ls_shows_fifos_without_waking_processes_that_open_them() {
    let folder = Folder::new();
    for name in ["used", "unused", "waited"] {
        create_fifo(folder.join(name)).unwrap();
    }
    let mut both = shell(&folder, "exec 9<>used; echo hello >&9; echo; exec sleep 60").spawn().unwrap();
    both.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut waits = shell(&folder, "exec cat waited").spawn().unwrap();
    let stands = || fs::read_to_string(format!("/proc/{}/wchan", waits.id())).unwrap();
    wait_until("cat waits for a writer", || stands() == "wait_for_partner");

    let listed = listed(&folder, ".");
    let states: Vec<_> =
        listed.iter().map(|(name, object)| (&**name, object["state"].as_str().unwrap())).collect();
    assert_eq!(states, [("unused", "unused"), ("used", "in use"), ("waited", "unused")]);
    let used = &listed[1].1;
    assert_eq!((&used["bytes"], &used["readers"], &used["writers"]), (&6.into(), &1.into(), &1.into()));
    assert_eq!(listed[0].1["bytes"], Value::Null);
    // If ls had opened the FIFO, cat would have reached the end of file.
    assert_eq!(stands(), "wait_for_partner");
    for child in [&mut both, &mut waits] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn looking_at_a_fifo_leaves_its_keeper_and_messages() {
    let looks = "pipework ls .; pipework top --once --interval 0.1 f; pipework doctor --yes --fifos f";
    let script = format!(
        "mkfifo f; pipework send --to f a b & pipework recv --from f --count 1; wait
         for n in 1 2 3; do {looks}; done > seen; grep -c '^open.* 0 readers, 1 writer$' seen
         grep -c 'wait, and no process reads' seen; pipework recv --from f --count 1"
    );
    assert_eq!(clean(&script), "a3\n3\nb");
    // The keeper's name and command line say what it is.
    let script = "mkfifo f; pipework send --to f a b & pipework recv --from f --count 1; wait
        K=$(pipework ls --json f | grep -o 'open_in.:.[0-9]*' | grep -o '[0-9]*$')
        cat /proc/$K/comm; tr '\\0' ' ' < /proc/$K/cmdline; rm f";
    let folder = Folder::new();
    let done = sh(&folder, script);
    let name = format!("apipework\npipework fifo-keeper {}/f ", folder.canonicalize().unwrap().display());
    assert_eq!((&*done.out, &*done.err), (&*name, ""));
}

#[test]
fn named_link_stands_for_its_target() {
    let folder = Folder::new();
    let _segment = segment(folder.join("channel"));
    let script = "mkfifo fifo; ln -s fifo one; ln -s channel two; ln -s gone three
        pipework ls --nul one two | tr '\\0' '\\n' | xargs -n 1 basename; pipework ls --quiet . | wc -l
        pipework doctor --yes --fifos one | tail -n 1; ls -d *";
    let done = sh(&folder, script);
    assert_eq!((&*done.out, &*done.err), ("fifo\nchannel\n3\n    removed\nchannel\none\nthree\ntwo\n", ""));
    for command in ["ls", "doctor", "top --once"] {
        fails(1, &["three: "], &format!("ln -s gone three; pipework {command} three"));
    }
    fails(
        1,
        &["two: it is a symbolic link; name its target"],
        "ln -s two two; ln -sf x two; pipework call two x",
    );
}

#[test]
fn ls_neither_writes_nor_removes() {
    let folder = Folder::new();
    left(folder.join("left"));
    let facts = || {
        let facts = fs::metadata(folder.join("left")).unwrap();
        (facts.ino(), facts.mtime_nsec(), facts.ctime_nsec(), fs::read(folder.join("left")).unwrap())
    };
    let before = facts();
    assert_eq!(sh(&folder, "pipework ls . left").out.lines().count(), 3);
    assert!(facts() == before, "the file has changed");
}

#[test]
fn ls_escapes_control_characters_in_names() {
    let folder = Folder::new();
    create_fifo(folder.join("a\u{1b}[2J\nb")).unwrap();
    let text = sh(&folder, "pipework ls .").out;
    assert!(text.contains("./a\\x1b[2J\\x0ab") && text.lines().count() == 2, "{text:?}");
    assert_eq!(listed(&folder, ".")[0].0, "a\u{1b}[2J\nb");
    let mut command = Command::new("sh");
    command.args(["-c", "mkfifo $(printf 'a\\377'); \"$0\" ls --json .", PIPEWORK]);
    let done = outcome(command.current_dir(&*Folder::new()).stderr(Stdio::inherit()).output().unwrap());
    assert!(done.out.contains("\"path_base64\":\"Li9h/w==\""), "{}", done.out);
}

#[test]
fn ls_fails_on_missing_or_other_files() {
    fails(1, &["missing: No such file"], "pipework ls missing");
    fails(1, &["text: it is neither a channel nor a FIFO"], "echo > text; pipework ls text");
    fails(2, &["--nul", "--json"], "pipework ls --nul --json");
    // If ls cannot look, it must not report an unused FIFO.
    fails(1, &["Too many open files"], "mkfifo one; ulimit -n 5; pipework ls .");
    // ls tells people that it found nothing; the forms for scripts stay empty.
    let nothing = sh(&Folder::new(), "mkdir d; pipework ls . d");
    assert_eq!(
        (nothing.status, &*nothing.out, &*nothing.err),
        (Some(0), "", "pipework: nothing found in ., d\n")
    );
    assert_eq!(clean("pipework ls --json .; pipework ls --nul .; pipework ls --quiet ."), "");
    assert_eq!(
        clean(
            "mkdir -p shm; TMPDIR=$PWD/shm XDG_RUNTIME_DIR= ; mkfifo shm/one; export TMPDIR; \
                      pipework ls --nul | tr '\\0' '\\n' | grep -c one"
        ),
        "1\n"
    );
}
