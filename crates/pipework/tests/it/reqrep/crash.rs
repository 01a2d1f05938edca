//! Promises P2, P3, P4, P7 and P14, instruction by instruction. In every scene a victim does one
//! operation and is killed or stopped at one point of it, and the other processes go on.
//!
//! `harness/scenes.rs` plays them. The survivors must finish by themselves and in time, in whatever state
//! the victim left the segment. At the end nothing may be [missing](assert_whole).

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::reqrep::{Audit, Client, Options, Request, Segment, Ticket};

use crate::harness::damage::{enter_mount_namespace, mount_tmpfs, not_mounted};
use crate::harness::fate::{Fate, Victim};
use crate::harness::scenes::{NamedScene, patience, play_scenes};
use crate::harness::tracee::mark;
use crate::harness::{alone_for, fork, left_to_test_all, shared};

mod calling;
mod getting;
mod serving;
mod giving;
mod joining;
mod recovering;
mod creating;
mod blobs;
mod stopping;

const SCENES: [NamedScene; 82] = [
    ("attach client", joining::attach_client),
    ("attach server", joining::attach_server),
    ("attach in a dead server's place", joining::attach_in_a_dead_place),
    ("first call after a fork", joining::join_after_fork),
    ("fork", joining::fork_as_a_member),
    ("send", calling::send),
    ("send to a parked server", calling::send_to_a_parked_server),
    ("send into a ring of cancelled calls", calling::send_into_a_stale_ring),
    ("send, waiting for a slot", calling::send_waiting_for_a_slot),
    ("send, with a dead client's slot", calling::send_with_a_dead_clients_slot),
    ("send, waiting for the ring", calling::send_waiting_for_the_ring),
    ("wait for a reply", calling::wait),
    ("get a reply", calling::get),
    ("call that times out", calling::call_too_late),
    ("cancel before a server has it", calling::cancel_sent),
    ("cancel while a server has it", calling::cancel_taken),
    ("close a client", calling::close),
    ("take a part", getting::take_a_part),
    ("stream", getting::stream),
    ("send a long request", getting::send_long),
    ("cancel a part", getting::cancel_a_part),
    ("forget before a server has it", getting::forget_sent),
    ("forget while a server has it", getting::forget_taken),
    ("forget a part", getting::forget_a_part),
    ("receive any", getting::receive_any),
    ("send many", getting::send_many),
    ("take", serving::take),
    ("take a redeliverable request", serving::take_redeliverable),
    ("give back", serving::give_back),
    ("wait for a request", serving::wait),
    ("reply to a parked client", serving::reply),
    ("reply to a client with a doorbell", serving::reply_to_a_doorbell),
    ("reply to a cancelled call", serving::reply_to_a_cancelled_call),
    ("fail", serving::fail),
    ("give a part to a parked client", giving::give),
    ("give a part of a cancelled call", giving::give_to_a_cancelled_call),
    ("reply with a long message", giving::reply_long),
    ("collect parts", giving::collect),
    ("fail with a reason", giving::fail_with_a_reason),
    ("fail in a stream", giving::fail_in_a_stream),
    ("fail behind a part", giving::fail_behind_a_part),
    ("answer a forgotten call", giving::answer_a_forgotten_call),
    ("adopt", giving::adopt),
    ("stop a server", giving::stop),
    ("close a server", serving::close),
    ("serve a dead server's requests", serving::serve_again),
    ("recover", recovering::recover),
    ("recover streams", recovering::recover_streams),
    ("wait for a dead client", recovering::wait_for_a_client),
    ("wait for a dead server", recovering::wait),
    ("wait for a dead server, to redeliver", recovering::wait_and_redeliver),
    ("create", creating::create),
    ("open or create", creating::open_or_create),
    ("replace an empty file", creating::replace_an_empty_file),
    ("unlink", creating::unlink),
    ("make a blob", blobs::make),
    ("make a blob in an existing folder", blobs::make_in_a_folder),
    ("make a blob in a file that was used before", blobs::make_again),
    ("freeze a blob", blobs::freeze),
    ("send a blob", blobs::send),
    ("send a blob and drop it", blobs::send_and_drop),
    ("receive blobs", blobs::receive),
    ("give a request with a blob back", blobs::give_back),
    ("reply with a blob", blobs::reply),
    ("reply with the request's blob", blobs::hand_back),
    ("reply with a blob to a cancelled call", blobs::reply_to_a_cancelled_call),
    ("fail a request with a blob", blobs::fail),
    ("receive a reply with a blob", blobs::receive_reply),
    ("receive a long reply", blobs::receive_long_reply),
    ("receive a long request", blobs::receive_long_request),
    ("give a part with a blob", blobs::give),
    ("take a part with a blob", blobs::take_a_part),
    ("cancel a call with a blob before a server has it", blobs::cancel_sent),
    ("cancel a call with a blob while a server has it", blobs::cancel_taken),
    ("forget a call with a blob before a server has it", blobs::forget_sent),
    ("forget a call with a blob while a server has it", blobs::forget_taken),
    ("close a client whose calls have blobs", blobs::close),
    ("drop a blob", blobs::drop_own),
    ("drop another's blob", blobs::drop_of_another),
    ("recover blobs", blobs::recover),
    ("attach in a dead member's place with blobs", blobs::attach_in_a_dead_place),
    ("attach beside an abandoned blob", blobs::attach),
];

/// Scenes whose victim stops where it would die in others, and then goes on.
const STOPPING: [NamedScene; 6] = [
    ("stopped: give a part", stopping::give),
    ("stopped: reply with a long message", stopping::reply_long),
    ("stopped: fail", stopping::fail),
    ("stopped: stream", stopping::stream),
    ("stopped: cancel a part", stopping::cancel),
    ("stopped: forget a part", stopping::forget),
];

/// Scenes in which the victim's first blob looks at the folders of other channels, in a `/dev/shm` of
/// the scene's own.
const BESIDE: [NamedScene; 1] = [("make a blob beside a dead channel", blobs::make_beside_a_dead_channel)];

#[test]
fn kill_at_any_instruction_leaves_the_segment_usable() {
    if left_to_test_all("thousands of kills, each after another instruction") {
        return;
    }
    alone_for(patience(), || {
        look_beside();
        play(&SCENES);
    });
}

#[test]
fn stop_at_any_instruction_blocks_peers_no_longer_than_their_deadline() {
    alone_for(patience(), || {
        look_beside();
        play(&STOPPING);
    });
}

#[test]
fn kill_at_any_instruction_of_a_look_at_other_channels_leaves_the_living_ones_whole() {
    alone_for(patience(), || {
        let is_permitted = &shared(1)[0];
        let is_writable = || own_memory_files() && small(2).blob(1).is_ok();
        fork(|| is_permitted.store(u64::from(is_writable()), SeqCst)).join();
        if is_permitted.load(SeqCst) == 1 {
            play(&BESIDE);
        } else {
            not_mounted("a /dev/shm of a test's own");
        }
    });
}

fn play(scenes: &[NamedScene]) {
    play_scenes(scenes, || assert_whole(&small(2)));
}

/// The first blob of a process also looks at what other channels have left, and any number of them
/// may have left files. Its children do not look again.
fn look_beside() {
    drop(small(2).blob(1).expect("there is memory"));
}

/// Gives this process an empty `/dev/shm` of its own. Returns false if that is not permitted here.
fn own_memory_files() -> bool {
    enter_mount_namespace() && mount_tmpfs(Path::new("/dev/shm"), "size=16m")
}

impl Fate {
    /// A victim that is a client.
    pub(crate) fn client<'a>(&self, segment: &'a Segment, operation: impl FnOnce(&Client)) -> Victim<'a> {
        self.victim(segment, || {
            let client = segment.client().unwrap();
            mark();
            operation(&client);
            mark();
        })
    }

    /// A victim that is a client and has sent a request.
    pub(crate) fn caller<'a>(
        &self,
        segment: &'a Segment,
        operation: impl FnOnce(&Client, Ticket),
    ) -> Victim<'a> {
        self.victim(segment, || {
            let client = segment.client().unwrap();
            let ticket = client.try_send("ping").unwrap().unwrap();
            mark();
            operation(&client, ticket);
            mark();
        })
    }

    /// A victim that is a server and has taken a request. It drops a request that it does not
    /// answer.
    pub(crate) fn server<'a>(&self, segment: &'a Segment, operation: impl FnOnce(Request<'_>)) -> Victim<'a> {
        self.victim(segment, || {
            let server = segment.server().unwrap();
            let request = server.try_recv().unwrap().unwrap();
            mark();
            operation(request);
            mark();
        })
    }
}

// ---------------------------------------------------------------- parts of scenes

/// The smallest useful segment, so that operations are short. No thread spins.
fn small(slots: u32) -> Segment {
    options(slots).anonymous().expect("a segment")
}

fn options(slots: u32) -> Options {
    let options = Options::new().slots(slots).members(6).spin(Duration::ZERO);
    options.request_bytes(PART as u32).reply_bytes(PART as u32)
}

/// Bytes of a slot.
const PART: usize = 16;
/// A message that is longer than a slot.
const LONG: &[u8; 24] = b"in a blob, as you see it";

/// The longest time that a victim waits. The event it waits for comes as soon as the victim sleeps,
/// except in rare cases.
const SOON: Duration = Duration::from_secs(10);

/// Checks what must hold once no calls are in progress, whichever processes died at whichever
/// point: every slot is free, every place for members can be taken, and calls are answered.
fn assert_whole(segment: &Segment) {
    segment.recover().expect("recovery works");
    let geometry = *segment.geometry();
    let slots = geometry.slots as usize;
    let mut expected = Audit::default();
    expected.free = slots;
    let mut audit = segment.audit().expect("the audit works");
    // Cancelled calls may have left entries in the ring.
    audit.entries = 0;
    assert_eq!(audit, expected, "after recovery");
    let members = segment.members().expect("the members can be listed");
    assert!(members.iter().all(|member| member.is_alive), "after recovery: {members:?}");
    assert_eq!(segment.recover(), Ok(0), "a second time");

    let places = members.len()..geometry.members as usize;
    let clients: Vec<_> = places.map(|_| segment.client().expect("a free place")).collect();
    let refused = segment.client().map_err(|error| error.kind());
    assert_eq!(refused.map(|_| ()), Err(ErrorKind::WouldBlock), "all places are taken");
    drop(clients);

    let (client, server) = (segment.client().expect("a place"), segment.server().expect("a place"));
    for turn in (0..100u32).step_by(slots) {
        let calls = turn..turn + slots as u32;
        let ticket =
            |call: u32| client.try_send(&call.to_le_bytes()).expect("no error").expect("a free slot");
        let tickets: Vec<_> = calls.clone().map(ticket).collect();
        while let Some(request) = server.try_recv().expect("no error") {
            let answer: Vec<u8> = request.iter().map(|byte| !byte).collect();
            assert!(request.reply(&answer).expect("it is this server's"), "its client is alive");
        }
        for (call, ticket) in calls.zip(tickets) {
            let reply = client.try_recv(ticket).expect("no error").expect("it was answered");
            assert_eq!(*reply, (!call).to_le_bytes());
        }
    }
    assert_eq!(segment.audit(), Ok(expected), "at the end");
}
