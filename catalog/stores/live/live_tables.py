"""Tables that users write to live stores: checked, given row keys, and judged by the kind's rule for late rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.log.store_spec import StoreSpec, Windowing
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.live_rows import RowForms
from statestore.catalog.stores.record_input import CHANGE_TYPE, batches_of, change_types, times_of
from statestore.formats.changelogs.changelog import ROW_SCHEMA
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.times import TICK
from statestore.formats.values.types import TIME, conform

SEQUENCE_MASK = 0x7FFFFFFF


@dataclass(frozen=True)
class Accepted:
    """Rows that a store accepts, in their order, and the ``stream_time`` (epoch milliseconds) after them."""

    row_keys: pa.BinaryArray
    values: pa.BinaryArray
    stream_time: int
    dropped: int = 0
    times: Ints | None = None

    def times_of(self, forms: RowForms) -> Ints:
        """Return the epoch milliseconds of the rows."""
        own = forms.times(self.row_keys) if self.times is None else self.times
        assert own is not None
        return own

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Accepted:
        """Return only these rows."""
        if rows.all():
            return self
        keep = pa.array(rows)
        times = None if self.times is None else self.times[rows]
        return replace(self, row_keys=self.row_keys.filter(keep), values=self.values.filter(keep), times=times)

    def batch(self, forms: RowForms) -> pa.RecordBatch:
        """Return the rows in the form of the changelog."""
        times = self.times_of(forms)
        return pa.RecordBatch.from_arrays([self.row_keys, self.values, pa.array(times, pa.int64())], schema=ROW_SCHEMA)


def live_table(forms: RowForms, data: Any, stream_time: int, sequence: int) -> tuple[Accepted, int]:
    """Return the accepted rows of a table, and the last sequence number that a row was given.

    Columns: the user's key, the values, the kind's own columns (``window_start``, or ``event_time``, or
    ``session_start`` and ``session_end``; epoch milliseconds, zoned timestamps or texts), for a key-value store
    optionally ``timestamp``, and optionally ``_change_type``, in which ``delete`` removes a row. Raises
    InvalidInputError like ``put_all``.
    """
    spec = forms.spec
    batches = [_rows(spec, batch) for batch in batches_of(data)]
    table = pa.Table.from_batches(batches, schema=_schema(spec)).combine_chunks()
    parts = table.to_batches()
    if not parts:
        return Accepted(pa.array([], pa.binary()), pa.array([], pa.binary()), stream_time), sequence
    batch = parts[0]
    deleted = batch.column("_delete").to_numpy(zero_copy_only=False)
    if spec.windowing is not None and spec.windowing.duplicates:
        if spec.kind == "window" and deleted.any():  # a store that keeps duplicates ignores null values
            batch, deleted = batch.filter(pa.array(~deleted)), deleted[~deleted]
        batch, sequence = _numbered(batch, sequence)
    row_keys, values = forms.rows(batch)
    if deleted.any():
        values = pc.if_else(pa.array(deleted), pa.scalar(None, pa.binary()), values)
    own = forms.times(row_keys)
    times = batch.column("_time").view(pa.int64()).to_numpy(zero_copy_only=False) // TICK if own is None else own
    accepted = Accepted(row_keys, values, int(max(stream_time, times.max(initial=stream_time))), times=times)
    return _without_late(accepted, spec.windowing, stream_time), sequence


def check_columns(spec: StoreSpec, schema: pa.Schema) -> None:
    """Raise InvalidInputError WRONG_SCHEMA if no table of ``schema`` can be written to the store."""
    _rows(spec, pa.RecordBatch.from_pylist([], schema=schema))


def overwritten(tier: HotTier, accepted: Accepted) -> Accepted:
    """Return the rows, preceded by a delete for each row of the tier that is not among them."""
    kept = set(accepted.row_keys.to_pylist())
    stored = (key for time_segment in tier.time_segments() for key, _ in tier.scan(time_segment))
    gone = [key for key in map(tier.row_key, stored) if key not in kept]
    return replace(
        accepted,
        row_keys=pa.concat_arrays([pa.array(gone, pa.binary()), accepted.row_keys]),
        values=pa.concat_arrays([pa.nulls(len(gone), pa.binary()), accepted.values]),
        times=None,
    )


def _without_late(accepted: Accepted, rule: Windowing | None, stream_time: int) -> Accepted:
    """Return the rows without those that fall into a segment that is dead at their turn."""
    times = accepted.times
    if rule is None or times is None or not len(times):
        return accepted
    running = np.maximum.accumulate(np.concatenate(([stream_time], times)))[1:]
    late = _time_segments(times, rule) < _first_live(running, rule)
    if not late.any():
        return accepted
    return replace(accepted.chosen(~late), dropped=int(np.count_nonzero(late)))


def _time_segments(times: Ints, rule: Windowing) -> Ints:
    interval = rule.segment_interval
    time_segments: Ints = np.where(times >= 0, times // interval, -(-times // interval))
    return time_segments


def _first_live(stream_times: Ints, rule: Windowing) -> Ints:
    if rule.segments:
        return _time_segments(stream_times, rule) - rule.segments + 1
    return _time_segments(stream_times - rule.retention, rule)


def _numbered(batch: pa.RecordBatch, sequence: int) -> tuple[pa.RecordBatch, int]:
    numbers = (sequence + 1 + np.arange(batch.num_rows)) & SEQUENCE_MASK
    at = batch.schema.get_field_index("sequence")
    return batch.set_column(at, batch.schema.field(at), pa.array(numbers, pa.int32())), (
        int(numbers[-1]) if len(numbers) else sequence
    )


def _schema(spec: StoreSpec) -> pa.Schema:
    flags = [pa.field("_time", TIME), pa.field("_delete", pa.bool_())]
    return pa.schema([*spec.key, *spec.value, *flags])


def _rows(spec: StoreSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in the schema of ``_schema``: the kind's columns filled in, deletes marked."""
    names = batch.schema.names
    deleted, kept = np.zeros(batch.num_rows, bool), None
    if CHANGE_TYPE in names:
        deleted, kept = change_types(batch.column(names.index(CHANGE_TYPE)))
    own = _own_columns(spec, batch)
    rest = [n for n in names if n not in (*own, "timestamp", "window_end", "sequence", CHANGE_TYPE)]
    data = conform(batch.select(rest), pa.schema([*spec.user_key, *spec.value]))
    width = len(spec.user_key)
    for name in spec.user_key.names:
        if data.column(name).null_count:
            raise InvalidInputError(
                ErrorCode.NULL_KEY,
                f"key column {name!r} of store {spec.name!r} holds a null; every row needs its whole key",
            )
    if "timestamp" in names and spec.windowing is None:
        times = times_of(batch.column(names.index("timestamp")), "timestamp")
    else:
        times = np.full(batch.num_rows, time.time_ns() // 1_000_000 * TICK)
    arrays = [
        *data.columns[:width],
        *own.values(),
        *data.columns[width:],
        pa.array(times).cast(TIME),
        pa.array(deleted),
    ]
    result = pa.RecordBatch.from_arrays(arrays, schema=_schema(spec))
    return result if kept is None else result.filter(kept)


def _own_columns(spec: StoreSpec, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the kind's key columns, made from those that the user has to give."""
    columns: dict[str, pa.Array] = {}
    for field in list(spec.key)[len(spec.user_key) :]:
        if field.name == "sequence":
            columns[field.name] = pa.array(np.zeros(batch.num_rows, np.int32))
        elif field.name == "window_end":
            assert spec.windowing is not None
            starts = columns["window_start"].view(pa.int64()).to_numpy(zero_copy_only=False)
            columns[field.name] = pa.array(starts + spec.windowing.window_size * TICK).cast(TIME)
        else:
            columns[field.name] = _time_column(spec, batch, field.name)
    return columns


def _time_column(spec: StoreSpec, batch: pa.RecordBatch, name: str) -> pa.Array:
    names = batch.schema.names
    if name not in names:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the rows for store {spec.name!r} have columns {', '.join(names)}; a {spec.kind} store needs `{name}` "
            "(int64 epoch milliseconds, a timestamp with time zone, or texts like 2024-05-01T09:30Z); add it",
        )
    return pa.array(times_of(batch.column(names.index(name)), name)).cast(TIME)
