//! Clients that are independent of the handle that two threads share, and check that each request
//! arrives as they wrote it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use super::*;
use crate::harness::Random;

/// The outcome of the bystanders' requests.
#[derive(Debug, Default)]
struct Seen {
    requests: u64,
    foreign: u64,
    /// Bytes of foreign requests.
    foreign_bytes: u64,
}

/// The length of a request, and how many of its bytes differ from the first one.
fn examine(request: &[u8]) -> [u8; 17] {
    let first = request.first().copied().unwrap_or(0);
    let others = match request.iter().all(|byte| *byte == first) {
        true => 0,
        false => request.iter().filter(|byte| **byte != first).count(),
    };
    let mut answer = [first; 17];
    answer[1..9].copy_from_slice(&(request.len() as u64).to_le_bytes());
    answer[9..].copy_from_slice(&(others as u64).to_le_bytes());
    answer
}

fn serve(server: &Server) {
    loop {
        match server.recv(PATIENCE) {
            Ok(request) => {
                let answer = examine(&request);
                request.reply(&answer).expect("it is this server's");
            }
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Calls with requests of one repeated byte, until `calls` calls have been made or the time is up.
fn bystand(client: &Client, byte: u8, slot: usize, calls: u64, until: Instant) -> Seen {
    let (request, mut seen) = (vec![byte; slot], Seen::default());
    while seen.requests < calls && Instant::now() < until {
        let reply = client.call(&request, PATIENCE).expect("its server lives");
        seen.requests += 1;
        if *reply != examine(&request) {
            let others = u64::from_le_bytes(reply[9..17].try_into().expect("eight bytes"));
            let is_mine = reply[0] == byte;
            seen.foreign_bytes += if is_mine { others } else { slot as u64 - others.min(slot as u64) };
            seen.foreign += 1;
        }
    }
    seen
}

/// What two bystanders see while threads of another client send long requests, and one of them ends
/// calls by `end`.
fn beside(slot: usize, calls: u64, limit: Duration, end: impl Fn(&Client) + Sync) -> Seen {
    let options = Options::new().slots(3).members(8).request_bytes(slot as u32).reply_bytes(64);
    let segment = options.anonymous().expect("a segment");
    let (shared, is_over) = (segment.client().expect("a place"), AtomicBool::new(false));
    let server = segment.server().expect("a place");
    let until = Instant::now() + limit;
    let goes_on = || !is_over.load(SeqCst);
    let mut all = Seen::default();
    thread::scope(|scope| {
        let servers = [(); 2].map(|()| scope.spawn(|| serve(&server)));
        let senders = [(); 2].map(|()| {
            scope.spawn(|| {
                let request = vec![0xEE; 8 * slot];
                while goes_on() {
                    // The outcome depends on the other thread.
                    let _ = shared.call(&request, PATIENCE);
                    if let Ok(ticket) = shared.send(&request, PATIENCE) {
                        let _ = shared.cancel(ticket);
                    }
                }
            })
        });
        let ender = scope.spawn(|| {
            let mut random = Random::new(1);
            while goes_on() {
                // Wait for a random time, so that it meets the calls at different steps.
                thread::sleep(Duration::from_nanos(random.below(16 * slot) as u64));
                end(&shared);
            }
        });
        let bystanders = [1, 2].map(|byte| {
            let client = segment.client().expect("a place");
            scope.spawn(move || bystand(&client, byte, slot, calls / 2, until))
        });
        for bystander in bystanders {
            let seen = bystander.join().expect("no panic");
            all.requests += seen.requests;
            all.foreign += seen.foreign;
            all.foreign_bytes += seen.foreign_bytes;
        }
        is_over.store(true, SeqCst);
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        ender.join().expect("no panic");
        server.stop();
        servers.into_iter().for_each(|server| server.join().expect("no panic"));
    });
    // Forgotten requests are still carried out.
    let last = segment.server().expect("a place");
    while last.clear().expect("the kernel reports the locks") > 0 {}
    super::assert_all_free(&segment);
    all
}

/// Ends any call of this client by its ticket. The tickets of calls that another thread is still
/// sending are not given out, but they can be read.
fn end_by_ticket(segment: &Segment, end: impl Fn(Ticket)) {
    segment.calls().for_each(|call| end(call.ticket));
}

/// `PIPEWORK_STRANGERS` sets the number of requests of each size beside `forget_all`; a twentieth as many
/// run beside each of the others. Their time is not limited then.
#[test]
fn strangers_requests_arrive_as_written_while_another_client_ends_calls() {
    type End = fn(&Client);
    let ends: [(&str, End); 4] = [
        ("forget_all", |client| _ = client.forget_all()),
        ("forget", |client| end_by_ticket(client.segment(), |ticket| _ = client.forget(ticket))),
        ("cancel", |client| end_by_ticket(client.segment(), |ticket| _ = client.cancel(ticket))),
        ("recv", |client| end_by_ticket(client.segment(), |ticket| drop(client.try_recv(ticket)))),
    ];
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let asked = setting("PIPEWORK_STRANGERS");
    for (slot, calls) in [(4 << 10, 4000), (64 << 10, 600), (1 << 20, 60)] {
        for (name, end) in ends {
            let (calls, limit) = match asked {
                Some(asked) if name != "forget_all" => (asked / 20, DAY),
                Some(asked) => (asked, DAY),
                None => (calls, Duration::from_secs(1)),
            };
            let seen = beside(slot, calls, limit, end);
            say(&format!("strangers: {name}, slots of {slot}: {} requests", seen.requests));
            assert_eq!((seen.foreign, seen.foreign_bytes), (0, 0), "{name}, slots of {slot}: {seen:?}");
        }
    }
}
