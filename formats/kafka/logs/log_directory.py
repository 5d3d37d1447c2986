"""Partitions and segment files in the log directory of a Kafka broker (``UnifiedLog``, ``LocalLog``).

    <log.dir>/<topic>-<partition>/<20 digits>.log        records; the digits are the base offset of the segment
    <log.dir>/<topic>-<partition>.<uuid>-delete/ …       being removed; -future, -stray: not the log of that partition

Indexes, snapshots of producers and files with a further suffix (``.deleted``, ``.cleaned``, ``.swap``) are not read:
all that they say follows from the records.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.disk_errors import disk_errors

_PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_SEGMENT = re.compile(r"([0-9]{20})\.log")
_MOST_PARTITION, _MOST_OFFSET = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True)
class LogPartition:
    """One partition of a topic on a broker's disk. ``segments`` are names of files, the oldest first."""

    topic: str
    partition: int
    folder: str
    segments: tuple[str, ...]


def log_partitions(path: str | os.PathLike[str], topic: str | None = None) -> tuple[LogPartition, ...]:
    """The partitions at ``path``: a broker's log directory, or the directory of one partition.

    With ``topic`` only its partitions. Directories without a segment file are left out, except the given one. Ordered
    by topic and partition. Raises NotFoundError PATH_NOT_FOUND, and NOTHING_HERE where no partition is found.
    """
    root = Path(path)
    if not root.is_dir():
        raise NotFoundError(
            ErrorCode.PATH_NOT_FOUND,
            f"{root}: found no directory, expected a broker's log directory or <topic>-<partition> in one",
        )
    own = _partition(root.resolve(), keep_empty=True)
    with disk_errors("list", root):
        folders = sorted(entry.path for entry in os.scandir(root) if Path(entry.path).is_dir())
    inside = [found for folder in folders if (found := _partition(Path(folder), keep_empty=False)) is not None]
    if own is not None and (own.segments or not inside):
        inside = [LogPartition(own.topic, own.partition, str(root), own.segments)]
    chosen = [found for found in inside if topic in (None, found.topic)]
    if not chosen:
        topics = ", ".join(sorted({found.topic for found in inside})[:20]) or "none"
        raise NotFoundError(
            ErrorCode.NOTHING_HERE,
            f"{root}: found no partition of {'any topic' if topic is None else f'topic {topic!r}'} (topics here: "
            f"{topics}), expected directories <topic>-<partition> with files <20 digits>.log",
        )
    return tuple(sorted(chosen, key=lambda found: (found.topic, found.partition)))


def partitions_without_segments(
    path: str | os.PathLike[str], wanted: Collection[str] | None, known: Collection[str]
) -> tuple[str, ...]:
    """The directories of partitions in a broker's log directory that have no segment file.

    They are of the topics ``wanted``; None: of the first of the ``known`` ones, and of all that are not known.
    """
    root = Path(path)
    with disk_errors("list", root):
        folders = sorted(entry.path for entry in os.scandir(root) if Path(entry.path).is_dir())
    found = [_partition(Path(folder), keep_empty=True) for folder in folders]
    first = min(known, default="")

    def is_wanted(topic: str) -> bool:
        return topic in wanted if wanted is not None else topic == first or topic not in known

    return tuple(each.folder for each in found if each is not None and not each.segments and is_wanted(each.topic))


def one_topic(partitions: tuple[LogPartition, ...], path: object) -> tuple[LogPartition, ...]:
    """The partitions if they are of one topic. Raises InvalidInputError MISSING_OPTION if they are of several."""
    topics = sorted({found.topic for found in partitions})
    if len(topics) > 1:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION,
            f"{path}: found {len(topics)} topics ({', '.join(topics[:20])}), expected one; name it with topic=",
        )
    return partitions


def base_offset(segment: str) -> int:
    """The base offset in the name of a segment file."""
    return int(segment[:20])


def _partition(folder: Path, *, keep_empty: bool) -> LogPartition | None:
    name = _PARTITION.fullmatch(folder.name)
    if name is None or int(name[2]) > _MOST_PARTITION:
        return None
    with disk_errors("list", folder):
        names = sorted(entry.name for entry in os.scandir(folder))
    segments = tuple(found for found in names if _SEGMENT.fullmatch(found) and base_offset(found) <= _MOST_OFFSET)
    if not segments and not keep_empty:
        return None
    return LogPartition(name[1], int(name[2]), str(folder), segments)
