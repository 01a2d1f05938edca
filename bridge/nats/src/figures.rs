//! Counters of the bridge's work, and the page from which Prometheus reads them.

use crate::openmetrics::{self, Page};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A direction, as the figures name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Calls that come in.
    Expose,
    /// Calls that go out.
    Attach,
    /// Messages that go out.
    Publish,
    /// Messages that come in.
    Subscribe,
}

impl Side {
    const ALL: [Side; 4] = [Side::Expose, Side::Attach, Side::Publish, Side::Subscribe];

    fn name(self) -> &'static str {
        match self {
            Side::Expose => "expose",
            Side::Attach => "attach",
            Side::Publish => "publish",
            Side::Subscribe => "subscribe",
        }
    }
}

/// The upper bounds of the latency's buckets, in microseconds.
const BUCKETS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000, 30_000_000];

#[derive(Debug, Default)]
struct Latency {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

/// Counters and gauges.
#[derive(Debug, Default)]
pub struct Figures {
    in_flight: [Cell<u64>; Side::ALL.len()],
    done: RefCell<BTreeMap<(Side, &'static str), u64>>,
    refused: RefCell<BTreeMap<&'static str, u64>>,
    latency: RefCell<[Latency; Side::ALL.len()]>,
    /// Connections made, and messages lost on their way into the program.
    pub connection: Arc<ConnectionFigures>,
    /// Whether the subject is subscribed to.
    pub subscribed: Cell<bool>,
    /// Whether the bridge is attached to its channel.
    pub attached: Cell<bool>,
}

/// The counts of the connection, which its own threads update.
#[derive(Debug, Default)]
pub struct ConnectionFigures {
    /// Connections made.
    pub connects: AtomicU64,
    /// Connections lost.
    pub disconnects: AtomicU64,
    /// Times that a subscription was too slow, and a message lost.
    pub slow: AtomicU64,
    /// Errors that the server reported.
    pub errors: AtomicU64,
}

impl ConnectionFigures {
    /// Counts one.
    pub fn count(counter: &AtomicU64) {
        // Relaxed: a number for people.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call that counts as in flight for as long as this lives.
#[derive(Debug)]
pub struct InFlight(Rc<Figures>, Side);

impl Drop for InFlight {
    fn drop(&mut self) {
        let gauge = &self.0.in_flight[self.1 as usize];
        gauge.set(gauge.get() - 1);
    }
}

impl Figures {
    /// Counts a call in flight.
    pub fn in_flight(self: &Rc<Self>, side: Side) -> InFlight {
        let gauge = &self.in_flight[side as usize];
        gauge.set(gauge.get() + 1);
        InFlight(Rc::clone(self), side)
    }

    /// Calls in flight, both ways.
    pub fn all_in_flight(&self) -> u64 {
        self.in_flight.iter().map(Cell::get).sum()
    }

    /// A call is over.
    pub fn done(&self, side: Side, outcome: &'static str, time: Duration) {
        *self.done.borrow_mut().entry((side, outcome)).or_default() += 1;
        let latency = &mut self.latency.borrow_mut()[side as usize];
        let micros = time.as_micros();
        if let Some(idx) = BUCKETS.iter().position(|bound| micros <= u128::from(*bound)) {
            latency.buckets[idx] += 1;
        }
        latency.count += 1;
        latency.sum += time;
    }

    /// A message was refused.
    pub fn refused(&self, reason: &'static str) {
        *self.refused.borrow_mut().entry(reason).or_default() += 1;
    }

    /// All of it, as Prometheus reads it.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        let in_flight = Side::ALL
            .map(|side| (format!("{{side=\"{}\"}}", side.name()), self.in_flight[side as usize].get()));
        page.family("nats_in_flight", "gauge", "Calls and messages in progress.", in_flight);
        let flag = |name: &Cell<bool>| [(String::new(), u8::from(name.get()))];
        page.family(
            "nats_subscribed",
            "gauge",
            "Whether the subject is subscribed to.",
            flag(&self.subscribed),
        );
        let attached = flag(&self.attached);
        page.family("nats_attached", "gauge", "Whether the bridge is attached to its channel.", attached);
        let done = |of: [Side; 2]| -> Vec<_> {
            let labels =
                |side: Side, outcome| format!("_total{{side=\"{}\",outcome=\"{outcome}\"}}", side.name());
            let of = |((side, outcome), count): (&(Side, _), &u64)| {
                of.contains(side).then(|| (labels(*side, *outcome), *count))
            };
            self.done.borrow().iter().filter_map(of).collect()
        };
        page.family("nats_calls", "counter", "Calls that are over.", done([Side::Expose, Side::Attach]));
        let messages = done([Side::Publish, Side::Subscribe]);
        page.family("nats_messages", "counter", "Messages that have arrived.", messages);
        let refused = self.refused.borrow();
        let refused = refused.iter().map(|(why, count)| (format!("_total{{reason=\"{why}\"}}"), count));
        page.family("nats_refused", "counter", "Messages refused, and why.", refused);
        let ConnectionFigures { connects, disconnects, slow, errors } = &*self.connection;
        for (name, help, counter) in [
            ("nats_connects", "Connections made.", connects),
            ("nats_disconnects", "Connections lost.", disconnects),
            ("nats_slow", "Times that messages were lost here.", slow),
            ("nats_server_errors", "Errors that the server reported.", errors),
        ] {
            page.family(name, "counter", help, [("_total".into(), counter.load(Ordering::Relaxed))]);
        }
        let mut latency = Vec::new();
        for side in Side::ALL {
            let name = side.name();
            let Latency { buckets, count, sum } = &self.latency.borrow()[side as usize];
            let mut below = 0;
            for (bound, count) in BUCKETS.iter().zip(buckets) {
                below += count;
                let bound = *bound as f64 / 1e6;
                latency.push((format!("_bucket{{side=\"{name}\",le=\"{bound}\"}}"), below as f64));
            }
            latency.push((format!("_bucket{{side=\"{name}\",le=\"+Inf\"}}"), *count as f64));
            latency.push((format!("_sum{{side=\"{name}\"}}"), sum.as_secs_f64()));
            latency.push((format!("_count{{side=\"{name}\"}}"), *count as f64));
        }
        page.family("nats_seconds", "histogram", "How long calls and messages took.", latency);
        page.finish()
    }
}

/// Serves the figures at `address`; returns the address.
///
/// # Errors
///
/// The address cannot be listened to.
pub async fn serve(figures: Rc<Figures>, address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tokio::task::spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let figures = Rc::clone(&figures);
                    let limit = Duration::from_secs(5);
                    tokio::task::spawn_local(async move {
                        // A client that does not read the page in time goes without.
                        let _ = tokio::time::timeout(limit, answer(stream, &figures)).await;
                    });
                }
                // Descriptors that have run out come back.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream, figures: &Figures) -> io::Result<()> {
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !openmetrics::is_whole(&request) && request.len() < openmetrics::LONGEST {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            len => request.extend_from_slice(&buffer[..len]),
        }
    }
    stream.write_all(&openmetrics::reply(&request, || figures.text())).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_counted_and_written_as_openmetrics() {
        let figures = Rc::new(Figures::default());
        let counted = figures.in_flight(Side::Attach);
        figures.done(Side::Expose, "answered", Duration::from_micros(300));
        figures.done(Side::Expose, "busy", Duration::from_secs(60));
        figures.refused("busy");
        let text = figures.text();
        for line in [
            "pipework_nats_in_flight{side=\"attach\"} 1",
            "pipework_nats_calls_total{side=\"expose\",outcome=\"answered\"} 1",
            "pipework_nats_refused_total{reason=\"busy\"} 1",
            "pipework_nats_seconds_bucket{side=\"expose\",le=\"0.00025\"} 0",
            "pipework_nats_seconds_bucket{side=\"expose\",le=\"0.0005\"} 1",
            "pipework_nats_seconds_bucket{side=\"expose\",le=\"+Inf\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} in {text}");
        }
        drop(counted);
        assert!(figures.text().contains("pipework_nats_in_flight{side=\"attach\"} 0"));
    }
}
