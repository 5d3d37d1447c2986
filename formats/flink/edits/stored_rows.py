"""The entries of a subtask's keyed state, key group after key group, whichever backend wrote them.

A canonical savepoint has them so. A database and a snapshot of the heap have them state by state, so each state is read
for itself, and the states are brought together by key group. Nothing but the key group is decoded, but in a snapshot of
the heap, which does not say where a value ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.flink.changelog.changelog_reading import changelog_entries
from statestore.formats.flink.changelog.stored_entries import stored_entries
from statestore.formats.flink.edits.key_group_runs import KeyGroupRuns
from statestore.formats.flink.edits.keyed_stream import Entries, Section, framed_entries
from statestore.formats.flink.snapshot.handles import ChangelogHandle, KeyGroupHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.streams.block_bytes import block_window
from statestore.formats.flink.streams.keyed_columns import prefix_width, record_kinds
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.raw_timers import block_bounds
from statestore.formats.flink.streams.savepoint_entries import block_entries, entries_in
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels import compiled_use
from statestore.formats.rocksdb.key_ranges import KeyRange, successor


@dataclass(frozen=True)
class SubtaskRows:
    """The keyed state of one subtask of an operator with ``groups`` key groups.

    ``forms`` are those of the operator's states by stored name, ``origin`` names the operator in errors.
    """

    files: SnapshotFiles
    stored: StoredKeyed
    forms: Mapping[str, KeyedForm]
    groups: int
    origin: str

    @property
    def width(self) -> int:
        """The bytes of the key group in front of stored keys."""
        return prefix_width(self.groups)


def rows_by_group(rows: SubtaskRows) -> Iterator[tuple[int, Iterator[Section]]]:
    """Yield the key groups that may have entries, ascending, and the sections of each, by the numbers of the states.

    Each section is to be read before the next one. Raises as `read_savepoint`.
    """
    handle = rows.stored.handle
    if isinstance(handle, KeyGroupHandle) and handle.form != "heap":
        yield from _of_savepoint(rows, handle)
    else:
        yield from _by_group(rows)


def _of_savepoint(rows: SubtaskRows, handle: KeyGroupHandle) -> Iterator[tuple[int, Iterator[Section]]]:
    header = rows.stored.header
    with rows.files.open_at(handle.stream) as part:
        compiled_use.load_if_it_pays(part.size)
        for group, (start, end) in sorted(block_bounds(handle, part.size, part.path).items()):
            window = block_window(part, start, end, compressed=header.compressed, partial=handle.partial)
            entries = block_entries(window, len(header.states))
            yield (
                group,
                (
                    (number, _checked(rows, group, ((keys, values) for _, keys, values in found)))
                    for number, found in itertools.groupby(entries, lambda each: each[0])
                ),
            )


def _checked(rows: SubtaskRows, group: int, batches: Iterable[Entries]) -> Iterator[Entries]:
    for keys, values in batches:
        _check_width(rows, keys)
        if len(keys) and (keys.numbers(0, f">u{rows.width}") != group).any():
            raise _misplaced(rows, f"found entries of another key group among those of key group {group}")
        yield keys, values


def _by_group(rows: SubtaskRows) -> Iterator[tuple[int, Iterator[Section]]]:
    found = {
        number: itertools.groupby(entries_of_state(rows, state.name), lambda each: each[0])
        for number, state in enumerate(rows.stored.header.states)
    }
    heads = {number: head for number, each in found.items() if (head := next(each, None)) is not None}
    while heads:
        group = min(first for first, _ in heads.values())
        mine = [number for number in sorted(heads) if heads[number][0] == group]
        yield group, ((number, ((keys, values) for _, keys, values in heads[number][1])) for number in mine)
        for number in mine:
            head = next(found[number], None)
            if head is None:
                del heads[number]
            else:
                heads[number] = head


def entries_of_state(rows: SubtaskRows, state: str) -> Iterator[tuple[int, *Entries]]:
    """Yield the entries of a state, each batch with its one key group, ascending. Raises as `read_savepoint`."""
    handle, form = rows.stored.handle, rows.forms[state]
    if not handle.groups:
        return
    first, last = handle.first_group, handle.first_group + handle.groups - 1
    reading = KeyedReading(rows.files, form, rows.groups, first, last, (), rows.origin, rows.forms)
    ranges = [KeyRange(first.to_bytes(rows.width, "big"), successor(last.to_bytes(rows.width, "big")))]
    if isinstance(handle, ChangelogHandle):
        yield from _of_changelog(rows, changelog_entries(reading, rows.stored, handle, ranges))
        return
    before = first
    for keys, values in stored_entries(reading, rows.stored, record_kinds(form), ranges):
        if not len(keys):
            continue
        _check_width(rows, keys)
        numbers = keys.numbers(0, f">u{rows.width}").astype(np.int64)
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(keys)]
        for start, stop in itertools.pairwise(edges):
            group = int(numbers[start])
            if not before <= group <= last:
                raise _misplaced(rows, f"found key group {group} of state {state!r}, expected {before} to {last}")
            before = group
            yield group, keys.select(slice(start, stop)), values.select(slice(start, stop))


def _of_changelog(rows: SubtaskRows, found: Iterable[Entries]) -> Iterator[tuple[int, *Entries]]:
    """Yield entries in the order of key groups that a replay yields in none.

    All states of a subtask are brought into order at once, so they share the memory for it.
    """
    handle = rows.stored.handle
    with KeyGroupRuns(1, 1 / len(rows.stored.header.states)) as runs:
        for keys, values in found:
            _check_width(rows, keys)
            runs.add(keys.numbers(0, f">u{rows.width}"), 0, framed_entries([keys.copied()], keys.size, values))
        for group, sections in runs.sections(handle.first_group, handle.groups):
            for part in (part for _, parts in sections for part in parts):
                for keys, values in entries_in(part.content, rows.files.path):
                    yield group, keys, values


def _check_width(rows: SubtaskRows, keys: Cells) -> None:
    keys.require(rows.width, "a stored key", lambda found: _misplaced(rows, found))


def _misplaced(rows: SubtaskRows, found: str) -> CorruptError:
    return CorruptError(ErrorCode.FLINK_ROW, f"{rows.origin}: {found}; restore the file from a copy")
