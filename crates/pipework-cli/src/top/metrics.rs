//! The figures of channels and pipes, by families.

use super::pipe::Pipe;
use super::segment::Figures;
use super::text::role;
use super::watch::Found;
use crate::openmetrics::Page;
use pipework::reqrep::{Role, Stats};
use std::path::Path;
use std::time::Duration;

/// A counter of a segment: its name, what it counts, and where it is.
type Counter = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Counter; 8] = [
    ("requests", "Calls begun.", |stats| stats.requests),
    ("replies", "Requests that servers have answered or given up.", |stats| stats.replies),
    ("full", "Times that a client found no free slot.", |stats| stats.full),
    ("empty", "Times that a server found no request.", |stats| stats.empty),
    ("cancelled", "Calls cancelled, those that timed out included.", |stats| stats.cancelled),
    ("dead_members", "Members that died without leaving.", |stats| stats.dead_members),
    ("recovered", "Slots taken back from dead members.", |stats| stats.recovered),
    ("redelivered", "Requests that went to another server because theirs had died.", |stats| {
        stats.redelivered
    }),
];

/// All that was found, as one page.
pub(super) fn page(found: &Found) -> String {
    let mut page = Page::default();
    channels(&mut page, &found.channels);
    pipes(&mut page, &found.pipes);
    page.finish()
}

/// Labels and a value.
type Sample = (String, u64);

fn channels(page: &mut Page, found: &[Figures]) {
    let up = |figures: &Figures| (channel(figures), u64::from(figures.fault.is_none()));
    gauge(page, "up", "Whether the channel can be looked at.", found.iter().map(up));
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
    let bytes = known.iter().map(|figures| (channel(figures), figures.blobs.bytes));
    gauge(page, "blob_bytes", "Bytes of the files of blobs.", bytes);
    let files = known.iter().map(|figures| (channel(figures), figures.blobs.files as u64));
    gauge(page, "blob_files", "Files of blobs.", files);
    let left = known.iter().map(|figures| (channel(figures), figures.blobs.left as u64));
    gauge(page, "blob_files_left", "Files of blobs that dead processes left.", left);
    let members = known.iter().flat_map(|figures| members(figures));
    gauge(page, "members", "Clients and servers that are attached.", members);
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
    let label = label("channel", &figures.path);
    let kinds = [(Role::Server, true), (Role::Server, false), (Role::Client, true), (Role::Client, false)];
    let counted = kinds.map(|(of, is_alive)| {
        let count = figures
            .members
            .iter()
            .filter(|attached| attached.member.role == of && attached.member.is_alive == is_alive)
            .count();
        (format!("{{{label},role=\"{}\",alive=\"{is_alive}\"}}", role(of)), count as u64)
    });
    counted.into()
}

fn channel(figures: &Figures) -> String {
    format!("{{{}}}", label("channel", &figures.path))
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
