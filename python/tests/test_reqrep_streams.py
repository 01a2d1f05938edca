"""Replies that are streamed, in threads and in tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pipework
import pytest
from pipework.reqrep import Client, Message, Request, Segment, Server
from processes import all_free, ends, forked, in_time, serving, small, until
from support import SOON, Alarm, after, signal_after


def counted(request: Request) -> None:
    """Sends the requested number of parts, and returns when the caller has left."""
    for number in range(int(request.data)):
        if not request.send_part(b"%d" % number, timeout=SOON):
            return
    request.reply(b"")


def test_stream_yields_parts_as_they_are_sent(segment: Segment) -> None:
    client, server = ends(segment)
    thread = serving(server, counted)
    for count in (0, 1, 5, 200):
        assert list(client.stream(b"%d" % count, timeout=SOON)) == [b"%d" % number for number in range(count)]
    assert client.call(b"12", timeout=SOON) == b"01234567891011"
    stream = client.stream(b"2", timeout=SOON)
    assert (next(stream), next(stream), next(stream, None), next(stream, None)) == (b"0", b"1", None, None)
    server.stop()
    thread.join()
    other = Server(segment)
    long = os.urandom(1000)

    def long_parts(request: Request) -> None:
        assert request.send_part(long) and request.send_part(b"")
        request.reply(long)

    thread = serving(other, long_parts)
    assert list(client.stream(b"x", timeout=SOON)) == [long, b"", long]
    other.close()
    thread.join()


def test_parts_carry_flags(segment: Segment) -> None:
    client, server = ends(segment)

    def flagged(request: Request) -> None:
        assert request.send_part(b"one", flags=1) and request.send_part(bytes(1000), timeout=SOON, flags=2**32 - 1)
        request.reply(b"end", flags=3)

    thread = serving(server, flagged)
    expected = [Message(b"one", 1), Message(bytes(1000), 2**32 - 1), Message(b"end", 3)]
    assert list(client.stream_messages(b"x", timeout=SOON)) == expected
    assert client.call_message(b"x", timeout=SOON) == Message(b"one" + bytes(1000) + b"end", 3)
    server.stop()
    thread.join()
    other = Server(segment)

    async def serve() -> None:
        request = await other.arecv()
        assert request.flags == 9
        assert await request.asend_part(b"one", flags=1) and await request.asend_part(bytes(1000), flags=2**32 - 1)
        await request.areply(b"end", flags=3)

    async def main() -> None:
        task = asyncio.create_task(serve())
        assert [part async for part in client.astream_messages(b"x", flags=9)] == expected
        await task

    in_time(main())


@pytest.mark.parametrize("leave", ["break", "close", "with", "drop", "raise", "signal"])
def test_leaving_a_stream_cancels_the_call(segment: Segment, leave: str) -> None:
    client, server = ends(segment)
    refused: list[bool] = []

    def endless() -> None:
        request = server.recv(timeout=SOON)
        while request.send_part(b"part", timeout=SOON):
            if leave == "signal":
                time.sleep(0.01)
        refused.append(True)
        assert not request.wanted and not request.reply(b"")

    thread = after(0, endless)
    if leave == "break":
        for part in client.stream(b"x", timeout=SOON):
            assert part == b"part"
            break
    elif leave == "raise":
        with pytest.raises(KeyError):
            for part in client.stream(b"x", timeout=SOON):
                raise KeyError
    elif leave == "signal":
        with pytest.raises(Alarm), signal_after(0.1):
            for part in client.stream(b"x", timeout=SOON):
                assert part == b"part"
    else:
        stream = client.stream(b"x", timeout=SOON)
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


def test_stream_ends_with_its_server_or_its_timeout(segment: Segment) -> None:
    client = Client(segment)

    def sends_one() -> None:
        request = Server(segment).recv()
        request.send_part(b"one")
        time.sleep(SOON)

    with forked(sends_one) as pid:
        stream = client.stream(b"x", timeout=SOON)
        assert next(stream) == b"one"
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(pipework.PeerDied):
            next(stream)
        assert list(stream) == []
    with forked(sends_one):
        stream = client.stream(b"x", timeout=0.5)
        assert next(stream) == b"one"
        with pytest.raises(TimeoutError):
            next(stream)
        assert list(stream) == []
    client.close()


def test_closing_the_client_ends_its_streams(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x")
    closer = after(0.05, client.close)
    with pytest.raises(ValueError, match="this client is closed"):
        next(stream)
    closer.join()
    assert server.try_recv() is None


def test_closing_the_client_ends_its_streams_between_two_parts(segment: Segment) -> None:
    client, server = ends(segment)
    streams = [client.stream(b"x") for _ in range(3)]
    requests = [server.recv(timeout=SOON) for _ in streams]
    for request, stream in zip(requests, streams, strict=True):
        assert request.send_part(b"one") and next(stream) == b"one"
    client.close()
    assert [member.role for member in segment.members()] == ["server"]
    assert not any(request.wanted for request in requests)
    for stream in streams:
        with pytest.raises(ValueError, match="this client is closed"):
            next(stream)
        assert list(stream) == []


def test_signal_handler_may_fail_the_request_whose_part_waits(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x", timeout=SOON)
    request = server.recv()
    assert request.send_part(b"one")
    with pytest.raises(ValueError, match="answered already"), signal_after(0.05, handler=lambda: request.fail("enough")):
        request.send_part(b"two")
    with pytest.raises(pipework.RemoteError) as raised:  # there is no space for a reason beside a part
        list(stream)
    assert raised.value.reason == b""
    stream = client.stream(b"x", timeout=SOON)
    request = server.recv()
    assert request.send_part(b"one")
    with pytest.raises(TimeoutError):
        request.send_part(b"two", timeout=0.05)
    with pytest.raises(Alarm), signal_after(0.05):
        request.send_part(b"two")
    thread = after(0, lambda: request.send_part(b"two", timeout=SOON) and request.reply(b""))
    assert list(stream) == [b"one", b"two"]
    thread.join()


def test_part_may_be_longer_than_a_slot(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x", timeout=SOON)
    request = server.recv()
    assert request.send_part(bytes(1000), timeout=0)
    assert next(stream) == bytes(1000)
    assert request.reply(bytes(2000))
    assert list(stream) == [bytes(2000)]


def test_many_streams_leave_nothing() -> None:
    segment = small()
    client, server = ends(segment)
    thread = serving(server, counted)
    counts = sys.getrefcount(b"7")
    for _ in range(200):
        assert len(list(client.stream(b"7", timeout=SOON))) == 7
        for _part in client.stream(b"7", timeout=SOON):
            break
    until(lambda: all_free(segment))
    assert client.pending == 0 and sys.getrefcount(b"7") - counts < 10
    server.stop()
    thread.join()


# ---------------------------------------------------------------- in tasks


def test_tasks_of_one_loop_stream_to_each_other(segment: Segment) -> None:
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

    in_time(main())


def test_cancelled_task_cancels_its_stream(segment: Segment) -> None:
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

    in_time(main())


def test_part_of_a_cancelled_task_is_not_sent(segment: Segment) -> None:
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

    in_time(main())


def test_closing_the_client_ends_streams_of_tasks(segment: Segment) -> None:
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
        await between_parts()

    async def between_parts() -> None:
        client = Client(segment)
        streams = [client.astream(b"x"), client.astream(b"y")]
        first = asyncio.create_task(anext(streams[0]))
        request = await server.arecv()
        assert await request.asend_part(b"one") and await first == b"one"
        client.close()
        assert [member.role for member in segment.members()] == ["server"] and not request.wanted
        for stream in streams:
            with pytest.raises(ValueError, match="closed"):
                await anext(stream)
            assert [part async for part in stream] == []
        request.fail()

    in_time(main())
