//! The answering end: takes requests from the ring, answers each of them once.

use super::ring::Pop;
use super::{Done, Main, State, Turn};

impl Turn<'_> {
    pub(crate) fn server(&mut self) -> Done {
        let (next, what) = match self.main() {
            Main::Idle => (Main::Pop(Pop::Cell { pos: self.world.head, stale: false }), "begins to pop"),
            Main::Pop(pop) => return self.pop(pop),
            Main::Read { slot, taken } => {
                (Main::Write { slot, taken, request: self.slot(slot).request }, "reads the request")
            }
            Main::Write { slot, taken, request } => {
                self.slot(slot).reply = request;
                (Main::FinishLoad { slot, taken }, "writes the reply")
            }
            Main::FinishLoad { slot, taken } => {
                let (seen, client) = (self.slot(slot).word, self.slot(slot).client);
                (Main::FinishSwap { slot, taken, seen, client }, "begins to finish")
            }
            Main::FinishSwap { slot, taken, seen, client } => {
                let next = match seen.state {
                    State::Taken => seen.with(State::Answered, client),
                    _ => seen.freed(),
                };
                match self.swap(slot, seen, next) {
                    true => (Main::Idle, "finishes"),
                    false => (Main::FinishLoad { slot, taken }, "finishes again"),
                }
            }
            main => unreachable!("{main:?} is no server"),
        };
        self.actor().main = next;
        Ok(what)
    }
}
