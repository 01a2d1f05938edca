//! From a subject to a pipe: messages are acknowledged when they are in the pipe.

use crate::alone::{Alone, alone};
use crate::bridge::{Stop, cut_off, stopped};
use crate::channel::{Failure, at};
use crate::connection::is_up;
use crate::envelope::Envelope;
use crate::figures::{Figures, Side};
use crate::gather::{Gathering, Step, Whole};
use crate::names::Name;
use crate::outlet::Outlet;
use crate::publish::{connected, stream};
use crate::written::Written;
use async_nats::jetstream::consumer::pull::{Config, MessagesErrorKind};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, Context, ContextBuilder};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, Message};
use futures_util::StreamExt;
use pipework::atomic::{Options, Zstd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::unconstrained;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How long the server waits for an acknowledgement, and how often the bridge extends that time.
const ACK_WAIT: Duration = Duration::from_secs(10);
const WORD: Duration = Duration::from_secs(3);
/// Messages that are asked for at once.
const BATCH: usize = 128;
/// Messages that may be unacknowledged, pieces included.
const IN_HAND: i64 = 65_536;
/// How long the rest of a message in pieces is waited for: a publisher with a journal may be
/// started again, and one without a stream behind it is quick or gone.
const SILENCE: Duration = Duration::from_secs(300);
const SHORT_SILENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the servers may say that the stream or name does not exist: servers that have just been
/// started may not know yet.
const GONE: Duration = Duration::from_secs(10);

/// The subject, and the pipe to write to.
#[derive(Clone, Debug)]
pub struct Subscribing {
    /// The subject, perhaps with wildcards.
    pub subject: String,
    /// The name under which the server keeps the acknowledgements; without it, it keeps none.
    pub durable: Option<String>,
    /// The stream, if it is not the one that takes the subject.
    pub stream: Option<String>,
    /// The FIFO; without it, standard output.
    pub fifo: Option<PathBuf>,
    /// Whether text shares the pipe.
    pub mixed: bool,
    /// Whether the messages in the pipe are compressed.
    pub zstd: bool,
    /// The file that keeps the numbers of written messages.
    pub journal: Option<PathBuf>,
    /// Bytes of the longest message.
    pub max_message: usize,
}

/// Writes messages into the pipe until the bridge is stopped, or the reader of standard output
/// leaves; returns how many were lost.
///
/// # Errors
///
/// The pipe, the journal or the stream cannot be used.
pub async fn subscribe(
    settings: Subscribing,
    nats: Client,
    figures: Rc<Figures>,
    mut stop: Stop,
) -> Result<u64, Failure> {
    let mut options = Options::new().mixed(settings.mixed);
    if settings.zstd {
        options = options.zstd(Zstd::new());
    }
    let mut outlet = Outlet::new(settings.fifo.clone(), options, stop.clone());
    if !outlet.open().await? {
        return Ok(0);
    }
    let (gathering, written) = (Gathering::new(settings.max_message), Written::unkept(0));
    let mut line = Line { outlet, gathering, written, figures, lost: 0, last: None };
    match &settings.durable {
        None => line.listen(&settings, &nats, &mut stop).await?,
        Some(durable) => {
            let consumer = tokio::select! {
                consumer = consumer(&settings, durable, &nats) => consumer?,
                () = stopped(&mut stop) => return Ok(0),
            };
            line.written = Written::unkept(consumer.window);
            if let Some(path) = &settings.journal {
                let doubt;
                (line.written, doubt) = Written::open(path, &consumer.stream, consumer.window)?;
                if let Some(number) = doubt {
                    eprintln!(
                        "pipework nats: message {number} of the stream was being written when the last \
                         run was killed; it is written again, and may be in the pipe twice"
                    );
                    line.figures.refused("in_doubt");
                }
            }
            line.consume(&consumer, &nats, &mut stop).await?;
        }
    }
    Ok(line.lost)
}

/// The way from the subject to the pipe.
struct Line {
    outlet: Outlet,
    gathering: Gathering<Piece>,
    written: Written,
    figures: Rc<Figures>,
    lost: u64,
    /// The message that was acknowledged last.
    last: Option<Acker>,
}

/// The value kept for a piece that a stream has.
struct Delivered {
    /// Its number in the stream.
    number: u64,
    /// When the stream took it, in nanoseconds.
    time: u64,
    acker: Acker,
}

type Piece = Option<Delivered>;

impl Line {
    /// Without a stream: the messages from now on.
    async fn listen(
        &mut self,
        settings: &Subscribing,
        nats: &Client,
        stop: &mut Stop,
    ) -> Result<(), Failure> {
        let mut subscriber = nats.subscribe(settings.subject.clone()).await.map_err(at(&settings.subject))?;
        self.figures.subscribed.set(true);
        let mut silences = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                biased;
                () = stopped(stop) => break,
                message = subscriber.next() => match message {
                    Some(message) => self.take(message, None).await?,
                    None => return Err(Failure("the connection is closed".into())),
                },
                _ = silences.tick() => self.give_up(SHORT_SILENCE).await,
            }
        }
        // The messages that had come when it was stopped; with a connection, some that were on their
        // way, too.
        subscriber.drain().await.map_err(at(&settings.subject))?;
        loop {
            tokio::select! {
                biased;
                message = unconstrained(subscriber.next()) => match message {
                    Some(message) => self.take(message, None).await?,
                    None => break,
                },
                () = cut_off(stop, nats) => break,
            }
        }
        Ok(())
    }

    /// Takes the messages that a consumer delivers.
    async fn consume(&mut self, found: &Found, nats: &Client, stop: &mut Stop) -> Result<(), Failure> {
        let mut words = interval(WORD);
        words.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut gone = None;
        while !*stop.borrow() {
            tokio::select! {
                there = found.is_there(&mut gone) => there?,
                () = stopped(stop) => break,
            }
            let batches = found.consumer.stream().max_messages_per_batch(BATCH).heartbeat(PATIENCE);
            let Ok(mut messages) = batches.messages().await else {
                sleep(PAUSE).await;
                continue;
            };
            self.figures.subscribed.set(true);
            loop {
                tokio::select! {
                    biased;
                    () = stopped(stop) => break,
                    message = messages.next() => match message {
                        Some(Ok(message)) => self.deliver(message, found).await?,
                        Some(Err(error)) if error.kind() == MessagesErrorKind::ConsumerDeleted => {
                            return Err(Failure("the durable name was deleted".into()));
                        }
                        Some(Err(error)) if error.kind() == MessagesErrorKind::PushBasedConsumer => {
                            return Err(Failure("the durable name belongs to a consumer that pushes".into()));
                        }
                        // A server has gone, or another one leads: asked again.
                        Some(Err(_)) | None => break,
                    },
                    _ = words.tick() => {
                        self.give_up(SILENCE).await;
                        self.keep_in_hand().await;
                    }
                }
            }
            self.figures.subscribed.set(false);
            if !*stop.borrow() {
                sleep(PAUSE).await;
            }
        }
        self.leave(nats).await;
        Ok(())
    }

    /// A message of the stream.
    async fn deliver(&mut self, message: jetstream::Message, found: &Found) -> Result<(), Failure> {
        let (number, time, deliveries) = match message.info() {
            Ok(info) => (info.stream_sequence, info.published.unix_timestamp_nanos(), info.delivered),
            // It did not come from the stream.
            Err(_) => {
                self.figures.refused("malformed");
                return Ok(());
            }
        };
        let (message, acker) = message.split();
        let piece = Some(Delivered { number, time: u64::try_from(time).unwrap_or(0), acker });
        if self.written.has(number) {
            // Or is it the number of another message, in a stream that was deleted and made again?
            if deliveries <= 1 {
                found.is_there(&mut None).await?;
            }
            self.figures.refused("again");
            self.acknowledge(piece).await;
            return Ok(());
        }
        self.take(message, piece).await
    }

    async fn take(&mut self, message: Message, piece: Piece) -> Result<(), Failure> {
        let envelope = match Envelope::read(message.headers.as_ref()) {
            Ok(envelope) => envelope,
            Err(wrong) => {
                self.refuse("malformed", wrong, [piece]).await;
                return Ok(());
            }
        };
        let name = piece.as_ref().and_then(|delivered| {
            let name = Name::read(message.headers.as_ref(), envelope.piece.as_ref())?;
            Some((name, delivered.time))
        });
        if name.is_some_and(|(name, time)| self.written.has_name(&name, time)) {
            self.figures.refused("again");
            self.acknowledge(piece).await;
            return Ok(());
        }
        let whole = match envelope.piece {
            None if message.payload.len() > self.gathering.max_message() => {
                self.refuse("too_long", "longer than --max-message", [piece]).await;
                return Ok(());
            }
            None => Whole { data: message.payload.into(), kept: vec![piece] },
            Some(part) => {
                let step = self.gathering.take(part, message.payload, piece, Instant::now());
                let forgotten = self.gathering.keep_within_limit();
                if forgotten > 0 {
                    // A stream delivers them again.
                    self.figures.refused("too_many_unfinished");
                }
                match step {
                    Step::Whole(whole) => whole,
                    Step::Unfinished => return Ok(()),
                    Step::Unfit(pieces) => {
                        self.refuse("too_long", "its pieces do not fit together", pieces).await;
                        return Ok(());
                    }
                }
            }
        };
        self.write(whole, name).await
    }

    /// Writes a message. `name` comes with the time at which the stream took it.
    async fn write(&mut self, whole: Whole<Piece>, name: Option<(Name, u64)>) -> Result<(), Failure> {
        let begin = Instant::now();
        let counted = Rc::clone(&self.figures);
        let _counted = counted.in_flight(Side::Subscribe);
        let numbers: Vec<u64> = whole.kept.iter().flatten().map(|delivered| delivered.number).collect();
        let mut words = interval(WORD);
        // Its first tick is due at once, and to wait for that takes a millisecond.
        words.reset();
        let is_written = {
            let writing = self.outlet.write(&whole.data, numbers.first().copied(), &mut self.written);
            tokio::pin!(writing);
            loop {
                tokio::select! {
                    biased;
                    written = &mut writing => break written?,
                    // The reader is slow.
                    _ = words.tick() => {
                        let in_hand = whole.kept.iter().chain(self.gathering.kept()).flatten();
                        for Delivered { acker, .. } in in_hand {
                            let _ = acker.ack_with(AckKind::Progress).await;
                        }
                    }
                }
            }
        };
        if !is_written {
            // Without a stream the message is not stored anywhere else.
            if numbers.is_empty() {
                self.refuse("not_taken", "the pipe has no reader", None).await;
            }
            for Delivered { acker, .. } in whole.kept.iter().flatten() {
                let _ = acker.ack_with(AckKind::Nak(None)).await;
            }
            return Ok(());
        }
        self.written.done(&numbers, name)?;
        for piece in whole.kept {
            self.acknowledge(piece).await;
        }
        self.figures.done(Side::Subscribe, "written", begin.elapsed());
        Ok(())
    }

    async fn acknowledge(&mut self, piece: Piece) {
        let Some(Delivered { acker, .. }) = piece else { return };
        // A message that is not acknowledged comes again, and is recognized.
        let _ = acker.ack().await;
        self.last = Some(acker);
    }

    /// Messages that cannot be written, and shall not come again.
    async fn refuse(&mut self, reason: &'static str, words: &str, pieces: impl IntoIterator<Item = Piece>) {
        self.figures.refused(reason);
        if self.lost == 0 {
            eprintln!("pipework nats: a message is lost: {words}; others are counted");
        }
        self.lost += 1;
        for Delivered { acker, .. } in pieces.into_iter().flatten() {
            let _ = acker.ack_with(AckKind::Term).await;
        }
    }

    /// Gives up messages whose remaining pieces do not come.
    async fn give_up(&mut self, silence: Duration) {
        for pieces in self.gathering.give_up(silence, Instant::now()) {
            self.refuse("torn", "its other pieces did not come", pieces).await;
        }
    }

    /// Tells the server that the pieces that have come are being worked on.
    async fn keep_in_hand(&self) {
        for Delivered { acker, .. } in self.gathering.kept().flatten() {
            let _ = acker.ack_with(AckKind::Progress).await;
        }
    }

    /// Gives unfinished messages back, and waits until the server has all acknowledgements.
    async fn leave(&mut self, nats: &Client) {
        for Delivered { acker, .. } in self.gathering.kept().flatten() {
            let _ = acker.ack_with(AckKind::Nak(None)).await;
        }
        if let Some(last) = self.last.take()
            && is_up(nats)
        {
            // They reach it in this order.
            let _ = tokio::time::timeout(PATIENCE, last.double_ack()).await;
        }
    }
}

struct Found {
    consumer: PullConsumer,
    /// The stream's name.
    name: String,
    /// Values that tell this stream and this consumer from all others.
    stream: String,
    /// For how long the stream knows a name, in nanoseconds.
    window: u64,
    durable: String,
    /// For questions about them.
    asked: Stream<()>,
    _alone: Alone,
}

impl Found {
    /// Fails when the servers have said for a while that the stream or the durable name does not
    /// exist, which `gone` remembers from call to call, and at once when another one has its place:
    /// its messages have the numbers of others. If the servers cannot be asked, both count as
    /// existing.
    async fn is_there(&self, gone: &mut Option<Instant>) -> Result<(), Failure> {
        let what = match self.asked.consumer_info(&self.durable).await.map_err(|error| error.kind()) {
            Err(ConsumerInfoErrorKind::StreamNotFound) => format!("stream {}", self.name),
            Err(ConsumerInfoErrorKind::NotFound) => format!("the durable name {}", self.durable),
            Ok(info) if info.created != self.consumer.cached_info().created => {
                return Err(Failure(format!("the durable name {} was created again", self.durable)));
            }
            _ => {
                *gone = None;
                return Ok(());
            }
        };
        match gone.get_or_insert_with(Instant::now).elapsed() < GONE {
            true => Ok(()),
            false => Err(Failure(format!("{what} is not there any more"))),
        }
    }
}

/// The consumer of the durable name, which is made if it does not exist.
async fn consumer(settings: &Subscribing, durable: &str, nats: &Client) -> Result<Found, Failure> {
    let jetstream: Context = ContextBuilder::new().timeout(PATIENCE).build(nats.clone());
    connected(nats).await;
    let mut tries = 0;
    let name = match &settings.stream {
        Some(name) => name.clone(),
        None => loop {
            match jetstream.stream_by_subject(settings.subject.clone()).await {
                Ok(name) => break name,
                Err(error) if tries == 40 => {
                    let subject = &settings.subject;
                    return Err(Failure(format!("{subject}: no stream takes this subject ({error})")));
                }
                Err(_) => sleep(PAUSE).await,
            }
            tries += 1;
        },
    };
    let info = stream(&jetstream, &name).await?;
    // Before the consumer is made: the owner of the name would take a new one for another.
    let alone = alone(nats, &name, durable).await?;
    let config = Config {
        durable_name: Some(durable.to_owned()),
        filter_subject: settings.subject.clone(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_ack_pending: IN_HAND,
        ..Config::default()
    };
    let consumer = loop {
        let stream = jetstream.get_stream_no_info(&name).await.map_err(at(&name))?;
        match stream.get_or_create_consumer(durable, config.clone()).await {
            Ok(consumer) => break consumer,
            Err(error) if tries >= 40 => return Err(Failure(format!("{durable}: {error}"))),
            Err(_) => sleep(PAUSE).await,
        }
        tries += 1;
    };
    let consumer: PullConsumer = consumer;
    let known = &consumer.cached_info().config;
    if known.filter_subject != settings.subject || known.ack_policy != AckPolicy::Explicit {
        let why = "this durable name has another subject, or acknowledges in another way";
        return Err(Failure(format!("{durable}: {why}")));
    }
    let stream = format!("{name} {} {durable}", info.created.unix_timestamp_nanos());
    let window = u64::try_from(info.config.duplicate_window.as_nanos()).unwrap_or(u64::MAX);
    let asked = jetstream.get_stream_no_info(&name).await.map_err(at(&name))?;
    Ok(Found { consumer, name, stream, window, durable: durable.to_owned(), asked, _alone: alone })
}
