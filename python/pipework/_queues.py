"""The queues of `pipework.multiprocessing`. A `SimpleQueue` is a pipe. The others are segments: `put`
posts a request, `get` takes one and answers it, and one whose taker is killed before that goes to
another process. No process holds a lock that another one waits for.

What a queue without a bound cannot keep in shared memory waits in the process that put it there, and
a thread sends it later.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import multiprocessing
import multiprocessing.queues
import os
import queue
import threading
import time
import traceback
import weakref
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _core
from ._connection import pipe
from ._errors import TimedOut
from ._objects import MOST_BUFFERS, Pickled, attach, dump, load

T = TypeVar("T")

if TYPE_CHECKING:
    from multiprocessing.queues import JoinableQueue as _JoinableQueue
    from multiprocessing.queues import Queue as _Queue
    from multiprocessing.queues import SimpleQueue as _SimpleQueue

    from ._reqrep import Ticket
else:  # before Python 3.12 not all of these take a type in brackets

    class _Queue(multiprocessing.queues.Queue, Generic[T]):
        pass

    class _JoinableQueue(multiprocessing.queues.JoinableQueue, Generic[T]):
        pass

    class _SimpleQueue(multiprocessing.queues.SimpleQueue, Generic[T]):
        pass

_SLOTS = 256
"""Objects in shared memory, where the program names no bound."""
_MOST_WITH_BLOBS = 1024
"""A queue with a higher bound has small slots, without space for the names of blobs."""
_MOST = 1 << 20
"""A higher bound is none."""
_MEMBERS = 1024
"""Each process is one member if it puts, and one if it gets."""
_ANY = 1 << 62
"""Bytes of the longest object: memory is the limit."""
_SLICE = 0.05
"""Seconds between two looks of `join`, and between two tries to send while there is no space."""
_PATIENCE = 5.0
"""Seconds for which an object without space waits after all others were taken."""


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

    def has_others(self) -> bool:
        """Whether other processes that live use it."""
        return any(member.is_alive and member.pid != os.getpid() for member in self._segment.members())

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

    def put(self, obj: T) -> None:
        self._writer.send(obj)

    def get(self) -> T:
        result: T = self._reader.recv()
        return result

    def empty(self) -> bool:
        return not self._reader.poll()


class Queue(_Queue[T]):
    """As `multiprocessing.Queue`. With `maxsize` an object is in shared memory when `put` returns.
    Without it, 256 are; further ones wait in this process, which sends them later, and at its end at
    the latest."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        self._maxsize = maxsize if 0 < maxsize <= _MOST else 0
        slots = self._maxsize or _SLOTS
        self._channel = _Channel(slots, slots <= _MOST_WITH_BLOBS)
        self._begin()

    def _begin(self) -> None:
        self._closed = False
        self._forget_parent()
        _queues.add(self)

    def _forget_parent(self) -> None:
        """In a new process, and in a forked child: what the parent has not sent is the parent's."""
        self._unsent: collections.deque[Pickled] = collections.deque()
        # Reentrant, because a signal handler may put something, too.
        self._lock = threading.RLock()
        self._feeder: threading.Thread | None = None
        self._at_exit: util.Finalize | None = None
        self._is_joined = True

    def __getstate__(self) -> Any:
        return self._maxsize, self._channel

    def __setstate__(self, state: Any) -> None:
        self._maxsize, self._channel = state
        self._begin()

    def put(self, obj: T, block: bool = True, timeout: float | None = None) -> None:
        self._check()
        pickled = self._channel.dump(obj)
        if not self._maxsize:
            if self._unsent or not self._channel.post(pickled, 0):
                self._send_later(pickled.copied())
        elif not self._channel.post(pickled, timeout if block else 0):
            raise queue.Full

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        self._check()
        request = self._channel.take(timeout if block else 0)
        if request is None:
            raise queue.Empty
        result: T = self._finish(request)
        return result

    def _finish(self, request: _core.Request) -> Any:
        return _finish(request)

    def qsize(self) -> int:
        return self._channel.waiting + len(self._unsent)

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return 0 < self._maxsize <= self.qsize()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._feeder is None:
                self._channel.close()

    def join_thread(self) -> None:
        """Waits until all is sent that this process has put there. Gives up when the parent process
        and all others that use the queue have ended."""
        assert self._closed, f"Queue {self!r} not closed"
        self._join()

    def cancel_join_thread(self) -> None:
        self._is_joined = False

    def _check(self) -> None:
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")

    # What could not be sent at once.

    def _send_later(self, pickled: Pickled) -> None:
        with self._lock:
            self._unsent.append(pickled)
            if self._feeder is None:
                try:
                    self._start_feeder()
                except BaseException:
                    if self._feeder is None:
                        self._unsent.remove(pickled)
                    raise

    def _start_feeder(self) -> None:
        feeder = threading.Thread(target=self._feed, name="pipework.Queue", daemon=True)
        if self._feeder is None:  # and no signal handler has put something meanwhile
            self._feeder = feeder
            try:
                # The process sends all before it ends, as the standard library does it.
                self._at_exit = util.Finalize(None, self._join, exitpriority=-5)
                self._feeding_changed()
                feeder.start()
            except BaseException:
                self._feeder_ends()
                raise

    def _feed(self) -> None:
        with self._lock:
            if self._feeder is not threading.current_thread():
                return  # an exception of a signal handler ended its start
        while (pickled := self._next_unsent()) is not None:
            try:
                self._send(pickled)
            except Exception:  # those behind it may be short
                traceback.print_exc()
            self._unsent.popleft()

    def _send(self, pickled: Pickled) -> None:
        """Sends it. While there is no space for it, waits for those who get."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._channel.post(pickled, None)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or time.monotonic() > end:
                    raise
            if self._channel.waiting:
                end = time.monotonic() + _PATIENCE
            time.sleep(_SLICE)

    def _next_unsent(self) -> Pickled | None:
        """What the thread that sends is to send next. If there is nothing, the thread ends, and the
        next object starts another one."""
        with self._lock:
            if self._unsent:
                return self._unsent[0]
            self._feeder_ends()
            if self._closed:
                self._channel.close()
            return None

    def _feeder_ends(self) -> None:
        self._feeder = None
        if self._at_exit is not None:
            self._at_exit.cancel()
        self._feeding_changed()

    def _feeding_changed(self) -> None:
        """Called with the lock when there is a thread that sends, and when there is none any more."""

    def _join(self) -> None:
        while (feeder := self._feeder) is not None and self._is_joined and not self._is_alone():
            feeder.join(_SLICE)

    def _is_alone(self) -> bool:
        parent = multiprocessing.parent_process()
        return parent is not None and not parent.is_alive() and not self._channel.has_others()


class JoinableQueue(Queue[T], _JoinableQueue[T]):
    """As `multiprocessing.JoinableQueue`. What a process has taken counts as done if it is killed."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None) -> None:
        # A process that has something to do, or to send, keeps one request in here. It frees the slot
        # when it has nothing left, and others free it when the process dies. After each `send` the
        # process also answers every request that still waits. Otherwise finished requests would stay
        # queued behind an old one, until the queue of the channel is full.
        self._busy = _Channel(_MEMBERS, False, members=2 * _MEMBERS)
        super().__init__(maxsize, ctx=ctx)

    def _forget_parent(self) -> None:
        super()._forget_parent()
        self._taken = 0
        """Objects that this process has taken and not done."""
        self._tickets: list[Ticket] = []
        """One while it has something to do or to send."""
        self._ending: list[Ticket] = []
        """Those that are to be forgotten."""

    def __getstate__(self) -> Any:
        return self._busy, super().__getstate__()

    def __setstate__(self, state: Any) -> None:
        self._busy, state = state
        super().__setstate__(state)

    def _finish(self, request: _core.Request) -> Any:
        # The object leaves the queue after this.
        with self._lock:
            self._taken += 1
            try:
                self._feeding_changed()
            except BaseException:  # the object is not taken
                self._taken -= 1
                self._feeding_changed()
                raise
        return super()._finish(request)

    def task_done(self) -> None:
        with self._lock:
            if self._taken == 0:
                raise ValueError("task_done() called too many times")
            try:
                self._taken -= 1
                self._feeding_changed()
            except BaseException:  # of a signal handler
                self._feeding_changed()
                raise

    def _feeding_changed(self) -> None:
        # A signal handler of this thread may come in between at any place, take something, be done, or
        # raise.
        client = self._busy.client()
        if self._is_busy() and not self._tickets:
            self._tickets.extend(map(client.send, (b"",)))  # no handler comes between the two steps
            self._busy.answer_all()
        while self._tickets and not self._is_busy():
            _move(self._tickets, self._ending)
            if self._is_busy():
                _move(self._ending, self._tickets)
        while self._ending:
            with contextlib.suppress(IndexError):
                any(map(client.forget, map(list.pop, (self._ending,))))

    def _is_busy(self) -> bool:
        return self._taken > 0 or self._feeder is not None

    def join(self) -> None:
        """Waits until all is done that was put there. Looks again every 50 ms at the latest."""
        pause = 0.001
        while not self._is_done():
            time.sleep(pause)
            pause = min(2 * pause, _SLICE)

    def _is_done(self) -> bool:
        # If nothing was put there from the first look to the last, everything was done at some
        # moment between them: a process is busy before its object leaves the queue.
        posted = self._channel.posted
        self._busy.answer_all()
        return self._channel.is_idle() and self._busy.is_idle() and self._channel.posted == posted


def _move(source: list[Ticket], to: list[Ticket]) -> None:
    """Moves the last one, if there is one, in one step: no signal handler runs before it is there."""
    with contextlib.suppress(IndexError):
        to.extend(map(list.pop, (source,)))


_queues: weakref.WeakSet[Queue[Any]] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_queues):
        each._forget_parent()


os.register_at_fork(after_in_child=_forked)
