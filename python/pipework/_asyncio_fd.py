"""Waiting for descriptors in asyncio, on any event loop that has `add_reader`, and in trio.

A coroutine here first tries, without blocking, and waits for the descriptor only if the try found
nothing. No `await` stands between a try that succeeds and the caller, so a task that is cancelled
has taken nothing. The compiled half makes these coroutines, and also has the functions that they
try.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from . import _loops
from ._errors import Closed

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._atomic import Item
    from ._core import AtomicReader, AtomicWriter

T = TypeVar("T")

if TYPE_CHECKING:
    _Waiting = weakref.WeakValueDictionary[tuple[int, bool], set[_loops.Future]]

_waiting: weakref.WeakKeyDictionary[_loops.Loop, _Waiting] = weakref.WeakKeyDictionary()
"""For each loop, the descriptors that its tasks wait for, each with whether they wait to write. A
loop watches a descriptor for one callback only, so tasks share it. The loop itself keeps the
futures, and they refer to the loop: a strong reference here would keep the loop for ever."""

os.register_at_fork(after_in_child=_waiting.clear)  # a child's loops are its own

_TURN = 64
"""After this many results without a wait, other tasks run."""


async def _when_readable(reader: AtomicReader, attempt: Callable[[], T | None], timeout: float | None) -> T:
    """What `attempt` returns, once it is something; in between waits until the reader's descriptor
    can be read, or it is due."""
    loop = await _loops.enter()
    with _loops.Patience(timeout, "atomic recv") as patience:
        while (done := attempt()) is None:
            await _ready(loop, reader.fileno, False, patience, reader.next_timeout())
        return done


async def _ready(
    loop: _loops.Loop, fd: Callable[[], int], writing: bool, patience: _loops.Patience, seconds: float | None = None
) -> None:
    """Waits until `fd()` is readable, or writable, or until the given number of seconds has
    passed."""
    waiting = _waiting.setdefault(loop, weakref.WeakValueDictionary())
    number = fd()
    future = patience.wait(loop, loop.create_future())
    futures = waiting.get((number, writing))
    if futures is None:
        futures = waiting[number, writing] = set()
        try:
            (loop.add_writer if writing else loop.add_reader)(number, _wake, futures)
        except BaseException:
            del waiting[number, writing]
            fd()  # another thread may have closed it, which is the better reason
            raise
    futures.add(future)
    timer = None if seconds is None else loop.call_later(seconds, _wake, {future})
    try:
        fd()  # raises if another thread has closed it by now; a later close wakes this future
        await future
    finally:
        if timer is not None:
            timer.cancel()
        futures.discard(future)
        if not futures and waiting.get((number, writing)) is futures:
            _unwatch(loop, waiting, number, writing)


def forget(fd: int, parting: object) -> None:
    """Wakes the tasks that wait for a descriptor that is about to be closed. It is closed as soon
    as nothing refers to `parting` any more.

    The loop of another thread must stop watching it first, and only that thread can make it stop.
    """
    try:
        running = _loops.running()
    except RuntimeError:
        running = None
    for reference in _waiting.keyrefs():  # at one stroke: other threads add theirs
        loop = reference()
        waiting = None if loop is None else _waiting.get(loop)
        if loop is None or waiting is None or not ((fd, False) in waiting or (fd, True) in waiting):
            continue
        if loop is running:
            _let_go(loop, waiting, fd, parting)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and watches nothing
                loop.call_soon_threadsafe(_let_go, loop, waiting, fd, parting)


def _let_go(loop: _loops.Loop, waiting: _Waiting, fd: int, parting: object) -> None:
    for writing in (False, True):
        futures = waiting.get((fd, writing))
        if futures is not None:
            _unwatch(loop, waiting, fd, writing)
            _wake(futures)


def _unwatch(loop: _loops.Loop, waiting: _Waiting, fd: int, writing: bool) -> None:
    waiting.pop((fd, writing), None)
    (loop.remove_writer if writing else loop.remove_reader)(fd)


def _wake(futures: set[_loops.Future]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Items:
    """The asynchronous iterator of a reader: items until the end of the pipe."""

    __slots__ = ("_given", "_reader")

    def __init__(self, reader: AtomicReader) -> None:
        self._reader = reader
        self._given = 0

    def __aiter__(self) -> Items:
        return self

    async def __anext__(self) -> Item:
        self._given += 1
        if self._given % _TURN == 0:
            await _loops.let_others_run()
        try:
            return await next_item(self._reader)
        except Closed:
            raise StopAsyncIteration from None


async def next_item(reader: AtomicReader, timeout: float | None = None) -> Item:
    return await _when_readable(reader, reader.try_next_item, timeout)


async def recv(reader: AtomicReader, timeout: float | None) -> bytes:
    return await _when_readable(reader, reader.try_recv, timeout)


async def send(writer: AtomicWriter, data: Buffer, timeout: float | None) -> None:
    loop = await _loops.enter()
    with _loops.Patience(timeout, "atomic send") as patience:
        await _flush(loop, writer, patience)
        while not writer.try_send(data):
            await _ready(loop, writer.fileno, True, patience)
        await _flush(loop, writer, patience)


async def flush(writer: AtomicWriter, timeout: float | None) -> None:
    loop = await _loops.enter()
    with _loops.Patience(timeout, "atomic flush") as patience:
        await _flush(loop, writer, patience)


async def _flush(loop: _loops.Loop, writer: AtomicWriter, patience: _loops.Patience) -> None:
    while not writer.try_flush():
        await _ready(loop, writer.fileno, True, patience)
