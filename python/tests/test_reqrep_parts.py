"""Calls of any size, replies that are streamed, requests that are read part by part and in place,
and requests that are answered by number."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pipework
import pytest
from pipework.reqrep import Client, IntClient, IntServer, Request, Segment, Server, Ticket
from processes import all_free, ends, forked, until
from support import SOON, Alarm, after, in_child, signal_after

SLOT = 64


def small(slots: int = 4) -> Segment:
    return Segment.anonymous(slots=slots, request_bytes=SLOT, reply_bytes=SLOT, members=8)


def serving(server: Server, answer: Callable[[Request], object]) -> threading.Thread:
    """A thread that answers until the server is closed or stopped."""

    def serve() -> None:
        for request in server:
            answer(request)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.fixture
def segment() -> Iterator[Segment]:
    """One of which every slot is free in the end."""
    segment = small()
    yield segment
    segment.recover()
    until(lambda: all_free(segment))


# ---------------------------------------------------------------- any size


def test_a_transfer_may_take_longer_than_a_slice(segment: Segment) -> None:
    """A wait looks at signals four times a second, and must not begin again each time."""
    client, server = ends(segment)
    data = bytes(range(200)) * 2

    def slowly() -> None:
        with server.claim(SOON) as request:
            got = request.data
            while request.has_more:
                time.sleep(0.1)
                assert request.next_part(SOON)
                got += request.data
            assert not request.next_part(SOON)
            request.reply(got)

    for _ in range(2):
        thread = after(0, slowly)
        assert client.call(data, SOON) == data
        thread.join()
    assert segment.stats().cancelled == 0
    thread = after(0, slowly)
    assert client.recv(client.send(data, SOON), SOON) == data
    thread.join()
    assert segment.stats().cancelled == 0


def test_max_message_holds_for_both_ends_and_both_ways(segment: Segment) -> None:
    client, server = Client(segment, max_message=200), Server(segment, max_message=150)
    for call in (client.call, client.send):
        with pytest.raises(pipework.TooLong, match="201 bytes, and the client's max_message is 200"):
            call(bytes(201))
    thread = serving(server, lambda request: pytest.raises(pipework.TooLong, request.reply, bytes(151)))
    with pytest.raises(pipework.RemoteError, match="longer than the server's max_message") as raised:
        client.call(bytes(190), SOON)
    assert raised.value.reason == str(raised.value).encode()
    with pytest.raises(pipework.RemoteError):
        client.call(b"short", SOON)
    server.close()
    thread.join()
    other = Server(segment)
    thread = serving(other, lambda request: request.reply(bytes(300)))
    with pytest.raises(pipework.TooLong, match=r"larger than the limit$"):
        client.call(b"short", SOON)
    other.close()
    thread.join()
    for end in (Client, Server):
        with pytest.raises(pipework.Invalid, match="max_message must be"):
            end(segment, max_message=-1)
    assert Server(segment, 70, 0.5).__reduce__()[1][1:] == (70, 0.5)


def test_a_client_that_stops_holds_a_server_for_part_timeout(segment: Segment) -> None:
    server = Server(segment, part_timeout=0.2)
    with forked(lambda: Client(segment).call(b"x")) as pid:
        request = server.recv(SOON)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(pipework.TimedOut):
            request.reply(bytes(500))
        assert 0.2 <= time.monotonic() - began < SOON
    with pytest.raises(pipework.Invalid):
        Server(segment, part_timeout=-1.0)


def test_a_signal_ends_a_reply_that_waits_for_its_client(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"x")
    request = server.recv()
    with pytest.raises(Alarm), signal_after(0.05):
        request.reply(bytes(500))
    with pytest.raises(pipework.RemoteError):
        client.recv(ticket, SOON)


# ---------------------------------------------------------------- reasons


def test_a_reason_reaches_the_caller(segment: Segment) -> None:
    client, server = ends(segment)
    reasons: list[str | bytes] = ["no such \N{SNOWMAN}", b"\xff\x00", "", "long" * 100, "\ud800"]

    def told(call: Callable[[], object], reason: str | bytes) -> None:
        thread = after(0, lambda: server.recv(SOON).fail(reason))
        with pytest.raises(pipework.RemoteError) as raised:
            call()
        thread.join()
        expected = reason.encode(errors="backslashreplace") if isinstance(reason, str) else reason
        assert raised.value.reason == expected[:SLOT]
        text = expected[:SLOT].decode(errors="backslashreplace") if expected else "the other side gave up"
        assert str(raised.value).endswith(text)
        assert isinstance(raised.value, pipework.Failed) and raised.value.kind is pipework.ErrorKind.FAILED
        copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
        assert (type(copy), str(copy), copy.reason) == (pipework.RemoteError, str(raised.value), expected[:SLOT])

    async def parts() -> list[bytes]:
        return [part async for part in client.astream(b"x")]

    buffer = bytearray(SLOT)
    for reason in reasons:
        told(lambda: client.call(b"x", SOON), reason)
        told(lambda: client.recv(client.send(b"x"), SOON), reason)
        told(lambda: list(client.stream(b"x", SOON)), reason)
        told(lambda: client.call_into(b"x", buffer, SOON), reason)
        told(lambda: client.recv_into(client.send(b"x"), buffer, SOON), reason)
        told(lambda: asyncio.run(asyncio.wait_for(client.acall(b"x"), SOON)), reason)
        told(lambda: asyncio.run(asyncio.wait_for(client.arecv(client.send(b"x")), SOON)), reason)
        told(lambda: asyncio.run(asyncio.wait_for(parts(), SOON)), reason)
        told(lambda: [client.send(b"x"), [outcome.result() for _, outcome in client.as_completed(SOON)]], reason)
    ticket = client.send(b"x")
    request = server.recv()
    for wrong in (7, object()):
        with pytest.raises(TypeError, match="text or bytes"):
            request.fail(wrong)  # type: ignore[arg-type]
    request.fail("reason")
    request.fail("another")
    with pytest.raises(pipework.RemoteError, match="reason"):
        client.try_recv(ticket)


def test_of_an_exception_the_caller_learns_the_type_and_no_more(segment: Segment) -> None:
    client, server = ends(segment)

    class Refused(Exception):
        pass

    for kind, name in ((KeyError, b"KeyError"), (Refused, Refused.__qualname__.encode()[:SLOT])):
        ticket = client.send(b"x")
        with pytest.raises(kind), server.recv():
            raise kind("secret")
        with pytest.raises(pipework.RemoteError) as raised:
            client.recv(ticket, SOON)
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


# ---------------------------------------------------------------- streams


def counted(request: Request) -> None:
    """Sends as many parts as it is asked for, and says when nobody listens."""
    for number in range(int(request.data)):
        if not request.send_part(b"%d" % number, SOON):
            return
    request.reply(b"")


def test_parts_come_as_they_are_sent(segment: Segment) -> None:
    client, server = ends(segment)
    thread = serving(server, counted)
    for count in (0, 1, 5, 200):
        assert list(client.stream(b"%d" % count, SOON)) == [b"%d" % number for number in range(count)]
    assert client.call(b"12", SOON) == b"01234567891011"
    stream = client.stream(b"2", SOON)
    assert (next(stream), next(stream), next(stream, None), next(stream, None)) == (b"0", b"1", None, None)
    server.stop()
    thread.join()
    other = Server(segment)
    long = os.urandom(1000)

    def long_parts(request: Request) -> None:
        assert request.send_part(long) and request.send_part(b"")
        request.reply(long)

    thread = serving(other, long_parts)
    assert list(client.stream(b"x", SOON)) == [long, b"", long]
    other.close()
    thread.join()


@pytest.mark.parametrize("leave", ["break", "close", "with", "drop", "raise", "signal"])
def test_a_stream_that_is_left_cancels_the_call(segment: Segment, leave: str) -> None:
    client, server = ends(segment)
    refused: list[bool] = []

    def endless() -> None:
        request = server.recv(SOON)
        while request.send_part(b"part", SOON):
            if leave == "signal":
                time.sleep(0.01)
        refused.append(True)
        assert not request.wanted and not request.reply(b"")

    thread = after(0, endless)
    if leave == "break":
        for part in client.stream(b"x", SOON):
            assert part == b"part"
            break
    elif leave == "raise":
        with pytest.raises(KeyError):
            for part in client.stream(b"x", SOON):
                raise KeyError
    elif leave == "signal":
        with pytest.raises(Alarm), signal_after(0.1):
            for part in client.stream(b"x", SOON):
                assert part == b"part"
    else:
        stream = client.stream(b"x", SOON)
        assert next(stream) == b"part"
        if leave == "drop":
            del stream
        else:
            if leave == "with":
                with stream:
                    next(stream)
            stream.close()
            stream.close()
            assert list(stream) == []
    thread.join()
    assert refused == [True]


def test_a_stream_ends_with_its_server_and_with_its_time(segment: Segment) -> None:
    client = Client(segment)

    def sends_one() -> None:
        request = Server(segment).recv()
        request.send_part(b"one")
        time.sleep(SOON)

    with forked(sends_one) as pid:
        stream = client.stream(b"x", SOON)
        assert next(stream) == b"one"
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(pipework.PeerDied):
            next(stream)
        assert list(stream) == []
    with forked(sends_one):
        stream = client.stream(b"x", 0.5)
        assert next(stream) == b"one"
        with pytest.raises(TimeoutError):
            next(stream)
        assert list(stream) == []
        with pytest.raises(TimeoutError):
            client.stream(bytes(1000), 0.05)
    client.close()


def test_closing_the_client_ends_its_streams(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x")
    closer = after(0.05, client.close)
    with pytest.raises(ValueError, match="this client is closed"):
        next(stream)
    closer.join()
    assert server.try_recv() is None


def test_a_signal_handler_may_fail_the_request_whose_part_waits(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x", SOON)
    request = server.recv()
    assert request.send_part(b"one")
    with pytest.raises(ValueError, match="answered already"), signal_after(0.05, handler=lambda: request.fail("enough")):
        request.send_part(b"two")
    with pytest.raises(pipework.RemoteError) as raised:  # there is no space for a reason beside a part
        list(stream)
    assert raised.value.reason == b""
    stream = client.stream(b"x", SOON)
    request = server.recv()
    assert request.send_part(b"one")
    with pytest.raises(TimeoutError):
        request.send_part(b"two", timeout=0.05)
    with pytest.raises(Alarm), signal_after(0.05):
        request.send_part(b"two")
    thread = after(0, lambda: request.send_part(b"two", SOON) and request.reply(b""))
    assert list(stream) == [b"one", b"two"]
    thread.join()


def test_a_long_part_that_was_half_sent_fails_the_request(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x", SOON)
    request = server.recv()
    with pytest.raises(TimeoutError):
        request.send_part(bytes(1000), timeout=0.05)
    assert not request.wanted
    with pytest.raises(pipework.RemoteError):
        list(stream)


# ---------------------------------------------------------------- streams in tasks


def run(coroutine: object) -> object:
    return asyncio.run(asyncio.wait_for(coroutine, SOON))  # type: ignore[arg-type]


def test_streams_between_tasks_of_one_loop(segment: Segment) -> None:
    client, server = ends(segment)
    long = os.urandom(5000)

    async def serve() -> None:
        async for request in server:
            for number in range(int(request.data)):
                if not await request.asend_part(b"%d" % number):
                    break
            else:
                await request.areply(long)

    async def main() -> None:
        task = asyncio.create_task(serve())
        for count in (0, 3, 200):
            assert [part async for part in client.astream(b"%d" % count)] == [b"%d" % n for n in range(count)] + [long]
        assert await client.acall(b"3") == b"012" + long
        async for part in client.astream(b"1000000"):
            if part == b"2":
                break
        assert await client.acall(b"0") == long
        stream = client.astream(b"5")
        assert await stream.__anext__() == b"0"
        await stream.aclose()
        assert [part async for part in stream] == []
        server.stop()
        await task

    run(main())


def test_a_task_that_is_cancelled_cancels_its_stream(segment: Segment) -> None:
    client, server = ends(segment)

    async def main() -> None:
        async def read() -> None:
            async for part in client.astream(b"x"):
                assert part == b"one"

        task = asyncio.create_task(read())
        request = await server.arecv()
        assert await request.asend_part(b"one")
        while segment.audit().taken == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await request.asend_part(b"two") and not await request.areply(b"")

    run(main())


def test_a_part_whose_task_is_cancelled_was_not_sent(segment: Segment) -> None:
    client, server = ends(segment)

    async def main() -> None:
        stream = client.astream(b"x")
        first = asyncio.create_task(stream.__anext__())
        request = await server.arecv()
        assert await request.asend_part(b"one") and await first == b"one"
        assert await request.asend_part(b"two")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(request.asend_part(b"three"), 0.05)
        waiting = asyncio.create_task(request.asend_part(b"four"))
        await asyncio.sleep(0.02)
        with pytest.raises(ValueError, match="under way"):
            request.reply(b"")
        request.fail("enough")
        with pytest.raises(ValueError, match="failed meanwhile"):
            await waiting
        assert not request.wanted
        with pytest.raises(pipework.RemoteError):
            await stream.__anext__()

    run(main())


def test_the_client_of_a_stream_in_tasks_is_closed(segment: Segment) -> None:
    client, server = ends(segment)

    async def main() -> None:
        stream = client.astream(b"x")
        first = asyncio.create_task(stream.__anext__())
        request = await server.arecv()
        client.close()
        with pytest.raises(ValueError, match="closed"):
            await first
        assert not await request.asend_part(b"one")
        request.fail()

    run(main())


# ---------------------------------------------------------------- many calls


def test_calls_as_they_are_completed(segment: Segment) -> None:
    client, server = ends(segment)
    assert list(client.as_completed()) == []
    tickets = client.send_many([b"one", bytearray(b"two"), memoryview(b"three")], SOON)
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
    assert [(ticket, outcome.result()) for ticket, outcome in client.as_completed(SOON)] == [(tickets[0], b"1")]


def test_as_completed_leaves_the_calls_of_others(segment: Segment) -> None:
    client, server = ends(segment)
    called: list[bytes] = []
    thread = after(0, lambda: called.append(client.call(b"a call", SOON)))
    request = server.recv(SOON)
    request.reply(b"its reply")
    for _, _outcome in client.as_completed(SOON):
        raise AssertionError("nothing was sent")
    thread.join()
    assert called == [b"its reply"]


def test_many_at_once_of_any_size(segment: Segment) -> None:
    client, server = ends(segment)
    long = bytes(500)
    assert client.send_many([]) == []
    assert len(client.send_many([b"x"] * 9, timeout=0.05)) == 4  # no more than there are slots
    with pytest.raises(TimeoutError):
        client.send_many([b"x"], timeout=0.05)
    with pytest.raises(Alarm), signal_after(0.05):
        client.send_many([b"x"])
    assert server.clear() == 4 and len(list(client.as_completed(SOON))) == 4
    with pytest.raises(Alarm), signal_after(0.05):
        client.send_many([b"x"] * 9)
    assert client.pending == 0  # nobody has got their tickets
    with pytest.raises(TypeError):
        client.send_many([b"x", "text"])  # type: ignore[list-item]
    thread = serving(server, lambda request: request.reply(request.data))
    sent: list[Ticket] = []
    sender = after(0, lambda: sent.extend(client.send_many([b"short", long, b"short"] * 5, SOON)))
    got: list[bytes] = []
    while len(got) < 15:
        got += [outcome.result() for _, outcome in client.as_completed(SOON)]
    sender.join()
    assert len(set(sent)) == 15 and sorted(got) == sorted([b"short", long, b"short"] * 5)
    server.close()
    thread.join()


def test_a_server_lingers_for_a_batch(segment: Segment) -> None:
    client, server = ends(segment)

    def send() -> None:
        for number in range(3):
            client.send(b"%d" % number)
            time.sleep(0.05)

    sender = after(0, send)
    began = time.monotonic()
    batch = server.recv_many(3, SOON, linger=SOON)
    assert [request.data for request in batch] == [b"0", b"1", b"2"] and time.monotonic() - began < SOON
    sender.join()
    batch[0].reply(b"")
    sender = after(0, lambda: client.send(b"alone"))
    began = time.monotonic()
    assert [request.data for request in server.recv_many(3, SOON, linger=0.1)] == [b"alone"]
    assert time.monotonic() - began >= 0.1
    sender.join()
    client.close()


def test_a_server_is_stopped_from_anywhere(segment: Segment) -> None:
    client, server = ends(segment)
    request_of = client.send(b"in hand")
    request = server.recv()
    stopper = after(0.05, server.stop)
    with pytest.raises(pipework.Closed):
        server.recv(SOON)
    stopper.join()
    for wait in (server.recv, lambda: server.recv_many(3), server.try_recv):
        with pytest.raises(EOFError):
            wait()
    assert list(server) == [] and not server.closed
    assert request.reply(b"done") and client.recv(request_of) == b"done"
    ticket = client.send(b"for another")
    assert Server(segment).recv(SOON).reply(b"here") and client.recv(ticket) == b"here"

    other = Server(segment)
    with signal_after(0.05, handler=other.stop):
        assert list(other) == []

    async def main() -> None:
        third = Server(segment)
        asyncio.get_running_loop().call_later(0.05, third.stop)
        assert [request async for request in third] == []

    run(main())


# ---------------------------------------------------------------- by number


def test_a_request_is_kept_and_answered_by_its_ticket(segment: Segment) -> None:
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
        client.recv(ticket, SOON)


def test_a_child_adopts_what_its_parent_keeps(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"x")
    server.recv().keep()

    def child() -> None:
        with pytest.raises(pipework.Stale):
            server.kept(ticket)
        request = server.adopt(ticket)
        assert request.data == b"x" and request.reply(b"the child's")

    in_child(child)
    assert client.recv(ticket, SOON) == b"the child's"
    with pytest.raises(pipework.Stale):
        server.adopt(ticket)
    kept = server.kept(ticket)
    if kept is not None:
        with pytest.raises(pipework.Stale):
            kept.reply(b"the parent's")


def test_a_request_in_a_forked_child_is_the_parents(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x", SOON)
    request = server.recv()
    assert request.send_part(b"one")

    def child() -> None:
        with pytest.raises(pipework.Stale):
            request.send_part(b"the child's", SOON)
        with pytest.raises(pipework.Stale):
            next(stream)
        with pytest.raises(pipework.Stale):
            request.reply(b"the child's")

    in_child(child)
    thread = after(0, lambda: request.reply(b"two"))
    assert list(stream) == [b"one", b"two"]
    thread.join()


def test_what_is_forgotten_is_carried_out(segment: Segment) -> None:
    client, server = ends(segment)
    client.forget(client.send(b"x"))
    assert client.pending == 0
    with pytest.raises(pipework.Stale):
        client.forget(Ticket(12345))
    client.close()
    request = server.recv(SOON)
    assert request.data == b"x" and request.wanted and not request.reply(b"y")


# ---------------------------------------------------------------- in place


def test_replies_are_copied_into_a_buffer(segment: Segment) -> None:
    client, server = ends(segment)
    thread = serving(server, lambda request: request.reply(request.data))
    buffer = bytearray(b"-" * 100)
    assert client.call_into(b"hello", buffer, SOON) == 5 and buffer == b"hello" + b"-" * 95
    assert client.call_into(b"world", memoryview(buffer)[50:55], SOON) == 5 and buffer[45:60] == b"-----world-----"
    assert client.call_into(b"", bytearray(), SOON) == 0
    assert client.recv_into(client.send(b"12"), buffer, SOON) == 2 and buffer[:5] == b"12llo"
    data = os.urandom(90)
    assert client.call_into(data, buffer, SOON) == 90 and buffer[:90] == data
    for long in (b"123456", data):
        with pytest.raises(pipework.TooLong):
            client.call_into(long, bytearray(5), SOON)
    ticket = client.send(b"123456")
    with pytest.raises(pipework.TooLong, match="6 bytes, and the buffer's length is 5"):
        client.recv_into(ticket, bytearray(5), SOON)
    assert client.recv(ticket) == b"123456"
    with pytest.raises((TypeError, BufferError)):
        client.call_into(b"x", b"read only", SOON)
    server.close()
    thread.join()
    with pytest.raises(TimeoutError):
        client.call_into(b"x", buffer, 0.02)
    ticket = client.send(b"x")
    with pytest.raises(TimeoutError):
        client.recv_into(ticket, buffer, 0.02)
    assert client.cancel(ticket)


def test_requests_are_read_into_a_buffer(segment: Segment) -> None:
    client, server = ends(segment)
    buffer = bytearray(SLOT)
    ticket = client.send(b"x" * 10, flags=3)
    request = server.claim()
    assert "in the segment" in repr(request) and not request.has_more
    with pytest.raises(pipework.TooLong, match="the request has 10 bytes, and the buffer 9"):
        request.readinto(bytearray(9))
    assert request.readinto(buffer) == 10 and buffer[:11] == b"x" * 10 + b"\0" and request.flags == 3
    assert request.readinto(buffer) == 10 and request.data == b"x" * 10
    assert request.reply(b"") and request.data == b"x" * 10
    unread = client.send(b"y")
    request = server.claim()
    request.fail()
    for use in (lambda: request.data, lambda: request.readinto(buffer)):
        with pytest.raises(ValueError, match="answered already"):
            use()
    client.recv(ticket)
    with pytest.raises(pipework.RemoteError):
        client.recv(unread)
    client.send(b"12345")
    whole = server.recv()
    assert whole.readinto(buffer) == 5 and buffer[:5] == b"12345" and not whole.next_part()
    with pytest.raises(pipework.TooLong):
        whole.readinto(bytearray(4))
    client.close()


def test_a_request_whose_client_dies_in_the_middle(segment: Segment) -> None:
    server = Server(segment)
    with forked(lambda: Client(segment).call(bytes(1000))) as pid:
        request = server.claim(SOON)
        assert request.has_more
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            request.next_part(0.05)
        with pytest.raises(Alarm), signal_after(0.05):
            request.next_part()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(pipework.Closed):
            request.next_part(SOON)
    request.fail()


# ---------------------------------------------------------------- numbers


def test_numbers_have_the_same() -> None:
    segment = Segment.anonymous(integers=True, slots=4)
    client, server = IntClient(segment), IntServer(segment)
    tickets = client.send_many(range(3), SOON)
    requests = server.recv_many(3, SOON, linger=0.01)
    assert [request.ticket for request in requests] == tickets
    requests[0].reply(10)
    requests[1].fail()
    outcomes = [next(iter(client.as_completed(SOON))), next(iter(client.as_completed(SOON)))]
    assert outcomes[0][1].result() == 10 and isinstance(outcomes[1][1].exception(), pipework.RemoteError)
    assert requests[2].keep() == tickets[2]
    kept = server.kept(tickets[2])
    assert kept is not None and kept.value == 2 and kept.keep() == tickets[2]
    in_child(lambda: (server.adopt(tickets[2]).reply(20), None)[1])
    assert client.recv(tickets[2], SOON) == 20
    client.forget(client.send(7))
    assert server.recv().value == 7
    after(0.05, server.stop)
    assert list(server) == []
    assert all_free(segment)


def test_nothing_is_left_of_many_streams() -> None:
    segment = small()
    client, server = ends(segment)
    thread = serving(server, counted)
    counts = sys.getrefcount(b"7")
    for _ in range(200):
        assert len(list(client.stream(b"7", SOON))) == 7
        for _part in client.stream(b"7", SOON):
            break
    until(lambda: all_free(segment))
    assert client.pending == 0 and sys.getrefcount(b"7") - counts < 10
    server.stop()
    thread.join()
