"""Nothing is left behind by many of each thing that this package makes: handles, calls, streams,
tasks, records, children. `--many` makes a hundred thousand of each, but for processes."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Iterator

import pipework
import pytest
from leaks import leaves_nothing
from pipework import atomic, fd
from pipework.logging import Listener
from pipework.pipe import pipe, produce
from pipework.reqrep import Client, Segment, Server
from processes import ends, running, stop_helpers
from support import SOON

DATA = bytes(3000)
pytestmark = pytest.mark.long("a thousand of each thing")


@pytest.fixture
def rounds(pytestconfig: pytest.Config) -> int:
    return 100_000 if pytestconfig.getoption("many") else 1000


def pipe_ends() -> None:
    reader, writer = pipe(8192)
    with reader, writer:
        writer.send(DATA)
        reader.recv()


def pipe_ends_that_fail() -> None:
    reader, writer = pipe()
    writer.close_with_error(ValueError("half"))
    with pytest.raises(ValueError):
        reader.read(1)
    reader.close()


def a_stream_of_a_function() -> None:
    with produce(lambda writer: writer.write(DATA)) as reader:
        assert len(reader.read()) == len(DATA)


def atomic_ends() -> None:
    reader, writer = atomic.pair(mixed=True, zstd=1)
    with reader, writer, writer.clone() as other, reader.clone():
        other.send(DATA)
        reader.next_item()
        writer.enqueue(DATA)


def torn_messages() -> None:
    read, write = os.pipe()
    with atomic.Writer(write) as writer:
        writer.send(bytes(5000))
    whole = os.read(read, 5000)
    os.close(read)
    read, write = os.pipe()
    os.write(write, whole[:4096])
    os.close(write)
    with atomic.Reader(read) as reader:
        assert isinstance(reader.next_item(), atomic.Torn)


def descriptors() -> None:
    here, there = fd.socketpair(1, 1)
    fd.write_all(here, DATA)
    assert fd.read_full(there, len(DATA)) == DATA
    fd.close(here)
    fd.close(there)


def a_segment_and_its_ends() -> None:
    with Segment.anonymous(slots=2, members=4) as segment, Client(segment) as client, Server(segment) as server:
        client.fileno(), server.fileno()
        client.send(DATA[:10])
        client.send(DATA[:10])
        server.recv()


def a_segment_and_its_blobs() -> None:
    with Segment.anonymous(slots=2, members=4, blob_pool=8192) as segment, segment.blob(5000) as unused:
        memoryview(unused)[:3000] = DATA
        blobs = [segment.blob_from(DATA) for _ in range(4)]
        assert memoryview(blobs[3]) == DATA


HANDLES = [
    pipe_ends,
    pipe_ends_that_fail,
    atomic_ends,
    torn_messages,
    a_segment_and_its_ends,
    a_segment_and_its_blobs,
    a_stream_of_a_function,
]


@pytest.mark.parametrize("operation", HANDLES)
def test_handles(operation: Callable[[], None], rounds: int) -> None:
    leaves_nothing(operation, rounds)


def test_descriptors(rounds: int) -> None:
    leaves_nothing(descriptors, rounds)


class Calls:
    """Operations with a client and a server in one thread."""

    def __init__(self, segment: Segment) -> None:
        self.client, self.server = ends(segment)

    def claimed_and_looked_at(self) -> None:
        ticket = self.client.send(DATA[:60])
        with self.server.claim() as request:
            request.reply(request.view()[1:])
        self.client.recv(ticket)

    def kept(self) -> None:
        ticket = self.client.send(b"")
        number = self.server.recv().keep()
        again = self.server.kept(number)
        assert again is not None and again.reply(b"")
        self.client.recv(ticket)

    def failed_for_a_reason(self) -> None:
        ticket = self.client.send(b"")
        self.server.recv().fail("a reason")
        with pytest.raises(pipework.RemoteError):
            self.client.recv(ticket)

    def cancelled_and_forgotten(self) -> None:
        ticket = self.client.send(b"")
        self.client.forget(self.client.send(b""))
        self.client.cancel(ticket)
        self.client.post(b"")
        for request in self.server.drain(3):
            request.reply(b"")

    def streams(self) -> None:
        with self.client.stream(b"") as stream, self.server.recv() as request:
            request.send_part(b"one")
            next(stream)
            request.reply(b"two")
            next(stream)

    def streams_left_early(self) -> None:
        stream = self.client.stream(b"")
        with self.server.recv() as request:
            request.send_part(b"one")
            next(stream)
            del stream
            assert not request.flush(timeout=SOON)

    def as_they_come(self) -> None:
        self.client.send_many([b"a", b"b"])
        for request in self.server.recv_many(2):
            request.reply(request.data)
        for _, outcome in self.client.as_completed(timeout=SOON):
            outcome.result()


CALLS = [name for name in vars(Calls) if not name.startswith("_")]


@pytest.mark.parametrize("name", CALLS)
def test_calls(segment: Segment, name: str, rounds: int) -> None:
    calls = Calls(segment)
    leaves_nothing(getattr(calls, name), rounds)
    calls.client.close()


def halves(data: bytes) -> Iterator[bytes]:
    yield data[:5]
    if not data:
        raise ValueError("no data")
    yield data[5:]


def test_handlers_in_threads(segment: Segment, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = ends(segment)
    monkeypatch.setattr(logging.getLogger("pipework"), "disabled", True)
    # Long messages are blobs, and the process keeps the files of the most that existed at once. That
    # number depends on the threads, so more of them exist beforehand.
    blobs = [segment.blob_from(DATA) for _ in range(8)]
    blobs.clear()

    def call() -> None:
        assert client.call(DATA[:200], timeout=SOON) == DATA[:200]
        with pytest.raises(pipework.RemoteError):
            client.call(b"", timeout=SOON)

    with running(server, functools.partial(server.serve, halves, threads=2)):
        leaves_nothing(call, rounds)
    client.close()


def test_tasks(segment: Segment, rounds: int) -> None:
    client, server = ends(segment)

    async def echo(data: bytes) -> bytes:
        return data

    async def some(count: int) -> None:
        for _ in range(count):
            assert len(await client.acall(DATA[:200])) == 200
            with pytest.raises(TimeoutError):
                await server.arecv(timeout=0)
            call = asyncio.ensure_future(client.acall(b""))
            await asyncio.sleep(0)
            call.cancel()

    async def main() -> None:
        serving = asyncio.ensure_future(server.aserve(echo, limit=2))
        loop = asyncio.get_running_loop()

        def one() -> None:
            asyncio.run_coroutine_threadsafe(some(10), loop).result(SOON)

        await asyncio.to_thread(leaves_nothing, one, rounds // 10)
        server.stop()
        await serving

    asyncio.run(main())
    client.close()


def test_records_of_a_log(rounds: int) -> None:
    class Nowhere(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            pass

    with Listener(Nowhere()) as listener:
        handler = listener.handler()
        record = logging.makeLogRecord({"msg": "number %d", "args": (1,), "more": [1]})
        leaves_nothing(lambda: handler.handle(record), rounds)
        assert handler.lost == 0

        def another() -> None:
            other = listener.handler()
            other.handle(record)
            other.close()

        leaves_nothing(another, rounds)
        handler.close()


def test_tasks_of_an_executor(rounds: int) -> None:
    with pipework.Executor(2) as executor:

        def some() -> None:
            assert sum(executor.map(abs, range(100), buffersize=20)) == 4950
            with pytest.raises(ValueError):
                executor.submit(int, "x").result(SOON)
            assert executor.submit(len, bytes(50_000)).result(SOON) == 50_000

        leaves_nothing(some, rounds // 100)
    stop_helpers()


def test_executors_and_children(pytestconfig: pytest.Config) -> None:
    with pipework.Executor(1) as executor:
        executor.submit(abs, -1).result(SOON)

    def one() -> None:
        with pipework.Executor(1) as executor:
            executor.submit(abs, -1).result(SOON)
        assert pipework.run(["echo", "hello"]).lines == ["hello"]

    leaves_nothing(one, 300 if pytestconfig.getoption("many") else 10)
    stop_helpers()
