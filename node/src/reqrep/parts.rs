//! The parts of a reply, as the caller receives them.

use napi::Env;
use napi_derive::napi;
use pipework::reqrep::Stream;

use super::message::received;
use crate::error::Failure;
use crate::inbox::Tasks;
use crate::slot::Slot;
use crate::value::Value;

#[napi]
pub struct Parts {
    stream: Slot<Stream>,
    tasks: Tasks,
}

#[napi]
impl Parts {
    /// A task: the next part; undefined after the last.
    #[napi]
    pub fn next(&self, env: Env, whole: bool) -> napi::Result<Value> {
        let busy = || Failure::invalid("reqrep stream", "the part before was not awaited").thrown(&env);
        let mut stream = self.stream.borrow().ok_or_else(busy)?;
        Ok(self.tasks.start(async move {
            match stream.next_part_async().await {
                Ok(Some(part)) => received(part, whole),
                Ok(None) => Value::Undefined,
                Err(error) => Value::failed(error),
            }
        }))
    }

    /// Cancels the call, if its last part has not come. No task of it may be in progress.
    #[napi]
    pub fn close(&self) {
        drop(self.stream.take());
    }
}

impl Parts {
    pub(super) fn new(stream: Stream, tasks: Tasks) -> Parts {
        Parts { stream: Slot::new(stream), tasks }
    }
}
