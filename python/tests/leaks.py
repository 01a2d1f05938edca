"""Whether something that is done many times leaves anything behind."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pipework.reqrep import Client, Segment
from support import SOON, open_files


def leaves_nothing(operation: Callable[[], object], rounds: int, most_bytes: int = 2 << 20) -> None:
    """Fails if that leaves objects, descriptors, threads, mappings or memory. Memory that grows once
    may be an arena of the allocator; what is left behind grows each time. Another thread may still be
    giving back what the last round used, so what is too much is counted again for a while. A client that
    begins to listen for deaths opens up to four descriptors, once."""
    _listen_for_deaths()
    most = {"blocks of objects": 500, "bytes": most_bytes, "descriptors": 4, "threads": 0, "mappings": 20}
    for _ in range(rounds // 10):
        operation()
    for _ in range(2):
        before = _what_there_is()
        for _ in range(rounds):
            operation()
        end = time.monotonic() + SOON
        while True:
            after = _what_there_is()
            more = {name: after[name] - before[name] for name in before}
            too_many = [name for name in most if more[name] > most[name]]
            if not too_many:
                return
            if too_many == ["bytes"]:
                break
            assert time.monotonic() < end, f"after {rounds} rounds there are more: {more}"
            time.sleep(0.01)
    raise AssertionError(f"after {rounds} rounds there is more memory, twice: {more}")


@functools.cache
def _listen_for_deaths() -> None:
    """A process begins to listen a second after its first wait. It opens descriptors for all its handles
    then, so that is over before anything is counted."""
    with Segment.anonymous(slots=1) as segment, Client(segment) as client:
        ticket = client.send(b"")
        with contextlib.suppress(TimeoutError):
            client.recv(ticket, timeout=1.5)


def _resident() -> int:
    """Bytes of memory of this process, but for pages of files: those come and go as the kernel
    has space for them."""
    status = Path("/proc/self/status").read_text()
    return sum(1024 * int(kib) for kib in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.M))


def _what_there_is() -> dict[str, int]:
    gc.collect()
    process = Path("/proc/self")
    return {
        "blocks of objects": sys.getallocatedblocks(),
        "bytes": _resident(),
        "descriptors": len(open_files()),
        "threads": threading.active_count(),
        "mappings": len((process / "maps").read_text().splitlines()),
    }
