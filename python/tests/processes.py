"""Processes for tests, those of room `reqrep` above all."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipework.reqrep import Client, Segment, Server
from support import SOON


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
        request.reply(request.data, request.flags)


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
