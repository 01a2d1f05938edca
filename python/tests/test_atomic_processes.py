"""Module `atomic`: ends that go to the processes of `multiprocessing`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pipework import Invalid, atomic
from processes import stop_helpers
from support import SOON

METHODS = ["spawn", "forkserver"]


def send_from_there(writer: atomic.Writer, text: atomic.Writer) -> None:
    """The program of a process that receives only this end."""
    assert not writer.mixed and text.mixed and text.pending == 0
    writer.send(b"of one part", timeout=SOON)
    writer.send(bytes(100_000), timeout=SOON)
    os.write(text.fileno(), b"a line\n")
    text.send(b"compressed" * 100, timeout=SOON)


@pytest.mark.parametrize("method", METHODS)
def test_writers_can_be_pickled_to_other_processes(method: str) -> None:
    reader, writer = atomic.pair()
    text_reader, text = atomic.pair(mixed=True)
    dictionary = atomic.Zstd(level=1, dictionary=b"compressed like this")
    text.zstd = dictionary
    text_reader.zstd = dictionary
    text.enqueue(b"stays here")
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=send_from_there, args=(writer, text))
    process.start()
    text.discard()
    writer.close()
    text.close()
    assert [len(message) for message in reader.messages()] == [11, 100_000]
    items = list(text_reader)
    assert [item.data for item in items if isinstance(item, (atomic.Line, atomic.Message))] == [b"a line\n", b"compressed" * 100]
    process.join(SOON)
    assert process.exitcode == 0
    process.close()
    stop_helpers()
    reader.close()
    text_reader.close()


def receive_there(reader: atomic.Reader, fifo: atomic.Reader, answers: atomic.Writer) -> None:
    assert fifo.read_size == 5000
    for each in (reader, fifo):
        answers.send(each.recv(timeout=SOON), timeout=SOON)
    with pytest.raises(EOFError):
        reader.recv(timeout=SOON)
    fifo.close()


@pytest.mark.parametrize("method", METHODS)
def test_readers_can_be_pickled_to_other_processes(method: str, tmp_path: Path) -> None:
    reader, writer = atomic.pair()
    fifo = tmp_path / "fifo"
    atomic.create_fifo(fifo)
    listener = atomic.Reader.listen(fifo)
    listener.read_size = 5000
    answers, answering = atomic.pair()
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=receive_there, args=(reader, listener, answering))
    process.start()
    answering.close()
    writer.send(b"by descriptor", timeout=SOON)
    writer.close()
    assert answers.recv(timeout=SOON) == b"by descriptor"
    listener.close()
    with atomic.Writer.fifo(fifo, connect_timeout=SOON) as to_fifo:
        to_fifo.send(b"by path", timeout=SOON)
    assert answers.recv(timeout=SOON) == b"by path"
    process.join(SOON)
    assert process.exitcode == 0
    process.close()
    stop_helpers()
    reader.close()
    answers.close()


def test_reader_with_buffered_data_cannot_be_pickled() -> None:
    reader, writer = atomic.pair()
    writer.send_many([b"one", b"two"])
    assert reader.recv() == b"one"
    with pytest.raises(Invalid, match="stays here"):
        pickle.dumps(reader)
    assert reader.recv() == b"two"
    writer.close()
    reader.close()
    for end in (reader, writer):
        with pytest.raises((ValueError, TypeError)):
            pickle.dumps(end)


def test_zstd_settings_survive_pickle() -> None:
    for zstd in (atomic.Zstd(), atomic.Zstd(7, dictionary=b"dictionary", accept_unchecked=True)):
        assert pickle.loads(pickle.dumps(zstd)) == zstd
