"""Metadata of a store: its commits, segments and columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.describe.metadata_table import SCHEMA_SCHEMA, SEGMENTS_SCHEMA, SNAPSHOTS_SCHEMA
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.log.version_chunks import CHUNK_VERSIONS
from statestore.catalog.log.version_rows import times_column, versions_table
from statestore.catalog.reads.captured import shown_columns_of
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.types import type_name


def segments_table(log_state: LogState) -> pa.Table:
    """Return one row per segment file of the newest version, with the statistics by which reads prune."""
    metas = log_state.segments
    columns = [
        pa.array([m.name for m in metas], pa.string()),
        pa.array([m.role for m in metas], pa.string()),
        pa.array([m.tombstone for m in metas], pa.bool_()),
        pa.array([m.rows for m in metas], pa.int64()),
        pa.array([m.file.bytes for m in metas], pa.int64()),
        pa.array([0 if m.index is None else m.index.bytes for m in metas], pa.int64()),
        times_column([m.min_valid_from for m in metas]),
        times_column([m.max_valid_from for m in metas]),
        times_column([m.min_valid_to for m in metas], OPEN),
        times_column([m.max_valid_to for m in metas], OPEN),
        pa.array([m.min_added for m in metas], pa.int64()),
        pa.array([m.max_added for m in metas], pa.int64()),
        pa.array([sum(c.count for c in log_state.closures.get(m.name, ())) for m in metas], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=SEGMENTS_SCHEMA)


def kept_versions_table(log_state: LogState) -> pa.Table:
    """Return one row per version: its commit time, its stream time, and whether it can still be read."""
    versions = versions_table(log_state)
    oldest = 0 if log_state.horizon is None else log_state.horizon.version
    readable = pa.array(np.arange(versions.num_rows) >= oldest)
    columns = [versions["version"], versions["timestamp"], versions["stream_time"], readable]
    return pa.Table.from_arrays(columns, schema=SNAPSHOTS_SCHEMA)


def schema_table(spec: StoreSpec) -> pa.Table:
    """Return one row per column: name, Spark type name, key or value."""
    if spec.captured is None:
        fields = [(f, "key") for f in spec.key] + [(f, "value") for f in spec.value]
    else:
        shown = (field for part in shown_columns_of(spec) for field in part)
        fields = [(field, "key" if field.name in spec.captured.key else "value") for field in shown]
    columns = [[f.name for f, _ in fields], [type_name(f.type) for f, _ in fields], [role for _, role in fields]]
    return pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], schema=SCHEMA_SCHEMA)


@dataclass(frozen=True)
class StoreMetadata:
    """The metadata of the store of a table for `MetadataTable`, at the version of the table where that is pinned.

    A program that goes over versions in order, as the report does, replays each entry of the log once: the log state
    of the last version is held, and the next one is made from it.
    """

    state: VersionedTable
    _held: dict[bool, LogState] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return StoreMetadata, (self.state,)  # tasks of Spark load their own log state

    @property
    def storage(self) -> Storage:
        return self.state.storage

    @property
    def spec(self) -> StoreSpec:
        return self.state.spec

    def pin(self) -> StoreMetadata:
        return self if self.state.is_pinned else StoreMetadata(self.state.pin())

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def identity(self) -> str:
        return self.spec.store_id

    def versions(self) -> tuple[int, int]:
        return 0, self._log_state().version

    def _log_state(self, version: int | None = None) -> LogState:
        if self.state.is_pinned:
            pinned = self.state.log_state()
            if version is None or version == pinned.version:
                return pinned
        try:
            newest = version is None
            held = self._held.get(newest)
            if held is not None and version is not None and not 0 <= version - held.version <= CHUNK_VERSIONS:
                held = None  # a checkpoint of the log is nearer
            if held is not None:
                shared_files(self.storage, self.spec).log.check_identity()
            loaded = load_log_state(self.storage, version=version, base=held, store=self.spec.store_id)
            self._held[newest] = loaded
            return loaded
        except (CorruptError, NotFoundError):
            shared_files(self.storage, self.spec).log.check_identity()  # the log of a dropped store looks damaged
            raise

    def table(self, suffix: str, version: int) -> pa.Table:
        log_state = self._log_state(version)
        if suffix == "schema":
            return schema_table(self.spec)
        return {"versions": versions_table, "segments": segments_table, "snapshots": kept_versions_table}[suffix](
            log_state
        )

    def total_bytes(self, version: int) -> int:
        """Return the bytes of the segments of a version and of their key indexes."""
        segments = self.table("segments", version)
        return sum(int(pc.sum(segments[name]).as_py() or 0) for name in ("bytes", "index_bytes"))
