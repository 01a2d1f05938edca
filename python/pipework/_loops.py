"""The event loop of the caller: asyncio's, or one with the same methods for trio.
anyio runs on one of the two.

The coroutines of this package ask few things of a loop: those of `Loop`. They never import trio: a
program that runs under it has done so.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ._errors import ErrorKind, make

class Future(Awaitable[None], Protocol):
    """A future of the loop, with one waiter."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...


class Timer(Protocol):
    """A later call, which can be cancelled."""

    def cancel(self) -> object: ...


class Loop(Protocol):
    """The methods of a loop that are used here, named as asyncio's."""

    def create_future(self) -> Future: ...
    def call_later(self, seconds: float, callback: Callable[..., object], /, *args: Any) -> Timer: ...
    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> object: ...
    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: Any) -> object: ...
    def add_writer(self, fd: int, callback: Callable[..., object], /, *args: Any) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...
    def time(self) -> float: ...


def running() -> Loop:
    """The loop of the calling task. Raises RuntimeError if the task has none."""
    return _of_trio() or asyncio.get_running_loop()


def _of_trio() -> Loop | None:
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_task():
        return None
    from . import _trio

    return _trio.loop()


def of_asyncio() -> Loop | None:
    """The loop of the calling task if that is one of asyncio's."""
    return asyncio.get_running_loop() if _of_trio() is None else None


async def enter() -> Loop:
    """The loop of the calling task. In trio every call lets other tasks run and can be cancelled.
    So this one does both, before anything is taken."""
    loop = _of_trio()
    if loop is None:
        return asyncio.get_running_loop()
    await sys.modules["trio"].lowlevel.checkpoint()
    return loop


async def let_others_run() -> None:
    """Lets other tasks run. It may be cancelled here."""
    if isinstance(await enter(), asyncio.AbstractEventLoop):
        await asyncio.sleep(0)


def is_trio() -> bool:
    """Whether the task that calls is one of trio's."""
    return _of_trio() is not None


async def sleep(seconds: float) -> None:
    """Lets other tasks run for that time."""
    await (sys.modules["trio"] if is_trio() else asyncio).sleep(seconds)


async def in_thread(function: Callable[..., object], /, *args: Any) -> None:
    """Calls a function that waits, while other tasks run."""
    if is_trio():
        await sys.modules["trio"].to_thread.run_sync(function, *args)
    else:
        await asyncio.to_thread(function, *args)


_FOR_EVER = 1e8
"""Seconds, some years of them."""


class Patience:
    """The number of seconds that a task waits; None for ever. When the time is over, `is_over` is
    true, and the event that the task waits for is set."""

    __slots__ = ("_future", "_op", "_seconds", "_timer", "is_over")

    def __init__(self, seconds: float | None, op: str) -> None:
        # Loops do not count any number of seconds.
        self._seconds = None if seconds is None or seconds > _FOR_EVER else seconds
        self._op = op
        self._timer: Timer | None = None
        self.is_over = seconds is not None and not seconds > 0

    def wait(self, loop: Loop, future: Future) -> Future:
        """The future to wait for: `future`, which is set when the time is over. The time begins
        with the first wait. Raises `TimedOut` once it is over."""
        if self.is_over:
            text = f"{self._op}: the deadline has passed"
            raise make(ErrorKind.TIMED_OUT, self._op, None, text)
        self._future = future
        if self._seconds is not None and self._timer is None:
            self._timer = loop.call_later(self._seconds, self._end)
        return future

    def _end(self) -> None:
        self.is_over = True
        if not self._future.done():
            self._future.set_result(None)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> Patience:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()
