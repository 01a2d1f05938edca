"""Module `reqrep`: each public call."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pipework
import pytest
from pipework import atomic
from pipework.reqrep import Client, Geometry, Message, Request, Segment, Server
from processes import all_free, ends, until
from support import SOON, after


def served(server: Server, answer: Callable[[Request], object], count: int = 1) -> threading.Thread:
    """A thread that takes so many requests."""
    thread = threading.Thread(target=lambda: [answer(server.recv(timeout=SOON)) for _ in range(count)])
    thread.start()
    return thread


def test_call_returns_the_reply() -> None:
    segment = Segment.anonymous(request_bytes=10_000, reply_bytes=20_000)
    client, server = ends(segment)
    sizes = (0, 1, 47, 48, 49, 4095, 4096, 10_000)
    thread = served(server, lambda request: request.reply(request.data * 2), 3 * len(sizes))
    for size in sizes:
        data = os.urandom(size)
        for bytes_like in (data, bytearray(data), memoryview(data)):
            assert client.call(bytes_like, timeout=SOON) == data * 2
    thread.join()
    assert all_free(segment)
    assert (segment.stats().requests, segment.stats().replies) == (24, 24)


def test_flags_travel_both_ways() -> None:
    client, server = ends(Segment.anonymous())
    thread = served(server, lambda request: request.reply(b"answer", flags=request.flags ^ 0xFFFF_FFFF), 2)
    assert client.call_message(b"", timeout=SOON, flags=0x8000_0001) == Message(b"answer", 0x7FFF_FFFE)
    ticket = client.send(b"", flags=5)
    assert client.recv_message(ticket, timeout=SOON).flags == 0xFFFF_FFFA
    thread.join()
    plain = client.try_send(b"x")
    assert plain is not None and client.try_recv_message(plain) is None
    request = server.recv()
    assert request.flags == 0
    request.reply(b"y")
    assert client.try_recv_message(plain) == Message(b"y", 0)
    for wrong in (-1, 1 << 32):
        with pytest.raises(pipework.Invalid):
            client.send(b"", flags=wrong)


def test_payload_longer_than_a_slot_arrives_whole() -> None:
    segment = Segment.anonymous(request_bytes=100, reply_bytes=50)
    client, server = ends(segment)
    data = bytes(range(256)) * 40
    thread = served(server, lambda request: request.reply(request.data[::-1]), 3)
    assert client.call(data, timeout=SOON) == data[::-1]
    assert client.recv(client.send(data, timeout=SOON), timeout=SOON) == data[::-1]
    assert client.call(b"short", timeout=SOON) == b"trohs"
    thread.join()
    assert all_free(segment)


def test_request_is_answered_only_once() -> None:
    client, server = ends(Segment.anonymous())
    ticket = client.send(b"one")
    request = server.recv()
    assert request.wanted and repr(request) == "<Request of 3 bytes>"
    assert request.reply(b"1") and not request.wanted and repr(request) == "<Request of 3 bytes, answered>"
    with pytest.raises(ValueError, match="answered already"):
        request.reply(b"2")
    request.fail()
    assert (client.recv(ticket), request.data) == (b"1", b"one")


def test_dropped_request_fails_at_once() -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)

    def dropped() -> None:
        server.recv()

    def in_a_block() -> None:
        with pytest.raises(ZeroDivisionError), server.recv() as request:
            request.wanted / 0

    for let_go in (dropped, in_a_block, lambda: server.recv().fail()):
        ticket = client.send(b"x")
        let_go()
        with pytest.raises(pipework.Failed, match="gave up|ZeroDivisionError"):
            client.recv(ticket)
    assert all_free(segment)


def test_for_loop_fails_the_request_whose_body_raises() -> None:
    """The variable of the loop goes on to hold the request, while the loop waits for the next
    one."""
    segment = Segment.anonymous()
    client, server = ends(segment)

    def serve() -> None:
        for request in server:
            try:
                request.reply(b"%d" % (100 // int(request.data)))
            except ArithmeticError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    for _ in range(3):
        with pytest.raises(pipework.Failed):
            client.call(b"0", timeout=SOON)
        assert client.call(b"5", timeout=SOON) == b"20"
    server.close()
    thread.join()
    client, server = ends(Segment.anonymous())
    ticket = client.send(b"1")
    for number, _request in enumerate(server):
        if number == 1:
            break
        other = client.send(b"2")
    with pytest.raises(pipework.Failed):
        client.recv(ticket, timeout=SOON)
    assert _request.data == b"2" and _request.reply(b"3")  # a loop that is left has not come back
    assert client.recv(other) == b"3"


def test_detached_request_outlives_its_iteration() -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)
    tickets = [client.send(b"%d" % number) for number in range(4)]
    detached, forgotten = [], []
    for number, request in enumerate(server):
        if number < 2:
            detached.append(request.detach())
        else:
            forgotten.append(request)
        if number == 3:
            server.close()
    for request in detached:
        assert request.wanted and request.reply(request.data)
    for request in forgotten:
        with pytest.raises(pipework.Invalid, match="detach"):
            request.reply(b"")
    assert [client.recv(ticket, timeout=SOON) for ticket in tickets[:2]] == [b"0", b"1"]
    for ticket in tickets[2:]:
        with pytest.raises(pipework.Failed):
            client.recv(ticket, timeout=SOON)


def test_recv_takes_tickets_in_any_order() -> None:
    segment = Segment.anonymous(slots=16)
    client, server = ends(segment)
    tickets = [client.send(bytes([i])) for i in range(16)]
    assert (client.pending, segment.waiting, client.try_send(b"")) == (16, 16, None)
    with pytest.raises(TimeoutError):
        client.send(b"", timeout=0.01)
    assert segment.stats().full == 2
    requests = server.recv_many(100)
    assert [request.data for request in requests] == [bytes([i]) for i in range(16)]
    assert client.try_recv(tickets[3]) is None
    for request in reversed(requests):
        request.reply(request.data + b"!")
    for i in (7, 0, 15, 3):
        assert client.recv(tickets[i]) == bytes([i]) + b"!"
        with pytest.raises(pipework.Stale):
            client.recv(tickets[i])
    assert client.pending == 12
    other = Client(segment)
    with pytest.raises(pipework.Stale):
        other.recv(tickets[1])
    for i in (1, 2, 4, 5, 6, *range(8, 15)):
        assert client.try_recv(tickets[i]) == bytes([i]) + b"!"
    assert client.pending == 0 and all_free(segment)


def test_cancel_ends_a_call_and_returns_a_late_reply() -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)
    waiting, taken, done = (client.send(name) for name in (b"taken", b"done", b"waiting"))
    waiting, taken, done = done, waiting, taken
    requests = server.drain(2)
    requests[1].reply(b"")
    assert client.cancel(waiting) and client.cancel(taken) and not client.cancel(done)
    assert not requests[0].wanted and not requests[0].reply(b"too late")
    assert client.recv(done) == b""
    for ticket in (waiting, taken, done):
        with pytest.raises(pipework.Stale, match="reqrep cancel"):
            client.cancel(ticket)
    assert server.try_recv() is None and all_free(segment) and segment.stats().cancelled == 2


def test_drain_and_recv_many_return_what_waits() -> None:
    client, server = ends(Segment.anonymous())
    assert server.try_recv() is None and server.drain(10) == [] and server.recv_many(0) == []
    with pytest.raises(TimeoutError):
        server.recv_many(10, timeout=0.01)
    tickets = [client.send(b"") for _ in range(5)]
    assert len(server.recv_many(2)) == 2 and server.clear() == 3
    for ticket in tickets:
        with pytest.raises(pipework.Failed):
            client.recv(ticket)


def test_calls_raise_timeout_error_at_their_timeout() -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)
    for timeout in (0, 0.01, 0.3):
        began = time.monotonic()
        with pytest.raises(TimeoutError) as raised:
            client.call(b"x", timeout=timeout)
        assert isinstance(raised.value, pipework.TimedOut) and time.monotonic() - began >= timeout
        assert raised.value.op == "reqrep call", "not the step that was waiting"
    with pytest.raises(TimeoutError, match="^reqrep call: "):
        client.call_into(b"x", bytearray(9), timeout=0.01)
    assert (client.pending, server.try_recv(), all_free(segment)) == (0, None, True), "such a call is cancelled"
    ticket = client.send(b"y")
    with pytest.raises(TimeoutError):
        client.recv(ticket, timeout=0.01)
    server.recv(timeout=SOON).reply(b"z")
    assert client.recv(ticket, timeout=0) == b"z", "the ticket stays good"
    with pytest.raises(TimeoutError):
        server.recv(timeout=0)
    for wrong in (-1, float("nan")):
        for wait in (client.call, client.send):
            with pytest.raises(ValueError, match="timeout"):
                wait(b"", timeout=wrong)
        with pytest.raises(ValueError, match="timeout"):
            server.recv(timeout=wrong)
    with pytest.raises(TypeError):
        server.recv(timeout="soon")  # type: ignore[arg-type]


def test_timeout_of_the_client_is_the_default_of_its_calls() -> None:
    segment = Segment.anonymous(slots=3)
    client, server = Client(segment, timeout=0), Server(segment)
    assert (client.timeout, Client(segment).timeout) == (0.0, None)
    ticket, buffer = client.send(b""), bytearray(10)
    calls: list[Callable[[], object]] = [
        lambda: client.call(b""),
        lambda: client.call_message(b""),
        lambda: client.call_into(b"", buffer),
        lambda: client.recv(ticket),
        lambda: client.recv(ticket, timeout=...),
        lambda: client.recv_message(ticket),
        lambda: client.recv_into(ticket, buffer),
        lambda: next(client.stream(b"")),
        lambda: next(client.stream_messages(b"")),
        lambda: next(client.as_completed()),
        lambda: asyncio.run(in_a_task(client.acall(b""))),
        lambda: asyncio.run(in_a_task(client.acall_message(b""))),
        lambda: asyncio.run(in_a_task(client.arecv(ticket))),
        lambda: asyncio.run(in_a_task(client.arecv_message(ticket))),
        lambda: asyncio.run(in_a_task(anext(client.astream(b"")))),
        lambda: asyncio.run(in_a_task(anext(client.astream_messages(b"")))),
    ]
    for call in calls:
        with pytest.raises(pipework.TimedOut):
            call()
    while client.try_send(b"") is not None:
        pass
    for send in (client.send, lambda data: client.send_many([data])):
        with pytest.raises(pipework.TimedOut):
            send(b"")
    server.clear()
    for timeout in (SOON, None):
        thread = after(0.05, lambda: served(server, lambda request: request.reply(request.data)).join())
        assert client.call(b"in time", timeout=timeout) == b"in time"
        thread.join()


async def in_a_task(wait: Awaitable[object]) -> object:
    return await wait


def test_timeout_of_the_server_is_its_default_except_in_loops() -> None:
    segment = Segment.anonymous()
    client, server = Client(segment), Server(segment, timeout=0)
    assert (server.timeout, Server(segment).timeout) == (0.0, None)
    receives: list[Callable[[], object]] = [
        server.recv,
        server.claim,
        lambda: server.recv_many(2),
        lambda: asyncio.run(in_a_task(server.arecv())),
        lambda: asyncio.run(in_a_task(server.arecv_many(2))),
        lambda: asyncio.run(in_a_task(server.arecv_many(2, linger=0.01))),
    ]
    for receive in receives:
        with pytest.raises(pipework.TimedOut):
            receive()
    takes: list[Callable[[], Request]] = [lambda: server.recv(timeout=None), lambda: next(iter(server))]
    for take in takes:
        thread = after(0.05, lambda: client.send(b"late"))
        assert take().data == b"late"
        thread.join()
    thread = after(0, lambda: server.serve_batches(lambda batch: batch))
    time.sleep(0.01)
    assert client.call(b"batched", timeout=SOON) == b"batched"
    server.stop()
    thread.join()


def test_needs_server_raises_no_server() -> None:
    segment = Segment.anonymous()
    client = Client(segment, needs_server=True)
    for call in (client.call, client.send, client.try_send):
        with pytest.raises(ConnectionRefusedError) as raised:
            call(b"x")
        assert isinstance(raised.value, pipework.NoServer)
    server = Server(segment)
    ticket = client.send(b"x")
    server.close()
    with pytest.raises(pipework.NoServer):
        client.recv(ticket, timeout=SOON)
    assert all_free(segment)


def test_max_in_flight_limits_calls_in_flight() -> None:
    segment = Segment.anonymous(slots=4)
    client, other, server = Client(segment, max_in_flight=2), Client(segment), Server(segment)
    first, second = client.send(b"a"), client.send(b"b")
    assert client.try_send(b"c") is None
    with pytest.raises(pipework.TimedOut):
        client.send(b"c", timeout=0.01)
    with pytest.raises(pipework.TimedOut):
        client.call(b"c", timeout=0.01)
    assert other.cancel(other.send(b"the others have their slots", timeout=SOON))
    assert client.cancel(second)
    assert client.cancel(client.send(b"d", timeout=SOON))
    server.recv(timeout=SOON).reply(b"A")
    assert client.recv(first, timeout=SOON) == b"A"
    tickets = [client.send(b"e", timeout=SOON), client.send(b"f", timeout=SOON)]
    assert client.try_send(b"g") is None and all(client.cancel(ticket) for ticket in tickets)


def test_request_supports_match() -> None:
    client, server = ends(Segment.anonymous())
    client.send(b"stop")
    match server.recv():
        case Request(b"go"):
            raise AssertionError
        case Request(data):
            assert data == b"stop"


def test_iterating_ends_when_the_server_is_closed() -> None:
    client, server = ends(Segment.anonymous())
    got: list[bytes] = []

    def serve() -> None:
        for request in server:
            got.append(request.data)
            request.reply(b"")

    threads = [after(0, serve) for _ in range(3)]
    for i in range(100):
        client.call(bytes([i]), timeout=SOON)
    server.close()
    server.close()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    assert sorted(got) == [bytes([i]) for i in range(100)] and server.closed
    with pytest.raises(ValueError, match="this server is closed"):
        server.recv()
    assert list(server) == []


def test_closing_leaves_the_segment() -> None:
    segment = Segment.anonymous()
    with Client(segment) as client, Server(segment) as server:
        roles = [(member.role, member.pid, member.is_alive) for member in segment.members()]
        assert roles == [("client", os.getpid(), True), ("server", os.getpid(), True)]
        assert all(abs(member.since - time.time()) < SOON for member in segment.members())
    assert segment.members() == [] and client.closed and server.closed
    with pytest.raises(pipework.Invalid, match="this client is closed"):
        client.call(b"")
    client, server = ends(segment)
    client.send(b"x")
    request = server.recv()
    server.close()
    assert [member.role for member in segment.members()] == ["client", "server"], "it still has a request"
    request.reply(b"y")
    assert [member.role for member in segment.members()] == ["client"]


def test_threads_can_share_a_client() -> None:
    segment = Segment.anonymous(slots=4)
    client = Client(segment)
    servers = [Server(segment) for _ in range(2)]
    serving = [threading.Thread(target=lambda s=server: [r.reply(r.data) for r in s]) for server in servers]
    wrong: list[bytes] = []

    def call(name: int) -> None:
        for turn in range(200):
            data = b"%d-%d" % (name, turn)
            if client.call(data, timeout=SOON) != data:
                wrong.append(data)

    calling = [threading.Thread(target=call, args=(name,)) for name in range(8)]
    for thread in serving + calling:
        thread.start()
    for thread in calling:
        thread.join()
    for server in servers:
        server.close()
    for thread in serving:
        thread.join()
    assert wrong == [] and all_free(segment)


# ---------------------------------------------------------------- segments


def test_segment_is_found_by_path(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    with pytest.raises(FileNotFoundError, match="reqrep open"):
        Client(path)
    server = Server(path, slots=2, queue=64, request_bytes=10, reply_bytes=20, members=3, mode=0o640, sparse=True, spin=0)
    assert server.segment.geometry == Geometry(2, 64, 10, 20, 3, 8)
    assert server.segment.path == path and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert repr(server.segment) == f'<Segment "{path}", 2 slots, 3 members>'
    client = Client(str(path))
    assert client.segment.geometry == server.segment.geometry
    with pytest.raises(FileExistsError):
        Segment.create(path)
    again = Segment(path, slots=2)
    assert again.geometry.slots == 2, "it was there"
    client.send(b"x")
    assert again.waiting == 1
    Client(again)
    both = Client(again)
    with pytest.raises(BlockingIOError, match="reqrep attach"):
        Client(again)
    both.close()
    again.sync()
    assert again.unlink() and not again.unlink() and not path.exists()
    assert server.recv(timeout=0).reply(b"y"), "an attached server stays attached after unlink"
    assert Server(path).segment.geometry.slots == 256


def test_memfd_segment_has_no_path() -> None:
    segment = Segment.memfd("by another name")
    assert segment.path is None and "by another name" in os.readlink(f"/proc/self/fd/{segment.fileno()}")
    with pytest.raises(pipework.Invalid):
        segment.unlink()
    copy = os.dup(segment.fileno())
    client, server = Client(segment), Server(Segment.from_fd(copy))
    files = [os.fstat(each.fileno()) for each in (segment, server.segment)]
    assert os.path.samestat(*files) and server.segment.fileno() != segment.fileno()
    client.send(b"x")
    assert server.recv().data == b"x"
    read, write = os.pipe()
    with pytest.raises(pipework.Invalid):
        Segment.from_fd(read)
    os.close(read)
    os.close(write)
    for wrong in (-1, 1 << 20):
        with pytest.raises(OSError):
            Segment.from_fd(wrong)


def test_open_refuses_files_that_are_no_segment(tmp_path: Path) -> None:
    good = tmp_path / "good"
    Segment.create(good)
    link = tmp_path / "link"
    link.symlink_to(good)
    for path in (link, tmp_path):
        with pytest.raises(pipework.Invalid):
            Segment.open(path)
    cut = tmp_path / "cut"
    cut.write_bytes(good.read_bytes()[:5000])
    strange = tmp_path / "strange"
    strange.write_bytes(os.urandom(10_000))
    empty = tmp_path / "empty"
    empty.touch()
    for path, refusal in ((cut, pipework.Corrupt), (strange, pipework.Incompatible)):
        with pytest.raises(refusal):
            Segment(path)
    with pytest.raises(pipework.Incompatible):
        Segment.open(empty)
    Segment(empty, slots=2)  # as after `tempfile`, which leaves an empty file
    assert cut.exists() and strange.exists()
    for sizes in ({"slots": 0}, {"slots": 1 << 21}, {"members": 0}, {"members": 1 << 16}, {"request_bytes": (1 << 30) + 1}):
        with pytest.raises(pipework.Invalid):
            Segment.anonymous(**sizes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option .slot."):
        Segment.anonymous(slot=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="exists already"):
        Server(Segment.anonymous(), slots=5)
    with pytest.raises(TypeError, match="path"):
        Client(5)  # type: ignore[call-overload]
    for spin in (-1, float("inf")):
        with pytest.raises(ValueError):
            Segment.anonymous(spin=spin)
    with pytest.raises(OSError) as raised:
        Segment.create(f"/dev/shm/pipework-too-large-{os.getpid()}", slots=1 << 20, request_bytes=1 << 20, reply_bytes=1 << 20)
    assert isinstance(raised.value, pipework.Os)


# ---------------------------------------------------------------- other event loops than asyncio's


def test_doorbells_are_readable_while_work_waits() -> None:
    import select

    segment = Segment.anonymous(slots=1)
    client, server = ends(segment)
    bells = requests, replies, space = server.doorbell(), client.doorbell(), client.send_doorbell()

    def readable() -> list[int]:
        return select.select(bells, [], [], 0)[0]

    try:
        until(lambda: readable() == [space])
        ticket = client.send(b"x")
        assert client.try_send(b"y") is None
        until(lambda: readable() == [requests])
        request = server.recv()
        assert server.try_recv() is None
        until(lambda: readable() == [])
        request.reply(b"z")
        until(lambda: readable() == [replies])
        assert client.try_recv(ticket) == b"z"
        until(lambda: readable() == [space])
    finally:
        for bell in bells:
            os.close(bell)


def test_full_segment_error_names_the_limit_and_the_option() -> None:
    segment = Segment.anonymous(slots=2, members=2)
    with Client(segment), Server(segment):
        for end in (Client, Server):
            with pytest.raises(pipework.WouldBlock, match="all places for members are taken: it has 2: .*`members`"):
                end(segment)


def test_path_may_be_str_bytes_or_path_like(tmp_path: Path) -> None:
    path = tmp_path / "caf\xe9"
    made = Segment.create(os.fsencode(path), slots=2)
    for other in (path, str(path), os.fsencode(path)):
        assert Segment.open(other).path == made.path == path
        Client(other).close()
    atomic.create_fifo(os.fsencode(tmp_path / "fifo"))
    with atomic.Reader.fifo(os.fsencode(tmp_path / "fifo")):
        atomic.Writer.fifo(os.fsencode(tmp_path / "fifo")).close()
    with pytest.raises(TypeError):
        Segment(1)  # type: ignore[arg-type]


def test_second_arguments_mean_the_same_in_similar_functions() -> None:
    client, server = ends(Segment.anonymous(slots=2))
    tickets = [client.send(b"x") for _ in range(2)]
    server.recv().reply(b"", flags=5)

    async def areply() -> None:
        await server.recv().areply(b"", flags=5)

    asyncio.run(areply())
    assert [client.recv_message(ticket).flags for ticket in tickets] == [5, 5]


def test_segment_close_releases_the_interpreter_lock() -> None:
    """Another thread runs here only while the lock is released."""
    ran, is_over = 0, False

    def run() -> None:
        nonlocal ran
        while not is_over:
            ran += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=run)
    thread.start()
    sys.setswitchinterval(1000)
    try:
        for close in (Segment.close, lambda segment: None):
            end = time.monotonic() + SOON
            while True:
                segment = Segment.anonymous(slots=1, request_bytes=1 << 24, reply_bytes=1 << 24)
                count = ran
                close(segment)
                del segment
                if ran != count:
                    break
                assert time.monotonic() < end, "no other thread ran"
    finally:
        is_over = True
        sys.setswitchinterval(before)
        thread.join()
