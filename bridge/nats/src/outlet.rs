//! The pipe that messages are written into: opened as soon as it has a reader, and again when
//! it gets another one.

use crate::bridge::{Stop, stopped};
use crate::channel::{Failure, at};
use crate::ready::Ready;
use crate::written::Written;
use pipework::ErrorKind;
use pipework::atomic::{Options, Writer};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

/// How often a reader is looked for.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Outlet {
    /// The FIFO; without it, standard output.
    path: Option<PathBuf>,
    options: Options,
    stop: Stop,
    open: Option<Open>,
}

struct Open {
    writer: Writer,
    /// The same pipe, to wait for space.
    space: Ready,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Otherwise the writer waits until all is written, for as long as that takes.
        self.writer.discard();
    }
}

impl Outlet {
    pub(crate) fn new(path: Option<PathBuf>, options: Options, stop: Stop) -> Outlet {
        Outlet { path, options, stop, open: None }
    }

    /// Waits until the pipe has a reader; false once the bridge is stopped.
    pub(crate) async fn open(&mut self) -> Result<bool, Failure> {
        while self.open.is_none() {
            let writer = match &self.path {
                None => self.options.stdout().map_err(|error| {
                    let why = error.explanation().map_or_else(|| error.to_string(), |why| why.to_string());
                    Failure(format!("standard output takes no messages: {why}; name a FIFO with --to"))
                })?,
                Some(path) => match self.options.write_fifo(path, Duration::ZERO) {
                    Ok(writer) => writer,
                    Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                        tokio::select! {
                            () = stopped(&mut self.stop) => return Ok(false),
                            () = sleep(LOOK) => continue,
                        }
                    }
                    Err(error) => return Err(at(path.display())(error)),
                },
            };
            let space = writer.as_fd().try_clone_to_owned().map_err(at("the pipe"))?;
            let space = Ready::to_write(space).map_err(at("the pipe"))?;
            self.open = Some(Open { writer, space });
        }
        Ok(true)
    }

    /// Writes a message, all of which is in the pipe afterwards. If the reader leaves before that,
    /// it is written for the next one. False if the bridge is stopped while the pipe has no reader,
    /// or before any of it is in the pipe. It calls `written` when the message with this number may
    /// be in the pipe.
    pub(crate) async fn write(
        &mut self,
        data: &[u8],
        number: Option<u64>,
        written: &mut Written,
    ) -> Result<bool, Failure> {
        while self.open().await? {
            let Some(open) = &mut self.open else { continue };
            match open.write(data, number, written, &mut self.stop).await? {
                Ok(is_written) => return Ok(is_written),
                Err(error) if error.kind() == ErrorKind::Closed && self.path.is_some() => self.open = None,
                Err(error) if error.kind() == ErrorKind::Closed => {
                    return Err(Failure("the reader of standard output has left".into()));
                }
                Err(error) => return Err(at("sending")(error)),
            }
        }
        Ok(false)
    }
}

impl Open {
    async fn write(
        &mut self,
        data: &[u8],
        number: Option<u64>,
        written: &mut Written,
        stop: &mut Stop,
    ) -> Result<Result<bool, pipework::Error>, Failure> {
        if let Err(error) = self.writer.enqueue(data) {
            return Ok(Err(error));
        }
        let all = self.writer.pending();
        loop {
            match try_flush(&mut self.writer, number, written)? {
                Ok(false) => {}
                flushed => return Ok(flushed),
            }
            let ready = tokio::select! {
                ready = self.space.writable() => ready,
                // A message that has begun is finished.
                () = stopped(stop), if self.writer.pending() == all => {
                    self.writer.discard();
                    return Ok(Ok(false));
                }
            };
            // An error here is one of the event loop, which the next try knows nothing of.
            let Ok(mut ready) = ready else { continue };
            match try_flush(&mut self.writer, number, written)? {
                Ok(false) => ready.clear_ready(),
                flushed => return Ok(flushed),
            }
        }
    }
}

/// Writes as many bytes as fit. Whether the message is in the pipe is in doubt for no longer than
/// that: without its last part it is none.
fn try_flush(
    writer: &mut Writer,
    number: Option<u64>,
    written: &mut Written,
) -> Result<Result<bool, pipework::Error>, Failure> {
    let Some(number) = number else { return Ok(writer.try_flush()) };
    written.begin(number)?;
    let flushed = writer.try_flush();
    if flushed != Ok(true) {
        written.not_written()?;
    }
    Ok(flushed)
}
