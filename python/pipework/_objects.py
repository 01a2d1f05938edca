"""Objects in messages: a pickle, and its long buffers beside it, as blobs.

A buffer that came so is read where it lies, so what is made of it cannot be written to. Shorter ones
are copied with the pickle.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._core import Blob, Segment

LONG = 1 << 16
"""Bytes of a buffer that is a blob if it has more; and of the longest pickle that is none."""

_MOST_BUFFERS = 7
"""Of the eight blobs that a message carries, one may be the pickle."""

_MOST_HELD = 100
"""A blob has a descriptor open: if so many are part of objects here, what comes is copied."""

_held: weakref.WeakSet[Blob] = weakref.WeakSet()


class Pickled(NamedTuple):
    data: bytes
    buffers: Sequence[memoryview | bytes]

    def copied(self) -> Pickled:
        """The same, whatever becomes of the objects that have the buffers."""
        return Pickled(self.data, [bytes(buffer) for buffer in self.buffers])


def dump(what: object) -> Pickled:
    """A pickle, and the buffers that are to be blobs."""
    buffers: list[memoryview] = []

    def goes_into_the_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes <= LONG or len(buffers) == _MOST_BUFFERS:
            return True
        buffers.append(raw)
        return False

    return Pickled(pickle.dumps(what, 5, buffer_callback=goes_into_the_pickle), buffers)


def attach(pickled: Pickled, segment: Segment) -> tuple[bytes, list[Blob]]:
    """The payload of a message, and the blobs that it carries."""
    data, buffers = pickled
    if len(data) > LONG:
        # No pickle is empty.
        data, buffers = b"", [data, *buffers]
    return data, [segment.blob_from(buffer) for buffer in buffers]


def load(data: bytes, blobs: Sequence[Blob]) -> Any:
    """The object that came as such a message."""
    if data:
        return pickle.loads(data, buffers=map(_buffer, blobs))
    return pickle.loads(blobs[0], buffers=map(_buffer, blobs[1:]))


def _buffer(blob: Blob) -> memoryview | bytes:
    if len(_held) >= _MOST_HELD:
        return blob.tobytes()
    _held.add(blob)
    return memoryview(blob)
