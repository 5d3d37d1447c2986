"""Filling the hot tier of a versioned store from the changelog and from segments."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.live_recovery import Content, TierState, latest
from statestore.catalog.stores.live.live_rows import RowForms
from statestore.catalog.stores.row_layout import TICK
from statestore.catalog.stores.versioned.versioned_tier import VersionedTier
from statestore.formats.kernels.arrays import Ints


def versions_content(files: SegmentFiles, forms: RowForms, retention: int, interval: int) -> Content:
    """Return the content of a store with this history retention and segment interval (milliseconds)."""
    return Content(
        partial(_fill, files, forms, retention, interval),
        partial(_apply, retention, interval),
    )


def put_rows(
    rows: VersionedTier,
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    times: Ints,
    retention: int,
    state: TierState,
    limit: int,
) -> TierState:
    """Put records in their order, without those older than the retention at their turn.

    The stream time ``limit`` decides which segments live.
    """
    stream_time = state.stream_time
    for key, value, time in zip(keys.to_pylist(), values.to_pylist(), times.tolist(), strict=True):
        if time >= stream_time - retention:
            stream_time = max(stream_time, time)
            rows.put(key, value, time, max(limit, stream_time))
    return TierState(stream_time, state.sequence, state.dropped)


def _apply(retention: int, interval: int, tier: HotTier, batch: pa.RecordBatch, state: TierState) -> TierState:
    """Write a batch of the changelog as Kafka restores one: expiry is judged by the stream time at the batch's end."""
    rows = VersionedTier(tier, retention, interval)
    times = batch.column("timestamp").to_numpy()
    return put_rows(rows, batch.column("key"), batch.column("value"), times, retention, state, latest(batch, state))


def _fill(
    files: SegmentFiles, forms: RowForms, retention: int, interval: int, tier: HotTier, log_state: LogState
) -> TierState:
    """Put the versions and tombstones whose segments live, in the order of their time."""
    stream_time = log_state.stream_time_us // TICK
    first_live = (stream_time - retention) // interval
    keys, values, times = [pa.array([], pa.binary())], [pa.array([], pa.binary())], [np.empty(0, np.int64)]
    for segment in with_closures(log_state.segments, log_state.closures):
        if segment.meta.role == "belief":
            continue
        file, ends = files.open_segment(segment.meta), newest_ends(files, segment)
        starts = file.int64("valid_from")
        rows = np.flatnonzero((ends > starts) & (ends // TICK // interval >= first_live))
        columns = [file.take(name, rows) for name in files.spec.key_names]
        keys.append(forms.serde.keys_to_bytes(columns))
        if segment.meta.tombstone:
            values.append(pa.nulls(len(rows), pa.binary()))
        else:
            cells = [file.take(name, rows) for name in files.spec.value_names]
            values.append(forms.serde.values_to_bytes(cells, len(rows)))
        times.append(starts[rows] // TICK)
    order = np.argsort(np.concatenate(times), kind="stable")
    chosen = pa.array(order)
    state = TierState(-1, 0)
    rows_of = VersionedTier(tier, retention, interval)
    everything = 2**62  # the records of the table were accepted before
    put_rows(
        rows_of,
        pa.concat_arrays(keys).take(chosen),
        pa.concat_arrays(values).take(chosen),
        np.concatenate(times)[order],
        everything,
        state,
        stream_time,
    )
    return TierState(stream_time, 0)
