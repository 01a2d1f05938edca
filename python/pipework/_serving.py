"""Handlers: functions that a server calls with each request, and whose results are the replies.

A handler that raises fails its call and nothing else. Requests that a server has taken before it is
stopped, by `stop` or by SIGTERM, are answered before `serve`, `aserve` and `serve_batches` return.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Union, overload

from . import _core, _loops
from ._errors import LACKS, Closed, Error, ErrorKind, Invalid

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._codecs import Codec, CodecName
    from ._core import Blob

    Handler = Callable[[bytes], Union[Buffer, Iterator[Buffer], None]]
    AsyncHandler = Callable[[bytes], Union[Awaitable[Union[Buffer, None]], AsyncIterator[Buffer]]]
    BatchHandler = Callable[[list[bytes]], Sequence[Union[Buffer, Exception, None]]]

H = TypeVar("H", bound=Callable[..., Any])
T = TypeVar("T")

_log = logging.getLogger("pipework")

_SERVE = "reqrep serve"

_LOOK = 0.25
"""Seconds between two looks at the callers of handlers that run in tasks."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1
"""Seconds between two tries to receive. While it pauses, a server does not notice that it is stopped."""

_SPELL = 5.0
"""Seconds without a failed try, after which the next one is logged."""


class Server(_core.Server):
    """Takes requests from a segment and answers them.

    `Server(segment)` attaches to a `Segment`. `Server(path)` attaches to the segment at a path and
    makes it if it does not exist; the keyword arguments of `Options` say how. Any number of servers,
    in any number of processes and threads, compete for the requests: each request goes to one of
    them. In a forked child the server becomes a member of its own, and the requests that the parent
    has taken stay with the parent. It can be pickled for another process.

    `timeout`: seconds that `recv`, `recv_many`, `claim` and their `a` twins wait, unless they are
    given a `timeout` of their own. Default None: for ever. Loops and handlers always wait for ever.

    `max_message`: bytes of the longest request and reply. `part_timeout`: seconds that a client may
    take for a part that the reply comes after; then the call fails.

    `serve(handler)` answers each request with what a function makes of it, `aserve` with a
    coroutine, and `serve_batches` many at once.

    >>> import threading
    >>> from pipework.reqrep import Client, Segment, Server
    >>> segment = Segment.anonymous()
    >>> server, client = Server(segment), Client(segment)
    >>> thread = threading.Thread(target=server.serve, args=(bytes.upper,))
    >>> thread.start()
    >>> client.call(b"hello", timeout=5.0)
    b'HELLO'
    >>> server.stop(); thread.join()

    To get more of a request than its bytes, take requests in a loop. Iterating gives them until the
    server is closed or stopped, with `async for` too. When the loop asks for the next request, the
    last one fails if it is neither answered nor detached: to hand it to a thread or a task, hand on
    `request.detach()`. A request that `recv` or `recv_many` returns belongs to the caller: until it
    is answered, failed or dropped, its client waits, so use it in a `with` block.

    >>> tickets = [client.send(data) for data in (b"a", b"b", b"c")]
    >>> for request in Server(segment).recv_many(100):
    ...     with request:
    ...         done = request.reply(request.data * 3)
    >>> [client.recv(ticket) for ticket in tickets]
    [b'aaa', b'bbb', b'ccc']
    """

    __module__ = "pipework.reqrep"

    _handler: Callable[..., Any] | None = None

    def handler(self, function: H) -> H:
        """Makes `function` the handler of `serve`, `aserve` and `serve_batches` if they get none:
        `@server.handler` above its definition. Returns it as it is."""
        self._handler = function
        return function

    @overload
    def serve(self, handler: Handler | None = None, *, threads: int = 1, codec: None = None) -> None: ...
    @overload
    def serve(
        self, handler: Callable[[Any], Any] | None = None, *, threads: int = 1, codec: CodecName | Codec[Any]
    ) -> None: ...
    def serve(
        self,
        handler: Callable[[Any], Any] | None = None,
        *,
        threads: int = 1,
        codec: CodecName | Codec[Any] | None = None,
    ) -> None:
        """Answers each request with the result of `handler` for its bytes, until this server is
        stopped or closed. None is an empty reply. An iterator, such as a generator makes, is a
        reply in parts, each sent as soon as it is there; it is closed if the caller goes away, and
        may keep the caller waiting as long as it likes.

        If `handler` raises, its call raises `RemoteError` with the last line of the traceback, such
        as "ValueError: not a number"; the rest is logged here, under "pipework".

        `threads` requests are worked on at a time, one of them in this thread. In the main thread
        SIGTERM stops the server: no more requests are taken, those that were taken are answered,
        and this returns. It is left alone if the program handles SIGTERM itself.

        If this process lacks the memory or the descriptors for a request, or its `blob_limit` is reached, the
        server logs that once under "pipework", and tries again. The request and those behind it go to another
        server, or wait until its caller gives up, or this process has what it lacks.

        With `codec`, the handler gets objects and returns objects: "json", "msgpack", "pickle", or
        an object with `dumps` and `loads`. Clients name the same: `Client(segment, codec=...)`. A
        request that cannot be decoded fails, as does a result that cannot be encoded. Only name
        "pickle" if every client is trusted: unpickling runs code of the sender.

        >>> import threading
        >>> from pipework.reqrep import Client, Segment
        >>> segment = Segment.anonymous()
        >>> server, client = Server(segment), Client(segment)
        >>> def lines(data):
        ...     for line in data.splitlines():
        ...         yield line.upper()
        >>> thread = threading.Thread(target=server.serve, args=(lines,), kwargs={"threads": 2})
        >>> thread.start()
        >>> for part in client.stream(b"one\\ntwo", timeout=5.0):
        ...     print(part)
        b'ONE'
        b'TWO'
        >>> server.stop(); thread.join()
        """
        _serve(self, _Terms(self, _chosen(self, handler), codec), threads)

    @overload
    async def aserve(
        self, handler: AsyncHandler | None = None, *, limit: int = 100, codec: None = None
    ) -> None: ...
    @overload
    async def aserve(
        self, handler: Callable[[Any], Any] | None = None, *, limit: int = 100, codec: CodecName | Codec[Any]
    ) -> None: ...
    async def aserve(
        self,
        handler: Callable[[Any], Any] | None = None,
        *,
        limit: int = 100,
        codec: CodecName | Codec[Any] | None = None,
    ) -> None:
        """As `serve`, in asyncio, trio or anyio: `handler` is a coroutine function, or an
        asynchronous generator for replies in parts. At most `limit` requests are worked on at a
        time; those beyond are left to other servers. If the task is cancelled, what it works on
        fails.

        The task of a handler is cancelled within half a second when its caller has gone: when that has
        cancelled the call, its time-out has passed, or it has died. `await asyncio.shield(work())`, and in
        trio a shielded scope, goes on. A handler of a call that was posted or forgotten is not cancelled.

        >>> import asyncio
        >>> from pipework.reqrep import Client, Segment
        >>> async def upper(data):
        ...     return data.upper()
        >>> async def main():
        ...     segment = Segment.anonymous()
        ...     server, client = Server(segment), Client(segment)
        ...     serving = asyncio.create_task(server.aserve(upper))
        ...     print(await client.acall(b"hello", timeout=5.0))
        ...     server.stop()
        ...     await serving
        >>> asyncio.run(main())
        b'HELLO'
        """
        await _aserve(self, _Terms(self, _chosen(self, handler), codec), limit)

    @overload
    def serve_batches(
        self, handler: BatchHandler | None = None, *, max_batch: int = 32, linger: float = 0.002, codec: None = None
    ) -> None: ...
    @overload
    def serve_batches(
        self,
        handler: Callable[[list[Any]], Sequence[Any]] | None = None,
        *,
        max_batch: int = 32,
        linger: float = 0.002,
        codec: CodecName | Codec[Any],
    ) -> None: ...
    def serve_batches(
        self,
        handler: Callable[[list[Any]], Sequence[Any]] | None = None,
        *,
        max_batch: int = 32,
        linger: float = 0.002,
        codec: CodecName | Codec[Any] | None = None,
    ) -> None:
        """As `serve`, for work that is cheaper by the batch, such as a model's: `handler` gets a
        list of up to `max_batch` requests' bytes (or objects), and returns as many replies in the same order. An
        exception in place of a reply fails that call. If `handler` raises, all of them fail.

        A batch contains the requests that wait already, and those that come within `linger` seconds
        of the first. Requests whose callers have gone are left out of it.

        >>> import threading
        >>> from pipework.reqrep import Client, Segment
        >>> segment = Segment.anonymous()
        >>> server, client = Server(segment), Client(segment)
        >>> @server.handler
        ... def lengths(texts):
        ...     return [b"%d" % len(text) for text in texts]
        >>> thread = threading.Thread(target=server.serve_batches)
        >>> thread.start()
        >>> tickets = [client.send(word) for word in (b"a", b"bird", b"crossed")]
        >>> [client.recv(ticket, timeout=5.0) for ticket in tickets]
        [b'1', b'4', b'7']
        >>> server.stop(); thread.join()
        """
        _serve_batches(self, _Terms(self, _chosen(self, handler), codec), max_batch, linger)


def _chosen(server: Server, handler: Callable[..., Any] | None) -> Callable[..., Any]:
    chosen = server._handler if handler is None else handler
    if chosen is None:
        raise TypeError("no handler: give one, or decorate a function with @server.handler")
    return chosen


class _Terms:
    """A handler, and how requests become its arguments and its results become replies."""

    def __init__(self, server: Server, handler: Callable[..., Any], codec: Any) -> None:
        self.handler = handler
        self.part_timeout = server.part_timeout
        self._segment = server.segment
        self._codec = None
        if codec is not None:
            from . import _codecs  # most programs do without

            self._codec = _codecs.found(codec)

    def argument(self, request: _core.Request) -> Any:
        if self._codec is None:
            return request.data
        return self._codec.decode(_SERVE, "request", request.data, request.blobs)[0]

    def reply(self, result: Any) -> tuple[Buffer, list[Blob]]:
        if self._codec is None and result is None:
            return b"", []
        return self.part(result)

    def part(self, result: Any) -> tuple[Buffer, list[Blob]]:
        if self._codec is None:
            return result, []
        return self._codec.encode(_SERVE, "reply", result, self._segment, 0)


def _serve(server: Server, terms: _Terms, threads: int) -> None:
    if threads < 1:
        raise ValueError("threads must be 1 or more")

    shortage = _Shortage()

    def work() -> None:
        try:
            receive = functools.partial(next, iter(server), None)
            while (request := _received(receive, shortage)) is not None:
                _answer(request, terms)
                del request  # it has blobs
        finally:
            # If one of them ends, all end.
            _stop(server)

    failures: list[BaseException] = []

    def work_beside() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    # Threads that a daemon thread starts are daemon threads too: a program does not wait for them.
    others = [threading.Thread(target=work_beside, name=f"serve_{number}") for number in range(1, threads)]
    with _stopped_by_sigterm(server):
        try:
            for other in others:
                other.start()
            work()
        finally:
            _stop(server)
            for other in others:
                if other.ident is not None:
                    other.join()
    if failures:
        raise failures[0]


async def _aserve(server: Server, terms: _Terms, limit: int) -> None:
    if limit < 1:
        raise ValueError("limit must be 1 or more")

    working = _Working()

    async def answer(request: _core.Request, cancel: Callable[[], object]) -> None:
        await _answer_in_task(request, terms, working.on(request, cancel))

    requests = _Received(server)
    with _stopped_by_sigterm(server), contextlib.closing(working):
        if _loops.is_trio():
            from . import _trio

            await _trio.serve(requests, answer, limit)
        else:
            await _serve_in_asyncio(requests, answer, limit)


class _Shortage:
    """The spells in which this process lacks what it takes to receive the next request. The loops of a server
    go on, because a client that may send long requests must not end them."""

    def __init__(self) -> None:
        self._last = -_SPELL
        self._lock = threading.Lock()

    def includes(self, error: BaseException) -> bool:
        """Whether it is the reason why nothing was received; the first of a spell is logged."""
        if isinstance(error, Error):
            # `TooLong` says that the blobs here have as many bytes as they may: until handlers drop some.
            if error.kind != ErrorKind.TOO_LONG and error.errno not in LACKS:
                return False
        elif not isinstance(error, MemoryError):  # of the object for the bytes; then the request has failed
            return False
        with self._lock:  # threads fail at the same time
            now, last = time.monotonic(), self._last
            self._last = now
        if now - last > _SPELL:
            _log.error("a request cannot be received now: %s", str(error) or type(error).__name__)
        return True


def _received(receive: Callable[[], T], shortage: _Shortage) -> T:
    """What `receive` returns, which tries again while this process lacks something."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return receive()
        except (Error, MemoryError) as error:
            if not shortage.includes(error):
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Received:
    """The requests of a server as they come to a task; mirrors `_received`."""

    def __init__(self, server: Server) -> None:
        self._requests = server.__aiter__()
        self._shortage = _Shortage()

    def __aiter__(self) -> _Received:
        return self

    async def __anext__(self) -> _core.Request:
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._requests.__anext__()
            except (Error, MemoryError) as error:
                if not self._shortage.includes(error):
                    raise
            await _loops.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Working:
    """The handlers that run in tasks of one loop. One whose caller has gone is cancelled, within twice
    `_LOOK`."""

    def __init__(self) -> None:
        self._cancels: dict[_core.Request, Callable[[], object]] = {}
        self._timer: _loops.Timer | None = None

    @contextlib.contextmanager
    def on(self, request: _core.Request, cancel: Callable[[], object]) -> Iterator[None]:
        """A handler runs in this block, which `cancel` ends."""
        self._cancels[request] = cancel
        self._look_later()
        try:
            yield
        finally:
            self._cancels.pop(request, None)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = _loops.running().call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        for request in [request for request in self._cancels if not request.wanted]:
            self._cancels.pop(request)()
        if self._cancels:
            self._look_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


async def _serve_in_asyncio(
    requests: _Received, answer: Callable[[Any, Callable[[], object]], Coroutine[Any, Any, None]], limit: int
) -> None:
    import asyncio

    places = asyncio.Semaphore(limit)
    tasks: set[asyncio.Task[None]] = set()

    async def answer_one(request: _core.Request) -> None:
        task = asyncio.current_task()
        assert task is not None, "this is one"
        await answer(request, task.cancel)

    def ended(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        places.release()

    try:
        await places.acquire()
        async for request in requests:
            task = asyncio.create_task(answer_one(request.detach()))
            del request  # it has blobs
            tasks.add(task)
            task.add_done_callback(ended)
            await places.acquire()
        while tasks:
            await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _serve_batches(server: Server, terms: _Terms, max_batch: int, linger: float) -> None:
    shortage = _Shortage()
    receive = functools.partial(server.recv_many, max_batch, timeout=None, linger=linger)
    with _stopped_by_sigterm(server):
        while True:
            try:
                # No name here keeps requests, which have blobs, while this waits for the next.
                _answer_batch(_received(receive, shortage), terms)
            except Closed:
                return
            except Invalid:
                if server.closed:
                    return
                raise


def _answer(request: _core.Request, terms: _Terms) -> None:
    with request:
        try:
            result = terms.handler(terms.argument(request))
            if not isinstance(result, Iterator):
                _reply(request, terms, result)
                return
            try:
                for each in result:
                    data, blobs = terms.part(each)
                    if not request.send_part(data, timeout=terms.part_timeout, blobs=blobs):
                        return  # the caller has gone
            except Exception:
                # A reason does not overtake the part before it.
                request.flush(timeout=terms.part_timeout)
                raise
            finally:
                if inspect.isgenerator(result):
                    result.close()
            request.reply(b"")
        except Exception as error:
            _fail(request, error)


async def _answer_in_task(request: _core.Request, terms: _Terms, working: AbstractContextManager[None]) -> None:
    with request:
        try:
            with working:
                result = terms.handler(terms.argument(request))
                if not isinstance(result, AsyncIterator):
                    data, blobs = terms.reply(await result)
                elif await _send_parts(request, terms, result):
                    data, blobs = b"", []
                else:
                    return  # the caller has gone
            await request.areply(data, blobs=blobs)
        except Exception as error:
            _fail(request, error)


async def _send_parts(request: _core.Request, terms: _Terms, parts: AsyncIterator[Any]) -> bool:
    """Sends each part. Returns False if the caller has gone."""
    try:
        async for each in parts:
            data, blobs = terms.part(each)
            if not await request.asend_part(data, timeout=terms.part_timeout, blobs=blobs):
                return False
        return True
    except Exception:
        await _loops.in_thread(lambda: request.flush(timeout=terms.part_timeout))
        raise
    finally:
        if inspect.isasyncgen(parts):
            await parts.aclose()


def _answer_batch(batch: list[_core.Request], terms: _Terms) -> None:
    with contextlib.ExitStack() as open_ones:  # requests that are not answered in here fail
        wanted = [request for request in batch if request.wanted]
        for request in wanted:
            open_ones.enter_context(request)
        if wanted:
            _answer_all(wanted, terms)


def _answer_all(requests: list[_core.Request], terms: _Terms) -> None:
    batch, arguments = [], []
    for request in requests:
        try:
            arguments.append(terms.argument(request))
        except Exception as error:  # it cannot be decoded
            _fail(request, error)
        else:
            batch.append(request)
    if not batch:
        return
    try:
        results = terms.handler(arguments)
        if len(results) != len(batch):
            raise ValueError(f"the handler gave {len(results)} replies for {len(batch)} requests")
    except Exception as error:
        results = [error] * len(batch)
    failures: dict[int, tuple[Exception, int]] = {}
    for request, result in zip(batch, results):
        try:
            if isinstance(result, Exception):
                request.fail(_reason(result))
                failures[id(result)] = result, failures.get(id(result), (result, 0))[1] + 1
            else:
                _reply(request, terms, result)
        except Exception as error:
            _fail(request, error)
    # An exception that several of them failed with is logged once.
    for failure, count in failures.values():
        _log.error("a request failed" if count == 1 else f"{count} requests failed", exc_info=failure)


def _reply(request: _core.Request, terms: _Terms, result: Any) -> None:
    data, blobs = terms.reply(result)
    request.reply(data, blobs=blobs)


def _fail(request: _core.Request, error: Exception) -> None:
    request.fail(_reason(error))
    _log.error("a request failed", exc_info=error)


def _reason(error: Exception) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _stop(server: Server) -> None:
    with contextlib.suppress(Error):  # it is closed
        server.stop()


_served: list[Server] = []
"""Those that SIGTERM stops."""


@contextlib.contextmanager
def _stopped_by_sigterm(server: Server) -> Iterator[None]:
    """SIGTERM stops the server, if this thread can set a handler and the program has set none."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, _stop_all):
        yield
        return
    _served.append(server)
    signal.signal(signal.SIGTERM, _stop_all)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # in a forked child
            _served.remove(server)
        # A handler that the program has set meanwhile stays.
        if not _served and signal.getsignal(signal.SIGTERM) is _stop_all:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop_all(*_: object) -> None:
    for server in _served.copy():
        _stop(server)
    if not _served:
        # The program has put this handler back after all of them had ended.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)


def _forked() -> None:
    """SIGTERM ends a child, which has not begun to serve."""
    _served.clear()
    if signal.getsignal(signal.SIGTERM) is _stop_all:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forked)
