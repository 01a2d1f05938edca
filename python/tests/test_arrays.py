"""numpy's arrays through each module, and views of memory without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pipework
import pytest
from pipework import atomic
from pipework.pipe import pipe
from pipework.reqrep import Segment
from processes import PART, ends
from support import SOON

# To type checkers, an array is a buffer from Python 3.12 on.
MATRIX: Any = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_call_takes_and_returns_arrays(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(MATRIX)
    with server.recv() as request:
        array = np.frombuffer(request.data, np.float32).reshape(3, 4)
        assert (array == MATRIX).all()
        request.reply((MATRIX.T * 2).copy())
    reply = np.frombuffer(client.recv(ticket), np.float32).reshape(4, 3)
    assert (reply == MATRIX.T * 2).all()
    client.close()


def test_call_into_and_recv_into_fill_arrays(segment: Segment) -> None:
    client, server = ends(segment)
    here, there = np.zeros_like(MATRIX), np.zeros_like(MATRIX)
    ticket = client.send(MATRIX)
    with server.claim() as request:
        assert request.size == request.recv_into(there) == MATRIX.nbytes
        there += 1
        request.reply(there)
    assert client.recv_into(ticket, here, timeout=SOON) == MATRIX.nbytes and (here == MATRIX + 1).all()
    client.close()


def test_atomic_and_pipe_take_arrays() -> None:
    reader, writer = atomic.pair()
    byte_reader, byte_writer = pipe()
    with reader, writer, byte_reader, byte_writer:
        there = np.zeros_like(MATRIX)
        writer.send(MATRIX)
        assert reader.recv_into(there) == MATRIX.nbytes and (there == MATRIX).all()
        there[:] = 0
        assert byte_writer.write(MATRIX) == byte_reader.readinto(there) == MATRIX.nbytes
        assert (there == MATRIX).all()


def test_non_contiguous_arrays_are_refused(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"")
    with server.recv() as request:
        for scattered in (MATRIX.T, MATRIX[:, 1:], memoryview(b"abcd")[::2]):
            with pytest.raises((BufferError, ValueError), match="contiguous"):
                client.send(scattered)
            with pytest.raises((BufferError, ValueError), match="contiguous"):
                request.reply(scattered)
        request.reply(MATRIX[1:])
    assert client.recv(ticket) == MATRIX[1:].tobytes()
    client.close()


def test_view_copies_nothing(segment: Segment) -> None:
    client, server = ends(segment)
    for take in (server.recv, server.claim):
        ticket = client.send(b"0123456789")
        with take() as request:
            view, again = request.view(), request.view()
            assert request.size == len(view) == 10 and view.readonly and bytes(view[2:4]) == b"23"
            assert view.obj is again.obj is request.data
            array = np.frombuffer(view, np.uint8)
            assert not array.flags.owndata and not array.flags.writeable
            request.reply(view[5:])
        # It stays when all else has gone.
        assert client.recv(ticket) == b"56789" and bytes(view) == array.tobytes() == b"0123456789"
    client.close()


def test_view_and_read_into_take_a_long_claimed_request(segment: Segment) -> None:
    client, server = ends(segment)
    data = bytes(range(2 * PART))
    ticket = client.send(data)
    with server.claim(timeout=SOON) as request:
        assert request.size == len(data)
        with pytest.raises(pipework.TooLong):
            request.recv_into(bytearray(len(data) - 1))
        buffer = bytearray(len(data))
        assert request.recv_into(buffer) == len(data) and buffer == data == bytes(request.view())
        request.reply(b"done")
    assert client.recv(ticket) == b"done"
    client.close()


def test_view_after_the_reply_fails(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"1")
    request = server.claim()
    request.reply(b"")
    for use in (request.view, lambda: request.size):
        with pytest.raises(pipework.Invalid, match="answered already"):
            use()
    client.recv(ticket)
    client.close()
