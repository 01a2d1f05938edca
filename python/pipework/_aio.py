"""Waiting for descriptors in asyncio, on any event loop that has `add_reader`.

A coroutine here tries, without waiting, and waits for the descriptor only when there was nothing; between a try that has succeeded and the caller there is
no `await`, so a cancelled task has taken nothing. The compiled half makes these coroutines; what they try is there too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ._errors import Closed

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._core import AtomicReader, AtomicWriter
    from ._items import Item

T = TypeVar("T")

_Waiting = dict[tuple[int, bool], set["asyncio.Future[None]"]]

_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = weakref.WeakKeyDictionary()
"""For each loop who waits for what: a descriptor, and whether for writing. A loop watches a descriptor for one callback only, so tasks share it."""

_TURN = 64
"""After so many results without a wait, other tasks are let in."""


async def readable(fd: int) -> None:
    """Waits until `fd` can be read."""
    await _ready(fd, False)


async def writable(fd: int) -> None:
    """Waits until `fd` can be written to."""
    await _ready(fd, True)


async def when_readable(fd: Callable[[], int], attempt: Callable[[], T | None]) -> T:
    """What `attempt` returns, once it is something; in between waits until `fd()` can be read."""
    while (done := attempt()) is None:
        await readable(fd())
    return done


async def when_polled(attempt: Callable[[], T | None], poll: Callable[[Callable[[], object]], bool]) -> T:
    """What `attempt` returns, once it is something; in between waits until `poll` says yes, or what it was given is called, from any thread."""
    loop = asyncio.get_running_loop()
    while (done := attempt()) is None:
        future = loop.create_future()
        if not poll(functools.partial(_wake_from_anywhere, loop, {future})):
            await future
    return done


def _wake_from_anywhere(loop: asyncio.AbstractEventLoop, futures: set[asyncio.Future[None]]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits there
        loop.call_soon_threadsafe(_wake, futures)


async def _ready(fd: int, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    waiting = _loops.setdefault(loop, {})
    futures = waiting.get((fd, writing))
    if futures is None:
        futures = set()
        (loop.add_writer if writing else loop.add_reader)(fd, _wake, futures)
        waiting[fd, writing] = futures
    future = loop.create_future()
    futures.add(future)
    try:
        await future
    finally:
        futures.discard(future)
        if not futures and waiting.get((fd, writing)) is futures:
            _unwatch(loop, waiting, fd, writing)


def forget(fd: int) -> None:
    """Wakes who waits for a descriptor that is about to be closed."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    for loop, waiting in list(_loops.items()):
        for writing in (False, True):
            futures = waiting.get((fd, writing))
            if futures is None:
                continue
            if loop is running:
                _unwatch(loop, waiting, fd, writing)
                _wake(futures)
            else:
                _wake_from_anywhere(loop, futures)


def _unwatch(loop: asyncio.AbstractEventLoop, waiting: _Waiting, fd: int, writing: bool) -> None:
    del waiting[fd, writing]
    (loop.remove_writer if writing else loop.remove_reader)(fd)


def _wake(futures: set[asyncio.Future[None]]) -> None:
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
            await asyncio.sleep(0)
        try:
            return await next_item(self._reader)
        except Closed:
            raise StopAsyncIteration from None


async def next_item(reader: AtomicReader) -> Item:
    return await when_readable(reader.fileno, reader.try_next_item)


async def recv(reader: AtomicReader) -> bytes:
    return await when_readable(reader.fileno, reader.try_recv)


async def send(writer: AtomicWriter, data: Buffer) -> int:
    await flush(writer)
    while (parts := writer.try_send(data)) is None:
        await writable(writer.fileno())
    await flush(writer)
    return parts


async def flush(writer: AtomicWriter) -> None:
    while not writer.try_flush():
        await writable(writer.fileno())
