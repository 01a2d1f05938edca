"""Whether a descriptor is still the file that it was. The program may have closed it, and then the
number belongs to whatever it has opened since."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

Identity = tuple[int, int]


def identity(number: int) -> Identity | None:
    """Inode and device; None if it is closed. Sockets, pipes and files in memory have their own. All
    eventfds, pidfds and epoll instances have one together: such a number is kept as a
    `_core.Descriptor`."""
    try:
        return os.fstat(number)[1:3]
    except OSError:
        return None


class Held(NamedTuple):
    """The number of a descriptor, and the file that it was."""

    number: int
    file: Identity | None

    @classmethod
    def of(cls, number: int) -> Held:
        return cls(number, identity(number))

    def is_intact(self) -> bool:
        try:
            return os.fstat(self.number)[1:3] == self.file
        except OSError:
            return False

    def check(self, owner: str) -> None:
        if not self.is_intact():
            raise OSError(errno.EBADF, f"the descriptor of this {owner} was closed by the program")
