"""Checks of every test: it leaves no descriptor open, and no slot of the segment that it
shares with others of its kind."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator

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
    if config.getoption("switch_interval"):
        sys.setswitchinterval(config.getoption("switch_interval"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What `help` shows is pasted elsewhere: an example has only the names that it makes itself."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.dtest.globs = {"__name__": "__main__"}


def _opened_since(before: dict[str, str]) -> dict[str, str]:
    gc.collect()
    left = {number: name for number, name in open_files().items() if number not in before}
    if left:
        # An executor keeps its eventfd as long as it exists, and pytest keeps the values of fixtures.
        managers = [each for each in gc.get_objects() if isinstance(each, _executor._Manager)]
        for manager in managers:
            left.pop(str(manager._wake), None)
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
