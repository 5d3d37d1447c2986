"""Changes of stored rows: the rows that are put and the keys that are erased, by partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.rocksdb.rows import ROW_SCHEMA


@dataclass(frozen=True)
class StoredEdit:
    """Rows of one column family in one partition of a store.

    ``put`` has rows (key: binary, value: binary) just as they are stored: keys with the id of their family, values with
    their checksums. ``erased`` are stored keys without the checksums that files of changes give to deletions, none of
    which is put. No key occurs twice.
    """

    operator_id: int
    store: str
    family: str
    partition: int
    put: pa.RecordBatch
    erased: pa.BinaryArray

    @property
    def bytes(self) -> int:
        """About the bytes of the rows."""
        return int(self.put.nbytes) + int(self.erased.nbytes)


@dataclass(frozen=True)
class PartitionEdit:
    """All that is edited in one partition of a store; its families lie in the same files."""

    operator_id: int
    store: str
    partition: int
    put: pa.RecordBatch
    erased: pa.BinaryArray
    bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing is edited."""
        return not self.put.num_rows and not len(self.erased)

    @property
    def keys(self) -> pa.BinaryArray:
        """All stored keys, those that are put first."""
        return pa.concat_arrays([self.put.column(0), self.erased])


def without_rows(operator_id: int, store: str, partition: int) -> PartitionEdit:
    """The edit of a partition that changes nothing."""
    nothing = pa.nulls(0, pa.binary())
    put = pa.RecordBatch.from_arrays([nothing, nothing], schema=ROW_SCHEMA)
    return PartitionEdit(operator_id, store, partition, put, nothing, 0)


def by_partition(edits: Iterable[StoredEdit]) -> list[PartitionEdit]:
    """Join the edits of each partition of a store."""
    grouped: dict[tuple[int, str, int], list[StoredEdit]] = {}
    for edit in edits:
        grouped.setdefault((edit.operator_id, edit.store, edit.partition), []).append(edit)
    return [_joined(*place, found) for place, found in sorted(grouped.items(), key=lambda item: item[0])]


def _joined(operator_id: int, store: str, partition: int, edits: list[StoredEdit]) -> PartitionEdit:
    if len(edits) == 1:
        (edit,) = edits
        return PartitionEdit(operator_id, store, partition, edit.put, edit.erased, edit.bytes)
    columns = [pa.concat_arrays([edit.put.column(number) for edit in edits]) for number in range(2)]
    put = pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
    erased = pa.concat_arrays([edit.erased for edit in edits])
    return PartitionEdit(operator_id, store, partition, put, erased, sum(edit.bytes for edit in edits))
