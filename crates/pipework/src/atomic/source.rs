//! A pipe as a source of items: reads blocks of it, feeds them to the decoder, and keeps the times
//! that a frame waits for its rest.
//!
//! Invariant: each change is a whole step, so that a panic between steps leaves nothing that the
//! next call would misread. `reader.rs` says what clones share, and which waits happen outside the
//! lock.

use std::time::{Duration, Instant};

use super::decoder::{Data, Decoder, RawItem, Tail};
use super::frame::{Mode, Opening};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::fd::{Behind, PipeEnd};
use crate::interrupt;
use crate::spin::Spin;
use crate::sys::Errno;

pub(super) const OP: &str = "atomic recv";

/// How many bytes a call whose time is over still reads without finding an item: the largest
/// capacity of a pipe that no privileged process has resized.
const LAST_LOOK: usize = 1 << 20;
/// How long a line that ends with `\r` waits for a `\n`. The two bytes of one line end are written
/// together, or one directly after the other; the next state of a progress bar may take long.
const LINE_FEED_WITHIN: Duration = Duration::from_millis(100);
/// A thread that wakes this much later than requested was stopped meanwhile.
const OVERSLEPT: Duration = Duration::from_secs(1);
/// The minimum that a read counts for, so that many small reads come to an end as well.
const LEAST_READ: usize = 256;

/// The pipe's bytes on their way to becoming items. The clones of a reader share one.
pub(super) struct Source {
    pub(super) decoder: Decoder,
    opening: Opening,
    pub(super) tail: Tail,
    pub(super) read_size: usize,
    /// Items behind which reading stops; 0: it reads ahead as far as there is anything.
    pub(super) exact: u64,
    /// Bytes that the next look ahead copies, if more than small items take.
    look: usize,
    /// No more is taken from the pipe, whether or not it has ended.
    pub(super) finished: bool,
    spin: Spin,
    frame_timeout: Duration,
    /// Since when nothing has come, while a frame waits for its rest.
    quiet_since: Option<Instant>,
    /// The position of the line that waits for its `\n`, and since when it waits.
    returned: Option<(u64, Instant)>,
    /// Whether the latest call ended with bytes still in the pipe.
    cut_short: bool,
    /// Clones that wait, or are about to.
    pub(super) waiting: usize,
}

impl Source {
    pub(super) fn new(decoder: Decoder, read_size: usize, frame_timeout: Duration, spin: Spin) -> Source {
        Source {
            decoder,
            opening: Opening::NEW,
            tail: Tail::Unknown,
            read_size,
            exact: 0,
            look: 0,
            finished: false,
            spin,
            frame_timeout,
            quiet_since: None,
            returned: None,
            cut_short: false,
            waiting: 0,
        }
    }

    /// The next item; without a deadline, only if it is available.
    pub(super) fn next(&mut self, end: &mut PipeEnd, deadline: Option<Deadline>) -> Result<Option<RawItem>> {
        let mut looked_at = 0;
        self.cut_short = false;
        loop {
            if let Some(found) = self.decoder.next(self.tail)? {
                return Ok(Some(self.counted(found)));
            }
            if self.has_ended(end, OP)? {
                return Err(Error::new(ErrorKind::Closed, OP));
            }
            // Bytes may arrive for ever and never make an item.
            if looked_at >= LAST_LOOK && deadline.is_none_or(Deadline::has_passed) {
                self.cut_short = true;
                return self.nothing(deadline);
            }
            // A clone that holds the lock has no deadline.
            if looked_at >= LAST_LOOK && deadline.is_some() && interrupt::is_stopped() {
                return Err(Errno::INTR.at(OP));
            }
            let line_at = self.line_at();
            let due = self.text_at().into_iter().chain(line_at).min().map(|due| (due, Instant::now()));
            let wait =
                deadline.map(|deadline| due.map_or(deadline, |(due, _)| deadline.or_earlier(due.into())));
            if let Some(len) = self.feed(end, wait, OP)? {
                looked_at += len.max(LEAST_READ);
                continue;
            }
            match due.map(|(due, began)| Instant::now().checked_duration_since(due.max(began))) {
                // A thread that oversleeps was stopped, as a shell's job control stops all of a
                // pipeline, so the relay may have been stopped too.
                Some(Some(late)) if late > OVERSLEPT => (self.quiet_since, self.returned) = (None, None),
                Some(Some(_)) if line_at.is_some_and(|at| at <= Instant::now()) => {
                    let line = self.decoder.take_unfinished_line().map(|line| RawItem::Line(Data::Own(line)));
                    return Ok(line.map(|line| self.counted(line)));
                }
                Some(Some(_)) => self.tail = Tail::Silent,
                _ if deadline.is_none_or(Deadline::has_passed) => return self.nothing(deadline),
                _ => {}
            }
        }
    }

    /// Counts an item that is given out. Past the announced count of exact reads, each further item
    /// is read by itself.
    fn counted(&mut self, found: RawItem) -> RawItem {
        if self.exact > 1 && !matches!(found, RawItem::Torn(_)) {
            self.exact -= 1;
        }
        found
    }

    /// Whether the pipe has ended and nothing is held; `None` if that is not known by the deadline,
    /// or now if there is none.
    pub(super) fn is_at_end(
        &mut self,
        end: &mut PipeEnd,
        deadline: Option<Deadline>,
        op: &'static str,
    ) -> Result<Option<bool>> {
        loop {
            if self.decoder.holds_any()? {
                return Ok(Some(false));
            }
            if self.has_ended(end, op)? {
                return Ok(Some(true));
            }
            let read = self.feed(end, deadline, op)?;
            // The writers of a listener may come and go for ever.
            let is_last = self.tail == Tail::Ended && end.is_listener();
            if read.is_none() || (is_last && deadline.is_none_or(Deadline::has_passed)) {
                return Ok(None);
            }
            if is_last && interrupt::is_stopped() {
                return Err(Errno::INTR.at(op));
            }
        }
    }

    /// Whether no more bytes will come. A listener's pipe starts again instead.
    pub(super) fn has_ended(&mut self, end: &mut PipeEnd, op: &'static str) -> Result<bool> {
        if self.tail != Tail::Ended || self.finished || !end.is_listener() {
            return Ok(self.tail == Tail::Ended);
        }
        end.forget_writers().map_err(|errno| errno.at(op))?;
        (self.tail, self.opening) = (Tail::Unknown, Opening::NEW);
        Ok(false)
    }

    fn nothing(&self, deadline: Option<Deadline>) -> Result<Option<RawItem>> {
        if deadline.is_none() { Ok(None) } else { Err(Errno::TIMEDOUT.at(OP)) }
    }

    /// When the frame that waits for its rest becomes text, if nothing arrives.
    fn text_at(&mut self) -> Option<Instant> {
        if !self.decoder.awaits_rest() {
            return None;
        }
        self.quiet_since.get_or_insert_with(Instant::now).checked_add(self.frame_timeout)
    }

    /// When the line that ends with `\r` is given out, if no `\n` arrives. Messages that arrive
    /// meanwhile do not postpone it.
    fn line_at(&mut self) -> Option<Instant> {
        let place = self.decoder.awaits_line_feed()?;
        let (_, since) = match self.returned.filter(|(before, _)| *before == place) {
            Some(known) => known,
            None => *self.returned.insert((place, Instant::now())),
        };
        since.checked_add(LINE_FEED_WITHIN)
    }

    /// When to check again although nothing arrives.
    pub(super) fn next_timeout(&mut self) -> Option<Deadline> {
        if self.cut_short {
            return Some(Deadline::now());
        }
        self.text_at().into_iter().chain(self.line_at()).min().map(Deadline::at)
    }

    /// Reads one block; `None` if nothing is there or arrives before the deadline.
    pub(super) fn feed(
        &mut self,
        end: &mut PipeEnd,
        deadline: Option<Deadline>,
        op: &'static str,
    ) -> Result<Option<usize>> {
        let (len, behind) = match self.exact {
            0 => (self.read_size, Behind::Any),
            _ => (self.certain(end)?, Behind::Stays),
        };
        let limit = self.decoder.pipe_buf();
        let space = self.decoder.space(len)?;
        let read = match deadline {
            Some(deadline) => end.read(space, behind, deadline, &self.spin).map(Some),
            None => end.try_read(space, behind),
        };
        let read = match read {
            Err(Errno::TIMEDOUT) => None,
            read => read.map_err(|errno| errno.at(op))?,
        };
        if let Some(len) = read {
            let is_plain = self.opening.shows_plain(&space[..len], limit);
            self.decoder.fed(len);
            self.tail = if len == 0 { Tail::Ended } else { Tail::Unknown };
            self.quiet_since = None;
            if is_plain && self.decoder.mode() == Mode::Mixed {
                return Err(Error::with_explanation(ErrorKind::Incompatible, op, Explanation::SentPlain));
            }
        }
        Ok(read)
    }

    /// How much can be read of the wanted items and nothing else. It looks at the content of the
    /// pipe first, except to end a frame that has begun.
    ///
    /// A look copies as much as small items take, and more if that showed no end: taking tiny items
    /// one by one does not copy a whole pipe for each.
    fn certain(&mut self, end: &mut PipeEnd) -> Result<usize> {
        let items = usize::try_from(self.exact).unwrap_or(usize::MAX);
        let least = self.decoder.pipe_buf().saturating_mul(items);
        let look = self.look.max(least).min(self.read_size);
        let peeked = match self.decoder.has_bytes() {
            true => 0,
            false => end.peek(self.decoder.space(look)?),
        };
        let certain = self.decoder.certain(peeked, self.exact);
        self.look = if peeked == look && certain >= peeked { look.saturating_mul(2) } else { 0 };
        Ok(certain)
    }
}
