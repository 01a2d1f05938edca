//! Two clients and two servers that use a damaged segment and count their errors.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{ClientOptions, Segment, ServerOptions};
use pipework::{Error, Result};

use super::{GROWTH, SLACK, WAIT};
use crate::harness::{Child, PATIENCE, Random, fork, shared};

/// The state that two clients and two servers share with the test.
pub(super) struct Company {
    peers: Vec<Child>,
    /// Whether to stop; how many peers run; how many calls were answered; and then errors, by the
    /// number of their kind.
    board: &'static [AtomicU64],
}

const STOP: usize = 0;
const READY: usize = 1;
pub(super) const ANSWERED: usize = 2;
const ERRORS: usize = 3;

impl Company {
    /// Forks the peers, and waits until each has attached to the segment that `open` opens.
    pub(super) fn new(seed: u64, open: impl Fn() -> Segment) -> Company {
        let board = shared(ERRORS + 32);
        let peers: Vec<_> = (0..4)
            .map(|nth: u64| {
                let open = &open;
                fork(move || {
                    let (segment, random) = (open(), Random::new(seed ^ nth << 32));
                    let mut peer = Peer { segment, board, random, has_doorbell: nth < 2 };
                    if nth.is_multiple_of(2) { peer.call() } else { peer.serve() }
                })
            })
            .collect();
        let company = Company { peers, board };
        company.wait(READY, 4);
        company
    }

    /// Waits until a number of the board has grown to `least`.
    pub(super) fn wait(&self, number: usize, least: u64) {
        let began = Instant::now();
        while self.board[number].load(Ordering::SeqCst) < least {
            assert!(began.elapsed() < PATIENCE, "stuck for {PATIENCE:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Heals the segment until the peers make progress again. Once may not be enough: a peer may be
    /// about to store a value from before.
    pub(super) fn recover(&self, heal: impl Fn()) {
        let began = Instant::now();
        loop {
            let before = self.board[ANSWERED].load(Ordering::SeqCst);
            heal();
            thread::sleep(Duration::from_millis(50));
            if self.board[ANSWERED].load(Ordering::SeqCst) > before + 20 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "stuck for {PATIENCE:?}");
        }
    }

    /// Stops the peers and checks that they end well; returns a description of their outcomes.
    pub(super) fn stop(self) -> String {
        self.board[STOP].store(1, Ordering::SeqCst);
        self.peers.into_iter().for_each(Child::join);
        let errors = self.board[ERRORS..].iter().enumerate().filter_map(|(kind, count)| {
            let count = count.load(Ordering::SeqCst);
            (count > 0).then(|| format!("{count} errors of kind {kind}"))
        });
        let answered = self.board[ANSWERED].load(Ordering::SeqCst);
        format!("{answered} calls answered, {}", errors.collect::<Vec<_>>().join(", "))
    }
}

struct Peer {
    segment: Segment,
    board: &'static [AtomicU64],
    random: Random,
    /// Whether another of its threads waits at a doorbell.
    has_doorbell: bool,
}

impl Peer {
    fn call(&mut self) {
        let has_doorbell = self.has_doorbell;
        let options = [ClientOptions::new(), ClientOptions::new().redeliveries(3).needs_server(true)];
        let turn = Cell::new(0);
        let attach = |segment: &Segment| {
            // Alternate between the options, so that each new client differs from the one before.
            let client = segment.client_with(&options[turn.replace(1 - turn.get())])?;
            if has_doorbell { client.doorbell().map(|_| client) } else { Ok(client) }
        };
        self.live(attach, |peer, client| {
            let len = peer.random.below(300);
            let request = peer.random.bytes(len);
            match peer.random.below(8) {
                0 => {
                    if let Some(Some(ticket)) = peer.timed("try_send", || client.try_send(&request)) {
                        peer.timed("try_recv", || client.try_recv(ticket));
                        peer.timed("cancel", || client.cancel(ticket));
                    }
                }
                1 => {
                    if let Some(ticket) = peer.timed("send", || client.send(&request, WAIT)) {
                        peer.timed("recv", || client.recv(ticket, WAIT));
                        peer.timed("cancel", || client.cancel(ticket));
                    }
                }
                _ => {
                    if let Some(reply) = peer.timed("call", || client.call(&request, WAIT)) {
                        assert!(reply.len() <= 300);
                        peer.board[ANSWERED].fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            assert!(client.pending() <= 6);
        });
    }

    fn serve(&mut self) {
        let has_doorbell = self.has_doorbell;
        let attach = |segment: &Segment| {
            let server = segment.server_with(&ServerOptions::new().part_timeout(WAIT))?;
            if has_doorbell { server.doorbell().map(|_| server) } else { Ok(server) }
        };
        self.live(attach, |peer, server| {
            let taken = match peer.random.below(16) {
                0 => peer.timed("drain", || server.drain(usize::MAX)).unwrap_or_default(),
                1 => peer
                    .timed("recv_many", || server.recv_many(usize::MAX, WAIT, Duration::ZERO))
                    .unwrap_or_default(),
                2 => {
                    peer.timed("clear", || server.clear());
                    vec![]
                }
                _ => peer.timed("recv", || server.recv(WAIT)).into_iter().collect(),
            };
            assert!(taken.len() <= 6);
            for request in taken {
                assert!(request.len() <= 300 && request.redeliveries() <= 3);
                if peer.random.below(16) > 0 {
                    let answer = request.to_vec();
                    peer.timed("reply", || request.reply(&answer));
                }
            }
        });
    }

    /// Attaches, acts, looks, leaves and attaches again, until it is to stop.
    fn live<E>(&mut self, attach: impl Fn(&Segment) -> Result<E>, act: impl Fn(&mut Peer, &E)) {
        let segment = self.segment.clone();
        let mut end = Some(attach(&segment).expect("the segment is not damaged yet"));
        self.board[READY].fetch_add(1, Ordering::SeqCst);
        let mut begun = None;
        for turn in 1.. {
            if self.board[STOP].load(Ordering::SeqCst) != 0 {
                break;
            }
            match &end {
                Some(end) => act(self, end),
                None => thread::sleep(Duration::from_millis(1)),
            }
            if end.is_none() || self.random.below(200) == 0 {
                // The old handle leaves before the new one attaches.
                self.timed("leave", || {
                    end = None;
                    Ok::<_, Error>(())
                });
                end = self.timed("attach", || attach(&segment));
            }
            if self.random.below(50) == 0 {
                self.ask();
            }
            if turn == 50 {
                begun = Some(own_memory());
            }
        }
        self.timed("leave", || {
            drop(end);
            Ok::<_, Error>(())
        });
        let grown = begun.map_or(0, |begun| own_memory().saturating_sub(begun));
        assert!(grown < GROWTH, "grown by {grown} bytes");
    }

    fn ask(&mut self) {
        let segment = self.segment.clone();
        if let Some(audit) = self.timed("audit", || segment.audit()) {
            let sum = audit.free + audit.filling + audit.waiting + audit.taken;
            assert_eq!(sum + audit.dropped + audit.in_parts + audit.done + audit.damaged, 6);
        }
        self.timed("recover", || segment.recover());
        let members = self.timed("members", || segment.members());
        assert!(members.is_none_or(|members| members.len() <= 8));
        let len = self.timed("numbers", || Ok::<_, Error>(segment.waiting()));
        assert!(len.is_none_or(|len| len <= segment.geometry().queue as usize));
        self.timed("stats", || Ok::<_, Error>(segment.stats()));
    }

    /// Does an operation that must end in time, and counts its error.
    fn timed<T, E: Into<Error>>(
        &self,
        name: &str,
        operation: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Option<T> {
        let began = Instant::now();
        let outcome = operation().map_err(Into::into);
        let took = began.elapsed();
        assert!(took < WAIT + SLACK, "{name} took {took:?}");
        let count = |error: Error| self.board[ERRORS + error.kind() as usize].fetch_add(1, Ordering::SeqCst);
        outcome.map_err(count).ok()
    }
}

/// Bytes of memory that this process shares with no other.
fn own_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel reports it");
    1024 * line.trim_end_matches("kB").trim().parse::<u64>().expect("a number")
}
