//! `pipework ls`: the segments and FIFOs of this user, and the processes that use them.

mod args;

use crate::failure::Failure;
use crate::form;
use crate::look::{self, Find, State, What};
use crate::progress::size;
use crate::table::{self, Align};
use crate::{streams, sys};
use pipework::broadcast;
use pipework::reqrep::Role;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

pub(crate) use args::{HELP, LsArgs};

/// Runs `pipework ls`.
pub(crate) fn ls(args: &LsArgs, quiet: bool) -> Result<u8, Failure> {
    let paths = if args.paths.is_empty() { look::usual_places() } else { args.paths.clone() };
    let mut finds = look::at_all(&paths, sys::user()).map_err(look::failure)?;
    if args.unused {
        finds.retain(|find| matches!(find.state(), State::Left | State::Broken | State::Unused));
    }
    let text = if args.nul {
        finds.iter().flat_map(|find| [find.path.as_os_str().as_bytes(), b"\0"]).flatten().copied().collect()
    } else if args.json {
        finds.iter().flat_map(|find| format!("{}\n", object(find)).into_bytes()).collect()
    } else {
        listed(&finds).into_bytes()
    };
    streams::print(&text)?;
    if finds.is_empty() && !quiet && !args.nul && !args.json {
        look::say_nothing_found(&paths);
    }
    Ok(0)
}

/// The table for people.
fn listed(finds: &[Find]) -> String {
    if finds.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = finds.iter().map(row).collect();
    let columns = [
        ("STATE", Align::Left),
        ("KIND", Align::Left),
        ("SIZE", Align::Right),
        ("AGE", Align::Right),
        ("PATH", Align::Left),
        ("USERS", Align::Left),
    ];
    table::table(columns, &rows)
}

fn row(find: &Find) -> [String; 6] {
    let (kind, bytes) = match &find.what {
        What::Segment(_) => ("channel", size(find.bytes)),
        What::Broadcast(_) => ("broadcast", size(find.bytes)),
        What::Fifo(Some(fill)) => ("FIFO", format!("{} of {}", size(fill.unread), size(fill.capacity))),
        What::Fifo(None) => ("FIFO", "-".into()),
    };
    let path = table::path(&find.path);
    [find.state().word().into(), kind.into(), bytes, table::age(find.since), path, find.users()]
}

/// The same for programs.
pub(crate) fn object(find: &Find) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    let (key, path) = form::path(&find.path);
    put(key, path);
    put("state", find.state().word().into());
    put("age_s", seconds(find.since));
    let mut processes: Vec<_> = find.uses.iter().map(|found| found.id).collect();
    processes.dedup();
    put("open_in", processes.into());
    match &find.what {
        What::Fifo(fill) => {
            put("kind", "fifo".into());
            put("readers", find.readers().into());
            put("writers", find.writers().into());
            put("bytes", fill.map(|fill| fill.unread).into());
            put("capacity", fill.map(|fill| fill.capacity).into());
        }
        What::Segment(Err(_)) => {
            put("kind", "channel".into());
            put("bytes", find.bytes.into());
            put("reason", find.users().into());
        }
        What::Segment(Ok(found)) => {
            put("kind", "channel".into());
            put("bytes", find.bytes.into());
            put("servers", found.living(Role::Server).into());
            put("clients", found.living(Role::Client).into());
            put("dead", found.dead().into());
            put("waiting", found.waiting.into());
            let sizes = &found.geometry;
            put("slots", sizes.slots.into());
            put("request_bytes", sizes.request_bytes.into());
            put("reply_bytes", sizes.reply_bytes.into());
            put("blobs", look::blobs_object(&found.blobs));
            put("members", found.members.iter().map(member).collect());
        }
        What::Broadcast(Err(_)) => {
            put("kind", "broadcast".into());
            put("bytes", find.bytes.into());
            put("reason", find.users().into());
        }
        What::Broadcast(Ok(found)) => {
            put("kind", "broadcast".into());
            put("bytes", find.bytes.into());
            put("publishers", found.living(broadcast::Role::Publisher).into());
            put("subscribers", found.living(broadcast::Role::Subscriber).into());
            put("dead", found.dead().into());
            put("newest", found.newest.into());
            let sizes = &found.geometry;
            put("messages", sizes.messages.into());
            put("message_bytes", sizes.message_bytes.into());
            put("observers", sizes.observers.into());
            put("blobs", look::blobs_object(&found.blobs));
            put("members", found.members.iter().map(broadcast_member).collect());
        }
    }
    object.into()
}

fn member(member: &pipework::reqrep::Member) -> Value {
    let role = if member.role == Role::Server { "server" } else { "client" };
    json!({
        "number": member.number,
        "role": role,
        "pid": member.pid,
        "alive": member.is_alive,
        "age_s": seconds(Some(member.since)),
    })
}

fn broadcast_member(member: &broadcast::Member) -> Value {
    let is_subscriber = member.role == broadcast::Role::Subscriber;
    json!({
        "number": member.number,
        "role": look::role(member.role),
        "must_see_all": is_subscriber.then_some(member.must_see_all),
        "lag": is_subscriber.then_some(member.lag),
        "pid": member.pid,
        "alive": member.is_alive,
        "age_s": seconds(Some(member.since)),
    })
}

fn seconds(since: Option<SystemTime>) -> Value {
    since.and_then(|since| since.elapsed().ok()).map(|age| age.as_secs()).into()
}
