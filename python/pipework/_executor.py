"""The executor: tasks go through one segment, from which its processes take them.

A task that was taken fails with its process, and nothing else does. The crew keeps as many tasks in
the segment as the processes need to stay busy; the others wait here, where they can be cancelled.
No process and no thread holds a lock while it waits for another process.
"""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import struct
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _core
from ._errors import Error, PeerDied

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext

    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

_SLOT = 1 << 16
_QUICK = 0.001
"""Seconds from one result to the next, of tasks that soon begin when they were handed out."""
_ANY = 1 << 62
"""Bytes of the longest task and result: memory is the limit."""


class Executor(concurrent.futures.Executor):
    """Runs functions in other processes, as `concurrent.futures.ProcessPoolExecutor` does.

    If a process is killed, the future of what it was doing raises `PeerDied`; all others go on, and
    another process takes its place. With `redeliveries`, what it was doing is begun again, up to so
    many times: for functions that may run twice.

    max_workers: Processes, which are started as they are needed. Default: the CPUs that this
        process may use.
    mp_context: How processes are started, as `multiprocessing.get_context` returns it. Default
        "forkserver": the main module has to keep what only the program is to do behind
        `if __name__ == "__main__":`.
    initializer: Called with `initargs` in each process before its first task. If it raises, futures
        raise `concurrent.futures.BrokenExecutor`.
    max_tasks_per_child: A process ends after so many tasks, and another takes its place. Default
        None, which is never.

    Functions, arguments and results travel as pickles: functions are those of modules, lambdas are
    not, and both sides trust each other. The buffers of what supports it, numpy's arrays among it,
    are not copied into the pickle.

    >>> from pipework import Executor
    >>> with Executor(2) as executor:
    ...     future = executor.submit(pow, 2, 10)
    ...     print(future.result(), list(executor.map(abs, [-1, -2])))
    1024 [1, 2]
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        redeliveries: int = 0,
        mp_context: BaseContext | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
    ) -> None:
        if max_workers is None:
            max_workers = len(os.sched_getaffinity(0))
        if max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None and max_tasks_per_child < 1:
            raise ValueError("max_tasks_per_child must be 1 or more")
        context = mp_context or multiprocessing.get_context("forkserver")
        self._crew = _Crew(context, max_workers, redeliveries, (initializer, initargs, max_tasks_per_child))
        # What was submitted is done although nobody refers to the executor any more.
        weakref.finalize(self, self._crew.close).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Has `fn(*args, **kwargs)` run in one of the processes, and returns its future. What has
        not begun can be cancelled, but for the next one; while tasks take less than a millisecond,
        for the next few."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            task = _Task(future, *_dump((fn, args, kwargs)))
        except Exception as error:
            self._crew.refuse()
            future.set_running_or_notify_cancel()
            future.set_exception(error)
        else:
            self._crew.add(task)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """As `map(fn, *iterables)`, but the calls are made in the processes, `chunksize` of them as
        one task. Results come in order.

        All tasks are submitted at once, unless `buffersize` says how many may be submitted whose
        results were not taken yet: for long iterables, which are then read as results are taken.
        `timeout` seconds after this call the iterator raises `TimeoutError`. Left early, by an
        exception too, it cancels what has not begun.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be 1 or more")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be 1 or more, or None")
        end = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables)
        chunks = iter(lambda: list(itertools.islice(calls, chunksize)), [])
        tasks = (self.submit(_call_each, fn, chunk) for chunk in chunks)
        futures = collections.deque(itertools.islice(tasks, buffersize))

        def results() -> Iterator[T]:
            try:
                while futures:
                    futures.extend(itertools.islice(tasks, 1))
                    # No name refers to a future or a result that was given out.
                    chunk = futures.popleft().result(None if end is None else end - time.monotonic())
                    chunk.reverse()
                    while chunk:
                        yield chunk.pop()
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more tasks. Those that were submitted are done, but for those that have not
        begun, with `cancel_futures`. With `wait`, returns when all is done and the processes have
        ended; leaving a `with` block waits."""
        self._crew.close(cancel_futures)
        if wait:
            self._crew.join()


class _Task(NamedTuple):
    future: concurrent.futures.Future[Any]
    data: bytes
    buffers: int


class _Crew:
    """The processes, and what they are to do. Threads of its own refer to it, and none of them to
    the executor."""

    def __init__(self, context: Any, most: int, redeliveries: int, terms: tuple[Any, ...]) -> None:
        self._context = context
        self._most = most
        self._terms = terms
        self._segment = _core.Segment.anonymous(
            slots=2 * most + 4, members=4 * most + 4, request_bytes=_SLOT, reply_bytes=_SLOT, sparse=True
        )
        self._client = _core.Client(self._segment, redeliveries=redeliveries, max_message=_ANY)
        # Of an RLock: a finalizer may run in a thread that has it.
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Task] = collections.deque()
        self._sent: dict[int, _Task] = {}
        self._active = 0
        self._pace = 1.0
        self._alone: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._callers: list[threading.Thread] = []
        self._keepers: list[threading.Thread] = []
        self._lines: set[Connection] = set()
        self._collector: threading.Thread | None = None
        self._closed = False
        self._broken = ""
        _crews.add(self)

    def refuse(self) -> None:
        """Raises if no more tasks are taken."""
        if self._broken:
            raise concurrent.futures.BrokenExecutor(self._broken)
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def add(self, task: _Task) -> None:
        with self._changed:
            self.refuse()
            self._waiting.append(task)
            self._fill()
            if len(self._keepers) < min(self._most, self._active + len(self._waiting)):
                self._keepers.append(_thread(self._keep))
            if len(task.data) > _SLOT and len(self._callers) < self._most:
                self._callers.append(_thread(self._call))
            if self._collector is None:
                self._collector = _thread(self._collect)

    def close(self, cancel_futures: bool = False) -> None:
        cancelled = []
        with self._changed:
            self._closed = True
            if cancel_futures:
                cancelled = list(self._waiting)
                self._waiting.clear()
            self._changed.notify_all()
        for task in cancelled:
            if task.future.cancel():
                task.future.set_running_or_notify_cancel()

    def join(self) -> None:
        if self._collector is not None:
            self._collector.join()

    def _window(self) -> int:
        """How many tasks may be active, and cannot be cancelled any more: one for each process and
        the next. While tasks are done within a millisecond, so many that a process finds the next
        while the reply to the last is on its way."""
        return self._most + 1 if self._pace > _QUICK else 2 * self._most + 4

    def _fill(self) -> None:
        while self._waiting and self._active < self._window():
            task = self._waiting.popleft()
            if not task.future.set_running_or_notify_cancel():
                continue
            self._active += 1
            ticket = None
            if len(task.data) <= _SLOT:
                with contextlib.suppress(Error):  # a call that waits raises it again
                    ticket = self._client.try_send(task.data, task.buffers)
            if ticket is None:
                self._alone.put(task)
            else:
                self._sent[ticket] = task
                if len(self._sent) == 1:
                    self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._closed and not self._waiting and self._active == 0

    def _next(self) -> None:
        """One task less is active."""
        with self._changed:
            self._active -= 1
            self._fill()
            if self._is_over():
                self._changed.notify_all()

    def _collect(self) -> None:
        """A thread: what becomes of tasks that were sent."""
        last = time.monotonic()
        while True:
            with self._changed:
                while not self._sent and not self._is_over() and not self._broken:
                    self._changed.wait()
                if self._broken or self._is_over():
                    break
            try:
                for ticket, outcome in self._client.as_completed():
                    now = time.monotonic()
                    with self._changed:
                        # Seconds from one result to the next, as it was lately.
                        self._pace += (now - last - self._pace) / 8
                        task = self._sent.pop(ticket)
                        self._next()
                    last = now
                    _settle(task.future, lambda: (outcome.result(), outcome.flags))
                    del task, outcome
            except Error as error:
                self._break(str(error))
        for task in [*self._sent.values(), *self._waiting]:
            if self._broken and (task.future.running() or task.future.set_running_or_notify_cancel()):
                task.future.set_exception(concurrent.futures.BrokenExecutor(self._broken))
        with self._changed:
            self._closed = True
            self._sent.clear()
            self._waiting.clear()
            for line in self._lines:
                with contextlib.suppress(OSError):
                    line.send(None)
        for _ in self._callers:
            self._alone.put(None)
        for thread in (*self._keepers, *self._callers):
            thread.join()
        self._client.close()

    def _call(self) -> None:
        """A thread: tasks that do not fit into a slot."""
        while (task := self._alone.get()) is not None:
            _settle(task.future, lambda: self._client.call_message(task.data, flags=task.buffers), lambda: self._broken)
            del task
            self._next()

    def _keep(self) -> None:
        """A thread: a process, and the next one when that has ended."""
        while True:
            here, there = self._context.Pipe()
            with here:
                with self._changed:
                    if self._broken or self._is_over():
                        return
                    self._lines.add(here)
                with there:
                    process = self._context.Process(target=_work, args=(self._segment, there, *self._terms))
                    process.start()
                multiprocessing.connection.wait([here, process.sentinel])
                failure = "it ended early"
                with contextlib.suppress(EOFError, OSError):
                    if here.poll():
                        failure = here.recv()
                process.join()
                with self._changed:
                    self._lines.discard(here)
                # One that a signal has killed may have luck the next time.
                if failure is not None and process.exitcode >= 0:
                    self._break(f"a process could not be started: {failure}")
                process.close()

    def _break(self, why: str) -> None:
        with self._changed:
            self._broken = self._broken or why
            self._client.close()
            self._changed.notify_all()


def _thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="pipework.Executor", daemon=True)
    thread.start()
    return thread


_crews: weakref.WeakSet[_Crew] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    crews = list(_crews)
    for crew in crews:
        crew.close()
    for crew in crews:
        crew.join()


def _call_each(fn: Callable[..., T], calls: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*call) for call in calls]


# ---------------------------------------------------------------- in the process


def _work(
    segment: _core.Segment,
    line: Connection,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    max_tasks: int | None,
) -> None:
    if initializer is not None:
        try:
            initializer(*initargs)
        except BaseException:
            line.send(traceback.format_exc())
            return
    with _core.Server(segment, max_message=_ANY) as server:
        line.send(None)
        threading.Thread(target=_stop_when_told, args=(line, server), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C in a terminal is for all of them
            for request in itertools.islice(server, max_tasks):
                _do(request)


def _stop_when_told(line: Connection, server: _core.Server) -> None:
    parent = multiprocessing.parent_process()
    multiprocessing.connection.wait([line] if parent is None else [line, parent.sentinel])
    with contextlib.suppress(Error):  # it is closed
        server.stop()


def _do(request: _core.Request) -> None:
    try:
        fn, args, kwargs = _load(request.data, request.flags)
        reply = _dump((fn(*args, **kwargs), None, None))
    except BaseException as error:
        text = traceback.format_exc()
        try:
            reply = _dump((None, error, text))
        except Exception:  # it cannot be pickled
            request.fail(text)
            return
    request.reply(*reply)


def _settle(
    future: concurrent.futures.Future[Any], reply: Callable[[], Any], is_broken: Callable[[], str] = str
) -> None:
    """Makes the future what came of its task."""
    try:
        try:
            value, error, text = _load(*reply())
        except Exception as raised:
            value, error, text = None, raised, ""
            if isinstance(raised, PeerDied):
                raised.strerror = "executor: the process that ran this task has died"
        if is_broken():
            error = concurrent.futures.BrokenExecutor(is_broken())
        if error is None:
            future.set_result(value)
            return
        if text:
            error.__cause__ = _RemoteTraceback(text)
        future.set_exception(error)
    finally:
        del value, error  # whose traceback refers to this


class _RemoteTraceback(Exception):
    """Where an exception comes from, in the process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


# ---------------------------------------------------------------- what travels


def _dump(what: object) -> tuple[bytes, int]:
    """A pickle, and the number of buffers that lie beside it."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(what, 5, buffer_callback=buffers.append)
    if not buffers:
        return data, 0
    pieces: list[bytes | memoryview] = [data, *(buffer.raw() for buffer in buffers)]
    return b"".join([struct.pack(f"{len(pieces)}Q", *map(len, pieces)), *pieces]), len(buffers)


def _load(data: bytes, buffers: int) -> Any:
    if not buffers:
        return pickle.loads(data)
    lengths = struct.unpack_from(f"{buffers + 1}Q", data)
    ends = list(itertools.accumulate(lengths, initial=8 * len(lengths)))
    pieces = [memoryview(data)[begin:end] for begin, end in zip(ends, ends[1:])]
    # Copied once more, so that what is made of them can be written to.
    return pickle.loads(pieces[0], buffers=map(bytearray, pieces[1:]))
