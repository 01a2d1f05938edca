"""A byte pipe inside one process, without descriptors, and without system calls while both sides
run.

One thread or task produces a stream (a JSON document, an archive, a compressed file), and any code
that reads from a file takes it: an HTTP body, a parser, a hasher. The ends are `io.RawIOBase`
objects; `io.BufferedReader`, `io.TextIOWrapper` and the like go around them.

>>> import io, json
>>> from pipework.pipe import pipe, produce
>>> def write(writer):
...     with io.TextIOWrapper(io.BufferedWriter(writer)) as text:
...         json.dump(list(range(100_000)), text)
>>> with produce(write) as reader:
...     sum(json.load(reader))
4999950000

Half a stream does not look whole. If `write` raises, `reader` raises the same, after the last byte
that came before. In a thread or a task of one's own, `with writer,
io.TextIOWrapper(io.BufferedWriter(writer)) as text:` does the same. A writer that is closed while
an exception is on its way hands that over, no matter which code closes it, and also an exception
that an `except` block handles; one that is dropped without being closed is a failure, and no end.
To say that the stream is whole inside an exception handler, call `finish`:

>>> reader, writer = pipe()
>>> pieces = iter([b"all ", b"of it"])
>>> try:
...     while True:
...         _ = writer.write(next(pieces))
... except StopIteration:
...     writer.finish()
>>> reader.read()
b'all of it'
"""

from __future__ import annotations

import contextvars
import io
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from . import _asyncio_tasks, _loops
from ._core import PIPE_CAPACITY as CAPACITY
from ._core import PipeReader, PipeWriter, byte_pipe
from ._errors import Error, ErrorKind, TimedOut, make

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._core import Inbox

__all__ = ["CAPACITY", "Reader", "Writer", "pipe", "produce"]

T = TypeVar("T")


def pipe(capacity: int = CAPACITY) -> tuple[Reader, Writer]:
    """The two ends of a new pipe that holds up to `capacity` bytes.

    Raises `Invalid` (a `ValueError`) if that is 0.
    """
    reader, writer = byte_pipe(capacity)
    return Reader(reader), Writer(writer)


def produce(function: Callable[[Writer], object], *, capacity: int = CAPACITY) -> Reader:
    """Runs `function(writer)` in a thread of its own, and returns the reader of what it writes.

    The stream ends when the function returns. When it raises, the reader's calls raise the same
    exception, once the reader has got everything written before. Until then the function, and every
    wrapper that it puts around the writer, may close the writer without ending the stream. If the
    reader is closed first, the function's next write raises `Closed`, or the exception that the
    reader was closed with; if the function fails after that, nothing reports it.

    >>> import gzip
    >>> from pipework.pipe import produce
    >>> def write(writer):
    ...     with gzip.open(writer, "wb") as packed:
    ...         packed.write(b"some of it")
    ...         raise RuntimeError("the disk is gone")
    >>> with produce(write) as reader, gzip.open(reader) as unpacked:
    ...     unpacked.read()
    Traceback (most recent call last):
        ...
    RuntimeError: the disk is gone
    """
    reader, end = byte_pipe(capacity)
    run = contextvars.copy_context().run
    # A program that ends does not wait for a stream that has no reader.
    threading.Thread(target=run, args=(_produce, function, _Produced(end)), name="produce", daemon=True).start()
    return Reader(reader)


def _produce(function: Callable[[Writer], object], writer: Writer) -> None:
    try:
        function(writer)
    except BaseException as error:
        writer._end.close_with_error(_for_the_other_end(error))
    else:
        writer._end.close()


_FLOW = (StopIteration, StopAsyncIteration, EOFError, BlockingIOError, InterruptedError)
"""Exceptions that loops, `io` and parsers do not take for a failure: the end, or a call to be
made again."""


def _for_the_other_end(error: BaseException) -> BaseException:
    """The exception that the other end raises. An exception that would end a loop, a thread or a
    task there as if all were well becomes only the cause of it."""
    if isinstance(error, _FLOW) or (isinstance(error, BaseException) and not isinstance(error, Exception)):
        failed = _failed(f"the other end was closed with {type(error).__name__}: {error}")
        failed.__cause__ = error
        return failed
    return error


def _wrong(op: str, what: str) -> Error:
    return make(ErrorKind.UNSUPPORTED, f"pipe {op}", None, f"pipe {op}: this end can only be {what}")


def _failed(text: str) -> Error:
    return make(ErrorKind.FAILED, "pipe", None, f"pipe: {text}")


class _End(io.RawIOBase):
    """The common part of both ends. Time-outs are seconds, None is for ever."""

    _end: PipeReader | PipeWriter
    _handled: BaseException | None
    """The exception whose `except` block made this end. It is not on its way through
    this end."""
    _tasks: dict[Callable[..., object], tuple[Inbox, int]]
    """The tasks that wait at this end, which wake when it is closed."""

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

    def __del__(self) -> None:
        if not self.closed:
            self._dealloc_warn(self)
            self.close()

    def _dealloc_warn(self, dropped: object) -> None:
        # `io` calls this just before it closes a raw stream whose wrapper was dropped.
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=dropped)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("an end of a pipe cannot be copied or pickled: the pipe is one of this process, and has two ends")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a pipe{', closed' if self.closed else ''}>"

    def close(self) -> None:
        """Closes this end. The reader gets the bytes that are in the pipe, and then the end of the
        stream; a writer gets `Closed`. A second call does nothing.

        While an exception is on its way or is handled, in a `finally` or an `except` for instance
        or as the end of a wrapper's `with` block, this hands it over: see `close_with_error`.
        """
        error = sys.exc_info()[1]
        self._shut(None if error is self._handled else error)

    def close_with_error(self, error: BaseException) -> None:
        """Closes this end with an exception, which the calls of the other end raise; a reader's
        once it has got what is in the pipe.

        An exception that would mean something else there (`StopIteration`, `EOFError`,
        `KeyboardInterrupt`, a cancelled task, ...) comes as the cause of a `Failed`.

        >>> from pipework.pipe import pipe
        >>> reader, writer = pipe()
        >>> _ = writer.write(b"half")
        >>> writer.close_with_error(RuntimeError("the disk is full"))
        >>> reader.recv(), reader.recv()
        Traceback (most recent call last):
            ...
        RuntimeError: the disk is full
        """
        self._shut(error)

    def _shut(self, error: BaseException | None) -> None:
        if error is not None and not self.closed:
            self._end.close_with_error(_for_the_other_end(error))
        self._handled = None
        try:
            super().close()
        except ValueError:
            if not self.closed:
                raise
            # Another thread has closed it in the middle of this.
        finally:
            self._end.close()
            for inbox, number in self._tasks.copy().values():
                inbox.tell(number)

    async def _when_told(
        self, attempt: Callable[[], T | None], op: str, timeout: float | None
    ) -> T:
        """What `attempt` returns, once it is something. Between two attempts the task waits."""

        def look(inbox: Inbox, number: int) -> T | None:
            while (done := attempt()) is None:
                # Written down first: after that, either `poll` finds this end closed, or `_shut` finds
                # the task.
                self._tasks[look] = inbox, number
                if not self._end.poll(inbox, number):
                    break
            return done

        try:
            return await _asyncio_tasks.when_told(look, op, timeout)
        finally:
            self._tasks.pop(look, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._shut(error)


class Reader(_End):
    """The reading end: a raw, readable stream. One thread or task at a time.

    Its methods of `io` wait as long as it takes. `Failed`, or the exception that the writer closed
    with, comes after the last byte.
    """

    _end: PipeReader

    def __init__(self, end: PipeReader) -> None:
        self._end = end
        self._handled = sys.exc_info()[1]
        self._tasks = {}

    def readable(self) -> bool:
        """True."""
        return True

    def write(self, data: Buffer, /) -> NoReturn:
        """Raises `Unsupported` (an `io.UnsupportedOperation`): this is the end for reading."""
        raise _wrong("write", "read")

    def read(self, size: int | None = -1, /) -> bytes:
        """Waits for the first byte and returns the bytes that are there, up to `size`; if `size` is
        negative or None, everything until the end of the stream."""
        return self.readall() if size is None or size < 0 else self._end.recv(size)

    def readinto(self, buffer: Buffer, /, *, timeout: float | None = None) -> int:
        """Waits for the first byte and copies the bytes that are there to the beginning of `buffer`.
        Returns how many; 0 at the end of the stream. Raises `TimedOut`."""
        return self._end.recv_into(buffer, timeout)

    def recv(self, count: int = CAPACITY, *, timeout: float | None = None) -> bytes:
        """Waits for the first byte and returns the bytes that are there, up to `count`; b"" at the
        end of the stream. Raises `TimedOut`."""
        return self._end.recv(count, timeout)

    def try_recv(self, count: int = CAPACITY) -> bytes | None:
        """The bytes that are there now, up to `count`; None if the pipe is empty, b"" at the end of
        the stream. Never waits."""
        return self._end.try_recv(count)

    async def arecv(self, count: int = CAPACITY, *, timeout: float | None = None) -> bytes:
        """As `recv`, in asyncio or trio. A cancelled task has taken nothing."""
        return await self._when_told(lambda: self._end.try_recv(count), "pipe recv", timeout)

    def copy_to_fd(self, fd: int, *, count: int | None = None, timeout: float | None = None) -> int:
        """Copies `count` bytes, or everything up to the end of the stream, to a descriptor. Returns
        how many.

        The `done` of an exception says how many have arrived; no others have left the pipe.
        """
        return self._end.copy_to_fd(fd, count, timeout)


class Writer(_End):
    """The writing end: a raw, writable stream. One thread or task at a time. Written bytes can be
    read at once.

    Its methods of `io` wait as long as it takes. If the reader is closed they raise `Closed` (a
    `BrokenPipeError`), or the exception that the reader was closed with.
    """

    _end: PipeWriter

    def __init__(self, end: PipeWriter) -> None:
        self._end = end
        self._handled = sys.exc_info()[1]
        self._tasks = {}
        self._dropped = False

    def __del__(self) -> None:
        self._dropped = True
        super().__del__()

    def _dealloc_warn(self, wrapper: object) -> None:
        self._dropped = True
        super()._dealloc_warn(wrapper)

    def close(self) -> None:
        """Closes this end: the reader gets what is in the pipe, and then the end of the stream. A
        second time does nothing.

        While an exception is on its way, in a `finally` for instance or as the end of a wrapper's
        `with` block, this hands it over: see `close_with_error`. The same holds inside `except`,
        because the writer cannot tell whether the exception has to do with the stream: there,
        `finish` ends the stream well.
        """
        if self._dropped and not self.closed:
            self._shut(_failed("the writer was dropped without being closed"))
        else:
            super().close()

    def finish(self) -> None:
        """Closes this end, and the stream is whole, even while an exception is raised or handled.
        A second time does nothing.

        A wrapper that holds bytes back is flushed before.
        """
        self._shut(None)

    def writable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1, /) -> NoReturn:
        """Raises `Unsupported` (an `io.UnsupportedOperation`): this is the end for writing."""
        raise _wrong("read", "written to")

    def readall(self) -> NoReturn:
        """As `read`."""
        raise _wrong("readall", "written to")

    def readinto(self, buffer: Buffer, /) -> NoReturn:
        """As `read`."""
        raise _wrong("readinto", "written to")

    def write(self, data: Buffer, /) -> int:
        """Waits until all of `data` is in the pipe, unlike other raw streams, and returns its length
        in bytes."""
        return self._end.send(data)

    def send(self, data: Buffer, *, timeout: float | None = None) -> None:
        """As `write`, with a deadline. Raises `TimedOut`, whose `done` is the number of bytes that
        are in the pipe."""
        self._end.send(data, timeout)

    def try_send(self, data: Buffer) -> int | None:
        """Puts the beginning of `data` into the free space. Returns the number of bytes; None if
        the pipe is full. Never waits."""
        return self._end.try_send(data)

    async def asend(self, data: Buffer, *, timeout: float | None = None) -> None:
        """As `send`, in asyncio or trio. A cancelled task may have put a part of `data` in."""
        # Bytes are lent, and everything else would be copied at each attempt.
        whole, done = data if isinstance(data, bytes) else bytes(memoryview(data)), 0
        loop = _loops.running()
        deadline = None if timeout is None else loop.time() + timeout
        while done < len(whole):
            left = None if deadline is None else deadline - loop.time()
            try:
                done += await self._when_told(lambda: self._end.try_send(whole, done), "pipe send", left)
            except TimedOut as late:
                late.done = done
                raise

    def copy_from_fd(self, fd: int, *, count: int | None = None, timeout: float | None = None) -> int:
        """Copies `count` bytes, or everything up to the end of file, from a descriptor. Returns how
        many.

        The `done` of an exception says how many are in the pipe; no others have left the descriptor.
        """
        return self._end.copy_from_fd(fd, count, timeout)


class _Produced(Writer):
    """The writer of a function that `produce` runs: closing it does not end the stream, because the
    function may fail afterwards."""

    def _shut(self, error: BaseException | None) -> None:
        io.RawIOBase.close(self)

    def _dealloc_warn(self, dropped: object) -> None:
        pass
