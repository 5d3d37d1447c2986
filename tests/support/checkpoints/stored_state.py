"""All stored rows of a checkpoint."""

from __future__ import annotations

from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows

Stored = dict[tuple[int, str, str], dict[bytes, tuple[int, bytes]]]


def stored(checkpoint: Checkpoint) -> Stored:
    """The rows of all families: the partition and the value by key without the id of its family."""
    found: Stored = {}
    for operator in checkpoint.operators:
        for store in operator.stores:
            for family in store.families:
                rows = found.setdefault((operator.operator_id, store.name, family.name), {})
                for number in store.partitions:
                    partition = open_partition(checkpoint, store, number, family.name)
                    for batch in stored_rows(partition, lambda rows: rows.batch):
                        for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                            key = key[2:] if store.has_families else key
                            assert key not in rows
                            rows[key] = number, value
    return found
