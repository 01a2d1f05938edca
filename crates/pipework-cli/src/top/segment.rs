//! A segment over time: its counters between two looks, and for how long its calls have been seen.
//!
//! The segment counts calls and keeps no times, because reading the clock would take a good part of a call. So times come from looking often: a call that two
//! looks have found was there all the while, and its age is at least the time since the first of
//! them. A call that ends between two looks has no age here.

use super::commands::{Commands, Joined};
use crate::processes::FileId;
use crate::{channel, sys};
use pipework::reqrep::{BlobAudit, Member, Role, Segment, Stage, Stats};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A segment that is watched.
pub(super) struct Channel {
    path: PathBuf,
    /// Open while a member is attached: an unused segment can then be removed.
    segment: Option<Segment>,
    /// The file that was seen last.
    file: Option<FileId>,
    /// For each slot, the call that was seen there last, and since when.
    seen: Vec<(u64, Instant)>,
    /// Calls in progress at each look since the last figures, added up, and the looks.
    in_progress: (usize, u32),
    /// Time that calls have kept their slots, all together, in seconds, up to the latest look.
    call_seconds: f64,
    glanced: Option<Instant>,
    before: Option<(Instant, Stats)>,
    commands: Commands,
}

/// The facts shown about a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) path: PathBuf,
    /// Why it has no other facts.
    pub(super) fault: Option<String>,
    pub(super) slots: usize,
    /// Requests that wait for a server.
    pub(super) waiting: usize,
    /// Calls that servers have.
    pub(super) taken: usize,
    /// Replies that are not fetched yet.
    pub(super) done: usize,
    /// All calls in progress.
    pub(super) in_use: usize,
    pub(super) damaged: usize,
    pub(super) stats: Stats,
    /// The increase of each counter per second, from the last figures to these.
    pub(super) rates: Option<Rates>,
    /// Time that calls have kept their slots, all together, in seconds, as far as looks have seen it.
    pub(super) call_seconds: f64,
    /// For how long a call kept its slot, on average.
    pub(super) mean: Option<Duration>,
    pub(super) ages: Option<Ages>,
    pub(super) members: Vec<Attached>,
    /// The files of its blobs.
    pub(super) blobs: BlobAudit,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) replies: f64,
    pub(super) cancelled: f64,
}

/// For how long the calls in progress have been seen, at least: percentiles of their ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ages {
    pub(super) p50: Duration,
    pub(super) p90: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Attached {
    pub(super) member: Member,
    /// The name of its process, if it is visible.
    pub(super) command: Option<String>,
    /// Calls that it waits for, or has in hand.
    pub(super) calls: usize,
}

impl Channel {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.into(),
            segment: None,
            file: None,
            seen: vec![],
            in_progress: (0, 0),
            call_seconds: 0.0,
            glanced: None,
            before: None,
            commands: Commands::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the calls in progress, between two figures.
    pub(super) fn glance(&mut self, now: Instant) {
        let Some(segment) = &self.segment else { return };
        let mut count = 0;
        for call in segment.calls() {
            count += 1;
            // The slot exists, for the geometry does not change.
            if let Some(seen) = self.seen.get_mut(call.ticket.idx() as usize)
                && seen.0 != call.ticket.to_bits()
            {
                *seen = (call.ticket.to_bits(), now);
            }
        }
        self.in_progress = (self.in_progress.0 + count, self.in_progress.1 + 1);
        if let Some(then) = self.glanced.replace(now) {
            self.call_seconds += count as f64 * now.saturating_duration_since(then).as_secs_f64();
        }
    }

    /// The current facts.
    pub(super) fn figures(&mut self, now: Instant) -> Figures {
        self.open_if_due(now).and_then(|()| self.look(now)).unwrap_or_else(|fault| {
            self.forget();
            Figures { path: self.path.clone(), fault: Some(fault), ..Figures::default() }
        })
    }

    /// Another segment may have the name by now.
    fn open_if_due(&mut self, now: Instant) -> Result<(), String> {
        if self.segment.as_ref().is_some_and(|segment| sys::is_file_at(segment, &self.path)) {
            return Ok(());
        }
        self.segment = None;
        let opened = pipework::reqrep::Options::new().any_owner(true).open(&self.path);
        let segment = opened.map_err(|error| match error.errno() {
            Some(libc::ENOENT) => "gone".into(),
            _ => channel::why(&self.path, error),
        })?;
        let slots = segment.geometry().slots as usize;
        let file = sys::file_id(segment.as_fd()).ok();
        if self.file != file || self.seen.len() != slots {
            self.forget();
            self.file = file;
            // No call has this ticket: its slot is none.
            self.seen = vec![(u64::MAX, now); slots];
        }
        self.segment = Some(segment);
        Ok(())
    }

    fn forget(&mut self) {
        (self.segment, self.file, self.before, self.in_progress) = (None, None, None, (0, 0));
        (self.call_seconds, self.glanced) = (0.0, None);
        self.seen.clear();
        self.commands.clear();
    }

    fn look(&mut self, now: Instant) -> Result<Figures, String> {
        self.glance(now);
        let Some(segment) = &self.segment else { return Err("gone".into()) };
        let members = segment.members().map_err(|error| channel::why(&self.path, error))?;
        let mut figures = Figures {
            path: self.path.clone(),
            slots: segment.geometry().slots as usize,
            stats: segment.stats(),
            blobs: segment.blob_audit(),
            call_seconds: self.call_seconds,
            ..Figures::default()
        };
        let (mut ages, mut of_members) = (vec![], HashMap::new());
        for call in segment.calls() {
            figures.in_use += 1;
            match call.stage {
                Stage::Waiting => figures.waiting += 1,
                Stage::Taken | Stage::Dropped | Stage::InParts => figures.taken += 1,
                Stage::Done => figures.done += 1,
                Stage::Damaged => figures.damaged += 1,
                _ => {}
            }
            for member in [call.client, call.server].into_iter().flatten() {
                *of_members.entry(member).or_insert(0) += 1;
            }
            let seen = self.seen.get(call.ticket.idx() as usize);
            // One that has begun since the glance is not older than nothing.
            let since = seen.filter(|seen| seen.0 == call.ticket.to_bits()).map_or(now, |seen| seen.1);
            ages.push(now.saturating_duration_since(since));
        }
        figures.ages = Ages::of(&mut ages);
        if let Some((then, stats)) = self.before
            && let seconds @ 0.001.. = now.saturating_duration_since(then).as_secs_f64()
        {
            figures.rates = Rates::of(&figures.stats, &stats, seconds);
            figures.mean = figures.rates.and_then(|rates| mean(self.in_progress, rates.requests));
        }
        (self.before, self.in_progress) = (Some((now, figures.stats)), (0, 0));
        let joined: Vec<_> =
            members.iter().map(|&Member { number, pid, since, .. }| Joined { number, pid, since }).collect();
        let commands = self.commands.of(&joined, self.file.unwrap_or_default());
        let calls = |member: &Member| of_members.get(&member.number).copied().unwrap_or(0);
        let named = members.into_iter().zip(commands);
        figures.members =
            named.map(|(member, command)| Attached { member, command, calls: calls(&member) }).collect();
        if !figures.members.iter().any(|attached| attached.member.is_alive) {
            (self.segment, self.glanced) = (None, None);
        }
        Ok(figures)
    }
}

impl Figures {
    /// Members that live, of one role.
    pub(super) fn living(&self, role: Role) -> usize {
        let counts = |attached: &&Attached| attached.member.is_alive && attached.member.role == role;
        self.members.iter().filter(counts).count()
    }

    /// Members that died and were not recovered yet.
    pub(super) fn dead(&self) -> usize {
        self.members.iter().filter(|attached| !attached.member.is_alive).count()
    }
}

impl Rates {
    /// None where a counter has gone down: another file may have had the number of this one.
    fn of(after: &Stats, before: &Stats, seconds: f64) -> Option<Self> {
        let each = |after: u64, before: u64| after.checked_sub(before).map(|more| more as f64 / seconds);
        Some(Self {
            requests: each(after.requests, before.requests)?,
            replies: each(after.replies, before.replies)?,
            cancelled: each(after.cancelled, before.cancelled)?,
        })
    }
}

impl Ages {
    fn of(ages: &mut [Duration]) -> Option<Self> {
        ages.sort_unstable();
        let last = ages.len().checked_sub(1)?;
        // The smallest age that at least `percent` of a hundred do not exceed.
        let at = |percent: usize| ages[(ages.len() * percent).div_ceil(100).saturating_sub(1).min(last)];
        Some(Self { p50: at(50), p90: at(90), p99: at(99), max: ages[last] })
    }
}

/// Little's law: how many are there on average, divided by how many come in a second, is for how
/// many seconds each of them stays. If no look has found any, it is not known.
fn mean((added_up, looks): (usize, u32), per_second: f64) -> Option<Duration> {
    let there = added_up as f64 / f64::from(looks.max(1));
    (per_second > 0.0 && added_up > 0).then(|| Duration::try_from_secs_f64(there / per_second).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipework::reqrep::Options;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn ages_returns_percentiles() {
        let ms = Duration::from_millis;
        let mut ages: Vec<_> = (1..=200).rev().map(ms).collect();
        assert_eq!(
            Ages::of(&mut ages),
            Some(Ages { p50: ms(100), p90: ms(180), p99: ms(198), max: ms(200) })
        );
        assert_eq!(Ages::of(&mut [ms(7)]), Some(Ages { p50: ms(7), p90: ms(7), p99: ms(7), max: ms(7) }));
        assert_eq!(Ages::of(&mut []), None);
        // Ten looks found 20 calls in all, and 1000 come in a second: each stays for 2 ms.
        assert_eq!(mean((20, 10), 1000.0), Some(ms(2)));
        assert_eq!((mean((20, 10), 0.0), mean((0, 10), 5.0)), (None, None));
    }

    #[test]
    fn call_age_starts_when_it_is_first_seen() {
        let path = std::env::temp_dir().join(format!("pipework-top-{}", std::process::id()));
        let segment = Options::new().slots(4).members(4).create(&path).unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut channel = Channel::new(&path);
        let first = channel.figures(at(0));
        assert_eq!((first.in_use, first.slots, first.rates.is_none(), first.ages), (0, 4, true, None));
        let tickets = ["a", "b"].map(|text| client.send(text, SOON).unwrap());
        channel.glance(at(100));
        let request = server.recv(SOON).unwrap();
        let third = client.send("c", SOON).unwrap();
        channel.glance(at(900));
        let figures = channel.figures(at(1000));
        assert_eq!((figures.waiting, figures.taken, figures.in_use), (2, 1, 3));
        let ages = figures.ages.unwrap();
        assert_eq!((ages.p50.as_millis(), ages.max.as_millis()), (900, 900));
        assert_eq!(figures.rates.unwrap().requests, 3.0);
        // 2, 3 and 3 calls were found by three looks.
        assert_eq!(figures.mean.unwrap().as_millis(), 888);
        let hands: Vec<_> =
            figures.members.iter().map(|attached| (attached.member.role, attached.calls)).collect();
        assert_eq!(hands, [(Role::Client, 3), (Role::Server, 1)]);
        request.reply("").unwrap();
        assert_eq!(channel.figures(at(2000)).done, 1);
        for ticket in tickets.into_iter().chain([third]) {
            client.forget(ticket).unwrap();
        }
        drop((client, server));
        assert!(channel.figures(at(3000)).members.is_empty());
        assert!(channel.segment.is_none(), "an unused channel is kept open");
        assert_eq!(channel.figures(at(4000)).rates.unwrap().requests, 0.0);
        segment.unlink().unwrap();
        assert_eq!(channel.figures(at(5000)).fault.as_deref(), Some("gone"));
        let other = Options::new().slots(9).members(4).create(&path).unwrap();
        let figures = channel.figures(at(6000));
        assert_eq!((figures.slots, figures.rates.is_none()), (9, true));
        other.unlink().unwrap();
    }
}
