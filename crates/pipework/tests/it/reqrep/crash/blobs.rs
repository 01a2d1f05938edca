//! Victims that make, send, receive and drop blobs, and free the blobs of dead processes.
//!
//! A victim is forked while no process has a blob, so that it shares no open file with its parent.

use std::fs;
use std::mem::forget;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{
    Blob, Client, ClientOptions, Message, Options, Reply, Request, Segment, Server, Ticket,
};

use super::calling::{END, next_gets_the_slot};
use super::getting::{server_gets_on, streaming};
use super::recovering::caught;
use super::serving::outcome_while;
use super::{LONG, SOON, options};
use crate::harness::fate::{Fate, Victim};
use crate::harness::tracee::{Tracee, mark, trace};
use crate::harness::{Folder, PATIENCE, blob_files, blob_folder, blob_of, fork};

// ---------------------------------------------------------------- making and dropping

/// The victim also makes the folder.
pub(super) fn make(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let victim = fate.client(segment, |_| forget(segment.blob(BYTES.len()).unwrap()));
    victim.die();
    channel.assert_whole(vec![]);
}

pub(super) fn make_in_a_folder(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    drop(new_blob(segment));
    let victim = fate.client(segment, |_| forget(segment.blob(BYTES.len()).unwrap()));
    let kept = new_blob(segment);
    victim.die();
    channel.assert_whole(vec![kept]);
}

pub(super) fn make_again(fate: &Fate) {
    let channel = Channel::with(&options(1));
    let segment = &channel.segment;
    let victim = fate.victim(segment, || {
        let client = segment.client().unwrap();
        drop(new_blob(segment));
        mark();
        let draft = segment.blob(BYTES.len()).unwrap();
        mark();
        drop((client, draft));
    });
    assert_eq!(blob_files(segment).len(), 1, "the victim keeps it");
    victim.die();
    channel.assert_whole(vec![]);
}

pub(super) fn freeze(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let victim = fate.victim(segment, || {
        let client = segment.client().unwrap();
        let draft = segment.blob(BYTES.len()).unwrap();
        mark();
        let blob = draft.freeze().unwrap();
        mark();
        drop((client, blob));
    });
    victim.die();
    channel.assert_whole(vec![]);
}

/// The victim has made the blob, and keeps no file in its pool.
pub(super) fn drop_own(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let victim = fate.victim(segment, || {
        let client = segment.client().unwrap();
        let blob = new_blob(segment);
        mark();
        drop(blob);
        mark();
        drop(client);
    });
    victim.die();
    channel.assert_whole(vec![]);
}

/// The victim has received the blob and is its last holder.
pub(super) fn drop_of_another(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let client = segment.client().unwrap();
    let ticket = send_one(&client, &new_blob(segment));
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        let request = server.try_recv().unwrap().unwrap();
        let blob = request.blobs()[0].clone();
        assert_eq!(request.reply("pong"), Ok(true));
        mark();
        drop(blob);
        mark();
    });
    assert_eq!(client.try_recv(ticket).unwrap().as_deref(), Some(&b"pong"[..]));
    assert_eq!(blob_files(segment).len(), 1, "the victim holds it");
    victim.die();
    channel.assert_whole(vec![]);
}

// ---------------------------------------------------------------- clients

pub(super) fn send(fate: &Fate) {
    let channel = Channel::new(2);
    let segment = &channel.segment;
    let server = segment.server().unwrap();
    let victim = fate.victim(segment, || {
        let (client, blob) = (segment.client().unwrap(), new_blob(segment));
        mark();
        send_one(&client, &blob);
        mark();
        drop(blob);
    });
    victim.die();
    answer_all(&server);
    channel.assert_whole(vec![]);
}

/// The victim drops its handle as soon as the slot names the blob.
pub(super) fn send_and_drop(fate: &Fate) {
    let channel = Channel::new(2);
    let segment = &channel.segment;
    let server = segment.server().unwrap();
    let victim = fate.victim(segment, || {
        let (client, blob) = (segment.client().unwrap(), new_blob(segment));
        mark();
        send_one(&client, &blob);
        drop(blob);
        mark();
    });
    victim.die();
    answer_all(&server);
    channel.assert_whole(vec![]);
}

/// The reply has come, and another client waits for the slot.
pub(super) fn receive_reply(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.caller(segment, |client, ticket| {
        let reply = client.try_recv(ticket).unwrap().unwrap();
        assert_eq!(reply.blobs().len(), 2);
        forget(reply);
    });
    let blobs = [new_blob(segment), new_blob(segment)];
    let request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.reply(Message::new("pong").attach(&blobs)), Ok(true));
    let [kept, dropped] = blobs;
    drop(dropped);
    next_gets_the_slot(fate, &next, || victim.die());
    channel.assert_whole(vec![kept]);
}

/// The server sleeps until it can give the next part.
/// The victim copies the bytes without a lock of their file.
pub(super) fn receive_long_reply(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.caller(segment, |client, ticket| {
        assert_eq!(&*client.try_recv(ticket).unwrap().unwrap(), LONG);
    });
    assert_eq!(server.try_recv().unwrap().unwrap().reply(LONG), Ok(true));
    next_gets_the_slot(fate, &next, || victim.die());
    channel.assert_whole(vec![]);
}

pub(super) fn take_a_part(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let server = segment.server().unwrap();
    let victim = streaming(fate, segment, |_, stream| {
        forget(stream.try_next_part().unwrap().unwrap());
    });
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part(Message::new("part").attach(&new_blob(segment)), PATIENCE), Ok(true));
    server_gets_on(fate, request, || victim.die());
    channel.assert_whole(vec![]);
}

pub(super) fn cancel_sent(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = caller(fate, segment, |client, ticket| {
        assert_eq!(client.cancel(ticket), Ok(None));
    });
    next_gets_the_slot(fate, &next, || victim.die());
    answer_all(&server);
    channel.assert_whole(vec![]);
}

pub(super) fn cancel_taken(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let victim = caller(fate, segment, |client, ticket| {
        assert_eq!(client.cancel(ticket), Ok(None));
    });
    while_a_server_has_it(fate, channel.segment.clone(), victim);
    channel.assert_whole(vec![]);
}

pub(super) fn forget_sent(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let server = segment.server().unwrap();
    let victim = caller(fate, segment, |client, ticket| client.forget(ticket).unwrap());
    victim.die();
    hand_on(server.try_recv().unwrap().unwrap());
    channel.assert_whole(vec![]);
}

pub(super) fn forget_taken(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let victim = caller(fate, segment, |client, ticket| client.forget(ticket).unwrap());
    while_a_server_has_it(fate, channel.segment.clone(), victim);
    channel.assert_whole(vec![]);
}

/// With a call in each state.
pub(super) fn close(fate: &Fate) {
    let channel = Channel::new(3);
    let segment = &channel.segment;
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(segment, || {
        let client = segment.client().unwrap();
        for _ in 0..3 {
            send_one(&client, &new_blob(segment));
        }
        mark();
        drop(client);
        mark();
    });
    hand_on(server.try_recv().unwrap().unwrap());
    let taken = server.try_recv().unwrap().unwrap();
    next_gets_the_slot(fate, &next, || victim.die());
    hand_on(taken);
    answer_all(&server);
    channel.assert_whole(vec![]);
}

// ---------------------------------------------------------------- servers

/// One of the blobs is held by its maker, the other only by the slot.
pub(super) fn receive(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (server, client) = (segment.server().unwrap(), insistent(segment));
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        mark();
        let request = server.try_recv().unwrap().unwrap();
        mark();
        drop(request);
    });
    let blobs = [new_blob(segment), new_blob(segment)];
    let ticket = client.try_send(Message::new("ping").attach(&blobs)).unwrap().unwrap();
    let [kept, dropped] = blobs;
    drop(dropped);
    let died = victim.die();
    assert_answered(&server, fate, died, &client, ticket, 2);
    channel.assert_whole(vec![kept]);
}

/// As `receive_long_reply`.
pub(super) fn receive_long_request(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (server, client) = (segment.server().unwrap(), insistent(segment));
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        mark();
        let request = server.try_recv().unwrap().unwrap();
        mark();
        assert_eq!(&*request, LONG);
    });
    let ticket = client.try_send(LONG).unwrap().unwrap();
    let died = victim.die();
    assert_answered(&server, fate, died, &client, ticket, 0);
    channel.assert_whole(vec![]);
}

pub(super) fn give_back(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (server, client) = (segment.server().unwrap(), insistent(segment));
    let ticket = send_one(&client, &new_blob(segment));
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        mark();
        assert!(request.give_back());
        mark();
    });
    let died = victim.die();
    assert_answered(&server, fate, died, &client, ticket, 1);
    channel.assert_whole(vec![]);
}

/// The client sleeps; the victim wakes it, or dies before that.
pub(super) fn reply(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        let (request, blob) = (server.try_recv().unwrap().unwrap(), new_blob(segment));
        mark();
        assert_eq!(request.reply(Message::new("pong").attach(&blob)), Ok(true));
        mark();
        drop(blob);
    });
    let reply = outcome_while(fate, || answered_or_dead(&client, ticket), || victim.die());
    let kept = reply.iter().flat_map(Reply::blobs).cloned().collect();
    drop(reply);
    channel.assert_whole(kept);
}

/// No other process holds the blob.
pub(super) fn hand_back(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let client = segment.client().unwrap();
    let ticket = send_one(&client, &new_blob(segment));
    let victim = fate.server(segment, |request| {
        let blob = request.blobs()[0].clone();
        assert_eq!(request.reply(Message::new("pong").attach(&blob)), Ok(true));
        drop(blob);
    });
    let reply = outcome_while(fate, || answered_or_dead(&client, ticket), || victim.die());
    let kept = reply.iter().flat_map(Reply::blobs).cloned().collect();
    drop(reply);
    channel.assert_whole(kept);
}

/// The call was cancelled, and another client waits for its slot.
pub(super) fn reply_to_a_cancelled_call(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let (client, next) = (segment.client().unwrap(), segment.client().unwrap());
    let ticket = send_one(&client, &new_blob(segment));
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        let (request, blob) = (server.try_recv().unwrap().unwrap(), new_blob(segment));
        mark();
        assert_eq!(request.reply(Message::new("pong").attach(&blob)), Ok(false));
        mark();
        drop(blob);
    });
    assert_eq!(client.cancel(ticket), Ok(None));
    next_gets_the_slot(fate, &next, || victim.die());
    channel.assert_whole(vec![]);
}

pub(super) fn fail(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let client = segment.client().unwrap();
    let ticket = send_one(&client, &new_blob(segment));
    let victim = fate.server(segment, |request| {
        request.fail("");
    });
    let wait = || client.recv(ticket, PATIENCE).map(drop).map_err(|error| error.kind());
    let outcome = outcome_while(fate, wait, || victim.die());
    assert!([Err(ErrorKind::Failed), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    channel.assert_whole(vec![]);
}

/// The client sleeps; the victim wakes it, or dies before that.
pub(super) fn give(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let client = segment.client().unwrap();
    let mut stream = client.stream("ping", PATIENCE).unwrap();
    let victim = fate.victim(segment, || {
        let server = segment.server().unwrap();
        let (mut request, blob) = (server.try_recv().unwrap().unwrap(), new_blob(segment));
        mark();
        assert_eq!(request.part(Message::new("part").attach(&blob), SOON), Ok(true));
        mark();
        drop((request, blob));
    });
    let rest = || {
        let mut blobs = vec![];
        loop {
            match stream.next_part(PATIENCE) {
                Ok(part) => blobs.extend_from_slice(part.expect("no reply was sent").blobs()),
                Err(error) => return (blobs, error.kind()),
            }
        }
    };
    let (kept, end) = outcome_while(fate, rest, || victim.die());
    assert_eq!(end, ErrorKind::PeerDied);
    assert!(kept.len() < 2, "{kept:?}");
    channel.assert_whole(kept);
}

// ---------------------------------------------------------------- sweeping

/// The victim is not a member.
pub(super) fn recover(fate: &Fate) {
    among_the_dead(fate, |segment, dead| assert_eq!(segment.recover(), Ok(dead)));
}

/// The victim takes the number of a dead server; the other dead members stay.
pub(super) fn attach_in_a_dead_place(fate: &Fate) {
    among_the_dead(fate, |segment, _| forget(segment.client().unwrap()));
}

/// A process that was not a member died with a blob, and its death was not noticed.
pub(super) fn attach(fate: &Fate) {
    let channel = Channel::new(1);
    let segment = &channel.segment;
    let dead = trace(|| {
        let blob = new_blob(segment);
        mark();
        drop(blob);
    });
    let victim = fate.victim(segment, || {
        mark();
        let client = segment.client().unwrap();
        mark();
        drop(client);
    });
    dead.kill();
    victim.die();
    // The victim may have died before it became a member.
    drop(segment.client().unwrap());
    channel.assert_whole(vec![]);
}

/// The victim makes the first blob of a channel without a path, beside the folders of a channel whose
/// processes are dead and of one that only this process has, and has not used. Messages of both name
/// blobs that no process holds.
pub(super) fn make_beside_a_dead_channel(fate: &Fate) {
    assert!(super::own_memory_files());
    let new = || options(2).blob_pool(0).anonymous().unwrap();
    let (living, victims) = (new(), new());
    let leave_request = |segment: &Segment| {
        let client = segment.client().unwrap();
        client.forget(send_one(&client, &new_blob(segment))).unwrap();
    };
    fork(|| leave_request(&living)).join();
    fork(|| {
        let dies = new();
        leave_request(&dies);
        forget(dies);
    })
    .join();
    let above = blob_folder(&living).parent().unwrap().to_owned();
    let folders = || {
        let entries = fs::read_dir(&above).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "blobs")).count()
    };
    assert_eq!(folders(), 2);
    let victim = fate.victim(None::<&Segment>, || {
        mark();
        forget(victims.blob(BYTES.len()).unwrap());
        mark();
    });
    drop(victims);
    victim.die();
    // Another first blob removes what the victim has left, and its own folder. If that takes more than
    // 10 ms, on a busy machine, it leaves some to the next one.
    loop {
        let began = Instant::now();
        fork(|| drop(new().blob(BYTES.len()).unwrap())).join();
        if folders() == 1 || began.elapsed() < Duration::from_millis(10) {
            break;
        }
    }
    assert_eq!((folders(), blob_files(&living).len()), (1, 1));
    hand_on(living.server().unwrap().try_recv().unwrap().unwrap());
    drop(living);
    assert_eq!(folders(), 0);
}

/// Leaves members that died with a draft, with a blob, with requests and a reply that name blobs,
/// and while naming one. Then the victim does the operation, which gets their number.
fn among_the_dead(fate: &Fate, operation: impl FnOnce(&Segment, usize)) {
    let channel = Channel::with(&options(4).members(13).blob_pool(0));
    let segment = &channel.segment;
    let (server, client) = (segment.server().unwrap(), insistent(segment));
    let ticket = send_one(&client, &new_blob(segment));
    let taker = trace(|| {
        let server = segment.server().unwrap();
        let request = server.try_recv().unwrap().unwrap();
        mark();
        drop(request);
    });
    let sender = trace(|| {
        let client = segment.client().unwrap();
        let (draft, blob) = (segment.blob(BYTES.len()).unwrap(), new_blob(segment));
        let tickets = [(); 2].map(|()| send_one(&client, &blob));
        mark();
        drop((draft, blob, tickets));
    });
    let before = names(segment);
    let naming = trace(|| {
        let (client, blob) = (segment.client().unwrap(), new_blob(segment));
        mark();
        send_one(&client, &blob);
        mark();
        drop(blob);
    });
    let naming = caught(naming, || names(segment) > before && segment.audit().unwrap().filling == 1);
    let dead = [taker, sender, naming];
    let victim = fate.victim(segment, || {
        mark();
        operation(segment, dead.len());
        mark();
    });
    let answered = server.try_recv().unwrap().unwrap();
    assert_eq!(answered.reply(Message::new("pong").attach(&new_blob(segment))), Ok(true));
    let taken = server.try_recv().unwrap().unwrap();
    dead.into_iter().for_each(Tracee::kill);
    let died = victim.die();
    assert_answered(&server, fate, died, &client, ticket, 1);
    let kept = taken.blobs().to_vec();
    hand_on(taken);
    channel.assert_whole(kept);
}

/// The number of handles in slots that name blobs, according to the blobs' files.
fn names(segment: &Segment) -> u32 {
    let count = |path| {
        let mut named = [0; 4];
        fs::File::open(path).and_then(|file| file.read_exact_at(&mut named, 32)).expect("a blob's file");
        u32::from_le_bytes(named)
    };
    blob_files(segment).iter().map(count).sum()
}

// ---------------------------------------------------------------- survivors

/// The contents of all blobs here.
const BYTES: &[u8; 100] = &[0x5A; 100];

fn new_blob(segment: &Segment) -> Blob {
    blob_of(segment, BYTES)
}

/// A client whose requests may be redelivered.
fn insistent(segment: &Segment) -> Client {
    segment.client_with(&ClientOptions::new().redeliveries(3)).unwrap()
}

fn send_one(client: &Client, blob: &Blob) -> Ticket {
    client.try_send(Message::new("ping").attach(blob)).unwrap().unwrap()
}

/// A victim that is a client and has sent a request; its slot alone holds the blob.
fn caller<'a>(fate: &Fate, segment: &'a Segment, operation: impl FnOnce(&Client, Ticket)) -> Victim<'a> {
    fate.victim(segment, || {
        let client = segment.client().unwrap();
        let ticket = send_one(&client, &new_blob(segment));
        mark();
        operation(&client, ticket);
        mark();
    })
}

/// Answers with the request's blobs.
fn hand_on(request: Request<'_>) {
    let blobs = request.blobs().to_vec();
    let is_whole = blobs.iter().all(|blob| **blob == *BYTES);
    assert!(is_whole && (!blobs.is_empty() || &*request == LONG), "{request:?}");
    // The caller may be dead, and its death may have been noticed.
    let _was_wanted = request.reply(Message::new("pong").attach(&blobs)).expect("it is this server's");
}

fn answer_all(server: &Server) {
    while let Some(request) = server.try_recv().unwrap() {
        hand_on(request);
    }
}

/// A server takes the victim's request, and another client waits for its slot.
fn while_a_server_has_it(fate: &Fate, segment: Segment, victim: Victim<'_>) {
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let request = server.try_recv().unwrap().unwrap();
    next_gets_the_slot(fate, &next, || {
        let died = victim.die();
        hand_on(request);
        died
    });
}

/// The reply, or `None` if the server has died.
fn answered_or_dead(client: &Client, ticket: Ticket) -> Option<Reply> {
    let outcome = client.recv(ticket, PATIENCE);
    outcome.map_err(|error| assert_eq!(error.kind(), ErrorKind::PeerDied)).ok()
}

/// Checks that a redeliverable call is answered, with `blobs` blobs.
fn assert_answered(
    server: &Server,
    fate: &Fate,
    died: Instant,
    client: &Client,
    ticket: Ticket,
    blobs: usize,
) {
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let request = server.recv(PATIENCE).unwrap();
                if &*request == END {
                    return request.reply("").unwrap();
                }
                hand_on(request);
            }
        });
        let reply = client.recv(ticket, PATIENCE).unwrap();
        fate.got_on(died);
        assert!(reply.blobs().len() == blobs && reply.blobs().iter().all(|blob| **blob == *BYTES));
        client.call(END, PATIENCE).unwrap();
    });
}

/// A channel at a path in a folder of its own.
struct Channel {
    folder: Folder,
    segment: Segment,
}

impl Channel {
    /// No process keeps files for later blobs.
    fn new(slots: u32) -> Channel {
        Channel::with(&options(slots).blob_pool(0))
    }

    fn with(options: &Options) -> Channel {
        let folder = Folder::new();
        let segment = options.create(folder.join("channel")).unwrap();
        Channel { folder, segment }
    }

    /// Checks the state after all calls: the conditions of every scene hold, and the only files are
    /// those of the `held` blobs, with the right bytes.
    fn assert_whole(self, held: Vec<Blob>) {
        let Channel { folder, segment } = self;
        let files = || blob_files(&segment).len();
        segment.recover().expect("recovery works");
        assert_eq!(files(), held.len(), "after recovery");
        super::assert_whole(&segment);
        {
            let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
            for turn in 0..20 {
                let bytes = [turn; 5000];
                let ticket = send_one(&client, &blob_of(&segment, &bytes));
                let request = server.try_recv().unwrap().unwrap();
                let came = request.blobs().to_vec();
                assert!(came.len() == 1 && *came[0] == bytes && !came[0].is_copied());
                assert_eq!(request.reply(Message::new("pong").attach(&came)), Ok(true));
                drop(came);
                let reply = client.try_recv(ticket).unwrap().unwrap();
                assert!(reply.blobs().len() == 1 && *reply.blobs()[0] == bytes);
            }
        }
        assert!(held.iter().all(|blob| **blob == *BYTES && blob.check().is_ok()), "at the end");
        drop(held);
        let blobs = blob_folder(&segment);
        drop(segment);
        let left = fs::read_dir(&blobs).map_or(0, Iterator::count);
        assert_eq!(left, 0, "files are left at the end");
        drop(folder);
    }
}
