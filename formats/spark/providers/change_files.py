"""Files of changes: deltas and snapshots of HDFSBackedStateStoreProvider, and changelogs of RocksDBStateStoreProvider.

``<version>.snapshot`` has every key, ``<version>.delta`` the changes. Keys and values are bare UnsafeRows. With row
checksums, a checksum precedes each value and each key of a deletion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import IO, Any

import numpy as np
import pyarrow as pa

from statestore.formats.errors import StateStoreError
from statestore.formats.places.folder import Folder
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint_files import AHEAD_BYTES, DataFile, parse_json
from statestore.formats.spark.checkpoint.crc_files import VerifiedStream
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, corrupt_row
from statestore.formats.spark.providers.compression import HEAD_BYTES, decompressed, has_checksums
from statestore.formats.spark.providers.file_records import DELETE, Changes, read_records


def plain_bytes(folder: Folder, file: DataFile) -> Iterator[bytes]:
    """The decompressed bytes of a data file. Raises NotFoundError SPARK_STATE_NOT_FOUND if it was purged meanwhile."""
    path = folder.at(file.name).path
    with _opened(folder, file) as stream:
        head = stream.read(HEAD_BYTES)
        if folder.seen is not None:
            folder.seen.covered[path] = isinstance(stream, VerifiedStream) or has_checksums(head)
        yield from decompressed(stream, path, head)


def is_covered(folder: Folder, name: str) -> bool | None:
    """Return whether a checksum beside a file, or of its codec, covers the rows of a file of changes or a snapshot.

    The memory of the folder knows it of what was read; another file is opened. None where it cannot be.
    """
    known = None if folder.seen is None else folder.seen.covered.get(folder.at(name).path)
    if known is not None:
        return known
    try:
        with folder.stream(name) as stream:
            return isinstance(stream, VerifiedStream) or has_checksums(stream.read(HEAD_BYTES))
    except (OSError, StateStoreError):
        return None


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


# Changelogs of RocksDBStateStoreProvider: the changes of one version.
#
#     v1      records
#     v2      utf "v2" | typed records                      column families in use: keys start with the family's id
#     v3      utf "v3" | utf lineage | records              checkpoint format 2
#     v4      utf "v4" | utf lineage | typed records
#
# A lineage is JSON, ``[{"version": n, "checkpointUniqueId": uid}, ...]``: the files on which this one builds. A v1
# file begins with the size of a key. Read as such a size, the mark of a later version would mean a key of 128 KiB or
# more, with "v" and a digit in its size: 0x000276..


_MARK = re.compile(rb"\x00[\x02-\x05]v(\d{1,4})")


def changelog_changes(folder: Folder, file: DataFile) -> Iterator[Changes]:
    """The changes of a changelog of any version, in the order they were written."""
    path = folder.at(file.name).path
    version, _, pieces = _begun(plain_bytes(folder, file), path)
    return read_records(pieces, path, typed=version in (2, 4))


def changelog_records(plain: bytes, path: str) -> tuple[bytes, bool]:
    """(the records of a whole changelog, whether they have types) of its decompressed bytes."""
    version, _, pieces = _begun(iter([plain]), path)
    return b"".join(pieces), version in (2, 4)


def changelog_lineage(folder: Folder, file: DataFile) -> dict[int, str]:
    """The uids of the files on which a changelog of v3 or v4 builds, by version; none for older ones."""
    path = folder.at(file.name).path
    _, lineage, _ = _begun(plain_bytes(folder, file), path)
    try:
        return {int(entry["version"]): str(entry["checkpointUniqueId"]) for entry in lineage}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise corrupt_file(path, "expected a lineage of versions and checkpointUniqueIds") from error


def _begun(pieces: Iterator[bytes], path: str) -> tuple[int, list[Any], Iterator[bytes]]:
    """(version, lineage, remaining pieces)."""
    version, head, rest = changelog_head(pieces, path)
    if version < 3:
        return version, [], rest
    text = head[2 + head[1] + 2 :]
    lineage = parse_json(text.decode("utf-8", "replace"), path)
    if not isinstance(lineage, list):
        raise corrupt_file(path, "expected a list as lineage")
    return version, lineage, rest


def changelog_head(pieces: Iterator[bytes], path: str) -> tuple[int, bytes, Iterator[bytes]]:
    """(version, the bytes before the records, the records in pieces) of a changelog's decompressed bytes.

    Raises CorruptError SPARK_STATE_FILE.
    """
    data = _at_least(b"", pieces, 8)
    mark = _MARK.match(data)
    if mark is None or len(mark[1]) + 1 != data[1]:
        return 1, b"", chain([data], pieces)
    version = int(mark[1])
    if not 2 <= version <= 4:
        raise corrupt_file(path, f"found changelog version {version}, expected 1 to 4")
    if version == 2:
        return version, data[: mark.end()], chain([data[mark.end() :]], pieces)
    begin = mark.end() + 2
    data = _at_least(data, pieces, begin)
    end = begin + int.from_bytes(data[mark.end() : begin])
    data = _at_least(data, pieces, end)
    if len(data) < max(begin, end):
        raise corrupt_file(path, "ends within its lineage")
    return version, data[:end], chain([data[end:]], pieces)


def _at_least(data: bytes, pieces: Iterator[bytes], size: int) -> bytes:
    """``data`` with the next pieces appended until it has as many bytes, or the file ends."""
    while len(data) < size and (piece := next(pieces, b"")):
        data += piece
    return data
