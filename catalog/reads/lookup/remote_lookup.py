"""Reads of one key in an object store, in few rounds of requests: key indexes near the hash, then single rows.

A handle that reads many keys opens segments whole (`statestore.catalog.reads.lookup.point_lookup`), which pays where
each is looked into often. For the first reads that would fetch a large part of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures, close_rows, is_valid, is_valid_from, may_have_valid
from statestore.catalog.reads.fetching import Ranges, batch_spans, framing, has_short_batches
from statestore.catalog.reads.lookup.row_numbers import RowNumbers
from statestore.catalog.reads.lookup.segment_probe import SegmentProbe, key_test, shown_reader
from statestore.catalog.reads.lookup.value_readers import row_reader
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.coded_numbers import NumbersInPlace
from statestore.formats.segments.remote_key_index import RemoteKeyIndex
from statestore.formats.segments.row_cells import cell_ranges, cells, text_ranges
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta
from statestore.formats.values.key_codec import ValueCodec

# Reads of one handle, before it opens segments whole. Were they opened at once, the first read would take 42 to 51
# rounds of requests in place of 3 (600,000 rows in 12 commits and in one). Were they never, each read would take 2.4 ms
# of processor time in place of 0.2.
MOST_READS = 64
# Of a row, that are fetched at once. Were only its cells fetched, a read would take 4 rounds in place of 3.
MOST_BATCH_BYTES = 1 << 20
# Of a key that are fetched one by one; more of them lie in most regions of their segments anyway. Were segments opened
# for each history, one would take 14 to 126 rounds in place of 3 or 4.
MOST_ROWS = 256


@dataclass(frozen=True)
class RemoteRow:
    """A version of a key: times in epoch microseconds, canonical values, and the value that users see.

    A tombstone has neither of the values.
    """

    start: int
    end: int
    values: tuple[Any, ...] | None
    shown: Any

    def probe(self) -> SegmentProbe:
        """Return the row as that of a segment which has no other one."""
        none, start, end = memoryview(b""), _time(self.start), _time(self.end)
        values, shown = (lambda row: self.values), (lambda row: self.shown)
        return SegmentProbe(none, none, none, 0, start, end, None, lambda row, key: True, values, shown)


@dataclass(frozen=True)
class RemoteVersion:
    """A row of a segment with its newest end, and what a history shows of it."""

    meta: SegmentMeta
    row: int
    version: RemoteRow
    added: int
    has_closures: bool


class RemoteLookup:
    """Reads of single keys of one log state by the bytes that they need."""

    def __init__(self, files: SegmentFiles, log_state: LogState, values: ValueCodec) -> None:
        self._files = files
        self._log_state = log_state
        self._values = values
        self._indexes: dict[str, RemoteKeyIndex] = {}
        self.left = MOST_READS

    def following(self, log_state: LogState) -> RemoteLookup:
        """Return the lookup of another log state; opened indexes and the number of reads that are left are kept."""
        later = RemoteLookup(self._files, log_state, self._values)
        names = {meta.name for meta in log_state.segments}
        later._indexes = {name: index for name, index in self._indexes.items() if name in names}
        later.left = self.left
        return later

    def locate(self, form: Any, key_hash: int, moment: int) -> RemoteRow | None:
        """Return the value version of a key with start <= moment < end; ``form`` as `key_form` makes it."""
        self.left -= 1
        metas = [
            meta
            for meta in self._log_state.segments
            if meta.role != "belief" and not meta.tombstone and may_have_valid(meta, moment, moment)
        ]
        rows = self._rows_of(metas, key_hash)
        spec = self._files.spec
        keys, names = list(spec.key_names), [*spec.key_names, *spec.value_names]
        fetched = [*names, "valid_from", "valid_to"]
        self._fetch_cells([(meta, fetched, row) for meta, found in rows for row in found], rows)
        live = [(meta, row, *times) for meta, found in rows for row in found if (times := self._at(meta, row, moment))]
        self._fetch([(meta, text_ranges(self._open(meta), names, row)) for meta, row, *_ in live])
        for meta, row, start, end in live:
            file = self._open(meta)
            if key_test(cells(file, keys, row))(0, form):
                columns = cells(file, list(spec.value_names), row)
                return RemoteRow(start, end, row_reader(columns)(0), self._shown(columns)(0))
        return None

    def versions(self, form: Any, key_hash: int, low: int, high: int) -> list[RemoteVersion] | None:
        """Return the versions and tombstones of a key that end at or after ``low`` and start at or before ``high``.

        They come in no order. Times are epoch microseconds. None: the key has so many rows that segments are better
        opened whole.
        """
        self.left -= 1
        metas = [
            meta for meta in self._log_state.segments if meta.role != "belief" and may_have_valid(meta, low - 1, high)
        ]
        rows = self._rows_of(metas, key_hash)
        if sum(len(found) for _, found in rows) > MOST_ROWS:
            return None
        spec = self._files.spec
        keys = list(spec.key_names)
        columns = {meta.name: [*keys, *(() if meta.tombstone else spec.value_names)] for meta, _ in rows}
        others = ["valid_from", "valid_to", "_added"]
        self._fetch_cells([(meta, [*columns[meta.name], *others], row) for meta, found in rows for row in found], rows)
        ending = [
            (meta, row, start, end)
            for meta, found in rows
            for row in found
            for start, end in [self._times(meta, row)]
            if is_valid_from(start, end, low) and start <= high
        ]
        self._fetch([(meta, text_ranges(self._open(meta), columns[meta.name], row)) for meta, row, *_ in ending])
        versions = []
        for meta, row, start, end in ending:
            file = self._open(meta)
            if key_test(cells(file, keys, row))(0, form):
                version = RemoteRow(start, end, None, None)
                if not meta.tombstone:
                    found = cells(file, list(spec.value_names), row)
                    version = RemoteRow(start, end, row_reader(found)(0), self._shown(found)(0))
                added = _number(cells(file, ["_added"], row)[0])
                versions.append(RemoteVersion(meta, row, version, added, meta.name in self._log_state.closures))
        return versions

    def _rows_of(self, metas: Sequence[SegmentMeta], key_hash: int) -> list[tuple[SegmentMeta, list[int]]]:
        """Return the rows of each segment whose keys have a hash."""
        wanted: list[tuple[FileRef, Ranges]] = []
        for meta in metas:
            if meta.index is None:
                wanted += [(ref, None) for ref in (meta.file, meta.index) if ref is not None]
            else:
                wanted += [(meta.index, meta.index.metadata_ranges), (meta.file, framing(meta))]
        self._files.fetch_ahead(wanted)
        near = {meta.name: self._near(meta) for meta in metas}
        self._files.fetch_ahead(
            [(meta.index, index.near(key_hash)) for meta in metas if meta.index and (index := near[meta.name])]
        )
        found = []
        for meta in metas:
            index = near[meta.name]
            rows = self._files.index(meta).find(key_hash) if index is None else index.find(key_hash)
            if rows:
                found.append((meta, rows))
        return found

    def _near(self, meta: SegmentMeta) -> RemoteKeyIndex | None:
        """Return the index of a segment, None where it is made of the keys."""
        if meta.index is None:
            return None
        index = self._indexes.get(meta.name)
        if index is None:
            index = self._indexes[meta.name] = RemoteKeyIndex(meta.index, self._files.opened(meta.index), meta.rows)
        return index

    def _fetch_cells(
        self,
        rows: Sequence[tuple[SegmentMeta, Sequence[str], int]],
        closed: Sequence[tuple[SegmentMeta, list[int]]] = (),
    ) -> None:
        """Fetch cells of these columns and rows, the whole batch of a row where it is short, and closures."""
        spans = [
            batch_spans(self._files, meta, [(row, row + 1)])[0] if has_short_batches(meta) else None
            for meta, _, row in rows
        ]
        long = [(meta, [(span[0], 1)]) for (meta, *_), span in zip(rows, spans, strict=True) if _is_long(span)]
        if long:  # the message of a batch says where its columns lie
            self._fetch(long)
        self._fetch(
            [
                (meta, cell_ranges(self._open(meta), names, row) if span is None or _is_long(span) else [span])
                for (meta, names, row), span in zip(rows, spans, strict=True)
            ],
            closed,
        )

    def _fetch(
        self,
        ranges: Sequence[tuple[SegmentMeta, list[tuple[int, int]]]],
        closed: Sequence[tuple[SegmentMeta, list[int]]] = (),
    ) -> None:
        wanted: list[tuple[FileRef, Ranges]] = [(meta.file, found) for meta, found in ranges]
        refs = {p.file.name: p.file for meta, _ in closed for p in self._log_state.closures.get(meta.name, ())}
        self._files.fetch_ahead([*wanted, *((ref, None) for ref in refs.values())])

    def _at(self, meta: SegmentMeta, row: int, moment: int) -> tuple[int, int] | None:
        """Return (start, newest end) of a row that is valid at a moment, else None."""
        start, end = self._times(meta, row)
        return (start, end) if is_valid(start, end, moment) else None

    def _times(self, meta: SegmentMeta, row: int) -> tuple[int, int]:
        """Return (start, newest end) of a row."""
        start, end = (_number(cell) for cell in cells(self._open(meta), ["valid_from", "valid_to"], row))
        closures = self._log_state.closures.get(meta.name, ())
        if closures:
            ends = np.array([end])
            close_rows(self._files, SegmentWithClosures(meta, closures), ends, np.array([row]))
            end = int(ends[0])
        return start, end

    def _open(self, meta: SegmentMeta) -> Any:
        return self._files.open_segment(meta)

    def _shown(self, columns: list[pa.Array]) -> Callable[[int], Any]:
        return shown_reader(columns, self._files.spec.value, self._values.to_user)


def _time(moment: int) -> RowNumbers:
    return RowNumbers([0], [NumbersInPlace(1, 0, moment, 1, pa.py_buffer(b""))])


def _is_long(span: tuple[int, int] | None) -> TypeGuard[tuple[int, int]]:
    return span is not None and span[1] > MOST_BATCH_BYTES


def _number(cell: pa.Array) -> int:
    """Return a time in epoch microseconds; OPEN for an end that is null."""
    if cell.null_count:
        return OPEN
    return int(np.frombuffer(cell.buffers()[1], np.int64, 1, 8 * cell.offset)[0])
