//! The name of a segment, and segments without a name that are passed on as descriptors.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use pipework::reqrep::{Options, Segment};
use pipework::{Deadline, ErrorKind};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::{answers, errno, names, small};
use crate::harness::{Folder, PATIENCE, alone, become_nobody, fork};

#[test]
fn create_and_open_accept_any_file_name() {
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
fn removed_or_reused_name_does_not_affect_attached_members() {
    let folder = Folder::new();
    let path = folder.join("segment");
    let first = small().create(&path).unwrap();
    let same = Options::new().open(&path).unwrap();
    let client = first.client().unwrap();
    assert_eq!(same.unlink(), Ok(true));
    assert_eq!((first.unlink(), same.unlink()), (Ok(false), Ok(false)));
    answers(&first, &same);
    // Another segment under the same name is a different segment.
    let second = small().create(&path).unwrap();
    let opened = Options::new().open(&path).unwrap();
    assert_eq!((first.unlink(), path.exists()), (Ok(false), true));
    let ticket = client.try_send("for the first").unwrap().expect("a slot is free");
    assert_eq!((first.waiting(), second.waiting(), opened.waiting()), (1, 0, 0));
    assert!(client.cancel(ticket).unwrap().is_none());
    answers(&second, &opened);
    // `unlink` leaves any other file at the path alone.
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
fn unlink_without_permission_is_an_error() {
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
        let folder = segment.blob_folder().file_name().and_then(OsStr::to_str).unwrap();
        assert_eq!(names(&closed), ["segment", folder]);
    });
}

// ---------------------------------------------------------------- passed on

#[test]
fn nameless_segment_can_be_passed_to_another_process() {
    alone(|| {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        // Forked before the segment exists, so it gets only what comes through the socket.
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
    // Not close-on-exec, as a careless program would receive it.
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())
        .unwrap();
    let mut fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.next().expect("a descriptor came along")
}

#[test]
fn segment_in_memory_cannot_change_its_length() {
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
    let unanswered = segment.client().unwrap().call("a", Deadline::now());
    assert_eq!(unanswered.map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
}
