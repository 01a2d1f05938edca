"""Programs that print text to stdout and send results through it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, NoReturn, TextIO

from . import _loops, atomic
from ._descriptors import Identity, identity
from ._errors import Closed, TimedOut
from ._fields import described

_PATIENCE = 5.0
"""Seconds that a child has after SIGTERM."""

_MOMENT = 0.5
"""Seconds that the pipes of a child that was killed have to end. A grandchild may keep them open."""


@described(
    args="The command.",
    returncode="Its exit status, or the negative number of the signal that ended it.",
    messages="What it sent, with `pipework.atomic.Writer.stdout(mixed=True)`.",
    lines="What it printed, without the ends of lines.",
    lost="Reports of messages that did not come whole.",
    stderr="What it wrote to stderr, if that was asked for with `stderr=subprocess.PIPE`.",
)
class Completed(NamedTuple):
    """The end of a command, and the contents of its stdout."""

    args: Sequence[str]
    returncode: int
    messages: list[bytes]
    lines: list[str]
    lost: list[atomic.Torn]
    stderr: bytes | str | None = None


def run(
    args: Sequence[str],
    *,
    input: bytes | str | None = None,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> Completed:
    """Runs a command as `subprocess.run` does, and separates the messages that it and its children
    send through stdout from the text that they print there. `options` are those of
    `subprocess.Popen`. The command reads `input` from its stdin; it is text if `options` ask for
    text.

    After `timeout` seconds it raises `subprocess.TimeoutExpired`; then, and for any other
    exception, the command is killed. With `check`, a status that is not 0 raises
    `subprocess.CalledProcessError`. The `output` of both is the text that was printed.

    >>> import sys
    >>> from pipework import run
    >>> program = '''
    ... import pipework.atomic
    ... print("loading...", flush=True)
    ... pipework.atomic.Writer.stdout(mixed=True).send(b"the result")
    ... '''
    >>> done = run([sys.executable, "-c", program])
    >>> done.messages, done.lines, done.returncode
    ([b'the result'], ['loading...'], 0)
    """
    end = None if timeout is None else time.monotonic() + timeout

    def left() -> float | None:
        return None if end is None else max(0.0, end - time.monotonic())

    if input is not None:
        if "stdin" in options:
            raise ValueError("stdin and input cannot be used together")
        options["stdin"] = subprocess.PIPE
    messages: list[bytes] = []
    lines: list[str] = []
    lost: list[atomic.Torn] = []
    stderr: list[bytes | str] = []
    with Workers(args, **options) as workers:
        reader, child = workers.reader, workers.children[0]
        # Each pipe of a child has a thread: it may fill one while it waits for another.
        threads = []
        try:
            if child.stdin is not None:
                if input and isinstance(input, str) != isinstance(child.stdin, io.TextIOBase):
                    raise TypeError("input is text if the options ask for text, and bytes otherwise")
                threads.append(_beside(_feed, child.stdin, input))
            if child.stderr is not None:
                threads.append(_beside(_drain, child.stderr, stderr))
            with contextlib.suppress(Closed):
                while True:
                    match reader.next_item(timeout=left()):
                        case atomic.Message(data):
                            messages.append(data)
                        case atomic.Torn() as torn:
                            lost.append(torn)
                        case atomic.Burst(data):
                            lines.append(atomic.Line(data).text)
                        case line:
                            lines.append(line.text)
            child.wait(left())
            for thread in threads:
                thread.join(left())
                if thread.is_alive():
                    raise subprocess.TimeoutExpired(args, timeout or 0.0)
        except BaseException as error:
            child.kill()
            for thread in threads:
                thread.join(_MOMENT)
            if isinstance(error, (TimedOut, subprocess.TimeoutExpired)):
                raise subprocess.TimeoutExpired(args, timeout or 0.0, "\n".join(lines), *stderr) from None
            raise
    if check and child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, args, "\n".join(lines), *stderr)
    return Completed(args, child.returncode, messages, lines, lost, *stderr)


def _beside(function: Callable[..., None], *args: Any) -> threading.Thread:
    # A daemon thread: a grandchild may keep a pipe open for as long as it likes.
    thread = threading.Thread(target=function, args=args, name="pipework.run", daemon=True)
    thread.start()
    return thread


def _feed(stdin: IO[Any], data: bytes | str | None) -> None:
    # The command need not read its input.
    with contextlib.suppress(BrokenPipeError), stdin:
        if data:
            stdin.write(data)


def _drain(stderr: IO[Any], read: list[bytes | str]) -> None:
    with stderr:
        read.append(stderr.read())


class Workers:
    """Commands that run side by side and share one stdout. The text that they print comes out as
    lines, and what they send with `pipework.atomic.Writer.stdout(mixed=True)` comes out as
    messages.

    `with Workers([sys.executable, "work.py", "1"], [sys.executable, "work.py", "2"]) as workers:`
    starts them, and `for item in workers:` gives items as they come, until all have ended: those of
    `pipework.atomic`, a `Message`, a `Line`, or a `Torn` for one that was killed in the middle. In
    asyncio and trio it is `async with` and `async for`. Those that still run when the block is left get
    SIGTERM, and SIGKILL after five seconds. `options` are those of `subprocess.Popen`.

    A `Message` names its writer, whose `pid` is that of the child. A `Line` does not say which
    child printed it, and a line that is printed in several writes may contain text of another
    child. If that matters, have the children send messages, or run each with `Workers` of its own.
    With `stderr=subprocess.PIPE` or `stdin=subprocess.PIPE` the program reads and writes the
    streams of `children` itself, in threads or tasks beside the loop.

    >>> import sys
    >>> from pipework import Workers
    >>> program = '''
    ... import sys, pipework.atomic
    ... with pipework.atomic.Writer.stdout(mixed=True) as results:
    ...     results.send(sys.argv[1].encode() * 2)
    ... '''
    >>> with Workers(*([sys.executable, "-c", program, each] for each in "abc")) as workers:
    ...     sorted(item.data for item in workers)
    [b'aa', b'bb', b'cc']
    >>> workers.returncodes
    [0, 0, 0]
    """

    reader: atomic.Reader
    """The end of the pipe from which items are read."""
    children: list[subprocess.Popen[bytes]]

    def __init__(self, *commands: Sequence[str], **options: Any) -> None:
        self._commands = commands
        self._options = options
        self.children = []

    @property
    def returncodes(self) -> list[int | None]:
        """The exit statuses of the commands, as `Popen.returncode` says them."""
        return [child.poll() for child in self.children]

    def __iter__(self) -> Iterator[atomic.Item]:
        return iter(self.reader)

    def __aiter__(self) -> AsyncIterator[atomic.Item]:
        return aiter(self.reader)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("Workers cannot be copied or pickled: their block ends the children")

    def __enter__(self) -> Workers:
        self.reader, writer = atomic.pair(mixed=True)
        try:
            with writer:
                for command in self._commands:
                    self.children.append(subprocess.Popen(command, stdout=writer.fileno(), **self._options))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        # Close the reader first: a child that goes on printing must not wait for a reader. A child
        # that has closed its stdout is about to end by itself, and gets a moment for it.
        self.reader.close()
        running = [child for child in self.children if child.poll() is None]
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.1 if child is running[0] else 0)
        for child in running:
            child.terminate()
        end = time.monotonic() + _PATIENCE
        for child in running:
            try:
                child.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    async def __aenter__(self) -> Workers:
        return self.__enter__()

    async def __aexit__(self, *_exception: object) -> None:
        await _loops.in_thread(self.__exit__)


@contextlib.contextmanager
def guard_stdout() -> Iterator[TextIO]:
    """Keeps stdout and stdin for one owner, in a program that speaks a protocol there. Text that other
    code prints meanwhile, to `sys.stdout` or to descriptor 1, in Python, in C or in a child, goes to
    stderr. Children have an empty stdin: they cannot take the requests of the protocol.

    The `with` block gets a text stream of the original stdout, in UTF-8, which is written out line
    by line. Bytes go to its `buffer`, messages to `atomic.Writer(stream.fileno(), closefd=False)`.
    `sys.stdin` goes on with the original stdin, under another number: in the block, descriptor 0 is
    /dev/null, and code that needs a descriptor takes `sys.stdin.fileno()`.
    It affects the whole process, so use it in the main thread. While one thread is in such a block, another
    gets a RuntimeError. Blocks of one thread may overlap: the last that is left gives stdout back.

        with pipework.guard_stdout() as protocol:
            import a_library_that_prints  # to stderr
            for line in sys.stdin:
                print(answer(line), file=protocol)
    """
    guard = _Guard(threading.get_ident(), {}, [])
    # First in the list, then the look: of two threads that come at once, one sees the other.
    _guards.append(guard)
    try:
        if _guards[0].thread != guard.thread:
            raise RuntimeError("guard_stdout is in use in another thread, and stdout has one owner at a time")
        _flush()
        stdout = _move_away(1, guard)
        os.dup2(2, 1)
        _empty_stdin(guard)
        with io.open(stdout.moved, "w", encoding="utf-8", buffering=1, closefd=False) as stream:
            raw: Any = stream.buffer.raw  # type: ignore[attr-defined]
            try:
                yield stream
            finally:
                if not stdout.is_intact() and not raw.closed:
                    raw.__init__(2, "wb", closefd=False)
    finally:
        _leave(guard)


class _Original(NamedTuple):
    """What a descriptor was, under another number."""

    moved: int
    file: Identity | None
    raws: Sequence[io.FileIO]
    """What reads it."""

    def is_intact(self) -> bool:
        return identity(self.moved) == self.file

    def close(self) -> None:
        """Closes it, unless the program has."""
        if self.is_intact():
            os.close(self.moved)


class _Guard(NamedTuple):
    thread: int
    originals: dict[int, _Original]
    """What it gives back, by the numbers."""
    others: list[_Original]
    """What it has used, and does not give back."""


_guards: list[_Guard] = []
"""The blocks that were entered and not left, in this order."""


def _move_away(number: int, guard: _Guard, raws: Sequence[io.FileIO] = ()) -> _Original:
    moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)  # never the number of a stdin that is closed
    original = guard.originals[number] = _Original(moved, identity(moved), raws)
    return original


def _empty_stdin(guard: _Guard) -> None:
    """Makes descriptor 0 /dev/null. `sys.stdin` reads the original, with what it has read ahead."""
    raws = [raw for stream in {sys.stdin, sys.__stdin__} if (raw := _raw(stream)) is not None]
    try:
        stdin = _move_away(0, guard, raws)
    except OSError:  # there is none
        return
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    # A thread that reads meanwhile gets what it waits for, and reads the new number after that.
    _renumber(raws, stdin.moved)
    os.dup2(null, 0)
    os.close(null)


def _leave(guard: _Guard) -> None:
    """Gives the originals back. If a block that was entered later is still there, that does it."""
    position = next((position for position, each in enumerate(_guards) if each is guard), None)
    if position is None:  # a forked child, and the block is that of another thread
        return
    del _guards[position]
    with contextlib.ExitStack() as all_of_it:
        for other in guard.others:
            all_of_it.callback(other.close)
        if position == len(_guards):
            for number, original in guard.originals.items():
                all_of_it.callback(_give_back, number, original)
            if guard.originals:
                all_of_it.callback(_flush)
            return
        heir = _guards[position]
        for number, original in guard.originals.items():
            if number in heir.originals:
                heir.others.append(heir.originals[number])
            heir.originals[number] = original


def _give_back(number: int, original: _Original) -> None:
    """Gives the original its number again. If the program has closed it, its moved number is left alone."""
    try:
        if not original.is_intact():
            raise OSError(errno.EBADF, f"the original of descriptor {number} was closed by the program")
        os.dup2(original.moved, number)
        os.close(original.moved)
    finally:
        _renumber(original.raws, number)


def _raw(stream: Any) -> io.FileIO | None:
    """What reads descriptor 0 for this stream, if it does."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, io.FileIO) and not raw.closed and raw.fileno() == 0 else None


def _renumber(raws: Iterable[io.FileIO], number: int) -> None:
    for raw in raws:
        if not raw.closed:
            raw.__init__(number, "rb", closefd=False)  # type: ignore[misc]


def _forked() -> None:
    """In a forked child, stdin is empty, too."""
    for guard in _guards:
        stdin = guard.originals.pop(0, None)
        if stdin is not None:
            _renumber(stdin.raws, 0)
            stdin.close()
    here = threading.get_ident()
    _guards[:] = [each for each in _guards if each.thread == here]


os.register_at_fork(after_in_child=_forked)


def _flush() -> None:
    """Flushes the buffers, because their bytes belong to the present target of descriptor 1."""
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not stream.closed:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
