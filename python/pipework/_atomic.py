"""The items of a pipe, as named tuples that `match` takes apart. The compiled half fills them
in."""

from __future__ import annotations

from typing import NamedTuple, Union

from ._errors import ErrorKind
from ._fields import described


@described(
    pid="The sender's process number, in the sender's own pid namespace.",
    tid="An even random number from 65536 on, drawn for each writer and again after a fork. (Atomic::Pipe puts the thread's number here.)",
)
class WriterKey(NamedTuple):
    """Names one writer in the pipe. Two writers that are alive at the same time have different
    ones."""

    pid: int
    tid: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.tid}"


@described(
    data="What was sent.",
    writer="Who sent it.",
    parts="In how many parts it came; at least 1.",
    compressed="The zstd frame that it came in, if the reader was told to keep it.",
)
class Message(NamedTuple):
    """A message, whole.

    >>> import pipework.atomic
    >>> reader, writer = pipework.atomic.pair()
    >>> writer.send(b"hello")
    >>> match reader.next_item():
    ...     case pipework.atomic.Message(data, parts=1):
    ...         print(data)
    b'hello'
    """

    data: bytes
    writer: WriterKey
    parts: int
    compressed: bytes | None = None


@described(
    data="What was sent.",
    compressed="The zstd frame that it came in, if the reader was told to keep it.",
)
class Burst(NamedTuple):
    """Bytes that were sent in one write, without a sender's name."""

    data: bytes
    compressed: bytes | None = None


@described(
    data=r"The text with its terminator: `\n`, `\r\n` or `\r`. The last line before the end of the pipe may have none.",
)
class Line(NamedTuple):
    r"""A line of ordinary text.

    >>> from pipework.atomic import Line
    >>> line = Line(b"caf\xc3\xa9\r\n")
    >>> line.content, line.text
    (b'caf\xc3\xa9', 'café')
    """

    data: bytes

    @property
    def content(self) -> bytes:
        """The text without its terminator."""
        return self.data.removesuffix(b"\n").removesuffix(b"\r")

    @property
    def text(self) -> str:
        """The content as UTF-8. Bytes that are not UTF-8 become surrogates, as in file names:
        `os.fsencode` turns them back into bytes."""
        return self.content.decode("utf-8", "surrogateescape")


@described(
    writer="Whose it was, where the pipe says so.",
    parts="Parts that had come.",
    bytes="Bytes of data that had come.",
    kind="TORN: its beginning, its rest or something in between never came. TOO_LONG: over `limit`. CORRUPT: it is not what was sent, or does not decompress.",
    limit="Which limit of the reader a message that is TOO_LONG passed: \"max_message\", \"max_unfinished\", or \"memory\".",
)
class Torn(NamedTuple):
    """The report of a message or burst that is lost."""

    writer: WriterKey | None
    parts: int
    bytes: int
    kind: ErrorKind
    limit: str | None = None


Item = Union[Line, Burst, Message, Torn]
"""Anything that comes out of a pipe."""


def _torn(writer: WriterKey | None, parts: int, size: int, kind: int, limit: str | None) -> Torn:
    return Torn(writer, parts, size, ErrorKind(kind), limit)
