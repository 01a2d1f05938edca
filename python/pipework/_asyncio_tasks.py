"""Futures of the core as coroutines, on any event loop that has `add_reader`, and in trio.

Each loop has one inbox, whose descriptor it watches. A task that finds nothing leaves its number; on
asyncio it may look once more before, at the next turn. The event that wakes the task, in any thread, writes the number into the inbox and rings. No `await`
stands between a poll that finds something and the caller, so a task that is cancelled has taken
nothing.
"""

from __future__ import annotations

import os
import time
import types
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _core, _loops
from ._errors import Closed, Error, Invalid, TimedOut

if TYPE_CHECKING:
    from ._reqrep import Outcome, Ticket

T = TypeVar("T")
P = TypeVar("P")

_TURN = 64
"""After this many results without a wait, other tasks run."""


class _Watched:
    """The inbox of a loop, and the tasks that wait for it."""

    __slots__ = ("__weakref__", "_last", "inbox", "waiting")

    def __init__(self, loop: _loops.Loop) -> None:
        self.inbox = _core.Inbox()
        self.waiting: dict[int, _loops.Future] = {}
        self._last = 0
        loop.add_reader(self.inbox.fileno(), self._tell_all)

    def number(self, loop: _loops.Loop) -> int:
        if not self.inbox.is_intact():
            self._renew(loop)
        self._last += 1
        return self._last

    def _renew(self, loop: _loops.Loop) -> None:
        """Another inbox, after the program has closed that one's descriptor."""
        self.inbox, lost = _core.Inbox(), self.inbox
        # They may have one number, and the loop still knows that.
        loop.remove_reader(lost.fileno())
        loop.add_reader(self.inbox.fileno(), self._tell_all)
        for number in list(self.waiting):
            self.tell(number)

    def tell(self, number: int) -> None:
        future = self.waiting.get(number)
        if future is not None and not future.done():
            future.set_result(None)

    def _tell_all(self) -> None:
        for number in self.inbox.take():
            self.tell(number)


_watched: weakref.WeakKeyDictionary[_loops.Loop, weakref.ref[_Watched]] = weakref.WeakKeyDictionary()
"""Keeps the watched futures with the loop itself. A strong reference here would lead to futures,
and from them to the loop, and so keep the loop for ever."""

_Recent = tuple[Callable[[], "_loops.Loop | None"], Callable[[], "_Watched | None"]]
_NONE: _Recent = (lambda: None, lambda: None)
_recent = _NONE
"""References to the pair that was looked up last, which is found sooner."""


def _forked() -> None:
    """A child's inboxes are its own."""
    global _recent
    _watched.clear()
    _recent = _NONE


os.register_at_fork(after_in_child=_forked)


def _of(loop: _loops.Loop) -> _Watched:
    global _recent
    of, recent = _recent
    if of() is loop and (watched := recent()) is not None:
        return watched
    reference = _watched.get(loop)
    watched = None if reference is None else reference()
    if watched is None:
        watched = _Watched(loop)
        reference = _watched[loop] = weakref.ref(watched)
    assert reference is not None, "it is that of what was found"
    _recent = weakref.ref(loop), reference
    return watched


async def when_told(
    attempt: Callable[[_core.Inbox, int], T | None],
    op: str,
    timeout: float | None = None,
    task: _core.Task | None = None,
) -> T:
    """Polls until `attempt` returns something, and returns that. Between polls it waits until the
    inbox given to `attempt` receives the number given to it. After `timeout` seconds `op` raises
    `TimedOut`. If `attempt` is that of `task`, it may look at the task first, and once more at the
    next turn of the loop."""
    # Each step here is one of every awaited call.
    loop = _loops.of_asyncio()
    if loop is None:
        loop, task = await _loops.enter(), None
    if task is not None and (timeout is None or timeout > 0) and task.has_second_look():
        # Not by the loop's clock: uvloop's counts milliseconds.
        began = 0.0 if timeout is None else time.monotonic()
        found: T | None = task.poll()
        if found is None:
            await _next_turn()
            found = task.poll()
        if found is not None:
            return found
        if timeout is not None:
            timeout -= time.monotonic() - began
    watched = _of(loop)
    number = watched.number(loop)
    patience = None if timeout is None else _loops.Patience(timeout, op)
    try:
        while (result := attempt(watched.inbox, number)) is None:
            future = watched.waiting[number] = loop.create_future()
            if patience is not None:
                patience.wait(loop, future)
            await future
        return result
    finally:
        watched.waiting.pop(number, None)
        if patience is not None:
            patience.end()


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Lets the other tasks of an asyncio loop run."""
    yield


async def finish(task: _core.Task, op: str, timeout: float | None) -> Any:
    """What `task` comes to. It is given up if this is cancelled, or the time is over."""
    try:
        return await when_told(task.poll, op, timeout, task)
    finally:
        # Not when the last reference goes: an exception's traceback may keep one.
        task.drop()


class Requests:
    """The asynchronous iterator of a server: requests until it is closed or stopped."""

    __slots__ = ("_given", "_server", "_turns")

    def __init__(self, server: Any, turns: _core.Requests) -> None:
        self._server = server
        self._turns: _core.Requests = turns
        self._given = 0

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> _core.Request:
        self._turns.come_back()
        self._given += 1
        if self._given % _TURN == 0:
            await _loops.let_others_run()
        try:
            request: _core.Request | None = self._server.try_recv()
            if request is None:
                request = await self._server.arecv(timeout=None)
        except Closed:
            raise StopAsyncIteration from None
        except Invalid:
            if self._server.closed:
                raise StopAsyncIteration from None
            raise
        assert request is not None
        self._turns.lend(request)
        return request


async def linger(server: Any, count: int, seconds: float, timeout: float | None) -> list[Any]:
    """Up to `count` requests: waits for the first, and then `seconds` for others."""
    taken: list[Any] = await server.arecv_many(count, timeout=timeout)
    loop = _loops.running()
    end = loop.time() + seconds
    try:
        while len(taken) < count and (left := end - loop.time()) > 0:
            taken += await server.arecv_many(count - len(taken), timeout=left)
    except TimedOut:
        pass
    except BaseException as error:
        if server.closed or not isinstance(error, Error):
            for request in taken:
                request.fail()  # the exception's traceback may keep them
            raise
        # Else it comes again with the next call.
    return taken


class Parts(Generic[P]):
    """The asynchronous iterator of the parts of a reply. Cancelled or dropped before the last one,
    it cancels the call."""

    __slots__ = ("_given", "_parts")

    def __init__(self, parts: _core.Parts[P]) -> None:
        self._parts: _core.Parts[P] = parts
        self._given = 0

    def __aiter__(self) -> Parts[P]:
        return self

    async def __anext__(self) -> P:
        self._given += 1
        if self._given % _TURN == 0:
            try:
                await _loops.let_others_run()
            except BaseException:
                self._parts.close()
                raise
        try:
            return await self._parts.next()
        except BaseException:  # also where the part cannot be decoded
            self._parts.close()
            raise

    async def aclose(self) -> None:
        """Cancels the call, if its last part has not come."""
        self._parts.close()


class Completed(Generic[P]):
    """The asynchronous iterator of a client's calls, as they end."""

    __slots__ = ("_completed", "_given")

    def __init__(self, completed: _core.Completed[P]) -> None:
        self._completed: _core.Completed[P] = completed
        self._given = 0

    def __aiter__(self) -> Completed[P]:
        return self

    async def __anext__(self) -> tuple[Ticket, Outcome[P]]:
        self._given += 1
        if self._given % _TURN == 0:
            await _loops.let_others_run()
        task, bell = self._completed.next(), None

        def attempt(inbox: _core.Inbox, number: int) -> Any:
            nonlocal bell
            ended = task.poll(inbox, number)
            if ended is None and bell is None:
                bell = _Bell(self._completed, number)
                # It rings for calls that are looked for while it is there.
                ended = task.poll(inbox, number)
            return ended

        try:
            return await when_told(attempt, "reqrep recv")
        finally:
            if bell is not None:
                bell.close()
            task.drop()


class _Bell:
    """Has a task asked again when its client's doorbell rings, and when its time is over."""

    __slots__ = ("_bell", "_loop", "_timer")

    def __init__(self, completed: _core.Completed[Any], number: int) -> None:
        self._loop = _loops.running()
        tell = _of(self._loop).tell
        self._bell = _core.Descriptor(completed.doorbell())
        try:
            self._loop.add_reader(self._bell.fileno(), tell, number)
        except BaseException:
            self._bell.close()
            raise
        seconds = completed.seconds()
        # uvloop's timers count whole milliseconds, and a timer that fires too early is useless.
        self._timer = None if seconds is None else self._loop.call_later(seconds + 0.001, tell, number)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._bell.fileno())
        self._bell.close()
