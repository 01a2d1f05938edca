"""The exceptions: one for each kind of error, which is also the built-in exception that people
catch.

The compiled half calls `make` with the fields of an error; which class that is, is decided here
alone.
"""

from __future__ import annotations

import enum
import errno
import functools
import io
from typing import Any

from . import _core


class ErrorKind(enum.IntEnum):
    """What went wrong, as one of a fixed list that all languages share. The numbers are those of
    the C library."""

    WOULD_BLOCK = 1
    TIMED_OUT = 2
    INTERRUPTED = 3
    CLOSED = 4
    TOO_LONG = 5
    STALE = 6
    PEER_DIED = 7
    NO_SERVER = 8
    TORN = 9
    CORRUPT = 10
    INCOMPATIBLE = 11
    UNSUPPORTED = 12
    INVALID = 13
    OS = 14
    FAILED = 15
    LAGGED = 16


class Error(OSError):
    """Any failure of this package. `str(error)` names the operation, and says how far it had got if
    that matters; `filename` is the path, where one was opened. `errno` is the kernel's number if
    the kernel had a part in it, and else that of the kind, which is the same in all languages."""

    kind: ErrorKind
    """What went wrong."""
    op: str = ""
    """The operation that failed, for instance "atomic send". Empty if a program made the error."""
    done: int | None = None
    """Bytes that were moved (or whole datagrams) before it failed, where the operation makes
    progress: go on from there."""

    def __str__(self) -> str:
        text = self.strerror or super().__str__()
        return text if self.filename is None else f"{text}: {self.filename!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        if "op" not in self.__dict__:  # a program made it, perhaps of a class of its own
            return super().__reduce__()  # type: ignore[return-value]
        # Classes for `Os` are made as they are needed, so pickle could not find them.
        return (make, (self.kind, self.op, self.errno, self.strerror, self.done, self.filename), self.__dict__)


class WouldBlock(Error, BlockingIOError):
    """It cannot be done at once, and waiting was not asked for."""


class TimedOut(Error, TimeoutError):
    """The time was over first. Work that the operation had not done by then is not done."""


class Interrupted(Error, InterruptedError):
    """A signal handler ran. Not seen in Python: signal handlers run, and the wait goes on."""


class Closed(Error, BrokenPipeError, EOFError):
    """The other side is gone: end of file for a reader, no reader for a writer."""


class TooLong(Error, ValueError):
    """Larger than a limit that this end was given."""


class Stale(Error):
    """The handle or ticket belongs to a time that is over."""


class PeerDied(Error, ConnectionResetError):
    """The process that had the request has died. It is noticed within 250 ms of the kernel closing
    its files, which comes after a core dump."""


class NoServer(Error, ConnectionRefusedError):
    """No server is there to take the request. (Its `errno` is ENOTCONN, for which Python has no
    built-in exception.)"""


class TornMessage(Error):
    """A part of the message never came. The attribute `torn` is the report."""


class Corrupt(Error):
    """Bytes that no correct peer writes."""


class Incompatible(Error):
    """Made by a build or a machine that this one cannot work with."""


class Unsupported(Error, io.UnsupportedOperation):
    """This kernel or this kind of descriptor cannot do it."""


class Invalid(Error, ValueError):
    """The caller asked for something that has no meaning, or used a handle that is closed."""


class Os(Error):
    """Any other refusal of the kernel. It is also the built-in exception for its `errno`:
    FileNotFoundError, PermissionError, ..."""


class Failed(Error):
    """The other side gave up: a server its request, or a pipe's other end its stream."""


class RemoteError(Failed):
    """A server gave the request up. The text is the reason that it gave, if it gave one."""

    reason: bytes = b""
    """The reason, as the server gave it: bytes of its own, or the text of `request.fail("text")` in
    UTF-8, or the type of an exception that left a `with request` block. Empty if it gave none."""

    def __reduce__(self) -> tuple[Any, ...]:
        if "op" not in self.__dict__:
            return super().__reduce__()
        return (remote, (self.op, self.reason, self.strerror), self.__dict__)


class Lagged(Error):
    """Messages are gone that a subscriber had not received, because it was too slow."""

    missed: int | None = None
    """How many they are. None where that is not known."""


_CLASSES: dict[int, type[Error]] = {
    ErrorKind.WOULD_BLOCK: WouldBlock,
    ErrorKind.TIMED_OUT: TimedOut,
    ErrorKind.INTERRUPTED: Interrupted,
    ErrorKind.CLOSED: Closed,
    ErrorKind.TOO_LONG: TooLong,
    ErrorKind.STALE: Stale,
    ErrorKind.PEER_DIED: PeerDied,
    ErrorKind.NO_SERVER: NoServer,
    ErrorKind.TORN: TornMessage,
    ErrorKind.CORRUPT: Corrupt,
    ErrorKind.INCOMPATIBLE: Incompatible,
    ErrorKind.UNSUPPORTED: Unsupported,
    ErrorKind.INVALID: Invalid,
    ErrorKind.OS: Os,
    ErrorKind.FAILED: Failed,
    ErrorKind.LAGGED: Lagged,
}


for _kind, _class in _CLASSES.items():
    _class.kind = ErrorKind(_kind)


LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ENOLCK})
"""With these of the kernel's numbers a server has left a request in its segment, for others or for later."""


@functools.cache
def _os_class(number: int) -> type[Error]:
    builtin = type(OSError(number, ""))
    return Os if builtin is OSError else type(builtin.__name__, (Os, builtin), {"__doc__": Os.__doc__})


def make(kind: int, op: str, number: int | None, text: str, done: int | None = None, filename: str | None = None) -> Error:
    """The exception for an error of the core."""
    number = _core.ERRNOS[kind] if number is None else number
    error = (_os_class(number) if kind == ErrorKind.OS else _CLASSES[kind])(number, text)
    error.kind = ErrorKind(kind)
    error.op = op
    error.done = done
    error.filename = filename
    return error


def remote(op: str, reason: bytes, text: str) -> RemoteError:
    """The exception for a request that a server gave up. `text` is the message if it gave no
    reason."""
    error = RemoteError(_core.ERRNOS[ErrorKind.FAILED], reason.decode(errors="backslashreplace") if reason else text)
    error.kind = ErrorKind.FAILED
    error.op = op
    error.reason = reason
    return error
