"""Names of the files that Kafka Connect's sinks for S3, Google Cloud Storage and Azure write.

    topics/TOPIC/partition=0/TOPIC+0+0000000042.json            the default partitioner
    topics/TOPIC/year=2024/month=05/.../TOPIC+0+0000000042.avro time, or a field
    .../TOPIC+0+0000000042.keys.json, .headers.json             keys and headers of the same records

A name has the topic, the partition and the offset of the first record. Nothing else in a path counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import Folder

_NAME = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})\+(?P<partition>[0-9]{1,9})\+(?P<offset>[0-9]{1,18})"
    r"(?P<part>\.keys|\.headers)?"
    r"\.(?:(?P<form>json|bin)(?:\.gz)?|(?P<avro>avro)|(?:(?:snappy|gz|zstd|lz4|br|lzo)\.)?(?P<parquet>parquet))"
)
_TOPICS = "topics"
_MOST_DEPTH = 12
_MOST_LISTED = 24


@dataclass(frozen=True)
class ConnectFile:
    """A file by its name. ``part``: "", "keys" or "headers"."""

    path: str
    topic: str
    partition: int
    offset: int
    part: str
    form: str

    @property
    def stem(self) -> str:
        """The part of the name that the files of the same records have in common."""
        return f"{Path(self.path).parent}/{self.topic}+{self.partition}+{self.offset}"


def connect_file(path: str) -> ConnectFile | None:
    """The file of a path, None for other names."""
    found = _NAME.fullmatch(Path(path).name)
    if found is None:
        return None
    form = found["form"] or found["avro"] or found["parquet"]
    part = (found["part"] or "").removeprefix(".")
    return ConnectFile(path, found["topic"], int(found["partition"]), int(found["offset"]), part, form)


def recognises_connect(folder: Folder) -> bool:
    """Return whether a sink has written below a local folder: by names, with few listings."""
    if any(connect_file(name) for name in folder.files()):
        return True
    folders = folder.folders()
    if _TOPICS in folders:
        return _has_files(folder.at(_TOPICS), [_MOST_LISTED], 0)
    if any("=" in name for name in folders):
        return _has_files(folder, [_MOST_LISTED], 0)
    left = [_MOST_LISTED]
    return any(
        _has_files(below, left, 1)
        for below in map(folder.at, folders[:4])
        if any("=" in name for name in below.folders())
    )


def _has_files(folder: Folder, left: list[int], depth: int) -> bool:
    left[0] -= 1
    if any(connect_file(name) for name in folder.files()):
        return True
    return depth < _MOST_DEPTH and any(
        left[0] > 0 and _has_files(folder.at(name), left, depth + 1) for name in folder.folders()
    )


def connect_files(path: str) -> Sequence[ConnectFile]:
    """All files below a folder, in the order of topic, partition and offset. Links to folders are not followed."""
    found = [file for each in _paths(Path(path), 0) if (file := connect_file(each)) is not None]
    return sorted(found, key=lambda file: (file.topic, file.partition, file.offset, file.path))


def _paths(folder: Path, depth: int) -> Iterator[str]:
    with disk_errors("list", folder):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth < _MOST_DEPTH:
                yield from _paths(Path(entry.path), depth + 1)
        elif entry.is_file():
            yield entry.path
