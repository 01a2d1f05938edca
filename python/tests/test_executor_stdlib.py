"""The standard library's own tests of executors, where the interpreter has them. `SKIPPED` lists the
tests that are not run, each with its reason."""

from __future__ import annotations

import os
import pickle
import sys
import unittest
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from importlib import import_module
from typing import Any

import pytest
from pipework import Executor, PeerDied
from processes import stop_helpers

SUITES = {
    "test_process_pool": ["ProcessPoolExecutorTest"],
    "test_wait": ["WaitTests"],
    "test_as_completed": ["AsCompletedTests"],
    "test_shutdown": ["ProcessPoolShutdownTest"],
    "test_init": ["InitializerMixin", "FailingInitializerMixin"],
    "test_deadlock": ["ExecutorDeadlockTest"],
}

_PROCESSES = "looks at `_processes`"
SKIPPED = {
    "ProcessPoolExecutorTest.test_killed_child": "here a killed process fails one future; test_executor.py has that",
    "ProcessPoolExecutorTest.test_broken_process_pool_traceback": _PROCESSES,
    "ProcessPoolExecutorTest.test_traceback": "asks for the type of the cause, which is private",
    "ProcessPoolExecutorTest.test_saturation": _PROCESSES,
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": _PROCESSES,
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child": "here `fork` has max_tasks_per_child, too; " + _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "here the default is forkserver",
    "ProcessPoolExecutorTest.test_python_finalization_error": "counts the library's threads; test_executor.py has that",
    "ProcessPoolExecutorTest.test_shutdown_no_wait_max_tasks_gh119592": "looks at `_executor_manager_thread`",
    "ProcessPoolExecutorTest.test_gc_during_max_tasks_worker_exit_gh152967": "looks at `_executor_manager_thread`",
    "ProcessPoolExecutorTest.test_force_shutdown_during_max_tasks_worker_exit": "sets private attributes",
    "ProcessPoolExecutorTest.test_failed_worker_replacement_breaks_pool": "replaces private functions",
    "ProcessPoolExecutorTest.test_terminate_workers": "replaces `_force_shutdown`; test_executor.py calls it",
    "ProcessPoolExecutorTest.test_kill_workers": "there is no `kill_workers`",
    "ProcessPoolExecutorTest.test_force_shutdown_workers_invalid_op": "calls `_force_shutdown`",
    "ProcessPoolExecutorTest.test_force_shutdown_workers": "calls `kill_workers`; " + _PROCESSES,
    "ProcessPoolExecutorTest.test_force_shutdown_workers_dead_workers": "calls `kill_workers`",
    "ProcessPoolExecutorTest.test_force_shutdown_workers_not_started_yet": "calls `kill_workers`",
    "ProcessPoolExecutorTest.test_force_shutdown_workers_stops_pool": "calls `kill_workers`; " + _PROCESSES,
    "ProcessPoolShutdownTest.test_processes_terminate": _PROCESSES,
    "ProcessPoolShutdownTest.test_context_manager_shutdown": _PROCESSES,
    "ProcessPoolShutdownTest.test_del_shutdown": _PROCESSES,
    "ProcessPoolShutdownTest.test_shutdown_no_wait": _PROCESSES,
    "FailingInitializerMixin.test_initializer": "looks at `_broken`, and for a line of the log: here the cause says it",
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": "looks at `_executor_manager_thread`",
    "ExecutorDeadlockTest.test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "replaces private classes",
}


def files() -> dict[str, Any]:
    """The modules of the suites: to 3.11 there is one."""
    package = pytest.importorskip("test.test_concurrent_futures", reason="this interpreter comes without its tests")
    if hasattr(package, "ExecutorTest"):
        return dict.fromkeys([*SUITES, "util"], package)
    return {name: import_module(f"test.test_concurrent_futures.{name}") for name in [*SUITES, "util"]}


FILES = files()


@pytest.fixture(scope="module", autouse=True)
def helpers() -> Iterator[None]:
    with Executor(1) as executor:
        executor.submit(abs, -1).result()
    yield
    stop_helpers()


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that the tests find in their modules. Where a process of the library breaks the pool, here
    the one future gets what has happened."""
    in_place = (PeerDied, SystemExit, pickle.UnpicklingError, BrokenExecutor)
    for name in ("test_process_pool", "test_deadlock"):
        monkeypatch.setattr(FILES[name], "BrokenProcessPool", in_place)
    run = FILES["test_shutdown"].assert_python_ok

    def run_with_ours(option: str, program: str) -> Any:
        program = program.replace("from concurrent.futures import", "import multiprocessing; from pipework import")
        return run(option, program, PYTHONPATH=os.pathsep.join(sys.path))

    monkeypatch.setattr(FILES["test_shutdown"], "assert_python_ok", run_with_ours)


def cases() -> Iterator[Any]:
    bases = FILES["util"].ExecutorMixin, FILES["util"].BaseTestCase
    for file, suites in SUITES.items():
        for suite in suites:
            for way in ("fork", "spawn", "forkserver"):
                # Later versions of 3.13, such as 3.13.5, have this in their mixin for processes.
                members = {"executor_type": Executor, "ctx": way, "create_event": lambda self: self.manager.Event()}
                case = type(f"{suite}{way.title()}", (getattr(FILES[file], suite), *bases), members)
                for name in unittest.defaultTestLoader.getTestCaseNames(case):
                    reason = SKIPPED.get(f"{suite}.{name}")
                    marks = [pytest.mark.skip(reason=reason)] if reason else []
                    yield pytest.param(case(name), id=f"{case.__name__}-{name}", marks=marks)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("case", list(cases()))
def test_tests_of_the_standard_library_pass(case: unittest.TestCase) -> None:
    result = unittest.TestResult()
    case.run(result)
    assert [text for _, text in result.errors + result.failures] == []
    for _, reason in result.skipped:
        pytest.skip(reason)
