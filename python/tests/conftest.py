"""Checks of every test: it leaves no descriptor open, and no slot of the segment that it
shares with others of its kind."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipework import _executor
from pipework.reqrep import Segment
from processes import all_free, small, until
from support import SOON, open_files


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--many", action="store_true", help="make 100,000 of each, where leaks are looked for")
    parser.addoption(
        "--switch-interval",
        type=float,
        metavar="SECONDS",
        help="seconds between switches of threads: 1e-6 finds code that relies on rare switches",
    )


def pytest_configure(config: pytest.Config) -> None:
    # As in a terminal, wherever they run: nohup, and a shell in the background of a script, have signals ignored.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores these two itself
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    if config.getoption("switch_interval"):
        sys.setswitchinterval(config.getoption("switch_interval"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # What `help` shows is pasted elsewhere: an example has only the names that it makes itself.
        if isinstance(item, pytest.DoctestItem):
            item.dtest.globs = {"__name__": "__main__"}
        # `make test` leaves these to `make test-all`.
        if (long := item.get_closest_marker("long")) and "PIPEWORK_SHORT" in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"long: {long.args[0]}"))
    if BEGUN and (BEGUN / "skip").exists():
        skipped = set((BEGUN / "skip").read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in skipped])
        items[:] = [item for item in items if item.nodeid not in skipped]


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    # As cargo says it, for tests/progress.
    return f"running {len(items)} tests"


# ---------------------------------------------------------------- a test that ends the interpreter
#
# `python/dev` starts pytest again after one. It reads from this folder which test it was (`now`) and what need
# not be run again (`done`), and writes there what is left out (`skip`).
BEGUN = Path(os.environ["PIPEWORK_BEGUN"]) if "PIPEWORK_BEGUN" in os.environ else None
_failed: set[str] = set()


def pytest_runtest_logstart(nodeid: str) -> None:
    if BEGUN:
        (BEGUN / "now").write_text(f"{nodeid}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    if BEGUN:
        (BEGUN / "now").write_text("")
        if nodeid not in _failed:
            with (BEGUN / "done").open("a") as done:
                done.write(f"{nodeid}\n")


def _opened_since(before: dict[str, str]) -> dict[str, str]:
    gc.collect()
    left = {number: name for number, name in open_files().items() if number not in before}
    if left:
        # An executor keeps its eventfd as long as it exists, and pytest keeps the values of fixtures.
        managers = [each for each in gc.get_objects() if isinstance(each, _executor._Manager)]
        for manager in managers:
            left.pop(str(manager._wake.fileno()), None)
    return left


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = open_files()
    yield
    # Another thread may still be closing some.
    end = time.monotonic() + SOON
    while left := _opened_since(before):
        assert time.monotonic() < end, f"left open: {left}"
        time.sleep(0.01)


@pytest.fixture
def segment() -> Iterator[Segment]:
    """A small one, of which every slot is free in the end."""
    segment = small()
    yield segment
    segment.recover()
    until(lambda: all_free(segment))
    segment.close()
