//! The figures as a page of OpenMetrics, served over HTTP.
//!
//! Two formats of text, of which a page needs a few lines each: a header and a body to any GET of
//! one path. Nothing is kept between requests, one is answered after the other, and each has a
//! second to be asked and taken. Only the loopback interface is listened on: who may see the page
//! is who may run programs on this machine.

use super::segment::Figures;
use super::text::role;
use super::watch::{Found, Watch};
use crate::failure::{Failure, at};
use crate::sys::{self, Signals};
use pipework::Deadline;
use pipework::reqrep::Role;
use rustix::event::{PollFd, PollFlags};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
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
        false => Err("only the loopback interface, as in 127.0.0.1:9464: anybody could read it".into()),
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
        ["GET" | "HEAD", "/metrics" | "/", _] => ("200 OK", TYPE, page(found)),
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

/// The page: OpenMetrics 1.0, as text.
fn page(found: &Found) -> String {
    let mut page = String::new();
    let channels: Vec<_> =
        found.channels.iter().map(|figures| (label("channel", &figures.path), figures)).collect();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
        let suffix = if kind == "counter" { "_total" } else { "" };
        writeln!(page, "# TYPE pipework_{name} {kind}\n# HELP pipework_{name} {help}").expect(IN_MEMORY);
        for (labels, value) in samples {
            writeln!(page, "pipework_{name}{suffix}{{{labels}}} {value}").expect(IN_MEMORY);
        }
    };
    let of_all = |value: &dyn Fn(&Figures) -> f64| -> Vec<(String, f64)> {
        channels
            .iter()
            .filter(|(_, figures)| figures.fault.is_none())
            .map(|(label, figures)| (label.clone(), value(figures)))
            .collect()
    };
    let up =
        channels.iter().map(|(label, figures)| (label.clone(), f64::from(u8::from(figures.fault.is_none()))));
    family("up", "gauge", "Whether the channel can be looked at.", up.collect());
    let counters = [
        ("requests", "Calls begun."),
        ("replies", "Requests that servers have answered or given up."),
        ("full", "Times that a client found no free slot."),
        ("empty", "Times that a server found no request."),
        ("cancelled", "Calls cancelled, those that timed out included."),
        ("dead_members", "Members that died without leaving."),
        ("recovered", "Slots taken back from dead members."),
        ("redelivered", "Requests that went to another server because theirs had died."),
    ];
    for (name, help) in counters {
        let counter = |figures: &Figures| {
            figures.stats.by_name().find(|(known, _)| *known == name).map_or(0.0, |(_, count)| count as f64)
        };
        family(name, "counter", help, of_all(&counter));
    }
    family("slots", "gauge", "Calls that the channel can hold.", of_all(&|figures| figures.slots as f64));
    let mut calls = vec![];
    let mut members = vec![];
    for (label, figures) in channels.iter().filter(|(_, figures)| figures.fault.is_none()) {
        let stages = [
            ("waiting", figures.waiting),
            ("taken", figures.taken),
            ("done", figures.done),
            ("damaged", figures.damaged),
        ];
        let named: usize = stages.iter().map(|(_, count)| count).sum();
        for (stage, count) in stages.into_iter().chain([("filling", figures.in_use.saturating_sub(named))]) {
            calls.push((format!("{label},stage=\"{stage}\""), count as f64));
        }
        for of in [Role::Server, Role::Client] {
            members
                .push((format!("{label},role=\"{}\",alive=\"true\"", role(of)), figures.living(of) as f64));
            let dead = figures
                .members
                .iter()
                .filter(|attached| !attached.member.is_alive && attached.member.role == of);
            members.push((format!("{label},role=\"{}\",alive=\"false\"", role(of)), dead.count() as f64));
        }
    }
    family("calls", "gauge", "Calls in progress, by how far they are.", calls);
    family("members", "gauge", "Clients and servers that are attached.", members);
    let pipes: Vec<_> = found
        .pipes
        .iter()
        .map(|pipe| {
            let label = match (&pipe.path, pipe.found) {
                (Some(path), _) => label("fifo", path),
                (None, Some((id, number))) => format!("pid=\"{id}\",fd=\"{number}\""),
                (None, None) => format!("pid=\"{}\"", pipe.name),
            };
            (label, pipe)
        })
        .collect();
    let of_pipes = |value: &dyn Fn(&super::pipe::Pipe) -> Option<u64>| -> Vec<(String, f64)> {
        pipes.iter().filter_map(|(label, pipe)| Some((label.clone(), value(pipe)? as f64))).collect()
    };
    family(
        "pipe_unread_bytes",
        "gauge",
        "Bytes in the pipe that nobody has read.",
        of_pipes(&|pipe| pipe.fill.map(|fill| fill.unread)),
    );
    family(
        "pipe_capacity_bytes",
        "gauge",
        "Bytes that the pipe can hold.",
        of_pipes(&|pipe| pipe.fill.map(|fill| fill.capacity)),
    );
    family(
        "pipe_readers",
        "gauge",
        "Descriptors that read from the pipe.",
        of_pipes(&|pipe| pipe.fault.is_none().then(|| pipe.readers() as u64)),
    );
    family(
        "pipe_writers",
        "gauge",
        "Descriptors that write to the pipe.",
        of_pipes(&|pipe| pipe.fault.is_none().then(|| pipe.writers() as u64)),
    );
    page.push_str("# EOF\n");
    page
}

const IN_MEMORY: &str = "writing to a String cannot fail";

fn label(name: &str, path: &Path) -> String {
    let value = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
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
