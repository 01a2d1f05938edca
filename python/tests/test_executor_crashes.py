"""What loky's `tests/test_reusable_executor.py` tests of an executor, tested here of `Executor`; no
code is taken from it. `LEFT_OUT` names its tests that have no counterpart, each with its reason."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import crashing
import numpy as np
import pytest
import tasks
from crashing import AtEnd, AtPickle, AtUnpickle, crash, exit_in_c, leave, make, refuse, refuse_to_be
from pipework import Executor, PeerDied, RemoteError
from processes import stop_helpers, until
from support import SOON

_REUSED = "an Executor is made by the program, and not shared, resized or replaced behind its back"
LEFT_OUT = {
    "test_deadlock_kill": _REUSED + "; test_executor.py kills idle processes",
    "test_kill_workers_on_new_options": _REUSED + "; test_executor.py has terminate_workers",
    "test_shutdown_kill": "test_executor.py has terminate_workers",
    "test_sigkill_shutdown_leaks_workers": "test_executor.py kills the program",
    "TestResizeExecutor": _REUSED,
    "test_invalid_process_number": "test_executor.py has refused arguments",
    "test_invalid_context, test_pass_start_method_name_as_context": "a context is the standard library's",
    "test_interactively_defined_*": "functions travel by their names; cloudpickle is not used",
    "test_reused_flag, test_reusable_executor_reuse_true, test_reusable_initializer": _REUSED,
    "test_error_in_nested_call_keeps_resource_tracker_silent": "its program has a syntax error",
}


@pytest.fixture(scope="module", autouse=True)
def helpers() -> Iterator[None]:
    with Executor(1) as executor:
        executor.submit(tasks.pid).result(SOON)
    yield
    stop_helpers()


Case = tuple[Callable[..., object], tuple[Any, ...], type[BaseException]]
CASES: dict[str, Case] = {
    "error when the task is pickled": (id, (AtPickle(refuse),), pickle.PicklingError),
    "exit when the task is unpickled": (id, (AtUnpickle(leave),), RemoteError),
    "exit in C when the task is unpickled": (id, (AtUnpickle(exit_in_c),), PeerDied),
    "error when the task is unpickled": (id, (AtUnpickle(refuse_to_be),), pickle.UnpicklingError),
    "crash when the task is unpickled": (id, (AtUnpickle(crash),), PeerDied),
    "crash in the task": (crash, (), PeerDied),
    "exit in the task": (leave, (), RemoteError),
    "exit in C in the task": (exit_in_c, (), PeerDied),
    "error in the task": (tasks.fail, (), ValueError),
    "crash when the result is pickled": (make, (AtPickle, crash), PeerDied),
    "exit when the result is pickled": (make, (AtPickle, leave), RemoteError),
    "exit in C when the result is pickled": (make, (AtPickle, exit_in_c), PeerDied),
    "error when the result is pickled": (make, (AtPickle, refuse), pickle.PicklingError),
    "exit when the result is unpickled": (make, (AtUnpickle, leave), RemoteError),
    "error when the result is unpickled": (make, (AtUnpickle, refuse_to_be), pickle.UnpicklingError),
}


@pytest.fixture
def executor() -> Iterator[Executor]:
    with Executor(2) as executor:
        yield executor


@pytest.mark.parametrize("step", CASES)
def test_end_of_a_worker_or_an_exception_at_any_step_fails_one_future(step: str, executor: Executor) -> None:
    task, arguments, error = CASES[step]
    beside = [executor.submit(tasks.nap, 0.01) for _ in range(4)]
    with pytest.raises(error):
        executor.submit(task, *arguments).result(SOON)
    assert wait(beside, SOON).not_done == set() and [future.exception() for future in beside] == [None] * 4
    assert executor.submit(abs, -1).result(SOON) == 1


@pytest.mark.parametrize("step", CASES)
def test_callback_may_submit_a_task_that_fails_at_any_step(step: str, executor: Executor) -> None:
    task, arguments, error = CASES[step]
    submitted: list[Future[Any]] = []
    gate = executor.submit(tasks.nap, 0.1)
    gate.add_done_callback(lambda _: submitted.append(executor.submit(task, *arguments)))
    until(lambda: submitted)
    with pytest.raises(error):
        submitted[0].result(SOON)
    assert executor.submit(abs, -1).result(SOON) == 1


def test_exit_while_a_task_is_pickled_is_raised_by_submit(executor: Executor) -> None:
    with pytest.raises(SystemExit):
        executor.submit(id, AtPickle(leave))
    assert executor.submit(abs, -1).result(SOON) == 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_workers_that_kill_each_other_fail_only_their_own_tasks(count: int) -> None:
    with Executor(count, mp_context=multiprocessing.get_context("fork")) as executor:
        pids = set(executor.map(tasks.pid, range(4 * count)))
        futures = [executor.submit(crashing.kill, pid) for pid in pids]
        for future in futures:
            assert isinstance(future.exception(SOON), (PeerDied, ProcessLookupError, type(None)))
        assert list(executor.map(abs, range(-50, 0), timeout=SOON)) == list(range(50, 0, -1))


def test_map_raises_the_exception_of_its_arguments(executor: Executor) -> None:
    def numbers() -> Iterator[int]:
        yield from range(7)
        raise LookupError("no more")

    for chunksize in (1, 2, 4):
        with pytest.raises(LookupError, match="no more"):
            executor.map(abs, numbers(), chunksize=chunksize)
        assert executor.submit(abs, -1).result(SOON) == 1


def test_many_tasks_that_cannot_be_pickled_do_not_fill_the_executor() -> None:
    with Executor(1) as executor:
        wrong = [executor.submit(id, AtPickle(refuse)) for _ in range(100)]
        right = [executor.submit(abs, -number) for number in range(100)]
        assert all(isinstance(future.exception(SOON), pickle.PicklingError) for future in wrong)
        assert [future.result(SOON) for future in right] == list(range(100))


def test_worker_that_crashes_after_its_result_is_replaced(executor: Executor) -> None:
    assert executor.submit(id, AtEnd()).result(SOON)
    for _ in range(50):  # one of them may have been handed to the worker that died
        with contextlib.suppress(PeerDied):
            executor.submit(abs, -1).result(SOON)
    assert list(executor.map(abs, range(50), timeout=SOON)) == list(range(50))


def test_shutdown_ends_while_a_worker_is_killed() -> None:
    executor = Executor(2)
    pids = set(executor.map(tasks.pid, range(8)))
    futures = [executor.submit(crashing.kill, pid) for pid in pids]
    executor.shutdown()
    assert all(future.done() for future in futures)


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_task_may_have_an_executor_of_its_own(way: str) -> None:
    with Executor(2, mp_context=multiprocessing.get_context(way)) as executor:
        assert list(executor.map(crashing.squares, [4, 3], [way] * 2, timeout=SOON)) == [[0, 1, 4, 9], [0, 1, 4]]


def test_threads_share_an_executor_that_loses_workers() -> None:
    results: list[list[int]] = []
    with Executor(2, redeliveries=3) as shared:

        def use() -> None:
            for _ in range(5):
                results.append(list(shared.map(crashing.square, range(10), timeout=SOON)))

        threads = [threading.Thread(target=use) for _ in range(10)]
        for thread in threads:
            thread.start()
        with contextlib.suppress(PeerDied):
            shared.submit(crash).result(SOON)
        for thread in threads:
            thread.join(2 * SOON)
    assert results == [[number * number for number in range(10)]] * 50


def test_worker_computes_after_the_threads_of_numpy_have_started_here() -> None:
    matrix = np.random.default_rng(1).standard_normal((300, 300))
    product = matrix @ matrix
    with Executor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        assert np.allclose(executor.submit(np.dot, matrix, matrix).result(SOON), product)
