"""Helpers for calls in tests: small segments, processes, threads, tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pipework.reqrep import Client, Request, Segment, Server
from support import SOON

T = TypeVar("T")

PART = 64
"""Bytes of a part in a small segment."""


def small(slots: int = 4) -> Segment:
    """A segment in which little is long."""
    return Segment.anonymous(slots=slots, request_bytes=PART, reply_bytes=PART, members=8)


@contextlib.contextmanager
def forked(work: Callable[[], object]) -> Iterator[int]:
    """A child that does `work`; it is killed in the end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def echo(segment: Segment | Path) -> None:
    """Answers each request with itself, for ever."""
    for request in Server(segment):
        request.reply(request.data, flags=request.flags)


def serving(server: Server, answer: Callable[[Request], object]) -> threading.Thread:
    """A thread that answers until the server is closed or stopped."""

    def serve() -> None:
        for request in server:
            answer(request)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@contextlib.contextmanager
def running(server: Server, serve: Callable[[], object]) -> Iterator[threading.Thread]:
    """A thread that serves until it is asked to stop at the end."""
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield thread
    finally:
        with contextlib.suppress(ValueError):  # it is closed
            server.stop()
        thread.join(SOON)
        assert not thread.is_alive()


def in_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs the coroutine on a loop of its own and returns its result."""
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


def until(something: Callable[[], object]) -> None:
    """Waits until it is true."""
    end = time.monotonic() + SOON
    while not something():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.001)


def ends(segment: Segment) -> tuple[Client, Server]:
    return Client(segment), Server(segment)


def all_free(segment: Segment) -> bool:
    return segment.audit().free == segment.geometry.slots


def stop_helpers() -> None:
    """The processes and threads that multiprocessing keeps, and with them their descriptors."""
    from multiprocessing import forkserver, resource_sharer, resource_tracker

    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_sharer.stop()
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
