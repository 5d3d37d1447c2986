"""The three forms of a live store's row: bytes in hot tier and changelog, Arrow columns in tables, Python for users.

This module converts whole batches; ``formats/serdes`` makes bytes of keys and values, and `RowLayout` adds the kind's
times to a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.hot_tier import ONE, HotTier
from statestore.catalog.stores.row_layout import TICK, RowLayout, layout_of
from statestore.formats.kernels.arrays import Ints
from statestore.formats.serdes.row_serde import RowSerde, row_serde

INGEST_ROWS = 2_000  # from this many rows on, a sorted file costs less than single writes


@dataclass(frozen=True)
class RowForms:
    """The forms of the rows of one store, and the conversions between them."""

    spec: StoreSpec
    serde: RowSerde
    layout: RowLayout

    def records(self, row_keys: pa.BinaryArray, values: pa.BinaryArray, times: Ints) -> Records:
        """Return rows as records of the store's table, valid from ``times`` (epoch microseconds) on."""
        keys, columns, _ = self.layout.split(row_keys)
        dead = values.is_null().to_numpy(zero_copy_only=False)
        return Records([*self.serde.keys_from_bytes(keys), *columns], self.serde.values_from_bytes(values), times, dead)

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Return (row keys, values) of a batch with the table's key and value columns, in their order."""
        width, user = len(self.spec.key), len(self.spec.user_key)
        keys = self.serde.keys_to_bytes(batch.columns[:user])
        row_keys = self.layout.join(keys, batch.columns[user:width])
        return row_keys, self.serde.values_to_bytes(batch.columns[width : width + len(self.spec.value)], batch.num_rows)

    def times(self, row_keys: pa.BinaryArray) -> Ints | None:
        """Return the epoch milliseconds of the rows; None if the kind has no times of its own."""
        times = self.layout.split(row_keys)[2]
        return None if times is None else times // TICK

    def time_segments(self, times: Ints | None) -> Ints | None:
        """Return the segment of each time; None for a kind without segments."""
        if times is None or self.spec.windowing is None:
            return None
        interval = self.spec.windowing.segment_interval
        time_segments: Ints = np.where(times >= 0, times // interval, -(-times // interval))
        return time_segments


def row_forms(spec: StoreSpec) -> RowForms:
    return RowForms(spec, row_serde(spec.serde, spec.user_key, spec.value), layout_of(spec))


def apply_rows(
    tier: HotTier, row_keys: pa.BinaryArray, values: pa.BinaryArray, time_segments: Ints | None, first_live: int
) -> None:
    """Write rows (null values remove) into the tier, in order; rows of dead segments are left out."""
    for time_segment, chosen in _by_time_segment(time_segments, len(row_keys)):
        if time_segments is not None and time_segment < first_live:
            continue
        keys, cells = (row_keys, values) if chosen is None else (row_keys.take(chosen), values.take(chosen))
        rows = dict(zip(keys.to_pylist(), cells.to_pylist(), strict=True))
        if len(rows) >= INGEST_ROWS:
            tier.ingest(time_segment, rows)
        else:
            for key, value in rows.items():
                tier.put(time_segment, key, value)


def _by_time_segment(time_segments: Ints | None, rows: int) -> Iterator[tuple[int, pa.Array | None]]:
    if time_segments is None:
        if rows:
            yield ONE, None
        return
    for time_segment in np.unique(time_segments).tolist():
        yield time_segment, pa.array(np.flatnonzero(time_segments == time_segment))


def binary_columns(batches: Sequence[pa.RecordBatch], name: str) -> pa.BinaryArray:
    """Return one column of several batches as one array."""
    return pa.concat_arrays([batch.column(name) for batch in batches]) if batches else pa.array([], pa.binary())
