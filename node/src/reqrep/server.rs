//! The answering end.

use std::rc::Rc;
use std::sync::Arc;

use napi::Env;
use napi_derive::napi;
use pipework::reqrep::{self, ServerOptions as Options};
use pipework::{ErrorKind, defaults};

use super::calls::{Calls, Table};
use super::segment::{Segment, refused};
use crate::error::{Failure, OrThrow};
use crate::value::{Value, milliseconds};

#[napi(object, object_to_js = false)]
pub struct ServerOptions {
    pub max_message: Option<f64>,
    pub part_timeout: Option<f64>,
}

impl ServerOptions {
    fn options(&self) -> Options {
        let mut options = Options::new();
        if let Some(bytes) = self.max_message {
            options = options.max_message(bytes as usize);
        }
        if let Some(time) = self.part_timeout {
            options = options.part_timeout(milliseconds(time));
        }
        options
    }
}

#[napi]
pub struct Server {
    table: Rc<Table>,
    /// Under which the table has it until it is closed.
    number: u32,
}

#[napi]
impl Server {
    #[napi(constructor)]
    pub fn new(env: Env, calls: &Calls, segment: &Segment, options: ServerOptions) -> napi::Result<Server> {
        let server = segment
            .get(&env)?
            .server_with(&options.options())
            .map_err(|error| refused(error).thrown(&env))?;
        let longest = options.max_message.map_or(defaults::MAX_MESSAGE, |bytes| bytes as usize);
        let max_message = longest.max(server.segment().geometry().reply_bytes as usize);
        let table = calls.table();
        Ok(Server { number: table.add_server(server, max_message), table })
    }

    /// For the function `take`.
    #[napi(getter)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A request that waits: its number, flags and redeliveries; undefined if none does.
    #[napi]
    pub fn try_recv(&self, env: Env) -> napi::Result<Value> {
        let (server, max_message) = self.get(&env)?;
        let request = server.try_recv().or_throw(&env)?.map(reqrep::Request::into_owned);
        Ok(request.map_or(Value::Undefined, |request| self.table.keep(request, max_message)))
    }

    /// A task: waits for a request. Its result is as that of `tryRecv`; undefined if the server was
    /// stopped.
    #[napi]
    pub fn recv(&self, env: Env) -> napi::Result<Value> {
        let ((server, max_message), table) = (self.get(&env)?, Rc::clone(&self.table));
        Ok(self.table.tasks.start(async move {
            match server.recv_async().await {
                Ok(request) => table.keep(request.into_owned(), max_message),
                Err(error) if error.kind() == ErrorKind::Closed => Value::Undefined,
                Err(error) => Value::failed(error),
            }
        }))
    }

    #[napi]
    pub fn stop(&self) {
        if let Some((server, _)) = self.table.server(self.number) {
            server.stop();
        }
    }

    #[napi]
    pub fn close(&self) {
        drop(self.table.remove_server(self.number));
    }
}

impl Server {
    fn get(&self, env: &Env) -> napi::Result<(Arc<reqrep::Server>, usize)> {
        let server = self.table.server(self.number);
        server.ok_or_else(|| Failure::invalid("reqrep server", "this server is closed").thrown(env))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}
