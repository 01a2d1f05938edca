//! The figures as words: for the screen, as tables, and as JSON.

use super::broadcast::{BroadcastFigures, BroadcastMember};
use super::pipe::Pipe;
use super::segment::{Ages, Attached, Figures};
use super::watch::Found;
use crate::form;
use crate::look;
use crate::progress::size;
use crate::table::{self, Align};
use clap::ValueEnum;
use pipework::broadcast::Role;
use pipework::reqrep::{self, BlobAudit};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// By name
    Name,
    /// Calls or messages in a second
    Rate,
    /// Requests without a server, messages not received, bytes without a reader
    Waiting,
    /// The oldest call in progress
    Age,
}

impl Sort {
    pub(super) fn channels(self, channels: &mut [Figures], is_reversed: bool) {
        let rate = |figures: &Figures| figures.rates.map_or(0.0, |rates| rates.requests);
        let age = |figures: &Figures| figures.ages.map(|ages| ages.max);
        channels.sort_by(|one, other| {
            let order = match self {
                Self::Name => Ordering::Equal,
                Self::Rate => rate(other).total_cmp(&rate(one)),
                Self::Waiting => other.waiting.cmp(&one.waiting),
                Self::Age => age(other).cmp(&age(one)),
            };
            let order = order.then_with(|| one.path.cmp(&other.path));
            if is_reversed { order.reverse() } else { order }
        });
    }

    /// A broadcast knows no age.
    pub(super) fn broadcasts(self, broadcasts: &mut [BroadcastFigures], is_reversed: bool) {
        let rate = |figures: &BroadcastFigures| figures.rates.map_or(0.0, |rates| rates.published);
        broadcasts.sort_by(|one, other| {
            let order = match self {
                Self::Name | Self::Age => Ordering::Equal,
                Self::Rate => rate(other).total_cmp(&rate(one)),
                Self::Waiting => other.lag().cmp(&one.lag()),
            };
            let order = order.then_with(|| one.path.cmp(&other.path));
            if is_reversed { order.reverse() } else { order }
        });
    }

    /// A pipe knows no rate and no age.
    pub(super) fn pipes(self, pipes: &mut [Pipe], is_reversed: bool) {
        let unread = |pipe: &Pipe| pipe.fill.map(|fill| fill.unread);
        match self {
            Self::Waiting => pipes.sort_by_key(|pipe| std::cmp::Reverse(unread(pipe))),
            _ => pipes.sort_by(|one, other| (&one.path, one.found).cmp(&(&other.path, other.found))),
        }
        if is_reversed {
            pipes.reverse();
        }
    }
}

/// The columns of channels; the last one is the name.
pub(super) const CHANNELS: [(&str, Align); 10] = [
    ("CALLS/S", Align::Right),
    ("WAIT", Align::Right),
    ("WORK", Align::Right),
    ("DONE", Align::Right),
    ("SLOTS", Align::Right),
    ("TIME", Align::Right),
    ("AGE", Align::Right),
    ("99%", Align::Right),
    ("S/C", Align::Right),
    ("CHANNEL", Align::Left),
];

/// The columns of broadcasts; the last one is the name.
pub(super) const BROADCASTS: [(&str, Align); 9] = [
    ("MSGS/S", Align::Right),
    ("LAG", Align::Right),
    ("KEEPS", Align::Right),
    ("WRITING", Align::Right),
    ("MISSED", Align::Right),
    ("FULL", Align::Right),
    ("P/S", Align::Right),
    ("NEWEST", Align::Right),
    ("BROADCAST", Align::Left),
];

/// The columns of pipes.
pub(super) const PIPES: [(&str, Align); 5] = [
    ("UNREAD", Align::Right),
    ("HOLD", Align::Right),
    ("READERS", Align::Right),
    ("WRITERS", Align::Right),
    ("PIPE", Align::Left),
];

/// The columns of members.
pub(super) const MEMBERS: [(&str, Align); 6] = [
    ("NO", Align::Right),
    ("ROLE", Align::Left),
    ("PID", Align::Right),
    ("AGE", Align::Right),
    ("CALLS", Align::Right),
    ("COMMAND", Align::Left),
];

/// The columns of the members of a broadcast.
pub(super) const BROADCAST_MEMBERS: [(&str, Align); 7] = [
    ("NO", Align::Right),
    ("ROLE", Align::Left),
    ("SEES", Align::Left),
    ("PID", Align::Right),
    ("AGE", Align::Right),
    ("LAG", Align::Right),
    ("COMMAND", Align::Left),
];

pub(super) fn channel(figures: &Figures, resolution: Duration) -> [String; 10] {
    let name = table::path(&figures.path);
    if let Some(fault) = &figures.fault {
        let mut row: [String; 10] = std::array::from_fn(|_| "-".into());
        row[9] = format!("{name}: {fault}");
        return row;
    }
    let age = |of: fn(&Ages) -> Duration| match figures.ages.as_ref().map(of) {
        None => "-".into(),
        Some(age) if age < resolution => format!("<{}", short(resolution)),
        Some(age) => short(age),
    };
    let dead = if figures.dead() > 0 { format!(" !{}", figures.dead()) } else { String::new() };
    let name = if figures.damaged > 0 { format!("{name}: damaged") } else { name };
    [
        figures.rates.map_or("-".into(), |rates| few(rates.requests)),
        figures.waiting.to_string(),
        figures.taken.to_string(),
        figures.done.to_string(),
        figures.slots.to_string(),
        figures.mean.map_or("-".into(), short),
        age(|ages| ages.p50),
        age(|ages| ages.p99),
        format!("{}/{}{dead}", figures.living(reqrep::Role::Server), figures.living(reqrep::Role::Client)),
        name,
    ]
}

pub(super) fn broadcast(figures: &BroadcastFigures) -> [String; 9] {
    let name = table::path(&figures.path);
    if let Some(fault) = &figures.fault {
        let mut row: [String; 9] = std::array::from_fn(|_| "-".into());
        row[8] = format!("{name}: {fault}");
        return row;
    }
    let dead = if figures.dead() > 0 { format!(" !{}", figures.dead()) } else { String::new() };
    let living = |role| figures.living(role).count();
    let lag = figures.lag().map_or("-".into(), |lag| few(lag as f64));
    [
        figures.rates.map_or("-".into(), |rates| few(rates.published)),
        if figures.is_held_up() { format!("{lag}!") } else { lag },
        figures.messages.to_string(),
        figures.writing.to_string(),
        few(figures.stats.missed as f64),
        few(figures.stats.full as f64),
        format!("{}/{}{dead}", living(Role::Publisher), living(Role::Subscriber)),
        figures.newest.to_string(),
        name,
    ]
}

pub(super) fn pipe(pipe: &Pipe) -> [String; 5] {
    let name = table::plain(&pipe.name);
    let name = pipe.fault.as_ref().map_or(name.clone(), |fault| format!("{name}: {fault}"));
    let fill = |bytes: Option<u64>| bytes.map_or("-".into(), size);
    [
        fill(pipe.fill.map(|fill| fill.unread)),
        fill(pipe.fill.map(|fill| fill.capacity)),
        pipe.readers().to_string(),
        pipe.writers().to_string(),
        name,
    ]
}

pub(super) fn member(attached: &Attached) -> [String; 6] {
    let Attached { member, command, calls } = attached;
    let command = if member.is_alive { command.as_deref().unwrap_or("?") } else { "(dead)" };
    [
        member.number.to_string(),
        role(member.role).into(),
        member.pid.to_string(),
        table::age(Some(member.since)),
        calls.to_string(),
        table::plain(command),
    ]
}

pub(super) fn broadcast_member(attached: &BroadcastMember) -> [String; 7] {
    let BroadcastMember { member, command } = attached;
    let command = if member.is_alive { command.as_deref().unwrap_or("?") } else { "(dead)" };
    let (sees, lag) = match (member.role, member.must_see_all) {
        (Role::Publisher, _) => ("-", "-".into()),
        (Role::Subscriber, true) => ("all", member.lag.to_string()),
        (Role::Subscriber, false) => ("may lag", member.lag.to_string()),
    };
    [
        member.number.to_string(),
        look::role(member.role).into(),
        sees.into(),
        member.pid.to_string(),
        table::age(Some(member.since)),
        lag,
        table::plain(command),
    ]
}

/// The counters of a broadcast in one line, and the blobs if there are any.
pub(super) fn broadcast_counters(figures: &BroadcastFigures) -> String {
    let stats = &figures.stats;
    let counters = [
        ("published", stats.published),
        ("passed over", stats.skipped),
        ("missed", stats.missed),
        ("full", stats.full),
        ("died", stats.dead_members),
        ("taken back", stats.recovered),
    ];
    line(&counters, &figures.blobs)
}

/// The counters of calls in one line, and the blobs if there are any.
pub(super) fn counters(figures: &Figures) -> String {
    let stats = &figures.stats;
    let counters = [
        ("calls", stats.requests),
        ("cancelled", stats.cancelled),
        ("no slot", stats.full),
        ("died", stats.dead_members),
        ("taken back", stats.recovered),
        ("sent again", stats.redelivered),
    ];
    line(&counters, &figures.blobs)
}

fn line(counters: &[(&str, u64)], blobs: &BlobAudit) -> String {
    let mut words: Vec<_> =
        counters.iter().map(|(name, count)| format!("{name} {}", few(*count as f64))).collect();
    if blobs.files > 0 {
        words.push(look::blobs(blobs));
    }
    words.join("   ")
}

/// Tables for people, one after the other.
pub(super) fn tables(found: &Found, resolution: Duration) -> String {
    let mut parts = vec![];
    if !found.channels.is_empty() {
        let rows: Vec<_> = found.channels.iter().map(|figures| channel(figures, resolution)).collect();
        parts.push(table::table(CHANNELS, &rows));
    }
    for figures in found.channels.iter().filter(|figures| figures.fault.is_none()) {
        let rows: Vec<_> = figures.members.iter().map(member).collect();
        let members = if rows.is_empty() { String::new() } else { table::table(MEMBERS, &rows) };
        parts.push(format!("{}: {}\n{members}", table::path(&figures.path), counters(figures)));
    }
    if !found.broadcasts.is_empty() {
        let rows: Vec<_> = found.broadcasts.iter().map(broadcast).collect();
        parts.push(table::table(BROADCASTS, &rows));
    }
    for figures in found.broadcasts.iter().filter(|figures| figures.fault.is_none()) {
        let rows: Vec<_> = figures.members.iter().map(broadcast_member).collect();
        let members = if rows.is_empty() { String::new() } else { table::table(BROADCAST_MEMBERS, &rows) };
        parts.push(format!("{}: {}\n{members}", table::path(&figures.path), broadcast_counters(figures)));
    }
    if !found.pipes.is_empty() {
        let rows: Vec<_> = found.pipes.iter().map(pipe).collect();
        parts.push(table::table(PIPES, &rows));
    }
    parts.join("\n")
}

/// One object for each, a line each.
pub(super) fn objects(found: &Found, resolution: Duration) -> String {
    let time = found.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let channels = found.channels.iter().map(|figures| of_channel(figures, resolution));
    let broadcasts = found.broadcasts.iter().map(of_broadcast);
    let lines = channels.chain(broadcasts).chain(found.pipes.iter().map(of_pipe)).map(|mut object| {
        object["time"] = time.into();
        format!("{object}\n")
    });
    lines.collect()
}

fn of_channel(figures: &Figures, resolution: Duration) -> Value {
    let (key, path) = form::path(&figures.path);
    let mut object = json!({ "kind": "channel", key: path });
    if let Some(fault) = &figures.fault {
        object["reason"] = fault.as_str().into();
        return object;
    }
    let more = json!({
        "slots": figures.slots,
        "in_use": figures.in_use,
        "waiting": figures.waiting,
        "taken": figures.taken,
        "done": figures.done,
        "damaged": figures.damaged,
        "blobs": look::blobs_object(&figures.blobs),
        "counters": figures.stats.by_name().collect::<std::collections::BTreeMap<_, _>>(),
        "per_second": figures.rates.map(|rates| json!({
            "requests": rates.requests,
            "replies": rates.replies,
            "cancelled": rates.cancelled,
        })),
        "mean_s": figures.mean.map(|mean| mean.as_secs_f64()),
        "age_s": figures.ages.map(|ages| json!({
            "p50": ages.p50.as_secs_f64(),
            "p90": ages.p90.as_secs_f64(),
            "p99": ages.p99.as_secs_f64(),
            "max": ages.max.as_secs_f64(),
        })),
        "age_resolution_s": resolution.as_secs_f64(),
        "members": figures.members.iter().map(|Attached { member, command, calls }| json!({
            "number": member.number,
            "role": role(member.role),
            "pid": member.pid,
            "command": command,
            "alive": member.is_alive,
            "age_s": member.since.elapsed().ok().map(|age| age.as_secs()),
            "calls": calls,
        })).collect::<Vec<_>>(),
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn of_broadcast(figures: &BroadcastFigures) -> Value {
    let (key, path) = form::path(&figures.path);
    if let Some(fault) = &figures.fault {
        return json!({ "kind": "broadcast", key: path, "reason": fault });
    }
    let members = figures.members.iter().map(|BroadcastMember { member, command }| {
        let is_subscriber = member.role == Role::Subscriber;
        json!({
            "number": member.number,
            "role": look::role(member.role),
            "must_see_all": is_subscriber.then_some(member.must_see_all),
            "lag": is_subscriber.then_some(member.lag),
            "pid": member.pid,
            "command": command,
            "alive": member.is_alive,
            "age_s": member.since.elapsed().ok().map(|age| age.as_secs()),
        })
    });
    json!({
        "kind": "broadcast",
        key: path,
        "messages": figures.messages,
        "newest": figures.newest,
        "writing": figures.writing,
        "publishers": figures.living(Role::Publisher).count(),
        "subscribers": figures.living(Role::Subscriber).count(),
        "dead": figures.dead(),
        "lag": figures.lag(),
        "blobs": look::blobs_object(&figures.blobs),
        "counters": figures.stats.by_name().collect::<std::collections::BTreeMap<_, _>>(),
        "per_second": figures.rates.map(|rates| json!({
            "published": rates.published,
            "missed": rates.missed,
        })),
        "members": members.collect::<Vec<_>>(),
    })
}

fn of_pipe(pipe: &Pipe) -> Value {
    let mut object = Map::new();
    object.insert("kind".into(), if pipe.path.is_some() { "fifo" } else { "pipe" }.into());
    match (&pipe.path, pipe.found) {
        (Some(path), _) => {
            let (key, path) = form::path(path);
            object.insert(key.into(), path);
        }
        (None, Some((id, number))) => {
            object.insert("pid".into(), id.into());
            object.insert("fd".into(), number.into());
        }
        (None, None) => {
            object.insert("pid".into(), pipe.name.parse::<i32>().ok().into());
        }
    }
    if let Some(fault) = &pipe.fault {
        object.insert("reason".into(), fault.as_str().into());
    }
    object.insert("bytes".into(), pipe.fill.map(|fill| fill.unread).into());
    object.insert("capacity".into(), pipe.fill.map(|fill| fill.capacity).into());
    let ends = |counts: fn(&crate::processes::Use) -> bool| {
        let ends = pipe.uses.iter().filter(|found| counts(found));
        ends.map(|found| json!({ "pid": found.id, "fd": found.number })).collect::<Value>()
    };
    object.insert("readers".into(), ends(|found| found.reads));
    object.insert("writers".into(), ends(|found| found.writes));
    object.into()
}

pub(super) fn role(role: reqrep::Role) -> &'static str {
    match role {
        reqrep::Role::Server => "server",
        reqrep::Role::Client => "client",
    }
}

/// A time in at most six characters: 850us, 1.2ms, 123ms, 4.6s, 12m.
fn short(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..0.001 => format!("{:.0}us", seconds * 1e6),
        ..0.01 => format!("{:.1}ms", seconds * 1e3),
        ..1.0 => format!("{:.0}ms", seconds * 1e3),
        ..100.0 => format!("{seconds:.1}s"),
        ..6000.0 => format!("{:.0}m", seconds / 60.0),
        _ => format!("{:.0}h", seconds / 3600.0),
    }
}

/// A number in at most six characters: 0, 7.5, 123, 45.6k, 1.23M.
fn few(number: f64) -> String {
    match number {
        ..10.0 if number.fract() > 0.05 => format!("{number:.1}"),
        ..10_000.0 => format!("{number:.0}"),
        ..1e6 => format!("{:.1}k", number / 1e3),
        ..1e9 => format!("{:.1}M", number / 1e6),
        _ => format!("{:.1}G", number / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_short_use_few_characters() {
        let few = [0.0, 7.5, 123.4, 9999.0, 45_600.0, 1_230_000.0, 4.2e9].map(few);
        assert_eq!(few, ["0", "7.5", "123", "9999", "45.6k", "1.2M", "4.2G"]);
        let short = [0, 850, 1230, 12_300, 4_560_000, 720_000_000].map(|us| short(Duration::from_micros(us)));
        assert_eq!(short, ["0us", "850us", "1.2ms", "12ms", "4.6s", "12m"]);
    }
}
