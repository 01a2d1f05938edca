//! Inboxes for calls: one subscription for all of them, and a mailbox for each call.

use async_nats::{Client, Message, Subject};
use futures_util::StreamExt;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Messages that a mailbox holds: as many as may come without an acknowledgement, and as many
/// again. A sender that sends more breaks the rules, and the mailbox drops the rest.
const CAPACITY: usize = 64;

/// All mailboxes of a program.
#[derive(Clone, Debug)]
pub(crate) struct Mailboxes(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The subject of a mailbox is this and its number.
    prefix: String,
    next: Cell<u64>,
    posts: RefCell<HashMap<u64, Rc<Post>>>,
}

/// The messages in a mailbox, and the task that waits for them. A channel would take memory for 32
/// messages for each call, most of which get one.
#[derive(Debug, Default)]
struct Post {
    messages: RefCell<VecDeque<Message>>,
    waits: RefCell<Option<Waker>>,
}

/// The messages to one side of one call. It is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) subject: Subject,
    post: Rc<Post>,
    number: u64,
    all: Mailboxes,
}

impl Mailboxes {
    /// Subscribes, and delivers from then on.
    pub(crate) async fn open(client: &Client) -> Result<Mailboxes, async_nats::SubscribeError> {
        let prefix = format!("{}.", client.new_inbox());
        let mut subscriber = client.subscribe(format!("{prefix}*")).await?;
        let inner = Inner { prefix, next: Cell::new(0), posts: RefCell::default() };
        let all = Mailboxes(Rc::new(inner));
        let office = all.clone();
        tokio::task::spawn_local(async move {
            while let Some(message) = subscriber.next().await {
                office.deliver(message);
            }
        });
        Ok(all)
    }

    /// A mailbox for one call.
    pub(crate) fn mailbox(&self) -> Mailbox {
        let number = self.0.next.replace(self.0.next.get() + 1);
        let post = Rc::new(Post::default());
        self.0.posts.borrow_mut().insert(number, Rc::clone(&post));
        Mailbox { subject: format!("{}{number}", self.0.prefix).into(), post, number, all: self.clone() }
    }

    fn deliver(&self, message: Message) {
        let number = message.subject.strip_prefix(&self.0.prefix).and_then(|text| text.parse().ok());
        let posts = self.0.posts.borrow();
        let Some(post) = number.and_then(|number: u64| posts.get(&number)) else { return };
        let mut messages = post.messages.borrow_mut();
        // A message that does not fit is a gap in the numbers, which ends the call.
        if messages.len() < CAPACITY {
            messages.push_back(message);
            if let Some(waker) = post.waits.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

impl Mailbox {
    /// The next message; it may be dropped while it waits, and nothing is lost.
    pub(crate) async fn recv(&self) -> Message {
        poll_fn(|cx| match self.post.messages.borrow_mut().pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                *self.post.waits.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.all.0.posts.borrow_mut().remove(&self.number);
    }
}
