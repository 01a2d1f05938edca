//! The steps of the ring: a publisher claims a cell and finishes it, a subscriber looks at its next one,
//! and what is done for both after a death. BROADCAST.md has the protocol.

use super::shared::{Described, Ring, Shared, cursor, cursor_of, swap_cursor};
use super::word::{CellWord, Cursor, Position, State, after};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::mapping::{EPOCH, MemberEntry, count};
use crate::segment::naming::Leaving;
use crate::segment::recovery::{Named, Recover};
use crate::sync::{self, AtomicU64, Hint, Ordering, Reach, fence, fence_after_swap};
#[cfg(test)]
use crate::sys::fault;

/// A cell that a publisher has claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    pub(crate) position: Position,
    pub(crate) idx: u32,
    word: CellWord,
}

/// What a subscriber finds in the cell of its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    Nothing,
    /// The message, and the word that must still be there when it has been copied.
    Message(CellWord),
    /// The number was passed over.
    Skipped,
    /// The message was dropped.
    Dropped,
    /// A later message has taken the cell.
    Overtaken,
}

/// What the publishers of this process know of the cursors, so that they rarely look at all of them.
///
/// Invariant: as long as the counter of joins is `joins`, no cursor is behind `limit` minus the length of
/// the ring, and no member after `last` has one. A thread that reads `joins` and then the others gets what
/// is valid for these joins: a thread that changes them first sets the others to what is always valid.
#[derive(Debug)]
pub(crate) struct Cursors {
    joins: AtomicU64,
    /// Up to here no look is needed.
    limit: AtomicU64,
    /// The last member with a cursor.
    last: AtomicU64,
    /// The process in which a thread changes these, plus 1.
    changing: AtomicU64,
    /// The member that last left no room. It is looked at first.
    slowest: Hint,
}

impl Cursors {
    pub(crate) fn new() -> Cursors {
        let [joins, limit, last, changing] = [0, 0, u64::MAX, 0].map(AtomicU64::new);
        Cursors { joins, limit, last, changing, slowest: Hint::new(0) }
    }

    #[inline]
    fn allow(&self, joins: u64, position: Position) -> bool {
        self.joins.load(Ordering::Acquire) == joins && position < self.limit.load(Ordering::Acquire)
    }

    /// No member after this one has a cursor.
    fn last(&self, joins: u64) -> u64 {
        let is_known = self.joins.load(Ordering::Acquire) == joins;
        if is_known { self.last.load(Ordering::Acquire) } else { u64::MAX }
    }

    fn remember(&self, joins: u64, limit: Position, last: u16) {
        let (before, mine) = (self.changing.load(Ordering::Relaxed), u64::from(sync::generation()) + 1);
        // If another thread is at it, this one looks again the next time.
        if before != mine
            && self.changing.compare_exchange(before, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            self.limit.store(0, Ordering::Release);
            self.last.store(u64::MAX, Ordering::Release);
            self.joins.store(joins, Ordering::Release);
            self.limit.store(limit, Ordering::Release);
            self.last.store(last.into(), Ordering::Release);
            self.changing.store(0, Ordering::Release);
        }
    }

    /// The member that last left no room.
    pub(crate) fn slowest(&self) -> u16 {
        self.slowest.get() as u16
    }
}

/// A step that removes a dead member from a word.
#[derive(Clone, Copy)]
pub(crate) enum Removal {
    /// The number of a cell that it was writing is passed over.
    Cell(CellWord),
    /// It sees no messages any more.
    Cursor(Cursor),
}

/// Publishing.
impl Shared {
    /// Claims the next cell for the publisher `me`. `None` if there is no room.
    #[inline]
    pub(crate) fn claim(&self, me: u16, known: &Cursors, op: &'static str) -> Result<Option<Claimed>> {
        let geometry = *self.geometry();
        let mut last = None;
        for _ in 0..TURNS {
            // SeqCst: see `has_room`.
            let tail = self.tail().load(Ordering::SeqCst);
            let (idx, lap) = (geometry.cell(tail), geometry.lap(tail));
            let cell = self.cell(idx);
            let before = cell.load();
            match before.ahead_of(lap) {
                -1 => {}
                0 => {
                    self.raise(tail);
                    continue;
                }
                // Another publisher has claimed it since the tail was read.
                1.. if last != Some(tail) => {
                    last = Some(tail);
                    continue;
                }
                _ => return Err(Error::new(ErrorKind::Corrupt, op)),
            }
            if before.state() == State::Writing || !self.has_room(tail, known) {
                return Ok(None);
            }
            let mut leaving = Leaving::default();
            if before.state() == State::Done {
                self.add_leaving(idx, &mut leaving);
            }
            let word = CellWord::new(lap, State::Writing, me);
            if cell.swap(before, word) {
                // The message is written after the word has changed: a subscriber that reads any of it
                // finds the word changed.
                fence(Ordering::Release);
                self.raise(tail);
                leaving.apply();
                return Ok(Some(Claimed { position: tail, idx, word }));
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    #[inline]
    fn raise(&self, tail: Position) {
        // SeqCst: see `has_room`. If it fails, another process has raised it.
        let _ = self.tail().compare_exchange(tail, after(tail), Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Adds the blobs that the message in a cell names, before the step that ends it.
    #[inline]
    fn add_leaving(&self, idx: u32, leaving: &mut Leaving) {
        let named = self.cell(idx).described().named;
        if named.count > 0 {
            leaving.add(self.blobs(), self.handles(idx), named);
        }
    }

    /// Whether every subscriber that must see all has received what lies in the cell of `position`, which
    /// is the tail that the caller has read.
    ///
    /// A subscriber stores its cursor, raises `joins`, and then reads the tail; a publisher reads the
    /// tail, then `joins`, then the cursors. In the one order of all SeqCst operations, either the
    /// publisher sees the cursor, or the subscriber sees the tail, and begins again if that is too far.
    #[inline]
    fn has_room(&self, position: Position, known: &Cursors) -> bool {
        if cfg!(loom) {
            // It takes a SeqCst load for an Acquire load.
            fence(Ordering::SeqCst);
        }
        position < u64::from(self.geometry().messages)
            || known.allow(self.joins().load(Ordering::SeqCst), position)
            || self.look_at_cursors(position, known)
    }

    #[cold]
    fn look_at_cursors(&self, position: Position, known: &Cursors) -> bool {
        #[cfg(test)]
        fault::reached("look at the cursors");
        let messages = i64::from(self.geometry().messages);
        if self.member(known.slowest()).is_some_and(|member| behind(member, position) >= Some(messages)) {
            return false;
        }
        let joins = self.joins().load(Ordering::SeqCst);
        let (mut most, mut last, until) = (0, 0, known.last(joins));
        for (number, member) in self.members().take_while(|(number, _)| u64::from(*number) <= until) {
            let Some(behind) = behind(member, position) else { continue };
            if behind >= messages {
                known.slowest.set(number.into());
                return false;
            }
            (most, last) = (most.max(behind), number);
        }
        // Without a cursor no look is needed until one joins.
        let limit = if last == 0 { u64::MAX } else { position.saturating_add((messages - most) as u64) };
        known.remember(joins, limit, last);
        true
    }

    /// Makes the message of a claimed cell visible. False if others took this member for dead, and have
    /// passed its number over.
    #[inline]
    pub(crate) fn finish(&self, claimed: Claimed) -> bool {
        self.cell(claimed.idx).swap(claimed.word, claimed.word.with(State::Done))
    }

    /// Passes over the number of a claimed cell.
    #[cold]
    pub(crate) fn give_up(&self, claimed: Claimed) {
        if self.cell(claimed.idx).swap(claimed.word, claimed.word.with(State::Skipped)) {
            count(self.skipped());
            self.tell_subscribers();
        }
    }

    /// Wakes all subscribers that wait. Call this after a swap.
    #[inline]
    pub(crate) fn tell_subscribers(&self) {
        if self.geometry().observers {
            self.published().notify_unseen(Reach::Machine);
        } else {
            self.published().notify_all_swapped(Reach::Machine);
        }
    }

    /// Takes back the blobs of a message of the publisher `me`, unless a subscriber needs it. `None` if
    /// one does. False if the message has gone already.
    pub(crate) fn drop_message(&self, position: Position, me: u16, known: &Cursors) -> Option<bool> {
        let (idx, lap) = (self.geometry().cell(position), self.geometry().lap(position));
        let word = CellWord::new(lap, State::Done, me);
        if self.cell(idx).load() != word {
            return Some(false);
        }
        // In this order: see `has_room`.
        let tail = self.tail().load(Ordering::SeqCst);
        let (joins, far) = (self.joins().load(Ordering::SeqCst), (tail - position.min(tail)) as i64);
        if !known.allow(joins, position.saturating_add(self.geometry().messages.into())) {
            let needs = |(_, member): &(u16, &MemberEntry)| behind(member, tail) >= Some(far);
            if let Some((slowest, _)) = self.members().find(needs) {
                known.slowest.set(slowest.into());
                return None;
            }
        }
        let mut leaving = Leaving::default();
        self.add_leaving(idx, &mut leaving);
        let is_dropped = self.cell(idx).swap(word, word.with(State::Dropped));
        if is_dropped {
            leaving.apply();
        }
        Some(is_dropped)
    }

    /// The words that leave publishers no room now: that of a cell which is being written, and those of
    /// cursors.
    pub(crate) fn blocking(&self, kept: Option<Position>) -> Vec<u32> {
        let tail = self.tail().load(Ordering::Acquire);
        let messages = self.geometry().messages;
        let far = kept.map_or(i64::from(messages), |kept| (tail - kept.min(tail)) as i64);
        let is_far = |(_, member): &(u16, &MemberEntry)| behind(member, tail) >= Some(far);
        let cursors = self.members().filter(is_far).map(|(number, _)| messages + u32::from(number) - 1);
        [self.geometry().cell(tail)].into_iter().chain(cursors).collect()
    }

    /// The process that leaves publishers no room: the slowest subscriber, or the publisher that writes
    /// the next cell.
    pub(crate) fn blocking_process(&self, kept: Option<Position>) -> Option<u32> {
        let tail = self.tail().load(Ordering::Acquire);
        let words = self.blocking(kept);
        let member = |number: u16| self.member(number).map(|member| (number, member));
        let of_cursor = |word: &u32| member((word - self.geometry().messages) as u16 + 1);
        let slowest = words[1..].iter().filter_map(of_cursor).max_by_key(|(_, member)| behind(member, tail));
        let writing = || self.writes_at(tail).and_then(member);
        slowest.or_else(writing).map(|(_, member)| member.pid.load(Ordering::Relaxed))
    }

    /// The member that still writes the message before in the cell of this position.
    fn writes_at(&self, position: Position) -> Option<u16> {
        let word = self.cell_of(position).load();
        let is_before = word.ahead_of(self.geometry().lap(position)) < 0;
        (is_before && word.state() == State::Writing).then_some(word.member())
    }

    /// Whether publishers have room now.
    pub(crate) fn is_free(&self, kept: Option<Position>) -> bool {
        let tail = self.tail().load(Ordering::Acquire);
        self.writes_at(tail).is_none() && self.blocking(kept).len() == 1
    }
}

/// More times than publishers overtake a subscriber that begins, since each of them has to look at its cursor
/// soon, and more than they claim the cell that another one is about to claim.
pub(crate) const TURNS: u32 = 1 << 16;

/// How far the cursor of a member is behind `tail`; `None` if it has none.
fn behind(member: &MemberEntry, tail: Position) -> Option<i64> {
    let found = cursor_of(member);
    if found.is_active() && !found.is_of(epoch(member.word.load(Ordering::Acquire))) {
        // A member that was taken for dead has stored it after the number had got another holder, which
        // lives, so that nobody else would remove it. Only such cursors are removed: the epoch was read
        // after the cursor.
        swap_cursor(member, found, Cursor::NONE);
        return None;
    }
    found.is_active().then(|| found.behind(tail))
}

/// The epoch in a member word.
fn epoch(member_word: u64) -> u64 {
    member_word / EPOCH
}

/// Subscribing.
impl Shared {
    /// What is in the cell of a message.
    #[inline]
    pub(crate) fn look(&self, position: Position) -> Found {
        let word = self.cell_of(position).load();
        match (word.ahead_of(self.geometry().lap(position)), word.state()) {
            (..0, _) | (0, State::Writing) => Found::Nothing,
            (0, State::Done) => Found::Message(word),
            (0, State::Skipped) => Found::Skipped,
            (0, State::Dropped) => Found::Dropped,
            _ => Found::Overtaken,
        }
    }

    /// The oldest position that the ring may still have.
    pub(crate) fn oldest(&self) -> Position {
        self.tail().load(Ordering::Acquire).saturating_sub(self.geometry().messages.into())
    }

    /// The position of the oldest message that is still there, or that is being written.
    pub(crate) fn oldest_there(&self) -> Position {
        let tail = self.tail().load(Ordering::Acquire);
        let is_there =
            |position: &Position| matches!(self.look(*position), Found::Message(_) | Found::Nothing);
        (tail.saturating_sub(self.geometry().messages.into())..tail).find(is_there).unwrap_or(tail)
    }

    /// The newest message from `first` on.
    pub(crate) fn newest(&self, first: Position) -> Option<Position> {
        let tail = self.tail().load(Ordering::Acquire);
        let first = first.max(tail.saturating_sub(self.geometry().messages.into()));
        (first..tail).rev().find(|position| matches!(self.look(*position), Found::Message(_)))
    }

    /// Makes publishers wait for the member `me`, which has joined with this member word, from `first` on,
    /// or from the first message after that which cannot be lost any more. Returns that position and the
    /// cursor; `None` if another member has taken the number.
    pub(crate) fn see_all(
        &self,
        (me, joined): (u16, u64),
        first: Position,
        op: &'static str,
    ) -> Result<Option<(Position, Cursor)>> {
        let corrupt = Error::new(ErrorKind::Corrupt, op);
        let member = self.member(me).ok_or(corrupt)?;
        let messages = u64::from(self.geometry().messages);
        let mut position = first;
        for _ in 0..TURNS {
            let tail = self.tail().load(Ordering::SeqCst);
            position = position.max(tail.saturating_add(1).saturating_sub(messages));
            let mine = Cursor::new(position, epoch(joined));
            // The cursor first: a swap after that does not change the cursor of another holder.
            let before = cursor_of(member);
            if member.word.load(Ordering::Acquire) != joined {
                return Ok(None);
            }
            if !swap_cursor(member, before, mine) {
                continue;
            }
            // In this order: see `has_room`.
            self.joins().fetch_add(1, Ordering::SeqCst);
            fence_after_swap();
            if self.tail().load(Ordering::SeqCst) < position.saturating_add(messages) {
                return Ok(Some((position, mine)));
            }
        }
        Err(corrupt)
    }

    /// Moves the cursor of the member `me`, and wakes publishers that wait for it. False if another process
    /// has taken this member for dead.
    #[inline]
    pub(crate) fn move_cursor(&self, me: u16, from: Cursor, to: Cursor) -> bool {
        let Some(member) = self.member(me) else { return false };
        let is_moved = swap_cursor(member, from, to);
        self.room().notify_all_swapped(Reach::Machine);
        is_moved
    }

    /// Whether a cursor is still what its member has stored.
    #[inline]
    pub(crate) fn has_cursor(&self, me: u16, mine: Cursor) -> bool {
        self.member(me).is_some_and(|member| cursor(member).load(Ordering::Relaxed) == mine.to_bits())
    }

    /// The description of a message. If the cell may be overtaken, it is worth nothing unless the word is
    /// the same afterwards.
    #[inline]
    pub(crate) fn described(&self, position: Position) -> (u32, Described) {
        let idx = self.geometry().cell(position);
        (idx, self.cell(idx).described())
    }
}

impl Recover for Ring {
    type Step = Removal;

    fn words_of_members(shared: &Shared) -> u32 {
        shared.geometry().messages + shared.sizes().members
    }

    fn names(shared: &Shared, word: u32, are_gone: impl Fn(u16) -> bool) -> Option<Named<Removal>> {
        let messages = shared.geometry().messages;
        let (number, step) = if word < messages {
            let now = shared.cell(word).load();
            (now.state() == State::Writing).then_some((now.member(), Removal::Cell(now)))
        } else {
            let number = (word - messages + 1) as u16;
            let now = cursor_of(shared.member(number)?);
            now.is_active().then_some((number, Removal::Cursor(now)))
        }?;
        are_gone(number).then_some(Named { word, number, step })
    }

    fn remove(shared: &Shared, named: &Named<Removal>, done: impl FnOnce()) {
        let is_removed = match named.step {
            Removal::Cell(from) => {
                let is_skipped = shared.cell(named.word).swap(from, from.with(State::Skipped));
                if is_skipped {
                    count(shared.skipped());
                }
                is_skipped
            }
            Removal::Cursor(from) => {
                shared.member(named.number).is_some_and(|member| swap_cursor(member, from, Cursor::NONE))
            }
        };
        if is_removed {
            done();
            shared.tell_subscribers();
            shared.room().notify_all(Reach::Machine);
        }
    }

    /// A member may have died between its step and the wake-up for it.
    fn finish(shared: &Shared, _: &'static str) -> Result<bool> {
        fence(Ordering::SeqCst);
        shared.tell_subscribers();
        shared.room().notify_all(Reach::Machine);
        Ok(true)
    }

    fn finishes_later(_: super::shared::Role) -> bool {
        false
    }
}
