"""The keyed state of an operator written anew: subtask by subtask as it is, or in the key groups of another max
parallelism, for which all subtasks are read before one is written.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.flink.edited_operators import EditedOperator
from statestore.formats.flink.edits.changed_rows import Changing, changed_groups, changing
from statestore.formats.flink.edits.key_group_runs import KeyGroupRuns
from statestore.formats.flink.edits.keyed_stream import (
    Entries,
    FramedSection,
    Put,
    Section,
    WrittenStream,
    framed_batches,
    write_stream,
)
from statestore.formats.flink.edits.other_groups import OtherGroups, together
from statestore.formats.flink.edits.state_changes import mask_texts, masks_of
from statestore.formats.flink.edits.stored_rows import rows_by_group
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.places.reading_threads import in_order, reading_threads

Met = Mapping[str, Bools]
"""Masks of the changes that were found in a subtask, by state."""


@dataclass(frozen=True)
class WrittenOperator:
    """The streams of subtasks that were written, each with its first key group, and what was met in those read."""

    streams: tuple[tuple[int, WrittenStream], ...]
    met: tuple[Met, ...]

    def as_text(self) -> str:
        """Return the value as a text, which `of_text` reads."""
        streams = [[first, stream.offsets, stream.bytes] for first, stream in self.streams]
        return json.dumps({"streams": streams, "met": [mask_texts(each) for each in self.met]})

    @staticmethod
    def of_text(text: str) -> WrittenOperator:
        found = json.loads(text)
        streams = tuple((first, WrittenStream(tuple(offsets), size)) for first, offsets, size in found["streams"])
        return WrittenOperator(streams, tuple(masks_of(each) for each in found["met"]))


def key_group_ranges(groups: int, parallelism: int) -> list[tuple[int, int]]:
    """The key groups of each subtask, the first one and how many (``KeyGroupRangeAssignment``)."""
    edges = [-(-index * groups // parallelism) for index in range(parallelism + 1)]
    return [(first, stop - first) for first, stop in itertools.pairwise(edges)]


def write_subtask(operator: EditedOperator, place: int, put: Put) -> WrittenOperator:
    """Write the stream of a subtask's keyed state, with its changes. Raises as `changed_groups`."""
    found, work = _changed(operator, place)
    header = operator.header([place])
    numbers = _numbers(operator, place, header.numbers)
    first, groups = operator.key_groups(place)
    kept = ((group, _framed(_kept(sections, numbers))) for group, sections in found)
    stream = write_stream(put, header.data, first, groups, kept)
    return WrittenOperator(((first, stream),), (_met(operator, place, work),))


def write_moved(
    operator: EditedOperator,
    moves: OtherGroups,
    ranges: Sequence[tuple[int, int]],
    opened: Callable[[int], AbstractContextManager[Put]],
) -> WrittenOperator:
    """Write the streams of all subtasks with another max parallelism; ``ranges`` are the key groups of each, first and
    number, and ``opened`` opens the stream of one.

    Memory holds some batches and what `KeyGroupRuns` holds. Raises as `changed_groups` and `OtherGroups.moved`, and
    StorageError DISK_FAILED.
    """
    header = operator.header(range(len(operator.stored)))
    timers = {
        header.numbers[each.name]
        for stored in operator.stored
        for each in stored.header.states
        if each.kind == "timers" and each.name in header.numbers
    }

    def moved(batch: tuple[int, Entries]) -> tuple[int, tuple[Ints, pa.BinaryArray]]:
        number, entries = batch
        return number, moves.moved(entries, timers=number in timers)

    met: list[Met] = []
    streams: list[tuple[int, WrittenStream]] = []
    with KeyGroupRuns(max(len(header.numbers), 1)) as runs:
        for place in range(len(operator.stored)):
            found, work = _changed(operator, place)
            numbers = _numbers(operator, place, header.numbers)
            kept = (each for _, sections in found for each in _kept(sections, numbers))
            for number, (groups, entries) in in_order(moved, together(kept), reading_threads()):
                runs.add(groups, number, entries)
            met.append(_met(operator, place, work))
        for index, (first, count) in enumerate(ranges):
            with opened(index) as put:
                streams.append((first, write_stream(put, header.data, first, count, runs.sections(first, count))))
    return WrittenOperator(tuple(streams), tuple(met))


def _changed(operator: EditedOperator, place: int) -> tuple[Iterable[tuple[int, Iterable[Section]]], Changing]:
    """The key groups of a subtask with its changes, and these."""
    rows, changes = operator.rows(place), operator.changes(place)
    work = changing(changes)
    found = rows_by_group(rows)
    return changed_groups(work, found, *operator.key_groups(place)) if changes else found, work


def _met(operator: EditedOperator, place: int, work: Changing) -> Met:
    states = operator.stored[place].header.states
    return {states[number].name: each for number, each in work.met.items()}


def _numbers(operator: EditedOperator, place: int, numbers: Mapping[str, int]) -> list[int | None]:
    """The number that each state of a subtask has in a header that is written; None for one that is left out."""
    return [numbers.get(each.name) for each in operator.stored[place].header.states]


def _kept(sections: Iterable[Section], numbers: Sequence[int | None]) -> Iterator[Section]:
    for number, batches in sections:
        written = numbers[number]
        if written is not None:
            yield written, batches


def _framed(sections: Iterable[Section]) -> Iterator[FramedSection]:
    return ((number, framed_batches(batches)) for number, batches in sections)
