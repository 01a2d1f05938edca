"""A byte pipe inside one process, without descriptors, and without system calls while both sides run.

One thread or task produces a stream (a JSON document, an archive, a compressed file), and whatever wants a file to read from takes it: an HTTP body, a parser,
a hasher. The ends are `io.RawIOBase` objects; `io.BufferedReader`, `io.TextIOWrapper` and the like go around them.

>>> import io, json, threading
>>> from pipework.pipe import pipe
>>> reader, writer = pipe()
>>> def produce():
...     with io.TextIOWrapper(io.BufferedWriter(writer)) as text:
...         json.dump(list(range(100_000)), text)
>>> thread = threading.Thread(target=produce)
>>> thread.start()
>>> sum(json.load(reader))
4999950000
>>> thread.join()

A writer that a `with` statement closes on account of an exception hands that exception to the reader: half a stream does not look whole.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import TYPE_CHECKING

from . import _tasks
from ._core import PIPE_CAPACITY as CAPACITY
from ._core import PipeReader, PipeWriter, byte_pipe

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._core import Inbox

__all__ = ["CAPACITY", "Reader", "Writer", "pipe"]


def pipe(capacity: int = CAPACITY) -> tuple[Reader, Writer]:
    """The two ends of a new pipe that holds up to `capacity` bytes.

    Raises `Invalid` (a `ValueError`) if that is 0.
    """
    reader, writer = byte_pipe(capacity)
    return Reader(reader), Writer(writer)


class _End(io.RawIOBase):
    """What both ends have. Time-outs are seconds, None is for ever."""

    _end: PipeReader | PipeWriter

    @property
    def capacity(self) -> int:
        """Bytes that the pipe holds at most."""
        return self._end.capacity

    @property
    def buffered(self) -> int:
        """Bytes that are in the pipe now. The other end may change that at any time."""
        return self._end.buffered

    @property
    def peer_closed(self) -> bool:
        """Whether the other end is closed."""
        return self._end.peer_closed

    def close(self) -> None:
        """Closes this end. The reader gets what is in the pipe, and then the end of the stream; a writer finds that nobody reads. A second time
        does nothing."""
        try:
            super().close()
        finally:
            self._end.close()

    def close_with_error(self, error: BaseException) -> None:
        """Closes this end with an exception, which the calls of the other end raise; a reader's once it has got what is in the pipe.

        >>> reader, writer = pipe()
        >>> _ = writer.write(b"half")
        >>> writer.close_with_error(RuntimeError("the disk is full"))
        >>> reader.recv(), reader.recv()
        Traceback (most recent call last):
            ...
        RuntimeError: the disk is full
        """
        self._end.close_with_error(error)
        self.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._end.close_with_error(error)
        self.close()


class Reader(_End):
    """The reading end: a raw, readable stream. One thread or task at a time.

    Its methods of `io` wait as long as it takes. `Failed`, or the exception that the writer closed with, comes after the last byte.
    """

    _end: PipeReader

    def __init__(self, end: PipeReader) -> None:
        self._end = end

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Waits for the first byte and returns what is there, up to `size` bytes; everything until the end of the stream if it is negative or None."""
        return self.readall() if size is None or size < 0 else self._end.recv(size)

    def readinto(self, buffer: Buffer, /) -> int:
        """Waits for the first byte and takes what is there, as much as `buffer` holds. Returns how much; 0 at the end of the stream."""
        return self._end.recv_into(buffer)

    def recv(self, n: int = CAPACITY, timeout: float | None = None) -> bytes:
        """Waits for the first byte and returns what is there, up to `n` bytes; b"" at the end of the stream. Raises `TimedOut`."""
        return self._end.recv(n, timeout)

    def try_recv(self, n: int = CAPACITY) -> bytes | None:
        """What is there now, up to `n` bytes; None if there is nothing, b"" at the end of the stream. Never waits."""
        return self._end.try_recv(n)

    def recv_into(self, buffer: Buffer, timeout: float | None = None) -> int:
        """As `readinto`, with a deadline. Raises `TimedOut`."""
        return self._end.recv_into(buffer, timeout)

    async def arecv(self, n: int = CAPACITY) -> bytes:
        """As `recv`, in asyncio. A task that is cancelled has taken nothing."""
        end = self._end

        def attempt(inbox: Inbox, number: int) -> bytes | None:
            while (taken := end.try_recv(n)) is None and end.poll(inbox, number):
                pass
            return taken

        return await _tasks.when_told(attempt)

    def copy_to_fd(self, fd: int, n: int | None = None, timeout: float | None = None) -> int:
        """Copies `n` bytes to a descriptor, or everything until the end of the stream. Returns how many.

        The `done` of an exception says how many had arrived; no other has left the pipe.
        """
        return self._end.copy_to_fd(fd, n, timeout)


class Writer(_End):
    """The writing end: a raw, writable stream. One thread or task at a time. What is written can be read at once.

    Its methods of `io` wait as long as it takes. `Closed` (a `BrokenPipeError`), or the exception that the reader closed with, tells that nobody reads.
    """

    _end: PipeWriter

    def __init__(self, end: PipeWriter) -> None:
        self._end = end

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Puts in all of `data`, unlike other raw streams, and returns its length in bytes."""
        return self._end.send_all(data)

    def send(self, data: Buffer, timeout: float | None = None) -> int:
        """Waits for room for the first byte and puts in as much as there is room for. Returns how much. Raises `TimedOut`."""
        return self._end.send(data, timeout)

    def try_send(self, data: Buffer) -> int | None:
        """Puts in what there is room for now. Returns how much; None if there is no room. Never waits."""
        return self._end.try_send(data)

    def send_all(self, data: Buffer, timeout: float | None = None) -> int:
        """As `write`, with a deadline. Raises `TimedOut`, whose `done` says how much was put in."""
        return self._end.send_all(data, timeout)

    async def asend(self, data: Buffer) -> int:
        """As `write`, in asyncio. A task that is cancelled may have put in a part."""
        # Bytes are lent, and everything else would be copied at each attempt.
        end, whole, done = self._end, data if isinstance(data, bytes) else bytes(data), 0

        def attempt(inbox: Inbox, number: int) -> int | None:
            while (sent := end.try_send(whole, done)) is None and end.poll(inbox, number):
                pass
            return sent

        while done < len(whole):
            done += await _tasks.when_told(attempt)
        return done

    def copy_from_fd(self, fd: int, n: int | None = None, timeout: float | None = None) -> int:
        """Copies `n` bytes from a descriptor, or everything that it has. Returns how many.

        The `done` of an exception says how many are in the pipe; no other has left the descriptor.
        """
        return self._end.copy_from_fd(fd, n, timeout)
