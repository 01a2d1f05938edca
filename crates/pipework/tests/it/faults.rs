//! Every system call of an operation, made to fail with every error that its manual page lists.
//!
//! A scene is one operation of a module, with its setup, in a child of its own. A first child shows
//! which calls the scene makes. Then a child runs for each call and each error; its call is not
//! made and fails. The operation may use another way or return the error. It must end in time, not
//! panic, and everything that it reports as done must be done.
//!
//! Calls whose failure means nothing to the core are left out: those of the allocator, and reading
//! a clock, which is not a system call.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::panic;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use libc as c;
use pipework::atomic::{self, create_fifo};
use pipework::broadcast::{self, RecvError, Start, SubscriberOptions};
use pipework::fd::{accept_many, copy_all, mkstemp_at, pwrite_all, read_full, write_all};
use pipework::reqrep::Options;
use pipework::{Error, ErrorKind, Result};

use crate::harness::tracee::{self, Fault, Tracee, mark, trace};
use crate::harness::{Folder, PATIENCE, alone_for, descriptors, left_out, say, shared};

/// The result of a scene: its operation is done correctly, or why not.
type Scene = fn(&Folder, Duration) -> Result<()>;

const SCENES: [(&str, Scene); 11] = [
    ("atomic: a pipe", through_a_pipe),
    ("atomic: a part of a pipe", a_part_of_a_pipe),
    ("atomic: a FIFO", through_a_fifo),
    ("reqrep: a call", a_call),
    ("reqrep: a call in parts", a_call_in_parts),
    ("broadcast: a message", a_message),
    ("broadcast: a long message", a_long_message),
    ("broadcast: an observer", an_observer),
    ("fd: a copy", a_copy),
    ("fd: connections", connections),
    ("fd: a temporary file", a_temporary_file),
];

/// The errors of each call that the core makes, from its manual page; errors that the caller
/// causes, such as EBADF and EFAULT, are left out.
const ERRORS: [(i64, &[i32]); 38] = [
    (c::SYS_read, &[c::EAGAIN, c::EINTR, c::EINVAL, c::EIO, c::EISDIR]),
    (
        c::SYS_write,
        &[c::EAGAIN, c::EDQUOT, c::EFBIG, c::EINTR, c::EINVAL, c::EIO, c::ENOSPC, c::EPERM, c::EPIPE],
    ),
    (c::SYS_preadv2, &[c::EAGAIN, c::EINTR, c::EINVAL, c::EIO, c::EOPNOTSUPP, c::ENOSYS, c::ESPIPE]),
    (
        c::SYS_pwritev2,
        &[c::EAGAIN, c::EINTR, c::EINVAL, c::EIO, c::ENOSPC, c::EOPNOTSUPP, c::ENOSYS, c::EPIPE, c::ESPIPE],
    ),
    (c::SYS_pread64, &[c::EINTR, c::EINVAL, c::EIO, c::ESPIPE]),
    (c::SYS_pwrite64, &[c::EINTR, c::EIO, c::ENOSPC, c::EDQUOT, c::EFBIG]),
    (c::SYS_open, OPENING),
    (c::SYS_openat, OPENING),
    (c::SYS_pipe2, &[c::EMFILE, c::ENFILE, c::EINVAL]),
    (c::SYS_poll, &[c::EINTR, c::EINVAL, c::ENOMEM]),
    (c::SYS_ppoll, &[c::EINTR, c::EINVAL, c::ENOMEM]),
    (c::SYS_fcntl, &[c::EACCES, c::EAGAIN, c::EBUSY, c::EINTR, c::EINVAL, c::ENOLCK, c::EPERM]),
    (c::SYS_fstat, &[c::ENOMEM, c::EOVERFLOW]),
    (c::SYS_newfstatat, &[c::EACCES, c::ENOENT, c::ENOMEM, c::ENOTDIR]),
    (c::SYS_statx, &[c::EACCES, c::ENOENT, c::ENOMEM, c::ENOSYS]),
    (c::SYS_ftruncate, &[c::EFBIG, c::EINTR, c::EINVAL, c::EIO, c::EPERM]),
    (
        c::SYS_fallocate,
        &[c::EFBIG, c::EINTR, c::EIO, c::ENODEV, c::ENOSPC, c::ENOSYS, c::EOPNOTSUPP, c::EPERM],
    ),
    (c::SYS_mknodat, &[c::EACCES, c::EDQUOT, c::EEXIST, c::ENOENT, c::ENOSPC, c::EPERM, c::EROFS]),
    (
        c::SYS_linkat,
        &[
            c::EACCES,
            c::EDQUOT,
            c::EEXIST,
            c::EIO,
            c::EMLINK,
            c::ENOENT,
            c::ENOSPC,
            c::EPERM,
            c::EROFS,
            c::EXDEV,
        ],
    ),
    (c::SYS_memfd_create, &[c::EINVAL, c::EMFILE, c::ENFILE, c::ENOMEM, c::EPERM, c::ENOSYS]),
    (
        c::SYS_accept4,
        &[
            c::EAGAIN,
            c::ECONNABORTED,
            c::EINTR,
            c::EMFILE,
            c::ENFILE,
            c::ENOBUFS,
            c::ENOMEM,
            c::EPERM,
            c::EPROTO,
        ],
    ),
    (c::SYS_sendfile, &[c::EAGAIN, c::EINVAL, c::EIO, c::ENOMEM, c::EOVERFLOW]),
    (c::SYS_splice, &[c::EAGAIN, c::EINVAL, c::ENOMEM]),
    (c::SYS_tee, &[c::EAGAIN, c::EINVAL, c::ENOMEM, c::ENOSYS, c::EPERM]),
    (c::SYS_clone3, &[c::EAGAIN, c::ENOMEM, c::ENOSYS]),
    (
        c::SYS_copy_file_range,
        &[c::EFBIG, c::EINVAL, c::EIO, c::ENOMEM, c::ENOSPC, c::EOPNOTSUPP, c::EPERM, c::EXDEV, c::ENOSYS],
    ),
    (c::SYS_ioctl, &[c::EINVAL, c::ENOTTY]),
    (c::SYS_lseek, &[c::EINVAL, c::ESPIPE]),
    (c::SYS_mmap, &[c::EACCES, c::EAGAIN, c::EINVAL, c::ENFILE, c::ENODEV, c::ENOMEM, c::EPERM]),
    (c::SYS_futex, &[c::EAGAIN, c::EINTR, c::ETIMEDOUT]),
    (c::SYS_eventfd2, &[c::EINVAL, c::EMFILE, c::ENFILE, c::ENODEV, c::ENOMEM]),
    (c::SYS_fchmod, &[c::EIO, c::EPERM, c::EROFS]),
    (c::SYS_unlink, &[c::EACCES, c::EBUSY, c::EIO, c::ENOENT, c::EPERM, c::EROFS]),
    (c::SYS_unlinkat, &[c::EACCES, c::EBUSY, c::EIO, c::ENOENT, c::EPERM, c::EROFS]),
    (c::SYS_epoll_create1, &[c::EMFILE, c::ENFILE, c::ENOMEM]),
    (c::SYS_epoll_ctl, &[c::ENOMEM, c::ENOSPC, c::EPERM]),
    (c::SYS_getrandom, &[c::EAGAIN, c::EINTR, c::ENOSYS]),
    (c::SYS_madvise, &[c::EAGAIN, c::EINVAL, c::ENOMEM]),
];
const OPENING: &[i32] = &[
    c::EACCES,
    c::EDQUOT,
    c::EEXIST,
    c::EINTR,
    c::EISDIR,
    c::ELOOP,
    c::EMFILE,
    c::ENFILE,
    c::ENOENT,
    c::ENOMEM,
    c::ENOSPC,
    c::ENOTDIR,
    c::ENXIO,
    c::EOPNOTSUPP,
    c::EPERM,
    c::EROFS,
];

/// The calls by which the core checks whether a descriptor is still its own. A descriptor that
/// cannot be checked stays open, because it may be another's by then.
const ASKING: [i64; 3] = [c::SYS_fstat, c::SYS_fcntl, c::SYS_lseek];

/// Calls that are repeated after a signal: a signal is no reason for an operation to fail.
const REPEATED: [i64; 2] = [c::SYS_fallocate, c::SYS_ftruncate];

/// How long an operation waits after a call has failed, when there may be no answer.
const SOON: Duration = Duration::from_millis(100);

#[test]
fn every_call_may_fail_with_every_error() {
    alone_for(Duration::from_secs(600), || {
        if !tracee::is_permitted() {
            return left_out("faults", "processes cannot be traced here");
        }
        let (mut tried, mut calls, mut harm) = (0, 0, vec![]);
        for (name, scene) in SCENES {
            let made = play(name, scene, None);
            calls += made.len();
            let unknown: BTreeSet<_> = made.iter().filter(|call| errors(**call).is_empty()).collect();
            say(&format!("faults: {name}: {} calls; never made to fail: {unknown:?}", made.len()));
            assert!(unknown.len() < made.len() / 2, "{name}: few of its calls are known");
            for (nth, call) in made.iter().enumerate() {
                for errno in errors(*call) {
                    tried += 1;
                    // Continues after a failure, to report them all.
                    let fault = Fault { nth, call: *call, errno: *errno };
                    if panic::catch_unwind(|| play(name, scene, Some(fault))).is_err() {
                        harm.push((name, fault));
                    }
                }
            }
        }
        say(&format!("faults: {calls} calls in {} operations, {tried} faults", SCENES.len()));
        assert!(harm.is_empty(), "operation and fault: {harm:#?}");
    });
}

fn errors(call: i64) -> &'static [i32] {
    ERRORS.iter().find(|(known, _)| *known == call).map_or(&[], |(_, errors)| errors)
}

/// Runs a scene in which at most one system call fails. Returns the calls that it makes.
fn play(name: &str, scene: Scene, fault: Option<Fault>) -> Vec<i64> {
    let folder = Folder::new();
    let left = shared(1);
    let child: Tracee = trace(|| {
        let (hook, named) = (panic::take_hook(), name.to_string());
        panic::set_hook(Box::new(move |panic| {
            say(&format!("faults: {named}, {fault:?}:"));
            hook(panic);
        }));
        // Other state that is set up once in a process, and should not appear in each run.
        let soon = if fault.is_some() { SOON } else { PATIENCE };
        let _ = scene(&Folder::new(), PATIENCE);
        let (open, began) = (descriptors(), Instant::now());
        mark();
        let done = scene(&folder, soon);
        mark();
        left[0].store(descriptors().abs_diff(open) as u64, SeqCst);
        assert!(began.elapsed() < PATIENCE / 2, "it took {:?}", began.elapsed());
        if let Err(error) = done {
            let harmless =
                fault.is_none_or(|fault| fault.errno == c::EINTR && REPEATED.contains(&fault.call));
            assert!(!harmless, "{name}: {error}");
            assert!(!error.op().is_empty(), "the error names its operation");
        }
    });
    let made = child.calls_to_mark(fault);
    child.finish();
    let is_asking = fault.is_some_and(|fault| ASKING.contains(&fault.call));
    let left = left[0].load(SeqCst);
    assert!(left == 0 || is_asking, "{left} descriptors are left open, or closed twice");
    made
}

// ---------------------------------------------------------------- scenes

fn through_a_pipe(_: &Folder, soon: Duration) -> Result<()> {
    let (mut reader, mut writer) = atomic::pair()?;
    writer.send([7; 10_000], soon)?;
    writer.send_many(&["one", "two"], soon)?;
    let message = reader.recv(soon)?;
    assert_eq!(&*message, [7; 10_000]);
    drop(message);
    assert_eq!(&*reader.recv(soon)?, b"one");
    drop(writer);
    assert_eq!(&*reader.recv(soon)?, b"two");
    match reader.recv(soon).map(|message| message.len()) {
        Err(error) if error.kind() == ErrorKind::Closed => Ok(()),
        Err(error) => Err(error),
        Ok(len) => panic!("{len} unexpected bytes"),
    }
}

fn a_part_of_a_pipe(_: &Folder, soon: Duration) -> Result<()> {
    let (mut reader, mut writer) = atomic::pair()?;
    let mut other = atomic::Options::new().dup_reader(&reader)?;
    writer.send_many(&["one", "two", "three"], soon)?;
    reader.set_exact(2);
    assert_eq!(&*reader.recv(soon)?, b"one");
    assert_eq!(&*reader.recv(soon)?, b"two");
    assert_eq!(&*other.recv(soon)?, b"three");
    Ok(())
}

fn through_a_fifo(folder: &Folder, soon: Duration) -> Result<()> {
    let path = folder.join("fifo");
    create_fifo(&path)?;
    let options = atomic::Options::new();
    let mut reader = options.listen_fifo(&path)?;
    let mut writer = options.write_fifo(&path, soon)?;
    writer.send("whole", soon)?;
    assert_eq!(&*reader.recv(soon)?, b"whole");
    Ok(())
}

fn a_call(folder: &Folder, soon: Duration) -> Result<()> {
    let path = folder.join("segment");
    let options = Options::new().slots(2).request_bytes(64).reply_bytes(64).spin(Duration::ZERO);
    let segment = options.open_or_create(&path)?;
    let (server, client) = (segment.server()?, options.open(&path)?.client()?);
    let ticket = client.send("ping", soon)?;
    let taken = server.recv(soon)?;
    assert_eq!(&*taken, b"ping");
    taken.reply("pong")?;
    assert_eq!(&*client.recv(ticket, soon)?, b"pong");
    segment.unlink().map(drop)
}

/// The calls of the client are made to fail; those of the server, in a thread, are not.
fn a_call_in_parts(_: &Folder, soon: Duration) -> Result<()> {
    let options = Options::new().slots(2).request_bytes(64).reply_bytes(64).spin(Duration::ZERO);
    let segment = options.anonymous()?;
    let (server, client) = (segment.server()?, segment.client()?);
    thread::scope(|scope| {
        let serve = || {
            let request = server.recv(soon)?;
            assert_eq!(&*request, [7; 1000]);
            request.reply(&[8; 2000]).map(drop)
        };
        let Ok(served) = thread::Builder::new().spawn_scoped(scope, serve) else { return Ok(()) };
        let reply = client.call(&[7; 1000], soon).map_err(Error::from);
        let done = reply.map(|reply| assert_eq!(&*reply, [8; 2000]));
        let served = served.join().expect("the server goes on, or says why not");
        done.and(served)
    })
}

fn channel() -> broadcast::Options {
    broadcast::Options::new().messages(4).message_bytes(64).observers(true).spin(Duration::ZERO)
}

fn a_message(folder: &Folder, soon: Duration) -> Result<()> {
    let path = folder.join("segment");
    let segment = channel().open_or_create(&path)?;
    let publisher = channel().open(&path)?.publisher()?;
    let all = SubscriberOptions::new().must_see_all(true);
    let (mut lags, mut sees_all) = (segment.subscriber()?, segment.subscriber_with(&all)?);
    assert_eq!(publisher.publish_many(["one", "two", "three", "four"], soon).map_err(Error::from)?, 4);
    for expected in ["one", "two", "three", "four"] {
        assert_eq!(&*sees_all.recv(soon).map_err(Error::from)?, expected.as_bytes());
        assert_eq!(&*lags.recv(soon).map_err(Error::from)?, expected.as_bytes());
    }
    let begin = all.start(Start::Oldest);
    let mut oldest = segment.subscriber_with(&begin)?;
    assert_eq!(&*oldest.recv(soon).map_err(Error::from)?, b"one");
    segment.recover()?;
    segment.unlink().map(drop)
}

fn a_long_message(folder: &Folder, soon: Duration) -> Result<()> {
    let segment = channel().create(folder.join("segment"))?;
    let (publisher, mut subscriber) = (segment.publisher()?, segment.subscriber()?);
    assert_eq!(publisher.publish(&[7; 100_000], soon)?, 1);
    // What cannot be received now stays.
    let received = subscriber.recv(soon).or_else(|_| subscriber.recv(soon)).map_err(Error::from)?;
    assert_eq!(*received, [7; 100_000]);
    for number in 2..=6 {
        assert_eq!(publisher.publish("short", soon)?, number);
    }
    match subscriber.recv(soon) {
        Err(RecvError::Lagged(1)) => segment.unlink().map(drop),
        Err(RecvError::Failed(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn an_observer(folder: &Folder, soon: Duration) -> Result<()> {
    let path = folder.join("segment");
    let segment = channel().create(&path)?;
    let publisher = segment.publisher()?;
    let mut observer = broadcast::Options::new().read_only(true).open(&path)?.subscriber()?;
    for message in [&[7; 50][..], &[8; 5000]] {
        publisher.publish(message, soon)?;
        assert_eq!(&*observer.recv(soon).map_err(Error::from)?, message);
    }
    match observer.recv(Duration::from_millis(1)) {
        Err(RecvError::Failed(error)) if error.kind() == ErrorKind::TimedOut => Ok(()),
        Err(RecvError::Failed(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn a_copy(folder: &Folder, soon: Duration) -> Result<()> {
    let bytes = [3; 9000];
    let open = |name: &str| {
        let path = folder.join(name);
        File::options().read(true).write(true).create(true).truncate(false).open(path)
    };
    let (Ok(from), Ok(to)) = (open("from"), open("to")) else { return Ok(()) };
    let Ok((mut reader, writer)) = io::pipe() else { return Ok(()) };
    pwrite_all(&from, &bytes, 0)?;
    assert_eq!(copy_all(&from, &to, u64::MAX, soon)?, 9000);
    if (&to).rewind().is_err() {
        return Ok(());
    }
    assert_eq!(copy_all(&to, &writer, u64::MAX, soon)?, 9000);
    drop(writer);
    let mut came = vec![0; 9001];
    assert_eq!(read_full(&mut reader, &mut came, soon)?, 9000);
    assert_eq!(&came[..9000], bytes);
    Ok(())
}

fn connections(folder: &Folder, soon: Duration) -> Result<()> {
    let path = folder.join("socket");
    let Ok(listener) = std::os::unix::net::UnixListener::bind(&path) else { return Ok(()) };
    let Ok(client) = std::os::unix::net::UnixStream::connect(&path) else { return Ok(()) };
    let accepted = accept_many(&listener, 2);
    if let Some(connection) = accepted.connections.first() {
        write_all(&client, b"hello", soon)?;
        let mut came = [0; 5];
        assert_eq!(read_full(&connection.fd, &mut came, soon)?, 5);
        assert_eq!(&came, b"hello");
    }
    Ok(())
}

fn a_temporary_file(folder: &Folder, soon: Duration) -> Result<()> {
    let Ok(place) = File::open(folder.join(".")) else { return Ok(()) };
    let (file, name) = mkstemp_at(place.as_fd(), "noteXXXXXX".as_ref())?;
    write_all(&file, b"kept", soon)?;
    drop(file);
    let kept = fs::read(folder.join(name.to_str().expect("it is text")));
    assert!(kept.is_err() || kept.is_ok_and(|kept| kept == b"kept"));
    Ok(())
}
