"""The executor, above all with processes that are killed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import tasks
from pipework import Executor, PeerDied, RemoteError, _executor
from pipework._objects import LONG
from pipework.reqrep import Blob
from processes import stop_helpers, until
from support import SOON, in_child, on_small_tmpfs


@pytest.fixture(scope="module", autouse=True)
def helpers() -> Iterator[None]:
    """Those of multiprocessing, which the first process starts."""
    with Executor(1) as executor:
        executor.submit(tasks.pid).result(SOON)
    yield
    stop_helpers()


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def each_way(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with Executor(2, mp_context=multiprocessing.get_context(request.param)) as executor:
        yield executor


def test_submit_runs_functions_in_processes_of_every_start_method(each_way: Executor) -> None:
    until(lambda: len(set(each_way.map(tasks.pid, range(20)))) == 2)
    assert each_way.submit(tasks.pid).result(SOON) != os.getpid()
    assert each_way.submit(pow, 3, 2, mod=5).result(SOON) == 4


def test_result_raises_the_exception_with_its_traceback(each_way: Executor) -> None:
    with pytest.raises(ValueError, match="^this went wrong$") as raised:
        each_way.submit(tasks.fail).result(SOON)
    assert 'raise ValueError("this went wrong")' in str(raised.value.__cause__)
    with pytest.raises(RemoteError, match="Stubborn: no"):
        each_way.submit(tasks.be_stubborn).result(SOON)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        each_way.submit(lambda: None).result(SOON)
    assert each_way.submit(abs, -1).result(SOON) == 1


def test_exception_that_cannot_be_made_of_its_pickle_arrives_as_its_text(each_way: Executor) -> None:
    with pytest.raises(RemoteError, match="Particular: this and that") as raised:
        each_way.submit(tasks.be_particular).result(SOON)
    assert 'raise Particular("this", "that")' in raised.value.reason.decode()
    assert "missing 1 required positional argument" in str(raised.value.__cause__)
    with pytest.raises(RemoteError, match="Strange: odd") as raised:
        each_way.submit(tasks.be_strange).result(SOON)
    assert "has become 7" in str(raised.value.__cause__)
    assert each_way.submit(abs, -1).result(SOON) == 1


@pytest.mark.parametrize("status", [0, 3])
def test_exit_in_a_task_ends_neither_its_process_nor_its_caller(status: int) -> None:
    with Executor(1) as executor:
        pid = executor.submit(os.getpid).result(SOON)
        with pytest.raises(RemoteError, match=f"the task has raised SystemExit: {status}") as raised:
            executor.submit(sys.exit, status).result(SOON)
        assert "SystemExit" in str(raised.value.__cause__)
        assert executor.submit(os.getpid).result(SOON) == pid


def test_killed_process_fails_one_future_and_is_replaced(each_way: Executor) -> None:
    with pytest.raises(PeerDied, match="executor: the process that ran this task has died"):
        each_way.submit(tasks.die).result(SOON)
    futures = [each_way.submit(tasks.nap, 0.01, number) for number in range(10)]
    futures.insert(5, each_way.submit(tasks.die))
    futures += [each_way.submit(tasks.nap, 0.01, number) for number in range(10, 20)]
    concurrent.futures.wait(futures, SOON)
    assert [type(future.exception()).__name__ for future in futures].count("PeerDied") == 1
    futures.pop(5)
    assert [future.result() for future in futures] == list(range(20))
    until(lambda: len(set(each_way.map(tasks.pid, range(20)))) == 2)


def test_process_that_exits_fails_one_future_and_is_replaced(each_way: Executor) -> None:
    for status in (0, 1):
        with pytest.raises(PeerDied):
            each_way.submit(tasks.leave, status).result(SOON)
    assert each_way.submit(abs, -1).result(SOON) == 1


def test_killed_idle_process_is_replaced() -> None:
    with Executor(1) as executor:
        for _ in range(3):
            os.kill(executor.submit(tasks.pid).result(SOON), signal.SIGKILL)
        assert executor.submit(abs, -1).result(SOON) == 1


def test_redeliveries_repeat_the_task_of_a_killed_process(tmp_path: Path) -> None:
    with Executor(1, redeliveries=1) as executor:
        assert executor.submit(tasks.die_once, tmp_path / "file").result(SOON) == "the second time"
        with pytest.raises(PeerDied):
            executor.submit(tasks.die).result(SOON)
        assert executor.submit(tasks.die_once, tmp_path / "long", bytes(1_000_000)).result(SOON) == "the second time"


def test_long_tasks_and_results_arrive(each_way: Executor) -> None:
    for size in (1 << 16, 1 << 20, 10_000_000):
        assert each_way.submit(tasks.same, bytes(size)).result(SOON) == bytes(size)
    assert each_way.submit(bytes, 5_000_000).result(SOON) == bytes(5_000_000)
    assert list(each_way.map(len, [bytes(100_000)] * 20, timeout=SOON)) == [100_000] * 20
    with pytest.raises(PeerDied):
        each_way.submit(tasks.die_of, bytes(1_000_000)).result(SOON)


def test_long_buffers_arrive_read_only_and_short_ones_writable() -> None:
    with Executor(1) as executor:
        for size in (1, 1000, LONG, LONG + 1, 1_000_000):
            sent = pickle.PickleBuffer(bytearray(size))
            assert executor.submit(tasks.is_writable, sent).result(SOON) is (size <= LONG)
            came: Any = executor.submit(tasks.buffer, size).result(SOON)
            assert came == bytes(size) and tasks.is_writable(came) is (size <= LONG)


def test_arrays_come_without_a_copy() -> None:
    array: Any = np.arange(100_000, dtype=np.float64)
    with Executor(1) as executor:
        came: Any = executor.submit(tasks.same, array).result(SOON)
        assert (came == array).all() and not came.flags.writeable
        memory = came
        while isinstance(memory, np.ndarray):
            memory = memory.base
        assert isinstance(memory.obj, Blob)
        assert (executor.submit(tasks.same, came).result(SOON) == array).all()
    assert (came == array).all(), "also when the executor has gone"


def test_many_arrays_in_one_task_and_many_that_are_kept() -> None:
    arrays: Any = [np.full(10_000, number, np.float64) for number in range(20)]
    with Executor(2) as executor:
        came: Any = executor.submit(tasks.same, arrays).result(SOON)
        assert all((one == other).all() for one, other in zip(came, arrays))
        before = len(os.listdir("/proc/self/fd"))
        kept = list(executor.map(tasks.same, arrays * 10, timeout=3 * SOON))
        assert all((one == other).all() for one, other in zip(kept, arrays * 10))
        assert len(os.listdir("/proc/self/fd")) < before + 150, "each blob has one open"


def test_tasks_and_results_without_memory_for_blobs_fail_alone(tmp_path: Path) -> None:
    def work(_: Path) -> None:
        with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
            with pytest.raises(OSError, match="No space left"):
                executor.submit(bytes, 5_000_000).result(SOON)
            with pytest.raises(OSError, match="No space left"):
                executor.submit(len, bytes(5_000_000)).result(SOON)
            assert executor.submit(len, bytes(5)).result(SOON) == 5

    on_small_tmpfs(tmp_path, "size=1m", work, place=Path("/dev/shm"))


def test_initializer_runs_in_each_process_and_each_replacement() -> None:
    with Executor(1, initializer=tasks.remember, initargs=("the model",)) as executor:
        assert executor.submit(tasks.remembered).result(SOON) == "the model"
        with pytest.raises(PeerDied):
            executor.submit(tasks.die).result(SOON)
        assert executor.submit(tasks.remembered).result(SOON) == "the model"


def test_initializer_that_raises_breaks_the_executor() -> None:
    with Executor(2, initializer=tasks.fail) as executor:
        futures = [executor.submit(abs, -1) for _ in range(20)]
        with pytest.raises(concurrent.futures.BrokenExecutor, match="this went wrong"):
            futures[0].result(SOON)
        assert len(concurrent.futures.wait(futures, SOON).not_done) == 0
        with pytest.raises(concurrent.futures.BrokenExecutor):
            until(lambda: executor.submit(abs, -1) and False)


def test_long_task_fails_when_the_executor_breaks() -> None:
    with Executor(1, initializer=tasks.fail) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor):
            executor.submit(len, bytes(1_000_000)).result(SOON)


def test_processes_that_end_early_break_the_executor() -> None:
    with Executor(1, initializer=tasks.leave, initargs=(1,)) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="ended early"):
            executor.submit(abs, -1).result(SOON)


def test_process_killed_while_it_starts_is_replaced(tmp_path: Path) -> None:
    unknown: Any = Limited(100, tasks.Unknown)
    ways = ("fork", "spawn", "forkserver")
    for number, context in enumerate([unknown, *map(multiprocessing.get_context, ways)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Executor(1, mp_context=context, initializer=tasks.die_first, initargs=(folder, 4)) as executor:
            assert executor.submit(abs, -1).result(SOON) == 1
        assert len(list(folder.iterdir())) == 4


def test_initializer_that_is_always_killed_breaks_the_executor(tmp_path: Path) -> None:
    with Executor(1, initializer=tasks.die_first, initargs=(tmp_path, 100)) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="5 processes in a row were killed"):
            executor.submit(abs, -1).result(SOON)
    assert len(list(tmp_path.iterdir())) == 5


def test_ctrl_c_in_an_initializer_is_no_failure_of_it(tmp_path: Path) -> None:
    for way in ("fork", "spawn", "forkserver"):
        folder = tmp_path / way
        folder.mkdir()
        context = multiprocessing.get_context(way)
        with Executor(2, mp_context=context, initializer=tasks.interrupt_first, initargs=(folder, 4)) as executor:
            assert list(executor.map(abs, [-1] * 10, timeout=SOON)) == [1] * 10
        assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_ctrl_c_at_any_moment_of_a_start_breaks_nothing(way: str) -> None:
    for after in (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3):
        with Executor(2, mp_context=multiprocessing.get_context(way)) as executor:
            executor._start_all()
            time.sleep(after)
            for process in executor._workers():
                os.kill(process.pid, signal.SIGINT)
            futures = [executor.submit(abs, -1) for _ in range(6)]
            # A task that has begun may be interrupted itself.
            ends = {type(future.exception(SOON)) for future in futures}
            assert ends <= {type(None), KeyboardInterrupt, RemoteError, PeerDied}
            assert executor.submit(abs, -1).result(SOON) == 1


def test_process_is_replaced_although_its_child_lives(tmp_path: Path) -> None:
    with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        with pytest.raises(PeerDied):
            executor.submit(tasks.die_with_heir, tmp_path / "end").result(SOON)
        try:
            assert executor.submit(abs, -1).result(SOON) == 1
        finally:
            (tmp_path / "end").touch()


def test_initializer_that_cannot_be_pickled_breaks_the_executor() -> None:
    with Executor(1, initializer=lambda: None) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="lambda") as raised:
            executor.submit(abs, -1).result(SOON)
        assert isinstance(raised.value.__cause__, (pickle.PicklingError, AttributeError))


def test_daemonic_process_cannot_have_an_executor() -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=tasks.use_executor, args=(there,), daemon=True)
    process.start()
    with here, there:
        assert here.poll(SOON)
        assert "daemonic processes are not allowed to have children" in here.recv()
    process.join(SOON)
    process.close()


LIMITS = ["memory", "descriptors"]


@pytest.mark.parametrize("what", LIMITS)
@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_task_that_no_process_can_receive_fails_alone(way: str, what: str, tmp_path: Path) -> None:
    number = errno.ENOMEM if what == "memory" else errno.EMFILE
    context = multiprocessing.get_context(way)
    with Executor(2, mp_context=context, initializer=tasks.limit, initargs=(what, tmp_path)) as executor:
        assert executor.submit(pow, 2, 10).result(SOON) == 1024
        stuck = [executor.submit(tasks.count, *tasks.too_much(what)) for _ in range(2)]
        beside = [executor.submit(abs, -number) for number in range(30)]
        for future in stuck:
            with pytest.raises(OSError, match="^executor: no process could receive this task: reqrep recv: ") as raised:
                future.result(SOON)
            assert raised.value.errno == number
        assert [future.result(SOON) for future in beside] == list(range(30))
        assert executor.submit(pow, 2, 10).result(SOON) == 1024
    assert len(list(tmp_path.iterdir())) <= 2 + 2 * 2 * _executor._RECEIVERS


@pytest.mark.parametrize("what", LIMITS)
def test_task_that_some_processes_cannot_receive_goes_to_another(what: str, tmp_path: Path) -> None:
    with Executor(1, initializer=tasks.limit, initargs=(what, tmp_path, 2)) as executor:
        futures = [executor.submit(tasks.count, *tasks.too_much(what)) for _ in range(3)]
        beside = [executor.submit(abs, -number) for number in range(30)]
        assert [future.result(SOON) for future in futures] == [len(tasks.too_much(what))] * 3
        assert [future.result(SOON) for future in beside] == list(range(30))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("end", ["shutdown", "terminate"])
def test_executor_ends_while_no_process_can_receive_its_task(end: str, tmp_path: Path) -> None:
    executor = Executor(2, initializer=tasks.limit, initargs=("memory", tmp_path))
    future = executor.submit(tasks.count, *tasks.too_much("memory"))
    until(lambda: list(tmp_path.iterdir()))
    if end == "terminate":
        executor.terminate_workers()
    executor.shutdown()
    assert isinstance(future.exception(0), concurrent.futures.BrokenExecutor if end == "terminate" else OSError)


def test_processes_that_end_again_and_again_before_they_take_a_task_break_the_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(_: object) -> None:
        os._exit(1)

    monkeypatch.setattr(_executor, "_received", leave)
    with Executor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="processes in a row ended"):
            executor.submit(abs, -1).result(SOON)


class Limited:
    """A context in which only so many processes can be started."""

    def __init__(self, most: int, kind: Any = multiprocessing.get_context("forkserver").Process) -> None:
        self.left = most
        self.kind = kind
        self.Pipe = multiprocessing.Pipe

    def Process(self, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EMFILE, "no more files")
        return self.kind(**options)


def test_process_that_cannot_start_breaks_the_executor() -> None:
    context: Any = Limited(1)
    with Executor(1, mp_context=context) as executor:
        assert executor.submit(abs, -1).result(SOON) == 1
        # One thread finds that the process died, and another one that no new process can start.
        with pytest.raises((PeerDied, concurrent.futures.BrokenExecutor)):
            executor.submit(tasks.die).result(SOON)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="no more files") as raised:
            executor.submit(abs, -1).result(SOON)
        assert isinstance(raised.value.__cause__, OSError)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="no more files"):
            until(lambda: executor.submit(abs, -1) and False)


def test_submit_leaves_nothing_if_its_thread_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Executor(1) as executor:
        threads = threading.active_count()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    executor.submit((tmp_path / "file").touch)
        assert threading.active_count() == threads
        assert executor.submit(abs, -1).result(SOON) == 1
        assert not (tmp_path / "file").exists()


def test_second_thread_that_cannot_start_breaks_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def refuse(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Executor(1) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="can't start new thread"):
            executor.submit(abs, -1).result(SOON)


def test_program_from_standard_input_learns_why_its_processes_end() -> None:
    program = """
from pipework import Executor

if __name__ == "__main__":
    with Executor(1) as executor:
        executor.submit(abs, -1).result()
"""
    done = subprocess.run([sys.executable, "-"], input=program, stderr=subprocess.PIPE, text=True, timeout=SOON)
    assert done.returncode == 1
    assert "with status 1: it cannot load the main module, <stdin>, because that is no file" in done.stderr


@pytest.mark.parametrize("step", ["_fill", "_start", "_end"])
def test_thread_that_ends_early_breaks_the_executor(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SystemExit("it ended")

    with Executor(1) as executor:
        assert executor.submit(abs, -1).result(SOON) == 1
        monkeypatch.setattr(f"pipework._executor._Manager.{step}", fail)
        with contextlib.suppress(PeerDied, concurrent.futures.BrokenExecutor):
            executor.submit(tasks.die).result(SOON)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="it ended") as raised:
            until(lambda: executor.submit(abs, -1).result(SOON) and False)
        assert isinstance(raised.value.__cause__, SystemExit)


def test_process_reaped_by_another_thread_is_replaced() -> None:
    """Each task has its process; a thread reaps as many of them as it can."""
    is_over = threading.Event()
    context = multiprocessing.get_context("fork")

    def reap() -> None:
        while not is_over.is_set():
            multiprocessing.active_children()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)

    reaper = threading.Thread(target=reap)
    reaper.start()
    try:
        with Executor(2, mp_context=context, max_tasks_per_child=1) as executor:
            assert list(executor.map(abs, range(60), timeout=2 * SOON)) == list(range(60))
    finally:
        is_over.set()
        reaper.join()
        # They stay in this set after another thread has waited for them.
        multiprocessing.process._children.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["exit", "interrupt"])
def test_result_that_cannot_be_unpickled_fails_one_future(how: str) -> None:
    with Executor(1) as executor:
        with pytest.raises({"exit": RemoteError, "interrupt": KeyboardInterrupt}[how]):
            executor.submit(tasks.ends, how).result(SOON)
        assert executor.submit(abs, -1).result(SOON) == 1


def test_exception_that_refuses_a_cause_arrives_without_it() -> None:
    with Executor(1) as executor:
        with pytest.raises(tasks.Refusing):
            executor.submit(tasks.refuse).result(SOON)
        assert executor.submit(abs, -1).result(SOON) == 1


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, ValueError])
def test_executor_survives_a_callback_that_raises(raised: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    def call(_: object) -> None:
        raise raised

    with Executor(1) as executor:
        future = executor.submit(tasks.nap, 0.1)
        future.add_done_callback(call)
        future.result(SOON)
        assert executor.submit(abs, -1).result(SOON) == 1
    assert "exception calling callback" in caplog.text


def submit_and(executor: Executor, line: int, act: Callable[[], object]) -> concurrent.futures.Future[int]:
    """Submits a task, and acts before so many lines of that, as a signal handler may."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal line
        if not frame.f_code.co_filename.endswith("_executor.py"):
            return None
        if event == "line":
            line -= 1
            if line == 0:
                act()
        return trace

    sys.settrace(trace)
    try:
        return executor.submit(abs, -1)
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("is_first", [True, False])
def test_signal_handler_may_submit_at_any_line_of_submit(is_first: bool) -> None:
    threads = threading.active_count()
    for line in itertools.count(1):
        futures: list[concurrent.futures.Future[int]] = []
        with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
            if not is_first:
                futures += [executor.submit(abs, -1) for _ in range(3)]
            before = len(futures)
            futures.append(submit_and(executor, line, lambda: futures.append(executor.submit(abs, -1))))
            assert [future.result(SOON) for future in futures] == [1] * len(futures)
        until(lambda: threading.active_count() == threads)
        if len(futures) == before + 1:
            break
    assert line > 10


@pytest.mark.parametrize("is_first", [True, False])
def test_signal_handler_may_raise_at_any_line_of_submit(is_first: bool) -> None:
    def act() -> None:
        raise KeyboardInterrupt

    threads = threading.active_count()
    for line in itertools.count(1):
        futures: list[concurrent.futures.Future[int]] = []
        with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
            if not is_first:
                futures += [executor.submit(abs, -1) for _ in range(3)]
            with contextlib.suppress(KeyboardInterrupt):
                submit_and(executor, line, act)
                break
            futures += [executor.submit(abs, -1) for _ in range(10)]
            assert [future.result(SOON) for future in futures] == [1] * len(futures)
        until(lambda: threading.active_count() == threads)
    assert line > 10
    # Nothing has stayed locked for other threads.
    with concurrent.futures.ThreadPoolExecutor(1) as other, Executor(1) as executor:
        assert other.submit(lambda: executor.submit(abs, -1).result(SOON)).result(SOON) == 1


def test_forked_child_gets_an_executor_of_its_own() -> None:
    with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        pid = executor.submit(os.getpid).result(SOON)
        slow = executor.submit(tasks.nap, 0.3)

        def work() -> None:
            assert executor.submit(os.getpid).result(SOON) != pid
            executor.shutdown()

        in_child(work)
        slow.result(SOON)
        assert executor.submit(os.getpid).result(SOON) == pid


def test_future_of_the_parent_fails_in_a_forked_child() -> None:
    with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        futures = [executor.submit(tasks.nap, 0.5, "done") for _ in range(10)]

        def work() -> None:
            for future in futures:
                with pytest.raises(RuntimeError, match="submitted before a fork"):
                    future.result(SOON)

        in_child(work)
        assert futures[0].result(SOON) == "done"


def test_process_ends_although_it_leaves_an_executor() -> None:
    for way in ("fork", "spawn", "forkserver"):
        here, there = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context(way)
        process = context.Process(target=tasks.leave_an_executor, args=(there,))
        process.start()
        try:
            process.join(SOON)
            assert process.exitcode == 0
            assert here.poll() and here.recv() == "done"
        finally:
            process.kill()
            process.join()
            here.close()
            there.close()


READING = """
import os, sys, threading, time
from pipework import Executor, multiprocessing
import multiprocessing as stdlib

def stdin_of(_):
    return os.path.samefile("/dev/null", f"/proc/self/fd/{{sys.stdin.fileno()}}"), sys.stdin.read()

if __name__ == "__main__":
    threading.Thread(target=sys.stdin.readline, daemon=True).start()
    time.sleep(0.2)  # it holds the lock of the stream now
    with multiprocessing.get_context({way!r}).Pool(2) as pool:
        print(pool.map(abs, range(3)), pool.map(stdin_of, range(2)))
    with Executor(2, mp_context=stdlib.get_context({way!r})) as executor:
        print(list(executor.map(abs, range(3))))
"""


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_processes_start_while_a_thread_reads_stdin(way: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(READING.format(way=way))
    read, write = os.pipe()
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(path)]
    try:
        out = subprocess.run(command, stdin=read, env=environment(), capture_output=True, text=True, timeout=SOON)
    finally:
        os.close(write)
        os.close(read)
    assert (out.stdout, out.stderr) == ("[0, 1, 2] [(True, ''), (True, '')]\n[0, 1, 2]\n", "")


def test_process_ends_after_max_tasks_per_child() -> None:
    with Executor(1, max_tasks_per_child=2) as executor:
        pids = list(executor.map(tasks.pid, range(5), timeout=SOON))
    assert [len(list(each)) for _, each in itertools.groupby(pids)] == [2, 2, 1]


def test_waiting_task_can_be_cancelled() -> None:
    with Executor(1) as executor:
        futures = [executor.submit(tasks.nap, 0.3) for _ in range(100)]
        until(futures[1].running)  # handed out, before a process has even started
        cancelled = [future.cancel() for future in futures]
        assert cancelled == [False] * 2 + [True] * 98, "what one process does, and its next"
    assert all(future.done() for future in futures)


def test_few_slow_tasks_are_handed_out_after_short_ones() -> None:
    with Executor(2) as executor:
        assert list(executor.map(tasks.same, range(3000))) == list(range(3000))
        slow = [executor.submit(tasks.nap, 0.1) for _ in range(20)]
        concurrent.futures.wait(slow[:10], SOON)
        # One may end and another begin while they are counted.
        assert sum(future.running() for future in slow) <= 4
        for future in slow:
            future.cancel()


def test_shutdown_finishes_submitted_tasks_unless_cancel_futures_is_set() -> None:
    executor = Executor(1)
    futures = [executor.submit(tasks.nap, 0.01) for _ in range(30)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(abs, -1)
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(lambda: None)
    executor.shutdown()
    assert all(future.done() and not future.cancelled() for future in futures)
    executor.shutdown()

    executor = Executor(1)
    futures = [executor.submit(tasks.nap, 0.01) for _ in range(30)]
    executor.shutdown(cancel_futures=True)
    assert sum(future.cancelled() for future in futures) > 15
    assert concurrent.futures.wait(futures, 0).not_done == set()


def test_executor_without_tasks_shuts_down() -> None:
    with Executor(1) as executor:
        pass
    executor.shutdown()


def test_unreferenced_executor_finishes_its_tasks_and_ends() -> None:
    threads = threading.active_count()
    future = Executor(1).submit(tasks.nap, 0.1, "done")
    gc.collect()
    assert future.result(SOON) == "done"
    until(lambda: threading.active_count() == threads)


def test_map_takes_buffersize_arguments_and_cancels_the_rest() -> None:
    with Executor(2) as executor:
        numbers = itertools.count()
        results = executor.map(abs, numbers, buffersize=3, timeout=SOON)
        assert [next(results) for _ in range(10)] == list(range(10))
        assert next(numbers) < 15
        assert list(executor.map(pow, range(10), [2] * 10, chunksize=3)) == [number**2 for number in range(10)]
        with pytest.raises(ValueError, match="this went wrong"):
            list(executor.map(tasks.fail, range(3)))
        with pytest.raises(concurrent.futures.TimeoutError):
            list(executor.map(tasks.nap, [2.0], timeout=0.01))
        for wrong in ({"chunksize": 0}, {"buffersize": 0}):
            with pytest.raises(ValueError):
                executor.map(abs, [1], **wrong)
        with pytest.raises(TypeError, match="must be an integer"):
            executor.map(abs, [1], buffersize=2.0)  # type: ignore[arg-type]


def test_invalid_arguments_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"max_workers": 0},
        {"max_workers": -1},
        {"max_tasks_per_child": 0},
        {"redeliveries": -1},
        {"redeliveries": 4},
    ]
    for each in wrong:
        with pytest.raises(ValueError):
            Executor(**each)
    with pytest.raises(TypeError):
        Executor(initializer="not a function")  # type: ignore[arg-type]


PROGRAM = """
import os, time
from pipework import Executor
import tasks

if __name__ == "__main__":
    executor = Executor(2)
    future = executor.submit(tasks.nap, 0.5, "all done")
    future.add_done_callback(lambda future: print(future.result(), flush=True))
    print(*set(executor.map(tasks.pid, range(20))), flush=True)
    {end}
"""


@pytest.mark.parametrize("end", ["pass", "raise SystemExit"])
def test_program_finishes_its_tasks_before_it_ends(end: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM.format(end=end)))
    out = subprocess.run([sys.executable, path], env=environment(), capture_output=True, text=True, timeout=SOON)
    assert (out.stderr, out.returncode) == ("", 0) and "all done" in out.stdout.splitlines()


BUSY = """
import os, signal, sys, threading, time
from pipework import Executor
import tasks

if __name__ == "__main__":
    sys.setswitchinterval(1e-6)
    executor = Executor(2)
    is_over = threading.Event()

    def submit():
        while not is_over.is_set():
            list(executor.map(abs, range(20)))

    threads = [threading.Thread(target=submit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            break
        end = time.monotonic() + 30
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                print("a child hangs", flush=True)
            time.sleep(0.001)
    else:
        is_over.set()
        for thread in threads:
            thread.join()
        print("all done")
"""


def test_child_forked_from_a_busy_program_ends(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(BUSY)
    out = subprocess.run([sys.executable, path], env=environment(), capture_output=True, text=True, timeout=300)
    assert (out.stdout, out.returncode) == ("all done\n", 0)


UNGUARDED = """
import multiprocessing
from pipework import Executor

executor = Executor(1, mp_context=multiprocessing.get_context({way!r}))
print(executor.submit(abs, -1).result())
"""


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_unguarded_main_module_fails_with_an_explanation(way: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(UNGUARDED.format(way=way))
    out = subprocess.run([sys.executable, path], env=environment(), capture_output=True, text=True, timeout=SOON)
    assert (out.stdout, out.returncode) == ("", 1)
    assert "BrokenExecutor" in out.stderr and "freeze_support()" in out.stderr


def test_processes_end_after_their_program_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM.format(end="time.sleep(60)")))
    with subprocess.Popen([sys.executable, path], env=environment(), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        # On a busy machine "all done" comes first.
        pids = next(line for line in program.stdout if line[0].isdigit()).split()
        program.kill()
    assert pids
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("way", ["spawn", "forkserver", "fork"])
def test_terminate_workers_ends_tasks_that_run_and_those_that_wait(way: str) -> None:
    executor = Executor(2, mp_context=multiprocessing.get_context(way))
    executor.submit(abs, -1).result(SOON)
    futures = [executor.submit(time.sleep, 1000) for _ in range(20)]
    executor.terminate_workers()
    for future in futures:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="terminated"):
            future.result(SOON)
    with pytest.raises(concurrent.futures.BrokenExecutor):
        executor.submit(abs, -1)
    executor.shutdown()
    executor.terminate_workers()


@pytest.mark.parametrize("way", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("stay", [tasks.stay, tasks.stay_and_ignore_sigterm])
def test_terminate_workers_ends_processes_that_do_not_end_after_shutdown(
    stay: Callable[[], None], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stay is tasks.stay_and_ignore_sigterm:
        monkeypatch.setattr("pipework._executor._GRACE", 0.2)
    executor = Executor(1, mp_context=multiprocessing.get_context(way))
    executor.submit(stay).result(SOON)
    pid = executor.submit(os.getpid).result(SOON)
    executor.shutdown(wait=False)
    manager = next(iter(executor._managers.values()))
    until(lambda: manager._is_over)
    assert Path(f"/proc/{pid}").exists()
    executor.terminate_workers()
    executor.shutdown()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_broken_executor_ends_processes_that_ignore_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipework._executor._GRACE", 0.2)
    executor = Executor(1)
    executor.submit(tasks.stay_and_ignore_sigterm).result(SOON)
    executor.terminate_workers()
    executor.shutdown()


@pytest.mark.long("40 executors")
@pytest.mark.parametrize("are_killed", [False, True])
def test_runs_leave_no_more_than_the_first_one_in_dev_shm(are_killed: bool, tmp_path: Path) -> None:
    def work(place: Path) -> None:
        used = []
        for _ in range(40):
            with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
                for result in executor.map(bytes, [100_000] * 8, timeout=SOON):
                    assert len(result) == 100_000
                for process in executor._workers() if are_killed else []:
                    process.kill()
            facts = os.statvfs(place)
            used.append((facts.f_blocks - facts.f_bfree) * facts.f_frsize)
        # A killed process has its files until it is gone.
        assert max(used) <= used[0] + (16 << 10), used

    on_small_tmpfs(tmp_path, "size=200m", work, place=Path("/dev/shm"))


def test_terminate_workers_of_an_unused_executor_closes_it() -> None:
    executor = Executor(1)
    executor.terminate_workers()
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(abs, -1)


@pytest.mark.long("a storm")
def test_storm() -> None:
    """Processes are killed all the time; every future ends, and most of them well."""
    with Executor(3, redeliveries=3) as executor:
        futures = [executor.submit(tasks.pid, number) for number in range(300)]
        killed: list[int] = []
        for future in futures[::15]:
            found = future.exception(SOON) or future.result()
            if isinstance(found, int) and len(killed) < 15:
                os.kill(found, signal.SIGKILL) if Path(f"/proc/{found}").exists() else None
                killed.append(found)
                time.sleep(0.01)
        concurrent.futures.wait(futures, SOON)
        assert all(future.exception(0) is None for future in futures)
        assert len(killed) == 15
        assert not set(killed) & set(executor.map(tasks.pid, range(30)))
