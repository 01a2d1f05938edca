//! Tests that one thread can do: every call against a naive model, every error, system calls that
//! fail on order.

use std::collections::VecDeque;
use std::error::Error as _;
use std::fmt;
use std::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use std::time::Duration;

use proptest::prelude::*;

use super::{Reader, Writer, pipe};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::sys::fault::{Fault, all_met, order};

fn kind<T>(outcome: crate::error::Result<T>) -> ErrorKind {
    outcome.map(drop).expect_err("it must fail").kind()
}

// ---------------------------------------------------------------- against a model

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    TrySend(usize),
    SendAll(usize),
    WriteVectored(usize, usize),
    Reserve { min: usize, put: usize },
    Recv(usize),
    TryRecv(usize),
    RecvFull(usize),
    RecvUntil(usize),
    ReadVectored(usize, usize),
    Peek { min: usize, take: usize },
    FillBuf(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let len = || 0..25usize;
    prop_oneof![
        len().prop_map(Op::Send),
        len().prop_map(Op::TrySend),
        len().prop_map(Op::SendAll),
        (len(), len()).prop_map(|(a, b)| Op::WriteVectored(a, b)),
        (len(), len()).prop_map(|(min, put)| Op::Reserve { min, put }),
        len().prop_map(Op::Recv),
        len().prop_map(Op::TryRecv),
        len().prop_map(Op::RecvFull),
        len().prop_map(Op::RecvUntil),
        (len(), len()).prop_map(|(a, b)| Op::ReadVectored(a, b)),
        (len(), len()).prop_map(|(min, take)| Op::Peek { min, take }),
        len().prop_map(Op::FillBuf),
    ]
}

/// The pipe, and the queue that must behave the same.
struct Twins {
    reader: Reader,
    writer: Writer,
    queue: VecDeque<u8>,
    /// The next byte to be sent.
    next: u8,
}

impl Twins {
    fn space(&self) -> usize {
        self.writer.capacity() - self.queue.len()
    }

    /// The next `len` bytes of the stream. Some are newlines.
    fn bytes(&self, len: usize) -> Vec<u8> {
        (0..len).map(|i| self.next.wrapping_add(i as u8) % 12 + b'\n' - 3).collect()
    }

    fn sent(&mut self, len: usize) {
        self.queue.extend(self.bytes(len));
        self.next = (self.next + len as u8) % 12;
    }

    fn received(&mut self, bytes: &[u8]) {
        let expected: Vec<u8> = self.queue.drain(..bytes.len()).collect();
        assert_eq!(bytes, expected);
    }

    fn run(&mut self, op: &Op) {
        let (space, there) = (self.space(), self.queue.len());
        let mut buf = [0; 64];
        match *op {
            Op::Send(len) => {
                let sent = self.writer.send(&self.bytes(len), Deadline::now());
                match sent {
                    Ok(sent) => assert_eq!(sent, len.min(space)),
                    Err(error) => assert_eq!((error.kind(), space), (ErrorKind::TimedOut, 0)),
                }
                self.sent(sent.unwrap_or(0));
            }
            Op::TrySend(len) => {
                let sent = self.writer.try_send(&self.bytes(len)).expect("the reader is there");
                assert_eq!(sent, (len == 0 || space > 0).then_some(len.min(space)));
                self.sent(sent.unwrap_or(0));
            }
            Op::SendAll(len) => {
                let sent = self.writer.send_all(&self.bytes(len), Deadline::now());
                let (done, kind) = sent.map_or_else(|e| (e.done as usize, Some(e.kind())), |()| (len, None));
                assert_eq!((done, kind), (len.min(space), (len > space).then_some(ErrorKind::TimedOut)));
                self.sent(done);
            }
            Op::WriteVectored(a, b) if space > 0 || a + b == 0 => {
                let bytes = self.bytes(a + b);
                let bufs = [IoSlice::new(&bytes[..a]), IoSlice::new(&[]), IoSlice::new(&bytes[a..])];
                assert_eq!(self.writer.write_vectored(&bufs).unwrap(), (a + b).min(space));
                self.sent((a + b).min(space));
            }
            Op::Reserve { min, put } => {
                let bytes = self.bytes(64);
                let capacity = self.writer.capacity();
                match self.writer.reserve(min, Deadline::now()) {
                    Ok((first, second)) => {
                        let len = first.len() + second.len();
                        assert!(min <= len && len <= space && (min == 0 || len > 0));
                        let put = put.min(len);
                        first.iter_mut().chain(second).zip(&bytes[..put]).for_each(|(to, from)| *to = *from);
                        assert_eq!(kind(self.writer.commit(len + 1)), ErrorKind::Invalid);
                        self.writer.commit(put).unwrap();
                        self.sent(put);
                    }
                    Err(error) if min > capacity => assert_eq!(error.kind(), ErrorKind::TooLong),
                    Err(error) => assert_eq!((error.kind(), space < min), (ErrorKind::TimedOut, true)),
                }
            }
            Op::Recv(len) => match self.reader.recv(&mut buf[..len], Deadline::now()) {
                Ok(got) => {
                    assert_eq!(got, len.min(there));
                    self.received(&buf[..got]);
                }
                Err(error) => assert_eq!((error.kind(), there), (ErrorKind::TimedOut, 0)),
            },
            Op::TryRecv(len) => {
                let got = self.reader.try_recv(&mut buf[..len]).expect("the writer has not failed");
                assert_eq!(got, (len == 0 || there > 0).then_some(len.min(there)));
                self.received(&buf[..got.unwrap_or(0)]);
            }
            Op::RecvFull(len) => {
                let got = self.reader.recv_full(&mut buf[..len], Deadline::now());
                let (done, kind) = got.map_or_else(|e| (e.done as usize, Some(e.kind())), |got| (got, None));
                assert_eq!((done, kind), (len.min(there), (len > there).then_some(ErrorKind::TimedOut)));
                self.received(&buf[..done]);
            }
            Op::RecvUntil(len) => {
                let line = self.queue.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
                let got = self.reader.recv_until(b'\n', &mut buf[..len], Deadline::now());
                let (done, kind) = got.map_or_else(|e| (e.done as usize, Some(e.kind())), |got| (got, None));
                let ends = line.filter(|line| *line <= len).or((len <= there).then_some(len));
                assert_eq!(
                    (done, kind),
                    (ends.unwrap_or(there), ends.is_none().then_some(ErrorKind::TimedOut))
                );
                self.received(&buf[..done]);
            }
            Op::ReadVectored(a, b) if there > 0 || a + b == 0 => {
                let (first, second) = buf.split_at_mut(a);
                let bufs = &mut [
                    IoSliceMut::new(first),
                    IoSliceMut::new(&mut []),
                    IoSliceMut::new(&mut second[..b]),
                ];
                assert_eq!(self.reader.read_vectored(bufs).unwrap(), (a + b).min(there));
                self.received(&buf[..(a + b).min(there)]);
            }
            Op::Peek { min, take } => {
                let capacity = self.reader.capacity();
                match self.reader.peek(min, Deadline::now()) {
                    Ok((first, second)) => {
                        let seen = [first, second].concat();
                        assert!(min <= seen.len() && seen.len() <= there && (there == 0 || !seen.is_empty()));
                        assert_eq!(kind(self.reader.consume(seen.len() + 1)), ErrorKind::Invalid);
                        let take = take.min(seen.len());
                        self.reader.consume(take).unwrap();
                        self.received(&seen[..take]);
                    }
                    Err(error) if min > capacity => assert_eq!(error.kind(), ErrorKind::TooLong),
                    Err(error) => assert_eq!((error.kind(), there < min), (ErrorKind::TimedOut, true)),
                }
            }
            Op::FillBuf(take) if there > 0 => {
                let seen = self.reader.fill_buf().unwrap().to_vec();
                assert!(!seen.is_empty());
                // Consuming more than was lent consumes as much as was lent: the trait cannot
                // report an error.
                BufRead::consume(&mut self.reader, take.max(seen.len() + 1));
                let all: Vec<u8> = self.queue.iter().copied().take(there - self.reader.len()).collect();
                assert!(all.starts_with(&seen) && all.len() <= take.max(seen.len() + 1));
                self.received(&all);
            }
            // `std::io` would wait here.
            Op::WriteVectored(..) | Op::ReadVectored(..) | Op::FillBuf(_) => {}
        }
        assert_eq!((self.reader.len(), self.writer.len()), (self.queue.len(), self.queue.len()));
        assert_eq!(self.reader.is_empty(), self.queue.is_empty());
    }
}

proptest! {
    #[test]
    fn pipe_behaves_like_a_queue_of_bytes(capacity in 1..20usize, ops in prop::collection::vec(op(), 0..200)) {
        let (reader, writer) = pipe(capacity).unwrap();
        let mut twins = Twins { reader, writer, queue: VecDeque::new(), next: 0 };
        prop_assert_eq!((twins.reader.capacity(), twins.writer.capacity()), (capacity, capacity));
        for op in &ops {
            twins.run(op);
        }
        let Twins { mut reader, writer, queue, .. } = twins;
        drop(writer);
        let mut rest = vec![];
        reader.read_to_end(&mut rest).unwrap();
        prop_assert_eq!(rest, Vec::from(queue));
    }
}

// ---------------------------------------------------------------- errors

#[test]
fn pipe_refuses_an_impossible_capacity() {
    for (capacity, expected) in [
        (0, ErrorKind::Invalid),
        (usize::MAX, ErrorKind::Invalid),
        (1 << (usize::BITS - 1), ErrorKind::Invalid),
        (1 << (usize::BITS - 2), ErrorKind::Os),
    ] {
        assert_eq!(kind(pipe(capacity)), expected, "{capacity}");
    }
}

#[test]
fn writer_that_was_shut_down_refuses_more_bytes() {
    let (mut reader, mut writer) = pipe(8).unwrap();
    writer.write_all(b"rest").unwrap();
    writer.endpoint.close(None);
    writer.endpoint.close(Some(io::Error::other("too late")));
    assert_eq!(writer.write(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(kind(writer.reserve(1, Deadline::NEVER)), ErrorKind::Closed);
    assert_eq!((reader.is_closed(), reader.failure().is_none()), (true, true));
    assert_eq!(io::read_to_string(&mut reader).unwrap(), "rest");
    assert!(!writer.is_closed(), "that is whether the reader is");
}

/// An early `?` drops the writer together with its wrapper.
#[test]
fn dropping_a_must_finish_writer_fails_the_stream_through_any_wrapper() {
    fn produce(mut to: impl Write) -> Result<(), Box<dyn std::error::Error>> {
        writeln!(to, "{}", "1".parse::<i32>()?)?;
        writeln!(to, "{}", "two".parse::<i32>()?)?;
        Ok(())
    }
    type Wrap = fn(Writer) -> Box<dyn Write>;
    let wraps: [Wrap; 3] = [
        |writer| Box::new(writer),
        |writer| Box::new(io::BufWriter::new(writer)),
        |writer| Box::new(io::LineWriter::new(Box::new(writer) as Box<dyn Write>)),
    ];
    for wrap in wraps {
        let (mut reader, writer) = pipe(64).unwrap();
        assert!(produce(wrap(writer.must_finish())).is_err());
        let mut body = String::new();
        let error = reader.read_to_string(&mut body).unwrap_err();
        assert_eq!(error.to_string(), "the writer was dropped before the end of the stream");
    }
    let (reader, writer) = pipe(64).unwrap();
    let mut writer = io::BufWriter::new(writer.must_finish());
    writer.write_all(b"whole").unwrap();
    writer.into_inner().unwrap().finish().unwrap();
    assert_eq!(io::read_to_string(reader).unwrap(), "whole");
}

#[test]
fn panic_fails_only_streams_that_were_open_when_it_began() {
    /// Its destructor sends through a pipe of its own.
    struct SendsWhenDropped<'a>(&'a mut Option<Reader>);

    impl Drop for SendsWhenDropped<'_> {
        fn drop(&mut self) {
            let (reader, mut writer) = pipe(8).unwrap();
            writer.write_all(b"whole").unwrap();
            drop(writer);
            *self.0 = Some(reader);
        }
    }

    let (mut cut, writer) = pipe(8).unwrap();
    let mut own = None;
    let panics = std::panic::AssertUnwindSafe(|| {
        let (_writer, _sends) = (writer, SendsWhenDropped(&mut own));
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(kind(cut.recv(&mut [0], Deadline::NEVER)), ErrorKind::Failed);
    let mut came = String::new();
    own.unwrap().read_to_string(&mut came).expect("the panic had begun before this stream");
    assert_eq!(came, "whole");
}

#[test]
fn finish_reports_a_reader_that_has_closed() {
    let (reader, writer) = pipe(8).unwrap();
    drop(reader);
    assert_eq!(kind(writer.finish()), ErrorKind::Closed);
    let (reader, writer) = pipe(8).unwrap();
    reader.close_with_error(io::Error::other("enough"));
    assert_eq!(kind(writer.finish()), ErrorKind::Failed);
}

/// Reads the pipe while it is formatted, and may fail.
struct LookingDisplay<'a> {
    reader: &'a Reader,
    seen: usize,
    fails: bool,
}

impl fmt::Display for LookingDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert_eq!(self.reader.len(), self.seen);
        if self.fails { Err(fmt::Error) } else { f.write_str("|") }
    }
}

#[test]
fn write_fmt_notifies_the_reader_once_per_text() {
    let (mut reader, mut writer) = pipe(20).unwrap();
    for round in 0..50 {
        let look = LookingDisplay { reader: &reader, seen: 0, fails: false };
        write!(writer, "{round:02}{look}text{look}").unwrap();
        assert_eq!(reader.len(), 8);
        let text = format!("{round:02}|text|");
        assert_eq!(reader.recv(&mut [0; 20], Deadline::NEVER).unwrap(), text.len());
        // The text in front of a failing piece is in the pipe, as with any other writer.
        let fails = LookingDisplay { reader: &reader, seen: 0, fails: true };
        assert!(write!(writer, "{}{fails}never", 12).is_err());
        let mut buf = [0; 20];
        assert_eq!(reader.recv(&mut buf, Deadline::NEVER).unwrap(), 2);
        assert_eq!(&buf[..2], b"12");
        // A piece that panics takes along only what the reader has not been notified of yet.
        let look = LookingDisplay { reader: &reader, seen: 1, fails: false };
        let panics = std::panic::AssertUnwindSafe(|| write!(writer, "gone{look}"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!((reader.len(), writer.write(b"on").unwrap()), (0, 2));
        assert_eq!(reader.recv(&mut buf, Deadline::NEVER).unwrap(), 2);
        assert_eq!(&buf[..2], b"on");
    }
    drop(reader);
    assert_eq!(write!(writer, "{}{}", 1, 2).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

/// Pieces of any length through rings of any size, with a reader that comes when there is no space.
#[test]
fn write_fmt_transfers_text_of_any_length() {
    for capacity in [1, 2, 7, 64, 5000, 20_000] {
        let (reader, mut writer) = pipe(capacity).unwrap();
        let reading = std::thread::spawn(move || io::read_to_string(reader).unwrap());
        let mut expected = String::new();
        for len in (0..200).chain([4095, 4096, 4097, 30_000]) {
            let (one, two) = ("x".repeat(len), "y".repeat(len / 3));
            writeln!(writer, "{len}{one}{two}{len}").unwrap();
            expected += &format!("{len}{one}{two}{len}\n");
        }
        writer.finish().unwrap();
        assert!(reading.join().unwrap() == expected, "capacity {capacity}");
    }
    // A reader that closes in the middle is an error.
    let (mut reader, mut writer) = pipe(4).unwrap();
    let reading = std::thread::spawn(move || reader.read(&mut [0; 4]).map(drop));
    assert_eq!(write!(writer, "{}{}", "x".repeat(100), 2).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    reading.join().unwrap().unwrap();
}

#[test]
fn failure_is_returned_in_full_on_every_call() {
    let (mut reader, mut writer) = pipe(8).unwrap();
    writer.write_all(b"rest").unwrap();
    writer.close_with_error(io::Error::new(io::ErrorKind::InvalidData, "spoilt".parse::<i32>().unwrap_err()));
    assert_eq!(reader.failure().unwrap().kind(), io::ErrorKind::InvalidData);
    assert_eq!(reader.peek(5, Deadline::NEVER).unwrap().0, b"rest");
    assert_eq!(reader.recv(&mut [0; 8], Deadline::NEVER).unwrap(), 4);
    for _ in 0..2 {
        assert_eq!(kind(reader.recv(&mut [0; 8], Deadline::NEVER)), ErrorKind::Failed);
        assert_eq!(kind(reader.try_recv(&mut [0; 8])), ErrorKind::Failed);
        assert_eq!(kind(reader.peek(0, Deadline::NEVER)), ErrorKind::Failed);
        for error in [reader.read(&mut [0; 8]).unwrap_err(), reader.fill_buf().unwrap_err()] {
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (io::ErrorKind::InvalidData, "invalid digit found in string")
            );
            assert!(error.source().unwrap().is::<std::num::ParseIntError>());
        }
        let unfinished = reader.recv_full(&mut [0; 8], Deadline::NEVER).unwrap_err();
        assert_eq!((unfinished.done, unfinished.kind()), (0, ErrorKind::Failed));
    }
}

#[test]
fn failure_keeps_the_errno() {
    let (reader, mut writer) = pipe(8).unwrap();
    reader.close_with_error(io::Error::from_raw_os_error(28));
    assert_eq!(kind(writer.send(b"x", Deadline::NEVER)), ErrorKind::Failed);
    assert_eq!(writer.write(b"x").unwrap_err().raw_os_error(), Some(28));
    assert_eq!(writer.write_vectored(&[IoSlice::new(b"x")]).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(writer.failure().unwrap().raw_os_error(), Some(28));
    // An empty write asks for nothing.
    assert_eq!(writer.write(b"").unwrap(), 0);
}

#[test]
fn interrupted_wait_returns_and_can_be_resumed() {
    let (mut reader, mut writer) = pipe(1).unwrap();
    reader.set_spin(Duration::ZERO);
    writer.set_spin(Duration::ZERO);
    order("futex", 0, Fault::Errno(libc::EINTR));
    assert_eq!(kind(reader.recv(&mut [0], Deadline::NEVER)), ErrorKind::Interrupted);
    assert_eq!(writer.send(b"xy", Deadline::NEVER).unwrap(), 1);
    order("futex", 0, Fault::Errno(libc::EINTR));
    assert_eq!(writer.write(b"y").unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert!(all_met());
    assert_eq!(kind(writer.send(b"y", Duration::from_millis(1))), ErrorKind::TimedOut);
    assert_eq!(reader.recv(&mut [0; 2], Deadline::NEVER).unwrap(), 1);
}

/// As `write_all` does: a caller of `write!` does not learn how much of its text is in the pipe.
#[test]
fn write_fmt_continues_after_a_signal_handler() {
    let text = "twenty bytes of text";
    // If the reader is too fast, the writer never waits; then the next round slows the reader down.
    for round in 0.. {
        let (mut reader, mut writer) = pipe(8).unwrap();
        writer.set_spin(Duration::ZERO);
        let reading = std::thread::spawn(move || {
            while reader.len() < 8 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(round));
            let mut came = String::new();
            reader.read_to_string(&mut came).map(|_| came).map_err(|error| error.to_string())
        });
        order("futex", 0, Fault::Errno(libc::EINTR));
        writeln!(writer, "{text}, {round}").expect("a signal does not end it");
        let met = all_met();
        writer.close();
        assert_eq!(reading.join().unwrap(), Ok(format!("{text}, {round}\n")));
        if met {
            return;
        }
        assert!(round < 1000, "the writer never had to wait");
    }
}

/// Threads that park after every byte are woken every time, whether the kernel executes the fence
/// or a sandbox refuses it, from the beginning or later.
#[test]
fn no_wake_up_is_lost_with_or_without_the_kernels_fence() {
    let refuse = |nth| order("membarrier", nth, Fault::Errno(libc::ENOSYS));
    let refused_from_the_beginning = || {
        refuse(0);
        pipe(1)
    };
    for (pipe, refused, bytes) in [
        (pipe(1), None, 100_000),
        (refused_from_the_beginning(), None, 20_000),
        (pipe(1), Some(0), 20_000),
        (pipe(1), Some(50), 20_000),
    ] {
        let (mut reader, mut writer) = pipe.unwrap();
        assert!(all_met(), "the first pipe asks");
        reader.set_spin(Duration::ZERO);
        writer.set_spin(Duration::ZERO);
        let writing = std::thread::spawn(move || {
            refused.inspect(|nth| refuse(*nth));
            for i in 0..bytes {
                writer.send(&[i as u8], Duration::from_secs(60)).expect("a wake-up was lost");
            }
            all_met()
        });
        refused.inspect(|nth| refuse(*nth));
        for i in 0..bytes {
            let mut buf = [0];
            assert_eq!(reader.recv(&mut buf, Duration::from_secs(60)).expect("a wake-up was lost"), 1);
            assert_eq!(buf, [i as u8]);
        }
        assert!(writing.join().unwrap() && all_met(), "both ends have parked, and were refused");
    }
}

/// The fence interrupts all CPUs of the process, so only threads that park ask for it.
#[test]
fn the_kernel_is_asked_for_a_fence_only_before_a_thread_parks() {
    let asks = |deadline: Deadline, refuses: bool| {
        if refuses {
            order("membarrier", 0, Fault::Errno(libc::ENOSYS));
        }
        let (mut reader, _writer) = pipe(1).unwrap();
        assert!(all_met());
        reader.set_spin(Duration::ZERO);
        order("membarrier", 0, Fault::Errno(libc::ENOSYS));
        assert_eq!(kind(reader.recv(&mut [0], deadline)), ErrorKind::TimedOut);
        all_met()
    };
    assert!(asks(Deadline::after(Duration::from_millis(20)), false));
    assert!(!asks(Deadline::now(), false));
    assert!(
        !asks(Deadline::after(Duration::from_millis(1)), true),
        "after a refusal the kernel is not asked again"
    );
}

// ---------------------------------------------------------------- descriptors

#[test]
fn copying_with_short_counts_and_errors_loses_nothing() {
    let (mut reader, mut writer) = pipe(64).unwrap();
    let (read_end, write_end) = io::pipe().unwrap();
    let text: Vec<u8> = (0..60).collect();
    // Into the kernel's pipe, out of it again, and into the other pipe: short, interrupted, short,
    // and the rest.
    writer.write_all(&text).unwrap();
    order("write", 0, Fault::Short(7));
    order("write", 0, Fault::Errno(libc::EINTR));
    order("write", 0, Fault::Short(1));
    let stopped = reader.copy_to_fd(&write_end, u64::MAX, Deadline::NEVER).unwrap_err();
    assert_eq!((stopped.done, stopped.kind()), (7, ErrorKind::Interrupted));
    assert_eq!(reader.copy_to_fd(&write_end, 20, Deadline::NEVER).unwrap(), 20);
    writer.close();
    assert_eq!(reader.copy_to_fd(&write_end, u64::MAX, Duration::from_secs(60)).unwrap(), 33);
    drop(write_end);

    let (mut reader, mut writer) = pipe(64).unwrap();
    order("read_nowait", 0, Fault::Short(5));
    order("read_nowait", 0, Fault::Errno(libc::EIO));
    order("read", 0, Fault::Errno(libc::EAGAIN));
    let stopped = writer.copy_from_fd(&read_end, u64::MAX, Duration::from_secs(60)).unwrap_err();
    assert_eq!((stopped.done, stopped.error.errno()), (5, Some(libc::EIO)));
    assert_eq!(writer.copy_from_fd(&read_end, 10, Deadline::NEVER).unwrap(), 10);
    assert_eq!(writer.copy_from_fd(&read_end, 0, Deadline::NEVER).unwrap(), 0);
    assert_eq!(writer.copy_from_fd(&read_end, u64::MAX, Deadline::NEVER).unwrap(), 45);
    assert!(all_met());
    writer.close();
    let mut arrived = vec![];
    reader.read_to_end(&mut arrived).unwrap();
    assert_eq!(arrived, text);
}
