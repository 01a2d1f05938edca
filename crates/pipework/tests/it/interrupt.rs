//! The interrupt hook in real processes: asked in every kind of wait, in the thread that waits.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pipework::interrupt::{Verdict, set_hook};
use pipework::{Deadline, ErrorKind, atomic, fd, pipe, reqrep};

use crate::harness::{Folder, PATIENCE, alarms, alone, asleep, fork, in_a_task, ring_alarms};

thread_local! {
    /// How many times this thread is asked before it is stopped; 0 is for ever.
    static STOPS_AT: Cell<u32> = const { Cell::new(0) };
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

fn count() -> Verdict {
    ASKED.set(ASKED.get() + 1);
    if ASKED.get() == STOPS_AT.get() { Verdict::Stop } else { Verdict::GoOn }
}

/// A wait that only the hook ends, and how it ends.
type Endless<'a> = (&'a str, &'a mut dyn FnMut() -> ErrorKind);

fn kind<T, E: Into<pipework::Error>>(done: Result<T, E>) -> ErrorKind {
    done.map(drop).map_err(Into::into).unwrap_err().kind()
}

/// Makes every call that may wait, until each was stopped.
fn stop_all_waits(deadline: Deadline) {
    let folder = Folder::new();
    let fifo = folder.join("fifo");
    atomic::create_fifo(&fifo).unwrap();
    let (mut reader, _writer) = atomic::pair().unwrap();
    let (mut cloned, _also) = atomic::pair().unwrap();
    let _clone = cloned.try_clone().unwrap();
    let (_reader, mut writer) = atomic::pair().unwrap();
    let (mut byte_reader, _byte_writer) = pipe::pipe(8).unwrap();
    let (_byte_reader, mut byte_writer) = pipe::pipe(8).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let segment = reqrep::Options::new().slots(1).anonymous().unwrap();
    let (client, other) = (segment.client().unwrap(), segment.client().unwrap());
    let server = segment.server().unwrap();
    let mut bytes = [0; 8];
    let mut waits: Vec<Endless<'_>> = vec![];
    let mut recv = || kind(reader.recv(deadline));
    waits.push(("atomic recv", &mut recv));
    let mut recv = || kind(cloned.recv(deadline));
    waits.push(("atomic recv of a clone", &mut recv));
    let mut send = || kind(writer.send([1; 1 << 20], deadline));
    waits.push(("atomic send inside a message", &mut send));
    let mut open = || kind(atomic::Options::new().write_fifo(&fifo, deadline));
    waits.push(("open a FIFO for writing", &mut open));
    let mut recv = || kind(byte_reader.recv(&mut bytes, deadline));
    waits.push(("pipe recv", &mut recv));
    let mut send = || byte_writer.send_all(&[1; 64], deadline).unwrap_err().kind();
    waits.push(("pipe send", &mut send));
    let mut read = || fd::read_full(&near, &mut [0; 8], deadline).unwrap_err().kind();
    waits.push(("fd read", &mut read));
    let mut write = || fd::write_all(&near, &vec![1; 1 << 22], deadline).unwrap_err().kind();
    waits.push(("fd write", &mut write));
    let mut copy = || fd::copy_all(&near, &near, 8, deadline).unwrap_err().kind();
    waits.push(("fd copy", &mut copy));
    let mut poll = || kind(fd::poll(&mut [], deadline));
    waits.push(("fd poll", &mut poll));
    let mut recv = || kind(server.recv(deadline));
    waits.push(("reqrep recv", &mut recv));
    let mut call = || kind(client.call("nobody answers", deadline));
    waits.push(("reqrep call", &mut call));
    let mut send = || {
        let _ticket = other.send("keeps the only slot", PATIENCE).unwrap();
        let stopped = kind(client.send("finds none", deadline));
        other.forget_all();
        stopped
    };
    waits.push(("reqrep send", &mut send));
    for (what, wait) in waits {
        ASKED.set(0);
        assert_eq!(wait(), ErrorKind::Interrupted, "{what}");
        assert_eq!(ASKED.get(), STOPS_AT.get(), "{what}");
    }
    drop(far);
}

#[test]
fn every_wait_asks_the_hook_and_ends_on_stop() {
    alone(|| {
        set_hook(count).unwrap();
        assert_eq!(kind(set_hook(count)), ErrorKind::Invalid, "a hook is already set");
        for deadline in [Deadline::NEVER, Deadline::after(Duration::from_secs(600))] {
            // Without a signal: at the end of a slice, in any thread.
            thread::spawn(move || {
                STOPS_AT.set(2);
                stop_all_waits(deadline);
            })
            .join()
            .unwrap();
        }
        // A process with one thread, so that the alarms interrupt that one.
        let child = fork(|| {
            ring_alarms();
            STOPS_AT.set(5);
            stop_all_waits(Deadline::NEVER);
            assert!(alarms() > 0);
        });
        child.join();
    });
}

#[test]
fn waits_that_the_hook_lets_go_on_lose_nothing() {
    fn among_alarms() {
        let (mut reader, mut writer) = atomic::pair().unwrap();
        let (mut byte_reader, mut byte_writer) = pipe::pipe(64).unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let segment = reqrep::Options::new().anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        ring_alarms();
        let other = thread::spawn(move || {
            for nth in 0..200_u32 {
                let slowly = || thread::sleep(Duration::from_micros(u64::from(nth % 7) * 300));
                writer.send([nth as u8; 100_000], Deadline::NEVER).unwrap();
                slowly();
                byte_writer.send_all(&[nth as u8; 1000], Deadline::NEVER).unwrap();
                slowly();
                far.write_all(&[nth as u8; 1000]).unwrap();
                let request = server.recv(Deadline::NEVER).unwrap();
                slowly();
                assert!(request.reply(&[nth as u8; 10][..]).unwrap());
            }
        });
        for nth in 0..200_u32 {
            let slowly = || thread::sleep(Duration::from_micros(u64::from(nth % 5) * 300));
            assert_eq!(*reader.recv(Deadline::NEVER).unwrap(), [nth as u8; 100_000]);
            let mut bytes = [0; 1000];
            let mut got = 0;
            while got < 1000 {
                got += byte_reader.recv(&mut bytes[got..], Deadline::NEVER).unwrap();
            }
            assert_eq!(bytes, [nth as u8; 1000]);
            slowly();
            assert_eq!(fd::read_full(&near, &mut bytes, Deadline::NEVER), Ok(1000));
            assert_eq!(bytes, [nth as u8; 1000]);
            slowly();
            assert_eq!(*client.call(&[0; 5000], Deadline::NEVER).unwrap(), [nth as u8; 10]);
        }
        other.join().unwrap();
        assert!(alarms() > 0 && ASKED.get() > 0);
        near.set_nonblocking(true).unwrap();
        assert_eq!(near.read(&mut [0]).ok(), Some(0), "nothing is left, and the other side is closed");
    }
    alone(|| {
        set_hook(count).unwrap();
        // The alarms interrupt the first thread of a process.
        fork(among_alarms).join();
    });
}

#[test]
fn threads_of_the_library_never_ask_the_hook() {
    static OTHERS: AtomicU32 = AtomicU32::new(0);
    static HERE: AtomicBool = AtomicBool::new(false);
    fn note() -> Verdict {
        let is_ours = thread::current().name().is_some_and(|name| name.starts_with("pipework"));
        if is_ours {
            OTHERS.fetch_add(1, SeqCst)
        } else {
            u32::from(HERE.swap(true, SeqCst))
        };
        Verdict::GoOn
    }
    alone(|| {
        set_hook(note).unwrap();
        let segment = reqrep::Options::new().anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        thread::scope(|scope| {
            // Longer than a slice of the thread that waits for tasks, and than one here.
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(900));
                server.recv(PATIENCE).unwrap().reply("late").unwrap();
            });
            scope.spawn(|| fd::poll(&mut [], Duration::from_millis(600)).unwrap());
            assert_eq!(&*in_a_task(client.call_async("task")).unwrap(), b"late");
        });
        assert!(HERE.load(SeqCst), "the thread that polls was asked");
        assert_eq!(OTHERS.load(SeqCst), 0);
    });
}

#[test]
fn waiting_thread_keeps_its_position_while_its_hook_runs() {
    thread_local! {
        static IS_FIRST: Cell<bool> = const { Cell::new(false) };
    }
    static IN_HOOK: AtomicBool = AtomicBool::new(false);
    static MAY_LEAVE: AtomicBool = AtomicBool::new(false);
    fn hold_the_first() -> Verdict {
        if IS_FIRST.get() && !IN_HOOK.swap(true, SeqCst) {
            while !MAY_LEAVE.load(SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Verdict::GoOn
    }
    alone(|| {
        set_hook(hold_the_first).unwrap();
        let segment = reqrep::Options::new().slots(1).anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let taken = client.send("takes the only slot", PATIENCE).unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            let (client, order) = (&client, &order);
            let first = scope.spawn(move || {
                IS_FIRST.set(true);
                let ticket = client.send("first", PATIENCE).unwrap();
                order.lock().unwrap().push("first");
                client.forget(ticket).unwrap();
            });
            while !IN_HOOK.load(SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            // It waits behind the thread whose hook runs.
            let second = asleep(scope, move || {
                let ticket = client.send("second", PATIENCE).unwrap();
                order.lock().unwrap().push("second");
                client.forget(ticket).unwrap();
            });
            server.recv(PATIENCE).unwrap().reply("goes").unwrap();
            client.recv(taken, PATIENCE).unwrap();
            // Time for the second to check by itself, as it does at the end of a slice.
            thread::sleep(Duration::from_millis(600));
            MAY_LEAVE.store(true, SeqCst);
            for expected in ["first", "second"] {
                assert_eq!(&*server.recv(PATIENCE).unwrap(), expected.as_bytes());
            }
            first.join().unwrap();
            second.join().unwrap();
        });
    });
}
