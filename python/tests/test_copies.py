"""A copy of a handle is another handle, or is refused: the original works after the copy is closed and gone."""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pipework import Workers, atomic, fd, multiprocessing, pipe, reqrep
from pipework.logging import Listener
from processes import stop_helpers
from support import SOON

fork = multiprocessing.get_context("fork")

Case = tuple[Any, Callable[[], object]]
"""A handle, and what uses it."""


@contextlib.contextmanager
def ends_of_atomic(which: int) -> Iterator[Case]:
    ends = atomic.pair()
    reader, writer = ends
    with reader, writer:

        def use() -> bytes:
            writer.send(b"x")
            return reader.recv(timeout=SOON)

        yield ends[which], use


@contextlib.contextmanager
def ends_of_a_pipe(which: int) -> Iterator[Case]:
    ends = pipe.pipe()
    reader, writer = ends
    with reader, writer:

        def use() -> bytes:
            writer.send(b"x", timeout=SOON)
            return reader.recv(timeout=SOON)

        yield ends[which], use


@contextlib.contextmanager
def reserve() -> Iterator[Case]:
    with fd.Reserve() as made:
        here, there = fd.socketpair(fd.AF_UNIX, fd.SOCK_STREAM)
        yield made, lambda: made.shed(here, 1)
        fd.close(here)
        fd.close(there)


@contextlib.contextmanager
def inbox() -> Iterator[Case]:
    made = fd.Inbox(4, max_bytes=10)
    here, there = fd.socketpair(fd.AF_UNIX, fd.SOCK_DGRAM)


    def use() -> list[fd.Datagram]:
        fd.send_many(here, [(b"x", None)])
        return made.recv(there, timeout=SOON)

    yield made, use
    fd.close(here)
    fd.close(there)


@contextlib.contextmanager
def of_a_segment(which: str) -> Iterator[Case]:
    segment = reqrep.Segment.anonymous()
    with reqrep.Client(segment) as client, reqrep.Server(segment) as server:
        blob, draft = segment.blob_from(bytes(100_000)), segment.blob(100)

        def call() -> bytes:
            ticket = client.send(b"1", blobs=[blob])
            server.recv(timeout=SOON).reply(bytes(memoryview(draft)[:1]))
            return client.recv(ticket, timeout=SOON)

        handles = {"segment": segment, "client": client, "server": server, "blob": blob, "draft": draft}
        yield handles[which], lambda: (segment.audit(), call())


@contextlib.contextmanager
def of_logging(which: str) -> Iterator[Case]:
    logger = logging.getLogger("test of copies")
    logger.propagate = False
    with Listener(logging.NullHandler()) as listener:
        handler = listener.handler()
        logger.addHandler(handler)

        def log() -> None:
            logger.warning("a record")
            assert handler.lost == 0
            listener.handler().close()

        yield (listener if which == "listener" else handler), log
        logger.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def workers() -> Iterator[Case]:
    program = "for line in range(100): print(line)"
    with Workers([sys.executable, "-c", program]) as made:
        yield made, lambda: next(iter(made))


@contextlib.contextmanager
def of_a_pool(which: str) -> Iterator[Case]:
    with fork.Pool(1) as pool:
        results = pool.imap(abs, range(100))
        result = pool.apply_async(abs, (-1,))
        use = {"pool": lambda: pool.apply(abs, (-1,)), "imap": lambda: results.next(SOON), "result": lambda: result.get(SOON)}
        yield {"pool": pool, "imap": results, "result": result}[which], use[which]


@contextlib.contextmanager
def queue(which: str) -> Iterator[Case]:
    made = fork.Queue(3) if which == "bounded" else getattr(fork, which)()
    yield made, lambda: (made.put(1), made.get())
    made.close()


@contextlib.contextmanager
def connection() -> Iterator[Case]:
    here, there = fork.Pipe()
    with here, there:
        yield here, lambda: (here.send(1), there.recv())


CASES: dict[str, Callable[[], contextlib.AbstractContextManager[Case]]] = {
    "atomic.Reader": lambda: ends_of_atomic(0),
    "atomic.Writer": lambda: ends_of_atomic(1),
    "pipe.Reader": lambda: ends_of_a_pipe(0),
    "pipe.Writer": lambda: ends_of_a_pipe(1),
    "fd.Reserve": reserve,
    "fd.Inbox": inbox,
    "reqrep.Segment": lambda: of_a_segment("segment"),
    "reqrep.Client": lambda: of_a_segment("client"),
    "reqrep.Server": lambda: of_a_segment("server"),
    "reqrep.Blob": lambda: of_a_segment("blob"),
    "reqrep.BlobMut": lambda: of_a_segment("draft"),
    "Listener": lambda: of_logging("listener"),
    "Handler": lambda: of_logging("handler"),
    "Workers": workers,
    "Pool": lambda: of_a_pool("pool"),
    "imap": lambda: of_a_pool("imap"),
    "AsyncResult": lambda: of_a_pool("result"),
    "Queue": lambda: queue("Queue"),
    "Queue with a bound": lambda: queue("bounded"),
    "JoinableQueue": lambda: queue("JoinableQueue"),
    "SimpleQueue": lambda: queue("SimpleQueue"),
    "Connection": connection,
}

@pytest.fixture(autouse=True)
def _stop() -> Iterator[None]:
    yield
    stop_helpers()


WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda each: pickle.loads(pickle.dumps(each)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_original_works_after_a_copy_is_closed(name: str, way: str) -> None:
    with CASES[name]() as (handle, use):
        use()
        try:
            made = WAYS[way](handle)
        except (TypeError, NotImplementedError) as error:
            assert len(str(error).split()) > 3, error
        else:
            assert made is not handle
            if name != "AsyncResult":
                made.close()
            del made
        gc.collect()
        use()
