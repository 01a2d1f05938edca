//! Membership: a number, and the lock that proves that its holder is alive.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mapping::{EPOCH, MemberEntry, ROLE, Shared, count, refused};
use super::recovery::{Gone, Proof, Recover};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::sync::{self, Flag, Hint, Ordering, Unshared};
use crate::sys::{self, Errno, memory};

/// A place among the members of a segment. It is left when this is dropped, even if others still
/// refer to the [`Membership`]. In a forked child it joins again on first use, with another place;
/// the same happens after others had to take this member for dead.
#[derive(Debug)]
pub(crate) struct Attached<C: Recover>(Arc<Membership<C>>);

/// The place as its handle and its threads know it.
#[derive(Debug)]
pub(crate) struct Membership<C: Recover> {
    shared: Arc<Shared<C>>,
    role: C::Role,
    /// `{ fork generation: 32, number: 16 }` of `joined`.
    known: Hint,
    /// Its member word. Only a member that takes this one for dead changes it.
    word: Hint,
    /// The number alone, for the watch threads.
    latest: Hint,
    /// Whether the recovery of its number is not [finished](Recover::finish).
    is_unfinished: Flag,
    /// Whether its handle is gone. A thread that checks the membership at the same time must not
    /// join again. Set under the lock.
    left: Flag,
    /// Locked only while no process forks, or a child could inherit a lock that no thread of it can
    /// release.
    joined: Mutex<Option<Joined>>,
}

#[derive(Debug)]
struct Joined {
    number: u16,
    word: u64,
    lock: Unshared,
}

impl<C: Recover> Attached<C> {
    pub(crate) fn join(shared: Arc<Shared<C>>, role: C::Role, op: &'static str) -> Result<Attached<C>> {
        let [known, word, latest] = [const { Hint::new(0) }; 3];
        let (is_unfinished, left) = (Flag::new(), Flag::new());
        let joined = Mutex::new(None);
        let membership = Membership { shared, role, known, word, latest, is_unfinished, left, joined };
        // Made first: if it cannot join, there is nothing to leave.
        let attached = Attached(Arc::new(membership));
        attached.number(op)?;
        Ok(attached)
    }

    /// For owners that may outlive the handle: a watch thread in a forked child is never dropped.
    pub(crate) fn membership(&self) -> &Arc<Membership<C>> {
        &self.0
    }
}

impl<C: Recover> Deref for Attached<C> {
    type Target = Membership<C>;

    fn deref(&self) -> &Membership<C> {
        &self.0
    }
}

impl<C: Recover> Drop for Attached<C> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<C: Recover> Membership<C> {
    pub(crate) fn shared(&self) -> &Arc<Shared<C>> {
        &self.shared
    }

    pub(crate) fn role(&self) -> C::Role {
        self.role
    }

    /// The number under which it last joined.
    pub(crate) fn latest(&self) -> u16 {
        self.latest.get() as u16
    }

    /// Its member word when it last joined.
    pub(crate) fn word(&self) -> u64 {
        self.word.get()
    }

    /// This member's number. The first call in a forked child joins.
    #[inline]
    pub(crate) fn number(&self, op: &'static str) -> Result<u16> {
        self.number_here().map_or_else(|| self.joined(op), Ok)
    }

    /// This member's number, if it has joined in this process.
    #[inline]
    fn number_here(&self) -> Option<u16> {
        let known = self.known.get();
        (known >> 32 == u64::from(sync::generation()) && known as u16 != 0).then_some(known as u16)
    }

    /// The number, for use before anything is taken in its name or found by it: joins again if another
    /// member has taken the number.
    #[inline]
    pub(crate) fn present(&self, op: &'static str) -> Result<u16> {
        let number = self.number(op)?;
        if self.has_word(number, self.word.get()) { Ok(number) } else { self.joined(op) }
    }

    /// The number, if it has joined in this process and no other member has taken the number: for
    /// use before anything is found by it.
    pub(crate) fn present_here(&self) -> Option<u16> {
        self.number_here().filter(|number| self.has_word(*number, self.word.get()))
    }

    #[inline]
    fn has_word(&self, number: u16, word: u64) -> bool {
        // Relaxed: a thread that reads an old value acts as one that read before the change.
        self.shared.member(number).is_some_and(|member| member.word.load(Ordering::Relaxed) == word)
    }

    /// At the end of a slice: makes sure that this member has its lock. If the program has closed
    /// the lock's descriptor, the lock is acquired again, unless another member has noticed; then
    /// this member joins again.
    pub(crate) fn hold(&self, op: &'static str) -> Result<()> {
        // Forks wait while it opens the file, so it cannot close there what this process keeps.
        sys::with_descriptors(|| self.try_to_hold(op))
    }

    fn try_to_hold(&self, op: &'static str) -> Result<()> {
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
            .map_err(|errno| refused::<C>(errno, op))?;
        let granted = again.with(|fd| memory::try_lock(fd, byte)).expect("it was opened here");
        let unneeded = match &mut *joined {
            // Not granted: the lock is still there, or another member has the number, which the
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
        granted.map_err(|errno| refused::<C>(errno, op))?;
        self.present(op).map(drop)
    }

    /// At every tick: does what recovery had to leave.
    pub(crate) fn finish_recovery(&self, op: &'static str) -> Result<()> {
        if self.is_unfinished.is_set() && C::finish(&self.shared, op)? {
            self.is_unfinished.set(false);
        }
        Ok(())
    }

    pub(crate) fn member(&self, number: u16) -> &MemberEntry {
        self.shared.member(number).expect("one's own number is in the geometry")
    }

    /// Identifies this membership: `{ fork generation: 32, number: 16 }`.
    pub(crate) fn packed(&self, number: u16) -> u64 {
        u64::from(sync::generation()) << 32 | u64::from(number)
    }

    /// Whether it still is the membership that [`packed`](Membership::packed) returned, which it is
    /// not in a forked child.
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
            // As in `hold`.
            let (number, before, lock) = match sys::with_descriptors(|| self.acquire_number(first, op))? {
                JoinStep::Joined(number) => {
                    // Of processes whose deaths are not noticed, because they were not members or had left
                    // before. For a short time only: the next sweep finds the rest.
                    self.shared.blobs().sweep_some();
                    return Ok(number);
                }
                JoinStep::Recover { number, word, lock } => (number, word, lock),
            };
            // Without the locks of the process, because it may take long: other segments and forks
            // must not wait for it.
            let mut gone = Gone::from([(number, before)]);
            let is_done = self.shared.recover(&mut gone, Proof::Lock(&lock), Deadline::NEVER, op)?;
            self.shared.blobs().sweep(&mut None, || false);
            // A member that has no ticks to finish it with leaves the role to others.
            if !is_done && !C::finishes_later(self.role) {
                first = number + 1;
            } else if let Some(number) = self.take_number(number, lock, is_done, op)? {
                return Ok(number);
            } else {
                first = 1;
            }
        }
    }

    /// Acquires the lock of a number, trying `first` first. Joins under it at once if there is
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
            .map_err(|errno| refused::<C>(errno, op))?;
        for (number, member) in self.candidates(first) {
            let byte = self.shared.lock_byte(number).expect("the number is in the geometry");
            let granted = lock.with(|fd| memory::try_lock(fd, byte)).expect("it was opened here");
            if !granted.map_err(|errno| errno.at(op))? {
                continue;
            }
            // Acquire: pairs with the Release of the member that set it.
            let word = member.word.load(Ordering::Acquire);
            if Shared::<C>::role(word).is_some() {
                return Ok(JoinStep::Recover { number, word, lock });
            }
            self.set_role(&mut joined, number, lock);
            return Ok(JoinStep::Joined(number));
        }
        Err(Error::with_explanation(ErrorKind::WouldBlock, op, Explanation::NoPlace))
    }

    /// The members whose locks a joining process tries, in this order. For each try, the kernel
    /// searches all locks of the file, so among many members those that look free are tried first.
    pub(crate) fn candidates(&self, first: u16) -> impl Iterator<Item = (u16, &MemberEntry)> {
        let last_tried = first.saturating_add(TRIED_IN_ORDER);
        let members = move || self.shared.members().filter(move |(number, _)| *number >= first);
        // Relaxed: it is read again under the lock.
        let looks_free =
            |member: &MemberEntry| Shared::<C>::role(member.word.load(Ordering::Relaxed)).is_none();
        let likely = members().filter(move |(number, member)| *number < last_tried || looks_free(member));
        likely.chain(members().filter(move |(number, _)| *number >= last_tried))
    }

    /// Joins under a number whose lock is held and whose last holder was recovered. `None` in a
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
        self.is_unfinished.set(!is_recovered);
        self.set_role(&mut joined, number, lock);
        Ok(Some(number))
    }

    /// The number that it has; `None` if it must join. `Stale` once its handle is gone.
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
        let word =
            (member.word.load(Ordering::Acquire) & !ROLE).wrapping_add(EPOCH) | Into::<u64>::into(self.role);
        // Release: pairs with the Acquire of a recovering process. While the lock is held, only a
        // process that is clearing the role of the dead holder may change the word, and its swap
        // fails from now on. The process that clears the role counts the death.
        if Shared::<C>::role(member.word.swap(word, Ordering::Release)).is_some() {
            count(&self.shared.recoveries().dead_members);
        }
        *joined = Some(Joined { number, word, lock });
        self.word.set(word);
        self.known.set(self.packed(number));
        self.latest.set(u64::from(number));
    }
}

/// A joining process always tries this many locks first, whatever the members look like. So among
/// few members it takes the number of a dead one, and recovers that member.
const TRIED_IN_ORDER: u16 = 64;

/// The result of a step of joining.
enum JoinStep {
    /// It has joined.
    Joined(u16),
    /// It has the lock of a number whose last holder, which set that word, has died.
    Recover { number: u16, word: u64, lock: Unshared },
}

impl<C: Recover> Membership<C> {
    /// Frees every word, then the number. A forked child that never used the handle has nothing to
    /// leave, and neither has a member whose number may belong to another.
    fn leave(&self) {
        let joined = {
            let _forks_wait = sync::no_forks();
            let mut joined = self.lock();
            self.left.set(true);
            joined.take()
        };
        let Some(joined) = joined.filter(|joined| self.is_held(joined)) else { return };
        let Joined { number, word, lock } = joined;
        // Words that cannot be freed here are left to the next member that takes the number.
        let mut left = Gone::from([(number, 0)]);
        let recovered =
            self.shared.recover(&mut left, Proof::Leaving(&lock), Deadline::NEVER, "leave a segment");
        if recovered == Ok(true)
            && lock.is_here()
            && let Some(member) = self.shared.member(number)
        {
            // No other thread changes it. Release: pairs with the Acquire of the member that joins
            // next.
            let _ = member.word.compare_exchange(word, word & !ROLE, Ordering::Release, Ordering::Relaxed);
        }
        if let Some(byte) = self.shared.lock_byte(number) {
            // A child that is just being forked still has the descriptor for a moment, so unlock
            // explicitly. If that fails, closing unlocks it later.
            let _ = lock.with(|fd| memory::unlock(fd, byte));
        }
    }

    /// Whether the number and its lock still belong to this member.
    fn is_held(&self, Joined { number, word, lock }: &Joined) -> bool {
        let Some(byte) = self.shared.lock_byte(*number) else { return false };
        // A lock is visible from another open file, not through its own. An error of the kernel
        // proves nothing.
        let seen = memory::is_locked(self.shared.file(), byte) != Ok(false);
        let others = lock.with(|fd| memory::is_locked(fd, byte)) == Some(Ok(true));
        lock.is_intact() && self.has_word(*number, *word) && seen && !others
    }
}
