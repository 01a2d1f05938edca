"""Signals whose handler raises, at any moment of any call: the caller's descriptors stay the
caller's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipework import fd
from support import Alarm

pytestmark = pytest.mark.long("a storm")
UNIX, STREAM, DGRAM = fd.AF_UNIX, fd.SOCK_STREAM, fd.SOCK_DGRAM


@contextlib.contextmanager
def storm() -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Makes calls until the handler has raised in one of them, or many have returned; says
    whether it has."""
    armed = False

    def handle(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Alarm

    def interrupted(call: Callable[[], object]) -> bool:
        nonlocal armed
        try:
            armed = True
            for _ in range(1000):
                with contextlib.suppress(OSError):
                    call()
            armed = False
        except Alarm:
            return True
        return False

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        yield interrupted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


CALLS: dict[str, Callable[[dict[str, int]], object]] = {
    "bind": lambda n: fd.bind(n["unbound"], b"\0pipework storm of bind %d" % os.getpid()),
    "listen": lambda n: fd.listen(n["listener"], 5),
    "accept": lambda n: fd.accept(n["idle"]),
    "accept4": lambda n: fd.accept4(n["idle"], fd.SOCK_NONBLOCK),
    "connect": lambda n: fd.connect(n["near"], b"\0pipework storm: nobody is here"),
    "shutdown": lambda n: fd.shutdown(n["near"], 0),
    "send": lambda n: fd.send(n["datagrams"], b"x", socket.MSG_DONTWAIT),
    "recv": lambda n: fd.recv(n["near"], 10),
    "recvfrom": lambda n: fd.recvfrom(n["near"], 10),
    "getsockname": lambda n: fd.getsockname(n["near"]),
    "getpeername": lambda n: fd.getpeername(n["near"]),
    "getsockopt": lambda n: fd.getsockopt(n["near"], socket.SOL_SOCKET, socket.SO_TYPE),
    "getsockopt bytes": lambda n: fd.getsockopt(n["near"], socket.SOL_SOCKET, socket.SO_TYPE, 4),
    "setsockopt": lambda n: fd.setsockopt(n["near"], socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    "sockatmark": lambda n: fd.sockatmark(n["internet"]),
    "accept_many": lambda n: fd.accept_many(n["idle"], 5),
    "send_many": lambda n: fd.send_many(n["datagrams"], [(b"x", None)], timeout=0),
    "write_all": lambda n: fd.write_all(n["file"], b"x"),
    "pread_full": lambda n: fd.pread_full(n["file"], 10, 0),
    "slurp": lambda n: fd.slurp(n["file"]),
    "poll": lambda n: fd.poll([(n["near"], fd.POLLIN)], timeout=0),
    "copy_all": lambda n: fd.copy_all(n["file"], n["file"], count=0),
}


@pytest.mark.parametrize("name", CALLS)
def test_signal_handler_that_raises_closes_no_descriptor(name: str, tmp_path: Path) -> None:
    listener = fd.socket(fd.AF_INET, STREAM)
    near, far = fd.socketpair(UNIX, STREAM)
    datagrams, others = fd.socketpair(UNIX, DGRAM)
    idle = fd.socket(UNIX, STREAM | fd.SOCK_NONBLOCK)
    fd.bind(idle, b"\0pipework storm %d" % os.getpid())
    fd.listen(idle, 5)
    numbers = {
        "listener": listener,
        "internet": fd.socket(fd.AF_INET, STREAM),
        "unbound": fd.socket(UNIX, DGRAM),
        "near": near,
        "far": far,
        "datagrams": datagrams,
        "others": others,
        "idle": idle,
        "file": fd.open(tmp_path / "file", os.O_RDWR | os.O_CREAT),
    }
    fd.shutdown(far, 1)  # a receiver finds the end, and does not wait
    before = {number: os.fstat(number).st_ino for number in numbers.values()}
    end = time.monotonic() + 0.15
    rang = 0
    with storm() as interrupted:
        while time.monotonic() < end or rang < 5:
            rang += interrupted(lambda: CALLS[name](numbers))
    assert {number: os.fstat(number).st_ino for number in numbers.values()} == before
    for number in numbers.values():
        fd.close(number)
