//! The figures of channels and pipes, by families.

use super::broadcast::{BroadcastFigures, BroadcastMember};
use super::pipe::Pipe;
use super::segment::{Attached, Figures};
use super::text::role;
use super::watch::Found;
use crate::look;
use crate::openmetrics::Page;
use pipework::broadcast;
use pipework::reqrep::{BlobAudit, Role, Stats};
use std::path::Path;
use std::time::Duration;

/// A counter of a segment: its name, what it counts, and where it is.
type Counter = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Counter; 6] = [
    ("requests", "Calls begun.", |stats| stats.requests),
    ("replies", "Requests that servers have answered or given up.", |stats| stats.replies),
    ("full", "Times that a client found no free slot.", |stats| stats.full),
    ("empty", "Times that a server found no request.", |stats| stats.empty),
    ("cancelled", "Calls cancelled, those that timed out included.", |stats| stats.cancelled),
    ("redelivered", "Requests that went to another server because theirs had died.", |stats| {
        stats.redelivered
    }),
];

/// The same of a broadcast.
type BroadcastCounter = (&'static str, &'static str, fn(&broadcast::Stats) -> u64);

const BROADCAST_COUNTERS: [BroadcastCounter; 4] = [
    ("broadcast_published", "Messages published.", |stats| stats.published),
    (
        "broadcast_skipped",
        "Numbers of messages that were passed over: their publisher was killed.",
        |stats| stats.skipped,
    ),
    ("broadcast_missed", "Messages that subscribers have missed, all together.", |stats| stats.missed),
    ("broadcast_full", "Times that a publisher had to wait for room in the ring.", |stats| stats.full),
];

/// All that was found, as one page.
pub(super) fn page(found: &Found) -> String {
    let mut page = Page::default();
    channels(&mut page, &found.channels);
    broadcasts(&mut page, &found.broadcasts);
    of_both(&mut page, found);
    pipes(&mut page, &found.pipes);
    page.finish()
}

/// Labels and a value.
type Sample = (String, u64);

fn channels(page: &mut Page, found: &[Figures]) {
    let known: Vec<_> = found.iter().filter(|figures| figures.fault.is_none()).collect();
    for (name, help, count) in COUNTERS {
        let sample = |figures: &&Figures| (format!("_total{}", channel(figures)), count(&figures.stats));
        page.family(name, "counter", help, known.iter().map(sample));
    }
    let slots = known.iter().map(|figures| (channel(figures), figures.slots as u64));
    gauge(page, "slots", "Calls that the channel can hold.", slots);
    let stages = known.iter().flat_map(|figures| stages(figures));
    gauge(page, "calls", "Calls in progress, by how far they are.", stages);
    let seconds = known.iter().map(|figures| (format!("_total{}", channel(figures)), figures.call_seconds));
    page.family("call_seconds", "counter", "Time that calls have kept their slots, all together.", seconds);
    let ages = known.iter().flat_map(|figures| ages(figures));
    let help = "For how long the calls in progress have been seen; quantile 1 is the oldest.";
    page.family("call_age_seconds", "gauge", help, ages);
}

fn broadcasts(page: &mut Page, found: &[BroadcastFigures]) {
    let known: Vec<_> = found.iter().filter(|figures| figures.fault.is_none()).collect();
    for (name, help, count) in BROADCAST_COUNTERS {
        let sample =
            |figures: &&BroadcastFigures| (format!("_total{}", of(&figures.path)), count(&figures.stats));
        page.family(name, "counter", help, known.iter().map(sample));
    }
    let messages = known.iter().map(|figures| (of(&figures.path), u64::from(figures.messages)));
    gauge(page, "broadcast_messages", "Messages that the ring keeps.", messages);
    let newest = known.iter().map(|figures| (of(&figures.path), figures.newest));
    gauge(page, "broadcast_newest", "The number of the newest message.", newest);
    let writing = known.iter().map(|figures| (of(&figures.path), figures.writing as u64));
    gauge(page, "broadcast_writing", "Messages that are begun and not finished.", writing);
    let policies =
        || known.iter().flat_map(|figures| [true, false].map(|must_see_all| (figures, must_see_all)));
    let subscribers = policies().map(|(figures, must_see_all)| {
        (policy(figures, must_see_all), lags(figures, must_see_all).count() as u64)
    });
    gauge(
        page,
        "broadcast_subscribers",
        "Subscribers that live, by whether publishers wait for them.",
        subscribers,
    );
    // Nothing where no such subscriber is attached.
    let lag = policies().filter_map(|(figures, must_see_all)| {
        Some((policy(figures, must_see_all), lags(figures, must_see_all).max()?))
    });
    gauge(page, "broadcast_lag", "Messages that the slowest of these subscribers has not received.", lag);
}

/// The lag of each living subscriber of that policy.
fn lags(figures: &BroadcastFigures, must_see_all: bool) -> impl Iterator<Item = u64> {
    let of_policy = figures.living(broadcast::Role::Subscriber);
    of_policy.filter(move |member| member.must_see_all == must_see_all).map(|member| member.lag)
}

fn policy(figures: &BroadcastFigures, must_see_all: bool) -> String {
    format!("{{{},must_see_all=\"{must_see_all}\"}}", label("channel", &figures.path))
}

/// What all channels have, whatever they carry.
struct Common<'a> {
    path: &'a Path,
    is_known: bool,
    dead_members: u64,
    recovered: u64,
    blobs: &'a BlobAudit,
    members: Vec<Sample>,
}

fn of_both(page: &mut Page, found: &Found) {
    let calls = found.channels.iter().map(|figures| Common {
        path: &figures.path,
        is_known: figures.fault.is_none(),
        dead_members: figures.stats.dead_members,
        recovered: figures.stats.recovered,
        blobs: &figures.blobs,
        members: members(figures),
    });
    let broadcasts = found.broadcasts.iter().map(|figures| Common {
        path: &figures.path,
        is_known: figures.fault.is_none(),
        dead_members: figures.stats.dead_members,
        recovered: figures.stats.recovered,
        blobs: &figures.blobs,
        members: broadcast_members(figures),
    });
    let all: Vec<_> = calls.chain(broadcasts).collect();
    let up = all.iter().map(|each| (of(each.path), u64::from(each.is_known)));
    gauge(page, "up", "Whether the channel can be looked at.", up);
    let known = || all.iter().filter(|each| each.is_known);
    let dead = known().map(|each| (format!("_total{}", of(each.path)), each.dead_members));
    page.family("dead_members", "counter", "Members that died without leaving.", dead);
    let recovered = known().map(|each| (format!("_total{}", of(each.path)), each.recovered));
    let help = "What was taken back from dead members: slots, or cells and cursors.";
    page.family("recovered", "counter", help, recovered);
    let bytes = known().map(|each| (of(each.path), each.blobs.bytes));
    gauge(page, "blob_bytes", "Bytes of the files of blobs.", bytes);
    let files = known().map(|each| (of(each.path), each.blobs.files as u64));
    gauge(page, "blob_files", "Files of blobs.", files);
    let left = known().map(|each| (of(each.path), each.blobs.left as u64));
    gauge(page, "blob_files_left", "Files of blobs that dead processes left.", left);
    let members = known().flat_map(|each| each.members.clone());
    gauge(page, "members", "Members that are attached.", members);
}

fn pipes(page: &mut Page, found: &[Pipe]) {
    let filled = || found.iter().filter_map(|pipe| Some((name(pipe), pipe.fill?)));
    let unread = filled().map(|(name, fill)| (name, fill.unread));
    gauge(page, "pipe_unread_bytes", "Unread bytes in the pipe.", unread);
    let capacity = filled().map(|(name, fill)| (name, fill.capacity));
    gauge(page, "pipe_capacity_bytes", "Bytes that the pipe can hold.", capacity);
    let known = || found.iter().filter(|pipe| pipe.fault.is_none());
    let readers = known().map(|pipe| (name(pipe), pipe.readers() as u64));
    gauge(page, "pipe_readers", "Descriptors that read from the pipe.", readers);
    let writers = known().map(|pipe| (name(pipe), pipe.writers() as u64));
    gauge(page, "pipe_writers", "Descriptors that write to the pipe.", writers);
}

fn gauge(page: &mut Page, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
    page.family(name, "gauge", help, samples);
}

fn stages(figures: &Figures) -> Vec<Sample> {
    let Figures { in_use, waiting, taken, done, damaged, .. } = *figures;
    let filling = in_use.saturating_sub(waiting + taken + done + damaged);
    let stages =
        [("filling", filling), ("waiting", waiting), ("taken", taken), ("done", done), ("damaged", damaged)];
    let label = label("channel", &figures.path);
    stages.map(|(stage, count)| (format!("{{{label},stage=\"{stage}\"}}"), count as u64)).into()
}

/// Nothing while no call is in progress.
fn ages(figures: &Figures) -> Vec<(String, f64)> {
    let Some(ages) = figures.ages else { return Vec::new() };
    let label = label("channel", &figures.path);
    let quantiles = [("0.5", ages.p50), ("0.9", ages.p90), ("0.99", ages.p99), ("1", ages.max)];
    let sample = |(quantile, age): (&str, Duration)| {
        (format!("{{{label},quantile=\"{quantile}\"}}"), age.as_secs_f64())
    };
    quantiles.map(sample).into()
}

fn members(figures: &Figures) -> Vec<Sample> {
    let members: Vec<_> =
        figures.members.iter().map(|Attached { member, .. }| (role(member.role), member.is_alive)).collect();
    counted(&figures.path, [Role::Server, Role::Client].map(role), &members)
}

fn broadcast_members(figures: &BroadcastFigures) -> Vec<Sample> {
    use broadcast::Role;
    let facts = |attached: &BroadcastMember| (look::role(attached.member.role), attached.member.is_alive);
    let members: Vec<_> = figures.members.iter().map(facts).collect();
    counted(&figures.path, [Role::Publisher, Role::Subscriber].map(look::role), &members)
}

/// How many members of each role live, and how many are dead.
fn counted(path: &Path, roles: [&str; 2], members: &[(&str, bool)]) -> Vec<Sample> {
    let label = label("channel", path);
    let kinds = roles.into_iter().flat_map(|role| [(role, true), (role, false)]);
    let sample = |(role, is_alive)| {
        let count = members.iter().filter(|member| **member == (role, is_alive)).count();
        (format!("{{{label},role=\"{role}\",alive=\"{is_alive}\"}}"), count as u64)
    };
    kinds.map(sample).collect()
}

fn channel(figures: &Figures) -> String {
    of(&figures.path)
}

fn of(path: &Path) -> String {
    format!("{{{}}}", label("channel", path))
}

fn name(pipe: &Pipe) -> String {
    match (&pipe.path, pipe.found) {
        (Some(path), _) => format!("{{{}}}", label("fifo", path)),
        (None, Some((id, number))) => format!("{{pid=\"{id}\",fd=\"{number}\"}}"),
        (None, None) => format!("{{pid=\"{}\"}}", pipe.name),
    }
}

fn label(name: &str, path: &Path) -> String {
    let value = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}
