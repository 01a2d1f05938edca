"""Module `pipe`: a raw stream of `io`, and the wrappers around it."""

from __future__ import annotations

import asyncio
import csv
import gc
import http.client
import http.server
import io
import json
import os
import shutil
import sys
import tarfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipework
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipework.pipe import CAPACITY, Reader, Writer, pipe
from support import SOON, Alarm, after, signal_after


def test_the_ends_are_raw_streams() -> None:
    reader, writer = pipe(100)
    assert isinstance(reader, io.RawIOBase) and isinstance(writer, io.RawIOBase)
    assert (reader.readable(), reader.writable(), reader.seekable()) == (True, False, False)
    assert (writer.readable(), writer.writable(), writer.seekable()) == (False, True, False)
    assert (reader.capacity, writer.capacity, CAPACITY) == (100, 100, 65536)
    for end in (reader, writer):
        with pytest.raises(io.UnsupportedOperation):
            end.fileno()
        assert not end.isatty() and not end.closed
    assert writer.write(b"hello") == 5
    assert (reader.buffered, writer.buffered) == (5, 5)
    buffer = bytearray(3)
    assert reader.readinto(buffer) == 3 and buffer == b"hel"
    assert reader.read(0) == b""
    assert reader.read(10) == b"lo"
    writer.close()
    assert writer.closed and reader.peer_closed
    assert (reader.read(), reader.read(5), reader.readinto(buffer), reader.recv()) == (b"", b"", 0, b"")
    with pytest.raises(ValueError):
        writer.write(b"x")
    reader.close()
    with pytest.raises(ValueError):
        reader.read(1)
    with pytest.raises(ValueError):
        pipe(0)


def test_threads_transfer_bytes() -> None:
    data = os.urandom(1_000_000)
    for capacity, step in ((1, 7), (1000, 333), (CAPACITY, 100_000)):
        size = len(data) if capacity > 1 else 2000
        reader, writer = pipe(capacity)

        def produce() -> None:
            with writer:
                for at in range(0, size, step):
                    writer.write(memoryview(data)[at : min(at + step, size)])

        producer = after(0, produce)
        assert reader.read() == data[:size]
        producer.join()


def test_write_without_a_reader_raises_closed() -> None:
    reader, writer = pipe()
    reader.close()
    assert writer.peer_closed
    for call in (writer.write, writer.send, writer.try_send):
        with pytest.raises(BrokenPipeError):
            call(b"x")


def test_closing_wakes_the_other_end() -> None:
    reader, writer = pipe(10)
    closer = after(0.05, reader.close)
    with pytest.raises(BrokenPipeError) as raised:
        writer.write(bytes(100))
    assert isinstance(raised.value, pipework.Closed) and raised.value.done == 10
    closer.join()
    reader, writer = pipe()
    closer = after(0.05, writer.close)
    assert reader.read(10) == b""
    closer.join()


def test_closing_in_another_thread_ends_a_wait() -> None:
    reader, writer = pipe(10)
    closer = after(0.05, reader.close)
    with pytest.raises(ValueError, match="is closed"):
        reader.read(1)
    closer.join()
    reader, writer = pipe(10)
    closer = after(0.05, lambda: writer.close_with_error(KeyError("why")))
    with pytest.raises(ValueError, match="is closed"):
        writer.write(bytes(100))
    closer.join()
    assert reader.read(10) == bytes(10)
    with pytest.raises(KeyError):
        reader.read(10)


def test_calls_end_at_their_timeout() -> None:
    reader, writer = pipe(10)
    for call in (lambda: reader.recv(1, timeout=0.01), lambda: reader.readinto(bytearray(1), timeout=0)):
        with pytest.raises(TimeoutError):
            call()
    assert reader.try_recv() is None
    with pytest.raises(TimeoutError) as raised:
        writer.send(bytes(100), timeout=0.3)
    assert isinstance(raised.value, pipework.TimedOut) and raised.value.done == 10
    assert writer.try_send(b"x") is None
    with pytest.raises(TimeoutError):
        writer.send(b"x", timeout=0.01)
    assert reader.try_recv(4) == bytes(4)
    assert writer.try_send(b"123456") == 4
    assert reader.recv() == bytes(6) + b"1234"
    assert writer.try_send(b"12") == 2
    writer.send(b"")
    assert (writer.write(b""), writer.try_send(b""), reader.recv(0), reader.try_recv(0)) == (0, 0, b"", b"")


def test_reader_raises_the_writers_exception_without_growing_its_traceback() -> None:
    reader, writer = pipe()

    def fail() -> None:
        raise RuntimeError("the disk is full")

    try:
        with writer:
            writer.write(b"half")
            fail()
    except RuntimeError as error:
        failure = error
    assert writer.closed
    assert reader.read(10) == b"half"
    lengths = set()
    for call in (lambda: reader.read(1), lambda: reader.readinto(bytearray(1)), lambda: reader.try_recv(), reader.readall) * 3:
        with pytest.raises(RuntimeError) as raised:
            call()
        assert raised.value is failure
        names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert "fail" in names
        lengths.add(len(names))
    assert max(lengths) < 10


def test_writer_gets_the_readers_exception() -> None:
    reader, writer = pipe(10)
    with pytest.raises(ZeroDivisionError), reader:
        1 / 0
    for call in (writer.write, writer.send, writer.try_send):
        with pytest.raises(ZeroDivisionError):
            call(b"x")
    for wrong in ("text", RuntimeError):
        with pytest.raises(TypeError):
            pipe()[0].close_with_error(wrong)  # type: ignore[arg-type]


def test_text_json_and_csv_go_through_a_pipe() -> None:
    rows = [[str(row), "käse,"] for row in range(5000)]

    def produce(writer: Writer) -> None:
        with io.TextIOWrapper(io.BufferedWriter(writer), "utf-8", newline="") as text:
            csv.writer(text).writerows(rows)

    reader, writer = pipe(1000)
    producer = after(0, lambda: produce(writer))
    with io.TextIOWrapper(io.BufferedReader(reader), "utf-8", newline="") as text:
        assert list(csv.reader(text)) == rows
    producer.join()

    def dump(writer: Writer) -> None:
        # Directly too, as nothing is written in part.
        with io.TextIOWrapper(writer, "utf-8", write_through=True) as text:  # type: ignore[type-var]
            json.dump(rows, text)

    reader, writer = pipe()
    producer = after(0, lambda: dump(writer))
    assert json.load(reader) == rows
    producer.join()


def test_tar_archive_streams_through_a_pipe(tmp_path: Path) -> None:
    files = {f"file{number}": os.urandom(30_000) for number in range(20)}

    def produce(writer: Writer) -> None:
        with writer, tarfile.open(fileobj=writer, mode="w|gz") as archive:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    reader, writer = pipe(8192)
    producer = after(0, lambda: produce(writer))
    found = {}
    with tarfile.open(fileobj=reader, mode="r|gz") as archive:
        for member in archive:
            extracted = archive.extractfile(member)
            assert extracted is not None
            found[member.name] = extracted.read()
    reader.read()  # the bytes behind the last file, or the writer would get an error
    producer.join()
    assert found == files


def test_copyfileobj_loses_nothing() -> None:
    data = os.urandom(500_000)
    reader, writer = pipe(1000)

    def produce() -> None:
        with writer:
            shutil.copyfileobj(io.BytesIO(data), writer)

    producer = after(0, produce)
    target = io.BytesIO()
    shutil.copyfileobj(reader, target)
    producer.join()
    assert target.getvalue() == data


def test_http_body_streams_through_a_pipe() -> None:
    got: list[tuple[str, int]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            size = 0
            while line := int(self.rfile.readline(), 16):
                size += len(self.rfile.read(line))
                self.rfile.readline()
            got.append((self.headers["Transfer-Encoding"], size))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = after(0, server.handle_request)
        reader, writer = pipe()

        def produce() -> None:
            with writer:
                for number in range(20_000):
                    writer.write(b"%d," % number)

        producer = after(0, produce)
        client = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=SOON)
        client.request("PUT", "/", body=reader, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        assert client.getresponse().status == 204
        client.close()
        producer.join()
        serving.join()
    assert got == [("chunked", len(",".join(map(str, range(20_000)))) + 1)]


def test_copies_between_pipe_and_descriptors_lose_nothing(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    source = tmp_path / "source"
    source.write_bytes(data)
    reader, writer = pipe(1000)
    with source.open("rb") as file, (tmp_path / "target").open("wb") as target:

        def produce() -> None:
            with writer:
                assert writer.copy_from_fd(file.fileno(), count=1000) == 1000
                assert writer.copy_from_fd(file.fileno()) == 299_000

        producer = after(0, produce)
        assert reader.copy_to_fd(target.fileno(), count=5) == 5
        assert reader.copy_to_fd(target.fileno(), timeout=SOON) == 299_995
        producer.join()
    assert (tmp_path / "target").read_bytes() == data
    reader, writer = pipe(1000)
    read, write = os.pipe()
    try:
        os.write(write, b"12345")
        with pytest.raises(TimeoutError) as raised:
            writer.copy_from_fd(read, timeout=0.3)
        assert isinstance(raised.value, pipework.TimedOut) and raised.value.done == 5
        with pytest.raises(pipework.Invalid):
            reader.copy_to_fd(-1)
        assert reader.recv() == b"12345"
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("name", ["read", "readinto", "readall", "write", "send", "copy_from_fd", "copy_to_fd"])
def test_signal_handlers_run_in_every_wait(name: str) -> None:
    reader, writer = pipe(10)
    full_reader, full = pipe(10)
    full.write(bytes(10))
    read, write = os.pipe()
    waits: dict[str, Callable[[], object]] = {
        "read": lambda: reader.read(1),
        "readinto": lambda: reader.readinto(bytearray(1)),
        "readall": reader.readall,
        "write": lambda: full.write(b"x" * 100),
        "send": lambda: full.send(b"x"),
        "copy_from_fd": lambda: writer.copy_from_fd(read),
        "copy_to_fd": lambda: reader.copy_to_fd(write),
    }
    with pytest.raises(Alarm), signal_after(0.05):
        waits[name]()
    os.close(read)
    os.close(write)
    del full_reader


def test_waiting_end_releases_the_lock() -> None:
    reader, writer = pipe(10)
    waiter = after(0, lambda: reader.read(1))
    time.sleep(0.05)  # would not end if the thread that reads kept the lock
    writer.write(b"x")
    waiter.join(SOON)
    assert not waiter.is_alive()
    waiter = after(0, lambda: writer.write(bytes(100)))
    time.sleep(0.05)
    assert len(io.BufferedReader(reader).read(100)) == 100
    waiter.join()


@pytest.mark.parametrize("wrong", [5, [1], "text", None])
def test_tasks_can_send_only_bytes(wrong: Any) -> None:
    async def main() -> None:
        reader, writer = pipe()
        for send in (writer.write, writer.send, writer.try_send):
            with pytest.raises(TypeError):
                send(wrong)
        with pytest.raises(TypeError):
            await writer.asend(wrong)
        await writer.asend(memoryview(b"-right")[1:])
        assert reader.buffered == 5

    asyncio.run(main())


def test_tasks_and_threads_share_a_pipe() -> None:
    async def work() -> None:
        data = os.urandom(200_000)
        # A task on either side.
        reader, writer = pipe(1000)

        async def produce() -> None:
            await writer.asend(data)
            writer.close()

        async def consume(reader: Reader) -> bytes:
            return b"".join([piece async for piece in aiter_pieces(reader)])

        producer = asyncio.create_task(produce())
        assert await consume(reader) == data
        await producer
        # A thread writes, a task reads.
        reader, writer = pipe(1000)

        def write(writer: Writer) -> None:
            with writer:
                writer.write(data)

        thread = after(0, lambda: write(writer))
        assert await consume(reader) == data
        thread.join()
        # A task writes, a thread reads.
        reader, writer = pipe(1000)
        got: list[bytes] = []
        thread = after(0, lambda: got.append(reader.readall()))
        await produce_into(writer, data)
        thread.join()
        assert got == [data]

    async def produce_into(writer: Writer, data: bytes) -> None:
        await writer.asend(data)
        writer.close()

    async def aiter_pieces(reader: Reader) -> Any:
        while piece := await reader.arecv(700):
            yield piece

    asyncio.run(asyncio.wait_for(work(), SOON))


def test_cancelled_task_takes_nothing() -> None:
    async def work() -> None:
        reader, writer = pipe()
        for attempt in range(20):
            task = asyncio.create_task(reader.arecv())
            for _ in range(attempt % 3):
                await asyncio.sleep(0)
            writer.write(b"%d" % attempt)
            task.cancel()
            try:
                assert await task == b"%d" % attempt
            except asyncio.CancelledError:
                assert await reader.arecv() == b"%d" % attempt

    asyncio.run(asyncio.wait_for(work(), SOON))


def test_task_gets_the_exception_of_the_other_end() -> None:
    async def work() -> None:
        reader, writer = pipe()
        task = asyncio.create_task(reader.arecv())
        await asyncio.sleep(0.01)
        writer.close_with_error(LookupError("gone"))
        with pytest.raises(LookupError):
            await task

    asyncio.run(asyncio.wait_for(work(), SOON))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.lists(st.one_of(st.binary(max_size=30), st.integers(0, 30)), max_size=40))
def test_pipe_behaves_as_a_queue_of_bytes(capacity: int, steps: list[bytes | int]) -> None:
    reader, writer = pipe(capacity)
    with reader, writer:
        held = bytearray()
        for step in steps:
            if isinstance(step, bytes):
                put = writer.try_send(step)
                space = capacity - len(held)
                assert put == (min(space, len(step)) if space or not step else None)
                held += step[: put or 0]
            else:
                got = reader.try_recv(step)
                assert got == (bytes(held[:step]) if held or not step else None)
                del held[:step]
            assert reader.buffered == len(held)


def test_many_pipes_and_bytes_leave_nothing() -> None:
    def once() -> None:
        reader, writer = pipe(100)
        for _ in range(20):
            writer.write(b"x" * 50)
            reader.read(100)
        writer.close_with_error(RuntimeError())

    for _ in range(300):
        once()
    gc.collect()
    blocks, threads = sys.getallocatedblocks(), threading.active_count()
    for _ in range(5000):
        once()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 500
    assert threading.active_count() <= threads


def test_errors_name_the_function_that_was_called() -> None:
    reader, writer = pipe()
    with pytest.raises(pipework.TimedOut, match="^pipe recv: the deadline has passed$") as raised:
        reader.recv(timeout=0)
    assert raised.value.op == "pipe recv"
    with pytest.raises(pipework.TimedOut, match="^pipe recv: "):
        reader.readinto(bytearray(1), timeout=0)
    writer.close()
    reader.close()
