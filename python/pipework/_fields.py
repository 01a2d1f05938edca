"""The meanings of the fields of named tuples, for `help()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=type)


def described(**fields: str) -> Callable[[C], C]:
    """Gives each field of a named tuple its sentence."""

    def describe(kind: C) -> C:
        assert fields.keys() == set(vars(kind)["_fields"])
        for name, text in fields.items():
            getattr(kind, name).__doc__ = text
        return kind

    return describe
