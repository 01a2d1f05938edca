"""What a queue without a bound keeps beyond its slots: two files in memory that all of its processes have.

The kernel keeps the order, and no process has a lock. The processes share one open file, with one
position: a read of it takes the next record and moves the position in one step, and a write at its end
adds one in one step. A record lies within a page, so it is whole or not there, whenever a process is
killed. A long object lies in the second file, whose position says where the next one begins.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import pickle
import struct
import weakref
from typing import Any

from ._objects import Pickled

_RECORD = 256
"""Bytes of a record."""
_LENGTH = struct.Struct("=H")
"""In front of a short pickle in its record."""
_LONG = 0xFFFF
_PLACE = struct.Struct("=HQQQ")
"""A record of an object in the second file: `_LONG`, where it is, the bytes of its pickle, and how many
buffers follow. Before the pickle are their lengths."""
_CHUNK = 1 << 20
"""The memory of so many bytes of records is given back at a time."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class _File:
    """A descriptor. If the program closes it, and has another file there, that is left alone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._identity = _identity(os.fstat(fd))
        self.close = weakref.finalize(self, _close, fd, self._identity)
        self.close.atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.reduction import DupFd

        return _adopt, (DupFd(self.fileno()),)

    def fileno(self) -> int:
        return self.opened()[0]

    def opened(self) -> tuple[int, int]:
        """The descriptor, and how many bytes the file has."""
        facts = os.fstat(self._fd)
        if _identity(facts) != self._identity:
            raise OSError(errno.EBADF, "a descriptor of this queue was closed by the program")
        return self._fd, facts.st_size

    def give_back(self, begin: int, end: int) -> None:
        """Gives back the memory of the whole pages in between."""
        _libc.fallocate(self.fileno(), _PUNCH_HOLE | _KEEP_SIZE, begin, end - begin)


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def _close(fd: int, identity: tuple[int, int]) -> None:
    with contextlib.suppress(OSError):
        if _identity(os.fstat(fd)) == identity:
            os.close(fd)


def _adopt(copy: Any) -> _File:
    return _File(copy.detach())


def _new_file() -> _File:
    first = os.memfd_create("pipework-queue", os.MFD_CLOEXEC)
    try:
        # Of the file that `memfd_create` opens, the kernel does not lock the position.
        return _File(os.open(f"/proc/self/fd/{first}", os.O_RDWR | os.O_CLOEXEC))
    finally:
        os.close(first)


class Overflow:
    """Objects that any process may put and get, in order."""

    def __init__(self) -> None:
        files = _new_file(), _new_file()
        # The first page of the second file has the word that says whether the files were ever used.
        os.ftruncate(files[1].fileno(), mmap.PAGESIZE)
        os.lseek(files[1].fileno(), mmap.PAGESIZE, os.SEEK_SET)
        self.__setstate__(files)

    def __getstate__(self) -> tuple[_File, _File]:
        return self._records, self._long

    def __setstate__(self, files: tuple[_File, _File]) -> None:
        self._records, self._long = files
        # A mapping of Python has a descriptor of its own, which could be closed by the program as well.
        page = _libc.mmap(None, mmap.PAGESIZE, 3, 1, self._long.fileno(), 0)  # read and write, shared
        if page == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        weakref.finalize(self, _libc.munmap, page, mmap.PAGESIZE).atexit = False
        self.was_used = ctypes.c_uint64.from_address(page)
        """Not 0 if an object was ever put there. A look at it is all that most queues pay for this."""
        self._given_back = 0

    def close(self) -> None:
        self._records.close()
        self._long.close()

    def count(self) -> int:
        """How many objects there are."""
        if not self.was_used.value:
            return 0
        file, size = self._records.opened()
        # One that is put and taken in between is counted in neither.
        return max(size - os.lseek(file, 0, os.SEEK_CUR), 0) // _RECORD

    @property
    def total(self) -> int:
        """How many objects were put there so far."""
        return self._records.opened()[1] // _RECORD

    def put(self, pickled: Pickled) -> None:
        data, buffers = pickled
        if buffers or len(data) > _RECORD - _LENGTH.size:
            record = _PLACE.pack(_LONG, self._put_long(pickled), len(data), len(buffers))
        else:
            record = _LENGTH.pack(len(data)) + data
        self.was_used.value = 1
        if os.pwritev(self._records.fileno(), [record.ljust(_RECORD, b"\0")], 0, os.RWF_APPEND) < _RECORD:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    def _put_long(self, pickled: Pickled) -> int:
        sizes = [memoryview(buffer).nbytes for buffer in pickled.buffers]
        head = struct.pack(f"={len(sizes)}Q", *sizes) + pickled.data
        size = len(head) + sum(sizes)
        # In whole pages, which can be given back one by one.
        pages = size + -size % mmap.PAGESIZE
        file = self._long.fileno()
        place = os.lseek(file, pages, os.SEEK_CUR) - pages
        try:
            at = place
            for part in (head, *pickled.buffers):
                left = memoryview(part).cast("B")
                while left:
                    done = os.pwrite(file, left, at)
                    at, left = at + done, left[done:]
        except BaseException:
            self._long.give_back(place, place + pages)
            raise
        return place

    def take(self) -> bytes | None:
        """Takes the record of the first object. None if there is none."""
        file = self._records.fileno()
        record = os.read(file, _RECORD)
        if not record:
            return None
        chunk = os.lseek(file, 0, os.SEEK_CUR) // _CHUNK
        if chunk != self._given_back:
            self._given_back = chunk
            self._records.give_back(0, chunk * _CHUNK)
        return record

    def load(self, record: bytes) -> Any:
        """The object of a record that was taken."""
        (length,) = _LENGTH.unpack_from(record)
        if length != _LONG:
            return pickle.loads(memoryview(record)[_LENGTH.size : _LENGTH.size + length])
        _, place, length, count = _PLACE.unpack_from(record)
        head = 8 * count
        file = self._long.fileno()
        sizes = struct.unpack(f"={count}Q", _read(file, place, head))
        size = length + sum(sizes)
        whole = memoryview(_read(file, place + head, size)).toreadonly()
        self._long.give_back(place, place + head + size + -(head + size) % mmap.PAGESIZE)
        buffers, begin = [], length
        for each in sizes:
            buffers.append(whole[begin : begin + each])
            begin += each
        return pickle.loads(whole[:length], buffers=buffers)


def _read(file: int, place: int, size: int) -> bytearray:
    whole = bytearray(size)
    left = memoryview(whole)
    while left:
        done = os.preadv(file, [left], place)
        if done == 0:
            raise OSError(errno.EIO, "an object of this queue was cut")
        place, left = place + done, left[done:]
    return whole
