"""What room `reqrep` tells, as named tuples, and how segments reach other processes. The compiled half fills them in and calls these functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType, TypedDict

from ._core import Segment

Ticket = NewType("Ticket", int)
"""A call in progress. It is good for the client that made it."""


class Options(TypedDict, total=False):
    """The keyword arguments of whatever makes a segment. The sizes matter where one is made; one that is opened must have those that are given."""

    slots: int
    """Calls that can be in progress at the same time, in all clients together; 1 to 2**20. Default 64."""
    queue: int
    """Cells of the ring of waiting requests. The default, twice the slots, is enough; more help where many calls are cancelled before a server takes them."""
    request_bytes: int
    """Bytes of the largest request, at most 2**30. Default 4096."""
    reply_bytes: int
    """Bytes of the largest reply, at most 2**30. Default 4096."""
    members: int
    """Clients and servers that can be attached at the same time; 1 to 65535. Default 256."""
    mode: int
    """Permissions of the file, for instance 0o660 to share it with a group, whose members are then trusted not to disturb. Default 0o600."""
    max_bytes: int
    """Bytes of the largest segment to open, which caps all of its sizes. Default no cap."""
    sparse: bool
    """Whether memory for payloads is taken when it is first written, instead of all at once. Then a full file system is an error (ENOSPC) of `send`, or fails the call whose reply has no room. Default False."""
    any_owner: bool
    """Whether to open a segment that belongs to another user. Default False."""
    integers: bool
    """Whether payloads are single numbers, for `IntClient` and `IntServer`. Default False."""
    spin: float | None
    """For how many seconds ends look again and again before they sleep; 0 for never. At most 0.001. Default 0.00002."""


class Message(NamedTuple):
    """A reply with its flags."""

    data: bytes
    """What the server answered."""
    flags: int
    """The 32 bits that it sent along."""


class Geometry(NamedTuple):
    """The sizes of a segment. They never change."""

    integers: bool
    """Whether payloads are single numbers."""
    slots: int
    """Calls that can be in progress at the same time."""
    queue: int
    """Cells of the ring of waiting requests, a power of two."""
    request_bytes: int
    """Bytes of the largest request."""
    reply_bytes: int
    """Bytes of the largest reply."""
    members: int
    """Clients and servers that can be attached at the same time."""


class Stats(NamedTuple):
    """What was done in a segment. A process that is killed may leave a count of its last step out."""

    requests: int
    """Calls begun."""
    replies: int
    """Requests that servers have answered or given up, whether anybody still waited or not."""
    full: int
    """Times that a client found no free slot."""
    empty: int
    """Times that a server looked for a request and found none."""
    cancelled: int
    """Calls cancelled, those that ran out of time included."""
    torn_off: int
    """Members that died without leaving."""
    recovered: int
    """Slots that were taken back from them."""
    redelivered: int
    """Requests that went to another server because theirs had died."""


class Member(NamedTuple):
    """An attached client or server."""

    number: int
    """Its number, counted from 1."""
    role: Literal["client", "server"]
    """What it does."""
    pid: int
    """Its process, as numbered in its own pid namespace. For people."""
    since: float
    """When it attached, in seconds as of `time.time`."""
    is_alive: bool
    """False if it died and nobody has recovered it yet."""


class Audit(NamedTuple):
    """Every slot of a segment, by what it is used for."""

    free: int
    """Nobody uses it."""
    filling: int
    """A client is writing its request."""
    waiting: int
    """Its request waits for a server."""
    taken: int
    """A server has its request."""
    dropped: int
    """A server has its request, and the call was cancelled."""
    done: int
    """Its reply waits for the client."""
    damaged: int
    """Its word is none that a member writes."""
    orphaned: int
    """Of all these: held by a member that is gone. Recovery takes them back."""
    unqueued: int
    """Of those waiting: not in the ring. Zero, unless a member was between two steps."""
    entries: int
    """Entries of the ring, those of cancelled calls included."""


def reduce_segment(path: Path | None, fd: int, any_owner: bool, spin: float | None) -> tuple[Any, ...]:
    """How pickle brings a segment to another process."""
    options = Options(any_owner=any_owner, spin=spin)
    if path is not None:
        return _reopen, (path, options)
    # As multiprocessing does it with sockets: the child inherits a copy, or asks this process for one.
    from multiprocessing.reduction import DupFd

    return _adopt, (DupFd(fd), options)


def _reopen(path: Path, options: Options) -> Segment:
    return Segment.open(path, **options)


def _adopt(copy: Any, options: Options) -> Segment:
    return Segment.from_fd(copy.detach(), **options)
