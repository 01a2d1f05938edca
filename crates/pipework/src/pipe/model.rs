//! Every interleaving of two ends, under loom: the ring's hand-over, sleeping and waking, both
//! closes, wakers. Run by `make model`.
//!
//! The ring's cells detect any byte that is touched by the side that does not own it; loom itself
//! detects a thread that sleeps for ever.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Reader, Writer, pipe};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::sync::{Ordering, Reach, Word, search};

/// A pipe whose ends sleep at once: spinning only repeats checks, and loom covers that anyway.
fn sleepy(capacity: usize) -> (Reader, Writer) {
    let (mut reader, mut writer) = pipe(capacity).unwrap();
    reader.set_spin(Duration::ZERO);
    writer.set_spin(Duration::ZERO);
    (reader, writer)
}

/// Runs a task in this thread to its end.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    struct Alarm(Word);
    impl Wake for Alarm {
        fn wake(self: Arc<Self>) {
            self.0.fetch_or(1, Ordering::Release);
            self.0.wake(1, Reach::Process);
        }
    }
    let alarm = Arc::new(Alarm(Word::new(0)));
    let waker = Waker::from(Arc::clone(&alarm));
    let mut task = pin!(task);
    loop {
        if let Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        while alarm.0.replace(1, 0, Ordering::Acquire).is_err() {
            alarm.0.park(0, None, Reach::Process).expect("a model has no signals");
        }
    }
}

fn send(mut writer: Writer, bytes: &[u8]) {
    writer.send_all(bytes, Deadline::NEVER).unwrap();
}

async fn send_as_task(writer: Writer, bytes: &[u8]) {
    let mut writer = writer.into_async();
    let mut done = 0;
    while done < bytes.len() {
        done += writer.send(&bytes[done..]).await.unwrap();
    }
}

/// Reads to the end with a buffer of two bytes.
fn recv(mut reader: Reader) -> Vec<u8> {
    let (mut bytes, mut buf) = (vec![], [0; 2]);
    loop {
        match reader.recv(&mut buf, Deadline::NEVER).unwrap() {
            0 => return bytes,
            len => bytes.extend(&buf[..len]),
        }
    }
}

async fn recv_as_task(reader: Reader) -> Vec<u8> {
    let (mut reader, mut bytes, mut buf) = (reader.into_async(), vec![], [0; 2]);
    loop {
        match reader.recv(&mut buf).await.unwrap() {
            0 => return bytes,
            len => bytes.extend(&buf[..len]),
        }
    }
}

#[test]
fn bytes_come_out_in_order_and_then_the_end() {
    for (capacity, bytes) in [(1, &b"ab"[..]), (2, b"abc"), (3, b"abcd")] {
        search(move || {
            let (reader, writer) = sleepy(capacity);
            let thread = loom::thread::spawn(move || send(writer, bytes));
            assert_eq!(recv(reader), bytes);
            thread.join().unwrap();
        });
    }
}

#[test]
fn thread_and_task_wake_each_other() {
    search(|| {
        let (reader, writer) = sleepy(1);
        let thread = loom::thread::spawn(move || send(writer, b"ab"));
        assert_eq!(block_on(recv_as_task(reader)), b"ab");
        thread.join().unwrap();
    });
    search(|| {
        let (reader, writer) = sleepy(1);
        let thread = loom::thread::spawn(move || block_on(send_as_task(writer, b"ab")));
        assert_eq!(recv(reader), b"ab");
        thread.join().unwrap();
    });
}

#[test]
fn two_tasks_wake_each_other() {
    search(|| {
        let (reader, writer) = sleepy(1);
        let thread = loom::thread::spawn(move || block_on(send_as_task(writer, b"ab")));
        assert_eq!(block_on(recv_as_task(reader)), b"ab");
        thread.join().unwrap();
    });
}

#[test]
fn closing_the_reader_wakes_the_writer() {
    for as_task in [false, true] {
        search(move || {
            let (reader, mut writer) = sleepy(1);
            let thread = loom::thread::spawn(move || drop(reader));
            let outcome = match as_task {
                false => writer.send_all(b"ab", Deadline::NEVER).map_err(|unfinished| unfinished.kind()),
                true => block_on(async {
                    let mut writer = writer.into_async();
                    writer
                        .send(b"a")
                        .await
                        .and(writer.send(b"b").await)
                        .map(drop)
                        .map_err(|error| error.kind())
                }),
            };
            assert_eq!(outcome, Err(ErrorKind::Closed));
            thread.join().unwrap();
        });
    }
}

#[test]
fn error_comes_after_the_last_byte() {
    for lent in [false, true] {
        search(move || {
            let (mut reader, mut writer) = sleepy(2);
            let thread = loom::thread::spawn(move || {
                writer.send(b"a", Deadline::NEVER).unwrap();
                writer.close_with_error(std::io::ErrorKind::InvalidData);
            });
            let mut buf = [0; 2];
            if lent {
                assert_eq!(reader.peek(1, Deadline::NEVER).map(|(there, _)| there.len()), Ok(1));
            }
            assert_eq!(reader.recv(&mut buf, Deadline::NEVER), Ok(1));
            let error = reader.recv(&mut buf, Deadline::NEVER).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert_eq!(reader.failure().unwrap().kind(), std::io::ErrorKind::InvalidData);
            thread.join().unwrap();
        });
    }
}

#[test]
fn both_ends_may_close_at_the_same_time() {
    search(|| {
        let (reader, mut writer) = sleepy(1);
        let thread = loom::thread::spawn(move || drop(reader));
        let _ = writer.try_send(b"a");
        drop(writer);
        thread.join().unwrap();
    });
}

/// A task that was dropped leaves its waker behind; a thread that takes over its end must still be
/// woken.
#[test]
fn end_of_a_dropped_task_still_wakes_a_thread() {
    search(|| {
        let (reader, writer) = sleepy(1);
        let thread = loom::thread::spawn(move || send(writer, b"a"));
        let mut reader = reader.into_async();
        let mut buf = [0; 1];
        let polled = reader.poll_recv(&mut Context::from_waker(Waker::noop()), &mut buf);
        let taken = usize::from(polled.is_ready());
        assert_eq!(recv(reader.into_blocking()).len() + taken, 1);
        thread.join().unwrap();
    });
}

/// A task that returned pending checks once more, as a thread does whose deadline has passed: it
/// must still be woken.
#[test]
fn task_that_checks_again_before_it_sleeps_is_woken() {
    search(|| {
        let (reader, writer) = sleepy(1);
        let thread = loom::thread::spawn(move || send(writer, b"a"));
        let (mut reader, mut buf) = (reader.into_async(), [0; 1]);
        let got = block_on(poll_fn(|cx| {
            let polled = reader.poll_recv(cx, &mut buf).map(Result::unwrap);
            let mut looked = || reader.get_mut().recv(&mut buf, Deadline::now());
            if polled.is_ready() { polled } else { looked().map_or(Poll::Pending, Poll::Ready) }
        }));
        assert_eq!((got, buf), (1, *b"a"));
        thread.join().unwrap();
    });
}
