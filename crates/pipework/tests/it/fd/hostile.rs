//! Descriptors of the wrong kind, a process that has none left, and descriptors that a peer sends
//! unasked.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use pipework::fd::{
    CWD, Inbox, Reserve, Stopped, accept_many, copy_all, mkstemp_at, mktemp_at, option_bytes, option_number,
    pread_full, pwrite_all, read_full, send_many, sendfile_all, set_option_number, slurp, splice_all,
    write_all,
};
use pipework::{Deadline, Error, ErrorKind, Unfinished};
use rustix::fs::OFlags;
use rustix::process::Resource;

use super::{Kind, SHORT, leave_descriptors, listener};
use crate::harness::{Folder, PATIENCE, alone, descriptors, say};

/// One of each kind of descriptor, by name.
fn zoo(folder: &Folder) -> Vec<(&'static str, OwnedFd)> {
    let (read, write) = std::io::pipe().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let file = folder.join("file");
    fs::write(&file, "content").unwrap();
    vec![
        ("folder", File::open(std::env::temp_dir()).unwrap().into()),
        ("path", rustix::fs::open(&file, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()),
        ("file to read", File::open(&file).unwrap().into()),
        ("file to write", File::options().write(true).open(&file).unwrap().into()),
        ("pipe to read", read.into()),
        ("pipe to write", write.into()),
        ("stream", near.into()),
        ("its peer", far.into()),
        ("listener", listener().into()),
        (
            "unconnected",
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
                .unwrap(),
        ),
        ("datagrams", UdpSocket::bind("127.0.0.1:0").unwrap().into()),
        ("epoll", epoll),
        ("eventfd", rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()),
        ("null", File::options().read(true).write(true).open("/dev/null").unwrap().into()),
        ("zero", File::open("/dev/zero").unwrap().into()),
    ]
}

#[test]
fn every_call_returns_for_every_kind_of_descriptor() {
    alone(|| {
        let folder = Folder::new();
        let soon = || Deadline::after(Duration::from_millis(2));
        let zoo = zoo(&folder);
        let before = descriptors();
        let mut tries = 0;
        for (name, fd) in &zoo {
            let begin = Instant::now();
            for len in [0, 1, 1 << 16, u64::MAX] {
                let (mut buf, bytes) = (vec![0; len.min(1 << 17) as usize], vec![0; len.min(100) as usize]);
                let _ = read_full(fd, &mut buf, soon());
                let _ = write_all(fd, &bytes, soon());
                let _ = slurp(fd, &mut Vec::new(), len.min(1 << 20) as usize, soon());
                for offset in [0, len, u64::MAX] {
                    let _ = pread_full(fd, &mut buf, offset);
                    let _ = pwrite_all(fd, &bytes, offset);
                }
                // "/dev/zero" has no end, so a copy of all of it would only end with its deadline.
                for (_, other) in &zoo {
                    let _ = copy_all(fd, other, len, soon());
                    let _ = splice_all(fd, other, len, soon());
                    let _ = sendfile_all(other, fd, len, len, soon());
                    tries += 3;
                }
                let _ = accept_many(fd, len as usize);
                let _ = option_number(fd, len as i32, len as i32);
                let _ = option_bytes(fd, 1, len as i32, &mut buf);
                let _ = set_option_number(fd, len as i32, 1, -1);
            }
            let _ = Inbox::new(usize::MAX, 100).unwrap().recv(fd, soon());
            let _ = send_many(fd, &[(b"?", None), (b"", None)], soon());
            let _ = mkstemp_at(fd, "never/XXXXXX".as_ref());
            let _ = mktemp_at(fd, "never/XXXXXX".as_ref());
            assert!(begin.elapsed() < PATIENCE / 2, "{name} is waited for");
            assert_eq!(descriptors(), before, "{name} leaves a descriptor open");
        }
        say(&format!("{tries} copies of each kind to each other"));
        assert_eq!(Inbox::new(1, usize::MAX).map(drop).unwrap_err().errno(), Some(libc::ENOMEM));
        assert_eq!(Inbox::new(2, usize::MAX).map(drop).unwrap_err().errno(), Some(libc::ENOMEM));
        assert_eq!(Inbox::new(0, 1).map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn wrong_kinds_of_descriptor_give_the_documented_error() {
    alone(|| {
        let folder = Folder::new();
        let zoo = zoo(&folder);
        let get = |name: &str| &zoo.iter().find(|(known, _)| *known == name).expect("it is there").1;
        let kind = |outcome: Result<u64, Unfinished>| outcome.unwrap_err().kind();
        assert_eq!(kind(copy_all(get("folder"), get("null"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("file to write"), get("null"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("file to read"), get("pipe to read"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("file to read"), get("file to write"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("pipe to read"), get("pipe to write"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(copy_all(get("datagrams"), get("null"), 1, SHORT)), ErrorKind::Unsupported);
        assert_eq!(kind(copy_all(get("zero"), get("datagrams"), 1, SHORT)), ErrorKind::Unsupported);
        assert_eq!(kind(splice_all(get("file to read"), get("null"), 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(kind(sendfile_all(get("null"), get("pipe to read"), 0, 1, SHORT)), ErrorKind::Invalid);
        assert_eq!(
            kind(pread_full(get("pipe to read"), &mut [0; 1], 0).map(|len| len as u64)),
            ErrorKind::Invalid
        );
        assert_eq!(kind(pwrite_all(get("stream"), b"1", 0).map(|()| 1)), ErrorKind::Invalid);
        assert_eq!(
            kind(send_many(get("stream"), &[(b"1", None)], SHORT).map(|()| 1)),
            ErrorKind::Unsupported
        );
        assert_eq!(kind(send_many(get("epoll"), &[(b"1", None)], SHORT).map(|()| 1)), ErrorKind::Invalid);
        let failed = |name| match accept_many(get(name), 1).stopped {
            Stopped::Failed(error) => error.kind(),
            other => panic!("{other:?}"),
        };
        assert_eq!(["stream", "datagrams", "file to read", "unconnected"].map(failed), {
            use ErrorKind::{Invalid, Unsupported};
            [Invalid, Unsupported, Invalid, Invalid]
        });
        assert_eq!(
            option_number(get("null"), libc::SOL_SOCKET, libc::SO_TYPE).unwrap_err().kind(),
            ErrorKind::Invalid
        );
        assert_eq!(
            option_number(get("stream"), libc::SOL_SOCKET, 12345).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        let longer = option_number(get("stream"), libc::SOL_SOCKET, libc::SO_PEERCRED).unwrap_err().kind();
        assert_eq!(longer, ErrorKind::Incompatible);
    });
}

#[test]
fn calls_that_run_out_of_descriptors_leave_none_open() {
    alone(|| {
        let folder = Folder::new();
        let (into, source) = Kind::Pipe.ends();
        write_all(&into, b"content", PATIENCE).unwrap();
        let appended = File::options().append(true).create(true).open(folder.join("log")).unwrap();
        let tight = |error: Error| assert_eq!(error.errno(), Some(libc::EMFILE));
        for spare in 0..2 {
            let free = leave_descriptors(spare);
            let before = descriptors_left(spare);
            // The call's own pipe takes two.
            tight(copy_all(&source, &appended, u64::MAX, SHORT).unwrap_err().error);
            if spare == 0 {
                tight(Reserve::new().map(drop).unwrap_err());
                tight(mkstemp_at(CWD, folder.join("XXXXXX").as_os_str()).map(drop).unwrap_err());
            }
            assert_eq!(descriptors_left(spare), before);
            rustix::process::setrlimit(Resource::Nofile, free).unwrap();
        }
        drop(into);
        assert_eq!(copy_all(&source, &appended, u64::MAX, PATIENCE), Ok(7));
        assert_eq!(fs::read(folder.join("log")).unwrap(), b"content");
        assert_eq!(fs::read_dir(folder.join("log").parent().unwrap()).unwrap().count(), 1);
    });
}

/// How many descriptors can still be opened, at most `most`.
fn descriptors_left(most: usize) -> usize {
    let taken: Vec<_> = (0..=most).map_while(|_| rustix::io::dup(std::io::stdin()).ok()).collect();
    taken.len()
}

#[test]
fn received_descriptors_are_closed() {
    alone(|| {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (near, far) = UnixDatagram::pair().unwrap();
        let before = descriptors();
        let gift = [near.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&gift)));
        sendmsg(&near, &[std::io::IoSlice::new(b"a gift")], &mut ancillary, SendFlags::empty()).unwrap();
        let mut inbox = Inbox::new(2, 100).unwrap();
        assert_eq!(inbox.recv(&far, PATIENCE), Ok(1));
        assert_eq!(inbox.iter().next().unwrap().bytes, b"a gift");
        assert_eq!(descriptors(), before);
    });
}
