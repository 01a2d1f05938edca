//! Plays scenes: in each, a victim does one operation and is killed or stopped at one point of it, and the
//! other processes go on.
//!
//! A scene runs in its own process, forked for each point, so that all victims of a scene take the
//! same path. That process plays the survivors.
//!
//! CI tries all points that other processes can tell apart, and a sample of the rest.
//! PIPEWORK_CRASH=1000 makes the sample larger, PIPEWORK_CRASH=all tries every point, PIPEWORK_SEED
//! repeats a sample, PIPEWORK_SCENE=send plays one scene.

use std::collections::VecDeque;
use std::env;
use std::panic;
use std::time::{Duration, Instant};

use super::fate::{End, Fate, Trail};
use super::tracee;
use super::{Child, Random, fork, left_out, say, seed};

/// A scene under its name.
pub(crate) type NamedScene = (&'static str, fn(&Fate));

/// Points of each scene that are tried in addition to those that other processes can tell apart.
const SAMPLE: usize = 50;
/// Scenes that are played at the same time. Most of them wait most of the time.
const AT_A_TIME: usize = 8;
/// How many times a point is tried if the victim did not reach it, or if a survivor waited too long.
const ROUNDS: usize = 6;
/// How many more times it is tried if a survivor waited too long: without other scenes beside it.
const ROUNDS_ALONE: usize = 20;

fn setting(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Whether to try every point.
fn all_points() -> bool {
    setting("PIPEWORK_CRASH").is_some_and(|text| text == "all")
}

/// How long the scenes of a test may take.
pub(crate) fn patience() -> Duration {
    Duration::from_secs(60 * if all_points() { 120 } else { 20 })
}

/// Plays `scenes`. `warm_up` does what the survivors do, so that nothing is done for the first time in a
/// scene.
pub(crate) fn play_scenes(scenes: &[NamedScene], warm_up: fn()) {
    let all = all_points();
    if !tracee::is_permitted() {
        assert!(!all, "processes cannot be traced here");
        return left_out("crash", "processes cannot be traced here");
    }
    let sample = setting("PIPEWORK_CRASH").and_then(|text| text.parse().ok()).unwrap_or(SAMPLE);
    let (only, seed) = (setting("PIPEWORK_SCENE"), seed());
    say(&format!("crash: PIPEWORK_SEED={seed}"));
    warm_up();
    let (trail, mut random) = (Trail::new(), Random::new(seed));
    let chosen = scenes.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name));
    let play_one = |(name, scene): &NamedScene| {
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
    scene: fn(&Fate),
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
fn play(name: &'static str, scene: fn(&Fate), fates: &[Fate]) {
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
