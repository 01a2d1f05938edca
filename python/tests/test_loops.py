"""The same coroutines in asyncio, uvloop and trio, by anyio and without it: calls, streams, pipes;
time-outs, cancelling, closing from a thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pipework
import pytest
import sniffio
import trio
import trio.testing
import uvloop
from pipework import atomic
from pipework.pipe import Reader, Writer, pipe
from pipework.reqrep import Client, Segment, Server
from processes import ends
from support import SOON, after

Scenario = Callable[[], Awaitable[None]]
RUNS: dict[str, Callable[[Scenario], object]] = {
    "asyncio": lambda scenario: asyncio.run(scenario()),  # type: ignore[arg-type]
    "uvloop": lambda scenario: uvloop.run(scenario()),  # type: ignore[arg-type]
    "trio": trio.run,
    "anyio on asyncio": functools.partial(anyio.run, backend="asyncio"),
    "anyio on trio": functools.partial(anyio.run, backend="trio"),
}


@pytest.fixture(params=list(RUNS))
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], object]:
    return RUNS[request.param]


uvloop.new_event_loop().close()  # the first one opens what all of them share
Run = Callable[[Scenario], object]


def test_calls(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)

        async def serve() -> None:
            async for request in server:
                with request:
                    await request.areply(request.data.upper(), timeout=SOON)

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            for _ in range(200):  # more than what goes by without a turn for the others
                assert await client.acall(b"hello", timeout=SOON) == b"HELLO"
            ticket = client.send(b"later")
            assert await client.arecv(ticket, timeout=SOON) == b"LATER"
            large = bytes(100_000)
            assert await client.acall(large, timeout=SOON) == large
            tickets = {client.send(b"%d" % number) for number in range(3)}
            assert {ticket async for ticket, _ in client.as_completed()} == tickets
            server.stop()

    run(scenario)


def test_handlers(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)
        now = most = 0
        closed = anyio.Event()

        async def upper(data: bytes) -> bytes:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await anyio.sleep(0.01)
            now -= 1
            return data.upper()

        async def count(data: bytes) -> AsyncIterator[bytes]:
            try:
                for number in range(int(data)):
                    await anyio.sleep(0)
                    yield b"%d" % number
                if data == b"4":
                    raise ValueError("not four")
            finally:
                closed.set()

        @server.handler
        def either(data: bytes) -> Any:
            return count(data) if data.isdigit() else upper(data)

        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(server.aserve, limit=2))
            tickets = [client.send(data) for data in (b"a", b"b", b"c", b"d")]
            assert [await client.arecv(ticket, timeout=SOON) for ticket in tickets] == [b"A", b"B", b"C", b"D"]
            assert most == 2
            assert [part async for part in client.astream(b"3", timeout=SOON)] == [b"0", b"1", b"2"]
            parts = client.astream(b"4", timeout=SOON)
            assert [await parts.__anext__() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            with pytest.raises(pipework.RemoteError, match="^ValueError: not four$"):
                await parts.__anext__()
            closed = anyio.Event()
            parts = client.astream(b"1000000", timeout=SOON)
            assert await parts.__anext__() == b"0"
            await parts.aclose()
            await closed.wait()
            # `aserve` answers all taken requests before it returns.
            last = client.send(b"last")
            while segment.audit().taken == 0:
                await anyio.sleep(0.001)
            server.stop()
        assert await client.arecv(last, timeout=SOON) == b"LAST"

    logging.getLogger("pipework").addFilter(nothing)
    run(scenario)
    logging.getLogger("pipework").removeFilter(nothing)


def nothing(record: logging.LogRecord) -> bool:
    return False


def test_handlers_that_are_cancelled(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)

        async def for_ever(_: bytes) -> bytes:
            await anyio.sleep_forever()
            return b""

        async with anyio.create_task_group() as group:
            group.start_soon(server.aserve, for_ever)
            ticket = client.send(b"")
            while segment.audit().taken == 0:
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        with pytest.raises(pipework.RemoteError):
            client.recv(ticket, timeout=SOON)

    run(scenario)


@pytest.mark.parametrize("how", ["cancels", "times out", "leaves the stream", "closes"])
def test_handler_is_cancelled_when_its_caller_has_gone(segment: Segment, run: Run, how: str) -> None:
    async def scenario() -> None:
        client, server = ends(segment)
        caller = Client(segment)
        begun = ended = 0
        forgotten = anyio.Event()

        async def slow(data: bytes) -> bytes:
            nonlocal begun, ended
            begun += 1
            try:
                if data == b"forgotten":
                    await forgotten.wait()
                elif data != b"quick":
                    await anyio.sleep_forever()
                return data
            finally:
                ended += 1

        async def parts(data: bytes) -> AsyncIterator[bytes]:
            yield b"first"
            yield await slow(data)

        def either(data: bytes) -> Any:
            return parts(data) if data == b"parts" else slow(data)

        async def call() -> None:
            if how == "times out":
                with pytest.raises(pipework.TimedOut):
                    await client.acall(b"", timeout=0.1)
            elif how == "leaves the stream":
                async for part in (given := client.astream(b"parts")):
                    assert part == b"first"
                    while begun < 3:
                        await anyio.sleep(0.001)
                    await given.aclose()
                    break
            elif how == "closes":
                caller.send(b"")
                while begun < 3:
                    await anyio.sleep(0.001)
                caller.close()
            else:
                ticket = client.send(b"")
                while begun < 3:
                    await anyio.sleep(0.001)
                assert client.cancel(ticket)

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(functools.partial(server.aserve, either, limit=3))
                kept, left = client.send(b"kept"), client.send(b"forgotten")
                client.forget(left)
                while begun < 2:
                    await anyio.sleep(0.001)
                await call()
                while ended < 1:
                    await anyio.sleep(0.001)
                # Its place is free, and the others go on.
                assert await client.acall(b"quick", timeout=SOON) == b"quick"
                await anyio.sleep(0.6)
                assert ended == 2, "one whose caller waits goes on, and one that was forgotten"
                forgotten.set()
                while ended < 3:
                    await anyio.sleep(0.001)
                assert client.cancel(kept)
                while ended < 4:
                    await anyio.sleep(0.001)
                server.stop()

    run(scenario)


def test_handler_can_shield_what_it_must_finish(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)
        ended = []

        async def work() -> bytes:
            await anyio.sleep(0.7)
            ended.append("work")
            return b""

        async def answer(_: bytes) -> bytes:
            if sniffio.current_async_library() == "asyncio":
                return await asyncio.shield(work())
            with anyio.CancelScope(shield=True):
                await work()
            return b""

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(server.aserve, answer)
                with pytest.raises(pipework.TimedOut):
                    await client.acall(b"", timeout=0.05)
                while not ended:
                    await anyio.sleep(0.01)
                server.stop()

    run(scenario)


def test_aserve_raises_the_failure_of_its_server(run: Run) -> None:
    async def scenario() -> None:
        server = Server(Segment.anonymous(slots=2))

        async def answer(_: bytes) -> bytes:
            return b""

        async def failing() -> AsyncIterator[object]:
            raise pipework.Closed
            yield

        class Failing(Server):
            def __aiter__(self) -> AsyncIterator[Any]:
                return failing()

        with server, Failing(server.segment) as other, pytest.raises(pipework.Closed):
            await other.aserve(answer)

    run(scenario)


def test_children(run: Run) -> None:
    program = "import pipework.atomic as a; print('loading', flush=True); a.Writer.stdout(mixed=True).send(b'done')"

    async def scenario() -> None:
        async with pipework.Workers(*[[sys.executable, "-c", program]] * 2) as workers:
            came = [item async for item in workers]
        assert [type(item) for item in came].count(atomic.Line) == 2
        assert [item.data for item in came if isinstance(item, atomic.Message)] == [b"done"] * 2
        assert workers.returncodes == [0, 0]
        async with pipework.Workers(["sleep", "100"]) as workers:
            pass
        assert workers.returncodes == [-signal.SIGTERM]

    run(scenario)


def test_streams(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)

        async def serve() -> None:
            with await server.arecv(timeout=SOON) as request:
                for number in range(200):
                    assert await request.asend_part(b"%d" % number, timeout=SOON)
                await request.areply(b"")

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            assert [part async for part in client.astream(b"", timeout=SOON)] == [b"%d" % number for number in range(200)]

    run(scenario)


def test_batches(run: Run) -> None:
    async def scenario() -> None:
        with Segment.anonymous() as segment, Client(segment) as client, Server(segment) as server:
            tickets = client.send_many([b"1", b"2", b"3"])
            began = time.monotonic()
            taken = await server.arecv_many(5, timeout=SOON, linger=0.05)
            assert [request.data for request in taken] == [b"1", b"2", b"3"] and time.monotonic() - began > 0.04
            for request in taken:
                request.reply(b"-" + request.data)
            assert [await client.arecv(ticket, timeout=SOON) for ticket in tickets] == [b"-1", b"-2", b"-3"]
            with pytest.raises(pipework.TimedOut):
                await server.arecv_many(5, timeout=0.01, linger=0.05)
            with pytest.raises(pipework.TimedOut):
                await client.acall(b"1", timeout=0.01)

    run(scenario)


def test_messages_and_bytes(run: Run) -> None:
    async def scenario() -> None:
        reader, writer = atomic.pair()
        out, into = pipe(10)
        with reader, writer, out, into:
            sent = [bytes(300_000), b"small"] * 50

            async def send() -> None:
                for data in sent:
                    await writer.asend(data, timeout=SOON)
                await writer.aflush(timeout=SOON)
                writer.close()
                await into.asend(b"all of it, in pieces", timeout=SOON)
                into.close()

            async with anyio.create_task_group() as group:
                group.start_soon(send)
                assert await reader.arecv(timeout=SOON) == sent[0]
                assert [item.data async for item in reader if isinstance(item, atomic.Message)] == sent[1:]
                taken = b""
                while piece := await out.arecv(7, timeout=SOON):
                    taken += piece
                assert taken == b"all of it, in pieces"

    run(scenario)


def test_every_awaitable_ends_at_its_timeout(run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(Segment.anonymous(slots=64))
        reader, writer = atomic.pair()
        out, into = pipe(10)
        writer.try_send(bytes(1_000_000))
        stream = client.stream(b"")
        request = server.recv()
        request.send_part(b"")
        calls: dict[str, Callable[[float], Awaitable[object]]] = {
            "reqrep call": lambda seconds: client.acall(b"", timeout=seconds),
            "reqrep recv": lambda seconds: client.arecv(client.send(b""), timeout=seconds),
            "reqrep stream": lambda seconds: anext(client.astream(b"", timeout=seconds)),
            "reqrep part": lambda seconds: request.asend_part(b"", timeout=seconds),
            "atomic flush": lambda seconds: writer.aflush(timeout=seconds),
            "atomic send": lambda seconds: writer.asend(b"", timeout=seconds),
            "pipe recv": lambda seconds: out.arecv(1, timeout=seconds),
            "pipe send": lambda seconds: into.asend(bytes(11), timeout=seconds),
        }
        with client, server, reader, writer, out, into, contextlib.ExitStack() as stack:
            stack.callback(writer.discard)
            for seconds in (0.02, 0, math.inf):
                for op, call in calls.items():
                    if seconds == math.inf:
                        with anyio.move_on_after(0.01):
                            await call(seconds)
                        continue
                    began = time.monotonic()
                    with pytest.raises(pipework.TimedOut, match=op) as raised:
                        await call(seconds)
                    assert seconds * 0.9 <= time.monotonic() - began < SOON
                    if op == "pipe send":
                        assert raised.value.done == 10
                        out.try_recv()
                    server.clear()
            server.clear()
            with pytest.raises(pipework.TimedOut):
                await server.arecv(timeout=0.01)
            request.fail()
            with pytest.raises(pipework.RemoteError):
                list(stream)

    run(scenario)


def test_result_that_came_in_time_beats_the_timeout(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)
        thread = threading.Thread(target=lambda: [request.reply(b"in time") for request in server])
        thread.start()
        assert {await client.acall(b"", timeout=5.0) for _ in range(100)} == {b"in time"}
        server.stop()
        thread.join()

    run(scenario)


def test_cancelled_task_takes_nothing(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)
        for seconds in (0.0, 0.001, 0.01):
            with anyio.move_on_after(seconds):
                await server.arecv()
                raise AssertionError("nothing was sent")
            with anyio.move_on_after(seconds):
                await client.acall(b"without a server")
                raise AssertionError("no server answers")
            server.clear()
        request = None
        with anyio.CancelScope() as scope:
            scope.cancel()
            client.send(b"hello")
            request = await server.arecv()  # asyncio cancels where something is waited for
        with request or await server.arecv(timeout=SOON) as request:
            assert request.data == b"hello"

    run(scenario)


def test_close_in_another_thread_ends_the_wait(segment: Segment, run: Run) -> None:
    async def scenario() -> None:
        client, server = ends(segment)
        reader, _writer = atomic.pair()
        for wait, end in ((client.acall(b""), client), (server.arecv(), server), (reader.arecv(), reader)):
            closer = after(0.05, end.close)
            with pytest.raises(pipework.Invalid, match="closed"):
                await wait
            closer.join()

    run(scenario)


def full_atomic() -> tuple[Any, Any]:
    reader, writer = atomic.pair()
    writer.try_send(bytes(1_000_000))
    return writer, reader


def full_pipe() -> tuple[Any, Any]:
    reader, writer = pipe(1)
    writer.write(b"x")
    return writer, reader


def served() -> tuple[Any, Any]:
    client, server = ends(Segment.anonymous(slots=64))
    return client, server


def taking() -> tuple[Any, Any]:
    client, server = served()
    return server, client


Waits = Callable[[Any], Awaitable[object]]
WAITS: dict[str, tuple[Callable[[], tuple[Any, Any]], Waits, int]] = {
    # How to make the end and its peer, how to wait at it, and how many tasks may do so.
    "pipe arecv": (pipe, lambda end: end.arecv(), 2),
    "pipe asend": (lambda: pipe(1)[::-1], lambda end: end.asend(b"more than it holds"), 1),
    "pipe asend when full": (full_pipe, lambda end: end.asend(b"x"), 2),
    "atomic arecv": (atomic.pair, lambda end: end.arecv(), 2),
    "atomic anext_item": (atomic.pair, lambda end: end.anext_item(), 2),
    "atomic iteration": (atomic.pair, lambda end: anext(end.__aiter__()), 1),
    "atomic asend": (full_atomic, lambda end: end.asend(b"x"), 2),
    "atomic aflush": (full_atomic, lambda end: end.aflush(), 2),
    "client acall": (served, lambda end: end.acall(b""), 5),
    "client acall_message": (served, lambda end: end.acall_message(b""), 5),
    "client arecv": (served, lambda end: end.arecv(end.send(b"")), 5),
    "client astream": (served, lambda end: anext(end.astream(b"")), 5),
    "client as_completed": (served, lambda end: (end.send(b""), anext(end.as_completed().__aiter__()))[1], 5),
    "server arecv": (taking, lambda end: end.arecv(), 5),
    "server arecv_many": (taking, lambda end: end.arecv_many(5), 5),
    "server iteration": (taking, lambda end: anext(end.__aiter__()), 5),
}
CLOSES: dict[str, Callable[[Any], object]] = {
    "close": lambda end: end.close(timeout=0) if isinstance(end, atomic.Writer) else end.close(),
    "finish": lambda end: end.finish(),
    "close_with_error": lambda end: end.close_with_error(ValueError("why")),
}


CASES = [
    *((wait, "close") for wait in WAITS),
    *((wait, "close_with_error") for wait in WAITS if wait.startswith("pipe")),
    *((wait, "finish") for wait in WAITS if wait.startswith("pipe asend")),
]


@pytest.mark.parametrize("place", ["in the same task", "in a thread"])
@pytest.mark.parametrize("wait, close", CASES)
def test_closing_an_end_wakes_every_task_that_waits_at_it(wait: str, place: str, close: str, run: Run) -> None:
    make, waits, count = WAITS[wait]
    end, other = make()

    async def scenario() -> None:
        ended: list[BaseException] = []

        async def one() -> None:
            try:
                await waits(end)
            except (pipework.Invalid, StopAsyncIteration, pipework.Closed) as error:
                ended.append(error)

        def shut() -> None:
            with contextlib.suppress(pipework.TimedOut):  # what is pending does not fit
                CLOSES[close](end)

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(one)
                await anyio.sleep(0.01)
                assert not ended
                if place == "in a thread":
                    await anyio.to_thread.run_sync(shut)
                else:
                    shut()
        assert len(ended) == count

    run(scenario)
    CLOSES["close"](other)


def test_closing_the_peer_wakes_the_task_that_waits(run: Run) -> None:
    async def scenario() -> None:
        for wait, (make, waits, _) in WAITS.items():
            if "pipe" in wait or "atomic" in wait:
                end, other = make()
                with anyio.fail_after(SOON):
                    async with anyio.create_task_group() as group:
                        group.start_soon(closing, other)
                        with contextlib.suppress(pipework.Closed, StopAsyncIteration):
                            await waits(end)
                with contextlib.suppress(pipework.Closed):
                    end.close()

    async def closing(other: Any) -> None:
        await anyio.sleep(0.001)
        other.close()

    run(scenario)


# ---------------------------------------------------------------- trio's own checks of streams


class Sends(trio.abc.SendStream):
    """A writer as one of trio's streams."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._busy = trio._util.ConflictDetector("another task is sending")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._busy, translated():
            if not data:
                await trio.lowlevel.checkpoint()
                self._writer.try_send(b"")
            await self._writer.asend(data)

    async def wait_send_all_might_not_block(self) -> None:
        with self._busy, translated():
            await self._writer.asend(b"")
            await trio.lowlevel.checkpoint()
            self._writer.try_send(b"")

    async def aclose(self) -> None:
        self._writer.finish()
        await trio.lowlevel.checkpoint()


class Receives(trio.abc.ReceiveStream):
    """A reader as one of trio's streams."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._busy = trio._util.ConflictDetector("another task is receiving")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None and max_bytes < 1:
            raise ValueError("max_bytes must be 1 or more")
        with self._busy, translated():
            return await self._reader.arecv(max_bytes or 4096)

    async def aclose(self) -> None:
        self._reader.close()
        await trio.lowlevel.checkpoint()


@contextlib.contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except (pipework.Closed, pipework.Failed) as error:
        raise trio.BrokenResourceError from error
    except pipework.Invalid as error:
        raise trio.ClosedResourceError from error


def test_pipe_passes_trios_checks_of_streams() -> None:
    async def one_way() -> tuple[Sends, Receives]:
        reader, writer = pipe(100)
        return Sends(writer), Receives(reader)

    async def two_way() -> tuple[Any, Any]:
        (here, there), (back, forth) = await one_way(), await one_way()
        return trio.StapledStream(here, forth), trio.StapledStream(back, there)

    async def scenario() -> None:
        with trio.fail_after(SOON):
            await trio.testing.check_one_way_stream(one_way, None)
            await trio.testing.check_two_way_stream(two_way, None)

    trio.run(scenario)


def test_tasks_of_several_loops_share_a_client(run: Run) -> None:
    """Each thread has a loop of its own, and its tasks share an inbox."""
    with Segment.anonymous(slots=64) as segment:

        async def scenario() -> None:
            async def some() -> None:
                for number in range(20):
                    assert await client.acall(b"%d" % number, timeout=SOON) == b"%d" % number

            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(some)

        with Client(segment) as client, Server(segment) as server:
            serving = threading.Thread(target=lambda: [request.reply(request.data) for request in server])
            threads = [threading.Thread(target=run, args=(scenario,)) for _ in range(3)]
            for thread in [serving, *threads]:
                thread.start()
            for thread in threads:
                thread.join()
            server.stop()
            serving.join()


def test_awaitable_without_a_loop_raises_runtime_error() -> None:
    with Segment.anonymous() as segment, Client(segment) as client:
        call = client.acall(b"")
        with pytest.raises(RuntimeError, match="no running event loop"):
            call.send(None)


# ---------------------------------------------------------------- waiting for a server


def test_client_waits_for_a_server(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    servers: list[Any] = []
    thread = after(0.2, lambda: servers.append(Server(path)))
    began = time.monotonic()
    with Client(path, connect_timeout=SOON) as client:
        assert 0.15 < time.monotonic() - began < SOON / 2
        thread.join()
        ticket = client.send(b"hello")
        servers[0].recv().reply(b"")
        assert client.recv(ticket) == b""
    servers[0].close()


def test_client_raises_timed_out_if_no_server_comes(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    for make in (lambda: None, lambda: Segment.create(path).close()):
        make()  # type: ignore[no-untyped-call]
        for seconds in (0, 0.1):
            with pytest.raises(pipework.TimedOut, match="there is no server yet") as raised:
                Client(path, connect_timeout=seconds)
            assert raised.value.filename == str(path)
    with Segment(path) as segment, pytest.raises(pipework.TimedOut):
        Client(segment, connect_timeout=0.01)
    with pytest.raises(FileNotFoundError):
        Client(tmp_path / "none")
    (tmp_path / "text").write_text("no segment")
    with pytest.raises(pipework.Incompatible):
        Client(tmp_path / "text", connect_timeout=SOON)


def test_client_finds_a_new_segment_at_the_path(tmp_path: Path) -> None:
    """An old segment without servers may still lie at the path."""
    path = tmp_path / "segment"
    Server(path, slots=2).close()

    def restart() -> None:
        Segment(path).unlink()
        servers.append(Server(path, slots=3))

    servers: list[Server] = []
    thread = after(0.1, restart)
    with Client(path, connect_timeout=SOON) as client:
        assert client.segment.geometry.slots == 3
    thread.join()
    servers[0].close()
