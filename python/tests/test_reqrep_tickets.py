"""Calls by ticket: many at once, failed with a reason, forgotten, answered by number."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable

import pipework
import pytest
from pipework.reqrep import Segment, Server, Ticket
from processes import PART, all_free, ends, in_time, serving
from support import SOON, Alarm, after, in_child, signal_after


def test_reason_of_a_failure_reaches_the_caller(segment: Segment) -> None:
    client, server = ends(segment)
    reasons: list[str | bytes] = ["no such \N{SNOWMAN}", b"\xff\x00", "", "long" * 100, "\ud800"]

    def told(call: Callable[[], object], reason: str | bytes) -> None:
        thread = after(0, lambda: server.recv(timeout=SOON).fail(reason))
        with pytest.raises(pipework.RemoteError) as raised:
            call()
        thread.join()
        expected = reason.encode(errors="backslashreplace") if isinstance(reason, str) else reason
        assert raised.value.reason == expected[:PART]
        text = expected[:PART].decode(errors="backslashreplace") if expected else "the other side gave up"
        assert str(raised.value).endswith(text)
        assert isinstance(raised.value, pipework.Failed) and raised.value.kind is pipework.ErrorKind.FAILED
        copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
        assert (type(copy), str(copy), copy.reason) == (pipework.RemoteError, str(raised.value), expected[:PART])

    async def parts() -> list[bytes]:
        return [part async for part in client.astream(b"x")]

    buffer = bytearray(PART)
    for reason in reasons:
        told(lambda: client.call(b"x", timeout=SOON), reason)
        told(lambda: client.recv(client.send(b"x"), timeout=SOON), reason)
        told(lambda: list(client.stream(b"x", timeout=SOON)), reason)
        told(lambda: client.call_into(b"x", buffer, timeout=SOON), reason)
        told(lambda: client.recv_into(client.send(b"x"), buffer, timeout=SOON), reason)
        told(lambda: asyncio.run(asyncio.wait_for(client.acall(b"x"), SOON)), reason)
        told(lambda: asyncio.run(asyncio.wait_for(client.arecv(client.send(b"x")), SOON)), reason)
        told(lambda: asyncio.run(asyncio.wait_for(parts(), SOON)), reason)
        told(lambda: [client.send(b"x"), [outcome.result() for _, outcome in client.as_completed(timeout=SOON)]], reason)
    ticket = client.send(b"x")
    request = server.recv()
    for wrong in (7, object()):
        with pytest.raises(TypeError, match="text or bytes"):
            request.fail(wrong)  # type: ignore[arg-type]
    request.fail("reason")
    request.fail("another")
    with pytest.raises(pipework.RemoteError, match="reason"):
        client.try_recv(ticket)


def test_caller_learns_only_the_type_of_an_exception(segment: Segment) -> None:
    client, server = ends(segment)

    class Refused(Exception):
        pass

    for kind, name in ((KeyError, b"KeyError"), (Refused, Refused.__qualname__.encode()[:PART])):
        ticket = client.send(b"x")
        with pytest.raises(kind), server.recv():
            raise kind("secret")
        with pytest.raises(pipework.RemoteError) as raised:
            client.recv(ticket, timeout=SOON)
        assert raised.value.reason == name
    ticket = client.send(b"x")
    with pytest.raises(KeyError), server.recv() as request:
        request.reply(b"before")
        raise KeyError
    assert client.recv(ticket) == b"before"
    ticket = client.send(b"x")
    with server.recv():
        pass
    with pytest.raises(pipework.RemoteError) as raised:
        client.recv(ticket)
    assert raised.value.reason == b""


# ---------------------------------------------------------------- many calls


def test_as_completed_yields_calls_as_they_complete(segment: Segment) -> None:
    client, server = ends(segment)
    assert list(client.as_completed()) == []
    tickets = client.send_many([b"one", bytearray(b"two"), memoryview(b"three")], timeout=SOON)
    requests = {bytes(request.data): request for request in server.recv_many(3)}
    requests[b"two"].reply(b"2", flags=9)
    requests[b"three"].fail("no three")
    completed = client.as_completed(timeout=0.1)
    ended = dict([next(completed), next(completed)])
    assert set(ended) == {tickets[1], tickets[2]}
    two, three = ended[tickets[1]], ended[tickets[2]]
    assert (two.result(), two.flags, two.exception()) == (b"2", 9, None)
    assert isinstance(three.exception(), pipework.RemoteError) and "no three" in repr(three)
    with pytest.raises(pipework.RemoteError, match="no three"):
        three.result()
    with pytest.raises(TimeoutError):
        next(completed)
    requests[b"one"].reply(b"1")
    assert [(ticket, outcome.result()) for ticket, outcome in client.as_completed(timeout=SOON)] == [(tickets[0], b"1")]


def test_as_completed_leaves_the_calls_of_others(segment: Segment) -> None:
    client, server = ends(segment)
    called: list[bytes] = []
    thread = after(0, lambda: called.append(client.call(b"a call", timeout=SOON)))
    request = server.recv(timeout=SOON)
    request.reply(b"its reply")
    for _, _outcome in client.as_completed(timeout=SOON):
        raise AssertionError("nothing was sent")
    thread.join()
    assert called == [b"its reply"]


def test_send_many_sends_requests_of_any_size(segment: Segment) -> None:
    client, server = ends(segment)
    long = bytes(500)
    assert client.send_many([]) == []
    assert len(client.send_many([b"x"] * 9, timeout=0.05)) == 4  # no more than there are slots
    with pytest.raises(TimeoutError):
        client.send_many([b"x"], timeout=0.05)
    with pytest.raises(Alarm), signal_after(0.05):
        client.send_many([b"x"])
    assert server.clear() == 4 and len(list(client.as_completed(timeout=SOON))) == 4
    with pytest.raises(Alarm), signal_after(0.05):
        client.send_many([b"x"] * 9)
    assert client.pending == 0  # no caller has their tickets
    with pytest.raises(TypeError):
        client.send_many([b"x", "text"])  # type: ignore[list-item]
    thread = serving(server, lambda request: request.reply(request.data))
    sent: list[Ticket] = []
    sender = after(0, lambda: sent.extend(client.send_many([b"short", long, b"short"] * 5, timeout=SOON)))
    got: list[bytes] = []
    while len(got) < 15:
        got += [outcome.result() for _, outcome in client.as_completed(timeout=SOON)]
    sender.join()
    assert len(set(sent)) == 15 and sorted(got) == sorted([b"short", long, b"short"] * 5)
    server.close()
    thread.join()


def test_recv_many_lingers_for_a_batch(segment: Segment) -> None:
    client, server = ends(segment)

    def send() -> None:
        for number in range(3):
            client.send(b"%d" % number)
            time.sleep(0.05)

    sender = after(0, send)
    began = time.monotonic()
    batch = server.recv_many(3, timeout=SOON, linger=SOON)
    assert [request.data for request in batch] == [b"0", b"1", b"2"] and time.monotonic() - began < SOON
    sender.join()
    batch[0].reply(b"")
    sender = after(0, lambda: client.send(b"alone"))
    began = time.monotonic()
    assert [request.data for request in server.recv_many(3, timeout=SOON, linger=0.1)] == [b"alone"]
    assert time.monotonic() - began >= 0.1
    sender.join()
    client.close()


def test_stop_works_from_threads_and_signal_handlers(segment: Segment) -> None:
    client, server = ends(segment)
    request_of = client.send(b"in hand")
    request = server.recv()
    stopper = after(0.05, server.stop)
    with pytest.raises(pipework.Closed):
        server.recv(timeout=SOON)
    stopper.join()
    for wait in (server.recv, lambda: server.recv_many(3), server.try_recv):
        with pytest.raises(EOFError):
            wait()
    assert list(server) == [] and not server.closed
    assert request.reply(b"done") and client.recv(request_of) == b"done"
    ticket = client.send(b"for another")
    assert Server(segment).recv(timeout=SOON).reply(b"here") and client.recv(ticket) == b"here"

    other = Server(segment)
    with signal_after(0.05, handler=other.stop):
        assert list(other) == []

    async def main() -> None:
        third = Server(segment)
        asyncio.get_running_loop().call_later(0.05, third.stop)
        assert [request async for request in third] == []

    in_time(main())


# ---------------------------------------------------------------- by number


def test_kept_request_is_answered_by_its_ticket(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"x", flags=5)
    request = server.recv()
    assert request.ticket == ticket and request.keep() == ticket and not request.wanted
    for use in (request.keep, lambda: request.reply(b"")):
        with pytest.raises(ValueError, match="answered already"):
            use()
    kept = server.kept(ticket)
    assert kept is not None and server.kept(ticket) is None
    assert (kept.data, kept.flags, kept.wanted) == (b"x", 5, True)
    assert kept.reply(b"y") and client.recv(ticket) == b"y"
    ticket = client.send(b"x")
    server.recv().keep()
    server.close()
    with pytest.raises(pipework.RemoteError):
        client.recv(ticket, timeout=SOON)


def test_forked_child_adopts_a_kept_request(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"x")
    server.recv().keep()

    def child() -> None:
        with pytest.raises(pipework.Stale):
            server.kept(ticket)
        request = server.adopt(ticket)
        assert request.data == b"x" and request.reply(b"the child's")

    in_child(child)
    assert client.recv(ticket, timeout=SOON) == b"the child's"
    with pytest.raises(pipework.Stale):
        server.adopt(ticket)
    kept = server.kept(ticket)
    if kept is not None:
        with pytest.raises(pipework.Stale):
            kept.reply(b"the parent's")


def test_request_in_a_forked_child_belongs_to_the_parent(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x", timeout=SOON)
    request = server.recv()
    assert request.send_part(b"one")

    def child() -> None:
        with pytest.raises(pipework.Stale):
            request.send_part(b"the child's", timeout=SOON)
        with pytest.raises(pipework.Stale):
            next(stream)
        with pytest.raises(pipework.Stale):
            request.reply(b"the child's")

    in_child(child)
    thread = after(0, lambda: request.reply(b"two"))
    assert list(stream) == [b"one", b"two"]
    thread.join()


def test_forgotten_call_is_carried_out(segment: Segment) -> None:
    client, server = ends(segment)
    client.forget(client.send(b"x"))
    assert client.pending == 0
    with pytest.raises(pipework.Stale):
        client.forget(Ticket(12345))
    client.close()
    request = server.recv(timeout=SOON)
    assert request.data == b"x" and request.wanted and not request.reply(b"y")


def test_post_leaves_nothing_to_receive_and_waits_for_space(segment: Segment) -> None:
    client, server = ends(segment)
    for number in range(segment.geometry.slots):
        client.post(b"%d" % number, flags=number)
    assert client.pending == 0
    with pytest.raises(pipework.TimedOut):
        client.post(b"x", timeout=0)
    thread = after(0.01, lambda: client.post(b"last"))
    requests = [server.recv(timeout=SOON) for _ in range(segment.geometry.slots)]
    assert [(request.data, request.flags) for request in requests] == [(b"%d" % n, n) for n in range(segment.geometry.slots)]
    for request in requests:
        request.reply(b"")
    thread.join()
    client.close()
    assert server.recv(timeout=SOON).data == b"last"


def test_post_that_a_signal_handler_interrupts_takes_no_slot(segment: Segment) -> None:
    client, server = ends(segment)
    for _ in range(segment.geometry.slots):
        client.post(b"x")
    with pytest.raises(Alarm), signal_after(0.01):
        client.post(b"y", timeout=SOON)
    for request in server.drain(100):
        request.reply(b"")
    assert all_free(segment)
