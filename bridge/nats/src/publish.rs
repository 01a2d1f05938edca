//! From a pipe to a subject: messages are published, and kept until the server has them.

use crate::bridge::{Stop, stopped};
use crate::channel::{Failure, at};
use crate::connection::{backoff, is_up};
use crate::envelope::{Envelope, Piece};
use crate::figures::{Figures, Side};
use crate::inlet::{Found, Inlet, More};
use crate::journal::{Journal, Place};
use crate::names::{AFTER, ID};
use async_nats::jetstream::context::{
    Context, ContextBuilder, GetStreamErrorKind, PublishAckFuture, PublishError, PublishErrorKind,
};
use async_nats::jetstream::stream;
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use pipework::atomic::{Options, Zstd};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// NATS counts this towards its largest message besides the payload: the headers.
const HEADERS: usize = 1024;
/// Kilobytes that may wait to be acknowledged at the same time, besides one message.
const BUDGET: u32 = 64 << 10;
/// How long an acknowledgement is waited for, and at most between two tries.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Messages and bytes that are given to the connection before it has to have written them.
const UNFLUSHED: (u32, usize) = (64, 256 << 10);
/// The most bytes that a pipe holds when the bridge is stopped.
const LAST_LOOK: u64 = 1 << 20;

/// The pipe to publish from, and the subject.
#[derive(Clone, Debug)]
pub struct Publishing {
    /// The FIFO; without it, standard input.
    pub fifo: Option<PathBuf>,
    /// Whether to go on when the last writer has left.
    pub forever: bool,
    /// Whether text shares the pipe.
    pub mixed: bool,
    /// Whether its lines are published, too.
    pub lines: bool,
    /// Whether the messages in the pipe are compressed.
    pub zstd: bool,
    /// The subject.
    pub subject: String,
    /// The stream that acknowledges; without it, nothing does.
    pub stream: Option<String>,
    /// The file that keeps the bytes of the pipe until then.
    pub journal: Option<PathBuf>,
    /// Messages that may wait to be acknowledged at the same time.
    pub window: usize,
    /// Bytes of the longest message.
    pub max_message: usize,
}

/// Publishes until the pipe ends or the bridge is stopped, and then until all is acknowledged;
/// returns how many messages were lost before they came here.
///
/// # Errors
///
/// The pipe, the journal or the stream cannot be used.
pub async fn publish(
    settings: Publishing,
    nats: Client,
    figures: Rc<Figures>,
    mut stop: Stop,
) -> Result<u64, Failure> {
    let flags = u64::from(settings.mixed) | u64::from(settings.zstd) << 1 | u64::from(settings.lines) << 2;
    let journal = Journal::open(settings.journal.as_deref(), flags)?;
    let mut options = Options::new().mixed(settings.mixed).max_message(settings.max_message);
    if settings.zstd {
        options = options.zstd(Zstd::new());
    }
    let publisher = tokio::select! {
        publisher = Publisher::new(&settings, nats, figures) => publisher?,
        () = stopped(&mut stop) => return Ok(0),
    };
    let inlet = tokio::select! {
        inlet = Inlet::open(settings.fifo.as_deref(), options, settings.lines, journal) => inlet?,
        () = stopped(&mut stop) => return Ok(0),
    };
    let mut line = Line { inlet, publisher, torn: 0, said: None };
    let outcome = line.carry(settings.forever, &mut stop).await;
    // The messages before an error are good.
    line.publisher.settle().await;
    line.keep_account()?;
    outcome.map(|()| line.torn)
}

/// The way from the pipe to the subject.
struct Line {
    inlet: Inlet,
    publisher: Rc<Publisher>,
    torn: u64,
    said: Option<Instant>,
}

impl Line {
    async fn carry(&mut self, forever: bool, stop: &mut Stop) -> Result<(), Failure> {
        loop {
            self.pass_on().await?;
            let more = tokio::select! {
                biased;
                () = stopped(stop) => return self.finish().await,
                more = self.inlet.more() => more?,
                // Messages that were acknowledged meanwhile need not be read again by another
                // start.
                () = self.publisher.progress() => {
                    self.keep_account()?;
                    continue;
                }
            };
            if more == More::Ended {
                self.inlet.end();
                self.pass_on().await?;
                self.publisher.settle().await;
                if !forever {
                    return Ok(());
                }
                self.inlet.begin_anew()?;
                self.keep_account()?;
            }
        }
    }

    /// Publishes all that has come.
    async fn pass_on(&mut self) -> Result<(), Failure> {
        while let Some(found) = self.inlet.next()? {
            match found {
                Found::Torn(torn) => {
                    self.torn += 1;
                    self.publisher.figures.refused("torn");
                    self.say(&torn);
                }
                Found::Message { place, after, from, envelope, data } => {
                    let name = (self.inlet.journal.name_of(place), after);
                    self.publisher.send(place, from, name, envelope, data).await?;
                    self.keep_account()?;
                }
            }
        }
        self.publisher.flush().await?;
        self.keep_account()
    }

    /// Takes the bytes that are in the pipe, and no more.
    async fn finish(&mut self) -> Result<(), Failure> {
        let mut taken = 0;
        while taken < LAST_LOOK {
            let Some(bytes) = self.inlet.more_now()? else { break };
            taken += bytes;
            self.pass_on().await?;
        }
        if !self.inlet.journal.stays() {
            self.inlet.end();
            self.pass_on().await?;
        }
        Ok(())
    }

    /// Removes acknowledged messages from the journal.
    fn keep_account(&mut self) -> Result<(), Failure> {
        let (first, acked) = self.publisher.waiting();
        let from = first.unwrap_or_else(|| self.inlet.settled());
        let parsed = self.inlet.parsed();
        self.inlet.journal.advance(from, parsed, acked)
    }

    /// Reports losses, but not more than once a second.
    fn say(&mut self, torn: &pipework::atomic::Torn) {
        if self.said.is_none_or(|said| said.elapsed() > Duration::from_secs(1)) {
            self.said = Some(Instant::now());
            eprintln!("pipework nats: {torn}; {} lost so far", self.torn);
        }
    }
}

/// The subject of messages, and those that wait to be acknowledged.
struct Publisher {
    nats: Client,
    subject: String,
    jetstream: Option<(Context, String)>,
    figures: Rc<Figures>,
    /// Bytes of a message that the stream takes, headers included.
    stream_limit: Cell<usize>,
    window: Arc<Semaphore>,
    budget: Arc<Semaphore>,
    size: u32,
    waiting: RefCell<Waiting>,
    complained: Cell<Option<Instant>>,
    acknowledged: tokio::sync::Notify,
}

/// The messages that are published and not acknowledged, in the order of the pipe.
#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    /// The number of the first.
    first: u64,
    acked: Place,
    unflushed: (u32, usize),
}

struct Message {
    place: Place,
    from: u64,
    is_done: bool,
    began: Instant,
}

impl Publisher {
    async fn new(
        settings: &Publishing,
        nats: Client,
        figures: Rc<Figures>,
    ) -> Result<Rc<Publisher>, Failure> {
        let stream_limit = Cell::new(usize::MAX);
        let jetstream = match &settings.stream {
            None => None,
            Some(name) => {
                let jetstream =
                    ContextBuilder::new().timeout(PATIENCE).max_ack_inflight(1 << 20).build(nats.clone());
                let config = stream(&jetstream, name).await?.config;
                if !config.subjects.iter().any(|pattern| takes(pattern, &settings.subject)) {
                    let subject = &settings.subject;
                    return Err(Failure(format!("stream {name}: it does not take the subject {subject}")));
                }
                stream_limit.set(limit_of(&config));
                Some((jetstream, name.clone()))
            }
        };
        connected(&nats).await;
        let size = u32::try_from(settings.window).unwrap_or(u32::MAX).max(1);
        Ok(Rc::new(Publisher {
            nats,
            subject: settings.subject.clone(),
            jetstream,
            figures,
            stream_limit,
            window: Arc::new(Semaphore::new(size as usize)),
            budget: Arc::new(Semaphore::new(BUDGET as usize)),
            size,
            waiting: RefCell::default(),
            complained: Cell::new(None),
            acknowledged: tokio::sync::Notify::new(),
        }))
    }

    /// Publishes a message, as soon as the window has space for it. `name` comes with the place
    /// before it.
    async fn send(
        self: &Rc<Self>,
        place: Place,
        from: u64,
        (name, after): (String, Place),
        envelope: Envelope,
        data: Bytes,
    ) -> Result<(), Failure> {
        let permit = Arc::clone(&self.window).acquire_owned().await.map_err(at("the window"))?;
        let kilobytes = u32::try_from(data.len() >> 10).unwrap_or(BUDGET).clamp(1, BUDGET);
        let budget = Arc::clone(&self.budget).acquire_many_owned(kilobytes).await;
        let budget = budget.map_err(at("the window"))?;
        let number = {
            let waiting = &mut *self.waiting.borrow_mut();
            waiting.messages.push_back(Message { place, from, is_done: false, began: Instant::now() });
            waiting.first + waiting.messages.len() as u64 - 1
        };
        let (parcel, whole) = (Parcel { name, envelope, after }, Span { offset: 0, data, is_last: true });
        match &self.jetstream {
            Some((jetstream, stream)) => {
                let mut acks = VecDeque::new();
                for span in whole.cut(self.limit()) {
                    // In this order; a repetition may come later than its successors.
                    acks.push_back((self.publish(jetstream, stream, &parcel, &span).await, span));
                }
                let this = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    let _permits: (OwnedSemaphorePermit, _) = (permit, budget);
                    this.see_to(&parcel, acks).await;
                    this.done(number);
                });
            }
            None => {
                let len = whole.data.len();
                let mut spans = VecDeque::from([whole]);
                while let Some(span) = spans.pop_front() {
                    connected(&self.nats).await;
                    let limit = self.limit();
                    if span.data.len() > limit {
                        span.cut(limit).rev().for_each(|span| spans.push_front(span));
                        continue;
                    }
                    let (headers, _) = parcel.headers(&span);
                    let (subject, payload) = (self.subject.clone(), span.data.clone());
                    let sent = match headers.is_empty() {
                        true => self.nats.publish(subject, payload).await,
                        false => self.nats.publish_with_headers(subject, headers, payload).await,
                    };
                    match sent {
                        // Another server has taken the place of the one that was asked.
                        Err(_) if span.data.len() > self.limit() => spans.push_front(span),
                        sent => sent.map_err(at(&self.subject))?,
                    }
                }
                let unflushed = {
                    let unflushed = &mut self.waiting.borrow_mut().unflushed;
                    *unflushed = (unflushed.0 + 1, unflushed.1 + len);
                    *unflushed
                };
                if unflushed.0 >= UNFLUSHED.0.min(self.size) || unflushed.1 >= UNFLUSHED.1 {
                    self.flush().await?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of a payload that the server takes now. Another server may have another limit.
    fn limit(&self) -> usize {
        self.stream_limit.get().min(self.nats.max_payload()).saturating_sub(HEADERS).max(1)
    }

    async fn publish(&self, jetstream: &Context, stream: &str, parcel: &Parcel, span: &Span) -> Sent {
        let (mut headers, id) = parcel.headers(span);
        headers.insert(ID, id);
        headers.insert(AFTER, parcel.after.to_string());
        headers.insert("Nats-Expected-Stream", stream);
        jetstream.publish_with_headers(self.subject.clone(), headers, span.data.clone()).await
    }

    /// Waits for the acknowledgements of a message, and publishes again until they come; smaller, if
    /// the limit has become smaller.
    async fn see_to(&self, parcel: &Parcel, mut acks: VecDeque<(Sent, Span)>) {
        let Some((jetstream, stream)) = &self.jetstream else { return };
        let mut failures = 0;
        while let Some((sent, span)) = acks.pop_front() {
            let outcome = match sent {
                Ok(ack) => ack.await.map(drop),
                Err(error) => Err(error),
            };
            let Err(error) = outcome else {
                failures = 0;
                continue;
            };
            let reason = match error.kind() {
                PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => "no_acknowledgement",
                PublishErrorKind::StreamNotFound => "no_stream",
                _ => "refused_by_stream",
            };
            self.figures.refused(reason);
            self.complain(&error);
            sleep(backoff(FIRST_PAUSE, LONGEST_PAUSE, failures)).await;
            failures += 1;
            connected(&self.nats).await;
            if reason == "refused_by_stream"
                && let Ok(info) = jetstream.get_stream(stream).await
            {
                self.stream_limit.set(limit_of(&info.cached_info().config));
            }
            let mut again = Vec::new();
            for span in span.cut(self.limit()) {
                again.push((self.publish(jetstream, stream, parcel, &span).await, span));
            }
            again.into_iter().rev().for_each(|each| acks.push_front(each));
        }
    }

    /// Says why a message is not acknowledged, but not more than every ten seconds.
    fn complain(&self, error: &PublishError) {
        let is_due = self.complained.get().is_none_or(|said| said.elapsed() > Duration::from_secs(10));
        if is_due {
            self.complained.set(Some(Instant::now()));
            eprintln!("pipework nats: not acknowledged ({error}); published again until it is");
        }
    }

    /// Message `number` is acknowledged.
    fn done(&self, number: u64) {
        let waiting = &mut *self.waiting.borrow_mut();
        let idx = (number - waiting.first) as usize;
        waiting.messages[idx].is_done = true;
        self.figures.done(Side::Publish, "acknowledged", waiting.messages[idx].began.elapsed());
        while let Some(message) = waiting.messages.pop_front_if(|message| message.is_done) {
            (waiting.acked, waiting.first) = (message.place, waiting.first + 1);
        }
        self.acknowledged.notify_one();
    }

    /// Without a stream: published messages have reached the server as far as the bridge can know.
    async fn flush(&self) -> Result<(), Failure> {
        if self.jetstream.is_some() || self.waiting.borrow().messages.is_empty() {
            return Ok(());
        }
        self.nats.flush().await.map_err(at("the connection"))?;
        let waiting = &mut *self.waiting.borrow_mut();
        waiting.unflushed = (0, 0);
        for message in waiting.messages.drain(..) {
            (waiting.acked, waiting.first) = (message.place, waiting.first + 1);
            self.figures.done(Side::Publish, "published", message.began.elapsed());
        }
        Ok(())
    }

    /// From where on the stream has messages that are not acknowledged, and up to which item all
    /// are.
    fn waiting(&self) -> (Option<u64>, Place) {
        let waiting = self.waiting.borrow();
        (waiting.messages.front().map(|message| message.from), waiting.acked)
    }

    /// Waits until another message is acknowledged.
    async fn progress(&self) {
        self.acknowledged.notified().await;
    }

    /// Waits until all is acknowledged.
    async fn settle(&self) {
        drop(self.window.acquire_many(self.size).await);
    }
}

type Sent = Result<PublishAckFuture, PublishError>;

/// What all pieces of a message have in common.
struct Parcel {
    name: String,
    envelope: Envelope,
    /// The place before it.
    after: Place,
}

/// Bytes of a message that are published at once.
struct Span {
    offset: u64,
    data: Bytes,
    /// They are the last ones.
    is_last: bool,
}

impl Span {
    /// The same in pieces of at most `limit` bytes.
    fn cut(self, limit: usize) -> impl DoubleEndedIterator<Item = Span> {
        let count = self.data.len().div_ceil(limit).max(1);
        (0..count).map(move |nth| {
            let from = nth * limit;
            let to = self.data.len().min(from + limit);
            let (offset, data) = (self.offset + from as u64, self.data.slice(from..to));
            Span { offset, data, is_last: self.is_last && nth + 1 == count }
        })
    }
}

impl Parcel {
    /// The headers and the name of some bytes of it; all of them have the name of the message.
    fn headers(&self, span: &Span) -> (HeaderMap, String) {
        let (mut envelope, mut id) = (self.envelope.clone(), self.name.clone());
        if span.offset > 0 || !span.is_last {
            id = format!("{id}/{}", span.offset);
            let (message, offset) = (self.name.clone(), span.offset);
            envelope.piece = Some(Piece { message, offset, more: !span.is_last });
        }
        let mut headers = HeaderMap::new();
        envelope.write(&mut headers);
        (headers, id)
    }
}

/// Bytes of a message that a stream takes, headers included.
fn limit_of(config: &stream::Config) -> usize {
    usize::try_from(config.max_message_size).ok().filter(|bytes| *bytes > 0).unwrap_or(usize::MAX)
}

/// Waits until the client is connected.
pub(crate) async fn connected(nats: &Client) {
    while !is_up(nats) {
        sleep(FIRST_PAUSE).await;
    }
}

/// The facts about a stream; waits for the servers to agree on it, and fails if it does not exist.
pub(crate) async fn stream(jetstream: &Context, name: &str) -> Result<stream::Info, Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        connected(&jetstream.client()).await;
        let error = match jetstream.get_stream(name).await {
            Ok(stream) => return Ok(stream.cached_info().clone()),
            Err(error) => error,
        };
        match error.kind() {
            GetStreamErrorKind::JetStream(why) if why.code() == 404 => {
                return Err(Failure(format!("stream {name}: there is none")));
            }
            GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
                return Err(Failure(format!("stream {name}: no stream has such a name")));
            }
            _ if pause >= LONGEST_PAUSE => {
                eprintln!("pipework nats: stream {name}: {error}; trying again");
                sleep(PATIENCE).await;
            }
            _ => sleep(pause).await,
        }
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Whether a subject with wildcards takes `subject`, which has none.
fn takes(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(one), Some(other)) if one == "*" || one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Kind;

    #[test]
    fn subject_matching_compares_words() {
        for (pattern, subject, taken) in [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.>", "a.b.c", true),
            (">", "a", true),
            ("a.>", "a", false),
            ("a.*", "a.b.c", false),
            ("a.b", "a", false),
            ("*.b", "a.c", false),
        ] {
            assert_eq!(takes(pattern, subject), taken, "{pattern} {subject}");
        }
    }

    #[test]
    fn message_is_published_in_one_piece_if_it_fits() {
        let name = "n".to_owned();
        let envelope = Envelope { kind: Kind::Line, ..Envelope::default() };
        let parcel = Parcel { name, envelope, after: Place::default() };
        let whole = |len| Span { offset: 0, data: vec![7; len].into(), is_last: true };
        let read = |span: &Span| {
            let (headers, id) = parcel.headers(span);
            (Envelope::read(Some(&headers)).unwrap().piece, id)
        };
        for (len, expected) in [(0, 1), (10, 1), (11, 2), (20, 2), (21, 3)] {
            let pieces: Vec<Span> = whole(len).cut(10).collect();
            assert_eq!(pieces.len(), expected, "{len}");
            assert_eq!(pieces.iter().map(|span| span.data.len()).sum::<usize>(), len);
            if expected == 1 {
                assert_eq!(read(&pieces[0]), (None, "n".into()));
                continue;
            }
            for (nth, span) in pieces.iter().enumerate() {
                let (piece, id) = read(span);
                let piece = piece.unwrap();
                assert_eq!((piece.offset, piece.more), (10 * nth as u64, nth + 1 < expected));
                assert_eq!(id, format!("n/{}", 10 * nth));
            }
        }
        // A piece that is cut again says the same of its bytes.
        let again: Vec<Span> = whole(25).cut(10).nth(1).unwrap().cut(4).collect();
        let read: Vec<_> = again.iter().map(|span| read(span).0.unwrap()).collect();
        assert_eq!(
            read.iter().map(|piece| (piece.offset, piece.more)).collect::<Vec<_>>(),
            [(10, true), (14, true), (18, true)]
        );
        assert!(!read.iter().zip(&again).any(|(piece, span)| piece.more == span.is_last));
    }
}
