//! `pipework demo`: every module at work on real text, checked and measured.
//!
//! This file reads the text, has each section shown, and says at the end whether all of them kept
//! their promise. A section is a file in `demo/`; it prints its own table and returns its verdict.

mod args;
mod corpus;
mod pipe;
mod atomic;
mod reqrep;

use crate::failure::Failure;
use crate::progress::{grouped, say, size};
use crate::streams;
use corpus::Corpus;
use std::io::{LineWriter, Write};

pub(crate) use args::{DEMO_PEER, DEMO_WRITER, DemoArgs, DemoPeerArgs, DemoWriterArgs, HELP};

/// Bytes of text that are gathered where no file is given.
const TEXT: usize = 32 << 20;
const QUICK_TEXT: usize = 2 << 20;

/// Runs `pipework demo`.
pub(crate) fn demo(args: &DemoArgs, quiet: bool) -> Result<u8, Failure> {
    if !quiet && streams::stderr().is_terminal() {
        say("a few seconds of work for all processors; Ctrl-C ends it");
    }
    let corpus = match &args.file {
        Some(path) => Corpus::read(path, args.quick.then_some(QUICK_TEXT), TEXT)?,
        None => Corpus::find(if args.quick { QUICK_TEXT } else { TEXT })?,
    };
    let mut out = LineWriter::new(streams::stdout()?);
    let (bytes, records) = (size(corpus.text().len() as u64), grouped(corpus.records()));
    writeln!(out, "text: {}\n      {bytes}, {records} records, one a line", corpus.origin())
        .map_err(Failure::stdout)?;
    pipe::show(&corpus, &mut out)?;
    atomic::show(&corpus, u32::from(args.writers), &mut out)?;
    reqrep::show(&corpus, &mut out)?;
    writeln!(out, "\nevery record arrived once and whole, every call was answered or reported")
        .map_err(Failure::stdout)?;
    Ok(0)
}

/// Is one writer process of the demo.
pub(crate) fn writer(args: &DemoWriterArgs) -> Result<u8, Failure> {
    atomic::write(args)?;
    Ok(0)
}

/// Is one client or worker process of the demo.
pub(crate) fn peer(args: &DemoPeerArgs) -> Result<u8, Failure> {
    reqrep::peer(args)?;
    Ok(0)
}
