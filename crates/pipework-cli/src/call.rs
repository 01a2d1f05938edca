//! `pipework call`: requests to the servers of a channel, and their replies.
//!
//! A call waits where it is made: with several in flight each has a thread. Another thread reads
//! requests, and this one prints. No more requests are read than may be in flight, so a slow
//! service or a slow reader of the output slows the input down, as any filter does.

mod args;
mod requests;
mod caller;
mod printer;

use crate::failure::{Failure, USAGE, at};
use crate::streams;
use caller::{Caller, Outcome};
use printer::{Done, Printer};
use requests::Requests;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

pub(crate) use args::{CallArgs, HELP};

/// Runs `pipework call`.
pub(crate) fn call(args: &CallArgs, quiet: bool) -> Result<u8, Failure> {
    if args.stream && args.in_flight > 1 {
        let why = "--stream makes one call at a time: --in-flight cannot be more than 1";
        return Err(Failure::new(why).with_status(USAGE));
    }
    // Before a call is made it is known where to put its reply.
    let stdout = streams::stdout()?;
    let requests = Requests::new(args, quiet)?;
    let caller = Caller::new(args)?;
    let mut printer = Printer::new(args, requests.are_many(), stdout);
    if args.in_flight == 1 || !requests.are_many() {
        one_by_one(args, requests, &caller, &mut printer)?;
    } else {
        side_by_side(args, requests, caller, &mut printer)?;
    }
    Ok(printer.status())
}

fn one_by_one(
    args: &CallArgs,
    requests: Requests,
    caller: &Caller,
    printer: &mut Printer,
) -> Result<(), Failure> {
    for (request, index) in requests.zip(1..) {
        let (request, begin) = (request?, Instant::now());
        let mut print = |part: Vec<u8>| printer.part(index, &part);
        let outcome = caller.call(&request, args.stream.then_some(&mut print))?;
        let is_last = matches!(outcome, Outcome::NoWorker(_));
        printer.done(&Done { index, outcome, time: begin.elapsed() }, args.stream);
        printer.flush()?;
        if is_last {
            break;
        }
    }
    Ok(())
}

/// The events that the printing thread receives.
enum Event {
    /// A request has been read.
    Begun,
    Done(Done),
    /// A call could not even be made.
    Failed(Failure),
    /// No more requests can be read.
    Broken(Failure),
}

fn side_by_side(
    args: &CallArgs,
    requests: Requests,
    caller: Caller,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let (events, heard) = mpsc::channel();
    let (permits, permitted) = mpsc::channel();
    (1..args.in_flight).for_each(|_| permits.send(()).expect("the other end is here"));
    let begun = events.clone();
    let (jobs, waiting) = mpsc::channel();
    let read = move || {
        for (request, index) in requests.zip(1u64..) {
            let job = match request {
                Ok(request) => (index, request),
                Err(failure) => return drop(begun.send(Event::Broken(failure))),
            };
            // Neither is there any more at the end.
            if begun.send(Event::Begun).is_err() || jobs.send(job).is_err() || permitted.recv().is_err() {
                return;
            }
        }
    };
    let (caller, waiting) = (Arc::new(caller), Arc::new(Mutex::new(waiting)));
    for _ in 0..args.in_flight {
        let (caller, waiting, events) = (Arc::clone(&caller), Arc::clone(&waiting), events.clone());
        let work = move || {
            loop {
                let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((index, request)): Result<(u64, Vec<u8>), _> = job else { return };
                let begin = Instant::now();
                let event = match caller.call(&request, None) {
                    Ok(outcome) => Event::Done(Done { index, outcome, time: begin.elapsed() }),
                    Err(failure) => Event::Failed(failure),
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(work).map_err(at("threads"))?;
    }
    thread::Builder::new().spawn(read).map_err(at("threads"))?;
    drop(events);
    print_all(args, &heard, permits, printer)
}

/// Prints what comes of all calls; `permits` lets one more request be read for each.
fn print_all(
    args: &CallArgs,
    heard: &mpsc::Receiver<Event>,
    permits: mpsc::Sender<()>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut permits = Some(permits);
    // Those that have ended before others that were begun earlier.
    let mut early = BTreeMap::new();
    let (mut next, mut in_flight) = (1, 0u64);
    let mut outcome = Ok(());
    loop {
        let event = match heard.try_recv() {
            Ok(event) => Ok(event),
            Err(_) => {
                // Appended replies are printed before the next wait.
                printer.flush()?;
                heard.recv()
            }
        };
        match event {
            Ok(Event::Begun) => in_flight += 1,
            Ok(Event::Done(done)) => {
                in_flight -= 1;
                if matches!(done.outcome, Outcome::NoWorker(_)) {
                    permits = None;
                }
                early.insert(done.index, done);
            }
            Ok(Event::Failed(failure)) => {
                in_flight -= 1;
                (permits, outcome) = (None, outcome.and(Err(failure)));
            }
            Ok(Event::Broken(failure)) => (permits, outcome) = (None, outcome.and(Err(failure))),
            // All threads have ended.
            Err(_) => (permits, in_flight) = (None, 0),
        }
        // The thread that reads may be in the middle of a wait, which nothing ends.
        let is_over = permits.is_none() && in_flight == 0;
        while let Some(done) = match args.unordered || is_over {
            true => early.pop_first().map(|(_, done)| done),
            false => early.remove(&next),
        } {
            printer.done(&done, false);
            next += 1;
            if let Some(permits) = &permits {
                // At the end of the input no thread takes it.
                let _ = permits.send(());
            }
        }
        if is_over {
            return printer.flush().and(outcome);
        }
    }
}
