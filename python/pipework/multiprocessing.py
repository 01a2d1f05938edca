"""The standard library's `multiprocessing`, with queues, pipes and pools that a killed process does
not hang. A program changes one import:

>>> from pipework import multiprocessing
>>> context = multiprocessing.get_context("forkserver")
>>> with context.Pool(2) as pool:
...     pool.map(abs, [1, -2, 3])
[1, 2, 3]

`Queue`, `JoinableQueue`, `SimpleQueue`, `Pipe` and `Pool` are of this package. All other names, such
as `Process`, `Lock` and `Manager`, are those of the standard library. Objects travel as pickles,
so all processes trust each other; their buffers of more than 64 KiB, such as numpy's arrays have,
are in shared memory.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing as _stdlib
from multiprocessing import (
    Array,
    AuthenticationError,
    Barrier,
    BoundedSemaphore,
    BufferTooShort,
    Condition,
    Event,
    Lock,
    Manager,
    Process,
    ProcessError,
    RawArray,
    RawValue,
    RLock,
    Semaphore,
    TimeoutError,
    Value,
    active_children,
    allow_connection_pickling,
    cpu_count,
    current_process,
    freeze_support,
    get_all_start_methods,
    get_logger,
    get_start_method,
    log_to_stderr,
    parent_process,
    reducer,
    set_executable,
    set_forkserver_preload,
    set_start_method,
)
from multiprocessing import context as _context
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from . import _connection, _pool, _queues

__all__ = [
    "Array",
    "AuthenticationError",
    "Barrier",
    "BoundedSemaphore",
    "BufferTooShort",
    "Condition",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "ProcessError",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "SimpleQueue",
    "TimeoutError",
    "Value",
    "active_children",
    "allow_connection_pickling",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_all_start_methods",
    "get_context",
    "get_logger",
    "get_start_method",
    "log_to_stderr",
    "parent_process",
    "reducer",
    "set_executable",
    "set_forkserver_preload",
    "set_start_method",
]


class BaseContext(_context.BaseContext):
    """What the contexts have in the place of the standard library's."""

    @overload  # type: ignore[override]
    def get_context(self, method: None = None) -> Self: ...
    @overload
    def get_context(self, method: Literal["fork"]) -> ForkContext: ...
    @overload
    def get_context(self, method: Literal["spawn"]) -> SpawnContext: ...
    @overload
    def get_context(self, method: Literal["forkserver"]) -> ForkServerContext: ...
    @overload
    def get_context(self, method: str) -> BaseContext: ...
    def get_context(self, method: str | None = None) -> Any:
        """The context in which processes start in this way: "fork", "spawn" or "forkserver"."""
        if method is None:
            return self
        try:
            return _contexts[method]
        except KeyError:
            raise ValueError(f"cannot find context for {method!r}") from None

    def Queue(self, maxsize: int = 0) -> _queues.Queue[Any]:
        """A queue for any number of processes, with space for `maxsize` objects; 0 is no bound."""
        from ._queues import Queue

        return Queue(maxsize)

    def JoinableQueue(self, maxsize: int = 0) -> _queues.JoinableQueue[Any]:
        """A queue that also knows when all of its objects are done."""
        from ._queues import JoinableQueue

        return JoinableQueue(maxsize)

    def SimpleQueue(self) -> _queues.SimpleQueue[Any]:
        """A queue that is only a pipe."""
        from ._queues import SimpleQueue

        return SimpleQueue()

    def Pipe(self, duplex: bool = True) -> tuple[_connection.Connection, _connection.Connection]:
        """Two connected ends. Without `duplex` the first only receives, and the second only sends."""
        from ._connection import pipe

        return pipe(duplex)

    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> _pool.Pool:
        """Processes that call functions, by default as many as the machine has CPUs."""
        from ._pool import Pool

        return Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context())


class ForkContext(BaseContext, _context.ForkContext):
    """Processes are forked."""


class SpawnContext(BaseContext, _context.SpawnContext):
    """Each process is a new interpreter."""


class ForkServerContext(BaseContext, _context.ForkServerContext):
    """Processes are forked by a server, which is a new interpreter."""


class _DefaultContext(BaseContext):
    """The start method is the standard library's, which `set_start_method` sets for both."""

    def get_context(self, method: str | None = None) -> Any:
        return super().get_context(method or get_start_method())


_contexts = {"fork": ForkContext(), "spawn": SpawnContext(), "forkserver": ForkServerContext()}
_default = _DefaultContext()

get_context = _default.get_context
Pipe = _default.Pipe
Pool = _default.Pool
if TYPE_CHECKING:
    # An annotation may name them, as it may those of the standard library.
    from ._queues import JoinableQueue, Queue, SimpleQueue
else:
    JoinableQueue = _default.JoinableQueue
    Queue = _default.Queue
    SimpleQueue = _default.SimpleQueue


def __getattr__(name: str) -> Any:
    """The modules of the standard library, such as `multiprocessing.connection`."""
    # With the library's `__path__`, an import from here would load second copies of its modules.
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not hasattr(_stdlib, name):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"multiprocessing.{name}")
    return getattr(_stdlib, name)
