"""The versions of a table as rows: the columns of ``$versions``, and the commits of a store in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from statestore.formats.values.types import TIME

if TYPE_CHECKING:
    from statestore.catalog.log.log_state import LogState

VERSIONS_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", TIME),
        ("operation", pa.string()),
        ("writer", pa.string()),
        ("application", pa.string()),
        ("batch", pa.int64()),
        ("stream_time", TIME),
        ("rows", pa.int64()),
        ("tombstones", pa.int64()),
        ("closed", pa.int64()),
        ("dropped", pa.int64()),
        ("bytes", pa.int64()),
        ("offsets", pa.string()),
        ("watermark", TIME),
        ("missing_from", pa.int64()),
        ("missing_to", pa.int64()),
    ]
)


def rows_table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return a metadata table of rows by column, times in epoch microseconds; columns that a row does not name are
    null.
    """
    found = list(rows)
    columns = [pa.array([row.get(field.name) for row in found], _stored(field.type)) for field in schema]
    return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def versions_table(log_state: LogState) -> pa.Table:
    """Return one row per commit, oldest first: time, writer, transaction, stream time, rows, tombstones, bytes.

    In a captured store with the offsets and the watermark of the source's version, and the versions missing before it.
    """
    versions = log_state.versions
    transactions = list(versions.transaction)
    columns = [
        pa.array(np.arange(len(versions.timestamp))),
        pa.array(versions.timestamp).cast(TIME),
        pa.array(list(versions.operation), pa.string()),
        pa.array(list(versions.writer), pa.string()),
        pa.array([None if t is None else t[0] for t in transactions], pa.string()),
        pa.array([None if t is None else t[1] for t in transactions], pa.int64()),
        times_column(versions.stream_time.tolist(), versions.stream_time[0] if len(versions.stream_time) else None),
        *(pa.array(a) for a in (versions.rows, versions.tombstones, versions.closed, versions.dropped, versions.bytes)),
        *_of_sources(log_state),
    ]
    return pa.Table.from_arrays(columns, schema=VERSIONS_SCHEMA)


def _of_sources(log_state: LogState) -> list[pa.Array]:
    """Return offsets, watermark, first and last missing version of each commit."""
    if log_state.captured is None:  # without a look at each commit
        return [pa.nulls(len(log_state.versions), field.type) for field in list(VERSIONS_SCHEMA)[-4:]]
    sources = log_state.versions.source
    missing = [None if source is None else source.missing for source in sources]
    return [
        pa.array([None if source is None else source.offsets for source in sources], pa.string()),
        pa.array([None if source is None else source.watermark for source in sources], pa.int64()).cast(TIME),
        *(pa.array([None if pair is None else pair[end] for pair in missing], pa.int64()) for end in (0, 1)),
    ]


def times_column(values: Sequence[int], unknown: int | None = None) -> pa.Array:
    """Return times in epoch microseconds as a column, in which ``unknown`` is null."""
    return pa.array([None if v == unknown else v for v in values], pa.int64()).cast(TIME)
