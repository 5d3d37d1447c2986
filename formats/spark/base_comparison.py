"""Bases (snapshots and zips) that differ from what the base before them and the changes since then make.

Both are the state of one version, so they have the same rows. Where they differ, one of these files was changed, or is
the file of another batch: its form is right and its checksums are, if it has any. Rows then depend on the base that a
read begins with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from statestore.formats.engine import FileFinding
from statestore.formats.errors import StateStoreError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import BASES, DataFile
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.providers.partition_load import Partition, open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.values.xxh64 import xxh64_strings

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class _Content:
    """The number of rows, and the sum of their hashes, by which the order of rows does not matter."""

    rows: int = 0
    sum: int = 0


def differing_bases(checkpoint: Checkpoint, state_view: StateView, batches: Collection[int]) -> Iterator[FileFinding]:
    """Yield the bases of batches, in all partitions, that differ from the changes before them.

    Files that are not all kept, or cannot be read, are left to the reads of their batch. In checkpoint format 2 the
    lineage in each file says of which batch it is.
    """
    if checkpoint.batch.uids:
        return
    for number in state_view.store.partitions:
        with suppress(StateStoreError):
            partition = open_partition(checkpoint, state_view.store, number, state_view.family.name)
            bases = sorted((file for file in partition.files if file.kind in BASES), key=lambda file: file.version)
            for before, base in zip([None, *bases], bases, strict=False):
                if base.version - 1 in batches:
                    yield from _difference(partition, 0 if before is None else before.version, base)


def _difference(partition: Partition, before: int, base: DataFile) -> Iterator[FileFinding]:
    batch = replace(partition.checkpoint.batch, version=base.version)
    at = replace(partition, checkpoint=replace(partition.checkpoint, batch=batch))
    try:
        changed, own = _content(at, before), _content(at, base.version)
    except StateStoreError:
        return
    if changed == own:
        return
    path = partition.folder.at(base.name).path
    start = f"from nothing and changes 1 to {base.version}" if not before else f"from version {before} and the changes"
    found = f"{own.rows} rows" if own.rows != changed.rows else f"other values in its {own.rows} rows"
    text = (
        f"{path}: found {found} of {partition.family}, expected the {changed.rows} rows that follow {start}: one of "
        "these files was changed, or is that of another batch, and rows depend on where a read begins; restore them "
        "from a copy"
    )
    yield FileFinding(path, text, version=base.version - 1)


def _content(partition: Partition, base_version: int) -> _Content:
    """The content of the partition's version, built on a base; 0: on none."""
    rows, total = 0, 0
    for count, each in stored_rows(partition, _hashed, base_version=base_version):
        rows += count
        total += each
    return _Content(rows, total % (1 << 64))


def _hashed(rows: StoredRows) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes."""
    with np.errstate(over="ignore"):
        each = xxh64_strings(*rows.keys.content()) * _ODD
        each = (each ^ (each >> np.uint64(29))) + xxh64_strings(*rows.values.content())
        return len(rows.keys), int((each * _ODD).sum(dtype=np.uint64))
