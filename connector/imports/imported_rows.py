"""Rows of a source's state on their way into a keyed store: as the columns of the state's table, grouped by key group
in bounded memory, and as the segments of a full snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.keyed.rows.state_rows import ONE, stored_key, table_schema
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.catalog.keyed.snapshots.snapshot_part import SEGMENTS, StateSegment
from statestore.catalog.keyed.snapshots.stored_files import store_batches
from statestore.catalog.log.storage import Storage
from statestore.connector.imports.import_plan import PlannedState
from statestore.formats.engine import Part
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.jobs import (
    KEY,
    LAST_ACCESS,
    MAP_KEY,
    MAP_VALUE,
    NAMESPACE,
    POSITION,
    TIMESTAMP_MS,
    VALUE,
)
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import map_regular
from statestore.formats.rocksdb.rows import BATCH_ROWS
from statestore.formats.serdes import natural_keys
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.types import TIME

_LAST_US = (1 << 63) - 1
_LAST_MS = _LAST_US // 1000


def imported_rows(
    planned: PlannedState, parts: Sequence[Part], key: pa.Schema, fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these parts of the state in the columns of its table.

    Raises InvalidInputError NULL_KEY for a null in a key, namespace, position or key of a map, WRONG_SCHEMA for a value
    that its column cannot hold.
    """
    schema = table_schema(key, planned.spec)
    columns = _columns_of(planned, fields)
    names = [name for name in _needed(planned) if name in planned.at.schema.names]
    for part in parts:
        for batch in planned.at.rows(part, names, []):
            if batch.num_rows:
                yield _conformed(planned, schema, columns(batch), bool(fields))


def _needed(planned: PlannedState) -> tuple[str, ...]:
    access = (LAST_ACCESS,) if planned.keeps_access else ()
    return (KEY, NAMESPACE, POSITION, MAP_KEY, MAP_VALUE, TIMESTAMP_MS, VALUE, *access)


def _columns_of(planned: PlannedState, fields: Sequence[str]) -> Callable[[pa.RecordBatch], list[pa.Array]]:
    """A function from a batch to the columns of the table, before they are cast."""
    kind, has_namespace = planned.spec.kind, len(planned.spec.namespace) > 0

    def columns(batch: pa.RecordBatch) -> list[pa.Array]:
        named = _members(batch.column(KEY)) if fields else [batch.column(KEY)]
        namespace = _members(batch.column(NAMESPACE)) if has_namespace else []
        if kind == "timer":
            return [_times(batch.column(TIMESTAMP_MS)), *named, *namespace, _true(batch.num_rows)]
        last = [batch.column(POSITION)] if kind == "list" else [batch.column(MAP_KEY)] if kind == "map" else []
        column = MAP_VALUE if kind == "map" else VALUE
        value = batch.column(column) if column in batch.schema.names else _true(batch.num_rows)
        if planned.keeps_access:
            access = cast_exactly(batch.column(LAST_ACCESS), TIME)
            value = pa.StructArray.from_arrays([value, access], [VALUE, LAST_ACCESS])
        return [*named, *namespace, *last, value]

    return columns


def _true(count: int) -> pa.Array:
    """The values of states that have none: all that they say is that there is a row."""
    return pa.array(np.ones(count, bool))


def _members(column: pa.Array) -> list[pa.Array]:
    """The fields of a struct, null where the struct is; another column alone."""
    return column.flatten() if pa.types.is_struct(column.type) else [column]


def _times(milliseconds: pa.Array) -> pa.Array:
    """Times in microseconds; those beyond the range of timestamps become its end, which no moment reaches."""
    given = milliseconds.to_numpy()
    micros = np.clip(given, -_LAST_MS, _LAST_MS) * 1000
    micros[given > _LAST_MS] = _LAST_US
    micros[given < -_LAST_MS] = -_LAST_US
    return pa.array(micros, pa.int64()).cast(TIME)


def _conformed(planned: PlannedState, schema: pa.Schema, columns: Sequence[pa.Array], split: bool) -> pa.RecordBatch:
    found = []
    for number, (wanted, column) in enumerate(zip(schema, columns, strict=True)):
        if number < len(schema) - 1 and column.null_count:
            hint = "import with whole_key=True, which keeps the key as one struct" if split else "leave the state out"
            raise InvalidInputError(
                ErrorCode.NULL_KEY,
                f"state {planned.source.name!r}: column {wanted.name!r} is null in {column.null_count} of "
                f"{len(column)} rows, and keys and namespaces have no nulls; {hint}",
            )
        try:
            found.append(cast_exactly(column, wanted.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"state {planned.source.name!r}: column {wanted.name!r} is {column.type} and does not fit "
                f"{wanted.type} ({error}); leave the state out with states=",
            ) from None
    return pa.RecordBatch.from_arrays(found, schema=schema)


# The rows of a state as the segments of a full snapshot: by key group, and within one as RocksDB would sort them.


def store_segment(
    storage: Storage, key: pa.Schema, spec: StateDescriptor, rows: GroupedRows, groups: range
) -> StateSegment | None:
    """Write the rows of some key groups to the store; return None if there are none.

    Raises CorruptError ROW_CORRUPT for two rows of one key, InvalidInputError BATCH_TOO_LARGE, StorageError.
    """
    counts = np.zeros(len(groups), np.int64)
    ordered = _sorted(key, spec, rows, groups, counts)
    file = store_batches(storage, SEGMENTS, table_schema(key, spec), ordered, scratch=rows.folder.parent)
    if file is None:
        return None
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return StateSegment(file, groups.start, tuple(ends.tolist()))


def _sorted(
    key: pa.Schema, spec: StateDescriptor, rows: GroupedRows, groups: range, counts: Ints
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order and count them by key group."""
    for row_groups, found in rows.windows(groups):
        stored = _stored_keys(key, spec, row_groups, found)
        order = _distinct(spec, stored, pc.sort_indices(stored), found)
        counts += np.bincount(row_groups[order.to_numpy()] - groups.start, minlength=len(groups))
        ordered = found.take(order)
        for start in range(0, ordered.num_rows, BATCH_ROWS):
            yield ordered.slice(start, BATCH_ROWS)


def _stored_keys(key: pa.Schema, spec: StateDescriptor, groups: Ints, rows: pa.RecordBatch) -> pa.BinaryArray:
    schema = stored_key(key, spec)
    last = [pa.array(np.zeros(rows.num_rows, np.int8))] if schema.field(-1) == ONE else []
    return natural_keys.keys_to_bytes(schema, [pa.array(groups.astype(np.int16)), *rows.columns[:-1], *last])


def _distinct(spec: StateDescriptor, stored: pa.BinaryArray, order: pa.Array, rows: pa.RecordBatch) -> pa.Array:
    """Return the order without timers that are equal: those at the end of time may have had different times.

    Raises CorruptError ROW_CORRUPT for other rows with one key.
    """
    in_order = stored.take(order)
    repeated = pc.equal(in_order[1:], in_order[:-1])
    at = pc.index(repeated, True).as_py()
    if at < 0:
        return order
    if spec.kind == "timer":
        return order.filter(pa.concat_arrays([pa.array([True]), pc.invert(repeated)]))
    row = rows.slice(order[at].as_py(), 1).select(rows.schema.names[:-1]).to_pylist()[0]
    raise CorruptError(
        ErrorCode.ROW_CORRUPT,
        f"state {spec.name!r} has two rows of {row}, expected one; the source is damaged, and nothing was imported",
    )


# Rows that arrive in any order, collected and given back by key group, in bounded memory.
#
# Rows are held until they fill a run, which is sorted by key group and written to a file. Each window of key groups is
# then read from all runs. A window has about as many bytes as a run, but at least one whole key group.

RUN_BYTES = 64 << 20
"""Bytes of rows that are held in memory before they are written as a run."""
MOST_BYTES = 1 << 30
"""Bytes of the rows of one key group that can be sorted in memory."""
_WRITTEN_ROWS = 1 << 16


@dataclass(frozen=True)
class _Run:
    """Rows by key group: group ``g`` has those from ``ends[g]`` to ``ends[g + 1]``."""

    rows: pa.Table
    ends: Ints


@dataclass
class GroupedRows:
    """The rows of one state. ``folder`` is for the files of its runs; who makes it removes it."""

    schema: pa.Schema
    key_groups: int
    folder: Path
    run_bytes: int = RUN_BYTES
    count: int = 0
    _held: list[tuple[pa.RecordBatch, Ints]] = field(default_factory=list)
    _held_bytes: int = 0
    _bytes: int = 0
    _runs: list[_Run] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, groups: Ints) -> None:
        """Add rows with the key group of each. Raises StorageError DISK_FAILED."""
        if not rows.num_rows:
            return
        self._held.append((rows, groups))
        self._held_bytes += rows.nbytes
        self._bytes += rows.nbytes
        self.count += rows.num_rows
        if self._held_bytes >= self.run_bytes:
            self._runs.append(self._written(self._taken()))

    def windows(self, groups: range) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        """Yield the rows of these key groups in windows: the key group of each row, ascending by run, and the rows.

        No row may be added any more. Raises InvalidInputError BATCH_TOO_LARGE.
        """
        if self._held:
            self._runs.append(self._taken())
        counts = self._counts(groups)
        most = max(int(self.run_bytes * self.count / max(self._bytes, 1)), 1)
        start = groups.start
        while start < groups.stop:
            stop = start + 1
            rows = int(counts[start - groups.start])
            while stop < groups.stop and rows + counts[stop - groups.start] <= most:
                rows += int(counts[stop - groups.start])
                stop += 1
            if rows:
                yield self._of(start, stop)
            start = stop

    def _counts(self, groups: range) -> Ints:
        """Return the number of rows of each of these key groups."""
        total = np.zeros(len(groups), np.int64)
        for run in self._runs:
            total += np.diff(run.ends[groups.start : groups.stop + 1])
        return total

    def _of(self, start: int, stop: int) -> tuple[Ints, pa.RecordBatch]:
        pieces, groups = [], []
        for run in self._runs:
            first, last = int(run.ends[start]), int(run.ends[stop])
            pieces.append(run.rows.slice(first, last - first))
            groups.append(np.repeat(np.arange(start, stop), np.diff(run.ends[start : stop + 1])))
        rows = pa.concat_tables(pieces)
        if rows.nbytes > MOST_BYTES:
            raise InvalidInputError(
                ErrorCode.BATCH_TOO_LARGE,
                f"key groups {start} to {stop - 1} have {rows.nbytes} bytes of rows of one state, expected at most "
                f"{MOST_BYTES}, which are sorted in memory; import the other states with states=",
            )
        (whole,) = rows.combine_chunks().to_batches()
        return np.concatenate(groups), whole

    def _taken(self) -> _Run:
        """The rows that are held, by key group; none are held afterwards."""
        groups = np.concatenate([held for _, held in self._held])
        rows = pa.Table.from_batches([batch for batch, _ in self._held], self.schema)
        self._held, self._held_bytes = [], 0
        if len(groups) > 1 and (np.diff(groups) < 0).any():
            rows = rows.take(pa.array(np.argsort(groups.astype(np.int16), kind="stable")))
        counts = np.bincount(groups, minlength=self.key_groups)
        return _Run(rows, np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))))

    def _written(self, run: _Run) -> _Run:
        path = self.folder / f"{len(self._runs)}.arrow"
        with disk_errors("write", path):
            self.folder.mkdir(exist_ok=True)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
                writer.write_table(run.rows, _WRITTEN_ROWS)
        return _Run(pa.ipc.open_file(map_regular(path)).read_all(), run.ends)
