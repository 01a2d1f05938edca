//! How those hear of something who do not wait in a thread of theirs: descriptors for event loops, wakers for tasks.
//!
//! Only threads wait for a futex, and before Linux 5.16 each for one word. So a handle that is asked for a descriptor or a future gets a thread of its own,
//! which parks where the handle would, tells those who want to be told, and rests until somebody wants to be told again.
//!
//! Invariant: who wants to be told puts that down first and then looks once more; the thread announces itself in the event first and then reads what
//! was put down. Whoever changes something looks at the event after the change. With a full fence in each of the three, nothing is missed.

use std::collections::HashMap;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::client::Ticket;
use super::liveness::Liveness;
use super::segment::{Shared, refused};
use super::slot::State;
use super::waiters::Waiters;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Wait};
use crate::spin::{Looks, Spin};
use crate::sync::{self, Ordering, Reach, Unshared};
use crate::sys;
use crate::sys::Errno;
use crate::sys::memory::KnownFile;

/// What a watcher waits for, and so where its thread parks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// A request that waits for a server.
    Requests,
    /// Space for one more call.
    Space,
    /// The ends of calls.
    Replies,
}

/// A call whose end is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) ticket: Ticket,
    needs_server: bool,
    /// The descriptor has been rung since this was done.
    is_told: bool,
}

impl Call {
    pub(super) fn new(ticket: Ticket, needs_server: bool) -> Call {
        Call { ticket, needs_server, is_told: false }
    }
}

/// How a call stands, as somebody who waits for it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// There is something to receive.
    Done,
    /// Somebody has received it, or given it up.
    Over,
}

/// What a handle and its thread share.
#[derive(Debug)]
pub(super) struct WatcherState {
    shared: Arc<Shared>,
    liveness: Arc<Liveness>,
    /// Whom it represents, where it waits for space. Never asked under the lock of `interests`: forks wait for both.
    waiters: Option<Arc<Waiters>>,
    topic: Topic,
    generation: u32,
    /// Off: this is for those who can wait.
    spin: Spin,
    /// Where the thread parks while nobody wants to be told.
    rest: Event,
    /// What makes the descriptors readable that were given out, once one was.
    eventfd: OnceLock<Unshared>,
    interests: Mutex<Interests>,
}

/// Who wants to be told.
#[derive(Debug, Default)]
struct Interests {
    /// The eventfd is unreadable, and is to be rung.
    armed: bool,
    /// The calls that it is rung for, by slot. Each stays until it was received.
    calls: HashMap<u32, Call, foldhash::fast::RandomState>,
    /// Those that wait, by the number of their [`Registration`]. Each stays until it was woken.
    tasks: HashMap<u64, Task, foldhash::fast::RandomState>,
    /// The highest number so far.
    last: u64,
    /// Somebody behind the descriptor needs a server, besides space.
    needs_server: bool,
    /// It was rung since there is none.
    is_told_of_no_server: bool,
    /// The handle is gone.
    stop: bool,
    /// The thread is running strangers' code.
    is_waking: bool,
}

#[derive(Debug)]
struct Task {
    /// What it waits for, where that is a call.
    call: Option<Call>,
    waker: Waker,
}

/// Who is to be told, as a look has found.
#[derive(Debug, Default)]
struct Ready {
    /// Those behind the eventfd, who know already.
    descriptor: bool,
    /// So many who wait for a slot.
    from_line: usize,
    tasks: Vec<Waker>,
}

const WATCH: &str = "reqrep watch";

/// An event wakes one who waits. If that was a watch, and those it told have not come to look within this time, others are woken.
const PATIENCE: Duration = Duration::from_millis(1);

// ---------------------------------------------------------------- interests

impl WatcherState {
    pub(super) fn new(
        shared: Arc<Shared>,
        liveness: Arc<Liveness>,
        waiters: Option<Arc<Waiters>>,
        topic: Topic,
    ) -> WatcherState {
        WatcherState {
            shared,
            liveness,
            waiters,
            topic,
            generation: sync::generation(),
            spin: Spin::new(Duration::ZERO, Looks::Load),
            rest: Event::new(),
            eventfd: OnceLock::new(),
            interests: Mutex::default(),
        }
    }

    /// False in a forked child, where nothing of it may be touched.
    pub(super) fn is_here(&self) -> bool {
        self.generation == sync::generation()
    }

    /// A descriptor that is readable while there is something, as far as anybody has looked.
    pub(super) fn descriptor(&self, op: &'static str) -> Result<OwnedFd> {
        {
            let mut forks_wait = sync::no_forks();
            let mut interests = self.interests();
            if self.eventfd.get().is_none() {
                let made = Unshared::open(&mut forks_wait, || sys::eventfd().and_then(KnownFile::of))
                    .map_err(|errno| errno.at(op))?;
                self.eventfd.set(made).expect("it was just looked for, under the lock");
                interests.armed = true;
            }
        }
        self.look_once_more();
        if !self.is_here() {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        let copy = self.with_eventfd(sys::duplicate).unwrap_or(Err(Errno::BADF));
        copy.map_err(|errno| refused(errno, op))
    }

    /// What `call` gives for the eventfd; `None` if there is none, or the program has closed it: what
    /// has its number then is a stranger's, and is neither read nor written.
    fn with_eventfd<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.eventfd.get().filter(|eventfd| eventfd.is_intact())?.with(call)
    }

    /// Has the descriptor tell of space that there is no server, too.
    pub(super) fn needs_server(&self) {
        self.interests().needs_server = true;
    }

    /// Whether one was given out.
    pub(super) fn has_descriptor(&self) -> bool {
        self.eventfd.get().is_some()
    }

    /// Has the descriptor tell of a call.
    pub(super) fn expect(&self, call: Call) {
        if self.eventfd.get().is_some() {
            self.interests().calls.insert(call.ticket.idx(), call);
            self.wake_thread();
            if self.stage(&call) == Stage::Done {
                self.ring_if_due(&mut self.interests(), 0);
            }
        }
    }

    /// Somebody has looked after a call. From now on, the descriptor tells of it if it is in progress, and of what else there is.
    pub(super) fn looked(&self, call: Call, is_open: bool) {
        if is_open {
            self.expect(call);
        } else {
            let of_slot =
                |interests: &Interests| interests.calls.get(&call.ticket.idx()).map(|call| call.ticket);
            let mut interests = self.interests();
            if of_slot(&interests) == Some(call.ticket) {
                interests.calls.remove(&call.ticket.idx());
            }
        }
        self.arm();
    }

    /// Makes the descriptor unreadable until something comes, if nothing is there. Rings once more for what has come since the last ring: it may be
    /// watched by somebody who is told of each ring only, and that one may have been taken for what is gone by now.
    pub(super) fn arm(&self) {
        if !self.has_descriptor() {
            return;
        }
        let in_line = self.in_line();
        let mut interests = self.interests();
        if interests.armed {
            return;
        }
        if self.has_something(&mut interests, in_line) {
            if self.has_news(&interests) {
                self.ring(&mut interests);
            }
            return;
        }
        self.with_eventfd(sys::eventfd_clear);
        interests.armed = true;
        drop(interests);
        self.look_once_more();
    }

    fn look_once_more(&self) {
        self.wake_thread();
        let in_line = self.in_line();
        self.ring_if_due(&mut self.interests(), in_line);
    }

    /// Lets the thread know of an interest that was put down. Where the thread watches already, the fence in here is what is needed: a look after this sees what came before
    /// the thread read the interest, and whoever brings something after that look sees that the thread is parked.
    pub(super) fn wake_thread(&self) {
        self.rest.notify(Reach::Process);
    }

    /// Rings the eventfd if that is due.
    fn ring_if_due(&self, interests: &mut Interests, in_line: usize) -> bool {
        let due = interests.armed && self.has_something(interests, in_line);
        if due {
            self.ring(interests);
        }
        due
    }

    /// Rings it once when the last server has gone, if somebody there needs one.
    fn ring_without_server(&self, interests: &mut Interests) -> bool {
        let is_due = interests.needs_server && self.liveness.is_forsaken();
        let is_news = is_due && !interests.is_told_of_no_server && interests.armed;
        interests.is_told_of_no_server = is_due && (is_news || interests.is_told_of_no_server);
        if is_news {
            self.ring(interests);
        }
        is_news
    }

    fn ring(&self, interests: &mut Interests) {
        interests.armed = false;
        // Before it rings: what is done after this is news.
        interests.calls.values_mut().for_each(|call| call.is_told = self.stage(call) == Stage::Done);
        self.with_eventfd(sys::eventfd_ring);
    }

    fn interests(&self) -> MutexGuard<'_, Interests> {
        locked(&self.interests)
    }
}

/// A place to leave a task's waker. What lies there is taken away when this is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    watcher: Arc<WatcherState>,
    number: u64,
}

impl Registration {
    pub(super) fn new(watcher: Arc<WatcherState>) -> Registration {
        let mut interests = watcher.interests();
        interests.last += 1;
        let number = interests.last;
        drop(interests);
        Registration { watcher, number }
    }

    /// False in a forked child.
    pub(super) fn is_here(&self) -> bool {
        self.watcher.is_here()
    }

    /// Has a task woken, once. It must look once more after this.
    pub(super) fn register(&self, call: Option<Call>, waker: &Waker) {
        let task = Task { call, waker: waker.clone() };
        // Dropped outside of the lock, as everywhere: what a waker does is a stranger's affair.
        let before = self.watcher.interests().tasks.insert(self.number, task);
        drop(before);
        self.watcher.wake_thread();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.is_here() {
            let task = self.watcher.interests().tasks.remove(&self.number);
            drop(task);
        }
    }
}

// ---------------------------------------------------------------- the thread

impl WatcherState {
    pub(super) fn run(&self) {
        loop {
            match self.rest(Deadline::NEVER) {
                Ok(Order::Watch) => self.pass_on(self.tell()),
                Ok(Order::Stop) => return,
                Err(_) => {}
            }
        }
    }

    /// Parks until there is something to do, or the deadline.
    fn rest(&self, deadline: Deadline) -> Result<Order> {
        let wait = Wait { deadline, spin: &self.spin, reach: Reach::Process, tick: None, op: WATCH };
        let look = || {
            let represents = self.represents().is_some();
            let interests = self.interests();
            let is_wanted = represents || self.is_wanted(&interests);
            Ok(if interests.stop { Some(Order::Stop) } else { is_wanted.then_some(Order::Watch) })
        };
        self.rest.wait(&wait, look, || Ok(()))
    }

    /// Waits until there is something for somebody, and tells them; false if nobody is left to be told.
    fn tell(&self) -> bool {
        let tick = Some(self.liveness.tick());
        let (deadline, reach) = (Deadline::NEVER, Reach::Machine);
        let wait = Wait { deadline, spin: &self.spin, reach, tick, op: WATCH };
        let (me, failures) = (self.liveness.number(), self.liveness.failures());
        // Who has joined anew has other calls, and another bell. And what failed concerns all, whoever had the tick.
        let look = || {
            let concerns_all = self.liveness.number() != me || self.liveness.failures() != failures;
            Ok(self.look(concerns_all))
        };
        let ready = match self.event(me).wait(&wait, look, || self.check()) {
            Ok(ready) => ready,
            Err(error) if error.kind() == ErrorKind::Interrupted => Ready::default(),
            // Those who wait look, and meet it.
            Err(_) => self.look(true).unwrap_or_default(),
        };
        let mut any = ready.descriptor || !ready.tasks.is_empty();
        ready.tasks.into_iter().for_each(wake);
        if let Some(waiters) = &self.waiters {
            waiters.took_offer();
            any |= (0..ready.from_line).take_while(|_| waiters.choose()).count() > 0;
        }
        self.interests().is_waking = false;
        any
    }

    /// Whom to tell now; `None` if nobody, but somebody waits.
    fn look(&self, everybody: bool) -> Option<Ready> {
        let represents = self.represents();
        self.count_anew();
        let has_slot = |chosen| self.lets_in(chosen) && self.shared.has_free(chosen);
        let from_line = match represents {
            Some(_) if everybody => usize::MAX,
            Some(chosen) => usize::from(has_slot(chosen)),
            None => 0,
        };
        let in_line = self.in_line();
        // A waker is dropped after the lock.
        let mut tasks = self.told_of_no_server();
        let mut interests = self.interests();
        if interests.stop {
            return Some(Ready::default());
        }
        if self.topic == Topic::Space {
            self.liveness.lacks_slot();
        }
        let descriptor =
            self.ring_if_due(&mut interests, in_line) || self.ring_without_server(&mut interests);
        if everybody {
            self.ring(&mut interests);
        }
        let for_all = everybody || !interests.tasks.is_empty() && self.is_there(0);
        let is_due = |task: &mut Task| {
            for_all || task.call.as_ref().is_some_and(|call| self.stage(call) != Stage::Open)
        };
        tasks.extend(interests.tasks.extract_if(|_, task| is_due(task)).map(|(_, task)| task.waker));
        interests.is_waking = !tasks.is_empty() || from_line > 0;
        let is_wanted = represents.is_some() || self.is_wanted(&interests);
        let over = descriptor || everybody || interests.is_waking || !is_wanted;
        over.then_some(Ready { descriptor, from_line, tasks })
    }

    /// The event has woken one, and that was this thread. If those it has told do not come to look, others are to. Where replies are told of, nobody else waits.
    fn pass_on(&self, told: bool) {
        if self.topic == Topic::Replies {
            return;
        }
        let came = told && matches!(self.rest(Deadline::after(PATIENCE)), Ok(Order::Watch));
        if !came && self.is_there(0) {
            self.event(self.liveness.number()).notify(Reach::Machine);
        }
    }

    /// When the tick is due: what the handle itself does in a wait.
    fn check(&self) -> Result<()> {
        self.liveness.check(WATCH)
    }

    /// The tasks that wait for a slot and hear now that there is no server, if they need one.
    fn told_of_no_server(&self) -> Vec<Waker> {
        let waiters = self.waiters.as_ref().filter(|_| self.liveness.is_forsaken());
        waiters.map_or_else(Vec::new, |waiters| waiters.tell_of_no_server())
    }

    /// Has the thread end; whether that will be soon. It wakes nobody any more, but may be in the middle of it.
    pub(super) fn stop(&self) -> bool {
        let is_waking = {
            let mut interests = self.interests();
            interests.stop = true;
            interests.is_waking
        };
        self.rest.notify_all(Reach::Process);
        // Whoever else parks there looks, and parks again.
        self.event(self.liveness.number()).notify_all(Reach::Machine);
        !is_waking
    }
}

/// What the thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Watch,
    Stop,
}

// ---------------------------------------------------------------- looking

impl WatcherState {
    /// Where the thread of the member `me` parks.
    fn event(&self, me: u16) -> &Event {
        match self.topic {
            Topic::Requests => self.shared.requests(),
            Topic::Space => self.shared.space(),
            Topic::Replies => &self.shared.member(me).expect("one's own number is in the geometry").bell,
        }
    }

    fn lets_in(&self, more: usize) -> bool {
        self.waiters.as_ref().is_none_or(|waiters| waiters.lets_in(more))
    }

    /// How many are chosen among those who wait for a slot, if it is to represent them.
    fn represents(&self) -> Option<usize> {
        self.waiters.as_ref().and_then(|waiters| waiters.has_tasks())
    }

    /// Calls of this client may have ended unseen.
    fn count_anew(&self) {
        if let Some(waiters) = &self.waiters {
            waiters.count_anew(|| self.shared.calls_of(self.liveness.number()).count());
        }
    }

    /// How many slots are not for those behind the descriptor.
    fn in_line(&self) -> usize {
        self.waiters.as_ref().map_or(0, |waiters| waiters.present())
    }

    fn is_wanted(&self, interests: &Interests) -> bool {
        let for_calls = self.topic == Topic::Replies;
        !interests.tasks.is_empty() || interests.armed && !(for_calls && interests.calls.is_empty())
    }

    /// Whether there is what everybody here waits for, where that is the same for all: for so many more, where that is space.
    fn is_there(&self, more: usize) -> bool {
        match self.topic {
            Topic::Requests => self.shared.has_request(),
            Topic::Space => self.lets_in(more) && self.shared.has_space(more),
            Topic::Replies => false,
        }
    }

    /// Whether there is something that the descriptor is to tell.
    fn has_something(&self, interests: &mut Interests, in_line: usize) -> bool {
        let found =
            self.is_there(in_line) || interests.calls.values().any(|call| self.stage(call) == Stage::Done);
        if !found {
            // One that is done by now stays: it is to be rung for.
            interests.calls.retain(|_, call| self.stage(call) != Stage::Over);
        }
        found
    }

    /// Of what there is, whether some has come since the descriptor was rung. Where it is the same for all, nothing was there a moment ago.
    fn has_news(&self, interests: &Interests) -> bool {
        let is_news = |call: &Call| !call.is_told && self.stage(call) == Stage::Done;
        self.topic != Topic::Replies || interests.calls.values().any(is_news)
    }

    fn stage(&self, call: &Call) -> Stage {
        let (Topic::Replies, Some(slot)) = (self.topic, self.shared.slot(call.ticket.idx())) else {
            return Stage::Over;
        };
        let me = self.liveness.number();
        let (now, is_forsaken) = (slot.load(), call.needs_server && self.liveness.is_forsaken());
        match now.state() {
            _ if now.generation() != call.ticket.generation() => Stage::Over,
            Some(State::Sent) if now.owner() == me && !is_forsaken => Stage::Open,
            Some(State::Taken) if slot.client.load(Ordering::Relaxed) == u32::from(me) => Stage::Open,
            Some(State::Sent | State::Answered | State::Failed | State::Died) if now.owner() == me => {
                Stage::Done
            }
            _ => Stage::Over,
        }
    }
}

impl Shared {
    /// Whether a request waits for a server.
    fn has_request(&self) -> bool {
        self.queue().entries().any(|idx| self.is_sent(idx))
    }

    /// Whether so many requests and one could be sent: there are free slots, and the ring is not full, or would not be after a push has thrown the first one out.
    fn has_space(&self, more: usize) -> bool {
        let queue = self.queue();
        let first_waits = || queue.entries().next().is_some_and(|idx| self.is_sent(idx));
        let is_full = || queue.len() >= self.geometry().queue as usize && first_waits();
        self.has_free(more) && !is_full()
    }

    fn is_sent(&self, idx: u32) -> bool {
        self.slot(idx).is_some_and(|slot| slot.load().state() == Some(State::Sent))
    }
}

/// What a stranger's waker does must not end the thread that others rely on. The panic was told by its hook.
pub(super) fn wake(waker: Waker) {
    if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // To drop it could be the next.
        mem::forget(panic);
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The invariant, searched for what could be missed: one wants to be told, one brings something, and the thread is between them.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Mutex};

    use super::*;
    use crate::sync::AtomicU64;

    struct World {
        event: Event,
        rest: Event,
        is_there: AtomicU64,
        /// `{ wanted, stop }`
        interests: Mutex<(bool, bool)>,
    }

    #[test]
    fn nobody_waits_for_what_is_there() {
        sync::search(|| {
            let world = Arc::new(World {
                event: Event::new(),
                rest: Event::new(),
                is_there: AtomicU64::new(0),
                interests: Mutex::new((false, false)),
            });
            let thread = loom::thread::spawn({
                let world = Arc::clone(&world);
                move || {
                    let spin = Spin::new(Duration::ZERO, Looks::Load);
                    let (deadline, reach) = (Deadline::NEVER, Reach::Machine);
                    let wait = Wait { deadline, spin: &spin, reach, tick: None, op: WATCH };
                    let look = || {
                        let (wanted, stop) = *world.interests.lock().unwrap();
                        let due = stop || wanted && world.is_there.load(Ordering::Acquire) == 1;
                        Ok(due.then_some(()))
                    };
                    // One that is never woken is a deadlock, which loom reports.
                    world.event.wait(&wait, look, || Ok(())).unwrap();
                }
            });
            let bringer = loom::thread::spawn({
                let world = Arc::clone(&world);
                move || {
                    world.is_there.store(1, Ordering::Release);
                    world.event.notify(Reach::Machine);
                }
            });
            world.interests.lock().unwrap().0 = true;
            world.rest.notify(Reach::Process);
            if world.is_there.load(Ordering::Acquire) == 1 {
                // Found by the second look: nobody else needs to.
                world.interests.lock().unwrap().1 = true;
                world.event.notify_all(Reach::Machine);
            }
            bringer.join().unwrap();
            thread.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::task::{Context, Wake};
    use std::thread;
    use std::time::Instant;

    use super::super::{Client, Options, Segment, Server};
    use super::*;
    use crate::sys::fault;

    const SOON: Duration = Duration::from_secs(20);

    fn small() -> Segment {
        Options::new().slots(2).members(8).anonymous().expect("a segment")
    }

    /// Whether a descriptor becomes readable.
    fn rings(fd: &impl AsFd) -> bool {
        sys::wait(&[fd.as_fd()], sys::For::Reading, SOON.into()).expect("poll")
    }

    fn is_silent(fd: &impl AsFd) -> bool {
        !sys::wait(&[fd.as_fd()], sys::For::Reading, Deadline::now()).expect("poll")
    }

    #[test]
    fn a_servers_doorbell_is_readable_until_nothing_is_left() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let doorbell = server.doorbell().unwrap();
        for _ in 0..50 {
            assert!(is_silent(&doorbell));
            let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
            assert!(rings(&doorbell));
            server.try_recv().unwrap().expect("it rang").reply("x").unwrap();
            assert!(!is_silent(&doorbell), "there is another");
            server.clone().drain(5).unwrap().into_iter().for_each(|last| assert!(last.reply("y").unwrap()));
            tickets.into_iter().for_each(|ticket| drop(client.recv(ticket, SOON).unwrap()));
        }
        // What is there already when it is asked for, also the second time.
        client.try_send("a").unwrap().expect("there is a slot");
        let [second, other] = [server.doorbell(), segment.server().unwrap().doorbell()].map(Result::unwrap);
        assert!(rings(&second) && rings(&doorbell) && rings(&other));
        assert!(server.try_recv().unwrap().is_some() && server.try_recv().unwrap().is_none());
        assert!(is_silent(&second) && is_silent(&doorbell));
    }

    #[test]
    fn a_clients_doorbell_tells_of_every_call_that_was_sent() {
        let segment = Options::new().slots(4).anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let before = client.try_send("a").unwrap().expect("there is a slot");
        let doorbell = client.doorbell().unwrap();
        let after = client.send("b", SOON).unwrap();
        let cancelled = client.send("c", SOON).unwrap();
        assert!(is_silent(&doorbell));
        server.recv(SOON).unwrap().reply("x").unwrap();
        assert!(rings(&doorbell));
        // To look after one that is in progress is not to have received the other.
        assert!(client.try_recv(after).unwrap().is_none() && !is_silent(&doorbell));
        assert_eq!(&*client.try_recv(before).unwrap().expect("it rang"), b"x");
        assert!(is_silent(&doorbell));
        // A request that was given up, and one that was called back, are two ends as well.
        server.recv(SOON).unwrap().fail();
        assert!(client.cancel(cancelled).unwrap() && rings(&doorbell));
        assert_eq!(client.recv(after, SOON).map_err(|error| error.kind()).err(), Some(ErrorKind::Failed));
        assert!(is_silent(&doorbell) && server.try_recv().unwrap().is_none());
        // A `call` waits itself.
        thread::scope(|scope| {
            let answer = scope.spawn(|| client.call("d", SOON).unwrap().into_vec());
            server.recv(SOON).unwrap().reply("z").unwrap();
            assert_eq!(answer.join().unwrap(), b"z");
        });
        assert!(is_silent(&doorbell));
        // One that is done before the descriptor is asked for.
        let late = segment.client().unwrap();
        let ticket = late.try_send("e").unwrap().expect("there is a slot");
        server.recv(SOON).unwrap().reply("f").unwrap();
        let doorbell = late.doorbell().unwrap();
        assert!(rings(&doorbell) && late.recv(ticket, SOON).is_ok() && is_silent(&doorbell));
    }

    #[test]
    fn a_client_without_a_slot_is_told_of_space() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let space = client.send_doorbell().unwrap();
        for _ in 0..50 {
            assert!(rings(&space));
            let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
            assert!(client.try_send("c").unwrap().is_none() && is_silent(&space));
            server.recv(SOON).unwrap().reply("x").unwrap();
            server.recv(SOON).unwrap().reply("y").unwrap();
            assert!(is_silent(&space), "replies are not space");
            tickets.into_iter().for_each(|ticket| drop(client.recv(ticket, SOON).unwrap()));
        }
    }

    #[test]
    fn a_call_that_finds_no_server_is_told_of_once_more() {
        let segment = small();
        let client = segment.client().unwrap().needs_server(true);
        let server = segment.server().unwrap();
        let ticket = client.try_send("a").unwrap().expect("there is a slot");
        let doorbell = client.doorbell().unwrap();
        assert!(is_silent(&doorbell));
        drop(server);
        // It is rung for in vain where somebody else was just looking for the dead.
        let begin = Instant::now();
        let end = loop {
            assert!(rings(&doorbell) && begin.elapsed() < SOON);
            match client.try_recv(ticket) {
                Ok(None) => assert!(is_silent(&doorbell)),
                end => break end,
            }
        };
        assert_eq!(end.map_err(|error| error.kind()).err(), Some(ErrorKind::NoServer));
        assert!(is_silent(&doorbell));
    }

    /// Both sides only ever do what their descriptors tell them to.
    #[test]
    fn two_event_loops_keep_each_other_going() {
        const CALLS: u32 = 2000;
        let segment = Options::new().slots(4).anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                let doorbell = server.doorbell().unwrap();
                let mut served = 0;
                while served < CALLS {
                    assert!(rings(&doorbell));
                    while let Some(request) = server.try_recv().unwrap() {
                        let answer = request.to_vec();
                        request.reply(&answer).unwrap();
                        served += 1;
                    }
                }
            });
            let doorbell = client.doorbell().unwrap();
            let (mut open, mut sent, mut received) = (HashMap::new(), 0, 0);
            while received < CALLS {
                while sent < CALLS
                    && let Some(ticket) = client.try_send(&sent.to_le_bytes()).unwrap()
                {
                    open.insert(ticket, sent);
                    sent += 1;
                }
                assert!(rings(&doorbell));
                open.retain(|ticket, number| match client.try_recv(*ticket).unwrap() {
                    Some(reply) => {
                        assert_eq!(*reply, number.to_le_bytes());
                        received += 1;
                        false
                    }
                    None => true,
                });
            }
        });
    }

    /// Its loop is busy, and a server that sleeps gets the request long before a slice ends.
    #[test]
    fn a_wake_up_that_a_busy_loop_cannot_use_is_passed_on() {
        let segment = small();
        let (client, busy, idle) =
            (segment.client().unwrap(), segment.server().unwrap(), segment.server().unwrap());
        let doorbell = busy.doorbell().unwrap();
        let shortest = (0..10).map(|_| {
            assert!(busy.try_recv().unwrap().is_none() && is_silent(&doorbell));
            // The kernel wakes those first who came first.
            thread::sleep(Duration::from_millis(5));
            thread::scope(|scope| {
                let sleeping = scope.spawn(|| drop(idle.recv(SOON).unwrap()));
                thread::sleep(Duration::from_millis(5));
                let began = Instant::now();
                let ticket = client.try_send("a").unwrap().expect("there is a slot");
                sleeping.join().unwrap();
                let ended = began.elapsed();
                assert!(client.recv(ticket, SOON).is_err() && busy.try_recv().unwrap().is_none());
                ended
            })
        });
        assert!(shortest.min() < Some(Duration::from_millis(25)), "a slice is twice as long");
    }

    /// Wherever the thread is, it does not sleep the slice out.
    #[test]
    fn handles_go_at_once() {
        let segment = small();
        let dropped_in = |handles: (Client, Server)| {
            thread::sleep(Duration::from_millis(5));
            let began = Instant::now();
            drop(handles);
            began.elapsed()
        };
        let shortest = (0..10).map(|turn| {
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            client.try_send("a").unwrap().expect("there is a slot");
            // At rest in the second case, parked in the segment in the first.
            let doorbell = if turn % 2 == 0 { client.doorbell() } else { server.doorbell() };
            assert_eq!(is_silent(&doorbell.unwrap()), turn % 2 == 0);
            (turn % 2, dropped_in((client, server)))
        });
        let (parked, resting): (Vec<_>, Vec<_>) = shortest.partition(|(at_rest, _)| *at_rest == 0);
        for times in [parked, resting] {
            let shortest = times.iter().map(|(_, time)| *time).min();
            assert!(shortest < Some(Duration::from_millis(25)), "{times:?}: a slice is twice as long");
        }
    }

    /// Calls a function when it wakes.
    struct Calls<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
        fn wake(self: Arc<Self>) {
            self.0();
        }
    }

    /// Polls `future` once, which must wait then.
    fn leave<T>(future: &mut (impl Future<Output = T> + Unpin), wake: impl Fn() + Send + Sync + 'static) {
        let waker = Waker::from(Arc::new(Calls(wake)));
        assert!(std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
    }

    #[test]
    fn a_waker_that_panics_takes_nobody_with_it() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
        let (tell, told) = mpsc::channel();
        let mut futures = tickets.map(|ticket| Box::pin(client.recv_async(ticket)));
        let tell_again = tell.clone();
        leave(&mut futures[0], move || {
            tell.send(0).unwrap();
            panic!("a waker's own affair, which is told of here");
        });
        server.recv(SOON).unwrap().reply("c").unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(0));
        leave(&mut futures[1], move || tell_again.send(1).unwrap());
        server.recv(SOON).unwrap().reply("d").unwrap();
        assert_eq!(told.recv_timeout(SOON), Ok(1));
    }

    #[test]
    fn a_handle_goes_under_a_lock_that_its_waker_waits_for() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let ticket = client.try_send("a").unwrap().expect("there is a slot");
        let (lock, (tell, told)) = (Arc::new(Mutex::new(())), mpsc::channel());
        let mut future = Box::pin({
            let client = client.clone();
            async move { client.recv_async(ticket).await }
        });
        let needed = Arc::clone(&lock);
        leave(&mut future, move || {
            tell.send(()).unwrap();
            drop(needed.lock().unwrap());
        });
        let dropping = thread::spawn(move || {
            let held = lock.lock().unwrap();
            server.recv(SOON).unwrap().reply("b").unwrap();
            told.recv_timeout(SOON).unwrap();
            drop((future, client));
            drop(held);
        });
        let began = Instant::now();
        while !dropping.is_finished() {
            assert!(began.elapsed() < SOON, "each waits for the other");
            thread::sleep(Duration::from_millis(1));
        }
        dropping.join().unwrap();
    }

    #[test]
    fn what_the_system_refuses_is_said_and_can_be_tried_again() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        for name in ["thread", "eventfd", "fcntl"] {
            fault::order(name, 0, fault::Fault::Errno(24));
            let refused = client.doorbell().map_err(|error| (error.kind(), error.errno()));
            assert_eq!(refused.err(), Some((ErrorKind::Os, Some(24))), "{name}");
            assert!(fault::all_met());
        }
        let doorbell = client.doorbell().unwrap();
        client.try_send("a").unwrap().expect("there is a slot");
        server.recv(SOON).unwrap().fail();
        assert!(rings(&doorbell));
    }
}
