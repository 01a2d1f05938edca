//! Victims that become members, and members that fork.

use std::sync::atomic::Ordering::SeqCst;

use rustix::process::WaitOptions;

use super::calling::{answer_all, next_gets_the_slot};
use super::recovering::Living;
use super::serving::{answered, outcome};
use super::{assert_whole, small};
use crate::harness::fate::Fate;
use crate::harness::tracee::mark;
use crate::harness::{awaited, fork, outlive_parent, shared};

pub(super) fn attach_client(fate: &Fate) {
    let segment = small(2);
    let victim = fate.victim(&segment, || {
        mark();
        let client = segment.client().unwrap();
        mark();
        drop(client);
    });
    victim.die();
    assert_whole(&segment);
}

pub(super) fn attach_server(fate: &Fate) {
    let segment = small(2);
    let victim = fate.victim(&segment, || {
        mark();
        let server = segment.server().unwrap();
        mark();
        drop(server);
    });
    victim.die();
    assert_whole(&segment);
}

/// The victim takes the number of a dead server and recovers that server's calls; the other dead
/// members stay.
pub(super) fn attach_in_a_dead_place(fate: &Fate) {
    let segment = Living::segment();
    let living = Living::among_the_dead(&segment);
    let victim = fate.victim(&segment, || {
        mark();
        let client = segment.client().unwrap();
        mark();
        drop(client);
    });
    let died = victim.die();
    living.get_on(fate, died);
    assert_whole(&segment);
}

/// The victim has inherited a client with a call in progress, which stays the parent's.
pub(super) fn join_after_fork(fate: &Fate) {
    let segment = small(2);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("first").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        mark();
        client.try_send("ping").unwrap().unwrap();
        mark();
    });
    victim.die();
    answer_all(&server);
    assert_eq!(outcome(&client, ticket), answered("FIRST"));
    assert_whole(&segment);
}

/// The victim's child lives on and is not a member.
pub(super) fn fork_as_a_member(fate: &Fate) {
    let segment = small(1);
    let next = segment.client().unwrap();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let is_over = &shared(1)[0];
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        client.try_send("ping").unwrap().unwrap();
        mark();
        let _heir = fork(|| {
            outlive_parent();
            awaited(is_over);
        });
        mark();
    });
    next_gets_the_slot(fate, &next, || victim.on_foot().die());
    assert_whole(&segment);
    is_over.store(1, SeqCst);
    while rustix::process::wait(WaitOptions::empty()).is_ok() {}
}
