"""Handlers: the functions that a server calls with each request, and their outcome at the caller."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pipework import RemoteError
from pipework.reqrep import Client, Segment, Server
from processes import all_free, ends, forked, in_time, running, until
from support import SOON, after


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The log as text, because records keep alive all objects of a traceback."""

    texts: list[str] = []
    plain = logging.Formatter()

    def take(record: logging.LogRecord) -> bool:
        texts.append(plain.format(record))
        return False

    log = logging.getLogger("pipework")
    log.addFilter(take)
    yield texts
    log.removeFilter(take)


def test_serve_replies_with_the_handlers_result(segment: Segment) -> None:
    client, server = ends(segment)
    replies = {b"bytes": b"1", b"buffer": bytearray(b"2"), b"none": None, b"long": bytes(1000)}
    with running(server, lambda: server.serve(replies.__getitem__)):
        for request, reply in replies.items():
            assert client.call(request, timeout=SOON) == (reply or b"")
        assert client.call(b"buffer", timeout=SOON) == b"2"


def test_serve_runs_handlers_in_several_threads(segment: Segment) -> None:
    client, server = ends(segment)
    together = threading.Barrier(3)

    def meet(data: bytes) -> bytes:
        together.wait(SOON)
        return data

    with running(server, functools.partial(server.serve, meet, threads=3)):
        tickets = [client.send(b"%d" % number) for number in range(3)]
        assert [client.recv(ticket, timeout=SOON) for ticket in tickets] == [b"0", b"1", b"2"]


def test_handler_that_raises_fails_its_call(segment: Segment, logged: list[str]) -> None:
    client, server = ends(segment)
    serve: Any = server.serve  # an int is no reply
    with running(server, functools.partial(serve, int, threads=2)):
        with pytest.raises(RemoteError) as raised:
            client.call(b"three", timeout=SOON)
        assert str(raised.value).startswith("ValueError: invalid literal for int()")
        with pytest.raises(RemoteError, match="^TypeError: "):
            client.call(b"3", timeout=SOON)
    assert ["Traceback" in text for text in logged] == [True, True]


def test_exception_that_cannot_be_printed_still_gives_a_reason(segment: Segment, logged: list[str]) -> None:
    def raise_it(_: bytes) -> bytes:
        raise Silent

    client, server = ends(segment)
    with running(server, functools.partial(server.serve, raise_it)):
        with pytest.raises(RemoteError, match="Silent: <"):
            client.call(b"", timeout=SOON)


def test_generator_replies_in_parts(segment: Segment, logged: list[str]) -> None:
    def count(data: bytes) -> Iterator[bytes]:
        for number in range(int(data)):
            yield b"%d" % number
        if data == b"4":
            raise ValueError("not four")

    client, server = ends(segment)
    with running(server, functools.partial(server.serve, count)):
        assert list(client.stream(b"3", timeout=SOON)) == [b"0", b"1", b"2"]
        assert client.call(b"3", timeout=SOON) == b"012"
        assert list(client.stream(b"0", timeout=SOON)) == []
        parts = client.stream(b"4", timeout=SOON)
        assert [next(parts) for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(RemoteError, match="^ValueError: not four$"):
            next(parts)


def test_generator_is_closed_when_its_caller_leaves(segment: Segment) -> None:
    closed = threading.Event()

    def endless(_: bytes) -> Iterator[bytes]:
        try:
            while True:
                yield b"again"
        finally:
            closed.set()

    client, server = ends(segment)
    with running(server, functools.partial(server.serve, endless)):
        with client.stream(b"", timeout=SOON) as parts:
            assert next(parts) == b"again"
        assert closed.wait(SOON)


def test_caller_that_takes_no_parts_ends_only_its_own_call(segment: Segment, logged: list[str]) -> None:
    client, server = Client(segment), Server(segment, part_timeout=0.1)
    assert server.part_timeout == 0.1
    with running(server, functools.partial(server.serve, lambda data: iter([data] * 3))):
        parts = client.stream(b"slow", timeout=SOON)
        assert next(parts) == b"slow"
        assert client.call(b"quick", timeout=SOON) == b"quick" * 3
        with pytest.raises(RemoteError):
            list(parts)


def test_serve_answers_taken_requests_before_it_returns(segment: Segment) -> None:
    client, server = ends(segment)
    begun, go_on = threading.Event(), threading.Event()

    def slow(data: bytes) -> bytes:
        begun.set()
        assert go_on.wait(SOON)
        return data

    with running(server, functools.partial(server.serve, slow, threads=2)) as thread:
        ticket = client.send(b"taken")
        assert begun.wait(SOON)
        server.stop()
        left = client.send(b"left to others")
        thread.join(0.05)
        assert thread.is_alive()
        go_on.set()
        assert client.recv(ticket, timeout=SOON) == b"taken"
    assert client.cancel(left)


def test_serve_ends_on_close_and_refuses_invalid_arguments(segment: Segment) -> None:
    server = Server(segment)
    with running(server, functools.partial(server.serve, bytes.upper, threads=2)):
        server.close()
    server = Server(segment)
    with pytest.raises(TypeError, match="no handler"):
        server.serve()
    with pytest.raises(ValueError):
        server.serve(bytes.upper, threads=0)
    with pytest.raises(ValueError):
        in_time(server.aserve(bytes.upper, limit=0))  # type: ignore[arg-type]


def test_serve_uses_the_registered_handler(segment: Segment) -> None:
    client, server = ends(segment)

    @server.handler
    def upper(data: bytes) -> bytes:
        return data.upper()

    assert upper(b"still a function") == b"STILL A FUNCTION"
    with running(server, server.serve):
        assert client.call(b"a", timeout=SOON) == b"A"


def test_system_exit_in_a_handler_ends_serve(segment: Segment) -> None:
    def leave(_: bytes) -> bytes:
        raise SystemExit(3)

    client, server = ends(segment)
    after(0.05, lambda: client.send(b""))
    with pytest.raises(SystemExit):
        server.serve(leave, threads=3)
    with pytest.raises(RemoteError, match="^SystemExit$"):
        [outcome.result() for _, outcome in client.as_completed(timeout=SOON)]


# ---------------------------------------------------------------- what a server lacks

LONG = 80 << 20
LEFT = {b"little memory": 40 << 20, b"memory for no copy": LONG + (40 << 20)}


def limit(what: bytes) -> None:
    """From now on this process has no descriptor left, or so much memory."""
    if what in LEFT:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + LEFT[what],) * 2)
    elif what == b"no descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
        with contextlib.suppress(OSError):
            while True:
                os.open(os.devnull, os.O_RDONLY)


def length(data: bytes) -> bytes:
    limit(data)
    return b"%d" % len(data)


async def length_in_task(data: bytes) -> bytes:
    return length(data)


def aserve_in_trio(server: Server) -> None:
    pytest.importorskip("trio").run(server.aserve, length_in_task)


LOOPS: dict[str, Callable[[Server], object]] = {
    "serve": lambda server: server.serve(length),
    "serve in threads": lambda server: server.serve(length, threads=3),
    "aserve": lambda server: asyncio.run(server.aserve(length_in_task)),
    "aserve in trio": aserve_in_trio,
    "serve_batches": lambda server: server.serve_batches(lambda batch: [length(data) for data in batch]),
}


@contextlib.contextmanager
def logging_child(how: str, server: Server, lines: Path) -> Iterator[int]:
    """A child that serves. The file gets the lines of its log, and "ended" when the server has returned."""

    def work() -> None:
        log = logging.getLogger("pipework")
        log.propagate = False
        log.addHandler(logging.FileHandler(lines))
        try:
            LOOPS[how](server)
            log.error("ended")
        except BaseException as error:
            log.error("raised %r", error)

    lines.touch()
    with server, forked(work) as pid:
        yield pid


@pytest.mark.parametrize("what", [b"little memory", b"no descriptors"])
@pytest.mark.parametrize("how", LOOPS)
def test_request_that_the_server_lacks_something_for_ends_no_loop(
    how: str, what: bytes, segment: Segment, tmp_path: Path
) -> None:
    if how == "aserve in trio":
        pytest.importorskip("trio")
    lines = tmp_path / "log"
    with Client(segment) as client, logging_child(how, Server(segment), lines) as pid:
        client.call(b"the loop has its descriptors", timeout=SOON)
        client.call(what, timeout=SOON)
        for _ in range(2):  # in one spell
            long, behind = client.send(bytes(LONG)), client.send(b"behind")
            until(lambda: "cannot be received" in lines.read_text())
            with pytest.raises(TimeoutError):
                client.recv(behind, timeout=0)
            client.cancel(long)
            assert client.recv(behind, timeout=SOON) == b"6"
        long = client.send(bytes(LONG))
        time.sleep(0.2)  # most signals come in a pause
        os.kill(pid, signal.SIGTERM)
        until(lambda: len(lines.read_text().splitlines()) > 1)
        first, *others = lines.read_text().splitlines()
        assert first.startswith("a request cannot be received now: ") and others == ["ended"]
        # It is there for another server.
        with Server(segment) as other, other.recv(timeout=SOON) as request:
            assert len(request.data) == LONG
            request.reply(b"received")
        assert client.recv(long, timeout=SOON) == b"received"


@pytest.mark.parametrize("how", LOOPS)
def test_request_that_the_server_cannot_copy_fails_alone(how: str, segment: Segment, tmp_path: Path) -> None:
    if how == "aserve in trio":
        pytest.importorskip("trio")
    lines = tmp_path / "log"
    with Client(segment) as client, logging_child(how, Server(segment), lines) as pid:
        client.call(b"memory for no copy", timeout=SOON)
        with pytest.raises(RemoteError):
            client.call(bytes(LONG), timeout=SOON)
        assert client.call(b"short", timeout=SOON) == b"5"
        os.kill(pid, signal.SIGTERM)
        until(lambda: len(lines.read_text().splitlines()) > 1)
        assert lines.read_text().splitlines() == ["a request cannot be received now: MemoryError", "ended"]


@pytest.mark.parametrize("how", LOOPS)
def test_max_message_fails_a_request_that_there_is_no_memory_for(how: str, segment: Segment, tmp_path: Path) -> None:
    if how == "aserve in trio":
        pytest.importorskip("trio")
    with Client(segment) as client, logging_child(how, Server(segment, max_message=1 << 20), tmp_path / "log"):
        client.call(b"little memory", timeout=SOON)
        with pytest.raises(RemoteError, match="max_message"):
            client.call(bytes(LONG), timeout=SOON)
        assert client.call(b"short", timeout=SOON) == b"5"
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize("how", ["serve", "aserve"])
def test_loop_at_its_blob_limit_goes_on_when_handlers_drop_blobs(how: str, tmp_path: Path, logged: list[str]) -> None:
    size = 200_000
    go_on = threading.Event()

    def wait(data: bytes) -> int:
        assert go_on.wait(SOON)
        return len(data)

    async def wait_in_task(data: bytes) -> int:
        return await asyncio.to_thread(wait, data)

    segment = Segment.create(tmp_path / "channel", slots=4)
    with segment, Client(segment, codec="pickle") as client:
        with Server(tmp_path / "channel", blob_limit=size * 3 // 2) as server:

            def serve() -> None:
                if how == "serve":
                    server.serve(wait, threads=2, codec="pickle")
                else:
                    asyncio.run(server.aserve(wait_in_task, codec="pickle"))

            with running(server, serve):
                tickets = [client.send(pickle.PickleBuffer(bytearray(size))) for _ in range(3)]
                until(lambda: logged)
                assert "blob_limit" in logged[0]
                go_on.set()
                assert [client.recv(ticket, timeout=SOON) for ticket in tickets] == [size] * 3


def test_cancelled_aserve_ends_while_its_process_lacks_something(segment: Segment, tmp_path: Path) -> None:
    def work() -> None:
        async def main() -> None:
            serving = asyncio.create_task(Server(segment).aserve(length_in_task))
            await asyncio.to_thread(until, (tmp_path / "cancel").exists)
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            (tmp_path / "cancelled").touch()

        asyncio.run(main())

    with Client(segment) as client, forked(work):
        client.call(b"little memory", timeout=SOON)
        long = client.send(bytes(LONG))
        time.sleep(0.2)
        (tmp_path / "cancel").touch()
        until((tmp_path / "cancelled").exists)
        client.cancel(long)


# ---------------------------------------------------------------- in asyncio


def test_aserve_runs_coroutines_up_to_its_limit(segment: Segment) -> None:
    client, server = ends(segment)
    now = most = 0

    async def answer(data: bytes) -> bytes:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return data * 2

    async def main() -> None:
        serving = asyncio.create_task(server.aserve(answer, limit=3))
        assert await asyncio.gather(*(client.acall(b"%d" % n) for n in range(10))) == [b"%d%d" % (n, n) for n in range(10)]
        server.stop()
        await serving

    in_time(main())
    assert most == 3


def test_aserve_fails_and_streams_like_serve(segment: Segment, logged: list[str]) -> None:
    client, server = ends(segment)
    closed = asyncio.Event()

    @server.handler
    async def count(data: bytes) -> AsyncIterator[bytes]:
        try:
            for number in range(int(data)):
                await asyncio.sleep(0)
                yield b"%d" % number
            if data == b"4":
                raise ValueError("not four")
        finally:
            closed.set()

    async def main() -> None:
        serving = asyncio.create_task(server.aserve())
        assert [part async for part in client.astream(b"3")] == [b"0", b"1", b"2"]
        with pytest.raises(RemoteError, match="^ValueError: "):
            await client.acall(b"three")
        parts = client.astream(b"4")
        assert [await parts.__anext__() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(RemoteError, match="^ValueError: not four$"):
            await parts.__anext__()
        closed.clear()
        parts = client.astream(b"1000000")
        assert await parts.__anext__() == b"0"
        await parts.aclose()
        await closed.wait()
        server.stop()
        await serving

    in_time(main())


def test_cancelling_aserve_fails_its_requests(segment: Segment) -> None:
    client, server = ends(segment)

    async def for_ever(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def main() -> None:
        serving = asyncio.create_task(server.aserve(for_ever))
        calling = asyncio.create_task(client.acall(b""))
        while segment.audit().taken == 0:
            await asyncio.sleep(0.001)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises(RemoteError):
            await calling

    in_time(main())


# ---------------------------------------------------------------- by the batch


def test_serve_batches_takes_all_waiting_requests(segment: Segment) -> None:
    client, server = ends(segment)
    batches: list[list[bytes]] = []

    def double(batch: list[bytes]) -> list[bytes]:
        batches.append(batch)
        return [data * 2 for data in batch]

    tickets = [client.send(b"%d" % number) for number in range(4)]
    assert client.cancel(tickets.pop(1))
    with running(server, functools.partial(server.serve_batches, double, max_batch=3)):
        assert [client.recv(ticket, timeout=SOON) for ticket in tickets] == [b"00", b"22", b"33"]
    assert batches == [[b"0", b"2", b"3"]]


def test_serve_batches_lingers_only_for_its_time(segment: Segment) -> None:
    client, server = ends(segment)
    batches: list[int] = []

    def count(batch: list[bytes]) -> list[bytes]:
        batches.append(len(batch))
        return batch

    with running(server, functools.partial(server.serve_batches, count, max_batch=2, linger=SOON)):
        began = time.monotonic()
        first = client.send(b"1")
        time.sleep(0.02)
        second = client.send(b"2")
        assert [client.recv(ticket, timeout=SOON) for ticket in (first, second)] == [b"1", b"2"]
        assert time.monotonic() - began < SOON / 2, "a full batch waits for nothing"
    assert batches == [2]


def test_serve_batches_fails_one_call_or_the_whole_batch(segment: Segment, logged: list[str]) -> None:
    client, server = ends(segment)

    def work(batch: list[bytes]) -> list[Any]:
        if b"all" in batch:
            raise RuntimeError("no model")
        if b"few" in batch:
            return []
        return [ValueError("not that") if data == b"one" else data for data in batch]

    def outcomes(*requests: bytes) -> list[str]:
        tickets = client.send_many(requests)
        told = {ticket: str(outcome.exception()) for ticket, outcome in client.as_completed(timeout=SOON)}
        return [told[ticket] for ticket in tickets]

    with running(server, functools.partial(server.serve_batches, work, max_batch=2, linger=SOON)):
        assert outcomes(b"one", b"two") == ["ValueError: not that", "None"]
        assert outcomes(b"all", b"two") == ["RuntimeError: no model"] * 2
        assert outcomes(b"few", b"two") == ["ValueError: the handler gave 0 replies for 2 requests"] * 2
        server.close()


def test_serve_batches_logs_an_exception_once(segment: Segment, logged: list[str]) -> None:
    client, server = ends(segment)
    mistake = ValueError("one for several")

    def work(batch: list[bytes]) -> list[Any]:
        if b"all" in batch:
            raise RuntimeError("no model")
        return [mistake, mistake, ValueError("alone"), batch[3]]

    with running(server, functools.partial(server.serve_batches, work, max_batch=4, linger=SOON)):
        for first in (b"all", b"some"):
            tickets = client.send_many([first, b"", b"", b"fine"])
            assert sum(outcome.exception() is None for _, outcome in client.as_completed(timeout=SOON)) == (first == b"some")
        assert len(tickets) == 4
        until(lambda: len(logged) == 3)
        server.close()
    all_of_them, both, alone = logged
    assert all_of_them.startswith("4 requests failed\nTraceback") and all_of_them.count("no model") == 2
    assert both == "2 requests failed\nValueError: one for several"
    assert alone == "a request failed\nValueError: alone"


# ---------------------------------------------------------------- processes

SERVE = {
    "serve": "server.serve(slow, threads=2)",
    "aserve": "asyncio.run(server.aserve(later))",
    "uvloop": "uvloop.install(); asyncio.run(server.aserve(later))",
    "serve_batches": "server.serve_batches(lambda batch: [slow(data) for data in batch])",
}


@pytest.mark.parametrize("how", SERVE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sigterm_finishes_taken_requests(how: str, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    program = f"""
    import asyncio, time
    from pipework.reqrep import Server

    def slow(data):
        time.sleep(0.3)
        return data

    async def later(data):
        await asyncio.sleep(0.3)
        return data

    class Telling(Server):
        def stop(self):
            super().stop()
            print("stopped", flush=True)

    server = Telling({str(path)!r})
    {"import uvloop" if how == "uvloop" else ""}
    {SERVE[how]}
    print("drained")
    """
    segment = Segment.create(path, slots=4)
    client = Client(segment)
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        ticket = client.send(b"taken")
        until(lambda: segment.audit().taken == 1)
        process.send_signal(signal.SIGTERM)
        assert process.stdout
        # A signal that comes just before a wait is heeded when the wait's first slice has passed.
        assert process.stdout.readline() == b"stopped\n"
        left = client.send(b"left to others")
        assert client.recv(ticket, timeout=SOON) == b"taken"
        assert process.communicate(timeout=SOON)[0].endswith(b"drained\n")
        assert process.returncode == 0
    assert client.cancel(left)
    assert all_free(segment)


def test_serve_calls_the_programs_own_sigterm_handler(segment: Segment) -> None:
    client, server = ends(segment)
    told = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append("told"))
    try:

        def tell() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            client.call(b"", timeout=SOON)
            server.stop()

        stopper = after(0.1, tell)
        server.serve(bytes.upper)
        stopper.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == ["told"]


def test_aserve_leaves_a_sigterm_handler_that_the_program_sets_meanwhile(segment: Segment) -> None:
    _, server = ends(segment)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    told = []

    def tell(*_: object) -> None:
        told.append("told")

    async def main() -> None:
        serving = asyncio.create_task(server.aserve(same))
        await asyncio.sleep(0)
        ours = signal.signal(signal.SIGTERM, tell)
        server.stop()
        await serving
        assert signal.getsignal(signal.SIGTERM) is tell and callable(ours)
        signal.raise_signal(signal.SIGTERM)
        assert told == ["told"]

    try:
        in_time(main())
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def same(data: bytes) -> bytes:
    return data


SIGTERM_PROGRAMS = {
    "stops all servers of the program": (
        0,
        """
async def main():
    one, other = Server(Segment.anonymous()), Server(Segment.anonymous())
    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
    await asyncio.gather(one.aserve(same), other.aserve(same))
""",
    ),
    "ends a program that has put the server's handler back": (
        -signal.SIGTERM,
        """
async def main():
    server = Server(Segment.anonymous())
    serving = asyncio.create_task(server.aserve(same))
    await asyncio.sleep(0)
    ours = signal.signal(signal.SIGTERM, lambda *_: None)
    server.stop()
    await serving
    signal.signal(signal.SIGTERM, ours)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)
""",
    ),
    "ends a child that a server has forked": (
        0,
        """
def fork():
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(tell, b"x")  # Python itself drops signals that come before
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def main():
    server = Server(Segment.anonymous())
    serving = asyncio.create_task(server.aserve(same))
    await asyncio.sleep(0)
    assert fork() == -signal.SIGTERM
    server.stop()
    await serving
""",
    ),
}


@pytest.mark.parametrize("what", SIGTERM_PROGRAMS)
def test_sigterm(what: str) -> None:
    status, program = SIGTERM_PROGRAMS[what]
    start = """
import asyncio, os, signal, time
from pipework.reqrep import Segment, Server

async def same(data):
    return data
"""
    command = [sys.executable, "-c", start + program + "\nasyncio.run(main())\n"]
    assert subprocess.run(command, timeout=SOON).returncode == status


def test_requests_of_a_killed_server_go_to_the_next(segment: Segment) -> None:
    client = Client(segment, redeliveries=1)

    def wait(_: list[bytes]) -> list[bytes]:
        time.sleep(60)
        return []

    def serve() -> None:
        Server(segment).serve_batches(wait)

    with forked(serve) as pid:
        ticket = client.send(b"a")
        until(lambda: segment.audit().taken == 1)
        os.kill(pid, signal.SIGKILL)
        server = Server(segment)
        with running(server, functools.partial(server.serve_batches, lambda batch: [data.upper() for data in batch])):
            assert client.recv(ticket, timeout=SOON) == b"A"
