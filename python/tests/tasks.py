"""What tests have an executor's processes do: they import it from here."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
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


def die_once(path: Path) -> str:
    """The one that makes the file dies."""
    with contextlib.suppress(FileExistsError):
        path.touch(exist_ok=False)
        die()
    return "the second time"


def leave(number: int) -> None:
    os._exit(number)


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
    data[0] = 1
    return type(data) is bytearray


class Stubborn(Exception):
    """It cannot be pickled."""

    def __reduce__(self) -> str:
        raise TypeError("not me")


def be_stubborn() -> None:
    raise Stubborn("no")
