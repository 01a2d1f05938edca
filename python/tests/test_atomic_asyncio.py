"""Module `atomic` in asyncio, on the ordinary event loop and on uvloop."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pipework import _asyncio_fd, atomic
from support import SOON

uvloop: Any
try:
    uvloop = importlib.import_module("uvloop")
except ImportError:
    uvloop = None
else:
    uvloop.new_event_loop().close()  # the first one opens what all of them share

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on that loop, and checks that no task waits afterwards."""
    if request.param == "uvloop":
        if uvloop is None:
            pytest.skip("uvloop is not installed")
        new_loop = uvloop.new_event_loop
    else:
        new_loop = asyncio.new_event_loop

    def run(work: Coroutine[Any, Any, None]) -> None:
        loop = new_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(work, SOON))
            assert not _asyncio_fd._waiting.get(loop), "a task still waits"
        finally:
            loop.close()

    return run


def test_items_arrive_in_the_order_of_sending(run: Run) -> None:
    async def work() -> None:
        reader, writer = atomic.pair(mixed=True)

        async def produce() -> None:
            for number in range(300):
                await writer.asend(b"%d" % number)
                if number % 50 == 0:
                    os.write(writer.fileno(), b"line\n")
                    await asyncio.sleep(0.002)
            writer.close()

        producer = asyncio.create_task(produce())
        items = [item async for item in reader]
        await producer
        messages = [int(item.data) for item in items if isinstance(item, atomic.Message)]
        assert messages == list(range(300))
        assert len(items) == 306
        with pytest.raises(EOFError):
            await reader.anext_item()

    run(work())


def test_asend_waits_for_space_without_blocking_the_loop(run: Run) -> None:
    async def work() -> None:
        reader, writer = atomic.pair()
        data = os.urandom(2_000_000)
        sender = asyncio.create_task(writer.asend(data))
        await asyncio.sleep(0.02)
        assert not sender.done() and writer.pending > 0
        assert await reader.arecv() == data
        await sender
        writer.enqueue(b"later")
        await writer.aflush()
        assert await reader.arecv() == b"later"

    run(work())


def test_cancelled_task_takes_nothing(run: Run) -> None:
    async def work() -> None:
        reader, writer = atomic.pair()
        for attempt in range(50):
            task = asyncio.create_task(reader.arecv())
            for _ in range(attempt % 4):
                await asyncio.sleep(0)
            if attempt % 2:
                writer.send(b"%d" % attempt)
            task.cancel()
            try:
                assert await task == b"%d" % attempt
            except asyncio.CancelledError:
                if attempt % 2:
                    assert await reader.arecv() == b"%d" % attempt

    run(work())


def test_tasks_share_a_reader(run: Run) -> None:
    async def work() -> None:
        reader, writer = atomic.pair()
        tasks = [asyncio.create_task(reader.arecv()) for _ in range(5)]
        await asyncio.sleep(0.01)
        tasks[2].cancel()
        writer.send_many([b"a", b"b", b"c", b"d"])
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(each for each in done if isinstance(each, bytes)) == [b"a", b"b", b"c", b"d"]
        assert isinstance(done[2], asyncio.CancelledError)

    run(work())


def test_close_ends_the_waits_of_tasks(run: Run) -> None:
    async def work() -> None:
        for close_elsewhere in (False, True):
            reader, writer = atomic.pair()
            task = asyncio.create_task(reader.arecv())
            await asyncio.sleep(0.01)
            if close_elsewhere:
                thread = threading.Thread(target=reader.close)
                thread.start()
                thread.join()
            else:
                reader.close()
            with pytest.raises(ValueError, match="is closed"):
                await task
            # The number is free again, and its next use works.
            other, other_writer = atomic.pair()
            task = asyncio.create_task(other.arecv())
            await asyncio.sleep(0)
            other_writer.send(b"x")
            assert await task == b"x"
            writer.close()

    run(work())


def test_busy_reader_lets_other_tasks_run(run: Run) -> None:
    async def work() -> None:
        reader, writer = atomic.pair()
        writer.send_many([b"x"] * 1000)
        writer.close()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        async for _ in reader:
            pass
        ticker.cancel()
        assert ticks >= 10

    run(work())


def test_listen_survives_its_writers(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        path = tmp_path / "fifo"
        atomic.create_fifo(path)
        with atomic.Reader.listen(path) as reader:
            for _ in range(3):
                program = f"import pipework.atomic as a\nwith a.Writer.fifo({str(path)!r}) as w: w.send(b'hello' * 2000)"
                child = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
                assert await reader.arecv() == b"hello" * 2000
                assert await child.wait() == 0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # child watchers of Python 3.12
        run(work())


def test_unfinished_frame_becomes_text_after_frame_timeout(run: Run) -> None:
    async def work() -> None:
        reader, writer = atomic.pair(mixed=True, frame_timeout=0.05)
        with reader, writer:
            os.write(writer.fileno(), b"\x0estray\n")
            assert reader.try_next_item() is None
            due = reader.next_timeout()
            assert due is not None and 0 <= due <= 0.05
            assert await reader.anext_item() == atomic.Line(b"\x0estray\n")
            assert reader.next_timeout() is None

    run(work())


def test_thread_may_close_an_end_that_a_task_waits_for(run: Run) -> None:
    """The descriptor's number is free for others only once the task's loop watches it no more."""

    async def work() -> None:
        kept = []
        for _ in range(200):
            reader, writer = atomic.pair()
            waiting = asyncio.create_task(reader.arecv())
            await asyncio.sleep(0)
            closing = threading.Thread(target=reader.close)
            closing.start()
            closing.join()
            # The loop can wait for a new descriptor with the same number.
            next_reader, next_writer = atomic.pair()
            next_waiting = asyncio.create_task(next_reader.arecv())
            await asyncio.sleep(0)
            await next_writer.asend(b"heard")
            assert await next_waiting == b"heard"
            with pytest.raises(ValueError, match="is closed"):
                await waiting
            kept.append((next_reader, next_writer, writer))
            if len(kept) > 5:
                for end in kept.pop(0):
                    end.close()
        for ends in kept:
            for end in ends:
                end.close()

    run(work())


def test_thread_may_close_an_end_that_a_loop_is_about_to_wait_for(run: Run) -> None:
    async def work() -> None:
        for turn in range(300):
            reader, writer = atomic.pair()
            closing = threading.Thread(target=reader.close)
            waiting = asyncio.create_task(reader.arecv())
            if turn % 2:
                await asyncio.sleep(0)
            closing.start()
            with pytest.raises(ValueError, match="is closed"):
                await waiting
            closing.join()
            writer.close()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run(work())
    finally:
        sys.setswitchinterval(interval)
