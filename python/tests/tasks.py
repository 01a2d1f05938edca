"""Tasks for the processes of an executor, which import them from here."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

told = "nothing"


def remember(what: str) -> None:
    global told
    told = what


def remembered() -> str:
    return told


def fail(_: object = None) -> None:
    raise ValueError("this went wrong")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_of(_: object) -> None:
    die()


def die_first(path: Path, times: int) -> None:
    """So many die, each of which leaves a file."""
    for number in range(times):
        with contextlib.suppress(FileExistsError):
            (path / str(number)).touch(exist_ok=False)
            die()


def die_with_heir(path: Path) -> None:
    """Dies, and leaves a child that lives until there is a file."""
    if os.fork() == 0:
        while not path.exists():
            time.sleep(0.01)
        os._exit(0)
    die()


def die_once(path: Path, _: object = None) -> str:
    """The one that makes the file dies."""
    with contextlib.suppress(FileExistsError):
        path.touch(exist_ok=False)
        die()
    return "the second time"


def leave(number: int) -> None:
    os._exit(number)


def limit(what: str, starts: Path, times: int = 1000) -> None:
    """So many processes, each of which leaves a file, have little memory or few descriptors left."""
    import multiprocessing.pool  # a task of a pool needs a descriptor for that

    number = len(list(starts.iterdir()))
    (starts / str(os.getpid())).touch()
    if number >= times:
        return
    if what == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
    else:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        while os.open(os.devnull, os.O_RDONLY) < highest:
            pass
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8,) * 2)


def too_much(what: str) -> list[pickle.PickleBuffer]:
    """Arguments of `count` that need more than `limit` leaves."""
    return [buffer(80 << 20)] if what == "memory" else [buffer(1 << 20) for _ in range(7)]


def count(*what: object) -> int:
    return len(what)


def nap(seconds: float, what: object = None) -> object:
    time.sleep(seconds)
    return what


def pid(_: object = None) -> int:
    time.sleep(0.01)
    return os.getpid()


def same(what: object) -> object:
    return what


def buffer(size: int) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(bytearray(size))


def is_writable(data: Any) -> bool:
    return not memoryview(data).readonly


class Stubborn(Exception):
    """It cannot be pickled."""

    def __reduce__(self) -> str:
        raise TypeError("not me")


def be_stubborn() -> None:
    raise Stubborn("no")


class Particular(Exception):
    """It can be pickled, and not be made of the pickle."""

    def __init__(self, one: object, other: object) -> None:
        super().__init__(f"{one} and {other}")


class Strange(Exception):
    """Its pickle becomes something else."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("7",)


def be_particular() -> None:
    raise Particular("this", "that")


def be_strange() -> None:
    raise Strange("odd")


def stay() -> None:
    """The process does not end by itself."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()


def stay_and_ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay()


def interrupt_first(path: Path, times: int) -> None:
    """So many get what Ctrl-C raises."""
    for number in range(times):
        with contextlib.suppress(FileExistsError):
            (path / str(number)).touch(exist_ok=False)
            raise KeyboardInterrupt


def leave_an_executor(answers: Any) -> None:
    """Neither shuts it down nor waits for it."""
    from pipework import Executor

    executor = Executor(2, mp_context=multiprocessing.get_context("fork"))
    executor.submit(nap, 0.2, "done").add_done_callback(lambda future: answers.send(future.result()))
    executor.submit(abs, -1).result()


class Unknown(ForkServerProcess):
    """A process whose status another thread has read, so that this one sees 255."""

    @property
    def exitcode(self) -> int | None:
        return 255 if super().exitcode == -signal.SIGKILL else super().exitcode


class Ends:
    """Unpickled, it calls a function."""

    def __init__(self, function: Any, *args: object) -> None:
        self.calls = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.calls


def interrupt() -> None:
    raise KeyboardInterrupt


def ends(how: str) -> Ends:
    return Ends(sys.exit, 3) if how == "exit" else Ends(interrupt)


class Refusing(Exception):
    """It has no cause."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "__cause__":
            raise TypeError("no cause")
        super().__setattr__(name, value)


def refuse() -> None:
    raise Refusing("refused")


def use_executor(answers: Any) -> None:
    """Sends the exception of an executor in a process that may have no children."""
    from pipework import Executor

    with Executor(1) as executor:
        try:
            executor.submit(abs, -1)
        except BaseException as error:
            answers.send(repr(error))
