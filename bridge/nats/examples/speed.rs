//! One run of one contender of the benchmark's module `nats`: `speed SHAPE CONTENDER CALLS BYTES`.
//! Needs nats-server.
//!
//! Shapes: `alone`, one call at a time; `together`, 64 in progress. Contenders: `bare`, a request
//! of one NATS client to another; `bridged`, a call of one channel that a worker of another
//! answers, with two bridges in between; `local`, a call without them. Everything that takes part
//! is a process of its own, all over one server. It prints the line for the benchmark: calls, bytes
//! that came, seconds, CPU seconds of the other processes and of this one.

use async_nats::Client;
use futures_util::{StreamExt, stream};
use pipework::Deadline;
use pipework::reqrep::{self, Options};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Calls in progress at a time.
const TOGETHER: usize = 64;
const SOON: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(10);

fn main() {
    let role = std::env::var("PIPEWORK_ROLE").unwrap_or_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match (role.as_str(), &arguments[..]) {
        ("responder", [url]) => respond(url),
        ("worker", [path]) => work(Path::new(path)),
        (_, [shape, contender, calls, bytes]) => {
            let number = |text: &str| text.parse().expect("a number");
            let width = if shape == "alone" { 1 } else { TOGETHER };
            measure(width, contender, number(calls), number(bytes));
        }
        _ => {
            eprintln!("usage: speed alone|together bare|bridged|local CALLS BYTES");
            std::process::exit(2);
        }
    }
}

/// Processes that end with this.
#[derive(Default)]
struct Others(Vec<Child>);

impl Others {
    fn start(&mut self, command: &mut Command) {
        self.0.push(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts"));
    }

    /// This program in another role.
    fn play(&mut self, role: &str, at: &str) {
        let this = std::env::current_exe().expect("this program");
        self.start(Command::new(this).env("PIPEWORK_ROLE", role).arg(at));
    }

    /// CPU seconds that they have used, to the nanosecond: a run is too short for ticks.
    fn cpu(&self) -> f64 {
        self.0.iter().map(|child| cpu_of(&child.id().to_string())).sum()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cpu_of(process: &str) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it lives");
    let used = |thread: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    threads.filter_map(used).sum::<f64>() / 1e9
}

fn measure(width: usize, contender: &str, calls: usize, bytes: usize) {
    let mut others = Others::default();
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its number").port()
    };
    let url = format!("nats://127.0.0.1:{port}");
    let mut server = Command::new("nats-server");
    others.start(server.args(["-a", "127.0.0.1", "-p", &port.to_string()]).stderr(Stdio::null()));
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        sleep(MOMENT);
    }
    let payload = vec![b'x'; bytes];
    let (came, wall, before, after) = if contender == "bare" {
        others.play("responder", &url);
        bare(width, &url, calls, &payload, || (others.cpu(), cpu_of("self")))
    } else {
        let folder = Folder(format!("/dev/shm/pipework-nats-speed-{}", std::process::id()).into());
        std::fs::create_dir(&folder.0).expect("a folder");
        let [here, there] = ["here", "there"].map(|name| folder.0.join(name));
        others.play("worker", &there.to_string_lossy());
        if contender == "bridged" {
            bridge(&mut others, "expose", &there, &url);
            bridge(&mut others, "attach", &here, &url);
        }
        let channel = if contender == "bridged" { &here } else { &there };
        channel_calls(width, channel, calls, &payload, || (others.cpu(), cpu_of("self")))
    };
    println!("{calls} {came} {wall} {} {}", after.0 - before.0, after.1 - before.1);
}

fn bridge(others: &mut Others, direction: &str, channel: &Path, url: &str) {
    // Another build of it may be compared.
    let program = std::env::var_os("PIPEWORK_NATS_PROGRAM").map_or_else(built, PathBuf::from);
    let mut command = Command::new(program);
    others.start(command.arg(direction).arg(channel).args(["--subject", "bridged"]).env("NATS_URL", url));
}

/// The program that was built with this one, which is in a folder beside it.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    this.ancestors().nth(2).expect("the folder of the build").join("pipework-nats")
}

type Cpu = (f64, f64);

fn channel_calls(
    width: usize,
    path: &Path,
    calls: usize,
    payload: &[u8],
    cpu: impl Fn() -> Cpu,
) -> (usize, f64, Cpu, Cpu) {
    let client = Options::new().open_or_create(path).and_then(|channel| channel.client()).expect("a channel");
    warm(width, calls, |calls| call(&client, width, calls, payload), cpu)
}

/// Some calls first: processes start, connect, and get their memory.
fn warm(
    width: usize,
    calls: usize,
    mut run: impl FnMut(usize) -> usize,
    cpu: impl Fn() -> Cpu,
) -> (usize, f64, Cpu, Cpu) {
    run(width);
    sleep(10 * MOMENT);
    run(calls / 10 + 1);
    let (before, begin) = (cpu(), Instant::now());
    let came = run(calls);
    (came, begin.elapsed().as_secs_f64(), before, cpu())
}

fn call(client: &reqrep::Client, width: usize, calls: usize, payload: &[u8]) -> usize {
    if width == 1 {
        return (0..calls).map(|_| client.call(payload, SOON).expect("a reply").len()).sum();
    }
    let (mut sent, mut came) = (0, 0);
    for received in 0..calls {
        while sent < calls && sent - received < width {
            client.send(payload, SOON).expect("a slot");
            sent += 1;
        }
        let done = client.recv_any(SOON).expect("in time").expect("a call in progress");
        came += done.result.expect("a reply").len();
    }
    came
}

fn bare(
    width: usize,
    url: &str,
    calls: usize,
    payload: &[u8],
    cpu: impl Fn() -> Cpu,
) -> (usize, f64, Cpu, Cpu) {
    let runtime = runtime();
    let client = runtime.block_on(async {
        let client = async_nats::connect(url).await.expect("a server");
        while client.request("bare", "".into()).await.is_err() {
            tokio::time::sleep(MOMENT).await;
        }
        client
    });
    warm(width, calls, |calls| runtime.block_on(request(&client, width, calls, payload)), cpu)
}

async fn request(client: &Client, width: usize, calls: usize, payload: &[u8]) -> usize {
    let payload = bytes::Bytes::copy_from_slice(payload);
    let requests = stream::iter(0..calls).map(|_| client.request("bare", payload.clone()));
    let replies = requests.buffer_unordered(width);
    replies.fold(0, |came, reply| async move { came + reply.expect("a reply").payload.len() }).await
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
    let server = Options::new().open_or_create(path).and_then(|channel| channel.server()).expect("a channel");
    while let Ok(request) = server.recv(Deadline::NEVER) {
        let answer = request.to_vec();
        let _ = request.reply(&answer);
    }
}
