//! The answering end: takes requests from the ring, and answers each of them once, in as many parts as
//! the scope has. Includes the child that a server forks for a request.

use super::ring::Pop;
use super::{Birth, Done, Entry, Main, Rule, State, Tag, Turn, Word};

const WRONG: &str = "a server has read a wrong request";

/// A request that a server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub(crate) slot: u8,
    /// The word at the claim.
    pub(crate) taken: Word,
    /// The contents of the request.
    of: Tag,
    /// It has read the request.
    read: bool,
    /// Parts of the reply that the client has taken.
    given: u8,
}

impl Work {
    pub(crate) fn of(slot: u8, taken: Word) -> Work {
        Work { slot, taken, of: Tag::default(), read: false, given: 0 }
    }
}

/// The next access of a server that holds a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Serve {
    Read,
    ReadOn,
    Write,
    WriteOn,
    /// Makes step 16, 5 or 23, or finds that the call was cancelled.
    PassLoad {
        to: State,
    },
    PassSwap {
        to: State,
        seen: Word,
        client: u8,
    },
    /// Waits for the client to take a part.
    Wait,
    /// Waits for the child that it has forked.
    Lent {
        child: u8,
    },
    /// Makes step 31 if the request is still this server's.
    GiveBackLoad,
    GiveBackSwap {
        seen: Word,
        client: u8,
    },
    /// Its push is in progress.
    GivenBack,
    /// The ring had no space: it claims the request again, if no other server has.
    Claim {
        seen: Option<Word>,
    },
}

impl Serve {
    /// Whether it is between parts, where the program may do something else.
    pub(crate) fn is_pause(self) -> bool {
        matches!(self, Serve::Read | Serve::Write)
    }
}

impl Turn<'_> {
    pub(crate) fn server(&mut self) -> Done {
        match self.main() {
            Main::Idle => {
                self.actor().main = Main::Pop(Pop::Cell { pos: self.world.head, stale: false });
                Ok("begins to pop")
            }
            Main::Pop(pop) => self.pop(pop),
            Main::Serve(work, at) => self.serve(work, at),
            Main::AdoptLoad => Ok(self.look_whether_to_adopt()),
            Main::AdoptSwap { seen } => Ok(self.adopt(seen)),
            main => unreachable!("{main:?} is no server"),
        }
    }

    fn serve(&mut self, mut work: Work, at: Serve) -> Done {
        let (scope, number) = (self.scope, self.actor().number);
        let slot = self.slot(work.slot);
        let (next, what) = match at {
            Serve::Read => {
                work.of = slot.request[0];
                (Serve::ReadOn, "reads the request")
            }
            Serve::ReadOn => {
                if slot.request[1] != work.of {
                    return Err(WRONG);
                }
                work.read = true;
                (Serve::Write, "has read the request")
            }
            Serve::Write => {
                slot.reply[0] = work.of.part(work.given);
                (Serve::WriteOn, "writes the reply")
            }
            Serve::WriteOn => {
                slot.reply[1] = work.of.part(work.given);
                let last = work.given + 1 == scope.replies;
                let to = if last { State::Answered } else { State::Part };
                (Serve::PassLoad { to }, "writes the reply")
            }
            Serve::PassLoad { to } => {
                let (seen, client) = (slot.word, slot.ends.client);
                if to == State::Part && seen.state == State::Taken {
                    slot.ends.server = number;
                }
                (Serve::PassSwap { to, seen, client }, "begins to pass it on")
            }
            Serve::PassSwap { to, seen, client } => return self.pass(work, to, seen, client),
            Serve::Wait => match slot.word.state {
                State::Taken => (self.next_part(work), "goes on"),
                State::Dropped | State::Forgotten => {
                    (Serve::PassLoad { to: State::Answered }, "finds the call cancelled")
                }
                _ => (Serve::Wait, "waits for the client"),
            },
            Serve::Lent { child } => return Ok(self.look_after(work, child)),
            Serve::GiveBackLoad => {
                let (seen, client) = (slot.word, slot.ends.client);
                match seen.given_back(client, scope) {
                    _ if seen.owner != number || !seen.is_delivery(work.taken) => return Ok(self.finished()),
                    Some(_) => (Serve::GiveBackSwap { seen, client }, "gives it back"),
                    None => (self.next_part(work), "cannot give it back"),
                }
            }
            Serve::GiveBackSwap { seen, client } => {
                let next = seen.given_back(client, scope).expect("it was just looked for");
                if !self.swap(work.slot, seen, next) {
                    (Serve::GiveBackLoad, "gives it back")
                } else {
                    self.slot(work.slot).claimed = false;
                    self.start_push(Entry::of(work.slot, work.taken));
                    (Serve::GivenBack, "has given it back")
                }
            }
            Serve::GivenBack => unreachable!("its push goes first"),
            Serve::Claim { seen } => return self.claim_again(work, seen),
        };
        self.actor().main = Main::Serve(work, next);
        Ok(what)
    }

    fn pass(&mut self, mut work: Work, to: State, seen: Word, client: u8) -> Done {
        let next = match (seen.state, to) {
            (State::Taken, State::Part) => seen.begun(to, client),
            (State::Taken, _) => seen.with(to, client),
            (State::Part, State::Failed) => seen.with(to, seen.owner),
            (State::Dropped | State::Forgotten, _) => seen.freed(),
            // A child has adopted it, and the parent has not checked.
            _ => return Ok(self.finished()),
        };
        let at = match next.state {
            _ if !self.swap(work.slot, seen, next) => Serve::PassLoad { to },
            State::Part => Serve::Wait,
            _ => return Ok(self.finished()),
        };
        work.given += u8::from(next.state == State::Part && at == Serve::Wait);
        self.actor().main = Main::Serve(work, at);
        Ok("passes it on")
    }

    /// The push of the request that it gave back has ended.
    pub(crate) fn gave_back(&mut self, work: Work, queued: bool) {
        if queued || !self.scope.keeps(Rule::ClaimAgainWhenFull) {
            self.finished();
        } else {
            self.actor().main = Main::Serve(work, Serve::Claim { seen: None });
        }
    }

    fn claim_again(&mut self, work: Work, seen: Option<Word>) -> Done {
        let (now, number) = (self.slot(work.slot).word, self.actor().number);
        let Some(seen) = seen else {
            let given_back = Word { delivery: work.taken.delivery + 1, ..work.taken };
            if now.state != State::Sent || !now.is_delivery(given_back) {
                return Ok(self.finished());
            }
            self.actor().main = Main::Serve(work, Serve::Claim { seen: Some(now) });
            return Ok("looks for the request it could not give back");
        };
        let taken = seen.claimed(number);
        self.actor().main = if !self.swap(work.slot, seen, taken) {
            Main::Serve(work, Serve::Claim { seen: None })
        } else if std::mem::replace(&mut self.slot(work.slot).claimed, true) {
            return Err("a request was claimed twice");
        } else {
            let work = Work::of(work.slot, taken);
            Main::Serve(work, self.next_part(work))
        };
        Ok("claims it again")
    }

    /// Starts with a claimed request, or continues with it.
    pub(crate) fn next_part(&self, work: Work) -> Serve {
        if work.read { Serve::Write } else { Serve::Read }
    }

    /// A child that was forked for one request ends with it.
    fn finished(&mut self) -> &'static str {
        if self.actor().born.is_some() {
            return self.leave();
        }
        self.actor().main = Main::Idle;
        "is done with a request"
    }

    /// The parent looks at the word before it writes anything, and answers itself only if the child
    /// is gone.
    fn look_after(&mut self, work: Work, child: u8) -> &'static str {
        let number = self.actor().number;
        let gone = self.world.actors[usize::from(child)].born.is_none_or(|born| born.parent != self.me as u8);
        let now = self.slot(work.slot).word;
        let looks = self.scope.keeps(Rule::LookBeforeReplying);
        if looks && (now.owner != number || !now.is_delivery(work.taken)) {
            return self.finished();
        }
        let next = match now.state {
            State::Dropped if looks => Serve::PassLoad { to: State::Answered },
            _ if gone => self.next_part(work),
            _ => Serve::Lent { child },
        };
        self.actor().main = Main::Serve(work, next);
        "checks the request it has lent"
    }

    /// This process is a new child of a server that holds a request, and the server lends the
    /// request to it.
    pub(crate) fn fork_of(&mut self, parent: u8) -> &'static str {
        let lender = &mut self.world.actors[usize::from(parent)];
        let Main::Serve(work, _) = lender.main else { unreachable!("it has a request") };
        let child = self.me as u8;
        lender.main = Main::Serve(work, Serve::Lent { child });
        self.actor().born = Some(Birth { parent, slot: work.slot, taken: work.taken });
        "is forked"
    }

    fn look_whether_to_adopt(&mut self) -> &'static str {
        let Some(Birth { slot, taken, .. }) = self.actor().born else { unreachable!("it is a child") };
        let scope = self.scope;
        let now = self.slot(slot).word;
        let same = now.is_delivery(taken)
            || now.generation == taken.generation && !scope.keeps(Rule::AdoptTakenDelivery);
        let begun = now.begun && scope.keeps(Rule::BegunIsNotAdopted);
        let open = matches!(now.state, State::Taken | State::Forgotten);
        if now.owner == taken.owner && same && open && !begun {
            self.actor().main = Main::AdoptSwap { seen: now };
            "adopts"
        } else {
            self.leave()
        }
    }

    fn adopt(&mut self, seen: Word) -> &'static str {
        let (number, Some(Birth { slot, .. })) = (self.actor().number, self.actor().born) else {
            unreachable!("it is a child")
        };
        let taken = seen.with(seen.state, number);
        self.actor().main = match self.swap(slot, seen, taken) {
            true => {
                let work = Work::of(slot, taken);
                Main::Serve(work, self.next_part(work))
            }
            false => Main::AdoptLoad,
        };
        "has adopted"
    }
}
