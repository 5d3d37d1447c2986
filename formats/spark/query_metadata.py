"""What a checkpoint says about its query: the batches, their times and settings, and the stateful operators.

    metadata                                {"id": the query}
    offsets/<batch>                         version line, then watermark, time and settings as JSON, then the sources
    commits/<batch>                         version line, then the next watermark and (format 2) ids of the state files
    state/<operator>/_metadata/metadata     version line, then name and stores as JSON; Spark 3.5 writes none
    state/<operator>/_metadata/v2/<batch>   the same with schema files and properties, valid from that batch on

Batch ``b`` reads state version ``b`` and writes ``b + 1``. A batch without a commit did not happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from statestore.formats.spark.checkpoint_files import NUMBER, Folder, parse_json
from statestore.formats.spark.damage import corrupt_file, missing
from statestore.formats.times import MAX_MS, MIN_MS

_PREFIX = "spark.sql.streaming."
_STORE_NAME = re.compile(r"[\w$-][\w$. -]{0,199}")


@dataclass(frozen=True)
class Batch:
    """A committed batch; times are epoch milliseconds. ``uids[operator][partition][store]`` exist in format 2 only."""

    batch_id: int
    timestamp_ms: int | None
    watermark_ms: int | None
    settings: Mapping[str, str] = field(repr=False)
    uids: Mapping[str, list[list[str]]] = field(repr=False)

    @property
    def version(self) -> int:
        """The state version it wrote."""
        return self.batch_id + 1

    def setting(self, name: str, default: str) -> str:
        """A ``spark.sql.streaming.`` setting the batch ran with."""
        return self.settings.get(_PREFIX + name, default)


@dataclass(frozen=True)
class StoreEntry:
    """A store as the operator metadata names it; unknown parts are None."""

    name: str
    prefix_columns: int | None
    partitions: int | None
    schema_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorEntry:
    """Operator metadata; ``name`` is empty and there are no stores where Spark wrote none."""

    operator_id: int
    name: str
    stores: tuple[StoreEntry, ...]
    properties: Mapping[str, Any]


def committed_batches(root: Folder) -> list[int]:
    """Ids of the committed batches that are kept, ascending."""
    return root.at("commits").numbered()


def with_batches(root: Folder, batch_ids: Iterable[int]) -> Folder:
    """The root for a `read_batch` of each: unless they are local, what they read is fetched at once."""
    remembering = root.remembering()
    logs = remembering.at("commits"), remembering.at("offsets")
    remembering.fetch(logs, [(log, batch_id) for log in logs for batch_id in batch_ids])
    return remembering


def read_batch(root: Folder, batch_id: int) -> Batch:
    """A committed batch. Raises NotFoundError SPARK_STATE_NOT_FOUND, stating the committed ones."""
    kept = committed_batches(root)
    if batch_id not in kept:
        expected = f"one of {kept[0]} to {kept[-1]}" if kept else "a committed batch, and there is none yet"
        raise missing(f"batch {batch_id} of {root.path}", f"it is not committed; expected {expected}")
    commit = _document(root.at("commits"), batch_id)
    logged = root.at("offsets").numbered()
    # Should the offsets of a batch be gone, its times are; settings that concern state stay with a query for life.
    offsets = _document(root.at("offsets"), batch_id) if batch_id in logged else {}
    found = (offsets or (_document(root.at("offsets"), logged[-1]) if logged else {})).get("conf") or {}
    uids = commit.get("stateUniqueIds") or {}
    if not isinstance(uids, dict) or not isinstance(found, dict):
        where = f"{root.path}: commits and offsets of batch {batch_id}"
        raise corrupt_file(where, "expected stateUniqueIds and conf to be objects")
    settings = {name: str(value) for name, value in found.items()}
    return Batch(
        batch_id, _moment(offsets.get("batchTimestampMs")), _moment(offsets.get("batchWatermarkMs")), settings, uids
    )


def _whole(number: Any) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _moment(number: Any) -> int | None:
    """Epoch milliseconds within the years 1 to 9999; None for anything else."""
    found = _whole(number)
    return found if found is not None and MIN_MS <= found <= MAX_MS else None


def _document(folder: Folder, batch_id: int) -> dict[str, Any]:
    found = folder.read_log(batch_id)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise corrupt_file(f"{folder.path}/{batch_id}", "expected a JSON object on line 2")
    return found[0]


def operator_ids(root: Folder) -> list[int]:
    """The numbers of the stateful operators; 0 is the one next to the sink."""
    return sorted(int(name) for name in root.at("state").folders() if NUMBER.fullmatch(name))


def read_operator(root: Folder, operator_id: int, batch_id: int) -> OperatorEntry:
    """The metadata of an operator that is valid for a batch."""
    folder = root.at("state", operator_id, "_metadata")
    since = [number for number in folder.at("v2").numbered() if number <= batch_id]
    if since:
        return _entry(folder.at("v2"), str(since[-1]), operator_id)
    if "metadata" in folder.files():
        return _entry(folder, "metadata", operator_id)
    return OperatorEntry(operator_id, "", (), {})


def _entry(folder: Folder, name: str, operator_id: int) -> OperatorEntry:
    path = f"{folder.path}/{name}"
    found = folder.read_log(name)
    try:
        document = found[0]
        properties = document.get("operatorPropertiesJson") or "{}"
        stores = tuple(
            StoreEntry(
                _store_name(store["storeName"], path),
                _whole(store.get("numColsPrefixKey")),
                _whole(store.get("numPartitions")),
                tuple(str(file) for file in store.get("stateSchemaFilePaths") or ()),
            )
            for store in document["stateStoreInfo"]
        )
        parsed = parse_json(properties, path)
        if not isinstance(parsed, dict):
            raise corrupt_file(path, "expected operatorPropertiesJson to be an object")
        return OperatorEntry(operator_id, str(document["operatorInfo"]["operatorName"]), stores, parsed)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise corrupt_file(path, "expected operatorInfo and stateStoreInfo as JSON on line 2") from error


def _store_name(found: Any, path: str) -> str:
    """The name of a folder, which must stay inside the checkpoint."""
    if not isinstance(found, str) or not _STORE_NAME.fullmatch(found):
        raise corrupt_file(path, f"found a store named {str(found)[:80]!r}, expected a plain name such as default")
    return found
