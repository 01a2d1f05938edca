"""Module `reqrep` between processes: forked, spawned, killed, and interrupted by signals."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pipework
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipework.reqrep import Audit, Client, Segment, Server, Stats
from processes import all_free, echo, ends, forked, stop_helpers, until
from support import SOON, Alarm, after, ctrl_c_after, in_child, signal_after

PROMPT = 0.25 + 1.0
"""Seconds after which a death must be known, with time for a busy machine."""


@pytest.fixture(autouse=True)
def forks_beside_threads() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        yield


# ---------------------------------------------------------------- death


def take_and_die(segment: Segment) -> None:
    server = Server(segment)
    with server.recv():
        os.kill(os.getpid(), signal.SIGKILL)


def test_call_raises_peer_died_when_its_server_is_killed() -> None:
    segment = Segment.anonymous()
    client = Client(segment)

    with forked(lambda: take_and_die(segment)):
        with pytest.raises(pipework.PeerDied) as raised:
            client.call(b"x", timeout=SOON)
        assert isinstance(raised.value, ConnectionResetError) and all_free(segment)

    def take_and_wait() -> None:
        server = Server(segment)
        with server.recv():
            time.sleep(SOON)

    with forked(take_and_wait) as pid:
        ticket = client.send(b"x")
        until(lambda: segment.audit().taken == 1)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(pipework.PeerDied):
            client.recv(ticket)
        assert time.monotonic() - began < PROMPT


@pytest.mark.parametrize("payload", [b"x", bytes(5000)])  # the second is longer than a slot
def test_redelivery_sends_the_request_to_another_server(payload: bytes) -> None:
    segment = Segment.anonymous()
    client = Client(segment, redeliveries=1)
    with forked(lambda: take_and_die(segment)):
        ticket = client.send(payload)
        with pytest.raises(TimeoutError):
            client.recv(ticket, timeout=1.0)
        server = Server(segment)
        request = server.recv(timeout=SOON)
        assert (request.data, request.redeliveries) == (payload, 1)
        request.reply(b"y")
        assert client.recv(ticket, timeout=SOON) == b"y" and segment.stats().redelivered == 1


def test_slots_of_dead_members_are_recovered() -> None:
    segment = Segment.anonymous(slots=4)

    def hold() -> None:
        client, server = ends(segment)
        for _ in range(4):
            client.send(b"x")
        requests = server.drain(2)
        requests[0].reply(b"")
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(hold) as pid:
        until(lambda: any(not member.is_alive for member in segment.members()))
        assert {member.pid for member in segment.members()} == {pid}
        audit = segment.audit()
        assert (audit.free, audit.waiting, audit.taken, audit.done, audit.orphaned) == (0, 2, 1, 1, 4)
        assert segment.recover() == 2
        assert all_free(segment) and segment.members() == []
        assert segment.stats().dead_members == 2 and segment.stats().recovered >= 4


def test_calls_survive_workers_that_are_killed() -> None:
    segment = Segment.anonymous(slots=8)
    client = Client(segment, redeliveries=3)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    died = 0
    for _ in range(10):
        with forked(lambda: echo(segment)), forked(lambda: echo(segment)) as victim:
            killer = after(draw.uniform(0, 0.03), partial(os.kill, victim, signal.SIGKILL))
            for turn in range(300):
                data = turn.to_bytes(4, "little")
                try:
                    assert client.call(data, timeout=SOON) == data
                except pipework.PeerDied:
                    died += 1
            killer.join()
    segment.recover()
    assert died == 0 and all_free(segment)


# ---------------------------------------------------------------- fork, spawn, exec


def test_inherited_ends_work_in_the_child() -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)
    ticket = client.send(b"the parent's")
    request = server.recv()

    def child() -> None:
        for refused in (lambda: client.recv(ticket), lambda: client.cancel(ticket), lambda: request.reply(b"stolen")):
            with pytest.raises(pipework.Stale):
                refused()
        other = client.send(b"the child's")
        server.recv(timeout=SOON).reply(b"for the child")
        assert client.recv(other, timeout=SOON) == b"for the child"
        assert len(segment.members()) == 4
        client.close()
        server.close()

    in_child(child)
    assert request.wanted and request.reply(b"for the parent")
    assert client.recv(ticket) == b"for the parent"
    assert len(segment.members()) == 2


def test_many_forked_workers_answer_calls() -> None:
    segment = Segment.anonymous(slots=8)
    client, server = ends(segment)

    def work() -> None:
        for request in server:
            request.reply(request.data + b" by %d" % os.getpid())

    with forked(work) as one, forked(work) as other:
        by = {int(client.call(b"x", timeout=SOON).split()[-1]) for _ in range(50)}
        assert by <= {one, other}


def spawned(client: Client, path: Client, segment: Segment) -> None:
    """The program of a process that receives only these ends."""
    assert client.call(b"by descriptor", timeout=SOON) == b"BY DESCRIPTOR"
    assert path.call(b"by path", timeout=SOON) == b"BY PATH"
    ticket = client.send(b"redelivered")
    assert client.recv(ticket, timeout=SOON) == b"REDELIVERED"
    assert segment.geometry.slots == 4


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_ends_can_be_pickled_to_other_processes(method: str, tmp_path: Path) -> None:
    unnamed, named = Segment.anonymous(slots=4), Segment.create(tmp_path / "segment")
    ends = (Client(unnamed, redeliveries=2), Client(named, needs_server=True), unnamed)
    servers = [Server(unnamed), Server(named)]

    def serve(server: Server) -> None:
        for request in server:
            request.reply(request.data.upper())

    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=spawned, args=ends)
    threads = [after(0.1, partial(serve, server)) for server in servers]
    process.start()
    process.join(SOON)
    assert process.exitcode == 0
    process.close()
    for server in servers:
        server.close()
    for thread in threads:
        thread.join()
    stop_helpers()


class Named(Client):
    """One that takes other arguments than its base class."""

    def __new__(cls, segment: Segment, name: str) -> Named:
        made = super().__new__(cls, segment, needs_server=True)
        made.name = name
        return made

    name: str


class NamedServer(Server):
    def __new__(cls, segment: Segment, *, name: str) -> NamedServer:
        made = super().__new__(cls, segment, max_message=1234)
        made.name = name
        return made

    name: str


def test_subclass_with_other_arguments_can_be_pickled(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path / "segment")
    with NamedServer(segment, name="first") as server, Named(segment, "second") as client:
        for end in (server, client):
            copy = pickle.loads(pickle.dumps(end))  # noqa: S301
            assert type(copy) is type(end) and copy.name == end.name
            assert copy.__reduce__()[1][2][1:] == end.__reduce__()[1][2][1:]
            copy.close()


def test_pickle_keeps_the_path_and_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = Server("segment", slots=3)
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(server))
    assert isinstance(copy, Server) and copy.segment.path == tmp_path / "segment"
    client = pickle.loads(pickle.dumps(Client(server.segment, redeliveries=1, needs_server=True, max_in_flight=1)))
    client.send(b"x")
    assert client.try_send(b"beyond its max_in_flight") is None
    request = server.recv(timeout=0)
    with pytest.raises(TypeError):
        pickle.dumps(request)
    (tmp_path / "segment").unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(server))


def test_process_with_only_the_path_can_call(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    server = Server(path)
    program = "import sys; from pipework.reqrep import Client; print(Client(sys.argv[1]).call(b'x', timeout=20).decode())"
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as child:
        server.recv(timeout=SOON).reply(b"heard")
        assert child.communicate(timeout=SOON)[0] == b"heard\n" and child.returncode == 0


# ---------------------------------------------------------------- signals


def waits() -> dict[str, Callable[[], object]]:
    """Calls that wait for ever."""
    client, server = ends(Segment.anonymous())
    full, taken_from = ends(Segment.anonymous(slots=1))
    full.send(b"")
    taken = client.send(b"taken")
    request = server.recv()
    keep = (taken_from, request)
    calls: dict[str, Callable[[], object]] = {
        "call": lambda: client.call(b"x"),
        "call without a slot": lambda: full.call(b"x"),
        "send without a slot": lambda: full.send(b"x"),
        "client recv": lambda: client.recv(taken),
        "server recv": server.recv,
        "for request": lambda: next(iter(server)),
        "recv_many": lambda: server.recv_many(10),
    }
    return {name: partial(lambda call, keep: call(), call, keep) for name, call in calls.items()}


@pytest.mark.parametrize("restart", [False, True], ids=["interrupting", "restarting"])
@pytest.mark.parametrize("name", list(waits()))
def test_exception_of_a_signal_handler_ends_the_wait(name: str, restart: bool) -> None:
    wait = waits()[name]
    began = time.monotonic()
    with pytest.raises(Alarm), signal_after(0.05, restart=restart):
        wait()
    assert time.monotonic() - began < SOON


def test_signal_handler_that_returns_does_not_end_the_wait() -> None:
    client, server = ends(Segment.anonymous())
    ran: list[bool] = []
    answerer = after(0.3, lambda: server.recv(timeout=SOON).reply(b"after the signal"))
    with signal_after(0.05, handler=lambda: ran.append(True)):
        assert client.call(b"x", timeout=SOON) == b"after the signal"
    answerer.join()
    assert ran == [True] and client.segment.stats().requests == 1, "it was sent once"
    began = time.monotonic()
    with pytest.raises(TimeoutError), signal_after(0.1, handler=lambda: None):
        server.recv(timeout=0.3)
    assert 0.3 <= time.monotonic() - began < SOON


def test_call_ended_by_a_signal_handler_is_cancelled() -> None:
    segment = Segment.anonymous()
    client, server = ends(segment)
    with pytest.raises(Alarm), signal_after(0.05):
        client.call(b"x")
    assert client.pending == 0 and all_free(segment) and segment.stats().cancelled == 1
    ticket = client.send(b"y")
    with pytest.raises(Alarm), signal_after(0.05):
        client.recv(ticket)
    assert server.recv(timeout=0).reply(b"z") and client.recv(ticket) == b"z", "a ticket stays good"


def test_timeout_error_of_a_signal_handler_is_raised_unchanged() -> None:
    client, server = ends(Segment.anonymous())

    def answer_and_raise() -> None:
        server.recv().reply(b"in time")
        raise TimeoutError("the handler's")

    with pytest.raises(TimeoutError, match="the handler's"), signal_after(0.05, handler=answer_and_raise):
        client.call(b"x")
    assert client.pending == 0 and all_free(client.segment)


def test_signal_handler_may_close_the_waiting_server() -> None:
    _client, server = ends(Segment.anonymous())
    with signal_after(0.05, handler=server.close):
        assert list(server) == []


def test_ctrl_c_from_another_thread() -> None:
    client = Client(Segment.anonymous())
    with pytest.raises(KeyboardInterrupt), ctrl_c_after(0.05):
        client.call(b"x", timeout=SOON)


def test_waiting_call_releases_the_lock() -> None:
    client, server = ends(Segment.anonymous(spin=0))
    counted = 0
    waiter = after(0, lambda: client.call(b"x", timeout=SOON))
    request = server.recv(timeout=SOON)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        counted += 1
    request.reply(b"")
    waiter.join()
    assert counted > 1000


# ---------------------------------------------------------------- hostile peers

VECTORS = Path(__file__).parents[2] / "vectors" / "reqrep"
INDEX = json.loads((VECTORS / "index.json").read_text())


@pytest.mark.skipif(INDEX["byte_order"] != sys.byteorder, reason="the vectors are made for the other byte order")
@pytest.mark.parametrize("vector", INDEX["vectors"], ids=lambda vector: str(vector["name"]))
def test_shared_vectors(vector: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes((VECTORS / f"{vector['name']}.bin").read_bytes())
    os.truncate(path, vector["len"])
    if vector["end"] is not None:
        with path.open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(bytes.fromhex(vector["end"]))
    if vector["refused"] is not None:
        before = path.read_bytes()
        with pytest.raises(pipework.Error) as raised:
            Segment.open(path)
        assert (raised.value.strerror, raised.value.filename) == (vector["refused"], str(path)) and path.read_bytes() == before
        return
    segment = Segment.open(path)
    assert segment.geometry._asdict() == vector["opens"]
    if "stats" in vector:
        agrees(segment.stats(), vector["stats"])
    if vector.get("audit") is not None:
        agrees(segment.audit(), vector["audit"])
    if "recovered" in vector:
        assert segment.recover() == vector["recovered"]
        agrees(segment.audit(), vector["audit_after"])
        assert segment.members() == []
    if "recv" in vector:
        server = Server(segment)
        if vector["recv"] == "corrupt":
            with pytest.raises(pipework.Corrupt):
                server.try_recv()
        elif vector["recv"] is None:
            assert server.try_recv() is None
        else:
            request = server.try_recv()
            assert request is not None
            got = {"data": request.data.decode("latin-1"), "flags": request.flags, "redeliveries": request.redeliveries}
            assert got == vector["recv"] and request.reply(b"")


def agrees(told: Audit | Stats, expected: dict[str, int | None]) -> None:
    """A null in the index depends on the reader's way of looking."""
    known = {name: number for name, number in expected.items() if number is not None}
    assert {name: number for name, number in told._asdict().items() if name in known} == known


@given(scribbles=st.lists(st.tuples(st.integers(128, 9000), st.binary(min_size=1, max_size=16)), max_size=40))
@settings(max_examples=50, deadline=None)
def test_random_bytes_in_a_segment_give_only_errors(scribbles: list[tuple[int, bytes]]) -> None:
    segment = Segment.anonymous(slots=2, request_bytes=100, reply_bytes=100, members=4)
    client, server = ends(segment)

    def live() -> None:
        ticket = client.try_send(b"x")
        for request in server.drain(5):
            assert len(request.data) <= 100
            request.reply(b"y")
        if ticket is not None:
            client.try_recv(ticket)
        client.call(b"z", timeout=0)

    for at, data in scribbles:
        os.pwrite(segment.fileno(), data, min(at, os.fstat(segment.fileno()).st_size - len(data)))
        for act in (live, segment.stats, segment.audit, segment.members, segment.recover):
            try:
                act()
            except pipework.Error:
                pass
