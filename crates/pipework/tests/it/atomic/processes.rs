//! Pipes and processes: what fork and exec pass on, keys of writers that look alike, signals.
//! Promises P1 and P13.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use pipework::atomic::{Item, Options, Reader, Writer, create_fifo, pair};
use pipework::interrupt::{Verdict, set_hook};
use pipework::{Deadline, Error, ErrorKind};
use rustix::event::PollFlags;

use crate::harness::{
    Child, Folder, PATIENCE, again, alarms, alone, awaited, descriptors, enter_pid_namespace, fork, is_alone,
    let_sigpipe_kill, ring_alarms, say, shared, wait_for, within,
};

const SHORT: Duration = Duration::from_millis(20);

/// A message of many parts that differs from the message of any other number.
fn long(number: u64) -> Vec<u8> {
    number.to_ne_bytes().repeat(2000 + number as usize % 7)
}

/// A pipe of one page, so that every other write has to wait.
fn narrow() -> (Reader, Writer) {
    let (reader, mut writer) = pair().unwrap();
    writer.set_capacity(1).unwrap();
    (reader, writer)
}

fn kind<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.err().map(|error| error.kind()).expect("an error")
}

// ---------------------------------------------------------------- fork and exec

#[test]
fn inherited_writer_is_separate_in_a_forked_child() {
    alone(|| {
        let (mut reader, mut writer) = narrow();
        let whole = long(1);
        assert_eq!(writer.try_send(&whole), Ok(Some(4)));
        assert_eq!(writer.try_send("behind it"), Ok(Some(1)));
        let (pending, key) = (writer.pending(), writer.key());
        assert!(pending > 10_000, "most of it");

        // One child drops the writer that it inherited, the other sends.
        fork(|| drop(std::mem::replace(&mut writer, narrow().1))).join();
        let child = fork(|| {
            assert_eq!(writer.pending(), 0, "pending data stays with the parent");
            assert_ne!(writer.key(), key);
            assert_eq!(writer.key().pid, std::process::id() as i32);
            writer.send(long(2), PATIENCE).unwrap();
        });
        assert_eq!(writer.pending(), pending);
        let parent = thread::spawn(move || writer.close(PATIENCE));

        let mut come: Vec<_> = reader.messages().map(|message| message.unwrap()).collect();
        assert_eq!(come.len(), 3, "each once");
        let from_child = come.iter().position(|message| message.writer != key).expect("the child's");
        let from_child = come.remove(from_child);
        assert_eq!((from_child.writer.pid, &*from_child.data), (child.pid(), &long(2)[..]));
        assert_eq!((&*come[0], &*come[1]), (&whole[..], &b"behind it"[..]));
        parent.join().unwrap().unwrap();
        child.join();
    });
}

#[test]
fn inherited_reader_works_only_if_the_parent_buffered_nothing() {
    alone(|| {
        let (mut reader, mut writer) = pair().unwrap();
        fork(|| {
            assert_eq!(reader.recv(SHORT).map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
            writer.send("by the child to itself", PATIENCE).unwrap();
            assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"by the child to itself");
        })
        .join();
        let stale = |reader: &mut Reader| {
            fork(|| {
                assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Stale);
                assert_eq!(kind(reader.try_recv()), ErrorKind::Stale);
                assert_eq!(kind(reader.try_next_item()), ErrorKind::Stale);
                assert_eq!(kind(reader.read_ahead(PATIENCE)), ErrorKind::Stale);
            })
            .join();
        };
        // Bytes that are not parsed.
        assert_eq!(writer.send_many(&["one", "two"], PATIENCE), Ok(2));
        assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"one");
        stale(&mut reader);
        assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"two");
        // Half of a message.
        writer.set_capacity(1).unwrap();
        writer.try_send(long(1)).unwrap();
        assert_eq!(reader.try_recv(), Ok(None));
        stale(&mut reader);
        while !writer.try_flush().unwrap() {
            assert_eq!(reader.try_recv(), Ok(None));
        }
        assert_eq!(&*reader.recv(PATIENCE).unwrap(), &long(1)[..]);
        // A clone: the child cannot know whether a thread was using the buffer when it was forked.
        let clone = reader.try_clone().unwrap();
        stale(&mut reader);
        drop(clone);
        fork(|| assert_eq!(reader.try_recv(), Ok(None))).join();
    });
}

#[test]
fn executed_program_inherits_no_descriptors() {
    alone(|| {
        // The listing has a descriptor of its own, the same one before and after.
        let inherited = || Command::new("ls").arg("/proc/self/fd").output().expect("ls runs").stdout;
        let before = inherited();
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let (reader, writer) = pair().unwrap();
        let (raw_reader, raw_writer) = rustix::pipe::pipe().unwrap();
        let mut ends = (
            [reader.try_clone().unwrap(), Options::new().dup_reader(&reader).unwrap()],
            [Options::new().read_fifo(&path).unwrap(), Options::new().listen_fifo(&path).unwrap()],
            [writer.try_clone().unwrap(), Options::new().write_fifo(&path, PATIENCE).unwrap()],
            [Options::new().writer(raw_writer).unwrap()],
            [Options::new().reader(raw_reader).unwrap()],
        );
        let clone = ends.1[1].try_clone().unwrap();
        // Calls that open more descriptors: a FIFO's end without waiting, a listener whose writers
        // have left.
        ends.2[1].try_send("through").unwrap();
        assert!(ends.1[0].try_recv().unwrap().is_some());
        drop(Options::new().write_fifo(&path, PATIENCE).unwrap());
        assert_eq!(ends.1[1].try_recv(), Ok(None));
        assert!(descriptors() > 12);
        assert_eq!(String::from_utf8_lossy(&inherited()), String::from_utf8_lossy(&before));
        drop((ends, clone, reader, writer));
    });
}

/// Runs itself between two pipes, in mixed mode, so that the output of the test harness is ordinary
/// text.
#[test]
fn stdin_and_stdout_are_pipes_like_others() {
    let options = Options::new().mixed(true);
    if is_alone() {
        let (mut stdin, mut stdout) = (options.stdin().unwrap(), options.stdout().unwrap());
        for item in stdin.items() {
            match item.unwrap() {
                Item::Message(message) => assert!(stdout.send(&*message, PATIENCE).is_ok()),
                item => panic!("{item:?}"),
            }
        }
        return;
    }
    let (mut from_child, stdout) = options.pair().unwrap();
    let (stdin, mut to_child) = options.pair().unwrap();
    let own = |fd: BorrowedFd<'_>| Stdio::from(fd.try_clone_to_owned().unwrap());
    let mut command = again(&[], "atomic::processes::stdin_and_stdout_are_pipes_like_others");
    let child = command.stdin(own(stdin.as_fd())).stdout(own(stdout.as_fd())).spawn().unwrap();
    drop((command, stdin, stdout));
    let sender = thread::spawn(move || to_child.send_many(&(0..50).map(long).collect::<Vec<_>>(), PATIENCE));
    let items: Vec<Item> = from_child.items().map(|item| item.unwrap()).collect();
    let messages =
        items.iter().filter_map(|item| if let Item::Message(m) = item { Some(&m[..]) } else { None });
    assert!(messages.eq((0..50).map(long)));
    assert!(items.iter().any(|item| matches!(item, Item::Line(line) if line.content() == b"running 1 test")));
    assert_eq!(sender.join().unwrap(), Ok(50));
    assert!(within(PATIENCE, child).success());
}

// ---------------------------------------------------------------- keys

#[test]
fn messages_of_two_handles_in_one_thread_do_not_mix() {
    alone(|| {
        let (mut reader, mut one) = narrow();
        let mut two = Options::new().dup_writer(&one).unwrap();
        let mut three = two.try_clone().unwrap();
        for number in 0..20 {
            assert!(one.try_send(long(3 * number)).unwrap().is_some());
            assert!(two.try_send(long(3 * number + 1)).unwrap().is_some());
            assert!(three.try_send(long(3 * number + 2)).unwrap().is_some());
            // All three are inside a message; the pipe takes a page at a time, from any of them.
            let mut come = Vec::new();
            while come.len() < 3 {
                for writer in [&mut two, &mut three, &mut one] {
                    writer.try_flush().unwrap();
                    if let Some(message) = reader.try_recv().unwrap() {
                        come.push((message.writer, message.into_vec()));
                    }
                }
            }
            for (nth, writer) in [&mut one, &mut two, &mut three].into_iter().enumerate() {
                assert!(come.contains(&(writer.key(), long(3 * number + nth as u64))));
            }
        }
    });
}

/// Two containers on one FIFO: both writers are process 1. A writer that was killed inside a
/// message before was process 1 too.
#[test]
fn messages_of_writers_with_equal_process_numbers_do_not_mix() {
    fn writer(path: &Path) -> Writer {
        Options::new().write_fifo(path, PATIENCE).unwrap()
    }
    alone(|| {
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        let mut reader = Options::new().read_fifo(&path).unwrap();
        reader.set_capacity(1).unwrap();
        let open = writer(&path);
        let permitted = shared(1);
        let process_1 = |work: fn(&Path)| {
            fork(|| {
                permitted[0].store(1 + u64::from(enter_pid_namespace()), SeqCst);
                fork(|| {
                    if std::process::id() == 1 {
                        work(&path)
                    }
                })
                .join();
            })
        };
        let (alive, held) = rustix::pipe::pipe().unwrap();
        let victim = process_1(|path| assert!(writer(path).send(vec![9; 1 << 20], Deadline::NEVER).is_err()));
        drop(held);
        if awaited(&permitted[0]) == 1 {
            victim.join();
            return say(
                "messages_of_writers_with_equal_process_numbers_do_not_mix did not run: no pid namespace is permitted here",
            );
        }
        wait_for(&reader, PollFlags::IN);
        victim.kill();
        // The namespace dies with the process that made it, but a moment later.
        wait_for(&alive, PollFlags::IN);

        let many = |path: &Path| {
            (0..100).for_each(|number| assert!(writer(path).send(long(number), PATIENCE).is_ok()))
        };
        let others = [process_1(many), process_1(many)];
        let mut counts = [0; 100];
        for _ in 0..200 {
            let message = reader.recv(PATIENCE).expect("whole, although others were process 1");
            assert_eq!(message.writer.pid, 1);
            let number = u64::from_ne_bytes(message[..8].try_into().unwrap());
            assert!(*message == long(number), "message {number}");
            counts[number as usize] += 1;
        }
        assert_eq!(counts, [2; 100]);
        others.into_iter().for_each(Child::join);
        drop(open);
        assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Torn);
        assert_eq!(reader.torn().unwrap().writer.unwrap().pid, 1);
        assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Closed);
    });
}

// ---------------------------------------------------------------- signals

#[test]
fn writer_without_readers_survives_any_sigpipe_disposition() {
    alone(|| {
        let_sigpipe_kill();
        let folder = Folder::new();
        let path = folder.join("pipe");
        create_fifo(&path).unwrap();
        for fifo in [false, true] {
            let (reader, mut writer) = if fifo {
                let reader = Options::new().read_fifo(&path).unwrap();
                (reader, Options::new().write_fifo(&path, PATIENCE).unwrap())
            } else {
                pair().unwrap()
            };
            let mut clone = writer.try_clone().unwrap();
            writer.try_send("unread").unwrap();
            clone.enqueue("for the drop").unwrap();
            drop(reader);
            assert_eq!(kind(writer.send("to nobody", Deadline::NEVER)), ErrorKind::Closed);
            assert_eq!(kind(writer.send("to nobody", PATIENCE)), ErrorKind::Closed);
            assert_eq!(kind(writer.send(long(1), PATIENCE)), ErrorKind::Closed);
            assert_eq!(kind(writer.try_send("to nobody")), ErrorKind::Closed);
            assert_eq!(kind(writer.send_many(&["to nobody"], PATIENCE)), ErrorKind::Closed);
            assert_eq!(kind(writer.burst("to nobody", PATIENCE)), ErrorKind::Closed);
            writer.enqueue("to nobody").unwrap();
            assert_eq!(kind(writer.flush(PATIENCE)), ErrorKind::Closed);
            assert_eq!(writer.pending(), 0, "unread data is dropped");
        }
    });
}

#[test]
fn writer_dropped_by_a_panic_is_not_killed_by_sigpipe() {
    static READER: Mutex<Option<Reader>> = Mutex::new(None);
    fn leave_and_panic() -> Verdict {
        drop(READER.lock().unwrap().take());
        // As `panic!`, without its message.
        resume_unwind(Box::new("asked"))
    }
    alone(|| {
        let_sigpipe_kill();
        let (reader, mut writer) = narrow();
        *READER.lock().unwrap() = Some(reader);
        set_hook(leave_and_panic).unwrap();
        // With that many parts, SIGPIPE is blocked around the writes, and most parts are pending
        // when the hook is asked.
        let sent = catch_unwind(AssertUnwindSafe(move || writer.send(vec![1; 1 << 16], PATIENCE)));
        assert_eq!(sent.unwrap_err().downcast_ref(), Some(&"asked"));
    });
}

/// An alarm every millisecond on both sides, with a handler that does not restart system calls.
#[test]
fn signals_neither_lose_nor_double_anything() {
    alone(|| {
        let (mut reader, mut writer) = narrow();
        // Each in a process with one thread, so that the alarms interrupt that one.
        let receiver = fork(|| {
            drop(std::mem::replace(&mut writer, pair().unwrap().1));
            receive_among_alarms(&mut reader);
        });
        let sender = fork(|| {
            drop(std::mem::replace(&mut reader, pair().unwrap().0));
            send_among_alarms(&mut writer);
        });
        drop((reader, writer));
        sender.join();
        receiver.join();
    });
}

const ROUNDS: u64 = 300;

fn send_among_alarms(writer: &mut Writer) {
    ring_alarms();
    let (mut sent, mut interrupted) = (0, 0);
    while sent < ROUNDS {
        let batch = [long(sent), long(sent + 1), long(sent + 2)];
        let outcome = match sent / 3 % 4 {
            // Never interrupted: its result is unwrapped.
            0 => Ok(usize::from(writer.try_send(&batch[0]).unwrap().is_some())),
            1 => writer.send(&batch[0], Deadline::NEVER).map(|_| 1),
            2 => writer.send(&batch[0], PATIENCE).map(|_| 1),
            _ => writer.send_many(&batch, PATIENCE),
        };
        match outcome {
            Ok(more) => sent += more as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => interrupted += 1,
            Err(error) => panic!("{error}"),
        }
        // Time for the reader to drain the pipe, and for an alarm to find it waiting.
        thread::sleep(Duration::from_millis(if sent % 30 == 0 { 3 } else { 0 }));
    }
    while let Err(error) = writer.flush(Deadline::NEVER) {
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    }
    say(&format!("signals: {} alarms, {interrupted} sends interrupted", alarms()));
    assert!(interrupted > 0);
}

fn receive_among_alarms(reader: &mut Reader) {
    ring_alarms();
    let (mut come, mut interrupted) = (0, 0);
    loop {
        let outcome = match come % 3 {
            0 => reader.recv(Deadline::NEVER).map(Some),
            1 => reader.recv(PATIENCE).map(Some),
            _ => reader.try_recv(),
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(message)) => {
                assert!(*message == long(come), "message {come}");
                come += 1;
                // Time for the pipe to fill up, and for an alarm to find the sender waiting.
                thread::sleep(Duration::from_micros(300));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => interrupted += 1,
            Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed, "after {come}: {error}"),
        }
    }
    say(&format!("signals: {} alarms, {interrupted} receptions interrupted, {come} messages", alarms()));
    assert!(come >= ROUNDS && interrupted > 0);
}
