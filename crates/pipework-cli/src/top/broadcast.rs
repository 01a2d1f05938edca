//! A broadcast over time: its counters between two looks, and how far its subscribers are behind.
//!
//! It is opened only for reading, so looking cannot disturb it. Processes that may only read it themselves
//! are no members, and are not seen here.

use super::commands::{Commands, Joined};
use crate::processes::FileId;
use crate::{channel, sys};
use pipework::broadcast::{Member, Role, Segment, Stats};
use pipework::reqrep::BlobAudit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A broadcast that is watched.
pub(super) struct Broadcast {
    path: PathBuf,
    /// Open while a member is attached: an unused segment can then be removed.
    segment: Option<Segment>,
    /// The file that was seen last.
    file: Option<FileId>,
    before: Option<(Instant, Stats)>,
    commands: Commands,
}

/// The facts shown about a broadcast.
#[derive(Clone, Debug, Default)]
pub(super) struct BroadcastFigures {
    pub(super) path: PathBuf,
    /// Why it has no other facts.
    pub(super) fault: Option<String>,
    /// How many messages the ring keeps.
    pub(super) messages: u32,
    /// The number of the newest message.
    pub(super) newest: u64,
    /// Messages that publishers have begun and not finished.
    pub(super) writing: usize,
    pub(super) stats: Stats,
    /// The increase of counters per second, from the last figures to these.
    pub(super) rates: Option<BroadcastRates>,
    pub(super) members: Vec<BroadcastMember>,
    /// The files of its blobs.
    pub(super) blobs: BlobAudit,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BroadcastRates {
    pub(super) published: f64,
    pub(super) missed: f64,
}

#[derive(Clone, Debug)]
pub(super) struct BroadcastMember {
    pub(super) member: Member,
    /// The name of its process, if it is visible.
    pub(super) command: Option<String>,
}

impl Broadcast {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.into(), segment: None, file: None, before: None, commands: Commands::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The current facts.
    pub(super) fn figures(&mut self, now: Instant) -> BroadcastFigures {
        self.open_if_due().and_then(|()| self.look(now)).unwrap_or_else(|fault| {
            (self.segment, self.file, self.before) = (None, None, None);
            self.commands.clear();
            BroadcastFigures { path: self.path.clone(), fault: Some(fault), ..BroadcastFigures::default() }
        })
    }

    /// Another segment may have the name by now.
    fn open_if_due(&mut self) -> Result<(), String> {
        if self.segment.as_ref().is_some_and(|segment| sys::is_file_at(segment, &self.path)) {
            return Ok(());
        }
        self.segment = None;
        let segment = channel::open_broadcast(&self.path).map_err(|error| match error.errno() {
            Some(libc::ENOENT) => "gone".into(),
            _ => channel::why(&self.path, error),
        })?;
        let file = sys::file_id(segment.as_fd()).ok();
        if self.file != file {
            (self.file, self.before) = (file, None);
            self.commands.clear();
        }
        self.segment = Some(segment);
        Ok(())
    }

    fn look(&mut self, now: Instant) -> Result<BroadcastFigures, String> {
        let Some(segment) = &self.segment else { return Err("gone".into()) };
        let why = |error| channel::why(&self.path, error);
        let members = segment.members().map_err(why)?;
        let mut figures = BroadcastFigures {
            path: self.path.clone(),
            messages: segment.geometry().messages,
            newest: segment.newest(),
            writing: segment.audit().map_err(why)?.writing,
            stats: segment.stats(),
            blobs: segment.blob_audit(),
            ..BroadcastFigures::default()
        };
        if let Some((then, stats)) = self.before
            && let seconds @ 0.001.. = now.saturating_duration_since(then).as_secs_f64()
        {
            figures.rates = BroadcastRates::of(&figures.stats, &stats, seconds);
        }
        self.before = Some((now, figures.stats));
        let joined: Vec<_> =
            members.iter().map(|&Member { number, pid, since, .. }| Joined { number, pid, since }).collect();
        let commands = self.commands.of(&joined, self.file.unwrap_or_default());
        let named = members.into_iter().zip(commands);
        figures.members = named.map(|(member, command)| BroadcastMember { member, command }).collect();
        if !figures.members.iter().any(|attached| attached.member.is_alive) {
            self.segment = None;
        }
        Ok(figures)
    }
}

impl BroadcastFigures {
    /// Members that live, of one role.
    pub(super) fn living(&self, role: Role) -> impl Iterator<Item = &Member> {
        let members = self.members.iter().map(|attached| &attached.member);
        members.filter(move |member| member.is_alive && member.role == role)
    }

    /// Members that died and were not recovered yet.
    pub(super) fn dead(&self) -> usize {
        self.members.iter().filter(|attached| !attached.member.is_alive).count()
    }

    /// How many messages the slowest subscriber has not received.
    pub(super) fn lag(&self) -> Option<u64> {
        self.living(Role::Subscriber).map(|member| member.lag).max()
    }

    /// Whether publishers wait for a subscriber.
    pub(super) fn is_held_up(&self) -> bool {
        let messages = u64::from(self.messages);
        self.living(Role::Subscriber).any(|member| member.must_see_all && member.lag >= messages)
    }
}

impl BroadcastRates {
    /// None where a counter has gone down: another file may have had the number of this one.
    fn of(after: &Stats, before: &Stats, seconds: f64) -> Option<Self> {
        let each = |after: u64, before: u64| after.checked_sub(before).map(|more| more as f64 / seconds);
        let published = each(after.published, before.published)?;
        Some(Self { published, missed: each(after.missed, before.missed)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipework::broadcast::{Options, SubscriberOptions};
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn figures_follow_publishers_and_subscribers() {
        let path = std::env::temp_dir().join(format!("pipework-top-broadcast-{}", std::process::id()));
        let segment = Options::new().messages(4).members(4).create(&path).unwrap();
        let publisher = segment.publisher().unwrap();
        let all = segment.subscriber_with(&SubscriberOptions::new().must_see_all(true)).unwrap();
        let mut lagging = segment.subscriber().unwrap();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut broadcast = Broadcast::new(&path);
        let first = broadcast.figures(at(0));
        assert_eq!((first.messages, first.newest, first.rates.is_none(), first.lag()), (4, 0, true, Some(0)));
        for _ in 0..4 {
            publisher.publish("news", SOON).unwrap();
        }
        lagging.recv(SOON).unwrap();
        let figures = broadcast.figures(at(2000));
        assert_eq!((figures.newest, figures.stats.published, figures.writing), (4, 4, 0));
        assert_eq!(figures.rates.unwrap().published, 2.0);
        assert_eq!((figures.lag(), figures.is_held_up()), (Some(4), true));
        let lags: Vec<_> =
            figures.living(Role::Subscriber).map(|member| (member.must_see_all, member.lag)).collect();
        assert_eq!(lags, [(true, 4), (false, 3)]);
        assert_eq!(figures.living(Role::Publisher).count(), 1);
        drop(all);
        for _ in 0..3 {
            publisher.publish("news", SOON).unwrap();
        }
        assert_eq!(lagging.recv(SOON).map(drop).unwrap_err().missed(), Some(2));
        let figures = broadcast.figures(at(3000));
        assert_eq!((figures.stats.missed, figures.rates.unwrap().missed), (2, 2.0));
        drop((publisher, lagging));
        assert!(broadcast.figures(at(4000)).members.is_empty());
        assert!(broadcast.segment.is_none(), "an unused broadcast is kept open");
        assert_eq!(broadcast.figures(at(5000)).rates.unwrap().published, 0.0);
        segment.unlink().unwrap();
        assert_eq!(broadcast.figures(at(6000)).fault.as_deref(), Some("gone"));
    }
}
