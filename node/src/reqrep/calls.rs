//! **Boundary**: the calls and the requests of one event loop, by their numbers.
//!
//! Four functions make up nearly all of what a busy program does. They are written against Node-API
//! itself: a class of napi-rs costs a microsecond for each method that is called. They do what is
//! short and cannot fail, and leave all else to the methods beside them. Small payloads go into a
//! buffer of JavaScript, and numbers into an array of it, so that no value is made.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;

use napi::bindgen_prelude::{JsObjectValue, Object, Unknown};
use napi::{Env, sys};
use napi_derive::napi;
use pipework::Deadline;
use pipework::reqrep::{self, Message, Ticket};

use super::message::{Blobs, Held, attached, listed, received};
use crate::error::Failure;
use crate::inbox::{Inbox, Numbered, Tasks};
use crate::slot::{Borrowed, Slot};
use crate::value::Value;

/// Numbers that stand for no length, and for a function that has left its work to a method.
const ELSEWHERE: u32 = u32::MAX;
/// Numbers of one record: in `look` a number, an offset and a length; in `take` flags, redeliveries
/// and the two halves of the ticket as well.
const RECORD: usize = 7;

/// Numbers at the end of the array, behind the records.
const COUNTS: usize = 2;

/// The methods that the functions leave work to.
#[napi]
pub struct Calls(Rc<Table>);

pub(super) struct Table {
    pub(super) tasks: Tasks,
    clients: RefCell<Numbered<reqrep::Client>>,
    servers: RefCell<Numbered<(Arc<reqrep::Server>, usize)>>,
    requests: RefCell<Numbered<Request>>,
    /// Calls that no thread watches yet: `look` looks at each of them.
    fresh: RefCell<Vec<Fresh>>,
}

struct Fresh {
    number: u32,
    call: Unheard,
}

/// A call in progress: cancelled when it is dropped.
pub(super) struct Unheard {
    client: reqrep::Client,
    ticket: Ticket,
    is_over: bool,
}

impl Unheard {
    pub(super) fn new(client: reqrep::Client, ticket: Ticket) -> Unheard {
        Unheard { client, ticket, is_over: false }
    }

    /// Waits for its reply.
    pub(super) async fn finish(mut self, whole: bool) -> Value {
        let answer = self.client.recv_async(self.ticket).await;
        self.is_over = true;
        answered(answer, whole)
    }

    /// Its reply, if it has come.
    fn look(&mut self) -> Option<Value> {
        match self.client.try_recv(self.ticket).transpose() {
            Some(answer) => {
                self.is_over = true;
                Some(answered(answer, false))
            }
            None => None,
        }
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if !self.is_over {
            // No caller is left for the reply.
            let _ = self.client.cancel(self.ticket);
        }
    }
}

/// The result of a call.
pub(super) fn answered(answer: Result<reqrep::Reply, reqrep::CallError>, whole: bool) -> Value {
    answer.map_or_else(|error| Value::failed(Failure::from(error).of(CALL)), |reply| received(reply, whole))
}

/// A request in the hands of the program.
struct Request {
    request: Slot<reqrep::Request<'static>>,
    /// Its bytes, if they were not given out with it.
    data: Vec<u8>,
    blobs: Vec<reqrep::Blob>,
    max_message: usize,
}

const OPTION: &str = "the server's maxMessage";

#[napi]
impl Calls {
    #[napi(constructor)]
    pub fn new(inbox: &Inbox) -> Calls {
        Calls(Rc::new(Table {
            tasks: inbox.tasks(),
            clients: RefCell::default(),
            servers: RefCell::default(),
            requests: RefCell::default(),
            fresh: RefCell::default(),
        }))
    }

    /// The four functions: `call`, `look`, `take` and `reply`.
    #[napi]
    pub fn functions(&self, env: Env) -> napi::Result<Object<'_>> {
        let mut functions = Object::new(&env)?;
        let named: [(&str, sys::napi_callback); 4] =
            [("call", Some(call)), ("look", Some(look)), ("take", Some(take)), ("reply", Some(reply))];
        for (name, function) in named {
            functions.set_named_property(name, self.function(&env, function)?)?;
        }
        Ok(functions)
    }

    fn function<'env>(&self, env: &'env Env, function: sys::napi_callback) -> napi::Result<Unknown<'env>> {
        let (mut value, table) = (null_mut(), Rc::into_raw(Rc::clone(&self.0)).cast_mut().cast());
        // SAFETY: the table is there until the function is, and `drop_table` gives this share of it
        // back.
        let status = unsafe {
            let status = sys::napi_create_function(env.raw(), null_mut(), 0, function, table, &mut value);
            match status {
                sys::Status::napi_ok => {
                    sys::napi_add_finalizer(env.raw(), value, table, Some(drop_table), null_mut(), null_mut())
                }
                _ => status,
            }
        };
        if status != sys::Status::napi_ok {
            return Err(napi::Error::from_status(status.into()));
        }
        // SAFETY: it was made a moment ago.
        Ok(unsafe { Unknown::from_raw_unchecked(env.raw(), value) })
    }

    /// Cancels a call that no thread watches yet. Returns whether there was one.
    #[napi]
    pub fn give_up(&self, number: u32) -> bool {
        let mut fresh = self.0.fresh.borrow_mut();
        match fresh.iter().position(|fresh| fresh.number == number) {
            Some(idx) => {
                fresh.remove(idx);
                true
            }
            None => false,
        }
    }

    /// Has a thread watch the calls that none watches yet. Those that have ended are for `take` of
    /// the inbox.
    #[napi]
    pub fn park(&self) {
        for Fresh { number, call } in self.0.fresh.take() {
            if let Some(value) = self.0.tasks.start_as(number, call.finish(false)) {
                self.0.tasks.leave(number, value);
            }
        }
    }

    /// The bytes of a request, once.
    #[napi]
    pub fn data(&self, number: u32) -> Value {
        let data =
            self.0.requests.borrow_mut().get_mut(&number).map(|request| std::mem::take(&mut request.data));
        Value::bytes_or_undefined(data)
    }

    #[napi]
    pub fn blobs(&self, number: u32) -> Value {
        self.0.requests.borrow().get(&number).map_or(Value::Undefined, |request| listed(&request.blobs))
    }

    /// Whether the client waits for the answer.
    #[napi]
    pub fn is_wanted(&self, number: u32) -> bool {
        let requests = self.0.requests.borrow();
        let request = requests.get(&number);
        // While a part is on its way, only its task knows.
        request.is_some_and(|request| request.request.look(reqrep::Request::is_wanted).unwrap_or(true))
    }

    /// A task: answers the request. Its result is whether the client still waited. If it is given
    /// up, the request fails.
    #[napi]
    pub fn reply(
        &self,
        env: Env,
        number: u32,
        data: &[u8],
        flags: u32,
        blobs: Blobs<'_>,
    ) -> napi::Result<Value> {
        let (mut request, max_message) = self.borrow(&env, number)?;
        let (len, blobs) = (data.len(), attached(&env, blobs)?);
        let sent = move |sent: pipework::Result<bool>| match sent {
            Ok(is_wanted) => Value::Truth(is_wanted),
            Err(error) => Value::failed(Failure::from(error).of_payload(len, OPTION, max_message)),
        };
        let message = Message::new(data).flags(flags).attach(&blobs);
        if let Some(at_once) = request.reply_at_once(&message).transpose() {
            // One that is too long is not answered, and may still be.
            if request.is_over() {
                drop(request.into_inner());
                self.forget(number);
            }
            return Ok(sent(at_once));
        }
        let (request, held) = (request.into_inner(), Held { data: data.into(), flags, blobs });
        self.forget(number);
        Ok(self.0.tasks.start(async move { sent(request.reply_async(held.message()).await) }))
    }

    /// A task: sends a part of the reply, once the client has taken the part before. Its result is
    /// whether the client still waited. If it is given up, the part was not sent.
    #[napi]
    pub fn send_part(
        &self,
        env: Env,
        number: u32,
        data: &[u8],
        flags: u32,
        blobs: Blobs<'_>,
    ) -> napi::Result<Value> {
        let (mut request, max_message) = self.borrow(&env, number)?;
        let held = Held { data: data.into(), flags, blobs: attached(&env, blobs)? };
        Ok(self.0.tasks.start(async move {
            match request.part_async(held.message()).await {
                Ok(is_wanted) => Value::Truth(is_wanted),
                Err(error) => {
                    Value::failed(Failure::from(error).of_payload(held.data.len(), OPTION, max_message))
                }
            }
        }))
    }

    /// A task: waits until the client has taken the part that was sent last. Its result is whether the
    /// client still waits.
    #[napi]
    pub fn flush(&self, env: Env, number: u32) -> napi::Result<Value> {
        let (mut request, _) = self.borrow(&env, number)?;
        let flushing = async move { request.flush_async().await.map_or_else(Value::failed, Value::Truth) };
        Ok(self.0.tasks.start(flushing))
    }

    /// Fails a request. Nothing happens if it is over. No task of it may be in progress.
    #[napi]
    pub fn fail(&self, number: u32, reason: &[u8]) {
        if let Some(request) = self.forget(number).and_then(|request| request.request.take()) {
            request.fail(reason);
        }
    }
}

/// The loop is ending: `worker.terminate()`, or the end of the process. For the clients that is the
/// death of a server. Tasks hold the table, and the table holds them.
impl Drop for Calls {
    fn drop(&mut self) {
        let Table { tasks, clients, servers, requests, fresh } = &*self.0;
        tasks.clear();
        for request in requests.take().into_values().filter_map(|request| request.request.take()) {
            request.report_death();
        }
        drop((fresh.take(), clients.take(), servers.take()));
    }
}

impl Calls {
    pub(super) fn table(&self) -> Rc<Table> {
        Rc::clone(&self.0)
    }

    fn forget(&self, number: u32) -> Option<Request> {
        self.0.requests.borrow_mut().remove(&number)
    }

    fn borrow(&self, env: &Env, number: u32) -> napi::Result<(Borrowed<reqrep::Request<'static>>, usize)> {
        let requests = self.0.requests.borrow();
        let request = requests.get(&number).ok_or("this request is answered already");
        let borrowed = request.and_then(|request| {
            let borrowed = request.request.borrow().ok_or("the part before was not awaited")?;
            Ok((borrowed, request.max_message))
        });
        borrowed.map_err(|text| Failure::invalid("reqrep reply", text).thrown(env))
    }
}

const CALL: &str = "reqrep call";

/// A deadline for those that must not wait.
pub(super) const PAST: Deadline = Deadline::at_ns(0);

impl Table {
    pub(super) fn add_client(&self, client: reqrep::Client) -> u32 {
        let number = self.tasks.number_in(&self.clients);
        self.clients.borrow_mut().insert(number, client);
        number
    }

    pub(super) fn remove_client(&self, number: u32) -> Option<reqrep::Client> {
        self.clients.borrow_mut().remove(&number)
    }

    pub(super) fn client(&self, number: u32) -> Option<reqrep::Client> {
        self.clients.borrow().get(&number).cloned()
    }

    pub(super) fn add_server(&self, server: reqrep::Server, max_message: usize) -> u32 {
        let number = self.tasks.number_in(&self.servers);
        self.servers.borrow_mut().insert(number, (Arc::new(server), max_message));
        number
    }

    pub(super) fn remove_server(&self, number: u32) -> Option<Arc<reqrep::Server>> {
        self.servers.borrow_mut().remove(&number).map(|(server, _)| server)
    }

    pub(super) fn server(&self, number: u32) -> Option<(Arc<reqrep::Server>, usize)> {
        self.servers.borrow().get(&number).map(|(server, most)| (Arc::clone(server), *most))
    }

    /// Keeps a request: its number, flags, redeliveries and ticket.
    pub(super) fn keep(&self, mut request: reqrep::Request<'static>, max_message: usize) -> Value {
        let (data, ticket) = (request.take_payload(), Value::Ticket(request.ticket().to_bits()));
        let [number, flags, redeliveries] = self.kept(request, data, max_message).map(Value::Number);
        Value::List(vec![number, flags, redeliveries, ticket])
    }

    fn kept(&self, request: reqrep::Request<'static>, data: Vec<u8>, max_message: usize) -> [u32; 3] {
        let number = self.tasks.number_in(&self.requests);
        let (flags, redeliveries) = (request.flags(), request.redeliveries().into());
        let blobs = request.blobs().to_vec();
        let request = Request { request: Slot::new(request), data, blobs, max_message };
        self.requests.borrow_mut().insert(number, request);
        [number, flags, redeliveries]
    }

    /// Results of calls and tasks: a record for each small one; the others are left for `take` of
    /// the inbox.
    fn look(&self, out: &mut Out<'_>) {
        // Those that have ended are dropped at the end of the scan.
        self.fresh.borrow_mut().retain_mut(|fresh| match fresh.call.look() {
            Some(value) => {
                self.give(out, fresh.number, value);
                false
            }
            None => true,
        });
        self.tasks.poll_woken(|number, value| self.give(out, number, value));
    }

    fn give(&self, out: &mut Out<'_>, number: u32, value: Value) {
        if let Value::Bytes(bytes) = &value
            && let Some(offset) = out.put(bytes)
        {
            out.record(&[number, offset, bytes.len() as u32]);
            return;
        }
        self.tasks.leave(number, value);
    }

    /// Takes requests that wait, as many as have space.
    fn take(
        &self,
        server: &reqrep::Server,
        max_message: usize,
        most: usize,
        out: &mut Out<'_>,
    ) -> pipework::Result<()> {
        while out.count < most && out.has_space() {
            let Some(request) = server.try_recv()? else { break };
            let mut request = request.into_owned();
            let (offset, len) = match out.put(request.payload()) {
                Some(offset) => (offset, request.payload().len() as u32),
                None => (0, ELSEWHERE),
            };
            let data = if len == ELSEWHERE { request.take_payload() } else { Vec::new() };
            if len != ELSEWHERE {
                request.drop_payload();
            }
            let (has_blobs, ticket) = (!request.blobs().is_empty(), request.ticket().to_bits());
            let [number, flags, redeliveries] = self.kept(request, data, max_message);
            let (high, low) = ((ticket >> 32) as u32, ticket as u32);
            out.record(&[number, offset, len, flags, redeliveries << 1 | u32::from(has_blobs), high, low]);
        }
        Ok(())
    }
}

/// The space that JavaScript lends for results.
struct Out<'a> {
    bytes: &'a mut [u8],
    /// How many of them are in use.
    used: usize,
    numbers: &'a mut [u32],
    count: usize,
}

impl Out<'_> {
    fn has_space(&self) -> bool {
        (self.count + 1) * RECORD + COUNTS <= self.numbers.len()
    }

    /// Copies small bytes; `None` if there is no space for them and their record.
    fn put(&mut self, bytes: &[u8]) -> Option<u32> {
        if !self.has_space() {
            return None;
        }
        let space = self.bytes.get_mut(self.used..self.used + bytes.len())?;
        space.copy_from_slice(bytes);
        let offset = self.used;
        // Views of larger numbers can lie there.
        self.used = (self.used + bytes.len()).next_multiple_of(8);
        Some(offset as u32)
    }

    fn record(&mut self, fields: &[u32]) {
        let start = self.count * RECORD;
        self.numbers[start..start + fields.len()].copy_from_slice(fields);
        self.count += 1;
    }
}

/// The arguments of a function.
struct Arguments<const N: usize> {
    env: sys::napi_env,
    values: [sys::napi_value; N],
    table: *const Table,
}

impl<const N: usize> Arguments<N> {
    /// # Safety
    ///
    /// Both are those of a call of a function that `Calls::function` has made.
    unsafe fn new(env: sys::napi_env, info: sys::napi_callback_info) -> Option<Arguments<N>> {
        let (mut count, mut values, mut table) = (N, [null_mut(); N], null_mut());
        // SAFETY: the lengths are those of the array.
        let status = unsafe {
            sys::napi_get_cb_info(env, info, &mut count, values.as_mut_ptr(), null_mut(), &mut table)
        };
        let is_whole = status == sys::Status::napi_ok && count == N && !table.is_null();
        is_whole.then_some(Arguments { env, values, table: table.cast() })
    }

    fn table(&self) -> &Table {
        // SAFETY: the function that is called has a share of it.
        unsafe { &*self.table }
    }

    fn number(&self, at: usize) -> Option<u32> {
        let mut number = 0;
        // SAFETY: it is a value of the call under way.
        let status = unsafe { sys::napi_get_value_uint32(self.env, self.values[at], &mut number) };
        (status == sys::Status::napi_ok).then_some(number)
    }

    /// The memory of a typed array, with its length in elements. Not shared memory, which another
    /// thread may change.
    fn array(&self, at: usize, kind: sys::napi_typedarray_type) -> Option<(*mut c_void, usize)> {
        let (mut found, mut len, mut memory) = (0, 0, null_mut());
        let (mut buffer, mut is_own) = (null_mut(), false);
        // SAFETY: they are values of the call under way.
        let is_one = unsafe {
            sys::napi_get_typedarray_info(
                self.env,
                self.values[at],
                &mut found,
                &mut len,
                &mut memory,
                &mut buffer,
                null_mut(),
            ) == sys::Status::napi_ok
                && sys::napi_is_arraybuffer(self.env, buffer, &mut is_own) == sys::Status::napi_ok
        };
        (is_one && is_own && found == kind).then_some((
            if len == 0 { std::ptr::NonNull::<u64>::dangling().as_ptr().cast() } else { memory },
            len,
        ))
    }

    /// The bytes of a `Uint8Array`, which no code changes during the call.
    fn bytes(&self, at: usize) -> Option<&[u8]> {
        let (memory, len) = self.array(at, sys::TypedarrayType::uint8_array)?;
        // SAFETY: the array is alive and not detached during the call, which runs no JavaScript.
        Some(unsafe { std::slice::from_raw_parts(memory.cast(), len) })
    }

    /// Space for results: bytes, an offset into them, and numbers.
    fn out(&self, at: usize) -> Option<Out<'_>> {
        let (bytes, len) = self.array(at, sys::TypedarrayType::uint8_array)?;
        let (numbers, count) = self.array(at + 2, sys::TypedarrayType::uint32_array)?;
        let used = self.number(at + 1)? as usize;
        // SAFETY: as `bytes`. `lib/loop.js` lends the two arrays to no one else, and they do not overlap.
        let (bytes, numbers) = unsafe {
            (
                std::slice::from_raw_parts_mut(bytes.cast(), len),
                std::slice::from_raw_parts_mut(numbers.cast(), count),
            )
        };
        Some(Out { bytes, used, numbers, count: 0 })
    }

    fn given(&self, number: u32) -> sys::napi_value {
        let mut value = null_mut();
        // SAFETY: it is the environment of the call under way.
        unsafe { sys::napi_create_uint32(self.env, number, &mut value) };
        value
    }
}

/// `call(client, data, flags)`: starts a call whose reply is bytes. Its number; 0 if the method is to
/// do it, because no slot is free, or it fails.
// SAFETY: only Node calls it, with a call under way.
unsafe extern "C" fn call(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: Node calls the function.
    let Some(arguments) = (unsafe { Arguments::<3>::new(env, info) }) else { return null_mut() };
    let start = || {
        let (table, number, data) = (arguments.table(), arguments.number(0)?, arguments.bytes(1)?);
        let client = table.client(number)?;
        let message = Message::new(data).flags(arguments.number(2)?);
        let ticket = client.start_call(message, PAST).ok()?;
        let number = table.tasks.number();
        table.fresh.borrow_mut().push(Fresh { number, call: Unheard::new(client, ticket) });
        Some(number)
    };
    arguments.given(start().unwrap_or(0))
}

/// `look(bytes, offset, numbers)`: gives out results of calls and tasks. How many; the last of the
/// numbers is how many calls no thread watches, and the one before how many results `take` has.
// SAFETY: only Node calls it, with a call under way.
unsafe extern "C" fn look(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: Node calls the function.
    let Some(arguments) = (unsafe { Arguments::<3>::new(env, info) }) else { return null_mut() };
    let Some(mut out) = arguments.out(0) else { return null_mut() };
    let table = arguments.table();
    table.look(&mut out);
    let len = out.numbers.len();
    out.numbers[len - 1] = table.fresh.borrow().len() as u32;
    out.numbers[len - 2] = table.tasks.left() as u32;
    arguments.given(out.count as u32)
}

/// `take(server, most, bytes, offset, numbers)`: takes requests. How many; `ELSEWHERE` if the method
/// is to do it, because it fails.
// SAFETY: only Node calls it, with a call under way.
unsafe extern "C" fn take(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: Node calls the function.
    let Some(arguments) = (unsafe { Arguments::<5>::new(env, info) }) else { return null_mut() };
    let (Some(number), Some(most), Some(mut out)) =
        (arguments.number(0), arguments.number(1), arguments.out(2))
    else {
        return null_mut();
    };
    let table = arguments.table();
    let taken =
        table.server(number).map(|(server, longest)| table.take(&server, longest, most as usize, &mut out));
    let has_failed = !matches!(taken, Some(Ok(()))) && out.count == 0;
    arguments.given(if has_failed { ELSEWHERE } else { out.count as u32 })
}

/// `reply(request, data, flags)`: answers a request. 1 if the client still waited, and 0 if not;
/// `ELSEWHERE` if the method is to do it, because it must wait, or fails.
// SAFETY: only Node calls it, with a call under way.
unsafe extern "C" fn reply(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: Node calls the function.
    let Some(arguments) = (unsafe { Arguments::<3>::new(env, info) }) else { return null_mut() };
    let answer = || {
        let (table, number, data) = (arguments.table(), arguments.number(0)?, arguments.bytes(1)?);
        let message = Message::new(data).flags(arguments.number(2)?);
        let mut requests = table.requests.borrow_mut();
        let mut request = requests.get(&number)?.request.borrow()?;
        let is_wanted = request.reply_at_once(&message).ok()??;
        drop(request.into_inner());
        requests.remove(&number);
        Some(u32::from(is_wanted))
    };
    arguments.given(answer().unwrap_or(ELSEWHERE))
}

// SAFETY: only Node calls it, once, with the table of the function.
unsafe extern "C" fn drop_table(_env: sys::napi_env, table: *mut c_void, _hint: *mut c_void) {
    // SAFETY: `Calls::function` has given this share of it away, and this is called once.
    drop(unsafe { Rc::from_raw(table.cast_const().cast::<Table>()) });
}
