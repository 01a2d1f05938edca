//! Inwards: requests from a subject go to the workers of the channel.

use crate::bridge::{Bridge, Permits, Stop, Unsent, cut_off, stopped};
use crate::channel::{Direction, Failure, OnlyOne, at, has_worker, is_passing};
use crate::figures::Side;
use crate::mailboxes::Mailbox;
use crate::message::{Call, Status, Step};
use crate::parts::{Misfit, Of, Piece, Pieces, Received, Sent, Whole};
use async_nats::{Message, StatusCode, Subject};
use bytes::Bytes;
use pipework::ErrorKind;
use pipework::reqrep::{self, CallError, Client, ClientOptions, Reply, Stream, Ticket};
use std::cell::OnceCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// How often the channel is asked for workers.
const LOOK: Duration = Duration::from_millis(100);
/// When a caller first gets `accepted`, and how often it gets it after that.
const FIRST_WORD: Duration = Duration::from_millis(50);
const NEXT_WORD: Duration = Duration::from_secs(1);
/// Before unsubscribing, drain at least `FEW` messages. Probes make up the number: `PROBES` at each
/// beat, `MOST` in all.
const FEW: u64 = 8;
const BEAT: Duration = Duration::from_millis(2);
const MOST: u32 = 8000;
const PROBES: u32 = 8;
/// The reason for a plain caller, which takes one message.
const NO_BLOBS: &str = "the reply has blobs, and only a caller that sends Pipework-Call can get them";

/// Exposes the channel of `bridge` until it is stopped, and then until the calls in progress are
/// over. It subscribes while workers are attached.
///
/// # Errors
///
/// The channel cannot be used any more, or the subject not subscribed to.
pub async fn expose(bridge: Rc<Bridge>, stop: Stop) -> Result<(), Failure> {
    let path = bridge.settings.channel.display();
    let lock = OnlyOne::try_lock(&bridge.segment, Direction::Inwards)?;
    let _lock = lock.ok_or_else(|| {
        Failure(format!("{path}: another bridge is attached to it; `join` is both in one program"))
    })?;
    bring_in(Rc::clone(&bridge), stop).await
}

/// The same for a caller that has the lock.
pub(crate) async fn bring_in(bridge: Rc<Bridge>, mut stop: Stop) -> Result<(), Failure> {
    let options = ClientOptions::new().needs_server(true).max_message(bridge.settings.max_message);
    let client = bridge.segment.client_with(&options).map_err(at(bridge.settings.channel.display()))?;
    let exposing = Rc::new(Exposing { permits: bridge.permits(), bridge, client });
    while exposing.wait_for_worker(&mut stop).await? {
        exposing.serve(&mut stop).await?;
    }
    exposing.permits.all_done().await;
    Ok(())
}

struct Exposing {
    bridge: Rc<Bridge>,
    client: Client,
    permits: Permits,
}

impl Exposing {
    /// Waits for a worker; false once the bridge is stopped.
    async fn wait_for_worker(&self, stop: &mut Stop) -> Result<bool, Failure> {
        let mut looks = interval(LOOK);
        loop {
            tokio::select! {
                () = stopped(stop) => return Ok(false),
                _ = looks.tick() => if self.has_worker()? { return Ok(true) },
            }
        }
    }

    fn has_worker(&self) -> Result<bool, Failure> {
        match has_worker(&self.bridge.segment) {
            Err(error) if is_passing(&error) => Ok(false),
            looked => looked.map_err(at(self.bridge.settings.channel.display())),
        }
    }

    /// Takes requests until the last worker has left, the connection has ended, or the bridge is
    /// stopped.
    async fn serve(self: &Rc<Self>, stop: &mut Stop) -> Result<(), Failure> {
        let Bridge { settings, nats, group, figures, .. } = &*self.bridge;
        tokio::select! {
            biased;
            subscribed = group.subscribe(nats, &settings.subject, &settings.queue) => {
                subscribed.map_err(at(&settings.subject))?;
            }
            () = stopped(stop) => return Ok(()),
        }
        figures.subscribed.set(true);
        let mut taken = Taken::default();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = group.next() => match message {
                    Some(message) => {
                        taken.count += 1;
                        if !self.take_unless_cut_off(message, stop).await {
                            break;
                        }
                    }
                    None => break,
                },
                _ = looks.tick() => {
                    taken.look();
                    if !self.has_worker()? {
                        break;
                    }
                }
                () = stopped(stop) => break,
            }
        }
        figures.subscribed.set(false);
        self.drain(&taken, stop).await;
        Ok(())
    }

    /// Unsubscribes, and answers the requests that NATS had already sent.
    ///
    /// async-nats forgets a subscription before the server does, whether it is drained or not, and
    /// drops the messages on their way. Only if the server and async-nats both know after how many
    /// messages the subscription ends do both end it with the same one. So this announces a number
    /// with space for all messages that may be on their way; probes, of which each member of the
    /// group gets its share, make up the rest.
    async fn drain(self: &Rc<Self>, taken: &Taken, stop: &mut Stop) {
        let group = &self.bridge.group;
        if group.end_after(taken.at_most_on_its_way()).await {
            let mailbox = self.bridge.mailboxes.mailbox();
            let probe = Call { knows_steps: true, is_probe: true, ..Call::default() };
            let (mut beats, mut left) = (interval(BEAT), MOST);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while left > 0 {
                tokio::select! {
                    biased;
                    message = group.next() => {
                        let Some(message) = message else { return };
                        if !self.take_unless_cut_off(message, stop).await {
                            return;
                        }
                    }
                    () = cut_off(stop, &self.bridge.nats) => return,
                    _ = beats.tick() => {
                        // Without a connection the number is announced to the next server.
                        for _ in 0..if self.bridge.is_connected() { PROBES } else { 0 } {
                            let _ = self.bridge.request(&probe, &mailbox.subject, Bytes::new()).await;
                            left -= 1;
                        }
                    }
                }
            }
        }
        // In a group so large that hardly any probe comes back. Or the connection has ended, and
        // the subscription with it.
        group.leave();
        while let Some(message) = group.next().await
            && self.take_unless_cut_off(message, stop).await
        {}
    }

    /// Begins with a request, or refuses it; false if the bridge is stopped, and the answer would
    /// have to wait for a connection.
    async fn take_unless_cut_off(self: &Rc<Self>, message: Message, stop: &mut Stop) -> bool {
        tokio::select! {
            biased;
            () = self.take(message) => true,
            () = cut_off(stop, &self.bridge.nats) => false,
        }
    }

    /// Begins with a request, or refuses it.
    async fn take(self: &Rc<Self>, message: Message) {
        let figures = &self.bridge.figures;
        let Some(to) = message.reply.clone() else { return figures.refused("no_reply_subject") };
        let call = match Call::read(message.headers.as_ref()) {
            Ok(call) => call,
            Err(wrong) => {
                figures.refused(Status::Malformed.name());
                return self.end(&to, Status::Malformed, wrong.into()).await;
            }
        };
        if call.is_probe {
            return match self.has_worker() {
                Ok(true) => drop(self.bridge.say(&to, None, &Step::Accepted, Bytes::new()).await),
                _ => self.end(&to, Status::NoWorker, Bytes::new()).await,
            };
        }
        let Some(permit) = self.permits.try_one() else {
            figures.refused(Status::Busy.name());
            return self.end(&to, Status::Busy, Bytes::new()).await;
        };
        let this = Rc::clone(self);
        let counted = figures.in_flight(Side::Expose);
        tokio::task::spawn_local(async move {
            this.answer(call, to, message.payload).await;
            drop((permit, counted));
        });
    }

    async fn end(&self, to: &Subject, status: Status, reason: Bytes) {
        // A caller that cannot be reached does not get this either.
        let _ = self.bridge.say(to, None, &Step::Failure(status), reason).await;
    }

    async fn answer(&self, call: Call, to: Subject, payload: Bytes) {
        let (figures, begin) = (&self.bridge.figures, Instant::now());
        let conversation = Conversation {
            exposing: self,
            call,
            to: &to,
            mailbox: OnceCell::new(),
            opened: Notify::new(),
            sent: Sent::default(),
        };
        let outcome = conversation.hold(payload).await;
        figures.done(Side::Expose, outcome.as_ref().map_or_else(End::name, |()| "answered"), begin.elapsed());
        match outcome {
            Ok(()) | Err(End::Gone) => {}
            Err(End::Because(status, reason)) => self.end(&to, status, reason).await,
        }
    }
}

/// The number of messages received on a subscription.
#[derive(Debug, Default)]
struct Taken {
    count: u64,
    /// The count at the last look, and the most that came between two of them.
    last: u64,
    most: u64,
}

impl Taken {
    fn look(&mut self) {
        self.most = self.most.max(self.count - self.last);
        self.last = self.count;
    }

    /// The messages that may have been sent and not come yet: if a message takes less time than the
    /// time between two looks, half of this.
    fn at_most_on_its_way(&self) -> u64 {
        2 * self.most.max(self.count - self.last) + FEW
    }
}

/// Why a call was not answered.
enum End {
    /// With this status, and reason.
    Because(Status, Bytes),
    /// The caller no longer waits, or cannot be reached.
    Gone,
}

impl End {
    fn because(status: Status, reason: impl Into<Bytes>) -> End {
        End::Because(status, reason.into())
    }

    fn name(&self) -> &'static str {
        match self {
            End::Because(status, _) => status.name(),
            End::Gone => "cancelled",
        }
    }
}

impl From<Status> for End {
    fn from(status: Status) -> End {
        End::Because(status, Bytes::new())
    }
}

impl From<Unsent> for End {
    fn from(_: Unsent) -> End {
        End::Gone
    }
}

/// One call, from its first message to its last.
struct Conversation<'a> {
    exposing: &'a Exposing,
    call: Call,
    to: &'a Subject,
    /// The caller's further messages go here. Most calls end before it is needed.
    mailbox: OnceCell<Mailbox>,
    /// Rung when it is there.
    opened: Notify,
    /// Of the reply.
    sent: Sent,
}

impl Conversation<'_> {
    async fn hold(&self, payload: Bytes) -> Result<(), End> {
        let held = async {
            let Call { more, is_blob, .. } = self.call;
            let of = if is_blob { Of::Blob } else { Of::Payload };
            let request = self.gather(Piece { of, more, bytes: payload }).await?;
            if !self.call.knows_steps {
                return self.answer(request).await;
            }
            tokio::select! {
                biased;
                answered = self.answer(request) => answered,
                () = self.listen() => Err(End::Gone),
            }
        };
        match self.call.timeout {
            None => held.await,
            // A caller that does not wait at all would now and then be answered.
            Some(Duration::ZERO) => Err(Status::TimedOut.into()),
            Some(limit) => timeout(limit, held).await.unwrap_or(Err(Status::TimedOut.into())),
        }
    }

    fn mailbox(&self) -> &Mailbox {
        self.mailbox.get_or_init(|| {
            self.opened.notify_one();
            self.exposing.bridge.mailboxes.mailbox()
        })
    }

    /// Says something to the caller, and where to answer.
    async fn say(&self, step: Step, payload: Bytes) -> Result<(), End> {
        let reply = Some(&self.mailbox().subject);
        Ok(self.exposing.bridge.say(self.to, reply, &step, payload).await?)
    }

    /// The last message, which gets no answer.
    async fn end(&self, step: Step, payload: Bytes) -> Result<(), End> {
        Ok(self.exposing.bridge.say(self.to, None, &step, payload).await?)
    }

    /// Receives the other pieces of a request.
    async fn gather(&self, first: Piece) -> Result<Whole, End> {
        if first.is_last_of_message() {
            return Ok(Whole { blobs: Vec::new(), payload: first.bytes });
        }
        let settings = &self.exposing.bridge.settings;
        let mut received = Received::new(settings.max_message);
        let fits = |misfit| match misfit {
            Misfit::Gap => Status::WorkerDied.into(),
            Misfit::TooLong => End::because(Status::TooLong, self.exposing.bridge.too_long()),
            Misfit::Malformed(wrong) => End::because(Status::Malformed, wrong),
        };
        received.take(0, &first).map_err(fits)?;
        self.say(Step::Accepted, Bytes::new()).await?;
        loop {
            let heard = timeout(settings.silence, self.mailbox().recv());
            let Ok(message) = heard.await else { return Err(End::Gone) };
            let (number, of, more) = match read(&message) {
                Some(Step::Part { number, more, .. }) => (number, Of::Payload, more),
                Some(Step::Blob { number, more }) => (number, Of::Blob, more),
                Some(Step::Accepted | Step::Ack(_)) => continue,
                Some(_) => return Err(End::Gone),
                None => return Err(Status::Malformed.into()),
            };
            let piece = Piece { of, more, bytes: message.payload };
            if let Some(request) = received.take(number, &piece).map_err(fits)? {
                return Ok(request);
            }
            if let Some(next) = received.due() {
                self.say(Step::Ack(next), Bytes::new()).await?;
            }
        }
    }

    /// Calls a worker, and hands on its answer.
    async fn answer(&self, request: Whole) -> Result<(), End> {
        let mut stream = self.send(request).await?;
        let known = BroughtIn::new(&self.exposing.bridge, stream.ticket());
        // The reply for a caller that takes one message only.
        let mut whole = Vec::new();
        loop {
            let part = self
                .next_part(&mut stream)
                .await
                .map_err(|error| if known.was_taken_here() { Status::Busy.into() } else { ended(error) })?;
            let is_last = stream.ticket().is_none();
            let flags = if is_last { stream.end_flags() } else { part.as_ref().map_or(0, Reply::flags) };
            let blobs = part.as_ref().map_or(Vec::new(), |part| part.blobs().to_vec());
            let part = part.map_or(Vec::new(), Reply::into_vec);
            match self.call.knows_steps {
                true => {
                    self.part(Pieces::new(part.into(), &blobs), flags, is_last).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                false if !blobs.is_empty() => return Err(End::because(Status::Failed, NO_BLOBS)),
                false => {
                    whole = if whole.is_empty() { part } else { [whole, part].concat() };
                    if whole.len() > self.exposing.bridge.nats.max_payload().saturating_sub(64) {
                        return Err(Status::TooLong.into());
                    }
                    if is_last {
                        return self.end(Step::Reply { number: 0, flags }, whole.into()).await;
                    }
                }
            }
        }
    }

    /// Sends the request to a worker. From then on its slot keeps its blobs.
    async fn send(&self, request: Whole) -> Result<Stream, End> {
        let made = self.exposing.bridge.blobs(request.blobs);
        let blobs = made.map_err(|(status, reason)| End::because(status, reason))?;
        let message = reqrep::Message::new(&request.payload).flags(self.call.flags).attach(&blobs);
        self.exposing.client.stream_async(message).await.map_err(ended)
    }

    /// The next part of the reply.
    async fn next_part(&self, stream: &mut Stream) -> Result<Option<Reply>, CallError> {
        let bridge = &self.exposing.bridge;
        let may = || bridge.figures.all_in_flight() <= 1;
        let look = || match stream.try_next_part() {
            Ok(None) if stream.ticket().is_some() => None,
            found => Some(found),
        };
        match bridge.spin.wait(may, look).await {
            Some(found) => found,
            None => stream.next_part_async().await,
        }
    }

    /// Sends a part of the reply, piece by piece. The last piece of the last part ends the call.
    async fn part(&self, mut pieces: Pieces, flags: u32, is_last: bool) -> Result<(), End> {
        let bytes = self.exposing.bridge.piece_bytes();
        while let Some(piece) = pieces.next(bytes).map_err(ended)? {
            let number = self.sent.count();
            if is_last && piece.is_last_of_message() {
                return self.end(Step::Reply { number, flags }, piece.bytes).await;
            }
            self.sent.space().await;
            self.sent.add();
            self.say(piece.step(number, flags), piece.bytes).await?;
        }
        Ok(())
    }

    /// Listens to the caller, and sends it `accepted` from time to time; returns when the caller
    /// does not wait any more.
    async fn listen(&self) {
        let mut word = pin!(sleep(FIRST_WORD));
        loop {
            let heard = async {
                match self.mailbox.get() {
                    Some(mailbox) => Some(mailbox.recv().await),
                    None => {
                        self.opened.notified().await;
                        None
                    }
                }
            };
            tokio::select! {
                message = heard => match message.as_ref().and_then(read) {
                    Some(Step::Ack(next)) => self.sent.acknowledge(next),
                    Some(Step::Cancel) => return,
                    // Nothing that ends a call by the rules.
                    _ => {}
                },
                () = &mut word => {
                    // Without a connection, words would pile up for a caller that is gone by then.
                    let is_connected = self.exposing.bridge.is_connected();
                    if is_connected && self.say(Step::Accepted, Bytes::new()).await.is_err() {
                        return;
                    }
                    word.as_mut().reset(tokio::time::Instant::now() + NEXT_WORD);
                }
            }
        }
    }
}

/// The step that the caller sends; a step that ends the call if the caller no longer listens.
fn read(message: &Message) -> Option<Step> {
    match message.status {
        Some(StatusCode::NO_RESPONDERS) => Some(Step::Cancel),
        _ => Step::read(message.headers.as_ref()).ok(),
    }
}

/// The status for the caller after an error of the channel.
fn ended(error: impl Into<CallError>) -> End {
    let error = error.into();
    match error.kind() {
        ErrorKind::Failed => {
            let reason = error.into_reason().map_or(Vec::new(), Reply::into_vec);
            End::because(Status::Failed, reason)
        }
        ErrorKind::PeerDied => Status::WorkerDied.into(),
        ErrorKind::NoServer => Status::NoWorker.into(),
        ErrorKind::TooLong => End::because(Status::TooLong, error.to_string()),
        _ => End::because(Status::Failed, error.to_string()),
    }
}

/// A call of this program's own, for the other direction to know.
struct BroughtIn<'a> {
    bridge: &'a Bridge,
    ticket: Option<Ticket>,
}

impl BroughtIn<'_> {
    fn new(bridge: &Bridge, ticket: Option<Ticket>) -> BroughtIn<'_> {
        ticket.map(|ticket| bridge.brought_in.borrow_mut().insert(ticket, false));
        BroughtIn { bridge, ticket }
    }

    fn was_taken_here(&self) -> bool {
        self.ticket.is_some_and(|ticket| self.bridge.brought_in.borrow().get(&ticket) == Some(&true))
    }
}

impl Drop for BroughtIn<'_> {
    fn drop(&mut self) {
        self.ticket.map(|ticket| self.bridge.brought_in.borrow_mut().remove(&ticket));
    }
}
