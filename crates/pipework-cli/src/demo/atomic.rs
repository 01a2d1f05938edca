//! Section `atomic`: many writer processes, one pipe, messages between stray text.
//!
//! Each writer sends a share of the records, each message an index and a record, and prints a line
//! after every batch. So the reader knows exactly which message or line must come next from each
//! writer: it accepts nothing else, compares every record with the text, and compares every stray
//! line with its own count.

use super::args::{DEMO_WRITER, DemoWriterArgs};
use super::corpus::{Corpus, Share, digest, records};
use crate::failure::{Failure, STDOUT, at, during};
use crate::peers::{self, Children, Cost, measure};
use crate::progress::{grouped, size};
use crate::{streams, sys};
use pipework::atomic::{Item, Message, Options, Writer, Zstd};
use pipework::{Deadline, ErrorKind};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Records between two stray lines of a writer.
const BATCH: usize = 1000;
/// Every pipe gets this capacity, the bare one too.
const CAPACITY: usize = 1 << 20;
/// The bare pipe: bytes of one write and of one read.
const BARE_WRITE: usize = 4096;
const BARE_READ: usize = 64 << 10;
const LEVEL: i32 = 1;

/// Shows the section on `out`, standard output; any other error is a broken promise.
pub(crate) fn show(corpus: &Corpus, writers: u32, out: &mut impl Write) -> Result<(), Failure> {
    let shares = corpus.shares(writers as usize);
    writeln!(
        out,
        "\natomic: one pipe, {writers} writing, one reading and checking every record\n\
         {:26}{:>9}{:>12}{:>8}{:>12}{:>12}",
        "", "seconds", "messages/s", "MB/s", "writers CPU", "reader CPU"
    )
    .map_err(Failure::stdout)?;
    let bare = measure(|| bare(corpus, &shares))?;
    bare.print(out, "bare pipe, nothing checked", None, corpus).map_err(Failure::stdout)?;
    let expected = digest_of(corpus);
    let (mut stray, mut compressed) = (0, 0);
    for (name, zstd) in [("messages and stray text", None), ("the same, zstd level 1", Some(LEVEL))] {
        let mut ledger = Ledger::new(corpus, &shares);
        let cost = measure(|| messages(corpus, &shares, zstd, &mut ledger))?;
        ledger.close(expected)?;
        cost.print(out, name, Some(corpus.records()), corpus).map_err(Failure::stdout)?;
        (stray, compressed) = (ledger.stray, ledger.compressed);
    }
    let records = corpus.records();
    writeln!(
        out,
        "each time {} records were those of the text, {} stray lines came between\n\
         zstd: records of {} bytes on average, each compressed alone, became {}",
        grouped(records),
        grouped(stray),
        corpus.text().len() as u64 / records,
        size(compressed)
    )
    .map_err(Failure::stdout)
}

impl Cost {
    fn print(
        &self,
        out: &mut impl Write,
        name: &str,
        messages: Option<u64>,
        corpus: &Corpus,
    ) -> io::Result<()> {
        let seconds = self.elapsed.as_secs_f64();
        let rate = messages.map(|count| grouped((count as f64 / seconds) as u64));
        writeln!(
            out,
            "{name:26}{seconds:>9.3}{:>12}{:>8.0}{:>12.3}{:>12.3}",
            rate.unwrap_or_else(|| "-".into()),
            corpus.text().len() as f64 / seconds / 1e6,
            self.children.as_secs_f64(),
            self.own.as_secs_f64(),
        )
    }
}

/// Starts the writer processes.
fn start(corpus: &Corpus, shares: &[Share], pipe: &OwnedFd, mode: &[String]) -> io::Result<Children> {
    let mut writers = Children::default();
    for (number, share) in shares.iter().enumerate() {
        let mut command = peers::start(DEMO_WRITER)?;
        command.args([
            format!("--number={number}"),
            format!("--start={}", share.bytes.start),
            format!("--len={}", share.bytes.len()),
            format!("--first={}", share.records.start),
        ]);
        command.args(mode).stdin(corpus.file()?).stdout(pipe.try_clone()?);
        writers.0.push(command.spawn()?);
    }
    Ok(writers)
}

/// All bytes of the text through a bare pipe.
fn bare(corpus: &Corpus, shares: &[Share]) -> Result<(), Failure> {
    let (mut reader, writer) = io::pipe().map_err(at("pipe"))?;
    sys::resize(&writer, CAPACITY);
    let mode = ["--bare".to_string()];
    let writers = start(corpus, shares, &writer.into(), &mode).map_err(at("writers"))?;
    let mut block = vec![0; BARE_READ];
    let mut total = 0;
    loop {
        match reader.read(&mut block).map_err(at("bare pipe"))? {
            0 => break,
            read => total += read,
        }
    }
    writers.finish()?;
    match total == corpus.text().len() {
        true => Ok(()),
        false => Err(Failure::new("the bare pipe lost bytes")),
    }
}

/// All records of the text as messages between stray text, into the ledger.
fn messages(
    corpus: &Corpus,
    shares: &[Share],
    zstd: Option<i32>,
    ledger: &mut Ledger<'_>,
) -> Result<(), Failure> {
    let (mut reader, mut writer) = options(zstd).pair().map_err(during("pipe"))?;
    writer.set_capacity_or_max(CAPACITY).map_err(during("pipe"))?;
    let pipe = writer.as_fd().try_clone_to_owned().map_err(at("pipe"))?;
    drop(writer);
    let mode: Vec<String> = zstd.map(|level| format!("--zstd={level}")).into_iter().collect();
    let writers = start(corpus, shares, &pipe, &mode).map_err(at("writers"))?;
    drop(pipe);
    ledger.pids = writers.0.iter().map(|child| child.id() as i32).collect();
    loop {
        match reader.next_item(Deadline::NEVER) {
            Ok(item) => ledger.enter(&item)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::Closed => break,
            Err(error) => return Err(during("receiving")(error)),
        }
    }
    writers.finish()
}

fn options(zstd: Option<i32>) -> Options {
    let options = Options::new().mixed(true);
    match zstd {
        Some(level) => options.zstd(Zstd::new().with_level(level)).keep_compressed(true),
        None => options,
    }
}

/// For each writer, the messages and lines that have come.
struct Ledger<'a> {
    text: &'a [u8],
    shares: &'a [Share],
    /// For each writer: its process, and how many records and bytes of its share have come.
    pids: Vec<i32>,
    come: Vec<(u64, usize)>,
    stray: u64,
    /// Bytes of the records as zstd frames.
    compressed: u64,
    digest: u64,
}

impl<'a> Ledger<'a> {
    fn new(corpus: &'a Corpus, shares: &'a [Share]) -> Self {
        let come = vec![(0, 0); shares.len()];
        let (text, pids) = (corpus.text(), Vec::new());
        Self { text, shares, pids, come, stray: 0, compressed: 0, digest: 0 }
    }

    fn enter(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item {
            Item::Message(message) => self.message(message),
            Item::Line(line) => self.line(line.content()),
            Item::Burst(_) => Err(Failure::new("an unexpected burst arrived")),
            Item::Torn(torn) => Err(Failure::new(format!("damaged: {torn}"))),
        }
    }

    fn message(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        let Some((index, record)) = message.data.split_first_chunk() else {
            return Err(Failure::new("a message arrived without an index"));
        };
        let index = u64::from_le_bytes(*index);
        let writer = self.shares.iter().position(|share| share.records.contains(&index));
        let Some(writer) = writer else {
            return Err(Failure::new(format!("record {index} arrived, which does not exist")));
        };
        let (count, bytes) = &mut self.come[writer];
        let share = &self.shares[writer];
        if message.writer.pid != self.pids[writer] || index != share.records.start + *count {
            let expected = share.records.start + *count;
            return Err(Failure::new(format!(
                "record {index} of {} arrived where {expected} of {} is due",
                message.writer, self.pids[writer]
            )));
        }
        let rest = &self.text[share.bytes.start + *bytes..share.bytes.end];
        match rest.strip_prefix(record) {
            // Only the last record may lack a newline.
            Some([b'\n', ..] | []) => {}
            _ => return Err(Failure::new(format!("record {index} differs from the text"))),
        }
        *count += 1;
        *bytes += record.len() + 1;
        self.compressed += message.compressed.as_ref().map_or(0, |frame| frame.len() as u64);
        self.digest = self.digest.wrapping_add(digest(index, record));
        Ok(())
    }

    /// A stray line contains the number of records that its writer has sent before.
    fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(line);
        let told = || -> Option<(usize, u64)> {
            let (writer, count) = text.strip_prefix("writer ")?.split_once(" has sent ")?;
            Some((writer.parse().ok()?, count.strip_suffix(" records")?.parse().ok()?))
        };
        match told() {
            Some((writer, count)) if self.come.get(writer).is_some_and(|c| c.0 == count) => {
                self.stray += 1;
                Ok(())
            }
            _ => Err(Failure::new(format!("a stray line is damaged or in the wrong place: {text:?}"))),
        }
    }

    /// Checks that all has come, and nothing besides.
    fn close(&self, expected: u64) -> Result<(), Failure> {
        let due = |share: &Share| share.records.end - share.records.start;
        let (mut missing, mut lines) = (0, 0);
        for (share, (count, _)) in self.shares.iter().zip(&self.come) {
            missing += due(share) - count;
            lines += due(share).div_ceil(BATCH as u64);
        }
        match (missing, self.stray == lines, self.digest == expected) {
            (0, true, true) => Ok(()),
            (0, true, false) => Err(Failure::new("the digest is not that of the text")),
            (0, false, _) => Err(Failure::new(format!("{} of {lines} stray lines arrived", self.stray))),
            _ => Err(Failure::new(format!("{missing} records did not arrive"))),
        }
    }
}

/// A digest of records that does not depend on their order: the sum of theirs.
fn digest_of(corpus: &Corpus) -> u64 {
    let each = records(corpus.text()).zip(0..).map(|(record, index)| digest(index, record));
    each.fold(0, u64::wrapping_add)
}

/// Is one writer process: standard input is the text, standard output the pipe.
pub(crate) fn write(args: &DemoWriterArgs) -> Result<(), Failure> {
    let stdin = streams::stdin()?.as_fd().try_clone_to_owned().map_err(at("standard input"))?;
    let stdout = streams::stdout()?.as_fd().try_clone_to_owned().map_err(at(STDOUT))?;
    let mut stdout = File::from(stdout);
    let mut share = vec![0; args.len];
    File::from(stdin).read_exact_at(&mut share, args.start).map_err(at("standard input"))?;
    if args.bare {
        let mut chunks = share.chunks(BARE_WRITE);
        return chunks.try_for_each(|chunk| stdout.write_all(chunk)).map_err(at(STDOUT));
    }
    let mut writer = options(args.zstd).stdout().map_err(during(STDOUT))?;
    let records: Vec<&[u8]> = records(&share).collect();
    let mut sent = 0;
    for batch in records.chunks(BATCH) {
        send(&mut writer, args.first + sent, batch)?;
        sent += batch.len() as u64;
        // An ordinary print in the middle of it all, as any library may do.
        let line = format!("writer {} has sent {sent} records\n", args.number);
        stdout.write_all(line.as_bytes()).map_err(at(STDOUT))?;
    }
    writer.close(Deadline::NEVER).map_err(during("closing the pipe"))
}

/// Sends records, each with its index before it.
fn send(writer: &mut Writer, first: u64, batch: &[&[u8]]) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for (record, index) in batch.iter().zip(first..) {
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(record);
        ends.push(bytes.len());
    }
    let starts = std::iter::once(&0).chain(&ends);
    let messages: Vec<&[u8]> = starts.zip(&ends).map(|(&start, &end)| &bytes[start..end]).collect();
    let sent = writer.send_many(&messages, Deadline::NEVER).map_err(during("sending"))?;
    assert_eq!(sent, messages.len(), "without a deadline everything is sent");
    Ok(())
}
