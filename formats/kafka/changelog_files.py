"""Changelogs in files: a broker's log directory, or files of exported records, recognised by their names.

<topic>-<partition>/<20 digits>.log        segments of a broker's log, of any topic
<topic>-changelog[-<n>].jsonl              records of a changelog; also Parquet, Arrow, CSV and text, .gz and the like
topics/<topic>/.../<topic>+<p>+<offset>.json   what Kafka Connect's sinks have written, of any topic (``connect_names``)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statestore.formats.kafka.changelogs.connect_names import connect_file, connect_files, recognises_connect
from statestore.formats.places.folder import Folder

if TYPE_CHECKING:
    from statestore.formats.engine import FileFinding
    from statestore.formats.kafka.changelogs.export_forms import RecordOptions
    from statestore.formats.kafka.changelogs.record_log import RecordLog

SUFFIX = "-changelog"
RECORD_FILE = re.compile(
    rf"(.+{SUFFIX})(-\d+)?\."
    r"(?:parquet|pq|arrow|arrows|feather|ipc|(?:jsonl|ndjson|json|csv|tsv|txt)(?:\.(?:gz|zst|lz4|bz2))?)"
)
_PARTITION_FOLDER = re.compile(r".+-\d+")
_SEGMENT = re.compile(r"\d{20}\.log")
_MOST_LISTED = 8


def recognises_changelogs(folder: Folder) -> bool:
    """Return whether a local folder has topics: by names alone, and one listing more at most."""
    if not folder.is_local:
        return False
    if any(RECORD_FILE.fullmatch(name) for name in folder.files()) or _has_segment(folder):
        return True
    if recognises_connect(folder):
        return True
    partitions = [name for name in folder.folders() if _PARTITION_FOLDER.fullmatch(name)]
    return any(_has_segment(folder.at(name)) for name in partitions[:_MOST_LISTED])


def _has_segment(folder: Folder) -> bool:
    return any(_SEGMENT.fullmatch(name) for name in folder.files())


@dataclass(frozen=True)
class FileTopics:
    """Topics in the files at a path, and the files of each."""

    path: str
    files: Mapping[str, tuple[str, ...]]
    options: RecordOptions

    @property
    def identity(self) -> str:
        """Files at a path are one source, whatever topics they gain."""
        return ""

    @property
    def listed(self) -> tuple[str, ...]:
        return tuple(sorted(self.files))

    def has(self, topic: str) -> bool:
        return topic in self.files

    def logs(self, topic: str) -> tuple[RecordLog, ...]:
        """The logs of a topic, surveyed. Raises CorruptError KAFKA_LOG and others."""
        from statestore.formats.kafka.changelogs.file_records import record_files
        from statestore.formats.kafka.logs.log_directory import log_partitions
        from statestore.formats.kafka.logs.log_reading import open_log

        if connect_file(self.files[topic][0]) is not None:
            from statestore.formats.kafka.changelogs.connect_log import connect_logs

            return tuple(connect_logs(self.files[topic], self.options))
        if self.files[topic][0].endswith(".log"):
            return tuple(map(open_log, log_partitions(self.path, topic)))
        return tuple(record_files(self.files[topic], options=self.options))

    def lost(self, topic: str, logs: Sequence[RecordLog]) -> Iterator[FileFinding]:
        """Yield what files beside the segments of a broker's log show to be lost.

        Of exported records only an empty file is known.
        """
        from statestore.formats.engine import FileFinding
        from statestore.formats.kafka.logs.log_directory import partitions_without_segments
        from statestore.formats.kafka.logs.log_reading import SegmentLog
        from statestore.formats.kafka.logs.lost_segments import lost_segments

        for log in logs:
            if isinstance(log, SegmentLog) and log.files:
                yield from lost_segments(log)
        for file in self.files[topic]:
            if Path(file).stat().st_size == 0:
                text = f"{file}: an empty file: no record was written yet, or all of them are lost"
                yield FileFinding(file, text, damaged=False)
        if self.files[topic][0].endswith(".log"):
            # One of a topic that has no segment at all is told with the first topic.
            listed = {topic} if topic != self.listed[0] else None
            for folder in partitions_without_segments(self.path, listed, self.files):
                yield FileFinding(
                    folder,
                    f"{folder}: found no segment, and a broker always has one; restore them from a copy or another "
                    "replica",
                )

    def partition_count(self, topic: str) -> None:
        """Files have the partitions that have records, and those that were copied."""

    def end_offsets(self, topic: str, logs: Sequence[RecordLog]) -> Mapping[int, int]:
        """The ends of logs of segments; of exports they are not known, which have no markers of transactions."""
        return {log.partition: log.findings.next_offset for log in logs if log.findings.markers_known}

    def size(self, topic: str) -> tuple[int, int]:
        """Bytes and number of the files of a topic."""
        sizes = [Path(file).stat().st_size for file in self.files[topic]]
        return sum(sizes), len(sizes)


def file_topics(path: str, options: RecordOptions) -> FileTopics:
    """List the topics at a path: exported records, where there are none Connect's files, and else segments.

    Raises NotFoundError.
    """
    from statestore.formats.kafka.logs.log_directory import log_partitions

    files: dict[str, list[str]] = {}
    for entry in sorted(Path(path).iterdir()):
        found = RECORD_FILE.fullmatch(entry.name)
        if found is not None and entry.is_file():
            files.setdefault(found[1], []).append(str(entry))
    if not files:
        for connect in connect_files(path):
            files.setdefault(connect.topic, []).append(connect.path)
    if not files:
        for partition in log_partitions(path):
            files.setdefault(partition.topic, []).extend(f"{partition.folder}/{name}" for name in partition.segments)
    return FileTopics(path, {topic: tuple(paths) for topic, paths in files.items() if paths}, options)
