"""Requests and replies of any size, and copied into buffers."""

from __future__ import annotations

import os
import time

import pipework
import pytest
from pipework.reqrep import Client, Segment, Server
from processes import PART, ends, serving
from support import SOON, Alarm, signal_after


def test_try_send_and_try_recv_take_long_messages(segment: Segment) -> None:
    client, server = ends(segment)
    data = os.urandom(1000)
    ticket = client.try_send(data, flags=3)
    assert ticket is not None
    request = server.try_recv()
    assert request is not None and request.data == data and request.flags == 3
    assert request.reply(data[1:])
    assert client.try_recv(ticket) == data[1:]
    client.close()


def test_max_message_limits_requests_and_replies_of_both_ends(segment: Segment) -> None:
    client, server = Client(segment, max_message=200), Server(segment, max_message=150)
    for call in (client.call, client.send):
        with pytest.raises(pipework.TooLong, match="201 bytes, and the client's max_message is 200"):
            call(bytes(201))
    thread = serving(server, lambda request: pytest.raises(pipework.TooLong, request.reply, bytes(151)))
    with pytest.raises(pipework.RemoteError, match="longer than the server's max_message") as raised:
        client.call(bytes(190), timeout=SOON)
    assert raised.value.reason == str(raised.value).encode()
    with pytest.raises(pipework.RemoteError):
        client.call(b"short", timeout=SOON)
    server.close()
    thread.join()
    other = Server(segment)
    thread = serving(other, lambda request: request.reply(bytes(300)))
    with pytest.raises(pipework.TooLong, match=r"larger than the limit$"):
        client.call(b"short", timeout=SOON)
    other.close()
    thread.join()
    for end in (Client, Server):
        with pytest.raises(pipework.Invalid, match="max_message must be"):
            end(segment, max_message=-1)
    options = {"timeout": 3.0, "max_message": 70, "part_timeout": 0.5}
    assert Server(segment, timeout=3.0, max_message=70, part_timeout=0.5).__reduce__()[1][2][1] == options


def test_client_that_takes_no_part_holds_a_server_for_part_timeout(segment: Segment) -> None:
    client, server = Client(segment), Server(segment, part_timeout=0.2)
    stream = client.stream(b"x")
    request = server.recv(timeout=SOON)
    assert request.send_part(b"part")
    began = time.monotonic()
    with pytest.raises(pipework.TimedOut):
        request.reply(bytes(500))
    assert 0.2 <= time.monotonic() - began < SOON
    with pytest.raises(pipework.RemoteError):
        list(stream)
    with pytest.raises(pipework.Invalid):
        Server(segment, part_timeout=-1.0)


def test_signal_ends_a_reply_that_waits_for_its_client(segment: Segment) -> None:
    client, server = ends(segment)
    stream = client.stream(b"x")
    request = server.recv()
    assert request.send_part(b"part")
    with pytest.raises(Alarm), signal_after(0.05):
        request.reply(bytes(500))
    with pytest.raises(pipework.RemoteError):
        list(stream)


# ---------------------------------------------------------------- in place


def test_call_into_copies_the_reply_into_a_buffer(segment: Segment) -> None:
    client, server = ends(segment)
    thread = serving(server, lambda request: request.reply(request.data))
    buffer = bytearray(b"-" * 100)
    assert client.call_into(b"hello", buffer, timeout=SOON) == 5 and buffer == b"hello" + b"-" * 95
    assert client.call_into(b"world", memoryview(buffer)[50:55], timeout=SOON) == 5 and buffer[45:60] == b"-----world-----"
    assert client.call_into(b"", bytearray(), timeout=SOON) == 0
    assert client.recv_into(client.send(b"12"), buffer, timeout=SOON) == 2 and buffer[:5] == b"12llo"
    data = os.urandom(90)
    assert client.call_into(data, buffer, timeout=SOON) == 90 and buffer[:90] == data
    for long in (b"123456", data):
        with pytest.raises(pipework.TooLong):
            client.call_into(long, bytearray(5), timeout=SOON)
    ticket = client.send(b"123456")
    with pytest.raises(pipework.TooLong, match="6 bytes, and the buffer's length is 5"):
        client.recv_into(ticket, bytearray(5), timeout=SOON)
    assert client.recv(ticket) == b"123456"
    with pytest.raises((TypeError, BufferError)):
        client.call_into(b"x", b"read only", timeout=SOON)
    server.close()
    thread.join()
    with pytest.raises(TimeoutError):
        client.call_into(b"x", buffer, timeout=0.02)
    ticket = client.send(b"x")
    with pytest.raises(TimeoutError):
        client.recv_into(ticket, buffer, timeout=0.02)
    assert client.cancel(ticket)


def test_recv_into_reads_the_request_into_a_buffer(segment: Segment) -> None:
    client, server = ends(segment)
    buffer = bytearray(PART)
    ticket = client.send(b"x" * 10, flags=3)
    request = server.claim()
    assert "in the segment" in repr(request)
    with pytest.raises(pipework.TooLong, match="the request has 10 bytes, and the buffer 9"):
        request.recv_into(bytearray(9))
    assert request.recv_into(buffer) == 10 and buffer[:11] == b"x" * 10 + b"\0" and request.flags == 3
    assert request.recv_into(buffer) == 10 and request.data == b"x" * 10
    assert request.reply(b"") and request.data == b"x" * 10
    unread = client.send(b"y")
    request = server.claim()
    request.fail()
    for use in (lambda: request.data, lambda: request.recv_into(buffer)):
        with pytest.raises(ValueError, match="answered already"):
            use()
    client.recv(ticket)
    with pytest.raises(pipework.RemoteError):
        client.recv(unread)
    client.send(b"12345")
    whole = server.recv()
    assert whole.recv_into(buffer) == 5 and buffer[:5] == b"12345"
    with pytest.raises(pipework.TooLong):
        whole.recv_into(bytearray(4))
    client.close()
