//! Servers, bridges and channels for one test, all of which end with it.

use pipework::reqrep::{Client, Options, Request, Segment, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Whether a nats-server is installed to test with.
pub(crate) fn has_nats() -> bool {
    let is_there =
        Command::new("nats-server").arg("--version").output().is_ok_and(|run| run.status.success());
    assert!(is_there || std::env::var_os("PIPEWORK_NATS").is_none(), "nats-server is not installed");
    is_there
}

/// A process that is killed when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.terminate();
        self.0.wait().expect("it ends")
    }

    pub(crate) fn terminate(&self) {
        let killed = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(killed.expect("kill").success());
    }

    /// Kilobytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().strip_suffix(" kB"))
            .and_then(|kb| kb.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder, in memory unless it has to be large, that is removed when this is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder::at("/dev/shm")
    }

    pub(crate) fn at(parent: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pipework-nats-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(parent).join(name);
        std::fs::create_dir(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that no process listens to at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port()
}

/// Waits until `is_so`.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "waited too long: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The metrics of the bridge at this address; nothing until it is there.
pub(crate) fn figures(metrics: &str) -> String {
    let mut page = String::new();
    if let Ok(mut stream) = TcpStream::connect(metrics) {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream.read_to_string(&mut page).unwrap();
    }
    page
}

/// One NATS server.
pub(crate) struct Nats {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Nats {
    pub(crate) fn start(options: &[&str]) -> Nats {
        Nats::start_at(free_port(), options)
    }

    pub(crate) fn start_at(port: u16, options: &[&str]) -> Nats {
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).args(options);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command);
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Nats { process, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// A way to a server on which all that is sent takes its time; its port.
pub(crate) fn long_way(to: u16, takes: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    thread::spawn(move || {
        while let Ok((here, _)) = listener.accept() {
            let there = TcpStream::connect(("127.0.0.1", to)).expect("the server listens");
            let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            delay(copy(&here), copy(&there), takes);
            delay(there, here, takes);
        }
    });
    port
}

fn delay(mut from: TcpStream, mut to: TcpStream, takes: Duration) {
    let (give, take) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if give.send((Instant::now() + takes, buffer[..len].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        while let Ok((due, bytes)) = take.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// Two channels with a server between them: workers are at `there`, callers at `here`.
pub(crate) struct Scene {
    pub(crate) nats: Nats,
    pub(crate) folder: Folder,
    pub(crate) here: Segment,
    pub(crate) there: Segment,
}

pub(crate) const SUBJECT: &str = "test.calls";

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Scene {
        let (nats, folder) = (Nats::start(options), Folder::new());
        let channel = |name: &str| Options::new().open_or_create(folder.0.join(name)).expect("a channel");
        Scene { here: channel("here"), there: channel("there"), nats, folder }
    }

    pub(crate) fn bridge(&self, direction: &str, channel: &str, options: &[&str]) -> Process {
        bridge(direction, &self.folder.0.join(channel), &self.nats.url(), options)
    }

    /// Both bridges, once calls get through.
    pub(crate) fn bridges(&self, options: &[&str]) -> [Process; 2] {
        let both = [self.bridge("expose", "there", options), self.bridge("attach", "here", options)];
        self.wait_for_server();
        both
    }

    /// Waits until the bridge is attached.
    pub(crate) fn wait_for_server(&self) {
        wait_until("the bridge is attached", || has_server(&self.here));
    }

    pub(crate) fn client(&self) -> Client {
        self.here.client().expect("a client")
    }

    pub(crate) fn server(&self) -> Server {
        self.there.server().expect("a server")
    }
}

pub(crate) fn has_server(segment: &Segment) -> bool {
    let is_server =
        |member: &pipework::reqrep::Member| member.role == pipework::reqrep::Role::Server && member.is_alive;
    segment.members().expect("members").iter().any(is_server)
}

pub(crate) fn bridge(direction: &str, channel: &Path, url: &str, options: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
    command.arg(direction).arg(channel).args(["--subject", SUBJECT]).args(options).env("NATS_URL", url);
    Process::start(&mut command)
}

/// Answers with `answer` until the server is stopped.
pub(crate) fn work(server: Server, answer: impl Fn(Request<'_>) + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Ok(request) = server.recv(pipework::Deadline::NEVER) {
            answer(request);
        }
    })
}

/// Answers with the request itself, flags and all.
pub(crate) fn echo(request: Request<'_>) {
    let (payload, flags) = (request.to_vec(), request.flags());
    // The caller may have gone.
    let _ = request.reply(pipework::reqrep::Message::new(&payload).flags(flags));
}
