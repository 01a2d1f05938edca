"""Codecs: how objects become the bytes and the blobs of messages, and objects again.

The compiled half calls `found`, `encode`, `decode` and `decoded` for a client with `codec=`; handlers
use the same.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import json
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from ._errors import ErrorKind, make
from ._reqrep import Message

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeAlias

    from ._core import Blob, Segment

    CodecName: TypeAlias = Literal["json", "msgpack", "pickle"]

T = TypeVar("T")


class Codec(Protocol[T]):
    """An object that a call takes as `codec=`, such as the module `orjson` or `cbor2`."""

    def dumps(self, value: T, /) -> Buffer | str:
        """The bytes of an object. Text is sent in UTF-8."""

    def loads(self, data: bytes, /) -> T:
        """The object of such bytes. They come from another process, and may be anything."""


class Found(abc.ABC, Generic[T]):
    """A codec that a call has named. A failure to encode raises `Invalid`, one to decode `Corrupt`."""

    def __init__(self, named: Any, name: str) -> None:
        self.named = named
        """The argument that it was found by."""
        self._name = name

    def encode(self, op: str, what: str, value: Any, segment: Segment, count: int) -> tuple[Buffer, list[Blob]]:
        """The bytes of an object, and the blobs that belong to it, in a message that carries `count`
        others behind them. `what` is "request" or "reply", for the error."""
        try:
            return self._encode(value, segment, count)
        except OSError:
            raise  # no memory for a blob
        except Exception as error:
            text = f"{op}: the {what} cannot be encoded by {self._name}: {_text_of(error)}"
            raise make(ErrorKind.INVALID, op, None, text) from error

    def decode(self, op: str, what: str, data: bytes, blobs: Sequence[Blob]) -> tuple[T, tuple[Blob, ...]]:
        """The object of a message, and the blobs that do not belong to it."""
        try:
            return self._decode(data, blobs)
        except (Exception, SystemExit) as error:  # a pickle may call any function, also sys.exit
            text = f"{op}: the {what} cannot be decoded by {self._name}: {_text_of(error)}"
            raise make(ErrorKind.CORRUPT, op, None, text) from error

    @abc.abstractmethod
    def _encode(self, value: Any, segment: Segment, count: int) -> tuple[Buffer, list[Blob]]: ...

    @abc.abstractmethod
    def _decode(self, data: bytes, blobs: Sequence[Blob]) -> tuple[T, tuple[Blob, ...]]: ...


class _Functions(Found[T]):
    """Two functions, which need no blobs."""

    def __init__(self, named: Any, name: str, dumps: Callable[[Any], Buffer | str], loads: Callable[[bytes], T]) -> None:
        super().__init__(named, name)
        self._dumps = dumps
        self._loads = loads

    def _encode(self, value: Any, segment: Segment, count: int) -> tuple[Buffer, list[Blob]]:
        data = self._dumps(value)
        if isinstance(data, str):
            return data.encode(), []
        return data if isinstance(data, bytes) else memoryview(data).tobytes(), []

    def _decode(self, data: bytes, blobs: Sequence[Blob]) -> tuple[T, tuple[Blob, ...]]:
        return self._loads(data), tuple(blobs)


class _Pickle(Found[Any]):
    """Long buffers of an object, such as an array's, are blobs."""

    def __init__(self) -> None:
        # Read when it is asked for, and not by every program that calls.
        from . import _objects

        super().__init__("pickle", "pickle")
        self._objects = _objects

    def _encode(self, value: Any, segment: Segment, count: int) -> tuple[Buffer, list[Blob]]:
        free = segment.geometry.blobs - count
        # One is kept free for the pickle.
        pickled = self._objects.dump(value, max(free - 1, 0))
        return self._objects.attach(pickled, segment) if free > 0 else (pickled.data, [])

    def _decode(self, data: bytes, blobs: Sequence[Blob]) -> tuple[Any, tuple[Blob, ...]]:
        unread = iter(blobs)
        return self._objects.load(data, unread), tuple(unread)


def found(named: Any) -> Found[Any]:
    """The codec of the argument `codec=`."""
    if isinstance(named, str):
        if named not in _NAMED:
            raise ValueError(f"codec must be {', '.join(map(repr, _NAMED))} or an object with dumps and loads, not {named!r}")
        return _NAMED[named]()
    if not callable(getattr(named, "dumps", None)) or not callable(getattr(named, "loads", None)):
        raise TypeError(f"codec must be a name or an object with dumps and loads, not {named!r}")
    name = getattr(named, "__name__", type(named).__name__)
    return _Functions(named, name, named.dumps, named.loads)


async def decoded(codec: Found[T], op: str, awaited: Awaitable[Message], is_message: bool) -> T | Message[T]:
    """The object, or the message, of a reply that a task waits for."""
    data, flags, blobs = await awaited
    value, others = codec.decode(op, "reply", data, blobs)
    return Message(value, flags, others) if is_message else value


def plain(value: Any) -> Any:
    """What stands for an object of a type that the format lacks: for a dataclass a dict of its
    fields, for an array the list of its elements, and for a number of numpy the number."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if callable(to_list := getattr(value, "tolist", None)):
        return to_list()
    raise TypeError(f"Object of type {type(value).__name__} is not serializable")


@functools.cache
def _json() -> Found[Any]:
    dumps = json.JSONEncoder(default=plain, separators=(",", ":")).encode
    return _Functions("json", "json", dumps, json.loads)


@functools.cache
def _msgpack() -> Found[Any]:
    try:
        import msgpack  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError('codec="msgpack" needs the package msgpack: pip install msgpack', name="msgpack") from error

    def default(value: Any) -> Any:
        if isinstance(value, int):
            raise TypeError("an int is below -2**63 or above 2**64 - 1")
        return plain(value)

    def loads(data: bytes) -> Any:
        # Its default refuses all keys but text and bytes, although it writes them.
        unpack = functools.partial(msgpack.unpackb, data, strict_map_key=False)
        try:
            return unpack()
        except TypeError:  # a key is a list or a dict
            return unpack(object_pairs_hook=_hashed)

    return _Functions("msgpack", "msgpack", functools.partial(msgpack.packb, default=default), loads)


def _hashed(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(key): value for key, value in pairs}


def _hashable(key: Any) -> Any:
    """A key: a tuple where it is a list, and a tuple of pairs where it is a dict."""
    if isinstance(key, list):
        return tuple(map(_hashable, key))
    if isinstance(key, dict):
        return tuple((name, _hashable(value)) for name, value in key.items())
    return key


_NAMED: dict[str, Callable[[], Found[Any]]] = {"json": _json, "msgpack": _msgpack, "pickle": functools.cache(_Pickle)}


def _text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()
