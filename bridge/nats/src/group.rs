//! This program's subscription in a queue group, which does not outlive its connection.
//!
//! A subscription ends without losing a message only if the server and async-nats end it with the
//! same one, so both must have counted the same messages. The server counts from the last connect
//! on, and async-nats over all connections. So a subscription that has received anything lapses
//! when its connection ends, before async-nats makes another connection and renews it there. One
//! that has received nothing may stay: both counts are 0, and its command may still be in a queue.

use async_nats::{Client, Message, SubscribeError, Subscriber};
use futures_util::{FutureExt, StreamExt};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::task::unconstrained;
use tokio::time::sleep;

/// How soon to try again when the queue of commands to the connection is full.
const AGAIN: Duration = Duration::from_millis(10);

/// One subscription at a time, and what has come by it.
#[derive(Clone, Default)]
pub(crate) struct Group(Arc<Mutex<Member>>);

#[derive(Default)]
struct Member {
    /// `None` when it has ended, or has lapsed.
    subscriber: Option<Subscriber>,
    /// Messages that the subscription has received, those in `left` included.
    count: u64,
    /// Messages of a lapsed subscription that were not taken yet.
    left: VecDeque<Message>,
    /// Of the task that waits for the next message.
    waits: Option<Waker>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("count", &self.lock().count).finish_non_exhaustive()
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Member> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes, in the place of the subscription before.
    pub(crate) async fn subscribe(
        &self,
        nats: &Client,
        subject: &str,
        queue: &str,
    ) -> Result<(), SubscribeError> {
        let subscriber = nats.queue_subscribe(subject.to_owned(), queue.to_owned()).await?;
        let member = &mut *self.lock();
        (member.subscriber, member.count) = (Some(subscriber), 0);
        Ok(())
    }

    /// The next message; `None` at the end of the subscription, however it came.
    pub(crate) async fn next(&self) -> Option<Message> {
        poll_fn(|cx| {
            let member = &mut *self.lock();
            if let Some(message) = member.left.pop_front() {
                return Poll::Ready(Some(message));
            }
            let Some(subscriber) = &mut member.subscriber else { return Poll::Ready(None) };
            let next = subscriber.poll_next_unpin(cx);
            match &next {
                Poll::Ready(Some(_)) => member.count += 1,
                Poll::Ready(None) => member.subscriber = None,
                Poll::Pending => member.waits = Some(cx.waker().clone()),
            }
            next
        })
        .await
    }

    /// Announces that the subscription ends after `more` messages; false if it is over already.
    pub(crate) async fn end_after(&self, more: u64) -> bool {
        loop {
            {
                let member = &mut *self.lock();
                let Some(subscriber) = &mut member.subscriber else { return false };
                let announced = unconstrained(subscriber.unsubscribe_after(member.count + more));
                if let Some(announced) = announced.now_or_never() {
                    return announced.is_ok();
                }
            }
            sleep(AGAIN).await;
        }
    }

    /// Ends the subscription at once. The messages that had come can still be taken, those on their
    /// way are lost.
    pub(crate) fn leave(&self) {
        let member = &mut *self.lock();
        member.take_all();
        member.subscriber = None;
    }

    /// The connection has ended, and there is no other one yet.
    pub(crate) fn lapse(&self) {
        let member = &mut *self.lock();
        member.take_all();
        if member.count > 0 {
            member.subscriber = None;
        }
        // A subscription that stays must be polled again: it has forgotten this waker.
        if let Some(waker) = member.waits.take() {
            waker.wake();
        }
    }
}

impl Member {
    fn take_all(&mut self) {
        let Some(subscriber) = &mut self.subscriber else { return };
        while let Some(Some(message)) = unconstrained(subscriber.next()).now_or_never() {
            self.left.push_back(message);
            self.count += 1;
        }
    }
}
