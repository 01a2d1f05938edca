"""Whole messages, requests and bytes between the processes and threads of one machine.

| module | carries | between |
| --- | --- | --- |
| `pipework.atomic` | whole messages of any size through one pipe, also between printed text | many processes and one reader |
| `pipework.reqrep` | calls and replies through shared memory | many clients and many competing servers |
| `pipework.pipe` | bytes, without a system call while neither side waits | two threads or tasks |
| `pipework.fd` | complete reads, writes and copies; one that fails says how far it got | any two descriptors |

The package builds on them: `pipework.logging` carries log records of many processes through one
pipe to one place. `pipework.Executor` runs functions in other processes; when one is killed, one
future fails. `pipework.multiprocessing` is the standard library's, with queues, pipes and pools that
a killed process does not hang. `pipework.run` and `pipework.Workers` run commands that print and send through one
stdout, and `pipework.guard_stdout` keeps prints out of it. `pipework.nats` starts the bridge to other
machines, `pipework-nats`, a separate program that is not in this package.

Calls that wait take a `timeout` in seconds; None waits for ever. A call that waits releases the
interpreter lock and runs signal handlers, so Ctrl-C works. Every failure is an `Error` that names its
operation, and is also the built-in exception that one expects: `TimeoutError`, `BrokenPipeError`,
...

>>> import pipework.atomic
>>> reader, writer = pipework.atomic.pair()
>>> writer.send(b"hello")
>>> reader.recv()
b'hello'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._core import __version__
from ._errors import (
    Closed,
    Corrupt,
    Error,
    ErrorKind,
    Failed,
    Incompatible,
    Interrupted,
    Invalid,
    Lagged,
    NoServer,
    Os,
    PeerDied,
    RemoteError,
    Stale,
    TimedOut,
    TooLong,
    TornMessage,
    Unsupported,
    WouldBlock,
)

if TYPE_CHECKING:
    # The compiled half imports these. Programs that collect what a program imports, such as PyInstaller,
    # find them here.
    from . import _asyncio_fd, _asyncio_tasks, _atomic, _codecs, _reqrep
    from ._children import Completed, Workers, guard_stdout, run
    from ._executor import Executor

__all__ = [
    "Closed",
    "Completed",
    "Corrupt",
    "Error",
    "ErrorKind",
    "Executor",
    "Failed",
    "Incompatible",
    "Interrupted",
    "Invalid",
    "Lagged",
    "NoServer",
    "Os",
    "PeerDied",
    "RemoteError",
    "Stale",
    "TimedOut",
    "TooLong",
    "TornMessage",
    "Unsupported",
    "Workers",
    "WouldBlock",
    "__version__",
    "guard_stdout",
    "run",
]


_LATER = {
    "Completed": "_children",
    "Executor": "_executor",
    "Workers": "_children",
    "guard_stdout": "_children",
    "run": "_children",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports names that not every program needs at their first use."""
        if name not in _LATER:
            raise AttributeError(f"module 'pipework' has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)

    def __dir__() -> list[str]:
        """Shows lazily imported names, for `help` among others."""
        return sorted({*globals(), *_LATER})
