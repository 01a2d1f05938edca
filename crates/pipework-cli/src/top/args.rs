//! The options and the help of `pipework top`.

use super::page::loopback;
use super::text::Sort;
use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework top`.
#[derive(Args)]
pub(crate) struct TopArgs {
    /// Channels, broadcasts, FIFOs and processes (by their numbers) to watch; without any, all that
    /// `pipework ls` finds
    #[arg(value_name = "CHANNEL|FIFO|PID", value_hint = ValueHint::AnyPath)]
    pub(crate) targets: Vec<PathBuf>,

    /// How often to show new figures
    #[arg(long, short, value_name = "SECS", value_parser = interval, default_value = "1")]
    pub(crate) interval: Duration,

    /// The order of the rows
    #[arg(long, short, value_name = "KEY", default_value = "name", conflicts_with = "prometheus")]
    pub(crate) sort: Sort,

    /// Print the figures of one interval, and end
    #[arg(long, short = '1', conflicts_with = "prometheus")]
    pub(crate) once: bool,

    /// Print each channel and each pipe as one JSON object on a line
    #[arg(long, short, conflicts_with = "prometheus")]
    pub(crate) json: bool,

    /// Serve the figures as OpenMetrics over HTTP at this address of the loopback interface, as in
    /// 127.0.0.1:9464 or 9464, and show nothing
    #[arg(long, value_name = "ADDR", value_parser = loopback)]
    pub(crate) prometheus: Option<SocketAddr>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = crate::args::seconds(text).ok();
    let fits =
        |interval: &Duration| (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(interval);
    interval.filter(fits).ok_or_else(|| "a number of seconds from 0.1 to 3600".into())
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Shows channels, broadcasts and pipes at work, on a terminal as a
screen; elsewhere, and with --once or --json, as text. Looking disturbs no
process: no channel is joined, nothing is written, and a FIFO is not opened for
an end that it lacks.

Examples:
  Everything of yours:
    pipework top --once

  One channel, once a second, for a log:
    pipework top --json /dev/shm/work | head -n 2

  The pipes of a process, of this shell for instance:
    sleep 1 | pipework top --once $$

  For Prometheus, in the background:
    pipework top --quiet --prometheus 127.0.0.1:9464 &
    curl -s --retry 9 --retry-connrefused http://127.0.0.1:9464/metrics
    kill $!

Keys:
  up, down   select a channel, a broadcast or a pipe, to see its users below
  n r w a    sort by name, rate, waiting or age; again: the other way round
  q, Ctrl-C  quit
  Ctrl-Z     stop, until fg

Figures of a channel:
  CALLS/S  calls begun in a second
  WAIT     requests that no server has taken yet
  WORK     requests that servers have
  DONE     replies that their callers have not fetched
  SLOTS    how many calls it can hold
  TIME     how long a call keeps its slot, on average: calls in progress, on
           average over some looks, divided by CALLS/S (Little's law)
  AGE 99%  how old the calls in progress are by now: half of them, and 99 of
           100, are no older. These calls are not done, so their ages say
           nothing of TIME, which may be above or below. A channel keeps no
           times; an age is for how long looks have found the call, which lies
           below its real age by up to the time between two looks (shown as
           <100ms).
  S/C      servers and clients that are attached; !1: one is dead

  Below: all calls so far, those that were cancelled or timed out, how often
  a caller found no slot, members that died, slots taken back from them, and
  requests that went to another server. Failed calls are not counted apart.

Figures of a broadcast:
  MSGS/S   messages published in a second
  LAG      messages that the slowest subscriber has not received; with ! it
           must see all, and publishers wait for it
  KEEPS    how many messages the ring keeps
  WRITING  messages that publishers have begun and not finished
  MISSED   messages that subscribers have missed, all together
  FULL     how often a publisher had to wait for room in the ring
  P/S      publishers and subscribers that are attached; !1: one is dead
  NEWEST   the number of the newest message

  Below: all messages so far, numbers that were passed over because their
  publisher was killed, and what was taken back from dead members; and for each
  subscriber, how far it is behind, and whether it sees all messages or may lag.
  A process that may only read the file is no member, and is not shown.

Figures of a pipe:
  UNREAD bytes of those that it can HOLD, and how many descriptors of other
  processes read and write, as far as /proc shows them.

Cost:
  Below 1 % of a CPU. Slow looks, such as reading /proc with many processes,
  are made less often than --interval says.

Exit status:
  0    shown, until a key or a signal ended it; with --once, or when the text
       is cut because its reader left, 128 and the number of the signal
  1    failed; a channel does not exist, for instance
  2    usage";
