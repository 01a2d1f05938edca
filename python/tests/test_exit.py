"""A program that ends while daemon threads are inside the package: they stop where they are, for
ever, and the program ends with its own status.

Each case is a program of its own. Its threads are always in a call that runs Python's code, and so
asks for the interpreter lock, or that waits without it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import SOON

USES = {
    "stats": "segment.stats()",
    "members": "segment.members()",
    "audit": "segment.audit()",
    "geometry": "segment.geometry",
    "reduce of a segment": "named.__reduce__()",
    "reduce of a client": "client.__reduce__()",
    "key": "writer.key",
    "an error": "raised(lambda: client.call(b'x', timeout=0))",
    "an argument": "client.try_send(b'x', flags=Slow())",
    "an option": "Segment.anonymous(slots=Slow(), members=2, request_bytes=8, reply_bytes=8)",
    "a path": "raised(lambda: Segment.open(Slow()))",
    "an iterable": "client.send_many(Slow())",
    "a coroutine": "client.acall(b'x').close()",
    "a warning": "Client(segment)",
    "a subclass": "Closing(segment).__exit__()",
    "a wait": "raised(lambda: client.call(b'x', timeout=0.001))",
    "logging": "logger.warning('hello')",
}

PROGRAM = """
import logging, sys, threading, time, warnings
from pipework import atomic
from pipework.logging import Listener
from pipework.reqrep import Client, Segment

warnings.simplefilter("ignore")
THREADS = 4
segment = Segment.anonymous(slots=8, members=64)
named = Segment(sys.argv[2], slots=2)
client = Client(segment)
reader, writer = atomic.pair()
if "logging" in sys.argv[1]:
    listener = Listener(logging.NullHandler())
    listener.start()
    logger = logging.getLogger("test")
    logger.addHandler(listener.handler())
    logger.propagate = False

def busy():
    for _ in range(50):
        pass

class Slow:
    def __index__(self):
        busy()
        return 1
    def __fspath__(self):
        busy()
        return "/nothing/here"
    def __iter__(self):
        busy()
        return iter(())

class Closing(Client):
    def close(self):
        busy()
        super().close()

def raised(call):
    try:
        call()
    except OSError:
        pass

rounds = [0] * THREADS
def use(number):
    while True:
        {use}
        rounds[number] += 1

for number in range(THREADS):
    threading.Thread(target=use, args=(number,), daemon=True).start()
while min(rounds) < 20:
    time.sleep(0.001)
"""


@pytest.mark.parametrize("use", USES)
def test_program_ends_although_daemon_threads_are_in_calls(use: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.replace("{use}", USES[use]), use, str(tmp_path / "segment")]
    # Whether a thread is caught at the wrong place is a matter of chance, so there are several.
    programs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        ends = [(program.communicate(timeout=3 * SOON)[1], program.returncode) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert ends == [("", 0)] * len(programs)


def test_program_ends_although_a_daemon_thread_serves() -> None:
    program = """
import threading
from pipework.reqrep import Client, Segment, Server
segment = Segment.anonymous()
server = Server(segment)
threading.Thread(target=server.serve, args=(bytes.upper,), kwargs={"threads": 3}, daemon=True).start()
assert Client(segment).call(b"hello") == b"HELLO"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * SOON)
    assert (done.returncode, done.stderr) == (0, "")
