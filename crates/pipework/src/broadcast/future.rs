//! Waiting in a task: it registers a waker where a thread would park.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::waiting::{Registration, WatcherState};
use crate::error::{Error, Result};

/// Waits in a task until `look` finds something. `watch` returns the watcher that wakes the task.
pub(super) async fn until<T, E: From<Error>>(
    watch: impl Fn() -> Result<Arc<WatcherState>>,
    mut look: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<T, E> {
    let mut kept = None;
    poll_fn(|cx| {
        if let Some(found) = look()? {
            return Poll::Ready(Ok(found));
        }
        Registration::keep(&mut kept, None, cx.waker(), &watch)?;
        // Anything that came before the registration woke no one, so look again.
        look()?.map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
    })
    .await
}
