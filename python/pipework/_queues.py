"""The queues of `pipework.multiprocessing`. A `SimpleQueue` is a pipe. The others are segments: `put`
posts a request, `get` takes one and answers it, and one whose taker is killed before that goes to
another process. No process holds a lock that another one waits for.

A queue without a bound has an overflow beside its segment, for what finds no slot. Nothing is posted
while something is there, so what a process has posted is older than what it has put there.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import multiprocessing.queues
import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _core
from ._connection import pipe
from ._errors import TimedOut
from ._objects import MOST_BUFFERS, Pickled, attach, dump, load
from ._overflow import Overflow

T = TypeVar("T")

if TYPE_CHECKING:
    from multiprocessing.queues import JoinableQueue as _JoinableQueue
    from multiprocessing.queues import Queue as _Queue
    from multiprocessing.queues import SimpleQueue as _SimpleQueue

    from typing_extensions import Self

    from ._reqrep import Ticket
else:  # before Python 3.12 not all of these take a type in brackets

    class _Queue(multiprocessing.queues.Queue, Generic[T]):
        pass

    class _JoinableQueue(multiprocessing.queues.JoinableQueue, Generic[T]):
        pass

    class _SimpleQueue(multiprocessing.queues.SimpleQueue, Generic[T]):
        pass

_SLOTS = 256
"""Objects in the segment, where the program names no bound."""
_MOST_WITH_BLOBS = 1024
"""A queue with a higher bound has small slots, without space for the names of blobs."""
_MOST = 1 << 20
"""A higher bound is none."""
_MEMBERS = 1024
"""Each process is one member if it puts, and one if it gets."""
_ANY = 1 << 62
"""Bytes of the longest object: memory is the limit."""
_SLICE = 0.05
"""Seconds between two looks of `join`, and between two looks of `get` at what is beyond the slots."""


class _Channel:
    """A segment, and this process's ends, which are attached at their first use."""

    def __init__(self, slots: int, has_blobs: bool, members: int = _MEMBERS) -> None:
        self._segment = _core.Segment.anonymous(
            slots=slots,
            members=members,
            request_bytes=1024 if has_blobs else 128,
            reply_bytes=0,
            blobs=MOST_BUFFERS + 1 if has_blobs else 0,
        )
        self._attach()

    def _attach(self) -> None:
        self.slots = self._segment.geometry.slots
        self._has_blobs = self._segment.geometry.blobs > 0
        self._ends: dict[type, Any] = {}

    def __getstate__(self) -> _core.Segment:
        return self._segment

    def __setstate__(self, segment: _core.Segment) -> None:
        self._segment = segment
        self._attach()

    def client(self) -> _core.Client:
        end: _core.Client = self._ends.get(_core.Client) or self._first(
            _core.Client(self._segment, redeliveries=3, max_message=_ANY)
        )
        return end

    def server(self) -> _core.Server:
        end: _core.Server = self._ends.get(_core.Server) or self._first(_core.Server(self._segment, max_message=_ANY))
        return end

    def _first(self, made: Any) -> Any:
        """The end that is used: another thread, or a signal handler, may have been quicker."""
        end = self._ends.setdefault(type(made), made)
        if end is not made:
            made.close()
        return end

    def dump(self, what: object) -> Pickled:
        return dump(what, MOST_BUFFERS if self._has_blobs else 0)

    def post(self, pickled: Pickled, timeout: float | None) -> bool:
        """Puts an object there. Returns False if there was no space in time."""
        data, blobs = attach(pickled, self._segment) if self._has_blobs else (pickled.data, [])
        try:
            self.client().post(data, timeout=timeout and max(timeout, 0), blobs=blobs)
        except TimedOut:
            return False
        return True

    def take(self, timeout: float | None) -> _core.Request | None:
        """The next object, which is its taker's when it is answered. None if none came in time."""
        if timeout is not None and timeout <= 0:
            return self.server().try_recv()
        try:
            return self.server().recv(timeout=timeout)
        except TimedOut:
            return None

    def answer_all(self) -> None:
        while (request := self.server().try_recv()) is not None:
            request.reply(b"")

    @property
    def waiting(self) -> int:
        # The first also counts objects that are gone, of processes that have ended. The second
        # looks at each slot.
        return self._segment.waiting and self._segment.audit().waiting

    @property
    def posted(self) -> int:
        """Objects that were put there so far."""
        return self._segment.stats().requests

    def is_idle(self) -> bool:
        """Whether nothing waits, and nothing is on its way from or to a process that lives."""
        self._segment.recover()
        return self._segment.audit().free == self.slots

    def close(self) -> None:
        """Closes what was used. A queue that was not used may still be asked whether it is empty, as
        one of the standard library may."""
        ends = list(self._ends.values())
        for each in [*ends, self._segment] if ends else []:
            each.close()

    def __del__(self) -> None:
        if hasattr(self, "_ends"):  # complete
            self.close()


def _finish(request: _core.Request) -> Any:
    """Answers a request, which gives its slot back, and returns its object."""
    data, blobs = request.data, request.blobs
    request.reply(b"")
    return load(data, blobs)


class SimpleQueue(_SimpleQueue[T]):
    """As `multiprocessing.SimpleQueue`: a pipe that any number of processes use at both ends."""

    def __init__(self, *, ctx: object = None) -> None:
        self._reader, self._writer = pipe(duplex=False)

    def __getstate__(self) -> Any:
        return self._reader, self._writer

    def __setstate__(self, state: Any) -> None:
        self._reader, self._writer = state

    def __copy__(self) -> Self:
        """Another handle of the same queue, to be closed by itself."""
        return copy.deepcopy(self)

    def put(self, obj: T) -> None:
        self._writer.send(obj)

    def get(self) -> T:
        result: T = self._reader.recv()
        return result

    def empty(self) -> bool:
        return not self._reader.poll()


class Queue(_Queue[T]):
    """As `multiprocessing.Queue`. An object is in memory that all processes share when `put` returns."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        self._maxsize = maxsize if 0 < maxsize <= _MOST else 0
        slots = self._maxsize or _SLOTS
        self._channel = _Channel(slots, slots <= _MOST_WITH_BLOBS)
        self._overflow = None if self._maxsize else Overflow()
        self._begin()

    def _begin(self) -> None:
        self._closed = False

    def __getstate__(self) -> Any:
        return self._maxsize, self._channel, self._overflow

    def __setstate__(self, state: Any) -> None:
        self._maxsize, self._channel, self._overflow = state
        self._begin()

    def __copy__(self) -> Self:
        """Another handle of the same queue, to be closed by itself."""
        return copy.deepcopy(self)

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        self._check()
        pickled = self._channel.dump(obj)
        if self._overflow is None:
            if not self._channel.post(pickled, timeout if block else 0):
                raise queue.Full
        elif (self._overflow.was_used.value and self._overflow.count()) or not self._post(pickled):
            self._overflow.put(pickled)

    def _post(self, pickled: Pickled) -> bool:
        try:
            return self._channel.post(pickled, 0)
        except OSError as error:  # the file system of blobs is full, which has no part in the overflow
            if error.errno != errno.ENOSPC:
                raise
            return False

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        self._check()
        if self._overflow is None:
            request = self._channel.take(timeout if block else 0)
            if request is None:
                raise queue.Empty
            return self._finish(request)  # type: ignore[no-any-return]
        return self._get(self._overflow, timeout if block else 0)

    def _get(self, overflow: Overflow, timeout: float | None) -> T:
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.001
        while True:
            left = pause if end is None else min(pause, end - time.monotonic())
            # A taker is woken for what is posted, but not for what is in the overflow. So it looks there
            # before it waits, and again while it waits: soon, if it has not waited for long.
            request = self._channel.take(0 if overflow.was_used.value else left)
            if request is None and overflow.was_used.value:
                if overflow.count():
                    # Objects may have filled all slots since the look above, and these are older.
                    request = self._channel.take(0)
                    if request is None:
                        record = self._from(overflow)
                        if record is None:  # another taker has it
                            continue
                        return overflow.load(record)  # type: ignore[no-any-return]
                else:
                    request = self._channel.take(left)
            if request is not None:
                return self._finish(request)  # type: ignore[no-any-return]
            if left <= 0:
                raise queue.Empty
            pause = min(2 * pause, _SLICE)

    def _finish(self, request: _core.Request) -> Any:
        return _finish(request)

    def _from(self, overflow: Overflow) -> bytes | None:
        return overflow.take()

    def qsize(self) -> int:
        return self._channel.waiting + (0 if self._overflow is None else self._overflow.count())

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return 0 < self._maxsize <= self.qsize()

    def close(self) -> None:
        self._closed = True
        self._channel.close()
        if self._overflow is not None:
            self._overflow.close()

    def join_thread(self) -> None:
        """Returns at once: there is no thread, and all that was put there is there."""
        assert self._closed, f"Queue {self!r} not closed"

    def cancel_join_thread(self) -> None:
        """Does nothing, since there is no thread."""

    def _check(self) -> None:
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")


class JoinableQueue(Queue[T], _JoinableQueue[T]):
    """As `multiprocessing.JoinableQueue`. What a process has taken counts as done if it is killed."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        # A process that has something to do keeps one request in here. It frees the slot when it has
        # nothing left, and others free it when the process dies. After each `send` the process also
        # answers every request that still waits. Otherwise finished requests would stay queued behind an
        # old one, until the queue of the channel is full.
        self._busy = _Channel(_MEMBERS, False, members=2 * _MEMBERS)
        super().__init__(maxsize, ctx=ctx)

    def _begin(self) -> None:
        super()._begin()
        _joinable.add(self)
        self._forget_parent()

    def _forget_parent(self) -> None:
        """In a new process, and in a forked child: what the parent does is the parent's."""
        # Reentrant, because a signal handler may take something, too.
        self._lock = threading.RLock()
        self._taken = 0
        """Objects that this process has taken and not done."""
        self._tickets: list[Ticket] = []
        """One while it has something to do."""
        self._ending: list[Ticket] = []
        """Those that are to be forgotten."""

    def __getstate__(self) -> Any:
        return self._busy, super().__getstate__()

    def __setstate__(self, state: Any) -> None:
        self._busy, state = state
        super().__setstate__(state)

    def _finish(self, request: _core.Request) -> Any:
        self._begin_task()
        return super()._finish(request)

    def _from(self, overflow: Overflow) -> bytes | None:
        if overflow.count() == 0:
            return None
        self._begin_task()
        found = None
        try:
            found = super()._from(overflow)
            return found
        finally:
            if found is None:
                self.task_done()

    def _begin_task(self) -> None:
        """The object leaves the queue after this."""
        with self._lock:
            self._taken += 1
            try:
                self._taken_changed()
            except BaseException:  # the object is not taken
                self._taken -= 1
                self._taken_changed()
                raise

    def task_done(self) -> None:
        with self._lock:
            if self._taken == 0:
                raise ValueError("task_done() called too many times")
            try:
                self._taken -= 1
                self._taken_changed()
            except BaseException:  # of a signal handler
                self._taken_changed()
                raise

    def _taken_changed(self) -> None:
        # A signal handler of this thread may come in between at any place, take something, be done, or
        # raise.
        client = self._busy.client()
        if self._taken and not self._tickets:
            self._tickets.extend(map(client.send, (b"",)))  # no handler comes between the two steps
            self._busy.answer_all()
        while self._tickets and not self._taken:
            _move(self._tickets, self._ending)
            if self._taken:
                _move(self._ending, self._tickets)
        while self._ending:
            with contextlib.suppress(IndexError):
                any(map(client.forget, map(list.pop, (self._ending,))))

    def join(self) -> None:
        """Waits until all is done that was put there. Looks again every 50 ms at the latest."""
        pause = 0.001
        while not self._is_done():
            time.sleep(pause)
            pause = min(2 * pause, _SLICE)

    def _is_done(self) -> bool:
        # If nothing was put there from the first look to the last, everything was done at some
        # moment between them: a process is busy before its object leaves the queue.
        posted = self._posted()
        self._busy.answer_all()
        is_empty = self._channel.is_idle() and (self._overflow is None or self._overflow.count() == 0)
        return is_empty and self._busy.is_idle() and self._posted() == posted

    def _posted(self) -> tuple[int, int]:
        """Objects that were put there so far."""
        return self._channel.posted, 0 if self._overflow is None else self._overflow.total


def _move(source: list[Ticket], to: list[Ticket]) -> None:
    """Moves the last one, if there is one, in one step: no signal handler runs before it is there."""
    with contextlib.suppress(IndexError):
        to.extend(map(list.pop, (source,)))


_joinable: weakref.WeakSet[JoinableQueue[Any]] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_joinable):
        each._forget_parent()


os.register_at_fork(after_in_child=_forked)
