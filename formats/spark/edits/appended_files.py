"""A batch of its own with an edit: what it adds to the files of a checkpoint.

Spark needs the version of every partition of every store, also where nothing is edited. Each partition keeps the form
that it has: a delta follows a delta, a changelog a changelog, and a zip a zip, which then names the same table files.
In checkpoint format 2 each file has a new id, and a changelog says on which files it builds: those on which the one
before builds and that one, or the zip of the version before alone.
"""

from __future__ import annotations

import json
import posixpath
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from statestore.formats.edits import Target
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile, parse_json, read_metadata
from statestore.formats.spark.checkpoint.state_errors import corrupt_file
from statestore.formats.spark.edits.amended_files import (
    amended_files,
    partition_of_edit,
    place_of,
    store_of,
    write_pieces,
)
from statestore.formats.spark.edits.change_file_edits import new_records
from statestore.formats.spark.edits.packed_streams import codec_of, packed
from statestore.formats.spark.edits.stored_edits import PartitionEdit, without_rows
from statestore.formats.spark.edits.zip_edits import write_edited_zip
from statestore.formats.spark.providers.change_files import changelog_lineage
from statestore.formats.spark.providers.partition_load import uid_of

Uids = Mapping[str, list[list[str]]]
_TIME = re.compile(rb'("batchTimestampMs":\s*)(\d{1,18})')


def all_partitions(checkpoint: Checkpoint, edits: Mapping[tuple[int, str, int], PartitionEdit]) -> list[PartitionEdit]:
    """The edits of all partitions of all stores, most of which change nothing."""
    places = [
        (operator.operator_id, store.name, number)
        for operator in checkpoint.operators
        for store in operator.stores
        for number in store.partitions
    ]
    return [edits.get(place) or without_rows(*place) for place in places]


def new_uids(uids: Uids) -> Uids:
    """New ids in place of those that a commit names."""
    return {name: [[str(uuid.uuid4()) for _ in stores] for stores in partitions] for name, partitions in uids.items()}


def write_appended(checkpoint: Checkpoint, edit: PartitionEdit, uids: Uids, target: Target) -> Mapping[str, int]:
    """Write the version after the checkpoint's of a partition; return the sizes of its files by path.

    Raises as `write_amended`.
    """
    partition, batch = partition_of_edit(checkpoint, edit), checkpoint.batch
    kinds = {file.kind: file for file in amended_files(checkpoint, edit)}
    uid = uid_of(partition, uids)
    name = str(batch.version + 1) if uid is None else f"{batch.version + 1}_{uid}"
    path = posixpath.join(place_of(checkpoint, edit), name)
    if checkpoint.provider == "rocksdb" and "changelog" not in kinds:
        path = f"{path}.zip"
        if edit.is_empty:
            return {path: write_pieces(target, path, [partition.folder.read_small(kinds["zip"].name)])}
        return write_edited_zip(partition.folder, kinds["zip"], edit, checkpoint.delimiter, target, path)
    path = f"{path}.{'delta' if checkpoint.provider == 'hdfs' else 'changelog'}"
    typed = checkpoint.provider == "rocksdb" and store_of(checkpoint, edit).has_families
    head = b"" if checkpoint.provider == "hdfs" else _head(checkpoint, edit, kinds, typed)
    pieces = chain([head], new_records(edit, typed, checkpoint.has_checksums))
    return {path: write_pieces(target, path, packed(codec_of(batch), pieces))}


def _head(checkpoint: Checkpoint, edit: PartitionEdit, before: Mapping[str, DataFile], typed: bool) -> bytes:
    """Return what stands before the records of a changelog; ``before`` are the files of the version before by kind."""
    last = before["changelog"]
    if last.uid is None:
        return _utf("v2") if typed else b""
    uids: dict[int, str] = {}
    if "zip" not in before:
        uids = changelog_lineage(partition_of_edit(checkpoint, edit).folder, last)
    uids[last.version] = last.uid
    lineage = [{"version": version, "checkpointUniqueId": uid} for version, uid in sorted(uids.items())]
    return _utf("v4" if typed else "v3") + _utf(json.dumps(lineage, separators=(",", ":")))


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def appended_logs(checkpoint: Checkpoint, uids: Uids) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and bytes of the logs of the new batch, its commit last.

    It read nothing, so its offsets are those of the batch before. Its time is later, as that of the edit is.
    Raises CorruptError SPARK_STATE_FILE for logs without their time or ids.
    """
    root, batch = checkpoint.root, checkpoint.batch.batch_id
    offsets = read_metadata(root.at("offsets"), batch)
    found = _TIME.search(offsets)
    if found is None:
        raise corrupt_file(root.at("offsets", batch).path, "found no batchTimestampMs")
    began = max(int(found[2]) + 1, time.time_ns() // 1_000_000)
    yield f"offsets/{batch + 1}", _TIME.sub(rb"\g<1>%d" % began, offsets, count=1)
    commit = read_metadata(root.at("commits"), batch)
    if uids:
        version, _, text = commit.decode("utf-8", "replace").partition("\n")
        document: dict[str, Any] = parse_json(text, root.at("commits", batch).path)
        document["stateUniqueIds"] = uids
        commit = f"{version}\n{json.dumps(document, separators=(',', ':'))}".encode()
    yield f"commits/{batch + 1}", commit
