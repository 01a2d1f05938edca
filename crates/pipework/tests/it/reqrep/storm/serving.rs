//! A server: it takes requests in every way that the library has, and marks on the board which
//! requests it holds.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::reqrep::Segment;
use rustix::event::PollFlags;

use super::board::{ANSWERED, Board, Count, FAILED};
use super::ends::{Asking, Name, Serving, Taken};
use super::{Hall, Run};
use crate::harness::{PATIENCE, Random, is_ready};

/// Serves until it is dismissed.
pub(super) fn serve(hall: &Hall<'_>, number: usize, segment: &Segment, inherited: Option<Serving>) {
    let mut server = inherited.unwrap_or_else(|| Serving::attach(segment));
    let mut worker = Worker { hall, number, random: Random::new(hall.run.seed ^ (number as u64) << 8) };
    while worker.take(&server) {
        if worker.random.below(32) == 0 {
            drop(server);
            server = Serving::attach(segment);
            assert_eq!(server.as_server().segment().geometry(), segment.geometry());
        }
    }
    hall.board.count_dismissed();
}

/// Makes and answers one call in one thread.
pub(super) fn echo(run: &Run, client: &Asking, server: &Serving) {
    let mut names = (0..).map(|n| Name::new(run, n));
    let name = names.find(|name| !name.goes_in_parts(run)).expect("most are short");
    let ticket = client.try_send(run, name).expect("no error").expect("a slot");
    let taken = server.try_recv().expect("no error").expect("a request");
    assert_eq!(taken.name(run), name);
    assert!(taken.reply(run, name), "its client lives");
    assert_eq!(client.try_recv(run, (name, ticket)), Some(Ok(name.reply(run))));
}

struct Worker<'a> {
    hall: &'a Hall<'a>,
    number: usize,
    random: Random,
}

impl Worker<'_> {
    /// Takes some requests and lets go of them. Returns false once it was dismissed.
    fn take(&mut self, server: &Serving) -> bool {
        let began_ns = self.board().now_ns();
        let soon = Duration::from_micros(self.random.below(2000) as u64);
        let taken = match self.random.below(16) {
            0..6 => server.recv(PATIENCE).map(|taken| vec![taken]),
            6..8 => server.recv(soon).map(|taken| vec![taken]),
            8..10 => server.try_recv().map(|taken| taken.into_iter().collect()),
            10..13 => server.recv_many(3, PATIENCE),
            13..15 => {
                if self.random.below(4) == 0 {
                    is_ready(server.as_server().doorbell().expect("a descriptor"), PollFlags::IN, soon);
                }
                server.drain(8)
            }
            _ => server.as_server().segment().recover().map(|_| vec![]),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let late = self.board().now_ns() - began_ns >= PATIENCE.as_nanos() as u64;
                // Clients rest when the board is full.
                assert!(!late || !self.board().has_space(), "server {} got no request", self.number);
                return true;
            }
            Err(error) => panic!("{error}"),
        };
        if taken.is_empty() {
            thread::sleep(soon / 10);
        }
        let names: Vec<Name> = taken.iter().map(|taken| self.mark(taken, began_ns)).collect();
        for (taken, name) in taken.into_iter().zip(&names).rev() {
            self.let_go(server, taken, *name);
        }
        !names.contains(&Name::DISMISSAL)
    }

    /// Marks on the board that this server holds the request, and checks that no other server does.
    fn mark(&self, taken: &Taken<'_>, began_ns: u64) -> Name {
        let (run, board) = (self.hall.run, self.board());
        let (name, delivery) = (taken.name(run), taken.redeliveries());
        if name == Name::DISMISSAL {
            return name;
        }
        assert!(delivery <= run.redeliveries, "{name:?} was delivered {delivery} times before");
        let marks = board.call(name.n());
        // In this order: a server that finds the event must find its taker, although this process
        // may be killed between the two.
        let last = marks.taker.swap(self.number as u64 + 1, SeqCst);
        let events = marks.events.fetch_or(1 << delivery, SeqCst);
        let what = || format!("{name:?} in delivery {delivery}: {events:#x}, server {last} before, {run:?}");
        assert_eq!(events >> delivery & 1, 0, "taken twice: {}", what());
        if last > 0 {
            let doomed_ns = board.party(last as usize - 1).doomed_ns.load(SeqCst);
            assert_ne!(doomed_ns, 0, "taken from a living server: {}", what());
        }
        let sent_ns = marks.sent_ns.load(SeqCst);
        if sent_ns != 0 && delivery == 0 {
            board.waited(&[began_ns, sent_ns], &[self.number], &what);
        }
        board.add(Count::Taken, 1);
        name
    }

    fn let_go(&mut self, server: &Serving, taken: Taken<'_>, name: Name) {
        match self.random.below(32) {
            0 => thread::sleep(Duration::from_micros(self.random.below(3000) as u64)),
            1..8 => thread::sleep(Duration::from_micros(self.random.below(100) as u64)),
            _ => {}
        }
        let (fails, is_kept) = (self.random.below(16) == 0, self.random.below(8) == 0);
        let (run, board) = (self.hall.run, self.board());
        if name == Name::DISMISSAL {
            taken.dismissed();
            return;
        }
        let taken = if is_kept { taken.through_its_number(server, run, name) } else { taken };
        board.add(Count::Kept, u64::from(is_kept));
        let marks = board.call(name.n());
        marks.events.fetch_or(if fails { FAILED } else { ANSWERED }, SeqCst);
        marks.done_ns.store(board.now_ns(), SeqCst);
        if fails {
            return taken.fail(name);
        }
        if name.goes_in_parts(run) {
            board.add(Count::InParts, 1);
        }
        if !taken.reply(run, name) {
            board.add(Count::Unheard, 1);
        }
    }

    fn board(&self) -> &Board {
        &self.hall.board
    }
}
