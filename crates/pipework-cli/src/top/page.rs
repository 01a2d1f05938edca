//! The page of metrics, served over HTTP.
//!
//! Of HTTP a page needs a few lines: a header and a body to any GET of one path. Nothing is kept
//! between requests. Each connection has a second to ask and a second to take the page; idle ones
//! make no other wait, and the oldest goes when the limit is reached. It listens on the loopback
//! interface only, so only users of this machine can read the page.

use super::metrics;
use super::watch::Watch;
use crate::failure::{Failure, at};
use crate::openmetrics;
use crate::sys::{self, Signals};
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a request may take to come, and the page to be taken, each.
const PATIENCE: Duration = Duration::from_secs(1);
/// Connections at a time.
const MOST: usize = 64;

/// An address of the loopback interface; a number alone is a port of 127.0.0.1.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost").filter(|rest| rest.starts_with(':')).unwrap_or(text);
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    let address = match port {
        Ok(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        Err(_) => text.parse().map_err(|_| "an address and a port, as in 127.0.0.1:9464")?,
    };
    match address.ip().is_loopback() {
        true => Ok(address),
        false => {
            Err("an address of the loopback interface only, as in 127.0.0.1:9464: anybody could read it"
                .into())
        }
    }
}

/// Serves the page until a signal comes.
pub(super) fn serve(
    mut watch: Watch,
    address: SocketAddr,
    signals: &Signals,
    quiet: bool,
) -> Result<u8, Failure> {
    let listener = TcpListener::bind(address).map_err(at(address))?;
    listener.set_nonblocking(true).map_err(at(address))?;
    let address = listener.local_addr().map_err(at(address))?;
    if !quiet {
        crate::progress::say(format!("serving http://{address}/metrics"));
    }
    let mut visits: Vec<Visit> = vec![];
    loop {
        let mut fds = vec![PollFd::new(&listener, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        fds.extend(visits.iter().map(Visit::poll));
        let glance = Deadline::after(watch.glance_due().saturating_duration_since(Instant::now()));
        let until = visits.iter().fold(glance, |until, visit| until.or_earlier(visit.until));
        sys::wait_for(&mut fds, until).map_err(at(address))?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if signals.next().map_err(at("signals"))?.is_some() {
            return Ok(0);
        }
        watch.glance(Instant::now());
        // A client that has left, or an error of one connection, does not concern the others.
        let mut ready_visits = ready[2..].iter();
        visits.retain_mut(|visit| {
            let is_ready = ready_visits.next() == Some(&true);
            !visit.until.has_passed() && (!is_ready || visit.go_on(&mut watch).unwrap_or(false))
        });
        if ready[0]
            && let Ok((stream, _)) = listener.accept()
            && stream.set_nonblocking(true).is_ok()
        {
            if visits.len() == MOST {
                visits.remove(0);
            }
            visits.push(Visit::new(stream));
        }
    }
}

/// A connection that asks for the page.
struct Visit {
    stream: TcpStream,
    until: Deadline,
    request: Vec<u8>,
    /// `None` as long as the request has not come.
    reply: Option<Vec<u8>>,
    /// How much of the reply has been sent.
    sent: usize,
}

impl Visit {
    fn new(stream: TcpStream) -> Self {
        let until = Deadline::after(PATIENCE);
        Self { stream, until, request: vec![], reply: None, sent: 0 }
    }

    fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.stream, if self.reply.is_none() { PollFlags::IN } else { PollFlags::OUT })
    }

    /// Reads or writes some; returns whether it has more to do.
    fn go_on(&mut self, watch: &mut Watch) -> io::Result<bool> {
        let Some(reply) = &self.reply else {
            let mut block = [0; 1024];
            let len = match self.stream.read(&mut block) {
                Err(error) if sys::is_temporary(&error) => return Ok(true),
                len => len?,
            };
            self.request.extend_from_slice(&block[..len]);
            if openmetrics::is_whole(&self.request) {
                watch.look(Instant::now());
                self.reply = Some(openmetrics::reply(&self.request, || metrics::page(&watch.found)));
                self.until = Deadline::after(PATIENCE);
            }
            return Ok(len > 0 && self.request.len() <= openmetrics::LONGEST);
        };
        match self.stream.write(&reply[self.sent..]) {
            Err(error) if sys::is_temporary(&error) => {}
            len => self.sent += len?,
        }
        Ok(self.sent < reply.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_accepts_only_the_loopback_interface() {
        for (text, address) in [
            ("127.0.0.1:9464", "127.0.0.1:9464"),
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("localhost:9464", "127.0.0.1:9464"),
            ("127.1.2.3:1", "127.1.2.3:1"),
            ("[::1]:9464", "[::1]:9464"),
        ] {
            assert_eq!(loopback(text).map(|address| address.to_string()).as_deref(), Ok(address));
        }
        for wrong in
            ["", "0.0.0.0:9464", "[::]:9464", "192.168.0.1:1", "example.org:80", "127.0.0.1", "70000"]
        {
            assert!(loopback(wrong).is_err(), "{wrong}");
        }
    }
}
