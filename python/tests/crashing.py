"""Objects and tasks that end their process, or raise, at a step of an executor."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from pipework import Executor


def crash() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_in_c() -> None:
    ctypes.CDLL(None).exit(0)


def leave() -> None:
    sys.exit(0)


def refuse() -> None:
    raise pickle.PicklingError("refused")


def refuse_to_be() -> None:
    raise pickle.UnpicklingError("refused")


class AtPickle:
    """Acts when it is pickled."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __reduce__(self) -> Any:
        self.act()
        return id, (42,)


class AtUnpickle:
    """Acts when it is unpickled."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __reduce__(self) -> Any:
        return self.act, ()


class AtEnd:
    """Ends the worker when it is collected there."""

    def __del__(self) -> None:
        if multiprocessing.parent_process() is not None:
            crash()


def make(kind: type[Any], act: Callable[[], object]) -> Any:
    return kind(act)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def square(number: int) -> int:
    return number * number


def squares(count: int, way: str) -> list[int]:
    """By an executor of the worker's own."""
    with Executor(2, mp_context=multiprocessing.get_context(way)) as executor:
        return list(executor.map(square, range(count)))
