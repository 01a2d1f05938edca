//! Ends of every kind, as the contract's tests need them: read some bytes, write all, close.

use std::fmt;
use std::io::{self, Read, Write};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pipework::pipe::{Reader, Writer};
use pipework::{Error, ErrorKind};

use crate::harness::{Random, block_on};

/// The owner of an end, and the traits that it uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Thread,
    /// A task without a runtime or a trait.
    Task,
    #[cfg(feature = "tokio")]
    Tokio,
    #[cfg(feature = "futures-io")]
    Futures,
}

impl Kind {
    pub(super) const ALL: &[Kind] = &[
        Kind::Thread,
        Kind::Task,
        #[cfg(feature = "tokio")]
        Kind::Tokio,
        #[cfg(feature = "futures-io")]
        Kind::Futures,
    ];

    /// Reads until it has `len` bytes, or until the end, in pieces of random lengths.
    pub(super) fn read(self, mut reader: Reader, len: usize) -> (Reader, (Vec<u8>, io::Result<()>)) {
        let (mut random, mut got) = (Random::new(7), vec![]);
        let mut piece =
            |got: &Vec<u8>| vec![0; (1 + random.below(2 * reader_piece(len))).min(len - got.len())];
        let ended = loop {
            let mut buf = piece(&got);
            if buf.is_empty() {
                break Ok(());
            }
            let outcome = match self {
                Kind::Thread => reader.read(&mut buf),
                Kind::Task => {
                    let mut task = reader.into_async();
                    let outcome = block_on(task.recv(&mut buf));
                    reader = task.into_blocking();
                    outcome.map_err(|error| in_full(error, reader.failure()))
                }
                #[cfg(feature = "tokio")]
                Kind::Tokio => {
                    let mut task = reader.into_async();
                    let outcome = on_tokio(tokio::io::AsyncReadExt::read(&mut task, &mut buf));
                    reader = task.into_blocking();
                    outcome
                }
                #[cfg(feature = "futures-io")]
                Kind::Futures => {
                    let mut task = reader.into_async();
                    let outcome = block_on(std::future::poll_fn(|cx| {
                        futures_io::AsyncRead::poll_read(pin!(&mut task), cx, &mut buf)
                    }));
                    reader = task.into_blocking();
                    outcome
                }
            };
            match outcome {
                Ok(0) => break Ok(()),
                Ok(len) => got.extend_from_slice(&buf[..len]),
                Err(error) => break Err(error),
            }
        };
        (reader, (got, ended))
    }

    /// Writes all of `bytes`, in pieces of random lengths, or as much as it can.
    pub(super) fn write(self, mut writer: Writer, bytes: &[u8]) -> (Writer, io::Result<()>) {
        let (mut random, mut done) = (Random::new(8), 0);
        while done < bytes.len() {
            let len = 1 + random.below(2 * reader_piece(bytes.len())).min(bytes.len() - done - 1);
            let piece = &bytes[done..done + len];
            let outcome = match self {
                Kind::Thread => writer.write(piece),
                Kind::Task => {
                    let mut task = writer.into_async();
                    let outcome = block_on(task.send(piece));
                    writer = task.into_blocking();
                    outcome.map_err(|error| in_full(error, writer.failure()))
                }
                #[cfg(feature = "tokio")]
                Kind::Tokio => {
                    let mut task = writer.into_async();
                    let outcome = on_tokio(tokio::io::AsyncWriteExt::write(&mut task, piece));
                    writer = task.into_blocking();
                    outcome
                }
                #[cfg(feature = "futures-io")]
                Kind::Futures => {
                    let mut task = writer.into_async();
                    let outcome = block_on(std::future::poll_fn(|cx| {
                        futures_io::AsyncWrite::poll_write(pin!(&mut task), cx, piece)
                    }));
                    writer = task.into_blocking();
                    outcome
                }
            };
            match outcome {
                Ok(len) => done += len,
                Err(error) => return (writer, Err(error)),
            }
        }
        (writer, Ok(()))
    }
}

/// The approximate length of a piece: small streams have several, and large ones not too many.
fn reader_piece(len: usize) -> usize {
    if len < 100_000 { 20 } else { 5000 }
}

fn in_full(error: Error, failure: Option<io::Error>) -> io::Error {
    match error.kind() {
        ErrorKind::Failed => failure.expect("there is one"),
        _ => error.into(),
    }
}

// ---------------------------------------------------------------- taking leave

/// How an end is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Farewell {
    Drop,
    Close,
    /// By the trait of its kind; as `Drop` if it has none.
    ShutDown,
    /// A writer that must be finished is finished; a reader is dropped.
    Finish,
    /// A writer that must be finished is dropped.
    Unfinished,
    Error,
    Panic,
}

impl Farewell {
    pub(super) const ALL: [Farewell; 7] = [
        Farewell::Drop,
        Farewell::Close,
        Farewell::ShutDown,
        Farewell::Finish,
        Farewell::Unfinished,
        Farewell::Error,
        Farewell::Panic,
    ];

    pub(super) fn leave<E: End>(self, kind: Kind, end: E) {
        match self {
            Farewell::Drop => drop(end),
            Farewell::Close => end.close(),
            Farewell::ShutDown => end.shut_down(kind),
            Farewell::Finish => end.finish(kind),
            Farewell::Unfinished => end.leave_unfinished(kind),
            Farewell::Error => end.close_with_error(io::Error::other("enough")),
            // As a panic, without its message on standard error.
            Farewell::Panic => {
                let _end = end;
                std::panic::resume_unwind(Box::new("enough"))
            }
        }
    }

    pub(super) fn to_reader(self) -> Result<(), String> {
        match self {
            Farewell::Drop | Farewell::Close | Farewell::ShutDown | Farewell::Finish => Ok(()),
            Farewell::Unfinished => Err("the writer was dropped before the end of the stream".into()),
            Farewell::Error => Err("enough".into()),
            Farewell::Panic => Err("the writer's thread panicked before the end of the stream".into()),
        }
    }

    pub(super) fn to_writer(self) -> (io::ErrorKind, String) {
        match self {
            Farewell::Error => (io::ErrorKind::Other, "enough".into()),
            _ => (io::ErrorKind::BrokenPipe, "pipe send: the other side is closed".into()),
        }
    }
}

/// The operations that both ends have.
pub(super) trait End: fmt::Debug {
    fn close(self);
    fn shut_down(self, kind: Kind);
    fn finish(self, kind: Kind);
    fn leave_unfinished(self, kind: Kind);
    fn close_with_error(self, error: io::Error);
}

impl End for Reader {
    fn close(self) {
        Reader::close(self);
    }

    fn shut_down(self, _: Kind) {}

    fn finish(self, _: Kind) {}

    fn leave_unfinished(self, _: Kind) {}

    fn close_with_error(self, error: io::Error) {
        Reader::close_with_error(self, error);
    }
}

impl End for Writer {
    fn close(self) {
        Writer::close(self);
    }

    fn shut_down(self, kind: Kind) {
        match kind {
            Kind::Thread | Kind::Task => {}
            #[cfg(feature = "tokio")]
            Kind::Tokio => {
                let mut task = self.into_async();
                on_tokio(async {
                    use tokio::io::AsyncWriteExt;
                    task.shutdown().await.unwrap();
                    assert_eq!(task.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
                });
            }
            #[cfg(feature = "futures-io")]
            Kind::Futures => {
                let mut task = self.into_async();
                block_on(std::future::poll_fn(|cx| futures_io::AsyncWrite::poll_close(pin!(&mut task), cx)))
                    .unwrap();
                assert_eq!(block_on(task.send(b"x")).unwrap_err().kind(), ErrorKind::Closed);
            }
        }
    }

    fn finish(self, kind: Kind) {
        let end = self.must_finish();
        if kind == Kind::Thread { end.finish() } else { end.into_async().finish() }.unwrap();
    }

    fn leave_unfinished(self, kind: Kind) {
        let end = self.must_finish();
        if kind == Kind::Thread { drop(end) } else { drop(end.into_async()) }
    }

    fn close_with_error(self, error: io::Error) {
        Writer::close_with_error(self, error);
    }
}

// ---------------------------------------------------------------- running tasks

/// The result of a task after one poll; the task is dropped if it is pending.
pub(super) fn poll_once<T>(task: impl Future<Output = T>) -> Option<T> {
    match pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[cfg(feature = "tokio")]
fn on_tokio<T>(task: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    }
    RUNTIME.with(|runtime| runtime.block_on(task))
}
