//! Section `pipe`: one thread writes the text line by line, another reads it as lines, over the
//! kernel's pipe and over ours.

use super::corpus::{Corpus, records};
use crate::failure::{Failure, at, during};
use crate::peers::measure;
use crate::progress::grouped;
use pipework::pipe::{CAPACITY, pipe};
use std::io::{self, BufRead, BufReader, Write};
use std::thread;

/// Shows the section on `out`, standard output; any other error is a broken promise.
pub(crate) fn show(corpus: &Corpus, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "\npipe: one thread writes line by line, another reads and checks every line\n\
         {:26}{:>9}{:>12}{:>8}{:>12}",
        "", "seconds", "lines/s", "MB/s", "CPU s"
    )
    .map_err(Failure::stdout)?;
    let (reader, writer) = io::pipe().map_err(at("creating a pipe"))?;
    let kernel = measure(|| stream(corpus, BufReader::with_capacity(CAPACITY, reader), writer))?;
    let (reader, writer) = pipe(CAPACITY).map_err(during("creating a pipe"))?;
    let ours = measure(|| stream(corpus, reader, writer))?;
    for (name, cost) in [("a pipe of the kernel", kernel), ("a pipe of pipework", ours)] {
        let seconds = cost.elapsed.as_secs_f64();
        writeln!(
            out,
            "{name:26}{seconds:>9.3}{:>12}{:>8.0}{:>12.3}",
            grouped((corpus.records() as f64 / seconds) as u64),
            corpus.text().len() as f64 / seconds / 1e6,
            cost.own.as_secs_f64(),
        )
        .map_err(Failure::stdout)?;
    }
    Ok(())
}

/// Sends the whole text through a pipe, and compares what comes out.
fn stream(corpus: &Corpus, mut reader: impl BufRead, mut writer: impl Write + Send) -> Result<(), Failure> {
    thread::scope(move |scope| {
        let lines = corpus.text().split_inclusive(|byte| *byte == b'\n');
        let producer = scope.spawn(move || lines.into_iter().try_for_each(|line| writer.write_all(line)));
        let mut line = Vec::new();
        for (record, index) in records(corpus.text()).zip(0u64..) {
            line.clear();
            reader.read_until(b'\n', &mut line).map_err(at("reading the pipe"))?;
            if line.strip_suffix(b"\n").unwrap_or(&line) != record {
                return Err(Failure::new(format!("line {index} is not what was written")));
            }
        }
        if reader.read_until(b'\n', &mut line).map_err(at("reading the pipe"))? > 0 {
            return Err(Failure::new("the pipe holds more than was written"));
        }
        producer.join().expect("the producer does not panic").map_err(at("writing the pipe"))
    })
}
