"""Module `atomic`: each public call."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import ANY

import pipework
import pytest
from pipework import atomic, fd
from processes import until
from support import SOON, after, until_used


def content(size: int) -> bytes:
    return bytes(i % 251 for i in range(size))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("zstd", [None, -3, atomic.Zstd(1, dictionary=b"a dictionary")])
def test_messages_of_any_size_come_out_whole(mixed: bool, zstd: atomic.Zstd | int | None) -> None:
    reader, writer = atomic.pair(mixed=mixed, zstd=zstd)
    for size in (0, 1, 4079, 4080, 4081, 50_000):
        writer.send(content(size), timeout=SOON)
        item = reader.next_item(timeout=SOON)
        assert item == atomic.Message(content(size), writer.key, ANY)


def test_message_may_be_much_larger_than_the_pipe() -> None:
    reader, writer = atomic.pair()
    data = os.urandom(3_000_000)
    sender = after(0, lambda: writer.send(data, timeout=SOON))
    assert reader.recv(timeout=SOON) == data
    sender.join()


def test_send_takes_any_bytes_like_object() -> None:
    reader, writer = atomic.pair()
    numbers = array.array("i", [1, 2, 3])
    for data in (b"x", bytearray(b"x"), memoryview(b"axb")[1:2], numbers, memoryview(b""), bytearray()):
        writer.send(data)
        assert reader.recv(timeout=SOON) == bytes(data)
    for wrong in ("text", 5, None, memoryview(b"abcd")[::2]):
        with pytest.raises((TypeError, BufferError)):
            writer.send(wrong)  # type: ignore[arg-type]
    assert reader.try_recv() is None


def test_recv_into_reuses_a_buffer() -> None:
    reader, writer = atomic.pair()
    buffer = bytearray(b"-" * 10)
    for data in (b"", b"four", b"0123456789"):
        writer.send(data)
        assert reader.recv_into(buffer, timeout=SOON) == len(data)
        assert bytes(buffer).startswith(data)
    writer.send(b"0123456789A")
    with pytest.raises(pipework.TooLong) as raised:
        reader.recv_into(buffer)
    assert raised.value.message == b"0123456789A"  # type: ignore[attr-defined]
    for wrong in (b"read-only", memoryview(b"x")):
        with pytest.raises((TypeError, BufferError)):
            reader.recv_into(wrong)
    buffer.append(0)  # nothing holds it any more


def test_end_of_the_pipe_raises_eof_error_and_ends_iterations() -> None:
    reader, writer = atomic.pair()
    with writer:
        assert writer.send_many([b"one", bytearray(b"two"), memoryview(b"three")]) == 3
    assert not reader.eof
    assert list(reader.messages()) == [b"one", b"two", b"three"]
    assert list(reader) == []
    assert reader.eof
    with pytest.raises(EOFError) as raised:
        reader.recv()
    assert isinstance(raised.value, pipework.Closed)


def test_wait_eof_waits_for_the_end() -> None:
    reader, writer = atomic.pair(mixed=True)
    with pytest.raises(TimeoutError, match="wait_eof"):
        reader.wait_eof(timeout=0)
    assert reader.buffered == 0
    speaker = after(0.05, lambda: os.write(writer.fileno(), b"a line, and"))
    assert reader.wait_eof(timeout=SOON) is False
    assert (reader.buffered, reader.try_next_item()) == (11, None)
    assert (reader.peek(), reader.buffered, reader.wait_eof(timeout=0)) == (b"a line, and", 11, False)
    speaker.join()
    writer.close()
    assert reader.next_item(timeout=SOON) == atomic.Line(b"a line, and")
    assert (reader.wait_eof(timeout=SOON), reader.wait_eof(), reader.buffered) == (True, True, 0)


def test_send_without_a_reader_raises_broken_pipe() -> None:
    reader, writer = atomic.pair()
    reader.close()
    for send in (writer.send, writer.try_send, writer.burst, writer.try_burst):
        with pytest.raises(BrokenPipeError, match="atomic"):
            send(b"x")


def test_timeout_raises_timeout_error() -> None:
    reader, writer = atomic.pair()
    for timeout in (0, 0.01, 0.3):
        with pytest.raises(TimeoutError) as raised:
            reader.recv(timeout=timeout)
        assert isinstance(raised.value, pipework.TimedOut)
    for wrong in (-1, float("nan"), "1"):
        with pytest.raises((ValueError, TypeError)):
            reader.recv(timeout=wrong)  # type: ignore[arg-type]
    writer.send(b"in time")
    assert reader.recv(timeout=float("inf")) == b"in time"


def test_message_that_times_out_is_not_delivered() -> None:
    reader, writer = atomic.pair()
    with pytest.raises(TimeoutError):
        writer.send(bytes(1_000_000), timeout=0.4)

    def send_another() -> None:
        writer.send(b"next", timeout=SOON)
        writer.close()

    done = after(0, send_another)
    items = list(reader)
    done.join()
    assert [type(item) for item in items] == [atomic.Message, atomic.Torn]
    assert items[0][0] == b"next"


def test_text_bursts_and_messages_share_a_pipe() -> None:
    reader, writer = atomic.pair(mixed=True, keep_compressed=True)
    os.write(writer.fileno(), b"caf\xc3\xa9\r\n")
    writer.burst(b"burst")
    assert writer.try_burst(b"another")
    writer.send(b"message")
    os.write(writer.fileno(), b"no end")
    taken: list[tuple[object, ...]] = []
    for _ in range(4):
        match reader.next_item(timeout=SOON):
            case atomic.Line(data) as line:
                taken.append((data, line.content, line.text))
            case atomic.Burst(data, compressed=None):
                taken.append((data,))
            case atomic.Message(data, key, parts):
                taken.append((data, key == writer.key, parts))
    assert taken == [(b"caf\xc3\xa9\r\n", b"caf\xc3\xa9", "café"), (b"burst",), (b"another",), (b"message", True, 1)]
    assert reader.try_next_item() is None
    assert reader.peek() == b"no end"
    with pytest.raises(pipework.Invalid):
        reader.recv()
    with pytest.raises(pipework.Invalid):
        writer.burst(b"\x0e")
    with pytest.raises(pipework.TooLong):
        writer.burst(bytes(5000))
    assert (writer.fits_in_burst(b"x"), writer.fits_in_burst(bytes(5000))) == (True, False)
    writer.close()
    assert reader.next_item() == atomic.Line(b"no end")


def test_keep_compressed_returns_the_frames() -> None:
    reader, writer = atomic.pair(zstd=3, keep_compressed=True)
    writer.send(b"x" * 10_000)
    item = reader.next_item(timeout=SOON)
    assert isinstance(item, atomic.Message) and item.compressed is not None
    assert item.data == b"x" * 10_000 and item.compressed.startswith(b"\x28\xb5\x2f\xfd")
    assert reader.keep_compressed and reader.zstd == writer.zstd == atomic.Zstd(3)
    reader.keep_compressed = False
    reader.zstd = writer.zstd = None
    assert (reader.keep_compressed, reader.zstd, writer.zstd) == (False, None, None)
    writer.send(b"plain")
    assert reader.next_item(timeout=SOON) == atomic.Message(b"plain", writer.key, 1, None)
    with pytest.raises(ValueError):
        writer.zstd = 1000
    with pytest.raises(ValueError):
        atomic.Zstd(1000)
    with pytest.raises(TypeError):
        writer.zstd = "fast"  # type: ignore[assignment]
    zstd = atomic.Zstd(1, dictionary=b"dict")
    assert (zstd.level, zstd.dictionary, zstd == atomic.Zstd(1, dictionary=b"dict"), zstd == atomic.Zstd(1)) == (1, b"dict", True, False)


def test_options_are_checked() -> None:
    for wrong in ({"mixd": True}, {"mixed": "yes"}, {"zstd": "fast"}, {"max_message": -1}, {"spin": -1.0}):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            atomic.pair(**wrong)
    reader, _ = atomic.pair(strict=True, max_message=10, max_unfinished=100, read_size=7, frame_timeout=None, max_pending=1, spin=0.0)
    assert reader.read_size == 7
    reader.read_size = 9
    assert reader.read_size == 9


def test_only_the_message_over_max_message_is_lost() -> None:
    reader, writer = atomic.pair(max_message=100)
    writer.send(bytes(101))
    writer.send(b"next")
    with pytest.raises(pipework.TooLong) as raised:
        reader.recv()
    torn = raised.value.torn  # type: ignore[attr-defined]
    assert torn == atomic.Torn(writer.key, 1, 101, pipework.ErrorKind.TOO_LONG, "max_message")
    assert reader.recv() == b"next"
    writer.send(bytes(101))
    writer.send(b"next")
    messages = reader.messages()
    with pytest.raises(pipework.TooLong):
        next(messages)
    assert next(messages) == b"next"


def test_try_send_keeps_the_rest_as_pending() -> None:
    reader, writer = atomic.pair(max_pending=200_000)
    assert writer.try_send(bytes(150_000))
    assert writer.pending > 0
    assert not writer.try_send(bytes(150_000))
    assert not writer.try_flush()
    with pytest.raises(TimeoutError):
        writer.flush(timeout=0.01)
    with pytest.raises(pipework.WouldBlock):
        writer.mixed = True
    closer = after(0, writer.close)
    assert len(reader.recv(timeout=SOON)) == 150_000
    closer.join()
    assert writer.closed


def test_pending_messages_can_be_dropped() -> None:
    reader, writer = atomic.pair()
    writer.max_pending = 10
    assert writer.max_pending == 10
    writer.enqueue(b"one")
    writer.discard()
    assert writer.pending == 0
    writer.send(b"two")
    assert reader.recv() == b"two"


def test_close_that_times_out_still_closes() -> None:
    reader, writer = atomic.pair()
    writer.enqueue(bytes(1_000_000))
    with pytest.raises(TimeoutError):
        writer.close(timeout=0.05)
    assert writer.closed
    writer.close()
    assert [type(item) for item in reader] == [atomic.Torn]


def test_closed_ends_raise_value_error() -> None:
    reader, writer = atomic.pair()
    with reader, writer:
        assert not reader.closed and not writer.closed
    assert reader.closed and writer.closed
    reader.close()
    writer.close()
    for call in (reader.recv, reader.fileno, writer.fileno, reader.peek, lambda: writer.send(b"")):
        with pytest.raises(ValueError, match="is closed"):
            call()


def test_properties_show_modes_and_sizes() -> None:
    reader, writer = atomic.pair()
    assert (reader.mixed, writer.mixed, writer.pipe_buf, writer.max_part) == (False, False, 4096, 4080)
    reader.mixed = writer.mixed = True
    assert (reader.mixed, writer.mixed, writer.max_part) == (True, True, 4077)
    assert reader.capacity == writer.capacity == 65536
    reader.capacity = 8192
    assert reader.capacity == writer.capacity == 8192
    writer.capacity = 100_000
    assert writer.capacity == 131_072, "the kernel rounds up"
    reader.capacity = atomic.max_capacity()
    assert writer.capacity == atomic.max_capacity()


def test_exact_reader_stops_at_the_end_of_an_item() -> None:
    reader, writer = atomic.pair()
    reader.exact = 2
    writer.send_many([b"one", b"two", b"three", b"four"])
    assert [reader.exact, reader.recv(), reader.exact, reader.recv()] == [2, b"one", 1, b"two"]
    second = atomic.Reader(os.dup(reader.fileno()))
    second.exact = 1
    assert second.recv(timeout=SOON) == b"three"
    assert reader.recv(timeout=SOON) == b"four"


def test_read_ahead_makes_space() -> None:
    reader, writer = atomic.pair()
    writer.send(bytes(40_000))
    assert reader.read_ahead(timeout=SOON) == 40_000 + 16 * 10
    writer.send(bytes(40_000), timeout=SOON)
    writer.close()
    assert [len(message) for message in reader.messages()] == [40_000, 40_000]
    assert reader.read_ahead() == 0


def test_fifos_are_opened_by_path(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    atomic.create_fifo(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(TimeoutError):
        atomic.Writer.fifo(path, connect_timeout=0.01)
    for make, ends in ((atomic.Reader.fifo, True), (atomic.Reader.listen, False)):
        with make(str(path), mixed=True) as reader:
            for text in (b"one", b"two"):
                with atomic.Writer.fifo(path, connect_timeout=SOON, mixed=True) as writer:
                    writer.send(text)
                item = reader.next_item(timeout=SOON)
                assert isinstance(item, atomic.Message) and item.data == text
                if ends:
                    break
            with pytest.raises(EOFError if ends else TimeoutError):
                reader.next_item(timeout=0.01)


def test_constructor_takes_a_descriptor_only_if_it_succeeds() -> None:
    read, write = os.pipe()
    for make, wrong in ((atomic.Reader, write), (atomic.Writer, read)):
        for number in (wrong, -1, 1 << 20):
            with pytest.raises(pipework.Invalid):
                make(number)
    with pytest.raises(ValueError):
        atomic.Writer(write, zstd=1000)
    with atomic.Reader(read) as reader, atomic.Writer(write) as writer:
        assert (reader.fileno(), writer.fileno()) == (read, write)
        writer.send(b"x")
        assert reader.recv() == b"x"
    for number in (read, write):
        with pytest.raises(OSError):
            os.fstat(number)


def test_closefd_false_leaves_the_descriptor_open() -> None:
    read, write = os.pipe()
    try:
        for fd in (read, write):
            os.set_inheritable(fd, True)
        for _ in range(2):
            writer = atomic.Writer(write, closefd=False, mixed=True)
            with atomic.Reader(read, closefd=False, mixed=True) as reader:
                assert (reader.fileno(), writer.fileno()) == (read, write)
                writer.enqueue(b"written by close")
                writer.close(timeout=SOON)
                assert reader.next_item(timeout=SOON) == atomic.Message(b"written by close", ANY, 1)
                assert reader.clone().try_next_item() is None
            assert os.get_inheritable(read) and os.get_inheritable(write)
            assert os.get_blocking(read) and os.get_blocking(write)
        with pytest.raises(pipework.Invalid):
            atomic.Reader(write, closefd=False)
    finally:
        os.close(read)
        os.close(write)
    with pytest.raises(pipework.Invalid) as raised:
        atomic.Reader(read, closefd=False)
    assert raised.value.errno == errno.EBADF


def test_children_send_through_their_stdout() -> None:
    program = (
        "import pipework.atomic, sys\n"
        "sys.stdout.write('printed\\n'); sys.stdout.flush()\n"
        "with pipework.atomic.Writer.stdout(mixed=True) as writer: writer.send(sys.argv[1].encode() * 3000)\n"
    )
    reader, writer = atomic.pair(mixed=True)
    children = [subprocess.Popen([sys.executable, "-c", program, name], stdout=writer.fileno()) for name in "abc"]
    writer.close()
    items = list(reader)
    assert [child.wait(SOON) for child in children] == [0, 0, 0]
    assert sorted(item.data for item in items if isinstance(item, atomic.Message)) == [c * 3000 for c in (b"a", b"b", b"c")]
    assert [item.text for item in items if isinstance(item, atomic.Line)] == ["printed"] * 3


def test_a_child_reads_its_stdin() -> None:
    program = "import pipework.atomic\nfor message in pipework.atomic.Reader.stdin().messages(): print(message)"
    reader, writer = atomic.pair()
    child = subprocess.Popen([sys.executable, "-c", program], stdin=reader.fileno(), stdout=subprocess.PIPE)
    reader.close()
    with writer:
        writer.send(b"to the child")
    assert child.communicate(timeout=SOON)[0] == b"b'to the child'\n"


def test_threads_and_clones_share_a_pipe() -> None:
    reader, writer = atomic.pair()
    sent = [f"{thread}:{number}".encode() * 50 for thread in range(4) for number in range(200)]
    got: list[bytes] = []

    def send(thread: int, writer: atomic.Writer) -> None:
        for data in sent[thread * 200 : (thread + 1) * 200]:
            writer.send(data, timeout=SOON)
        if thread % 2:
            writer.close()

    def receive(reader: atomic.Reader) -> None:
        got.extend(reader.messages())

    # Two threads share one handle, two have a clone each; the same for the receivers.
    writers = [writer, writer.clone(), writer, writer.clone()]
    readers = [reader, reader, reader.clone()]
    threads = [threading.Thread(target=send, args=(i, w)) for i, w in enumerate(writers)]
    receivers = [threading.Thread(target=receive, args=(r,)) for r in readers]
    for thread in threads + receivers:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    writer.close()
    for thread in receivers:
        thread.join(SOON)
        assert not thread.is_alive()
    assert sorted(got) == sorted(sent)


def test_closing_ends_a_wait_in_another_thread() -> None:
    reader, writer = atomic.pair()
    closer = after(0.05, reader.close)
    with pytest.raises(ValueError, match="is closed"):
        reader.recv()
    closer.join()

    def close() -> None:
        until(lambda: fd.poll([(reader.fileno(), fd.POLLIN)], timeout=0))
        # `send` may leave the writer to `close` in this time, or later.
        with contextlib.suppress(TimeoutError):
            writer.close(timeout=0)

    reader, writer = atomic.pair()
    closer = after(0, close)
    with pytest.raises(ValueError, match="is closed"):
        writer.send(bytes(1_000_000))
    closer.join()


def test_call_waits_for_the_handle_no_longer_than_its_timeout() -> None:
    reader, writer = atomic.pair()
    thread = threading.Thread(target=lambda: reader.recv(timeout=SOON))
    thread.start()
    until_used(reader)
    assert reader.try_recv() is None
    with pytest.raises(TimeoutError):
        reader.recv(timeout=0.02)
    writer.send(b"x")
    thread.join()


def test_program_ends_although_threads_wait() -> None:
    program = """
import threading
from pipework import atomic, pipe
reader, writer = atomic.pair()
other_reader, other_writer = atomic.pair()
bytes_out, bytes_in = pipe.pipe(10)
waits = [reader.recv, lambda: other_writer.send(bytes(1_000_000)), lambda: bytes_in.write(bytes(100))]
for wait in waits:
    threading.Thread(target=wait, daemon=True).start()
other_reader.read_ahead()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=SOON)


def test_waiting_call_gets_the_handle_after_a_slice() -> None:
    reader, writer = atomic.pair()
    threads = [threading.Thread(target=lambda: reader.recv(timeout=SOON)) for _ in range(3)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for _ in range(4):
        assert reader.capacity == 65536
    assert time.monotonic() - began < SOON / 2
    writer.send_many([b"x"] * 3)
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()


def test_has_other_reader_detects_readers_of_the_same_fifo(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    atomic.create_fifo(path)
    with atomic.Reader.fifo(path) as one:
        assert not one.has_other_reader()
        with atomic.Reader.fifo(path) as two:
            assert one.has_other_reader()
            assert two.has_other_reader()
        assert not one.has_other_reader()
