//! The two ends for tasks: a task registers a waker where a thread would park. It works with any
//! runtime, and without one.
//!
//! Invariant: a call or a request changes hands only inside a poll that returns ready, so nothing
//! is lost when a pending future is dropped.

use std::future::poll_fn;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::client::Client;
use super::layout::Direction;
use super::place::Sending;
use super::receiving::{STREAM, Stream};
use super::reply::{Answer, Reply};
use super::request::Request;
use super::server::{SHORT, Server};
use super::waiting::{AwaitedCall, Entry, Registration, WatcherState};
use super::word::Ticket;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::message::Message;

const CALL: &str = "reqrep call";
const SEND: &str = "reqrep send";
const RECV: &str = "reqrep recv";
const PART: &str = "reqrep part";
const REPLY: &str = "reqrep reply";

impl Client {
    /// As [`call`](Client::call), for a task. Dropping the future cancels the call. There is no
    /// deadline: runtimes have timers.
    ///
    /// The future runs on any runtime. It is woken by a thread of this process, which the first
    /// future starts and which ends with the client.
    ///
    /// # Errors
    ///
    /// As [`call`](Client::call), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn call_async<'a>(&self, request: impl Into<Message<'a>>) -> Answer {
        let ticket = self.start_async(&request.into(), Sending::new(false), CALL).await?;
        self.finish_async(ticket).await
    }

    /// Waits for the reply of a call whose ticket no other task has.
    pub(super) async fn finish_async(&self, ticket: Ticket) -> Answer {
        let _cancelled_if_dropped = Unheard { client: self, ticket };
        self.look_async(ticket, CALL).await
    }

    /// As [`send`](Client::send), for a task. Nothing was sent if the future is dropped before it
    /// is ready.
    ///
    /// A future that was polled waits for a slot ahead of later ones. One that is kept and not polled
    /// keeps a slot from them for 100 ms after it was woken, once.
    ///
    /// # Errors
    ///
    /// As [`send`](Client::send), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn send_async<'a>(&self, request: impl Into<Message<'a>>) -> Result<Ticket> {
        let ticket = self.start_async(&request.into(), Sending::new(true), SEND).await?;
        self.sent(ticket);
        Ok(ticket)
    }

    /// As [`recv`](Client::recv), for a task. The ticket stays valid if the future is dropped.
    ///
    /// # Errors
    ///
    /// As [`recv`](Client::recv), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn recv_async(&self, ticket: Ticket) -> Answer {
        let received = self.look_async(ticket, RECV).await;
        self.noted(ticket, received)
    }

    /// As [`stream`](Client::stream), for a task: [`Stream::next_part_async`] gives the parts.
    ///
    /// # Errors
    ///
    /// As [`call_async`](Client::call_async), but never `PeerDied` or `Failed`.
    pub async fn stream_async<'a>(&self, request: impl Into<Message<'a>>) -> Result<Stream> {
        let ticket = self.start_async(&request.into(), Sending::for_parts(), STREAM).await?;
        Ok(Stream::new(self.clone(), ticket, Duration::MAX))
    }

    pub(super) async fn start_async(
        &self,
        request: &Message<'_>,
        sending: Sending,
        op: &'static str,
    ) -> Result<Ticket> {
        self.shared().admit(Direction::Request, request, self.inner.max_message, op)?;
        let mut kept: Option<Entry> = None;
        let place = |entry: Option<&Entry>| {
            let write = |idx| self.shared().write(Direction::Request.of(idx), request, op);
            self.sender().place(write, sending, None, entry, op)
        };
        poll_fn(|cx| {
            let before = kept.take().filter(Entry::is_here);
            if let Some(ticket) = place(before.as_ref())? {
                before.inspect(Entry::is_served);
                return Poll::Ready(Ok(ticket));
            }
            let waiting = self.sender().register(before, cx.waker(), op)?;
            // Anything that came before the registration woke no one, so look again.
            if waiting.may_look()
                && let Some(ticket) = place(Some(&waiting))?
            {
                waiting.is_served();
                return Poll::Ready(Ok(ticket));
            }
            kept = Some(waiting);
            Poll::Pending
        })
        .await
    }

    async fn look_async(&self, ticket: Ticket, op: &'static str) -> Answer {
        until(Some(self.as_awaited(ticket)), || self.watch_replies(op), || self.look(ticket, op)).await
    }
}

impl Stream {
    /// As [`next_part`](Stream::next_part), for a task. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// As [`next_part`](Stream::next_part), but never `TimedOut` or `Interrupted`; `Os` if no
    /// thread can be started.
    pub async fn next_part_async(&mut self) -> Answer<Option<Reply>> {
        let Stream { client, progress, .. } = self;
        let Some(ticket) = progress.ticket else { return Ok(None) };
        let watch = || client.watch_replies(STREAM);
        let look = || progress.advance(client)?.transpose();
        until(Some(client.as_awaited(ticket)), watch, look).await
    }
}

impl Request<'_> {
    /// As [`part`](Request::part), for a task. If the future is dropped before it is ready, the part
    /// was not given.
    ///
    /// # Errors
    ///
    /// As [`part`](Request::part), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn part_async<'m>(&mut self, part: impl Into<Message<'m>>) -> Result<bool> {
        let part = part.into();
        self.in_turn(PART, |request| request.give(&part)).await
    }

    /// As [`flush`](Request::flush), for a task. Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As [`flush`](Request::flush), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn flush_async(&mut self) -> Result<bool> {
        self.in_turn(PART, |request| request.flushed()).await
    }

    /// As [`reply`](Request::reply), for a task: after a [part](Request::part) it waits for the
    /// client. There is no [`part_timeout`](super::ServerOptions::part_timeout): runtimes have timers.
    /// If the future is dropped before it is ready, the request fails at its client.
    ///
    /// # Errors
    ///
    /// As [`reply`](Request::reply), but never `TimedOut`; `Os` if no thread can be started.
    pub async fn reply_async<'m>(mut self, reply: impl Into<Message<'m>>) -> Result<bool> {
        let reply = reply.into();
        let answered = self.in_turn(REPLY, |request| request.answer_now(&reply)).await;
        answered.inspect_err(|error| self.fail_for(*error))
    }

    /// Takes a step once it is this server's turn.
    async fn in_turn(
        &mut self,
        op: &'static str,
        mut step: impl FnMut(&mut Self) -> Result<Option<bool>>,
    ) -> Result<bool> {
        let (server, claimed) = (self.serving().clone(), self.claimed());
        let look = || match step(self)? {
            None => server.look_after_client(op).map(|()| None),
            taken => Ok(taken),
        };
        until(
            Some(AwaitedCall { ticket: claimed.ticket(), needs_server: false }),
            || server.watch_turns(op),
            look,
        )
        .await
    }
}

impl Server {
    /// As [`recv`](Server::recv), for a task. A request is taken by the poll that returns it, so
    /// none is lost if the future is dropped.
    ///
    /// The future runs on any runtime. It is woken by a thread of this process, which the first
    /// future starts and which ends with the server.
    ///
    /// # Errors
    ///
    /// As [`recv`](Server::recv), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn recv_async(&self) -> Result<Request<'_>> {
        let mut limit = None;
        let look = || match self.take() {
            // As a thread would, it waits for a while for what this process lacks.
            Err(error)
                if error.kind() != ErrorKind::Closed
                    && self.serving().readiness().short_until().is_some()
                    && !limit.get_or_insert_with(|| Deadline::after(SHORT)).has_passed() =>
            {
                Ok(None)
            }
            taken => taken,
        };
        until(None, || self.watch(RECV), look).await
    }
}

/// Cancels its call when it is dropped, if the call has not ended.
struct Unheard<'a> {
    client: &'a Client,
    ticket: Ticket,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        // No caller is left to report the outcome to.
        let _ = self.client.end_for(self.ticket, CALL);
    }
}

static ONLY_LOOKS: OnceLock<Waker> = OnceLock::new();

/// For bindings: a future that is polled with this waker only looks. It registers nothing, and nobody
/// wakes it. But one that waits for a slot takes its place in the queue. Call this once before the
/// process forks.
// Known by its address: others poll with `Waker::noop`, and expect to be registered.
#[doc(hidden)]
pub fn only_looks() -> &'static Waker {
    ONLY_LOOKS.get_or_init(|| Waker::noop().clone())
}

/// Waits in a task until `look` finds something. `watch` returns the watcher that wakes the task,
/// and `call` is the call that it waits for.
async fn until<T, E: From<Error>>(
    call: Option<AwaitedCall>,
    watch: impl Fn() -> Result<Arc<WatcherState>>,
    mut look: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<T, E> {
    let mut kept: Option<Registration> = None;
    poll_fn(|cx| {
        if let Some(found) = look()? {
            return Poll::Ready(Ok(found));
        }
        // A reply that the next poll finds then costs no registration, and wakes no watch thread.
        if ONLY_LOOKS.get().is_some_and(|waker| ptr::eq(waker, cx.waker())) {
            return Poll::Pending;
        }
        Registration::keep(&mut kept, call, cx.waker(), &watch)?;
        // Anything that came before the registration woke no one, so look again.
        look()?.map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
    })
    .await
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Wake};
    use std::thread;
    use std::time::Duration;

    use super::super::tests::block_on;
    use super::super::{ClientOptions, Options, Segment};
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn small() -> Segment {
        Options::new().slots(2).members(8).anonymous().expect("a segment")
    }

    fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn kind<T, E: Into<Error>>(ended: std::result::Result<T, E>) -> Option<ErrorKind> {
        ended.err().map(|error| error.into().kind())
    }

    fn all_free(segment: &Segment) {
        assert_eq!(segment.audit().unwrap().free, segment.geometry().slots as usize);
    }

    #[test]
    fn tasks_and_threads_call_and_serve_each_other() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        thread::scope(|scope| {
            // The servers are a thread and a task. The clients are two tasks and a thread, and have
            // fewer slots than callers.
            scope.spawn(|| {
                while let Ok(request) = server.recv(SOON)
                    && !request.is_empty()
                {
                    let answer = request.to_vec();
                    request.reply(&answer).unwrap();
                }
            });
            scope.spawn(|| {
                block_on(async {
                    let server = segment.server().unwrap();
                    while let Ok(request) = server.recv_async().await
                        && !request.is_empty()
                    {
                        let answer = request.to_vec();
                        request.reply(&answer).unwrap();
                    }
                });
            });
            let callers: Vec<_> = (0..3u32)
                .map(|caller| {
                    let client = client.clone();
                    scope.spawn(move || {
                        for turn in 0..500u32 {
                            let request = [caller.to_le_bytes(), turn.to_le_bytes()].concat();
                            let reply = match caller {
                                0 => client.call(&request, SOON),
                                1 => block_on(client.call_async(&request)),
                                _ => block_on(async {
                                    let ticket = client.send_async(&request).await?;
                                    client.recv_async(ticket).await
                                }),
                            };
                            assert_eq!(*reply.unwrap(), request);
                        }
                    })
                })
                .collect();
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            (0..2).for_each(|_| assert_eq!(kind(block_on(client.call_async(""))), Some(ErrorKind::Failed)));
        });
        all_free(&segment);
    }

    #[test]
    fn futures_are_send() {
        fn moves<T: Send>(future: T) -> T {
            future
        }
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        thread::scope(|scope| {
            let serve = moves(async { server.recv_async().await.unwrap().reply("-1").unwrap() });
            scope.spawn(|| block_on(serve));
            let call = moves(client.call_async("7"));
            assert_eq!(*scope.spawn(|| block_on(call)).join().unwrap().unwrap(), *b"-1");
            let sent = moves(client.send_async("8"));
            let ticket = block_on(sent).unwrap();
            scope.spawn(|| server.recv(SOON).unwrap().reply("-2").unwrap());
            assert_eq!(*block_on(moves(client.recv_async(ticket))).unwrap(), *b"-2");
        });
    }

    #[test]
    fn dropped_future_cancels_its_call_in_any_state() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        drop(client.call_async("never polled"));
        assert_eq!(segment.stats().requests, 0);
        // In the ring.
        {
            let mut call = pin!(client.call_async("a"));
            assert!(poll_once(call.as_mut()).is_pending() && client.pending() == 1);
        }
        assert!(client.pending() == 0 && server.try_recv().unwrap().is_none());
        // Taken by a server.
        let request = {
            let mut call = pin!(client.call_async("b"));
            assert!(poll_once(call.as_mut()).is_pending());
            let request = server.recv(SOON).unwrap();
            assert!(request.is_wanted() && poll_once(call.as_mut()).is_pending());
            request
        };
        assert!(!request.is_wanted() && !request.reply("too late").unwrap());
        // Answered.
        {
            let mut call = pin!(client.call_async("c"));
            assert!(poll_once(call.as_mut()).is_pending());
            assert!(server.recv(SOON).unwrap().reply("d").unwrap());
        }
        all_free(&segment);
        // A ticket outlives its future.
        let ticket = block_on(client.send_async("e")).unwrap();
        assert!(poll_once(pin!(client.recv_async(ticket))).is_pending());
        server.recv(SOON).unwrap().reply("f").unwrap();
        assert_eq!(&*block_on(client.recv_async(ticket)).unwrap(), b"f");
        assert_eq!(kind(block_on(client.recv_async(ticket))), Some(ErrorKind::Stale));
        all_free(&segment);
    }

    #[test]
    fn dropped_future_loses_no_request_and_no_slot() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let ticket = {
            let mut given_up = pin!(server.recv_async());
            assert!(poll_once(given_up.as_mut()).is_pending());
            client.try_send("a").unwrap().expect("there is a slot")
        };
        block_on(server.recv_async()).unwrap().reply("b").unwrap();
        assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"b");
        // A future that waits for a slot is dropped.
        let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
        {
            let mut given_up = pin!(client.send_async("c"));
            assert!(poll_once(given_up.as_mut()).is_pending());
            assert!(client.cancel(tickets[0]).unwrap().is_none());
        }
        block_on(client.send_async("d")).unwrap();
        let mut waiting: Vec<u8> = server.drain(9).unwrap().iter().map(|request| request[0]).collect();
        waiting.sort_unstable();
        assert_eq!(waiting, b"bd");
    }

    #[test]
    fn futures_return_the_errors_of_the_blocking_calls() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let short = segment.client_with(&ClientOptions::new().max_message(4999)).unwrap();
        assert_eq!(kind(block_on(short.call_async(&[0; 5000]))), Some(ErrorKind::TooLong));
        assert_eq!(kind(block_on(client.recv_async(Ticket::from_bits(0)))), Some(ErrorKind::Stale));
        let needy = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
        thread::scope(|scope| {
            let needy = &needy;
            let call = scope.spawn(move || kind(block_on(needy.call_async("a"))));
            // The second call ends at the end of a slice of the first wait.
            server.recv(SOON).unwrap().fail("");
            assert_eq!(call.join().unwrap(), Some(ErrorKind::Failed));
            let ticket = needy.try_send("b").unwrap().expect("there is a slot");
            let call = scope.spawn(move || kind(block_on(needy.recv_async(ticket))));
            drop(server);
            assert_eq!(call.join().unwrap(), Some(ErrorKind::NoServer));
        });
        assert_eq!(kind(block_on(needy.call_async("c"))), Some(ErrorKind::NoServer));
        all_free(&segment);
    }

    #[test]
    fn flush_async_ends_when_client_has_taken_part_or_has_gone() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        for is_wanted in [true, false] {
            let mut stream = Some(client.stream("a", SOON).unwrap());
            let mut request = server.recv(SOON).unwrap();
            assert_eq!(block_on(request.flush_async()), Ok(true));
            assert_eq!(block_on(request.part_async("part")), Ok(true));
            {
                let mut flushing = pin!(request.flush_async());
                assert!(poll_once(flushing.as_mut()).is_pending());
                thread::scope(|scope| {
                    let flushed = scope.spawn(|| block_on(flushing));
                    match stream.as_mut().filter(|_| is_wanted) {
                        Some(stream) => assert_eq!(*stream.next_part(SOON).unwrap().unwrap(), *b"part"),
                        None => drop(stream.take()),
                    }
                    assert_eq!(flushed.join().unwrap(), Ok(is_wanted));
                });
            }
            request.fail("no");
            if let Some(mut stream) = stream {
                let error = stream.next_part(SOON).expect_err("the request has failed");
                assert_eq!(&**error.reason().expect("it came after the part"), b"no");
            }
        }
        all_free(&segment);
    }

    #[test]
    fn poll_that_only_looks_starts_no_thread() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let looks = |future: Pin<&mut dyn Future<Output = Answer>>| {
            future.poll(&mut Context::from_waker(only_looks()))
        };
        let mut call = pin!(client.call_async("a"));
        assert!(looks(call.as_mut()).is_pending() && client.pending() == 1);
        assert!(client.inner.replies.asked_for().is_none());
        server.recv(SOON).unwrap().reply("b").unwrap();
        assert!(matches!(looks(call.as_mut()), Poll::Ready(Ok(reply)) if *reply == *b"b"));
        assert!(client.inner.replies.asked_for().is_none());
        // Polled with another one, the call is watched.
        let mut call = pin!(client.call_async("c"));
        assert!(looks(call.as_mut()).is_pending());
        thread::scope(|scope| {
            let called = scope.spawn(|| block_on(call));
            let began = std::time::Instant::now();
            while client.inner.replies.asked_for().is_none() {
                assert!(began.elapsed() < SOON);
                thread::yield_now();
            }
            server.recv(SOON).unwrap().reply("d").unwrap();
            assert_eq!(*called.join().unwrap().unwrap(), *b"d");
        });
        // A waker of others is registered, even if it does nothing.
        let other = segment.client().unwrap();
        assert!(poll_once(pin!(other.call_async("e"))).is_pending());
        assert!(other.inner.replies.asked_for().is_some());
    }

    /// One task waits for two calls with one waker, and two tasks for one call.
    #[test]
    fn all_tasks_that_wait_for_ended_calls_are_woken() {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let [first, second] = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
        thread::scope(|scope| {
            let both = scope.spawn(|| {
                let (mut one, mut other) = (pin!(client.recv_async(first)), pin!(client.recv_async(second)));
                let mut ends = Vec::new();
                block_on(poll_fn(|cx| {
                    if !ends.contains(&b'x')
                        && let Poll::Ready(reply) = one.as_mut().poll(cx)
                    {
                        ends.push(reply.unwrap()[0]);
                    }
                    if !ends.contains(&b'y')
                        && let Poll::Ready(reply) = other.as_mut().poll(cx)
                    {
                        ends.push(reply.unwrap()[0]);
                    }
                    if ends.len() == 2 { Poll::Ready(()) } else { Poll::Pending }
                }));
            });
            let [one, other] = [server.recv(SOON).unwrap(), server.recv(SOON).unwrap()];
            other.reply("y").unwrap();
            thread::sleep(Duration::from_millis(2));
            one.reply("x").unwrap();
            both.join().unwrap();
            let ticket = client.try_send("c").unwrap().expect("there is a slot");
            let twice =
                [&client; 2].map(|client| scope.spawn(move || kind(block_on(client.recv_async(ticket)))));
            thread::sleep(Duration::from_millis(2));
            server.recv(SOON).unwrap().reply("d").unwrap();
            let mut ends = twice.map(|end| end.join().unwrap());
            ends.sort_by_key(Option::is_some);
            assert_eq!(ends, [None, Some(ErrorKind::Stale)]);
        });
    }

    /// The thread that wakes the task drops the last handle, whose drop would wait for that very
    /// thread.
    #[test]
    fn waker_may_drop_the_handle_that_wakes_it() {
        type Task = Pin<Box<dyn Future<Output = Answer> + Send>>;
        struct Owner(std::sync::Mutex<Option<Task>>);
        impl Wake for Owner {
            fn wake(self: Arc<Self>) {
                let task = self.0.lock().expect("no panic while it was locked").take();
                drop(task);
            }
        }
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let task: Task = Box::pin(async move { client.call_async("a").await });
        let owner = Arc::new(Owner(Some(task).into()));
        let polled = owner.0.lock().unwrap().as_mut().map(|task| {
            task.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&owner)))).is_pending()
        });
        assert_eq!(polled, Some(true));
        server.recv(SOON).unwrap().reply("b").unwrap();
        let began = std::time::Instant::now();
        while segment.members().unwrap().len() > 1 {
            assert!(began.elapsed() < SOON);
            thread::yield_now();
        }
        all_free(&segment);
    }
}
