//! Outwards: this program is a worker of the channel, and sends its requests to the
//! subject.

use crate::bridge::{Bridge, Permits, Stop, stopped};
use crate::channel::{Direction, Failure, OnlyOne, at, has_worker};
use crate::connection::backoff;
use crate::figures::Side;
use crate::mailboxes::Mailbox;
use crate::message::{Call, Status, Step};
use crate::parts::{Misfit, Of, Piece, Pieces, Received, Sent, Whole};
use async_nats::{Message, StatusCode, Subject};
use bytes::Bytes;
use pipework::ErrorKind;
use pipework::defaults::PART_TIMEOUT;
use pipework::reqrep::{self, Request, Server, ServerOptions, Stage, Ticket};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// How often a call in progress is asked whether its caller still waits.
const TICK: Duration = Duration::from_millis(50);
/// How long this thread sleeps in the channel if it has nothing else to do.
const SLICE: Duration = Duration::from_millis(100);
/// How long the answer to a probe is waited for.
const PROBE: Duration = Duration::from_secs(1);

/// Attaches to the channel of `bridge` until it is stopped, and then until the calls in progress
/// are over. It is attached while a bridge answers at the subject, and no other bridge is at the
/// channel: the second waits, and takes over when the first has gone.
///
/// # Errors
///
/// The channel cannot be used any more.
pub async fn attach(bridge: Rc<Bridge>, mut stop: Stop) -> Result<(), Failure> {
    match only(&bridge, &mut stop).await? {
        Some(_lock) => take_out(Rc::clone(&bridge), stop, bridge.settings.owns_thread).await,
        None => Ok(()),
    }
}

/// The same for a caller that has the lock. `owns_thread` says that nothing else runs on this
/// thread.
pub(crate) async fn take_out(bridge: Rc<Bridge>, mut stop: Stop, owns_thread: bool) -> Result<(), Failure> {
    let attached = Rc::new(Attached {
        permits: bridge.permits(),
        bridge,
        owns_thread,
        nobody_there: Notify::new(),
        is_away: Cell::new(true),
        idle: Notify::new(),
    });
    while attached.find_far_side(&mut stop).await {
        attached.serve(&mut stop).await?;
    }
    attached.permits.all_done().await;
    Ok(())
}

/// Waits until no other bridge is at the channel; `None` once this one is stopped.
pub(crate) async fn only(bridge: &Bridge, stop: &mut Stop) -> Result<Option<OnlyOne>, Failure> {
    loop {
        if let Some(lock) = OnlyOne::try_lock(&bridge.segment, Direction::Outwards)? {
            return Ok(Some(lock));
        }
        tokio::select! {
            () = stopped(stop) => return Ok(None),
            () = sleep(Duration::from_millis(250)) => {}
        }
    }
}

struct Attached {
    bridge: Rc<Bridge>,
    permits: Permits,
    /// Nothing else runs on this thread.
    owns_thread: bool,
    /// Rung when no bridge answers at the subject.
    nobody_there: Notify,
    /// Not attached.
    is_away: Cell<bool>,
    /// Rung when no call is in progress any more.
    idle: Notify,
}

impl Attached {
    /// Asks until a bridge answers at the subject; false once the bridge is stopped.
    async fn find_far_side(&self, stop: &mut Stop) -> bool {
        let mut failures = 0;
        loop {
            tokio::select! {
                () = stopped(stop) => return false,
                answered = self.probe() => if answered { return true },
            }
            tokio::select! {
                () = stopped(stop) => return false,
                () = sleep(backoff(Duration::from_millis(50), Duration::from_secs(1), failures)) => {}
            }
            failures += 1;
        }
    }

    async fn probe(&self) -> bool {
        if !self.bridge.is_connected() {
            return false;
        }
        let mailbox = self.bridge.mailboxes.mailbox();
        let probe = Call { knows_steps: true, is_probe: true, ..Call::default() };
        if self.bridge.request(&probe, &mailbox.subject.clone(), Bytes::new()).await.is_err() {
            return false;
        }
        let answer = timeout(PROBE, mailbox.recv()).await;
        answer.is_ok_and(|answer| {
            answer.status.is_none() && Step::read(answer.headers.as_ref()) == Ok(Step::Accepted)
        })
    }

    /// Takes requests until no bridge answers at the subject, or the bridge is stopped.
    async fn serve(self: &Rc<Self>, stop: &mut Stop) -> Result<(), Failure> {
        let path = self.bridge.settings.channel.display();
        let options = ServerOptions::new().max_message(self.bridge.settings.max_message);
        let server = self.bridge.segment.server_with(&options).map_err(at(&path))?;
        self.is_away.set(false);
        self.bridge.figures.attached.set(true);
        let served = loop {
            let taken = async {
                let permit = self.permits.one().await;
                (permit, self.next(&server).await)
            };
            tokio::select! {
                // A request without an answer is given back, and must not be taken again.
                biased;
                () = self.nobody_there.notified() => break Ok(()),
                () = stopped(stop) => break Ok(()),
                (permit, request) = taken => match request {
                    Ok(request) => {
                        let (this, request) = (Rc::clone(self), request.into_owned());
                        let counted = self.bridge.figures.in_flight(Side::Attach);
                        tokio::task::spawn_local(async move {
                            this.carry(request).await;
                            drop((permit, counted));
                            if this.bridge.figures.all_in_flight() == 0 {
                                this.idle.notify_one();
                            }
                        });
                    }
                    Err(error) => break Err(at(&path)(error)),
                },
            }
        };
        self.is_away.set(true);
        self.bridge.figures.attached.set(false);
        served
    }

    /// The next request for this bridge.
    async fn next<'a>(&self, server: &'a Server) -> Result<Request<'a>, pipework::Error> {
        loop {
            let request = match self.bridge.settings.overflow {
                Some(wait) => self.overflowing(server, wait).await?,
                None => self.recv(server).await?,
            };
            match self.bridge.brought_in.borrow_mut().get_mut(&request.ticket()) {
                // It came from there. Dropped, it fails at the client of the other direction.
                Some(was_taken) => *was_taken = true,
                None => return Ok(request),
            }
        }
    }

    /// The next request of local callers.
    async fn recv<'a>(&self, server: &'a Server) -> Result<Request<'a>, pipework::Error> {
        let bridge = &self.bridge;
        loop {
            if bridge.figures.all_in_flight() > 0 {
                // Either the next request or, if nothing, that no call is in progress any more.
                let is_over = || bridge.figures.all_in_flight() == 0;
                let look = || match server.try_recv().transpose() {
                    None => is_over().then_some(None),
                    taken => Some(taken),
                };
                let may = || bridge.figures.all_in_flight() <= 1;
                if let Some(found) = bridge.spin.wait(may, look).await {
                    match found {
                        Some(taken) => return taken,
                        None => continue,
                    }
                }
            } else if self.owns_thread && self.is_at_rest().await {
                match server.recv(SLICE) {
                    Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                    taken => return taken,
                }
                continue;
            }
            tokio::select! {
                taken = server.recv_async() => return taken,
                () = self.idle.notified() => {}
            }
        }
    }

    /// Whether it can only wait for requests, once all is done that can be now.
    async fn is_at_rest(&self) -> bool {
        // One turn of the runtime receives events, the next one handles them.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        self.bridge.is_connected() && self.bridge.figures.all_in_flight() == 0
    }

    /// A request that no local worker took in time, or any request if there are no local workers.
    async fn overflowing<'a>(
        &self,
        server: &'a Server,
        wait: Duration,
    ) -> Result<Request<'a>, pipework::Error> {
        let segment = &self.bridge.segment;
        let mut since: HashMap<Ticket, Instant> = HashMap::new();
        loop {
            if !has_worker(segment)? {
                tokio::select! {
                    request = server.recv_async() => return request,
                    // A worker may have come.
                    () = sleep(TICK) => continue,
                }
            }
            let now = Instant::now();
            let waiting: Vec<Ticket> = match segment.waiting() {
                0 => Vec::new(),
                _ => segment
                    .calls()
                    .filter(|call| call.stage == Stage::Waiting)
                    .map(|call| call.ticket)
                    .collect(),
            };
            since.retain(|ticket, _| waiting.contains(ticket));
            for ticket in &waiting {
                since.entry(*ticket).or_insert(now);
            }
            let is_due = since.values().any(|first| now.duration_since(*first) >= wait);
            // The one that came first, whichever was seen for longest.
            if is_due && let Some(request) = server.try_recv()? {
                return Ok(request);
            }
            sleep((wait / 4).clamp(Duration::from_millis(1), TICK)).await;
        }
    }

    /// Carries one request, until it is over.
    async fn carry(&self, request: Request<'static>) {
        let (figures, begin) = (&self.bridge.figures, Instant::now());
        let mut carried = Carried { attached: self, request: Some(request), begin };
        let mut failures = 0;
        let outcome = loop {
            match carried.attempt().await {
                Outcome::Over(name) => break name,
                Outcome::NotBegun { nobody_there } => {
                    if nobody_there && self.give_back(&mut carried) {
                        break "given_back";
                    }
                    sleep(backoff(Duration::from_millis(5), Duration::from_millis(250), failures)).await;
                    failures += 1;
                    if let Some(name) = carried.is_over_by_itself() {
                        break name;
                    }
                }
            }
        };
        figures.done(Side::Attach, outcome, begin.elapsed());
    }

    /// Leaves the channel, for no bridge answers, and gives a request back to it.
    fn give_back(&self, carried: &mut Carried<'_>) -> bool {
        if !self.is_away.replace(true) {
            self.nobody_there.notify_one();
        }
        carried.request.as_mut().is_none_or(|request| request.give_back())
    }
}

/// The result of an attempt.
enum Outcome {
    /// The call is over; as the figures name it.
    Over(&'static str),
    /// No worker has it, and it may be sent again.
    NotBegun { nobody_there: bool },
}

/// A request in the hands of the bridge.
struct Carried<'a> {
    attached: &'a Attached,
    /// `None` once it is over.
    request: Option<Request<'static>>,
    begin: Instant,
}

/// The known facts about the far side of a call.
struct FarSide {
    mailbox: Mailbox,
    /// Its mailbox, once it has sent a message.
    control: Option<Subject>,
    /// Of the request.
    sent: Sent,
    rest: Pieces,
    /// Of the reply.
    received: Received,
    heard: Instant,
}

impl Carried<'_> {
    /// Sends the request to the subject once, and the reply to the caller.
    async fn attempt(&mut self) -> Outcome {
        let bridge = &self.attached.bridge;
        let Some(request) = &self.request else { return Outcome::Over("answered") };
        if !bridge.is_connected() {
            return Outcome::NotBegun { nobody_there: true };
        }
        let mut rest = Pieces::new(Bytes::copy_from_slice(request), request.blobs());
        let first = match rest.next(bridge.piece_bytes()) {
            Ok(first) => first.expect("every message has a payload"),
            Err(error) => return Outcome::Over(self.fail(Status::Failed, error.to_string().as_bytes())),
        };
        let timeout = bridge.settings.timeout.map(|timeout| timeout.saturating_sub(self.begin.elapsed()));
        let call = Call {
            knows_steps: true,
            is_probe: false,
            is_blob: first.of == Of::Blob,
            timeout,
            flags: request.flags(),
            more: first.more,
        };
        let mut far = FarSide {
            mailbox: bridge.mailboxes.mailbox(),
            control: None,
            sent: Sent::default(),
            rest,
            received: Received::new(bridge.settings.max_message),
            heard: Instant::now(),
        };
        far.sent.add();
        if bridge.request(&call, &far.mailbox.subject, first.bytes).await.is_err() {
            return Outcome::NotBegun { nobody_there: true };
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            if let Err(error) = self.hand_out(&mut far).await {
                let name = self.fail(Status::Failed, error.to_string().as_bytes());
                self.cancel(far);
                return Outcome::Over(name);
            }
            let outcome = tokio::select! {
                biased;
                message = far.mailbox.recv() => self.hear(&mut far, message).await,
                _ = ticks.tick() => self.look(&far),
            };
            match outcome {
                None => {}
                // The far side has said the last word.
                Some(Next::End(outcome)) => return outcome,
                Some(Next::Cancel(outcome)) => {
                    self.cancel(far);
                    return outcome;
                }
            }
        }
    }

    /// Sends as many pieces as the far side has space for. It fails if a blob has lost bytes.
    async fn hand_out(&self, far: &mut FarSide) -> Result<(), pipework::Error> {
        let Some(control) = &far.control else { return Ok(()) };
        let bridge = &self.attached.bridge;
        while far.sent.has_space()
            && let Some(piece) = far.rest.next(bridge.piece_bytes())?
        {
            let step = piece.step(far.sent.count(), 0);
            far.sent.add();
            // If it is lost, the far side notices the gap, or its silence ends the call.
            let _ = bridge.say(control, Some(&far.mailbox.subject), &step, piece.bytes).await;
        }
        Ok(())
    }

    /// Looks whether the call is over without a word of the far side.
    fn look(&mut self, far: &FarSide) -> Option<Next> {
        if let Some(name) = self.is_over_by_itself() {
            return Some(Next::Cancel(Outcome::Over(name)));
        }
        if far.heard.elapsed() < self.attached.bridge.settings.silence {
            return None;
        }
        Some(Next::Cancel(self.far_side_died("silent")))
    }

    /// Ends the call if its caller does not wait any more, or its time is over.
    fn is_over_by_itself(&mut self) -> Option<&'static str> {
        let request = self.request.take_if(|request| !request.is_wanted());
        if request.is_some() {
            return Some("cancelled");
        }
        let limit = self.attached.bridge.settings.timeout?;
        (self.begin.elapsed() >= limit).then(|| self.fail(Status::TimedOut, b""))
    }

    fn far_side_died(&mut self, name: &'static str) -> Outcome {
        self.request.take().map(Request::report_death);
        Outcome::Over(name)
    }

    /// Fails the call for a reason, or for the meaning of the status.
    fn fail(&mut self, status: Status, reason: &[u8]) -> &'static str {
        let reason = if reason.is_empty() { status.text().as_bytes() } else { reason };
        self.request.take().map(|request| request.fail(reason));
        status.name()
    }

    /// Handles a message of the far side.
    async fn hear(&mut self, far: &mut FarSide, message: Message) -> Option<Next> {
        far.heard = Instant::now();
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            // To the request, or to something that was said later: then the far side has gone.
            return Some(match far.control {
                None => Next::End(Outcome::NotBegun { nobody_there: true }),
                Some(_) => Next::End(self.far_side_died("far_side_gone")),
            });
        }
        if far.control.is_none() {
            far.control = message.reply;
        }
        let payload = message.payload;
        match Step::read(message.headers.as_ref()) {
            Ok(Step::Accepted) => None,
            Ok(Step::Ack(next)) => {
                far.sent.acknowledge(next);
                None
            }
            Ok(Step::Part { number, more, flags }) => {
                self.take(far, number, Piece { of: Of::Payload, more, bytes: payload }, flags).await
            }
            Ok(Step::Blob { number, more }) => {
                self.take(far, number, Piece { of: Of::Blob, more, bytes: payload }, 0).await
            }
            Ok(Step::Reply { number, flags }) => match far.received.end(number, &payload) {
                Ok(reply) => Some(Next::End(self.reply(reply, flags).await)),
                Err(misfit) => Some(self.misfit(misfit)),
            },
            Ok(Step::Failure(status)) => Some(Next::End(match status {
                Status::Busy => Outcome::NotBegun { nobody_there: false },
                Status::NoWorker => Outcome::NotBegun { nobody_there: true },
                Status::WorkerDied => self.far_side_died(status.name()),
                _ => Outcome::Over(self.fail(status, &payload)),
            })),
            // A side that knows the mapping never sends this to a caller.
            Ok(Step::Cancel) => Some(Next::Cancel(Outcome::Over(self.fail(Status::Malformed, b"cancel")))),
            Err(wrong) => Some(Next::Cancel(Outcome::Over(self.fail(Status::Malformed, wrong.as_bytes())))),
        }
    }

    fn misfit(&mut self, misfit: Misfit) -> Next {
        Next::Cancel(match misfit {
            Misfit::Gap => self.far_side_died("part_lost"),
            Misfit::TooLong => {
                let reason = self.attached.bridge.too_long();
                Outcome::Over(self.fail(Status::TooLong, reason.as_bytes()))
            }
            Misfit::Malformed(wrong) => Outcome::Over(self.fail(Status::Malformed, wrong.as_bytes())),
        })
    }

    /// Takes a piece of the reply: acknowledges it, and gives the caller the part that it completes.
    async fn take(&mut self, far: &mut FarSide, number: u64, piece: Piece, flags: u32) -> Option<Next> {
        match far.received.take(number, &piece) {
            Ok(None) => {}
            Ok(Some(part)) => {
                let over = self.give(part, flags).await;
                if over.is_some() {
                    return over;
                }
            }
            Err(misfit) => return Some(self.misfit(misfit)),
        }
        if let (Some(next), Some(control)) = (far.received.due(), &far.control) {
            let reply = Some(&far.mailbox.subject);
            // If it is lost, the far side waits, and the caller gets an error for its silence.
            let _ = self.attached.bridge.say(control, reply, &Step::Ack(next), Bytes::new()).await;
        }
        None
    }

    async fn give(&mut self, part: Whole, flags: u32) -> Option<Next> {
        let blobs = match self.attached.bridge.blobs(part.blobs) {
            Ok(blobs) => blobs,
            Err((status, reason)) => {
                return Some(Next::Cancel(Outcome::Over(self.fail(status, reason.as_bytes()))));
            }
        };
        let Some(request) = &mut self.request else { return None };
        let message = reqrep::Message::new(&part.payload).flags(flags).attach(&blobs);
        let over = match timeout(PART_TIMEOUT, request.part_async(message)).await {
            Ok(Ok(true)) => return None,
            Ok(Err(error)) => self.fail(Status::Failed, error.to_string().as_bytes()),
            Ok(Ok(false)) | Err(_) => {
                // Dropped, it fails at its client, if that is still there.
                self.request = None;
                "cancelled"
            }
        };
        Some(Next::Cancel(Outcome::Over(over)))
    }

    async fn reply(&mut self, reply: Whole, flags: u32) -> Outcome {
        let blobs = match self.attached.bridge.blobs(reply.blobs) {
            Ok(blobs) => blobs,
            Err((status, reason)) => return Outcome::Over(self.fail(status, reason.as_bytes())),
        };
        let Some(request) = self.request.take() else { return Outcome::Over("cancelled") };
        let message = reqrep::Message::new(&reply.payload).flags(flags).attach(&blobs);
        // After a part it waits until the caller has taken that.
        let replied = timeout(PART_TIMEOUT, request.reply_async(message)).await;
        Outcome::Over(match replied {
            Ok(Ok(true)) => "answered",
            Ok(Ok(false)) => "cancelled",
            Ok(Err(error)) if error.kind() == pipework::ErrorKind::TooLong => Status::TooLong.name(),
            Ok(Err(_)) | Err(_) => "not_taken",
        })
    }

    /// Tells the far side that the caller no longer waits, as soon as its mailbox is known.
    fn cancel(&self, far: FarSide) {
        let (bridge, silence) = (Rc::clone(&self.attached.bridge), self.attached.bridge.settings.silence);
        tokio::task::spawn_local(async move {
            let control = match far.control {
                Some(control) => Some(control),
                None => timeout(silence, far.mailbox.recv()).await.ok().and_then(|message| message.reply),
            };
            if let Some(control) = control {
                let _ = bridge.say(&control, None, &Step::Cancel, Bytes::new()).await;
            }
        });
    }
}

/// The next step of an attempt.
enum Next {
    /// It is over at both ends.
    End(Outcome),
    /// It is over here.
    Cancel(Outcome),
}
