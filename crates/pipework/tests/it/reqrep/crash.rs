//! Promises P2, P3, P4, P7 and P14, instruction by instruction. In every scene a victim does one
//! operation and is killed or stopped at one point of it, and the other processes go on.
//!
//! A scene runs in its own process, forked for each point, so that all victims of a scene take the
//! same path. That process plays the survivors: they must finish by themselves and in time, in
//! whatever state the victim left the segment. At the end nothing may be [missing](assert_whole).
//!
//! CI tries all points that other processes can tell apart, and a sample of the rest.
//! PIPEWORK_CRASH=1000 makes the sample larger, PIPEWORK_CRASH=all tries every point, PIPEWORK_SEED
//! repeats a sample, PIPEWORK_SCENE=send plays one scene.

use std::collections::VecDeque;
use std::env;
use std::panic;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{Audit, Options, Segment};

use crate::harness::damage::{enter_mount_namespace, mount_tmpfs, not_mounted};
use crate::harness::tracee;
use crate::harness::{Child, Random, alone_for, fork, left_out, left_to_test_all, say, seed, shared};
use fate::{End, Fate, Trail};

mod fate;
mod calling;
mod getting;
mod serving;
mod giving;
mod joining;
mod recovering;
mod creating;
mod blobs;
mod stopping;

type Scene = fn(&Fate);

const SCENES: [(&str, Scene); 82] = [
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
const STOPPING: [(&str, Scene); 6] = [
    ("stopped: give a part", stopping::give),
    ("stopped: reply with a long message", stopping::reply_long),
    ("stopped: fail", stopping::fail),
    ("stopped: stream", stopping::stream),
    ("stopped: cancel a part", stopping::cancel),
    ("stopped: forget a part", stopping::forget),
];

/// Scenes in which the victim's first blob looks at the folders of other channels, in a `/dev/shm` of
/// the scene's own.
const BESIDE: [(&str, Scene); 1] = [("make a blob beside a dead channel", blobs::make_beside_a_dead_channel)];

/// Points of each scene that are tried in addition to those that other processes can tell apart.
const SAMPLE: usize = 50;
/// Scenes that are played at the same time. Most of them wait most of the time.
const AT_A_TIME: usize = 8;
/// How many times a point is tried if the victim did not reach it, or if a survivor waited too long.
const ROUNDS: usize = 6;
/// How many more times it is tried if a survivor waited too long: without other scenes beside it.
const ROUNDS_ALONE: usize = 20;

#[test]
fn kill_at_any_instruction_leaves_the_segment_usable() {
    if left_to_test_all("thousands of kills, each after another instruction") {
        return;
    }
    alone_for(patience(), || {
        look_beside();
        play_scenes(&SCENES);
    });
}

#[test]
fn stop_at_any_instruction_blocks_peers_no_longer_than_their_deadline() {
    alone_for(patience(), || {
        look_beside();
        play_scenes(&STOPPING);
    });
}

#[test]
fn kill_at_any_instruction_of_a_look_at_other_channels_leaves_the_living_ones_whole() {
    alone_for(patience(), || {
        let is_permitted = &shared(1)[0];
        let is_writable = || own_memory_files() && small(2).blob(1).is_ok();
        fork(|| is_permitted.store(u64::from(is_writable()), SeqCst)).join();
        if is_permitted.load(SeqCst) == 1 {
            play_scenes(&BESIDE);
        } else {
            not_mounted("a /dev/shm of a test's own");
        }
    });
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

fn setting(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Whether to try every point.
fn all_points() -> bool {
    setting("PIPEWORK_CRASH").is_some_and(|text| text == "all")
}

fn patience() -> Duration {
    Duration::from_secs(60 * if all_points() { 120 } else { 20 })
}

fn play_scenes(scenes: &[(&'static str, Scene)]) {
    let all = all_points();
    if !tracee::is_permitted() {
        assert!(!all, "processes cannot be traced here");
        return left_out("crash", "processes cannot be traced here");
    }
    let sample = setting("PIPEWORK_CRASH").and_then(|text| text.parse().ok()).unwrap_or(SAMPLE);
    let (only, seed) = (setting("PIPEWORK_SCENE"), seed());
    let mut known = SCENES.iter().chain(&STOPPING).chain(&BESIDE);
    assert!(
        only.as_deref().is_none_or(|only| known.any(|(name, _)| only == *name)),
        "there is no such scene"
    );
    say(&format!("crash: PIPEWORK_SEED={seed}"));
    assert_whole(&small(2));
    let (trail, mut random) = (Trail::new(), Random::new(seed));
    let chosen = scenes.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name));
    let play_one = |(name, scene): &(&'static str, Scene)| {
        play_all(name, *scene, trail, |trail| match all {
            true => (0..=trail.len()).collect(),
            false => trail.sample(sample, &mut random),
        })
    };
    let points: usize = chosen.map(play_one).sum();
    say(&format!("crash: {points} points tried in all"));
}

/// Plays a scene with its victim ending at many points; returns how many were tried.
fn play_all<I: IntoIterator<Item = usize>>(
    name: &'static str,
    scene: Scene,
    trail: Trail,
    choose: impl FnOnce(&Trail) -> I,
) -> usize {
    let began = Instant::now();
    // Some victims are delayed and find that a wait has already ended, so take the shortest trail.
    let mut shortest: Option<Vec<u64>> = None;
    for _ in 0..ROUNDS {
        trail.clear();
        play(name, scene, &[Fate { trail, end: End::Recording }]);
        shortest = shortest.filter(|shortest| shortest.len() <= trail.len()).or(Some(trail.events()));
    }
    trail.set(&shortest.expect("there are rounds"));

    let leaps = trail.leaps();
    let fate = |point: usize| Fate { trail, end: End::At { leap: leaps[point], point } };
    let chosen: Vec<usize> = choose(&trail).into_iter().collect();
    let mut missed = chosen.clone();
    for _ in 0..ROUNDS {
        let fates: Vec<Fate> = missed.into_iter().map(fate).collect();
        play(name, scene, &fates);
        missed = chosen.iter().copied().filter(|point| !trail.is_hit(*point)).collect();
    }
    // If the machine is not the reason, a survivor waits too long each time.
    for _ in 0..ROUNDS_ALONE {
        missed
            .iter()
            .filter(|point| trail.is_late(**point))
            .for_each(|point| play(name, scene, &[fate(*point)]));
        missed.retain(|point| !trail.is_hit(*point));
    }
    assert!(
        2 * missed.len() <= chosen.len(),
        "crash: {name}: most victims do not take the path of the first one"
    );
    let late: Vec<_> = missed.iter().filter(|point| trail.is_late(**point)).collect();
    assert!(late.is_empty(), "crash: {name}: a survivor waited too long after deaths at {late:?}");
    say(&format!(
        "crash: {name}: {} points, {} tried, {} missed, {:.0?} the longest wait, {:.1?}",
        trail.len() + 1,
        chosen.len(),
        missed.len(),
        trail.longest(),
        began.elapsed()
    ));
    chosen.len()
}

/// Plays a scene once for each fate, each in its own process.
///
/// Never inlined, so that the stack is as deep as it is for the first victim: how the C library
/// compares strings depends on their addresses.
#[inline(never)]
fn play(name: &'static str, scene: Scene, fates: &[Fate]) {
    let mut running = VecDeque::new();
    for fate in fates {
        running.push_back(fork(|| {
            let hook = panic::take_hook();
            let end = fate.end;
            panic::set_hook(Box::new(move |panic| {
                say(&format!("crash: PIPEWORK_SCENE='{name}', {end}:"));
                hook(panic);
            }));
            level_heap();
            scene(fate);
        }));
        if running.len() == AT_A_TIME {
            running.drain(..1).for_each(Child::join);
        }
    }
    running.into_iter().for_each(Child::join);
}

/// Makes small allocations take the same path whatever this process allocated before: glibc keeps
/// up to seven freed pieces of each size at hand.
fn level_heap() {
    for len in (8..1024).step_by(16) {
        let _freed_together: [Vec<u8>; 7] = std::array::from_fn(|_| Vec::with_capacity(len));
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
