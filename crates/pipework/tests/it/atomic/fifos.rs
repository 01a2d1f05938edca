//! FIFOs: which end waits for which, when a pipe ends, and refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pipework::atomic::{Item, Options, Reader, Writer, create_fifo, pair};
use pipework::{Deadline, ErrorKind};
use rustix::event::PollFlags;

use crate::harness::{Child, Folder, PATIENCE, alone, awaited, fork, is_ready, shared, wait_for};

const SHORT: Duration = Duration::from_millis(20);

/// The FIFO `name` in a folder of its own.
fn fifo(folder: &Folder, name: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    create_fifo(&path).unwrap();
    path
}

fn write_fifo(path: &Path) -> Writer {
    Options::new().write_fifo(path, PATIENCE).unwrap()
}

/// A process that sends `messages`, begins another one that it never finishes, and is killed there.
fn killed_inside(path: &Path, messages: &[&str]) -> i32 {
    let page = shared(1);
    let child = fork(|| {
        let mut writer = write_fifo(path);
        writer.set_capacity(1).unwrap();
        messages.iter().for_each(|message| assert_eq!(writer.send(message, PATIENCE), Ok(1)));
        // Fills the pipe and leaves the rest pending: now it is inside the message, as a blocked
        // `send` would be.
        writer.try_send([7; 300_000]).unwrap().expect("nothing else is pending");
        assert!(writer.pending() > 0);
        page[0].store(1, SeqCst);
        thread::sleep(PATIENCE);
    });
    awaited(&page[0]);
    let pid = child.pid();
    child.kill();
    pid
}

fn sent_by_another(path: &Path, messages: &'static [&'static str]) -> Child {
    fork(|| {
        let mut writer = write_fifo(path);
        messages.iter().for_each(|message| assert_eq!(writer.send(message, PATIENCE), Ok(1)));
    })
}

/// The next item as text: a message's data, or `torn` and the writer's pid. `None` if none is
/// available.
fn now(reader: &mut Reader) -> Option<String> {
    match reader.try_next_item().unwrap()? {
        Item::Message(message) => Some(String::from_utf8(message.into_vec()).unwrap()),
        Item::Torn(torn) => Some(format!("torn {}", torn.writer.unwrap().pid)),
        item => panic!("{item:?}"),
    }
}

#[test]
fn a_reader_waits_for_the_first_writer_and_ends_with_the_last() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().read_fifo(&path).unwrap();
        assert_eq!(reader.try_recv(), Ok(None));
        assert_eq!(reader.recv(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(!is_ready(&reader, PollFlags::IN, Duration::ZERO));
        assert!(!reader.is_eof());

        let mut here = write_fifo(&path);
        let child = sent_by_another(&path, &["one", "two"]);
        assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"one");
        assert_eq!(&*reader.recv(Deadline::NEVER).unwrap(), b"two");
        child.join();
        assert_eq!(reader.recv(SHORT).unwrap_err().kind(), ErrorKind::TimedOut, "one writer is left");
        here.send("three", PATIENCE).unwrap();
        drop(here);
        assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"three");
        for _ in 0..2 {
            assert_eq!(reader.recv(Deadline::NEVER).unwrap_err().kind(), ErrorKind::Closed);
        }
        assert!(reader.is_eof());
    });
}

#[test]
fn pipe_ends_after_a_writer_that_sent_nothing() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().read_fifo(&path).unwrap();
        drop(write_fifo(&path));
        assert_eq!(reader.recv(Deadline::NEVER).unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// A first writer that comes, writes and leaves between two system calls of the reader still
/// counts.
#[test]
fn reader_does_not_miss_a_writer_that_comes_and_leaves_between_calls() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        for round in 0..1500u32 {
            let mut reader = Options::new().read_fifo(&path).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    (0..round % 64).for_each(|_| std::hint::spin_loop());
                    write_fifo(&path).send(round.to_ne_bytes(), PATIENCE).unwrap();
                });
                let message = loop {
                    match reader.try_recv() {
                        Ok(None) => {}
                        message => break message.map(Option::unwrap),
                    }
                };
                assert_eq!(message.as_deref(), Ok(&round.to_ne_bytes()[..]), "round {round}");
                assert_eq!(reader.recv(PATIENCE).unwrap_err().kind(), ErrorKind::Closed);
            });
        }
    });
}

#[test]
fn a_listener_outlives_its_writers_and_reports_the_killed_ones_at_once() {
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().listen_fifo(&path).unwrap();
        // Registered once: the descriptor stays the same for all generations.
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &reader, EventData::new_u64(0), EventFlags::IN).unwrap();
        assert!(!is_ready(&epoll, PollFlags::IN, Duration::ZERO), "no writer has come yet");
        for generation in 0..6 {
            let mut expected = vec!["one".to_string()];
            if generation % 2 == 0 {
                expected.push("two".to_string());
                sent_by_another(&path, &["one", "two"]).join();
            } else {
                expected.push(format!("torn {}", killed_inside(&path, &["one"])));
            }
            // No other writer comes: everything, the report too, is there because the last one has
            // left.
            let mut come = Vec::new();
            while come.len() < expected.len() {
                wait_for(&epoll, PollFlags::IN);
                while let Some(item) = now(&mut reader) {
                    come.push(item);
                }
            }
            assert_eq!(come, expected, "generation {generation}");
            assert!(!reader.is_eof());
            assert!(
                !is_ready(&epoll, PollFlags::IN, SHORT),
                "generation {generation}: readable without data"
            );
            assert_eq!(reader.next_item(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        }
    });
}

#[test]
fn a_listener_that_waits_is_woken_by_every_generation() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().listen_fifo(&path).unwrap();
        let mut clone = reader.try_clone().unwrap();
        for generation in 0..20 {
            let child = sent_by_another(&path, &["one", "two"]);
            let (first, second) = thread::scope(|scope| {
                let first = scope.spawn(|| clone.recv(Deadline::NEVER).map(|message| message.into_vec()));
                let second = reader.recv(PATIENCE).map(|message| message.into_vec());
                (first.join().unwrap(), second)
            });
            let mut both = [first.unwrap(), second.unwrap()];
            both.sort();
            assert_eq!(both, [b"one", b"two"], "generation {generation}");
            child.join();
        }
    });
}

#[test]
fn read_ahead_of_a_listener_waits_for_the_next_writer() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().listen_fifo(&path).unwrap();
        let timed_out = |reader: &mut Reader| {
            reader.read_ahead(SHORT).is_err_and(|error| error.kind() == ErrorKind::TimedOut)
        };
        for generation in 0..3 {
            drop(write_fifo(&path));
            assert!(timed_out(&mut reader) && timed_out(&mut reader), "generation {generation}");
            let mut writer = write_fifo(&path);
            writer.send("whole", PATIENCE).unwrap();
            assert_eq!(reader.read_ahead(PATIENCE), Ok(16 + 5));
            drop(writer);
            // Data that this writer left unfinished would end here: it is taken first.
            assert_eq!(reader.read_ahead(SHORT), Ok(0));
            assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"whole");
            assert!(timed_out(&mut reader), "generation {generation}");
        }
        // A writer that comes while it waits.
        thread::scope(|scope| {
            scope.spawn(|| write_fifo(&path).send("later", PATIENCE).unwrap());
            assert_eq!(reader.read_ahead(PATIENCE), Ok(16 + 5));
        });
        reader.finish().unwrap();
        assert_eq!(reader.read_ahead(SHORT), Ok(0));
    });
}

/// The descriptor for event loops is a kernel object that a forked child shares with its parent.
#[test]
fn listener_in_a_forked_child_does_not_affect_its_parent() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().listen_fifo(&path).unwrap();
        let page = shared(1);
        let child = fork(|| {
            assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"for the child");
            page[0].store(1, SeqCst);
            // By now the writer has left, or does so during this wait: the pipe is reopened here,
            // in the child.
            assert_eq!(reader.recv(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        });
        write_fifo(&path).send("for the child", PATIENCE).unwrap();
        awaited(&page[0]);
        child.join();
        assert_eq!(reader.try_recv(), Ok(None));
        write_fifo(&path).send("for the parent", PATIENCE).unwrap();
        assert!(
            is_ready(&reader, PollFlags::IN, PATIENCE / 10),
            "the parent's descriptor is no longer readable"
        );
        assert_eq!(reader.recv(PATIENCE).as_deref(), Ok(&b"for the parent"[..]));
    });
}

#[test]
fn a_writer_times_out_without_a_reader_and_connects_when_one_comes() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        for deadline in [Deadline::now(), Deadline::after(SHORT)] {
            let error = Options::new().write_fifo(&path, deadline).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(deadline.has_passed());
        }
        for deadline in [Deadline::after(PATIENCE), Deadline::NEVER] {
            let page = shared(1);
            let child = fork(|| {
                page[0].store(1, SeqCst);
                Options::new().write_fifo(&path, deadline).unwrap().send("here", Deadline::NEVER).unwrap();
            });
            awaited(&page[0]);
            thread::sleep(SHORT);
            let mut reader = Options::new().read_fifo(&path).unwrap();
            assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"here");
            child.join();
        }
    });
}

#[test]
fn send_returns_closed_without_readers() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        // With a deadline a FIFO's writer opens the pipe once more, with `NEVER` it does not: both
        // must notice, early or late.
        for deadline in [Deadline::after(PATIENCE), Deadline::NEVER] {
            for sends_before in 0..2 {
                let reader = Options::new().read_fifo(&path).unwrap();
                let mut writer = write_fifo(&path);
                (0..sends_before).for_each(|_| assert_eq!(writer.send("unread", deadline), Ok(1)));
                drop(reader);
                assert_eq!(writer.send("to nobody", deadline).unwrap_err().kind(), ErrorKind::Closed);
                assert_eq!(writer.try_send("to nobody").unwrap_err().kind(), ErrorKind::Closed);
            }
        }
    });
}

#[test]
fn constructors_refuse_files_that_are_not_fifos() {
    let folder = Folder::new();
    let path = fifo(&folder, "pipe");
    let at = |name: &str| folder.join(name);
    fs::write(at("file"), "not touched").unwrap();
    std::os::unix::fs::symlink(&path, at("link")).unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let mut kept = Options::new().read_fifo(&path).unwrap();

    let expected = [
        ("link", ErrorKind::Invalid, Some(libc::ELOOP)),
        ("dangling", ErrorKind::Invalid, Some(libc::ELOOP)),
        ("file", ErrorKind::Invalid, None),
        ("missing", ErrorKind::Os, Some(libc::ENOENT)),
    ];
    for (name, kind, errno) in expected {
        for deadline in [Deadline::now(), Deadline::NEVER] {
            let error = Options::new().write_fifo(at(name), deadline).unwrap_err();
            assert_eq!((error.kind(), error.errno()), (kind, errno), "write {name}");
        }
        for error in [Options::new().read_fifo(at(name)), Options::new().listen_fifo(at(name))] {
            let error = error.unwrap_err();
            assert_eq!((error.kind(), error.errno()), (kind, errno), "read {name}");
        }
    }
    for name in ["", "socket"] {
        assert!(Options::new().read_fifo(at(name)).is_err(), "read {name:?}");
        assert!(Options::new().write_fifo(at(name), SHORT).is_err(), "write {name:?}");
    }
    let error = Options::new().write_fifo(at("socket"), PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "there is no reader to wait for");
    assert_eq!(fs::read(at("file")).unwrap(), b"not touched");
    assert_eq!(kept.try_recv(), Ok(None), "nothing was written through the link");
}

#[test]
fn create_fifo_grants_access_to_its_owner_only() {
    alone(|| {
        let folder = Folder::new();
        // Even with a umask that grants everything to everyone.
        rustix::process::umask(rustix::fs::Mode::empty());
        let path = fifo(&folder, "pipe");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let error = create_fifo(&path).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::EEXIST)));
        assert_eq!(create_fifo(folder.join("no/folder")).unwrap_err().errno(), Some(libc::ENOENT));
    });
}

/// Stresses the moment between generations: messages are neither lost nor doubled while writers
/// come and go.
#[test]
fn listener_loses_nothing_when_writers_come_and_go() {
    alone(|| {
        let folder = Folder::new();
        let path = fifo(&folder, "pipe");
        let mut reader = Options::new().listen_fifo(&path).unwrap();
        let (numbers, writers, each) = (AtomicU64::new(0), 3, 1500);
        thread::scope(|scope| {
            for _ in 0..writers {
                scope.spawn(|| {
                    for _ in 0..each {
                        let number = numbers.fetch_add(1, SeqCst);
                        write_fifo(&path).send(number.to_ne_bytes().repeat(700), PATIENCE).unwrap();
                    }
                });
            }
            let mut come: Vec<u64> = (0..writers * each)
                .map(|_| {
                    let message = reader.recv(PATIENCE).expect("no writer was killed");
                    assert_eq!(message.len(), 5600);
                    u64::from_ne_bytes(message[..8].try_into().unwrap())
                })
                .collect();
            come.sort();
            assert!(come.into_iter().eq(0..writers * each), "each came once");
        });
        assert_eq!(reader.try_recv(), Ok(None));
    });
}

#[test]
fn end_determines_the_direction_of_a_descriptor() {
    use pipework::atomic::End;
    use std::os::fd::AsFd;
    let (mut reader, writer) = pair().unwrap();
    let end = Options::new().end(writer.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let End::Writer(mut writer) = end else { panic!("{end:?}") };
    let end = Options::new().end(reader.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let End::Reader(mut twin) = end else { panic!("{end:?}") };
    writer.send("through", PATIENCE).unwrap();
    assert_eq!(&*twin.recv(PATIENCE).unwrap(), b"through");
    assert_eq!(reader.try_recv(), Ok(None));
    let kind = |error: pipework::Error| error.kind();
    assert_eq!(Options::new().dup_reader(&writer).map_err(kind).unwrap_err(), ErrorKind::Invalid);
    assert_eq!(Options::new().dup_writer(&reader).map_err(kind).unwrap_err(), ErrorKind::Invalid);
    let file = fs::File::open("/dev/null").unwrap();
    assert_eq!(Options::new().dup_reader(&file).map_err(kind).unwrap_err(), ErrorKind::Invalid);
    assert_eq!(Options::new().end(file).map_err(kind).unwrap_err(), ErrorKind::Invalid);
}

/// A message that another reader has begun to take is lost, and its rest is not a message.
#[test]
fn reader_that_joins_mid_message_reports_torn_and_skips_the_tail() {
    let folder = Folder::new();
    for mixed in [false, true] {
        let path = fifo(&folder, if mixed { "mixed" } else { "plain" });
        let options = Options::new().mixed(mixed);
        let first = options.read_fifo(&path).unwrap();
        let mut writer = options.write_fifo(&path, PATIENCE).unwrap();
        let key = writer.key();
        thread::scope(|scope| {
            scope.spawn(move || {
                writer.send(vec![b'x'; 300_000], PATIENCE).unwrap();
                writer.send("whole", PATIENCE).unwrap();
            });
            // Takes whole parts, as a reader of blocks does that is then killed.
            let mut taken = vec![0; 40_960];
            let mut len = 0;
            while len < taken.len() {
                match rustix::io::read(&first, &mut taken[len..]) {
                    Ok(more) => len += more,
                    Err(rustix::io::Errno::AGAIN) => thread::sleep(Duration::from_millis(1)),
                    Err(errno) => panic!("{errno}"),
                }
            }
            let mut second = options.read_fifo(&path).unwrap();
            drop(first);
            let items: Vec<Item> = second.items().collect::<Result<_, _>>().unwrap();
            assert!(matches!(&items[0], Item::Torn(torn)
                if (torn.writer, torn.parts, torn.kind) == (Some(key), 1, ErrorKind::Torn)));
            assert!(matches!(&items[1..], [Item::Message(message)] if **message == *b"whole"));
        });
    }
}

#[test]
fn competing_readers_yield_only_messages_that_were_sent() {
    let folder = Folder::new();
    let path = fifo(&folder, "contested");
    let options = Options::new().mixed(true);
    let mut readers: Vec<Reader> = (0..3).map(|_| options.read_fifo(&path).unwrap()).collect();
    let mut writer = options.write_fifo(&path, PATIENCE).unwrap();
    let message = |nth: u32| nth.to_string().repeat(if nth.is_multiple_of(3) { 20_000 } else { 200 });
    thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0..400 {
                writer.send(message(nth), PATIENCE).unwrap();
            }
            drop(writer);
        });
        let taken: Vec<_> = readers
            .iter_mut()
            .map(|reader| {
                scope.spawn(move || {
                    let mut whole = 0;
                    for item in reader.items() {
                        // Lost messages may leave no trace, so there is nothing to count.
                        if let Item::Message(data) = item.unwrap() {
                            let known = (0..400).any(|nth| *data == *message(nth).as_bytes());
                            assert!(known, "a message of {} bytes", data.len());
                            whole += 1;
                        }
                    }
                    whole
                })
            })
            .collect();
        let whole: u32 = taken.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!((1..=400).contains(&whole), "{whole} whole");
    });
}

#[test]
fn has_other_reader_detects_readers_of_the_same_fifo() {
    let folder = Folder::new();
    let path = fifo(&folder, "shared");
    let options = Options::new();
    let one = options.read_fifo(&path).unwrap();
    let clone = one.try_clone().unwrap();
    assert!(!one.has_other_reader() && !clone.has_other_reader(), "clones are not other readers");
    let mut two = options.listen_fifo(&path).unwrap();
    assert!(one.has_other_reader() && clone.has_other_reader() && two.has_other_reader());
    drop(one);
    assert!(two.has_other_reader(), "the clone lives");
    drop(clone);
    assert!(!two.has_other_reader());
    // A listener that has reopened its FIFO does not count as another reader of itself.
    for _ in 0..2 {
        drop(options.write_fifo(&path, PATIENCE).unwrap());
        assert_eq!(two.try_recv(), Ok(None));
    }
    assert!(!two.has_other_reader());
    let three = options.read_fifo(&path).unwrap();
    assert!(two.has_other_reader() && three.has_other_reader());
    assert!(!pair().unwrap().0.has_other_reader(), "a pipe without a name has no path to be opened by");
}
