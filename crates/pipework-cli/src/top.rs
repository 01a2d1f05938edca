//! `pipework top`: segments and pipes at work.
//!
//! It never becomes a member: it maps segments and reads them, and asks /proc about pipes. It gets
//! times from frequent looks, and the help explains each figure.

mod pipe;
mod commands;
mod segment;
mod broadcast;
mod watch;
mod text;
mod metrics;
mod page;
mod args;
mod terminal;
mod screen;

use crate::failure::{Ending, Failure, STDOUT, at};
use crate::outlet::Outlet;
use crate::streams;
use crate::sys::{self, Arrived, STOPS, Signals};
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use std::os::fd::AsFd;
use std::time::Instant;
use watch::Watch;

pub(crate) use args::{HELP, TopArgs};

/// Runs `pipework top`.
pub(crate) fn top(args: &TopArgs, quiet: bool) -> Result<Ending, Failure> {
    let watch = Watch::new(&args.targets, args.interval)?;
    let take = |more: &[i32]| Signals::take(&[&STOPS, more].concat()).map_err(at("signals"));
    if let Some(address) = args.prometheus {
        return page::serve(watch, address, &take(&[])?, quiet).map(Ending::Status);
    }
    if has_screen()? && !args.once && !args.json {
        let signals = take(&[libc::SIGWINCH, libc::SIGTSTP])?;
        return screen::interact(watch, args.sort, &signals).map(Ending::Status);
    }
    print(watch, args, &take(&[])?)
}

/// Whether standard output is a terminal on which a cursor can be moved.
fn has_screen() -> Result<bool, Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    Ok(streams::stdout()?.is_terminal() && !is_dumb)
}

/// Prints the figures of each interval, until a signal ends it.
fn print(mut watch: Watch, args: &TopArgs, signals: &Signals) -> Result<Ending, Failure> {
    loop {
        while !watch.look(Instant::now()) {
            let deadline = Deadline::after(watch.due().saturating_duration_since(Instant::now()));
            sys::wait_for(&mut [PollFd::new(signals, PollFlags::IN)], deadline).map_err(at("signals"))?;
            if let Some(signal) = signals.next().map_err(at("signals"))? {
                // With `--once`, a user who wants the figures must not take an empty output for
                // them.
                return Ok(if args.once { Ending::Signal(signal.number) } else { Ending::Status(0) });
            }
        }
        args.sort.channels(&mut watch.found.channels, false);
        args.sort.broadcasts(&mut watch.found.broadcasts, false);
        args.sort.pipes(&mut watch.found.pipes, false);
        let text = match args.json {
            true => text::objects(&watch.found, watch.resolution()),
            false => text::tables(&watch.found, watch.resolution()),
        };
        let between = if args.once || args.json { "" } else { "\n" };
        if let Some(signal) = print_whole(&format!("{text}{between}"), signals)? {
            // Part of the text is missing.
            return Ok(Ending::Signal(signal.number));
        }
        if args.once {
            return Ok(Ending::Status(0));
        }
    }
}

/// Prints a text; returns the signal that came while standard output did not take it, if one did.
fn print_whole(text: &str, signals: &Signals) -> Result<Option<Arrived>, Failure> {
    let mut stdout = Outlet::new(streams::stdout()?.as_fd().try_clone_to_owned().map_err(at(STDOUT))?);
    stdout.buffer().extend_from_slice(text.as_bytes());
    while stdout.is_pending() {
        let mut fds = [stdout.poll(), PollFd::new(signals, PollFlags::IN)];
        sys::wait_for(&mut fds, Deadline::NEVER).map_err(at("poll"))?;
        if !fds[0].revents().is_empty() {
            stdout.write_some().map_err(Failure::stdout)?;
        } else if let Some(signal) = signals.next().map_err(at("signals"))? {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}
