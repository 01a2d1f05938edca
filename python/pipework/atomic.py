"""Whole messages of any size from many writers over one POSIX pipe or FIFO, also between ordinary
text.

A pipe keeps 4096 bytes together and tears anything larger. Here any number of processes and threads
send messages of any size into one pipe, and each comes out whole, once, and in the order of its
writer. In mixed mode the same pipe carries text as well: a child process prints any text to its
stdout, and sends messages through it.

>>> import subprocess, sys, pipework.atomic
>>> program = '''
... import pipework.atomic
... print("loading...", flush=True)
... pipework.atomic.Writer.stdout(mixed=True).send(bytes(50_000))
... '''
>>> reader, writer = pipework.atomic.pair(mixed=True)
>>> with writer:
...     child = subprocess.Popen([sys.executable, "-c", program], stdout=writer.fileno())
>>> for item in reader:
...     match item:
...         case pipework.atomic.Line():
...             print("printed:", item.text)
...         case pipework.atomic.Message(data):
...             print("sent:", len(data), "bytes")
printed: loading...
sent: 50000 bytes
>>> child.wait()
0
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict, Union

from ._atomic import Burst, Item, Line, Message, Torn, WriterKey
from ._core import AtomicReader as Reader
from ._core import AtomicWriter as Writer
from ._core import Messages, Zstd, create_fifo, max_capacity, pair

__all__ = [
    "Burst",
    "Item",
    "Line",
    "Message",
    "Messages",
    "Options",
    "Reader",
    "Torn",
    "Writer",
    "WriterKey",
    "Zstd",
    "create_fifo",
    "max_capacity",
    "pair",
]


class Options(TypedDict, total=False):
    """The keyword arguments of everything that makes an end. The same for both ends, except those
    that concern only one of them.

    mixed: Whether text may lie between the messages. Both ends must agree. Default False.
    bursts: Reader, mixed mode: whether bursts are looked for. False for the output of programs that
        may print any bytes: only messages are frames then. Default True.
    strict: Reader, mixed mode: whether a control byte 0x0E that opens no well-formed part or burst
        is an error and not text. Default False.
    zstd: How to compress each message and burst: a `Zstd`, a level alone, or None. Both ends must
        agree on whether. Default None.
    keep_compressed: Reader: whether messages and bursts come with the zstd frame that held them.
        Default False.
    max_message: Reader: the largest message in bytes, and the longest line that is given out in one
        piece. Default 256 MiB.
    max_unfinished: Reader: the bytes of all unfinished messages together; past it the one that
        waited longest is given up. Default 8 times `max_message`, at least 1 GiB.
    read_size: Reader: how many bytes one read asks for, from 1 to 16 MiB. Default 64 KiB.
    frame_timeout: Reader, mixed mode: for how many seconds the rest of a part that has begun is
        waited for while not one byte comes, before it is text and its message is reported as torn;
        None: until the end. A relay (`tee`, ssh) may cut anywhere and stop for a while. Default 5.
    max_pending: Writer: how many bytes may be pending before `try_send` takes no more. Default 1
        MiB.
    or_print: Writer: on a terminal, a file or a device, where no reader decodes messages,
        whether to print each one as a line, uncompressed and without a header; `is_printing` says
        whether it does. If False, such an output is an error. Default False.
    spin: Reader: for how many seconds it spins before it sleeps; 0 for never. At most 0.001.
        Default 0.00002.
    """

    mixed: bool
    bursts: bool
    strict: bool
    zstd: Union[Zstd, int, None]
    keep_compressed: bool
    max_message: int
    max_unfinished: int | None
    read_size: int
    frame_timeout: float | None
    max_pending: int
    or_print: bool
    spin: float


def _reduce(kind: type[Reader | Writer], fd: int, path: Path | None, listens: bool, options: Options) -> tuple[Any, ...]:
    """How pickle brings an end to another process."""
    if path is not None:
        return _reopen, (path, listens, options)
    # As multiprocessing does it with sockets: the child inherits a copy, or asks this process for
    # one.
    from multiprocessing.reduction import DupFd

    return _adopt, (kind, DupFd(fd), options)


def _reopen(path: Path, listens: bool, options: Options) -> Reader:
    return Reader.listen(path, **options) if listens else Reader.fifo(path, **options)


def _adopt(kind: type[Reader | Writer], copy: Any, options: Options) -> Reader | Writer:
    return kind(copy.detach(), **options)
