"""Faults in the bytes of a state, before a message says of which state."""

from __future__ import annotations

import numpy as np

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.flink_types import Logical
from statestore.formats.kernels.arrays import Bools


class Wrong(Exception):
    """Bytes that no value of the type has."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found, self.expected = found, expected


class Short(Wrong):
    """The data ends inside a value."""

    def __init__(self, needed: int, left: int) -> None:
        super().__init__(f"{left} bytes left", f"at least {needed}")


class Opacity(Exception):
    """A part that only the job's classes decode; ``whose`` names it, ``remedy`` is the option that may help, or "".

    ``classes`` are those of the job of which one may stand in the way of Kryo.
    """

    def __init__(self, whose: str, remedy: str = "", classes: tuple[str, ...] = ()) -> None:
        super().__init__(whose, remedy, classes)
        self.whose, self.remedy, self.classes = whose, remedy, classes


class OpaqueClassError(UnsupportedError):
    """Values that only the job's classes decode; ``classes`` are those of which one may stand in the way."""

    classes: tuple[str, ...] = ()


def reworded(error: UnsupportedError, message: str) -> UnsupportedError:
    """The error with another message, and the same classes."""
    if not isinstance(error, OpaqueClassError):
        return UnsupportedError(error.code, message)
    found = OpaqueClassError(error.code, message)
    found.classes = error.classes
    return found


class Beyond(Exception):
    """A value that does not fit the column; ``value`` is its text, ``remedy`` a type to give, where that is known."""

    def __init__(self, value: str, column: str, remedy: str = "") -> None:
        super().__init__(value, column, remedy)
        self.value, self.column, self.remedy = value, column, remedy


class NullMapKey(Beyond):
    """A null key in a map of SQL of type ``kind``, which a map of Arrow cannot have."""

    def __init__(self, kind: Logical, column: str) -> None:
        super().__init__("a map with a null key", column)
        self.kind = kind


class NullMapKeyError(UnsupportedError):
    """A map of SQL of type ``kind`` with a null key; ``found`` is the message without what to do."""

    kind: Logical
    found: str


def refuse(wrong: Bools, found: str, expected: str) -> None:
    """Raise Wrong if any value is wrong."""
    if wrong.any():
        raise Wrong(f"{found} (value {int(np.argmax(wrong))} of those read)", expected)
