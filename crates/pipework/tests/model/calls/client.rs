//! The calling end: finds a slot, sends a request in it, waits for its reply, frees the slot.

use super::{Call, Done, Entry, Main, NOBODY, Quit, Rule, Slot, State, Tag, Turn, Word};

const WRONG: &str = "a client has taken a wrong part";
const LOST_REPLY: &str = "a living client lost its reply";

impl Turn<'_> {
    /// Looks at one slot while it needs one. The search tries every slot, and recovery instead.
    pub(crate) fn look_for_slot(&mut self, slot: u8) -> &'static str {
        let seen = self.slot(slot).word;
        if seen.state == State::Free {
            self.actor().main = Main::AcquireSwap { slot, seen };
        }
        "finds a free slot"
    }

    pub(crate) fn client(&mut self) -> Done {
        let Some(call) = self.actor().call else { return Ok(self.without_call()) };
        match self.main() {
            Main::Wait if call.cancelled => self.is_over("finds its call cancelled"),
            Main::Wait => self.look(call),
            Main::Fill | Main::FillOn | Main::Send | Main::QueueWait | Main::Withdraw => self.send(call),
            Main::Hint => {
                self.world.hint = true;
                self.goes_on(Main::QuitLoad { how: Quit::Forget }, "announces that a request is forgotten")
            }
            Main::QuitLoad { .. } if call.cancelled => self.is_over("finds its call cancelled"),
            Main::QuitLoad { .. } | Main::QuitSwap { .. } => self.quit(call),
            _ => self.take_reply(call),
        }
    }

    fn goes_on(&mut self, next: Main, what: &'static str) -> Done {
        self.actor().main = next;
        Ok(what)
    }

    fn is_over(&mut self, what: &'static str) -> Done {
        self.actor().call = None;
        self.goes_on(Main::Idle, what)
    }

    /// The contents of the parts of this client's call.
    fn tag(&mut self, part: u8) -> Tag {
        Tag { actor: self.me as u8, call: self.actor().calls, part }
    }

    fn send(&mut self, call: Call) -> Done {
        let (number, tag) = (self.actor().number, self.tag(0));
        let (pushes, withdraws) = (
            self.scope.keeps(Rule::PushForgottenRequests),
            self.scope.keeps(Rule::WithdrawForgottenRequests),
        );
        let (main, slot) = (self.main(), self.slot(call.slot));
        let sent = Word { generation: call.generation, owner: number, state: State::Sent, ..Word::default() };
        let forgotten = Word { owner: NOBODY, ..sent };
        let may_push = slot.word == sent || slot.word == forgotten && pushes;
        match main {
            Main::Fill => {
                (slot.ends.client, slot.request[0]) = (number, tag);
                self.goes_on(Main::FillOn, "writes its request")
            }
            Main::FillOn => {
                slot.request[1] = tag;
                self.goes_on(Main::Send, "writes its request")
            }
            Main::Send => {
                slot.word = slot.word.with(State::Sent, number);
                self.start_push(Entry::of(call.slot, sent));
                self.goes_on(Main::Queue, "sends")
            }
            Main::QueueWait if may_push => {
                self.start_push(Entry::of(call.slot, sent));
                self.goes_on(Main::Queue, "tries again to push")
            }
            Main::QueueWait => self.goes_on(Main::Wait, "finds that no push is needed"),
            _ => {
                let from = if slot.word == forgotten && withdraws { forgotten } else { sent };
                match self.swap(call.slot, from, sent.freed()) {
                    true => self.is_over("takes its request back"),
                    false => self.goes_on(Main::Wait, "finds that a server has it"),
                }
            }
        }
    }

    /// The next step of a client that finds its call in this state.
    fn look(&mut self, call: Call) -> Done {
        let copies_first = self.scope.keeps(Rule::CopyBeforeTaking);
        let seen = self.slot(call.slot).word;
        match seen.state {
            State::Part if copies_first => self.goes_on(Main::Copy { seen }, "finds a part"),
            State::Part => self.goes_on(Main::Take { seen, good: true }, "finds a part"),
            State::Answered => self.goes_on(Main::Hold { seen }, "finds its reply"),
            State::Failed | State::Died => self.goes_on(Main::Free { seen, good: false }, "gets a failure"),
            _ => self.goes_on(Main::Wait, "waits"),
        }
    }

    /// Takes a part of the reply, or the last one.
    fn take_reply(&mut self, call: Call) -> Done {
        let copies_first = self.scope.keeps(Rule::CopyBeforeTaking);
        let tag = self.tag(call.got);
        let Slot { reply, ends, .. } = *self.slot(call.slot);
        match self.main() {
            Main::Hold { seen } => {
                let held = seen.with(State::Held, seen.owner);
                match self.swap(call.slot, seen, held) {
                    true => self.goes_on(Main::Copy { seen: held }, "holds its reply"),
                    false => Err(LOST_REPLY),
                }
            }
            Main::Copy { seen } => {
                self.goes_on(Main::CopyOn { seen, good: reply[0] == tag }, "copies the reply")
            }
            Main::CopyOn { seen, good } => {
                let good = good && reply[1] == tag;
                match seen.state {
                    State::Part if copies_first => {
                        self.goes_on(Main::Take { seen, good }, "copies the reply")
                    }
                    State::Part => self.hand_on(call, good),
                    _ => self.goes_on(Main::Free { seen, good }, "copies the reply"),
                }
            }
            Main::Take { seen, good } => {
                let taken = self.swap(call.slot, seen, seen.with(State::Taken, ends.server));
                match taken || !self.scope.keeps(Rule::DiscardUntakenCopies) {
                    true if copies_first => self.hand_on(call, good),
                    true => self.goes_on(Main::Copy { seen }, "takes a part"),
                    false => self.goes_on(Main::Wait, "throws its copy away"),
                }
            }
            Main::Free { seen, good } => {
                if !self.swap(call.slot, seen, seen.freed()) {
                    return Err(LOST_REPLY);
                }
                match seen.state {
                    State::Held if !good => Err(WRONG),
                    State::Held if call.got + 1 != self.scope.replies => {
                        Err("a reply ended before its last part")
                    }
                    _ => self.is_over("frees its slot"),
                }
            }
            main => unreachable!("{main:?} is no client with a call"),
        }
    }

    fn hand_on(&mut self, call: Call, good: bool) -> Done {
        self.actor().call = Some(Call { got: call.got + 1, ..call });
        if good { self.goes_on(Main::Wait, "hands a part on") } else { Err(WRONG) }
    }

    /// Cancels or forgets its call.
    fn quit(&mut self, call: Call) -> Done {
        match self.main() {
            Main::QuitSwap { how, seen } => {
                let next = self.without_caller(call, how, seen);
                if !self.swap(call.slot, seen, next) {
                    return self.goes_on(Main::QuitLoad { how }, "gives its call up again");
                }
                self.slot(call.slot).forgotten = how == Quit::Forget;
                self.actor().call = None;
                let hints = how == Quit::Forget && !self.scope.keeps(Rule::HintBeforeForgetting);
                self.goes_on(if hints { Main::Hint } else { Main::Idle }, "has given its call up")
            }
            Main::QuitLoad { how } => match self.slot(call.slot).word {
                seen if matches!(seen.state, State::Sent | State::Taken | State::Part) => {
                    self.goes_on(Main::QuitSwap { how, seen }, "gives its call up")
                }
                _ => self.goes_on(Main::Wait, "finds that it is done"),
            },
            main => unreachable!("{main:?} is not about to give its call up"),
        }
    }

    fn without_call(&mut self) -> &'static str {
        let number = self.actor().number;
        match self.main() {
            Main::Idle if self.actor().calls < self.scope.calls => {
                self.actor().calls += 1;
                self.actor().main = Main::Acquire;
                "begins a call"
            }
            Main::AcquireSwap { slot, seen } => {
                let filled = seen.acquired(number, self.scope);
                if self.swap(slot, seen, filled) {
                    let Word { generation, .. } = filled;
                    (self.slot(slot).claimed, self.slot(slot).forgotten) = (false, false);
                    self.actor().call = Some(Call { slot, generation, got: 0, cancelled: false });
                    self.actor().main = Main::Fill;
                } else {
                    self.actor().main = Main::Acquire;
                }
                "acquires"
            }
            Main::Hint => {
                (self.world.hint, self.actor().main) = (true, Main::Idle);
                "announces too late that a request is forgotten"
            }
            _ => "rests",
        }
    }

    /// Another thread of this client cancels the call that this one has seen in PART.
    pub(crate) fn cancel_aside(&mut self, seen: Word) -> &'static str {
        let Some(call) = self.actor().call else { unreachable!("it has a call") };
        let next = self.without_caller(call, Quit::Cancel, seen);
        if self.swap(call.slot, seen, next) {
            self.world.left.cancels -= 1;
            self.actor().call = Some(Call { cancelled: true, ..call });
        }
        "has it cancelled by another thread"
    }

    /// Another thread of this client forgets the call.
    pub(crate) fn forget_aside(&mut self) -> &'static str {
        let Some(call) = self.actor().call else { unreachable!("it has a call") };
        let seen = self.slot(call.slot).word;
        let next = self.without_caller(call, Quit::Forget, seen);
        self.world.hint = true;
        self.world.left.forgets_aside -= 1;
        let slot = self.slot(call.slot);
        (slot.word, slot.forgotten) = (next, next.is_forgotten());
        self.actor().call = Some(Call { cancelled: true, ..call });
        "has it forgotten by another thread"
    }

    /// The word after the client is gone: steps 3, 6, 20, 25 and 26.
    fn without_caller(&mut self, call: Call, how: Quit, seen: Word) -> Word {
        let server = match seen.state {
            State::Taken => seen.owner,
            _ => self.slot(call.slot).ends.server,
        };
        let stays = match (how, seen.state) {
            (_, State::Taken) => self.scope.keeps(Rule::DropTakenCalls),
            _ => self.scope.keeps(Rule::DropBegunCalls),
        };
        match (how, seen.state) {
            (Quit::Cancel, State::Sent) => seen.freed(),
            (Quit::Forget, State::Sent) => seen.with(State::Sent, NOBODY),
            _ if !stays => seen.freed(),
            (Quit::Forget, _) if self.scope.keeps(Rule::ForgottenIsNotDropped) => {
                seen.with(State::Forgotten, server)
            }
            _ => seen.with(State::Dropped, server),
        }
    }
}
