"""Names in the state directory of a Kafka Streams application, and of its changelog topics.

<application>/[__<topology>__/]<subtopology>_<partition>/rocksdb/<store>
<application>/[__<topology>__/]<subtopology>_<partition>/<store>/<store>.<start>      a segment
<application>/global/…                                                              global stores
<application>/kafka-streams-process-metadata                                         JSON
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka_rows.time_segments import decode_time_segment_name
from statestore.formats.values.expansion import parse_json

Layout = Literal["keyvalue-or-versioned", "segment"]

ROCKSDB = "rocksdb"
GLOBAL = "global"
PROCESS_METADATA = "kafka-streams-process-metadata"
_TASK = re.compile(r"([0-9]+)_([0-9]+)")
_TOPOLOGY = re.compile(r"__(.+)__")


@dataclass(frozen=True)
class StorePath:
    """The path of one RocksDB of a state directory. A global store has no task: ``subtopology``, ``partition`` are
    None.

    ``time_segment`` is the directory's name where the layout is ``segment``. A store of 2016 has its segments under
    ``rocksdb/``: see `decode_original_time_segment_name`.
    """

    application_id: str
    subtopology: int | None
    partition: int | None
    store: str
    layout: Layout
    named_topology: str | None = None
    time_segment: str | None = None


def decode_store_path(path: str) -> StorePath:
    """Decode the path of a RocksDB; any path may precede the application's directory.

    Raises InvalidInputError STORE_PATH if the path is not the directory of a store.
    """
    parts = [part for part in path.split("/") if part]
    if len(parts) < 4:
        raise _not_a_store(path)
    *front, task, folder, name = parts
    topology = _TOPOLOGY.fullmatch(front[-1]) if len(front) > 1 and task != GLOBAL else None
    application = front[-2] if topology else front[-1]
    subtopology, partition = (None, None) if task == GLOBAL else _task(task, path)
    named = topology[1] if topology else None
    if folder == ROCKSDB:
        return StorePath(application, subtopology, partition, name, "keyvalue-or-versioned", named)
    try:
        decode_time_segment_name(folder, name)
    except InvalidInputError as error:
        raise _not_a_store(path) from error
    return StorePath(application, subtopology, partition, folder, "segment", named, name)


def decode_task(name: str) -> tuple[int, int] | None:
    """(subtopology, partition) if the name can be that of a task's directory, else None."""
    match = _TASK.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def named_topology(folder: str) -> str | None:
    """The topology's name if the folder's name can be that of a named topology, else None."""
    match = _TOPOLOGY.fullmatch(folder)
    return match[1] if match else None


def changelog_topic(application_id: str, store: str, named_topology: str | None = None) -> str:
    """Name of a store's changelog topic. A source table under topology optimisation uses its source topic instead."""
    return "-".join(part for part in (application_id, named_topology, store, "changelog") if part is not None)


def decode_process_metadata(data: bytes | str) -> UUID | None:
    """The process id, None where the file holds none. Raises CorruptError KAFKA_FILE. Other fields are ignored."""
    try:
        document = parse_json(data)
        process = document["processId"] if isinstance(document, dict) and "processId" in document else None
        if not isinstance(document, dict) or not isinstance(process, str | None):
            raise ValueError(f"{document!r:.80}")
        return None if process is None else UUID(process)
    except ValueError as error:
        raise CorruptError(
            ErrorCode.KAFKA_FILE,
            f'file {PROCESS_METADATA}: found {error}, expected JSON {{"processId": "<uuid>"}}; restore it from a copy',
        ) from error


def _task(name: str, path: str) -> tuple[int, int]:
    task = decode_task(name)
    if task is None:
        raise _not_a_store(path)
    return task


def _not_a_store(path: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.STORE_PATH,
        f"found path {path!r}, expected <application>/<task>/rocksdb/<store> or "
        "<application>/<task>/<store>/<store>.<start>, the task as 0_3, or global",
    )
