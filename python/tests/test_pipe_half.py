"""Half a stream never looks whole, whichever wrapper is closed and whichever exception is raised."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import io
import pickle
import tarfile
import threading
import time
from collections.abc import Callable
from typing import Any

import pipework
import pytest
from pipework import pipe
from support import SOON


class Broken(Exception):
    pass


def text(writer: pipe.Writer) -> None:
    with io.TextIOWrapper(io.BufferedWriter(writer)) as stream:
        stream.write("half\n")
        raise Broken


def buffered(writer: pipe.Writer) -> None:
    with io.BufferedWriter(writer) as stream:
        stream.write(b"half\n" * 10_000)
        raise Broken


def raw(writer: pipe.Writer) -> None:
    with writer:
        writer.write(b"half\n")
        raise Broken


def with_both(writer: pipe.Writer) -> None:
    with writer, io.TextIOWrapper(io.BufferedWriter(writer)) as stream:
        stream.write("half\n")
        raise Broken


def packed(writer: pipe.Writer) -> None:
    with writer, gzip.GzipFile(fileobj=writer, mode="wb") as stream:
        stream.write(b"half\n")
        raise Broken


def packed_text(writer: pipe.Writer) -> None:
    with writer, gzip.open(writer, "wt") as stream:
        stream.write("half\n")
        raise Broken


def archive(writer: pipe.Writer) -> None:
    with writer, tarfile.open(fileobj=writer, mode="w|") as stream:
        stream.addfile(tarfile.TarInfo("empty"))
        raise Broken


def closed_at_last(writer: pipe.Writer) -> None:
    try:
        writer.write(b"half\n")
        raise Broken
    finally:
        writer.close()


def contextlib_closing(writer: pipe.Writer) -> None:
    with contextlib.closing(writer):
        writer.write(b"half\n")
        raise Broken


def generator_given_up(writer: pipe.Writer) -> None:
    def write() -> Any:
        with io.BufferedWriter(writer) as stream:
            stream.write(b"half\n")
            yield

    running = write()
    next(running)
    running.close()


def dropped(writer: pipe.Writer) -> None:
    writer.write(b"half\n")
    raise Broken


def dropped_wrapper(writer: pipe.Writer) -> None:
    stream = io.TextIOWrapper(io.BufferedWriter(writer))
    stream.write("half\n")
    raise Broken


PRODUCERS = [
    text, buffered, raw, with_both, packed, packed_text, archive, closed_at_last, contextlib_closing, generator_given_up, dropped,
    dropped_wrapper,
]  # fmt: skip


def failure(read: Callable[[], object]) -> BaseException:
    with pytest.raises((Broken, pipework.Failed)) as raised:
        for _ in range(10_000):
            read()
    return raised.value


@pytest.mark.parametrize("produce", PRODUCERS, ids=lambda each: each.__name__)
def test_thread_that_raises_leaves_a_broken_stream(produce: Callable[[pipe.Writer], None]) -> None:
    reader, writer = pipe.pipe(1 << 20)

    def run(writer: pipe.Writer) -> None:
        with contextlib.suppress(Broken):
            produce(writer)

    thread = threading.Thread(target=run, args=(writer,))
    del writer
    thread.start()
    thread.join()
    del thread
    gc.collect()
    with reader:
        expected = pipework.Failed if "dropped" in produce.__name__ or "given_up" in produce.__name__ else Broken
        assert isinstance(failure(lambda: reader.recv(1000, timeout=SOON)), expected)


# Since Python 3.14, a wrapper that is dropped says that it could not write what it held.
@pytest.mark.filterwarnings("ignore:Exception ignored while finalizing file:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("produce", [each for each in PRODUCERS if each is not generator_given_up], ids=lambda each: each.__name__)
def test_produce_raises_the_producers_exception_in_the_reader(produce: Callable[[pipe.Writer], None]) -> None:
    with pipe.produce(produce) as reader:
        assert isinstance(failure(lambda: reader.recv(1000, timeout=SOON)), Broken)
        assert isinstance(failure(lambda: reader.read(1)), Broken)


def test_produce_ends_the_stream_when_its_function_returns() -> None:
    def write(writer: pipe.Writer) -> None:
        for _ in range(2):
            writer.write(b"whole")
        with io.BufferedWriter(writer) as stream:
            stream.write(b"!")
        with pytest.raises(ValueError):
            stream.write(b"closed is closed")
        time.sleep(0.05)

    with pipe.produce(write, capacity=3) as reader:
        assert reader.readall() == b"wholewhole!"
    with pipe.produce(lambda writer: None) as reader:
        assert reader.recv(1, timeout=SOON) == b""


def test_producer_gets_an_error_after_its_reader_closed() -> None:
    heard: list[BaseException] = []
    done = threading.Event()

    def write(writer: pipe.Writer) -> None:
        try:
            while True:
                writer.write(bytes(1000))
        except BaseException as error:
            heard.append(error)
            raise
        finally:
            done.set()

    pipe.produce(write).close()
    assert done.wait(SOON)
    done.clear()
    pipe.produce(write)  # dropped
    assert done.wait(SOON)
    done.clear()
    with pytest.raises(Broken), pipe.produce(write) as reader:
        reader.recv(10, timeout=SOON)
        raise Broken
    assert done.wait(SOON)
    assert [type(error) for error in heard] == [pipework.Closed, pipework.Closed, Broken]


FLOW = [
    StopIteration(), StopAsyncIteration(), EOFError("no more"), InterruptedError(), BlockingIOError(), KeyboardInterrupt(), SystemExit(0),
    GeneratorExit(), asyncio.CancelledError(),
]  # fmt: skip


@pytest.mark.parametrize("error", FLOW, ids=lambda each: type(each).__name__)
def test_control_flow_exception_of_the_producer_is_a_failure(error: BaseException) -> None:
    def write(writer: pipe.Writer) -> None:
        pickler = pickle.Pickler(writer)
        pickler.dump("half")
        writer.write(b"a line\n")
        raise error

    with pipe.produce(write) as reader, io.BufferedReader(reader) as stream:
        assert pickle.load(stream) == "half"
        with pytest.raises(pipework.Failed, match=type(error).__name__) as raised:
            for line in stream:
                assert line == b"a line\n"
        assert raised.value.__cause__ is error


def test_finish_ends_the_stream_inside_an_exception_handler() -> None:
    reader, writer = pipe.pipe()
    pieces = iter([b"all ", b"of it"])
    try:
        while True:
            writer.write(next(pieces))
    except StopIteration:
        writer.finish()
        writer.close()
    assert writer.closed and reader.read() == b"all of it" and reader.read() == b""
    # Closing it there breaks the stream, because the exception may concern it.
    reader, writer = pipe.pipe()
    try:
        raise KeyError("something else")
    except KeyError:
        writer.close()
        writer.finish()
    with pytest.raises(KeyError):
        reader.read()


def test_exception_after_finish_fails_the_stream() -> None:
    def write(writer: pipe.Writer) -> None:
        writer.write(b"half")
        writer.finish()
        raise KeyError("it failed afterwards")

    with pipe.produce(write) as reader, pytest.raises(KeyError):
        reader.read()


def test_earlier_exception_does_not_break_the_stream() -> None:
    try:
        raise Broken
    except Broken:
        reader, writer = pipe.pipe()
        with io.BufferedWriter(writer) as stream:
            stream.write(b"what to do instead")
        assert reader.readall() == b"what to do instead"
    reader, writer = pipe.pipe()
    try:
        raise Broken
    except Broken:
        with writer:
            writer.write(b"whole")
    assert reader.readall() == b"whole"


def test_wrong_direction_raises_unsupported_operation() -> None:
    reader, writer = pipe.pipe()
    with reader, writer:
        wrong: list[Callable[[], object]] = [
            lambda: reader.write(b"x"),
            lambda: reader.writelines([b"x"]),
            lambda: writer.read(1),
            lambda: writer.read(),
            lambda: writer.readall(),
            lambda: writer.readinto(bytearray(1)),
            lambda: writer.readline(),
            lambda: writer.readlines(),
            lambda: next(writer),
            lambda: reader.seek(0),
            lambda: writer.truncate(),
            lambda: writer.fileno(),
        ]
        for each in wrong:
            with pytest.raises(io.UnsupportedOperation):
                each()
