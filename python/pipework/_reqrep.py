"""The named tuples of module `reqrep`, and how segments reach other processes. The compiled half
fills them in and calls these functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

from ._core import Blob, Segment
from ._errors import Error
from ._fields import described

T = TypeVar("T")
if TYPE_CHECKING:
    import typing_extensions

    R = typing_extensions.TypeVar("R", default=bytes)
else:
    R = TypeVar("R")

Ticket = NewType("Ticket", int)
"""A call in progress. It is valid for the client that made it."""


class Options(TypedDict, total=False):
    """The keyword arguments of everything that makes a segment. A segment that is opened keeps its
    sizes: if sizes are given, they must be the same.

    slots: Calls that can be in progress at the same time, in all clients together; 1 to 2**20.
        Default 256.
    queue: Cells of the ring of waiting requests. More cells help if many calls are cancelled before
        a server takes them. Default twice the slots, which is enough and the minimum.
    request_bytes: Bytes of a request that a slot holds, at most 2**30; a longer one lies in a
        file in memory. Default 4096.
    reply_bytes: Bytes of a reply that a slot holds, at most 2**30; a longer one lies in a file
        in memory. Default 4096.
    members: Clients and servers that can be attached at the same time; 1 to 65535. Default 256.
    blobs: Blobs that a message can carry, 0 to 8. Default 8.
    blob_pool: Bytes of shared memory that this process keeps for its next blobs, and as much again
        of what others have sent. A blob that is longer has its memory allocated each time. Default
        128 MiB.
    blob_limit: Bytes of all blobs that this process may hold at a time, copies included. Default
        no limit but that of the file system.
    mode: Permissions of the file, for instance 0o660 to share it with a group, whose members are
        then trusted not to disturb. Default 0o600.
    max_bytes: Bytes of the largest segment to open, which caps all of its sizes. Default no cap.
    sparse: Whether memory for payloads is taken when it is first written, instead of all at once.
        Then a full file system is an error (ENOSPC) of `send`, or fails the call whose reply has no
        space. Default False.
    any_owner: Whether to open a segment that belongs to another user. Default False.
    spin: For how many seconds ends spin before they sleep; 0 for never. At most 0.001. Default
        0.00002.
    """

    slots: int | None
    queue: int | None
    request_bytes: int | None
    reply_bytes: int | None
    members: int | None
    blobs: int | None
    blob_pool: int | None
    blob_limit: int | None
    mode: int
    max_bytes: int | None
    sparse: bool
    any_owner: bool
    spin: float | None


@described(
    data="What the server answered: bytes, or the object of the client's codec.",
    flags="The 32 bits that it sent along.",
    blobs="The blobs that it sent along.",
)
class Message(NamedTuple, Generic[R]):
    """A reply with its flags and blobs."""

    data: R
    flags: int
    blobs: tuple[Blob, ...] = ()


class Outcome(Generic[T]):
    """How a call has ended, in the manner of `concurrent.futures.Future`."""

    __slots__ = ("_error", "_reply", "blobs", "flags")

    flags: int
    """The 32 bits that the server sent along; 0 without a reply."""
    blobs: tuple[Blob, ...]
    """The blobs that the server sent along; none without a reply."""

    def __init__(self, reply: T | None, flags: int, error: Error | None, blobs: tuple[Blob, ...]) -> None:
        self._reply = reply
        self._error = error
        self.flags = flags
        self.blobs = blobs

    def result(self) -> T:
        """The reply; raises the error of the call if it has none."""
        if self._error is not None:
            raise self._error
        return self._reply  # type: ignore[return-value]

    def exception(self) -> Error | None:
        """The exception that `result` raises; None if the call has a reply."""
        return self._error

    def __repr__(self) -> str:
        return f"<Outcome: {self._reply if self._error is None else self._error!r}>"


@described(
    slots="Calls that can be in progress at the same time.",
    queue="Cells of the ring of waiting requests, a power of two.",
    request_bytes="Bytes of a request that a slot holds.",
    reply_bytes="Bytes of a reply that a slot holds.",
    members="Clients and servers that can be attached at the same time.",
    blobs="Blobs that a message can carry.",
)
class Geometry(NamedTuple):
    """The sizes of a segment. They never change."""

    slots: int
    queue: int
    request_bytes: int
    reply_bytes: int
    members: int
    blobs: int


@described(
    requests="Calls begun.",
    replies="Requests that servers have answered or given up, whether or not their client still waited.",
    full="Times that a client found no free slot.",
    empty="Times that a server looked for a request and found none.",
    cancelled="Calls cancelled, those that ran out of time included.",
    dead_members="Members that died without leaving.",
    recovered="Slots that were taken back from them.",
    redelivered="Requests that went to another server because theirs had died.",
)
class Stats(NamedTuple):
    """The counters of a segment. A process that is killed may leave a count of its last step
    out."""

    requests: int
    replies: int
    full: int
    empty: int
    cancelled: int
    dead_members: int
    recovered: int
    redelivered: int


@described(
    held="Bytes of the blobs that this process holds now, drafts and copies included.",
    copied="How many blobs it has copied: those that it received while another user may change them, "
    "and those that it sent although they belong to another segment.",
)
class BlobStats(NamedTuple):
    """How much memory this process uses for the blobs of a segment."""

    held: int
    copied: int


@described(
    number="Its number, counted from 1.",
    role="What it does.",
    pid="Its process, as numbered in its own pid namespace. For people.",
    since="When it attached, in seconds as of `time.time`.",
    is_alive="False if it died and no member has recovered it yet.",
)
class Member(NamedTuple):
    """An attached client or server."""

    number: int
    role: Literal["client", "server"]
    pid: int
    since: float
    is_alive: bool


@described(
    free="Not in use.",
    filling="A client is writing its request.",
    waiting="Its request waits for a server.",
    taken="A server has its request.",
    dropped="A server has its request, and the call was cancelled.",
    in_parts="A server has its request, and the client is to take or to write the next part.",
    done="Its reply waits for the client.",
    damaged="Its word is none that a member writes.",
    orphaned="Of all these: held by a member that is gone. Recovery takes them back.",
    unqueued="Of those waiting: not in the ring. Zero, unless a member was between two steps.",
    entries="Entries of the ring, those of cancelled calls included.",
)
class Audit(NamedTuple):
    """Every slot of a segment, counted by its use."""

    free: int
    filling: int
    waiting: int
    taken: int
    dropped: int
    in_parts: int
    done: int
    damaged: int
    orphaned: int
    unqueued: int
    entries: int


def rebuild(base: Any, made: type[T], arguments: tuple[Segment, dict[str, Any]]) -> T:
    """How pickle brings a client or a server to another process: the base class makes it, since a
    subclass may take other arguments. The attributes of a subclass travel beside it."""
    segment, options = arguments
    end: T = base.__new__(made, segment, **options)
    return end


def reduce_segment(path: Path | None, fd: int, options: Options) -> tuple[Any, ...]:
    """How pickle brings a segment to another process: with the options that are for a process."""
    if path is not None:
        return _reopen, (path, options)
    # As multiprocessing does it with sockets: the child inherits a copy, or asks this process for
    # one.
    from multiprocessing.reduction import DupFd

    return _adopt, (DupFd(fd), options)


def _reopen(path: Path, options: Options) -> Segment:
    return Segment.open(path, **options)


def _adopt(copy: Any, options: Options) -> Segment:
    return Segment.from_fd(copy.detach(), **options)
