"""Blobs: memory that is filled once, sent with messages, and read in place by other processes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pipework
import pytest
from pipework.reqrep import Blob, BlobMut, BlobStats, Client, Message, Request, Segment, Server
from processes import all_free, ends, forked, in_time, small, stop_helpers, until
from support import SOON, in_child, on_small_tmpfs

# To type checkers, numpy takes any buffer, and an array is one, from Python 3.12 on.
frombuffer: Any = np.frombuffer
MATRIX: Any = np.arange(3 << 18, dtype=np.float64).reshape(3, -1)
LONG = 60_000
"""Bytes of a payload that goes into a slot of `large`, and is copied without the interpreter lock."""


@pytest.fixture
def large() -> Iterator[Segment]:
    segment = Segment.anonymous(slots=4, request_bytes=1 << 16, reply_bytes=1 << 16, members=8)
    yield segment
    until(lambda: all_free(segment))
    segment.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a segment may lie whose blobs are looked for."""
    return tmp_path / "segment"


def files(path: Path) -> list[Path]:
    """The blobs that lie beside the segment at `path`."""
    return list(path.parent.glob(f"{path.name}.*.blobs/*"))


# ---------------------------------------------------------------- between processes


def halve(path: Path) -> None:
    """Answers an array with a view of its half, and with the array itself."""
    with Segment.open(path) as segment:
        for request in Server(segment):
            array = frombuffer(request.blobs[0], np.float64)
            half: Any = array[: len(array) // 2]
            request.reply(b"half", flags=7, blobs=[segment.blob_from(half), request.blobs[0]])
            del request, array, half


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_array_goes_to_another_process_and_back_without_a_copy(path: Path, method: str) -> None:
    segment = Segment.create(path, slots=4)
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=halve, args=(path,), daemon=True)
    process.start()
    with segment, Client(segment, timeout=SOON) as client:
        with segment.blob(MATRIX.nbytes) as draft:
            np.copyto(frombuffer(draft, MATRIX.dtype).reshape(MATRIX.shape), MATRIX)
            blob = draft.freeze()
        reply = client.call_message(b"", blobs=[blob])
        assert (reply.data, reply.flags, len(reply.blobs)) == (b"half", 7, 2)
        half, same = (frombuffer(blob, np.float64) for blob in reply.blobs)
        assert (half == MATRIX.ravel()[: MATRIX.size // 2]).all()
        assert same.ctypes.data == frombuffer(blob, np.float64).ctypes.data, "it is the same memory"
        assert not same.flags.writeable and not same.flags.owndata
        assert segment.blob_stats() == BlobStats(held=MATRIX.nbytes * 3 // 2, copied=0)
    process.kill()
    process.join()
    stop_helpers()


def hold(path: Path) -> None:
    """Takes a request with a blob, makes another blob and a draft, says so, and stays."""
    server = Server(path)
    request = server.recv(timeout=SOON)
    kept = (request.blobs, server.segment.blob_from(b"made here"), server.segment.blob(100))
    request.reply(b"held", blobs=[kept[1]])
    signal.pause()


def test_recover_frees_blobs_of_killed_processes(path: Path) -> None:
    segment = Segment.create(path, slots=4, blob_pool=0)
    with segment, Client(segment, timeout=SOON) as client:
        with forked(lambda: hold(path)) as pid:
            reply = client.call_message(b"", blobs=[segment.blob_from(b"sent")])
            assert len(files(path)) == 3, "the child has them: one sent, one made, and the draft"
            os.kill(pid, signal.SIGKILL)
        # The thread that hears of deaths may be first.
        until(lambda: segment.recover() or segment.stats().dead_members)
        assert reply.blobs[0].tobytes() == b"made here", "what one process holds stays"
        assert len(files(path)) == 1
        del reply
        assert not files(path)


def test_redelivered_request_keeps_its_blobs(path: Path) -> None:
    segment = Segment.create(path, slots=4)

    def die() -> None:
        server = Server(path)
        request = server.recv(timeout=SOON)
        assert request.blobs[0].tobytes() == b"once"
        os.kill(os.getpid(), signal.SIGKILL)

    with segment, Client(segment, redeliveries=1, timeout=SOON) as client:
        ticket = client.send(b"", blobs=[segment.blob_from(b"once")])
        with forked(die), Server(segment) as server:
            until(lambda: segment.recover() or segment.stats().dead_members)
            request = server.recv(timeout=SOON)
            assert request.redeliveries == 1 and request.blobs[0].tobytes() == b"once"
            request.reply(b"", blobs=request.blobs)
        assert client.recv_message(ticket).blobs[0].tobytes() == b"once"


def test_forked_child_reads_blobs_and_cannot_use_a_draft(segment: Segment) -> None:
    blob, draft = segment.blob_from(b"before"), segment.blob(10)
    view = memoryview(blob)

    def child() -> None:
        assert blob.tobytes() == bytes(view) == b"before"
        with pytest.raises(pipework.Stale, match="the parent's"):
            draft.freeze()
        with pytest.raises(BufferError, match="the parent's"):
            memoryview(draft)
        draft.close()
        assert segment.blob_from(b"of the child").tobytes() == b"of the child"

    in_child(child)
    memoryview(draft)[:] = b"0123456789"
    assert draft.freeze().tobytes() == b"0123456789" and bytes(view) == b"before"


# ---------------------------------------------------------------- life and death of the memory


def test_buffers_outlive_everything_else(path: Path) -> None:
    segment = Segment.create(path, slots=4)
    with segment, Client(segment) as client, Server(segment) as server:
        ticket = client.send(b"", blobs=[segment.blob_from(MATRIX)])
        with server.recv() as request:
            view, array = memoryview(request.blobs[0]), frombuffer(request.blobs[0], MATRIX.dtype)
            request.reply(b"")
        client.recv(ticket)
        segment.unlink()
    del segment, client, server, request, ticket
    gc.collect()
    assert view == MATRIX.tobytes() and (array == MATRIX.ravel()).all()
    del view
    assert (array == MATRIX.ravel()).all() and len(files(path)) == 1
    del array
    assert not files(path)


def test_draft_is_freed_with_its_last_buffer_after_with(segment: Segment) -> None:
    with segment.blob(100) as draft:
        view = memoryview(draft)
    assert draft.closed and repr(draft) == "<BlobMut of 100 bytes, closed>"
    view[:] = bytes(100)
    assert segment.blob_stats().held == 100, "its memory is not used for another one"
    with pytest.raises(BufferError, match="this draft is closed"):
        memoryview(draft)
    with pytest.raises(pipework.Invalid, match="this draft is closed already"):
        draft.freeze()
    view.release()
    assert segment.blob_stats().held == 0
    with pytest.raises(KeyError), segment.blob(100):
        raise KeyError
    assert segment.blob_stats().held == 0


def test_freeze_fails_while_a_buffer_is_exported(segment: Segment) -> None:
    with segment.blob(8) as draft:
        array, view = frombuffer(draft, np.uint8), memoryview(draft)
        array[:] = 1
        with pytest.raises(BufferError, match=r"still refer to this draft \(2\): delete them"):
            draft.freeze()
        view[0] = 9
        del array, view
        blob = draft.freeze()
    assert blob.tobytes() == bytes([9, 1, 1, 1, 1, 1, 1, 1])
    assert draft.closed and repr(draft) == "<BlobMut of 8 bytes, frozen>"
    with pytest.raises(BufferError, match="use what freeze"):
        memoryview(draft)
    with pytest.raises(pipework.Invalid, match="frozen already"):
        draft.freeze()
    assert memoryview(blob).readonly
    with pytest.raises(BufferError):
        os.preadv(0, [blob], 0)


def test_threads_that_write_freeze_and_close_at_the_same_time(segment: Segment) -> None:
    """One of them gets the blob, or none if it was closed, and from then on nobody writes to it."""
    outcomes: list[set[str]] = []

    def hammer(draft: BlobMut, way: int, done: set[str], barrier: threading.Barrier) -> None:
        barrier.wait()
        for turn in range(20):
            try:
                if way == 3 and turn == 19:
                    draft.close()
                elif way % 2:
                    blob = draft.freeze()
                    done.add("frozen")
                    assert blob.tobytes() == blob.tobytes()
                else:
                    view = memoryview(draft)
                    view[:] = bytes([way, turn]) * 50
                    del view
            except (BufferError, pipework.Invalid) as error:
                done.add(type(error).__name__)

    for _ in range(50):
        draft, done, barrier = segment.blob(100), set[str](), threading.Barrier(4)
        threads = [threading.Thread(target=hammer, args=(draft, way, done, barrier)) for way in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes.append(done)
        assert draft.closed
    assert all("BufferError" in done or "Invalid" in done for done in outcomes)
    assert segment.blob_stats().held == 0


def test_memory_is_used_again(path: Path) -> None:
    with Segment.create(path) as segment:
        segment.blob_from(bytes(5000))
        kept = files(path)
        assert len(kept) == 1
        segment.blob_from(bytes(4999))
        assert files(path) == kept
    assert not files(path)


def test_blob_that_was_cut_short_says_so(path: Path) -> None:
    with Segment.create(path) as segment:
        blob = segment.blob_from(b"x" * 10_000)
        blob.check()
        (file,) = files(path)
        os.truncate(file, 4096)
        assert set(blob.tobytes()) == {0}, "no SIGBUS"
        with pytest.raises(pipework.Corrupt):
            blob.check()
        draft = segment.blob(10_000)
        (file,) = set(files(path)) - {file}
        os.truncate(file, 4096)
        with pytest.raises(pipework.Corrupt):
            draft.freeze()


# ---------------------------------------------------------------- sending


CALLS: dict[str, Callable[[Client, Any], object]] = {
    "call": lambda client, blobs: client.call(b"x", timeout=SOON, blobs=blobs),
    "call_message": lambda client, blobs: client.call_message(b"x", timeout=SOON, blobs=blobs),
    "call_into": lambda client, blobs: client.call_into(b"x", bytearray(10), timeout=SOON, blobs=blobs),
    "send": lambda client, blobs: client.recv(client.send(b"x", timeout=SOON, blobs=blobs), timeout=SOON),
    "try_send": lambda client, blobs: client.recv(client.try_send(b"x", blobs=blobs) or pytest.fail(), timeout=SOON),
    "stream": lambda client, blobs: list(client.stream(b"x", timeout=SOON, blobs=blobs)),
    "stream_messages": lambda client, blobs: list(client.stream_messages(b"x", timeout=SOON, blobs=blobs)),
    "acall": lambda client, blobs: in_time(client.acall(b"x", blobs=blobs)),
    "acall_message": lambda client, blobs: in_time(client.acall_message(b"x", blobs=blobs)),
    "astream": lambda client, blobs: in_time(whole(client.astream(b"x", blobs=blobs))),
    "astream_messages": lambda client, blobs: in_time(whole(client.astream_messages(b"x", blobs=blobs))),
}


async def whole(parts: Any) -> list[Any]:
    return [part async for part in parts]


@contextlib.contextmanager
def answering(server: Server, answer: Callable[[Request], object]) -> Iterator[None]:
    """Another thread answers one request."""

    def work() -> None:
        with server.recv(timeout=SOON) as request:
            answer(request)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("way", CALLS)
def test_every_way_to_call_sends_blobs(segment: Segment, way: str) -> None:
    found: list[bytes] = []

    def answer(request: Request) -> None:
        found.extend(blob.tobytes() for blob in request.blobs)
        request.reply(b"y", blobs=request.blobs[:1])

    client, server = ends(segment)
    with client, answering(server, answer):
        reply = CALLS[way](client, (segment.blob_from(data) for data in (b"first", b"second")))
    assert found == [b"first", b"second"]
    if "message" in way:
        message: Any
        (message,) = reply if isinstance(reply, list) else [reply]
        assert message.data == b"y" and [blob.tobytes() for blob in message.blobs] == [b"first"]


def test_every_way_to_answer_sends_blobs(segment: Segment) -> None:
    one, two = segment.blob_from(b"one"), segment.blob_from(b"two")

    async def in_tasks(request: Request) -> None:
        await request.asend_part(b"1", blobs=[one])
        await request.areply(b"2", blobs=[two, one])

    def in_parts(request: Request) -> None:
        request.send_part(b"1", blobs=[one])
        request.reply(b"2", blobs=[two, one])

    client, server = ends(segment)
    for answer in (in_parts, lambda request: asyncio.run(in_tasks(request))):
        with answering(server, answer):
            parts = list(client.stream_messages(b"", timeout=SOON))
        assert [[blob.tobytes() for blob in part.blobs] for part in parts] == [[b"one"], [b"two", b"one"]]
        with answering(server, answer):
            assert len(client.call_message(b"", timeout=SOON).blobs) == 3
    ticket = client.send(b"")
    server.recv().reply(b"all", blobs=[one])
    for number, outcome in client.as_completed():
        assert (number, outcome.result(), outcome.blobs[0].tobytes()) == (ticket, b"all", b"one")
    client.close()


def test_long_payloads_keep_their_blobs(large: Segment) -> None:
    client, server = ends(large)
    data, blob = bytes(LONG), large.blob_from(b"beside")
    ways: list[Callable[[], Request]] = [server.recv, server.claim, lambda: server.recv_many(5)[0], lambda: server.drain(5)[0]]
    for take in ways:
        ticket = client.send(data, blobs=[blob])
        with take() as request:
            assert request.data == data and request.blobs[0].tobytes() == b"beside"
            assert request.reply(data, blobs=request.blobs)
            assert request.blobs[0].tobytes() == b"beside", "also when it is answered"
        reply = client.recv_message(ticket)
        assert reply.data == data and reply.blobs[0].tobytes() == b"beside"
        del request, reply
    ticket = client.send(b"", blobs=[blob])
    server.recv().reply(data, blobs=[blob])
    assert client.recv(ticket) == data
    ticket = client.send(b"", blobs=[blob])
    server.recv().reply(data)
    assert client.recv_message(ticket) == Message(data, 0)
    client.close()


def test_kept_request_comes_back_with_its_blobs(segment: Segment) -> None:
    client, server = ends(segment)
    ticket = client.send(b"", blobs=[segment.blob_from(b"kept")])
    assert server.recv().keep() == ticket
    request = server.kept(ticket)
    assert request is not None and request.blobs[0].tobytes() == b"kept"
    request.fail()
    client.close()


def test_blob_of_another_segment_is_copied_into_one_of_this(segment: Segment) -> None:
    other = small()
    client, server = ends(segment)
    ticket = client.send(b"", blobs=[other.blob_from(b"elsewhere")])
    other.close()
    with server.recv() as request:
        assert request.blobs[0].tobytes() == b"elsewhere"
    assert ticket and segment.blob_stats().copied == 1
    client.close()


def test_blob_that_other_users_may_change_is_copied(path: Path) -> None:
    with Segment.create(path, slots=2, mode=0o660) as segment, Client(segment) as client, Server(path) as server:
        blob = segment.blob_from(b"for the group")
        assert not blob.is_copied and repr(blob) == "<Blob of 13 bytes>"
        client.send(b"", blobs=[blob])
        with server.recv() as request:
            got = request.blobs[0]
            assert got.is_copied and repr(got) == "<Blob of 13 bytes, copied>"
            assert got.tobytes() == bytes(got) == b"for the group"
            got.check()
            assert server.segment.blob_stats() == BlobStats(held=13, copied=1)


# ---------------------------------------------------------------- limits and mistakes


def test_limits_are_named(path: Path) -> None:
    with Segment.create(path, slots=2, blobs=2, blob_limit=1000, blob_pool=0) as segment:
        assert segment.geometry.blobs == 2
        first = segment.blob_from(bytes(600))
        text = "`blob_limit` allows: 600 are held, and 401 more were asked for"
        with pytest.raises(pipework.TooLong, match=text) as raised:
            segment.blob(401)
        assert raised.value.filename == str(path)
        with segment.blob(400):
            assert segment.blob_stats().held == 1000
        again = pickle.loads(pickle.dumps(segment))
        with pytest.raises(pipework.TooLong, match="blob_limit"):
            again.blob(1001)
        client, server = ends(segment)
        for send in (client.send, client.try_send, client.call, client.stream):
            with pytest.raises(pipework.TooLong, match="fewer `blobs` a message"):
                send(b"", blobs=[first] * 3)
        ticket = client.send(b"", blobs=[first] * 2)
        with server.recv() as request, pytest.raises(pipework.TooLong, match="fewer `blobs` a message"):
            request.reply(b"", blobs=[first] * 3)
        with pytest.raises(pipework.RemoteError):
            client.recv(ticket)
        client.close()
        server.close()
        with pytest.raises(pipework.Incompatible, match="blobs is 2 in the segment that is there, and 3 was asked for"):
            Segment(path, blobs=3)
    with Segment.anonymous(blobs=0) as none, Client(none) as client, pytest.raises(pipework.TooLong):
        client.send(b"", blobs=[none.blob_from(b"")])


def test_request_over_a_servers_blob_limit_fails_and_the_server_goes_on(path: Path) -> None:
    with Segment.create(path, slots=2) as segment, Client(segment) as client:
        with Server(path, blob_limit=10) as server:
            too_long = client.send(b"", blobs=[segment.blob_from(bytes(11))])
            short = client.send(b"short", blobs=[segment.blob_from(bytes(10))])
            with server.recv(timeout=SOON) as request:
                assert request.data == b"short"
                request.reply(b"")
            assert client.recv(short, timeout=SOON) == b""
            with pytest.raises(pipework.RemoteError, match="blob_limit"):
                client.recv(too_long, timeout=SOON)


def test_full_file_system_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    def fill(place: Path) -> None:
        path = place / "segment"
        with Segment.create(path, slots=2, members=4) as segment, Client(segment) as client, Server(segment) as server:
            with pytest.raises(OSError, match="No space left") as raised:
                segment.blob(2 << 20)
            assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(path)
            # What is kept for later takes the place of what is needed now.
            segment.blob_from(bytes(500_000))
            blob = segment.blob_from(bytes(600_000))
            with pytest.raises(OSError, match="No space left"):
                segment.blob(600_000)
            ticket = client.send(b"still", blobs=[blob])
            with server.recv(timeout=SOON) as request:
                request.reply(b"works", blobs=request.blobs)
            assert client.recv(ticket, timeout=SOON) == b"works"

    on_small_tmpfs(tmp_path, "size=1m", fill)


def test_mistakes_say_what_to_do() -> None:
    segment = small()
    client, server = ends(segment)
    blob, draft = segment.blob_from(b"x"), segment.blob(1)
    wrong: list[tuple[Any, str]] = [
        (blob, "not Blob: write blobs=\\[blob\\]"),
        ([draft], "not BlobMut: freeze\\(\\) it first"),
        (draft, "not BlobMut: freeze\\(\\) it first"),
        ([b"x"], "not bytes: segment.blob_from"),
        (b"x", "not int"),
        (None, "not NoneType"),
    ]
    for blobs, text in wrong:
        with pytest.raises(TypeError, match=f"blobs must be a list of Blob objects, {text}"):
            client.send(b"", blobs=blobs)
    for object in (blob, draft):
        for carry in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="cannot be pickled: .*attach"):
                carry(object)
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        segment.blob_from(MATRIX.T)
    with pytest.raises(TypeError, match="bytes-like"):
        segment.blob_from("text")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        segment.blob(-1)
    with pytest.raises(TypeError):
        Blob()
    assert segment.waiting == 0
    segment.close()
    with pytest.raises(pipework.Invalid, match="this segment is closed"):
        segment.blob(1)
    draft.close()
    client.close()
    server.close()


def test_blob_is_a_buffer_of_fixed_length_that_is_equal_to_itself_only(segment: Segment) -> None:
    blob, empty = segment.blob_from(bytearray(b"abc")), segment.blob_from(b"")
    assert (len(blob), blob.nbytes, blob.tobytes(), bytes(blob)) == (3, 3, b"abc", b"abc")
    assert (len(empty), empty.tobytes(), bytes(memoryview(empty))) == (0, b"", b"")
    same = segment.blob_from(blob)
    assert blob != same and len({blob, same, blob}) == 2 and memoryview(blob) == memoryview(same)
    with segment.blob(3) as draft:
        assert len(draft) == draft.nbytes == 3
        read, write = os.pipe()
        os.write(write, b"xyz")
        with open(read, "rb") as file:
            assert file.readinto(draft) == 3
        os.close(write)
        assert draft.freeze().tobytes() == b"xyz"
