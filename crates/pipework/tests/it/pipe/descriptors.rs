//! Copying between the pipe and descriptors of every kind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use pipework::Deadline;
use pipework::ErrorKind;
use pipework::pipe::{CAPACITY, pipe};

use crate::harness::{Folder, PATIENCE, Random, alone, let_sigpipe_kill};

const SHORT: Duration = Duration::from_millis(20);

/// File to pipe to socket to pipe to the kernel's pipe to pipe to file, with and without a
/// deadline.
#[test]
fn bytes_go_through_descriptors_of_every_kind() {
    alone(|| {
        let folder = Folder::new();
        let bytes = Random::new(1).bytes(3 << 20);
        std::fs::write(folder.join("in"), &bytes).unwrap();
        for deadline in [Deadline::NEVER, Deadline::after(PATIENCE)] {
            let source = File::open(folder.join("in")).unwrap();
            let sink = File::create(folder.join("out")).unwrap();
            let (near, far) = UnixStream::pair().unwrap();
            let (kernel_reader, kernel_writer) = io::pipe().unwrap();
            thread::scope(|scope| {
                let (mut reader, mut writer) = pipe(10_000).unwrap();
                let len = bytes.len() as u64;
                scope.spawn(move || assert_eq!(writer.copy_from_fd(&source, len + 1, deadline), Ok(len)));
                scope.spawn(move || assert_eq!(reader.copy_to_fd(&near, u64::MAX, deadline), Ok(len)));
                let (mut reader, mut writer) = pipe(CAPACITY).unwrap();
                scope.spawn(move || assert_eq!(writer.copy_from_fd(&far, u64::MAX, deadline), Ok(len)));
                scope.spawn(move || {
                    assert_eq!(reader.copy_to_fd(&kernel_writer, u64::MAX, deadline), Ok(len))
                });
                let (mut reader, mut writer) = pipe(1000).unwrap();
                scope.spawn(move || assert_eq!(writer.copy_from_fd(&kernel_reader, len, deadline), Ok(len)));
                assert_eq!(reader.copy_to_fd(&sink, len, deadline), Ok(len));
            });
            assert!(std::fs::read(folder.join("out")).unwrap() == bytes);
        }
    });
}

/// Blocking or not, a descriptor is waited for until the deadline and no longer, and the next copy
/// continues where this one stopped.
#[test]
fn a_deadline_ends_a_copy_and_the_next_goes_on() {
    alone(|| {
        for nonblocking in [false, true] {
            let bytes = Random::new(2).bytes(4 << 20);
            let (mut near, far) = UnixStream::pair().unwrap();
            let (mut kernel_reader, kernel_writer) = io::pipe().unwrap();
            far.set_nonblocking(nonblocking).unwrap();
            if nonblocking {
                let flags = rustix::fs::fcntl_getfl(&kernel_writer).unwrap();
                rustix::fs::fcntl_setfl(&kernel_writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
            }
            let (mut reader, mut writer) = pipe(8 << 20).unwrap();
            writer.write_all(&bytes).unwrap();
            writer.close();
            let socket = reader.copy_to_fd(&far, u64::MAX, SHORT).unwrap_err();
            let pipe_full = reader.copy_to_fd(&kernel_writer, u64::MAX, SHORT).unwrap_err();
            assert_eq!((socket.kind(), pipe_full.kind()), (ErrorKind::TimedOut, ErrorKind::TimedOut));
            assert!(socket.done >= 4096 && pipe_full.done == 65_536, "{socket} {pipe_full}");
            let rest = bytes.len() as u64 - socket.done - pipe_full.done;
            let sender =
                thread::spawn(move || assert_eq!(reader.copy_to_fd(&far, u64::MAX, PATIENCE), Ok(rest)));
            let mut got = vec![];
            (&mut near).take(socket.done).read_to_end(&mut got).unwrap();
            drop(kernel_writer);
            kernel_reader.read_to_end(&mut got).unwrap();
            near.read_to_end(&mut got).unwrap();
            sender.join().unwrap();
            assert!(got == bytes);
        }
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = pipe(100).unwrap();
        (&near).write_all(b"abc").unwrap();
        let unfinished = writer.copy_from_fd(&far, u64::MAX, SHORT).unwrap_err();
        assert_eq!((unfinished.done, unfinished.kind()), (3, ErrorKind::TimedOut));
        let unfinished = reader.copy_to_fd(&near, u64::MAX, SHORT).unwrap_err();
        assert_eq!((unfinished.done, unfinished.kind()), (3, ErrorKind::TimedOut));
    });
}

#[test]
fn copy_to_a_closed_descriptor_is_closed_without_sigpipe() {
    alone(|| {
        let_sigpipe_kill();
        let (mut reader, mut writer) = pipe(100).unwrap();
        writer.write_all(b"abc").unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let (kernel_reader, kernel_writer) = io::pipe().unwrap();
        drop((far, kernel_reader));
        for deadline in [Deadline::NEVER, Deadline::after(PATIENCE)] {
            for fd in [std::os::fd::AsFd::as_fd(&near), std::os::fd::AsFd::as_fd(&kernel_writer)] {
                let unfinished = reader.copy_to_fd(fd, u64::MAX, deadline).unwrap_err();
                assert_eq!((unfinished.done, unfinished.kind()), (0, ErrorKind::Closed));
            }
        }
        assert_eq!(reader.len(), 3);
        // A descriptor that is open for the wrong direction.
        let unfinished = writer.copy_from_fd(&kernel_writer, 1, Deadline::NEVER).unwrap_err();
        assert_eq!(unfinished.kind(), ErrorKind::Invalid);
        // The other end's error, and the reader's close, are reported.
        writer.close_with_error(io::ErrorKind::InvalidData);
        let null = File::create("/dev/null").unwrap();
        assert_eq!(reader.copy_to_fd(&null, 3, PATIENCE), Ok(3));
        assert_eq!(reader.copy_to_fd(&null, 1, PATIENCE).unwrap_err().kind(), ErrorKind::Failed);
        let (reader, mut writer) = pipe(100).unwrap();
        drop(reader);
        let zero = File::open("/dev/zero").unwrap();
        assert_eq!(writer.copy_from_fd(&zero, 1, PATIENCE).unwrap_err().kind(), ErrorKind::Closed);
    });
}
