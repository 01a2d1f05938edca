"""Conventions of the standard library that every handle keeps: a name in its repr, weak
references, `close` and `with`, a warning when it was forgotten, a descriptor for `selectors`."""

from __future__ import annotations

import gc
import io
import modulefinder
import multiprocessing
import multiprocessing.connection
import os
import pickle
import pydoc
import re
import selectors
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipework
import pytest
from pipework import atomic
from pipework.pipe import pipe, produce
from pipework.reqrep import Client, Segment, Server
from support import SOON, in_child

# It keeps no file for its next blob.
SEGMENT = Segment.anonymous(blob_pool=0)
HANDLES: dict[str, Callable[[], Any]] = {
    "Segment": lambda: Segment.anonymous(slots=2),
    "BlobMut": lambda: SEGMENT.blob(8),
    "Client": lambda: Client(SEGMENT),
    "Server": lambda: Server(SEGMENT),
    "Stream": lambda: Client(SEGMENT).stream(b""),
    "atomic Reader": lambda: atomic.pair()[0],
    "atomic Writer": lambda: atomic.pair()[1],
    "pipe Reader": lambda: pipe()[0],
    "pipe Writer": lambda: pipe()[1],
}


@pytest.mark.parametrize("name", HANDLES)
def test_handles_support_close_repr_and_weakref(name: str) -> None:
    handle: Any = HANDLES[name]()
    reference = weakref.ref(handle)
    assert reference() == handle and name.split()[-1] in repr(handle)
    with handle as itself:
        assert itself is handle
        assert "closed" not in repr(handle)
    assert repr(handle).endswith("closed>")
    handle.close()
    assert getattr(handle, "closed", True)
    del handle, itself
    gc.collect()
    assert reference() is None


def test_repr_names_the_handle(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    with Segment(path, slots=2, members=4) as segment, Client(segment) as client, Server(path) as server:
        assert repr(segment) == f'<Segment "{path}", 2 slots, 4 members>'
        assert repr(client) == f'<Client of "{path}">' and repr(server) == f'<Server of "{path}">'
    assert repr(client) == f'<Client of "{path}", closed>'
    with Segment.anonymous() as segment, Client(segment) as client:
        assert repr(client) == f"<Client of descriptor {segment.fileno()}>"
        segment.close()
        assert repr(client) == "<Client of a segment without a name>"
    reader, writer = atomic.pair()
    with reader, writer:
        assert repr(reader) == f"<Reader of descriptor {reader.fileno()}>"
        assert repr(writer) == f"<Writer of descriptor {writer.fileno()}>"


def test_repr_does_not_wait_for_a_running_call() -> None:
    reader, writer = atomic.pair()
    thread = threading.Thread(target=reader.recv, kwargs={"timeout": SOON})
    thread.start()
    while repr(reader) != "<Reader, in use>":
        pass
    writer.send(b"")
    thread.join()


def test_closed_segment_refuses_new_members_and_keeps_existing_ones() -> None:
    segment = Segment.anonymous()
    with Client(segment) as client, Server(segment) as server:
        segment.close()
        for use in (lambda: Client(segment), segment.stats, segment.members, segment.fileno, lambda: pickle.dumps(client)):
            with pytest.raises(pipework.Invalid, match="this segment is closed"):
                use()
        assert segment.geometry.slots == 256 and client.segment is segment
        ticket = client.send(b"still")
        server.recv(timeout=SOON).reply(b"there")
        assert client.recv(ticket, timeout=SOON) == b"there"


def test_help_shows_lazily_imported_names() -> None:
    assert set(pipework.__all__) <= set(dir(pipework))
    text = pydoc.plain(pydoc.render_doc(pipework))
    assert "class Executor(" in text and "\n    run(" in text


def dropped(make: Callable[[], object]) -> list[str]:
    """The warnings when the object of `make` is dropped."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        make()
        gc.collect()
    return [str(each.message) for each in said if each.category is ResourceWarning]


def test_unclosed_handle_gives_a_resource_warning() -> None:
    place = f"descriptor {SEGMENT.fileno()}"
    assert dropped(lambda: Client(SEGMENT)) == [f"unclosed client of {place}"]
    assert dropped(lambda: Server(SEGMENT)) == [f"unclosed server of {place}"]
    assert [text[:14] for text in sorted(dropped(lambda: atomic.pair()))] == ["unclosed reade", "unclosed write"]
    assert sorted(dropped(pipe)) == ["unclosed <Reader of a pipe>", "unclosed <Writer of a pipe>"]
    assert len(dropped(lambda: io.BufferedWriter(pipe()[1]))) == 2

    def closed() -> None:
        reader, writer = atomic.pair()
        with reader, writer, reader.clone(), Client(SEGMENT), Server(SEGMENT), pipe()[0]:
            pass

    assert dropped(closed) == ["unclosed <Writer of a pipe>"]

    def stopped() -> None:
        Server(SEGMENT).stop()

    assert dropped(stopped) == []


def test_borrowed_handle_gives_no_resource_warning(tmp_path: Path) -> None:
    read, write = os.pipe()
    assert dropped(lambda: atomic.Reader(read, closefd=False)) == []
    assert dropped(lambda: atomic.Writer(write, closefd=False)) == []
    os.close(read)
    os.close(write)
    with Server(tmp_path / "segment"):
        pass
    assert dropped(lambda: Segment(tmp_path / "segment")) == []

    def produced() -> None:
        with produce(lambda writer: writer.write(b"x")) as reader:
            reader.read()

    assert dropped(produced) == []


def test_resource_warning_as_error_hides_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError):
            raise KeyError(Client(SEGMENT).pending)
        gc.collect()
    assert [each.exc_type for each in told] == [ResourceWarning]


def ready(*ends: Any) -> list[object]:
    return [*multiprocessing.connection.wait(ends, SOON)]


def test_selectors_and_multiprocessing_wait_for_ends() -> None:
    with Client(SEGMENT) as client, Server(SEGMENT) as server, selectors.DefaultSelector() as selector:
        for end in (client, server):
            selector.register(end, selectors.EVENT_READ, end)
        assert not selector.select(0) and client.fileno() == client.fileno() != server.fileno()
        ticket = client.send(b"hello")
        assert [key.data for key, _ in selector.select(SOON)] == [server]
        request = server.recv()
        assert server.try_recv() is None and not selector.select(0)
        request.reply(request.data)
        assert ready(client, server) == [client]
        assert client.recv(ticket) == b"hello"
        assert not selector.select(0)
    for end in (client, server):
        with pytest.raises(pipework.Invalid, match="closed"):
            end.fileno()


def test_forked_child_gets_doorbells_of_its_own() -> None:
    with Client(SEGMENT) as client, Server(SEGMENT) as server:
        server.fileno()

        def child() -> None:
            ticket = client.send(b"from the child")
            assert ready(server) == [server]
            with server.recv() as request:
                request.reply(b"")
            assert ready(client) == [client]
            client.recv(ticket)

        in_child(child)
        client.send(b"from the parent")
        assert ready(server) == [server]
        server.recv().fail()


class Model(Client):
    """A client with calls of its own."""

    name = "nobody"

    def __new__(cls, segment: Segment | Path, name: str = "model") -> Model:
        self = super().__new__(cls, segment)
        self.name = name
        return self

    def close(self) -> None:
        CLOSED.append(self.name)
        super().close()

    def upper(self, text: str) -> str:
        return self.call(text.encode(), timeout=SOON).decode()


CLOSED: list[str] = []


def test_ends_can_be_subclassed(tmp_path: Path) -> None:
    path = tmp_path / "segment"

    def serve() -> None:
        for request in server:
            with request:
                request.reply(request.data.upper())

    with Server(path) as server, Model(path, "mine") as model:
        thread = threading.Thread(target=serve)
        thread.start()
        assert model.upper("hello") == "HELLO" and repr(model) == f'<Model of "{path}">'
        _, (_, kind, settings), attributes = model.__reduce__()
        assert kind is Model and attributes == {"name": "mine"}
        assert settings[1] == {
            "timeout": None,
            "redeliveries": 0,
            "needs_server": False,
            "max_in_flight": 0,
            "max_message": 256 << 20,
            "codec": None,
        }
        server.stop()
        thread.join()
    assert CLOSED == ["mine"] and model.closed


def test_send_part_waits_until_the_part_before_is_taken() -> None:
    with Client(SEGMENT) as client, Server(SEGMENT) as server:
        stream = client.stream(b"")
        with server.recv(timeout=SOON) as request:
            assert request.flush(timeout=0), "there is no part to be taken"
            request.send_part(b"one")
            with pytest.raises(pipework.TimedOut):
                request.flush(timeout=0.01)
            assert next(stream) == b"one"
            assert request.flush(timeout=SOON)
            request.send_part(b"two")
            stream.close()
            assert not request.flush(timeout=SOON)
            request.fail()
        with pytest.raises(pipework.Invalid, match="answered"):
            request.flush()


def test_tools_that_collect_imports_find_what_only_the_compiled_half_imports(tmp_path: Path) -> None:
    """As PyInstaller does it, by the imports in the byte code."""
    root = Path(pipework.__file__).parents[1]
    names = {name for path in (root / "src").rglob("*.rs") for name in re.findall(r'"(pipework\._\w+)"', path.read_text())}
    assert "pipework._asyncio_fd" in names
    program = tmp_path / "program.py"
    program.write_text("import pipework.atomic")
    finder = modulefinder.ModuleFinder(path=[str(root)])
    finder.run_script(str(program))
    assert names - {"pipework._core"} <= set(finder.modules)
