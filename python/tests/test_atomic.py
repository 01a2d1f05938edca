"""Room `atomic`: what each public call does."""

from __future__ import annotations

import pipework
import pytest
from pipework import atomic


def test_messages_of_any_size_come_out_whole() -> None:
    reader, writer = atomic.pair()
    for size in (0, 1, 4080, 4081, 50_000):
        data = bytes(i % 251 for i in range(size))
        parts = writer.send(data, timeout=5)
        item = reader.next_item(timeout=5)
        assert isinstance(item, atomic.Message)
        assert (item.data, item.parts, item.writer) == (data, parts, writer.key)


def test_the_end_of_the_pipe_is_an_eof_error_and_ends_iterations() -> None:
    reader, writer = atomic.pair()
    with writer:
        writer.send_many([b"one", bytearray(b"two"), memoryview(b"three")])
    assert list(reader.messages()) == [b"one", b"two", b"three"]
    assert list(reader) == []
    with pytest.raises(EOFError) as raised:
        reader.recv()
    assert isinstance(raised.value, pipework.Closed)


def test_nobody_reads_is_a_broken_pipe() -> None:
    reader, writer = atomic.pair()
    reader.close()
    with pytest.raises(BrokenPipeError, match="atomic send"):
        writer.send(b"x")


def test_a_timeout_is_a_timeout_error() -> None:
    reader, writer = atomic.pair()
    for timeout in (0, 0.01):
        with pytest.raises(TimeoutError) as raised:
            reader.recv(timeout)
        assert isinstance(raised.value, pipework.TimedOut)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError):
            reader.recv(wrong)
    writer.close()
