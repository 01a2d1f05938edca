"""Whether something that is done many times leaves anything behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path


def leaves_nothing(operation: Callable[[], object], rounds: int, most_bytes: int = 2 << 20) -> None:
    """Fails if that leaves objects, descriptors, threads, mappings or memory."""
    for _ in range(rounds // 10):
        operation()
    before = _what_there_is()
    for _ in range(rounds):
        operation()
    after = _what_there_is()
    more = {name: after[name] - before[name] for name in before}
    most = {"blocks of objects": 500, "bytes": most_bytes, "descriptors": 0, "threads": 0, "mappings": 20}
    assert all(more[name] <= most[name] for name in most), f"after {rounds} rounds there are more: {more}"


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _what_there_is() -> dict[str, int]:
    gc.collect()
    process = Path("/proc/self")
    return {
        "blocks of objects": sys.getallocatedblocks(),
        "bytes": resident(),
        "descriptors": len(os.listdir(process / "fd")),
        "threads": threading.active_count(),
        "mappings": len((process / "maps").read_text().splitlines()),
    }
