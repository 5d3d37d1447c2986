"""Ranges of keys into which a large partition is divided, to be read side by side or held one by one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection
from functools import partial

from statestore.formats.errors import CorruptError
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.providers.partition_load import Partition, family_id_at, on_whole_base
from statestore.formats.spark.providers.rocksdb_provider import family_prefix, split_keys
from statestore.formats.spark.providers.stored_rows import KeyBounds
from statestore.formats.spark.providers.zip_files import read_zip

_PART_BYTES = 16 << 20
_HISTORY_BYTES = 6 << 20  # compressed bytes of files: changes are held in memory, and take many times as much there
_COMPARED_BYTES = 64 << 20  # of zips that are compared with each other: little is held, and each part opens them all
_MOST_PARTS = 256


def split_partition(partition: Partition, most: int) -> list[KeyBounds]:
    """Split a large partition into ranges of stored keys of about one size; at most ``most``, often one."""

    def split(base: DataFile | None) -> list[KeyBounds]:
        if base is None or base.kind != "zip":
            return [(None, None)]
        return split_keys(partition.folder, base, family_id_at(partition, base, base.version), _PART_BYTES, most)

    return on_whole_base(partition, split)


def split_history(partition: Partition, versions: Collection[int]) -> list[KeyBounds]:
    """Split a partition into ranges of keys, without the id of a column family, with about equal amounts of written
    bytes.

    The amounts are those of these versions. Often one range is returned. Only the newest zip shows where keys can be
    split.
    """
    return on_whole_base(partition, partial(_split_history, partition, versions))


def _split_history(partition: Partition, versions: Collection[int], base: DataFile | None) -> list[KeyBounds]:
    if base is None or base.kind != "zip":
        return [(None, None)]
    written = [file for file in partition.files if file.version in versions]
    tables = set[tuple[str, int]]()
    for file in written:
        with contextlib.suppress(CorruptError):  # others may say as much, and readers of this zip report the error
            tables |= set(read_zip(partition.folder, file).tables.values()) if file.kind == "zip" else set()
    logged = sum(file.size for file in written if file.kind == "changelog")
    total = sum(size for _, size in tables) + logged
    parts = min(total // (_HISTORY_BYTES if logged else _COMPARED_BYTES), _MOST_PARTS)
    if parts < 2:
        return [(None, None)]
    family_id = family_id_at(partition, base, base.version)
    size = sum(size for _, size in read_zip(partition.folder, base).tables.values())
    ranges = split_keys(partition.folder, base, family_id, max(size // parts, 1), parts)
    prefix = 0 if family_id is None else len(family_prefix(family_id))
    points = [stop[prefix:] for _, stop in ranges[:-1] if stop is not None]
    return list(itertools.pairwise([None, *points, None]))
