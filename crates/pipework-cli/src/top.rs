//! `pipework top`: segments and pipes at work.
//!
//! It attaches as nobody: it maps segments and reads them, and asks /proc about pipes. What it
//! shows of times is what looking often can know, and the help says which figure is what.

mod pipe;
mod segment;
mod watch;
mod text;
mod metrics;
mod page;
mod args;
mod terminal;
mod screen;

use crate::failure::{Failure, at};
use crate::streams;
use crate::sys::{self, Signals};
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use std::time::Instant;
use watch::Watch;

pub(crate) use args::{HELP, TopArgs};

/// Runs `pipework top`.
pub(crate) fn top(args: &TopArgs, quiet: bool) -> Result<u8, Failure> {
    let taken = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let watch = Watch::new(&args.targets, args.interval)?;
    let take = |more: &[i32]| Signals::take(&[&taken, more].concat()).map_err(at("signals"));
    if let Some(address) = args.prometheus {
        return page::serve(watch, address, &take(&[])?, quiet);
    }
    if has_screen()? && !args.once && !args.json {
        return screen::interact(watch, args.sort, &take(&[libc::SIGWINCH, libc::SIGTSTP])?);
    }
    print(watch, args, &take(&[])?)
}

/// Whether standard output is a terminal on which a cursor can be moved.
fn has_screen() -> Result<bool, Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    Ok(streams::stdout()?.is_terminal() && !is_dumb)
}

/// Prints the figures of each interval, until a signal ends it.
fn print(mut watch: Watch, args: &TopArgs, signals: &Signals) -> Result<u8, Failure> {
    loop {
        while !watch.look(Instant::now()) {
            let deadline = Deadline::after(watch.due().saturating_duration_since(Instant::now()));
            sys::wait_for(&mut [PollFd::new(signals, PollFlags::IN)], deadline).map_err(at("signals"))?;
            if let Some(signal) = signals.next().map_err(at("signals"))? {
                // Whoever wants the figures once must not take nothing for them.
                let status = if args.once { 128 + signal.number as u8 } else { 0 };
                return Ok(status);
            }
        }
        args.sort.channels(&mut watch.found.channels, false);
        args.sort.pipes(&mut watch.found.pipes, false);
        let text = match args.json {
            true => text::objects(&watch.found, watch.resolution()),
            false => text::tables(&watch.found, watch.resolution()),
        };
        let between = if args.once || args.json { "" } else { "\n" };
        streams::print(format!("{text}{between}").as_bytes())?;
        if args.once {
            return Ok(0);
        }
    }
}
