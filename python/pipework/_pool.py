"""The pool of `pipework.multiprocessing`: the standard library's methods and results over an
`Executor`. A task whose process is killed raises `PeerDied` at the caller that waits for it.

A thread hands tasks out, as many as keep the processes busy, so that a long or endless iterable is
read as results come. The executor's thread delivers results and calls callbacks.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import functools
import logging
import multiprocessing.pool
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sized
from multiprocessing import util
from typing import TYPE_CHECKING, Any

from ._executor import Executor, RemoteTraceback

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

_stdlib: Any = multiprocessing.pool


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
        self._state = _stdlib.TERMINATE
        self._terminate()
        with contextlib.suppress(RuntimeError):  # a callback may call this, and does not wait for itself
            self._engine.wait()

    def join(self) -> None:
        if self._state == _stdlib.RUN:
            raise ValueError("Pool is still running")
        self._engine.wait()


class _Engine:
    """The tasks of a pool on their way. It does not refer to the pool."""

    def __init__(self, executor: Executor, processes: int) -> None:
        self.executor = executor
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """Pairs of some tasks, and a function that is called with their number; None is the end."""
        self.results: dict[int, Any] = {}
        """Results that are not complete, by their numbers."""
        self._space = threading.Semaphore(4 * processes + 16)
        self._is_terminated = False
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
        self.tasks.put(None)
        self._space.release()
        if self.results:
            self._fail_all(RuntimeError("the pool was terminated"))

    def wait(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("cannot join current thread")
        if not self._is_terminated:
            self._thread.join()
        self.executor.shutdown()

    # The thread.

    def _hand_out(self) -> None:
        for tasks, set_length in iter(self.tasks.get, None):
            number = 0
            for number, task in enumerate(tasks, 1):
                self._space.acquire()
                if self._is_terminated:
                    return
                self._start(*task)
                del task  # it refers to the arguments
            if set_length is not None:
                set_length(number)
            del tasks, set_length
        self.executor.shutdown(wait=False)

    def _start(self, job: int, index: int, func: Callable[..., Any], args: tuple[Any, ...], kwds: Mapping[str, Any]) -> None:
        if func is _stdlib._helper_reraises_exception:  # the iterable has raised
            self._set(job, index, (False, args[0]))
            return
        try:
            future = self.executor.submit(_run, func, args, kwds)
        except Exception as error:
            self._set(job, index, (False, error))
        else:
            future.add_done_callback(functools.partial(self._end, job, index, func))

    # That, and the executor's thread.

    def _end(self, job: int, index: int, func: Callable[..., Any], future: concurrent.futures.Future[Any]) -> None:
        try:
            outcome = future.result()
        except BaseException as error:
            if isinstance(error, Exception) and isinstance(error.__cause__, RemoteTraceback):
                # `_run` catches what the function raises: this is of its arguments or its result.
                error = _stdlib.MaybeEncodingError(error, None)
                error.value = f"the arguments or the result of {func!r}"
            outcome = False, error
        self._set(job, index, outcome)

    def _set(self, job: int, index: int, outcome: tuple[bool, Any]) -> None:
        with self._lock:
            result: Any = self.results.get(job)
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
        self._space.release()

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


def _run(func: Callable[..., Any], args: tuple[Any, ...], kwds: Mapping[str, Any]) -> tuple[bool, Any]:
    try:
        return True, func(*args, **kwds)
    except Exception as error:
        return False, _stdlib.ExceptionWithTraceback(error, error.__traceback__)


_engines: weakref.WeakSet[_Engine] = weakref.WeakSet()


# A forked child has neither the threads nor their locks.
os.register_at_fork(after_in_child=_engines.clear)


@atexit.register
def _terminate_all() -> None:
    """At the end of the program, before the executors wait for their tasks."""
    for engine in list(_engines):
        engine.terminate()
