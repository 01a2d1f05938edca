"""Module `reqrep` leaves nothing behind: no memory, no references. (Descriptors: conftest.py, for
every test.)"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pipework
import pytest
from leaks import leaves_nothing
from pipework.reqrep import Client, Segment
from processes import all_free, ends
from test_leaks import OPERATIONS


def operations() -> dict[str, Callable[[], object]]:
    segment = Segment.anonymous()
    client, server = ends(segment)
    large, large_server = ends(Segment.anonymous(slots=1, request_bytes=100_000, reply_bytes=100_000))
    data, much = bytes(200), bytearray(100_000)

    def echo() -> None:
        ticket = client.send(data)
        request = server.recv()
        request.reply(request.data, flags=1)
        client.recv_message(ticket)

    def echo_much() -> None:
        ticket = large.send(much)
        large_server.recv().reply(much)
        large.recv(ticket)

    def dropped() -> None:
        ticket = client.send(data)
        server.drain(1)
        with pytest.raises(pipework.Failed):
            client.recv(ticket)

    def timed_out() -> None:
        with pytest.raises(TimeoutError):
            client.call(data, timeout=0)
        server.try_recv()

    return {
        "echo": echo,
        "echo of much": echo_much,
        "nothing there": lambda: (server.try_recv(), server.drain(5), client.pending),
        "numbers": lambda: (segment.geometry, segment.stats(), segment.audit(), segment.members()),
        "error: dropped": dropped,
        "error: timed out": timed_out,
    }


@pytest.mark.parametrize("name", list(operations()))
def test_many_operations_leave_nothing(name: str) -> None:
    operation = operations()[name]
    rounds = OPERATIONS if name in ("echo", "nothing there") else OPERATIONS // 20
    leaves_nothing(operation, rounds)


def test_ends_release_their_resources() -> None:
    segment = Segment.anonymous(members=4)
    client, server = ends(segment)

    def once() -> None:
        other = Client(segment)
        ticket = other.send(bytes(100))
        request = server.recv()
        del other
        assert not request.reply(b"") or ticket
        own = Segment.anonymous(slots=2)
        ends(own)

    leaves_nothing(once, 500, 4 << 20)
    assert all_free(segment) and len(segment.members()) == 2 and client.pending == 0


def test_reference_counts_stay_the_same() -> None:
    client, server = ends(Segment.anonymous())
    data, buffer = bytes(100), bytearray(100)
    objects = (data, buffer, client, server, client.segment)
    counts = [sys.getrefcount(each) for each in objects]
    for _ in range(10):
        tickets = [client.send(data), client.send(buffer)]
        for request in server.drain(5):
            request.reply(data)
            with pytest.raises(ValueError):
                request.reply(buffer)
        for ticket in tickets:
            client.recv(ticket)
        with server.recv() if client.try_send(data) else request:
            pass
        iter(server)
    assert [sys.getrefcount(each) for each in objects] == counts
