//! Membership: a number, and the lock that proves that its holder lives.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mapping::{EPOCH, MemberEntry, ROLE, Role, Shared, count, refused, role};
use super::recovery::{Gone, Proof};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::sync::{self, Flag, Hint, Ordering, Unshared};
use crate::sys::{self, Errno, memory};

/// A place among the members of a segment, which is left when this is dropped, whoever else refers
/// to the [`Membership`]. In a forked child it joins with a place of its own when it is first used,
/// and so it does where others had to take it for dead.
#[derive(Debug)]
pub(crate) struct Attached(Arc<Membership>);

/// What a handle and its threads know of its place.
#[derive(Debug)]
pub(crate) struct Membership {
    shared: Arc<Shared>,
    role: Role,
    /// `{ fork generation: 32, number: 16 }` of `joined`.
    known: Hint,
    /// Its member word, which only a member that takes it for dead changes.
    word: Hint,
    /// The number alone, for the watch threads.
    latest: Hint,
    /// Whether it has found the ring full when it recovered its number: requests that were sent again
    /// may have no entry.
    owes_pushes: Flag,
    /// Whether its handle is gone: a thread that checks it at the same time must not join again. Set
    /// under the lock.
    left: Flag,
    /// Locked where no process forks, or a child could inherit a lock that no thread of it can
    /// release.
    joined: Mutex<Option<Joined>>,
}

#[derive(Debug)]
struct Joined {
    number: u16,
    word: u64,
    lock: Unshared,
}

impl Attached {
    pub(crate) fn join(shared: Arc<Shared>, role: Role, op: &'static str) -> Result<Attached> {
        let [known, word, latest] = [const { Hint::new(0) }; 3];
        let (owes_pushes, left) = (Flag::new(), Flag::new());
        let joined = Mutex::new(None);
        let membership = Membership { shared, role, known, word, latest, owes_pushes, left, joined };
        // Made first: where it cannot join, there is nothing to leave.
        let attached = Attached(Arc::new(membership));
        attached.number(op)?;
        Ok(attached)
    }

    /// For what may outlive the handle: a watch thread in a forked child never gives it back.
    pub(crate) fn membership(&self) -> &Arc<Membership> {
        &self.0
    }
}

impl Deref for Attached {
    type Target = Membership;

    fn deref(&self) -> &Membership {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Membership {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// The number under which it has joined last.
    pub(crate) fn latest(&self) -> u16 {
        self.latest.get() as u16
    }

    /// This member's number. The first call in a forked child joins there.
    #[inline]
    pub(crate) fn number(&self, op: &'static str) -> Result<u16> {
        self.number_here().map_or_else(|| self.joined(op), Ok)
    }

    /// The same, if it has joined in this process.
    #[inline]
    fn number_here(&self) -> Option<u16> {
        let known = self.known.get();
        (known >> 32 == u64::from(sync::generation()) && known as u16 != 0).then_some(known as u16)
    }

    /// The same before anything is acquired in its name, or calls are found by it: joins anew where
    /// others have taken the number away.
    #[inline]
    pub(crate) fn present(&self, op: &'static str) -> Result<u16> {
        let number = self.number(op)?;
        if self.has_word(number, self.word.get()) { Ok(number) } else { self.joined(op) }
    }

    /// The same, if it has joined in this process and no other member has taken the number: before
    /// calls are found by it.
    pub(crate) fn present_here(&self) -> Option<u16> {
        self.number_here().filter(|number| self.has_word(*number, self.word.get()))
    }

    #[inline]
    fn has_word(&self, number: u16, word: u64) -> bool {
        // Relaxed: a thread that reads an old value goes on as one that read before the change.
        self.shared.member(number).is_some_and(|member| member.word.load(Ordering::Relaxed) == word)
    }

    /// For the end of a slice: makes sure that this member has its lock. Where the program has
    /// closed its descriptor, the lock is acquired again, if no other member has noticed yet;
    /// otherwise this joins anew.
    pub(crate) fn hold(&self, op: &'static str) -> Result<()> {
        self.shared.check_whole(op)?;
        let number = self.present(op)?;
        let Some(byte) = self.shared.lock_byte(number) else { return Ok(()) };
        match memory::is_locked(self.shared.file(), byte) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Errno::BADF) => {}
            Err(errno) => return Err(errno.at(op)),
        }
        let mut forks_wait = sync::no_forks();
        let mut joined = self.lock();
        let again = Unshared::open(&mut forks_wait, || self.shared.open_again())
            .map_err(|errno| refused(errno, op))?;
        let granted = again.with(|fd| memory::try_lock(fd, byte)).expect("it was opened here");
        let unneeded = match &mut *joined {
            // Not granted: the lock is there after all, or another member has the number, which the
            // word shows.
            Some(mine) if mine.number == number && granted == Ok(true) => {
                std::mem::replace(&mut mine.lock, again)
            }
            _ => again,
        };
        forks_wait.close(&unneeded);
        // Its drop waits for forks as well.
        drop((joined, forks_wait));
        drop(unneeded);
        granted.map_err(|errno| refused(errno, op))?;
        self.present(op).map(drop)
    }

    /// For every tick: pushes what recovery had no space for.
    pub(crate) fn push_what_is_owed(&self, op: &'static str) -> Result<()> {
        if self.owes_pushes.is_set() && self.shared.enqueue_again(op)? {
            self.owes_pushes.set(false);
        }
        Ok(())
    }

    pub(crate) fn member(&self, number: u16) -> &MemberEntry {
        self.shared.member(number).expect("one's own number is in the geometry")
    }

    /// Tells this membership from any other: `{ fork generation: 32, number: 16 }`.
    pub(crate) fn packed(&self, number: u16) -> u64 {
        u64::from(sync::generation()) << 32 | u64::from(number)
    }

    /// Whether it is still the membership that [`packed`](Membership::packed) returned: not in a
    /// forked child.
    pub(crate) fn still_is(&self, packed: u64) -> bool {
        packed >> 32 == u64::from(sync::generation()) && self.known.get() == packed
    }

    /// Whether its handle is gone.
    pub(crate) fn has_left(&self) -> bool {
        self.left.is_set()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Joined>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn joined(&self, op: &'static str) -> Result<u16> {
        self.shared.check_whole(op)?;
        let mut first = 1;
        loop {
            let (number, before, lock) = match self.acquire_number(first, op)? {
                JoinStep::Joined(number) => {
                    self.shared.sweep_after_joining();
                    return Ok(number);
                }
                JoinStep::Recover { number, word, lock } => (number, word, lock),
            };
            // Without the locks of the process, for it may take long: other segments and forks do
            // not wait for it.
            let mut gone = Gone::from([(number, before)]);
            let is_done = self.shared.recover(&mut gone, Proof::Lock(&lock), Deadline::NEVER, op)?;
            self.shared.blobs().sweep(&mut None, || false);
            // The ring is full. A server goes on with its ticks: it may be the only one that makes
            // space. A client may never wait again, so it leaves the role to others.
            if !is_done && self.role == Role::Client {
                first = number + 1;
            } else if let Some(number) = self.take_number(number, lock, is_done, op)? {
                return Ok(number);
            } else {
                first = 1;
            }
        }
    }

    /// Acquires the lock of a number, from `first` on. Joins under it at once where there is
    /// nothing to recover.
    fn acquire_number(&self, first: u16, op: &'static str) -> Result<JoinStep> {
        // Declared first, so that it is closed last: closing waits for forks as well.
        let (lock, left);
        let mut forks_wait = sync::no_forks();
        let mut joined = self.lock();
        if let Some(number) = self.number_in(&joined, op)? {
            return Ok(JoinStep::Joined(number));
        }
        left = joined.take();
        if let Some(Joined { lock, .. }) = &left {
            // In a child, it is closed already.
            forks_wait.close(lock);
        }
        lock = Unshared::open(&mut forks_wait, || self.shared.open_again())
            .map_err(|errno| refused(errno, op))?;
        for (number, member) in self.candidates(first) {
            let byte = self.shared.lock_byte(number).expect("the number is in the geometry");
            let granted = lock.with(|fd| memory::try_lock(fd, byte)).expect("it was opened here");
            if !granted.map_err(|errno| errno.at(op))? {
                continue;
            }
            // Acquire: pairs with the Release of the member that set it.
            let word = member.word.load(Ordering::Acquire);
            if role(word).is_some() {
                return Ok(JoinStep::Recover { number, word, lock });
            }
            self.set_role(&mut joined, number, lock);
            return Ok(JoinStep::Joined(number));
        }
        Err(Error::with_explanation(ErrorKind::WouldBlock, op, Explanation::NoPlace))
    }

    /// The members whose locks a joiner tries, in this order. The kernel looks through all locks of
    /// the file for each that is tried, so among many members only those that look free are tried
    /// before all others.
    pub(crate) fn candidates(&self, first: u16) -> impl Iterator<Item = (u16, &MemberEntry)> {
        let last_tried = first.saturating_add(TRIED_IN_ORDER);
        let members = move || self.shared.members().filter(move |(number, _)| *number >= first);
        // Relaxed: it is looked at again under the lock.
        let looks_free = |member: &MemberEntry| role(member.word.load(Ordering::Relaxed)).is_none();
        let likely = members().filter(move |(number, member)| *number < last_tried || looks_free(member));
        likely.chain(members().filter(move |(number, _)| *number >= last_tried))
    }

    /// Joins under a number whose lock is held, and whose last holder was recovered. `None` in a
    /// child that was forked meanwhile.
    fn take_number(
        &self,
        number: u16,
        lock: Unshared,
        is_recovered: bool,
        op: &'static str,
    ) -> Result<Option<u16>> {
        // Another thread may have joined meanwhile: then this lock is closed, after the guards.
        let mut lock = Some(lock);
        let _forks_wait = sync::no_forks();
        let mut joined = self.lock();
        if let Some(number) = self.number_in(&joined, op)? {
            return Ok(Some(number));
        }
        let Some(lock) = lock.take_if(|lock| lock.is_here()) else { return Ok(None) };
        self.owes_pushes.set(!is_recovered);
        self.set_role(&mut joined, number, lock);
        Ok(Some(number))
    }

    /// The number that it has; `None` if it is to join. `Stale` once its handle is gone.
    fn number_in(&self, joined: &Option<Joined>, op: &'static str) -> Result<Option<u16>> {
        if self.has_left() {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        let joined = joined
            .as_ref()
            .filter(|joined| joined.lock.is_here() && self.has_word(joined.number, joined.word));
        Ok(joined.map(|joined| joined.number))
    }

    fn set_role(&self, joined: &mut Option<Joined>, number: u16, lock: Unshared) {
        let member = self.member(number);
        member.pid.store(sys::process_id() as u32, Ordering::Relaxed);
        member.since.store(sys::wall_clock_ns(), Ordering::Relaxed);
        let word = (member.word.load(Ordering::Acquire) & !ROLE).wrapping_add(EPOCH) | self.role as u64;
        // Release: pairs with the Acquire of a recoverer. While the lock is held, only a recoverer
        // that clears the role of the dead holder before may change it, and its swap fails from now
        // on. Whoever clears the role counts the death.
        if role(member.word.swap(word, Ordering::Release)).is_some() {
            count(&self.shared.recoveries().dead_members);
        }
        *joined = Some(Joined { number, word, lock });
        self.word.set(word);
        self.known.set(self.packed(number));
        self.latest.set(u64::from(number));
    }
}

/// So many locks a joiner tries whatever the members look like: among few members it takes the
/// number of one that has died, and so recovers it.
const TRIED_IN_ORDER: u16 = 64;

/// What a member that joins has found.
enum JoinStep {
    /// It has joined.
    Joined(u16),
    /// It has the lock of a number whose last holder, which set that word, has died.
    Recover { number: u16, word: u64, lock: Unshared },
}

impl Membership {
    /// Frees every slot, then the number. A forked child that never used it has nothing to leave,
    /// and neither has a member whose number may be another's.
    fn leave(&self) {
        let joined = {
            let _forks_wait = sync::no_forks();
            let mut joined = self.lock();
            self.left.set(true);
            joined.take()
        };
        let Some(joined) = joined.filter(|joined| self.is_held(joined)) else { return };
        let Joined { number, word, lock } = joined;
        // What cannot be freed here is left to the member that takes the number next.
        let mut left = Gone::from([(number, 0)]);
        let recovered =
            self.shared.recover(&mut left, Proof::Leaving(&lock), Deadline::NEVER, "reqrep close");
        if recovered == Ok(true)
            && lock.is_here()
            && let Some(member) = self.shared.member(number)
        {
            // No other thread changes it. Release: pairs with the Acquire of the member that joins
            // next.
            let _ = member.word.compare_exchange(word, word & !ROLE, Ordering::Release, Ordering::Relaxed);
        }
        if let Some(byte) = self.shared.lock_byte(number) {
            // A child that is just being forked has a descriptor for a moment yet. If this is
            // refused, closing unlocks it, then.
            let _ = lock.with(|fd| memory::unlock(fd, byte));
        }
    }

    /// Whether the number and its lock still are this member's.
    fn is_held(&self, Joined { number, word, lock }: &Joined) -> bool {
        let Some(byte) = self.shared.lock_byte(*number) else { return false };
        // It is visible from another open file and not through its own; a refusal of the kernel
        // proves nothing.
        let seen = memory::is_locked(self.shared.file(), byte) != Ok(false);
        let others = lock.with(|fd| memory::is_locked(fd, byte)) == Some(Ok(true));
        lock.is_intact() && self.has_word(*number, *word) && seen && !others
    }
}
