//! Properties that must hold for any bytes in a segment. The fuzz target and the tests share them.
//!
//! The input says how a segment is made, or is a segment itself. The rest of it is a script, in
//! which one client and one server take turns with a vandal, which writes arbitrary values into
//! their segment. The result may be errors and lost service, and nothing else.

// The fuzz target reaches it, under cfg(fuzzing); the tests need no more than the crate.
#![allow(unreachable_pub)]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::client::Client;
use super::layout::{Direction, Layout};
use super::request::Request;
use super::server::Server;
use super::word::Ticket;
use super::{Audit, ClientOptions, Geometry, Options, Segment, ServerOptions};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::segment::header::{self, CHECKSUM_AT, FIXED, Header};
use crate::sys::{Errno, memory};

/// No bytes in a segment make a process panic, loop, or use more memory than its sizes allow.
pub fn segment(data: &[u8]) {
    let mut script = Script(data);
    let opened = match script.byte() % 3 {
        0 => any_file(&mut script),
        _ => Some(well_formed(&mut script)),
    };
    if let Some(segment) = opened {
        Company::new(&segment).play(&mut script);
    }
}

/// The longest file that is made. A larger one behaves the same, only slower.
const MAX_LEN: u64 = 1 << 18;

/// More steps than this show nothing new: the effects of one step show within the next few.
const STEPS: usize = 200;

// ---------------------------------------------------------------- the script

/// The input; zeros follow its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::from(u16::from_le_bytes(self.bytes())) % limit.max(1)
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

// ---------------------------------------------------------------- the segment

fn geometry(script: &mut Script<'_>) -> Geometry {
    // The first byte is unused now, but kept inputs still have it.
    let [_, slots, queue, members, request_bytes, reply_bytes] = script.bytes();
    let slots = 1 + u32::from(slots % 5);
    Geometry {
        slots,
        queue: (2 * slots).next_power_of_two() << (queue % 3),
        request_bytes: request_bytes.into(),
        reply_bytes: reply_bytes.into(),
        members: 1 + u32::from(members % 5),
        blobs: u32::from(members % 3),
    }
}

fn well_formed(script: &mut Script<'_>) -> Segment {
    let sizes = geometry(script);
    let options =
        Options::new().slots(sizes.slots).queue(sizes.queue).members(sizes.members).blobs(sizes.blobs);
    let segment = options.request_bytes(sizes.request_bytes).reply_bytes(sizes.reply_bytes).anonymous();
    let segment = segment.expect("the sizes are possible, and memory is left");
    assert_eq!(*segment.geometry(), sizes);
    segment
}

/// A file that the script wrote, if it can be opened.
fn any_file(script: &mut Script<'_>) -> Option<Segment> {
    let how = script.byte();
    let said = |geometry: Geometry| {
        let (sizes, len) = (geometry.to_sizes(), Layout::new(geometry).len as u64);
        Header { kind: 0, sizes, sparse: false, len, identity: (0, 0), random: 0 }
    };
    let mut header = if how & 1 == 0 { script.bytes() } else { header::encode(&said(geometry(script))) };
    for _ in 0..how >> 6 {
        let at = 4 * script.below(FIXED / 4);
        header[at..at + 4].copy_from_slice(&script.bytes::<4>());
    }
    if how & 2 != 0 {
        let checksum = header::fnv1a(&header[..CHECKSUM_AT]);
        header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    }
    let said = u64::from_le_bytes(header[40..48].try_into().expect("eight bytes"));
    let len = if how & 4 != 0 { script.below(usize::from(u16::MAX)) as u64 } else { said.min(MAX_LEN) };
    let file = File::from(memory::create_in_memory(c"fuzz").expect("descriptors and memory are left"));
    file.write_all_at(&header, 0).expect("memory is left");
    if how & 8 != 0 {
        // The rest of the header, the members, the ring and the slots are the next bytes of the
        // input, which are the script as well.
        file.write_all_at(script.0, FIXED as u64).expect("memory is left");
    }
    file.set_len(len).expect("memory is left");
    if how & 16 == 0 && len >= FIXED as u64 {
        file.write_all_at(&header[CHECKSUM_AT..], len - 8).expect("memory is left");
    }
    match Options::new().from_fd(file.into()) {
        Ok(segment) => {
            let sizes = *segment.geometry();
            let layout = Layout::checked(&sizes.to_sizes()).expect("sizes in their ranges");
            assert_eq!((layout.len as u64, len), (said, said));
            Some(segment)
        }
        Err(error) => {
            let kinds = [ErrorKind::Incompatible, ErrorKind::Corrupt];
            assert!(kinds.contains(&error.kind()) && error.errno().is_none(), "{error}");
            None
        }
    }
}

// ---------------------------------------------------------------- the peers

/// Bytes of the longest message.
const MAX_MESSAGE: usize = 1000;

/// The lowest bits of `terms` are the redeliveries, and the next is set if it needs a server.
fn client(segment: &Segment, terms: u8) -> Option<Client> {
    let options = ClientOptions::new().max_message(MAX_MESSAGE);
    segment.client_with(&options.redeliveries(terms % 5).needs_server(terms & 8 != 0)).ok()
}

/// A server that never waits for a client.
fn server(segment: &Segment) -> Option<Server> {
    let options = ServerOptions::new().max_message(MAX_MESSAGE).part_timeout(Duration::ZERO);
    segment.server_with(&options).ok()
}

/// One client, one server, and the calls and requests that they hold.
struct Company<'a> {
    segment: &'a Segment,
    vandal: File,
    client: Option<Client>,
    /// The terms of the next client.
    terms: u8,
    server: Option<Server>,
    tickets: Vec<Ticket>,
    requests: Vec<Request<'static>>,
}

impl Company<'_> {
    fn new(segment: &Segment) -> Company<'_> {
        let vandal = File::from(segment.as_fd().try_clone_to_owned().expect("descriptors are left"));
        let client = client(segment, 0);
        let (server, tickets, requests) = (server(segment), Vec::new(), Vec::new());
        Company { segment, vandal, client, terms: 0, server, tickets, requests }
    }

    fn play(mut self, script: &mut Script<'_>) {
        for _ in 0..STEPS {
            if script.is_over() {
                break;
            }
            self.step(script);
        }
        self.check();
        drop((self.requests, self.client, self.server));
        self.segment.recover().ok();
        works_after_zeroing(self.segment, &self.vandal);
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 32 {
            0..=7 => self.vandalise(script),
            8..=9 => self.send(script),
            10 => self.receive(script),
            11 => self.cancel(script),
            12..=13 => self.take(),
            14 => self.answer(script),
            15 => drop(self.requests.pop()),
            16 => self.call(script),
            17 => self.many(script),
            18..=19 => drop(self.segment.recover()),
            20 => self.check(),
            21 => {
                self.client = None;
                self.client = client(self.segment, self.terms);
            }
            22 => {
                // The requests that it has taken keep the old server attached.
                self.server = None;
                self.server = server(self.segment);
            }
            23 => self.requests.clear(),
            24..=25 => self.part(script),
            26 => self.claim(script),
            27 => self.stream(script),
            28 => self.forget(script),
            29 => self.keep(script),
            30 => self.receive_any(),
            _ => self.fail(script),
        }
    }

    /// Writes one word of the segment, behind the bytes that are read only once: all of it, or one
    /// byte of it.
    fn vandalise(&self, script: &mut Script<'_>) {
        let layout = Layout::new(*self.segment.geometry());
        let sizes = layout.geometry;
        let [place, how] = script.bytes();
        let at = match place % 7 {
            0 | 1 => layout.slot(script.below(sizes.slots as usize) as u32),
            2 => {
                layout.slot(script.below(sizes.slots as usize) as u32).map(|slot| slot + 8 * script.below(8))
            }
            3 => Some(layout.ring + 8 * script.below(sizes.queue as usize)),
            4 => sizes
                .to_sizes()
                .member(1 + script.below(sizes.members as usize) as u16)
                .map(|at| at + 8 * script.below(12)),
            5 => layout
                .handles(Direction::Request.of(script.below(sizes.slots as usize) as u32))
                .map(|(at, _)| at)
                .map(|first| first + 8 * script.below(8 * (sizes.blobs as usize + 1))),
            _ => Some(FIXED + 8 * script.below(49)),
        };
        let at = at.expect("it is inside the segment") as u64;
        let mut word = [0; 8];
        match how % 4 {
            0 => word = script.bytes(),
            1 => word = [script.byte(); 8],
            _ => {
                self.vandal.read_exact_at(&mut word, at).expect("it is inside the segment");
                word[script.below(8)] = script.byte();
            }
        }
        self.vandal.write_all_at(&word, at).expect("it is inside the segment");
    }

    fn send(&mut self, script: &mut Script<'_>) {
        let Some(client) = &self.client else { return };
        let [len, terms] = script.bytes();
        self.terms = terms;
        if let Ok(Some(ticket)) = client.try_send(&vec![7; usize::from(len)]) {
            self.tickets.push(ticket);
        }
    }

    fn receive(&mut self, script: &mut Script<'_>) {
        let (Some(client), false) = (&self.client, self.tickets.is_empty()) else { return };
        let ticket = self.tickets[script.below(self.tickets.len())];
        let received = match script.byte() % 2 {
            0 => client.recv(ticket, Deadline::now()).ok(),
            _ => client.try_recv(ticket).ok().flatten(),
        };
        if let Some(reply) = received {
            assert!(reply.into_vec().len() <= MAX_MESSAGE);
        }
    }

    fn receive_any(&mut self) {
        let Some(client) = &self.client else { return };
        if let Ok(Some(done)) = client.recv_any(Deadline::now()) {
            self.tickets.retain(|other| *other != done.ticket);
        }
    }

    fn forget(&mut self, script: &mut Script<'_>) {
        let (Some(client), false) = (&self.client, self.tickets.is_empty()) else { return };
        client.forget(self.tickets.swap_remove(script.below(self.tickets.len()))).ok();
    }

    /// A reply whose parts do not come.
    fn stream(&self, script: &mut Script<'_>) {
        let Some(client) = &self.client else { return };
        if let Ok(mut stream) = client.stream(&vec![7; usize::from(script.byte()) * 3], Duration::ZERO) {
            let part = stream.next_part(Deadline::now());
            assert!(part.is_err(), "no other process acts meanwhile");
        }
    }

    fn cancel(&mut self, script: &mut Script<'_>) {
        let (Some(client), false) = (&self.client, self.tickets.is_empty()) else { return };
        let ticket = self.tickets.swap_remove(script.below(self.tickets.len()));
        if let Err(error) = client.cancel(ticket) {
            // A damaged reply may have any length, and may name a file that is not there.
            let kinds = [ErrorKind::Failed, ErrorKind::PeerDied, ErrorKind::Corrupt, ErrorKind::TooLong];
            let is_missing = error.error().errno() == Some(Errno::NOENT.number());
            assert!(is_missing || kinds.contains(&error.kind()), "{error}");
        }
    }

    fn take(&mut self) {
        let Some(server) = &self.server else { return };
        if let Ok(Some(request)) = server.try_recv() {
            assert!(request.len() <= MAX_MESSAGE.max(self.segment.geometry().request_bytes as usize));
            self.requests.push(request.into_owned());
        }
    }

    fn any_request(&mut self, script: &mut Script<'_>) -> Option<Request<'static>> {
        let any = script.below(self.requests.len());
        (!self.requests.is_empty()).then(|| self.requests.swap_remove(any))
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        let Some(mut request) = self.any_request(script) else { return };
        let reply = vec![9; usize::from(script.byte())];
        let wanted = request.is_wanted();
        match request.try_reply(&reply) {
            Ok(heard) => assert!(wanted || !heard, "no other process acts meanwhile"),
            Err(error) if error.kind() == ErrorKind::TooLong => self.requests.push(request),
            Err(_) => assert_eq!(request.try_reply("").map_err(|error| error.kind()), Err(ErrorKind::Stale)),
        }
    }

    fn part(&mut self, script: &mut Script<'_>) {
        let Some(mut request) = self.any_request(script) else { return };
        request.part(&vec![9; usize::from(script.byte()) * 2], Deadline::now()).ok();
        self.requests.push(request);
    }

    /// A request in place.
    fn claim(&mut self, script: &mut Script<'_>) {
        let Some(server) = &self.server else { return };
        let Ok(mut request) = server.claim(Deadline::now()) else { return };
        let mut bytes = vec![0; usize::from(script.byte())];
        if let Ok(len) = request.read_into(&mut bytes) {
            assert!(len <= bytes.len());
        }
        self.requests.push(request.into_owned());
    }

    fn keep(&mut self, script: &mut Script<'_>) {
        let Some(request) = self.any_request(script) else { return };
        let ticket = request.keep();
        let Some(server) = &self.server else { return };
        let kept = match script.byte() % 2 {
            0 => server.kept(ticket).ok().flatten(),
            _ => server.adopt(ticket).ok(),
        };
        self.requests.extend(kept.map(Request::into_owned));
    }

    fn fail(&mut self, script: &mut Script<'_>) {
        let Some(request) = self.any_request(script) else { return };
        let wanted = request.is_wanted();
        let heard = request.fail(&vec![9; usize::from(script.byte())]);
        assert!(wanted || !heard, "no other process acts meanwhile");
    }

    /// A call that no server answers, with and without time to wait.
    fn call(&self, script: &mut Script<'_>) {
        if let Some(client) = &self.client {
            let called = client.call(&[script.byte(); 8], Deadline::now());
            assert!(called.is_err(), "no other process acts meanwhile");
        }
        if let Some(server) = &self.server {
            server.recv(Deadline::now()).ok();
        }
    }

    fn many(&self, script: &mut Script<'_>) {
        let (Some(server), most) = (&self.server, self.segment.geometry().slots as usize) else { return };
        match script.byte() % 3 {
            0 => assert!(server.clear().is_ok_and(|cleared| cleared <= most) || server.clear().is_err()),
            1 => assert!(server.drain(usize::MAX).map_or(0, |requests| requests.len()) <= most),
            _ => {
                assert!(
                    server
                        .recv_many(usize::MAX, Deadline::now(), Duration::ZERO)
                        .map_or(0, |taken| taken.len())
                        <= most
                )
            }
        }
    }

    /// The numbers that the segment reports stay within its sizes.
    fn check(&self) {
        let sizes = self.segment.geometry();
        let audit = || self.segment.audit().expect("the kernel reports the locks");
        let in_progress = |audit: Audit| {
            let Audit { free, filling, waiting, taken, dropped, in_parts, done, damaged, .. } = audit;
            let all = free + filling + waiting + taken + dropped + in_parts + done + damaged;
            assert_eq!(all, sizes.slots as usize);
            all - free
        };
        // No call begins or ends meanwhile.
        let (before, calls, after) = (audit(), self.segment.calls().count(), audit());
        assert!((in_progress(after)..=in_progress(before)).contains(&calls));
        assert!(after.unqueued <= after.waiting && after.orphaned <= sizes.slots as usize);
        assert!(after.entries <= sizes.queue as usize && self.segment.waiting() <= sizes.queue as usize);
        assert!(self.segment.members().is_ok_and(|members| members.len() <= sizes.members as usize));
        let pending = self.client.as_ref().map_or(0, Client::pending);
        assert!(pending <= sizes.slots as usize);
        self.segment.stats();
    }
}

/// Writes zeros between the first bytes and the last, after which any segment is as good as new.
fn works_after_zeroing(segment: &Segment, vandal: &File) {
    let layout = Layout::new(*segment.geometry());
    let zeros = vec![0; layout.len - 8 - FIXED];
    vandal.write_all_at(&zeros, FIXED as u64).expect("it is inside the segment");
    if layout.geometry.members < 2 {
        return;
    }
    let client = segment.client().expect("no other member is attached");
    let server = segment.server().expect("no other member is attached");
    let (request, reply) = ([1; 8], [2; 8]);
    let request = &request[..request.len().min(layout.geometry.request_bytes as usize)];
    let reply = &reply[..reply.len().min(layout.geometry.reply_bytes as usize)];
    for _ in 0..2 * layout.geometry.queue {
        let ticket = client.try_send(request).expect("nothing is damaged").expect("a slot is free");
        let taken = server.try_recv().expect("nothing is damaged").expect("it was sent");
        assert_eq!(&*taken, request);
        assert_eq!(taken.reply(reply), Ok(true));
        assert_eq!(&*client.try_recv(ticket).expect("nothing is damaged").expect("it was answered"), reply);
    }
    drop((client, server));
    let slots = layout.geometry.slots as usize;
    assert_eq!(segment.audit(), Ok(Audit { free: slots, ..Audit::default() }));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn any_bytes_cause_only_errors_and_lost_service(how in 0u8..=255, data in prop::collection::vec(any::<u8>(), 0..1500)) {
            segment(&[&[how], &data[..]].concat());
        }
    }

    /// Peers whose ring holds an entry of each of these laps, which have 39 bits.
    fn with_laps(segment: &Segment, laps: impl IntoIterator<Item = u64>) -> Company<'_> {
        let company = Company::new(segment);
        let ring = Layout::new(*segment.geometry()).ring as u64;
        for (cell, lap) in laps.into_iter().enumerate() {
            let word = (lap << 25 | 1 << 24).to_le_bytes();
            company.vandal.write_all_at(&word, ring + 8 * cell as u64).expect("it is inside the segment");
        }
        company
    }

    #[test]
    fn push_and_pop_report_corrupt_when_the_ring_leads_in_a_circle() {
        let segment = Options::new().slots(2).members(2).anonymous().expect("memory is left");
        // Each of them is ahead of the one before it.
        let company = with_laps(&segment, (0..4).map(|cell| cell << 37));
        company.check();
        let (client, server) =
            (company.client.as_ref().expect("joined"), company.server.as_ref().expect("joined"));
        let corrupt = Some(ErrorKind::Corrupt);
        assert_eq!(client.try_send("a").err().map(|error| error.kind()), corrupt);
        assert_eq!(server.try_recv().err().map(|error| error.kind()), corrupt);
        company.play(&mut Script(&[]));
    }

    #[test]
    fn entries_of_a_circular_ring_are_counted_once() {
        let segment = Options::new().slots(4).members(2).anonymous().expect("memory is left");
        // Four of them lead all the way around the laps, to the other four.
        let laps = [0, 0, 1 << 37, 2 << 37, 3 << 37, 0, u64::MAX, u64::MAX];
        let company = with_laps(&segment, laps);
        assert_eq!((segment.waiting(), segment.audit().map(|audit| audit.entries)), (0, Ok(8)));
        company.play(&mut Script(&[]));
    }
}
