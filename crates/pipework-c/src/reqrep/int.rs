//! Calls whose payloads are single numbers, in a segment that was made with `integers`. The
//! functions for payloads of bytes are PWK_INCOMPATIBLE there, and these are elsewhere.

use std::time::Duration;

use pipework::reqrep::{Request, Ticket};

use super::client::pwk_client;
use super::server::{kept, pwk_request, pwk_server};
use crate::deadline::{at, pwk_deadline};
use crate::edge::{In, Out, Space, or_would_block, put, run};
use crate::error::{PWK_OK, pwk_error, pwk_status};

/// As pwk_client_call, with numbers.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_call_int(
    client: In<'_, pwk_client>,
    request: i64,
    deadline: pwk_deadline,
    reply: Out<'_, i64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_call_int", error, |name| {
        let client = name.given(client)?.of_integers(name)?;
        put(reply, client.call(request, at(deadline))?)
    })
}

/// As pwk_client_send, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send_int(
    client: In<'_, pwk_client>,
    request: i64,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send_int", error, |name| {
        let (client, ticket) = (name.given(client)?.of_integers(name)?, name.given(ticket)?);
        put(Some(ticket), client.send(request, at(deadline))?.to_bits())
    })
}

/// As pwk_client_try_send, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_send_int(
    client: In<'_, pwk_client>,
    request: i64,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_send_int", error, |name| {
        let (client, ticket) = (name.given(client)?.of_integers(name)?, name.given(ticket)?);
        or_would_block(client.try_send(request)?, |sent| put(Some(ticket), sent.to_bits()))
    })
}

/// As pwk_client_recv, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_int(
    client: In<'_, pwk_client>,
    ticket: u64,
    deadline: pwk_deadline,
    reply: Out<'_, i64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_int", error, |name| {
        let client = name.given(client)?.of_integers(name)?;
        put(reply, client.recv(Ticket::from_bits(ticket), at(deadline))?)
    })
}

/// As pwk_client_try_recv, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_recv_int(
    client: In<'_, pwk_client>,
    ticket: u64,
    reply: Out<'_, i64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_recv_int", error, |name| {
        let client = name.given(client)?.of_integers(name)?;
        or_would_block(client.try_recv(Ticket::from_bits(ticket))?, |value| put(reply, value))
    })
}

/// As pwk_client_recv_any, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_any_int(
    client: In<'_, pwk_client>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    reply: Out<'_, i64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_any_int", error, |name| {
        let (client, ticket) = (name.given(client)?.of_integers(name)?, name.given(ticket)?);
        ticket.write(0);
        let Some((ended, value)) = client.recv_any(at(deadline))? else { return Ok(PWK_OK) };
        ticket.write(ended.to_bits());
        put(reply, value?)
    })
}

/// As pwk_server_recv, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_recv_int(
    server: In<'_, pwk_server>,
    deadline: pwk_deadline,
    value: Out<'_, i64>,
    request: Out<'_, pwk_request>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_recv_int", error, |name| {
        let (server, place) = (name.given(server)?.of_integers(name)?, name.given(request)?);
        let (taken, request) = keep(server.recv(at(deadline))?);
        place.write(request);
        put(value, taken)
    })
}

/// As pwk_server_try_recv, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_try_recv_int(
    server: In<'_, pwk_server>,
    value: Out<'_, i64>,
    request: Out<'_, pwk_request>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_try_recv_int", error, |name| {
        let (server, place) = (name.given(server)?.of_integers(name)?, name.given(request)?);
        or_would_block(server.try_recv()?, |request| {
            let (taken, request) = keep(request);
            place.write(request);
            put(value, taken)
        })
    })
}

/// As pwk_server_recv_many, with numbers, for which `values` has space.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_recv_many_int(
    server: In<'_, pwk_server>,
    max: usize,
    deadline: pwk_deadline,
    linger_ns: u64,
    values: Space<'_, i64>,
    requests: Space<'_, pwk_request>,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_recv_many_int", error, |name| {
        let (server, count) = (name.given(server)?.of_integers(name)?, name.given(count)?);
        let (values, requests) = (values.array(max, name)?, requests.array(max, name)?);
        let taken = server.recv_many(max, at(deadline), Duration::from_nanos(linger_ns))?;
        put(Some(count), taken.len())?;
        for ((value, place), request) in values.iter_mut().zip(requests).zip(taken) {
            let (taken, request) = keep(request);
            value.write(taken);
            place.write(request);
        }
        Ok(PWK_OK)
    })
}

/// As pwk_server_reply, with a number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_reply_int(
    server: In<'_, pwk_server>,
    ticket: u64,
    reply: i64,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_reply_int", error, |name| {
        let server = name.given(server)?.of_integers(name)?;
        put(wanted, kept(server, ticket, name)?.reply(&reply.to_ne_bytes())?)
    })
}

// ---------------------------------------------------------------- on this side

/// A request that is left with its server, and its number.
fn keep(request: Request<'_>) -> (i64, pwk_request) {
    // A payload of another size was written by no client of ours; zero is as wrong an answer as
    // any.
    let value = request.payload().try_into().map_or(0, i64::from_ne_bytes);
    (value, super::server::keep(request, &mut Vec::new()))
}
