//! The file of a segment: which files are refused, with which error text, and which owner and mode
//! it has.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::Ordering;

use pipework::reqrep::{Geometry, Options, Segment};
use pipework::{Error, ErrorKind};
use rustix::fs::Mode;

use crate::harness::{Folder, PATIENCE, alone, awaited, become_nobody, fork, left_out, shared};

mod making;
mod names;

fn small() -> Options {
    Options::new().slots(4).members(8).request_bytes(200).reply_bytes(200)
}

/// The error text for a user who opens `path`.
fn refusal(path: impl AsRef<Path>) -> String {
    Options::new().open(path).map(drop).expect_err("it is refused").to_string()
}

fn errno<T>(outcome: Result<T, Error>) -> Option<i32> {
    outcome.err().expect("it is refused").errno()
}

/// Makes a call from one opening of a segment to another.
fn answers(clients: &Segment, servers: &Segment) {
    let (client, server) = (clients.client().unwrap(), servers.server().unwrap());
    for turn in 0..20u64 {
        let ticket = client.send(&turn.to_ne_bytes(), PATIENCE).unwrap();
        let request = server.recv(PATIENCE).unwrap();
        let answer = request.to_vec();
        assert!(request.reply(&answer).unwrap());
        assert_eq!(&*client.recv(ticket, PATIENCE).unwrap(), turn.to_ne_bytes());
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

// ---------------------------------------------------------------- refusals

#[test]
fn open_refuses_each_foreign_kind_of_file_with_its_own_error() {
    let folder = Folder::new();
    let segment = small().create(folder.join("segment")).unwrap();
    symlink(folder.join("segment"), folder.join("link")).unwrap();
    symlink(folder.join("nowhere"), folder.join("dangling")).unwrap();
    fs::create_dir(folder.join("folder")).unwrap();
    pipework::atomic::create_fifo(folder.join("fifo")).unwrap();
    let _socket = UnixListener::bind(folder.join("socket")).unwrap();
    for (name, said) in [
        ("missing", "reqrep open: the system call failed: No such file or directory (os error 2)"),
        (
            "link",
            "reqrep open: symbolic link: invalid argument: Too many levels of symbolic links (os error 40)",
        ),
        (
            "dangling",
            "reqrep open: symbolic link: invalid argument: Too many levels of symbolic links (os error 40)",
        ),
        ("folder", "reqrep open: invalid argument: Is a directory (os error 21)"),
        ("fifo", "reqrep open: not a regular file: invalid argument"),
        ("socket", "reqrep open: the system call failed: No such device or address (os error 6)"),
        ("segment/below", "reqrep open: the system call failed: Not a directory (os error 20)"),
    ] {
        assert_eq!(refusal(folder.join(name)), said, "{name}");
    }
    assert_eq!(refusal("/dev/null"), "reqrep open: not a regular file: invalid argument");
    let zeros = OsStr::from_bytes(b"a\0b");
    assert_eq!(refusal(zeros), "reqrep open: invalid argument: Invalid argument (os error 22)");
    // Only the last component of the path may not be a link; links in folders are followed.
    fs::create_dir(folder.join("real")).unwrap();
    symlink(folder.join("real"), folder.join("way")).unwrap();
    let made = small().create(folder.join("way/segment")).unwrap();
    answers(&made, &Options::new().open(folder.join("real/segment")).unwrap());
    // `create` does not replace an existing file, and does not follow a link to create its target.
    for name in ["segment", "link", "dangling", "folder", "fifo"] {
        assert_eq!(errno(small().create(folder.join(name))), Some(libc::EEXIST), "{name}");
    }
    assert!(!folder.join("nowhere").exists());
    for name in ["link", "dangling", "folder", "fifo"] {
        assert!(small().open_or_create(folder.join(name)).is_err(), "{name}");
    }
    answers(&segment, &Options::new().open_or_create(folder.join("segment")).unwrap());
}

#[test]
fn open_refuses_a_file_of_any_other_length() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let whole = small().create(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let cut = |len: usize| {
        let path = folder.join("cut");
        fs::write(&path, &bytes[..len.min(bytes.len())]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(len as u64).unwrap();
        refusal(&path)
    };
    for len in [0, 1, 8, 127] {
        assert_eq!(cut(len), "reqrep open: too short for a segment: incompatible", "{len}");
    }
    for len in [128, 129, 4095, 4096, 4097, 5000, bytes.len() - 64, bytes.len() - 1, bytes.len() + 1, 1 << 20]
    {
        assert_eq!(cut(len), "reqrep open: cut short or grown: malformed data", "{len}");
    }
    drop(whole);
    let copy = folder.join("copy");
    fs::write(&copy, &bytes).unwrap();
    let elsewhere = "reqrep open: it is a copy, or was made through another path or mount";
    assert_eq!(refusal(&copy), elsewhere);
}

#[test]
fn from_fd_checks_a_descriptor_as_open_checks_a_path() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let segment = small().create(&path).unwrap();
    let open = |options: &File| options.as_fd().try_clone_to_owned().unwrap();
    let refused = |fd: OwnedFd| Options::new().from_fd(fd).map(drop).unwrap_err().to_string();
    assert_eq!(
        refused(open(&File::open(&path).unwrap())),
        "reqrep open: the system call failed: Permission denied (os error 13)",
        "read-only"
    );
    let name_only = rustix::fs::open(&path, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(refused(name_only), "reqrep open: invalid argument: Bad file descriptor (os error 9)");
    let (read, write) = std::io::pipe().unwrap();
    for end in [read.into(), write.into()] {
        assert_eq!(refused(end), "reqrep open: not a regular file: invalid argument");
    }
    let whole = segment.as_fd().try_clone_to_owned().unwrap();
    answers(&segment, &Options::new().from_fd(whole).unwrap());
    answers(&segment, &Options::new().dup_fd(&segment).unwrap());
}

// ---------------------------------------------------------------- owner, mode and sizes

#[test]
fn open_refuses_another_users_file_unless_it_is_allowed() {
    alone(|| {
        let folder = Folder::new();
        let (path, private) = (folder.join("segment"), folder.join("private"));
        let segment = small().mode(0o666).create(&path).unwrap();
        small().create(&private).unwrap();
        let flags = shared(1);
        let child = fork(|| {
            if !become_nobody() {
                flags[0].store(2, Ordering::SeqCst);
                return;
            }
            assert_eq!(refusal(&path), "reqrep open: another user's file: invalid argument");
            assert_eq!(
                refusal(&private),
                "reqrep open: the system call failed: Permission denied (os error 13)"
            );
            let opened = Options::new().any_owner(true).open(&path).unwrap();
            flags[0].store(1, Ordering::SeqCst);
            opened.client().unwrap().call("from nobody", PATIENCE).unwrap();
        });
        if awaited(&flags[0]) == 2 {
            left_out("another user's segment", "this user cannot become another");
        } else {
            let server = segment.server().unwrap();
            let request = server.recv(PATIENCE).unwrap();
            assert_eq!(&*request, b"from nobody");
            assert!(request.reply("").unwrap());
        }
        child.join();
    });
}

#[test]
fn create_sets_the_requested_mode_despite_the_umask() {
    alone(|| {
        let folder = Folder::new();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        for umask in [0, 0o022, 0o777] {
            let before = rustix::process::umask(Mode::from_raw_mode(umask));
            let [usual, group] = ["usual", "group"].map(|name| folder.join(name));
            let segments = [small().create(&usual), small().mode(0o660).create(&group), small().anonymous()];
            let segments = segments.map(Result::unwrap);
            rustix::process::umask(before);
            assert_eq!((mode(&usual), mode(&group)), (0o600, 0o660));
            let memfd = rustix::fs::fstat(&segments[2]).unwrap().st_mode & 0o7777;
            assert_eq!(memfd, 0o600);
            segments.iter().for_each(|segment| answers(segment, segment));
            segments[..2].iter().for_each(|segment| assert_eq!(segment.unlink(), Ok(true)));
        }
    });
}

/// The file may come from an earlier run or from another program. Without this check, a program
/// that needs larger sizes would fail only at its first large call.
#[test]
fn open_refuses_a_file_of_other_sizes_than_asked_for() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let made = small().create(&path).unwrap();
    assert_eq!(Geometry::of(&path), Ok(*made.geometry()));
    let asked = [
        ("request_bytes", Options::new().request_bytes(1 << 20)),
        ("reply_bytes", Options::new().reply_bytes(199)),
        ("slots", Options::new().slots(5)),
        ("members", Options::new().members(256)),
        ("queue", Options::new().queue(9)),
    ];
    for (name, options) in asked {
        let said = format!("reqrep open: {name}: the segment has another size than requested");
        let fd = made.as_fd().try_clone_to_owned().unwrap();
        for refused in [options.open(&path), options.open_or_create(&path), options.from_fd(fd)] {
            let error = refused.map(drop).unwrap_err();
            assert_eq!((error.to_string(), error.kind()), (said.clone(), ErrorKind::Incompatible));
        }
    }
    // Rounded sizes are compared after rounding; sizes that were not asked for are not compared.
    for options in [small(), small().queue(8), small().queue(3), Options::new().slots(4)] {
        answers(&made, &options.open(&path).unwrap());
    }
    let len = fs::metadata(&path).unwrap().len();
    answers(&made, &Options::new().max_bytes(len).open(&path).unwrap());
    let larger = Options::new().max_bytes(len - 1).open(&path).map(drop).unwrap_err();
    assert_eq!(larger.to_string(), "reqrep open: max_bytes: larger than the limit");
    fs::write(folder.join("text"), [b'x'; 200]).unwrap();
    assert_eq!(Geometry::of(folder.join("text")).unwrap_err().kind(), ErrorKind::Incompatible);
    let fifo = folder.join("fifo");
    pipework::atomic::create_fifo(&fifo).unwrap();
    let refused = Geometry::of(&fifo).unwrap_err();
    assert_eq!((refused.kind(), refused.op()), (ErrorKind::Invalid, "reqrep open: not a regular file"));
}
