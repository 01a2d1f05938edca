"""`pipework.multiprocessing`: what differs from the standard library, and what a kill does.
test_multiprocessing_stdlib.py runs the library's own tests."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import gc
import itertools
import os
import pickle
import queue
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import multiprocessing_tasks as tasks
import numpy
import pytest
import tasks as executor_tasks
from processes import stop_helpers, until
from support import SOON, in_child, on_small_tmpfs, open_files

from pipework import PeerDied, RemoteError, multiprocessing

stdlib: Any = import_module("multiprocessing")
WAYS = ["fork", "spawn", "forkserver"]


@pytest.fixture(scope="module", autouse=True)
def helpers() -> Iterator[None]:
    process = stdlib.get_context("forkserver").Process(target=int)
    process.start()
    process.join()
    yield
    stop_helpers()


@pytest.fixture(params=WAYS)
def context(request: pytest.FixtureRequest) -> Any:
    return multiprocessing.get_context(request.param)


fork: Any = multiprocessing.get_context("fork")


@contextlib.contextmanager
def running(target: Callable[..., object], *args: Any, context: Any = fork) -> Iterator[Any]:
    """A process that does this; it is killed in the end, if it has not ended."""
    process = context.Process(target=target, args=args)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
        process.close()


# ---------------------------------------------------------------- the module


def test_module_has_every_name_of_the_standard_library() -> None:
    assert multiprocessing.__all__ == list(stdlib.__all__)
    for name in stdlib.__all__:
        assert getattr(multiprocessing, name)
    assert multiprocessing.Process is stdlib.Process
    assert multiprocessing.connection is stdlib.connection
    assert multiprocessing.current_process() is stdlib.current_process()
    with pytest.raises(AttributeError):
        getattr(multiprocessing, "no_such_name")


def test_modules_are_those_of_the_standard_library_in_a_new_process() -> None:
    """Not second copies, whose `resource_tracker` would be another process."""
    program = """if 1:
        from pipework import multiprocessing
        from pipework.multiprocessing import shared_memory
        names = "connection", "managers", "pool", "queues", "resource_tracker", "shared_memory", "synchronize"
        ours = [getattr(multiprocessing, name) for name in names]
        import multiprocessing as stdlib
        import multiprocessing.connection, multiprocessing.managers, multiprocessing.pool, multiprocessing.queues
        assert shared_memory is stdlib.shared_memory
        assert ours == [getattr(stdlib, name) for name in names]
        assert not hasattr(multiprocessing, "nothing")
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_context_is_one_of_the_standard_library(context: Any) -> None:
    way = context.get_start_method()
    assert isinstance(context, type(stdlib.get_context(way)))
    assert context.Process is stdlib.get_context(way).Process
    assert context.get_context() is context
    assert context.get_context("spawn") is multiprocessing.get_context("spawn")
    with pytest.raises(ValueError, match="no such way"):
        context.get_context("no such way")


def test_default_context_has_the_start_method_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stdlib.get_start_method()
    try:
        for way in WAYS:
            stdlib.set_start_method(way, force=True)
            assert multiprocessing.get_start_method() == way
            assert multiprocessing.get_context() is multiprocessing.get_context(way)
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert stdlib.get_start_method() == before


def test_objects_are_of_the_types_of_the_standard_library() -> None:
    assert isinstance(fork.Queue(), stdlib.queues.Queue)
    assert isinstance(fork.JoinableQueue(), stdlib.queues.JoinableQueue)
    assert isinstance(fork.SimpleQueue(), stdlib.queues.SimpleQueue)
    assert all(isinstance(end, stdlib.connection.Connection) for end in fork.Pipe())
    with fork.Pool(1) as pool:
        assert isinstance(pool, stdlib.pool.Pool)
    # Type checkers take the names for classes, as they do with the standard library.
    numbers: multiprocessing.Queue[int] = multiprocessing.Queue()
    assert isinstance(numbers, stdlib.queues.Queue)


def test_pool_of_the_standard_library_works_in_a_context_of_this_package() -> None:
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=fork) as executor:
        assert list(executor.map(tasks.square, range(100))) == [n * n for n in range(100)]


# ---------------------------------------------------------------- queues


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue", "SimpleQueue"])
def test_queue_carries_objects_both_ways(context: Any, kind: str) -> None:
    there, back = getattr(context, kind)(), getattr(context, kind)()
    with running(tasks.get, there, back, 4, context=context):
        for each in (None, "text", {"key": [1, 2]}, bytes(1_000_000)):
            there.put(each)
            assert back.get() == each


@pytest.mark.parametrize("maxsize", [0, 3, 5000])
def test_arrays_come_as_they_were(maxsize: int) -> None:
    many = fork.Queue(maxsize)
    arrays = [numpy.arange(number << 16, dtype="u1") for number in range(10)]
    many.put(arrays)
    assert all((one == other).all() for one, other in zip(many.get(), arrays, strict=True))


def test_array_of_a_queue_is_shared_memory_and_read_only() -> None:
    objects = fork.Queue()
    objects.put(numpy.zeros(1 << 17))
    assert not objects.get().flags.writeable
    objects.put(numpy.zeros(10))
    assert objects.get().flags.writeable


def test_put_raises_what_pickling_raises_and_the_queue_goes_on() -> None:
    objects = fork.Queue(1)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        objects.put(lambda: None)
    objects.put(1)
    assert objects.get() == 1


def test_put_takes_the_object_as_it_is_then() -> None:
    objects, item = fork.Queue(), [1]
    for _ in range(1000):
        objects.put(item)
    item.append(2)
    assert [objects.get() for _ in range(1000)] == [[1]] * 1000


def test_queue_without_a_bound_takes_more_than_its_slots_and_keeps_the_order(context: Any) -> None:
    objects, answers = context.Queue(), context.Queue()
    tasks.put(objects, 5000)
    assert objects.qsize() == 5000
    with running(tasks.get, objects, answers, 5000, context=context):
        tasks.put(objects, 1000, 5000)
        assert [answers.get(timeout=SOON) for _ in range(5000)] == list(range(5000))
    assert [objects.get(timeout=SOON) for _ in range(1000)] == list(range(5000, 6000))


def test_taker_that_was_slow_takes_the_posted_objects_before_those_beyond_the_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = fork.Queue()
    tasks.put(objects, 300)
    assert [objects.get() for _ in range(300)] == list(range(300))
    take, channel = objects._channel.take, objects._channel

    def take_slowly(timeout: float | None) -> Any:
        request = take(timeout)
        monkeypatch.undo()
        tasks.put(objects, 300)
        return request

    monkeypatch.setattr(channel, "take", take_slowly)
    assert [objects.get(timeout=SOON) for _ in range(300)] == list(range(300))


def test_process_that_puts_more_than_its_slots_ends_at_once_and_all_is_there(context: Any) -> None:
    objects = context.Queue()
    with running(tasks.put_and_run_no_other_thread, objects, 1000, context=context) as process:
        process.join(SOON)
        assert process.exitcode == 0 and objects.qsize() == 1000
    assert [objects.get_nowait() for _ in range(1000)] == list(range(1000))


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_counts_of_a_queue_without_a_bound_are_those_of_every_process(context: Any, kind: str) -> None:
    objects, answers = getattr(context, kind)(), context.SimpleQueue()
    tasks.put(objects, 5000)
    for count in (5000, 0):
        with running(tasks.count_and_drain, objects, answers, context=context) as process:
            assert answers.get() == (count, count == 0, list(range(count)))
            process.join(SOON)
        assert (objects.qsize(), objects.empty()) == (0, True)
    with pytest.raises(queue.Empty):
        objects.get_nowait()


def test_100_000_objects_are_counted_and_taken_to_the_last_one() -> None:
    objects, answers = fork.Queue(), fork.SimpleQueue()
    tasks.put(objects, 100_000)
    assert objects.qsize() == 100_000 and not objects.empty()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(running(tasks.count_and_drain, objects, answers))
        # Each stops where it finds nothing.
        taken = [answers.get()[2] for _ in range(3)]
    assert all(each == sorted(each) for each in taken)
    assert sorted(itertools.chain(*taken)) == list(range(100_000))
    assert objects.empty()


def test_workers_that_stop_at_empty_do_all_jobs_of_a_filled_queue(context: Any) -> None:
    jobs, done = context.Queue(), context.Queue()
    tasks.put(jobs, 2000)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(running(tasks.work_until_empty, jobs, done, context=context)) for _ in range(3)]
        for worker in workers:
            worker.join(SOON)
            assert worker.exitcode == 0
    assert done.qsize() == 2000
    assert sorted(done.get_nowait() for _ in range(2000)) == list(range(2000))


@pytest.mark.parametrize("pad", [0, 300, 70_000])
def test_objects_beyond_the_slots_come_in_order_and_as_they_were(pad: int) -> None:
    objects = fork.Queue()
    for start in (0, 600, 1200):  # emptied in between
        for number in range(start, start + 600):
            objects.put((number, numpy.full(pad, number % 251, "u1")))
        for number in range(start, start + 600):
            came, array = objects.get(timeout=SOON)
            assert came == number and len(array) == pad and (array == number % 251).all()


def test_memory_of_objects_that_were_taken_is_given_back() -> None:
    objects: Any = fork.Queue()
    tasks.put(objects, 300)

    def used() -> int:
        files = objects._overflow._records, objects._overflow._long
        return sum(512 * os.fstat(each.fileno()).st_blocks for each in files)

    for _ in range(20_000):  # never empty
        objects.put(bytes(300))
        objects.get(timeout=SOON)
    assert used() < 3 << 20
    for _ in range(50):
        objects.put(bytes(10 << 20))
        objects.get(timeout=SOON)
    while not objects.empty():
        objects.get()
    assert used() < 3 << 20


def test_taker_that_waits_gets_what_comes_beyond_the_slots() -> None:
    """It is not woken for it. It looks again."""
    objects: Any = fork.Queue()
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.append(objects.get(timeout=SOON)))
    thread.start()
    until(lambda: objects._channel._segment.stats().empty > 0)
    objects._overflow.put(objects._channel.dump("hidden"))
    thread.join()
    assert taken == ["hidden"]


def test_queue_leaves_files_alone_that_the_program_opens_at_its_numbers(tmp_path: Path) -> None:
    objects: Any = fork.Queue()
    tasks.put(objects, 300)
    (tmp_path / "file").write_bytes(b"mine")
    numbers = [each._fd for each in (objects._overflow._records, objects._overflow._long)]
    for number in numbers:  # as a daemon does with all
        os.close(number)
    mine = [os.open(tmp_path / "file", os.O_RDWR) for _ in numbers]
    assert sorted(mine) == sorted(numbers)
    for attempt in (lambda: objects.put(bytes(1000)), objects.qsize):
        with pytest.raises(OSError, match="was closed by the program"):
            attempt()
    objects.close()
    del objects
    for number in mine:
        assert os.lseek(number, 0, os.SEEK_CUR) == 0
        os.close(number)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_bounded_queue_is_full_at_its_bound(context: Any) -> None:
    for bound in (1, 3, 2000):
        objects = context.Queue(bound)
        for number in range(bound):
            assert not objects.full()
            objects.put_nowait(number)
        assert objects.full() and objects.qsize() == bound
        with pytest.raises(queue.Full):
            objects.put(0, timeout=0.01)
        with pytest.raises(queue.Full):
            objects.put(0, timeout=-1)
        assert [objects.get_nowait() for _ in range(bound)] == list(range(bound))
        assert objects.empty()
        with pytest.raises(queue.Empty):
            objects.get(timeout=-1)


def test_bound_beyond_the_most_slots_is_none() -> None:
    objects = fork.Queue((1 << 20) + 1)
    tasks.put(objects, 300)
    assert not objects.full()
    assert [objects.get(timeout=SOON) for _ in range(300)] == list(range(300))


def test_all_that_a_process_has_put_arrives(context: Any) -> None:
    objects = context.Queue()
    with running(tasks.put, objects, 2000, context=context) as process:
        assert [objects.get(timeout=SOON) for _ in range(2000)] == list(range(2000))
        process.join(SOON)
        assert process.exitcode == 0


def test_what_a_process_has_put_stays_if_it_cancels_the_thread() -> None:
    objects = fork.Queue()
    with running(tasks.put_and_leave, objects, 2000) as process:
        process.join(SOON)
        assert process.exitcode == 0
    assert objects.qsize() == 2000


@pytest.mark.parametrize("end", ["return", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_program_ends_with_unread_objects_after_its_consumers(kind: str, end: str) -> None:
    program = f"""
import os, signal
from pipework import multiprocessing

def take(objects):
    for _ in range(3):
        objects.get()
    {end}

context = multiprocessing.get_context("fork")
objects = context.{kind}()
consumers = [context.Process(target=take, args=(objects,)) for _ in range(2)]
for each in consumers:
    each.start()
for number in range(5000):
    objects.put(number)
for each in consumers:
    each.join()
print(objects.qsize())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON)
    assert (done.stdout, done.stderr, done.returncode) == ("4994\n", "", 0)


def test_all_that_the_main_program_has_put_outlives_it() -> None:
    program = """
import os
from pipework import multiprocessing

def take(objects):
    print(sum(1 for _ in iter(objects.get, None)), flush=True)

objects = multiprocessing.get_context("fork").Queue()
for number in range(1000):
    objects.put(number)
objects.put(None)
if os.fork() == 0:
    take(objects)
    os._exit(0)
"""
    # From Python 3.12 on, it warns that a process with threads forks.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert (done.stdout, done.stderr, done.returncode) == ("1000\n", "", 0)


def test_forked_child_puts_beside_its_parent() -> None:
    objects = fork.Queue()
    tasks.put(objects, 1000)
    with running(tasks.put, objects, 1, 5000) as process:
        taken = [objects.get(timeout=SOON) for _ in range(1001)]
        process.join(SOON)
    assert sorted(taken) == [*range(1000), 5000]
    assert objects.empty()


def test_queue_can_be_sent_through_a_queue_and_to_a_pool(context: Any) -> None:
    outer, inner = context.Queue(), context.Queue()
    with context.Pool(1) as pool:
        pool.apply(tasks.put, (inner, 3))
    outer.put(inner)
    assert [outer.get().get(timeout=SOON) for _ in range(1)] == [0]
    assert [inner.get(timeout=SOON) for _ in range(2)] == [1, 2]
    multiprocessing.resource_sharer.stop()


def test_closed_queue_refuses_and_its_descriptors_are_closed() -> None:
    for objects in (fork.Queue(), fork.JoinableQueue(), fork.Queue(2)):
        objects.put(1)
        objects.close()
        objects.close()
        objects.join_thread()
        for refused in (lambda q=objects: q.put(1), objects.get):
            with pytest.raises(ValueError, match="is closed"):
                refused()


def test_queue_that_is_dropped_is_collected_with_its_objects() -> None:
    objects = fork.Queue()
    tasks.put(objects, 10)
    gone = weakref.ref(objects)
    del objects
    assert gone() is None


def test_signal_handler_may_put_while_its_thread_puts() -> None:
    objects: Any = fork.Queue()
    put_by_handler = 0
    is_putting = True

    def handler(*_: object) -> None:
        nonlocal put_by_handler
        objects.put(-1)
        put_by_handler += 1
        if is_putting:
            # Not sooner: on a busy machine, handlers would interrupt each other without an end.
            signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        tasks.put(objects, 3000)
    finally:
        is_putting = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    taken = [objects.get(timeout=SOON) for _ in range(3000 + put_by_handler)]
    assert [each for each in taken if each >= 0] == list(range(3000))


def test_queue_without_a_bound_needs_no_space_in_dev_shm(tmp_path: Path) -> None:
    def work(_: Path) -> None:
        objects = fork.Queue()
        for number in range(20):
            objects.put(bytes([number]) * 300_000)
        assert objects.qsize() == 20
        assert [objects.get_nowait()[0] for _ in range(20)] == list(range(20))
        bounded = fork.Queue(2)
        with pytest.raises(OSError, match="No space left"):
            bounded.put(bytes(2_000_000))
        bounded.put(1)
        assert bounded.get() == 1

    on_small_tmpfs(tmp_path, "size=1m", work, place=Path("/dev/shm"))


def interrupted(place: int, handler: Callable[[], object], what: Callable[[], object], within: str = "") -> bool:
    """Does `what`, and `handler` at one of the places, in files `within` a folder, where CPython runs
    signal handlers: before a function begins, and after one in C. Returns whether there are so many."""
    left = place

    def at(frame: FrameType, event: str, function: Any) -> None:
        nonlocal left
        # After `__enter__` of a lock, which is a call like others since Python 3.14, no code could
        # release it if the handler raised.
        is_place = event == "call" or (event == "c_return" and function.__name__ != "__enter__")
        if is_place and frame.f_code.co_filename.startswith(within):
            left -= 1
            if left == 0:
                handler()

    sys.setprofile(at)
    try:
        what()
    finally:
        was_reached, left = left <= 0, -1
        sys.setprofile(None)
    return was_reached


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_signal_handler_may_put_at_any_place_of_a_put(kind: str) -> None:
    objects = getattr(fork, kind)()
    for place in itertools.count(1):
        for number in range(256):
            objects.put(number)
        was_reached = interrupted(place, lambda: objects.put(-1), lambda: objects.put(256))
        got = [objects.get(timeout=SOON) for _ in range(257 + was_reached)]
        assert [each for each in got if each >= 0] == list(range(257))
        for _ in got if kind == "JoinableQueue" else []:
            objects.task_done()
        if not was_reached:
            break
    assert place > 15
    if kind == "JoinableQueue":
        objects.join()


def test_put_that_a_signal_handler_ends_with_an_exception_sends_all_that_it_took() -> None:
    class Alarm(Exception):
        pass

    def handler() -> None:
        raise Alarm

    objects = fork.Queue()
    # Not in the standard library, which has places of its own: some CPythons lie in a folder "pipework".
    here = os.path.dirname(multiprocessing.__file__)
    for place in itertools.count(1):
        was_reached = True
        for number in range(256):
            objects.put(number)
        with contextlib.suppress(Alarm):
            was_reached = interrupted(place, handler, lambda: objects.put(256), here)
        objects.put(257)
        got = [objects.get(timeout=SOON)]
        while got[-1] != 257:
            got.append(objects.get(timeout=SOON))
        assert got in ([*range(256), 257], [*range(258)])
        assert objects.empty()
        if not was_reached:
            break
    assert place > 15


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_signal_handler_may_put_and_get_at_any_place_of_a_get(kind: str) -> None:
    objects = getattr(fork, kind)()
    tasks.put(objects, 256)
    got: list[int] = []
    expected = 256

    def handler() -> None:
        objects.put(expected + 1)
        got.append(objects.get(timeout=SOON))

    for place in itertools.count(1):
        objects.put(expected)  # beyond the slots, at first
        was_reached = interrupted(place, handler, lambda: got.append(objects.get(timeout=SOON)))
        expected += 1 + was_reached
        if not was_reached:
            break
    while not objects.empty():
        got.append(objects.get(timeout=SOON))
    assert sorted(got) == list(range(expected)) and place > 15
    if kind == "JoinableQueue":
        for _ in got:
            objects.task_done()
        objects.join()


def test_process_is_busy_at_any_place_where_a_signal_handler_takes_something() -> None:
    objects = fork.JoinableQueue()

    def handler() -> None:
        objects.get(timeout=SOON)
        assert not objects._is_done()

    for place in itertools.count(1):
        objects.put(0)
        objects.put(1)
        objects.get(timeout=SOON)
        if not interrupted(place, handler, objects.task_done):
            break
        assert not objects._is_done()
        objects.task_done()
        objects.join()
    assert place > 5


def test_exception_of_a_signal_handler_at_any_place_leaves_nobody_busy() -> None:
    class Alarm(Exception):
        pass

    def handler() -> None:
        raise Alarm

    def work() -> None:
        objects.get(timeout=SOON)
        objects.task_done()

    objects = fork.JoinableQueue()
    here = os.path.dirname(multiprocessing.__file__)
    for place in itertools.count(1):
        objects.put(0)
        was_reached = True
        with contextlib.suppress(Alarm):
            was_reached = interrupted(place, handler, work, here)
        while objects._taken:
            objects.task_done()
        while not objects.empty():
            work()
        until(objects._is_done)
        if not was_reached:
            break
    assert place > 15


def test_exception_of_a_signal_handler_in_a_waiting_put_takes_no_space() -> None:
    class Alarm(Exception):
        pass

    def handler(*_: object) -> None:
        raise Alarm

    objects = fork.Queue(1)
    objects.put(0)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(20):
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                objects.put(number, timeout=SOON)
            assert objects.get() == 0
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                objects.get(timeout=SOON)
            objects.put(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert objects.qsize() == 1


# ---------------------------------------------------------------- kills


def test_object_of_a_taker_that_is_killed_before_get_returns_goes_to_another() -> None:
    objects = fork.Queue()
    pid = os.fork()
    if pid == 0:
        request = objects._channel.take(SOON)
        assert request is not None
        tasks.die()
    until(lambda: objects._channel._segment.stats().empty > 0)
    objects.put("precious")
    os.waitpid(pid, 0)
    assert objects.get(timeout=SOON) == "precious"
    assert objects.empty()


def test_objects_of_a_killed_producer_stay() -> None:
    for bound in (0, 100):
        objects = fork.Queue(bound)
        with running(tasks.put_and_die, objects, 100) as process:
            process.join(SOON)
            assert process.exitcode == -signal.SIGKILL
            taken = []
            while not objects.empty():  # as it says itself
                taken.append(objects.get(timeout=SOON))
        assert taken == list(range(100))


@pytest.mark.parametrize("bound", [0, 1, 8])
@pytest.mark.parametrize("pad", [0, 3000, 200_000])
def test_kills_of_producers_and_consumers_lose_only_what_they_had_in_hand(bound: int, pad: int) -> None:
    chance = random.Random(bound + pad)
    objects = fork.Queue(bound)
    if bound == 0:  # the others lie beyond its slots
        for number in range(300):
            objects.put((-1, number, b""))
    (acked, ack), (taken, take) = os.pipe(), os.pipe()
    for each in (acked, taken):
        os.set_blocking(each, False)
    put: list[tuple[int, int]] = []
    got: list[tuple[int, int]] = []

    def read() -> None:
        for each, into in ((acked, put), (taken, got)):
            with contextlib.suppress(BlockingIOError):
                into.extend(tasks.RECORD.iter_unpack(os.read(each, 1 << 16)))

    numbers = iter(range(1000))

    def producer() -> Any:
        return fork.Process(target=tasks.produce, args=(objects, next(numbers), pad, ack))

    def consumer() -> Any:
        return fork.Process(target=tasks.consume, args=(objects, take))

    makers = [producer, producer, consumer, consumer]
    processes = [make() for make in makers]
    for process in processes:
        process.start()
    killed = 0
    for _ in range(40):
        read()
        time.sleep(chance.random() * 0.02)
        place = chance.randrange(4)
        processes[place].kill()
        processes[place].join()
        killed += place >= 2
        processes[place] = makers[place]()
        processes[place].start()
        # Somebody goes on.
        before = len(got)
        while len(got) == before:
            until(lambda: bool(select.select([taken], [], [], 0)[0]))
            read()
    for process in processes:
        process.kill()
        process.join()
    killed += 2
    read()
    objects._channel._segment.recover()  # what the killed had taken comes back now
    while not objects.empty():
        number, each, _ = objects.get(timeout=SOON)
        got.append((number, each))
    assert objects._channel.is_idle()
    counts = collections.Counter(got)
    assert max(counts.values()) == 1, "an object came twice"
    assert len(set(put) - set(got)) <= killed
    for number in {number for number, _ in got if number >= 0}:
        mine = sorted(each for other, each in got if other == number)
        gaps = set(range(mine[-1])) - set(mine)
        assert len(gaps) <= killed, "what is missing was in the hands of one that was killed"
    for number in range(bound or 1):
        objects.put(number, timeout=SOON)
    assert [objects.get(timeout=SOON) for _ in range(bound or 1)] == list(range(bound or 1))
    for each in (acked, ack, taken, take):
        os.close(each)


def test_join_ends_when_a_worker_is_killed_with_an_object() -> None:
    objects = fork.JoinableQueue()
    objects.put(1)
    with running(tasks.get_and_die, objects) as process:
        objects.join()
        process.join(SOON)
        assert process.exitcode == -signal.SIGKILL


def test_join_waits_for_all_that_a_killed_producer_has_put() -> None:
    objects = fork.JoinableQueue()
    with running(tasks.put_and_die, objects, 1000) as process:
        process.join(SOON)
    for number in range(1000):
        assert not objects._is_done()
        assert objects.get(timeout=SOON) == number
        objects.task_done()
    objects.join()
    assert objects.empty()


def test_join_waits_for_objects_that_wait_or_are_taken(context: Any) -> None:
    objects, done = context.JoinableQueue(), context.Queue()
    tasks.put(objects, 1000)
    with running(tasks.work, objects, done, context=context), running(tasks.work, objects, done, context=context):
        objects.join()
        assert sorted(done.get(timeout=SOON) for _ in range(1000)) == list(range(1000))
    assert objects.empty()


def test_worker_that_keeps_an_object_stops_no_other() -> None:
    objects, done = fork.JoinableQueue(), fork.Queue()
    objects.put(-1)
    assert objects.get(timeout=SOON) == -1
    with running(tasks.work, objects, done):
        tasks.put(objects, 5000)
        assert sorted(done.get(timeout=SOON) for _ in range(5000)) == list(range(5000))
        until(objects._channel.is_idle)
        assert not objects._is_done()
        objects.task_done()
        objects.join()


def test_join_waits_for_objects_that_workers_put() -> None:
    objects = fork.JoinableQueue()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(running(tasks.work_and_ask_for_more, objects))
        for _ in range(30):
            objects.put(6)
            objects.join()
            assert objects.empty() and objects._channel.is_idle()


def test_task_done_more_often_than_objects_were_taken_is_refused() -> None:
    objects = fork.JoinableQueue()
    objects.put(1)
    with pytest.raises(ValueError, match="too many times"):
        objects.task_done()
    objects.get()
    objects.task_done()
    with pytest.raises(ValueError, match="too many times"):
        objects.task_done()


def test_more_objects_may_be_in_work_than_the_bound() -> None:
    objects = fork.JoinableQueue(1)
    for number in range(10):
        objects.put(number, timeout=SOON)
        objects.get()
    for _ in range(10):
        objects.task_done()
    objects.join()


# ---------------------------------------------------------------- pipes


def test_connection_carries_objects_of_any_size(context: Any) -> None:
    here, there = context.Pipe()
    with running(tasks.echo, there, here if context is fork else None, context=context) as process:
        there.close()
        for size in (0, 1, 65_537, 122_000, 122_880, 122_881, 1 << 20, 1 << 26):
            here.send(bytes(size))
            assert here.poll(3 * SOON)  # a new interpreter starts, on a machine that may be busy
            assert here.recv() == bytes(size)
        arrays = [numpy.arange(number << 16, dtype="u1") for number in range(12)]
        here.send(arrays)
        back = here.recv()
        assert all((one == other).all() for one, other in zip(back, arrays, strict=True))
        assert back[11].flags.writeable
        here.close()
        process.join(SOON)
        assert process.exitcode == 0


def test_object_with_long_buffers_comes_as_bytes_too() -> None:
    here, there = fork.Pipe()
    array = numpy.arange(1 << 17)
    here.send(array)
    assert (pickle.loads(there.recv_bytes()) == array).all()
    there.send_bytes(pickle.dumps(array))
    assert (here.recv() == array).all()
    here.send_bytes(bytes(200_000))
    with pytest.raises(OSError, match="bad message length"):
        there.recv_bytes(199_999)


def test_connection_is_used_by_many_processes_at_each_end() -> None:
    reader, writer = fork.Pipe(duplex=False)
    answers = fork.Queue()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(running(tasks.receive_each, reader, answers))
        writers = [stack.enter_context(running(tasks.send_each, writer, number, 300, 3000)) for number in range(3)]
        for process in writers:
            process.join(SOON)
        got = [answers.get(timeout=SOON)[:2] for _ in range(900)]
    assert sorted(got) == [(number, each) for number in range(3) for each in range(300)]


@pytest.mark.parametrize("size", [10, 60_000, 1_000_000])
def test_sender_that_is_killed_leaves_whole_messages(size: int) -> None:
    reader, writer = fork.Pipe(duplex=False)
    chance = random.Random(size)
    for _ in range(10):
        with running(tasks.send_for_ever, writer, size):
            for _ in range(chance.randrange(1, 20)):
                assert len(reader.recv_bytes()) == size
    while reader.poll():
        assert len(reader.recv_bytes()) == size
    writer.close()
    with pytest.raises(EOFError):
        reader.recv_bytes()


def test_closed_ends_are_errors() -> None:
    reader, writer = fork.Pipe(duplex=False)
    writer.send(1)
    reader.close()
    with pytest.raises(BrokenPipeError):
        writer.send(2)
    here, there = fork.Pipe()
    here.send(1)
    there.send(2)
    here.close()
    assert there.recv() == 1
    with pytest.raises(EOFError):
        there.recv()
    with pytest.raises(BrokenPipeError):
        there.send(3)
    with pytest.raises(OSError, match="closed"):
        reader.recv()
    with pytest.raises(OSError, match="closed"):
        reader.fileno()
    writer.close()
    writer.close()


def test_connection_waits_whatever_the_default_timeout_of_sockets_is() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.001)
    try:
        here, there = fork.Pipe()
    finally:
        socket.setdefaulttimeout(before)
    thread = threading.Timer(0.1, here.send, (1,))
    thread.start()
    assert there.recv() == 1
    thread.join()


@pytest.mark.parametrize("kind", ["Connection", "SimpleQueue"])
def test_exception_of_a_signal_handler_at_any_place_leaves_no_descriptor(kind: str) -> None:
    """Long messages, which are files on their way."""

    class Rang(Exception):
        pass

    def ring(*_: object) -> None:
        raise Rang

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    ends = {"Connection": (queue._writer.send, queue._reader.recv), "SimpleQueue": (queue.put, queue.get)}
    put, get = ends[kind]
    before = open_files()
    rang, payload = 0, bytes(200_000)
    end = time.monotonic() + SOON
    handler = signal.signal(signal.SIGALRM, ring)
    try:
        while rang < 500 and time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 5e-4))
                put(payload)
                get()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Rang:
                rang += 1
            while queue._reader.poll(0):
                queue.get()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert rang > 50 and open_files() == before
    queue.close()


def test_message_with_more_files_than_may_be_opened_is_an_error_and_no_leak() -> None:
    here, there = fork.Pipe()
    here.send(numpy.zeros(1 << 17))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        with pytest.raises(OSError, match="more files"):
            there.recv()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    here.send("next")
    assert there.recv() == "next"


# ---------------------------------------------------------------- pools


def test_call_whose_process_is_killed_raises_and_the_pool_goes_on(context: Any) -> None:
    with context.Pool(2) as pool:
        with pytest.raises(PeerDied):
            pool.apply(tasks.die)
        assert pool.map(tasks.square, range(10)) == [n * n for n in range(10)]
        with pytest.raises(PeerDied):
            pool.map(tasks.die_if_odd, range(10), chunksize=1)
        results = [pool.apply_async(tasks.die_if_odd, (number,)) for number in range(10)]
        for number, result in enumerate(results):
            if number % 2:
                with pytest.raises(PeerDied):
                    result.get(SOON)
            else:
                assert result.get(SOON) == number
        steps = pool.imap(tasks.die_if_odd, [0, 1, 2])
        assert next(steps) == 0
        with pytest.raises(PeerDied):
            next(steps)
        assert next(steps) == 2


@pytest.mark.parametrize("what", ["memory", "descriptors"])
def test_task_that_no_process_can_receive_fails_alone(context: Any, what: str, tmp_path: Path) -> None:
    with context.Pool(2, executor_tasks.limit, (what, tmp_path)) as pool:
        assert pool.apply(pow, (2, 10)) == 1024
        stuck = pool.apply_async(executor_tasks.count, executor_tasks.too_much(what))
        beside = pool.map_async(abs, range(-30, 0))
        with pytest.raises(OSError, match="no process could receive this task"):
            stuck.get(SOON)
        assert beside.get(SOON) == list(range(30, 0, -1))
        pool.close()
        pool.join()
    assert len(list(tmp_path.iterdir())) <= 2 + 2 * 3, "each process is replaced three times at most"


class _Ended(BaseException):
    """Of a signal handler."""


def _ended_at(step: int, call: Callable[[], object]) -> bool:
    """Runs a call that an exception ends before its step of this number, and says whether it had so many."""
    left = step

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_name not in ("__del__", "abandon"):
            left -= 1
            if left == 0:
                raise _Ended
        return trace

    sys.settrace(trace)
    try:
        call()
    except _Ended:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("name", ["imap", "imap_unordered", "map", "apply"])
def test_exception_anywhere_in_a_call_does_not_stop_a_pool(name: str) -> None:
    with fork.Pool(1) as pool:
        for step in itertools.count(1):
            if name == "apply":
                call: Callable[[], object] = pool.apply_async(tasks.sleep, (0.002,)).get
            elif name == "map":
                call = pool.map_async(tasks.sleep, [0.002]).get
            else:
                call = functools.partial(list, getattr(pool, name)(tasks.sleep, [0.002]))
            is_ended = _ended_at(step, call)
            assert pool.apply_async(abs, (-step,)).get(SOON) == step
            if not is_ended:
                break
        began = time.monotonic()
    pool.join()
    assert time.monotonic() - began < SOON
    assert step > 20


@pytest.mark.parametrize("step", [5, 30, 60, 100, 150])
def test_terminate_ends_a_pool_after_an_exception_has_ended_it(step: int) -> None:
    pool = fork.Pool(1)
    result = pool.apply_async(tasks.sleep, (1000.0,))
    _ended_at(step, pool.terminate)
    pool.terminate()
    pool.join()
    with pytest.raises((PeerDied, RuntimeError)):
        result.get(SOON)


def test_all_processes_have_started_when_a_pool_is_made(context: Any) -> None:
    with context.Pool(3) as pool:
        assert len({process.pid for process in pool._pool}) == 3
        assert all(process.is_alive() for process in pool._pool)


def test_processes_are_replaced_after_their_tasks() -> None:
    with fork.Pool(1, maxtasksperchild=1) as pool:
        pids = pool.map(_pid_of, range(5), chunksize=1)
    assert len(set(pids)) == 5


def _pid_of(_: object) -> int:
    return os.getpid()


def test_terminated_pool_fails_what_is_not_done() -> None:
    pool = fork.Pool(2)
    one = pool.apply_async(tasks.sleep, (1000,))
    many = pool.map_async(tasks.sleep, [1000.0] * 1000, chunksize=1)
    steps = pool.imap(tasks.sleep, iter([1000.0] * 1000))
    pool.terminate()
    pool.join()
    for waits in (one.get, many.get, steps.next):
        with pytest.raises((RuntimeError, concurrent.futures.BrokenExecutor)):
            waits(SOON)
    with pytest.raises(StopIteration):
        steps.next(SOON)


def test_endless_iterable_is_read_as_results_come() -> None:
    read = 0

    def numbers() -> Iterator[int]:
        nonlocal read
        while True:
            yield read
            read += 1

    with fork.Pool(2) as pool:
        steps = pool.imap(tasks.square, numbers())
        assert [next(steps) for _ in range(100)] == [n * n for n in range(100)]
        assert read < 1000


def test_imap_reads_no_more_arguments_than_keep_the_processes_busy() -> None:
    for processes in (1, 4):
        ahead = []

        def arguments() -> Iterator[bytes]:
            for _ in range(40):
                ahead.append(pool._engine._in_flight)
                yield bytes(200_000)

        with fork.Pool(processes) as pool:
            for kind in (pool.imap, pool.imap_unordered):
                assert list(kind(tasks.nap_for_length, arguments())) == [200_000] * 40
        # Each process has one, and this is the next.
        assert max(ahead) == processes


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("kind", ["imap", "imap_unordered"])
def test_imap_keeps_few_large_results_that_nobody_takes(kind: str, size: int) -> None:
    read = 0

    def arguments() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield 4 << 20

    with fork.Pool(2) as pool:
        results = getattr(pool, kind)(bytes, arguments(), size)
        assert [len(next(results)) for _ in range(5)] == [4 << 20] * 5
        settled = -1
        while settled != read:  # until it reads no more
            settled = read
            time.sleep(0.3)
        assert read <= (12 + 16 // 4) * size
        # Other calls go on, and so does this one.
        assert pool.map(tasks.square, range(100)) == [n * n for n in range(100)]
        assert [len(next(results)) for _ in range(50)] == [4 << 20] * 50
        # What nothing refers to any more is done to its end, and its results are not kept.
        done = pool.imap(tasks.square, range(1000))
        next(done)
        inner = done._inner
        del done
        until(lambda: inner._index == 1000 and not inner._items)


def test_results_of_imap_may_be_taken_after_join() -> None:
    with fork.Pool(2) as pool:
        results = pool.imap(bytes, [2 << 20] * 30)
        pool.close()
        pool.join()
        assert [len(each) for each in results] == [2 << 20] * 30


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, ValueError])
def test_iterable_that_raises_ends_its_call_alone(raised: type[BaseException]) -> None:
    def arguments() -> Iterator[int]:
        yield from range(3)
        raise raised

    with fork.Pool(2) as pool:
        for kind in (pool.imap, pool.imap_unordered):
            results = kind(tasks.square, arguments())
            assert sorted(next(results) for _ in range(3)) == [0, 1, 4]
            with pytest.raises(raised):
                next(results)
            assert list(results) == []

        class Listed(list[int]):
            def __iter__(self) -> Iterator[int]:
                return arguments()

        with pytest.raises(raised):
            pool.map(tasks.square, Listed(range(9)), 1)
        assert pool.apply(tasks.square, (3,)) == 9


def test_pool_of_the_parent_raises_in_a_forked_child() -> None:
    with fork.Pool(1) as pool:
        slow = pool.apply_async(executor_tasks.nap, (0.5, "done"))
        results = pool.imap(executor_tasks.nap, [0.1] * 3)

        def work() -> None:
            for call in (pool.apply, pool.apply_async):
                with pytest.raises(RuntimeError, match="made before a fork"):
                    call(tasks.square, (3,))
            for call in (pool.map, pool.imap, pool.imap_unordered, pool.map_async):
                with pytest.raises(RuntimeError, match="made before a fork"):
                    call(tasks.square, [3])
            for get in (slow.get, results.next):
                with pytest.raises(RuntimeError, match="made before a fork"):
                    get()
            pool.terminate()  # which the end of a `with` block calls
            pool.close()
            pool.join()
            with fork.Pool(1) as own:
                assert own.apply(tasks.square, (3,)) == 9

        in_child(work)
        assert slow.get(SOON) == "done"


@pytest.mark.parametrize("end", ["terminate", "close"])
def test_pool_that_has_ended_is_in_no_cycle(end: str) -> None:
    gc.collect()
    gc.disable()
    try:
        pool = fork.Pool(2)
        array = pool.apply(double_of_long)
        waiting = pool.map_async(double_of_long_later, range(20))
        if end == "terminate":
            pool.terminate()
        pool.close()
        pool.join()
        pool_gone, segment_gone = weakref.ref(pool), weakref.ref(manager_of(pool)._segment)
        del pool, waiting, array
        until(lambda: pool_gone() is None and segment_gone() is None)
    finally:
        gc.enable()


def double_of_long(_: object = None) -> Any:
    return numpy.zeros(100_000)


def double_of_long_later(_: object = None) -> Any:
    time.sleep(0.02)
    return numpy.zeros(100_000)


def manager_of(pool: Any) -> Any:
    (manager,) = pool._engine.executor._managers.values()
    return manager


def test_terminate_ends_a_closed_pool_whose_process_does_not_end(context: Any) -> None:
    pool = context.Pool(1)
    pool.apply(executor_tasks.stay)
    pool.close()
    until(lambda: manager_of(pool)._is_over)
    pool.terminate()
    assert pool._pool == []


def test_ctrl_c_while_processes_start_breaks_no_pool(context: Any) -> None:
    for count in (1, 2):
        with context.Pool(2, maxtasksperchild=count) as pool:
            for seconds in (0, 0.02, 0.1):
                time.sleep(seconds)
                for process in list(pool._pool):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGINT)
                with contextlib.suppress(KeyboardInterrupt, RemoteError, PeerDied):
                    pool.map(tasks.square, range(4), 1)
            assert pool.map_async(tasks.square, range(4)).get(SOON) == [0, 1, 4, 9]


def test_errors_of_pools_are_those_of_the_standard_library() -> None:
    with fork.Pool(1) as pool:
        with pytest.raises(ValueError, match="this went wrong") as raised:
            pool.apply(tasks.raise_error)
        assert isinstance(raised.value.__cause__, multiprocessing.pool.RemoteTraceback)
        with pytest.raises(multiprocessing.pool.MaybeEncodingError, match="the result of <function unpicklable"):
            pool.apply(tasks.unpicklable)
        with pytest.raises(ZeroDivisionError) as unread:  # and no error about a result
            pool.apply(tasks.square, (tasks.Unreadable(),))
        assert "in load" in str(unread.value.__cause__)
        with pytest.raises(RemoteError, match="Particular: this and that"):
            pool.apply(executor_tasks.be_particular)
        with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
            pool.apply(lambda: None)
        with pytest.raises(RemoteError, match="the task has raised SystemExit: 3"):
            pool.apply(tasks.exit_with_status)
        assert pool.apply(tasks.square, (3,)) == 9


def test_callback_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def callback(_: object) -> None:
        raise RuntimeError("in a callback")

    with fork.Pool(1) as pool:
        result = pool.apply_async(tasks.square, (2,), callback=callback)
        with pytest.raises(RuntimeError, match="in a callback"):
            result.get(SOON)
        assert pool.apply(tasks.square, (3,)) == 9


def test_callback_may_end_its_pool() -> None:
    pool = fork.Pool(1)
    ended = threading.Event()

    def callback(_: object) -> None:
        pool.terminate()
        ended.set()

    done = pool.apply_async(tasks.square, (2,), callback=callback)
    undone = pool.apply_async(time.sleep, (1000,))
    assert ended.wait(SOON)
    assert done.get(SOON) == 4, "its task was done"
    with pytest.raises(RuntimeError, match="terminated"):
        undone.get(SOON)
    pool.join()


def test_initializer_that_raises_breaks_the_pool() -> None:
    with fork.Pool(1, tasks.raise_error, (1,)) as pool:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="this went wrong"):
            pool.apply(tasks.square, (2,))


def test_pool_whose_processes_cannot_start_raises_the_reason() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        multiprocessing.get_context("spawn").Pool(1, lambda: None)


def test_process_of_a_pool_may_have_a_pool() -> None:
    with fork.Pool(1) as pool:
        assert pool.apply(tasks.pool_of_its_own, (fork,)) == [1, 4]


def test_arrays_of_a_pool_are_shared_memory() -> None:
    array = numpy.arange(1 << 17)
    with fork.Pool(1) as pool:
        assert (pool.apply(tasks.double, (array,)) == 2 * array).all()
        assert not pool.apply(tasks.is_writable, (array,))


def test_pool_that_is_dropped_ends_its_processes() -> None:
    threads = threading.active_count()
    pool = fork.Pool(2)
    processes = pool._pool
    assert pool.apply(tasks.square, (2,)) == 4
    with pytest.warns(ResourceWarning, match="unclosed running multiprocessing pool"):
        del pool
    # A thread of the pool buries them too, and `Process.join` may return while it does.
    until(lambda: not any(process.is_alive() for process in processes))
    until(lambda: threading.active_count() <= threads)


@pytest.mark.parametrize("end", ["", "pool.close()", "pool.terminate()", "del pool", "raise SystemExit(0)"])
def test_program_ends_with_a_pool_that_works(end: str) -> None:
    program = f"""
import time
from pipework import multiprocessing
if __name__ == "__main__":
    pool = multiprocessing.Pool(2)
    print(pool.apply(abs, (-1,)), flush=True)
    pool.map_async(time.sleep, [{0 if "close" in end else 1000}] * 10, chunksize=1)
    {end}
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=SOON)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
