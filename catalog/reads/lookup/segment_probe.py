"""One segment opened for point reads: the rows of a key by its hash, their times and their values.

Only what a read needs is interpreted: the key index, the times, the keys of the rows with the hash, and the values of
the row that is found. Ends that later commits gave are looked up for the rows that are judged, among the closures of
the segment. So a few closures do not cost a copy of all ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.carried_states import PendingClosures
from statestore.catalog.reads.lookup.row_numbers import RowNumbers
from statestore.catalog.reads.lookup.value_readers import (
    BatchColumns,
    bytes_test,
    row_reader,
    user_reader,
)
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import ClosureSlice, SegmentMeta

Closures = tuple[ClosureSlice, ...]


class SegmentProbe(NamedTuple):
    """A segment for point reads; its views and times return plain numbers instead of numpy scalars.

    ``new_end`` returns the end that a closure gave to a row, else the stored end it is called with; None where the
    segment has no closures. ``is_key`` tests a row for a key in the form of `key_form`. ``values`` returns the
    canonical values of a row and ``shown`` the value that users see, both None for a tombstone.
    """

    hashes: memoryview
    rows: memoryview
    directory: memoryview
    shift: int
    starts: RowNumbers
    ends: RowNumbers
    new_end: Callable[[int, int], int] | None
    is_key: Callable[[int, Any], bool]
    values: Callable[[int], tuple[Any, ...] | None]
    shown: Callable[[int], Any]


class OpenedSegment:
    """A probe with the closures that it knows, from which the probe for further closures is made."""

    def __init__(self, files: SegmentFiles, meta: SegmentMeta, to_user: Callable[[tuple[Any, ...]], Any]) -> None:
        self.meta = meta
        self.closures: Closures = ()
        self.pending = PendingClosures()  # these closures by row, perhaps with further ones
        self.row_order: int | None = None  # of `belief_kernels.order_of_rows`, where it was asked for
        self.tables: tuple[Ints, Ints] | None = None  # of starts and of ends, for compiled code, likewise
        file = files.open_segment(meta)

        def opened() -> Segment:  # not from the cache of files: a file that was removed since stays mapped here
            files.check_length(meta.file)
            return file

        hashes, rows, directory, shift = files.index(meta).memory_views()
        firsts = file.batch_starts
        starts, ends = (RowNumbers(firsts, file.numbers_in_place(name)) for name in ("valid_from", "valid_to"))
        if meta.role == "delta":
            rows = _by_start(hashes, rows, starts)
        spec = files.spec

        self.key_schema = spec.key
        self.keys = BatchColumns(opened, spec.key_names)
        self.values = BatchColumns(opened, () if meta.tombstone else spec.value_names)
        self._file = file
        self._written: RowNumbers | None = None
        self._written_table: Ints | None = None
        shown = partial(shown_reader, schema=spec.value, to_user=to_user)
        self.probe = SegmentProbe(
            hashes=hashes,
            rows=rows,
            directory=directory,
            shift=shift,
            starts=starts,
            ends=ends,
            new_end=None,
            is_key=self.keys.test(key_test),
            values=_no_values if meta.tombstone else self.values.reader(row_reader),
            shown=_no_values if meta.tombstone else self.values.reader(shown),
        )

    @property
    def written(self) -> RowNumbers:
        """The versions that wrote the rows."""
        if self._written is None:
            self._written = RowNumbers(self._file.batch_starts, self._file.numbers_in_place("_added"))
        return self._written

    def written_table(self) -> Ints:
        """Return the table of `written` for compiled code."""
        if self._written_table is None:
            self._written_table = self.written.addresses()
        return self._written_table

    def with_closures(self, files: SegmentFiles, closures: Closures) -> OpenedSegment:
        """Return this segment with these closures (in version order); only further ones are read."""
        if closures == self.closures:
            return self
        opened = OpenedSegment.__new__(OpenedSegment)
        opened.meta, opened.key_schema = self.meta, self.key_schema
        opened.keys, opened.values = self.keys, self.values
        opened._file, opened._written, opened._written_table = self._file, self._written, self._written_table
        opened.closures, opened.pending = closures, files.pending(self.meta, closures)
        opened.row_order, opened.tables = self.row_order, self.tables
        opened.probe = self.probe._replace(new_end=opened.pending.new_end(len(closures)) if closures else None)
        return opened


def _by_start(hashes: memoryview, rows: memoryview, starts: RowNumbers) -> memoryview:
    """Return the rows of an index in order of hash and start.

    The index of a commit may have the rows of two keys that share a hash one after the other.
    """
    entries, numbers = np.frombuffer(hashes, np.uint64), np.frombuffer(rows, np.uint32)
    same = np.flatnonzero(entries[1:] == entries[:-1])
    each = numbers.astype(np.int64)
    if (starts.take(each[same + 1]) >= starts.take(each[same])).all():
        return rows
    return numbers[np.lexsort((starts.take(each), entries))].data


def key_form(key: pa.Schema) -> Callable[[tuple[Any, ...]], Any] | None:
    """Return the function that makes the form of a normalized key by which rows are tested; None: the key itself."""
    if len(key) == 1 and pa.types.is_string(key.field(0).type):
        return lambda name: name[0].encode()
    if len(key) == 1 and pa.types.is_binary(key.field(0).type):
        return lambda name: name[0]
    return None


def key_test(columns: list[pa.Array]) -> Callable[[int, Any], bool]:
    """Return the function that tests a row of the key columns for a key in the form of `key_form`."""
    if len(columns) == 1 and (pa.types.is_string(columns[0].type) or pa.types.is_binary(columns[0].type)):
        return bytes_test(columns[0])
    read = row_reader(columns)
    return lambda row, key: read(row) == key


def shown_reader(
    columns: list[pa.Array], schema: pa.Schema, to_user: Callable[[tuple[Any, ...]], Any]
) -> Callable[[int], Any]:
    """Return the function that makes the value that users see of a row of the value columns."""
    if len(schema) and not any(pa.types.is_nested(field.type) for field in schema):
        return user_reader(columns, schema.names)
    read = row_reader(columns)
    return lambda row: to_user(read(row))


def _no_values(row: int) -> None:
    return None
