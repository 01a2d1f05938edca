//! The file of a segment: what is refused, and in which words; whose it is; what is left when it cannot be made; who makes it when many want to.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{IoSlice, IoSliceMut};
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;

use pipework::reqrep::{Geometry, Options, Segment};
use pipework::{Deadline, Error, ErrorKind};
use rustix::fs::Mode;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::process::{Resource, Rlimit};

use crate::harness::damage::{enter_mount_namespace, mount_tmpfs, not_mounted};
use crate::harness::{Folder, PATIENCE, alone, awaited, become_nobody, descriptors, fork, say, shared};

fn small() -> Options {
    Options::new().slots(4).members(8).request_bytes(200).reply_bytes(200)
}

/// What a user reads who opens `path`.
fn refusal(path: impl AsRef<Path>) -> String {
    Options::new().open(path).map(drop).expect_err("it is refused").to_string()
}

fn errno<T>(outcome: Result<T, Error>) -> Option<i32> {
    outcome.err().expect("it is refused").errno()
}

/// A call from one opening of a segment to another.
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

// ---------------------------------------------------------------- what is refused

#[test]
fn what_is_no_file_of_ours_is_refused_in_words_of_its_own() {
    let folder = Folder::new();
    let segment = small().create(folder.join("segment")).unwrap();
    symlink(folder.join("segment"), folder.join("link")).unwrap();
    symlink(folder.join("nowhere"), folder.join("dangling")).unwrap();
    fs::create_dir(folder.join("folder")).unwrap();
    pipework::atomic::create_fifo(folder.join("fifo")).unwrap();
    let _socket = UnixListener::bind(folder.join("socket")).unwrap();
    for (name, said) in [
        ("missing", "reqrep open: refused by the system: No such file or directory (os error 2)"),
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
        ("socket", "reqrep open: refused by the system: No such device or address (os error 6)"),
        ("segment/below", "reqrep open: refused by the system: Not a directory (os error 20)"),
    ] {
        assert_eq!(refusal(folder.join(name)), said, "{name}");
    }
    assert_eq!(refusal("/dev/null"), "reqrep open: not a regular file: invalid argument");
    let zeros = OsStr::from_bytes(b"a\0b");
    assert_eq!(refusal(zeros), "reqrep open: invalid argument: Invalid argument (os error 22)");
    // A link on the way is followed: only the last name is the file's.
    fs::create_dir(folder.join("real")).unwrap();
    symlink(folder.join("real"), folder.join("way")).unwrap();
    let made = small().create(folder.join("way/segment")).unwrap();
    answers(&made, &Options::new().open(folder.join("real/segment")).unwrap());
    // What is in the way is not replaced, and a link is not followed to make something behind it.
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
fn a_file_of_any_other_length_is_refused() {
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
        assert_eq!(cut(len), "reqrep open: too short for a segment: made by an incompatible build", "{len}");
    }
    for len in [128, 129, 4095, 4096, 4097, 5000, bytes.len() - 64, bytes.len() - 1, bytes.len() + 1, 1 << 20]
    {
        assert_eq!(cut(len), "reqrep open: cut short or grown: not well formed", "{len}");
    }
    drop(whole);
    let copy = folder.join("copy");
    fs::write(&copy, &bytes).unwrap();
    let elsewhere = "reqrep open: it is a copy, or was made by another path or mount than this one";
    assert_eq!(refusal(&copy), elsewhere);
}

#[test]
fn a_descriptor_is_checked_as_a_path_is() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let segment = small().create(&path).unwrap();
    let open = |options: &File| options.as_fd().try_clone_to_owned().unwrap();
    let refused = |fd: OwnedFd| Options::new().from_fd(fd).map(drop).unwrap_err().to_string();
    assert_eq!(
        refused(open(&File::open(&path).unwrap())),
        "reqrep open: refused by the system: Permission denied (os error 13)",
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

// ---------------------------------------------------------------- whose it is

#[test]
fn only_the_owner_opens_it_unless_it_is_said_otherwise() {
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
                "reqrep open: refused by the system: Permission denied (os error 13)"
            );
            let opened = Options::new().any_owner(true).open(&path).unwrap();
            flags[0].store(1, Ordering::SeqCst);
            opened.client().unwrap().call("from nobody", PATIENCE).unwrap();
        });
        if awaited(&flags[0]) == 2 {
            say("another user's segment: not tried, for this user cannot become another");
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
fn its_mode_is_what_was_asked_for_whatever_the_umask() {
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

/// A file from before, or from another program: whoever asks for more would hear of it with the first large call.
#[test]
fn sizes_that_were_asked_for_are_those_of_the_file() {
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
        ("integers", Options::new().integers()),
    ];
    for (name, options) in asked {
        let said = format!("reqrep open: {name}: the segment was made with another size than was asked for");
        let fd = made.as_fd().try_clone_to_owned().unwrap();
        for refused in [options.open(&path), options.open_or_create(&path), options.from_fd(fd)] {
            let error = refused.map(drop).unwrap_err();
            assert_eq!((error.to_string(), error.kind()), (said.clone(), ErrorKind::Incompatible));
        }
    }
    // What is rounded up is compared rounded up; what was not asked for is not compared.
    for options in [small(), small().queue(8), small().queue(3), Options::new().slots(4)] {
        answers(&made, &options.open(&path).unwrap());
    }
    let len = fs::metadata(&path).unwrap().len();
    answers(&made, &Options::new().max_bytes(len).open(&path).unwrap());
    let larger = Options::new().max_bytes(len - 1).open(&path).map(drop).unwrap_err();
    assert_eq!(larger.to_string(), "reqrep open: max_bytes: larger than the limit");
    fs::write(folder.join("text"), [b'x'; 200]).unwrap();
    assert_eq!(Geometry::of(folder.join("text")).unwrap_err().kind(), ErrorKind::Incompatible);
}

// ---------------------------------------------------------------- what is missing

#[test]
fn a_full_file_system_is_an_error_where_the_segment_is_made() {
    alone(|| {
        fork(|| {
            let folder = Folder::new();
            let mount = folder.join("tmpfs");
            fs::create_dir(&mount).unwrap();
            if !enter_mount_namespace() || !mount_tmpfs(&mount, "size=64k") {
                not_mounted("a tmpfs of 64 KiB");
                return;
            }
            let large = small().slots(32).request_bytes(4096);
            for path in [mount.join("segment"), mount.join("again")] {
                assert_eq!(errno(large.create(&path)), Some(libc::ENOSPC));
                assert_eq!(errno(large.open_or_create(&path)), Some(libc::ENOSPC));
                assert_eq!(names(&mount), [""; 0]);
            }
            // What fits is made, and works until it is full as well.
            let fits = small().create(mount.join("fits")).unwrap();
            answers(&fits, &fits);
            fits.unlink().unwrap();
            drop(fits);
            assert_eq!(names(&mount), [""; 0]);
        })
        .join();
    });
}

#[test]
fn every_descriptor_that_is_missing_is_told_and_costs_nothing_else() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let segment = small().create(&path).unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let rich = rustix::process::getrlimit(Resource::Nofile);
        let open = descriptors();
        let with_spare = |spare: usize, act: &dyn Fn() -> Result<(), Error>| {
            let poor = Rlimit { current: Some(open as u64 + 16), ..rich };
            rustix::process::setrlimit(Resource::Nofile, poor).unwrap();
            let mut hoard: Vec<_> = iter::from_fn(|| File::open("/dev/null").ok()).collect();
            hoard.truncate(hoard.len() - spare);
            let outcome = act();
            drop(hoard);
            rustix::process::setrlimit(Resource::Nofile, rich).unwrap();
            assert_eq!((descriptors(), names(&folder.join(""))), (open, vec!["segment".into()]));
            outcome
        };
        type Act<'a> = &'a dyn Fn() -> Result<(), Error>;
        let acts: [(&str, usize, Act<'_>); 6] = [
            ("reqrep create", 1, &|| small().create(folder.join("new"))?.unlink().map(drop)),
            ("reqrep create", 1, &|| small().anonymous().map(drop)),
            ("reqrep open", 1, &|| Options::new().open(&path).map(drop)),
            ("reqrep attach client", 1, &|| segment.client().map(drop)),
            ("reqrep attach server", 1, &|| segment.server().map(drop)),
            ("reqrep attach client", 2, &|| Options::new().open(&path)?.client().map(drop)),
        ];
        for (op, needed, act) in acts {
            for spare in 0..needed {
                let error = with_spare(spare, act).expect_err("a descriptor is missing");
                let said = (error.op(), error.kind(), error.errno());
                let first = if spare + 1 == needed { op } else { "reqrep open" };
                assert_eq!(said, (first, ErrorKind::Os, Some(libc::EMFILE)));
            }
            with_spare(needed, act).unwrap_or_else(|error| panic!("{needed} descriptors do: {error}"));
        }
        // Who is attached needs none.
        with_spare(0, &|| {
            let ticket = client.send("a", PATIENCE)?;
            assert!(server.recv(PATIENCE)?.reply("b")?);
            client.recv(ticket, PATIENCE).map(drop)
        })
        .unwrap();
        assert_eq!(segment.members().unwrap().len(), 2);
    });
}

#[test]
fn a_process_maps_as_many_segments_as_it_can_guard() {
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("segment");
        let mut segments = vec![small().create(&path).unwrap()];
        let error = loop {
            match Options::new().open(&path) {
                Ok(segment) => segments.push(segment),
                Err(error) => break error,
            }
            assert!(segments.len() < 1000);
        };
        assert_eq!((segments.len(), error.op(), error.errno()), (256, "reqrep open", Some(libc::ENOMEM)));
        segments.pop();
        answers(&segments[0], &Options::new().open(&path).unwrap());
    });
}

/// `mount` over /proc: nothing there tells of descriptors any more.
#[test]
fn without_proc_paths_do() {
    alone(|| {
        fork(|| {
            let folder = Folder::new();
            if !enter_mount_namespace() || !mount_tmpfs(Path::new("/proc"), "size=64k") {
                say("without /proc: not tried, for this process may not mount anything");
                return;
            }
            assert!(!Path::new("/proc/self").exists());
            let path = folder.join("segment");
            let made = small().create(&path).unwrap();
            answers(&made, &Options::new().open(&path).unwrap());
            assert_eq!(names(path.parent().unwrap()), ["segment"]);
            assert_eq!(errno(small().anonymous().unwrap().client()), Some(libc::ENOENT));
            assert_eq!(made.unlink(), Ok(true));
            assert_eq!(errno(made.client()), Some(libc::ENOENT), "its name leads nowhere");
        })
        .join();
    });
}

// ---------------------------------------------------------------- names

#[test]
fn any_name_that_a_file_can_have_will_do() {
    alone(|| {
        let folder = Folder::new();
        let home = std::env::current_dir().unwrap();
        std::env::set_current_dir(folder.join("")).unwrap();
        fs::create_dir("below").unwrap();
        let longest = "n".repeat(255);
        for name in ["plain", "./dotted", "below/inner", "below/../above", "with space", "größer", &longest]
        {
            let made = small().create(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(made.path(), Some(Path::new(name)));
            answers(&made, &Options::new().open(name).unwrap());
            assert_eq!((made.unlink(), made.unlink()), (Ok(true), Ok(false)));
        }
        let bytes = Path::new(OsStr::from_bytes(b"no \xFF text"));
        assert_eq!(small().create(bytes).unwrap().unlink(), Ok(true));
        assert_eq!(errno(small().create("n".repeat(256))), Some(libc::ENAMETOOLONG));
        assert_eq!(errno(small().create("")), Some(libc::ENOENT));
        assert_eq!(errno(small().create("missing/segment")), Some(libc::ENOENT));
        assert_eq!(errno(small().open_or_create("missing/segment")), Some(libc::ENOENT));
        assert_eq!(errno(small().create("below/")), Some(libc::EEXIST));
        let anonymous = small().memfd("a name").unwrap();
        assert_eq!((anonymous.path(), errno_of_unlink(&anonymous)), (None, ErrorKind::Invalid));
        assert_eq!(small().memfd("with\0zero").map(drop).unwrap_err().kind(), ErrorKind::Invalid);
        std::env::set_current_dir(home).unwrap();
        assert_eq!(names(&folder.join("")), ["below"]);
    });
}

fn errno_of_unlink(segment: &Segment) -> ErrorKind {
    segment.unlink().unwrap_err().kind()
}

#[test]
fn a_name_that_is_taken_away_or_leads_elsewhere_disturbs_nobody_attached() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let first = small().create(&path).unwrap();
    let same = Options::new().open(&path).unwrap();
    let client = first.client().unwrap();
    assert_eq!(same.unlink(), Ok(true));
    assert_eq!((first.unlink(), same.unlink()), (Ok(false), Ok(false)));
    answers(&first, &same);
    // Another one under the same name is another one.
    let second = small().create(&path).unwrap();
    let opened = Options::new().open(&path).unwrap();
    assert_eq!((first.unlink(), path.exists()), (Ok(false), true));
    let ticket = client.try_send("for the first").unwrap().expect("a slot is free");
    assert_eq!((first.len(), second.len(), opened.len()), (1, 0, 0));
    assert!(client.cancel(ticket).unwrap());
    answers(&second, &opened);
    // Whatever is there instead stays there.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!((second.unlink(), path.is_dir()), (Ok(false), true));
    // The folder is gone.
    fs::remove_dir(&path).unwrap();
    let below = folder.join("below");
    fs::create_dir(&below).unwrap();
    let third = small().create(below.join("segment")).unwrap();
    fs::remove_dir_all(&below).unwrap();
    assert_eq!(third.unlink(), Ok(false));
    answers(&third, &third);
}

#[test]
fn who_may_not_take_a_name_away_is_told() {
    alone(|| {
        let folder = Folder::new();
        let closed = folder.join("closed");
        fs::create_dir(&closed).unwrap();
        let segment = small().mode(0o666).create(closed.join("segment")).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
        fork(|| {
            if become_nobody() {
                assert_eq!(errno(segment.unlink()), Some(libc::EACCES));
                assert_eq!(errno(small().create(closed.join("new"))), Some(libc::EACCES));
            }
        })
        .join();
        assert_eq!(names(&closed), ["segment"]);
    });
}

// ---------------------------------------------------------------- many at once

#[test]
fn of_many_who_open_or_create_one_creates() {
    const PROCESSES: usize = 8;
    const ROUNDS: usize = 60;
    alone(|| {
        let folder = Folder::new();
        // How many are ready for a round, have answered in it, and the inode that each came to.
        let board = shared(2 + PROCESSES);
        let children: Vec<_> = (0..PROCESSES)
            .map(|me| {
                let folder = &folder;
                fork(move || {
                    for round in 0..ROUNDS {
                        let path = folder.join(&format!("segment-{round}"));
                        board[0].fetch_add(1, Ordering::SeqCst);
                        while board[0].load(Ordering::SeqCst) < (PROCESSES * (round + 1)) as u64 {
                            std::hint::spin_loop();
                        }
                        let segment = small().open_or_create(&path).unwrap();
                        board[2 + me].store(rustix::fs::fstat(&segment).unwrap().st_ino, Ordering::SeqCst);
                        let client = segment.client().unwrap();
                        let ticket =
                            client.try_send("a").unwrap().or_else(|| client.send("a", PATIENCE).ok());
                        client.cancel(ticket.expect("there is a slot for everybody in time")).unwrap();
                        board[1].fetch_add(1, Ordering::SeqCst);
                        while board[1].load(Ordering::SeqCst) < (PROCESSES * (round + 1)) as u64 {
                            thread::yield_now();
                        }
                        let all: Vec<u64> =
                            board[2..].iter().map(|seen| seen.load(Ordering::SeqCst)).collect();
                        assert!(all.iter().all(|seen| *seen == all[0]), "round {round}: {all:x?}");
                    }
                })
            })
            .collect();
        children.into_iter().for_each(|child| child.join());
        assert_eq!(names(&folder.join("")).len(), ROUNDS, "nothing is left behind by those who came second");
    });
}

#[test]
fn of_many_who_create_one_succeeds() {
    let folder = Folder::new();
    for round in 0..50 {
        let path = folder.join(&format!("segment-{round}"));
        let start = Barrier::new(4);
        let made: Vec<_> = thread::scope(|scope| {
            let create = || {
                start.wait();
                small().create(&path)
            };
            let threads = [(); 4].map(|()| scope.spawn(create));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let refused = made.iter().filter_map(|made| made.as_ref().err()?.errno());
        assert_eq!(refused.collect::<Vec<_>>(), [libc::EEXIST; 3]);
        let made = made.into_iter().find_map(Result::ok).expect("one has made it");
        answers(&made, &Options::new().open(&path).unwrap());
    }
}

// ---------------------------------------------------------------- passed on

#[test]
fn a_segment_without_a_name_is_passed_to_a_stranger() {
    alone(|| {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        // Forked before there is a segment: it has nothing of it but what comes through the socket.
        let stranger = fork(|| {
            let socket = UnixStream::connect(folder.join("socket")).unwrap();
            let segment = Options::new().from_fd(received(&socket)).unwrap();
            assert_eq!(segment.path(), None);
            let flags = rustix::io::fcntl_getfd(&segment).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            let server = segment.server().unwrap();
            for _ in 0..100 {
                let request = server.recv(PATIENCE).unwrap();
                let answer = request.to_ascii_uppercase();
                assert!(request.reply(&answer).unwrap());
            }
            segment
                .as_fd()
                .try_clone_to_owned()
                .map(File::from)
                .unwrap()
                .set_len(0)
                .expect_err("it is sealed");
        });
        let (socket, _) = listener.accept().unwrap();
        let segment = small().anonymous().unwrap();
        let fds = [segment.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(&socket, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
        let client = segment.client().unwrap();
        for _ in 0..100 {
            assert_eq!(&*client.call("hello", PATIENCE).unwrap(), b"HELLO");
        }
        stranger.join();
    });
}

fn received(socket: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    // Not close-on-exec, as a careless program receives it.
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())
        .unwrap();
    let mut fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.next().expect("a descriptor came along")
}

#[test]
fn nobody_changes_the_length_of_a_segment_in_memory() {
    let segment = small().anonymous().unwrap();
    let file = File::from(segment.as_fd().try_clone_to_owned().unwrap());
    let len = file.metadata().unwrap().len();
    for other in [0, len - 1, len + 1] {
        assert_eq!(file.set_len(other).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
    let more = rustix::fs::SealFlags::WRITE;
    assert_eq!(rustix::fs::fcntl_add_seals(&segment, more), Err(rustix::io::Errno::PERM));
    assert!(file.write_at(b"x", len).is_err(), "writing behind the end would make it grow");
    answers(&segment, &segment);
    assert_eq!(segment.client().unwrap().try_send(&[0; 201]).unwrap_err().kind(), ErrorKind::TooLong);
    let nobody = segment.client().unwrap().call("a", Deadline::now());
    assert_eq!(nobody.map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
}
