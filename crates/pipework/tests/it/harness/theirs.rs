//! Descriptors of the program under test, and whether the library has touched them.

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, inotify, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::Folder;
use super::damage::{put_at, signal_descriptor};

/// A kind of descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Epoll,
    Eventfd,
    Inotify,
    Timer,
    Signal,
    Pipe,
    Socket,
    Memfd,
    File,
    /// The segment's own file.
    Segment,
}

impl Kind {
    pub(crate) const ALL: [Kind; 10] = [
        Kind::Epoll,
        Kind::Eventfd,
        Kind::Inotify,
        Kind::Timer,
        Kind::Signal,
        Kind::Pipe,
        Kind::Socket,
        Kind::Memfd,
        Kind::File,
        Kind::Segment,
    ];
}

/// The files that [`Theirs::make`] uses.
pub(crate) struct Material {
    pub(crate) folder: Folder,
    pub(crate) segment: std::path::PathBuf,
    /// It is in every epoll instance, and never readable.
    idle: OwnedFd,
}

impl Material {
    /// Keeps a descriptor of its own with a high number, which close loops leave alone.
    pub(crate) fn new(folder: Folder, segment: std::path::PathBuf, number: i32) -> Material {
        let idle = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        Material { folder, segment, idle: put_at(&idle, number) }
    }
}

/// A descriptor of the program.
#[derive(Debug)]
pub(crate) struct Theirs {
    pub(crate) kind: Kind,
    fd: OwnedFd,
    /// The other end, if it has one.
    other: Option<OwnedFd>,
    /// What the kernel said of it at first.
    seen: String,
}

impl Theirs {
    pub(crate) fn make(kind: Kind, material: &Material) -> Theirs {
        let mut other = None;
        let fd = match kind {
            Kind::Epoll => {
                let fd = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
                let data = epoll::EventData::new_u64(7);
                epoll::add(&fd, &material.idle, data, epoll::EventFlags::IN).expect("epoll");
                fd
            }
            Kind::Eventfd => eventfd(5, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd"),
            Kind::Inotify => {
                let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
                let fd = inotify::init(flags).expect("inotify");
                let events = inotify::WatchFlags::CREATE;
                inotify::add_watch(&fd, material.folder.join("watched"), events).expect("a watch");
                fd
            }
            Kind::Timer => timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("timer"),
            Kind::Signal => signal_descriptor(),
            Kind::Pipe => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
                rustix::io::write(&write, b"five!").expect("it has space");
                other = Some(write);
                read
            }
            Kind::Socket => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
                let (one, two) = ends.expect("a socket pair");
                rustix::io::write(&two, b"five!").expect("it has space");
                other = Some(two);
                one
            }
            Kind::Memfd => {
                let fd = memfd_create("theirs", MemfdFlags::CLOEXEC).expect("a memfd");
                rustix::io::write(&fd, b"five!").expect("there is memory");
                fd
            }
            Kind::File => File::options()
                .create(true)
                .append(true)
                .open(material.folder.join("another file"))
                .expect("a file")
                .into(),
            Kind::Segment => {
                let file = File::options().read(true).write(true).open(&material.segment);
                file.expect("the segment").into()
            }
        };
        Theirs::of(kind, fd, other)
    }

    /// Another descriptor of the same open file, under a number of the program's choice or the next
    /// free one.
    pub(crate) fn duplicate(&self, number: Option<i32>) -> Theirs {
        let fd = match number {
            Some(number) => put_at(&self.fd, number),
            None => self.fd.try_clone().expect("a descriptor"),
        };
        Theirs::of(self.kind, fd, None)
    }

    fn of(kind: Kind, fd: OwnedFd, other: Option<OwnedFd>) -> Theirs {
        let mut theirs = Theirs { kind, fd, other, seen: String::new() };
        theirs.seen = theirs.look();
        theirs
    }

    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Its number, and that of its other end.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = i32> {
        [&self.fd].into_iter().chain(&self.other).map(AsRawFd::as_raw_fd)
    }

    /// What it is, its flags and position, its locks, its count or watches, its bytes.
    fn look(&self) -> String {
        let number = self.number();
        let link = fs::read_link(format!("/proc/self/fd/{number}")).expect("it is open");
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).expect("it is open");
        let stat = rustix::fs::fstat(&self.fd).expect("it is open");
        let waits = match self.kind {
            Kind::Pipe | Kind::Socket => rustix::io::ioctl_fionread(&self.fd).expect("it has a count"),
            _ => 0,
        };
        // Others lock the segment's file, too; and the kernel shows here what others keep open.
        format!("{} {info} {} {} {waits}", link.display(), stat.st_dev, stat.st_ino)
    }

    /// Panics if it is closed, is something else, or has been read, written, locked or marked.
    pub(crate) fn assert_intact(&self, what: &str) {
        let number = self.number();
        let is_open = rustix::io::fcntl_getfd(&self.fd).is_ok();
        assert!(is_open, "{:?} {number} was closed: {what}", self.kind);
        assert_eq!(self.look(), self.seen, "{:?} {number}: {what}", self.kind);
    }

    /// Takes the events of an inotify instance; returns how many there were.
    pub(crate) fn take_events(&self) -> usize {
        let mut buf = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.fd.as_fd(), &mut buf);
        let mut count = 0;
        loop {
            match reader.next() {
                Ok(_) => count += 1,
                Err(Errno::AGAIN) => return count,
                Err(errno) => panic!("inotify: {errno}"),
            }
        }
    }
}
