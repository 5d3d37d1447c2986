"""Metadata of a checkpoint whose newest batch has another number of partitions, another provider or codec.

A query that starts takes these from the settings in the newest log of offsets, and not from its session. Operator
metadata has the number of partitions, and the commit, in checkpoint format 2, the name of each partition's files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from statestore.formats.places.folder import Folder
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Operator
from statestore.formats.spark.checkpoint.checkpoint_files import parse_json, read_metadata
from statestore.formats.spark.checkpoint.state_errors import corrupt_file
from statestore.formats.spark.edits.copied_files import metadata_paths, moved_metadata

_UIDS = "stateUniqueIds"
_STORES, _PARTITIONS = "stateStoreInfo", "numPartitions"


def rescaled_metadata(
    checkpoint: Checkpoint,
    settings: Mapping[str, str],
    partitions: int | None,
    uids: Mapping[str, list[list[str]]],
    target: str,
) -> dict[str, bytes]:
    """The bytes of the files that change, by path below the root, for a checkpoint at ``target``; the newest commit
    comes last.

    ``settings`` are those that change, by their whole names. ``partitions`` is None where their number stays. Raises
    CorruptError SPARK_STATE_FILE for files that are not as Spark writes them.
    """
    root, batch = checkpoint.root, checkpoint.batch.batch_id
    found = {path: moved_metadata(root, path, target) for path in metadata_paths(root)}
    for operator in checkpoint.operators:
        for path in _current_paths(root, operator, batch):
            content = found.get(path) or _read(root, path)
            found[path] = _with_partitions(content, operator, partitions, root.at(*path.split("/")).path)
    for number in root.at("offsets").numbered():
        if number >= batch:
            path = f"offsets/{number}"
            found[path] = _with_settings(_read(root, path), settings, root.at(*path.split("/")).path)
    commit = f"commits/{batch}"
    content = _read(root, commit)
    found[commit] = _with_uids(content, uids, root.at(*commit.split("/")).path) if uids else content
    return found


def rescaled_paths(checkpoint: Checkpoint) -> list[str]:
    """The paths of the files of `rescaled_metadata`."""
    root, batch = checkpoint.root, checkpoint.batch.batch_id
    of_operators = [path for operator in checkpoint.operators for path in _current_paths(root, operator, batch)]
    offsets = [f"offsets/{number}" for number in root.at("offsets").numbered() if number >= batch]
    return [*metadata_paths(root), *of_operators, *offsets, f"commits/{batch}"]


def _current_paths(root: Folder, operator: Operator, batch: int) -> list[str]:
    """The metadata of an operator that is valid for a batch or one after it."""
    place = f"state/{operator.operator_id}/_metadata"
    folder = root.at("state", operator.operator_id, "_metadata")
    numbers = folder.at("v2").numbered()
    current = max((number for number in numbers if number <= batch), default=None)
    found = [f"{place}/v2/{number}" for number in numbers if number == current or number > batch]
    return [*found, f"{place}/metadata"] if "metadata" in folder.files() else found


def _read(root: Folder, path: str) -> bytes:
    *folders, name = path.split("/")
    return read_metadata(root.at(*folders), name)


def _changed(content: bytes, path: str, what: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The bytes of a log with a change of the document on its second line."""
    version, _, rest = content.partition(b"\n")
    text, end, others = rest.partition(b"\n")
    document = parse_json(text.decode("utf-8", "replace"), path)
    try:
        change(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise corrupt_file(path, f"expected {what} in a JSON object on line 2") from error
    made = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return version + b"\n" + made + end + others


def _with_settings(content: bytes, settings: Mapping[str, str], path: str) -> bytes:
    if not settings:
        return content

    def change(document: dict[str, Any]) -> None:
        document["conf"].update(settings)

    return _changed(content, path, "conf", change)


def _with_partitions(content: bytes, operator: Operator, partitions: int | None, path: str) -> bytes:
    if partitions is None:
        return content
    single = {store.name: store.written.single for store in operator.stores}

    def change(document: dict[str, Any]) -> None:
        for store in document[_STORES]:
            recorded = store.get(_PARTITIONS)
            if recorded is not None and not (single.get(store.get("storeName")) and recorded == 1):
                store[_PARTITIONS] = partitions

    return _changed(content, path, f"{_STORES} with {_PARTITIONS}", change)


def _with_uids(content: bytes, uids: Mapping[str, list[list[str]]], path: str) -> bytes:
    def change(document: dict[str, Any]) -> None:
        document[_UIDS] = {**document[_UIDS], **uids}

    return _changed(content, path, _UIDS, change)
