"""Reading a header as a row of units (its start, then state after state), so that a wrong guess costs one unit.

A unit that was reached at a byte with as many units to come either can be completed or not, whatever came before. So
each such place is tried once, and the work stays in proportion to the header.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.snapshot_input import Budget, OutOfGuesses, SnapshotInput, UnknownClass
from statestore.formats.flink.serializers.unknown_lengths import all_parses
from statestore.formats.flink.snapshot.data_input import DataInput

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
