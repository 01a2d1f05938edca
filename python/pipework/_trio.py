"""The loop of a trio run, with the few methods of asyncio's loops that this package asks for.

trio has no callbacks, so a task of the run itself stands for each: one that waits for a descriptor,
or for a time. Those tasks only wake other tasks, and do not raise.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Awaitable, Callable, Generator
from typing import Any

import trio
from trio.lowlevel import RunVar, current_trio_token, spawn_system_task, wait_readable, wait_writable


class Future:
    """Mirrors asyncio's, as far as it is used here."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    def set_result(self, result: None) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._event.wait().__await__()


class Loop:
    """Mirrors asyncio's, as far as `_loops.Loop` says."""

    def __init__(self) -> None:
        self._token = current_trio_token()
        self._watches: dict[tuple[int, bool], trio.CancelScope] = {}

    create_future = Future
    time = staticmethod(trio.current_time)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> trio.CancelScope:
        async def call() -> None:
            with scope:
                await trio.sleep(seconds)
                callback(*args)

        scope = trio.CancelScope()
        spawn_system_task(call)
        return scope

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        self._token.run_sync_soon(functools.partial(callback, *args))

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        self._watch(fd, False, wait_readable, functools.partial(callback, *args))

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        self._watch(fd, True, wait_writable, functools.partial(callback, *args))

    def _watch(
        self, fd: int, writing: bool, ready: Callable[[int], Awaitable[None]], callback: Callable[[], object]
    ) -> None:
        async def watch() -> None:
            with scope:
                while True:
                    try:
                        await ready(fd)
                    except (OSError, trio.ClosedResourceError):
                        # It was closed. The waiting task looks, and finds out.
                        await trio.lowlevel.checkpoint()
                    callback()

        scope = self._watches[fd, writing] = trio.CancelScope()
        spawn_system_task(watch)

    def remove_reader(self, fd: int) -> None:
        self._watches.pop((fd, False)).cancel()

    def remove_writer(self, fd: int) -> None:
        self._watches.pop((fd, True)).cancel()


_of_run: RunVar[Loop] = RunVar("pipework")


def loop() -> Loop:
    """That of the run which the calling task belongs to."""
    try:
        return _of_run.get()
    except LookupError:
        made = Loop()
        _of_run.set(made)
        return made


async def serve(
    requests: AsyncIterable[Any], answer: Callable[[Any, Callable[[], object]], Awaitable[None]], limit: int
) -> None:
    """Answers each request in a task, at most `limit` of them at a time; mirrors `_serving`'s for
    asyncio."""
    places = trio.Semaphore(limit)
    failure: list[Exception] = []

    async def answer_one(request: Any) -> None:
        try:
            with trio.CancelScope() as scope:
                await answer(request, scope.cancel)
        finally:
            places.release()

    async with trio.open_nursery() as nursery:
        try:
            await places.acquire()
            async for request in requests:
                nursery.start_soon(answer_one, request.detach())
                del request  # it has blobs
                await places.acquire()
        except Exception as error:  # as it is, and not as one of a nursery's group
            failure.append(error)
            nursery.cancel_scope.cancel()
    if failure:
        raise failure[0]
