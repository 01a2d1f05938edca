//! The scopes that are searched.

use super::blobs::Part::{
    Canceller, Child as Heir, Client as Sender, Doctor, Echo, Forwarder, Maker, Server as Receiver,
};
use super::blobs::{Scope as Blobs, Whims as BlobWhims};
use super::broadcast::Part::{All, Heir as Forked, Helper as Recoverer, Lag, Publisher};
use super::broadcast::Start::{Now, Oldest};
use super::broadcast::waking::{Part as Waits, Scope as BroadcastWakes};
use super::broadcast::{Scope as Broadcast, Whims as BroadcastWhims};
use super::calls::Part::{Child, Client, Helper, Server};
use super::calls::{Scope, Whims};
use super::{folders, wake};

const NONE: Whims = Whims {
    deaths: 0,
    cancels: 0,
    forgets: 0,
    forgets_aside: 0,
    failures: 0,
    give_backs: 0,
    forks: 0,
    leaves: 0,
};

const ONE: Scope = Scope {
    cast: &[Client, Server],
    slots: 1,
    cells: 2,
    members: 2,
    calls: 1,
    replies: 1,
    redeliveries: 0,
    whims: NONE,
    returns: true,
    without: None,
};

/// Searched with every test.
pub(crate) const CALLS: &[(&str, Scope)] = &[
    (
        "one client, one server, both may die and leave",
        Scope { redeliveries: 1, whims: Whims { deaths: 2, leaves: 1, ..NONE }, ..ONE },
    ),
    (
        "the same, with cancelled calls",
        Scope { calls: 2, whims: Whims { deaths: 2, cancels: 1, ..NONE }, ..ONE },
    ),
    ("a ring that laps", Scope { calls: 4, whims: Whims { deaths: 1, cancels: 4, ..NONE }, ..ONE }),
    (
        "two servers",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "two clients",
        Scope {
            cast: &[Client, Client, Server],
            members: 3,
            whims: Whims { deaths: 1, cancels: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "two clients, a full ring",
        Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            members: 3,
            calls: 2,
            whims: Whims { cancels: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a helper that recovers",
        Scope { cast: &[Client, Server, Helper], redeliveries: 1, whims: Whims { deaths: 1, ..NONE }, ..ONE },
    ),
    (
        "parts",
        Scope {
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 2, cancels: 1, failures: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "parts, two clients",
        Scope {
            cast: &[Client, Client, Server],
            members: 3,
            replies: 2,
            whims: Whims { deaths: 1, cancels: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "parts, two clients, two slots",
        Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            members: 3,
            replies: 2,
            whims: Whims { deaths: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests",
        Scope {
            calls: 2,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, forgets: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, two deaths",
        Scope { redeliveries: 1, whims: Whims { deaths: 2, forgets: 1, ..NONE }, ..ONE },
    ),
    (
        "forgotten requests, two servers",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, two servers, two deaths",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            returns: false,
            whims: Whims { deaths: 2, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, a full ring",
        Scope {
            slots: 2,
            cells: 1,
            calls: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, a full ring, two servers",
        Scope {
            cast: &[Client, Server, Server],
            slots: 2,
            cells: 1,
            members: 3,
            calls: 2,
            redeliveries: 1,
            returns: false,
            whims: Whims { deaths: 1, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "requests forgotten while another thread sends them",
        Scope { calls: 2, replies: 2, whims: Whims { deaths: 1, forgets_aside: 1, ..NONE }, ..ONE },
    ),
    (
        "the same beside another client",
        Scope {
            cast: &[Client, Client, Server],
            members: 3,
            whims: Whims { forgets_aside: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a request forgotten before its push, behind entries of earlier calls",
        Scope { calls: 3, whims: Whims { deaths: 1, cancels: 2, forgets_aside: 1, ..NONE }, ..ONE },
    ),
    (
        "a request forgotten before its push, whose slot another client gets",
        Scope {
            cast: &[Client, Client, Server],
            cells: 1,
            members: 3,
            whims: Whims { deaths: 1, forgets_aside: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "requests forgotten while the ring is full, no process returns",
        Scope {
            slots: 2,
            cells: 1,
            calls: 2,
            returns: false,
            whims: Whims { deaths: 1, cancels: 1, forgets_aside: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a child",
        Scope {
            cast: &[Client, Server, Child],
            members: 3,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, forgets: 1, forks: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a child of a child",
        Scope {
            cast: &[Client, Server, Child, Helper],
            members: 3,
            whims: Whims { deaths: 1, forks: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "a child, and a second call",
        Scope {
            cast: &[Client, Server, Server, Child],
            members: 4,
            calls: 2,
            returns: false,
            whims: Whims { forks: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back",
        Scope { redeliveries: 1, whims: Whims { deaths: 2, cancels: 1, give_backs: 1, ..NONE }, ..ONE },
    ),
    (
        "a request given back, two servers",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            returns: false,
            whims: Whims { deaths: 1, give_backs: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back, a full ring",
        Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            cells: 1,
            members: 3,
            whims: Whims { give_backs: 1, ..NONE },
            ..ONE
        },
    ),
];

/// Searched by `make model`.
pub(crate) const LARGE_CALLS: &[(&str, Scope)] = &[
    (
        "requests forgotten while the ring is full",
        Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            cells: 1,
            members: 3,
            whims: Whims { deaths: 1, cancels: 1, forgets_aside: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "one client, one server, a number to spare, everything",
        Scope {
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 2, cancels: 1, leaves: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "the same with calls that follow each other",
        Scope { calls: 2, redeliveries: 2, whims: Whims { deaths: 2, cancels: 1, leaves: 1, ..NONE }, ..ONE },
    ),
    (
        "two slots and a ring of four",
        Scope {
            slots: 2,
            cells: 4,
            calls: 2,
            redeliveries: 1,
            whims: Whims { deaths: 2, cancels: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "two slots and a small ring that laps",
        Scope { slots: 2, calls: 5, whims: Whims { deaths: 1, cancels: 5, ..NONE }, ..ONE },
    ),
    (
        "two servers, two deaths",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "two clients, two slots and a small ring",
        Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, cancels: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a helper that recovers, three deaths",
        Scope { cast: &[Client, Server, Helper], redeliveries: 1, whims: Whims { deaths: 3, ..NONE }, ..ONE },
    ),
    (
        "two clients, two servers",
        Scope {
            cast: &[Client, Client, Server, Server],
            members: 4,
            whims: Whims { deaths: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "parts, everything",
        Scope {
            calls: 2,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 2, cancels: 1, failures: 1, leaves: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "parts, two servers",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, cancels: 1, failures: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "parts, two clients, and a server that fails",
        Scope {
            cast: &[Client, Client, Server],
            members: 3,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, cancels: 1, failures: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "parts, a helper that recovers",
        Scope {
            cast: &[Client, Server, Helper],
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 2, cancels: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "three parts",
        Scope {
            replies: 3,
            redeliveries: 1,
            whims: Whims { deaths: 2, cancels: 1, forgets: 1, failures: 1, leaves: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, a ring of stale entries",
        Scope {
            slots: 2,
            calls: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, cancels: 1, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, a ring of stale entries, two servers",
        Scope {
            cast: &[Client, Server, Server],
            slots: 2,
            members: 3,
            calls: 3,
            redeliveries: 1,
            returns: false,
            whims: Whims { deaths: 1, cancels: 1, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, two servers, a second call",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            calls: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "forgotten requests, a helper that recovers",
        Scope {
            cast: &[Client, Server, Helper],
            redeliveries: 2,
            whims: Whims { deaths: 2, forgets: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "children, two deaths",
        Scope {
            cast: &[Client, Server, Child],
            members: 3,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 2, forgets: 1, forks: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "a child of a child, and redeliveries",
        Scope {
            cast: &[Client, Server, Child, Helper],
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, forks: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "a child of one of two servers",
        Scope {
            cast: &[Client, Server, Server, Child],
            members: 4,
            redeliveries: 1,
            returns: false,
            whims: Whims { deaths: 1, forgets: 1, forks: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a child, and calls that follow each other",
        Scope {
            cast: &[Client, Server, Child],
            members: 3,
            calls: 2,
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, cancels: 1, failures: 1, forks: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back, two servers that return",
        Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, give_backs: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back, a full ring, a death",
        Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            cells: 1,
            members: 3,
            whims: Whims { deaths: 1, give_backs: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back, parts, forgotten",
        Scope {
            replies: 2,
            redeliveries: 1,
            whims: Whims { deaths: 1, cancels: 1, forgets: 1, give_backs: 2, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back, two servers, a full ring, two deaths",
        Scope {
            cast: &[Client, Server, Server],
            slots: 2,
            cells: 1,
            members: 3,
            calls: 2,
            redeliveries: 1,
            returns: false,
            whims: Whims { deaths: 2, forgets: 1, give_backs: 1, ..NONE },
            ..ONE
        },
    ),
    (
        "a request given back, a child",
        Scope {
            cast: &[Client, Server, Child],
            members: 3,
            redeliveries: 1,
            whims: Whims { deaths: 1, forgets: 1, give_backs: 1, forks: 1, ..NONE },
            ..ONE
        },
    ),
];

pub(crate) const WAKES: &[(&str, wake::Scope)] =
    &[("three wait, two wake", wake::Scope { waiters: 3, brings: &[2, 1], deaths: 1, without: None })];

pub(crate) const FOLDERS: &[(&str, folders::Scope)] = &[(
    "three have the channel, two remove",
    folders::Scope { arrivals: 2, forks: 1, deaths: 1, wipes: 1, blobs: 2, without: None },
)];

const STILL: BlobWhims = BlobWhims { deaths: 0, cancels: 0, failures: 0, forks: 0, leaves: 0 };

const BLOB: Blobs = Blobs {
    cast: &[Sender, Receiver],
    slots: 1,
    files: 1,
    calls: 1,
    redeliveries: 0,
    parts: false,
    copies: false,
    holds_replies: false,
    unnamed: true,
    joins: true,
    whims: STILL,
    without: None,
};

/// Searched with every test.
pub(crate) const BLOBS: &[(&str, Blobs)] = &[
    (
        "a request with a blob",
        Blobs {
            cast: &[Sender, Receiver, Doctor],
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "redelivery",
        Blobs {
            cast: &[Sender, Receiver, Receiver],
            redeliveries: 1,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "a blob that is sent back",
        Blobs {
            cast: &[Sender, Echo, Doctor],
            holds_replies: true,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "a blob that is sent back in parts",
        Blobs {
            cast: &[Sender, Echo, Doctor],
            holds_replies: true,
            parts: true,
            whims: BlobWhims { deaths: 1, cancels: 1, failures: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "parts for a client that dies",
        Blobs {
            cast: &[Sender, Echo, Doctor],
            calls: 2,
            parts: true,
            whims: BlobWhims { deaths: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "a part that another thread cancels",
        Blobs {
            cast: &[Sender, Canceller, Echo],
            calls: 2,
            parts: true,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "re-use beside a forwarder",
        Blobs {
            cast: &[Sender, Forwarder],
            calls: 2,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    ("re-use", Blobs { calls: 3, whims: BlobWhims { deaths: 1, cancels: 1, ..STILL }, ..BLOB }),
    (
        "two files",
        Blobs {
            cast: &[Sender, Maker],
            files: 2,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    ("two files, two slots", Blobs { cast: &[Sender, Sender, Receiver], slots: 2, files: 2, ..BLOB }),
    (
        "a child",
        Blobs { cast: &[Sender, Receiver, Heir], whims: BlobWhims { deaths: 1, forks: 1, ..STILL }, ..BLOB },
    ),
    (
        "a child that is no member",
        Blobs {
            cast: &[Sender, Receiver, Heir],
            joins: false,
            whims: BlobWhims { deaths: 1, forks: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "files with two names",
        Blobs {
            cast: &[Sender, Receiver, Doctor],
            unnamed: false,
            whims: BlobWhims { deaths: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies",
        Blobs {
            cast: &[Sender, Receiver, Doctor],
            copies: true,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, redelivery",
        Blobs {
            cast: &[Sender, Receiver, Receiver],
            copies: true,
            redeliveries: 1,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies of parts of two files that another thread cancels",
        Blobs {
            cast: &[Sender, Canceller, Maker],
            files: 2,
            copies: true,
            parts: true,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, two files",
        Blobs {
            cast: &[Sender, Maker],
            files: 2,
            copies: true,
            holds_replies: true,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, a forwarder",
        Blobs {
            cast: &[Sender, Forwarder, Receiver],
            copies: true,
            slots: 2,
            whims: BlobWhims { deaths: 1, ..STILL },
            ..BLOB
        },
    ),
];

/// Searched by `make model`.
pub(crate) const LARGE_BLOBS: &[(&str, Blobs)] = &[
    (
        "a forwarder",
        Blobs {
            cast: &[Sender, Forwarder, Receiver],
            slots: 2,
            whims: BlobWhims { deaths: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "a child whose parent leaves",
        Blobs { cast: &[Sender, Receiver, Heir], whims: BlobWhims { forks: 1, leaves: 1, ..STILL }, ..BLOB },
    ),
    (
        "re-use, two servers",
        Blobs {
            cast: &[Sender, Receiver, Receiver],
            calls: 2,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "parts of two files that another thread cancels",
        Blobs {
            cast: &[Sender, Canceller, Maker],
            files: 2,
            parts: true,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, a child, two slots",
        Blobs {
            cast: &[Sender, Echo, Heir],
            copies: true,
            slots: 2,
            whims: BlobWhims { forks: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "files with two names, two deaths",
        Blobs {
            cast: &[Sender, Sender, Doctor],
            files: 2,
            unnamed: false,
            whims: BlobWhims { deaths: 2, ..STILL },
            ..BLOB
        },
    ),
    (
        "a forwarder, two deaths",
        Blobs {
            cast: &[Sender, Forwarder, Receiver, Doctor],
            whims: BlobWhims { deaths: 2, ..STILL },
            ..BLOB
        },
    ),
    (
        "a request with a blob, three deaths",
        Blobs {
            cast: &[Sender, Receiver, Receiver, Doctor],
            redeliveries: 1,
            whims: BlobWhims { deaths: 3, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "two files, two slots, a death",
        Blobs {
            cast: &[Sender, Sender, Receiver],
            slots: 2,
            files: 2,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "two slots, a forwarder, redelivery",
        Blobs {
            cast: &[Sender, Forwarder, Receiver],
            slots: 2,
            redeliveries: 1,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "parts, two calls, two deaths",
        Blobs {
            cast: &[Sender, Echo, Doctor],
            calls: 2,
            holds_replies: true,
            parts: true,
            whims: BlobWhims { deaths: 2, cancels: 1, failures: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "re-use, three calls, two deaths",
        Blobs {
            cast: &[Sender, Echo, Doctor],
            calls: 3,
            redeliveries: 1,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "re-use beside a forwarder, two slots",
        Blobs {
            cast: &[Sender, Forwarder, Receiver],
            slots: 2,
            calls: 2,
            whims: BlobWhims { cancels: 1, deaths: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "two files, two calls, two deaths",
        Blobs {
            cast: &[Sender, Maker, Doctor],
            files: 2,
            calls: 2,
            holds_replies: true,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "a child, two deaths",
        Blobs {
            cast: &[Sender, Receiver, Heir],
            calls: 2,
            redeliveries: 1,
            whims: BlobWhims { deaths: 2, cancels: 1, forks: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "a child, two slots",
        Blobs {
            cast: &[Sender, Echo, Heir],
            slots: 2,
            calls: 1,
            whims: BlobWhims { deaths: 1, forks: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies of parts, two calls, two deaths",
        Blobs {
            cast: &[Sender, Echo, Doctor],
            copies: true,
            calls: 2,
            holds_replies: true,
            parts: true,
            whims: BlobWhims { deaths: 2, cancels: 1, failures: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies of parts that another thread cancels, two files, two calls",
        Blobs {
            cast: &[Sender, Canceller, Maker],
            files: 2,
            copies: true,
            calls: 2,
            parts: true,
            whims: BlobWhims { deaths: 1, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, re-use, two deaths",
        Blobs {
            cast: &[Sender, Receiver, Receiver, Doctor],
            copies: true,
            calls: 2,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, three deaths",
        Blobs {
            cast: &[Sender, Receiver, Receiver, Doctor],
            copies: true,
            redeliveries: 1,
            whims: BlobWhims { deaths: 3, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, two files, two calls, two deaths",
        Blobs {
            cast: &[Sender, Maker, Doctor],
            files: 2,
            copies: true,
            calls: 2,
            holds_replies: true,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, two slots, a forwarder, redelivery",
        Blobs {
            cast: &[Sender, Forwarder, Receiver],
            copies: true,
            slots: 2,
            redeliveries: 1,
            whims: BlobWhims { deaths: 2, cancels: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, a child, two deaths",
        Blobs {
            cast: &[Sender, Receiver, Heir],
            copies: true,
            calls: 2,
            redeliveries: 1,
            whims: BlobWhims { deaths: 2, cancels: 1, forks: 1, ..STILL },
            ..BLOB
        },
    ),
    (
        "copies, a child whose parent leaves",
        Blobs {
            cast: &[Sender, Receiver, Heir],
            copies: true,
            calls: 2,
            whims: BlobWhims { deaths: 1, forks: 1, leaves: 1, ..STILL },
            ..BLOB
        },
    ),
];

const CALM: BroadcastWhims =
    BroadcastWhims { deaths: 0, returns: 0, losses: 0, publisher_losses: 0, forks: 0 };

const RING: Broadcast = Broadcast {
    cast: &[Publisher, Publisher],
    late: 0,
    members: 3,
    messages: 2,
    files: 0,
    drops: false,
    whims: CALM,
    without: None,
};

/// Searched with every test.
pub(crate) const BROADCASTS: &[(&str, Broadcast)] = &[
    (
        "two publishers",
        Broadcast { messages: 2, whims: BroadcastWhims { deaths: 1, returns: 1, ..CALM }, ..RING },
    ),
    (
        "one that must see all",
        Broadcast {
            cast: &[Publisher, All(Now)],
            messages: 3,
            whims: BroadcastWhims { deaths: 1, returns: 1, ..CALM },
            ..RING
        },
    ),
    (
        "one that may lag",
        Broadcast {
            cast: &[Publisher, Publisher, Lag(Now)],
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    ("two that must see all", Broadcast { cast: &[Publisher, All(Now), All(Oldest)], messages: 3, ..RING }),
    (
        "a number that is used again",
        Broadcast {
            cast: &[Publisher, All(Now), Recoverer],
            members: 2,
            messages: 3,
            whims: BroadcastWhims { deaths: 1, returns: 1, ..CALM },
            ..RING
        },
    ),
    (
        "a lost lock, and another subscriber",
        Broadcast {
            cast: &[Publisher, All(Now), All(Now)],
            late: 1,
            members: 2,
            messages: 3,
            whims: BroadcastWhims { losses: 1, returns: 1, ..CALM },
            ..RING
        },
    ),
    (
        "a lost lock, and a publisher that comes",
        Broadcast {
            cast: &[All(Now), Publisher],
            late: 1,
            members: 2,
            messages: 3,
            whims: BroadcastWhims { losses: 1, returns: 1, ..CALM },
            ..RING
        },
    ),
    (
        "a child",
        Broadcast {
            cast: &[Publisher, All(Now), Forked],
            messages: 3,
            whims: BroadcastWhims { deaths: 1, forks: 1, ..CALM },
            ..RING
        },
    ),
    (
        "long messages",
        Broadcast {
            cast: &[Publisher, Lag(Now)],
            files: 2,
            messages: 5,
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    (
        "long messages, one must see all",
        Broadcast {
            cast: &[Publisher, All(Oldest)],
            files: 2,
            messages: 4,
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    (
        "long messages that are dropped",
        Broadcast { cast: &[Publisher, All(Oldest), Lag(Now)], files: 2, messages: 3, drops: true, ..RING },
    ),
    (
        "long messages of two publishers",
        Broadcast {
            cast: &[Publisher, Publisher],
            members: 2,
            files: 2,
            messages: 3,
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    (
        "long messages, a lost lock",
        Broadcast {
            cast: &[Publisher, Publisher],
            members: 3,
            files: 2,
            messages: 2,
            whims: BroadcastWhims { publisher_losses: 1, ..CALM },
            ..RING
        },
    ),
];

/// Searched by `make model`.
pub(crate) const LARGE_BROADCASTS: &[(&str, Broadcast)] = &[
    (
        "long messages of two publishers that drop them",
        Broadcast { cast: &[Publisher, Publisher, All(Now)], files: 2, messages: 2, drops: true, ..RING },
    ),
    (
        "long messages that are dropped, a death",
        Broadcast {
            cast: &[Publisher, All(Oldest), Lag(Now)],
            files: 2,
            messages: 3,
            drops: true,
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    (
        "long messages, both kinds of subscribers",
        Broadcast { cast: &[Publisher, All(Oldest), Lag(Now)], files: 2, messages: 4, ..RING },
    ),
    (
        "long messages of two publishers, one may lag",
        Broadcast { cast: &[Publisher, Publisher, Lag(Oldest)], members: 2, files: 2, messages: 2, ..RING },
    ),
    (
        "two that must see all, a death",
        Broadcast {
            cast: &[Publisher, All(Now), All(Oldest)],
            messages: 3,
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    (
        "a number that is used again, two deaths",
        Broadcast {
            cast: &[Publisher, All(Now), Recoverer],
            members: 2,
            messages: 3,
            whims: BroadcastWhims { deaths: 2, returns: 1, ..CALM },
            ..RING
        },
    ),
    (
        "a lost lock, three numbers",
        Broadcast {
            cast: &[Publisher, All(Now), All(Now)],
            late: 1,
            messages: 3,
            whims: BroadcastWhims { returns: 1, losses: 1, ..CALM },
            ..RING
        },
    ),
    (
        "two publishers, one that must see all",
        Broadcast {
            cast: &[Publisher, Publisher, All(Oldest)],
            whims: BroadcastWhims { deaths: 1, ..CALM },
            ..RING
        },
    ),
    (
        "two publishers, both kinds of subscribers",
        Broadcast { cast: &[Publisher, Publisher, All(Now), Lag(Now)], messages: 2, ..RING },
    ),
    (
        "two publishers, two deaths",
        Broadcast {
            cast: &[Publisher, Publisher],
            members: 2,
            messages: 3,
            whims: BroadcastWhims { deaths: 2, returns: 2, ..CALM },
            ..RING
        },
    ),
];

pub(crate) const BROADCAST_WAKES: &[(&str, BroadcastWakes)] = &[
    (
        "two subscribers",
        BroadcastWakes {
            cast: &[Waits::Publisher, Waits::Subscriber, Waits::Subscriber],
            messages: 2,
            deaths: 1,
            without: None,
        },
    ),
    (
        "two publishers, a subscriber",
        BroadcastWakes {
            cast: &[Waits::Publisher, Waits::Publisher, Waits::Subscriber],
            messages: 1,
            deaths: 1,
            without: None,
        },
    ),
    (
        "an observer",
        BroadcastWakes {
            cast: &[Waits::Publisher, Waits::Subscriber, Waits::Observer],
            messages: 2,
            deaths: 1,
            without: None,
        },
    ),
];
