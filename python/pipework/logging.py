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
import logging
import operator
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

from . import atomic
from ._errors import Closed, Error, Invalid, TornMessage

__all__ = ["Handler", "Listener"]

_CAPACITY = 1 << 20
"""Bytes that the pipe is to hold, where the system lets it."""

_plain = logging.Formatter()


class Handler(logging.Handler):
    """Sends records to a `Listener`, through the writing end of its pipe or the FIFO at a path.

    A record may wait for space for `timeout` seconds. One that cannot be sent is counted in `lost`,
    and those after it do not wait until one goes through; then the listener gets the number of
    missing records. Nothing is raised. Messages are formatted here, and fields of a record that are
    not plain data travel as their `repr`.
    """

    lost: int = 0
    """Records that could not be sent."""

    def __init__(
        self, writer: atomic.Writer | str | os.PathLike[str], *, level: int = logging.NOTSET, timeout: float = 1.0
    ) -> None:
        super().__init__(level)
        if not isinstance(writer, atomic.Writer):
            writer = atomic.Writer.fifo(writer, connect_timeout=timeout)
        self._writer = writer
        self._timeout = timeout
        self._untold = 0

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
            self.handleError(record)
            return
        if self._send(data) and (untold := self._take_untold()):
            self._send(_packed(_missing(f"{untold} records could not be sent"), _plain), untold)

    def _take_untold(self) -> int:
        if self._untold:
            with self._counting():
                self._untold, untold = 0, self._untold
                return untold
        return 0

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """One thread at a time. A signal handler may count in the middle, and a forked child gets a
        lock that is free: the standard library sees to both."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _send(self, data: bytes, records: int = 1) -> bool:
        try:
            self._writer.send(data, timeout=0 if self._untold else self._timeout)
            return True
        except (Error, RuntimeError):  # RuntimeError: a signal handler logs in the middle of another record
            with self._counting():
                self.lost += 1
                self._untold += records
            return False

    def close(self) -> None:
        """Closes its end of the pipe."""
        try:
            self._writer.close(timeout=self._timeout)
        except Error:
            pass
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _handler, (self._writer, self.level, self._timeout)


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
        self._thread: threading.Thread | None = None
        self._first_start = threading.Lock()
        """Taken once: of several threads one starts the listener."""

    def handler(self, *, level: int = logging.NOTSET, timeout: float = 1.0) -> Handler:
        """A handler that sends to this listener, for this process or another."""
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
        if self._thread is not None:
            with contextlib.suppress(Invalid, Closed):  # it was stopped before
                self._writer.send(b"")
            self._thread.join()
        self._writer.close()
        self._reader.close()

    def handle(self, record: logging.LogRecord) -> None:
        """Hands a record to the handlers."""
        for handler in self.handlers:
            if not self.respect_handler_level or record.levelno >= handler.level:
                try:
                    handler.handle(record)
                except Exception:
                    handler.handleError(record)

    def _listen(self) -> None:
        while True:
            try:
                data = self._reader.recv()
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

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def _handler(writer: atomic.Writer, level: int, timeout: float) -> Handler:
    return Handler(writer, level=level, timeout=timeout)


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
    if len(fields) != len(_FIELDS):
        others = {
            name: value if type(value) in _PLAIN else repr(value) for name, value in fields.items() if name not in _FIELDS
        }
    return pickle.dumps((_get(fields), record.getMessage(), exc_text, others), 5)


def _unpacked(data: bytes) -> logging.LogRecord:
    as_they_are, message, exc_text, others = _Plain(io.BytesIO(data)).load()
    record = logging.LogRecord.__new__(logging.LogRecord)
    record.__dict__.update(zip(_FIELDS, (*as_they_are, message, exc_text, None, None)))
    if others:
        record.__dict__.update(others)
    return record


class _Plain(pickle.Unpickler):
    """Unpickles plain data only: a process that may log must not run code in this one."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
