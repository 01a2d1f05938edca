"""The executor: tasks go through one segment, from which its processes take them.

A task that was taken fails with its process, and nothing else fails. Two threads do the work: the
manager starts processes and notices their end, the collector takes results and hands out the next
tasks. If one of them ends, for any reason, the other ends too, and every future gets
`BrokenExecutor` with the cause. No other thread waits for a lock of theirs: `submit` may be called
in a signal handler or in a finalizer, an exception that a signal handler raises loses no task of
another caller, and a forked child inherits no lock that is held.

As many tasks are in the segment as the processes need to stay busy; the others wait here, where
they can be cancelled.
"""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import errno
import itertools
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import select
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import util
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _connection, _core
from ._descriptors import identity
from ._errors import LACKS, Error, ErrorKind, PeerDied, RemoteError, make, remote
from ._objects import LONG, Pickled, attach, dump, load

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from typing_extensions import Buffer, ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

_QUICK = 0.001
"""Seconds from one result to the next, of tasks that soon begin when they were handed out."""
_ANY = 1 << 62
"""Bytes of the longest result: memory is the limit."""
_STARTS = 5
"""For each process: if this many are killed in a row before one is ready, the executor is
broken."""
_LOOK = 2000
"""Milliseconds after which the manager looks whether the program has closed its descriptors: then nothing
else would wake it."""
_TRIES = 3
"""The same for processes of the fork server that end with status 1."""
_PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds between the tries of a process to receive a task for which it lacks memory or descriptors."""
_RECEIVERS = 3
"""If as many processes lack what it takes to receive a task, the task fails."""
_PATIENCE = 1.0
"""Seconds for which a callback can put off the end of the processes."""
_GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL."""


class Executor(concurrent.futures.Executor):
    """Runs functions in other processes, as `concurrent.futures.ProcessPoolExecutor` does.

    If a process is killed, the future of the task that it was running raises `PeerDied`. All other
    tasks go on, and another process takes its place. With `redeliveries`, the task is started
    again, up to that many times: use this for functions that may run twice.

    max_workers: Processes, which are started as they are needed. Default: the CPUs that this
        process may use.
    mp_context: How processes are started, as `multiprocessing.get_context` returns it. Default
        "forkserver": the main module has to keep what only the program is to do behind
        `if __name__ == "__main__":`.
    initializer: Called with `initargs` in each process before its first task. If it raises, or if
        it is killed again and again, futures raise `concurrent.futures.BrokenExecutor`.
    max_tasks_per_child: A process ends after this many tasks, and another takes its place. Default
        None, which is never.

    Functions, arguments and results travel as pickles: functions must belong to modules, lambdas do
    not work, and both sides trust each other. Buffers of more than 64 KiB, for
    instance of numpy's arrays, are copied once, into shared memory, and read there: such an array
    arrives read-only.

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
        if not 0 <= redeliveries <= 3:
            raise ValueError("redeliveries must be 0 to 3")
        context = mp_context or multiprocessing.get_context("forkserver")
        self._settings = (context, max_workers, redeliveries, (initializer, initargs, max_tasks_per_child))
        self._closed = False
        # By the generation of the process: a forked child has its own.
        self._managers: dict[int, _Manager] = {}
        # Submitted tasks are done even if nothing refers to the executor any more.
        weakref.finalize(self, _close_all, self._managers).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Has `fn(*args, **kwargs)` run in one of the processes, and returns its future. A task
        that has not begun can be cancelled, except the next one; while tasks take less than a
        millisecond, except the next few."""
        manager = self._running()
        future: _Future[T] = _Future()
        try:
            task = _Task(future, dump((fn, args, kwargs)))
        except Exception as error:
            future.set_running_or_notify_cancel()
            future.set_exception(error)
        else:
            manager.add(task)
        return future

    def _running(self) -> _Manager:
        manager = self._managers.get(_generation)
        if manager is None:  # here a signal handler, or another thread, may be quicker
            manager = self._managers.setdefault(_generation, _Manager(*self._settings))
        if self._closed:
            manager.close()
        manager.start()
        return manager

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
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
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

    def terminate_workers(self) -> None:
        """Ends the processes at once, by SIGTERM, and those that are still there after 5 s by SIGKILL.
        Futures that are not done raise `BrokenExecutor`, and so does every later `submit`. Does not
        wait: `shutdown` does. May also be called after `shutdown`."""
        self._closed = True
        manager = self._managers.get(_generation)
        if manager is not None:
            manager.terminate()

    def _start_all(self) -> None:
        """Starts all processes now, and returns when they are started: for `Pool`."""
        self._running().start_all()

    def _window(self, processes: int) -> int:
        """How many tasks keep the processes busy: for `Pool`."""
        manager = self._managers.get(_generation)
        return processes + 1 if manager is None else manager.window()

    def _workers(self) -> list[Any]:
        """The processes as `multiprocessing` knows them: for `Pool`."""
        manager = self._managers.get(_generation)
        return [] if manager is None else manager.workers()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more tasks. Those that were submitted are done, but for those that have not
        begun, with `cancel_futures`. With `wait`, returns when all is done and the processes have
        ended; leaving a `with` block waits."""
        self._closed = True
        manager = self._managers.get(_generation)
        if manager is not None:
            manager.close(cancel_futures)
            if wait:
                manager.join()


class _Future(concurrent.futures.Future[T]):
    """What the pool also asks for."""

    sent = 0
    """Bytes of the task."""
    received = 0
    """Bytes of the result."""
    step: str | None = None
    """Where the process failed: one of the steps of `_do`."""


class _Task:
    __slots__ = ("future", "lacks", "pickled", "ticket")

    def __init__(self, future: _Future[Any], pickled: Pickled) -> None:
        self.future = future
        future.sent = len(pickled.data)
        if pickled.buffers:
            future.sent += sum(map(len, pickled.buffers))
        self.pickled: Pickled | None = pickled
        """None once it is sent."""
        self.ticket: int | None = None
        self.lacks = 0
        """Processes that could not receive it."""


class _Process:
    """A process, and the pipe to it: the process says when it is ready, and is notified when to stop."""

    def __init__(self, process: Any, line: _connection.Connection) -> None:
        self.process = process
        self.line = line
        self.told: int = line.fileno()
        """Readable when it is ready, or has ended."""
        self.is_ready = False
        # Readable when the process has ended. A sentinel is that only when all have ended that the
        # process has forked.
        self._pidfd: _core.Descriptor | None = None
        with contextlib.suppress(OSError, AttributeError):  # an old kernel
            self._pidfd = _core.Descriptor(os.pidfd_open(process.pid))
        self._sentinel: int = process.sentinel
        self._sentinels = identity(self._sentinel)
        self.end: int = self._sentinel if self._pidfd is None else self._pidfd.fileno()

    def is_intact(self) -> bool:
        """Whether the program has left all its descriptors open."""
        return self.line.is_intact() and self.has_end()

    def has_end(self) -> bool:
        has_pidfd = self._pidfd is None or self._pidfd.is_intact()
        return has_pidfd and identity(self._sentinel) == self._sentinels

    def status(self) -> int | None:
        """What it has ended with; None if another thread has reaped it. For a process of the fork
        server, 255 may mean the same."""
        # `close()` is not for this: it raises where another thread has reaped the process.
        self.process.join()
        status: int | None = self.process.exitcode
        return None if status == 255 else status

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.line.send_bytes(b"")

    def lack(self) -> _Lack | None:
        """Why it has ended, if it could not receive a task."""
        lack: _Lack | None = None
        with contextlib.suppress(EOFError, OSError):
            if self.line.poll():
                lack = self.line.recv()
        return lack

    def kill_lost(self) -> None:
        """Where the program has closed what tells of its end. `multiprocessing` would read that number, and
        close it together with the object, so neither happens."""
        self.process.kill()
        _lost.append(self.process)

    def close(self) -> None:
        self.line.close()
        if self._pidfd is not None:
            self._pidfd.close()
        # It keeps its descriptors as long as it lives, and a traceback may keep this alive.
        self.process = None


class _Manager:
    """The two threads and their state. Neither refers to the executor."""

    def __init__(self, context: Any, most: int, redeliveries: int, terms: tuple[Any, ...]) -> None:
        self._context = context
        self._most = most
        self._redeliveries = redeliveries
        self._terms = terms
        self._waiting: collections.deque[_Task] = collections.deque()
        self._sent: dict[int, _Task] = {}
        """By their tickets. The thread that takes a task out completes its future."""
        self._early: dict[int, Any] = {}
        """Outcomes of tasks that `add` has not entered yet."""
        self._is_closed = False
        self._is_cancelled = False
        self._is_over = False
        """No more tasks are taken. It may become false again, for a task that came before."""
        self._is_finished = False
        self._cause: BaseException | None = None
        self.is_parents = False
        """In a forked child, where the threads are not."""

        self._has_started_thread = False
        self._duty: list[None] = [None]
        """The first thread that takes it is the manager's."""
        self._thread: threading.Thread | None = None
        self._client: _core.Client | None = None

        self._is_asleep = False
        self._wake = _core.Inbox()
        self._poll = select.poll()
        self._lines: set[_connection.Connection] = set()
        self._processes: dict[int, _Process] = {}
        """By the descriptors that signal their end."""
        self._starting: dict[int, _Process] = {}
        """Those that are not ready, by their lines."""
        self._wanted = 0
        self._is_eager = False
        """Whether all processes are wanted, whatever there is to do."""
        self._are_started = False
        self._has_started = threading.Event()
        """Set when all are started that were wanted, or the manager has ended."""
        self._killed = 0
        """Processes that were killed since one was ready."""
        self._failed = 0
        """Processes of the fork server that ended with status 1 since one was ready."""
        self._ended = 0
        """Processes that ended while tasks were there, since the last task has ended."""
        self._moved = 0.0
        """When a task was last taken from the front of the segment."""
        self._kill_at: float | None = None
        """When SIGTERM was sent to all, the time for SIGKILL."""

        self._is_idle = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._pace = 1.0
        self._last = time.monotonic()
        # Held by the two threads while they use `_sent`.
        self._lock = threading.Lock()
        self._collector = threading.Thread(target=self._collect, name="pipework.Executor", daemon=True)

    # Other threads, signal handlers and finalizers call these methods. None of them takes the lock,
    # and a signal handler may come between any two steps, raise, or do the same.

    def start(self) -> None:
        """Starts the manager's thread, which does the rest: a signal handler may have interrupted a
        holder of a lock of `multiprocessing`."""
        self.refuse_if_over()
        if self._has_started_thread:
            return
        if multiprocessing.current_process().daemon:
            raise AssertionError("daemonic processes are not allowed to have children")
        # Several threads may do this at once, or a handler within it. A lock would stay locked if a
        # handler raised next to it. So each starts a thread, and the first of these does the work.
        _managers.add(self)
        _finish_before_children_are_joined()
        try:
            threading.Thread(target=self._run, name="pipework.Executor", daemon=True).start()
            self._has_started_thread = True
        except BaseException:
            if self._duty:
                _managers.discard(self)
            raise

    def add(self, task: _Task) -> None:
        self.refuse_if_over()
        if self._waiting or len(self._sent) >= self.window() or not self._send_at_once(task):
            assert task.pickled is not None, "it was not sent"
            task.pickled = task.pickled.copied()
            self._waiting.append(task)
        if self._has_space() or len(self._sent) + len(self._waiting) > self._wanted < self._most:
            self._rouse()
        if self._is_over and self._drop(task):
            self.refuse_if_over()

    def _send_at_once(self, task: _Task) -> bool:
        ticket = None
        if self._client:
            with contextlib.suppress(Error):  # it is closed, or there is no memory
                data, blobs = self._message(task)
                ticket = self._client.try_send(data, blobs=blobs)
        if ticket is None:
            return False
        task.ticket, task.pickled = ticket, None
        task.future.set_running_or_notify_cancel()
        self._sent[ticket] = task
        # The collector looks into `_sent` once more after it has put something there.
        outcome = self._early.pop(ticket, None)
        if outcome is not None and self._drop(task):
            _settle(task.future, outcome)
        if self._is_idle:
            self._bell.put(None)
        return True

    def _message(self, task: _Task) -> tuple[Buffer, list[_core.Blob]]:
        assert task.pickled is not None, "it was not sent"
        return attach(task.pickled, self._segment)

    def _drop(self, task: _Task) -> bool:
        """Takes a task back that came too late; False if it has not."""
        if task.ticket is not None:
            return self._sent.pop(task.ticket, None) is not None
        try:
            self._waiting.remove(task)
        except ValueError:
            return False
        return True

    def refuse_if_over(self) -> None:
        if self._cause is not None:
            raise self._broken(self._cause)
        if self._is_closed or _is_exiting:
            raise RuntimeError(f"cannot schedule new futures after {'interpreter ' * _is_exiting}shutdown")

    def close(self, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._is_cancelled = True
        self._is_closed = True
        self._rouse()

    def terminate(self) -> None:
        self._break(RuntimeError("its processes were terminated"))

    def start_all(self) -> None:
        self._is_eager = True
        self._rouse()
        self._has_started.wait()
        # If one has failed since, the pool is there, and its tasks fail.
        if not self._are_started:
            self.refuse_if_over()

    def workers(self) -> list[Any]:
        return [each.process for each in list(self._processes.values())]

    def _rouse(self) -> None:
        # The manager looks once more after it has set this.
        if self._is_asleep and not self.is_parents:
            self._wake.ring()

    def join(self) -> None:
        if threading.current_thread() is self._collector:
            raise RuntimeError("cannot join current thread")
        while self._has_started_thread and self._thread is None:
            time.sleep(0.001)
        if self._thread is not None:
            self._thread.join()

    def leave(self) -> None:
        """In a forked child: nothing of the parent's is used, no line stays open that only the
        parent is to hold, and nobody waits for a future that only the parent can complete."""
        self.is_parents = True
        for line in self._lines:
            line.close()
        for task in [*self._sent.values(), *self._waiting]:
            _fail_in_child(task.future)

    # The manager.

    def _run(self) -> None:
        try:
            self._duty.pop()
        except IndexError:  # another thread was first
            return
        _managers.add(self)
        self._thread = threading.current_thread()
        with contextlib.ExitStack() as stack:
            stack.callback(_managers.discard, self)
            try:
                self._open(stack)
                self._collector.start()
                self._manage()
            except BaseException as error:
                self._break(error)
            self._is_over = self._is_finished = True
            self._has_started.set()
            self._bell.put(None)
            cause = self._cause
            if cause is not None:
                if self._client is not None:
                    self._client.close()  # which ends the collector's wait
                # The collector must not see the deaths of processes that are stopped. But a callback may delay its end.
                self._join_collector(_PATIENCE)
            self._stop_processes(stack)
            if cause is not None:
                self._join_collector()
                self._fail_all(cause)
            self._wait_for_processes()
            self._join_collector()
            if self._client is not None:
                with contextlib.suppress(Error):  # the program has closed its descriptors
                    self._segment.recover()  # frees what processes have left that were killed

    def _open(self, stack: contextlib.ExitStack) -> None:
        self._poll.register(self._wake.fileno(), select.POLLIN)
        slots, members = 2 * self._most + 8, 4 * self._most + 8
        self._segment = stack.enter_context(
            _core.Segment.anonymous(slots=slots, members=members, request_bytes=LONG, reply_bytes=LONG, sparse=True)
        )
        self._client = stack.enter_context(
            _core.Client(self._segment, redeliveries=self._redeliveries, max_message=_ANY)
        )

    def _join_collector(self, seconds: float | None = None) -> None:
        if self._collector.ident is not None:
            self._collector.join(seconds)

    def _break(self, cause: BaseException) -> None:
        if self._cause is None:
            self._cause = cause
        self._rouse()

    def _manage(self) -> None:
        while True:
            with self._lock:
                self._fill()
            if self._is_cancelled:
                self._cancel()
            self._wanted = self._needed()
            while len(self._processes) < self._wanted:
                self._start()
            if self._is_eager and self._wanted == self._most:
                self._are_started = True
                self._has_started.set()
            self._is_asleep = True
            if self._cause is not None:
                return
            if self._is_closed and self._is_done():
                # `add` enters a task and then reads this; the manager sets this and then looks for
                # tasks. One of the two sees the other.
                self._is_over = True
                if self._is_done():
                    self._check([])  # else the processes could not be told
                    return
                self._is_over = False
            is_behind = self._has_space() or self._wanted < self._needed()
            ready = self._poll.poll(0 if is_behind else _LOOK)
            self._is_asleep = False
            self._check(ready)
            for fd, _ in ready:
                if fd == self._wake.fileno():
                    self._wake.take()
                elif fd in self._starting:
                    self._listen(fd)
                elif fd in self._processes:
                    self._replace(fd)

    def _check(self, ready: list[tuple[int, int]]) -> None:
        """Raises if the program has closed a descriptor that is about to be used; all are looked at while
        nothing happens."""
        numbers = {fd for fd, _ in ready}
        used = [each for each in self._processes.values() if not ready or not numbers.isdisjoint((each.end, each.told))]
        if not self._wake.is_intact() or not all(each.is_intact() for each in used):
            raise OSError(errno.EBADF, "a descriptor of the executor was closed by the program")

    def _needed(self) -> int:
        """Processes for what there is to do."""
        return self._most if self._is_eager else max(self._wanted, min(self._most, len(self._sent) + len(self._waiting)))

    def _is_done(self) -> bool:
        return not self._waiting and not self._sent

    def _has_space(self) -> bool:
        """Whether a task waits that could be handed out, or is to be cancelled."""
        return bool(self._waiting) and (self._is_cancelled or len(self._sent) < self.window())

    def _cancel(self) -> None:
        while task := self._next():
            try:
                task.future.cancel()
            except BaseException:
                _log(task.future)
            _is_wanted(task.future)

    # The collector.

    def _collect(self) -> None:
        try:
            client = self._client
            assert client is not None, "it was opened before"
            while self._cause is None and not self._is_finished:
                self._is_idle = True
                if client.pending == 0:
                    self._bell.get()
                self._is_idle = False
                for ticket, outcome in client.as_completed():
                    self._end(ticket, outcome)
                    del outcome
                if self._is_closed:
                    self._rouse()
        except BaseException as error:
            self._break(error)

    def _end(self, ticket: int, outcome: Any) -> None:
        task = None
        self._ended = 0
        try:
            with self._lock:
                task = self._sent.pop(ticket, None)
                if task is None:
                    self._early[ticket] = outcome
                    task = self._sent.pop(ticket, None)
                    if task is None:
                        return
                    self._early.pop(ticket, None)
                # Seconds from one result to the next, as it was lately.
                now = time.monotonic()
                self._pace += (min(now - self._last, 1.0) - self._pace) / 8
                self._last = now
                self._fill()
        finally:
            if task is not None:
                _settle(task.future, outcome)

    # Both, with the lock.

    def window(self) -> int:
        """How many tasks may be handed out, and cannot be cancelled any more: one for each process
        and the next. While tasks are done within a millisecond, it is enough that a process finds
        the next task while the reply to the last is on its way."""
        return self._most + 1 if self._pace > _QUICK else 2 * self._most + 4

    def _fill(self) -> None:
        """Hands out as many tasks as the window allows."""
        while len(self._sent) < self.window() and (task := self._next()):
            if _is_wanted(task.future):
                try:
                    self._send(task)
                except BaseException as error:
                    _give(task.future, error=error if self._cause is None else self._broken(self._cause))
                    if not isinstance(error, Exception):
                        raise

    def _next(self) -> _Task | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _send(self, task: _Task) -> None:
        self._hand_out(task, *self._message(task))

    def _hand_out(self, task: _Task, data: Buffer, blobs: Sequence[_core.Blob]) -> None:
        assert self._client is not None, "it was opened before"
        ticket = self._client.try_send(data, blobs=blobs)
        if ticket is None:  # the slot of a process that was killed is not free yet
            ticket = self._client.send(data, blobs=blobs)
        task.pickled = None
        self._sent[ticket] = task
        if self._is_idle:
            self._bell.put(None)

    # Processes, which only the manager touches.

    def _start(self) -> None:
        self._check([])
        here, there = _connection.pipe()
        self._lines.add(here)
        try:
            with there, _shielded(self._is_of_fork_server()) as mask:
                args = (self._segment, there, mask, *self._terms)
                process = self._context.Process(target=_work, args=args)
                process.start()
        except BaseException:
            self._lines.discard(here)
            here.close()
            raise
        started = _Process(process, here)
        self._processes[started.end] = self._starting[started.told] = started
        self._poll.register(started.end, select.POLLIN)
        self._poll.register(started.told, select.POLLIN)

    def _listen(self, fd: int) -> None:
        """A process is ready, or its initializer has raised, or it has ended."""
        process = self._starting.pop(fd)
        self._poll.unregister(fd)
        with contextlib.suppress(EOFError, OSError):
            failure = process.line.recv_bytes()
            if failure:
                raise RuntimeError(f"an initializer raised\n{failure.decode()}")
            process.is_ready, self._killed, self._failed = True, 0, 0

    def _replace(self, fd: int) -> None:
        """A process has ended: the next takes its place, unless it would end as well."""
        process = self._processes[fd]
        if process.told in self._starting:
            self._listen(process.told)
        status = process.status()
        count = len(self._processes)
        lack = process.lack() if process.is_ready else None
        self._remove(fd)
        if lack is not None:
            self._relieve(lack)
        elif process.is_ready and status != 0 and self._segment.waiting:
            # Each task that was handed out may have ended one for each time it is delivered.
            self._ended += 1
            if self._ended > _STARTS * count + self.window() * (1 + self._redeliveries):
                raise RuntimeError(f"{self._ended} processes in a row ended, and none of them ended a task")
        if process.is_ready:
            return
        if status == 1 and self._is_of_fork_server() and self._failed < _TRIES * count - 1:
            # Ctrl-C may have been meant for it, too. In a process of the fork server that imports the
            # main module, it has the same status as an error.
            self._failed += 1
            return
        if status is not None and status >= 0:
            raise RuntimeError(f"a process ended early, before it was ready, with status {status}{_lacks_main()}")
        self._killed += 1
        if self._killed >= _STARTS * count:
            raise RuntimeError(f"{self._killed} processes in a row were killed before they were ready")

    def _relieve(self, lack: _Lack) -> None:
        """A process could not receive the first task in the segment, which stops all tasks behind it. So that
        task goes to the end, or fails if it was the first one for several processes."""
        if lack.since < self._moved:  # by now another task is the first
            return
        with _core.Server(self._segment, max_message=_ANY) as server:
            request = server.try_recv()
            if request is None:  # another process has taken it
                return
            with request, self._lock:
                task = self._sent.get(request.ticket)
                if task is not None:
                    task.lacks += 1
                if task is None or task.lacks >= _RECEIVERS:
                    request.reply(dump((None, lack.failure())).data)
                else:
                    self._move(task, request)
        self._moved = time.monotonic()

    def _move(self, task: _Task, request: _core.Request) -> None:
        """To the end of the segment."""
        assert self._client is not None, "it was opened before"
        self._client.cancel(request.ticket)
        request.fail()  # the slot is free
        self._hand_out(task, request.data, request.blobs)
        self._sent.pop(request.ticket)

    def _is_of_fork_server(self) -> bool:
        """Also of a context that does not say so."""
        method = getattr(self._context, "get_start_method", lambda: None)()
        return method not in ("fork", "spawn")

    def _remove(self, fd: int) -> None:
        process = self._processes.pop(fd)
        self._poll.unregister(fd)
        if self._starting.pop(process.told, None):
            self._poll.unregister(process.told)
        self._lines.discard(process.line)
        process.close()

    # Its end.

    def _broken(self, cause: BaseException) -> concurrent.futures.BrokenExecutor:
        broken = concurrent.futures.BrokenExecutor(f"the executor is broken: {type(cause).__name__}: {cause}")
        broken.__cause__ = cause
        return broken

    def _fail_all(self, cause: BaseException) -> None:
        while task := self._next():
            if _is_wanted(task.future):
                _give(task.future, error=self._broken(cause))
        while self._sent:
            _give(self._sent.popitem()[1].future, error=self._broken(cause))

    def _stop_processes(self, stack: contextlib.ExitStack) -> None:
        for end, process in self._processes.items():
            stack.callback(self._remove, end)
            process.stop()
        self._terminate_if_broken()

    def _terminate_if_broken(self) -> None:
        if self._cause is not None and self._kill_at is None:
            self._kill_at = time.monotonic() + _GRACE
            for process in self._processes.values():
                process.process.terminate()

    def _wait_for_processes(self) -> None:
        """Those that do not end by themselves are killed if the executor is broken, before this is called
        or meanwhile."""
        left = {}
        for end, process in self._processes.items():
            if process.has_end():
                left[end] = process
            else:
                process.kill_lost()
        poll = select.poll()
        for fd in left and (self._wake.fileno(), *left) if self._wake.is_intact() else left:
            poll.register(fd, select.POLLIN)
        was_killed = False
        self._is_asleep = True
        while left:
            self._terminate_if_broken()
            if self._kill_at is None or was_killed:
                ready = poll.poll()
            else:
                ready = poll.poll(max(0.0, self._kill_at - time.monotonic()) * 1000)
                was_killed = not ready
            if was_killed:
                for process in left.values():
                    process.process.kill()
            for fd, _ in ready:
                if fd in left:
                    poll.unregister(fd)
                    left.pop(fd).status()
                else:
                    self._wake.take()


_lost: list[Any] = []
"""Processes whose descriptors the program has closed."""
_managers: set[_Manager] = set()
_generation = 0
_is_exiting = False


def _close_all(managers: dict[int, _Manager]) -> None:
    for manager in list(managers.values()):
        manager.close()


def _forked() -> None:
    """In a forked child: an executor begins as if nothing had been submitted to it."""
    global _generation
    _generation += 1
    if _starter.is_starting:
        # `multiprocessing` is about to close it, and waits for its lock, which a thread of the parent has
        # while it reads.
        _inherited.append(sys.stdin)
        sys.stdin = open(os.devnull)
    for manager in _managers:
        manager.leave()
    _managers.clear()


os.register_at_fork(after_in_child=_forked)


class _Starter(threading.local):
    is_starting = False
    """Whether this thread starts a process."""


_starter = _Starter()
_inherited: list[Any] = []
"""Nothing of this may be finalized: that would take its lock."""


@contextlib.contextmanager
def _shielded(is_of_fork_server: bool) -> Iterator[set[Any] | None]:
    """While a process is started: Ctrl-C waits until it has its handler. Gives the mask of signals that
    it is to have then. What the fork server starts has the mask of the server."""
    _starter.is_starting = True
    mask = None
    try:
        if not is_of_fork_server:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        yield mask
    finally:
        _starter.is_starting = False
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _finish_before_children_are_joined() -> None:
    """A process of `multiprocessing` joins its children at its end, and runs no function of `atexit`
    before."""
    global _has_finalizer
    if _has_finalizer != _generation and multiprocessing.parent_process() is not None:
        _has_finalizer = _generation
        util.Finalize(None, _finish, exitpriority=10)


_has_finalizer = -1


@atexit.register
def _finish() -> None:
    global _is_exiting
    _is_exiting = True
    managers = list(_managers)
    for manager in managers:
        manager.close()
    for manager in managers:
        manager.join()


# ---------------------------------------------------------------- futures


def _is_wanted(future: concurrent.futures.Future[Any]) -> bool:
    """False if it was cancelled, or is done already."""
    try:
        return future.set_running_or_notify_cancel()
    except BaseException:
        _log(future)
        return False


def _settle(future: _Future[Any], outcome: Any) -> None:
    """Gives the future the outcome of its task."""
    value: Any = None
    error: BaseException | None = None
    try:
        data, blobs = outcome.result(), outcome.blobs
        future.received = len(data) + (sum(map(len, blobs)) if blobs else 0)
        value, failure = load(data, blobs)
        if failure is not None:
            future.step, text, pickled = failure
            error = _rebuilt(text, pickled)
    except BaseException as raised:  # SystemExit too, if unpickling has raised it
        error = raised
        if isinstance(raised, PeerDied):
            raised.strerror = "executor: the process that ran this task has died"
    if isinstance(error, SystemExit):  # it was meant to end the task, and not this program
        ended, error = error, remote("executor", b"", f"executor: the task has raised SystemExit: {error.code}")
        error.__cause__ = ended.__cause__ or ended
        del ended
    try:
        _give(future, value, error)
    finally:
        del value, error  # the traceback of the error refers to this


def _rebuilt(text: str, pickled: bytes | None) -> BaseException:
    """The exception that a process has raised. If it does not pickle, or cannot be made of its pickle,
    an exception with its text."""
    why: BaseException | None = None
    try:
        if pickled is not None:
            error = pickle.loads(pickled)
            if not isinstance(error, BaseException):
                raise TypeError(f"the pickle of an exception has become {error!r}")
            with contextlib.suppress(Exception):  # a class of exceptions may refuse it
                error.__cause__ = RemoteTraceback(text)
            return error
    except BaseException as raised:
        why = raised
    failed: RemoteError = remote("executor", text.encode(errors="backslashreplace"), text)
    failed.__cause__ = why
    return failed


def _fail_in_child(future: concurrent.futures.Future[Any]) -> None:
    """In a forked child. Another thread of the parent may have held the lock, and what waits for the future,
    or is called at its end, is the parent's."""
    future._condition = threading.Condition()
    future._waiters = []
    future._done_callbacks = []  # type: ignore[attr-defined]
    if not future.done():
        future.set_exception(RuntimeError("this task was submitted before a fork: only the parent gets its result"))


def _give(future: concurrent.futures.Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except BaseException:
        _log(future)
    finally:
        del value, error  # the traceback of the error refers to this


def _log(future: concurrent.futures.Future[Any]) -> None:
    """A callback has raised SystemExit or the like, which ends no thread here. An `Exception` is
    logged by the standard library, in the same way."""
    logging.getLogger("concurrent.futures").exception("exception calling callback for %r", future)


class RemoteTraceback(Exception):
    """The traceback of an exception in the process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _call_each(fn: Callable[..., T], calls: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*call) for call in calls]


# ---------------------------------------------------------------- in the process


def _work(
    segment: _core.Segment,
    line: _connection.Connection,
    mask: set[Any] | None,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    max_tasks: int | None,
) -> None:
    # Until this process is ready, Ctrl-C ends it as a signal does, wherever it is.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if initializer is not None:
        try:
            initializer(*initargs)
        except KeyboardInterrupt:  # no initializer has failed
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            with contextlib.suppress(BrokenPipeError):
                line.send_bytes(traceback.format_exc().encode(errors="replace"))
            return
    with _core.Server(segment, max_message=_ANY) as server:
        try:
            line.send_bytes(b"")
        except BrokenPipeError:  # the process that started this one has been killed
            return
        threading.Thread(target=_stop_when_told, args=(line, server), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C in a terminal is for all of them
            if handler is signal.default_int_handler and signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
                signal.signal(signal.SIGINT, handler)
            try:
                _do_all(server, segment, max_tasks)
            except _Lacking as error:
                with contextlib.suppress(OSError):
                    line.send(error.lack)
    segment.close()  # and with it the memory that is kept for the next results


def _stop_when_told(line: _connection.Connection, server: _core.Server) -> None:
    parent = multiprocessing.parent_process()
    multiprocessing.connection.wait([line] if parent is None else [line, parent.sentinel])
    with contextlib.suppress(Error):  # it is closed
        server.stop()


def _do_all(server: _core.Server, segment: _core.Segment, most: int | None) -> None:
    requests = iter(server)
    for _ in itertools.count() if most is None else range(most):
        request = _received(requests)
        if request is None:
            return
        _do(request, segment)
        del request  # it has blobs


def _received(requests: Iterator[_core.Request]) -> _core.Request | None:
    """The next task; None if this process is to stop. What it lacks, other processes may give back in a
    moment."""
    for pause in (*_PAUSES, None):
        since = time.monotonic()
        try:
            return next(requests, None)
        except Error as error:
            if error.errno not in LACKS:
                raise
            if pause is None:
                raise _Lacking(_Lack(error.errno, str(error), since)) from None
        time.sleep(pause)
    raise AssertionError("the last pause is None")


class _Lack(NamedTuple):
    """Why a process cannot receive the first task in the segment."""

    errno: int
    text: str
    since: float
    """When it tried last, by the clock of the machine."""

    def failure(self) -> tuple[str, str, bytes | None]:
        text = f"executor: no process could receive this task: {self.text}"
        return ARGUMENTS, text, _pickle_of(make(ErrorKind.OS, "executor", self.errno, text))


class _Lacking(Exception):
    def __init__(self, lack: _Lack) -> None:
        super().__init__(lack.text)
        self.lack = lack


ARGUMENTS, TASK, RESULT = "arguments", "task", "result"


def _do(request: _core.Request, segment: _core.Segment) -> None:
    step = ARGUMENTS
    try:
        fn, args, kwargs = load(request.data, request.blobs)
        step = TASK
        value = fn(*args, **kwargs)
        step = RESULT
        reply = attach(dump((value, None)), segment)
    except BaseException as error:
        text = traceback.format_exc()
        try:
            reply = attach(dump((None, (step, text, _pickle_of(error)))), segment)
        except BaseException:  # there is no memory for it
            request.fail(text)
            return
    data, blobs = reply
    request.reply(data, blobs=blobs)


def _pickle_of(error: BaseException) -> bytes | None:
    """A pickle of its own: if nobody can read it, its text still arrives."""
    try:
        return bytes(dump(error, 0).data)
    except BaseException:
        return None


def _lacks_main() -> str:
    """Why no other process can load the main module, as each does that is not forked."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None or os.path.exists(path):
        return ""
    return f": it cannot load the main module, {path}, because that is no file; put the program into one"
