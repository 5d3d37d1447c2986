"""The output of a query that an edit as a batch of its own would break.

A checkpoint does not say where its query writes. Spark's file sink keeps a log of its batches, `_spark_metadata`, in
the folder of its files. It lacks an entry of the edit's batch, about which Spark says nothing until it next compacts
the log into one file: it then needs an entry of each batch since the file before, and fails. An empty entry is enough,
but not in place of a compacted file. Delta keeps the last batch of each query in its own log, and lets batches be left
out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from statestore.formats.errors import StateStoreError
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_errors import refused
from statestore.formats.spark.edit_settings import NO_SINK, invalid_setting
from statestore.formats.values.expansion import parse_json

FILE_LOG, _DELTA_LOG = "_spark_metadata", "_delta_log"
_ENTRY = re.compile(r"(0|[1-9][0-9]{0,17})(\.compact)?")
_DELTA_ENTRY = re.compile(r"[0-9]{20}\.json")
_INTERVAL = 10  # spark.sql.streaming.fileSink.log.compactInterval, unless a user sets it
_MOST_SIBLINGS, _MOST_ENTRIES = 1000, 1000
_HOW = "leave out as_batch, and the edit becomes part of the last batch, of which no sink sees anything"


@dataclass(frozen=True)
class _FileLog:
    """The log of a file sink: its newest batch, and those of which there are compacted files, ascending."""

    newest: int
    compacted: Sequence[int]


def notes_of_sink(checkpoint: Checkpoint, sink: str | None) -> Iterator[str]:
    """Yield what has to be done to the output of a query before it goes on after a batch that the edit adds.

    ``sink`` is the place of the output, `NO_SINK`, or None if it is not known: it is then looked for beside the
    checkpoint and above it. Raises InvalidInputError INVALID_OPTION for a place without the log of a sink, EDIT_REFUSED
    for one whose log does not fit, or where it would break, and where the place has to be given.
    """
    batch = checkpoint.batch.batch_id
    if sink == NO_SINK:
        return
    if sink is not None:
        yield from _of_place(checkpoint, sink)
        return
    for folder in _near(checkpoint.root):
        log = _file_log(folder)
        if log is not None and log.newest == batch:
            raise refused(
                f"{folder.path}: its log {FILE_LOG} ends with batch {batch}, as {checkpoint.root.path} does, and would "
                f"lack batch {batch + 1}, the edit's. If the query writes there, give the setting sink={folder.path}, "
                f"which says what to do; if not, give the place of its output, or sink={NO_SINK}; or {_HOW}"
            )
    yield (
        f"Batch {batch + 1} is the edit's. If the query writes files, the log {FILE_LOG} of its output lacks an entry "
        f"for it, without which the query fails later: write a file {FILE_LOG}/{batch + 1} with the line v1. The "
        "setting sink has its place checked."
    )


def _of_place(checkpoint: Checkpoint, sink: str) -> Iterator[str]:
    folder = folder_at(parse_location(sink))
    log = _file_log(folder)
    if log is not None:
        yield _of_files(checkpoint, folder, log)
    elif _DELTA_LOG in folder.folders():
        yield _of_delta(checkpoint, folder)
    else:
        raise invalid_setting(
            "sink",
            f"is {sink}, which has neither {FILE_LOG} nor {_DELTA_LOG} with entries; expected the output of the query, "
            f"or {NO_SINK} if it writes elsewhere",
        )


def _of_files(checkpoint: Checkpoint, folder: Folder, log: _FileLog) -> str:
    batch, where = checkpoint.batch.batch_id, folder.at(FILE_LOG).path
    if log.newest != batch:
        raise refused(
            f"{where}: its newest batch is {log.newest}, and that of {checkpoint.root.path} is {batch}, so it is the "
            "log of another query, or one of them is older than the other; give the output of this query"
        )
    name = f"{batch}.compact" if batch in log.compacted else str(batch)
    version = folder.at(FILE_LOG).read_small(name).partition(b"\n")[0]
    if version.strip() != b"v1":
        raise refused(f"{where}/{name}: found the first line {version[:40]!r}, expected v1; {_HOW}")
    interval = compact_interval(log.compacted)
    if (batch + 2) % interval == 0:
        raise refused(
            f"{where}: batch {batch + 1}, the edit's, is one in which the log is compacted into {batch + 1}.compact, "
            f"which only Spark can write; let the query run a batch more, and edit that, or {_HOW}"
        )
    others = "" if log.compacted else f" (spark.sql.streaming.fileSink.log.compactInterval is taken to be {_INTERVAL})"
    return (
        f"Batch {batch + 1} is the edit's. Before you start the query, write the file {where}/{batch + 1} with the "
        f"line v1. Without it the query fails when the log is compacted next, by batch "
        f"{(batch + 1) // interval * interval + interval - 1}{others}."
    )


def _of_delta(checkpoint: Checkpoint, folder: Folder) -> str:
    batch, query = checkpoint.batch.batch_id, checkpoint.query_id
    found = _delta_batch(folder.at(_DELTA_LOG), query)
    if found is not None and found > batch:
        raise refused(
            f"{folder.path}: it has batch {found} of query {query}, and {checkpoint.root.path} ends with {batch}: its "
            f"next batches would be left out as those that are there; {_HOW}"
        )
    last = "has no batch of the query in its newest commits" if found is None else f"has batch {found} of the query"
    return (
        f"Batch {batch + 1} is the edit's. The Delta table {folder.path} {last}, and takes {batch + 2} as the next "
        "one: there is nothing to be done."
    )


def compact_interval(compacted: Sequence[int]) -> int:
    """The number of batches from one compacted file to the next, as Spark finds it from those that are there."""
    if not compacted:
        return _INTERVAL
    if len(compacted) > 1:
        return compacted[-1] - compacted[-2]
    size = compacted[-1] + 1
    if size <= _INTERVAL or size // 2 <= _INTERVAL:
        return size
    return next((each for each in range(_INTERVAL, size // 2 + 1) if size % each == 0), size)


def _file_log(folder: Folder) -> _FileLog | None:
    entries = [found for name in folder.at(FILE_LOG).files() if (found := _ENTRY.fullmatch(name))]
    if not entries:
        return None
    return _FileLog(max(int(each[1]) for each in entries), sorted(int(each[1]) for each in entries if each[2]))


def _near(root: Folder) -> Iterator[Folder]:
    """Yield the local folders in which a checkpoint lies, and those beside it."""
    if not root.is_local:
        return
    parent = Folder(root.filesystem, posixpath.dirname(root.path), root.rules)
    above = Folder(root.filesystem, posixpath.dirname(parent.path), root.rules)
    try:
        yield from (each for each in (parent, above) if each.holds(FILE_LOG))
        for name in islice(parent.folders(), _MOST_SIBLINGS):
            if parent.at(name).path != root.path and parent.at(name).holds(FILE_LOG):
                yield parent.at(name)
    except StateStoreError:  # what cannot be listed is not found
        return


def _delta_batch(log: Folder, query: str) -> int | None:
    """The last batch of a query in the newest commits of a Delta table."""
    names = sorted((name for name in log.files() if _DELTA_ENTRY.fullmatch(name)), reverse=True)
    for name in names[:_MOST_ENTRIES]:
        for line in log.read_small(name).splitlines():
            if b'"txn"' not in line:
                continue
            try:
                action: Any = parse_json(line)
            except ValueError:
                continue
            txn = action.get("txn") if isinstance(action, dict) else None
            if isinstance(txn, dict) and txn.get("appId") == query and type(txn.get("version")) is int:
                return int(txn["version"])
    return None
