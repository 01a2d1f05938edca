//! Membership: a number, and the lock that proves that its holder lives. And what is done when it does not.
//!
//! Invariant: a word is read first, then the death of who it names is proved, then that very word is swapped. So a proof that has become old
//! changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::segment::{Member, Shared, count, refused};
use super::slot::{Slot, State};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{self, Hint, Ordering, Reach, Unshared};
use crate::sys::{self, Errno, memory};

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Role {
    /// Calls.
    Client = 1,
    /// Takes requests.
    Server = 2,
}

const ROLE: u64 = 0xFF;
const EPOCH: u64 = ROLE + 1;

/// The role in a member word; `None` if nobody is attached.
pub(super) fn role(word: u64) -> Option<Role> {
    match word & ROLE {
        1 => Some(Role::Client),
        2 => Some(Role::Server),
        _ => None,
    }
}

/// A place among the members of a segment, for as long as it lives. In a forked child it takes a place of its own when it is first used, and so it
/// does where others had to take it for dead.
#[derive(Debug)]
pub(super) struct Membership {
    shared: Arc<Shared>,
    role: Role,
    /// `{ fork generation: 32, number: 16 }` of `joined`.
    known: Hint,
    /// Its member word, which nobody changes but who takes it for dead.
    word: Hint,
    /// The number alone, for threads that look out on its behalf.
    latest: Arc<Hint>,
    joined: Mutex<Option<Joined>>,
}

#[derive(Debug)]
struct Joined {
    number: u16,
    word: u64,
    lock: Unshared,
}

impl Membership {
    pub(super) fn join(shared: Arc<Shared>, role: Role, op: &'static str) -> Result<Membership> {
        let (known, word, latest) = (Hint::new(0), Hint::new(0), Arc::new(Hint::new(0)));
        let membership = Membership { shared, role, known, word, latest, joined: Mutex::new(None) };
        membership.number(op)?;
        Ok(membership)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn latest(&self) -> &Arc<Hint> {
        &self.latest
    }

    /// This member's number. The first call in a forked child joins there.
    #[inline]
    pub(super) fn number(&self, op: &'static str) -> Result<u16> {
        let known = self.known.get();
        if known >> 32 == u64::from(sync::generation()) && known as u16 != 0 {
            return Ok(known as u16);
        }
        self.joined(op)
    }

    /// The same before anything is taken in its name: joins anew where others have taken the number away.
    #[inline]
    pub(super) fn present(&self, op: &'static str) -> Result<u16> {
        let number = self.number(op)?;
        if self.has_word(number, self.word.get()) { Ok(number) } else { self.joined(op) }
    }

    #[inline]
    fn has_word(&self, number: u16, word: u64) -> bool {
        // Relaxed: who finds that it lags goes on as one who looked before it was changed.
        self.shared.member(number).is_some_and(|member| member.word.load(Ordering::Relaxed) == word)
    }

    /// For the end of a slice: makes sure that this member has its lock. Where the program has closed
    /// that, it is taken again, if nobody has noticed yet; else this joins anew.
    pub(super) fn hold(&self, op: &'static str) -> Result<()> {
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
            // Not granted: it is there after all, or somebody has the number, and a word tells of that.
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

    pub(super) fn member(&self, number: u16) -> &Member {
        self.shared.member(number).expect("one's own number is in the geometry")
    }

    /// What tells this membership from any other: `{ fork generation: 32, number: 16 }`.
    pub(super) fn packed(&self, number: u16) -> u64 {
        u64::from(sync::generation()) << 32 | u64::from(number)
    }

    /// Whether it is still the membership that [`packed`](Membership::packed) told of: not in a forked child.
    pub(super) fn still_is(&self, packed: u64) -> bool {
        packed >> 32 == u64::from(sync::generation()) && self.known.get() == packed
    }

    #[cold]
    fn joined(&self, op: &'static str) -> Result<u16> {
        self.shared.check_whole(op)?;
        // Declared first, so that they are closed last: closing waits for forks as well.
        let (lock, left);
        // No fork in here, or a child could inherit a lock that nobody is left to open.
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
            // Acquire: pairs with the Release of whoever set it.
            let before = member.word.load(Ordering::Acquire);
            if role(before).is_some() {
                self.shared.recover(&mut Gone::from([(number, before)]), Proof::Lock, Deadline::NEVER, op)?;
                count(&self.shared.recoveries().dead_members);
            }
            member.pid.store(sys::process_id() as u32, Ordering::Relaxed);
            member.since.store(sys::wall_clock_ns(), Ordering::Relaxed);
            let word = (member.word.load(Ordering::Acquire) & !ROLE).wrapping_add(EPOCH) | self.role as u64;
            // Release: pairs with the Acquire of a recoverer. Nobody else changes it while the lock is held, but one who swaps the role of the dead away,
            // and that fails from now on.
            member.word.store(word, Ordering::Release);
            return Ok((number, word));
        }
        Err(Error::new(ErrorKind::WouldBlock, op))
    }
}

impl Drop for Membership {
    /// Leaves: gives back every slot, then the number. In a forked child that never used it, there is nothing to leave, nor where the number may be
    /// somebody else's.
    fn drop(&mut self) {
        let joined = self.joined.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(joined) = joined.filter(|joined| self.is_held(joined)) else { return };
        let Joined { number, lock, .. } = joined;
        // What cannot be given back here is left to whoever takes the number.
        let mut left = Gone::from([(number, 0)]);
        if self.shared.recover(&mut left, Proof::Leaving, Deadline::NEVER, "reqrep close").is_ok()
            && let Some(member) = self.shared.member(number)
        {
            // Relaxed load: nobody else changes it. Release: pairs with the Acquire of whoever joins next.
            member.word.store(member.word.load(Ordering::Relaxed) & !ROLE, Ordering::Release);
        }
        if let Some(byte) = self.shared.lock_byte(number) {
            // A child that is just being forked has a descriptor for a moment yet. If this is refused, closing does the same, then.
            let _ = lock.with(|fd| memory::unlock(fd, byte));
        }
    }
}

impl Membership {
    /// Whether the number and its lock still are this member's.
    fn is_held(&self, Joined { number, word, lock }: &Joined) -> bool {
        let Some(byte) = self.shared.lock_byte(*number) else { return false };
        // It is seen from another open file and not through its own; what the kernel refuses to say tells nothing.
        let seen = memory::is_locked(self.shared.file(), byte) != Ok(false);
        let others = lock.with(|fd| memory::is_locked(fd, byte)) == Some(Ok(true));
        lock.is_intact() && self.has_word(*number, *word) && seen && !others
    }
}

// ---------------------------------------------------------------- recovery

/// For how long those who wait for something else look for the dead at a time, and take back what
/// these held: peers that break the rules can make as many as there are numbers.
const LOOK: Duration = Duration::from_millis(10);

/// Members that are gone, and the words that named them.
type Gone = BTreeMap<u16, u64>;

/// What a search for the dead has found.
struct Survey {
    gone: Gone,
    /// Who was looked at last.
    last: u16,
    /// A server lives, or time was up before all had been asked after.
    has_server: bool,
}

/// How it is known that a member is gone.
#[derive(Clone, Copy)]
enum Proof {
    /// It says so itself.
    Leaving,
    /// Whoever asks holds the lock of that number.
    Lock,
    /// The kernel is asked, anew for each word, after that was read.
    Kernel,
}

impl Shared {
    /// Whether a member is dead or has left. The kernel knows; this process's own members have their locks on other open files than the one that asks.
    pub(super) fn is_gone(&self, number: u16, op: &'static str) -> Result<bool> {
        let Some(byte) = self.lock_byte(number) else { return Ok(true) };
        if memory::is_locked(self.file(), byte).map_err(|errno| refused(errno, op))? {
            return Ok(false);
        }
        // "Not locked" is believed of this file only: of another one it would rob the living.
        if self.is_lost() { Err(refused(Errno::BADF, op)) } else { Ok(true) }
    }

    /// Recovers the members that died without leaving, if their role `matters`; says whether a server
    /// lives, or may. For who waits for something else: it ends soon, and the next goes on from there.
    pub(super) fn recover_dead(&self, matters: impl Fn(Role) -> bool, op: &'static str) -> Result<bool> {
        let members = self.geometry().members as u16;
        let (first, limit) = (self.looked_at.get() as u16 % members, Deadline::after(LOOK));
        let round = (first..members).chain(0..first).map(|idx| idx + 1);
        let Survey { gone, last, has_server } = self.survey(round, matters, limit, op)?;
        self.recover_gone(gone, Deadline::after(LOOK), op)?;
        self.looked_at.set(u64::from(last));
        Ok(has_server)
    }

    /// Recovers all, however long it takes; says how many had died.
    pub(super) fn recover_all(&self, op: &'static str) -> Result<usize> {
        self.check_whole(op)?;
        let all = 1..=self.geometry().members as u16;
        let survey = self.survey(all, |_| true, Deadline::NEVER, op)?;
        self.recover_gone(survey.gone, Deadline::NEVER, op)
    }

    /// Who of `numbers` died without leaving.
    fn survey(
        &self,
        numbers: impl IntoIterator<Item = u16>,
        matters: impl Fn(Role) -> bool,
        limit: Deadline,
        op: &'static str,
    ) -> Result<Survey> {
        let mut survey = Survey { gone: Gone::new(), last: 0, has_server: false };
        for number in numbers {
            survey.last = number;
            let Some(member) = self.member(number) else { continue };
            // Acquire: pairs with the Release in `take_number`. Read before the proof, and the proof
            // is there before the first slot is looked at.
            let word = member.word.load(Ordering::Acquire);
            let Some(role) = role(word).filter(|role| matters(*role)) else { continue };
            if self.is_gone(number, op)? {
                survey.gone.insert(number, word);
            } else {
                survey.has_server |= role == Role::Server;
            }
            if limit.has_passed() {
                survey.has_server = true;
                break;
            }
        }
        Ok(survey)
    }

    /// Takes back all that they held, and then their roles; says how many of these it was first at.
    fn recover_gone(&self, mut gone: Gone, limit: Deadline, op: &'static str) -> Result<usize> {
        // Whoever has taken a number over meanwhile believes the role, and has the rest to do.
        if !self.recover(&mut gone, Proof::Kernel, limit, op)? {
            return Ok(0);
        }
        let mut found = 0;
        for (number, word) in gone {
            let Some(member) = self.member(number) else { continue };
            let swap = |from, to| {
                member.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            if swap(word, word & !ROLE) {
                count(&self.recoveries().dead_members);
                found += 1;
            }
        }
        Ok(found)
    }

    /// Whether a server is attached and alive.
    pub(super) fn has_server(&self, op: &'static str) -> Result<bool> {
        for (number, member) in self.members() {
            if role(member.word.load(Ordering::Acquire)) == Some(Role::Server) && !self.is_gone(number, op)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes back all that names the members `gone`, in one pass over the slots; false if time was
    /// up before. Who turned out to live is not among them any more.
    fn recover(&self, gone: &mut Gone, proof: Proof, limit: Deadline, op: &'static str) -> Result<bool> {
        /// More often than a slot can change hands while its member is gone.
        const TURNS: usize = 64;
        if gone.is_empty() {
            return Ok(true);
        }
        for (idx, slot) in self.slots() {
            for _ in 0..TURNS {
                let (client, redeliveries) = fields(slot);
                let now = slot.load();
                let names = |number: &u16| {
                    gone.contains_key(number) && now.without(*number, client, redeliveries).is_some()
                };
                let Some(number) = [now.owner(), client].into_iter().find(names) else { break };
                if !self.take_away(idx, number, proof, op)? {
                    gone.remove(&number);
                }
                if limit.has_passed() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Takes one slot away from a member that is gone; false if that member lives.
    fn take_away(&self, idx: u32, gone: u16, proof: Proof, op: &'static str) -> Result<bool> {
        let Some(slot) = self.slot(idx) else { return Ok(true) };
        let word = slot.load();
        let (client, redeliveries) = fields(slot);
        let Some(next) = word.without(gone, client, redeliveries) else { return Ok(true) };
        if matches!(proof, Proof::Kernel) && !self.is_gone(gone, op)? {
            return Ok(false);
        }
        if !slot.step(word, next) {
            return Ok(true);
        }
        if !matches!(proof, Proof::Leaving) {
            count(&self.recoveries().recovered);
        }
        match next.state() {
            Some(State::Sent) => {
                count(&self.recoveries().redelivered);
                // Full or not: its client pushes again with its next tick.
                self.enqueue(idx, op)?;
            }
            Some(State::Free) => {
                self.slot_is_free(idx);
                // It may have been the first in a full ring.
                self.cells().notify_all_swapped(Reach::Machine);
            }
            _ => self.tell_client(slot, word.has_waiter(), client),
        }
        Ok(true)
    }

    /// Pushes a sent slot and wakes a server; false if the ring is full.
    #[inline]
    pub(super) fn enqueue(&self, idx: u32, op: &'static str) -> Result<bool> {
        let is_sent = |idx| self.slot(idx).is_some_and(|slot| slot.load().state() == Some(State::Sent));
        let pushed = self.queue().push(idx, is_sent, op)?;
        if pushed {
            self.requests().notify_swapped(Reach::Machine);
        }
        Ok(pushed)
    }

    /// Tells the client of a slot that its call is done.
    pub(super) fn tell_client(&self, slot: &Slot, waiter: bool, client: u16) {
        if waiter {
            slot.wake();
        }
        if let Some(member) = self.member(client) {
            member.bell.notify_swapped(Reach::Machine);
        }
    }
}

/// Who calls, and how often the request may go to another server.
fn fields(slot: &Slot) -> (u16, u8) {
    let redeliveries = slot.redeliveries.load(Ordering::Relaxed).min(u32::from(u8::MAX));
    (slot.client.load(Ordering::Relaxed) as u16, redeliveries as u8)
}
