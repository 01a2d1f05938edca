"""The pool of `pipework.multiprocessing`: the standard library's methods and results over an
`Executor`. A task whose process is killed raises `PeerDied` at the caller that waits for it.

A thread hands tasks out, as many as keep the processes busy. `imap` reads a long or endless iterable as
results come, and as they are taken. The executor's thread delivers results and calls callbacks.
"""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import functools
import itertools
import logging
import multiprocessing.pool
import operator
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from multiprocessing import util
from typing import TYPE_CHECKING, Any, NoReturn

from ._executor import RESULT, Executor, RemoteTraceback

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

_stdlib: Any = multiprocessing.pool

_AHEAD = 64 << 10
"""More tasks than the processes need are handed out while all together have at most so many bytes."""
_KEPT = 16 << 20
"""The results of `imap` that nobody has taken yet have at most so many bytes, or are as few as there are
processes."""
_LOOK = object()
"""Wakes the thread."""


class Pool(multiprocessing.pool.Pool):
    """As `multiprocessing.Pool`."""

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: BaseContext | None = None,
    ) -> None:
        # `__del__` looks at these, whatever is raised here.
        self._state = _stdlib.INIT
        self._change_notifier = None
        processes = (os.cpu_count() or 1) if processes is None else processes
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        self._processes = processes
        self._ctx = context or multiprocessing.get_context()
        self._engine = _Engine(
            Executor(
                processes,
                mp_context=self._ctx,
                initializer=initializer,
                initargs=tuple(initargs),
                max_tasks_per_child=maxtasksperchild,
            ),
            processes,
        )
        # The base class puts results into the one, and tasks into the other.
        self._cache = self._engine.results
        self._taskqueue = self._engine.tasks
        # Also when nothing refers to this any more.
        self._terminate = util.Finalize(self, self._engine.terminate, exitpriority=15)
        self._state = _stdlib.RUN

    @property
    def _pool(self) -> list[Any]:
        return self._engine.executor._workers()

    def imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1) -> Any:
        """As `map(func, iterable)` for long iterables: reads them as results are taken."""
        return self._imap(_Ordered, func, iterable, chunksize)

    def imap_unordered(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1) -> Any:
        """As `imap`, but results come as they are ready."""
        return self._imap(_Unordered, func, iterable, chunksize)

    def _imap(self, kind: Any, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None) -> Any:
        self._check_running()
        size = 1 if chunksize is None else chunksize
        if size < 1:
            raise ValueError(f"Chunksize must be 1+, not {size}")
        if size > 1:
            func, iterable = _stdlib.mapstar, self._get_tasks(func, iterable, size)  # type: ignore[attr-defined]
        result = kind(self)
        job = _Job(self._guarded_task_generation(result._job, func, iterable), result)
        results = _Results(self._engine, job)
        self._taskqueue.put(job)
        return results if size == 1 else itertools.chain.from_iterable(results)

    @staticmethod
    def _guarded_task_generation(
        job: int, func: Callable[..., Any], iterable: Iterable[Any]
    ) -> Iterator[tuple[int, int, Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
        """Tasks, and what the iterable raises as the last one."""
        index = -1
        try:
            for index, item in enumerate(iterable):
                yield job, index, func, (item,), {}
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit and KeyboardInterrupt, too: the thread goes on
            yield job, index + 1, _stdlib._helper_reraises_exception, (error,), {}

    def _check_running(self) -> None:
        if self._engine.is_parents:
            raise RuntimeError("this pool was made before a fork: it is the parent's")
        super()._check_running()  # type: ignore[misc]

    def _map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        mapper: Callable[..., Any],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> Any:
        if chunksize is None:
            items = iterable if isinstance(iterable, Sized) else list(iterable)
            # Not by the number of processes that live at the moment, as the base class has it.
            chunksize = -(-len(items) // (4 * self._processes))
            iterable = items
        return super()._map_async(func, iterable, mapper, chunksize, callback, error_callback)  # type: ignore[misc]

    def close(self) -> None:
        if self._state == _stdlib.RUN:
            self._state = _stdlib.CLOSE
            self._engine.tasks.put(None)

    def terminate(self) -> None:
        """Ends the processes at once, and those that are still there after 5 s by SIGKILL. May also be called
        after `close`."""
        self._state = _stdlib.TERMINATE
        # Not by `_terminate`, which does nothing a second time, even if an exception ended the first.
        self._engine.terminate()
        self._terminate.cancel()
        with contextlib.suppress(RuntimeError):  # a callback may call this, and does not wait for itself
            self._engine.wait()

    def join(self) -> None:
        if self._state == _stdlib.RUN:
            raise ValueError("Pool is still running")
        self._engine.wait()


class _Job:
    """The tasks of a call."""

    def __init__(self, tasks: Iterable[Any], result: Any = None) -> None:
        self.tasks = iter(tasks)
        self.result = result
        """Of `imap`: takes the results in."""
        self.begun = 0
        self.ended = 0
        self.received = 0
        """Bytes of the results of those that have ended."""
        self.error: BaseException | None = None
        """What the iterable of `imap` has raised. It comes behind all results."""
        self.is_abandoned = False

    def kept(self) -> int:
        """How many results `imap` has, or will have, that were not taken."""
        return self.begun - self.ended + len(self.result._items) + len(self.result._unsorted)


class _Awaited:
    """What threads wait for. Each step is one call of C, so whatever an exception of a signal handler ends, a
    thread that wakes them waits for nobody. A condition of `threading` may stay locked for ever then."""

    _waiting: collections.deque[queue.SimpleQueue[None]]

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        _refuse()

    def is_set(self) -> bool:
        """Whether there is nothing to wait for."""
        raise NotImplementedError

    def _wake(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft().put(None)

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
            try:
                # Written down first: after that, either this thread sees the change, or it is woken.
                self._waiting.append(wakes)
                if not self.is_set():
                    wakes.get(timeout=None if end is None else max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return self.is_set()
            finally:
                with contextlib.suppress(ValueError, IndexError):  # it was woken
                    self._waiting.remove(wakes)
        return True


class _Event(_Awaited):
    """In the place of a `threading.Event`."""

    def __init__(self) -> None:
        self._waiting = collections.deque()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wake()


class _Ordered(_Awaited, multiprocessing.pool.IMapIterator):  # type: ignore[type-arg]
    """The results of `imap`, as the standard library's without its lock. Any thread takes them; the thread
    that sets one has the engine's lock."""

    def __init__(self, pool: Pool) -> None:
        self._waiting = collections.deque()
        self._pool: Pool | None = pool
        self._job = next(_stdlib.job_counter)
        self._cache = pool._cache
        self._items: collections.deque[tuple[bool, Any]] = collections.deque()
        self._index = 0
        """Results that were set and may be taken, or have been."""
        self._length: int | None = None
        self._unsorted: dict[int, tuple[bool, Any]] = {}
        self._cache[self._job] = self

    def is_set(self) -> bool:
        return bool(self._items) or self._index == self._length

    def next(self, timeout: float | None = None) -> Any:
        while True:
            # In this order: the last item is there before the end is.
            is_over = self._index == self._length
            try:
                success, value = self._items.popleft()
                break
            except IndexError:
                if is_over:
                    self._pool = None
                    raise StopIteration from None
            if not self.wait(timeout):
                raise multiprocessing.TimeoutError
        if success:
            return value
        raise value

    __next__ = next

    def _set(self, i: int, obj: tuple[bool, Any]) -> None:
        self._unsorted[i] = obj
        while self._index in self._unsorted:
            self._add(self._unsorted.pop(self._index))
        self._look()

    def _add(self, item: tuple[bool, Any]) -> None:
        self._items.append(item)
        self._index += 1

    def _set_length(self, length: int) -> None:
        self._length = length
        self._look()

    def _look(self) -> None:
        if self._index == self._length:
            self._cache.pop(self._job, None)
            self._pool = None
        self._wake()


class _Unordered(_Ordered):
    """The same of `imap_unordered`."""

    def _set(self, i: int, obj: tuple[bool, Any]) -> None:
        self._add(obj)
        self._look()


class _Incomplete(dict[int, Any]):
    """Results that are not complete, by their numbers. The base class makes those of `map` and `apply`, and
    puts them here before anybody can wait for them."""

    def __setitem__(self, number: int, result: Any) -> None:
        if isinstance(result, _stdlib.ApplyResult):
            result._event = _Event()
        super().__setitem__(number, result)


class _Results(multiprocessing.pool.IMapIterator):  # type: ignore[type-arg]
    """What `imap` returns. When nothing refers to it, no more results are kept."""

    def __init__(self, engine: _Engine, job: _Job) -> None:
        self._engine = engine
        self._inner = job.result
        weakref.finalize(self, engine.abandon, job).atexit = False

    def next(self, timeout: float | None = None) -> Any:
        try:
            return self._inner.next(timeout)
        finally:
            self._engine.look()

    __next__ = next

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise TypeError("a result of a pool cannot be copied or pickled: only this process gets it")


class _Engine:
    """The tasks of a pool on their way. It does not refer to the pool."""

    def __init__(self, executor: Executor, processes: int) -> None:
        self.executor = executor
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """Jobs, or what `_Job` takes; None is the end."""
        self.results = _Incomplete()
        self.is_parents = False
        """In a forked child, where the thread is not."""
        self._processes = processes
        self._in_flight = 0
        """Tasks that were handed out, and have not ended."""
        self._bytes_in_flight = 0
        self._is_idle = False
        self._is_joined = False
        self._is_terminated = False
        # Held for a moment, for the numbers here and in jobs.
        self._counting = threading.Lock()
        # Held while a result gets an outcome, and calls its callback.
        self._lock = threading.RLock()
        self._outcomes: list[Any] = []
        """The results that get an outcome now. There are several if a callback ends the pool."""
        try:
            executor._start_all()
            self._thread = threading.Thread(target=self._hand_out, name="pipework.Pool", daemon=True)
            self._thread.start()
        except BaseException as error:
            executor.terminate_workers()
            executor.shutdown()
            if isinstance(error, concurrent.futures.BrokenExecutor) and error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        _engines.add(self)

    def terminate(self) -> None:
        self._is_terminated = True
        self.executor.terminate_workers()
        self.tasks.put(_LOOK)
        if self.results:
            self._fail_all(RuntimeError("the pool was terminated"))

    def wait(self) -> None:
        if self.is_parents:
            return
        if threading.current_thread() is self._thread:
            raise RuntimeError("cannot join current thread")
        if not self._is_terminated:
            # The program may take results only after this.
            self._is_joined = True
            self.look()
            self._thread.join()
        self.executor.shutdown()

    def look(self) -> None:
        """Called when more may be handed out. The thread looks once more after it has set this."""
        if self._is_idle:
            self.tasks.put(_LOOK)

    def abandon(self, job: _Job) -> None:
        # The garbage collector calls this, perhaps while the lock is held.
        job.is_abandoned = True
        job.result._items.clear()
        self.look()

    def leave(self) -> None:
        """In a forked child: nobody waits for a result that only the parent gets."""
        self.is_parents = True
        for result in list(self.results.values()):
            _fail_in_child(result)
        self.results.clear()

    # The thread.

    def _hand_out(self) -> None:
        jobs: collections.deque[_Job] = collections.deque()
        is_closed = False
        while jobs or not is_closed:
            job = self._ready(jobs)
            if job is None:
                self._is_idle = True
                job = self._ready(jobs)
            came: Any = _LOOK
            with contextlib.suppress(queue.Empty):
                came = self.tasks.get(block=job is None)
            self._is_idle = False
            if self._is_terminated:
                return
            if job is not None and not self._hand_out_one(job):
                jobs.pop()
            if came is None:
                is_closed = True
            elif came is not _LOOK:
                jobs.append(came if isinstance(came, _Job) else _Job(came[0]))
            del job, came
        self.executor.shutdown(wait=False)

    def _ready(self, jobs: collections.deque[_Job]) -> _Job | None:
        """The next job whose next task is to be handed out. It becomes the last one, since jobs take
        turns."""
        window = self.executor._window(self._processes)
        with self._counting:
            if self._in_flight >= (window if self._bytes_in_flight > _AHEAD else 4 * self._processes + 16):
                return None
            for _ in range(len(jobs)):
                jobs.rotate(-1)
                if self._may_go_on(jobs[-1], window):
                    return jobs[-1]
        return None

    def _may_go_on(self, job: _Job, window: int) -> bool:
        if job.result is None or job.is_abandoned or self._is_joined:
            return True
        kept = job.kept()
        return kept < window + self._processes or (job.ended > 0 and kept * job.received <= _KEPT * job.ended)

    def _hand_out_one(self, job: _Job) -> bool:
        """Returns False if there are no more tasks."""
        task = next(job.tasks, None)
        if task is None:
            if job.result is not None:
                job.result._set_length(job.begun)
            return False
        number, index, func, args, kwds = task
        if func is _stdlib._helper_reraises_exception:  # the iterable has raised
            self._end_early(job, self.results.get(number), args[0])
            return False
        with self._counting:
            job.begun += 1
            self._in_flight += 1
        self._start(job, number, index, func, args, kwds)
        # One that is not known to have an end may have none.
        return job.result is not None or operator.length_hint(job.tasks, 1) > 0

    def _start(
        self, job: _Job, number: int, index: int, func: Callable[..., Any], args: tuple[Any, ...], kwds: Mapping[str, Any]
    ) -> None:
        try:
            future = self.executor.submit(func, *args, **kwds)
        except Exception as error:
            self._end_task(job, number, index, (False, error), 0, 0)
            return
        sent = future.sent  # type: ignore[attr-defined]
        with self._counting:
            self._bytes_in_flight += sent
        future.add_done_callback(functools.partial(self._end, job, number, index, func))

    def _end_early(self, job: _Job, result: Any, error: BaseException) -> None:
        """The iterable has raised."""
        if job.result is not None:
            job.error = error
            self._raise_if_done(job)
        elif result is not None:
            with self._lock:
                _fail(result, error)

    def _raise_if_done(self, job: _Job) -> None:
        with self._lock:
            if job.error is not None and job.ended == job.begun:
                job.result._set(job.begun, (False, job.error))
                job.result._set_length(job.begun + 1)
                job.error = None

    # That, and the executor's thread.

    def _end(self, job: _Job, number: int, index: int, func: Callable[..., Any], future: Any) -> None:
        try:
            outcome = True, future.result()
        except BaseException as error:
            outcome = False, _as_of_the_standard_library(error, future.step, func)
        self._end_task(job, number, index, outcome, future.sent, future.received)

    def _end_task(
        self, job: _Job, number: int, index: int, outcome: tuple[bool, Any], sent: int, received: int
    ) -> None:
        with self._lock:
            self._set(number, index, outcome)
            if job.is_abandoned:
                job.result._items.clear()
        with self._counting:
            self._in_flight -= 1
            self._bytes_in_flight -= sent
            job.ended += 1
            job.received += received
        self._raise_if_done(job)
        self.look()

    def _set(self, number: int, index: int, outcome: tuple[bool, Any]) -> None:
        """With the lock."""
        result: Any = self.results.get(number)
        self._outcomes.append(result)
        try:
            if result is not None:
                result._set(index, outcome)
        except BaseException as error:  # of a callback
            logging.getLogger("concurrent.futures").exception("exception calling callback for %r", result)
            result._callback = result._error_callback = None
            _fail(result, error)
        finally:
            self._outcomes.pop()

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            for result in list(self.results.values()):
                if not any(result is each for each in self._outcomes):
                    _fail(result, error)


def _fail(result: Any, error: BaseException) -> None:
    """Completes a result that gets no more outcomes."""
    with contextlib.suppress(KeyError):  # it is complete
        if isinstance(result, _stdlib.IMapIterator):
            result._set(result._index, (False, error))
            result._set_length(result._index)
        else:
            result._number_left = 1
            result._set(0, (False, error))


def _fail_in_child(result: Any) -> None:
    """In a forked child."""
    error = RuntimeError("this result is of a pool that was made before a fork: only the parent gets it")
    if isinstance(result, _stdlib.IMapIterator):
        result._items.append((False, error))
        result._length = result._index
        result._wake()
    else:
        result._success, result._value = False, error
        result._event.set()


def _as_of_the_standard_library(error: BaseException, step: str | None, func: Callable[..., Any]) -> BaseException:
    """The exception that its pool has for what has failed at this step."""
    if step == RESULT:
        made = _stdlib.MaybeEncodingError(error, None)
        made.value = f"the result of {func!r}"
        return made  # type: ignore[no-any-return]
    if isinstance(error.__cause__, RemoteTraceback):
        error.__cause__ = _stdlib.RemoteTraceback(str(error.__cause__))
    return error


_engines: weakref.WeakSet[_Engine] = weakref.WeakSet()


def _forked() -> None:
    """A forked child has neither the threads nor their locks."""
    for engine in list(_engines):
        engine.leave()
    _engines.clear()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _terminate_all() -> None:
    """At the end of the program, before the executors wait for their tasks."""
    for engine in list(_engines):
        engine.terminate()
