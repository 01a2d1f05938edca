"""The connections of `pipework.multiprocessing`: a pair of sockets that keep messages whole.

The kernel hands over a message in one step. So any number of processes may send and receive at the
same end, without a lock, and one that is killed leaves whole messages or none. A long message, and
each long buffer of an object, is a file in memory, which goes with the message and ends with its
last holder.
"""

from __future__ import annotations

import array
import collections
import contextlib
import errno
import fcntl
import functools
import io
import itertools
import mmap
import multiprocessing.connection
import operator
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

from . import fd
from ._descriptors import identity
from ._objects import MOST_BUFFERS, Pickled, dump, load, outside

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MARK = b"\0"
"""The first byte of a message. An empty one is the end."""
_LONG = 120 << 10
"""A message or a buffer with more bytes is a file, which costs more than to copy as many bytes. For a longer
message, malloc would ask the kernel for new memory each time."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_CUT = int(socket.MSG_CTRUNC)
"""A number: the operators of a flag are functions of Python, in which an exception of a signal handler would
lose the message."""
_FILES = socket.CMSG_SPACE(array.array("i").itemsize * (MOST_BUFFERS + 1))


def pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Connection(here.detach(), writable=duplex), Connection(there.detach(), readable=duplex)


class Connection(multiprocessing.connection.Connection):
    """As `multiprocessing.connection.Connection`; any number of processes may use it at a time."""

    def __init__(self, handle: int, readable: bool = True, writable: bool = True) -> None:
        super().__init__(handle, readable, writable)
        self._identity = identity(handle)
        self._socket = socket.socket(fileno=handle)
        self._socket.setblocking(True)  # whatever `socket.setdefaulttimeout` says
        self._to_close = [self._socket]

    def send(self, obj: object) -> None:
        """Sends an object as a pickle."""
        self._check_closed()
        if not self.writable:
            raise OSError("connection is read-only")
        self._send_message(dump(obj, long=_LONG))

    def recv(self) -> Any:
        """Receives an object."""
        self._check_closed()
        if not self.readable:
            raise OSError("connection is write-only")
        return load(*self._receive_message())

    def __reduce__(self) -> tuple[Any, ...]:
        copy = reduction.DupFd(self.fileno())
        return _rebuild, (type(self), copy, self.readable, self.writable)

    # What the base class builds on.

    def _send_bytes(self, buf: memoryview) -> None:
        self._send_message(Pickled(buf, []))

    def _recv_bytes(self, maxsize: int | None = None) -> io.BytesIO | None:
        data, files = self._receive_message()
        whole: bytes | mmap.mmap = data
        if files and not data:
            whole, *files = files
        if files:  # it was sent as an object
            whole = pickle.dumps(pickle.loads(whole, buffers=files), 5)
        if maxsize is not None and len(whole) > maxsize:
            return None
        # Its position is behind what it holds, as the base class expects.
        result = io.BytesIO()
        result.write(whole)
        return result

    def _close(self) -> None:
        # The thread that pops the socket closes it. Without the GIL, a socket that two threads close at
        # the same time can close its descriptor twice, and the second time that may be another file.
        with contextlib.suppress(IndexError):
            end = self._to_close.pop()
            if identity(end.fileno()) == self._identity:
                end.close()
            else:
                end.detach()

    def is_intact(self) -> bool:
        """Whether it is open, and the program has left its descriptor open."""
        return identity(self._socket.fileno()) == self._identity

    def _check_closed(self) -> None:
        if self.closed:
            raise OSError("handle is closed")
        if not self.is_intact():
            raise OSError(errno.EBADF, "the descriptor of this connection was closed by the program")

    # Messages.

    def _send_message(self, message: Pickled) -> None:
        data, buffers = outside(message, _LONG)
        files: list[int] = []
        close_all = map(os.close, files)
        try:
            for buffer in buffers:
                files.extend(map(os.memfd_create, ("pipework",), (os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING,)))
                fd.write_all(files[-1], buffer)
                # The receiver may rely on its size.
                fcntl.fcntl(files[-1], fcntl.F_ADD_SEALS, _SEALS)
            while True:
                try:
                    if files:
                        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files)
                        self._socket.sendmsg([_MARK, data], [rights])
                    else:
                        self._socket.send(_MARK + data)
                    return
                except OSError as error:
                    if error.errno == errno.EMSGSIZE and data:  # a kernel with small socket buffers
                        self._send_message(Pickled(b"", [data, *buffers]))
                        return
                    if error.errno == errno.ECONNRESET:  # it was closed with messages that nobody has read
                        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
                    # Too many files of this user are on their way: until some are received.
                    if error.errno != errno.ETOOMANYREFS:
                        raise
                time.sleep(0.001)
        finally:
            _exhaust(close_all)

    def _receive_message(self) -> tuple[bytes, list[mmap.mmap]]:
        came: list[Any] = []
        close_all = map(os.close, _files_in(came))
        try:
            came.extend(map(self._socket.recvmsg, (len(_MARK) + _LONG,), (_FILES,), (socket.MSG_CMSG_CLOEXEC,)))
            data, rights, flags, _ = came[0]
            if data and not rights and not flags & _CUT:
                return data[len(_MARK) :], []
            if not data:
                raise EOFError
            if flags & _CUT:
                raise OSError(errno.EMFILE, "a message has come with more files than this process may open")
            return data[len(_MARK) :], [mmap.mmap(each, 0, access=mmap.ACCESS_COPY) for each in _files_in(came)]
        except ConnectionResetError:
            # The other end was closed, with messages that nobody has read. Those that it has sent are
            # still there.
            return self._receive_message()
        finally:
            _exhaust(close_all)


def _rebuild(kind: type[Connection], copy: Any, readable: bool, writable: bool) -> Connection:
    return kind(copy.detach(), readable, writable)


# A signal handler that raises ends any call of a function just behind it. So a descriptor gets into the
# list that it is closed from within the call that makes it, and one call closes all of them: `map` makes
# its calls as it is read, and a list may grow until then.

_exhaust: Callable[[Iterator[None]], object] = functools.partial(collections.deque, maxlen=0)
"""Reads an iterator to its end."""

_rights = operator.itemgetter(1)
_numbers = operator.itemgetter(2)
_as_ints = functools.partial(array.array, "i")


def _files_in(came: list[Any]) -> Iterator[int]:
    """The descriptors that have come with messages, when it is read."""
    each = itertools.chain.from_iterable
    return each(map(_as_ints, map(_numbers, each(map(_rights, came)))))
