//! `pipework serve`: a worker of a channel from any program.
//!
//! Each worker is a thread that takes requests and waits for the processes that it has started, so
//! that work on one never holds up another. This thread handles signals, and decides when to stop: no
//! more requests are taken then, and each thread ends when its request is done.

mod args;
mod jobs;
mod service;
mod process;
mod each;
mod conversation;
mod lasting;

use crate::channel::{self, Removal};
use crate::exec;
use crate::failure::{Failure, at};
use crate::progress::say;
use crate::stop::{Heard, Stop};
use crate::streams;
use crate::sys;
use crate::table::count;
use pipework::Deadline;
use pipework::reqrep::{Options, Segment, ServerOptions};
use rustix::event::{PollFd, PollFlags};
use service::Service;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

pub(crate) use args::{HELP, ServeArgs};

/// How soon to look again at a channel that another process opens or removes.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `pipework serve`.
pub(crate) fn serve(args: &ServeArgs, quiet: bool) -> Result<u8, Failure> {
    exec::find(&args.command[0], "no request was taken")?;
    // Before any other thread starts.
    let stop = Stop::take(&[])?;
    let (segment, is_ours) = open(args)?;
    let outcome = run(args, quiet, &segment, stop);
    let removed = if is_ours { remove(segment) } else { Ok(()) };
    outcome.and_then(|status| removed.map(|()| status))
}

/// Opens the channel, or makes it; whether it was made here.
fn open(args: &ServeArgs) -> Result<(Segment, bool), Failure> {
    let options = options(args);
    // A process that makes and removes the channel all the time may win a few rounds.
    for _ in 0..16 {
        match Options::new().any_owner(args.making.any_owner).open(&args.channel) {
            Ok(segment) => return as_asked(args, segment).map(|segment| (segment, false)),
            Err(error) if error.errno() == Some(libc::ENOENT) => {}
            // Its owner is checking that it is unused, and is about to remove it.
            Err(error) if error.errno() == Some(libc::EAGAIN) => {
                thread::sleep(LOOK);
                continue;
            }
            Err(error) => return Err(channel::refused(&args.channel, error)),
        }
        match options.create(&args.channel) {
            Ok(segment) => return Ok((segment, true)),
            Err(error) if error.errno() == Some(libc::EEXIST) => {}
            Err(error) => return Err(channel::refused(&args.channel, error)),
        }
    }
    Err(Failure::new(format!("{}: other processes keep making and removing it", args.channel.display())))
}

/// The channel that is there, if it is as the options say.
fn as_asked(args: &ServeArgs, segment: Segment) -> Result<Segment, Failure> {
    let (making, found) = (&args.making, segment.geometry());
    let file = segment.as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
    let mode = file.map_err(at(args.channel.display()))?.mode() & 0o777;
    let differs = |asked: Option<u32>, found: u32| asked.is_some_and(|asked| asked != found);
    let others: Vec<String> = [
        (differs(making.slots, found.slots), format!("--slots {}", found.slots)),
        (
            differs(making.request_bytes, found.request_bytes),
            format!("--request-bytes {}", found.request_bytes),
        ),
        (differs(making.reply_bytes, found.reply_bytes), format!("--reply-bytes {}", found.reply_bytes)),
        (differs(making.members, found.members), format!("--members {}", found.members)),
        (differs(making.mode, mode), format!("--mode {mode:o}")),
    ]
    .into_iter()
    .filter_map(|(differs, option)| differs.then_some(option))
    .collect();
    match others.is_empty() {
        true => Ok(segment),
        false => {
            let (path, others) = (args.channel.display(), others.join(" "));
            Err(Failure::new(format!("{path}: it exists already, and has {others}; leave these options out")))
        }
    }
}

fn options(args: &ServeArgs) -> Options {
    let making = &args.making;
    type Set = fn(Options, u32) -> Options;
    let asked: [(Option<u32>, Set); 5] = [
        (making.slots, Options::slots),
        (making.request_bytes, Options::request_bytes),
        (making.reply_bytes, Options::reply_bytes),
        (making.members, Options::members),
        (making.mode, Options::mode),
    ];
    let options = Options::new().any_owner(making.any_owner);
    asked.into_iter().fold(options, |options, (value, set)| match value {
        Some(value) => set(options, value),
        None => options,
    })
}

/// Removes a channel that was made here, if no other process uses it. A process that opens it at
/// the last moment keeps it, or gets a new one: no server stays at a file that is gone.
fn remove(segment: Segment) -> Result<(), Failure> {
    /// How often to look again while another process looks at it.
    const LOOKS: u32 = 20;
    let path = segment.path().unwrap_or("".as_ref()).to_path_buf();
    // The dead do not use it.
    let members = segment.recover().and_then(|_| segment.members());
    if !members.map_err(|error| channel::refused(&path, error))?.is_empty() {
        return Ok(());
    }
    let file = sys::file_id(&segment).map_err(at(path.display()))?;
    // Otherwise this process itself would have it open.
    drop(segment);
    for _ in 0..LOOKS {
        match channel::remove_unused(&path, file, 0) {
            Ok(Removal::InUse) => thread::sleep(LOOK),
            // No caller waits for a reply any more, so these are jobs.
            Ok(Removal::Waiting(jobs)) => {
                let jobs = if jobs == 1 { "1 job waits".into() } else { format!("{jobs} jobs wait") };
                say(format!("{}: it stays: {jobs} in it", path.display()));
                break;
            }
            // That file system has no leases, and no process had joined a moment ago.
            Ok(Removal::Unknown(_)) => {
                return sys::unlink_file(&path, file).map(drop).map_err(at(path.display()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at(path.display())(error));
            }
            Ok(Removal::Done | Removal::Changed) | Err(_) => break,
        }
    }
    Ok(())
}

/// Serves until a signal comes.
fn run(args: &ServeArgs, quiet: bool, segment: &Segment, mut stop: Stop) -> Result<u8, Failure> {
    let mut options = ServerOptions::new().part_timeout(args.part_timeout);
    if let Some(bytes) = args.max_message {
        options = options.max_message(bytes);
    }
    let server = segment.server_with(&options).map_err(|error| channel::refused(&args.channel, error))?;
    let (ended, alive) = io::pipe().map_err(at("pipe"))?;
    let alive = Arc::new(alive);
    let service = Service::new(args, server, Arc::clone(&stop.signals))?;
    if !quiet && streams::stderr().is_terminal() {
        say(format!("serving {} with {}; Ctrl-C stops it", args.channel.display(), service.name()));
    }
    thread::scope(|scope| {
        let mut workers: Vec<ScopedJoinHandle<'_, Result<(), Failure>>> = Vec::new();
        let mut start = || -> Result<(), Failure> {
            for number in 1..=args.workers {
                let (service, alive) = (&service, Arc::clone(&alive));
                let work = move || worker(service, alive);
                let named = thread::Builder::new().name(format!("worker {number}"));
                workers.push(named.spawn_scoped(scope, work).map_err(at("workers"))?);
            }
            Ok(())
        };
        let started = start();
        drop(alive);
        let outcome = started.and_then(|()| wait_for_signals(&service, &mut stop, &ended));
        service.stop();
        workers.into_iter().fold(outcome, |outcome, worker| {
            let ended = worker.join().expect("a worker does not panic");
            outcome.and(ended)
        })
    })?;
    if service.lost() > 0 {
        return Err(Failure::new(format!("{} lost", count(service.lost(), "job"))));
    }
    match service.cut_short() {
        0 => Ok(0),
        1 => Err(Failure::new("1 running request was cut short")),
        many => Err(Failure::new(format!("{many} running requests were cut short"))),
    }
}

/// One of the threads that take requests; `alive` is closed when the last one ends.
fn worker(service: &Service<'_>, alive: Arc<PipeWriter>) -> Result<(), Failure> {
    let args = service.args;
    let outcome = match args.lines || args.nul || args.messages {
        true => lasting::work(service),
        false => each::work(service),
    };
    // After an error the others need not find out one by one.
    service.stop();
    drop(alive);
    outcome
}

/// Waits until all workers have ended, which they do after a signal. A second signal cuts their
/// requests short.
fn wait_for_signals(service: &Service<'_>, stop: &mut Stop, ended: &PipeReader) -> Result<(), Failure> {
    let mut drained = Deadline::NEVER;
    loop {
        let mut fds = [PollFd::new(ended, PollFlags::IN), PollFd::new(&stop.signals, PollFlags::IN)];
        sys::wait_for(&mut fds, drained).map_err(at("poll"))?;
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        if drained.has_passed() {
            service.hurry();
            drained = Deadline::NEVER;
        }
        while let Some(heard) = stop.next()? {
            if let Heard::Asks(_) = heard {
                drained = Deadline::from(service.args.drain);
                service.stop();
            } else {
                service.hurry();
            }
        }
    }
}
