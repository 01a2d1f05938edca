//! `pipework send`: messages from arguments, files or standard input into a FIFO or standard
//! output.
//!
//! Records of standard input go out with the block in which their end was read: many of them share
//! a call while input is plentiful, and a record of a slow producer waits for nothing. Only the
//! unfinished record is kept.

mod args;

use crate::failure::{Failure, at, during, no_pipe, uninterrupted};
use crate::location::{self, Location, no_fifo};
use crate::progress::{Progress, invite};
use crate::streams;
use pipework::atomic::{Options, Writer, Zstd};
use pipework::{Deadline, ErrorKind, defaults};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use args::{HELP, SendArgs};

/// Bytes of standard input that are read at once.
const BLOCK: usize = 64 << 10;

/// Runs `pipework send`.
pub(crate) fn send(args: &SendArgs, quiet: bool) -> Result<u8, Failure> {
    let mut progress = Progress::new("sent", quiet);
    if args.to.is_none() {
        progress = progress.without_counter();
    }
    let until = Deadline::from(args.timeout);
    let writer = open(args, until)?;
    let longest = args.max_message.unwrap_or(defaults::MAX_MESSAGE);
    let mut out = Outgoing { args, until, writer, longest, progress };
    if args.files {
        for path in &args.messages {
            out.one(&content(Path::new(path), longest)?)?;
        }
    } else if !args.messages.is_empty() {
        let messages: Vec<_> = args.messages.iter().map(|message| message.as_bytes()).collect();
        out.many(&messages)?;
    } else if args.lines || args.nul {
        invite(quiet, "reading messages from the terminal; Ctrl-D ends them");
        out.records(streams::stdin()?, if args.nul { 0 } else { b'\n' })?;
    } else {
        invite(quiet, "reading the message from the terminal; Ctrl-D ends it");
        out.one(&content(Path::new("-"), longest)?)?;
    }
    out.close()
}

/// Opens the pipe that was asked for; waits for a reader of a FIFO until `deadline`.
fn open(args: &SendArgs, deadline: Deadline) -> Result<Writer, Failure> {
    let mut options = Options::new().mixed(args.mixed);
    if args.zstd.is_some() || args.dictionary.is_some() {
        let mut zstd = Zstd::new();
        if let Some(level) = args.zstd {
            zstd = zstd.with_level(level);
        }
        if let Some(path) = &args.dictionary {
            zstd = zstd.with_dictionary_file(path).map_err(during(path.display()))?;
        }
        options = options.zstd(zstd);
    }
    let Some(path) = &args.to else {
        streams::stdout()?;
        return options.stdout().map_err(|error| {
            Failure::new(format!(
                "standard output cannot take messages: {}; pipe it into a receiver, as in `pipework \
                 send ... | pipework recv`, or name a FIFO with --to",
                no_pipe(error)
            ))
        });
    };
    let name = match Location::of(path, 1) {
        Location::Path(name) => location::led_to(&name)?,
        Location::Descriptor(number) => {
            let refused = |error| Failure::new(format!("{}: {}", path.display(), no_pipe(error)));
            return options.writer(location::inherited(number)?).map_err(refused);
        }
    };
    uninterrupted(|| options.write_fifo(&name, deadline)).map_err(|error| {
        let path = name.display();
        match (error.kind(), error.errno()) {
            (ErrorKind::TimedOut, _) => Failure::timeout(format!("{path}: no reader opened it in time")),
            (_, Some(libc::ENOENT)) => Failure::new(format!(
                "{path}: no such FIFO; make it with `mkfifo {path}`, or start the receiver first: \
                 `pipework recv --from {path} --create`"
            )),
            (ErrorKind::Invalid, _) => Failure::new(format!("{path}: {}", no_fifo(&name))),
            _ => during(path)(error),
        }
    })
}

/// All of a file, or enough of it to exceed `longest`; `-` is standard input.
fn content(path: &Path, longest: usize) -> Result<Vec<u8>, Failure> {
    let most = (longest as u64).saturating_add(1);
    let mut content = Vec::new();
    if Location::of(path, 0) == Location::Descriptor(0) {
        streams::stdin()?.take(most).read_to_end(&mut content).map_err(at("standard input"))?;
    } else {
        let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut content));
        read.map_err(at(path.display()))?;
    }
    Ok(content)
}

/// The writer of the messages, and how many it has taken.
struct Outgoing<'a> {
    args: &'a SendArgs,
    /// Until when it waits for a reader before the first message.
    until: Deadline,
    writer: Writer,
    /// Bytes of the longest message.
    longest: usize,
    progress: Progress,
}

impl Outgoing<'_> {
    fn one(&mut self, message: &[u8]) -> Result<(), Failure> {
        if message.len() > self.longest {
            return Err(self.too_long());
        }
        let deadline = Deadline::from(self.args.timeout);
        self.deliver(message, |writer, burst| match burst {
            true => writer.burst(message, deadline),
            false => writer.send(message, deadline).map(drop),
        })?;
        self.progress.add(1, message.len() as u64);
        Ok(())
    }

    /// Sends something that begins with `first`. A reader may leave between the open and the first
    /// write; then nothing was taken, and this waits for the next reader.
    fn deliver<T>(
        &mut self,
        first: &[u8],
        send: impl Fn(&mut Writer, bool) -> pipework::Result<T>,
    ) -> Result<T, Failure> {
        loop {
            match uninterrupted(|| send(&mut self.writer, self.args.burst)) {
                Err(error) if error.kind() == ErrorKind::Closed && self.is_untouched(first) => {
                    self.writer.discard();
                    self.writer = open(self.args, self.until)?;
                }
                sent => return sent.map_err(|error| self.failure(error)),
            }
        }
    }

    /// Whether a FIFO has taken no byte of ours: the first write has failed, and it held the first
    /// message whole. Compressed, a message may be a little longer.
    fn is_untouched(&self, first: &[u8]) -> bool {
        let is_fifo =
            self.args.to.as_ref().is_some_and(|path| matches!(Location::of(path, 1), Location::Path(_)));
        let most =
            if self.writer.zstd().is_some() { self.writer.max_part() / 2 } else { self.writer.max_part() };
        is_fifo && self.progress.messages() == 0 && first.len() <= most
    }

    /// Sends messages, as many as fit in each write.
    fn many(&mut self, mut messages: &[&[u8]]) -> Result<(), Failure> {
        if self.args.burst {
            return messages.iter().try_for_each(|message| self.one(message));
        }
        let short = messages.iter().position(|message| message.len() > self.longest);
        let all = messages.len();
        messages = &messages[..short.unwrap_or(all)];
        while !messages.is_empty() {
            let deadline = Deadline::from(self.args.timeout);
            let sent = self.deliver(messages[0], |writer, _| writer.send_many(messages, deadline))?;
            let (done, rest) = messages.split_at(sent);
            self.progress.add(sent as u64, done.iter().map(|message| message.len() as u64).sum());
            messages = rest;
        }
        if short.is_some() { Err(self.too_long()) } else { Ok(()) }
    }

    /// Sends the records of `input`, each as soon as its end has been read.
    fn records(&mut self, mut input: impl Read, end: u8) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        loop {
            let unfinished = buffer.len();
            buffer.resize(unfinished + BLOCK, 0);
            let read = loop {
                match input.read(&mut buffer[unfinished..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    outcome => break outcome.map_err(at("standard input"))?,
                }
            };
            buffer.truncate(unfinished + read);
            if read == 0 {
                break;
            }
            if let Some(last) = buffer[unfinished..].iter().rposition(|&byte| byte == end) {
                let last = unfinished + last;
                let records: Vec<_> = buffer[..last].split(|&byte| byte == end).collect();
                self.many(&records)?;
                buffer.drain(..=last);
            }
            if buffer.len() > self.longest {
                return Err(self.too_long());
            }
        }
        if buffer.is_empty() { Ok(()) } else { self.one(&buffer) }
    }

    fn close(self) -> Result<u8, Failure> {
        self.writer.close(Deadline::from(self.args.timeout)).map_err(during("closing the pipe"))?;
        self.progress.finish();
        Ok(0)
    }

    /// A message is longer than receivers take.
    fn too_long(&self) -> Failure {
        Failure::new(format!(
            "a message is longer than {} bytes, which receivers would drop; if they take more, \
             --max-message says so here as well; {}",
            self.longest,
            self.sent()
        ))
    }

    /// How many were sent, in words.
    fn sent(&self) -> String {
        match self.progress.messages() {
            0 => "no message was sent".to_string(),
            1 => "1 message was sent before".to_string(),
            many => format!("{many} messages were sent before"),
        }
    }

    /// Reports how far it got. Pending bytes are dropped, since the reader is gone or stands still.
    fn failure(&mut self, error: pipework::Error) -> Failure {
        self.writer.discard();
        let sent = self.sent();
        match error.kind() {
            ErrorKind::Closed => Failure::new(format!("the reader has left; {sent}")),
            ErrorKind::TimedOut => Failure::timeout(format!("the reader did not make space in time; {sent}")),
            ErrorKind::TooLong if self.args.burst => Failure::new(format!(
                "too long for a burst, which must fit in one write of {} bytes; send it without \
                 --burst; {sent}",
                self.writer.pipe_buf()
            )),
            ErrorKind::Invalid if self.args.burst => Failure::new(format!(
                "a burst cannot hold the control bytes 0x0E, 0x0F and 0x10; send it without \
                 --burst, or compress it with --zstd; {sent}"
            )),
            _ => Failure::new(format!("{error}; {sent}")),
        }
    }
}
