"""Handles that are closed in use: from another thread, twice, by a signal handler. No thread stops
permanently, and the exception says that the handle is closed.

Each case is a program of its own, because the faults under test stop a whole process, and the
test with it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import SOON

ENDS = {
    "client": "end = Client(Segment.anonymous()); use = lambda: end.try_send(b'x')",
    "server": "end = Server(Segment.anonymous()); use = lambda: end.try_recv()",
    "atomic reader": "end, other = atomic.pair(); use = lambda: end.try_recv()",
    "atomic writer": "other, end = atomic.pair(); use = lambda: end.try_send(b'x')",
    "pipe reader": "end, other = pipe(); use = lambda: end.try_recv()",
    "pipe writer": "other, end = pipe(); use = lambda: end.try_send(b'x')",
    "request": """
segment = Segment.anonymous()
client, server = Client(segment), Server(segment)
ticket = client.send(b'x')
end = server.recv()
use = lambda: end.reply(b'x')
""",
}

START = """
import signal, sys, threading, time
from pipework import atomic
from pipework.pipe import pipe
from pipework.reqrep import Client, Segment, Server
"""

CLOSE = """
close = end.fail if hasattr(end, "fail") else end.close
close()
"""

TWO_THREADS = """
sys.setswitchinterval(1e-6)
def many():
    for _ in range(2000):
        try:
            use()
        except ValueError as error:
            assert "closed" in str(error) or "answered" in str(error), error
        else:
            raise AssertionError("it is closed")
threads = [threading.Thread(target=many) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""

HANDLER = """
rang = 0
def ring(*_):
    global rang
    rang += 1
    close()
    try:
        use()
    except ValueError:
        pass
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
while rang < 500:
    try:
        use()
    except ValueError:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
print("done")
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:unclosed", "-c", START + program], capture_output=True, text=True, timeout=SOON
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("end", ENDS)
def test_closing_a_handle_in_use_by_threads_blocks_none_of_them(end: str) -> None:
    run(ENDS[end] + CLOSE + TWO_THREADS)


@pytest.mark.parametrize("end", ENDS)
def test_signal_handler_may_close_and_use_the_handle_that_it_interrupts(end: str) -> None:
    run(ENDS[end] + CLOSE + HANDLER)


WAITS = {
    "client recv": "client = end = Client(Segment.anonymous()); ticket = client.send(b'x'); wait = lambda: client.recv(ticket)",
    "client call": "end = Client(Segment.anonymous()); wait = lambda: end.call(b'x')",
    "client send": "end = Client(Segment.anonymous(slots=1)); end.send(b'x'); wait = lambda: end.send(b'x')",
    "server recv": "end = Server(Segment.anonymous()); wait = lambda: end.recv()",
    "server recv_many": "end = Server(Segment.anonymous()); wait = lambda: end.recv_many(5)",
    "atomic recv": "end, other = atomic.pair(); wait = lambda: end.recv()",
    "atomic send": "other, end = atomic.pair(); wait = lambda: end.send(bytes(1_000_000))",
    "pipe recv": "end, other = pipe(); wait = lambda: end.recv()",
    "pipe send": "other, end = pipe(); wait = lambda: end.send(bytes(1_000_000))",
}

CLOSED_BY_HANDLER = """
signal.signal(signal.SIGALRM, lambda *_: end.close())
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    wait()
except ValueError as error:
    assert "closed" in str(error), error
print("done")
"""

CLOSED_BY_THREAD = """
def close():
    try:
        end.close(timeout=0.1) if isinstance(end, atomic.Writer) else end.close()
    except TimeoutError:
        assert isinstance(end, atomic.Writer)
threading.Timer(0.05, close).start()
try:
    wait()
except ValueError as error:
    assert "closed" in str(error), error
print("done")
"""


@pytest.mark.parametrize("by", [CLOSED_BY_HANDLER, CLOSED_BY_THREAD], ids=["handler", "thread"])
@pytest.mark.parametrize("wait", WAITS)
def test_close_ends_every_wait(wait: str, by: str) -> None:
    run(WAITS[wait] + by)
