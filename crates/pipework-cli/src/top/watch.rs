//! Everything that is watched, and when it is looked at.
//!
//! Looking costs, and it shall cost little: slow looks are made more rarely, so that no kind of
//! look takes more than one part in `SHARE` of the time, unless it takes very long.

use super::broadcast::{Broadcast, BroadcastFigures};
use super::pipe::{self, Pipe, Source};
use super::segment::{Channel, Figures};
use crate::failure::Failure;
use crate::look::{self, What};
use crate::{channel, sys};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Looks at the calls in progress from one set of figures to the next.
const GLANCES: u32 = 10;
/// The shortest time between them.
const SHORTEST: Duration = Duration::from_millis(50);
/// Each kind of look may take one part in this many of the time.
const SHARE: u32 = 400;
/// However long a look takes, the next one does not wait for longer, if it was not asked to.
const LONGEST: Duration = Duration::from_secs(10);
/// How often the usual places are searched for new ones.
const SEARCH: Duration = Duration::from_secs(10);

/// The segments and pipes to watch, and the findings of the last look.
pub(super) struct Watch {
    channels: Vec<Channel>,
    broadcasts: Vec<Broadcast>,
    sources: Vec<Source>,
    /// The user named none: watch all in the usual places.
    is_all: bool,
    interval: Duration,
    glances: Pace,
    scans: Pace,
    searches: Pace,
    figures: Pace,
    pub(super) found: Found,
}

/// The findings.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) at: SystemTime,
    pub(super) channels: Vec<Figures>,
    pub(super) broadcasts: Vec<BroadcastFigures>,
    pub(super) pipes: Vec<Pipe>,
}

impl Watch {
    /// Finds what was named, which must be there; nothing named is everything in the usual places.
    pub(super) fn new(targets: &[PathBuf], interval: Duration) -> Result<Self, Failure> {
        let mut watch = Self {
            channels: vec![],
            broadcasts: vec![],
            sources: vec![],
            is_all: targets.is_empty(),
            interval,
            glances: Pace::new((interval / GLANCES).max(SHORTEST)),
            scans: Pace::new(interval),
            searches: Pace::new(SEARCH),
            figures: Pace::new(interval),
            found: Found { at: SystemTime::now(), channels: vec![], broadcasts: vec![], pipes: vec![] },
        };
        for target in targets {
            watch.add(target)?;
        }
        if watch.is_all {
            watch.search().map_err(look::failure)?;
        }
        let begin = Instant::now();
        watch.look(begin);
        // Rates need two looks, so the second one comes as soon as was asked for.
        (watch.figures.due, watch.scans.due) = (begin + interval, begin + interval);
        Ok(watch)
    }

    fn add(&mut self, target: &Path) -> Result<(), Failure> {
        if let Some(id) = target.to_str().and_then(|text| text.parse::<i32>().ok()) {
            if !Path::new(&format!("/proc/{id}")).exists() {
                return Err(Failure::new(format!("{id}: no such process; ./{id} names a file")));
            }
            self.sources.push(Source::Process(id));
        } else if pipe::fifo(target).is_some() {
            self.sources.push(Source::Fifo(target.into()));
        } else if channel::is_broadcast(target) {
            channel::open_broadcast(target).map_err(|error| channel::refused(target, error))?;
            self.broadcasts.push(Broadcast::new(target));
        } else {
            channel::open(target, true)?;
            self.channels.push(Channel::new(target));
        }
        Ok(())
    }

    /// When something is to be looked at again.
    pub(super) fn due(&self) -> Instant {
        self.glances.due.min(self.figures.due)
    }

    /// When the calls in progress are to be looked at again.
    pub(super) fn glance_due(&self) -> Instant {
        self.glances.due
    }

    /// Looks at the calls in progress, if that is due.
    pub(super) fn glance(&mut self, now: Instant) {
        if now >= self.glances.due {
            self.glances.take(now, || self.channels.iter_mut().for_each(|channel| channel.glance(now)));
        }
    }

    /// Looks at everything that is due; returns whether it has new figures.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        if now < self.figures.due {
            self.glance(now);
            return false;
        }
        if self.is_all && now >= self.searches.due {
            // If it fails, what is known is watched all the same.
            let _ = self.search();
        }
        if !self.sources.is_empty() && now >= self.scans.due {
            self.scans.take(now, || self.found.pipes = pipe::look(&self.sources));
        }
        let (channels, broadcasts, found) = (&mut self.channels, &mut self.broadcasts, &mut self.found);
        self.figures.take(now, || {
            found.channels = channels.iter_mut().map(|channel| channel.figures(now)).collect();
            found.broadcasts = broadcasts.iter_mut().map(|broadcast| broadcast.figures(now)).collect();
        });
        self.glances.due = now + self.glances.pause;
        if self.is_all {
            // Sources that have gone are left out.
            let is_gone = |fault: &Option<String>| fault.as_deref() == Some("gone");
            found.channels.retain(|figures| !is_gone(&figures.fault));
            found.broadcasts.retain(|figures| !is_gone(&figures.fault));
            found.pipes.retain(|pipe| !is_gone(&pipe.fault));
            channels.retain(|channel| found.channels.iter().any(|figures| figures.path == channel.path()));
            broadcasts.retain(|each| found.broadcasts.iter().any(|figures| figures.path == each.path()));
        }
        found.at = SystemTime::now();
        true
    }

    /// Searches the usual places for new ones.
    fn search(&mut self) -> Result<(), (PathBuf, std::io::Error)> {
        let begin = Instant::now();
        let finds = look::at_all(&look::usual_places(), sys::user());
        self.searches.took(begin);
        finds?.iter().for_each(|find| self.meet(&find.path, &find.what));
        Ok(())
    }

    fn meet(&mut self, path: &Path, what: &What) {
        match what {
            What::Segment(_) if !self.channels.iter().any(|channel| channel.path() == path) => {
                // Another file may have the name now.
                self.broadcasts.retain(|broadcast| broadcast.path() != path);
                self.channels.push(Channel::new(path));
            }
            What::Broadcast(_) if !self.broadcasts.iter().any(|broadcast| broadcast.path() == path) => {
                self.channels.retain(|channel| channel.path() != path);
                self.broadcasts.push(Broadcast::new(path));
            }
            What::Fifo(_) if !self.sources.contains(&Source::Fifo(path.into())) => {
                self.sources.push(Source::Fifo(path.into()));
            }
            _ => {}
        }
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The time from one look at the calls in progress to the next: a shorter call has no age.
    pub(super) fn resolution(&self) -> Duration {
        self.glances.pause
    }
}

/// When a kind of look is due.
struct Pace {
    shortest: Duration,
    /// From the last one to the next.
    pause: Duration,
    due: Instant,
}

impl Pace {
    fn new(shortest: Duration) -> Self {
        Self { shortest, pause: shortest, due: Instant::now() }
    }

    /// Does it, and finds out when it may be done again.
    fn take(&mut self, now: Instant, work: impl FnOnce()) {
        let begin = Instant::now();
        work();
        self.took(begin);
        self.due = now + self.pause;
    }

    /// It was done, and has taken from `begin` to now.
    fn took(&mut self, begin: Instant) {
        self.pause = self.shortest.max((begin.elapsed() * SHARE).min(LONGEST));
        self.due = begin + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_repeats_slow_work_rarely() {
        let mut pace = Pace::new(Duration::from_millis(10));
        let now = Instant::now();
        pace.take(now, || {});
        assert!(pace.due >= now + Duration::from_millis(10));
        pace.take(now, || std::thread::sleep(Duration::from_millis(5)));
        assert!(pace.due >= now + Duration::from_millis(5) * SHARE);
        pace.take(now, || std::thread::sleep(Duration::from_millis(30)));
        assert_eq!(pace.due, now + LONGEST);
    }
}
