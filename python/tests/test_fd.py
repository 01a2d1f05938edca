"""Module `fd`: every function of the table in docs/io-fd.md, on plain integers."""

from __future__ import annotations

import errno
import gc
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pipework
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipework import fd
from pipework.fd import Stopped
from support import SOON, Alarm, after, signal_after

NOBODY = 1 << 20
"""A number that no descriptor of a test has."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    ends = fd.socketpair(fd.AF_UNIX, fd.SOCK_STREAM)
    yield ends
    for end in ends:
        fd.close(end)


def listener(address: fd.Address = ("127.0.0.1", 0), family: int = fd.AF_INET) -> int:
    made = fd.socket(family, fd.SOCK_STREAM | fd.SOCK_NONBLOCK)
    fd.bind(made, address)
    fd.listen(made, 100)
    return made


def connected(to: int, family: int = fd.AF_INET) -> int:
    made = fd.socket(family, fd.SOCK_STREAM)
    fd.connect(made, fd.getsockname(to))
    return made


def close(*numbers: int) -> None:
    for number in numbers:
        fd.close(number)


# ---------------------------------------------------------------- reading and writing


def test_read_full_and_write_all_transfer_everything(pipe: tuple[int, int], tmp_path: Path) -> None:
    read, write = pipe
    data = os.urandom(500_000)

    def write_and_close() -> None:
        fd.write_all(write, data, timeout=SOON)
        os.close(write)

    writing = after(0, write_and_close)
    assert fd.read_full(read, 400_000, timeout=SOON) == data[:400_000]
    assert fd.read_full(read, 400_000) == data[400_000:]
    assert fd.read_full(read, 1) == b""
    writing.join()
    path = tmp_path / "file"
    path.write_bytes(data)
    number = fd.open(path, os.O_RDWR)
    assert fd.pread_full(number, 10, 499_995) == data[-5:]
    fd.pwrite_all(number, bytearray(b"ab"), 499_999)
    assert fd.slurp(number) == data[:-1] + b"ab"
    assert fd.slurp(number) == b""
    assert (fd.lseek(number, 0, os.SEEK_SET), [len(record) for record in fd.records(number, 200_000)]) == (
        0,
        [200_000, 200_000, 100_001],
    )
    with pytest.raises(ValueError):
        next(fd.records(number, 0))
    fd.close(number)


def test_error_has_the_number_of_bytes_done(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fd.write_all(write, b"12345")
    with pytest.raises(pipework.TimedOut) as raised:
        fd.read_full(read, 100, timeout=0.3)
    assert (raised.value.done, raised.value.data) == (5, b"12345")  # type: ignore[attr-defined]
    fd.write_all(write, b"678")
    with pytest.raises(pipework.TimedOut) as raised:
        fd.slurp(read, timeout=0.01)
    assert (raised.value.done, raised.value.data) == (3, b"678")  # type: ignore[attr-defined]
    with pytest.raises(pipework.TimedOut) as late:
        fd.write_all(write, bytes(100_000), timeout=0.3)
    assert late.value.done == 65_536
    with pytest.raises(pipework.TooLong) as long:
        fd.slurp(read, max_bytes=1000, timeout=1)
    assert isinstance(long.value, ValueError)
    os.close(read)
    with pytest.raises(BrokenPipeError):
        fd.write_all(write, b"x")


def test_exception_of_a_signal_handler_has_the_bytes_done(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fd.write_all(write, b"12345")
    with pytest.raises(Alarm) as raised, signal_after(0.05):
        fd.read_full(read, 100)
    assert raised.value.data == b"12345"  # type: ignore[attr-defined]


def test_copy_functions_copy_everything(pipe: tuple[int, int], pair: tuple[int, int], tmp_path: Path) -> None:
    read, write = pipe
    data = os.urandom(300_000)
    (tmp_path / "source").write_bytes(data)
    source = fd.open(tmp_path / "source", os.O_RDONLY)
    target = fd.open(tmp_path / "target", os.O_RDWR | os.O_CREAT, 0o600)
    assert fd.copy_all(source, target) == 300_000
    assert fd.pread_full(target, 300_000, 0) == data
    sending = after(0, lambda: fd.sendfile_all(source, pair[0], offset=100, count=200_000, timeout=SOON))
    assert fd.copy_all(pair[1], target, count=200_000) == 200_000
    sending.join()
    assert fd.pread_full(target, 200_000, 300_000) == data[100:200_100]
    with pytest.raises(pipework.Invalid):
        fd.sendfile_all(pair[0], source)  # the order of the kernel's sendfile
    fd.lseek(source, 0, os.SEEK_SET)
    splicing = after(0, lambda: fd.splice_all(source, write, timeout=SOON))
    assert fd.read_full(read, 300_000) == data
    splicing.join()
    with pytest.raises(pipework.Invalid):
        fd.splice_all(source, target)
    fd.write_all(write, b"12345")
    with pytest.raises(pipework.TimedOut) as raised:
        fd.copy_all(read, target, timeout=0.3)
    assert raised.value.done == 5
    close(source, target)


# ---------------------------------------------------------------- sockets


def test_accept_many_returns_connections_and_the_reason_it_stopped() -> None:
    server = listener()
    assert fd.accept_many(server, 10) == ([], [], Stopped.WOULD_BLOCK, None)
    clients = [connected(server) for _ in range(5)]
    fds, peers, stopped, error = fd.accept_many(server, 3)
    assert (len(fds), peers, stopped, error) == (3, [fd.getsockname(client) for client in clients[:3]], Stopped.LIMIT, None)
    more = fd.accept_many(server, 10)
    assert (len(more.fds), more.stopped) == (2, Stopped.WOULD_BLOCK)
    for number in fds:
        assert not os.get_blocking(number) and not os.get_inheritable(number)
    refused = fd.accept_many(clients[0], 1)
    assert refused.stopped is Stopped.FAILED and isinstance(refused.error, pipework.Invalid)
    close(server, *clients, *fds, *more.fds)


def test_reserve_sheds_connections_without_descriptors() -> None:
    server = listener()
    with fd.Reserve() as reserve:
        assert reserve.held
        clients = [connected(server) for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(clients) + 1, hard))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        try:
            accepted = fd.accept_many(server, 10)
            assert accepted.fds == [] and accepted.stopped is Stopped.NO_DESCRIPTORS
            assert accepted.error is not None and accepted.error.errno == errno.EMFILE
            assert reserve.shed(server, 10) == (3, Stopped.WOULD_BLOCK, None)
            assert reserve.held
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            close(*held)
    with pytest.raises(ValueError):
        reserve.shed(server, 1)
    close(server, *clients)


@pytest.mark.parametrize("name", ["path", "abstract", "inet6"])
def test_sockets_take_addresses_of_every_kind(name: str, tmp_path: Path) -> None:
    address: fd.Address
    if name == "inet6":
        try:
            server = listener(("::1", 0), fd.AF_INET6)
        except OSError:
            pytest.skip("this machine has no IPv6")
        family = fd.AF_INET6
        address = fd.getsockname(server)
        assert address[0] == "::1"
    else:
        family = fd.AF_UNIX
        address = str(tmp_path / "socket") if name == "path" else b"\0pipework test %d" % os.getpid()
        server = listener(address, family)
        assert fd.getsockname(server) == address
    client = connected(server, family)
    peer = fd.getpeername(client)
    made, who = fd.accept(server)
    many = fd.accept_many(server, 1)
    assert peer == address and many.fds == [] and os.get_blocking(made)
    other = fd.socket(family, fd.SOCK_STREAM)
    if family == fd.AF_UNIX:
        fd.bind(other, str(tmp_path / "client"))
    fd.connect(other, address)
    accepted = fd.accept_many(server, 1)
    assert accepted.peers == [fd.getsockname(other)]
    if family == fd.AF_UNIX:
        assert who in ("", b"") and accepted.peers == [str(tmp_path / "client")]
    close(server, client, made, other, *accepted.fds)


def test_each_call_of_a_socket(pair: tuple[int, int]) -> None:
    near, far = pair
    assert fd.send(near, b"hello") == 5
    assert fd.recv(far, 3) == b"hel"
    assert fd.recvfrom(far, 10)[0] == b"lo"
    fd.shutdown(near, 1)
    assert fd.recv(far, 10) == b""
    assert fd.getsockopt(near, socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    fd.setsockopt(near, socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    assert fd.getsockopt(near, socket.SOL_SOCKET, socket.SO_SNDBUF) >= 20_000  # type: ignore[operator]
    fd.setsockopt(near, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 7, 0))
    assert fd.getsockopt(near, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 64) == struct.pack("ll", 7, 0)
    server = listener()
    client = connected(server)
    made, _ = fd.accept4(server, fd.SOCK_NONBLOCK | fd.SOCK_CLOEXEC)
    assert not os.get_blocking(made) and not os.get_inheritable(made)
    assert not fd.sockatmark(made)
    fd.send(client, b"!", socket.MSG_OOB)
    assert fd.poll([(made, fd.POLLPRI)], timeout=SOON) == [(made, fd.POLLPRI)]
    assert fd.sockatmark(made)
    with pytest.raises(BlockingIOError):
        fd.accept(server)
    close(server, client, made)


def test_connect_looks_host_names_up() -> None:
    server = fd.socket(fd.AF_INET, fd.SOCK_STREAM)
    fd.bind(server, ("localhost", 0))
    fd.listen(server, 5)
    address = fd.getsockname(server)
    assert isinstance(address, tuple)
    host, port = address
    assert host == "127.0.0.1"
    client = fd.socket(fd.AF_INET, fd.SOCK_STREAM)
    fd.connect(client, ("localhost", port))
    every = fd.socket(fd.AF_INET, fd.SOCK_DGRAM)
    fd.bind(every, ("", 0))
    assert fd.getsockname(every)[0] == "0.0.0.0"
    with pytest.raises(socket.gaierror):
        fd.connect(client, ("no such host.invalid", 1))
    with pytest.raises(OverflowError):
        fd.connect(client, ("localhost", 70_000))
    close(server, client, every)


def test_signal_does_not_break_a_waiting_call(pair: tuple[int, int]) -> None:
    server = listener()
    with pytest.raises(Alarm), signal_after(0.05):
        fd.recv(pair[0], 1)
    os.set_blocking(server, True)
    with pytest.raises(Alarm), signal_after(0.05):
        fd.accept(server)
    rang: list[bool] = []
    sending = after(0.2, lambda: fd.send(pair[1], b"x"))
    with signal_after(0.05, handler=lambda: rang.append(True)):
        assert fd.recv(pair[0], 1) == b"x"
    sending.join()
    assert rang == [True]
    close(server)


def test_flags_of_descriptors_are_not_changed(pair: tuple[int, int]) -> None:
    socket.setdefaulttimeout(5)
    try:
        for blocking in (True, False):
            os.set_blocking(pair[0], blocking)
            fd.send(pair[0], b"x")
            assert os.get_blocking(pair[0]) == blocking
        made = fd.socket(fd.AF_UNIX, fd.SOCK_STREAM)
        assert os.get_blocking(made)
        close(made)
    finally:
        socket.setdefaulttimeout(None)


def test_send_many_and_recv_many_transfer_batches(tmp_path: Path) -> None:
    here, there = (fd.socket(fd.AF_INET, fd.SOCK_DGRAM) for _ in range(2))
    for each in (here, there):
        fd.bind(each, ("127.0.0.1", 0))
    to = fd.getsockname(there)
    fd.send_many(here, [(b"%d" % number, to) for number in range(100)] + [(bytearray(b"long" * 10), to)], timeout=SOON)
    inbox = fd.Inbox(64, max_bytes=20)
    come: list[fd.Datagram] = []
    while len(come) < 101:
        come += inbox.recv(there, timeout=SOON)
    assert [datagram.data for datagram in come[:100]] == [b"%d" % number for number in range(100)]
    assert come[100] == fd.Datagram(b"longlonglonglonglong", fd.getsockname(here), True)
    with pytest.raises(TimeoutError):
        inbox.recv(there, timeout=0.01)
    with pytest.raises(Alarm), signal_after(0.05):
        inbox.recv(there)
    for wrong in (("localhost", 1), ("127.0.0.1",), 5, ("127.0.0.1", 70_000), "x" * 200):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            fd.send_many(here, [(b"", wrong)])  # type: ignore[list-item]
    with pytest.raises(ValueError):
        fd.Inbox(0, max_bytes=1)
    local = fd.socket(fd.AF_UNIX, fd.SOCK_DGRAM)
    for name in (str(tmp_path / "local"), b"\0pipework datagrams %d" % os.getpid()):
        target = fd.socket(fd.AF_UNIX, fd.SOCK_DGRAM)
        fd.bind(target, name)
        fd.send_many(local, [(b"x", name)])
        assert inbox.recv(target, timeout=SOON) == [fd.Datagram(b"x", None, False)]
        close(target)
    with pytest.raises(pipework.Unsupported) as raised:
        fd.send_many(listener_free := fd.socket(fd.AF_INET, fd.SOCK_STREAM), [(b"x", None)])
    assert raised.value.done == 0
    close(here, there, local, listener_free)


# ---------------------------------------------------------------- the rest


def test_poll_returns_ready_descriptors(pipe: tuple[int, int]) -> None:
    read, write = pipe
    assert fd.poll([(read, fd.POLLIN)], timeout=0.01) == []
    assert fd.poll([(read, fd.POLLIN), (write, fd.POLLOUT)]) == [(write, fd.POLLOUT)]
    assert fd.poll([], timeout=0.3) == []
    assert fd.poll([(NOBODY, fd.POLLIN)]) == [(NOBODY, fd.POLLNVAL)]
    with pytest.raises(Alarm), signal_after(0.05):
        fd.poll([(read, fd.POLLIN)])
    writing = after(0.3, lambda: os.write(write, b"x"))
    assert fd.poll([(read, fd.POLLIN)]) == [(read, fd.POLLIN)]
    writing.join()
    os.close(write)
    assert fd.poll([(read, fd.POLLIN)], timeout=SOON) == [(read, fd.POLLIN | fd.POLLHUP)]


def test_mkstemp_and_mktemp_make_new_names(tmp_path: Path) -> None:
    number, path = fd.mkstemp(tmp_path / "log-XXXXXX")
    assert os.fstat(number).st_mode & 0o777 == 0o600 and os.path.samestat(os.fstat(number), os.stat(path))
    assert not os.get_inheritable(number)
    free = fd.mktemp(str(tmp_path / "log-XXXXXX"))
    assert free.startswith(str(tmp_path / "log-")) and not os.path.exists(free)
    folder = os.open(tmp_path, os.O_RDONLY)
    other, name = fd.mkstemp("XXXXXXXX", dir_fd=folder)
    assert (tmp_path / name).exists() and not os.path.exists(name)
    assert not (tmp_path / fd.mktemp("XXXXXX", dir_fd=folder)).exists()
    for wrong in ("short-XXXXX", ""):
        with pytest.raises(pipework.Invalid):
            fd.mkstemp(wrong)
    with pytest.raises(FileNotFoundError):
        fd.mkstemp(tmp_path / "nothing" / "XXXXXX")
    close(number, folder, other)


def test_close_range_closes_and_marks() -> None:
    # Numbers that are hardly in use, and permitted where a process may have few.
    first = min(1024, os.sysconf("SC_OPEN_MAX")) - 8
    for number in range(first, first + 4):
        os.dup2(0, number, inheritable=True)
    fd.close_range(first, first + 1, on_exec=True)
    assert [os.get_inheritable(number) for number in range(first, first + 4)] == [False, False, True, True]
    fd.close_range(first, first + 3)
    for number in range(first, first + 4):
        with pytest.raises(OSError):
            os.fstat(number)
    with pytest.raises(pipework.Invalid):
        fd.close_range(2, 1)
    assert fd.dup2(0, first) == first and not os.get_inheritable(first)
    fd.close(first)


NUMBERS: dict[str, Callable[[int], object]] = {
    "read_full": lambda n: fd.read_full(n, 1),
    "write_all": lambda n: fd.write_all(n, b"x"),
    "pread_full": lambda n: fd.pread_full(n, 1, 0),
    "pwrite_all": lambda n: fd.pwrite_all(n, b"x", 0),
    "slurp": fd.slurp,
    "records": lambda n: next(fd.records(n, 1)),
    "copy_all from": lambda n: fd.copy_all(n, 1),
    "copy_all to": lambda n: fd.copy_all(0, n),
    "splice_all": lambda n: fd.splice_all(n, n),
    "sendfile_all": lambda n: fd.sendfile_all(n, n),
    "send_many": lambda n: fd.send_many(n, [(b"x", None)]),
    "inbox": lambda n: fd.Inbox(1, max_bytes=1).recv(n),
    "bind": lambda n: fd.bind(n, ("127.0.0.1", 0)),
    "listen": lambda n: fd.listen(n, 1),
    "accept": fd.accept,
    "connect": lambda n: fd.connect(n, ("127.0.0.1", 1)),
    "shutdown": lambda n: fd.shutdown(n, 2),
    "send": lambda n: fd.send(n, b"x"),
    "recv": lambda n: fd.recv(n, 1),
    "getsockname": fd.getsockname,
    "getpeername": fd.getpeername,
    "getsockopt": lambda n: fd.getsockopt(n, socket.SOL_SOCKET, socket.SO_TYPE),
    "setsockopt": lambda n: fd.setsockopt(n, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    "sockatmark": fd.sockatmark,
    "mkstemp": lambda n: fd.mkstemp("XXXXXX", dir_fd=n),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_invalid_descriptor_numbers_raise_errors(name: str) -> None:
    for number in (-1, -(2**31), NOBODY):
        with pytest.raises((OSError, ValueError)) as raised:
            NUMBERS[name](number)
        if isinstance(raised.value, pipework.Error):
            assert raised.value.errno == errno.EBADF
    for number in (2**31, 2**70):
        with pytest.raises((OverflowError, OSError, ValueError)):
            NUMBERS[name](number)
    with pytest.raises(TypeError):
        NUMBERS[name]("0")  # type: ignore[arg-type]


def test_huge_lengths_raise_errors(pipe: tuple[int, int]) -> None:
    for huge in (2**63 - 1, 2**64 - 1, 2**70):
        with pytest.raises((MemoryError, OverflowError)):
            fd.read_full(pipe[0], huge)
    with pytest.raises((MemoryError, OSError)):
        fd.Inbox(1000, max_bytes=2**62)
    with pytest.raises(OSError):
        fd.pread_full(pipe[0], 1, 2**64 - 1)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=5000), st.integers(1, 2000))
def test_records_cut_the_stream_into_pieces(data: bytes, size: int) -> None:
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    assert list(fd.records(read, size)) == [data[at : at + size] for at in range(0, len(data), size)]
    os.close(read)


def test_many_calls_leave_nothing(pipe: tuple[int, int]) -> None:
    read, write = pipe
    server = listener()
    inbox = fd.Inbox(4, max_bytes=10)
    here, there = fd.socketpair(fd.AF_UNIX, fd.SOCK_DGRAM)

    def once() -> None:
        fd.write_all(write, b"x" * 100)
        fd.read_full(read, 100)
        fd.poll([(read, fd.POLLIN)], timeout=0)
        fd.accept_many(server, 1)
        fd.send_many(here, [(b"x", None)])
        inbox.recv(there)
        with pytest.raises(pipework.TimedOut):
            fd.slurp(read, timeout=0)
        fd.getsockname(server)

    for _ in range(500):
        once()
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(10_000):
        once()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 500
    close(server, here, there)
