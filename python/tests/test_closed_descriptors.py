"""A program that closes every descriptor above 2, as a daemon does, and opens others that get the
numbers: nothing of pipework reads, writes or closes them. Each case is a program of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import SOON

START = """
import asyncio, concurrent.futures, ctypes, gc, os, select, sys, time, warnings
import pipework
from pipework import multiprocessing, reqrep
from pipework._executor import Executor

libc = ctypes.CDLL(None)
lost = []

def close_all():
    os.closerange(3, 1024)

def open_others():
    # The lowest first, so each number that was closed is taken, by eight of each kind at least.
    for turn in range(24):
        epoll = select.epoll(); there = os.eventfd(0); epoll.register(there, select.EPOLLIN)
        os.eventfd_write(there, 1)
        value = os.eventfd(5)
        inotify = libc.inotify_init1(0o2000000 | 0o4000)
        assert libc.inotify_add_watch(inotify, b"/tmp", 0x100) > 0
        here, other = os.pipe()
        os.write(other, b"a message of the program")
        lost.append((epoll, value, inotify, here, other, there))
    made = "/tmp/pipework-closed-%d" % os.getpid()
    os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o600))
    os.unlink(made)

def check():
    for epoll, value, inotify, here, other, there in lost:
        assert len(epoll.poll(0)) == 1, "an event was taken"
        assert os.eventfd_read(value) == 5, "an eventfd was changed"
        assert len(os.read(inotify, 4096)) > 0, "an event of inotify was taken"
        assert os.read(here, 4096) == b"a message of the program", "a pipe was changed"
        os.fstat(other); assert os.eventfd_read(there) == 1
    print("whole", flush=True)
    os._exit(0)
"""

CLIENT_AND_SERVER = """
segment = reqrep.Segment.anonymous()
client, server = reqrep.Client(segment), reqrep.Server(segment)
numbers = client.fileno(), server.fileno()
ticket = client.send(b"1")
server.recv().reply(b"1")
client.recv(ticket)
close_all()
open_others()
assert server.fileno() not in numbers, "its doorbell is another"
client.close(); server.close(); segment.close()
del client, server, segment
gc.collect()
check()
"""

ASYNCIO = """
segment = reqrep.Segment.anonymous()
client, server = reqrep.Client(segment), reqrep.Server(segment)

async def use():
    async def answer():
        (await server.arecv()).reply(b"1")
    await asyncio.gather(answer(), client.acall(b"1"))
    waits = asyncio.ensure_future(server.arecv())
    for _ in range(3):
        await asyncio.sleep(0)
    return waits

loop = asyncio.new_event_loop()
waits = loop.run_until_complete(use())
close_all()
open_others()
client.try_send(b"2")  # wakes the task that waits
client.close(); server.close(); segment.close()
del client, server, segment
gc.collect()
# The loop stays: it would close its own descriptors by their numbers.
check()
"""

LOOP_GOES_ON = """
from pipework import _asyncio_tasks
segment = reqrep.Segment.anonymous()
client, server = reqrep.Client(segment), reqrep.Server(segment)

async def answer():
    while True:
        (await server.arecv()).reply(b"1")

async def use():
    loop = asyncio.get_running_loop()
    answers = asyncio.ensure_future(answer())
    await client.acall(b"1")
    number = _asyncio_tasks._of(loop).inbox.fileno()
    os.close(number)
    value = os.eventfd(5)
    assert value == number
    for _ in range(100):
        assert await asyncio.wait_for(client.acall(b"1"), 30) == b"1"
    assert os.eventfd_read(value) == 5
    answers.cancel()

asyncio.run(use())
print("whole")
"""

TRIO = """
import trio
segment = reqrep.Segment.anonymous()
client, server = reqrep.Client(segment), reqrep.Server(segment)

async def use():
    async with trio.open_nursery() as nursery:
        async def answer():
            (await server.arecv()).reply(b"1")
        nursery.start_soon(answer)
        await client.acall(b"1")

trio.run(use)
close_all()
open_others()
client.close(); server.close(); segment.close()
del client, server, segment
gc.collect()
check()
"""

EXECUTOR = """
if __name__ == "__main__":
    executor = Executor(2, mp_context=multiprocessing.get_context(METHOD))
    assert list(executor.map(abs, range(20))) == list(range(20))
    close_all()
    open_others()
    tried = 0
    try:
        while True:
            executor.submit(abs, 1).result(60)
            tried += 1
            time.sleep(0.05)
            assert tried < 1000
    except (concurrent.futures.BrokenExecutor, OSError) as error:
        assert "closed" in str(error), error
    executor.shutdown()
    del executor
    gc.collect()
    check()
"""

CONNECTION = """
here, there = multiprocessing.Pipe()
here.send(1)
assert there.recv() == 1
close_all()
open_others()
for act in (lambda: here.send(1), lambda: there.recv(), lambda: there.poll()):
    try:
        act()
    except OSError as error:
        assert "closed by the program" in str(error), error
    else:
        raise AssertionError("it is closed")
here.close()
del here, there
gc.collect()
check()
"""

GUARD = """
try:
    with pipework.guard_stdout() as protocol:
        protocol.write("half a line")
        close_all()
        open_others()
except OSError as error:
    assert "closed by the program" in str(error), error
else:
    raise AssertionError("it could not be given back")
check()
"""

LOGGING = """
import logging, socket, tempfile, threading
from pipework.logging import Handler, Listener

class Kept(logging.Handler):
    def emit(self, record):
        kept.append(record.getMessage())

kept = []
logger = logging.getLogger("program")
logger.propagate = False
listener = Listener(Kept())
others = []
with listener:
    handler = listener.handler()
    logger.addHandler(handler)
    logger.warning("before")
    while not kept:
        time.sleep(0.01)
    numbers = [each.fileno() for each in (listener._reader, listener._writer, handler._writer)]
    for number in [numbers[each] for each in CLOSED]:
        os.close(number)
        if KIND == "file":
            others.append(os.open(tempfile.mkdtemp() + "/file", os.O_CREAT | os.O_RDWR))
        elif KIND == "pipe":
            here, there = os.pipe()
            os.set_blocking(here, False)
            # Both ends: the listener must not read, and the handler must not write.
            others.append(here)
        elif KIND == "socket":
            here, there = socket.socketpair()
            here.setblocking(False); there.setblocking(False)
            there.send(b"of the program")
            others.append(here.detach()); there = there.detach()
        else:
            others.append(os.eventfd(5, os.EFD_NONBLOCK))
        if others[-1] != number:
            os.dup2(others[-1], number)
            others[-1] = number
    logger.warning("after %s", "y" * 10_000)
    lost, refused = handler.lost, ""
    try:
        handler.__reduce__()
    except OSError as error:
        refused = str(error)
    handler.flush()
    handler.close()
    began = time.monotonic()
assert time.monotonic() - began < 30
listener.stop()
if CLOSED == [1]:
    assert kept == ["before", "after " + "y" * 10_000] and not lost, kept
elif 0 in CLOSED:  # the record was refused, or the listener has gone without it
    assert kept[1:] == ["the program closed the descriptor of this listener: no more records come"], kept
if 2 in CLOSED:
    assert lost == 1, lost
    assert "closed by the program" in refused, refused
for other in others:
    if KIND == "file":
        assert os.fstat(other).st_size == 0
    elif KIND == "pipe":
        try:
            assert False, os.read(other, 100)
        except BlockingIOError:
            pass
    elif KIND == "socket":
        assert os.read(other, 100) == b"of the program"
        try:
            assert False, os.read(there, 100)
        except BlockingIOError:
            pass
    else:
        assert os.eventfd_read(other) == 5
print("whole", flush=True)
os._exit(0)
"""

LOGGING_DAEMON = """
import logging
from pipework.logging import Listener
logging.getLogger().handlers[:] = []
with Listener(logging.NullHandler()) as listener:
    handler = listener.handler()
    logging.getLogger().addHandler(handler)
    logging.warning("before")
    close_all()
    open_others()
    logging.warning("after")
    assert handler.lost == 1
    handler.close()
check()
"""


def run(program: str, *options: str) -> tuple[str, str]:
    ended = subprocess.run(
        [sys.executable, *options, "-c", START + program], capture_output=True, text=True, timeout=SOON
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr


@pytest.mark.parametrize("program", [CLIENT_AND_SERVER, ASYNCIO, LOOP_GOES_ON, CONNECTION])
def test_what_the_program_opens_after_it_has_closed_all_is_left_alone(program: str) -> None:
    assert run(program)[0] == "whole\n"


@pytest.mark.parametrize("kind", ["file", "pipe", "socket", "eventfd"])
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=["reader", "writer", "handler", "all"])
def test_logging_leaves_what_has_the_numbers_of_its_pipe_alone(kind: str, closed: list[int]) -> None:
    out, err = run(f"KIND, CLOSED = {kind!r}, {closed!r}\n" + LOGGING)
    assert out == "whole\n"
    assert "1 records could not be sent" in err or 2 not in closed


def test_a_daemon_that_logs_counts_what_it_cannot_send() -> None:
    out, err = run(LOGGING_DAEMON)
    assert out == "whole\n"
    assert "1 records could not be sent" in err


def test_what_a_program_of_trio_opens_after_it_has_closed_all_is_left_alone() -> None:
    pytest.importorskip("trio")
    assert run(TRIO)[0] == "whole\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_executor_whose_descriptors_were_closed_breaks_and_leaves_others_alone(method: str) -> None:
    assert run(f"METHOD = {method!r}\n" + EXECUTOR)[0].splitlines()[-1] == "whole"


def test_guard_stdout_leaves_what_the_program_opens_after_it_has_closed_all_alone() -> None:
    out, err = run(GUARD)
    assert "half a line" in err
    assert "whole" in out + err
