"""Files of HDFSBackedStateStoreProvider: ``<version>.snapshot`` with every key, ``<version>.delta`` with the changes.

Keys and values are bare UnsafeRows. With row checksums, a checksum precedes each value and each key of a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import IO

import numpy as np
import pyarrow as pa

from statestore.formats.places.folder import Folder
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint_files import AHEAD_BYTES, DataFile
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, corrupt_row
from statestore.formats.spark.providers.compression import decompressed
from statestore.formats.spark.providers.file_records import DELETE, Changes, read_records


def plain_bytes(folder: Folder, file: DataFile) -> Iterator[bytes]:
    """The decompressed bytes of a data file. Raises NotFoundError SPARK_STATE_NOT_FOUND if it was purged meanwhile."""
    path = folder.at(file.name).path
    with _opened(folder, file) as stream:
        yield from decompressed(stream, path)


def _opened(folder: Folder, file: DataFile) -> IO[bytes]:
    if folder.is_local or file.size > AHEAD_BYTES:
        return folder.stream(file.name, buffer_bytes=1 << 20)
    return BytesIO(folder.read_once(file.name))


def delta_changes(folder: Folder, file: DataFile) -> Iterator[Changes]:
    """The changes of a delta, in the order they were written."""
    return read_records(plain_bytes(folder, file), folder.at(file.name).path)


def base_rows(folder: Folder, file: DataFile) -> Iterator[pa.RecordBatch]:
    """Every row of a snapshot."""
    return rows_of(delta_changes(folder, file), folder.at(file.name).path)


def rows_of(changes: Iterable[Changes], path: str) -> Iterator[pa.RecordBatch]:
    """Record batches (key, value) of records that are all puts."""
    for change in changes:
        if bool(np.any(change.kind == DELETE)):
            raise corrupt_file(path, "found a deleted key in a snapshot")
        yield pa.RecordBatch.from_arrays(
            [change.keys.copied(corrupt_row), change.values.copied(corrupt_row)], schema=ROW_SCHEMA
        )
