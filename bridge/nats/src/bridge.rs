//! Shared by both directions of a bridge: the connection, the channel, and the limits.

use crate::channel::{self, Failure, at};
use crate::connection::{Connection, is_up};
use crate::figures::Figures;
use crate::group::Group;
use crate::mailboxes::Mailboxes;
use crate::message::{Call, Status, Step};
use crate::parts;
use crate::spin::Spin;
use async_nats::{Client, Subject};
use bytes::Bytes;
use pipework::reqrep::{Blob, Segment, Ticket};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

/// How often to look whether the connection is there.
const LOOK: Duration = Duration::from_millis(50);

/// True once the bridge is stopped.
pub type Stop = watch::Receiver<bool>;

/// Settings of a bridge.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The path of the channel.
    pub channel: PathBuf,
    /// The subject of its calls.
    pub subject: String,
    /// The queue group of the exposing processes.
    pub queue: String,
    /// Calls in progress at the same time, in each direction.
    pub concurrency: usize,
    /// Bytes of the longest request, reply or part, with its blobs.
    pub max_message: usize,
    /// How long a call that is sent out may take.
    pub timeout: Option<Duration>,
    /// How long the far side of a call may be silent.
    pub silence: Duration,
    /// How long a call waits for a local worker, if there is one, before it is sent out.
    pub overflow: Option<Duration>,
    /// Use a channel of another user.
    pub any_owner: bool,
    /// How long to poll for an event that is likely to come soon, before this thread sleeps.
    pub spin: Duration,
    /// Nothing else runs on this thread: while no call is in progress, an [`attach`](crate::attach())
    /// may sleep in the channel for up to a tenth of a second at a time.
    pub owns_thread: bool,
}

/// A channel and a connection.
#[derive(Debug)]
pub struct Bridge {
    pub(crate) settings: Settings,
    pub(crate) nats: Client,
    pub(crate) group: Group,
    pub(crate) segment: Segment,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) figures: Rc<Figures>,
    pub(crate) spin: Spin,
    /// The calls that this program has brought in, and whether it has taken them itself.
    pub(crate) brought_in: RefCell<HashMap<Ticket, bool>>,
}

impl Bridge {
    /// Opens the channel, or makes it.
    ///
    /// # Errors
    ///
    /// Why that cannot be.
    pub async fn open(
        settings: Settings,
        connection: Connection,
        figures: Rc<Figures>,
    ) -> Result<Rc<Bridge>, Failure> {
        let Connection { client: nats, group } = connection;
        let segment = channel::open(&settings.channel, settings.any_owner)?;
        let mailboxes = Mailboxes::open(&nats).await.map_err(at("the inbox"))?;
        let (spin, brought_in) = (Spin::new(settings.spin), RefCell::default());
        Ok(Rc::new(Bridge { settings, nats, group, segment, mailboxes, figures, spin, brought_in }))
    }

    /// Whether a server is at the other end of the connection.
    pub(crate) fn is_connected(&self) -> bool {
        is_up(&self.nats)
    }

    /// A permit for each call that may be in progress.
    pub(crate) fn permits(&self) -> Permits {
        let all = self.settings.concurrency;
        Permits { all, left: Arc::new(Semaphore::new(all)) }
    }

    /// Bytes of a piece that the server takes.
    pub(crate) fn piece_bytes(&self) -> usize {
        parts::piece_bytes(self.nats.max_payload())
    }

    /// Makes the blobs of a received message in the channel.
    ///
    /// # Errors
    ///
    /// The status and the reason for the other side.
    pub(crate) fn blobs(&self, received: Vec<Vec<u8>>) -> Result<Vec<Blob>, (Status, String)> {
        let (path, most) = (self.settings.channel.display(), self.segment.geometry().blobs);
        if received.len() > most as usize {
            let reason =
                format!("{path}: {} blobs, but the channel was made for {most} a message", received.len());
            return Err((Status::TooLong, reason));
        }
        let make = |bytes: Vec<u8>| {
            let mut draft = self.segment.blob(bytes.len())?;
            draft.copy_from_slice(&bytes);
            draft.freeze()
        };
        let made: Result<_, pipework::Error> = received.into_iter().map(make).collect();
        let folder = self.segment.blob_folder().display();
        made.map_err(|error| (Status::Failed, format!("{folder}: {error}")))
    }

    /// The reason of a message that is too long to be received.
    pub(crate) fn too_long(&self) -> String {
        format!(
            "longer, with its blobs, than the {} bytes of the bridge's --max-message",
            self.settings.max_message
        )
    }

    /// Publishes a request.
    pub(crate) async fn request(&self, call: &Call, reply: &Subject, payload: Bytes) -> Result<(), Unsent> {
        let subject = self.settings.subject.clone();
        let sent = self.nats.publish_with_reply_and_headers(subject, reply.clone(), call.headers(), payload);
        sent.await.map_err(|_| Unsent)
    }

    /// Says something to the other side of a call, and where to answer.
    pub(crate) async fn say(
        &self,
        to: &Subject,
        reply: Option<&Subject>,
        step: &Step,
        payload: Bytes,
    ) -> Result<(), Unsent> {
        let (nats, to) = (&self.nats, to.clone());
        match (step.headers(), reply.cloned()) {
            (None, None) => nats.publish(to, payload).await,
            (None, Some(reply)) => nats.publish_with_reply(to, reply, payload).await,
            (Some(headers), None) => nats.publish_with_headers(to, headers, payload).await,
            (Some(headers), Some(reply)) => {
                nats.publish_with_reply_and_headers(to, reply, headers, payload).await
            }
        }
        .map_err(|_| Unsent)
    }
}

/// The connection did not take a message: it is closed, or the subject is invalid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsent;

/// Bounds the calls in progress.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    all: usize,
    left: Arc<Semaphore>,
}

impl Permits {
    /// A permit, if one is left.
    pub(crate) fn try_one(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.left).try_acquire_owned().ok()
    }

    /// Waits for a permit.
    pub(crate) async fn one(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.left).acquire_owned().await.ok()
    }

    /// Waits until no call is in progress any more.
    pub(crate) async fn all_done(&self) {
        let all = u32::try_from(self.all).unwrap_or(u32::MAX);
        drop(self.left.acquire_many(all).await);
    }
}

/// Resolves when the bridge is stopped, or nothing is left that could stop it.
pub(crate) async fn stopped(stop: &mut Stop) {
    while !*stop.borrow_and_update() {
        if stop.changed().await.is_err() {
            return;
        }
    }
}

/// Resolves when the bridge is stopped and has no connection: nothing waits for one any more.
pub(crate) async fn cut_off(stop: &mut Stop, nats: &Client) {
    stopped(stop).await;
    while is_up(nats) {
        sleep(LOOK).await;
    }
}
