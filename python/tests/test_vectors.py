"""The byte vectors that every language reads alike."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pipework
import pytest
from pipework import ErrorKind, atomic

FOLDER = Path(__file__).parents[2] / "vectors" / "atomic"
INDEX = json.loads((FOLDER / "index.json").read_text())
VECTORS: list[dict[str, Any]] = INDEX["vectors"]
ENDS: dict[str, type[pipework.Error]] = {"closed": pipework.Closed, "corrupt": pipework.Corrupt}
KINDS = {
    "torn": ErrorKind.TORN,
    "too_long": ErrorKind.TOO_LONG,
    "corrupt": ErrorKind.CORRUPT,
    "incompatible": ErrorKind.INCOMPATIBLE,
}


def data(said: Any) -> bytes:
    """A string stands for bytes, one for each character; an object for the numbers from
    `count_from` on."""
    if isinstance(said, str):
        return said.encode("latin-1")
    numbers = (b"%d " % number for number in range(said["count_from"], said["count_from"] + said["len"]))
    return b"".join(numbers)[: said["len"]]


def item(said: dict[str, Any]) -> atomic.Item:
    writer = atomic.WriterKey(*said["writer"]) if said.get("writer") else None
    match said["type"]:
        case "line":
            return atomic.Line(data(said["data"]))
        case "burst":
            return atomic.Burst(data(said["data"]))
        case "message":
            assert writer is not None
            return atomic.Message(data(said["data"]), writer, said["parts"])
        case "torn":
            limit = "max_message" if said["kind"] == "too_long" else None
            return atomic.Torn(writer, said["parts"], said["bytes"], KINDS[said["kind"]], limit)
    raise AssertionError(f"a pipe does not give out {said}")


def options(vector: dict[str, Any]) -> atomic.Options:
    options = atomic.Options(mixed=vector["mode"] == "mixed", strict=vector["strict"])
    if vector["max_message"] is not None:
        options["max_message"] = vector["max_message"]
    if zstd := vector["zstd"]:
        dictionary = zstd["dictionary"] and (FOLDER / zstd["dictionary"]).read_bytes()
        options["zstd"] = atomic.Zstd(dictionary=dictionary, accept_unchecked=zstd["accept_unchecked"])
    return options


def filled(vector: dict[str, Any], read_size: int) -> atomic.Reader:
    named = options(vector)
    named["read_size"] = read_size
    reader, writer = atomic.pair(**named)
    wire = (FOLDER / f"{vector['name']}.bin").read_bytes()
    assert os.write(writer.fileno(), wire) == len(wire)
    writer.close()
    return reader


def test_vectors_are_found() -> None:
    assert len(VECTORS) > 90
    assert (INDEX["byte_order"], INDEX["pipe_buf"]) == (sys.byteorder, 4096)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_reader_decodes_the_vectors_as_the_index_says(vector: dict[str, Any]) -> None:
    for read_size in (1, 17, 65536):
        reader = filled(vector, read_size)
        for expected in map(item, vector["items"]):
            assert reader.next_item(timeout=20) == expected
        for _ in range(2):
            with pytest.raises(ENDS[vector["ends"]]):
                reader.next_item(timeout=20)


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["mode"] == "plain"], ids=lambda vector: vector["name"])
def test_recv_yields_the_messages_of_a_plain_pipe_and_reports_lost_ones(vector: dict[str, Any]) -> None:
    reader = filled(vector, 65536)
    for expected in map(item, vector["items"]):
        if isinstance(expected, atomic.Message):
            assert reader.recv(timeout=20) == expected.data
        else:
            assert isinstance(expected, atomic.Torn)
            with pytest.raises(pipework.Error) as raised:
                reader.recv(timeout=20)
            assert (raised.value.kind, raised.value.torn) == (expected.kind, expected)  # type: ignore[attr-defined]
    with pytest.raises(ENDS[vector["ends"]]) as ended:
        reader.recv(timeout=20)
    assert not hasattr(ended.value, "torn")
