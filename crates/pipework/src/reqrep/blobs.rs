//! Blobs that travel with messages, in one process that has the channel open twice.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::sync::new_id;
use crate::sys::Errno;
use crate::sys::fault::{self, Fault, Turn, fork, wait};

const SOON: Duration = Duration::from_secs(20);

/// A channel at a path in a folder of its own.
struct Place(PathBuf, #[allow(dead_code, reason = "held, and not read")] Option<Turn>);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new() -> Place {
        Place::with(Some(Turn::shared()))
    }

    fn with(turn: Option<Turn>) -> Place {
        let folder = std::env::temp_dir().join(format!("pipework-calls-{}-{}", std::process::id(), new_id()));
        std::fs::create_dir(&folder).unwrap();
        Place(folder, turn)
    }

    /// The channel, as another process would open it: no file is kept for later blobs.
    fn open(&self) -> Segment {
        let options = Options::new().slots(2).members(8).request_bytes(100).reply_bytes(100).blob_pool(0);
        options.open_or_create(self.0.join("channel")).unwrap()
    }

    /// The number of blob files. Other tests fork, and a child keeps inherited locks until it ends.
    /// Such locks can delay freeing, so `opened` look again until there are at most `most` files.
    fn files(&self, most: usize, opened: [&Segment; 2]) -> usize {
        let limit = Deadline::after(SOON);
        loop {
            let folders = std::fs::read_dir(&self.0).unwrap();
            let files = folders.filter_map(|entry| entry.ok()?.path().read_dir().ok()).flatten().count();
            if files <= most || limit.has_passed() {
                return files;
            }
            opened.iter().for_each(|segment| segment.shared().blobs().look_at_left());
            std::thread::yield_now();
        }
    }
}

fn blob(segment: &Segment, bytes: &[u8]) -> Blob {
    let mut draft = segment.blob(bytes.len()).unwrap();
    draft.copy_from_slice(bytes);
    draft.freeze().unwrap()
}

fn all_free(segment: &Segment) {
    assert_eq!(segment.audit().unwrap().free, segment.geometry().slots as usize);
}

#[test]
fn blobs_travel_both_ways_without_a_copy_and_are_freed_by_the_last_holder() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let bytes: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
    let blobs = [blob(&near, &bytes), blob(&near, b"second")];
    let ticket = client.send(Message::new("frame").attach(&blobs), SOON).unwrap();
    drop(blobs);
    let request = server.recv(SOON).unwrap();
    assert_eq!((request.payload(), request.blobs().len()), (&b"frame"[..], 2));
    assert_eq!((&*request.blobs()[0], &*request.blobs()[1]), (&*bytes, &b"second"[..]));
    assert!(!request.blobs()[0].is_copied());
    let stats = far.blob_stats();
    assert_eq!((stats.held, stats.copied), (10_006, 0));
    let frame = request.blobs()[0].clone();
    request.reply(Message::new("same").attach(&frame)).unwrap();
    drop(frame);
    assert_eq!(place.files(2, [&near, &far]), 2, "the slot names both");
    let reply = client.recv(ticket, SOON).unwrap();
    assert_eq!((&*reply, reply.blobs().len(), &*reply.blobs()[0]), (&b"same"[..], 1, &*bytes));
    assert_eq!(place.files(1, [&near, &far]), 1, "the second is free");
    drop(reply);
    assert_eq!(place.files(0, [&near, &far]), 0);
    all_free(&near);
}

#[test]
fn every_end_of_a_call_frees_the_blobs_that_its_slot_names() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let server = far.server().unwrap();
    let send = |client: &Client| {
        let blob = blob(&near, b"bytes");
        client.send(Message::new("").attach(&blob), SOON).unwrap()
    };
    let reply = |request: Request<'_>| request.reply(Message::new("").attach(&blob(&far, b"reply"))).unwrap();
    let none_left = |why: &str| {
        assert_eq!(place.files(0, [&near, &far]), 0, "{why}");
        all_free(&near);
    };
    let client = near.client().unwrap();

    assert_eq!(client.cancel(send(&client)), Ok(None));
    none_left("cancelled before a server has it");

    let ticket = send(&client);
    let request = server.recv(SOON).unwrap();
    assert_eq!(client.cancel(ticket), Ok(None));
    assert!(!reply(request));
    none_left("cancelled while a server has it");

    let ticket = send(&client);
    reply(server.recv(SOON).unwrap());
    assert!(client.cancel(ticket).unwrap().is_some());
    none_left("cancelled after the reply came");

    client.forget(send(&client)).unwrap();
    assert!(!reply(server.recv(SOON).unwrap()));
    none_left("forgotten");

    let ticket = send(&client);
    server.recv(SOON).unwrap().fail(Message::new("why").attach(&blob(&far, b"not sent")));
    assert_eq!(client.recv(ticket, SOON).unwrap_err().kind(), ErrorKind::Failed);
    none_left("failed");

    let ticket = send(&client);
    let mut request = server.recv(SOON).unwrap();
    assert!(request.give_back());
    drop(request);
    let request = server.recv(SOON).unwrap();
    assert_eq!(&*request.blobs()[0], b"bytes");
    reply(request);
    let reply_there = client.recv(ticket, SOON).unwrap();
    assert_eq!(&*reply_there.blobs()[0], b"reply");
    drop(reply_there);
    none_left("given back and answered");

    send(&client);
    drop(client);
    none_left("its client has left");

    let client = near.client().unwrap();
    let mut stream = client.stream(Message::new("").attach(&blob(&near, b"request")), SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    assert!(request.part(Message::new("part").attach(&blob(&far, b"of a part")), SOON).unwrap());
    let part = stream.next_part(SOON).unwrap().unwrap();
    assert_eq!((&*part, part.blobs().len()), (&b"part"[..], 1));
    assert_eq!(&*part.blobs()[0], b"of a part");
    assert!(request.part(Message::new("part").attach(&blob(&far, b"of a part")), SOON).unwrap());
    drop((stream, part));
    assert!(!request.reply("").unwrap());
    none_left("a stream that was cancelled");
}

#[test]
fn kept_request_gets_its_blobs_when_it_is_read_and_is_answered_without_them() {
    let segment = Options::new().slots(1).blob_limit(1000).blob_pool(0).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.send(Message::new("a").attach(&blob(&segment, &[1; 600])), SOON).unwrap();
    let request = server.recv(SOON).unwrap();
    assert_eq!(request.blobs().len(), 1);
    request.keep();
    assert_eq!(segment.blob_stats().held, 0);

    // What this process holds leaves no place for them.
    let held = blob(&segment, &[2; 600]);
    let mut request = server.kept(ticket).unwrap().expect("it is kept");
    assert!(request.is_wanted() && request.blobs().is_empty());
    assert_eq!(request.read().unwrap_err().kind(), ErrorKind::TooLong);
    assert_eq!(request.read_blobs().unwrap_err().kind(), ErrorKind::TooLong);
    request.keep();
    drop(held);
    let mut request = server.kept(ticket).unwrap().expect("it is kept");
    assert_eq!(request.read().unwrap(), b"a");
    assert_eq!(*request.blobs()[0], [1; 600]);
    request.keep();
    let mut request = server.kept(ticket).unwrap().expect("it is kept");
    assert_eq!(*request.read_blobs().unwrap()[0], [1; 600]);
    assert_eq!(request.reply("b"), Ok(true));
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"b");
    assert_eq!(segment.blob_stats().held, 0);
}

#[test]
fn message_carries_as_many_blobs_as_the_channel_allows() {
    let segment = Options::new().slots(1).blobs(2).anonymous().unwrap();
    let (client, _server) = (segment.client().unwrap(), segment.server().unwrap());
    let blobs = [b"1", b"2", b"3"].map(|bytes| blob(&segment, bytes));
    let refused = client.send(Message::new("").attach(&blobs), SOON).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLong);
    all_free(&segment);
    client.send(Message::new("").attach(&blobs[..2]), SOON).unwrap();
}

#[test]
fn blob_of_another_channel_is_copied_into_this_one_and_counted() {
    let [one, other] = [Place::new(), Place::with(None)].map(|place| (place.open(), place));
    let (client, server) = (other.0.client().unwrap(), other.0.server().unwrap());
    client.send(Message::new(&[1; 101]).attach(&blob(&one.0, b"bytes")), SOON).unwrap();
    assert_eq!((one.1.files(0, [&one.0; 2]), other.1.files(2, [&other.0; 2])), (0, 2));
    assert_eq!([&one.0, &other.0].map(|segment| segment.blob_stats().copied), [0, 1]);
    assert_eq!(&*server.try_recv().unwrap().unwrap().blobs()[0], b"bytes");
    assert_eq!(other.0.blob_stats().copied, 1);
}

#[test]
fn recover_frees_blobs_of_a_dead_process_in_slots_and_files() {
    let place = Place::with(Some(Turn::alone()));
    let near = place.open();
    let server = near.server().unwrap();
    for dies in ["with a draft", "with a blob", "with a request sent", "with a reply that it did not receive"]
    {
        let child = fork(|| {
            let far = place.open();
            let client = far.client().unwrap();
            let draft = far.blob(10_000).unwrap();
            if dies == "with a draft" {
                std::mem::forget(draft);
            } else {
                let blob = draft.freeze().unwrap();
                if dies != "with a blob" {
                    client.send(Message::new("").attach(&blob), SOON).unwrap();
                }
                std::mem::forget(blob);
            }
            std::mem::forget((far, client));
        });
        if dies.starts_with("with a reply") {
            let request = server.recv(SOON).unwrap();
            request.reply(Message::new("").attach(&blob(&near, b"reply"))).unwrap();
        }
        wait(child);
        assert!(place.files(usize::MAX, [&near; 2]) > 0, "{dies}");
        assert_eq!(near.recover(), Ok(1));
        assert_eq!(place.files(0, [&near; 2]), 0, "{dies}");
        all_free(&near);
    }
    assert_eq!(server.recv(Deadline::after(Duration::ZERO)).unwrap_err().kind(), ErrorKind::TimedOut);
}

// ---------------------------------------------------------------- long payloads

#[test]
fn a_long_payload_is_copied_once_and_lent_to_its_receiver_until_that_drops_it() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let bytes: Vec<u8> = (0..40_000u32).map(|number| number as u8).collect();
    let ticket = client.try_send(Message::new(&bytes).flags(7)).unwrap().expect("a slot is free");
    assert_eq!(place.files(1, [&near, &far]), 1, "the slot names it");
    let request = server.try_recv().unwrap().expect("it was sent");
    assert_eq!((&*request, request.flags(), request.blobs().len()), (&*bytes, 7, 0));
    assert_eq!((far.blob_stats().held, far.blob_stats().copied), (40_000, 0));
    assert_eq!(request.reply(&bytes[1..]), Ok(true));
    let reply = client.recv(ticket, SOON).unwrap();
    assert_eq!((&*reply, near.blob_stats().held), (&bytes[1..], 39_999));
    assert_eq!(place.files(1, [&near, &far]), 1, "the reply is held, and the request is free");
    drop(reply);
    assert_eq!((place.files(0, [&near, &far]), near.blob_stats().held), (0, 0));
    all_free(&near);
}

#[test]
fn a_payload_that_is_a_little_longer_than_a_slot_is_copied_out_and_its_file_is_free_at_once() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let mut replies = Vec::new();
    for byte in 0..20 {
        let ticket = client.send(&[byte; 5000], SOON).unwrap();
        let request = server.recv(SOON).unwrap();
        assert_eq!((&*request, far.blob_stats().held), (&[byte; 5000][..], 0));
        assert_eq!(request.reply(&[byte; 101]), Ok(true));
        replies.push(client.recv(ticket, SOON).unwrap());
    }
    assert!(replies.iter().zip(0..).all(|(reply, byte)| **reply == [byte; 101]));
    let files = near.blob_audit().files;
    assert!(files <= 4, "each side uses its file again: {files} files");
    let ticket = client.send(&[1; 5000], SOON).unwrap();
    let mut into = [0; 6000];
    let mut request = server.recv(SOON).unwrap();
    assert_eq!(request.try_reply(&[2; 6000]), Ok(true));
    drop(request);
    assert_eq!(client.recv_into(ticket, &mut into, SOON).unwrap().0, 6000);
    assert_eq!((into, near.blob_stats().held), ([2; 6000], 0));
    all_free(&near);
}

#[test]
fn a_long_message_and_its_blobs_come_together() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let blobs: Vec<_> = (0..MAX_BLOBS).map(|number| blob(&near, &[number as u8; 10])).collect();
    let ticket = client.send(Message::new(&[1; 101]).attach(&blobs), SOON).unwrap();
    let request = server.recv(SOON).unwrap();
    assert_eq!((&*request, request.blobs().len()), (&[1; 101][..], MAX_BLOBS as usize));
    assert!(request.blobs().iter().zip(0..).all(|(blob, number)| **blob == [number; 10]));
    assert_eq!(request.reply(""), Ok(true));
    drop(blobs);
    client.recv(ticket, SOON).unwrap();
    assert_eq!(place.files(0, [&near, &far]), 0);
}

#[test]
fn a_channel_without_blobs_carries_long_payloads() {
    let segment = Options::new().slots(1).request_bytes(0).reply_bytes(0).blobs(0).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.send(&[1; 100], SOON).unwrap();
    let request = server.recv(SOON).unwrap();
    assert_eq!(*request, [1; 100]);
    assert_eq!(request.reply(&[2; 101]), Ok(true));
    assert_eq!(client.recv(ticket, SOON).unwrap().into_vec(), [2; 101]);
}

#[test]
fn a_long_request_goes_to_the_next_server_whole() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let client = near.client_with(&ClientOptions::new().redeliveries(2)).unwrap();
    let server = far.server().unwrap();
    let ticket = client.send(&[7; 5000], SOON).unwrap();
    assert!(server.recv(SOON).unwrap().report_death());
    assert!(server.recv(SOON).unwrap().give_back());
    let request = server.recv(SOON).unwrap();
    assert_eq!((&*request, request.redeliveries()), (&[7; 5000][..], 2));
    assert_eq!(request.reply("done"), Ok(true));
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"done");
    assert_eq!(place.files(0, [&near, &far]), 0);
}

#[test]
fn a_part_that_is_longer_than_a_slot_is_one_part() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let mut stream = client.stream("", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    for byte in 1..3 {
        assert_eq!(request.part(&[byte; 5000], Deadline::now()), Ok(true));
        assert_eq!(*stream.next_part(SOON).unwrap().unwrap(), [byte; 5000]);
    }
    assert_eq!(request.part(&[3; 5000], Deadline::now()), Ok(true));
    drop(stream);
    assert_eq!(request.reply(&[4; 5000]), Ok(false));
    assert_eq!(place.files(0, [&near, &far]), 0);
    all_free(&near);
}

#[test]
fn a_long_payload_that_has_no_blob_is_not_sent_and_its_error_says_why() {
    let place = Place::new();
    let segment = place.open();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    // A file is where the folder of blobs is to be made.
    let folder = segment.shared().blobs().folder().location().to_owned();
    std::fs::write(&folder, "").unwrap();
    let refused = client.try_send(&[1; 101]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "reqrep blob for a long message: the system call failed: Not a directory (os error 20)"
    );
    all_free(&segment);
    let ticket = client.try_send("short").unwrap().expect("a slot is free");
    let mut request = server.recv(SOON).unwrap();
    assert_eq!(request.try_reply(&[1; 101]).unwrap_err().errno(), Some(20));
    assert_eq!(client.recv(ticket, SOON).unwrap_err().kind(), ErrorKind::Failed);
    std::fs::remove_file(folder).unwrap();
    all_free(&segment);
}

#[test]
fn blob_limit_holds_for_long_payloads_on_both_sides() {
    let segment = Options::new().slots(1).blob_limit(100_000).request_bytes(100).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let refused = client.send(&[1; 100_001], SOON).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLong);
    assert!(refused.to_string().contains("`blob_limit`"), "{refused}");
    // What is held leaves no place for the request, which waits.
    let ticket = client.send(&[1; 60_000], SOON).unwrap();
    let held = blob(&segment, &[2; 60_000]);
    let refused = server.recv(Deadline::after(Duration::from_millis(1))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLong);
    assert!(refused.to_string().contains("`blob_limit`"), "{refused}");
    drop(held);
    let request = server.recv(SOON).unwrap();
    assert_eq!(*request, [1; 60_000]);
    assert_eq!(request.reply(""), Ok(true));
    assert!(client.recv(ticket, SOON).unwrap().is_empty());
    client.send(&[1; 100_000], SOON).unwrap();
    assert_eq!(*server.recv(SOON).unwrap(), [1; 100_000]);
}

#[test]
fn long_message_looks_at_few_slots_however_many_there_are() {
    const CALLS: usize = 300;
    let place = Place::new();
    let options = Options::new().slots(4096).request_bytes(100).reply_bytes(100).blob_pool(0);
    let (near, far) = [0, 1].map(|_| options.open_or_create(place.0.join("channel")).unwrap()).into();
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    // Copied and held ones, and one that two slots name.
    let payloads = [vec![1; 10_000], vec![2; 40_000]];
    fault::order("look at a slot for a file", 20 * CALLS, Fault::Short(0));
    let tickets: Vec<_> = (0..CALLS).map(|call| client.send(&payloads[call % 2], SOON).unwrap()).collect();
    let twice = blob(&near, b"twice");
    let named = [0, 1].map(|_| client.send(Message::new("").attach(&twice), SOON).unwrap());
    drop(twice);
    let audit = near.blob_audit();
    assert_eq!((audit.files, audit.named, audit.left), (CALLS + 1, CALLS + 1, 0));
    for _ in 0..CALLS + 2 {
        let request = server.recv(SOON).unwrap();
        let answer = request.to_vec();
        request.reply(&answer).unwrap();
    }
    for (call, ticket) in tickets.into_iter().enumerate() {
        assert!(*client.recv(ticket, SOON).unwrap() == *payloads[call % 2]);
    }
    named.into_iter().for_each(|ticket| drop(client.recv(ticket, SOON).unwrap()));
    assert!(!fault::all_met(), "it has looked at more than 20 slots for each message");
    assert_eq!(near.blob_audit().files, 0);
    all_free(&near);
}

/// A client that has forgotten a job for each payload.
fn jobs(segment: &Segment, payloads: impl IntoIterator<Item = Vec<u8>>) -> Client {
    let client = segment.client().unwrap();
    for payload in payloads {
        client.forget(client.send(&payload, SOON).unwrap()).unwrap();
    }
    client
}

#[test]
fn server_at_its_blob_limit_leaves_requests_in_their_order_for_later_and_for_others() {
    const JOBS: u32 = 60;
    let place = Place::new();
    let options = Options::new().slots(64).members(8).request_bytes(100).reply_bytes(100);
    let open = |limit| options.clone().blob_limit(limit).open_or_create(place.0.join("channel")).unwrap();
    let (near, far, other) = (open(u64::MAX), open(1_000_000), open(u64::MAX));
    let (server, helper) = (far.server().unwrap(), other.server().unwrap());
    let _client = jobs(&near, (0..JOBS).map(|job| job.to_le_bytes().repeat(25_000)));
    let number = |request: &Request<'_>| u32::from_le_bytes(request[..4].try_into().unwrap());
    let (mut next, mut errors) = (0, 0);
    while near.waiting() > 0 {
        let requests = server.drain(100).unwrap();
        assert_eq!(requests.len() as u32, 10.min(JOBS - next));
        let refused = server.drain(100).map(|more| assert!(more.is_empty(), "{more:?}"));
        if near.waiting() > 0 {
            for refused in [refused.err(), server.try_recv().err(), server.recv(SOON).err()] {
                let refused = refused.expect("the limit is reached");
                assert_eq!((refused.kind(), refused.op()), (ErrorKind::TooLong, "reqrep recv"));
                assert!(refused.to_string().contains("`blob_limit`"), "{refused}");
                errors += 1;
            }
            // A server that lacks nothing gets the next one meanwhile.
            let request = helper.try_recv().unwrap().expect("it waits");
            assert_eq!((number(&request), request.redeliveries()), (next + 10, 0));
            request.reply("").unwrap();
        }
        for request in &requests {
            assert_eq!((number(request), request.redeliveries()), (next, 0));
            next += 1;
        }
        next += u32::from(near.waiting() > 0 || next < JOBS);
        requests.into_iter().for_each(|request| assert_eq!(request.reply(""), Ok(false)));
    }
    assert_eq!((next, errors > 0), (JOBS, true));
    all_free(&near);
}

#[test]
fn request_above_the_blob_limit_fails_with_a_reason() {
    let place = Place::new();
    let options = Options::new().slots(4).members(8).request_bytes(100).reply_bytes(100);
    let near = options.open_or_create(place.0.join("channel")).unwrap();
    let far = options.clone().blob_limit(100_000).open_or_create(place.0.join("channel")).unwrap();
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let halves = [blob(&near, &[1; 60_000]), blob(&near, &[2; 60_000])];
    let long = client.send(&[0; 100_001], SOON).unwrap();
    let many = client.send(Message::new("").attach(&halves), SOON).unwrap();
    let last = client.send(Message::new("").attach(&halves[0]), SOON).unwrap();
    let request = server.recv(SOON).unwrap();
    assert_eq!(&*request.blobs()[0], &[1; 60_000]);
    for ticket in [long, many] {
        let failed = client.recv(ticket, SOON).unwrap_err();
        let reason = String::from_utf8(failed.reason().expect("there is one").to_vec()).unwrap();
        assert!(reason.contains("`blob_limit`"), "{reason}");
    }
    request.reply("").unwrap();
    client.recv(last, SOON).unwrap();
    all_free(&near);
}

#[test]
fn server_that_lacks_a_descriptor_or_memory_leaves_the_request() {
    let place = Place::new();
    let (near, far) = (place.open(), place.open());
    let (client, server) = (near.client().unwrap(), far.server().unwrap());
    let attached = blob(&near, b"attached");
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOLCK].map(Errno::number);
    for (len, call, errno) in [20_000, 50_000]
        .iter()
        .flat_map(|len| ["open", "mmap", "lock"].map(|call| (*len, call)))
        .flat_map(|(len, call)| lacks.map(|errno| (len, call, errno)))
    {
        let ticket = client.send(Message::new(&vec![7; len]).attach(&attached), SOON).unwrap();
        client.forget(ticket).unwrap();
        let refused = || {
            fault::order(call, 0, Fault::Errno(errno));
            let refused = server.try_recv().map(drop).expect_err("it lacks something");
            assert!(fault::all_met());
            assert_eq!((refused.errno(), refused.op()), (Some(errno), "reqrep recv"), "{call}");
            assert_eq!((near.waiting(), near.audit().unwrap().waiting), (1, 1));
        };
        (0..5).for_each(|_| refused());
        fault::order(call, 0, Fault::Errno(errno));
        let request = server.recv(SOON).expect("it waits until it lacks nothing");
        assert!(fault::all_met());
        assert_eq!((request.len(), request.redeliveries(), request.blobs().len()), (len, 0, 1));
        request.reply("").unwrap();
    }
    drop(attached);
    assert_eq!(place.files(0, [&near, &far]), 0);
    all_free(&near);
}

#[test]
fn loops_of_a_server_that_lacks_something_rest_between_two_looks() {
    let place = Place::new();
    let options = Options::new().slots(4).members(8).request_bytes(100).reply_bytes(100);
    let near = options.open_or_create(place.0.join("channel")).unwrap();
    let far = options.clone().blob_limit(100_000).open_or_create(place.0.join("channel")).unwrap();
    let server = far.server().unwrap();
    let _client = jobs(&near, [vec![1; 60_000], vec![2; 60_000]]);
    let doorbell = server.doorbell().unwrap();
    let first = server.recv(SOON).unwrap();
    let begun = std::time::Instant::now();
    let mut looks = 0;
    while begun.elapsed() < Duration::from_millis(300) {
        if waking::is_rung(&doorbell, Duration::from_millis(100)) {
            assert_eq!(server.try_recv().unwrap_err().kind(), ErrorKind::TooLong);
            looks += 1;
        }
    }
    let most = begun.elapsed().as_millis() / 20 + 2;
    assert!(looks > 0 && looks <= most, "{looks} looks, at most {most} are expected");
    assert_eq!(tests::block_on(server.recv_async()).unwrap_err().kind(), ErrorKind::TooLong);
    // A task waits until another thread drops what it holds.
    std::thread::scope(|scope| {
        let first = first.into_owned();
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            first.reply("").unwrap();
        });
        let second = loop {
            match tests::block_on(server.recv_async()) {
                Err(error) if error.kind() == ErrorKind::TooLong => {}
                received => break received.unwrap(),
            }
        };
        assert_eq!(second[0], 2);
        second.reply("").unwrap();
    });
    all_free(&near);
}
