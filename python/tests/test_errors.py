"""The map from error kinds to exceptions."""

from __future__ import annotations

import copy
import errno
import io
import pickle
from pathlib import Path

import pipework
import pytest
from pipework import ErrorKind, _core, _errors, atomic

EXPECTED: dict[ErrorKind, tuple[type[BaseException], ...]] = {
    ErrorKind.WOULD_BLOCK: (pipework.WouldBlock, BlockingIOError),
    ErrorKind.TIMED_OUT: (pipework.TimedOut, TimeoutError),
    ErrorKind.INTERRUPTED: (pipework.Interrupted, InterruptedError),
    ErrorKind.CLOSED: (pipework.Closed, BrokenPipeError, EOFError),
    ErrorKind.TOO_LONG: (pipework.TooLong, ValueError),
    ErrorKind.STALE: (pipework.Stale,),
    ErrorKind.PEER_DIED: (pipework.PeerDied, ConnectionResetError),
    ErrorKind.NO_SERVER: (pipework.NoServer, ConnectionRefusedError),
    ErrorKind.TORN: (pipework.TornMessage,),
    ErrorKind.CORRUPT: (pipework.Corrupt,),
    ErrorKind.INCOMPATIBLE: (pipework.Incompatible,),
    ErrorKind.UNSUPPORTED: (pipework.Unsupported, io.UnsupportedOperation),
    ErrorKind.INVALID: (pipework.Invalid, ValueError),
    ErrorKind.OS: (pipework.Os,),
    ErrorKind.FAILED: (pipework.Failed,),
    ErrorKind.LAGGED: (pipework.Lagged,),
}


@pytest.mark.parametrize("kind", ErrorKind)
def test_each_kind_is_a_builtin_exception_as_well(kind: ErrorKind) -> None:
    error = _errors.make(kind, "module verb", None, "module verb: it went wrong", 7)
    assert isinstance(error, (pipework.Error, OSError))
    for expected in EXPECTED[kind]:
        assert isinstance(error, expected)
    assert (error.kind, error.op, error.done, str(error)) == (kind, "module verb", 7, "module verb: it went wrong")


def test_errno_is_the_kernels_or_that_of_the_kind() -> None:
    assert set(_core.ERRNOS) == set(ErrorKind)
    for kind, number in _core.ERRNOS.items():
        assert _errors.make(kind, "module verb", None, "text").errno == number
        assert _errors.make(kind, "module verb", errno.ENOSPC, "text").errno == errno.ENOSPC
    reader, writer = atomic.pair()
    for kind, number in ((ErrorKind.TIMED_OUT, errno.ETIMEDOUT), (ErrorKind.CLOSED, errno.EPIPE)):
        with pytest.raises(pipework.Error) as raised:
            reader.recv(timeout=0)
        assert (raised.value.kind, raised.value.errno) == (kind, number)
        writer.close()


@pytest.mark.parametrize("kind", ErrorKind)
def test_exceptions_can_be_pickled(kind: ErrorKind) -> None:
    error = _errors.make(kind, "module verb", errno.ENOENT, "text", 3)
    vars(error)["extra"] = "kept"
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (other.kind, other.op, other.errno, str(other), other.done) == (kind, "module verb", errno.ENOENT, "text", 3)
        assert vars(other)["extra"] == "kept"


def test_lagged_says_how_many_messages_were_missed_where_that_is_known() -> None:
    error = _errors.make(ErrorKind.LAGGED, "broadcast recv", None, "text")
    assert isinstance(error, pipework.Lagged) and error.missed is None
    error.missed = 3
    assert pickle.loads(pickle.dumps(error)).missed == copy.copy(error).missed == 3
    assert error.errno == errno.ENOBUFS


class Mine(pipework.PeerDied):
    pass


class MyRemote(pipework.RemoteError):
    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return MyRemote, (self.number,)


@pytest.mark.parametrize("kind", [each for each in ErrorKind])
def test_exceptions_that_a_program_makes_can_be_pickled_and_copied(kind: ErrorKind) -> None:
    made: list[pipework.Error] = [_errors._CLASSES[kind]("mine"), _errors._CLASSES[kind](5, "mine"), Mine("mine"), MyRemote(3)]
    made[0].extra = "kept"  # type: ignore[attr-defined]
    for error in made:
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(other) is type(error) and str(other) == str(error)
            assert (other.args, other.kind, other.op, vars(other)) == (error.args, error.kind, "", vars(error))
    assert made[0].kind == kind and made[2].kind == ErrorKind.PEER_DIED


@pytest.mark.parametrize(
    ("number", "builtin"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EEXIST, FileExistsError),
        (errno.EACCES, PermissionError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EMFILE, OSError),
    ],
)
def test_system_error_is_the_builtin_exception_of_its_errno(number: int, builtin: type[OSError]) -> None:
    error = _errors.make(ErrorKind.OS, "open", number, "text")
    assert isinstance(error, builtin) and isinstance(error, pipework.Os)
    assert error.errno == number


def test_numbers_and_names_match_the_core(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        atomic.Reader.fifo(tmp_path / "nothing")
    assert (missing.value.errno, isinstance(missing.value, pipework.Os)) == (errno.ENOENT, True)
    path = str(tmp_path / "nothing")
    text = "open fifo for reading: the system call failed: No such file or directory (os error 2)"
    assert (missing.value.filename, str(missing.value)) == (path, f"{text}: {path!r}")
    assert pickle.loads(pickle.dumps(missing.value)).filename == path
    atomic.create_fifo(tmp_path / "fifo")
    with pytest.raises(FileExistsError):
        atomic.create_fifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="open fifo for reading"):
        atomic.Reader.fifo(__file__)
