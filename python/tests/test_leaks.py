"""Nothing is left behind by many operations: no memory, no references. (Descriptors: conftest.py,
for every test.)"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pipework
import pytest
from leaks import leaves_nothing
from pipework import atomic

OPERATIONS = 100_000


def operations() -> dict[str, Callable[[], object]]:
    reader, writer = atomic.pair()
    text_reader, text_writer = atomic.pair(mixed=True)
    data, buffer, view = bytes(200), bytearray(200), memoryview(bytearray(200))
    empty, idle = atomic.pair()
    closed, _ = atomic.pair()
    closed.close()

    def refused() -> None:
        with pytest.raises(ValueError):
            closed.recv()

    def lost() -> None:
        with pytest.raises(TypeError):
            writer.send("text")  # type: ignore[arg-type]

    return {
        "send and recv": lambda: (writer.try_send(data), reader.recv()),
        "views": lambda: (writer.try_send(view), reader.recv_into(buffer)),
        "items": lambda: (text_writer.try_send(data), text_reader.next_item()),
        "nothing there": lambda: (idle.closed, empty.try_recv()),
        "an error": refused,
        "another error": lost,
    }


@pytest.mark.parametrize("name", ["send and recv", "views", "items", "nothing there", "an error", "another error"])
def test_many_operations_leave_nothing(name: str) -> None:
    operation = operations()[name]
    rounds = OPERATIONS if "error" not in name else OPERATIONS // 10
    leaves_nothing(operation, rounds)


def test_handles_release_their_resources() -> None:
    def once() -> None:
        reader, writer = atomic.pair(zstd=1)
        writer.send(bytes(100))
        writer.clone(), reader.clone(), reader.messages()

    leaves_nothing(once, 1000, 4 << 20)


def test_reference_counts_stay_the_same() -> None:
    reader, writer = atomic.pair()
    data, buffer = bytes(100), bytearray(100)
    counts = [sys.getrefcount(each) for each in (data, buffer, reader, writer)]
    for _ in range(10):
        writer.send(data)
        writer.send(buffer)
        writer.send_many([data, buffer])
        with pytest.raises(pipework.Invalid):
            writer.mixed = True
            writer.burst(b"\x0e")
        writer.mixed = False
        for _ in range(4):
            reader.recv_into(buffer)
        iter(reader), reader.messages()
    assert [sys.getrefcount(each) for each in (data, buffer, reader, writer)] == counts
