//! A client: it calls in every way that the library has, and checks every outcome against the
//! board.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use pipework::reqrep::{Segment, Ticket};
use pipework::{Deadline, ErrorKind};
use rustix::event::PollFlags;

use super::Hall;
use super::board::{ANSWERED, Board, Count, FAILED, FORGOTTEN, IN_PROGRESS};
use super::ends::{Answer, Asking, Name, check_reply_blobs};
use crate::harness::{PATIENCE, Random, is_ready};

/// Calls until the run ends.
pub(super) fn call(hall: &Hall<'_>, number: usize, segment: &Segment, inherited: Option<Asking>) {
    // Some have two threads that share a client.
    let threads = if number % 4 == 3 { 2 } else { 1 };
    let is_sole = threads == 1 && inherited.is_none();
    let client = inherited.unwrap_or_else(|| Asking::attach(segment, hall.run));
    thread::scope(|scope| {
        for (thread, client) in vec![client; threads].into_iter().enumerate() {
            let random = Random::new(hall.run.seed ^ (number as u64) << 8 ^ thread as u64);
            let most = IN_PROGRESS / threads;
            let mut caller = Caller { hall, number, segment, client: Some(client), is_sole, most, random };
            scope.spawn(move || caller.call_until_the_end());
        }
    });
}

struct Caller<'a> {
    hall: &'a Hall<'a>,
    number: usize,
    segment: &'a Segment,
    /// None only while it leaves.
    client: Option<Asking>,
    /// Whether no other handle in this process is the same client.
    is_sole: bool,
    /// The most calls that it has in progress.
    most: usize,
    random: Random,
}

/// A call that was sent.
type Sent = (Name, Ticket);

/// Whether a timeout is an allowed outcome.
#[derive(Clone, Copy, PartialEq)]
enum Patience {
    Short,
    Long,
}

impl Caller<'_> {
    fn call_until_the_end(&mut self) {
        while !self.board().calls_have_ended() {
            if !self.board().has_space() {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            match self.random.below(64) {
                0..14 => self.call(Patience::Long),
                14..18 => self.call(Patience::Short),
                18..30 => self.send_and_receive(),
                30..38 => self.poll(),
                38..46 => self.cancel(),
                46..50 => self.forget(),
                50..56 => self.stream(),
                56..60 => self.leave(),
                60 => drop(self.segment.recover().expect("the kernel reports the locks")),
                61 => drop(self.segment.audit().expect("the kernel reports the locks")),
                62 => drop(self.segment.members().expect("the kernel reports the locks")),
                _ => drop((self.segment.stats(), self.segment.waiting())),
            }
        }
    }

    // ------------------------------------------------------------ the ways

    fn call(&mut self, patience: Patience) {
        let time = match patience {
            Patience::Long => PATIENCE,
            Patience::Short => Duration::from_micros(self.random.below(2000) as u64),
        };
        let (name, began_ns) = (self.begin(), self.board().now_ns());
        let outcome = self.client().call(self.hall.run, name, time);
        self.settle(name, began_ns, patience, outcome);
    }

    /// Several at a time; their replies in another order.
    fn send_and_receive(&mut self) {
        let mut sent = self.send_some();
        let any = self.is_sole && self.random.below(4) == 0;
        while !sent.is_empty() {
            let began_ns = self.board().now_ns();
            if any {
                let (place, outcome) = self.client().recv_any(self.hall.run, &sent);
                let (name, _) = sent.swap_remove(place);
                self.settle(name, began_ns, Patience::Long, outcome);
                continue;
            }
            let call = sent.swap_remove(self.random.below(sent.len()));
            if self.random.below(4) == 0 {
                let soon = Duration::from_micros(self.random.below(1000) as u64);
                match self.client().recv(self.hall.run, call, soon) {
                    // The ticket stays valid.
                    Err(ErrorKind::TimedOut) => {}
                    outcome => {
                        self.settle(call.0, began_ns, Patience::Long, outcome);
                        continue;
                    }
                }
            }
            let began_ns = self.board().now_ns();
            let outcome = self.client().recv(self.hall.run, call, PATIENCE);
            self.settle(call.0, began_ns, Patience::Long, outcome);
        }
    }

    /// Polls now and then, or when the doorbell rings.
    fn poll(&mut self) {
        let doorbell =
            (self.random.below(4) == 0).then(|| self.client().as_client().doorbell().expect("a descriptor"));
        for (name, ticket) in self.send_some() {
            let (began_ns, deadline) = (self.board().now_ns(), Deadline::after(PATIENCE));
            let outcome = loop {
                match self.client().try_recv(self.hall.run, (name, ticket)) {
                    None => assert!(!deadline.has_passed(), "no end of {name:?}"),
                    Some(outcome) => break outcome,
                }
                match &doorbell {
                    Some(doorbell) => {
                        assert!(is_ready(doorbell, PollFlags::IN, PATIENCE), "no end of {name:?}")
                    }
                    None => thread::sleep(Duration::from_micros(50)),
                }
            };
            self.settle(name, began_ns, Patience::Long, outcome);
        }
    }

    fn cancel(&mut self) {
        for (name, ticket) in self.send_some() {
            if self.random.below(2) == 0 {
                thread::sleep(Duration::from_micros(self.random.below(300) as u64));
            }
            let began_ns = self.board().now_ns();
            match self.client().cancel(self.hall.run, (name, ticket)) {
                None => self.board().add(Count::Cancelled, 1),
                Some(outcome) => self.settle(name, began_ns, Patience::Long, outcome),
            }
        }
    }

    fn forget(&mut self) {
        for (name, ticket) in self.send_some() {
            if self.random.below(2) == 0 {
                thread::sleep(Duration::from_micros(self.random.below(300) as u64));
            }
            self.client().as_client().forget(ticket).expect("no other thread has its ticket");
            self.board().call(name.n()).events.fetch_or(FORGOTTEN, SeqCst);
            self.board().add(Count::Forgotten, 1);
        }
    }

    /// Takes parts, to the end or for a while.
    fn stream(&mut self) {
        let (name, began_ns) = (self.begin(), self.board().now_ns());
        // Most have few parts.
        let (run, most) = (self.hall.run, 1 + self.random.below(16));
        let mut parts = match self.client().stream(run, name) {
            Ok(parts) => parts,
            Err(error) => return self.settle(name, began_ns, Patience::Long, Err(error.kind())),
        };
        let (mut bytes, mut blobs) = (vec![], vec![]);
        for nth in 0.. {
            if nth == most {
                return self.board().add(Count::Cancelled, 1);
            }
            match parts.next_part(PATIENCE) {
                Ok(Some(part)) => {
                    bytes.extend_from_slice(&part);
                    blobs.extend_from_slice(part.blobs());
                }
                Ok(None) => break,
                Err(error) => return self.settle(name, began_ns, Patience::Long, Err(error.kind())),
            }
        }
        check_reply_blobs(name, &blobs);
        self.settle(name, began_ns, Patience::Long, Ok(bytes));
    }

    /// Leaves, with calls in progress if no other handle keeps its place, and returns as another
    /// member.
    fn leave(&mut self) {
        let sent = if self.is_sole { self.send_some() } else { vec![] };
        self.client = None;
        self.board().add(Count::Left, sent.len() as u64);
        let client = Asking::attach(self.segment, self.hall.run);
        assert_eq!(client.as_client().segment().geometry(), self.segment.geometry());
        for (name, ticket) in sent {
            let stale = client.try_recv(self.hall.run, (name, ticket));
            assert_eq!(stale, Some(Err(ErrorKind::Stale)), "{name:?}");
        }
        self.client = Some(client);
        self.is_sole = true;
    }

    /// The first send waits for a slot, the others take only free slots.
    fn send_some(&mut self) -> Vec<Sent> {
        let mut sent = vec![];
        for nth in 0..=self.random.below(self.most) {
            let (run, name) = (self.hall.run, self.begin());
            let outcome = match nth {
                0 => self.client().send(run, name, PATIENCE).map(Some),
                _ => self.client().try_send(run, name),
            };
            match outcome {
                Ok(Some(ticket)) => {
                    self.board().call(name.n()).sent_ns.store(self.board().now_ns(), SeqCst);
                    sent.push((name, ticket));
                }
                Ok(None) => self.board().add(Count::NotSent, 1),
                Err(error) if run.needs_server && error.kind() == ErrorKind::NoServer => {
                    self.board().add(Count::NoServer, 1);
                }
                Err(error) => panic!("{name:?} cannot be sent: {error}"),
            }
        }
        sent
    }

    // ------------------------------------------------------------ the outcome

    fn begin(&self) -> Name {
        Name::new(self.hall.run, self.board().begin_call())
    }

    /// The call has ended. This process has waited since `began_ns`.
    fn settle(&self, name: Name, began_ns: u64, patience: Patience, outcome: Answer) {
        let (run, board) = (self.hall.run, self.board());
        let marks = board.call(name.n());
        let (events, taker) = (marks.events.load(SeqCst), marks.taker.load(SeqCst));
        let what = || format!("{name:?} of party {}: {events:#x}, server {taker}, {run:?}", self.number);
        let count = match outcome {
            Ok(reply) => {
                assert!(reply == name.reply(run), "not the reply: {}", what());
                assert_eq!(events & ANSWERED, ANSWERED, "{}", what());
                let done_ns = marks.done_ns.load(SeqCst);
                board.waited(&[began_ns, done_ns], &[self.number, taker as usize - 1], &what);
                board.add(Count::HandedBack, u64::from(name.hands_back()));
                Count::Replies
            }
            // Possibly no server had it.
            Err(ErrorKind::Failed) if events & FAILED == 0 && name.goes_in_parts(run) => Count::Failed,
            Err(ErrorKind::Failed) => {
                assert_eq!(events & FAILED, FAILED, "{}", what());
                let done_ns = marks.done_ns.load(SeqCst);
                board.waited(&[began_ns, done_ns], &[self.number, taker as usize - 1], &what);
                Count::Failed
            }
            Err(ErrorKind::PeerDied) => {
                // A server that died between taking it and marking it has left no mark.
                if events & 1 << run.redeliveries != 0 {
                    let doomed_ns = board.party(taker as usize - 1).doomed_ns.load(SeqCst);
                    assert_ne!(doomed_ns, 0, "its server lives: {}", what());
                    board.waited(&[began_ns, doomed_ns], &[self.number], &what);
                }
                Count::PeerDied
            }
            Err(ErrorKind::TimedOut) if patience == Patience::Short => Count::TimedOut,
            Err(ErrorKind::NoServer) if run.needs_server => Count::NoServer,
            Err(kind) => panic!("{kind:?}: {}", what()),
        };
        board.add(count, 1);
    }

    fn client(&self) -> &Asking {
        self.client.as_ref().expect("it is attached")
    }

    fn board(&self) -> &Board {
        &self.hall.board
    }
}
