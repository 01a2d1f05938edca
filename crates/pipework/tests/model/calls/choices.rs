//! The next steps that each actor may take.

use super::server::Serve;
use super::{Actor, Main, Part, Quit, Role, Rule, Scope, State, Word, World};
use crate::search::Kind;

/// An action that an actor may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    GoOn,
    Die,
    /// A new process starts in the place of one that is gone, with the lock of that number.
    Return(Option<u8>),
    /// The same, forked by a server.
    Fork {
        parent: u8,
        number: u8,
    },
    Leave,
    Quit(Quit),
    /// Another thread of the client cancels.
    CancelAside {
        seen: Word,
    },
    /// Another thread of the client forgets all calls.
    ForgetAside,
    /// A server fails its request.
    GiveUp,
    /// A server gives its request back, for another server.
    GiveBack,
    Acquire(u8),
    Recover(u8),
    PushOwed,
}

impl Scope {
    /// All next actions of an actor.
    pub(crate) fn choices(&self, world: &World, me: usize, step: &mut impl FnMut(Kind, Choice)) {
        let (actor, left) = (&world.actors[me], &world.left);
        if actor.main == Main::Gone {
            return self.arrivals(world, me, step);
        }
        if left.deaths > 0 {
            step(Kind::Whim, Choice::Die);
        }
        if self.may_forget_aside(world, actor) {
            step(Kind::Whim, Choice::ForgetAside);
        }
        if actor.push.is_some() || actor.recovery.is_some() {
            return step(Kind::Work, Choice::GoOn);
        }
        self.whims(world, me, step);
        if self.has_time(me, actor) {
            if actor.owes {
                step(Kind::Work, Choice::PushOwed);
            }
            // Recovering a living member has no effect, so only dead ones count.
            let dead = (1..=self.members).filter(|number| world.members[usize::from(*number) - 1].is_dead());
            for number in dead.filter(|number| self.recovers(world, me, *number)) {
                step(Kind::Work, Choice::Recover(number));
            }
        }
        match actor.main {
            Main::Acquire => (0..self.slots).for_each(|slot| step(Kind::Work, Choice::Acquire(slot))),
            _ => step(Kind::Work, Choice::GoOn),
        }
    }

    /// Whether another thread of a client finds the call in its slot.
    fn may_forget_aside(&self, world: &World, actor: &Actor) -> bool {
        let Some(call) = actor.call.filter(|call| !call.cancelled) else { return false };
        let slot = &world.slots[usize::from(call.slot)];
        let is_open = matches!(slot.word.state, State::Sent | State::Taken | State::Part);
        world.left.forgets_aside > 0 && is_open && call.is_mine(slot, actor)
    }

    /// New processes in the place of one that is gone: started, or forked by a server that holds a
    /// request.
    fn arrivals(&self, world: &World, me: usize, step: &mut impl FnMut(Kind, Choice)) {
        let part = self.part(me);
        if part == Part::Helper {
            if self.returns {
                step(Kind::Time, Choice::Return(None));
            }
            return;
        }
        let may_lend = |parent: &Actor| {
            matches!(parent.main, Main::Serve(_, at) if at.is_pause())
                && (parent.born.is_none() || !self.keeps(Rule::AdoptOnce))
        };
        let is_free = |number: &u8| world.members[usize::from(*number) - 1].holder.is_none();
        for number in (1..=self.members).filter(is_free) {
            if self.returns && part != Part::Child {
                step(Kind::Time, Choice::Return(Some(number)));
            }
            if world.left.forks == 0 || self.role(me) != Some(Role::Server) {
                continue;
            }
            for parent in (0..self.cast.len()).filter(|parent| may_lend(&world.actors[*parent])) {
                step(Kind::Whim, Choice::Fork { parent: parent as u8, number });
            }
        }
    }

    /// Whether an actor waits, and therefore checks meanwhile whether others have died.
    fn has_time(&self, me: usize, actor: &Actor) -> bool {
        match actor.main {
            Main::Idle => self.part(me) != Part::Client,
            Main::Acquire | Main::QueueWait | Main::Wait => true,
            Main::Serve(_, at) => at == Serve::Wait,
            _ => false,
        }
    }

    /// The optional actions of an actor.
    fn whims(&self, world: &World, me: usize, step: &mut impl FnMut(Kind, Choice)) {
        let (actor, left) = (&world.actors[me], &world.left);
        let is_server_at_rest =
            matches!(actor.main, Main::Serve(_, at) if at.is_pause() || at == Serve::Wait);
        let waits = actor.main == Main::Wait;
        let is_at_rest = match self.part(me) {
            Part::Helper => false,
            _ => waits || actor.main == Main::Idle || is_server_at_rest,
        };
        if left.leaves > 0 && is_at_rest {
            step(Kind::Whim, Choice::Leave);
        }
        if left.failures > 0 && is_server_at_rest {
            step(Kind::Whim, Choice::GiveUp);
        }
        if left.give_backs > 0 && matches!(actor.main, Main::Serve(_, at) if at.is_pause()) {
            step(Kind::Whim, Choice::GiveBack);
        }
        if actor.call.is_none_or(|call| call.cancelled) {
            return;
        }
        if left.forgets > 0 && waits {
            step(Kind::Whim, Choice::Quit(Quit::Forget));
        }
        if left.cancels == 0 {
            return;
        }
        match actor.main {
            Main::Wait | Main::QueueWait => step(Kind::Whim, Choice::Quit(Quit::Cancel)),
            Main::Copy { seen } | Main::CopyOn { seen, .. } | Main::Take { seen, .. }
                if seen.state == State::Part =>
            {
                step(Kind::Whim, Choice::CancelAside { seen });
            }
            _ => {}
        }
    }

    /// Whether an actor recovers a dead member while it waits. Clients recover servers; a server
    /// does so only once a request was forgotten. Dead clients are recovered by a client that needs
    /// a slot, by a server that waits for its client, and by any server once a request was
    /// forgotten.
    fn recovers(&self, world: &World, me: usize, number: u8) -> bool {
        let main = world.actors[me].main;
        let serves = matches!(main, Main::Serve(..)) && self.keeps(Rule::ServersRecoverClients);
        match world.members[usize::from(number) - 1].role {
            Some(Role::Server) if self.part(me) == Part::Server => {
                world.hint && self.keeps(Rule::ServersRecoverServers)
            }
            Some(Role::Server) => true,
            _ => {
                let for_forgotten = world.hint && self.keeps(Rule::ServersRecoverForForgotten);
                let is_server = self.role(me) == Some(Role::Server);
                let part = self.part(me);
                serves || main == Main::Acquire || part == Part::Helper || is_server && for_forgotten
            }
        }
    }
}
