"""Objects in messages: a pickle, and its long buffers as blobs.

The receiver reads such a buffer in place, so an object that is made of it is read-only. Shorter
buffers are copied with the pickle.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._core import Blob, Segment

LONG = 1 << 16
"""A buffer or a pickle with more bytes is sent as a blob."""

_MOST_BUFFERS = 7
"""A message carries eight blobs, and one of them may be the pickle."""

_MOST_HELD = 100
"""Each blob keeps a descriptor open. If objects here use this many, further buffers are copied."""

_held: weakref.WeakSet[Blob] = weakref.WeakSet()


class Pickled(NamedTuple):
    data: bytes
    buffers: Sequence[memoryview | bytes]

    def copied(self) -> Pickled:
        """A pickle with copies of the buffers, for objects that may change."""
        return Pickled(self.data, [bytes(buffer) for buffer in self.buffers])


def dump(what: object) -> Pickled:
    """Returns the pickle of an object, and the buffers that are to be blobs."""
    buffers: list[memoryview] = []

    def goes_into_the_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes <= LONG or len(buffers) == _MOST_BUFFERS:
            return True
        buffers.append(raw)
        return False

    return Pickled(pickle.dumps(what, 5, buffer_callback=goes_into_the_pickle), buffers)


def attach(pickled: Pickled, segment: Segment) -> tuple[bytes, list[Blob]]:
    """Returns the payload of a message, and the blobs that it carries."""
    data, buffers = pickled
    if len(data) > LONG:
        # No pickle is empty, so an empty payload says that the first blob is the pickle.
        data, buffers = b"", [data, *buffers]
    return data, [segment.blob_from(buffer) for buffer in buffers]


def load(data: bytes, blobs: Sequence[Blob]) -> Any:
    """Returns the object of such a message."""
    if data:
        return pickle.loads(data, buffers=map(_buffer, blobs))
    return pickle.loads(blobs[0], buffers=map(_buffer, blobs[1:]))


def _buffer(blob: Blob) -> memoryview | bytes:
    if len(_held) >= _MOST_HELD:
        return blob.tobytes()
    _held.add(blob)
    return memoryview(blob)
