"""Reading a header as a row of units (its start, then state after state), so that a wrong guess costs one unit.

A unit that was reached at a byte with as many units to come either can be completed or not, whatever came before. So
each such place is tried once, and the work stays in proportion to the header.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.snapshot_input import Budget, OutOfGuesses, SnapshotInput, UnknownClass
from statestore.formats.flink.serializers.unknown_lengths import all_parses
from statestore.formats.flink.snapshot.data_input import DataInput

Unit = Callable[[SnapshotInput], Any]
NextUnit = Callable[[tuple[Any, ...]], tuple[Hashable, Unit] | None]
"""The unit behind those that are read, and what distinguishes the units still to come; None at the end."""


def read_units(data: bytes, path: str, end: int | None, next_unit: NextUnit) -> tuple[tuple[Any, ...], int]:
    """The results of all units, and the byte behind them.

    ``end``: the byte where the header ends, as far as that is known. Without it a header with an unknown class is
    refused. Raises CorruptError FLINK_METADATA for damaged bytes, also where a header without unknown classes does not
    end at ``end``, and UnsupportedError FLINK_UNSUPPORTED where the end of an unknown class cannot be told.
    """
    return _Search(DataInput(data, path, 0, end), end, next_unit).run()


@dataclass
class _Place:
    """Units that were read up to here, and the ways to read the next one."""

    done: tuple[Any, ...]
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
    before: tuple[Any, ...] = ()
    dead: set[Hashable] = field(default_factory=set)
    found: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)

    def run(self) -> tuple[tuple[Any, ...], int]:
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
        stack: list[_Place] = []
        self.enter(stack, (), 0, False)
        while stack and len(self.found) < 2:
            place = stack[-1]
            seen = len(self.unknown)
            way = next(place.ways, None)
            if self.unknown and not seen:
                self.before = place.done
                if self.end is None:
                    raise self.refused("the end of the header is not known here")
            if way is None:
                stack.pop()
                if not place.found_any:
                    self.dead.add(place.key)
                continue
            result, at, _ = way
            before = len(self.found)
            self.enter(stack, (*place.done, result), at, bool(self.unknown))
            if len(self.found) > before:
                for each in stack:
                    each.found_any = True

    def enter(self, stack: list[_Place], done: tuple[Any, ...], at: int, tolerant: bool) -> None:
        """Go on behind a unit: note a complete header, or try the next unit."""
        following = self.next_unit(done)
        if following is None:
            if self.end is None or at == self.end:
                self.found.append((done, at))
            elif not tolerant:
                raise self.data.error(f"found the header's end, expected it at byte {self.end}", at)
            return
        token, unit = following
        key = (token, at)
        if key in self.dead:
            return
        ways = all_parses(unit, self.data, at, self.data.stop, self.budget, tolerant=tolerant, first=self.unknown)
        stack.append(_Place(done, key, ways))

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
