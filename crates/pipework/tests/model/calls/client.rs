//! The calling end: finds a slot, sends a request in it, waits for its reply, gives the slot back.

use super::recovery::Recovery;
use super::ring::Scan;
use super::{Call, Done, Main, Rule, State, Tag, Turn, Word};

impl Turn<'_> {
    /// Looks at one slot while it needs one. Which one, and whether it rather recovers somebody, is
    /// open.
    pub(crate) fn look_for_slot(&mut self, slot: u8) -> &'static str {
        let seen = self.slot(slot).word;
        if seen.state == State::Free {
            self.actor().main = Main::AcquireSwap { slot, seen };
        }
        "finds a free slot"
    }

    pub(crate) fn client(&mut self) -> Done {
        let number = self.actor().number;
        let tag = Tag { actor: self.me as u8, call: self.actor().calls };
        let Some(call) = self.actor().call else { return Ok(self.without_call(number)) };
        let (next, what) = match self.main() {
            Main::Fill => {
                let slot = self.slot(call.slot);
                (slot.client, slot.request) = (number, tag);
                (Main::Send, "writes its request")
            }
            Main::Send => {
                let filled = self.slot(call.slot).word;
                self.slot(call.slot).word = filled.with(State::Sent, number);
                self.start_push(call.slot);
                (Main::Queue, "sends")
            }
            Main::QueueWait if self.slot(call.slot).word.state == State::Sent => {
                self.start_push(call.slot);
                (Main::Queue, "tries again to push")
            }
            Main::QueueWait => (Main::Wait, "finds that it need not push"),
            Main::Wait => self.look(call),
            Main::ScanHead => (Main::Scan { pos: self.world.head }, "reads the head"),
            Main::Scan { pos } => match self.scan(pos, call.slot) {
                Scan::Found => (Main::Wait, "finds its call in the ring"),
                Scan::Next { pos } => (Main::Scan { pos }, "looks for its call"),
                Scan::Missing => {
                    self.start_push(call.slot);
                    (Main::Wait, "pushes again")
                }
            },
            Main::Hold { seen } => {
                let held = seen.with(State::Held, seen.owner);
                if !self.swap(call.slot, seen, held) {
                    return Err("a living client was robbed of its reply");
                }
                (Main::Copy { seen: held }, "holds its reply")
            }
            Main::Copy { seen } => {
                (Main::Free { seen, reply: self.slot(call.slot).reply }, "copies the reply")
            }
            Main::Free { seen, reply } => {
                if !self.swap(call.slot, seen, seen.freed()) {
                    return Err("a living client was robbed of its reply");
                }
                if seen.state == State::Held && reply != tag {
                    return Err("a reply went to another call");
                }
                self.actor().call = None;
                (Main::Idle, "frees its slot")
            }
            Main::CancelLoad => match self.slot(call.slot).word {
                seen if matches!(seen.state, State::Sent | State::Taken) => {
                    (Main::CancelSwap { seen }, "cancels")
                }
                _ => (Main::Wait, "finds that it is too late to cancel"),
            },
            Main::CancelSwap { seen } => {
                let next = match seen.state {
                    State::Taken if self.scope.keeps(Rule::DropWhatIsTaken) => {
                        seen.with(State::Dropped, seen.owner)
                    }
                    _ => seen.freed(),
                };
                if self.swap(call.slot, seen, next) {
                    self.actor().call = None;
                    (Main::Idle, "has cancelled")
                } else {
                    (Main::CancelLoad, "cancels again")
                }
            }
            Main::Withdraw => {
                let sent =
                    Word { generation: call.generation, owner: number, delivery: 0, state: State::Sent };
                if self.swap(call.slot, sent, sent.freed()) {
                    self.actor().call = None;
                    (Main::Idle, "takes its request back")
                } else {
                    (Main::Wait, "finds that somebody has it")
                }
            }
            main => unreachable!("{main:?} is no client with a call"),
        };
        self.actor().main = next;
        Ok(what)
    }

    fn without_call(&mut self, number: u8) -> &'static str {
        match self.main() {
            Main::Idle if self.actor().calls < self.scope.calls => {
                self.actor().calls += 1;
                self.actor().main = Main::Acquire;
                "begins a call"
            }
            Main::AcquireSwap { slot, seen } => {
                let filled = seen.acquired(number, self.scope);
                if self.swap(slot, seen, filled) {
                    self.slot(slot).claimed = false;
                    self.actor().call = Some(Call { slot, generation: filled.generation });
                    self.actor().main = Main::Fill;
                } else {
                    self.actor().main = Main::Acquire;
                }
                "acquires"
            }
            _ => "rests",
        }
    }

    /// What a client does that finds its call so, or at the end of a slice.
    fn look(&mut self, call: Call) -> (Main, &'static str) {
        let seen = self.slot(call.slot).word;
        match seen.state {
            State::Sent if seen.delivery > 0 && self.scope.keeps(Rule::PushAgain) => {
                (Main::ScanHead, "was sent again")
            }
            State::Taken => {
                self.actor().recovery = Some(Recovery::of(seen.owner));
                (Main::Wait, "asks whether its server lives")
            }
            State::Answered => (Main::Hold { seen }, "finds its reply"),
            State::Died => (Main::Free { seen, reply: Tag::default() }, "hears of a death"),
            _ => (Main::Wait, "waits"),
        }
    }
}
