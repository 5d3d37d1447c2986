"""Guessing where the snapshot of an unknown class ends: every length is tried, and one alone may fit all that follows.

A snapshot has no length. The class of a user's serializer mostly extends ``SimpleTypeSerializerSnapshot``, whose
snapshot is empty, but any number of bytes is possible. The end of the whole header is known, so a wrong length shows:
the rest does not parse, or does not end there.

A header is read as a row of units: its start, then state after state. So a wrong guess costs one unit. A unit that was
reached at a byte with as many units to come either can be completed or not, whatever came before. So each such place is
tried once, and the work stays in proportion to the header.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.serializers.snapshot_input import Budget, OutOfGuesses, SnapshotInput, UnknownClass
from statestore.formats.flink.snapshot.data_input import DataInput

Parsed = TypeVar("Parsed")

LONGEST = 1 << 20
"""Bytes of the longest snapshot that is guessed, unless it is all that is left."""


def all_parses(
    parse: Callable[[SnapshotInput], Parsed],
    data: DataInput,
    start: int,
    stop: int,
    budget: Budget,
    depth: int = 0,
    *,
    tolerant: bool = False,
    first: list[UnknownClass] | None = None,
) -> Iterator[tuple[Parsed, int, bool]]:
    """Each way to parse what begins at ``start`` and ends at ``stop`` or before: the result, its end, and whether a
    length was guessed for it.

    An error is raised as it is if no length was guessed (and the caller is not ``tolerant``: it guessed none before).
    ``first`` gets the first unknown class that is met. Raises `OutOfGuesses`.
    """
    pending: list[Iterator[tuple[int, ...]]] = [iter([()])]
    while pending:
        guesses = next(pending[-1], None)
        if guesses is None:
            pending.pop()
            continue
        if guesses or tolerant:
            budget.spend()
        part = DataInput(data.data, data.path, start, stop)
        source = SnapshotInput(part, guesses, budget, depth=depth, unsure=tolerant)
        try:
            parsed = parse(source)
        except UnknownClass as unknown:
            if first is not None:
                first.append(unknown)
            pending.append(_longer(guesses, unknown, data.data, stop))
        except (CorruptError, UnsupportedError):
            if not guesses and not tolerant:
                raise
        else:
            yield parsed, source.data.at, bool(guesses)


def _longer(guesses: tuple[int, ...], unknown: UnknownClass, data: bytes, stop: int) -> Iterator[tuple[int, ...]]:
    """The guesses with each length for one more class, shortest first.

    Behind a snapshot lies the end, a text (a class, a role, a state) or a number of states. The first two bytes of all
    of these are never more than the bytes behind them.
    """
    left = stop - unknown.at
    part = np.frombuffer(data, np.uint8, min(unknown.most + 2, left, LONGEST), unknown.at).astype(np.int32)
    ahead = (part[:-1] << 8) + part[1:]
    for length in np.flatnonzero(np.arange(ahead.size) + 2 + ahead <= left).tolist():
        yield (*guesses, length)
    if unknown.most == left:
        yield (*guesses, left)


Unit = Callable[[SnapshotInput], Any]
NextUnit = Callable[[Sequence[Any]], tuple[Hashable, Unit] | None]
"""The unit behind those that are read, and what distinguishes the units still to come; None at the end."""


def read_units(data: bytes, path: str, end: int | None, next_unit: NextUnit) -> tuple[list[Any], int]:
    """The results of all units, and the byte behind them.

    ``end``: the byte where the header ends, as far as that is known. Without it a header with an unknown class is
    refused. Raises CorruptError FLINK_METADATA for damaged bytes, also where a header without unknown classes does not
    end at ``end``, and UnsupportedError FLINK_UNSUPPORTED where the end of an unknown class cannot be told.
    """
    return _Search(DataInput(data, path, 0, end), end, next_unit).run()


@dataclass
class _Place:
    """The ways to read the next unit; how many units lie before it is its place on the stack."""

    key: Hashable
    ways: Iterator[tuple[Any, int, bool]]
    found_any: bool = False


@dataclass
class _Search:
    data: DataInput
    end: int | None
    next_unit: NextUnit
    budget: Budget = field(default_factory=Budget)
    unknown: list[UnknownClass] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)
    dead: set[Hashable] = field(default_factory=set)
    found: list[tuple[list[Any], int]] = field(default_factory=list)
    done: list[Any] = field(default_factory=list)
    stack: list[_Place] = field(default_factory=list)

    def run(self) -> tuple[list[Any], int]:
        try:
            self.search()
        except OutOfGuesses:
            raise self.refused("its end could not be found with bounded work") from None
        if len(self.found) == 1:
            return self.found[0]
        if self.found:
            raise self.refused("more than one length of its snapshot fits")
        raise self.refused("no length of its snapshot fits what follows")

    def search(self) -> None:
        """Read unit after unit; at a unit that cannot be read, go back to the one before and read it another way."""
        self.enter(0)
        while self.stack and len(self.found) < 2:
            place = self.stack[-1]
            del self.done[len(self.stack) - 1 :]
            was_sure = not self.unknown
            way = next(place.ways, None)
            if was_sure and self.unknown:
                self.before = list(self.done)
                if self.end is None:
                    raise self.refused("the end of the header is not known here")
            if way is None:
                self.stack.pop()
                if not place.found_any:
                    self.dead.add(place.key)
                continue
            self.done.append(way[0])
            self.enter(way[1])

    def enter(self, at: int) -> None:
        """Go on behind the units that are read: note a complete header, or begin the next unit."""
        following = self.next_unit(self.done)
        if following is None:
            if self.end is None or at == self.end:
                self.found.append((list(self.done), at))
                for place in self.stack:
                    place.found_any = True
            elif not self.unknown:
                raise self.data.error(f"found the header's end, expected it at byte {self.end}", at)
            return
        token, unit = following
        key = (token, at)
        if key not in self.dead:
            ways = all_parses(
                unit, self.data, at, self.data.stop, self.budget, tolerant=bool(self.unknown), first=self.unknown
            )
            self.stack.append(_Place(key, ways))

    def refused(self, problem: str) -> UnsupportedError:
        unknown = self.unknown[0]
        names = [each.name for each in self.before if hasattr(each, "name")]
        read = f"states read before it: {', '.join(map(repr, names[:20]))}" if names else "no state was read before it"
        return UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{self.data.path}: serializer snapshot {unknown.name}, version {unknown.version}, at byte {unknown.at} is "
            f"not one of Flink's, and {problem}; {read}; use one of Flink's serializers for this state, or a snapshot "
            "class that extends SimpleTypeSerializerSnapshot",
        )
