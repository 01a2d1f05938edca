"""Handles in forked children."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings

import pipework
import pytest
from pipework import atomic
from pipework.pipe import pipe
from pipework.reqrep import Client, Segment, Server
from processes import until
from support import SOON, in_child, until_used


def test_forked_child_is_a_writer_of_its_own() -> None:
    reader, writer = atomic.pair()
    writer.enqueue(b"the parent's")

    def child() -> None:
        assert writer.pending == 0
        writer.send(b"the child's", timeout=SOON)
        writer.close()

    in_child(child)
    writer.close()
    items = [item for item in reader if isinstance(item, atomic.Message)]
    assert [item.data for item in items] == [b"the child's", b"the parent's"]
    assert items[0].writer != items[1].writer


def test_inherited_reader_works_only_if_the_parent_buffered_nothing() -> None:
    reader, writer = atomic.pair()
    writer.send(b"for the child")

    def reads() -> None:
        assert reader.recv(timeout=SOON) == b"for the child"

    in_child(reads)
    writer.send_many([b"one", b"two"])
    assert reader.recv() == b"one"

    def refuses() -> None:
        with pytest.raises(pipework.Stale):
            reader.recv(timeout=SOON)

    in_child(refuses)
    assert reader.recv() == b"two"


def test_handle_used_by_a_thread_is_stale_in_the_child() -> None:
    reader, writer = atomic.pair()
    thread = threading.Thread(target=lambda: reader.recv(timeout=SOON))
    thread.start()
    until_used(reader)

    def child() -> None:
        for _ in range(100):
            try:
                reader.recv(timeout=0.01)
            except pipework.Stale as stale:
                assert "forked" in str(stale)
            except TimeoutError:
                pass  # forked between two slices, when no thread held it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        in_child(child)
    writer.send(b"x")
    thread.join()


def test_writer_used_by_a_thread_works_in_the_child() -> None:
    """Also where the child has it under its settings of now, and where the descriptor is the caller's."""
    for lent in (False, True):
        reader, own = atomic.pair()
        writer = atomic.Writer(own.fileno(), closefd=False) if lent else own
        reader.zstd = writer.zstd = 3
        writer.max_pending = 12345
        fd, key = writer.fileno(), writer.key
        thread = threading.Thread(target=lambda writer=writer: writer.send(os.urandom(10_000_000)))
        thread.start()
        until(lambda writer=writer: "in use" in repr(writer))  # type: ignore[misc]

        def child(writer: atomic.Writer = writer, fd: int = fd, key: object = key) -> None:
            threads = [threading.Thread(target=writer.send, args=(b"child",)) for _ in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert (writer.fileno(), writer.max_pending, writer.zstd is None) == (fd, 12345, False)
            assert writer.key != key and writer.pending == 0
            writer.close()
            with contextlib.suppress(OSError):
                os.fstat(fd)
                assert writer is not own, "it has closed its descriptor"

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            forking = threading.Thread(target=in_child, args=(child,))
            forking.start()
        items = [len(reader.recv(timeout=SOON)) for _ in range(5)]
        forking.join()
        thread.join()
        assert sorted(items) == [5, 5, 5, 5, 10_000_000]
        writer.close()
        own.close()
        reader.close()


def test_child_that_has_closed_the_descriptor_of_a_writer_in_use_touches_no_other() -> None:
    reader, writer = atomic.pair()
    fd = writer.fileno()
    thread = threading.Thread(target=lambda: writer.send(bytes(1_000_000)))
    thread.start()
    until(lambda: "in use" in repr(writer))

    def child() -> None:
        ours, theirs = os.pipe()
        os.dup2(theirs, fd)
        with pytest.raises(pipework.Invalid):
            writer.send(b"x")
        with pytest.raises(pipework.Invalid):
            writer.close()
        with pytest.raises(pipework.Invalid):
            writer.send(b"x")
        os.write(fd, b"ours")
        assert os.read(ours, 10) == b"ours"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        in_child(child)
    assert len(reader.recv(timeout=SOON)) == 1_000_000
    thread.join()
    writer.close()
    reader.close()


def test_reader_used_by_a_thread_can_be_closed_in_the_child() -> None:
    reader, writer = atomic.pair()
    thread = threading.Thread(target=lambda: reader.recv(timeout=SOON))
    thread.start()
    until_used(reader)
    fd = reader.fileno()

    def child() -> None:
        reader.close()
        with pytest.raises(OSError):
            os.fstat(fd)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for _ in range(20):
            in_child(child)
    writer.send(b"x")
    thread.join()


@pytest.mark.long("many forks")
def test_handles_that_threads_use_all_the_time_work_in_each_child(segment: Segment) -> None:
    """A client, a server, and what the child makes of a writer."""
    client, server = Client(segment), Server(segment)
    reader, writer = atomic.pair()
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            client.call(b"parent", timeout=SOON)

    def send() -> None:
        while not is_over.is_set():
            writer.send(bytes(10_000))

    def read() -> None:
        with contextlib.suppress(pipework.Closed):
            while True:
                taken.append(reader.recv())

    def child() -> None:
        assert client.call(b"child", timeout=SOON) == b"CHILD"
        writer.send(b"child", timeout=SOON)
        mine = threading.Thread(target=server.serve, args=(bytes.upper,))
        mine.start()
        assert client.call(b"mine", timeout=SOON) == b"MINE"
        server.stop()
        mine.join()

    taken: list[bytes] = []
    serving = threading.Thread(target=server.serve, args=(bytes.upper,))
    threads = [threading.Thread(target=work) for work in (call, call, send, send)]
    reading = threading.Thread(target=read)
    for thread in [serving, reading, *threads]:
        thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for _ in range(50):
            in_child(child)
    is_over.set()
    for thread in threads:
        thread.join()
    server.stop()
    serving.join()
    writer.close()
    reading.join()
    assert taken.count(b"child") == 50


def test_killed_writer_is_reported_as_torn() -> None:
    reader, writer = atomic.pair()
    pid = os.fork()
    if pid == 0:
        writer.send(bytes(1_000_000))
        os._exit(0)
    writer.close()
    assert reader.read_ahead(timeout=SOON) > 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    items = list(reader)
    assert [type(item) for item in items] == [atomic.Torn]
    assert isinstance(items[0], atomic.Torn)
    assert (items[0].kind, items[0].writer is not None and items[0].writer.pid) == (pipework.ErrorKind.TORN, pid)


def test_pipe_of_the_parent_is_stale_in_the_child() -> None:
    reader, writer = pipe()

    def child() -> None:
        for use in (reader.read, reader.recv, reader.try_recv, lambda: writer.send(b"x"), lambda: writer.write(b"x")):
            with pytest.raises(pipework.Stale, match="came with a fork"):
                use()
        reader.close()
        writer.close()

    in_child(child)
    writer.write(b"the parent's")
    assert reader.recv() == b"the parent's"
    writer.close()
    reader.close()
