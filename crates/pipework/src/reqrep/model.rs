//! Tests every interleaving of accesses to shared memory under loom: ring, slot and event, with the
//! memory orders that the code asks for. `make model` runs it. Threads stand for processes, and a
//! thread that stops stands for a process that was killed there. Payloads are relaxed atomics, so a
//! thread that reads one without permission finds an old value or one of another call. Loom itself
//! finds a thread that sleeps for ever. `tests/model` searches deaths at every step, and their
//! effects, on a separate model.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use loom::sync::Mutex;
use loom::thread;

use super::queue::{Claim, Entry, Queue};
use super::slot::{Caller, Holding, Mark, Slot, SlotWord, State, none_leave};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Wait};
use crate::segment::naming::NamedBlobs;
use crate::spin::{Looks, Spin};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Reach, search};

mod parts;

const OP: &str = "model";
const CLIENT: u16 = 1;
const SERVER: u16 = 2;
/// The states in which a client waits.
const WAITS: [State; 2] = [State::Sent, State::Taken];

/// The parts of a segment that its slots and its ring need.
struct ModelSegment {
    slots: [Slot; 2],
    payloads: [ModelPayload; 2],
    cells: Vec<AtomicU64>,
    head: AtomicU64,
    tail: AtomicU64,
    requests: Event,
    /// Whether the kernel holds the lock of member [`SERVER`].
    lock: Mutex<bool>,
}

struct ModelPayload {
    request: AtomicU32,
    reply: AtomicU32,
}

/// A request that a server has taken.
struct ModelRequest {
    idx: u32,
    word: SlotWord,
    request: u32,
}

impl ModelSegment {
    fn new(cells: usize) -> Arc<ModelSegment> {
        let payload = || ModelPayload { request: AtomicU32::new(0), reply: AtomicU32::new(0) };
        Arc::new(ModelSegment {
            slots: [Slot::new(), Slot::new()],
            payloads: [payload(), payload()],
            cells: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            requests: Event::new(),
            lock: Mutex::new(false),
        })
    }

    fn queue(&self) -> Queue<'_> {
        Queue { cells: &self.cells, head: &self.head, tail: &self.tail }
    }

    fn slot(&self, idx: u32) -> &Slot {
        &self.slots[idx as usize]
    }

    fn push(&self, idx: u32, sent: SlotWord) -> bool {
        let entry = Entry::of(idx, sent);
        let is_needed = |other: Entry| {
            let word = self.slot(other.slot()).load();
            other != entry && word.state() == Some(State::Sent) && other.is_of(word)
        };
        let pushed = self.queue().push(entry, is_needed, OP).expect("the ring is well formed");
        if pushed {
            self.requests.notify_swapped(Reach::Machine);
        }
        pushed
    }

    /// Sends a request; returns its word, and whether it is in the ring. `None` if the slot is in
    /// use.
    fn send(&self, idx: u32, request: u32, redeliveries: u8) -> Option<(SlotWord, bool)> {
        let slot = self.slot(idx);
        let filled = slot.acquire(CLIENT)?;
        slot.set_caller(Caller {
            client: CLIENT,
            redeliveries,
            takes_parts: true,
            has_ticket: false,
            named: NamedBlobs::default(),
        });
        self.payloads[idx as usize].request.store(request, Ordering::Relaxed);
        let sent = slot.send(filled).expect("the slot is the client's");
        Some((sent, self.push(idx, sent)))
    }

    fn take(&self) -> Option<ModelRequest> {
        let claim = |entry: Entry| {
            let idx = entry.slot();
            Claim::from(self.slot(idx).claim(entry, SERVER).map(|word| (idx, word)))
        };
        let (idx, word) = self.queue().pop(claim, OP).expect("the ring is well formed").claimed?;
        Some(ModelRequest { idx, word, request: self.payloads[idx as usize].request.load(Ordering::Relaxed) })
    }

    /// A server that is killed as soon as it has claimed a request.
    fn take_and_die(&self) -> Option<u32> {
        let mut claimed = None;
        let claim = |entry: Entry| {
            if self.slot(entry.slot()).claim(entry, SERVER).is_none() {
                return Claim::Stale;
            }
            claimed = Some(entry.slot());
            resume_unwind(Box::new(()))
        };
        let died = catch_unwind(AssertUnwindSafe(|| self.queue().pop::<()>(claim, OP).map(drop)));
        assert_eq!(died.is_err(), claimed.is_some());
        claimed
    }

    /// Answers with the request's bytes; returns true if the client gets the reply.
    fn echo(&self, taken: &ModelRequest) -> bool {
        self.payloads[taken.idx as usize].reply.store(taken.request, Ordering::Relaxed);
        let left = self.slot(taken.idx).finish(taken.word, State::Answered, &none_leave);
        let left = left.expect("it is this server's");
        if left.has_waiter() {
            self.slot(taken.idx).wake();
        }
        left.state() == Some(State::Answered)
    }

    /// The reply of a call, which then has ended; `None` if there is no reply yet.
    fn look(&self, idx: u32, generation: u64) -> Option<u32> {
        let now = self.slot(idx).load();
        assert_eq!(now.generation(), generation, "the slot is its client's until that frees it");
        if now.state() != Some(State::Answered) {
            return None;
        }
        let reply = self.payloads[idx as usize].reply.load(Ordering::Relaxed);
        assert!(self.slot(idx).step(now, now.freed()), "a reply stays until it is received");
        Some(reply)
    }

    /// Recovers slot 0 from a member while the kernel reports the member as dead; pushes a request
    /// that is sent again.
    fn recover(&self, member: u16, is_dead: impl Fn() -> bool) {
        let slot = self.slot(0);
        loop {
            let word = slot.load();
            let Some(next) = word.without(member, slot.fields()) else { return };
            if !is_dead() {
                return;
            }
            if !slot.step(word, next) {
                continue;
            }
            match next.state() {
                Some(State::Sent) => drop(self.push(0, next)),
                _ if word.has_waiter() => slot.wake(),
                _ => {}
            }
        }
    }
}

/// A wait that parks at once, because loom tries repeated looks by itself.
fn sleepily<T>(wait: impl FnOnce(&Wait<'_>) -> T) -> T {
    let spin = Spin::new(Duration::ZERO, Looks::Load);
    wait(&Wait {
        deadline: Deadline::NEVER,
        spin: &spin,
        reach: Reach::Process,
        tick: None,
        long: None,
        op: OP,
    })
}

// ---------------------------------------------------------------- ring and slot

#[test]
fn call_is_answered_wherever_either_side_sleeps() {
    search(|| {
        let segment = ModelSegment::new(4);
        let server = Arc::clone(&segment);
        let server = thread::spawn(move || {
            let look = || Ok(server.take());
            let taken = sleepily(|wait| server.requests.wait(wait, look, || Ok(()))).expect("no deadline");
            assert!(server.echo(&taken));
        });
        let (sent, queued) = segment.send(0, 7, 0).expect("it is free");
        assert!(queued);
        let look = || Ok(segment.look(0, sent.generation()));
        let reply = sleepily(|wait| segment.slot(0).wait(sent.generation(), &WAITS, wait, look, || Ok(())));
        assert_eq!(reply, Ok(7));
        server.join().expect("it does not panic");
    });
}

#[test]
fn request_is_taken_once_while_two_servers_push_and_pop() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (first, second) = (Arc::clone(&segment), Arc::clone(&segment));
        segment.send(0, 7, 0).expect("it is free");
        let first = thread::spawn(move || first.take().map(|taken| (taken.idx, taken.request)));
        let second = thread::spawn(move || {
            let (_, queued) = second.send(1, 8, 0).expect("it is free");
            assert!(queued, "a ring with as many cells as slots has space");
            second.take().map(|taken| (taken.idx, taken.request))
        });
        let taken = [first.join(), second.join()].map(|taken| taken.expect("it does not panic"));
        let rest = std::iter::from_fn(|| segment.take()).map(|taken| (taken.idx, taken.request));
        let mut all: Vec<_> = taken.into_iter().flatten().chain(rest).collect();
        all.sort_unstable();
        assert_eq!(all, [(0, 7), (1, 8)]);
    });
}

#[test]
fn server_that_dies_before_unlinking_blocks_no_later_request() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (victim, client) = (Arc::clone(&segment), Arc::clone(&segment));
        segment.send(0, 7, 0).expect("it is free");
        let victim = thread::spawn(move || victim.take_and_die());
        let client = thread::spawn(move || assert!(client.send(1, 8, 0).expect("it is free").1));
        let taken = segment.take().map(|taken| taken.idx);
        let lost = victim.join().expect("it does not panic");
        client.join().expect("it does not panic");
        let rest = std::iter::from_fn(|| segment.take()).map(|taken| taken.idx);
        let mut all: Vec<_> = taken.into_iter().chain(lost).chain(rest).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
    });
}

#[test]
fn full_ring_removes_only_entries_of_ended_calls() {
    search(|| {
        let segment = ModelSegment::new(2);
        for _ in 0..2 {
            let (sent, _) = segment.send(0, 6, 0).expect("it is free");
            segment.slot(0).cancel(sent.generation(), CLIENT, &none_leave).expect("no server has it");
        }
        let (one, other) = (Arc::clone(&segment), Arc::clone(&segment));
        let one = thread::spawn(move || one.send(0, 7, 0).expect("it is free").1);
        let other = thread::spawn(move || other.send(1, 8, 0).expect("it is free").1);
        let taken = segment.take().map(|taken| (taken.idx, taken.request));
        for (idx, queued) in [one.join(), other.join()].into_iter().enumerate() {
            if !queued.expect("it does not panic") {
                // The ring is full for the moment, so its client tries again.
                let idx = idx as u32;
                segment.push(idx, segment.slot(idx).load());
            }
        }
        let rest = std::iter::from_fn(|| segment.take()).map(|taken| (taken.idx, taken.request));
        let mut all: Vec<_> = taken.into_iter().chain(rest).collect();
        all.sort_unstable();
        assert_eq!(all, [(0, 7), (1, 8)]);
    });
}

#[test]
fn full_ring_keeps_waiting_requests() {
    search(|| {
        let segment = ModelSegment::new(2);
        segment.send(0, 7, 0).expect("it is free");
        let (sent, _) = segment.send(1, 6, 0).expect("it is free");
        segment.slot(1).cancel(sent.generation(), CLIENT, &none_leave).expect("no server has it");
        let client = Arc::clone(&segment);
        let client = thread::spawn(move || client.send(1, 8, 0).expect("it is free").1);
        let taken = segment.take().map(|taken| (taken.idx, taken.request));
        if !client.join().expect("it does not panic") {
            segment.push(1, segment.slot(1).load());
        }
        let rest = std::iter::from_fn(|| segment.take()).map(|taken| (taken.idx, taken.request));
        assert!(taken.into_iter().chain(rest).eq([(0, 7), (1, 8)]));
    });
}

#[test]
fn reply_to_a_cancelled_call_reaches_no_later_call() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (sent, _) = segment.send(0, 7, 0).expect("it is free");
        let server = Arc::clone(&segment);
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let Some(taken) = server.take() else { continue };
                assert!(matches!(taken.request, 7 | 8));
                server.echo(&taken);
            }
        });
        if segment.slot(0).cancel(sent.generation(), CLIENT, &none_leave).is_none() {
            assert_eq!(segment.look(0, sent.generation()), Some(7));
        }
        let second = segment.send(0, 8, 0);
        server.join().expect("it does not panic");
        if let Some((sent, _)) = second {
            segment.take().inspect(|taken| assert!(segment.echo(taken)));
            assert_eq!(segment.look(0, sent.generation()), Some(8));
        }
    });
}

// ---------------------------------------------------------------- recovery

#[test]
fn new_holder_of_a_dead_servers_number_keeps_its_own_request() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (sent, _) = segment.send(0, 7, 1).expect("it is free");
        assert_eq!(segment.take_and_die(), Some(0));
        let recoverer = Arc::clone(&segment);
        let recoverer = thread::spawn(move || recoverer.recover(SERVER, || !*recoverer.lock.lock().unwrap()));
        *segment.lock.lock().unwrap() = true;
        segment.recover(SERVER, || true);
        // The other recovering process may have sent it again without having pushed it yet.
        let mut answered = segment.take().map(|taken| segment.echo(&taken));
        recoverer.join().expect("it does not panic");
        answered = answered.or_else(|| segment.take().map(|taken| segment.echo(&taken)));
        assert_eq!((answered, segment.look(0, sent.generation())), (Some(true), Some(7)));
    });
}

#[test]
fn call_is_cancelled_once_while_its_dead_server_is_recovered() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (sent, _) = segment.send(0, 7, 1).expect("it is free");
        assert_eq!(segment.take_and_die(), Some(0));
        let [one, other] = [(); 2].map(|()| {
            let segment = Arc::clone(&segment);
            thread::spawn(move || segment.recover(SERVER, || true))
        });
        let left = segment.slot(0).cancel(sent.generation(), CLIENT, &none_leave).expect("there is no reply");
        [one, other].into_iter().for_each(|recoverer| recoverer.join().expect("it does not panic"));
        // A call that was dropped after both had looked is left to the next recovery.
        segment.recover(SERVER, || true);
        assert_eq!(segment.slot(0).load(), left.freed());
        assert!(segment.take().is_none() && segment.send(0, 8, 0).is_some());
    });
}

// ---------------------------------------------------------------- event

/// Takes one thing, if there is one.
fn take_one(things: &AtomicU32) -> Option<u32> {
    things.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |things| things.checked_sub(1)).ok()
}

#[test]
fn two_waiters_get_two_things() {
    search(|| {
        let shared = Arc::new((Event::new(), AtomicU32::new(0)));
        let waiters = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let look = || Ok(take_one(&shared.1));
                sleepily(|wait| shared.0.wait(wait, look, || Ok(()))).expect("no deadline");
            })
        });
        for _ in 0..2 {
            shared.1.fetch_add(1, Ordering::Relaxed);
            shared.0.notify(Reach::Process);
        }
        waiters.into_iter().for_each(|waiter| waiter.join().expect("it does not panic"));
    });
}

#[test]
fn mark_without_a_sleeper_loses_no_wake_up() {
    search(|| {
        let shared = Arc::new((Event::new(), AtomicU32::new(0)));
        // Killed, or served by its last look: it has announced itself and not parked.
        let mut looks = 0;
        let stop = || {
            looks += 1;
            if looks == 2 { Err(Error::new(ErrorKind::PeerDied, OP)) } else { Ok(None::<()>) }
        };
        assert!(sleepily(|wait| shared.0.wait(wait, stop, || Ok(()))).is_err());
        let waiters = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let look = || Ok(take_one(&shared.1));
                sleepily(|wait| shared.0.wait(wait, look, || Ok(()))).expect("no deadline");
            })
        });
        shared.0.notify(Reach::Process);
        shared.1.fetch_add(2, Ordering::Relaxed);
        shared.0.notify_all(Reach::Process);
        waiters.into_iter().for_each(|waiter| waiter.join().expect("it does not panic"));
    });
}
