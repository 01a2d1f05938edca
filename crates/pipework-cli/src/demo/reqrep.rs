//! Section `reqrep`: client and worker processes that know nothing but the name of a segment, and a
//! worker that is killed.
//!
//! Each client asks about the records of its share, several calls at a time; a worker answers with
//! the record's digest, which the client works out as well. Half-way a worker is killed. One client
//! lets its calls go to another worker then, the others ask for an error; so every call must be
//! answered rightly or end with `PeerDied`, and none may be lost.

use super::args::{DEMO_PEER, DemoPeerArgs};
use super::corpus::{Corpus, Share, digest, records};
use crate::failure::{Failure, at, during, uninterrupted};
use crate::peers::{Children, Name, measure, start};
use crate::progress::grouped;
use crate::{channel, streams, sys};
use pipework::reqrep::{Client, ClientOptions, Message, Options, Segment, Ticket};
use pipework::{Deadline, ErrorKind};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: usize = 2;
const WORKERS: usize = 3;
/// Calls that a client has in progress.
const WINDOW: usize = 8;
/// Records that are asked about, at most.
const CALLS: usize = 100_000;
/// A longer record is asked about by its beginning.
const LONGEST: usize = 4096;
/// The longest that a reply may take to come, or the news that it will not.
const PATIENCE: Duration = Duration::from_secs(20);

/// Shows the section on `out`, standard output; any other error is a broken promise.
pub(crate) fn show(corpus: &Corpus, out: &mut impl Write) -> Result<(), Failure> {
    let shares: Vec<Share> = corpus.shares_of_first(CALLS, CLIENTS);
    let calls: u64 = shares.iter().map(|share| share.records.end - share.records.start).sum();
    let name = Name::new("demo");
    let segment = Options::new().request_bytes(LONGEST as u32 + 8).reply_bytes(8).create(&name.0);
    let segment = segment.map_err(during("making a channel"))?;
    let mut tally = Tally::default();
    let cost = measure(|| {
        tally = play(corpus, &shares, &name.0, &segment, calls)?;
        Ok(())
    })?;
    let stats = segment.stats();
    let audit = segment.audit().map_err(during("auditing the channel"))?;
    if tally.answered + tally.told != calls {
        return Err(Failure::new(format!("{} of {calls} calls came to an end", tally.answered + tally.told)));
    }
    if stats.dead_members != 1 || audit.free != segment.geometry().slots as usize {
        return Err(Failure::new(format!("the channel was left in disorder: {stats:?}, {audit:?}")));
    }
    let seconds = cost.elapsed.as_secs_f64();
    writeln!(
        out,
        "\nreqrep: {CLIENTS} clients call {WORKERS} workers, all of them processes;\n\
         half-way a worker is killed with calls in its hands\n\
         {:26}{:>9}{:>12}{:>15}{:>8}\n\
         {:26}{seconds:>9.3}{:>12}{:>15}{:>8.3}\n\
         {} calls answered rightly, {} told that their worker had died,\n\
         {} gone to another worker; the longest took {:.1} ms, every slot is free again",
        "",
        "seconds",
        "calls/s",
        "CPU us a call",
        "CPU s",
        "calls, 8 at a time each",
        grouped((calls as f64 / seconds) as u64),
        format!("{:.2}", cost.children.as_secs_f64() * 1e6 / calls as f64),
        cost.children.as_secs_f64(),
        grouped(tally.answered),
        tally.told,
        stats.redelivered,
        tally.longest.as_secs_f64() * 1e3,
    )
    .map_err(Failure::stdout)
}

/// How calls have ended.
#[derive(Default)]
struct Tally {
    answered: u64,
    told: u64,
    longest: Duration,
}

/// Starts all processes, kills a worker half-way, and adds up what the clients say.
fn play(
    corpus: &Corpus,
    shares: &[Share],
    name: &Path,
    segment: &Segment,
    calls: u64,
) -> Result<Tally, Failure> {
    let peer = |arguments: &[String], stdin: Stdio| -> io::Result<Child> {
        let mut command = start(DEMO_PEER)?;
        command.arg(format!("--segment={}", name.display())).args(arguments);
        command.stdin(stdin).stdout(Stdio::piped()).spawn()
    };
    let mut workers = Children::default();
    for number in 0..WORKERS {
        let dies = (number == 0).then(|| format!("--dies-after={}", calls / 2));
        workers.0.push(peer(dies.as_slice(), Stdio::null()).map_err(at("workers"))?);
    }
    // All of them must be attached; otherwise there may be no worker to kill while it works.
    let begin = Instant::now();
    while segment.members().map_err(during("asking for members"))?.len() < WORKERS {
        pause(begin, "the workers did not come")?;
    }
    let mut clients = Children::default();
    for (number, share) in shares.iter().enumerate() {
        let arguments = [
            format!("--start={}", share.bytes.start),
            format!("--len={}", share.bytes.len()),
            format!("--redeliveries={}", if number == 0 { 3 } else { 0 }),
        ];
        let text = corpus.file().map_err(at("text"))?.into();
        clients.0.push(peer(&arguments, text).map_err(at("clients"))?);
    }
    let mut tally = Tally::default();
    for child in &mut clients.0 {
        let mut told = String::new();
        child.stdout.take().expect("it is a pipe").read_to_string(&mut told).map_err(at("a client"))?;
        let numbers: Vec<u64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [answered, died, longest_us] = numbers[..] else {
            return Err(Failure::new(format!("a client failed: {told:?}")));
        };
        tally.answered += answered;
        tally.told += died;
        tally.longest = tally.longest.max(Duration::from_micros(longest_us));
    }
    clients.finish()?;
    // Of a short text it may not have got a single record, and then it lives still. It must be gone
    // before the others are sent home.
    workers.0[0].kill().map_err(at("killing a worker"))?;
    workers.0.remove(0).wait().map_err(at("waiting for the dead worker"))?;
    // The workers leave when they are asked about nothing.
    let last = segment.client().map_err(during("attaching"))?;
    for _ in 1..WORKERS {
        last.call("", PATIENCE).map_err(during("sending a worker home"))?;
    }
    segment.recover().map_err(during("recovering"))?;
    workers.finish()?;
    Ok(tally)
}

/// Waits a moment, unless that was done for too long.
fn pause(begin: Instant, failure: &str) -> Result<(), Failure> {
    if begin.elapsed() > PATIENCE {
        return Err(Failure::new(failure));
    }
    std::thread::sleep(Duration::from_micros(200));
    Ok(())
}

/// Is one client or worker process.
pub(crate) fn peer(args: &DemoPeerArgs) -> Result<(), Failure> {
    let segment = channel::open(&args.segment, false)?;
    match args.len {
        Some(len) => client(&segment, args, len),
        None => worker(&segment, args.dies_after.unwrap_or(u64::MAX)),
    }
}

/// Answers until it is sent home, or until all workers together have answered the given number of
/// calls; then it takes some more, and dies with them.
fn worker(segment: &Segment, dies_after: u64) -> Result<(), Failure> {
    let server = segment.server().map_err(during("attaching a server"))?;
    loop {
        if dies_after < u64::MAX && segment.stats().replies >= dies_after {
            let _taken = uninterrupted(|| server.recv_many(WINDOW, Deadline::NEVER, Duration::ZERO))
                .map_err(during("receiving"))?;
            sys::kill_self();
        }
        let request = uninterrupted(|| server.recv(Deadline::NEVER)).map_err(during("receiving"))?;
        let end = request.is_empty();
        let answer = digest(request.flags().into(), &request);
        request.reply(&answer.to_le_bytes()).map_err(during("replying"))?;
        if end {
            return Ok(());
        }
    }
}

/// Standard input is the text; the tally goes to standard output.
fn client(segment: &Segment, args: &DemoPeerArgs, len: usize) -> Result<(), Failure> {
    let stdin = streams::stdin()?.as_fd().try_clone_to_owned().map_err(at("standard input"))?;
    let mut share = vec![0; len];
    File::from(stdin).read_exact_at(&mut share, args.start).map_err(at("standard input"))?;
    let options = ClientOptions::new().redeliveries(args.redeliveries);
    let client = segment.client_with(&options).map_err(during("attaching a client"))?;
    let mut tally = Tally::default();
    let mut calls = VecDeque::new();
    for (record, index) in records(&share).zip(0u32..) {
        if calls.len() == WINDOW {
            end(&client, calls.pop_front().expect("it is not empty"), &mut tally)?;
        }
        // Not empty, for that would send the worker home.
        let question = if record.is_empty() { b"\n" } else { &record[..record.len().min(LONGEST)] };
        let begin = Instant::now();
        let message = Message::new(question).flags(index);
        let ticket = uninterrupted(|| client.send(message, begin + PATIENCE)).map_err(during("sending"))?;
        calls.push_back(Call { ticket, answer: digest(index.into(), question), begin });
    }
    calls.into_iter().try_for_each(|call| end(&client, call, &mut tally))?;
    let Tally { answered, told, longest } = tally;
    streams::print(format!("{answered} {told} {}\n", longest.as_micros()).as_bytes())
}

struct Call {
    ticket: Ticket,
    answer: u64,
    begin: Instant,
}

fn end(client: &Client, call: Call, tally: &mut Tally) -> Result<(), Failure> {
    match uninterrupted(|| client.recv(call.ticket, call.begin + PATIENCE)) {
        Ok(reply) if *reply == call.answer.to_le_bytes() => tally.answered += 1,
        Ok(_) => return Err(Failure::new("a reply is wrong")),
        Err(error) if error.kind() == ErrorKind::PeerDied => tally.told += 1,
        Err(error) => return Err(during("receiving")(error)),
    }
    tally.longest = tally.longest.max(call.begin.elapsed());
    Ok(())
}
