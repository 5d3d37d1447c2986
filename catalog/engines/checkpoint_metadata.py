"""Metadata of state in a checkpoint: its batches, the files that a batch needs, its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.catalog.describe.metadata_table import (
    SCHEMA_SCHEMA,
    SEGMENTS_SCHEMA,
    SNAPSHOTS_SCHEMA,
    VERSIONS_SCHEMA,
    rows_table,
)
from statestore.catalog.engines.checkpoint_table import CheckpointTable
from statestore.formats.spark.checkpoint.checkpoint_files import data_files
from statestore.formats.spark.kept_batches import kept_batches, read_batches
from statestore.formats.spark.providers.partition_load import Partition, files_of_batch, open_partition
from statestore.formats.state_table import Query
from statestore.formats.values.types import shown_field

OPERATION = "batch"


@dataclass(frozen=True)
class CheckpointMetadata:
    """What `MetadataTable` tells of a table in a checkpoint. Watermarks stand for stream time."""

    state: CheckpointTable

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def identity(self) -> str:
        return f"{self.state.identity}/{self.state.operator_id}/{self.state.view_name}"

    def versions(self) -> tuple[int, int]:
        """The committed batches, whether their state can still be read or not."""
        checkpoint, _ = self.state.opened()
        return checkpoint.batches[0], checkpoint.batches[-1]

    def table(self, suffix: str, version: int) -> pa.Table:
        """Rows and bytes that nobody has counted are null."""
        if suffix == "schema":
            return rows_table(SCHEMA_SCHEMA, self._columns())
        if suffix == "segments":
            return rows_table(SEGMENTS_SCHEMA, self._files(version))
        return rows_table({"versions": VERSIONS_SCHEMA, "snapshots": SNAPSHOTS_SCHEMA}[suffix], self._batches(version))

    def _batches(self, version: int) -> Iterator[dict[str, Any]]:
        checkpoint, view = self.state.opened()
        readable = set(kept_batches(checkpoint, view.store))
        written = Counter[int]()
        for number in view.store.folders:
            for file in data_files(checkpoint.folder(view.store, number)):
                written[file.version] += file.size
        for batch in read_batches(checkpoint, [number for number in checkpoint.batches if number <= version]):
            yield {
                "version": batch.batch_id,
                "timestamp": _us(batch.timestamp_ms),
                "operation": OPERATION,
                "application": checkpoint.query_id,
                "batch": batch.batch_id,
                "stream_time": _us(batch.watermark_ms or None),
                "bytes": written.get(batch.version, 0),
                "readable": batch.batch_id in readable,
            }

    def _files(self, version: int) -> Iterator[dict[str, Any]]:
        checkpoint, view = self.state.opened(version)
        for number in view.store.partitions:
            partition = open_partition(checkpoint, view.store, number, view.family.name)
            for file in files_of_batch(partition):
                yield {"name": f"{_folder(partition)}/{file.name}", "role": file.kind, "bytes": file.size} | (
                    {"first_commit": file.version - 1, "last_commit": file.version - 1} if file.version else {}
                )

    def _columns(self) -> Iterator[dict[str, Any]]:
        for field in self.state.schema(Query()):
            role = "key" if field.name in self.state.key_columns else "value"
            yield {"column": field.name, "type": shown_field(field), "role": role}


def _folder(partition: Partition) -> str:
    root = partition.checkpoint.root.path.rstrip("/")
    return partition.folder.path.removeprefix(f"{root}/")


def _us(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000
