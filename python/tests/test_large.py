"""Large payloads: other threads go on while they are copied, and nothing is copied more often than
it must be."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pipework import atomic
from pipework.pipe import pipe
from pipework.reqrep import Segment
from processes import ends

SIZE = 32 << 20


@pytest.fixture
def steps_of_others() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Runs something, and says how often another thread got the interpreter lock meanwhile: never,
    unless it was given away."""
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.0001)

    def steps(work: Callable[[], object]) -> int:
        before = counted
        work()
        return counted - before

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    sys.setswitchinterval(100)  # no thread is asked to release it
    try:
        yield steps
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


def test_other_threads_run_while_a_large_payload_is_copied(steps_of_others: Callable[[Callable[[], object]], int]) -> None:
    client, server = ends(Segment.anonymous(slots=2, request_bytes=SIZE, reply_bytes=SIZE))
    data = bytes(SIZE)
    others = [0] * 4
    for _ in range(3):  # a busy machine may leave the others out once, and not each time
        requests: list[Any] = []
        tickets: list[Any] = []
        replies: list[object] = []
        others[0] += steps_of_others(lambda: tickets.append(client.try_send(data)))
        others[1] += steps_of_others(lambda: requests.append(server.try_recv()))
        others[2] += steps_of_others(lambda: requests[0].reply(requests[0].data))
        others[3] += steps_of_others(lambda: replies.append(client.try_recv(tickets[0])))
        assert replies == [data]
    assert all(others), others

    async def in_tasks() -> None:
        calling = asyncio.create_task(client.acall(data))
        request = await server.arecv()
        request.reply(request.data)
        assert await calling == data

    assert steps_of_others(lambda: asyncio.run(in_tasks())) > 4
    sends: list[object] = []
    reader, writer = pipe(SIZE)
    assert steps_of_others(lambda: sends.append(writer.try_send(data))) > 0
    assert steps_of_others(lambda: sends.append(reader.try_recv(SIZE))) > 0
    assert sends == [SIZE, data]


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this interpreter has no lock to keep")
def test_call_with_a_small_payload_keeps_the_lock(steps_of_others: Callable[[Callable[[], object]], int]) -> None:
    """Only the actual size of a payload decides whether the call releases the lock: with a busy
    thread beside it, the call gets the lock back milliseconds later."""
    client, server = ends(Segment.anonymous(slots=2, request_bytes=1 << 20, reply_bytes=1 << 20))
    ticket = client.send(b"request")

    def poll() -> None:
        for _ in range(30_000):
            assert client.try_recv(ticket) is None

    def serve() -> None:
        for _ in range(10_000):
            small = client.try_send(b"request")
            assert small is not None
            request = server.try_recv()
            assert request is not None and server.try_recv() is None and server.drain(9) == []
            request.reply(b"reply")
            assert client.try_recv(small) == b"reply"

    assert steps_of_others(poll) == 0
    with server.recv():
        assert steps_of_others(serve) == 0


def test_large_message_is_received_without_the_lock(steps_of_others: Callable[[Callable[[], object]], int]) -> None:
    reader, writer = atomic.pair()
    thread = threading.Thread(target=lambda: writer.send(bytes(SIZE)))
    thread.start()
    assert steps_of_others(lambda: reader.recv()) > 0
    thread.join()


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_asend_copies_the_data_once(kind: type[bytes | bytearray]) -> None:
    async def seconds(pieces: int) -> float:
        reader, writer = pipe()
        data = kind(SIZE // pieces)

        async def send() -> None:
            with writer:
                for _ in range(pieces):
                    await writer.asend(data)

        began = time.monotonic()
        sending = asyncio.create_task(send())
        total = 0
        while taken := await reader.arecv():
            total += len(taken)
        await sending
        assert total == SIZE
        return time.monotonic() - began

    async def main() -> None:
        in_pieces = min([await seconds(512) for _ in range(2)])
        in_one = min([await seconds(1) for _ in range(2)])
        assert in_one < in_pieces * 5

    asyncio.run(main())
