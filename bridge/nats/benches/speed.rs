//! What a call across the bridges costs beside a bare NATS request, in turns: the time of one call
//! at a time, and calls a second with many in progress. Needs nats-server.
//!
//! `cargo bench --manifest-path bridge/nats/Cargo.toml` says it for 12 bytes and for 4 KiB. The
//! bare responder and the worker are processes of their own.

use async_nats::Client;
use futures_util::{StreamExt, stream};
use pipework::Deadline;
use pipework::reqrep::Options;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;
/// Calls of a round, one at a time.
const ALONE: usize = 1500;
/// Calls of a round, and how many of them are in progress at a time.
const TOGETHER: (usize, usize) = (20_000, 64);
const SOON: Duration = Duration::from_secs(10);

/// A process that ends with this one.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Ending {
    Ending(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts"))
}

fn main() {
    match (std::env::var("PIPEWORK_ROLE").as_deref(), std::env::var("PIPEWORK_AT")) {
        (Ok("responder"), Ok(url)) => respond(&url),
        (Ok("worker"), Ok(path)) => work(Path::new(&path)),
        _ => compare(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A bare service: answers each request with itself.
fn respond(url: &str) {
    runtime().block_on(async {
        let client = async_nats::connect(url).await.expect("a server");
        let mut requests = client.queue_subscribe("bare", "group".into()).await.expect("a subscription");
        while let Some(request) = requests.next().await {
            if let Some(reply) = request.reply {
                client.publish(reply, request.payload).await.expect("a connection");
            }
        }
    });
}

/// A worker of the channel that does the same.
fn work(path: &Path) {
    let server = Options::new().open_or_create(path).and_then(|segment| segment.server()).expect("a channel");
    while let Ok(request) = server.recv(Deadline::NEVER) {
        let answer = request.to_vec();
        let _ = request.reply(&answer);
    }
}

fn compare() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    drop(listener);
    let url = format!("nats://127.0.0.1:{port}");
    let _server = start(
        Command::new("nats-server").args(["-a", "127.0.0.1", "-p", &port.to_string()]).stderr(Stdio::null()),
    );
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        sleep(Duration::from_millis(10));
    }
    let folder = PathBuf::from(format!("/dev/shm/pipework-nats-speed-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let [here, there] = ["here", "there"].map(|name| folder.join(name));
    let this = std::env::current_exe().expect("this program");
    let role =
        |name: &str, at: &str| start(Command::new(&this).env("PIPEWORK_ROLE", name).env("PIPEWORK_AT", at));
    let _responder = role("responder", &url);
    let _worker = role("worker", &there.to_string_lossy());
    let bridge = |direction: &str, path: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
        start(command.arg(direction).arg(path).args(["--subject", "bridged"]).env("NATS_URL", &url))
    };
    let _bridges = [bridge("expose", &there), bridge("attach", &here)];
    let channel = Options::new().open_or_create(&here).expect("a channel");
    let local = Options::new().open_or_create(&there).expect("a channel");
    let (bridged, plain) = (channel.client().expect("a client"), local.client().expect("a client"));
    let runtime = runtime();
    let bare = runtime.block_on(async {
        let client = async_nats::connect(&url).await.expect("a server");
        while client.request("bare", "".into()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client
    });

    println!(
        "{:>6}  {:>22}  {:>22}  {:>14}",
        "bytes", "one at a time, us", "together, calls/s", "local call, us"
    );
    for bytes in [12, 4096] {
        let payload = vec![b'x'; bytes];
        let mut alone = [vec![], vec![], vec![]];
        let mut together = [vec![], vec![]];
        for _ in 0..ROUNDS {
            alone[0].extend(runtime.block_on(bare_alone(&bare, &payload)));
            alone[1].extend(alone_at(&bridged, &payload));
            alone[2].extend(alone_at(&plain, &payload));
            together[0].push(runtime.block_on(bare_together(&bare, &payload)));
            together[1].push(together_at(&bridged, &payload));
        }
        let [bare_us, ours_us, local_us] = alone.map(|times| median(times) * 1e6);
        let [bare_rate, ours_rate] = together.map(median);
        println!(
            "{bytes:>6}  {bare_us:>6.1} {ours_us:>6.1} ({:.2})  {bare_rate:>7.0} {ours_rate:>7.0} ({:.2})  {local_us:>14.2}",
            ours_us / bare_us,
            ours_rate / bare_rate
        );
    }
    println!("each: a bare NATS request, a call across two bridges, and their ratio; medians");
    let _ = std::fs::remove_dir_all(&folder);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn bare_alone(client: &Client, payload: &[u8]) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..ALONE {
        let begin = Instant::now();
        client.request("bare", payload.to_vec().into()).await.expect("a reply");
        times.push(begin.elapsed().as_secs_f64());
    }
    times
}

fn alone_at(client: &pipework::reqrep::Client, payload: &[u8]) -> Vec<f64> {
    let call = |_| {
        let begin = Instant::now();
        client.call(payload, SOON).expect("a reply");
        begin.elapsed().as_secs_f64()
    };
    (0..ALONE).map(call).collect()
}

async fn bare_together(client: &Client, payload: &[u8]) -> f64 {
    let (calls, width) = TOGETHER;
    let begin = Instant::now();
    let requests = stream::iter(0..calls).map(|_| client.request("bare", payload.to_vec().into()));
    requests.buffer_unordered(width).for_each(|reply| async { drop(reply.expect("a reply")) }).await;
    calls as f64 / begin.elapsed().as_secs_f64()
}

fn together_at(client: &pipework::reqrep::Client, payload: &[u8]) -> f64 {
    let (calls, width) = TOGETHER;
    let begin = Instant::now();
    let mut sent = 0;
    for received in 0..calls {
        while sent < calls && sent - received < width {
            client.send(payload, SOON).expect("a slot");
            sent += 1;
        }
        let (_, reply) = client.recv_any(SOON).expect("in time").expect("a call in progress");
        reply.expect("a reply");
    }
    calls as f64 / begin.elapsed().as_secs_f64()
}
