"""Objects in messages: a pickle, and its long buffers as blobs.

The receiver reads such a buffer in place, so an object that is made of it is read-only. Shorter
buffers are copied with the pickle.
"""

from __future__ import annotations

import collections
import copyreg
import io
import pickle
import weakref
from collections.abc import Iterable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._core import Blob, Segment

LONG = 1 << 16
"""A buffer or a pickle with more bytes is sent as a blob."""

MOST_BUFFERS = 7
"""A message carries eight blobs, and one of them may be the pickle."""

_MOST_HELD = 100
"""Each blob keeps a descriptor open. If objects here use this many, further buffers are copied."""

_held: weakref.WeakSet[Buffer] = weakref.WeakSet()


class Pickled(NamedTuple):
    data: bytes | memoryview
    buffers: Sequence[memoryview | bytes]

    def copied(self) -> Pickled:
        """A pickle with copies of the buffers, for objects that may change."""
        return Pickled(self.data, [bytes(buffer) for buffer in self.buffers])


class _Pickler(pickle.Pickler):
    """Pickles what `multiprocessing` can pickle: connections and sockets too, and what programs have
    registered with `ForkingPickler`, without its cost of a table for each object."""

    dispatch_table: Any = collections.ChainMap(ForkingPickler._extra_reducers, copyreg.dispatch_table)  # type: ignore[attr-defined]


def dump(what: object, most: int = MOST_BUFFERS, long: int = LONG) -> Pickled:
    """Returns the pickle of an object, and at most so many buffers that are to be blobs."""
    buffers: list[memoryview] = []

    def goes_into_the_pickle(buffer: pickle.PickleBuffer) -> bool:
        if len(buffers) == most:
            return True
        raw = buffer.raw()
        if raw.nbytes <= long:
            return True
        buffers.append(raw)
        return False

    data = io.BytesIO()
    _Pickler(data, 5, buffer_callback=goes_into_the_pickle).dump(what)
    return Pickled(data.getvalue(), buffers)


def attach(pickled: Pickled, segment: Segment) -> tuple[Buffer, list[Blob]]:
    """Returns the payload of a message, and the blobs that it carries."""
    data, buffers = outside(pickled)
    return data, [segment.blob_from(buffer) for buffer in buffers]


def outside(pickled: Pickled, long: int = LONG) -> Pickled:
    """Moves a long pickle to the buffers. No pickle is empty, so an empty one says that the first
    buffer is the pickle."""
    data, buffers = pickled
    return pickled if len(data) <= long else Pickled(b"", [data, *buffers])


def load(data: bytes, blobs: Iterable[Buffer]) -> Any:
    """Returns the object of such a message. Takes no more of the blobs than belong to it."""
    unread = iter(blobs)
    return pickle.loads(data or next(unread, b""), buffers=map(_buffer, unread))


def _buffer(blob: Buffer) -> Buffer:
    if len(_held) >= _MOST_HELD:
        return bytes(blob)
    _held.add(blob)
    return memoryview(blob)
