"""Calls with `codec=`: objects in place of bytes, at the client and at handlers."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, assert_type

import pipework
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipework import Corrupt, Invalid, PeerDied, RemoteError
from pipework._codecs import found
from pipework.reqrep import Client, Message, Segment, Server
from processes import all_free, forked, in_time, until
from support import SOON

numpy = pytest.importorskip("numpy")


@dataclasses.dataclass
class Point:
    name: str
    at: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    at: Any


class Backwards:
    """A codec of a program: text, backwards."""

    def dumps(self, value: str, /) -> str:
        return value[::-1]

    def loads(self, data: bytes, /) -> str:
        return data.decode()[::-1]


@pytest.fixture
def segment() -> Iterator[Segment]:
    """One whose slots have space for the reason of an error, and are all free in the end."""
    with Segment.anonymous(slots=4, request_bytes=64, reply_bytes=400, members=8) as segment:
        yield segment
        segment.recover()
        until(lambda: all_free(segment))


def needs(codec: Any) -> Any:
    if codec == "msgpack":
        pytest.importorskip("msgpack")
    return codec


@contextmanager
def serving(segment: Segment, handler: Callable[[Any], Any], codec: Any, **options: Any) -> Iterator[Client[Any]]:
    """A client of a server whose handler is `handler`."""
    server = Server(segment)
    thread = threading.Thread(daemon=True, target=server.serve, args=(handler,), kwargs={"codec": codec, **options})
    thread.start()
    try:
        with Client(segment, codec=codec, timeout=SOON) as client:
            yield client
    finally:
        server.stop()
        thread.join(SOON)
        server.close()
    assert not thread.is_alive()


def same(value: Any) -> Any:
    return value


def kind(value: Any) -> str:
    return type(value).__name__


@pytest.mark.parametrize("codec", ["json", "msgpack", "pickle", json, pickle])
def test_object_goes_to_the_handler_and_back(segment: Segment, codec: Any) -> None:
    value: Any
    with serving(segment, same, needs(codec)) as client:
        for value in (None, True, 7, 0.5, "é\N{SNOWMAN}", [], {"a": [1, {"b": None}]}, "long " * 1000):
            assert client.call(value) == value
        assert client.codec is codec


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_dataclass_becomes_a_dict_and_an_array_a_list(segment: Segment, codec: Any) -> None:
    with serving(segment, same, needs(codec)) as client:
        point = Point("p", numpy.arange(6.0).reshape(2, 3) / 7)
        assert client.call(point) == {"name": "p", "at": point.at.tolist()}
        assert client.call([Point("q", Point("r", (1, 2)))]) == [{"name": "q", "at": {"name": "r", "at": [1, 2]}}]
        assert client.call({"count": numpy.int64(3), "part": numpy.float32(0.5), "yes": numpy.bool_(True)}) == {
            "count": 3,
            "part": 0.5,
            "yes": True,
        }
        assert client.call(array.array("d", [1.5, 2.5])) == [1.5, 2.5]
    with serving(segment, kind, codec) as client:
        assert client.call(point) == "dict" and client.call(point.at) == "list"


def test_pickle_carries_dataclasses_and_arrays_as_they_are(segment: Segment) -> None:
    with serving(segment, same, "pickle") as client:
        point = client.call(Point("p", numpy.arange(6).reshape(2, 3)))
        assert isinstance(point, Point) and point.at.shape == (2, 3) and point.at.flags.writeable
    with serving(segment, kind, "pickle") as client:
        assert client.call(Point("p", 1)) == "Point" and client.call(numpy.zeros(3)) == "ndarray"


def test_msgpack_carries_bytes(segment: Segment) -> None:
    with serving(segment, same, needs("msgpack")) as client:
        assert client.call({"data": bytes(range(256))}) == {"data": bytes(range(256))}


@pytest.mark.parametrize("how", ["serve", "aserve", "serve_batches"])
@pytest.mark.parametrize("blobs", [8, 1, 0])
def test_long_array_is_a_blob_that_an_idle_server_does_not_keep(how: str, blobs: int) -> None:
    """Both ways, with and without space for blobs in the messages."""
    given = numpy.arange(1 << 18)

    async def same_in_task(value: Any) -> Any:
        return value

    with Segment.anonymous(slots=4, blobs=blobs) as segment, Server(segment) as server:
        serves: dict[str, Callable[[], object]] = {
            "serve": lambda: server.serve(same, codec="pickle"),
            "aserve": lambda: asyncio.run(server.aserve(same_in_task, codec="pickle")),
            "serve_batches": lambda: server.serve_batches(list, codec="pickle"),
        }
        thread = threading.Thread(daemon=True, target=serves[how])
        thread.start()
        with Client(segment, codec="pickle", timeout=SOON) as client:
            for _ in range(10):
                message = client.call_message(Point("p", given))
                assert (message.data.at == given).all() and message.blobs == ()
                assert message.data.at.flags.writeable == (blobs < 2)
                assert segment.blob_stats().held >= given.nbytes or blobs < 2
            del message
            until(lambda: segment.blob_stats().held == 0)
            server.stop()
            thread.join(SOON)


def test_pickle_of_more_arrays_than_blobs_arrives_whole(segment: Segment) -> None:
    given = [numpy.full(1 << 15, number) for number in range(20)]
    with serving(segment, same, "pickle") as client:
        assert all((one == other).all() for one, other in zip(client.call(given), given, strict=True))
        assert client.call("x" * (1 << 20)) == "x" * (1 << 20)


def test_blobs_of_the_caller_travel_behind_those_of_the_codec(segment: Segment) -> None:
    given, own = numpy.arange(1 << 15), segment.blob_from(b"own")
    server, seen = Server(segment), []

    def serve() -> None:
        for request in server:
            seen.append(len(request.blobs))
            request.reply(request.data, flags=3, blobs=request.blobs)

    thread = threading.Thread(daemon=True, target=serve)
    thread.start()
    with Client(segment, codec="pickle", timeout=SOON) as client:
        for value, count in ((1, 1), (given, 2), ([given] * 3, 2), ([given + 1, given, given * 2], 4)):
            data, flags, blobs = client.call_message(value, blobs=[own])
            assert numpy.array_equal(data, value) and flags == 3
            assert [bytes(blob) for blob in blobs] == [b"own"] and seen.pop() == count
        reply = client.call_message([given + number for number in range(9)], blobs=[own] * 8)
        assert reply.data[8][0] == 8 and len(reply.blobs) == 8
    with Client(segment, codec="json", timeout=SOON) as client:
        assert client.call_message({}, blobs=[own]).blobs != ()
    server.stop()
    thread.join()


def test_codec_of_the_program_carries_text(segment: Segment) -> None:
    with serving(segment, str.upper, Backwards()) as client:
        assert client.call("hé") == "HÉ"
    server = Server(segment)
    with Client(segment, codec=Backwards(), timeout=SOON) as client:
        ticket = client.send("abc")
        with server.recv() as request:
            assert request.data == b"cba"
            request.reply(b"fed")
        assert assert_type(client.recv(ticket), str) == "def"


def test_every_start_of_a_call_takes_an_object(segment: Segment) -> None:
    with serving(segment, same, "json") as client:
        assert client.recv(client.send({"a": 1})) == {"a": 1}
        assert client.recv_message(client.send([2])) == Message([2], 0, ())
        assert [client.recv(ticket) for ticket in client.send_many([1, None, "x"])] == [1, None, "x"]
        ticket = client.try_send({"b": 2})
        assert ticket is not None
        until(lambda: client.segment.audit().done)
        assert client.try_recv(ticket) == {"b": 2}
        ticket = client.send(None)
        until(lambda: client.segment.audit().done)
        assert client.try_recv_message(ticket) == Message(None, 0, ())
        client.post("nobody waits")
        tickets = client.send_many([None, 5])
        ended = {ticket: outcome.result() for ticket, outcome in client.as_completed()}
        assert ended == dict(zip(tickets, [None, 5], strict=True))
        buffer = bytearray(20)
        assert buffer[: client.call_into({"raw": 1}, buffer)] == b'{"raw":1}'

        async def main() -> None:
            assert await client.acall(None) is None
            assert await client.acall({"a": 1}, timeout=SOON) == {"a": 1}
            assert await client.acall_message([]) == Message([], 0, ())
            assert await client.arecv(client.send(3)) == 3
            assert await client.arecv_message(client.send(None)) == Message(None, 0, ())
            sent = client.send_many([None, 5])
            ended = {ticket: outcome.result() async for ticket, outcome in client.as_completed()}
            assert ended == dict(zip(sent, [None, 5], strict=True))

        in_time(main())


@pytest.mark.parametrize("codec", ["json", "pickle"])
def test_streams_carry_objects(segment: Segment, codec: Any) -> None:
    parts = [None, {"n": 1}, "é", list(range(30000)), None]

    def given(count: int) -> Iterator[Any]:
        yield from parts[:count]

    with serving(segment, given, codec) as client:
        assert list(client.stream(5)) == parts
        assert [message.data for message in client.stream_messages(5)] == parts
        assert list(client.stream(0)) == []

        async def main() -> None:
            assert [part async for part in client.astream(5)] == parts
            assert [message.data async for message in client.astream_messages(5)] == parts

        in_time(main())
    with serving(segment, same, codec) as client:
        assert list(client.stream(parts)) == [parts], "a reply that comes whole is one part"


def test_handlers_in_tasks_take_and_return_objects(segment: Segment) -> None:
    async def double(value: Any) -> Any:
        return {1j} if value is None else value * 2

    async def count(value: int) -> AsyncIterator[int]:
        for number in range(value):
            yield number

    async def main() -> None:
        server, client = Server(segment), Client(segment, codec="json", timeout=SOON)
        serving = asyncio.create_task(server.aserve(double, codec="json"))
        assert await client.acall(21) == 42
        with pytest.raises(RemoteError, match="reqrep serve: the reply cannot be encoded by json: TypeError"):
            await client.acall(None)
        with pytest.raises(RemoteError, match="reqrep serve: the request cannot be decoded by json: "):
            await Client(segment).acall(b"{")
        assert await client.acall([1]) == [1, 1]
        server.stop()
        await serving
        other = Server(segment)
        serving = asyncio.create_task(other.aserve(count, codec="json"))
        assert [part async for part in client.astream(3)] == [0, 1, 2]
        other.stop()
        await serving

    in_time(main())


def test_batch_fails_only_the_requests_that_are_not_objects(segment: Segment) -> None:
    server, batches = Server(segment), []

    def handler(values: list[Any]) -> list[Any]:
        batches.append(values)
        return [{1j} if value == "bad" else [value] for value in values]

    raw, client = Client(segment, timeout=SOON), Client(segment, codec="json", timeout=SOON)
    tickets = [client.send(1), client.send("bad"), client.send(2)]
    wrong = raw.send(b"{")
    thread = threading.Thread(daemon=True, target=server.serve_batches, args=(handler,), kwargs={"codec": "json"})
    thread.start()
    with pytest.raises(RemoteError, match="reqrep serve: the request cannot be decoded by json: .*JSONDecodeError"):
        raw.recv(wrong)
    assert client.recv(tickets[0]) == [1] and client.recv(tickets[2]) == [2]
    with pytest.raises(RemoteError, match="reqrep serve: the reply cannot be encoded by json"):
        client.recv(tickets[1])
    with pytest.raises(RemoteError, match="cannot be decoded"):
        raw.call(b"a batch of one that is wrong")
    assert client.call(3) == [3]
    assert batches == [[1, "bad", 2], [3]]
    server.stop()
    thread.join()
    for end in (raw, client, server):
        end.close()  # the log keeps frames that refer to them


# ---------------------------------------------------------------- what is wrong


WRONG = {
    "json": b"{",
    "msgpack": b"\xc1",
    "pickle": b"no pickle",
    "pickle of another module": b"cno_such_module\nname\n.",
    "pickle without its buffers": pickle.dumps(numpy.zeros(9), 5, buffer_callback=lambda _: None),
    "pickle that ends the process": b"csys\nexit\n(tR.",
    "pickle that is empty": b"",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_request_that_is_no_object_fails_and_the_server_goes_on(segment: Segment, wrong: str) -> None:
    codec = needs(wrong.split()[0])
    with serving(segment, same, codec) as client, Client(segment, timeout=SOON) as raw:
        for _ in range(3):
            with pytest.raises(RemoteError, match=f"reqrep serve: the request cannot be decoded by {codec}: "):
                raw.call(WRONG[wrong])
        assert client.call([1]) == [1]


@pytest.mark.parametrize("wrong", WRONG)
def test_reply_that_is_no_object_is_corrupt_at_each_caller(segment: Segment, wrong: str) -> None:
    codec = needs(wrong.split()[0])
    server = Server(segment)
    thread = threading.Thread(daemon=True, target=server.serve, args=(lambda _: WRONG[wrong],))
    thread.start()
    with Client(segment, codec=codec, timeout=SOON) as client:
        for op, call in (
            ("reqrep call", lambda: client.call(1)),
            ("reqrep call", lambda: client.call_message(1)),
            ("reqrep recv", lambda: client.recv(client.send(1))),
            ("reqrep call", lambda: in_time(client.acall(1))),
            ("reqrep recv", lambda: in_time(client.arecv(client.send(1)))),
        ):
            with pytest.raises(Corrupt, match=f"^{op}: the reply cannot be decoded by {codec}: ") as raised:
                call()
            assert raised.value.op == op and raised.value.__cause__ is not None
        ticket = client.send(1)
        (done,) = client.as_completed()
        assert done[0] == ticket and isinstance(done[1].exception(), Corrupt)
        assert client.pending == 0
    server.stop()
    thread.join()


def test_part_that_is_no_object_ends_the_stream_and_the_call(segment: Segment) -> None:
    def given(_: bytes) -> Iterator[bytes]:
        yield b"1"
        yield b"{"
        yield b"2"

    server = Server(segment)
    thread = threading.Thread(daemon=True, target=server.serve, args=(given,))
    thread.start()
    with Client(segment, codec="json", timeout=SOON) as client:
        stream = client.stream(0)
        assert next(stream) == 1
        with pytest.raises(Corrupt, match="^reqrep stream: the reply cannot be decoded by json"):
            next(stream)
        assert list(stream) == [] and client.pending == 0

        async def main() -> None:
            parts = client.astream(0)
            assert await parts.__anext__() == 1
            with pytest.raises(Corrupt, match="^reqrep stream: the reply cannot be decoded by json"):
                await parts.__anext__()
            assert [part async for part in parts] == []

        in_time(main())
        until(lambda: client.pending == 0)
    server.stop()
    thread.join()


@pytest.mark.parametrize(("codec", "bad"), [("json", {1j}), ("msgpack", {1j}), ("pickle", lambda: 1), (Backwards(), 1)])
def test_request_that_cannot_be_encoded_is_invalid_before_it_is_sent(segment: Segment, codec: Any, bad: Any) -> None:
    name = needs(codec) if isinstance(codec, str) else "Backwards"
    with Client(segment, codec=codec, timeout=SOON) as client:
        for op, call in (
            ("reqrep call", lambda: client.call(bad)),
            ("reqrep call", lambda: client.acall(bad)),
            ("reqrep send", lambda: client.send(bad)),
            ("reqrep send", lambda: client.send_many([bad])),
            ("reqrep send", lambda: client.post(bad)),
            ("reqrep stream", lambda: client.stream(bad)),
            ("reqrep stream", lambda: client.astream(bad)),
        ):
            with pytest.raises(Invalid, match=f"^{op}: the request cannot be encoded by {name}: ") as raised:
                call()
            assert isinstance(raised.value, ValueError) and raised.value.__cause__ is not None
        assert segment.stats().requests == 0


def test_result_that_cannot_be_encoded_fails_its_call_alone(segment: Segment) -> None:
    def handler(value: Any) -> Any:
        return {1j} if value == "bad" else value

    def parts(_: Any) -> Iterator[Any]:
        yield 1
        yield {1j}

    text = "reqrep serve: the reply cannot be encoded by json: TypeError: Object of type set is not serializable"
    with serving(segment, handler, "json", threads=2) as client:
        with pytest.raises(RemoteError, match=text):
            client.call("bad")
        assert client.call("good") == "good"
    with serving(segment, parts, "json") as client:
        stream = client.stream(None)
        assert next(stream) == 1
        with pytest.raises(RemoteError, match=text):
            next(stream)


def test_error_of_a_handler_reaches_the_caller(segment: Segment) -> None:
    with serving(segment, lambda value: value["missing"], "json") as client, pytest.raises(RemoteError, match="KeyError: 'missing'"):
        client.call({})


def test_killed_server_raises_peer_died_at_a_call_with_a_codec() -> None:
    segment = Segment.anonymous(slots=4)

    def work() -> None:
        Server(segment).serve(lambda value: signal.pause(), codec="pickle")

    with Client(segment, codec="pickle", timeout=SOON) as client:
        for wait in (client.recv, lambda ticket: in_time(client.arecv(ticket))):
            with forked(work) as pid:
                ticket = client.send(numpy.zeros(1 << 20))
                until(lambda: segment.audit().taken)
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(PeerDied):
                    wait(ticket)
        gc.collect()
        segment.recover()
        until(lambda: segment.audit().free == 4)
        assert segment.blob_stats().held == 0
    segment.close()


def test_codec_must_be_a_known_name_or_have_both_functions(segment: Segment) -> None:
    wrong: Any
    for wrong in ("yaml", "", "JSON"):
        for use in (lambda codec: Client(segment, codec=codec), lambda codec: Server(segment).serve(same, codec=codec)):
            with pytest.raises(ValueError, match="^codec must be 'json', 'msgpack', 'pickle' or an object with dumps and loads, not "):
                use(wrong)
    for wrong in (object(), 1, b"json"):
        with pytest.raises(TypeError, match="^codec must be a name or an object with dumps and loads, not "):
            Client(segment, codec=wrong)
    ticket = assert_type(Client(segment), Client[bytes]).send(b"")
    assert assert_type(Client(segment, codec="json"), Client[Any]) and ticket
    assert Client(segment).codec is None and Client(segment, codec=None).codec is None


def test_codec_that_gives_no_bytes_is_named(segment: Segment) -> None:
    class Wrong:
        def __init__(self, data: Any) -> None:
            self.data = data

        def dumps(self, _: object) -> Any:
            return self.data

        loads = staticmethod(bytes)

    wrong: Any = Wrong(None)
    with Client(segment, codec=wrong) as client:
        with pytest.raises(Invalid, match="^reqrep call: the request cannot be encoded by .*bytes-like"):
            client.call(1)
    spread: Any = Wrong(memoryview(b"a-b-c-")[::2])
    with serving(segment, same, spread) as client:
        assert client.call(1) == b"abc"


def test_object_without_a_codec_is_refused_with_advice(segment: Segment) -> None:
    with Client(segment) as client:
        for op, call in ("call", client.call), ("call", client.acall), ("send", client.send):
            with pytest.raises(TypeError, match=f"^reqrep {op}: .* not 'dict'; .* codec="):
                call({"x": 1})  # type: ignore[arg-type]
        assert client.pending == 0


def test_missing_msgpack_is_named(segment: Segment) -> None:
    program = (
        "import sys; sys.modules['msgpack'] = None\n"
        "from pipework.reqrep import Client, Segment\n"
        "try: Client(Segment.anonymous(), codec='msgpack')\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON, check=True).stdout
    assert said == 'codec="msgpack" needs the package msgpack: pip install msgpack\n'


def test_no_codec_is_loaded_unless_asked_for() -> None:
    program = (
        "import sys\n"
        "from pipework.reqrep import Client, Segment, Server\n"
        "segment = Segment.anonymous()\n"
        "Client(segment, codec='json')\n"
        "print('pickle' in sys.modules, 'msgpack' in sys.modules, 'numpy' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON, check=True).stdout
    assert said == "False False False\n"


class Named(Client[Any]):
    """A client with a codec and calls of its own."""

    def __new__(cls, segment: Segment | Path) -> Named:
        return super().__new__(cls, segment, codec="json")  # type: ignore[return-value]

    def double(self, value: Any) -> Any:
        return self.call({"double": value}, timeout=SOON)["double"]


def test_subclass_and_its_pickle_keep_the_codec(tmp_path: Path) -> None:
    def double(value: Any) -> Any:
        return {"double": value["double"] * 2}

    path = tmp_path / "segment"
    with Segment(path) as segment, serving(segment, double, "json"), Named(path) as client:
        assert client.double(4) == 8
        with pickle.loads(pickle.dumps(client)) as copy:
            assert isinstance(copy, Named) and copy.codec == "json" and copy.double([1]) == [1, 1]
    assert pipework.reqrep.Client[int] is Client


# ---------------------------------------------------------------- what is encoded can be decoded


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.builds(bytearray),
    st.sampled_from([numpy.int64(3), numpy.float32(0.5), numpy.bool_(True), signal.SIGTERM, {1}, 1j]),
    st.builds(lambda: 10**4000),  # whose digits would be in each description of a strategy
)
KEYS = st.recursive(
    SCALARS.filter(lambda value: getattr(value, "__hash__", None) is not None),
    # A set of more is not always printed in the same order.
    lambda keys: st.one_of(st.tuples(keys, keys), st.builds(Frozen, keys), st.frozensets(keys, max_size=1)),
    max_leaves=4,
)
VALUES = st.recursive(
    SCALARS,
    lambda values: st.one_of(
        st.lists(values), st.tuples(values, values), st.dictionaries(KEYS, values), st.builds(Point, st.text(), values)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("codec", ["json", "msgpack", "pickle"])
def test_what_is_encoded_can_be_decoded(codec: str) -> None:
    both = found(needs(codec))

    @settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
    @given(VALUES)
    def check(value: Any) -> None:
        try:
            data, blobs = both.encode("op", "request", value, two_slots, 0)
        except Invalid:
            assert codec != "pickle"
            return
        decoded, _ = both.decode("op", "request", bytes(data), blobs)
        # What has come once comes again as it is.
        data, blobs = both.encode("op", "request", decoded, two_slots, 0)
        assert repr(both.decode("op", "request", bytes(data), blobs)[0]) == repr(decoded)

    with Segment.anonymous(slots=2) as two_slots:
        check()


def test_msgpack_has_keys_of_all_kinds(segment: Segment) -> None:
    with serving(segment, same, needs("msgpack")) as client:
        kinds = {1: "a", None: 2, True: 3, 0.5: 4, b"b": 5, "text": 6, (1, (2,)): 7}
        assert client.call(kinds) == kinds
        assert client.call({Frozen((1, 2)): [{(): 1}]}) == {(("at", (1, 2)),): [{(): 1}]}
        for number in (2**64, -(2**63) - 1):
            with pytest.raises(Invalid, match=r"an int is below -2\*\*63 or above 2\*\*64 - 1"):
                client.call([number])
        assert client.call([2**64 - 1, -(2**63)]) == [2**64 - 1, -(2**63)]
