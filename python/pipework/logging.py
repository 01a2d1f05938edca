"""Log records of many processes through one pipe, whole and in the order of each.

A `Listener` has the pipe's reading end and the handlers that records come to. Each process logs to
a `Handler`, which sends a record with one write, or a few for a long one: without a lock, without a
thread, and without losing what a process has logged when it is killed a moment later.

>>> import logging, multiprocessing, sys
>>> from pipework.logging import Listener
>>> def work(handler, number):
...     logger = logging.getLogger("worker")
...     logger.addHandler(handler)
...     logger.warning("number %d", number)
>>> console = logging.StreamHandler(sys.stdout)
>>> console.setFormatter(logging.Formatter("%(name)s: %(message)s"))
>>> context = multiprocessing.get_context("fork")
>>> with Listener(console) as listener:
...     worker = context.Process(target=work, args=(listener.handler(), 1))
...     worker.start(); worker.join()
worker: number 1

A handler can be pickled, for processes that are spawned. Processes that were started elsewhere meet
at a FIFO: `Listener(console, path="/run/application/log")`, and `Handler("/run/application/log")`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import operator
import os
import pickle
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import atomic
from ._descriptors import Held
from ._errors import Closed, Error, Invalid, TimedOut, TornMessage

__all__ = ["Handler", "Listener"]

_CAPACITY = 1 << 20
"""Bytes that the pipe is to hold, where the system lets it."""

_MOST_WASTED = 5
"""A listener that does not read costs a process at most so many times its `timeout`."""
_SHARE = 0.1
"""And after that, this share of its time."""
_LEAST = 0.05
"""A shorter wait than this part of `timeout` is none."""

_LOOK = 1.0
"""Seconds between two looks of an idle listener whether its descriptor is still its own."""

_plain = logging.Formatter()


class Handler(logging.Handler):
    """Sends records to a `Listener`, through the writing end of its pipe or the FIFO at a path.

    A record may wait for space for `timeout` seconds. If there is none the record is lost, and those
    after it wait a little shorter each time, until one goes through: a listener that does not read
    costs a process at most five times `timeout` altogether, and after that a tenth of its time.

    The listener gets the number of records that are lost, with the next one that goes through or when
    this handler is flushed or closed, as `logging.shutdown` does. What cannot be sent even then is
    written to standard error. Nothing is raised. Messages are formatted here, and fields of a record
    that are not plain data travel as their `repr`.
    """

    lost: int
    """Records of this process that could not be sent."""

    def __init__(
        self, writer: atomic.Writer | str | os.PathLike[str], *, level: int = logging.NOTSET, timeout: float = 1.0
    ) -> None:
        super().__init__(level)
        if not isinstance(writer, atomic.Writer):
            writer = atomic.Writer.fifo(writer, connect_timeout=timeout)
        self._writer = writer
        self._descriptor = _held(writer)
        self._timeout = timeout
        self._begin()
        _handlers.add(self)

    def _begin(self) -> None:
        """Begins to count. A forked child begins again: its parent reports its own losses."""
        self.lost = 0
        self._untold = 0
        self._wasted = 0.0
        """Seconds that lost records have waited since one went through, less a share of the time
        since then."""
        self._since = 0.0
        self._tells_at_exit = False

    def handle(self, record: logging.LogRecord) -> Any:
        # As the standard library's, but without its lock: the writer lets threads take turns.
        passed = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = _packed(record, self.formatter or _plain)
        except Exception:
            self._lose()
            self.handleError(record)
            return
        if self._send(data) and self._untold:
            self.flush()

    def flush(self) -> None:
        """Sends the listener the number of records that are lost, if it has not got it. That waits for
        at most `timeout` seconds."""
        untold, is_told = 0, False
        try:
            with self._counting():
                untold, self._untold = self._untold, 0
            if untold:
                self._descriptor.check("handler")
                self._writer.send(_packed(_missing(_lost(untold)), _plain), timeout=self._timeout)
            is_told = True
        except _REFUSALS:
            pass
        finally:
            if not is_told:
                with self._counting():
                    self._untold += untold

    def close(self) -> None:
        """Closes its end of the pipe."""
        self._tell_last()
        with contextlib.suppress(Error):
            if not self._descriptor.is_intact():
                self._writer.discard()
            self._writer.close(timeout=self._timeout)
        super().close()

    def __del__(self) -> None:
        if getattr(self, "_untold", 0):
            self._tell_last()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._writer.closed:
            self._descriptor.check("handler")
        return _handler, (self._writer, self.level, self._timeout)

    def __copy__(self) -> Handler:
        _, (writer, *rest) = self.__reduce__()
        return _handler(writer.clone(), *rest)

    def _tell_last(self) -> None:
        """Says how many records are lost, here if not to the listener."""
        self.flush()
        with self._counting():
            untold, self._untold = self._untold, 0
        if untold and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # it is closed
                print(f"pipework.logging: {_lost(untold)}", file=sys.stderr, flush=True)

    def _send(self, data: bytes) -> bool:
        timeout = self._patience() if self._wasted else self._timeout
        began, is_sent = time.monotonic(), False
        try:
            # A long record that finds no space for all of it would leave a useless piece in the pipe.
            fits = timeout or not self._wasted or len(data) <= self._writer.max_part
            if fits and self._descriptor.is_intact():
                self._writer.send(data, timeout=timeout)
                is_sent = True
        except _REFUSALS:
            pass
        finally:
            if is_sent:
                self._wasted = 0.0
            else:
                self._lose(time.monotonic() - began)
        return is_sent

    def _patience(self) -> float:
        """Seconds that a record may wait while the listener does not seem to read."""
        now = time.monotonic()
        self._wasted = max(self._wasted - _SHARE * (now - self._since), 0.0)
        self._since = now
        left = self._timeout - self._wasted / _MOST_WASTED
        return left if left >= _LEAST * self._timeout else 0.0

    def _lose(self, wasted: float = 0.0) -> None:
        """Counts a lost record that has waited so many seconds."""
        with self._counting():
            self.lost += 1
            self._untold += 1
            self._wasted += wasted
            self._since = time.monotonic()
            is_first, self._tells_at_exit = not self._tells_at_exit, True
        # A process of multiprocessing does not shut logging down. If the module is not loaded, this is no such process.
        if is_first and (util := sys.modules.get("multiprocessing.util")) is not None:
            util.Finalize(None, _tell_last, (weakref.ref(self),), exitpriority=0)

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """One thread at a time. A signal handler may count in the middle, and a forked child gets a
        lock that is free: the standard library sees to both."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


class Listener:
    """Hands the records of many processes to handlers, in a thread, from `start` or the beginning
    of a `with` block until `stop` or its end.

    path: A FIFO, which is made if it does not exist, and is left where it is. Default: a pipe
        without a name, for processes that inherit or are given a `handler()`.
    respect_handler_level: Whether a handler gets only records of its level and above. Default
        False, as that of `logging.handlers.QueueListener`.
    """

    def __init__(
        self,
        *handlers: logging.Handler,
        path: str | os.PathLike[str] | None = None,
        respect_handler_level: bool = False,
    ) -> None:
        self.handlers = handlers
        self.respect_handler_level = respect_handler_level
        if path is None:
            self._reader, self._writer = atomic.pair()
        else:
            if not os.path.exists(path):
                atomic.create_fifo(path)
            self._reader = atomic.Reader.listen(path)
            self._writer = atomic.Writer.fifo(path, connect_timeout=0)
        self._reader.capacity = min(_CAPACITY, atomic.max_capacity())
        self._descriptors = _held(self._reader), _held(self._writer)
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._first_start = threading.Lock()
        """Taken once: of several threads one starts the listener."""

    def handler(self, *, level: int = logging.NOTSET, timeout: float = 1.0) -> Handler:
        """A handler that sends to this listener, for this process or another."""
        if not self._writer.closed:
            self._descriptors[1].check("listener")
        return Handler(self._writer.clone(), level=level, timeout=timeout)

    def start(self) -> None:
        """Starts the thread."""
        if not self._first_start.acquire(blocking=False):
            raise RuntimeError("this listener was started already")
        self._thread = threading.Thread(target=self._listen, name="pipework.logging", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there are too many threads: it may be started later
            self._thread = None
            self._first_start.release()
            raise

    def stop(self) -> None:
        """Handles all records sent before this call, and closes the pipe. Processes may go on with
        their handlers, which count what they cannot send. A second time does nothing."""
        read_end, write_end = (each.is_intact() for each in self._descriptors)
        wait = None if read_end and write_end else 2 * _LOOK
        if self._thread is not None:
            if write_end:
                with contextlib.suppress(Invalid, Closed, TimedOut):  # it was stopped before
                    self._writer.send(b"", timeout=wait)
            self._thread.join(wait)
        self._is_stopped = True
        if not write_end:
            with contextlib.suppress(Invalid):
                self._writer.discard()
        self._writer.close()
        self._reader.close()

    def handle(self, record: logging.LogRecord) -> None:
        """Hands a record to the handlers."""
        for handler in self.handlers:
            try:
                # A level may be no number.
                if not self.respect_handler_level or record.levelno >= handler.level:
                    handler.handle(record)
            except Exception:
                handler.handleError(record)

    def _listen(self) -> None:
        read_end, _ = self._descriptors
        waiting = select.poll()
        waiting.register(read_end.number, select.POLLIN)
        while True:
            try:
                if not read_end.is_intact():
                    if not self._is_stopped:
                        self.handle(_missing("the program closed the descriptor of this listener: no more records come"))
                    return
                data = self._reader.try_recv()
                if data is None:
                    # Not in the reader, which would read from the number at once when it wakes.
                    waiting.poll(1000 * _LOOK)
                    continue
                if not data:
                    return
                record = _unpacked(data)
            except Closed:
                return
            except TornMessage as error:
                record = _missing(f"a record was cut off: {error}")
            except Exception as error:
                record = _missing(f"what came is no record: {error}")
            self.handle(record)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a listener cannot be copied or pickled: give other processes a handler()")

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def _handler(writer: atomic.Writer, level: int, timeout: float) -> Handler:
    return Handler(writer, level=level, timeout=timeout)


_handlers: weakref.WeakSet[Handler] = weakref.WeakSet()


def _forked() -> None:
    for handler in _handlers:
        handler._begin()


os.register_at_fork(after_in_child=_forked)


def _tell_last(reference: Callable[[], Handler | None]) -> None:
    handler = reference()
    if handler is not None:
        handler._tell_last()


def _held(end: atomic.Reader | atomic.Writer) -> Held:
    """What this end has. The number may soon be that of a file of the program."""
    try:
        return Held.of(end.fileno())
    except Invalid:  # it is closed
        return Held(-1, None)


_REFUSALS = (OSError, RuntimeError, MemoryError)
"""Why a record cannot be sent. RuntimeError: a signal handler logs in the middle of another record."""


def _lost(count: int) -> str:
    return f"{count} records could not be sent"


def _missing(text: str) -> logging.LogRecord:
    return logging.LogRecord("pipework.logging", logging.WARNING, __file__, 0, text, None, None)


# ---------------------------------------------------------------- records on the wire

# A tuple, for names would be two thirds of a record: the fields that a record of any Python version
# has, and a dictionary of those that this one has besides.
_AS_THEY_ARE = (
    "name levelname levelno pathname filename module stack_info lineno funcName created msecs relativeCreated "
    "thread threadName processName process"
).split()
_MADE_HERE = ("msg", "exc_text", "args", "exc_info")
_FIELDS = (*_AS_THEY_ARE, *_MADE_HERE)
_get = operator.itemgetter(*_AS_THEY_ARE)
_PLAIN = frozenset({str, int, float, bool, type(None), bytes})


def _packed(record: logging.LogRecord, formatter: logging.Formatter) -> bytes:
    fields, exc_text, others = record.__dict__, record.exc_text, None
    if record.exc_info and not exc_text:
        exc_text = formatter.formatException(record.exc_info)
    try:
        as_they_are, is_usual = _get(fields), len(fields) == len(_FIELDS)
    except KeyError:  # a record of the program's own making
        as_they_are, is_usual = tuple(map(fields.get, _AS_THEY_ARE)), False
    if not is_usual:
        others = {_plainly(name): _plainly(value) for name, value in fields.items() if name not in _FIELDS}
    made = as_they_are, (record.getMessage(), exc_text)
    if not _PLAIN.issuperset(map(type, itertools.chain(*made))):
        made = tuple(map(_plainly, as_they_are)), tuple(map(_plainly, made[1]))
    return pickle.dumps((*made, others), 5)


def _plainly(value: Any) -> Any:
    """What the listener can read: the same without its subclass, or else the `repr`."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    try:
        for plain, convert in _CONVERSIONS:
            if issubclass(kind, plain):
                return convert(value)
        return str.__str__(repr(value))
    except Exception as error:
        return f"<{kind.__name__}, whose repr raised {type(error).__name__}>"


# Not what a subclass makes of them.
_CONVERSIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__index__),
    (float, float.__float__),
    (bytes, lambda value: memoryview(value).tobytes()),
)


def _unpacked(data: bytes) -> logging.LogRecord:
    as_they_are, (message, exc_text), others = _Plain(io.BytesIO(data)).load()
    record = logging.LogRecord.__new__(logging.LogRecord)
    record.__dict__.update(zip(_FIELDS, (*as_they_are, message, exc_text, None, None)))
    if others:
        record.__dict__.update(others)
    return record


class _Plain(pickle.Unpickler):
    """Unpickles plain data only: a process that may log must not run code in this one."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
