"""Reading a tree of serializer snapshots: position, depth, guessed lengths, and the parts that many snapshots share.

Source: ``TypeSerializerSnapshot.readVersionedSnapshot``, ``NestedSerializersSnapshotDelegate``,
``CompositeTypeSerializerSnapshot`` and ``LinkedOptionalMapSerializer`` of Flink 1.20 and 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.flink_types import MOST_DEPTH
from statestore.formats.flink.snapshot.data_input import DataInput

LEAST_SNAPSHOT = 7
"""Bytes of the shortest snapshot: a length, one character of a class name and a version."""

_COMPOSITE = 911108
_NESTED = 1333245
_OPTIONAL_MAP = 0x4F2C69A3D70
_CLASS_NAME = re.compile(r"[^\W\d][^\x00-\x20./;\[\]<>\x7f]*(\.[^\W\d][^\x00-\x20./;\[\]<>\x7f]*)*")

_ROLES = tuple(f"{role}_SERIALIZER".encode() for role in ("KEY", "NAMESPACE", "VALUE", "USER_KEY"))
_OPTIONS = (b"KEYED_STATE_TYPE", b"OPERATOR_STATE_DISTRIBUTION_MODE")
_MARKS = (
    *(len(role).to_bytes(2, "big") + role + b"\0\0\0\2" for role in _ROLES),
    *(len(option).to_bytes(2, "big") + option for option in _OPTIONS),
)
"""Bytes that only a state's header has, never the snapshot of a serializer: a role with its frame, an option."""

_PLAUSIBLE = re.compile(r"[.$]|Snapshot|Serializer|Config")
_MOST_VERSION = 0xFFFF
"""More is a text for a version, as it stands behind a snapshot."""

Outer = TypeVar("Outer")


class UnknownClass(Exception):
    """A snapshot class that Flink itself does not have, whose length no guess has told yet."""

    def __init__(self, name: str, version: int, at: int, most: int) -> None:
        super().__init__(name, version, at, most)
        self.name = name
        self.version = version
        self.at = at
        self.most = most


class OutOfGuesses(Exception):
    """The work allowed for guessed lengths is used up."""


@dataclass
class Budget:
    """Lengths that may still be guessed for one file."""

    left: int = 50_000

    def spend(self) -> None:
        """Count one guess. Raises `OutOfGuesses`."""
        if self.left <= 0:
            raise OutOfGuesses
        self.left -= 1


@dataclass
class SnapshotInput:
    """The bytes of snapshots, and the lengths to take for the unknown snapshot classes that are met, in their order.

    ``unsure``: lengths were guessed before these bytes, so that they may be no snapshots at all.
    """

    data: DataInput
    guesses: tuple[int, ...] = ()
    budget: Budget = field(default_factory=Budget)
    used: int = 0
    depth: int = 0
    unsure: bool = False

    def class_name(self, what: str = "the class of a serializer snapshot") -> str:
        """A text that can be the name of a Java class."""
        start = self.data.at
        name = self.data.utf(what)
        if not _CLASS_NAME.fullmatch(name):
            raise self.data.error(f"found {name[:80]!r} for {what}, expected the name of a Java class", start)
        return name

    def guessed_body(self, name: str, version: int) -> None:
        """Skip the body of an unknown class. Raises `UnknownClass` if no length was guessed for it.

        Behind a wrong length stand texts that are no classes: CorruptError FLINK_METADATA is raised for these.
        """
        unsure = self.unsure or self.used > 0
        if not 0 <= version <= _MOST_VERSION or (unsure and not _PLAUSIBLE.search(name)):
            raise self.data.error(f"found {name[:80]!r}, version {version}, for the class of a serializer snapshot")
        if self.used >= len(self.guesses):
            raise UnknownClass(name, version, self.data.at, self._to_next_mark())
        self.data.skip(self.guesses[self.used], f"the snapshot of {name}")
        self.used += 1

    def _to_next_mark(self) -> int:
        data = self.data
        found = (data.data.find(mark, data.at, data.stop) for mark in _MARKS)
        return min((at for at in found if at >= 0), default=data.stop) - data.at

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting. Raises CorruptError FLINK_METADATA beyond 64 levels."""
        if self.depth >= MOST_DEPTH:
            raise self.data.error(f"found serializers nested deeper than {MOST_DEPTH} levels")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def unsupported(self, name: str, version: int, known: str) -> UnsupportedError:
        """The error for a version of a known class that is not known."""
        return UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{self.data.path}: found version {version} of serializer snapshot {name}, expected {known}; take the "
            "savepoint with Flink 1.8 to 2.3, or upgrade statestore",
        )


def outer_snapshot(
    source: SnapshotInput, name: str, version: int, newest: int, read: Callable[[DataInput, int], Outer]
) -> Outer:
    """The data of a composite snapshot before its nested ones; ``read`` gets the version of this part.

    Versions 1 and 2 have no magic number, and their own version is that of the part. Raises UnsupportedError
    FLINK_UNSUPPORTED for a version above ``newest``.
    """
    data = source.data
    if not 1 <= version <= 3:
        raise source.unsupported(name, version, "1 to 3")
    if version == 3:
        magic = data.i32("the magic number of a composite serializer")
        if magic != _COMPOSITE:
            raise data.error(f"found {magic} for the magic number of {name}, expected {_COMPOSITE}", data.at - 4)
        version = data.i32("the version of a composite serializer")
        if not 0 <= version <= newest:
            raise source.unsupported(name, version, f"0 to {newest} inside of version 3")
    return read(data, version)


def nested_count(source: SnapshotInput) -> int:
    """The number of nested snapshots that follow."""
    data = source.data
    magic = data.i32("the magic number of nested serializers")
    if magic != _NESTED:
        raise data.error(f"found {magic} for the magic number of nested serializers, expected {_NESTED}", data.at - 4)
    version = data.i32("the version of nested serializers")
    if version != 1:
        raise data.error(f"found version {version} of nested serializers, expected 1", data.at - 4)
    return data.count(data.i32("the number of nested serializers"), LEAST_SNAPSHOT, "nested serializers")


@dataclass(frozen=True)
class Entry:
    """An entry of an optional map: its name, and where its key's and its value's bytes lie (None: absent)."""

    name: str
    key: tuple[int, int] | None
    value: tuple[int, int] | None


def optional_map(source: SnapshotInput, what: str) -> tuple[Entry, ...]:
    """The entries of a ``LinkedOptionalMap``; each part is framed by its length."""
    data = source.data
    magic = data.i64(f"the magic number of {what}")
    if magic != _OPTIONAL_MAP:
        raise data.error(f"found {magic:#x} for the magic number of {what}, expected {_OPTIONAL_MAP:#x}", data.at - 8)
    number = data.count(data.i32(f"the number of {what}"), 4, what)
    return tuple(Entry(data.utf(f"a name among {what}"), _frame(data, what), _frame(data, what)) for _ in range(number))


def _frame(data: DataInput, what: str) -> tuple[int, int] | None:
    if not data.boolean(f"whether a part of {what} is there"):
        return None
    size = data.i32(f"the length of a part of {what}")
    start = data.at
    data.skip(size, f"a part of {what}")
    return start, data.at
