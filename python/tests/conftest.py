"""What every test is held to: it leaves no descriptor open."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    left = set(os.listdir("/proc/self/fd")) - before
    names = []
    for number in left:
        try:
            names.append(f"{number} -> {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            pass  # the listing's own
    assert not names, f"left open: {names}"
