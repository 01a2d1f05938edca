//! One `subscribe` at a time has a durable name: the server would give the pieces of a message to
//! several of them, and each would wait for the others.
//!
//! The owner of the name answers to a subject of its own; a bridge that wants the name asks there
//! first. Two that start in the same moment may both get no answer. An owner that does not answer
//! is treated as dead.

use crate::channel::{Failure, at};
use async_nats::Client;
use async_nats::client::RequestErrorKind;
use futures_util::StreamExt;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(1);

/// Answers for as long as it lives.
#[derive(Debug)]
pub(crate) struct Alone(JoinHandle<()>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes the durable name of a stream.
pub(crate) async fn alone(nats: &Client, stream: &str, durable: &str) -> Result<Alone, Failure> {
    let inbox = nats.new_inbox();
    // A subject that every client with any permission may subscribe to.
    let prefix = inbox.rsplit_once('.').map_or("_INBOX", |(prefix, _)| prefix);
    let subject = format!("{prefix}.pipework.{stream}.{durable}");
    match timeout(PATIENCE, nats.request(subject.clone(), "".into())).await {
        Ok(Ok(_)) => {
            return Err(Failure(format!("{durable}: another subscribe receives by this durable name")));
        }
        Ok(Err(error)) if error.kind() != RequestErrorKind::NoResponders => {
            return Err(at(durable)(error));
        }
        Ok(Err(_)) | Err(_) => {}
    }
    let mut asked = nats.subscribe(subject).await.map_err(at(durable))?;
    let nats = nats.clone();
    Ok(Alone(tokio::task::spawn_local(async move {
        while let Some(message) = asked.next().await {
            if let Some(reply) = message.reply {
                let _ = nats.publish(reply, "".into()).await;
            }
        }
    })))
}
