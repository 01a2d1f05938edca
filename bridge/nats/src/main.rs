//! The program `pipework-nats`, which the command finds as `pipework nats`: options, signals, exit
//! status.

mod args;

use args::{AccessArgs, CarryArgs, Cli, Command, PublishArgs, SubscribeArgs};
use clap::Parser;
use pipework_nats::connection::{self, Access, Secret};
use pipework_nats::figures::{self, Figures};
use pipework_nats::{Bridge, Failure, Publishing, Settings, Stop, Subscribing};
use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::LocalSet;

const USAGE: u8 = 2;
/// Messages were lost on their way here.
const DAMAGE: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let access = match access(&cli.command.common().access) {
        Ok(access) => access,
        Err(text) => return say(&text, USAGE),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => LocalSet::new().block_on(&runtime, carry(&cli.command, access)),
        Err(error) => return say(&error.to_string(), 1),
    };
    match outcome {
        Ok(Some(0)) => ExitCode::SUCCESS,
        Ok(Some(1)) => say("a message was lost", DAMAGE),
        Ok(Some(lost)) => say(&format!("{lost} messages were lost"), DAMAGE),
        Ok(None) => say("what was in progress was cut short", 1),
        Err(Failure(text)) => say(&text, 1),
    }
}

fn say(text: &str, status: u8) -> ExitCode {
    eprintln!("pipework nats: {text}");
    ExitCode::from(status)
}

/// Carries calls or messages until a signal stops it, and returns how many messages were lost; `None`
/// if work was cut short.
async fn carry(command: &Command, access: Access) -> Result<Option<u64>, Failure> {
    let args = command.common();
    let figures = Rc::new(Figures::default());
    let was_idle = Rc::new(Cell::new(false));
    let note = {
        let (figures, was_idle) = (Rc::clone(&figures), Rc::clone(&was_idle));
        move || was_idle.set(figures.all_in_flight() == 0)
    };
    let (stop, drain) = (stop(note)?, args.drain);
    if let Some(address) = args.metrics {
        let served = figures::serve(Rc::clone(&figures), address).await;
        let address = served.map_err(|error| Failure(format!("{address}: {error}")))?;
        eprintln!("pipework nats: figures at http://{address}/metrics");
    }
    let connection = connection::connect(access, figures.connection.clone()).await?;
    let nats = connection.client.clone();
    let carried = async {
        let (nats, stop) = (nats.clone(), stop.clone());
        let bridge = async |args| Bridge::open(settings(args), connection.clone(), Rc::clone(&figures)).await;
        match command {
            Command::Expose(args) => pipework_nats::expose(bridge(args).await?, stop).await.map(|()| 0),
            Command::Attach(args) => pipework_nats::attach(bridge(args).await?, stop).await.map(|()| 0),
            Command::Join(args) => pipework_nats::join(bridge(args).await?, stop).await.map(|()| 0),
            Command::Publish(args) => {
                let settings = publishing(args)?;
                pipework_nats::publish(settings, nats, Rc::clone(&figures), stop).await
            }
            Command::Subscribe(args) => {
                let settings = subscribing(args)?;
                pipework_nats::subscribe(settings, nats, Rc::clone(&figures), stop).await
            }
        }
    };
    let cut_short = async {
        let mut stop = stop.clone();
        let stopped = stop.wait_for(|stop| *stop).await.is_ok();
        match drain {
            Some(drain) if stopped => tokio::time::sleep(drain).await,
            _ => std::future::pending().await,
        }
    };
    let lost = tokio::select! {
        carried = carried => Some(carried?),
        () = cut_short => None,
    };
    if was_idle.get() && !connection.is_up() {
        return Ok(lost);
    }
    // The last replies are on their way when the connection has flushed them.
    let flushed = tokio::time::timeout(Duration::from_secs(2), nats.flush()).await;
    Ok(lost.filter(|_| matches!(flushed, Ok(Ok(())))))
}

/// A second signal that comes sooner than this after the first is the same one over two ways, as
/// timeout(1) sends it to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);

/// Becomes true with the first signal, which calls `note` as well; a second one, `PATIENCE` later or
/// more, ends the program.
fn stop(note: impl Fn() + 'static) -> Result<Stop, Failure> {
    let (tell, stop) = watch::channel(false);
    let hear = |kind| signal(kind).map_err(|error| Failure(format!("signals: {error}")));
    let (mut term, mut int) = (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    tokio::task::spawn_local(async move {
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            let Some(first) = first else {
                first = Some(Instant::now());
                note();
                tell.send_replace(true);
                continue;
            };
            if first.elapsed() >= PATIENCE {
                std::process::exit(1);
            }
        }
    });
    Ok(stop)
}

fn settings(args: &CarryArgs) -> Settings {
    Settings {
        channel: args.channel.clone(),
        subject: args.subject.clone(),
        queue: args.queue.clone(),
        concurrency: args.concurrency as usize,
        max_message: args.max_message,
        timeout: args.timeout,
        silence: args.silence,
        overflow: args.overflow,
        any_owner: args.any_owner,
        spin: args.spin,
        owns_thread: true,
    }
}

fn publishing(args: &PublishArgs) -> Result<Publishing, Failure> {
    create(args.fifo.as_deref().filter(|_| args.create))?;
    Ok(Publishing {
        fifo: args.fifo.clone(),
        forever: args.forever,
        mixed: args.pipe.mixed,
        lines: args.lines,
        zstd: args.pipe.zstd,
        subject: args.subject.clone(),
        stream: args.jetstream.clone(),
        journal: args.pipe.journal.clone(),
        window: args.window as usize,
        max_message: args.pipe.max_message,
    })
}

fn subscribing(args: &SubscribeArgs) -> Result<Subscribing, Failure> {
    create(args.to.as_deref().filter(|_| args.create))?;
    Ok(Subscribing {
        subject: args.subject.clone(),
        durable: args.durable.clone(),
        stream: args.jetstream.clone(),
        fifo: args.to.clone(),
        mixed: args.pipe.mixed,
        zstd: args.pipe.zstd,
        journal: args.pipe.journal.clone(),
        max_message: args.pipe.max_message,
    })
}

/// Makes a FIFO unless it is there.
fn create(fifo: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = fifo.filter(|path| !path.exists()) else { return Ok(()) };
    let made = pipework::atomic::create_fifo(path);
    made.map_err(|error| Failure(format!("{}: {error}", path.display())))
}

/// The connection that options and environment ask for.
fn access(args: &AccessArgs) -> Result<Access, String> {
    let env = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let servers = match &args.server {
        Some(text) => {
            let servers = connection::servers(text)?;
            if servers.iter().any(|server| server.has_user_pass()) {
                return Err(
                    "--server shows who connects to everybody on this machine; use NATS_URL or --creds"
                        .into(),
                );
            }
            servers
        }
        None => connection::servers(&env("NATS_URL").unwrap_or_else(|| "nats://127.0.0.1:4222".into()))?,
    };
    Ok(Access {
        servers,
        creds: args.creds.clone(),
        nkey: args.nkey.clone(),
        tls: args.tls,
        tls_ca: args.tls_ca.clone(),
        tls_cert: args.tls_cert.clone().zip(args.tls_key.clone()),
        inbox_prefix: args.inbox_prefix.clone(),
        user: env("NATS_USER").zip(env("NATS_PASSWORD")).map(Secret),
        token: env("NATS_TOKEN").map(Secret),
    })
}
