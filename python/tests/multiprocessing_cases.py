"""The standard library's own test cases of `multiprocessing`, with `pipework.multiprocessing` in its
place. A module of its own, so that the processes that the cases start can import it."""

from __future__ import annotations

import os
import sys
import types
import unittest
from importlib import import_module
from typing import Any

from pipework import multiprocessing

suite: Any = import_module("test._test_multiprocessing")

# Those about queues, pipes and pools, and what surrounds them.
NAMES = [
    "TestQueue",
    "TestSimpleQueue",
    "TestPool",
    "TestPoolWorkerErrors",
    "TestPoolWorkerLifetime",
    "TestConnection",
    "TestPoll",
    "TestPollEintr",
    "TestIgnoreEINTR",
    "TestPicklingConnections",
    "TestListenerClient",
    "TestWait",
    "TestInitializers",
    "TestStdinBadfiledescriptor",
    "TestCloseFds",
    "TestStartMethod",
]


def _case(name: str) -> Any:
    base = getattr(suite, name, None) or getattr(suite, f"_{name}")
    bases = (base, suite.ProcessesMixin, unittest.TestCase) if issubclass(base, suite.BaseTestCase) else (base,)
    return type(name, bases, {"__module__": __name__})


def _assert_python_ok(*args: str, **env: str) -> Any:
    """Runs a program that imports names of `multiprocessing`."""
    args = tuple(each.replace("from multiprocessing import", "from pipework.multiprocessing import") for each in args)
    return _assert_library_ok(*args, **{"PYTHONPATH": os.pathsep.join(sys.path), **env})


suite.multiprocessing = multiprocessing
for _name in ("Pool", "Pipe", "Queue", "JoinableQueue"):
    setattr(suite.ProcessesMixin, _name, staticmethod(getattr(multiprocessing, _name)))
_script_helper = suite.test.support.script_helper
_assert_library_ok = _script_helper.assert_python_ok
suite.test = types.SimpleNamespace(
    support=types.SimpleNamespace(
        **{**vars(suite.test.support), "script_helper": types.SimpleNamespace(assert_python_ok=_assert_python_ok)}
    )
)
globals().update({name: _case(name) for name in NAMES})
