"""Raw descriptors as plain integers, without objects that own them.

| to do | with |
| --- | --- |
| sockets | `socket`, `socketpair`, `bind`, `listen`, `accept`, `connect`, `shutdown`, `send`, `recv`, ..., with the addresses of the module `socket` |
| accept all who wait, and know why it stopped | `accept_many`; `Reserve` for when descriptors run out |
| copy from any descriptor to any other | `copy_all`, `sendfile_all`, `splice_all` |
| read or write all of it | `read_full`, `write_all`, `pread_full`, `pwrite_all`, `slurp`, `records` |
| many datagrams at once | `Inbox`, `send_many` |
| new files | `mkstemp`, `mktemp` |
| wait for several | `poll` |
| what Python has already | the functions of `os`, `fcntl`, `select` and `time`, under their own names |

What is new is never inherited by other programs. What is this package's own raises `pipework.Error`, what Python has raises `OSError`, which is also the
base of the former. A descriptor belongs to the caller, who closes it.

>>> import pipework.fd as fd
>>> near, far = fd.socketpair(fd.AF_UNIX, fd.SOCK_STREAM)
>>> fd.write_all(near, b"two records, ")
>>> fd.write_all(near, b"of 8 bytes")
>>> fd.close(near)
>>> list(fd.records(far, 8))
[b'two reco', b'rds, of ', b'8 bytes']
>>> fd.close(far)
"""

from __future__ import annotations

import array
import contextlib
import enum
import os as _os
import socket as _socket
import termios
from collections.abc import Iterator
from fcntl import fcntl, ioctl
from os import close, dup, lseek, lstat, mkfifo, open, pipe, pread, pwrite, read, readv, sendfile, stat, write, writev
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, select
from socket import AF_INET, AF_INET6, AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_SEQPACKET, SOCK_STREAM
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _core
from ._core import (
    close_range,
    copy_all,
    mkstemp,
    mktemp,
    poll,
    pread_full,
    pwrite_all,
    read_full,
    send_many,
    sendfile_all,
    slurp,
    splice_all,
    write_all,
)
from ._errors import Error

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

__all__ = [
    "AF_INET",
    "AF_INET6",
    "AF_UNIX",
    "POLLERR",
    "POLLHUP",
    "POLLIN",
    "POLLNVAL",
    "POLLOUT",
    "POLLPRI",
    "POLLRDHUP",
    "SOCK_CLOEXEC",
    "SOCK_DGRAM",
    "SOCK_NONBLOCK",
    "SOCK_SEQPACKET",
    "SOCK_STREAM",
    "Accepted",
    "Address",
    "Datagram",
    "Inbox",
    "Reserve",
    "Shed",
    "Stopped",
    "accept",
    "accept4",
    "accept_many",
    "bind",
    "close",
    "close_range",
    "connect",
    "copy_all",
    "dup",
    "dup2",
    "fcntl",
    "getpeername",
    "getsockname",
    "getsockopt",
    "ioctl",
    "listen",
    "lseek",
    "lstat",
    "mkfifo",
    "mkstemp",
    "mktemp",
    "monotonic",
    "open",
    "pipe",
    "poll",
    "pread",
    "pread_full",
    "pwrite",
    "pwrite_all",
    "read",
    "read_full",
    "readv",
    "records",
    "recv",
    "recvfrom",
    "select",
    "send",
    "send_many",
    "sendfile",
    "sendfile_all",
    "setsockopt",
    "shutdown",
    "slurp",
    "sockatmark",
    "socket",
    "socketpair",
    "splice_all",
    "stat",
    "write",
    "write_all",
    "writev",
]

Address = Union[tuple[Any, ...], str, bytes]
"""As the module `socket` has them: a tuple for the Internet, a string for the path of a local socket, bytes for an abstract name."""


# ---------------------------------------------------------------- what finishes a job


class Stopped(enum.Enum):
    """Why accepting stopped."""

    WOULD_BLOCK = "would block"
    """Nobody else is waiting."""
    LIMIT = "limit"
    """As many as were asked for have been taken; there may be more."""
    NO_DESCRIPTORS = "no descriptors"
    """No descriptor is left. Whoever waits goes on waiting: close something, or `Reserve.shed`."""
    FAILED = "failed"
    """Anything else; trying again at once would fail again."""


class Accepted(NamedTuple):
    """What `accept_many` has accepted, and why it stopped."""

    fds: list[int]
    """The connections, in the order in which they came. They do not block, and are not inherited."""
    peers: list[Address | None]
    """Who has connected, for each of them; None where the kernel says nothing."""
    stopped: Stopped
    """Why there are not more."""
    error: Error | None
    """The kernel's reason for NO_DESCRIPTORS and FAILED."""


class Shed(NamedTuple):
    """What `Reserve.shed` has done."""

    turned_away: int
    """How many connections were accepted and closed at once."""
    stopped: Stopped
    """Why not more."""
    error: Error | None
    """The kernel's reason for NO_DESCRIPTORS and FAILED."""


class Datagram(NamedTuple):
    """A datagram that has come."""

    data: bytes
    """Its bytes, cut to what there was room for."""
    address: Address | None
    """Who has sent it; None where the kernel does not say."""
    cut: bool
    """Whether it was longer, and its end is lost."""


def accept_many(fd: int, max: int) -> Accepted:
    """Accepts up to `max` connections, as many as are there, without waiting.

    Running out of descriptors is no exception: what was accepted until then is in the answer, as is the reason.

    >>> listener = socket(AF_UNIX, SOCK_STREAM)
    >>> bind(listener, b"\\0doctest of accept_many")
    >>> listen(listener, 10)
    >>> clients = [socket(AF_UNIX, SOCK_STREAM) for _ in range(3)]
    >>> for client in clients:
    ...     connect(client, b"\\0doctest of accept_many")
    >>> accepted = accept_many(listener, 100)
    >>> len(accepted.fds), accepted.stopped.value
    (3, 'would block')
    >>> for number in [listener, *clients, *accepted.fds]:
    ...     close(number)
    """
    fds, peers, (name, error) = _core.accept_connections(fd, max)
    return Accepted(fds, peers, Stopped[name], error)


class Reserve:
    """A descriptor that is given up when none is left, so that connections can be turned away instead of left to wait."""

    __slots__ = ("_reserve",)

    def __init__(self) -> None:
        self._reserve = _core.ReserveCore()

    @property
    def held(self) -> bool:
        """Whether there is a descriptor to give up. If not, the next `shed` tries to take one again."""
        return self._reserve.held

    def shed(self, fd: int, max: int) -> Shed:
        """Accepts up to `max` connections and closes each at once, so that their peers learn that nobody will serve them. Never waits."""
        turned_away, (name, error) = self._reserve.shed(fd, max)
        return Shed(turned_away, Stopped[name], error)

    def close(self) -> None:
        """Gives the descriptor up for good."""
        self._reserve.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Inbox:
    """Room for `max` datagrams of at most `max_bytes` each, to be received into again and again. All memory is taken at once.

    >>> here, there = socketpair(AF_UNIX, SOCK_DGRAM)
    >>> send_many(here, [(b"one", None), (b"two", None)])
    >>> [datagram.data for datagram in Inbox(max=64, max_bytes=1500).recv(there)]
    [b'one', b'two']
    >>> close(here), close(there)
    (None, None)
    """

    __slots__ = ("_inbox",)

    def __init__(self, max: int, max_bytes: int) -> None:
        self._inbox = _core.InboxCore(max, max_bytes)

    def recv(self, fd: int, timeout: float | None = None) -> list[Datagram]:
        """Waits for a datagram and returns all that are there, as many as fit. Raises `TimedOut`."""
        return [Datagram(*each) for each in self._inbox.recv(fd, timeout)]


def records(fd: int, size: int, timeout: float | None = None) -> Iterator[bytes]:
    """Records of `size` bytes until the end of file; the last one may be shorter. `timeout` is for each of them."""
    if size < 1:
        raise ValueError("a record has at least one byte")
    while record := read_full(fd, size, timeout):
        yield record


# ---------------------------------------------------------------- sockets, one system call each


@contextlib.contextmanager
def _lent(fd: int) -> Iterator[_socket.socket]:
    """The descriptor as an object of the module `socket`, which knows every kind of address."""
    # An object for which a default time-out holds makes its descriptor non-blocking.
    blocking = None if _socket.getdefaulttimeout() is None else _os.get_blocking(fd)
    lent = _socket.socket(fileno=fd)
    try:
        if blocking is not None:
            lent.settimeout(None)
            _os.set_blocking(fd, blocking)
        yield lent
    finally:
        lent.detach()


def socket(family: int, type: int, proto: int = 0) -> int:
    """A new socket. `type` may hold SOCK_NONBLOCK."""
    made = _socket.socket(family, type & ~SOCK_NONBLOCK, proto)
    _os.set_blocking(made.fileno(), not type & SOCK_NONBLOCK)
    return made.detach()


def socketpair(family: int, type: int, proto: int = 0) -> tuple[int, int]:
    """Two sockets that are connected with each other. `type` may hold SOCK_NONBLOCK."""
    pair = _socket.socketpair(family, type & ~SOCK_NONBLOCK, proto)
    for made in pair:
        _os.set_blocking(made.fileno(), not type & SOCK_NONBLOCK)
    return pair[0].detach(), pair[1].detach()


def bind(fd: int, address: Address) -> None:
    """Gives a socket its address."""
    with _lent(fd) as lent:
        lent.bind(address)


def listen(fd: int, backlog: int) -> None:
    """Lets others connect; up to `backlog` of them wait."""
    with _lent(fd) as lent:
        lent.listen(backlog)


def accept(fd: int) -> tuple[int, Address]:
    """Waits for a connection, if the listener blocks: its descriptor, which blocks, and its peer."""
    with _lent(fd) as lent:
        made, peer = lent.accept()
        _os.set_blocking(made.fileno(), True)
        return made.detach(), peer


def accept4(fd: int, flags: int) -> tuple[int, Address]:
    """As `accept`; with SOCK_NONBLOCK the connection does not block. None is ever inherited, SOCK_CLOEXEC or not."""
    made, peer = accept(fd)
    _os.set_blocking(made, not flags & SOCK_NONBLOCK)
    return made, peer


def connect(fd: int, address: Address) -> None:
    """Connects. A socket that does not block raises `BlockingIOError` (EINPROGRESS), and is writable when it is done."""
    with _lent(fd) as lent:
        lent.connect(address)


def shutdown(fd: int, how: int) -> None:
    """Ends a direction of a connection: 0 for reading, 1 for writing, 2 for both."""
    with _lent(fd) as lent:
        lent.shutdown(how)


def send(fd: int, data: Buffer, flags: int = 0, address: Address | None = None) -> int:
    """Sends what there is room for, to an address or to the socket's peer. Returns how many bytes."""
    with _lent(fd) as lent:
        return lent.send(data, flags) if address is None else lent.sendto(data, flags, address)


def recv(fd: int, n: int, flags: int = 0) -> bytes:
    """Receives what is there, up to `n` bytes; b"" at the end of a stream."""
    with _lent(fd) as lent:
        return lent.recv(n, flags)


def recvfrom(fd: int, n: int, flags: int = 0) -> tuple[bytes, Address | None]:
    """As `recv`, with the address of the sender."""
    with _lent(fd) as lent:
        return lent.recvfrom(n, flags)


def getsockname(fd: int) -> Address:
    """The socket's own address."""
    with _lent(fd) as lent:
        address: Address = lent.getsockname()
        return address


def getpeername(fd: int) -> Address:
    """The address of its peer."""
    with _lent(fd) as lent:
        address: Address = lent.getpeername()
        return address


def getsockopt(fd: int, level: int, name: int, buflen: int = 0) -> int | bytes:
    """An option that is a number; or, with `buflen`, up to so many bytes."""
    with _lent(fd) as lent:
        return lent.getsockopt(level, name, buflen) if buflen else lent.getsockopt(level, name)


def setsockopt(fd: int, level: int, name: int, value: int | Buffer) -> None:
    """Sets an option to a number or to bytes."""
    with _lent(fd) as lent:
        lent.setsockopt(level, name, value)


def sockatmark(fd: int) -> bool:
    """Whether the next byte is behind the mark of out-of-band data."""
    answer = array.array("i", [0])
    ioctl(fd, getattr(termios, "SIOCATMARK", 0x8905), answer)
    return bool(answer[0])


# ---------------------------------------------------------------- the rest


def dup2(fd: int, number: int) -> int:
    """Makes `number` another name of the descriptor, which is not inherited. Returns it."""
    return _os.dup2(fd, number, inheritable=False)
