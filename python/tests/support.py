"""Helpers of several tests: a signal at the right moment, a forked child, a pipe that is
full."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from pipework import atomic

SOON = 60.0
"""Seconds after which something that ought to have happened will not happen any more."""


def open_files() -> dict[str, str]:
    """The descriptors of this process and what they refer to, except the inotify instance that the
    library keeps once a client has waited."""
    names = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            names[number] = os.readlink(f"/proc/self/fd/{number}")
    return {number: name for number, name in names.items() if name != "anon_inode:inotify"}


class Alarm(Exception):
    """Raised by the signal handler of a test."""


@contextlib.contextmanager
def signal_after(seconds: float, handler: Callable[[], None] | None = None, restart: bool = False) -> Iterator[None]:
    """SIGALRM after that time; its handler raises `Alarm` unless it is another. With `restart`,
    system calls go on after it."""

    def handle(number: int, frame: FrameType | None) -> None:
        if handler is None:
            raise Alarm
        handler()

    before = signal.signal(signal.SIGALRM, handle)
    signal.siginterrupt(signal.SIGALRM, not restart)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def ctrl_c_after(seconds: float) -> Iterator[None]:
    """Ctrl-C after that time, as far as Python is concerned. A shell that runs the tests in the
    background has SIGINT ignored, so its handler is put in."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupter = after(seconds, lambda: _thread.interrupt_main(signal.SIGINT))
    try:
        yield
    finally:
        interrupter.join()
        signal.signal(signal.SIGINT, before)


def in_child(work: Callable[[], None]) -> None:
    """Forks, does `work` in the child, and fails if the child failed or did not end."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(status)
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"the child failed: {status}"
            return
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child did not end")


def on_small_tmpfs(folder: Path, options: str, work: Callable[[Path], None], place: Path | None = None) -> None:
    """As `in_child`, with a tmpfs at `place`, or in `folder`, that only the child sees. Skips the test if this process may not mount
    one; PIPEWORK_MUST_MOUNT=1 makes that a failure."""
    there, refused = place or folder / "tmpfs", folder / "refused"
    there.mkdir(exist_ok=True)

    def mount_and_work() -> None:
        if _mounted(there, options):
            work(there)
        else:
            refused.touch()

    in_child(mount_and_work)
    if refused.exists():
        assert os.environ.get("PIPEWORK_MUST_MOUNT", "0") == "0", "this process may not mount a tmpfs"
        pytest.skip("this process may not mount a tmpfs")


def _mounted(place: Path, options: str) -> bool:
    new_mounts, new_users, recursive_private = 0x20000, 0x10000000, 0x4000 | 0x40000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_mounts) and libc.unshare(new_users | new_mounts):
        return False
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(recursive_private), None):
        return False
    done: int = libc.mount(b"tmpfs", bytes(place), b"tmpfs", ctypes.c_ulong(0), options.encode())
    return done == 0


def until_used(reader: atomic.Reader) -> None:
    """Waits until another thread is in a call of the reader."""
    while True:
        try:
            reader.recv(timeout=0)
        except TimeoutError as error:
            if "another thread" in str(error):
                return


def after(seconds: float, work: Callable[[], object]) -> threading.Thread:
    """Does something in a thread, later."""

    def run() -> None:
        time.sleep(seconds)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread
