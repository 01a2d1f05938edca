//! The steps of clients and servers, and the choices that they have.

use super::is_worth_a_look;
use super::look::Look;
use super::world::{Handle, Name, State, Word, World};
use super::{
    BirthAt, Choice, Done, Main, NOT_FOUND, Part, ReceiveAt, ReuseAt, Rule, Scope, TORN, Then, Turn,
};
use crate::search::Kind;

impl Scope {
    pub(super) fn choices(&self, world: &World, me: usize, step: &mut impl FnMut(Kind, Choice)) {
        let actor = &world.actors[me];
        if actor.is_gone() {
            return;
        }
        let (part, calls) = (self.part(me), actor.calls > 0);
        if world.left.deaths > 0 && part != Part::Canceller {
            step(Kind::Whim, Choice::Die);
        }
        if self.waits_for_thread(world, me) {
            return;
        }
        if !actor.is_at_rest() {
            return step(Kind::Work, Choice::GoOn);
        }
        if part == Part::Canceller {
            let is_part = |slot: &u8| world.slots[usize::from(*slot)].word.is(State::Part, me - 1);
            for slot in self.slots().filter(is_part).filter(|_| world.left.cancels > 0) {
                step(Kind::Whim, Choice::CancelAside(slot));
            }
            return;
        }
        let waits = matches!(actor.main, Main::Idle | Main::Wait { .. } | Main::PartWait { .. });
        if waits || matches!(actor.main, Main::Serve { .. }) {
            for file in self.files() {
                if actor.blobs[file] > 0 {
                    step(Kind::Work, Choice::Drop(file as u8));
                }
                if actor.inherits[file] {
                    step(Kind::Work, Choice::DropInherited(file as u8));
                }
            }
        }
        if waits || matches!(actor.main, Main::Acquire { .. }) {
            let dead = |gone: &usize| world.actors[*gone].is_gone() && world.actors[*gone].role;
            // A living client is asked about only where it matters that it may die afterwards.
            let has_part = |gone: &usize| world.slots.iter().any(|slot| slot.word.is(State::Part, *gone));
            let may_die = |gone: &usize| world.left.deaths > 0 && *gone != me && has_part(gone);
            let gone = (0..self.cast.len()).filter(|gone| dead(gone) || may_die(gone));
            gone.for_each(|gone| step(Kind::Work, Choice::Recover(gone as u8)));
        }
        match actor.main {
            Main::Idle => {
                for file in self.files() {
                    if self.is_pooled(world, me, file) {
                        step(Kind::Work, Choice::GiveUp(file as u8));
                    }
                    if actor.listed[file] && is_worth_a_look(world, file) {
                        step(Kind::Work, Choice::LookAgain(file as u8));
                    }
                    let may_send = part == Part::Forwarder || part == Part::Child && self.joins;
                    if calls && may_send && actor.has_blob(file) {
                        step(Kind::Work, Choice::Send(file as u8));
                    }
                }
                if part == Part::Client && calls {
                    self.drafts(world, me, step);
                }
                let has_file = |file| actor.has_blob(file) || world.opens[me][file].interest;
                if part == Part::Client && world.left.leaves > 0 && !self.files().any(has_file) {
                    step(Kind::Whim, Choice::Leave);
                }
                if part == Part::Child && !self.files().any(|file| actor.has_blob(file)) {
                    step(Kind::Work, Choice::Exit);
                }
                if self.is_server(me) {
                    let is_sent = |slot: &u8| world.slots[usize::from(*slot)].word.state == State::Sent;
                    self.slots().filter(is_sent).for_each(|slot| step(Kind::Work, Choice::Claim(slot)));
                }
                self.forks(world, me, step);
            }
            Main::Acquire { .. } => {
                let is_free = |slot: &u8| world.slots[usize::from(*slot)].word.state == State::Free;
                self.slots().filter(is_free).for_each(|slot| step(Kind::Work, Choice::Acquire(slot)));
                if !self.slots().any(|slot| is_free(&slot)) && part == Part::Forwarder {
                    step(Kind::Work, Choice::FindNoSlot);
                }
            }
            Main::Wait { slot } => {
                let word = world.slots[usize::from(slot)].word;
                if !matches!(word.state, State::Sent | State::Taken) || word.generation != actor.call {
                    step(Kind::Work, Choice::GoOn);
                }
                // The client times out unless a server is alive and does not wait itself.
                let serves = |other: usize| {
                    let it = &world.actors[other];
                    let waits = matches!(it.main, Main::Acquire { .. } | Main::Wait { .. });
                    self.is_server(other) && other != me && !it.is_gone() && !waits
                };
                if !(0..self.cast.len()).any(serves) {
                    step(Kind::Work, Choice::Cancel { is_whim: false });
                } else if world.left.cancels > 0 {
                    step(Kind::Whim, Choice::Cancel { is_whim: true });
                }
                self.forks(world, me, step);
            }
            Main::PartWait { slot } => {
                if world.slots[usize::from(slot)].word.state != State::Part {
                    step(Kind::Work, Choice::GoOn);
                } else if world.left.failures > 0 {
                    step(Kind::Whim, Choice::Fail);
                }
            }
            Main::Serve { slot } => {
                let begun = world.slots[usize::from(slot)].word.begun;
                step(Kind::Work, Choice::Reply(None, State::Answered));
                if part == Part::Echo && self.parts && begun && calls {
                    step(Kind::Work, Choice::Reply(None, State::Part));
                }
                for file in self.files().filter(|file| actor.has_blob(*file)) {
                    if part == Part::Echo {
                        step(Kind::Work, Choice::Reply(Some(file as u8), State::Answered));
                    }
                    if part == Part::Echo && self.parts && !begun && calls {
                        step(Kind::Work, Choice::Reply(Some(file as u8), State::Part));
                    }
                    if part == Part::Forwarder && calls {
                        step(Kind::Work, Choice::Send(file as u8));
                    }
                }
                if part == Part::Maker && calls {
                    self.drafts(world, me, step);
                }
            }
            _ => step(Kind::Work, Choice::GoOn),
        }
    }

    /// Whether another thread of its process has the lock that it needs.
    fn waits_for_thread(&self, world: &World, me: usize) -> bool {
        let parts = |actor: &super::Actor| actor.detach.filter(|_| actor.sweep.is_none());
        let wants = parts(&world.actors[me]).is_some_and(|detach| detach.wants_lock());
        let has = |other: usize| {
            self.is_beside(me, other) && parts(&world.actors[other]).is_some_and(|detach| detach.has_lock())
        };
        wants && self.keeps(Rule::PartsUnderOneLock) && (0..self.cast.len()).any(has)
    }

    /// Whether two actors are threads of one process.
    fn is_beside(&self, me: usize, other: usize) -> bool {
        me != other && self.process(me) == self.process(other)
    }

    /// The files that may become a draft: one from the pool, or else a new one.
    fn drafts(&self, world: &World, me: usize, step: &mut impl FnMut(Kind, Choice)) {
        let (mut pool, actor) = (false, &world.actors[me]);
        for file in self.files().filter(|file| self.is_pooled(world, me, *file) || actor.given_up[*file]) {
            pool = true;
            step(Kind::Work, Choice::Reuse(file as u8));
        }
        let new = self.files().find(|file| world.files[*file].name == Name::None);
        new.filter(|_| !pool).into_iter().for_each(|file| step(Kind::Work, Choice::Birth(file as u8)));
    }

    fn is_pooled(&self, world: &World, me: usize, file: usize) -> bool {
        let is_free = !self.detaches_beside(world, me, file) || !self.keeps(Rule::DetachKeepsFromReuse);
        world.opens[me][file].interest && world.actors[me].blobs[file] == 0 && is_free
    }

    /// Whether another thread of the process relies on its lock of a file.
    pub(super) fn detaches_beside(&self, world: &World, me: usize, file: usize) -> bool {
        let detaches = |other: usize| {
            let detach = world.actors[other].detach.filter(|_| self.is_beside(me, other));
            detach.is_some_and(|detach| detach.locked[file])
        };
        (0..self.cast.len()).any(detaches)
    }

    fn forks(&self, world: &World, me: usize, step: &mut impl FnMut(Kind, Choice)) {
        let child = (0..self.cast.len()).find(|child| self.is_child(*child));
        if let Some(child) = child.filter(|_| world.left.forks > 0 && self.part(me) == Part::Client) {
            step(Kind::Whim, Choice::Fork { child: child as u8 });
        }
    }
}

impl Turn<'_> {
    pub(super) fn choose(&mut self, choice: Choice) -> Done {
        let (scope, me) = (self.scope, self.me as u8);
        let main = self.actor().main;
        match (choice, main) {
            (Choice::Fork { child }, _) => {
                self.world.left.forks -= 1;
                self.fork(usize::from(child));
                Ok("forks")
            }
            (Choice::Reuse(file), _) => {
                if self.world.actors[self.me].given_up[usize::from(file)] {
                    self.world.opens[self.me][usize::from(file)].interest = true;
                }
                self.actor().main =
                    Main::Reuse { file, changed: false, at: ReuseAt::Read { counted: false } };
                Ok("tries a file of its pool")
            }
            (Choice::Birth(file), _) if scope.unnamed => {
                *self.file(file) =
                    super::world::File { name: Name::Final, generation: 1, ..Default::default() };
                self.world.opens[self.me][usize::from(file)].interest = true;
                self.actor().main = Main::Write { file };
                Ok("links a new file")
            }
            (Choice::Birth(file), _) => {
                self.actor().main = Main::Birth { file, at: BirthAt::Create };
                self.go_on()
            }
            (Choice::Send(file), _) => {
                self.actor().calls -= 1;
                self.actor().main = Main::Acquire { file };
                Ok("wants to send its blob")
            }
            (Choice::Acquire(slot), Main::Acquire { file }) => {
                let it = self.slot(slot);
                it.word = Word {
                    generation: it.word.generation + 1,
                    owner: me,
                    state: State::Fill,
                    ..Word::default()
                };
                it.client = me;
                let call = it.word.generation;
                self.actor().call = call;
                self.actor().main = if self.keeps(Rule::CountBeforePublishing) {
                    Main::Count { slot, file }
                } else {
                    Main::Handle { slot, file }
                };
                Ok("acquires a slot")
            }
            (Choice::FindNoSlot, _) => {
                self.actor().main = self.home();
                Ok("finds no slot")
            }
            (Choice::Claim(slot), _) => {
                let call = self.slot(slot).word.generation;
                self.actor().main = Main::FindRequest { slot, call };
                Ok("finds a request")
            }
            (Choice::Reply(file, to), Main::Serve { slot }) => {
                self.actor().calls -= u8::from(to == State::Part);
                self.actor().main = match file {
                    Some(file) => Main::ReplyCount { slot, file, to },
                    None => Main::ReplyHandle { slot, file, to },
                };
                self.go_on()
            }
            (Choice::Cancel { is_whim }, Main::Wait { slot }) => {
                self.world.left.cancels -= u8::from(is_whim);
                self.actor().main = Main::Cancel { slot };
                self.go_on()
            }
            (Choice::CancelAside(slot), _) => {
                self.world.left.cancels -= 1;
                let it = *self.slot(slot);
                self.actor().main = Main::Aside { slot };
                self.start_detach(slot, it.word.with(State::Dropped, it.server));
                Ok("begins to cancel beside another thread")
            }
            (Choice::Fail, Main::PartWait { slot }) => {
                self.world.left.failures -= 1;
                self.actor().main = Main::Fail { slot };
                self.go_on()
            }
            _ => unreachable!("{choice:?} in {main:?}"),
        }
    }

    pub(super) fn go_on(&mut self) -> Done {
        let me = self.me as u8;
        match self.actor().main {
            Main::Reuse { file, changed, at } => self.reuse(file, changed, at),
            Main::Birth { file, at } => self.birth(file, at),
            Main::Write { file } => {
                let to = if self.scope.parts { State::Part } else { State::Answered };
                let generation = self.file(file).generation;
                self.file(file).data = generation;
                let actor = self.actor();
                actor.calls -= 1;
                actor.blobs[usize::from(file)] = 1;
                actor.generations[usize::from(file)] = generation;
                actor.main = match actor.serves {
                    Some(slot) => Main::ReplyCount { slot, file, to },
                    None => Main::Acquire { file },
                };
                Ok("fills a blob")
            }
            Main::Count { slot, file } => {
                self.raise(file);
                self.actor().main = Main::Handle { slot, file };
                Ok("raises the count")
            }
            Main::Handle { slot, file } => {
                self.slot(slot).request = Some(self.handle(file));
                self.actor().main = Main::Publish { slot, file };
                Ok("writes a handle")
            }
            Main::Publish { slot, file } => {
                let it = self.slot(slot);
                it.word = it.word.with(State::Sent, me);
                self.actor().main = if self.keeps(Rule::CountBeforePublishing) {
                    Main::Wait { slot }
                } else {
                    Main::CountLate { slot, file }
                };
                Ok("publishes its request")
            }
            Main::CountLate { slot, file } => {
                self.raise(file);
                self.actor().main = Main::Wait { slot };
                Ok("raises the count too late")
            }
            Main::Wait { slot } => self.wait(slot),
            Main::Receive { slot, handle, at, then } => self.receive(slot, handle, at, then),
            Main::FindRequest { slot, call } => {
                match self.slot(slot).request {
                    Some(handle) => self.start_receive(slot, handle, Then::Claim { call })?,
                    None => self.actor().main = Main::Claim { slot, call, handle: None, torn: false },
                }
                Ok("reads the handle of a request")
            }
            Main::Claim { slot, call, handle, torn } => {
                let is_any = !self.keeps(Rule::ClaimTheCallSeen) && self.is_state(slot, State::Sent);
                if !self.is_sent(slot, call) && !is_any {
                    self.throw_away(slot, handle);
                    return Ok("finds another server faster, or the call ended");
                }
                if torn {
                    return Err(TORN);
                }
                let it = self.slot(slot);
                it.word = it.word.with(State::Taken, me);
                it.server = me;
                let actor = self.actor();
                actor.serves = Some(slot);
                actor.main = Main::Serve { slot };
                if let Some(Handle { file, generation }) = handle {
                    actor.borrowed[usize::from(file)] = false;
                    actor.blobs[usize::from(file)] += 1;
                    actor.generations[usize::from(file)] = generation;
                    if !self.keeps(Rule::RequestStaysNamed) {
                        self.lower(file);
                    }
                }
                Ok("claims a request")
            }
            Main::TakePart { slot, handle, torn } => {
                let it = *self.slot(slot);
                if !self.has_part(slot) {
                    if torn && !self.keeps(Rule::DiscardLostCopies) {
                        return Err(TORN);
                    }
                    self.throw_away(slot, handle);
                    return Ok("throws a part away");
                }
                self.start_detach(slot, it.word.with(State::Taken, it.server));
                Ok("begins to take a part")
            }
            Main::GivingUp { file } => {
                self.give_up(usize::from(file));
                self.actor().main = Main::Idle;
                Ok("gives its interest up")
            }
            Main::Leaving { file } => {
                let listed = self.actor().listed;
                let Some(next) = (file..).zip(&listed[usize::from(file)..]).find(|(_, listed)| **listed)
                else {
                    self.vanish();
                    self.actor().role = false;
                    return Ok("leaves");
                };
                self.actor().main = Main::Leaving { file: next.0 + 1 };
                self.actor().look = Some(Look::after(next.0, None));
                Ok("looks at its list before it leaves")
            }
            Main::Finish { slot, .. } => {
                let to = self.slot(slot).word.freed();
                self.start_detach(slot, to);
                self.detach()
            }
            Main::Cancel { slot } => {
                let it = *self.slot(slot);
                let to = match it.word.state {
                    State::Sent => it.word.freed(),
                    State::Taken => it.word.with(State::Dropped, it.word.owner),
                    State::Part => it.word.with(State::Dropped, it.server),
                    _ => {
                        self.actor().main = Main::Wait { slot };
                        return self.wait(slot);
                    }
                };
                self.start_detach(slot, to);
                Ok("begins to cancel its call")
            }
            Main::ReplyCount { slot, file, to } => {
                self.raise(file);
                self.actor().main = Main::ReplyHandle { slot, file: Some(file), to };
                Ok("raises the count for its reply")
            }
            Main::ReplyHandle { slot, file, to } => {
                self.slot(slot).reply = file.map(|file| self.handle(file));
                self.actor().main = Main::Reply { slot, file, to };
                Ok("writes the handles of its reply")
            }
            Main::Reply { slot, file, to } => {
                let it = self.slot(slot);
                if !it.word.is(State::Taken, usize::from(me)) {
                    self.actor().main = match file {
                        Some(file) if self.keeps(Rule::LowerUnpublishedCount) => Main::Undo { slot, file },
                        _ => Main::Dropping { slot },
                    };
                    return Ok("finds its request cancelled");
                }
                let begun = it.word.begun || to == State::Part;
                it.word = Word { begun, ..it.word.with(to, it.client) };
                self.actor().main =
                    if to == State::Part { Main::PartWait { slot } } else { self.end_request() };
                Ok("replies")
            }
            Main::Undo { slot, file } => {
                self.lower(file);
                self.actor().main = Main::Dropping { slot };
                Ok("lowers the count again")
            }
            Main::Dropping { slot } => {
                let to = self.slot(slot).word.freed();
                self.start_detach(slot, to);
                self.detach()
            }
            Main::PartWait { slot } => {
                let is_taken = self.is_state(slot, State::Taken);
                self.actor().main = if is_taken { Main::Serve { slot } } else { Main::Dropping { slot } };
                Ok("sees whether its part was taken")
            }
            Main::Fail { slot } => {
                let it = *self.slot(slot);
                if it.word.state != State::Part {
                    self.actor().main = Main::PartWait { slot };
                    return Ok("has no request to fail");
                }
                self.start_detach(slot, it.word.with(State::Failed, it.client));
                self.detach()
            }
            Main::Gone
            | Main::Idle
            | Main::Acquire { .. }
            | Main::Hold { .. }
            | Main::Serve { .. }
            | Main::Aside { .. } => unreachable!("it chooses"),
        }
    }

    fn handle(&self, file: u8) -> Handle {
        Handle { file, generation: self.world.files[usize::from(file)].generation }
    }

    fn home(&self) -> Main {
        self.world.actors[self.me].serves.map_or(Main::Idle, |slot| Main::Serve { slot })
    }

    fn end_request(&mut self) -> Main {
        self.actor().serves = None;
        Main::Idle
    }

    fn reuse(&mut self, file: u8, changed: bool, at: ReuseAt) -> Done {
        let idx = usize::from(file);
        let named = self.world.files[idx].named;
        let (next, what) = match at {
            ReuseAt::Read { counted } => {
                let is_free = named.count == 0 || !self.keeps(Rule::CountBeforeReuse);
                let counts = !is_free && named.doubted && !counted;
                if counts {
                    self.actor().look = Some(Look::for_reuse(file, named));
                }
                let next = if is_free { Some(ReuseAt::Ask) } else { None };
                (next.or(counts.then_some(ReuseAt::Read { counted: true })), "reads `named` for re-use")
            }
            ReuseAt::Ask => {
                let is_held = self.world.is_held(idx) && self.keeps(Rule::AskBeforeReuse);
                ((!is_held).then_some(ReuseAt::ReadAgain), "asks for holders")
            }
            ReuseAt::ReadAgain => {
                let is_same = !changed || !self.keeps(Rule::ReadNamedAgainBeforeReuse);
                if is_same && named.doubted {
                    self.world.change_named(file, |named| named.doubted = false);
                }
                (is_same.then_some(ReuseAt::Raise), "reads `named` again for re-use")
            }
            ReuseAt::Raise => {
                self.world.files[idx].generation += 1;
                self.actor().main = Main::Write { file };
                self.actor().given_up[idx] = false;
                return Ok("raises the generation");
            }
        };
        self.actor().main = next.map_or(self.home(), |at| Main::Reuse {
            file,
            changed: changed && at == ReuseAt::ReadAgain,
            at,
        });
        Ok(what)
    }

    /// Makes a file where the file system has no files without a name.
    fn birth(&mut self, file: u8, at: BirthAt) -> Done {
        let open = &mut self.world.opens[self.me][usize::from(file)];
        let it = &mut self.world.files[usize::from(file)];
        let (next, what) = match at {
            BirthAt::Create => {
                it.name = if self.scope.keeps(Rule::RenameAtTheEnd) { Name::New } else { Name::Final };
                (Some(BirthAt::Lock), "makes a file")
            }
            BirthAt::Lock => {
                open.interest = true;
                (Some(BirthAt::Header), "locks its file")
            }
            BirthAt::Header => {
                it.generation = 1;
                (Some(BirthAt::Rename), "writes its file's header")
            }
            BirthAt::Rename => {
                if it.name == Name::Unlinked {
                    *open = Default::default();
                    self.actor().main = self.home();
                    return Ok("finds its file unlinked");
                }
                it.name = Name::Final;
                (None, "gives its file its name")
            }
        };
        self.actor().main = next.map_or(Main::Write { file }, |at| Main::Birth { file, at });
        Ok(what)
    }

    fn wait(&mut self, slot: u8) -> Done {
        let it = *self.slot(slot);
        let (me, holds) = (self.me as u8, self.scope.holds_replies);
        match it.word.state {
            State::Free | State::Dropped => self.end_call("sees that its call was cancelled"),
            _ if it.word.generation != self.actor().call => self.end_call("sees another call"),
            State::Answered | State::Died if holds => {
                let died = it.word.state == State::Died;
                if died && self.keeps(Rule::DiedIsNotHeld) {
                    self.actor().main = Main::Finish { slot, late: None };
                    return Ok("sees that its server has died");
                }
                self.actor().main = Main::Hold { slot, died };
                self.start_detach(slot, it.word.with(State::Held, me));
                self.detach()
            }
            State::Answered | State::Part => {
                self.receive_reply(slot)?;
                Ok("sees its reply")
            }
            _ => {
                self.actor().main = Main::Finish { slot, late: None };
                Ok("sees the end of its call")
            }
        }
    }

    fn receive_reply(&mut self, slot: u8) -> Result<(), &'static str> {
        let it = *self.slot(slot);
        let then = if it.word.state == State::Part { Then::TakePart } else { Then::Finish };
        let rule = if self.copies() { Rule::CopyBeforeFreeing } else { Rule::LockBeforeFreeing };
        match it.reply {
            None if then == Then::TakePart => {
                self.actor().main = Main::TakePart { slot, handle: None, torn: false };
            }
            Some(handle) if then == Then::TakePart || self.keeps(rule) => {
                self.start_receive(slot, handle, then)?;
            }
            late => self.actor().main = Main::Finish { slot, late },
        }
        Ok(())
    }

    fn start_receive(&mut self, slot: u8, handle: Handle, then: Then) -> Result<(), &'static str> {
        let file = usize::from(handle.file);
        if self.copies() || !self.world.opens[self.me][file].is_locked() {
            self.actor().main = Main::Receive { slot, handle, at: ReceiveAt::Open, then };
            return Ok(());
        }
        self.received(slot, handle, then)
    }

    /// Whether this process copies what it receives.
    fn copies(&self) -> bool {
        self.scope.copies && matches!(self.scope.part(self.me), Part::Client | Part::Child | Part::Server)
    }

    fn receive(&mut self, slot: u8, handle: Handle, at: ReceiveAt, then: Then) -> Done {
        let file = usize::from(handle.file);
        let (next, what) = match at {
            ReceiveAt::Open if self.world.files[file].name != Name::Final => {
                return self.has_not_found(slot, handle, then);
            }
            ReceiveAt::Open if self.copies() => (ReceiveAt::Check, "opens the file it copies"),
            ReceiveAt::Open => (ReceiveAt::Lock, "opens the file it receives"),
            ReceiveAt::Lock => {
                self.world.opens[self.me][file].hold = true;
                (ReceiveAt::Check, "locks the file it receives")
            }
            ReceiveAt::Check if self.copies() => {
                if self.world.files[file].generation != handle.generation {
                    return self.has_not_found(slot, handle, then);
                }
                (ReceiveAt::CopyHalf, "checks the file it copies")
            }
            ReceiveAt::CopyHalf => {
                let torn = self.world.files[file].data != handle.generation;
                (ReceiveAt::CopyRest { torn }, "copies a half of a blob")
            }
            ReceiveAt::CopyRest { torn } => {
                let torn = torn || self.world.files[file].data != handle.generation;
                self.copied(slot, then, torn)?;
                return Ok("copies the rest of a blob");
            }
            ReceiveAt::Check => {
                self.actor().borrowed[file] = then.is_uncertain();
                if !self.world.is_whole(handle) {
                    return self.has_not_found(slot, handle, then);
                }
                self.received(slot, handle, then)?;
                return Ok("has received a blob");
            }
        };
        self.actor().main = Main::Receive { slot, handle, at: next, then };
        Ok(what)
    }

    fn copied(&mut self, slot: u8, then: Then, torn: bool) -> Result<(), &'static str> {
        if torn && !then.is_uncertain() {
            return Err(TORN);
        }
        self.actor().main = match then {
            Then::Claim { call } => Main::Claim { slot, call, handle: None, torn },
            Then::TakePart => Main::TakePart { slot, handle: None, torn },
            Then::Finish => Main::Finish { slot, late: None },
            Then::End => self.home(),
        };
        Ok(())
    }

    fn received(&mut self, slot: u8, handle: Handle, then: Then) -> Result<(), &'static str> {
        let Handle { file, generation } = handle;
        if !self.world.is_whole(handle) {
            return self.has_not_found(slot, handle, then).map(drop);
        }
        let home = self.home();
        let actor = self.actor();
        // The program gets the blob when the word is swapped.
        match then {
            Then::TakePart => {
                actor.main = Main::TakePart { slot, handle: Some(handle), torn: false };
                return Ok(());
            }
            Then::Claim { call } => {
                actor.main = Main::Claim { slot, call, handle: Some(handle), torn: false };
                return Ok(());
            }
            Then::Finish | Then::End => {}
        }
        actor.blobs[usize::from(file)] += 1;
        actor.generations[usize::from(file)] = generation;
        actor.main = match then {
            Then::Claim { .. } | Then::TakePart => unreachable!("see above"),
            Then::Finish => Main::Finish { slot, late: None },
            Then::End => home,
        };
        Ok(())
    }

    /// Whether the slot has a part of the reply to this process's call.
    fn has_part(&self, slot: u8) -> bool {
        let word = self.world.slots[usize::from(slot)].word;
        word.is(State::Part, self.me) && word.generation == self.world.actors[self.me].call
    }

    /// Whether the slot has a request that waits, of the call that this process has seen.
    fn is_sent(&self, slot: u8, call: u8) -> bool {
        let word = self.world.slots[usize::from(slot)].word;
        word.state == State::Sent && word.generation == call
    }

    /// There is no such file, or it has another generation. That is a fault unless the slot has moved
    /// on: another thread has cancelled the call, or another server has claimed the request.
    fn has_not_found(&mut self, slot: u8, handle: Handle, then: Then) -> Done {
        let is_named = match then {
            Then::TakePart => self.has_part(slot),
            Then::Claim { call } => self.is_sent(slot, call),
            Then::Finish | Then::End => true,
        };
        if is_named {
            return Err(NOT_FOUND);
        }
        self.throw_away(slot, Some(handle));
        Ok("finds its call cancelled")
    }

    /// Discards what was received, because the slot has moved on.
    fn throw_away(&mut self, slot: u8, handle: Option<Handle>) {
        let main = self.actor().main;
        let claims = matches!(main, Main::FindRequest { .. } | Main::Claim { .. })
            || matches!(main, Main::Receive { then: Then::Claim { .. }, .. });
        self.actor().main = if claims { Main::Idle } else { Main::Wait { slot } };
        if let Some(file) = handle.map(|handle| usize::from(handle.file))
            && std::mem::take(&mut self.actor().borrowed[file])
        {
            self.let_go(file, true);
        }
    }

    fn end_call(&mut self, what: &'static str) -> Done {
        self.actor().main = self.home();
        Ok(what)
    }

    /// A swap by this process in its own name has succeeded or failed.
    pub(super) fn has_swapped(&mut self, slot: u8, to: State, swaps: bool) -> Result<(), &'static str> {
        if self.actor().sweep.is_some() {
            return Ok(());
        }
        match self.world.actors[self.me].main {
            Main::Hold { died: false, .. } => return self.receive_reply(slot),
            Main::Hold { .. } => self.actor().main = Main::Finish { slot, late: None },
            Main::Finish { late: Some(handle), .. } => {
                let at = if self.copies() { ReceiveAt::CopyHalf } else { ReceiveAt::Open };
                self.actor().main = Main::Receive { slot, handle, at, then: Then::End };
            }
            Main::Finish { .. } => self.actor().main = self.home(),
            Main::Cancel { .. } if swaps => self.actor().main = self.home(),
            Main::TakePart { torn: true, .. } if swaps || !self.keeps(Rule::DiscardLostCopies) => {
                return Err(TORN);
            }
            Main::TakePart { handle, .. } if swaps => {
                self.actor().main = Main::Wait { slot };
                if let Some(Handle { file, generation }) = handle {
                    self.actor().borrowed[usize::from(file)] = false;
                    self.actor().blobs[usize::from(file)] += 1;
                    self.actor().generations[usize::from(file)] = generation;
                }
            }
            Main::TakePart { handle, .. } => self.throw_away(slot, handle),
            Main::Aside { .. } => self.actor().main = Main::Idle,
            Main::Cancel { .. } => self.actor().main = Main::Wait { slot },
            Main::Dropping { .. } => self.actor().main = self.end_request(),
            Main::Fail { .. } if swaps => self.actor().main = self.end_request(),
            Main::Fail { .. } => self.actor().main = Main::PartWait { slot },
            main => unreachable!("{main:?} swaps to {to:?}"),
        }
        Ok(())
    }

    fn fork(&mut self, child: usize) {
        let parent = self.world.actors[self.me];
        self.world.actors[child] = super::Actor {
            main: Main::Idle,
            role: self.scope.joins,
            calls: self.scope.calls,
            inherits: parent.blobs.map(|blobs| blobs > 0),
            generations: parent.generations,
            ..super::Actor::default()
        };
        for (file, open) in self.world.opens[self.me].iter_mut().enumerate() {
            open.shared |= open.is_locked();
            self.world.actors[self.me].forked[file] |= parent.blobs[file] > 0;
        }
    }
}
