//! Membership: a number, and the lock that proves that its holder lives.

use std::sync::{Arc, Mutex, PoisonError};

use super::mapping::{EPOCH, Member, ROLE, Role, Shared, count, refused, role};
use super::recovery::{Gone, Proof};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{self, Hint, Ordering, Unshared};
use crate::sys::{self, Errno, memory};

/// A place among the members of a segment, for as long as it lives. In a forked child it joins with
/// a place of its own when it is first used, and so it does where others had to take it for dead.
#[derive(Debug)]
pub(crate) struct Membership {
    shared: Arc<Shared>,
    role: Role,
    /// `{ fork generation: 32, number: 16 }` of `joined`.
    known: Hint,
    /// Its member word, which only a member that takes it for dead changes.
    word: Hint,
    /// The number alone, for the watch threads.
    latest: Arc<Hint>,
    /// 1 if it has found the ring full when it recovered its number: requests that were sent again
    /// may have no entry.
    owes_pushes: Hint,
    joined: Mutex<Option<Joined>>,
}

#[derive(Debug)]
struct Joined {
    number: u16,
    word: u64,
    lock: Unshared,
}

impl Membership {
    pub(crate) fn join(shared: Arc<Shared>, role: Role, op: &'static str) -> Result<Membership> {
        let (known, word, latest) = (Hint::new(0), Hint::new(0), Arc::new(Hint::new(0)));
        let (owes_pushes, joined) = (Hint::new(0), Mutex::new(None));
        let membership = Membership { shared, role, known, word, latest, owes_pushes, joined };
        membership.number(op)?;
        Ok(membership)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn latest(&self) -> &Arc<Hint> {
        &self.latest
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
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
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
        if self.owes_pushes.get() != 0 && self.shared.enqueue_again(op)? {
            self.owes_pushes.set(0);
        }
        Ok(())
    }

    pub(crate) fn member(&self, number: u16) -> &Member {
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

    #[cold]
    fn joined(&self, op: &'static str) -> Result<u16> {
        self.shared.check_whole(op)?;
        // Declared first, so that they are closed last: closing waits for forks as well.
        let (lock, left);
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let mut forks_wait = sync::no_forks();
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Joined { number, word, lock }) = &*joined
            && lock.is_here()
            && self.has_word(*number, *word)
        {
            return Ok(*number);
        }
        left = joined.take();
        if let Some(Joined { lock, .. }) = &left {
            // In a child, it is closed already.
            forks_wait.close(lock);
        }
        lock = Unshared::open(&mut forks_wait, || self.shared.open_again())
            .map_err(|errno| refused(errno, op))?;
        let (number, word) = self.take_number(&lock, op)?;
        *joined = Some(Joined { number, word, lock });
        self.word.set(word);
        self.known.set(self.packed(number));
        self.latest.set(u64::from(number));
        Ok(number)
    }

    fn take_number(&self, lock: &Unshared, op: &'static str) -> Result<(u16, u64)> {
        for (number, member) in self.shared.members() {
            let byte = self.shared.lock_byte(number).expect("the number is in the geometry");
            let granted = lock.with(|fd| memory::try_lock(fd, byte)).expect("it was opened here");
            if !granted.map_err(|errno| errno.at(op))? {
                continue;
            }
            // Acquire: pairs with the Release of the member that set it.
            let before = member.word.load(Ordering::Acquire);
            if role(before).is_some() {
                let mut gone = Gone::from([(number, before)]);
                let is_done = self.shared.recover(&mut gone, Proof::Lock, Deadline::NEVER, op)?;
                // The ring is full. A server goes on with its ticks: it may be the only one that
                // makes space. A client may never wait again, so it leaves the role to others.
                if !is_done && self.role == Role::Client {
                    let unlocked = lock.with(|fd| memory::unlock(fd, byte)).expect("it was opened here");
                    unlocked.map_err(|errno| errno.at(op))?;
                    continue;
                }
                self.owes_pushes.set(u64::from(!is_done));
            }
            member.pid.store(sys::process_id() as u32, Ordering::Relaxed);
            member.since.store(sys::wall_clock_ns(), Ordering::Relaxed);
            let word = (member.word.load(Ordering::Acquire) & !ROLE).wrapping_add(EPOCH) | self.role as u64;
            // Release: pairs with the Acquire of a recoverer. While the lock is held, only a
            // recoverer that clears the role of the dead holder before may change it, and its swap
            // fails from now on. Whoever clears the role counts the death.
            if role(member.word.swap(word, Ordering::Release)).is_some() {
                count(&self.shared.recoveries().dead_members);
            }
            return Ok((number, word));
        }
        Err(Error::new(ErrorKind::WouldBlock, op))
    }
}

impl Drop for Membership {
    /// Leaves: frees every slot, then the number. A forked child that never used it has nothing to
    /// leave, and neither has a member whose number may be another's.
    fn drop(&mut self) {
        let joined = self.joined.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(joined) = joined.filter(|joined| self.is_held(joined)) else { return };
        let Joined { number, lock, .. } = joined;
        // What cannot be freed here is left to the member that takes the number next.
        let mut left = Gone::from([(number, 0)]);
        let recovered = self.shared.recover(&mut left, Proof::Leaving, Deadline::NEVER, "reqrep close");
        if recovered == Ok(true)
            && let Some(member) = self.shared.member(number)
        {
            // Relaxed load: no other thread changes it. Release: pairs with the Acquire of the
            // member that joins next.
            member.word.store(member.word.load(Ordering::Relaxed) & !ROLE, Ordering::Release);
        }
        if let Some(byte) = self.shared.lock_byte(number) {
            // A child that is just being forked has a descriptor for a moment yet. If this is
            // refused, closing unlocks it, then.
            let _ = lock.with(|fd| memory::unlock(fd, byte));
        }
    }
}

impl Membership {
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
