"""Changelogs of RocksDBStateStoreProvider: the changes of one version.

    v1      records
    v2      utf "v2" | typed records                      column families in use: keys start with the family's id
    v3      utf "v3" | utf lineage | records              checkpoint format 2
    v4      utf "v4" | utf lineage | typed records

A lineage is JSON, ``[{"version": n, "checkpointUniqueId": uid}, ...]``: the files on which this one builds. A v1 file
begins with the size of a key. Read as such a size, the mark of a later version would mean a key of 128 KiB or more,
with "v" and a digit in its size: 0x000276..
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from statestore.formats.places.folder import Folder
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile, parse_json
from statestore.formats.spark.checkpoint.state_errors import corrupt_file
from statestore.formats.spark.providers.file_records import Changes, read_records
from statestore.formats.spark.providers.hdfs_provider import plain_bytes

_MARK = re.compile(rb"\x00[\x02-\x05]v(\d{1,4})")


def changelog_changes(folder: Folder, file: DataFile) -> Iterator[Changes]:
    """The changes of a changelog of any version, in the order they were written."""
    path = folder.at(file.name).path
    version, _, pieces = _opened(plain_bytes(folder, file), path)
    return read_records(pieces, path, typed=version in (2, 4))


def changelog_lineage(folder: Folder, file: DataFile) -> dict[int, str]:
    """The uids of the files on which a changelog of v3 or v4 builds, by version; none for older ones."""
    path = folder.at(file.name).path
    _, lineage, _ = _opened(plain_bytes(folder, file), path)
    try:
        return {int(entry["version"]): str(entry["checkpointUniqueId"]) for entry in lineage}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise corrupt_file(path, "expected a lineage of versions and checkpointUniqueIds") from error


def _opened(pieces: Iterator[bytes], path: str) -> tuple[int, list[Any], Iterator[bytes]]:
    """(version, lineage, remaining pieces)."""
    data = _at_least(b"", pieces, 8)
    mark = _MARK.match(data)
    if mark is None or len(mark[1]) + 1 != data[1]:
        return 1, [], chain([data], pieces)
    version = int(mark[1])
    if not 2 <= version <= 4:
        raise corrupt_file(path, f"found changelog version {version}, expected 1 to 4")
    data = data[mark.end() :]
    if version == 2:
        return version, [], chain([data], pieces)
    data = _at_least(data, pieces, 2)
    size = int.from_bytes(data[:2])
    data = _at_least(data, pieces, 2 + size)
    if len(data) < 2 + size:
        raise corrupt_file(path, "ends within its lineage")
    lineage = parse_json(data[2 : 2 + size].decode("utf-8", "replace"), path)
    if not isinstance(lineage, list):
        raise corrupt_file(path, "expected a list as lineage")
    return version, lineage, chain([data[2 + size :]], pieces)


def _at_least(data: bytes, pieces: Iterator[bytes], size: int) -> bytes:
    """``data`` with the next pieces appended until it has as many bytes, or the file ends."""
    while len(data) < size and (piece := next(pieces, b"")):
        data += piece
    return data
