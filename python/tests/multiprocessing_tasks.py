"""What the processes of test_multiprocessing.py do. They import it from here."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import struct
import sys
import time
from queue import Empty
from typing import Any

RECORD = struct.Struct("iI")
"""A producer's number, and the number of its object."""


def square(number: int) -> int:
    return number * number


def die(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_if_odd(number: int) -> int:
    if number % 2:
        die()
    return number


def nap_for_length(data: bytes) -> int:
    time.sleep(0.02)
    return len(data)


class Unreadable:
    def __reduce__(self) -> Any:
        return divmod, (1, 0)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def double(array: Any) -> Any:
    return 2 * array


def is_writable(array: Any) -> bool:
    return bool(array.flags.writeable)


def raise_error(_: object = None) -> None:
    raise ValueError("this went wrong")


def unpicklable() -> Any:
    return lambda: None


def exit_with_status() -> None:
    raise SystemExit(3)


def pool_of_its_own(context: Any) -> list[int]:
    with context.Pool(1) as pool:
        result: list[int] = pool.map(square, [1, 2])
        return result


def put(queue: Any, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        queue.put(number)


def count_and_drain(queue: Any, answers: Any) -> None:
    """Answers `qsize`, `empty`, and what comes until there is nothing."""
    count, is_empty, taken = queue.qsize(), queue.empty(), []
    with contextlib.suppress(Empty):
        while True:
            taken.append(queue.get_nowait())
    answers.put((count, is_empty, taken))


def work_until_empty(jobs: Any, done: Any) -> None:
    with contextlib.suppress(Empty):
        while True:
            done.put(jobs.get_nowait())


def put_and_run_no_other_thread(queue: Any, count: int) -> None:
    sys.setswitchinterval(1000)
    put(queue, count)


def put_and_die(queue: Any, count: int) -> None:
    put(queue, count)
    die()


def get(queue: Any, answers: Any, count: int) -> None:
    for _ in range(count):
        answers.put(queue.get())


def get_and_die(queue: Any) -> None:
    queue.get()
    die()


def put_and_leave(queue: Any, count: int) -> None:
    """With a feeder that has not sent everything at its end."""
    put(queue, count)
    queue.close()
    queue.cancel_join_thread()


def produce(queue: Any, number: int, pad: int, acked: int) -> None:
    """Puts objects, and records each that was put, until it is killed."""
    for each in itertools.count():
        queue.put((number, each, bytes(pad)))
        os.write(acked, RECORD.pack(number, each))


def consume(queue: Any, taken: int) -> None:
    """Records each object that it gets, until it is killed."""
    while True:
        number, each, _ = queue.get()
        os.write(taken, RECORD.pack(number, each))


def work(queue: Any, done: Any) -> None:
    while True:
        done.put(queue.get())
        queue.task_done()


def work_and_ask_for_more(queue: Any) -> None:
    """Each object is a number of further ones."""
    while True:
        for each in range(queue.get()):
            queue.put(each)
        queue.task_done()


def echo(connection: Any, other: Any = None) -> None:
    if other is not None:
        other.close()
    try:
        while True:
            connection.send(connection.recv())
    except EOFError:
        pass


def send_each(connection: Any, number: int, count: int, size: int) -> None:
    for each in range(count):
        connection.send((number, each, bytes(size)))


def send_for_ever(connection: Any, size: int) -> None:
    data = bytes(size)
    while True:
        connection.send_bytes(data)


def receive_each(connection: Any, answers: Any) -> None:
    try:
        while True:
            answers.put(connection.recv())
    except EOFError:
        answers.put(None)
