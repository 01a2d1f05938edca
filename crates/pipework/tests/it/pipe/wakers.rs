//! Wakers: which are woken, how often, and the calls that their code may make.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use pipework::pipe::{AsyncReader, Writer, pipe};
use pipework::{Deadline, ErrorKind};

/// How many times a waker was used.
struct Count(AtomicU32);

impl Count {
    fn new() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count(AtomicU32::new(0)));
        (Arc::clone(&count), Waker::from(count))
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn many_small_writes_wake_a_sleeping_task_once() {
    let (count, waker) = Count::new();
    let cx = &mut Context::from_waker(&waker);
    let (reader, mut writer) = pipe(8000).unwrap();
    let (mut reader, mut buf) = (reader.into_async(), [0; 1000]);
    for sleeps in 1..=3 {
        assert!(reader.poll_recv(cx, &mut buf).is_pending());
        assert!(reader.poll_recv(cx, &mut buf).is_pending(), "asking twice is waiting once");
        (0..1000).for_each(|_| writer.write_all(b"8 bytes.").unwrap());
        assert_eq!(count.get(), 2 * sleeps - 1);
        let mut writer_task = writer.into_async();
        assert!(writer_task.poll_send(cx, b"x").is_pending());
        (0..8).for_each(|_| assert!(reader.poll_recv(cx, &mut buf).is_ready()));
        assert_eq!(count.get(), 2 * sleeps, "as many small reads");
        writer = writer_task.into_blocking();
    }
}

/// Calls that do not wait leave a wait that has begun untouched.
#[test]
fn pending_task_is_woken_after_other_calls_on_its_end() {
    let (count, waker) = Count::new();
    let cx = &mut Context::from_waker(&waker);
    let (reader, mut writer) = pipe(8).unwrap();
    let (mut reader, mut buf) = (reader.into_async(), [0; 8]);
    assert!(reader.poll_recv(cx, &mut buf).is_pending());
    let end = reader.get_mut();
    assert_eq!(end.try_recv(&mut buf), Ok(None));
    assert_eq!(end.peek(0, Deadline::NEVER).unwrap().0, b"");
    assert_eq!(end.recv(&mut buf, Deadline::now()).unwrap_err().kind(), ErrorKind::TimedOut);
    writer.send_all(b"8 bytes.", Deadline::NEVER).unwrap();
    assert_eq!(count.get(), 1);
    let mut writer = writer.into_async();
    assert!(writer.poll_send(cx, b"x").is_pending());
    assert_eq!(writer.get_mut().reserve(0, Deadline::NEVER).unwrap().0.len(), 0);
    assert_eq!(writer.get_mut().send(b"x", Deadline::now()).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(reader.poll_recv(cx, &mut buf).is_ready());
    assert_eq!(count.get(), 2);
}

#[test]
fn latest_task_that_polled_is_woken() {
    let [(first, one), (second, two)] = [Count::new(), Count::new()];
    let (reader, mut writer) = pipe(8).unwrap();
    let mut reader = reader.into_async();
    for waker in [&one, &two, &one, &two] {
        assert!(reader.poll_recv(&mut Context::from_waker(waker), &mut [0]).is_pending());
    }
    writer.send_all(b"x", Deadline::NEVER).unwrap();
    assert_eq!((first.get(), second.get()), (0, 1));
}

/// A stream that never runs dry must not keep a thread from its other tasks.
#[test]
fn task_that_never_waits_yields_its_thread() {
    let (count, waker) = Count::new();
    let cx = &mut Context::from_waker(&waker);
    let (reader, writer) = pipe(8).unwrap();
    let (mut reader, mut writer) = (reader.into_async(), writer.into_async());
    let mut turns = 0;
    for round in 0..1000 {
        let before = count.get();
        if writer.poll_send(cx, &[round as u8]).is_pending() {
            assert_eq!(count.get(), before + 1, "and is woken at once");
            assert!(writer.poll_send(cx, &[round as u8]).is_ready());
            turns += 1;
        }
        let mut buf = [0];
        if reader.poll_recv(cx, &mut buf).is_pending() {
            assert!(reader.poll_recv(cx, &mut buf).is_ready(), "nothing is lost");
            turns += 1;
        }
        assert_eq!(buf, [round as u8]);
    }
    assert!((10..=30).contains(&turns), "{turns}");
    assert_eq!(count.get(), turns);
}

#[test]
fn dropped_end_keeps_no_waker() {
    let (reader, writer) = pipe(1).unwrap();
    let (reading, waker) = Count::new();
    let mut reader = reader.into_async();
    assert!(reader.poll_recv(&mut Context::from_waker(&waker), &mut [0]).is_pending());
    drop(waker);
    assert_eq!(Arc::strong_count(&reading), 2);
    drop(reader);
    assert_eq!(Arc::strong_count(&reading), 1);
    assert!(writer.is_closed());
}

/// A waker's code may do anything: run the task at once, or drop the other end with the last waker
/// of a task.
#[test]
fn a_waker_may_use_the_pipe() {
    struct RunHere(Mutex<Option<AsyncReader>>, Mutex<Vec<u8>>);
    impl Wake for RunHere {
        fn wake(self: Arc<Self>) {
            let waker = Waker::from(Arc::clone(&self));
            let (mut reader, mut buf) = (self.0.lock().unwrap(), [0; 4]);
            let Some(task) = reader.as_mut() else { return };
            while let Poll::Ready(got) = task.poll_recv(&mut Context::from_waker(&waker), &mut buf) {
                match got.unwrap() {
                    0 => return *reader = None,
                    len => self.1.lock().unwrap().extend(&buf[..len]),
                }
            }
        }
    }
    let (reader, mut writer) = pipe(16).unwrap();
    let task = Arc::new(RunHere(Mutex::new(Some(reader.into_async())), Mutex::default()));
    Arc::clone(&task).wake();
    for i in 0..100 {
        writer.write_all(&[i]).unwrap();
        assert_eq!(task.1.lock().unwrap().len(), usize::from(i) + 1);
    }
    drop(writer);
    assert!(task.0.lock().unwrap().is_none());
}

#[test]
fn waker_may_own_the_other_end() {
    struct Owner(#[allow(dead_code, reason = "it is there to be dropped")] Writer);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    let (reader, writer) = pipe(16).unwrap();
    let mut reader = reader.into_async();
    let owner = Waker::from(Arc::new(Owner(writer)));
    assert!(reader.poll_recv(&mut Context::from_waker(&owner), &mut [0]).is_pending());
    drop(owner);
    assert!(reader.poll_recv(&mut Context::from_waker(Waker::noop()), &mut [0]).is_ready());
    assert!(reader.get_ref().is_closed());
}

/// The panic passes through the call that rang, which has done its work.
#[test]
fn a_waker_that_panics_loses_nothing() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a waker"));
        }
    }
    let (reader, mut writer) = pipe(8).unwrap();
    let (mut reader, waker) = (reader.into_async(), Waker::from(Arc::new(Panics)));
    assert!(reader.poll_recv(&mut Context::from_waker(&waker), &mut [0]).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| writer.try_send(b"abc"))).is_err());
    assert_eq!(writer.try_send(b"d"), Ok(Some(1)));
    let mut reader = reader.into_blocking();
    let mut buf = [0; 8];
    assert_eq!(reader.try_recv(&mut buf), Ok(Some(4)));
    assert_eq!(&buf[..4], b"abcd");
    let mut reader = reader.into_async();
    assert!(reader.poll_recv(&mut Context::from_waker(&waker), &mut [0]).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(writer))).is_err());
    assert_eq!(reader.into_blocking().recv(&mut buf, Deadline::NEVER), Ok(0));
}
