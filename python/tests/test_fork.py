"""Handles in forked children."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import pipework
import pytest
from pipework import atomic
from pipework.pipe import pipe
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
