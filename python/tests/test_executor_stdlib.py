"""The standard library's own tests of executors, where the interpreter has them: those that do not
look inside."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from pipework import Executor
from processes import stop_helpers

try:
    theirs: Any = pytest.importorskip("test.test_concurrent_futures")
    if hasattr(theirs, "ExecutorTest"):  # to 3.11 it is one file
        files = [theirs] * 5
    else:
        from importlib import import_module

        names = ["executor", "test_wait", "test_as_completed", "test_shutdown", "test_init"]
        files = [import_module(f"test.test_concurrent_futures.{name}") for name in names]
except ImportError:
    pytest.skip("this interpreter comes without its tests", allow_module_level=True)

SUITES = [
    files[0].ExecutorTest,
    files[1].WaitTests,
    files[2].AsCompletedTests,
    files[3].ExecutorShutdownTest,
    files[4].InitializerMixin,
]
LOOKS_INSIDE = {
    # Programs that import the executor from concurrent.futures.
    "test_interpreter_shutdown",
    "test_submit_after_interpreter_shutdown",
    "test_hang_gh83386",
}


@pytest.fixture(scope="module", autouse=True)
def helpers() -> Iterator[None]:
    with Executor(1) as executor:
        executor.submit(abs, -1).result()
    yield
    stop_helpers()


def cases() -> Iterator[Any]:
    base = files[0].BaseTestCase if hasattr(files[0], "BaseTestCase") else files[1].BaseTestCase
    mixin = files[4].ExecutorMixin
    for suite in SUITES:
        for way in ("fork", "spawn", "forkserver"):
            # Later ones of 3.13, as 3.13.5, have this in what they mix in for processes.
            members = {"executor_type": Executor, "ctx": way, "create_event": lambda self: self.manager.Event()}
            case = type(f"{suite.__name__}{way.title()}", (suite, mixin, base), members)
            for name in unittest.defaultTestLoader.getTestCaseNames(case):
                if name not in LOOKS_INSIDE:
                    yield pytest.param(case(name), id=f"{case.__name__}-{name}")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("case", list(cases()))
def test_as_the_standard_library_does(case: unittest.TestCase) -> None:
    result = unittest.TestResult()
    case.run(result)
    assert [text for _, text in result.errors + result.failures] == []
