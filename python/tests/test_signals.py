"""Signal handlers run in every wait, and their exceptions end it. A handler that returns does
not."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipework import atomic, fd
from support import SOON, Alarm, after, ctrl_c_after, signal_after


@pytest.fixture
def waits(tmp_path: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """Calls that wait for ever."""
    reader, writer = atomic.pair()
    full_reader, full = atomic.pair()
    while not full.pending:
        full.try_send(bytes(4000))
    other_reader, other = atomic.pair()
    fifo = tmp_path / "fifo"
    atomic.create_fifo(fifo)
    yield {
        "recv": reader.recv,
        "recv_into": lambda: reader.recv_into(bytearray(10)),
        "next_item": reader.next_item,
        "read_ahead": reader.read_ahead,
        "wait_eof": reader.wait_eof,
        "for item": lambda: next(reader),
        "messages": lambda: next(reader.messages()),
        "a long message": lambda: other.send(bytes(1_000_000)),
        "flush": full.flush,
        "send after what is pending": lambda: full.send(b"x"),
        "burst": lambda: full.burst(b"x"),
        "send_many": lambda: full.send_many([b"x"] * 10),
        "open a fifo": lambda: atomic.Writer.fifo(fifo),
    }
    full.discard()
    for each in (reader, writer, full_reader, full, other_reader, other):
        each.close()


NAMES = """recv, recv_into, next_item, read_ahead, wait_eof, for item, messages, a long message, flush, send after what is pending, burst,
send_many, open a fifo""".replace("\n", " ").split(", ")


@pytest.mark.parametrize("restart", [False, True], ids=["interrupting", "restarting"])
@pytest.mark.parametrize("name", NAMES)
def test_exception_of_a_signal_handler_ends_the_wait(name: str, restart: bool, waits: dict[str, Callable[[], object]]) -> None:
    began = time.monotonic()
    with pytest.raises(Alarm), signal_after(0.05, restart=restart):
        waits[name]()
    assert time.monotonic() - began < SOON


def test_signal_handler_that_returns_does_not_end_the_wait() -> None:
    reader, writer = atomic.pair()
    ran: list[float] = []
    sender = after(0.3, lambda: writer.send(b"after the signal"))
    with signal_after(0.05, handler=lambda: ran.append(time.monotonic())):
        assert reader.recv(timeout=SOON) == b"after the signal"
    sender.join()
    assert len(ran) == 1


def test_signal_handler_that_returns_does_not_extend_the_timeout() -> None:
    reader, writer = atomic.pair()
    began = time.monotonic()
    with pytest.raises(TimeoutError), signal_after(0.1, handler=lambda: None):
        reader.recv(timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 0.3 + SOON / 2
    del writer


def test_message_continues_after_a_signal_handler_returns() -> None:
    reader, writer = atomic.pair()
    data = os.urandom(1_000_000)
    got: list[bytes] = []
    receiver = after(0.3, lambda: got.append(reader.recv(timeout=SOON)))
    with signal_after(0.05, handler=lambda: None):
        writer.send(data)
    receiver.join()
    assert got == [data]


def test_message_ended_by_a_signal_handler_is_not_delivered() -> None:
    reader, writer = atomic.pair()
    with pytest.raises(Alarm), signal_after(0.05):
        writer.send(bytes(1_000_000))

    def send_another() -> None:
        writer.send(b"next", timeout=SOON)
        writer.close()

    closer = after(0, send_another)
    items = list(reader)
    closer.join()
    assert [type(item) for item in items] == [atomic.Message, atomic.Torn]


def test_signal_handler_ends_the_wait_of_a_dropped_writer() -> None:
    reader, writer = atomic.pair()
    writer.enqueue(bytes(1_000_000))
    raised: list[object] = []
    sys.unraisablehook = lambda unraisable: raised.append(unraisable.exc_type)
    try:
        with signal_after(0.05):
            del writer
    finally:
        sys.unraisablehook = sys.__unraisablehook__
    assert raised == [Alarm]
    assert [type(item) for item in reader] == [atomic.Torn]


def test_signal_handler_may_use_the_waiting_end() -> None:
    reader, writer = atomic.pair()
    with signal_after(0.05, handler=lambda: writer.send(b"from the handler")):
        assert reader.recv(timeout=SOON) == b"from the handler"
    with pytest.raises(ValueError, match="is closed"), signal_after(0.05, handler=reader.close):
        reader.recv(timeout=SOON)


def test_signal_handler_inside_a_message_cannot_send_another() -> None:
    reader, writer = atomic.pair()
    with pytest.raises(RuntimeError, match="under way"), signal_after(0.05, handler=lambda: writer.send(b"x")):
        writer.send(bytes(1_000_000))
    del reader


def test_signal_handler_inside_a_message_may_close_its_end_and_use_others() -> None:
    reader, writer = atomic.pair()
    other_reader, other = atomic.pair()

    def handler() -> None:
        other.send(b"nested")
        assert other_reader.recv(timeout=SOON) == b"nested"
        writer.close()

    with pytest.raises(ValueError, match="is closed"), signal_after(0.05, handler=handler):
        writer.send(bytes(1_000_000))
    assert [type(item) for item in reader] == [atomic.Torn]


def test_nested_signal_handler_that_raises_ends_both_waits() -> None:
    reader, writer = atomic.pair()
    depth: list[str] = []

    def inner() -> None:
        depth.append("inner")
        raise ZeroDivisionError

    def outer() -> None:
        depth.append("outer")
        with signal_after(0.05, handler=inner):
            fd.poll([], timeout=SOON)

    with pytest.raises(ZeroDivisionError), signal_after(0.05, handler=outer):
        writer.send(bytes(1_000_000))
    assert depth == ["outer", "inner"]
    # Nothing is left of it: the next wait is as any.
    assert fd.poll([], timeout=0.01) == []
    del reader


def test_exception_of_a_signal_handler_is_raised_although_messages_were_sent() -> None:
    reader, writer = atomic.pair()
    with pytest.raises(Alarm), signal_after(0.05):
        writer.send_many([bytes(10_000)] * 100)
    del reader


def test_closed_writer_does_not_end_other_waits_of_a_signal_handler() -> None:
    """A call of the handler is no part of the call that it interrupts."""
    reader, writer = atomic.pair()
    took: list[float] = []

    def handler() -> None:
        writer.close()
        began = time.monotonic()
        assert fd.poll([], timeout=0.6) == []
        took.append(time.monotonic() - began)

    with pytest.raises(ValueError, match="is closed"), signal_after(0.05, handler=handler):
        writer.send(bytes(1_000_000))
    assert took[0] >= 0.6
    del reader


def test_waits_of_other_threads_continue_while_signals_are_handled() -> None:
    (reader, writer), (silent, other) = atomic.pair(), atomic.pair()
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(reader.recv(timeout=SOON)))
    thread.start()
    rang: list[None] = []
    with signal_after(0.05, handler=lambda: rang.append(None)), pytest.raises(TimeoutError):
        silent.recv(timeout=0.6)
    other.close()
    writer.send(b"still waited for")
    thread.join()
    assert got == [b"still waited for"] and rang


def test_ctrl_c_from_another_thread() -> None:
    """`interrupt_main` wakes no system call: only the look at signals at the end of a slice finds
    it."""
    reader, writer = atomic.pair()
    with pytest.raises(KeyboardInterrupt), ctrl_c_after(0.05):
        reader.recv(timeout=SOON)
    del writer


def test_waiting_call_releases_the_lock() -> None:
    reader, writer = atomic.pair()
    counted = 0
    waiter = threading.Thread(target=reader.recv)
    waiter.start()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        counted += 1
    writer.send(b"x")
    waiter.join()
    assert counted > 1000
