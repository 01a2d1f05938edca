//! The page of metrics, served over HTTP.
//!
//! Of HTTP a page needs a few lines: a header and a body to any GET of one path. Nothing is kept
//! between requests, one is answered after the other, and each has a second to be asked and taken.
//! Only the loopback interface is listened on: who may see the page is who may run programs on this
//! machine.

use super::metrics;
use super::watch::{Found, Watch};
use crate::failure::{Failure, at};
use crate::sys::{self, Signals};
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a request may take to come, and the page to be taken.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of the longest request.
const LONGEST: usize = 8192;
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
    loop {
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        sys::wait_for(&mut fds, Deadline::NEVER).map_err(at(address))?;
        if let Some(signal) = signals.next().map_err(at("signals"))?
            && signal.number != libc::SIGWINCH
        {
            return Ok(0);
        }
        // Whoever has gone meanwhile, and whatever goes wrong with one of them, concerns no other.
        if let Ok((stream, _)) = listener.accept() {
            watch.look(Instant::now());
            let _ = answer(stream, &watch.found);
        }
    }
}

fn answer(mut stream: TcpStream, found: &Found) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (begin, mut request) = (Instant::now(), vec![]);
    // To the empty line: what is left unread would have the connection reset.
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        if left.is_zero() || request.len() > LONGEST {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut block = [0; 1024];
        match stream.read(&mut block)? {
            0 => return Ok(()),
            len => request.extend_from_slice(&block[..len]),
        }
    }
    let line =
        String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    let words: Vec<_> = line.split(' ').collect();
    let (status, kind, body) = match words[..] {
        ["GET" | "HEAD", "/metrics" | "/", _] => ("200 OK", TYPE, metrics::page(found)),
        ["GET" | "HEAD", ..] => ("404 Not Found", "text/plain", "the page is /metrics\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if words[0] != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_interface() {
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
