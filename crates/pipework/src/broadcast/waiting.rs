//! What publishers and subscribers need of others: members that live, and steps that a thread, a task or an
//! event loop waits for.

use std::sync::Arc;

use super::ring::Found;
use super::shared::{Ring, Role, Shared};
use super::word::{Position, after};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::event::Event;
use crate::segment::liveness::{self, Needs, WAITING_TICKS};
use crate::segment::waiters::{View, Waiters};
use crate::segment::{member, watch};
use crate::sync::{Flag, Hint};

pub(crate) type Attached = member::Attached<Ring>;
pub(crate) type Membership = member::Membership<Ring>;
pub(crate) type Liveness = liveness::Liveness<Ring>;
pub(super) type Watcher = watch::Watcher<Topic>;
pub(super) type WatcherState = watch::WatcherState<Topic>;
pub(super) type Registration = watch::Registration<Topic>;

/// What one end knows of the members that it depends on.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The position that a subscriber waits for, plus 1.
    awaited: Hint,
    /// For how many more ticks a publisher waits for room.
    lacks_room: Hint,
    /// The position of its own message that it wants to drop first, plus 1.
    kept: Hint,
}

impl Known {
    pub(super) fn awaits(&self, position: Position) {
        self.awaited.set(after(position));
    }

    pub(super) fn lacks_room(&self, kept: Option<Position>) {
        self.lacks_room.set(WAITING_TICKS);
        self.kept.set(kept.map_or(0, after));
    }

    /// The message that a publisher wants to drop, if that is what it waits for.
    pub(super) fn kept(&self) -> Option<Position> {
        self.kept.get().checked_sub(1)
    }
}

impl Needs for Ring {
    type Known = Known;

    fn waits(known: &Known) -> bool {
        known.awaited.get() > 0 || known.lacks_room.get() > 0
    }

    fn recover_needed(known: &Known, me: &Membership, op: &'static str) -> Result<bool> {
        let shared = me.shared();
        let words = match (me.role(), known.awaited.get()) {
            (Role::Subscriber, 0) => return Ok(true),
            (Role::Subscriber, awaited) => vec![shared.geometry().cell(awaited - 1)],
            (Role::Publisher, _) if known.lacks_room.get() == 0 => return Ok(true),
            (Role::Publisher, _) => {
                known.lacks_room.set(known.lacks_room.get() - 1);
                shared.blocking(known.kept())
            }
        };
        shared.recover_words(words, me.latest(), op)
    }
}

/// Where a subscriber stands. Its watch thread reads it.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The position of the next message.
    pub(super) next: Hint,
    /// Whether there is something to report that is in no cell.
    pub(super) has_more: Flag,
}

/// What a watcher of a publisher or a subscriber waits for.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) shared: Arc<Shared>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) steps: Steps,
}

/// The steps of other processes that a watcher waits for.
#[derive(Debug)]
pub(super) enum Steps {
    /// The next message.
    Message(Arc<Place>),
    /// Room in the ring.
    Room,
}

impl watch::Topic for Topic {
    type Contents = Ring;
    type Item = u32;

    fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    fn common_event(&self, _: u16) -> &Event {
        match self.steps {
            Steps::Message(_) => self.shared.published(),
            Steps::Room => self.shared.room(),
        }
    }

    fn event(&self, me: u16, _: &View) -> &Event {
        self.common_event(me)
    }

    fn rouse_elsewhere(&self) {}

    fn waiters(&self) -> Option<&Waiters<Ring>> {
        None
    }

    fn free_places(&self) -> usize {
        0
    }

    fn is_there(&self, _: usize, _: usize) -> bool {
        match &self.steps {
            Steps::Message(place) => {
                place.has_more.is_set() || self.shared.look(place.next.get()) != Found::Nothing
            }
            Steps::Room => self.shared.is_free(self.liveness.known.kept()),
        }
    }

    /// A step wakes all that wait for it.
    fn is_there_for_others(&self) -> bool {
        false
    }

    fn has_items(&self) -> bool {
        false
    }

    fn word(&self, item: &u32) -> u32 {
        *item
    }

    fn is_done(&self, _: &u32) -> bool {
        false
    }

    fn is_over(&self, _: &u32) -> bool {
        true
    }

    fn looks(&self, _: bool) {
        match &self.steps {
            Steps::Message(place) => self.liveness.known.awaits(place.next.get()),
            Steps::Room => self.liveness.known.lacks_room(self.liveness.known.kept()),
        }
    }

    fn is_deserted(&self) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn rests_until(&self) -> Option<Deadline> {
        None
    }
}
