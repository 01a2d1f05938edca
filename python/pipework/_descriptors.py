"""Whether a descriptor is still the file that it was. The program may have closed it, and then the
number belongs to whatever it has opened since."""

from __future__ import annotations

import os

Identity = tuple[int, int]


def identity(number: int) -> Identity | None:
    """Device and inode; None if it is closed. Sockets, pipes and files in memory have their own. All
    eventfds, pidfds and epoll instances have one together: such a number is kept as a
    `_core.Descriptor`."""
    try:
        facts = os.fstat(number)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
