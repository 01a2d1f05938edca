"""The caller of the module `deaths` as a task of asyncio: `deaths.py PROGRAM HELD RESIDENT KILLS`, where
PROGRAM is the benchmark, which is started as the victim. Prints the nanoseconds of each kill."""

import asyncio
import os
import subprocess
import sys
import threading
import time

from pipework import PeerDied
from pipework.reqrep import Client, Segment

program, (held, resident, kills) = sys.argv[1], map(int, sys.argv[2:])
path = f"/dev/shm/pipework-bench-deaths-{os.getpid()}"


async def kill_once(segment: Segment, nth: int) -> int:
    client = Client(segment)
    command = [program, "victim", path, str(held), str(resident)]
    victim = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    tickets = [client.send(b"", timeout=60) for _ in range(held)]
    assert victim.stdout is not None and victim.stdout.read(6) == b"ready\n"
    killed = 0

    def kill() -> None:
        nonlocal killed
        killed = time.monotonic_ns()
        victim.kill()

    killer = threading.Timer((5 + nth * 37 % 300) / 1000, kill)
    killer.start()
    try:
        await client.arecv(tickets[-1])
    except PeerDied:
        now = time.monotonic_ns()
    killer.join()
    victim.wait()
    client.close()
    return now - killed


with Segment.create(path, slots=held, request_bytes=8, reply_bytes=8) as segment:
    # A process listens a second after it has waited for the first time.
    began = time.monotonic()
    while time.monotonic() < began + 1.1:
        asyncio.run(kill_once(segment, 0))
    for nth in range(kills):
        print(asyncio.run(kill_once(segment, nth)))
    segment.unlink()
