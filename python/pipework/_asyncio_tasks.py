"""Futures of the core as coroutines, on any event loop that has `add_reader`.

Each loop has one inbox, whose descriptor it watches. A task that finds nothing leaves its number;
what wakes it, in whatever thread, writes the number into the inbox and rings. Between a poll that
has found something and the caller there is no `await`, so a task that is cancelled has taken
nothing.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _core
from ._errors import Closed, Invalid

T = TypeVar("T")
R = TypeVar("R", "_core.Request", "_core.IntRequest")

_TURN = 64
"""After so many results without a wait, other tasks are let in."""


class _Watched:
    """The inbox of a loop, and who waits for it to tell."""

    __slots__ = ("_last", "inbox", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.inbox = _core.Inbox()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self._last = 0
        loop.add_reader(self.inbox.fileno(), self._tell)

    def number(self) -> int:
        self._last += 1
        return self._last

    def _tell(self) -> None:
        for number in self.inbox.take():
            future = self.waiting.get(number)
            if future is not None and not future.done():
                future.set_result(None)


_watched: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Watched] = weakref.WeakKeyDictionary()


os.register_at_fork(after_in_child=_watched.clear)  # a child's inboxes are its own


async def when_told(attempt: Callable[[_core.Inbox, int], T | None]) -> T:
    """What `attempt` returns, once it is something. In between waits until the inbox that it gets
    is told the number that it gets."""
    loop = asyncio.get_running_loop()
    watched = _watched.get(loop)
    if watched is None:
        watched = _watched.setdefault(loop, _Watched(loop))
    number = watched.number()
    try:
        while (result := attempt(watched.inbox, number)) is None:
            future = watched.waiting[number] = loop.create_future()
            await future
        return result
    finally:
        watched.waiting.pop(number, None)


async def finish(task: _core.Task) -> Any:
    """What `task` comes to. It is given up if this is cancelled."""
    try:
        return await when_told(task.poll)
    finally:
        # Not when the last reference goes: an exception's traceback may keep one.
        task.drop()


class Requests(Generic[R]):
    """The asynchronous iterator of a server: requests until it is closed or stopped."""

    __slots__ = ("_given", "_server", "_turns")

    def __init__(self, server: Any, turns: _core.Requests[R]) -> None:
        self._server = server
        self._turns: _core.Requests[R] = turns
        self._given = 0

    def __aiter__(self) -> Requests[R]:
        return self

    async def __anext__(self) -> R:
        self._turns.come_back()
        self._given += 1
        if self._given % _TURN == 0:
            await asyncio.sleep(0)
        try:
            request: R | None = self._server.try_recv()
            if request is None:
                request = await self._server.arecv()
        except Closed:
            raise StopAsyncIteration from None
        except Invalid:
            if self._server.closed:
                raise StopAsyncIteration from None
            raise
        assert request is not None
        self._turns.lend(request)
        return request


class Parts:
    """The asynchronous iterator of the parts of a reply. Cancelled or dropped before the last one,
    it cancels the call."""

    __slots__ = ("_given", "_parts")

    def __init__(self, parts: _core.Parts) -> None:
        self._parts = parts
        self._given = 0

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> bytes:
        self._given += 1
        if self._given % _TURN == 0:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self._parts.close()
                raise
        return await self._parts.next()

    async def aclose(self) -> None:
        """Cancels the call, if its last part has not come."""
        self._parts.close()
