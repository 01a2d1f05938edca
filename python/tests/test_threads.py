"""Threads that use one object at the same time: each method of each class, and what two threads must
never see of each other. A CPython without the interpreter lock runs them at once; elsewhere
`--switch-interval 1e-6` comes close.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty, Full
from typing import Any

import pytest
from pipework import Closed, Error, Executor, Invalid, Stale, TimedOut, WouldBlock, atomic, fd, multiprocessing
from pipework import logging as pipework_logging
from pipework import pipe as pipes
from pipework.reqrep import Blob, BlobMut, Client, Request, Segment, Server, Stream, Ticket
from processes import serving, stop_helpers
from support import SOON

ROUNDS = 100
"""How often each thread calls its method."""


def together(*works: Callable[[], object], rounds: int = ROUNDS) -> None:
    """Does each of them in a thread of its own, again and again, and all at the same time. Fails if
    one of them raises, or does not end."""
    start = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait()
            for _ in range(rounds):
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * SOON)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "it hangs"


def but_for(kind: type[BaseException] | tuple[type[BaseException], ...], work: Callable[[], object]) -> Callable[[], object]:
    """The same, but that exception is right: another thread was first."""

    def run() -> None:
        try:
            work()
        except kind:
            pass

    return run


def closing(number: int) -> None:
    """Closes a descriptor that a method has returned."""
    os.close(number)


def append(results: list[Any], work: Callable[[], object]) -> None:
    results.append(work())


def finish(work: Callable[[], Any]) -> Callable[[], object]:
    """Runs a coroutine on an event loop of this thread."""

    async def run() -> object:
        return await work()

    return lambda: asyncio.run(run())


def reduced(object: object) -> object:
    """What pickle takes of it."""
    return object.__reduce__()


def covers(kind: type, *works: dict[str, Any], others: str = "") -> None:
    """Checks that every public name of a class is used, or named with those that others use."""
    used = {name.split()[0] for each in works for name in each} | set(others.split())
    missing = {name for name in dir(kind) if not name.startswith("_")} - used
    assert not missing, f"{kind.__name__} has more: {sorted(missing)}"


# ---------------------------------------------------------------- every method


@pytest.fixture
def ends() -> Iterator[tuple[Segment, Client, Server]]:
    """A segment with a client, and a server that answers what comes."""
    with Segment.anonymous(slots=64, members=64) as segment, Client(segment, timeout=SOON) as client:
        with Server(segment) as server:
            threads = [serving(server, answer) for _ in range(2)]
            yield segment, client, server
            server.stop()
            for thread in threads:
                thread.join()


def answer(request: Request) -> None:
    request.reply(request.data, flags=1)


def test_methods_of_a_client_run_at_once(ends: tuple[Segment, Client, Server]) -> None:
    segment, client, _ = ends
    buffers = [bytearray(100) for _ in range(2)]

    def cancel() -> None:
        if not client.cancel(ticket := client.send(b"x")):
            client.recv(ticket)

    def try_recv(receive: Callable[[Any], object]) -> None:
        ticket = client.send(b"x")
        while receive(ticket) is None:
            pass

    async def parts(stream: Any) -> list[Any]:
        return [part async for part in stream]

    works: dict[str, Callable[[], object]] = {
        "call": lambda: client.call(b"x" * 50_000),
        "call_message": lambda: client.call_message(b"x"),
        "call_into": lambda: client.call_into(b"x", buffers[0]),
        "send": lambda: client.recv(client.send(b"x")),
        "recv_message": lambda: client.recv_message(client.send(b"x")),
        "recv_into": lambda: client.recv_into(client.send(b"x"), buffers[1]),
        "send_many": lambda: [client.recv(ticket) for ticket in client.send_many([b"x", b"y"])],
        "try_send": lambda: (ticket := client.try_send(b"x")) and client.recv(ticket),
        "try_recv": lambda: try_recv(client.try_recv),
        "try_recv_message": lambda: try_recv(client.try_recv_message),
        "post": lambda: client.post(b"x"),
        "forget": lambda: client.forget(client.send(b"x")),
        "cancel": cancel,
        "stream": lambda: list(client.stream(b"x")),
        "stream_messages": lambda: list(client.stream_messages(b"x")),
        "acall": finish(lambda: client.acall(b"x")),
        "acall_message": finish(lambda: client.acall_message(b"x")),
        "arecv": finish(lambda: client.arecv(client.send(b"x"))),
        "arecv_message": finish(lambda: client.arecv_message(client.send(b"x"))),
        "astream": finish(lambda: parts(client.astream(b"x"))),
        "astream_messages": finish(lambda: parts(client.astream_messages(b"x"))),
        "doorbell": lambda: closing(client.doorbell()),
        "send_doorbell": lambda: closing(client.send_doorbell()),
        "fileno": client.fileno,
        "pending": lambda: (client.pending, client.timeout, client.redeliveries, client.needs_server, client.closed),
        "segment": lambda: (client.segment, client.max_in_flight, client.max_message, repr(client), reduced(client)),
        "close": lambda: Client(segment).close(),
    }
    covers(Client, works, others="codec recv as_completed timeout redeliveries needs_server max_in_flight max_message closed")
    together(*works.values(), rounds=30)
    assert client.pending == 0


def test_threads_share_the_calls_of_a_client(ends: tuple[Segment, Client, Server]) -> None:
    _, client, _ = ends
    done: list[bytes] = []

    def send() -> None:
        for number in range(2 * ROUNDS):
            client.send(b"%d" % number)

    def receive() -> None:
        while len(done) < 4 * ROUNDS:
            done.extend(outcome.result() for _, outcome in client.as_completed())

    together(send, send, receive, receive, rounds=1)
    assert sorted(done) == sorted([b"%d" % number for number in range(2 * ROUNDS)] * 2)


def test_methods_of_a_server_run_at_once() -> None:
    with Segment.anonymous(slots=64, members=64) as segment, Client(segment) as client, Server(segment) as server:
        taken: list[Request] = []

        def keep() -> None:
            if (request := server.try_recv()) is not None:
                back = server.kept(request.keep())
                assert back is not None
                taken.append(back)

        def one(request: Request | None) -> None:
            if request is not None:
                taken.append(request)

        def post() -> None:
            with contextlib.suppress(TimedOut):
                client.post(b"x", timeout=0)
                client.post(b"x" * 10_000, timeout=0)

        def reply() -> None:
            while taken:
                with contextlib.suppress(IndexError):
                    taken.pop().reply(b"x")

        async def same(data: bytes) -> bytes:
            return data

        soon = 0.001
        works: dict[str, Callable[[], object]] = {
            "recv": but_for(TimedOut, lambda: one(server.recv(timeout=soon))),
            "try_recv": lambda: one(server.try_recv()),
            "claim": but_for(TimedOut, lambda: one(server.claim(timeout=soon))),
            "recv_many": but_for(TimedOut, lambda: taken.extend(server.recv_many(4, timeout=soon, linger=soon))),
            "drain": lambda: taken.extend(server.drain(2)),
            "clear": server.clear,
            "kept": keep,
            "adopt": but_for(Stale, lambda: server.adopt(Ticket(1 << 40))),
            "arecv": but_for(TimedOut, finish(lambda: server.arecv(timeout=soon))),
            "arecv_many": but_for(TimedOut, finish(lambda: server.arecv_many(2, timeout=soon, linger=soon))),
            "doorbell": lambda: closing(server.doorbell()),
            "fileno": server.fileno,
            "segment": lambda: (server.segment, server.timeout, server.max_message, server.part_timeout, server.closed),
            "repr": lambda: (repr(server), reduced(server)),
            "handler": lambda: server.handler(bytes.upper),
            "post": post,
            "reply": reply,
        }
        covers(Server, works, others="timeout max_message part_timeout closed stop close serve aserve serve_batches")
        together(*works.values(), rounds=50)
        loops: list[Callable[[], object]] = [lambda: list(server), server.serve, lambda: server.serve_batches(list)]
        ends = [threading.Thread(target=work) for work in [*loops, finish(lambda: server.aserve(same))]]
        for thread in ends:
            thread.start()
        together(*[but_for(Invalid, server.stop)] * 2, *[but_for(Invalid, server.close)] * 2, rounds=3)
        for thread in ends:
            thread.join(SOON)
        assert not any(thread.is_alive() for thread in ends)
        taken.clear()


def test_methods_of_a_segment_run_at_once(ends: tuple[Segment, Client, Server]) -> None:
    segment, client, _ = ends
    works: dict[str, Callable[[], object]] = {
        "blob": lambda: segment.blob(100).close(),
        "blob_from": lambda: segment.blob_from(b"x" * 100).tobytes(),
        "stats": segment.stats,
        "blob_stats": segment.blob_stats,
        "members": segment.members,
        "audit": segment.audit,
        "recover": segment.recover,
        "sync": segment.sync,
        "fileno": segment.fileno,
        "unlink": but_for(Invalid, segment.unlink),
        "waiting": lambda: (segment.waiting, segment.path, segment.geometry, segment.closed, repr(segment)),
        "create": lambda: Segment.anonymous(slots=1).close(),
        "memfd": lambda: Segment.memfd("test", slots=1).close(),
        "from_fd": lambda: Segment.from_fd(os.dup(segment.fileno())).close(),
        "call": lambda: client.call(b"x", blobs=[segment.blob_from(b"x")]),
    }
    covers(Segment, works, others="path geometry closed close open anonymous")
    together(*works.values(), rounds=30)
    other = Segment.anonymous()
    together(*[other.close] * 2, lambda: other.closed, lambda: repr(other), but_for(Invalid, other.fileno))


def test_methods_of_a_request_run_at_once() -> None:
    with Segment.anonymous(slots=8) as segment, Client(segment) as client, Server(segment) as server:
        for take in (server.recv, server.claim):
            for end in ("reply", "fail", "keep", "areply"):
                ticket = client.send(b"x" * 1000, blobs=[segment.blob_from(b"y")])
                request = take()
                buffers = iter([bytearray(1000) for _ in range(ROUNDS)])
                # A request that is answered has no bytes left in the segment.
                works: dict[str, Callable[[], object]] = {
                    "size": but_for(Invalid, lambda: request.size),
                    "data": but_for(Invalid, lambda: request.data),
                    "view": but_for(Invalid, lambda: request.view()),
                    "recv_into": but_for(Invalid, lambda: request.recv_into(next(buffers))),
                    "flags": lambda: (request.flags, request.blobs, request.redeliveries, request.ticket, repr(request)),
                    "wanted": lambda: request.wanted,
                    "detach": lambda: request.detach(),
                    "fail": request.fail if end == "fail" else request.detach,
                    "reply": but_for(Invalid, lambda: end == "reply" and request.reply(b"z")),
                    "keep": but_for(Invalid, lambda: end == "keep" and request.keep()),
                    "areply": but_for(Invalid, lambda: end == "areply" and finish(lambda: request.areply(b"z"))()),
                    "flush": but_for(Invalid, lambda: request.flush(timeout=0)),
                }
                covers(Request, works, others="blobs redeliveries ticket send_part asend_part")
                together(*works.values(), rounds=20)
                with contextlib.suppress(Error):
                    client.cancel(ticket)
                del request


def test_methods_of_blobs_run_at_once() -> None:
    with Segment.anonymous() as segment:
        draft, other = segment.blob(1000), segment.blob(1000)
        drafts: dict[str, Callable[[], object]] = {
            "nbytes": lambda: (draft.nbytes, len(draft), draft.closed, repr(draft)),
            "buffer": but_for(BufferError, lambda: memoryview(draft).release()),
            "freeze": but_for((BufferError, Invalid), lambda: draft.freeze().tobytes()),
            "close": other.close,
            "other": but_for(BufferError, lambda: memoryview(other).release()),
        }
        covers(BlobMut, drafts, others="closed")
        together(*drafts.values(), *drafts.values())
        blob = segment.blob_from(b"x" * 1000)
        blobs: dict[str, Callable[[], object]] = {
            "tobytes": blob.tobytes,
            "check": blob.check,
            "nbytes": lambda: (blob.nbytes, len(blob), blob.is_copied, repr(blob)),
            "buffer": lambda: bytes(memoryview(blob)[10:20]),
        }
        covers(Blob, blobs, others="is_copied")
        together(*blobs.values(), *blobs.values())


def test_only_one_thread_freezes_a_draft() -> None:
    with Segment.anonymous() as segment:
        for _ in range(ROUNDS):
            frozen: list[Blob] = []
            freeze = segment.blob(10).freeze
            together(*[but_for(Invalid, partial(append, frozen, freeze))] * 3, rounds=1)
            assert len(frozen) == 1


def test_methods_of_atomic_ends_run_at_once() -> None:
    reader, writer = atomic.pair(mixed=True, spin=0)
    buffer = bytearray(100)
    soon = 0.001

    def writing() -> None:
        with contextlib.suppress(WouldBlock):  # something is pending
            writer.mixed = True
        writer.zstd = writer.zstd
        writer.max_pending = 1 << 20
        writer.capacity = writer.capacity

    def reading() -> None:
        reader.mixed = reader.mixed
        reader.zstd = reader.zstd
        reader.read_size = 1 << 16
        reader.keep_compressed = False
        reader.capacity = reader.capacity
        reader.exact = 0

    writes: dict[str, Callable[[], object]] = {
        "send": but_for(TimedOut, lambda: writer.send(b"x", timeout=soon)),
        "try_send": lambda: writer.try_send(b"x"),
        "send_many": but_for(TimedOut, lambda: writer.send_many([b"x", b"y" * 5000], timeout=soon)),
        "enqueue": lambda: writer.enqueue(b"x"),
        "burst": but_for(TimedOut, lambda: writer.burst(b"x", timeout=soon)),
        "try_burst": lambda: writer.try_burst(b"x"),
        "fits_in_burst": lambda: writer.fits_in_burst(b"x"),
        "flush": but_for(TimedOut, lambda: writer.flush(timeout=soon)),
        "try_flush": writer.try_flush,
        "discard": writer.discard,
        "asend": but_for(TimedOut, finish(lambda: writer.asend(b"x", timeout=soon))),
        "aflush": but_for(TimedOut, finish(lambda: writer.aflush(timeout=soon))),
        "clone": but_for(TimedOut, lambda: writer.clone().close(timeout=0)),
        "pending": lambda: (writer.pending, writer.key, writer.pipe_buf, writer.max_part, writer.is_printing),
        "fileno": lambda: (writer.fileno(), writer.closed, repr(writer)),
        "settings": writing,
    }
    covers(atomic.Writer, writes, others="key pipe_buf max_part is_printing mixed zstd max_pending capacity closed close fifo stdout")

    reads: dict[str, Callable[[], object]] = {
        "recv": but_for(Error, lambda: reader.recv(timeout=soon)),
        "try_recv": but_for(Error, reader.try_recv),
        "recv_into": but_for(Error, lambda: reader.recv_into(buffer, timeout=soon)),
        "next_item": but_for(TimedOut, lambda: reader.next_item(timeout=soon)),
        "try_next_item": reader.try_next_item,
        "anext_item": but_for(TimedOut, finish(lambda: reader.anext_item(timeout=soon))),
        "arecv": but_for(Error, finish(lambda: reader.arecv(timeout=soon))),
        "peek": reader.peek,
        "next_timeout": reader.next_timeout,
        "read_ahead": but_for(TimedOut, lambda: reader.read_ahead(timeout=soon)),
        "wait_eof": but_for(TimedOut, lambda: reader.wait_eof(timeout=soon)),
        "has_other_reader": reader.has_other_reader,
        "buffered": lambda: (reader.buffered, reader.eof, reader.fileno(), reader.closed, repr(reader)),
        "clone": lambda: reader.clone().close(),
        "settings": reading,
    }
    covers(
        atomic.Reader,
        reads,
        others="eof fileno closed messages read_size exact mixed zstd keep_compressed capacity close fifo listen stdin",
    )
    together(*writes.values(), *reads.values(), rounds=30)
    gone = (Error, ValueError)
    together(
        *[but_for((TimedOut, Closed), lambda: writer.close(timeout=soon))] * 2,
        *[reader.close] * 2,
        *[but_for(gone, work) for work in (writes["pending"], reads["buffered"], writer.try_flush)],
        rounds=3,
    )


def test_methods_of_a_byte_pipe_run_at_once() -> None:
    reader, writer = pipes.pipe(1000)
    buffer = bytearray(10)
    (read_out, read_in), soon = os.pipe(), 0.001
    works: dict[str, Callable[[], object]] = {
        "send": but_for(TimedOut, lambda: writer.send(b"x" * 10, timeout=soon)),
        "try_send": lambda: writer.try_send(b"x" * 2000),
        "asend": but_for(TimedOut, finish(lambda: writer.asend(b"x", timeout=soon))),
        "copy_from_fd": but_for(Error, lambda: writer.copy_from_fd(read_out, count=1, timeout=soon)),
        "capacity": lambda: (writer.capacity, writer.buffered, writer.peer_closed, writer.closed, repr(writer)),
        "recv": but_for(TimedOut, lambda: reader.recv(10, timeout=soon)),
        "try_recv": lambda: reader.try_recv(10),
        "arecv": but_for(TimedOut, finish(lambda: reader.arecv(timeout=soon))),
        "readinto": but_for(TimedOut, lambda: reader.readinto(buffer, timeout=soon)),
        "copy_to_fd": but_for(Error, lambda: reader.copy_to_fd(read_in, count=1, timeout=soon)),
        "buffered": lambda: (reader.capacity, reader.buffered, reader.peer_closed, reader.closed, repr(reader)),
    }
    together(*works.values(), rounds=50)
    together(*[writer.close] * 2, *[reader.close] * 2, *[lambda: reader.closed] * 2, rounds=2)
    os.close(read_out)
    os.close(read_in)
    for _ in range(ROUNDS):
        reader, writer = pipes.pipe()
        writer.write(b"x")
        with_error = partial(writer.close_with_error, RuntimeError("an error"))
        together(but_for(RuntimeError, reader.readall), writer.finish, writer.close, with_error, rounds=1)
        reader.close()


def test_methods_of_descriptors_run_at_once() -> None:
    near, far = fd.socketpair(fd.AF_UNIX, fd.SOCK_DGRAM)
    inbox, reserve = fd.Inbox(4, max_bytes=10), fd.Reserve()
    listener = fd.socket(fd.AF_UNIX, fd.SOCK_STREAM | fd.SOCK_NONBLOCK)
    fd.bind(listener, b"\0pipework threads %d" % os.getpid())
    fd.listen(listener, 4)
    together(
        *[but_for(TimedOut, lambda: inbox.recv(far, timeout=0.001))] * 2,
        lambda: fd.send_many(near, [(b"x", None)]),
        *[lambda: reserve.shed(listener, 1)] * 2,
        lambda: reserve.held,
        lambda: fd.accept_many(listener, 1),
        lambda: fd.poll([(far, fd.POLLIN)], timeout=0),
        rounds=30,
    )
    together(*[reserve.close] * 3, rounds=1)
    for number in (near, far, listener):
        fd.close(number)


# ---------------------------------------------------------------- what one thread must not see of another


def test_threads_read_a_claimed_request_at_once() -> None:
    with Segment.anonymous() as segment, Client(segment) as client, Server(segment) as server:
        client.post(b"x" * 1000)
        request = server.claim()
        buffers = [bytearray(1000) for _ in range(3)]
        looks: list[Callable[[], object]] = [lambda: request.size, lambda: request.data, request.view]
        together(*looks, *looks, *[partial(request.recv_into, buffer) for buffer in buffers], rounds=1000)
        assert request.data == bytes(buffers[0]) == b"x" * 1000
        request.reply(b"")


def test_reply_succeeds_while_threads_read_the_request() -> None:
    with Segment.anonymous() as segment, Client(segment) as client, Server(segment) as server:
        for _ in range(ROUNDS):
            ticket = client.send(b"x" * 1000)
            request = server.claim()
            look = but_for(Invalid, partial(getattr, request, "size"))
            together(look, look, partial(request.reply, b"y"), rounds=1)
            assert client.recv(ticket) == b"y"


def test_try_recv_finds_a_message_while_threads_read_properties() -> None:
    reader, writer = atomic.pair()
    with reader, writer:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                _ = reader.buffered, reader.read_size, writer.pending

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for number in range(10 * ROUNDS):
                assert writer.try_send(b"%d" % number)
                assert reader.try_recv() == b"%d" % number
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_pickle_of_a_writer_has_the_setting_that_was_made_last() -> None:
    reader, writer = atomic.pair()
    with reader, writer:

        def set_to(value: int) -> Callable[[], None]:
            return lambda: setattr(writer, "max_pending", value)

        for _ in range(ROUNDS):
            together(set_to(1000), set_to(2000), set_to(3000), rounds=3)
            with pickle.loads(pickle.dumps(writer)) as copy:
                assert copy.max_pending == writer.max_pending
    stop_helpers()


def test_stream_ends_for_every_thread_that_iterates() -> None:
    with Segment.anonymous() as segment, Client(segment) as client, Server(segment) as server:

        def answer_in_parts(request: Request) -> None:
            for part in (b"1", b"2", b"3"):
                request.send_part(part)
            request.reply(b"")

        thread = serving(server, answer_in_parts)
        took: list[float] = []
        for _ in range(ROUNDS):
            parts: list[bytes] = []
            stream = client.stream(b"x", timeout=SOON)
            began = time.monotonic()
            together(*[partial(parts.extend, stream)] * 3, rounds=1)
            took.append(time.monotonic() - began)
            assert sorted(parts) == [b"1", b"2", b"3"]
            assert isinstance(stream, Stream)
        # The end wakes all of them: one that it left out would wait for 250 ms, each time.
        assert min(took) < 0.2
        server.stop()
        thread.join()


def test_parts_that_threads_send_all_come() -> None:
    with Segment.anonymous() as segment, Client(segment) as client, Server(segment) as server:
        sent: list[bool] = []

        def answer_in_parts(request: Request) -> None:
            sends: list[Callable[[], bool]] = [
                partial(request.send_part, b"x", timeout=SOON),
                lambda: asyncio.run(request.asend_part(b"x", timeout=SOON)),
            ]
            # One that finds another at work is refused.
            together(*[but_for(Invalid, partial(append, sent, send)) for send in sends] * 2, rounds=20)
            request.reply(b"")

        thread = serving(server, answer_in_parts)
        parts = list(client.stream(b"", timeout=SOON))
        assert parts == [b"x"] * len(sent)
        assert all(sent)
        server.stop()
        thread.join()


def test_each_message_comes_to_one_of_the_threads_that_iterate() -> None:
    reader, writer = atomic.pair()
    with reader:
        messages, received = reader.messages(), list[bytes]()

        def send() -> None:
            with writer:
                writer.send_many([b"%d" % number for number in range(10 * ROUNDS)])

        together(*[lambda: received.extend(messages), lambda: received.extend(reader.messages())] * 2, send, rounds=1)
        assert sorted(received) == sorted(b"%d" % number for number in range(10 * ROUNDS))


def test_threads_receive_into_one_buffer() -> None:
    with Segment.anonymous() as segment, Client(segment) as client, Server(segment) as server:
        thread = serving(server, answer)
        buffer = bytearray(1000)

        def change() -> None:
            buffer[:500] = buffer[500:]

        together(
            *[lambda: client.call_into(b"x" * 1000, buffer)] * 2, change, lambda: client.call(buffer), lambda: segment.blob_from(buffer)
        )
        assert set(buffer) == set(b"x")
        server.stop()
        thread.join()


def test_log_counts_each_record_that_is_lost() -> None:
    reader, writer = atomic.pair()
    reader.close()
    handler = pipework_logging.Handler(writer)
    record = logging.LogRecord("name", logging.INFO, __file__, 1, "text", None, None)
    together(*[lambda: handler.handle(record)] * 4, rounds=3000)
    assert handler.lost == 12000
    handler.close()


def test_listener_handles_the_records_of_threads_until_one_of_them_stops_it() -> None:
    for _ in range(20):
        records: list[logging.LogRecord] = []

        class Keep(logging.Handler):
            def emit(self, record: logging.LogRecord, records: list[logging.LogRecord] = records) -> None:
                records.append(record)

        listener = pipework_logging.Listener(Keep())
        together(*[but_for(RuntimeError, listener.start)] * 2, rounds=2)
        record = logging.LogRecord("name", logging.INFO, __file__, 1, "text", None, None)

        def log() -> None:
            handler = listener.handler()
            handler.handle(record)
            handler.close()

        together(log, log, partial(listener.handle, record), rounds=10)
        together(*[listener.stop] * 3, rounds=2)
        assert len(records) == 30


def test_first_use_of_a_queue_by_threads_attaches_one_end_each() -> None:
    for _ in range(20):
        queue: Any = multiprocessing.get_context("spawn").Queue()
        together(*[partial(queue.put, 1)] * 3, *[partial(queue.get, timeout=SOON)] * 3, rounds=1)
        roles = sorted(member.role for member in queue._channel._segment.members())
        assert roles == ["client", "server"]
        queue.close()


def test_threads_share_an_executor() -> None:
    with Executor(2) as executor:
        executor.submit(abs, 0).result()
        numbers = itertools.count()

        def submit() -> None:
            number = next(numbers)
            assert executor.submit(abs, -number).result(SOON) == number

        def cancel() -> None:
            executor.submit(abs, -1).cancel()

        def several() -> None:
            assert list(executor.map(abs, [-1, -2, -3], timeout=SOON)) == [1, 2, 3]

        together(submit, submit, several, cancel)
    stop_helpers()


def test_executor_ends_every_task_of_threads_when_one_of_them_ends_it() -> None:
    for end in ("shutdown", "terminate_workers", "cancel_futures"):
        executor = Executor(2)
        executor.submit(abs, 0).result(SOON)
        futures: list[concurrent.futures.Future[int]] = []

        def submit() -> None:
            futures.append(executor.submit(abs, -1))

        ends: dict[str, Callable[[], object]] = {
            "shutdown": executor.shutdown,
            "terminate_workers": executor.terminate_workers,
            "cancel_futures": partial(executor.shutdown, cancel_futures=True),
        }
        submits = but_for(RuntimeError, submit)
        together(submits, submits, *[ends[end]] * 2)
        for future in futures:
            with contextlib.suppress(concurrent.futures.CancelledError, concurrent.futures.BrokenExecutor):
                assert future.result(SOON) == 1
        executor.shutdown()
    stop_helpers()


def test_methods_of_queues_run_at_once() -> None:
    context: Any = multiprocessing.get_context("spawn")
    for queue in (context.Queue(4), context.JoinableQueue(4), context.SimpleQueue()):
        got: list[int] = []
        looks: list[Callable[[], object]] = [queue.empty, partial(repr, queue)]
        if hasattr(queue, "qsize"):
            looks += [queue.qsize, queue.full, but_for(Empty, queue.get_nowait), but_for(Full, partial(queue.put_nowait, 1))]

        def get(queue: Any = queue, got: list[int] = got) -> None:
            got.append(queue.get())
            if hasattr(queue, "task_done"):
                queue.task_done()

        together(*[partial(queue.put, 1)] * 2, *[get] * 2, *looks[:2])
        assert got == [1] * 2 * ROUNDS
        if hasattr(queue, "join"):
            together(*[queue.join] * 3, rounds=1)
        together(*looks)
        together(*[queue.close] * 3)
        if hasattr(queue, "join_thread"):
            together(*[queue.join_thread] * 3)


def test_methods_of_a_connection_run_at_once() -> None:
    context: Any = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    got: list[Any] = []
    together(
        *[partial(here.send, b"x" * 300_000)] * 2,
        *[partial(here.send_bytes, pickle.dumps(b"y" * 300_000))] * 2,
        *[lambda: got.append(there.recv())] * 4,
        lambda: there.poll(0),
        lambda: (here.fileno(), here.closed, here.readable, repr(here)),
        rounds=30,
    )
    assert sorted(got) == [b"x" * 300_000] * 60 + [b"y" * 300_000] * 60
    together(*[here.close] * 3, *[there.close] * 3, but_for(OSError, here.fileno), rounds=5)


def test_threads_that_close_a_connection_at_once_close_its_socket_once(monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = multiprocessing.get_context("spawn")
    end, _other = context.Pipe()
    first_is_inside, others_are_done = threading.Event(), threading.Event()
    closes: list[socket.socket] = []
    close_socket = socket.socket.close

    def close(self: socket.socket) -> None:
        if self is not end._socket:
            return close_socket(self)
        closes.append(self)
        if len(closes) == 1:
            first_is_inside.set()
            others_are_done.wait(SOON)
        return close_socket(self)

    monkeypatch.setattr(socket.socket, "close", close)
    first = threading.Thread(target=end.close)
    first.start()
    assert first_is_inside.wait(SOON)
    end.close()
    others_are_done.set()
    first.join(SOON)
    assert not first.is_alive()
    assert len(closes) == 1
    assert end.closed


def test_methods_of_a_pool_run_at_once() -> None:
    context: Any = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        together(
            lambda: pool.apply(abs, (-1,)),
            lambda: pool.map(abs, range(-5, 0)),
            lambda: list(pool.imap(abs, range(-5, 0))),
            lambda: list(pool.imap_unordered(abs, range(-5, 0))),
            lambda: pool.map_async(abs, range(-5, 0)).get(SOON),
            lambda: repr(pool),
            rounds=20,
        )
        together(*[pool.close] * 3, rounds=3)
        together(*[pool.join] * 3, *[pool.terminate] * 2, rounds=2)
    stop_helpers()
