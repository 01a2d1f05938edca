"""Options: errors name a value out of range and its limit, and `help()` describes all there is to
know."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pipework
import pytest
from pipework import atomic, fd, logging, nats, pipe, reqrep
from pipework.reqrep import Client, Segment, Server

SEGMENT: dict[str, tuple[list[Any], str]] = {
    "slots": ([0, -1, 2**20 + 1, 2**40, 2**80], "from 1 to 1048576"),
    "queue": ([-1, 2**22 + 1, 2**70], "from 0 to 4194304"),
    "request_bytes": ([-1, 2**30 + 1, 2**40, 2**64], "from 0 to 1073741824"),
    "reply_bytes": ([-1, 2**30 + 1, 2**40, 2**64], "from 0 to 1073741824"),
    "members": ([0, 65536, 2**33], "from 1 to 65535"),
    "mode": ([-1, 0o1000], "from 0 to 511"),
    "spin": ([-0.1, 0.1, float("nan"), float("inf")], "from 0 to 0.001"),
}
ENDS: dict[str, tuple[list[Any], str]] = {
    "max_message": ([-1, 2**63, 2**90], "a whole number, 0 or more"),
    "max_unfinished": ([-1, 2**63], "a whole number, 0 or more"),
    "max_pending": ([-1, 2**63], "a whole number, 0 or more"),
    "read_size": ([0, -5, 2**24 + 1, 2**70], "from 1 to 16777216"),
    "zstd": ([23, -131_073, 2**40], "from -131072 to 22"),
    "spin": ([-0.1, 5.0, float("nan")], "from 0 to 0.001"),
    "frame_timeout": ([-1.0, float("nan")], "0 or more"),
}


def test_help_names_the_limits() -> None:
    help_of = {name: " ".join(text.split()) for name, text in re.findall(r"^(\w+): (.*?)(?=^\w+: |\Z)", inspect.getdoc(reqrep.Options) or "", re.M | re.S)}
    for name, limits in {"slots": "1 to 2**20", "members": "1 to 65535", "request_bytes": "at most 2**30", "reply_bytes": "at most 2**30"}.items():
        assert limits in help_of[name]
        most = eval(limits.split()[-1])
        with pytest.raises(pipework.Invalid, match=f" to {most}, not {most + 1}"):
            Segment.anonymous(**{name: most + 1})
    assert "(at most 3)" in str(Client.__doc__)


@pytest.mark.parametrize("name", SEGMENT)
def test_segment_refuses_options_out_of_range(name: str) -> None:
    values, may_be = SEGMENT[name]
    for value in values:
        with pytest.raises(pipework.Invalid) as raised:
            Segment.anonymous(**{name: value})
        assert f"{name} must be" in str(raised.value) and may_be in str(raised.value)
        assert str(raised.value).lower().endswith(f"not {value}")


@pytest.mark.parametrize("name", ENDS)
def test_ends_refuse_options_out_of_range(name: str) -> None:
    values, may_be = ENDS[name]
    for value in values:
        with pytest.raises(pipework.Invalid) as raised:
            atomic.pair(**{name: value})
        assert f"{name} must be" in str(raised.value) and may_be in str(raised.value)


def test_errors_name_other_arguments() -> None:
    segment = Segment.anonymous()
    client = Client(segment)
    for times in (-1, 4, 300):
        with pytest.raises(pipework.Invalid, match="redeliveries must be from 0 to 3"):
            Client(segment, redeliveries=times)
    for calls in (-1, 2**32):
        with pytest.raises(pipework.Invalid, match="max_in_flight must be from 0 to 4294967295"):
            Client(segment, max_in_flight=calls)
    with pytest.raises(pipework.Invalid, match="flags must be from 0 to 4294967295, not -1"):
        client.send(b"", flags=-1)
    with pytest.raises(pipework.Invalid, match="level must be from -131072 to 22, not 99"):
        atomic.Zstd(99)
    reader, _ = atomic.pair()
    with pytest.raises(pipework.Invalid, match="read_size must be"):
        reader.read_size = 0
    wrong_kinds: dict[str, Any] = {"slots": "many", "sparse": 1, "spin": "x", "slotz": 1}
    for name, value in wrong_kinds.items():
        with pytest.raises(TypeError, match=name):
            Segment.anonymous(**{name: value})


def test_too_long_names_the_length_and_the_limit() -> None:
    client = Client(Segment.anonymous(request_bytes=10), max_message=100)
    with pytest.raises(pipework.TooLong, match="101 bytes, and the client's max_message is 100"):
        client.try_send(bytes(101))
    reader, writer = atomic.pair()
    writer.send(bytes(20))
    with pytest.raises(pipework.TooLong, match="the message has 20 bytes, and the buffer 5"):
        reader.recv_into(bytearray(5))


def test_open_refuses_other_sizes_and_names_them(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    Segment.create(path, slots=8, request_bytes=64)
    for opening in (Server, Segment, Segment.open):
        with pytest.raises(pipework.Incompatible) as raised:
            opening(path, request_bytes=1 << 20)
        assert raised.value.filename == str(path)
        assert "request_bytes is 64 in the segment that is there, and 1048576 was asked for" in str(raised.value)
        assert opening(path, slots=8, request_bytes=64) is not None
    with pytest.raises(pipework.Incompatible, match="slots is 8 .* 9 was asked for"):
        Segment(path, slots=9)


def test_help_shows_every_option() -> None:
    for module, makers in ((atomic, (atomic.Reader, atomic.Writer, atomic.pair)), (reqrep, (Segment, Server))):
        options = module.Options
        text = inspect.getdoc(options) or ""
        for name in options.__annotations__:
            described = re.search(rf"^{name}: (.+?)(?=^\w+: |\Z)", text, re.MULTILINE | re.DOTALL)
            assert described, f"{module.__name__}.Options does not describe {name}"
            assert re.search(r"Default\s", described[1]), f"{name} has no default"
        for maker in makers:
            assert "`Options`" in (maker.__doc__ or "")


MAKERS: list[tuple[Any, list[Any]]] = [
    (atomic.Options, [atomic.pair, atomic.Reader, atomic.Reader.fifo, atomic.Reader.listen, atomic.Reader.stdin]),
    (atomic.Options, [atomic.Writer, atomic.Writer.fifo, atomic.Writer.stdout]),
    (reqrep.Options, [Segment, Segment.create, Segment.open, Segment.anonymous, Segment.memfd, Segment.from_fd]),
    (reqrep.Options, [Server]),
]


@pytest.mark.parametrize(("options", "make"), [(options, make) for options, makers in MAKERS for make in makers])
def test_signature_shows_every_option(options: Any, make: Callable[..., object]) -> None:
    by_name = [each for each in inspect.signature(make).parameters.values() if each.kind is each.KEYWORD_ONLY]
    of_one = {"closefd", "connect_timeout"}
    if make is Server:
        of_one |= {"timeout", "max_message", "part_timeout"}
    assert {each.name for each in by_name} - of_one == options.__annotations__.keys()
    described = dict(re.findall(r"^([a-z]\w*): (.+?)(?=^[a-z]\w*: |\Z)", inspect.getdoc(options) or "", re.M | re.S))
    for each in by_name:
        if each.name not in of_one and each.default is not None:
            default = described[each.name].rpartition("Default")[2].strip().removesuffix(".")
            assert value_of(default) == each.default, each.name


def value_of(text: str) -> Any:
    """A default as a person writes it."""
    size = re.fullmatch(r"(\d+)\s+([KM])iB", text)
    return int(size[1]) << {"K": 10, "M": 20}[size[2]] if size else eval(text)


def test_defaults_may_be_given() -> None:
    for make, shown in ((Segment.anonymous, Segment), (atomic.pair, atomic.pair)):
        parameters = inspect.signature(shown).parameters.values()
        defaults: dict[str, Any] = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
        assert make(**defaults) is not None


def test_every_field_of_a_tuple_is_described() -> None:
    found = 0
    for module in (atomic, reqrep, fd):
        for each in vars(module).values():
            for name in getattr(each, "_fields", ()):
                text = getattr(each, name).__doc__
                assert text and not text.startswith("Alias for field"), f"{each.__name__}.{name} is not described"
                found += 1
    assert found > 40


def positional(function: Callable[..., object]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in inspect.signature(function).parameters.values() if each.kind in kinds and each.name != "self"]


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions, the classes and the methods of the package's modules, each with its name."""
    for module in (pipework, atomic, reqrep, pipe, fd, logging, nats):
        for name in module.__all__:
            each: Any = getattr(module, name)
            if not getattr(each, "__module__", "").startswith("pipework") or each is reqrep.Ticket:
                continue
            if not inspect.isclass(each):
                yield f"{module.__name__}.{name}", each
            elif not issubclass(each, (BaseException, dict, enum.Enum, tuple)):
                yield f"{module.__name__}.{name}", each
                for base in each.__mro__:
                    methods = vars(base) if base.__module__.startswith("pipework") else ()
                    for method in methods:
                        if not method.startswith("_") and callable(getattr(each, method)):
                            yield f"{module.__name__}.{name}.{method}", getattr(each, method)


AS_IN_SOCKET = {f"pipework.fd.{name}" for name in ("getsockopt", "recv", "recvfrom", "send", "socket", "socketpair")}


def test_options_are_keywords_in_every_function() -> None:
    found = 0
    for name, function in public():
        taken = positional(function)
        if name not in AS_IN_SOCKET:
            assert all(each.default is each.empty for each in taken[1:]), f"{name} takes an option by its position"
        assert not taken or taken[0].name not in ("timeout", "flags"), name
        found += 1
    assert found > 150


def test_constructors_take_one_positional_argument() -> None:
    makers = [make for _, makers in MAKERS for make in makers]
    for make in (*makers, Client, atomic.Zstd, pipe.pipe, fd.Inbox, logging.Handler, pipework.Executor):
        assert len(positional(make)) <= 1, make


def test_positional_arguments_of_a_method_and_its_a_and_try_twins_are_the_same() -> None:
    found = 0
    by_name = dict(public())
    for name, function in by_name.items():
        owner, _, method = name.rpartition(".")
        for twin in (by_name.get(f"{owner}.a{method}"), by_name.get(f"{owner}.try_{method}")):
            if twin is not None:
                here, there = positional(function), positional(twin)
                assert [(each.name, each.default) for each in here] == [(each.name, each.default) for each in there], name
                found += 1
    assert found > 20
