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

New descriptors are never inherited by other programs. Functions of this package raise
`pipework.Error`. Those that Python has itself raise `OSError`, which is also the base of the
former. A descriptor belongs to the caller, who closes it.

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
import enum
import os as _os
import termios
from collections.abc import Iterator
from fcntl import fcntl, ioctl
from os import close, dup, lseek, lstat, mkfifo, open, pipe, pread, pwrite, read, readv, sendfile, stat, write, writev
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, select
from socket import AF_INET, AF_INET6, AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_SEQPACKET, SOCK_STREAM
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Union

from . import _core
from ._core import (
    accept,
    accept4,
    bind,
    close_range,
    connect,
    copy_all,
    getpeername,
    getsockname,
    getsockopt,
    listen,
    mkstemp,
    mktemp,
    poll,
    pread_full,
    pwrite_all,
    read_full,
    recv,
    recvfrom,
    send,
    send_many,
    sendfile_all,
    setsockopt,
    shutdown,
    slurp,
    socket,
    socketpair,
    splice_all,
    write_all,
)
from ._errors import Error
from ._fields import described

if TYPE_CHECKING:
    from typing_extensions import Self

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
"""As the module `socket` has them: a tuple for the Internet, a string for the path of a local
socket, bytes for an abstract name. (Sockets of other families work here, but have no addresses.)"""


# ---------------------------------------------------------------- functions that finish a job


class Stopped(enum.Enum):
    """Why accepting stopped."""

    WOULD_BLOCK = "would block"
    """No other connection is waiting."""
    LIMIT = "limit"
    """As many as were asked for have been taken; there may be more."""
    NO_DESCRIPTORS = "no descriptors"
    """No descriptor is left. The connections that wait go on waiting: close something, or call
    `Reserve.shed`."""
    FAILED = "failed"
    """Anything else; trying again at once would fail again."""


@described(
    fds="The connections, in the order in which they came. They do not block, and are not inherited.",
    peers="Who has connected, for each of them; None where the kernel says nothing.",
    stopped="Why there are not more.",
    error="The kernel's reason for NO_DESCRIPTORS and FAILED.",
)
class Accepted(NamedTuple):
    """What `accept_many` has accepted, and why it stopped."""

    fds: list[int]
    peers: list[Address | None]
    stopped: Stopped
    error: Error | None


@described(
    turned_away="How many connections were accepted and closed at once.",
    stopped="Why not more.",
    error="The kernel's reason for NO_DESCRIPTORS and FAILED.",
)
class Shed(NamedTuple):
    """What `Reserve.shed` has done."""

    turned_away: int
    stopped: Stopped
    error: Error | None


@described(
    data="Its bytes, cut to what there was space for.",
    address="Who has sent it; None where the kernel does not say.",
    cut="Whether it was longer, and its end is lost.",
)
class Datagram(NamedTuple):
    """A datagram that has come."""

    data: bytes
    address: Address | None
    cut: bool


def accept_many(fd: int, count: int) -> Accepted:
    """Accepts the connections that wait, up to `count` of them. Never waits.

    Running out of descriptors is no exception: the answer contains the connections that were
    accepted until then, and the reason.

    >>> import pipework.fd as fd
    >>> listener = fd.socket(fd.AF_UNIX, fd.SOCK_STREAM)
    >>> fd.bind(listener, b"\\0doctest of accept_many")
    >>> fd.listen(listener, 10)
    >>> clients = [fd.socket(fd.AF_UNIX, fd.SOCK_STREAM) for _ in range(3)]
    >>> for client in clients:
    ...     fd.connect(client, b"\\0doctest of accept_many")
    >>> accepted = fd.accept_many(listener, 100)
    >>> len(accepted.fds), accepted.stopped.value
    (3, 'would block')
    >>> for number in [listener, *clients, *accepted.fds]:
    ...     fd.close(number)
    """
    fds, peers, (name, error) = _core.accept_connections(fd, count)
    return Accepted(fds, peers, Stopped[name], error)


class Reserve:
    """A descriptor that is given up when none is left, so that connections can be turned away
    instead of left to wait."""

    __slots__ = ("_reserve",)

    def __init__(self) -> None:
        self._reserve = _core.ReserveCore()

    @property
    def held(self) -> bool:
        """Whether it holds a descriptor to give up. If not, the next `shed` tries to take one
        again."""
        return self._reserve.held

    def shed(self, fd: int, count: int) -> Shed:
        """Accepts up to `count` connections and closes each at once, so that their peers get an end of
        file instead of waiting. Never waits."""
        turned_away, (name, error) = self._reserve.shed(fd, count)
        return Shed(turned_away, Stopped[name], error)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a reserve cannot be copied or pickled: it holds one descriptor")

    def close(self) -> None:
        """Releases the descriptor permanently."""
        self._reserve.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Inbox:
    """Space for `count` datagrams of at most `max_bytes` each, to be received into again and again.
    All memory is taken at once.

    >>> import pipework.fd as fd
    >>> here, there = fd.socketpair(fd.AF_UNIX, fd.SOCK_DGRAM)
    >>> fd.send_many(here, [(b"one", None), (b"two", None)])
    >>> [datagram.data for datagram in fd.Inbox(64, max_bytes=1500).recv(there)]
    [b'one', b'two']
    >>> fd.close(here), fd.close(there)
    (None, None)
    """

    __slots__ = ("_inbox",)

    def __init__(self, count: int, *, max_bytes: int) -> None:
        self._inbox = _core.InboxCore(count, max_bytes)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("an inbox cannot be copied or pickled: its memory is for one receiver")

    def recv(self, fd: int, *, timeout: float | None = None) -> list[Datagram]:
        """Waits for a datagram and returns all that are there, as many as fit. Raises
        `TimedOut`."""
        return [Datagram(*each) for each in self._inbox.recv(fd, timeout=timeout)]


def records(fd: int, size: int, *, timeout: float | None = None) -> Iterator[bytes]:
    """Records of `size` bytes until the end of file; the last one may be shorter. `timeout` is for
    each of them."""
    if size < 1:
        raise ValueError("a record has at least one byte")
    while record := read_full(fd, size, timeout=timeout):
        yield record


# ---------------------------------------------------------------- the rest


def sockatmark(fd: int) -> bool:
    """Whether the next byte is behind the mark of out-of-band data."""
    answer = array.array("i", [0])
    ioctl(fd, getattr(termios, "SIOCATMARK", 0x8905), answer)
    return bool(answer[0])


def dup2(fd: int, number: int) -> int:
    """Makes `number` another name of the descriptor, which is not inherited. Returns it."""
    return _os.dup2(fd, number, inheritable=False)
