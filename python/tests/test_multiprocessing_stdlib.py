"""The standard library's own tests of `multiprocessing`, where the interpreter has them. `SKIPPED`
lists the tests that are not run, each with its reason."""

from __future__ import annotations

import multiprocessing.util
import unittest
from collections.abc import Iterator

import pytest
from processes import stop_helpers

pytest.importorskip("test._test_multiprocessing", reason="this interpreter comes without its tests")
import multiprocessing_cases as cases

SKIPPED = {
    "TestIgnoreEINTR.test_ignore": "expects that a long message waits for its receiver; here the process may end before its second signal",
    "TestQueue.test_queue_feeder_donot_stop_onexc": "here `put` raises what pickling raises; test_multiprocessing.py has that",
    "TestPoolWorkerLifetime.test_pool_worker_lifetime": "calls `_repopulate_pool`; test_multiprocessing.py has the rest",
    "TestStartMethod.test_mixed_startmethod": "expects an error where a queue goes to a process of another start method",
}

OTHER_WAY = pytest.mark.long("all of these tests once more")


@pytest.fixture(scope="module", autouse=True)
def helpers() -> Iterator[None]:
    """What `multiprocessing` keeps: it is no leak of a test."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_forkserver_preload(cases.suite.PRELOAD)
    process = multiprocessing.get_context("forkserver").Process(target=int)
    process.start()
    process.join()
    multiprocessing.util.get_temp_dir()
    yield
    multiprocessing.set_start_method(before, force=True)
    stop_helpers()


# One for each class: some have a pool for all of their tests.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", cases.NAMES)
@pytest.mark.parametrize("way", ["fork", *(pytest.param(way, marks=OTHER_WAY) for way in ("spawn", "forkserver"))])
def test_tests_of_the_standard_library_pass(way: str, name: str) -> None:
    multiprocessing.set_start_method(way, force=True)
    case = getattr(cases, name)
    tests = unittest.defaultTestLoader.getTestCaseNames(case)
    result = unittest.TestResult()
    unittest.TestSuite(case(test) for test in tests if f"{name}.{test}" not in SKIPPED).run(result)
    assert [text for _, text in result.errors + result.failures] == []


def test_list_of_skips_names_tests_that_there_are() -> None:
    for skipped in SKIPPED:
        name, test = skipped.split(".")
        assert test in unittest.defaultTestLoader.getTestCaseNames(getattr(cases, name))
