//! The calling end.

use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::{BigInt, ObjectFinalize};
use napi_derive::napi;
use pipework::ErrorKind;
use pipework::defaults::MAX_MESSAGE;
use pipework::reqrep::{self, ClientOptions as Options, Message, Ticket};

use super::calls::{Calls, PAST, Table, Unheard, answered};
use super::message::{Blobs, Held, attached, received};
use super::parts::Parts;
use super::segment::{Segment, refused};
use crate::error::{Failure, OrThrow};
use crate::value::Value;

#[napi(object, object_to_js = false)]
pub struct ClientOptions {
    pub redeliveries: Option<u32>,
    pub needs_server: Option<bool>,
    pub max_in_flight: Option<u32>,
    pub max_message: Option<f64>,
}

impl ClientOptions {
    fn options(&self) -> Options {
        let mut options = Options::new();
        if let Some(times) = self.redeliveries {
            options = options.redeliveries(times as u8);
        }
        if let Some(yes) = self.needs_server {
            options = options.needs_server(yes);
        }
        if let Some(calls) = self.max_in_flight {
            options = options.max_in_flight(calls);
        }
        if let Some(bytes) = self.max_message {
            options = options.max_message(bytes as usize);
        }
        options
    }
}

/// The bytes that the collector takes a client for. One that a program drops keeps its place in the
/// segment until it is collected. So it must be large enough that places do not run out before the
/// collector begins to work, which V8 does after some tens of mebibytes.
const WEIGHT: i64 = 1 << 20;

#[napi(custom_finalize)]
pub struct Client {
    table: Rc<Table>,
    /// Under which the table has it until it is closed.
    number: u32,
    max_message: usize,
}

#[napi]
impl Client {
    #[napi(constructor)]
    pub fn new(env: Env, calls: &Calls, segment: &Segment, options: ClientOptions) -> napi::Result<Client> {
        let client = segment
            .get(&env)?
            .client_with(&options.options())
            .map_err(|error| refused(error).thrown(&env))?;
        let longest = options.max_message.map_or(MAX_MESSAGE, |bytes| bytes as usize);
        let max_message = longest.max(client.segment().geometry().request_bytes as usize);
        let table = calls.table();
        env.adjust_external_memory(WEIGHT)?;
        Ok(Client { number: table.add_client(client), table, max_message })
    }

    /// For the function `call`.
    #[napi(getter)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A task: makes a call. Its result is the reply.
    #[napi]
    pub fn call(
        &self,
        env: Env,
        data: &[u8],
        flags: u32,
        blobs: Blobs<'_>,
        whole: bool,
    ) -> napi::Result<Value> {
        let (client, blobs) = (self.get(&env)?, attached(&env, blobs)?);
        // Without a copy, if a slot is free.
        match client.start_call(Message::new(data).flags(flags).attach(&blobs), PAST) {
            Ok(ticket) => Ok(self.table.tasks.start(Unheard::new(client, ticket).finish(whole))),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let held = Held { data: data.into(), flags, blobs };
                let answer = async move { answered(client.call_async(held.message()).await, whole) };
                Ok(self.table.tasks.start(answer))
            }
            Err(error) => Err(self.too_long(error, data.len()).thrown(&env)),
        }
    }

    /// A task: sends a request. Its result is the ticket.
    #[napi]
    pub fn send(&self, env: Env, data: &[u8], flags: u32, blobs: Blobs<'_>) -> napi::Result<Value> {
        let (client, held) =
            (self.get(&env)?, Held { data: data.into(), flags, blobs: attached(&env, blobs)? });
        let max_message = self.max_message;
        Ok(self.table.tasks.start(async move {
            match client.send_async(held.message()).await {
                Ok(ticket) => Value::Ticket(ticket.to_bits()),
                Err(error) => Value::failed(Failure::from(error).of_payload(
                    held.data.len(),
                    "the client's maxMessage",
                    max_message,
                )),
            }
        }))
    }

    /// A task: waits for the reply of a call. The ticket stays valid if it is given up.
    #[napi]
    pub fn recv(&self, env: Env, ticket: BigInt, whole: bool) -> napi::Result<Value> {
        let (client, ticket) = (self.get(&env)?, self.ticket(&ticket));
        Ok(self.table.tasks.start(async move {
            client.recv_async(ticket).await.map_or_else(Value::failed, |reply| received(reply, whole))
        }))
    }

    /// A task: sends a request whose reply is to come in parts. Its result gives the parts.
    #[napi]
    pub fn stream(&self, env: Env, data: &[u8], flags: u32, blobs: Blobs<'_>) -> napi::Result<Value> {
        let (client, held) =
            (self.get(&env)?, Held { data: data.into(), flags, blobs: attached(&env, blobs)? });
        let (tasks, max_message) = (self.table.tasks.clone(), self.max_message);
        Ok(self.table.tasks.start(async move {
            match client.stream_async(held.message()).await {
                Ok(stream) => Value::instance(Parts::new(stream, tasks)),
                Err(error) => Value::failed(Failure::from(error).of_payload(
                    held.data.len(),
                    "the client's maxMessage",
                    max_message,
                )),
            }
        }))
    }

    /// Cancels a call that was sent. False if it has ended: then its outcome can be received.
    #[napi]
    pub fn cancel(&self, env: Env, ticket: BigInt) -> napi::Result<bool> {
        self.get(&env)?.cancel_unless_done(self.ticket(&ticket)).or_throw(&env)
    }

    #[napi]
    pub fn forget(&self, env: Env, ticket: BigInt) -> napi::Result<()> {
        self.get(&env)?.forget(self.ticket(&ticket)).or_throw(&env)
    }

    #[napi(getter)]
    pub fn pending(&self, env: Env) -> napi::Result<u32> {
        Ok(self.get(&env)?.pending() as u32)
    }

    #[napi]
    pub fn close(&self, env: Env) -> napi::Result<()> {
        match self.table.remove_client(self.number) {
            Some(client) => {
                drop(client);
                env.adjust_external_memory(-WEIGHT).map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Client {
    fn get(&self, env: &Env) -> napi::Result<reqrep::Client> {
        let client = self.table.client(self.number);
        client.ok_or_else(|| Failure::invalid("reqrep client", "this client is closed").thrown(env))
    }

    fn ticket(&self, ticket: &BigInt) -> Ticket {
        Ticket::from_bits(ticket.get_u64().1)
    }

    fn too_long(&self, error: impl Into<Failure>, len: usize) -> Failure {
        error.into().of_payload(len, "the client's maxMessage", self.max_message)
    }
}

impl ObjectFinalize for Client {
    fn finalize(self, env: Env) -> napi::Result<()> {
        self.close(env)
    }
}
