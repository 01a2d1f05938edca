"""Module `reqrep` in asyncio, on its own event loop and on uvloop's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pipework
import pytest
import uvloop
from leaks import leaves_nothing
from pipework import atomic, pipe
from pipework.reqrep import Client, Message, Request, Segment, Server, Ticket
from processes import all_free, echo, ends, forked, until
from support import SOON, after, in_child, open_files

uvloop.new_event_loop().close()  # the first one opens what all of them share

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run[Any]]:
    """Runs a coroutine on an event loop of its own, and nothing for longer than `SOON`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        yield lambda coroutine: run_on(request.param(), coroutine)


def run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    async def main() -> T:
        return await asyncio.wait_for(coroutine, SOON)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def answer(server: Server) -> int:
    """Answers until the server is closed; says how many it were."""
    count = 0
    async for request in server:
        request.reply(request.data.upper(), flags=request.flags)
        count += 1
    return count


async def turns(count: int = 5) -> None:
    """Lets other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_many_calls_in_flight_on_one_loop(run: Run[None]) -> None:
    async def main() -> None:
        segment = Segment.anonymous(slots=8)
        client, server = ends(segment)
        serving = [asyncio.create_task(answer(server)) for _ in range(2)]
        replies = await asyncio.gather(*(client.acall(b"call %d" % i) for i in range(500)))
        assert replies == [b"CALL %d" % i for i in range(500)]
        server.close()
        assert sum(await asyncio.gather(*serving)) == 500
        assert client.pending == 0 and all_free(segment)

    run(main())


def watching() -> int:
    """How many threads of this process watch for steps of the other side."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            count += task.joinpath("comm").read_text() == "pipework-watch\n"
    return count


def test_reply_that_comes_within_a_turn_needs_no_thread(run: Run[None]) -> None:
    async def main() -> None:
        client, server = ends(Segment.anonymous())

        async def call_soon_answered() -> None:
            call = asyncio.create_task(client.acall(b"x"))
            await turns(1)
            server.recv().reply(b"y")
            assert await call == b"y"

        await call_soon_answered()
        receiving = asyncio.create_task(server.arecv())
        await turns(1)
        ticket = client.send(b"x")
        (await receiving).reply(b"y")
        assert client.recv(ticket) == b"y" and watching() == 0

        # Where the waits of one handle are long, those of another still have a second look.
        for _ in range(20):
            receiving = asyncio.create_task(server.arecv())
            await turns()
            ticket = client.send(b"x")
            (await receiving).reply(b"y")
            assert client.recv(ticket) == b"y"
            await call_soon_answered()
        assert watching() == 1

        for _ in range(200):
            call = asyncio.create_task(client.acall(b"x"))
            await turns()
            server.recv().reply(b"y")
            assert await call == b"y"
        assert watching() == 2
        client.close()
        server.close()
        until(lambda: watching() == 0)

    run(main())


def test_every_awaitable_works(run: Run[None]) -> None:
    async def main() -> None:
        segment = Segment.anonymous()
        client, server = ends(segment)
        tickets = [client.send(b"x", flags=i) for i in range(4)]
        request = await server.arecv()
        assert request.data == b"x"
        request.reply(b"one")
        assert await client.arecv(tickets[0]) == b"one"
        assert await server.arecv_many(0) == []
        for request in await server.arecv_many(10):
            request.reply(b"more", flags=request.flags)
        assert await client.arecv_message(tickets[1]) == Message(b"more", 1)
        assert [await client.arecv(ticket) for ticket in tickets[2:]] == [b"more"] * 2
        serving = asyncio.create_task(answer(server))
        assert await client.acall_message(bytearray(b"y"), flags=9) == Message(b"Y", 9)
        server.close()
        await serving
        for refused in (server.arecv, lambda: client.arecv(tickets[0])):
            with pytest.raises((pipework.Invalid, pipework.Stale)):
                await refused()

    run(main())


def test_arecv_any_returns_calls_as_they_complete(run: Run[None]) -> None:
    async def main() -> None:
        segment = Segment.anonymous(slots=8, reply_bytes=64)
        client, server = ends(segment)
        assert [call async for call in client.as_completed()] == []
        tickets = client.send_many([b"slow", b"long", b"wrong"])
        requests = {request.data: request for request in server.recv_many(3)}
        requests[b"wrong"].fail("no such word")
        ended: list[tuple[Ticket, bytes | str]] = []

        async def receive() -> None:
            async for ticket, outcome in client.as_completed(timeout=SOON):
                error = outcome.exception()
                ended.append((ticket, outcome.result() if error is None else str(error)))
                if len(ended) == 2:
                    # A reply sent meanwhile arrives as well.
                    tickets.append(client.send(b"late"))
                    requests[b"late"] = server.recv()

        receiving = asyncio.create_task(receive())
        await turns(20)
        assert ended == [(tickets[2], "no such word")]
        # In the hands of a server it is not the loop's that has to go on.
        answering = after(0, lambda: requests[b"long"].reply(b"long" * 100))
        while len(ended) < 2:
            await asyncio.sleep(0.001)
        answering.join()
        requests[b"late"].reply(b"late as well", flags=3)
        while len(ended) < 3:
            await asyncio.sleep(0.001)
        assert not receiving.done()
        requests[b"slow"].reply(b"at last")
        await receiving
        assert ended[1:] == [(tickets[1], b"long" * 100), (tickets[3], b"late as well"), (tickets[0], b"at last")]
        assert client.pending == 0

    run(main())


def test_arecv_any_ends_with_its_timeout_its_task_or_its_client(run: Run[None]) -> None:
    async def main() -> None:
        client, server = ends(Segment.anonymous())
        ticket = client.send(b"x")
        request = server.recv()
        began = time.monotonic()
        completed = client.as_completed(timeout=0.05).__aiter__()
        with pytest.raises(TimeoutError):
            await completed.__anext__()
        assert 0.05 <= time.monotonic() - began < SOON
        with pytest.raises(TimeoutError):
            await completed.__anext__()
        # The call is still valid, and the next wait returns it; a cancelled task took
        # nothing.
        completed = client.as_completed().__aiter__()
        cancelled = asyncio.ensure_future(completed.__anext__())
        await turns()
        cancelled.cancel()
        request.reply(b"y")
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert [(ended, outcome.result()) async for ended, outcome in completed] == [(ticket, b"y")]
        # It hears of the end at once, and not with the next slice of a wait; that this process is
        # not kept waiting for its CPU meanwhile takes more than one try on a busy machine.
        assert min([await seconds_until_closed() for _ in range(5)]) < 0.2

    async def seconds_until_closed() -> float:
        client = Client(Segment.anonymous())
        client.send(b"x")
        closed = asyncio.ensure_future(client.as_completed().__aiter__().__anext__())
        await turns()
        began = time.monotonic()
        client.close()
        with pytest.raises(ValueError, match="this client is closed"):
            await closed
        seconds = time.monotonic() - began
        with pytest.raises(ValueError, match="this client is closed"):
            await client.as_completed().__aiter__().__anext__()
        return seconds

    run(main())


def test_arecv_many_lingers_for_a_batch(run: Run[None]) -> None:
    async def main() -> None:
        client, server = ends(Segment.anonymous())

        async def send(count: int) -> None:
            for number in range(count):
                await asyncio.sleep(0.01)
                client.send(b"%d" % number)

        sending = asyncio.create_task(send(3))
        batch = await server.arecv_many(3, linger=SOON)
        assert [request.data for request in batch] == [b"0", b"1", b"2"]
        await sending
        sending = asyncio.create_task(send(1))
        began = time.monotonic()
        assert len(await server.arecv_many(3, linger=0.1)) == 1
        assert time.monotonic() - began >= 0.1
        # If the server stops meanwhile, it returns the requests that it has.
        await sending
        client.send(b"x")
        lingering = asyncio.create_task(server.arecv_many(3, linger=SOON))
        await turns()
        server.stop()
        assert [request.data for request in await lingering] == [b"x"]
        with pytest.raises(pipework.Closed):
            await server.arecv_many(3, linger=0.1)
        # If it is closed or cancelled meanwhile, it fails the requests that it has.
        for end in ("close", "cancel"):
            other = Server(client.segment)
            ticket = client.send(b"x")
            lingering = asyncio.create_task(other.arecv_many(3, linger=SOON))
            await turns()
            if end == "close":
                other.close()
            else:
                lingering.cancel()
            with pytest.raises((ValueError, asyncio.CancelledError)):
                await lingering
            with pytest.raises(pipework.RemoteError):
                await client.arecv(ticket)
        with pytest.raises(ValueError):
            await server.arecv_many(3, linger=-1.0)

    run(main())


# ---------------------------------------------------------------- cancelling


def test_cancelling_a_task_cancels_its_call(run: Run[None]) -> None:
    async def main() -> None:
        segment = Segment.anonymous(slots=2)
        server = Server(segment)
        # In the ring; in a server's hands; answered, and the loop has not come to it. Each before the
        # call has its second look, as the first of its client, and when it waits to be woken.
        for stage, count in itertools.product(("waiting", "taken", "answered"), (1, 5)):
            client = Client(segment)
            task = asyncio.create_task(client.acall(b"x"))
            await turns(count)
            assert client.pending == 1
            request: Request | None = None
            if stage != "waiting":
                request = server.recv()
                assert request.wanted
            if request is not None and stage == "answered":
                request.reply(b"too early")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.pending == 0 and server.try_recv() is None
            if request is not None and stage == "taken":
                assert not request.wanted and not request.reply(b"too late")
            client.close()
            assert all_free(segment)
        # Without a slot.
        holder = Client(segment)
        tickets = [holder.send(b"") for _ in range(2)]
        for count in (1, 5):
            client = Client(segment)
            task = asyncio.create_task(client.acall(b"x"))
            await turns(count)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            client.close()
        assert segment.stats().requests == 8 and holder.pending == 2
        client = holder
        # A ticket stays good.
        receiving = asyncio.create_task(client.arecv(tickets[0]))
        await turns()
        receiving.cancel()
        await turns()
        server.recv().reply(b"later")
        assert await client.arecv(tickets[0]) == b"later"
        # A coroutine that never started has sent nothing.
        client.acall(b"x").close()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.acall(b"x"), 0.01)
        assert client.pending == 1

    run(main())


def test_cancelled_receiver_takes_nothing(run: Run[None]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)

    async def main() -> None:
        segment = Segment.anonymous(slots=64)
        client, server = ends(segment)
        got: set[bytes] = set()
        tickets: list[Ticket] = []

        async def receive() -> None:
            request = await server.arecv()
            got.add(request.data)
            request.reply(b"")

        sent = 0
        for _ in range(300):
            tasks = [asyncio.create_task(receive()) for _ in range(3)]
            await turns(draw.randrange(3))
            for _ in range(draw.randrange(3)):
                tickets.append(client.send(sent.to_bytes(4, "little")))
                sent += 1
            if draw.random() < 0.5:
                await asyncio.sleep(draw.uniform(0, 0.002))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            while (request := server.try_recv()) is not None:
                got.add(request.data)
                request.reply(b"")
            assert len(got) == sent
            for ticket in tickets:
                assert client.recv(ticket) == b""
            tickets.clear()
        assert sent > 100 and all_free(segment)

    run(main())


def test_closing_the_server_ends_its_waits(run: Run[None]) -> None:
    async def main() -> None:
        segment = Segment.anonymous()
        server = Server(segment)
        serving = [asyncio.create_task(answer(server)) for _ in range(3)]
        receiving = asyncio.create_task(server.arecv())
        await turns()
        closer = after(0.02, server.close)
        assert await asyncio.gather(*serving) == [0, 0, 0]
        with pytest.raises(pipework.Invalid, match="this server is closed"):
            await receiving
        closer.join()
        assert segment.members() == []

    run(main())


# ---------------------------------------------------------------- other processes, other threads

SERVE = """
import asyncio, os, sys, pipework.reqrep
async def main():
    async for request in pipework.reqrep.Server(sys.argv[1]):
        request.reply(request.data.upper())
asyncio.run(main())
"""


def test_async_for_fails_the_request_whose_body_raises(run: Run[None]) -> None:
    async def main() -> None:
        client, server = ends(Segment.anonymous())
        handed_on: list[asyncio.Task[None]] = []

        async def work(request: Request) -> None:
            with request:
                await asyncio.sleep(0.01)
                request.reply(b"later")

        async def serve() -> None:
            async for request in server:
                try:
                    if request.data == b"hand on":
                        handed_on.append(asyncio.create_task(work(request.detach())))
                    else:
                        request.reply(b"%d" % (100 // int(request.data)))
                except ArithmeticError:
                    pass

        serving = asyncio.create_task(serve())
        for _ in range(3):
            later = asyncio.create_task(client.acall(b"hand on"))
            with pytest.raises(pipework.Failed):
                await client.acall(b"0")
            assert await client.acall(b"5") == b"20"
            assert await later == b"later"
        server.close()
        await asyncio.gather(serving, *handed_on)

    run(main())


def test_closing_the_client_ends_its_waits(run: Run[None]) -> None:
    async def main() -> None:
        segment = Segment.anonymous(slots=2)
        client, server = ends(segment)
        calls = [asyncio.create_task(client.acall(b"taken"))]
        await turns()
        request = server.try_recv()
        calls.append(asyncio.create_task(client.acall(b"not taken")))
        await turns()
        calls.append(asyncio.create_task(client.acall(b"no slot")))
        await turns()
        client.close()
        for call in calls:
            with pytest.raises(pipework.Invalid, match="closed"):
                await call
        assert request is not None and not request.reply(b"too late")
        assert all_free(segment) and [member.role for member in segment.members()] == ["server"]

    run(main())


def test_forked_child_does_not_wake_tasks_of_the_parent(run: Run[None]) -> None:
    """The child closes a handle that its parent's tasks wait for, and must not wake those tasks."""

    async def main() -> None:
        client, server = ends(Segment.anonymous())
        waiting = [asyncio.create_task(client.acall(b"x")), asyncio.create_task(client.acall(b"y"))]
        await turns()

        def child() -> None:
            client.close()
            server.close()

        in_child(child)
        for _ in range(2):
            (await server.arecv()).reply(b"done")
        assert await asyncio.gather(*waiting) == [b"done"] * 2

    run(main())


def test_processes_that_share_only_a_path_call_each_other(run: Run[None], tmp_path: Path) -> None:
    path = tmp_path / "segment"
    segment = Segment.create(path, slots=8)
    with subprocess.Popen([sys.executable, "-c", SERVE, path]) as one, subprocess.Popen([sys.executable, "-c", SERVE, path]) as two:

        async def main() -> None:
            client = Client(path)
            for _ in range(3):
                replies = await asyncio.gather(*(client.acall(b"call %d" % i) for i in range(50)))
                assert replies == [b"CALL %d" % i for i in range(50)]
                await asyncio.sleep(0.01)

        run(main())
        assert Client(path).call(b"not in a loop", timeout=SOON) == b"NOT IN A LOOP"
        one.kill()
        two.kill()
    segment.recover()
    assert all_free(segment)


def test_acall_raises_peer_died_when_its_worker_is_killed(run: Run[None]) -> None:
    segment = Segment.anonymous()

    def work() -> None:
        server = Server(segment)
        with server.recv():
            time.sleep(SOON)

    with forked(work) as pid:

        async def main() -> None:
            client = Client(segment)
            call = asyncio.create_task(client.acall(b"x"))
            while segment.audit().taken == 0:
                await asyncio.sleep(0.001)
            os.kill(pid, signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(pipework.PeerDied):
                await call
            assert time.monotonic() - began < 0.25 + 1.0
            with pytest.raises(pipework.NoServer):
                await Client(segment, needs_server=True).acall(b"x")

        run(main())
    assert all_free(segment)


def test_loops_in_several_threads_share_ends(run: Run[None]) -> None:
    segment = Segment.anonymous(slots=8)
    client, server = ends(segment)
    done: list[int] = []

    async def call() -> None:
        serving = asyncio.create_task(answer(server))
        replies = await asyncio.gather(*(client.acall(b"call %d" % i) for i in range(200)))
        assert replies == [b"CALL %d" % i for i in range(200)]
        done.append(1)
        if len(done) == 3:
            server.close()
        await serving

    threads = [threading.Thread(target=run, args=(call(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 3 and all_free(segment)


def test_fork_inside_a_running_loop_works(run: Run[None]) -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)

    async def in_a_loop_of_its_own() -> None:
        serving = asyncio.create_task(answer(server))
        assert await client.acall(b"the child's") == b"THE CHILD'S"
        server.close()
        assert await serving == 1

    def child() -> None:
        assert client.pending == 0
        ticket = client.send(b"by hand")
        assert server.recv(timeout=SOON).reply(b"")
        client.recv(ticket, timeout=SOON)
        loop = asyncio.new_event_loop()
        run_on(loop, in_a_loop_of_its_own())

    async def main() -> None:
        # Both have a thread of theirs, which the child does not get.
        call = asyncio.create_task(client.acall(b"the parent's"))
        request = await server.arecv()
        receiving = asyncio.create_task(server.arecv())
        await turns()
        in_child(child)
        request.reply(b"kept")
        assert await call == b"kept"
        again = asyncio.create_task(client.acall(b"again"))
        (await receiving).reply(b"and again")
        assert await again == b"and again"

    run(main())


# ---------------------------------------------------------------- costs


def test_waiting_loop_uses_no_cpu(run: Run[None]) -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)

    async def main() -> None:
        # A reply without a waiting task wakes no task.
        ticket = client.send(b"")
        (await server.arecv()).reply(b"")
        receiving, call = asyncio.create_task(server.arecv()), asyncio.create_task(client.acall(b"x"))
        request = await receiving
        receiving = asyncio.create_task(server.arecv())
        await turns(20)
        before = time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - before < 0.1
        request.reply(b"")
        await call
        receiving.cancel()
        client.recv(ticket)

    run(main())


def test_many_calls_leave_nothing(run: Run[None]) -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)

    async def main() -> None:
        serving = asyncio.create_task(answer(server))

        loop = asyncio.get_running_loop()

        async def many() -> None:
            await asyncio.gather(*(client.acall(b"x" * 100) for _ in range(50)))

        async def cancelled() -> None:
            task = asyncio.create_task(client.acall(b"cancelled"))
            await turns(1)
            task.cancel()
            await asyncio.wait([task])

        def done(what: Callable[[], Coroutine[Any, Any, None]]) -> None:
            asyncio.run_coroutine_threadsafe(what(), loop).result(SOON)

        await asyncio.to_thread(leaves_nothing, lambda: done(many), 200)
        await asyncio.to_thread(leaves_nothing, lambda: done(cancelled), 2000)
        server.close()
        await serving

    run(main())
    assert client.pending == 0


def test_successive_loops_leave_nothing(run: Run[None]) -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)

    async def main() -> None:
        serving = asyncio.create_task(server.arecv())
        call = asyncio.create_task(client.acall(b"x"))
        (await serving).reply(b"y")
        assert await call == b"y"

    for _ in range(20):
        run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < 100
    until(lambda: threading.active_count() == 1)


def test_calls_survive_workers_that_are_killed(run: Run[None]) -> None:
    segment = Segment.anonymous(slots=8)

    async def main() -> None:
        client = Client(segment, redeliveries=3)
        for _ in range(5):
            with forked(lambda: echo(segment)), forked(lambda: echo(segment)) as victim:
                calls = [asyncio.create_task(client.acall(b"%d" % i)) for i in range(300)]
                await asyncio.sleep(random.uniform(0, 0.03))
                os.kill(victim, signal.SIGKILL)
                assert await asyncio.gather(*calls) == [b"%d" % i for i in range(300)]

    run(main())
    segment.recover()
    assert all_free(segment)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("what", ["a call", "any call", "a message", "a pipe"])
def test_loop_closed_with_calls_in_progress_leaves_nothing(
    what: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    segment = Segment.anonymous(slots=64)
    client, (reader, writer), (taking, giving) = Client(segment), atomic.pair(), pipe.pipe()

    async def wait() -> None:
        if what == "a call":
            await client.acall(b"x")
        elif what == "any call":
            client.send(b"x", timeout=SOON)
            async for _ in client.as_completed():
                pass
        elif what == "a message":
            await reader.arecv()
        else:
            await taking.arecv()

    def leave() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = new_loop()
        tasks = [loop.create_task(wait()) for _ in range(2)]
        loop.run_until_complete(asyncio.sleep(0.01))
        assert not any(task.done() for task in tasks)
        loop.close()
        return weakref.ref(loop)

    leave()
    gc.collect()
    descriptors = len(open_files())
    loops = [leave() for _ in range(3)]
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
    assert len(open_files()) == descriptors
    assert what == "any call" or all_free(segment)
    for end in (client, reader, writer, taking, giving):
        end.close()
