"""Metadata of a store as tables: `<store>$versions`, `$segments`, `$snapshots`, `$schema`, in every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.log_checkpoint import load_snapshot
from statestore.catalog.snapshot import Snapshot
from statestore.catalog.storage import Storage
from statestore.catalog.store_spec import StoreSpec
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.filters import check_filters, mask
from statestore.formats.segment_meta import OPEN
from statestore.formats.state_table import Query
from statestore.formats.types import TIME, type_name

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
    ]
)
SEGMENTS_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("role", pa.string()),
        ("tombstones", pa.bool_()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("index_bytes", pa.int64()),
        ("min_valid_from", TIME),
        ("max_valid_from", TIME),
        ("min_valid_to", TIME),
        ("max_valid_to", TIME),
        ("first_commit", pa.int64()),
        ("last_commit", pa.int64()),
        ("pending_closures", pa.int64()),
    ]
)
SNAPSHOTS_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", TIME),
        ("stream_time", TIME),
        ("readable", pa.bool_()),
    ]
)
SCHEMA_SCHEMA = pa.schema([("column", pa.string()), ("type", pa.string()), ("role", pa.string())])


def versions_table(snapshot: Snapshot) -> pa.Table:
    """One row per commit, oldest first: time, writer, transaction, stream time, rows, tombstones, bytes."""
    versions = snapshot.versions
    transactions = list(versions.transaction)
    columns = [
        pa.array(np.arange(len(versions.timestamp))),
        pa.array(versions.timestamp).cast(TIME),
        pa.array(list(versions.operation), pa.string()),
        pa.array(list(versions.writer), pa.string()),
        pa.array([None if t is None else t[0] for t in transactions], pa.string()),
        pa.array([None if t is None else t[1] for t in transactions], pa.int64()),
        _times(versions.stream_time.tolist(), versions.stream_time[0] if len(versions.stream_time) else None),
        *(pa.array(a) for a in (versions.rows, versions.tombstones, versions.closed, versions.dropped, versions.bytes)),
    ]
    return pa.Table.from_arrays(columns, schema=VERSIONS_SCHEMA)


def segments_table(snapshot: Snapshot) -> pa.Table:
    """One row per segment file of the newest version, with the statistics that reads prune by."""
    metas = snapshot.segments
    columns = [
        pa.array([m.name for m in metas], pa.string()),
        pa.array([m.role for m in metas], pa.string()),
        pa.array([m.tombstone for m in metas], pa.bool_()),
        pa.array([m.rows for m in metas], pa.int64()),
        pa.array([m.file.bytes for m in metas], pa.int64()),
        pa.array([0 if m.index is None else m.index.bytes for m in metas], pa.int64()),
        _times([m.min_valid_from for m in metas]),
        _times([m.max_valid_from for m in metas]),
        _times([m.min_valid_to for m in metas], OPEN),
        _times([m.max_valid_to for m in metas], OPEN),
        pa.array([m.min_added for m in metas], pa.int64()),
        pa.array([m.max_added for m in metas], pa.int64()),
        pa.array([sum(c.count for c in snapshot.closures.get(m.name, ())) for m in metas], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=SEGMENTS_SCHEMA)


def snapshots_table(snapshot: Snapshot) -> pa.Table:
    """One row per version: when it was committed, what stream time it knew, whether it can still be read."""
    versions = versions_table(snapshot)
    oldest = 0 if snapshot.horizon is None else snapshot.horizon.version
    readable = pa.array(np.arange(versions.num_rows) >= oldest)
    columns = [versions["version"], versions["timestamp"], versions["stream_time"], readable]
    return pa.Table.from_arrays(columns, schema=SNAPSHOTS_SCHEMA)


def schema_table(spec: StoreSpec) -> pa.Table:
    """One row per column: name, Spark type name, key or value."""
    fields = [(f, "key") for f in spec.key] + [(f, "value") for f in spec.value]
    columns = [[f.name for f, _ in fields], [type_name(f.type) for f, _ in fields], [role for _, role in fields]]
    return pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], schema=SCHEMA_SCHEMA)


def _times(values: Sequence[int], unknown: int | None = None) -> pa.Array:
    return pa.array([None if v == unknown else v for v in values], pa.int64()).cast(TIME)


TABLES: dict[str, tuple[pa.Schema, Callable[[Snapshot, StoreSpec], pa.Table]]] = {
    "versions": (VERSIONS_SCHEMA, lambda snapshot, spec: versions_table(snapshot)),
    "segments": (SEGMENTS_SCHEMA, lambda snapshot, spec: segments_table(snapshot)),
    "snapshots": (SNAPSHOTS_SCHEMA, lambda snapshot, spec: snapshots_table(snapshot)),
    "schema": (SCHEMA_SCHEMA, lambda snapshot, spec: schema_table(spec)),
}


@dataclass(frozen=True)
class MetadataSplit:
    """The whole table: metadata is small."""

    version: int
    rows: int


@dataclass(frozen=True)
class MetadataTable:
    """A metadata table as a `StateTable`; reads as of the newest commit, or of ``version``."""

    storage: Storage
    spec: StoreSpec
    suffix: str

    @property
    def name(self) -> str:
        return f"{self.spec.name}${self.suffix}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def identity(self) -> str:
        return f"{self.spec.store_id}${self.suffix}"

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) version of the store that this tells of."""
        return 0, load_snapshot(self.storage).version

    def lookup_floor(self, version: int) -> int | None:
        return None

    def schema(self, query: Query) -> pa.Schema:
        schema = TABLES[self.suffix][0]
        if query.mode != "snapshot" or query.as_of is not None:
            raise InvalidInputError(
                "INVALID_OPTION",
                f"{self.name} is metadata: it has no history, changes or state time; ask for a version",
            )
        if query.columns is None:
            return schema
        missing = [name for name in query.columns if name not in schema.names]
        if missing:
            raise NotFoundError(
                "COLUMN_NOT_FOUND", f"{self.name} has no column {missing[0]!r}; it has {', '.join(schema.names)}"
            )
        return pa.schema([schema.field(name) for name in query.columns])

    def splits(self, query: Query) -> list[MetadataSplit]:
        """Raises NotFoundError VERSION_NOT_FOUND, COLUMN_NOT_FOUND or InvalidInputError INVALID_FILTER."""
        self.schema(query)
        self._check_filters(query)
        snapshot = load_snapshot(self.storage)
        if query.version is not None and not 0 <= query.version <= snapshot.version:
            raise NotFoundError(
                "VERSION_NOT_FOUND",
                f"store {self.spec.name!r} has no version {query.version}; versions 0 to {snapshot.version} are known",
            )
        version = snapshot.version if query.version is None else query.version
        return [MetadataSplit(version, self._table(version).num_rows)]

    def read(self, split: MetadataSplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        for batch in self._table(split.version).combine_chunks().to_batches():
            selected = mask(query.filters, batch) if query.filters else None
            kept = batch if selected is None else batch.filter(selected)
            yield kept.select(schema.names)

    def _table(self, version: int) -> pa.Table:
        return TABLES[self.suffix][1](load_snapshot(self.storage, version=version), self.spec)

    def _check_filters(self, query: Query) -> None:
        schema = TABLES[self.suffix][0]
        for item in query.filters:
            if item.column not in schema.names:
                raise NotFoundError(
                    "COLUMN_NOT_FOUND", f"filter on {item.column!r}: {self.name} has {', '.join(schema.names)}"
                )
        check_filters(query.filters, schema)
