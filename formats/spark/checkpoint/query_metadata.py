"""Metadata of the query of a checkpoint: the batches, their times and settings, and the stateful operators.

    metadata                                {"id": the query}
    offsets/<batch>                         version line, then watermark, time and settings as JSON, then the sources
    commits/<batch>                         version line, then the next watermark and (format 2) ids of the state files
    state/<operator>/_metadata/metadata     version line, then name and stores as JSON; Spark 3.5 writes none
    state/<operator>/_metadata/v2/<batch>   the same with schema files and properties, valid from that batch on

Batch ``b`` reads state version ``b`` and writes ``b + 1``. A batch without a commit did not happen.

Spark 4.2 and later can repartition the state of a stopped query. The repartition is a batch of its own: its offsets are
those of the batch whose state it copied, with another number of partitions. On request it skips a failed batch: that
batch gets a commit, and its state is not used.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.jobs import Job, JobInput
from statestore.formats.places.folder import NUMBER, Folder
from statestore.formats.spark.checkpoint.checkpoint_files import parse_json, read_log, read_metadata
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, missing
from statestore.formats.values.times import MAX_MS, MIN_MS

SETTINGS = "spark.sql.streaming."
PARTITIONS = "spark.sql.shuffle.partitions"
_COUNT = re.compile(r"[1-9][0-9]{0,9}")
_MOST_SHOWN = 200  # characters of a position
_NOTHING = "-"
_NUMBERED = re.compile(r"(\w+):([\[{\"\d-].*)")  # format 2 of the log; a position is JSON, which begins otherwise
_STORE_NAME = re.compile(r"[\w$-][\w$. -]{0,199}")


@dataclass(frozen=True)
class Batch:
    """A committed batch; times are epoch milliseconds. ``uids[operator][partition][store]`` exist in format 2 only.

    ``version`` is the state version after the batch. ``partitions`` is the number of partitions of a shuffle, which is
    also that of most state. Unless ``logged``, the log has no entry of this batch, and the number is that of a batch
    near it. ``offsets`` are the positions up to which it read, as each source writes them; None where the log has none.
    """

    batch_id: int
    version: int
    partitions: int | None
    logged: bool
    timestamp_ms: int | None
    watermark_ms: int | None
    offsets: tuple[str, ...] | None
    settings: Mapping[str, str] = field(repr=False)
    uids: Mapping[str, list[list[str]]] = field(repr=False)

    def setting(self, name: str, default: str) -> str:
        """A ``spark.sql.streaming.`` setting with which the batch ran."""
        return self.settings.get(SETTINGS + name, default)


@dataclass(frozen=True)
class StoreEntry:
    """A store as the operator metadata describes it; unknown parts are None."""

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


def moves_rows(before: Batch | None, batch: Batch) -> bool:
    """Return whether a batch changed no row: it only repartitioned the state after ``before``, or was skipped."""
    if before is None or not before.logged or not batch.logged:
        return False
    return before.partitions != batch.partitions or before.version == batch.version


def committed_batches(root: Folder) -> list[int]:
    """Ids of the committed batches that are kept, ascending."""
    return root.at("commits").numbered()


def with_batches(root: Folder, batch_ids: Iterable[int]) -> Folder:
    """The root for reading each of these batches; unless they are local, their files are fetched together."""
    remembering = root.remembering()
    logs = remembering.at("commits"), remembering.at("offsets")
    numbers = sorted({number for batch_id in batch_ids for number in (batch_id, batch_id + 1)})
    remembering.fetch(logs)
    remembering.fetch(files=[(log, number) for log in logs for number in numbers if str(number) in log.files()])
    return remembering


def read_batch(root: Folder, batch_id: int, begun: Collection[int] = ()) -> Batch:
    """Read a committed batch, or one of those that were ``begun`` and not committed.

    Raises NotFoundError SPARK_STATE_NOT_FOUND, stating the committed ones, and VERSION_GONE for one that was purged
    since its commit was listed.
    """
    kept = committed_batches(root)
    if batch_id not in kept and batch_id not in begun:
        expected = f"one of {kept[0]} to {kept[-1]}" if kept else "a committed batch, and there is none yet"
        raise missing(f"batch {batch_id} of {root.path}", f"it is not committed; expected {expected}")
    with contextlib.suppress(NotFoundError):
        return _read_batch(root, batch_id, kept)
    # Spark removes the logs of old batches while it commits a new one, and these were listed before. A look at what is
    # there now finds a batch whose commit is left.
    root = root.fresh().remembering()
    kept = committed_batches(root)
    if batch_id in kept:
        return _read_batch(root, batch_id, kept)
    if kept and kept[-1] > batch_id:
        what = f"batch {batch_id} of {root.path} is gone: the query purged it as it went on to batch {kept[-1]}"
        raise NotFoundError(ErrorCode.VERSION_GONE, f"{what}; read again")
    raise missing(f"batch {batch_id} of {root.path}", "its logs were removed while they were read; read again")


def _read_batch(root: Folder, batch_id: int, kept: Sequence[int]) -> Batch:
    logged = root.at("offsets").numbered()
    state = _state_of(root, batch_id, logged)
    # After a batch that was skipped, the state is that of the batch before it.
    commit = _document(root.at("commits"), state) if state in kept else {}
    # If the offsets of a batch are gone, so are its times. Settings that concern state never change in a query's life.
    offsets = _document(root.at("offsets"), batch_id) if batch_id in logged else {}
    near = next((number for number in logged if number > batch_id), logged[-1] if logged else None)
    settings = _settings(root, offsets if offsets or near is None else _document(root.at("offsets"), near), batch_id)
    uids = commit.get("stateUniqueIds") or {}
    if not isinstance(uids, dict) or not all(isinstance(listed, list) for listed in uids.values()):
        raise corrupt_file(root.at("commits", state).path, "expected stateUniqueIds to be an object of arrays")
    moments = _moment(offsets.get("batchTimestampMs")), _moment(offsets.get("batchWatermarkMs"))
    sources = _sources(root.at("offsets"), batch_id) if batch_id in logged else None
    return Batch(batch_id, state + 1, _partitions(settings), batch_id in logged, *moments, sources, settings, uids)


def _sources(folder: Folder, batch_id: int) -> tuple[str, ...]:
    """Return the position of each source after a batch; ``-`` stands for a source that had none yet."""
    lines = read_metadata(folder, batch_id).decode("utf-8", "replace").rstrip("\n").split("\n")
    return tuple(line.strip() for line in lines[2:])


def _settings(root: Folder, offsets: Mapping[str, Any], batch_id: int) -> dict[str, str]:
    conf = offsets.get("conf") or {}
    if not isinstance(conf, dict):
        raise corrupt_file(f"{root.path}: offsets of batch {batch_id}", "expected conf to be an object")
    return {name: str(value) for name, value in conf.items()}


def _partitions(settings: Mapping[str, str]) -> int | None:
    text = settings.get(PARTITIONS, "")
    return int(text) if _COUNT.fullmatch(text) else None


def _state_of(root: Folder, batch_id: int, logged: Sequence[int]) -> int:
    """The batch whose state is current after a batch: itself, or the one before it if a repartition skipped it.

    A repartition that skips no batch has the offsets of the batch before it.
    """
    after = batch_id + 1
    if not batch_id or batch_id not in logged or after not in logged:
        return batch_id
    try:
        mine, theirs = (_progress(root, number) for number in (batch_id, after))
    except StateStoreError:  # purged, or never written in whole: then no later batch was committed
        return batch_id
    if mine.partitions == theirs.partitions or mine.offsets == theirs.offsets:
        return batch_id
    before = batch_id - 1
    skipped = _progress(root, before).offsets == theirs.offsets if before in logged else theirs.began < mine.began
    return before if skipped else batch_id


@dataclass(frozen=True)
class _Progress:
    """The progress of a batch, which is all that a repartition copies."""

    partitions: int | None
    began: int
    offsets: tuple[Any, ...]


def _progress(root: Folder, batch_id: int) -> _Progress:
    folder = root.at("offsets")
    document = _document(folder, batch_id)
    sources = read_metadata(folder, batch_id).split(b"\n")[2:]
    moments = _moment(document.get("batchTimestampMs")), _moment(document.get("batchWatermarkMs"))
    return _Progress(_partitions(_settings(root, document, batch_id)), moments[0] or 0, (*moments, *sources))


def _whole(number: Any) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _moment(number: Any) -> int | None:
    """Epoch milliseconds within the years 1 to 9999; None for anything else."""
    milliseconds = _whole(number)
    return milliseconds if milliseconds is not None and MIN_MS <= milliseconds <= MAX_MS else None


def _document(folder: Folder, batch_id: int) -> Mapping[str, Any]:
    return folder.once(("log", batch_id), lambda: _read_document(folder, batch_id))


def _read_document(folder: Folder, batch_id: int) -> dict[str, Any]:
    documents = read_log(folder, batch_id)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise corrupt_file(f"{folder.path}/{batch_id}", "expected a JSON object on line 2")
    return documents[0]


def operator_ids(root: Folder) -> list[int]:
    """The numbers of the stateful operators; 0 is the one next to the sink."""
    state = root.at("state")
    return sorted(int(name) for name in state.folders() if NUMBER.fullmatch(name) and not _is_trace(state.at(name)))


def _is_trace(operator: Folder) -> bool:
    """Return whether a folder is only what a read left behind.

    Spark's own state source makes folders for the schema of an operator before it refuses one that does not exist:
    Spark 4.1 leaves them in the checkpoint.
    """
    return operator.folders() == ["0"] and not holds_files(operator.at("0"))


def holds_files(partition: Folder) -> bool:
    """Return whether the folder of a partition or store has files, of data or of its schema."""
    inner = (partition.at(name) for name in partition.folders())
    return bool(partition.files()) or any(each.files() or each.at("_metadata").files() for each in inner)


def read_operator(root: Folder, operator_id: int, batch_id: int) -> OperatorEntry:
    """Read the metadata of an operator that is valid for a batch."""
    folder = root.at("state", operator_id, "_metadata")
    since = [number for number in folder.at("v2").numbered() if number <= batch_id]
    if since:
        return _entry(folder.at("v2"), str(since[-1]), operator_id)
    if "metadata" in folder.files():
        return _entry(folder, "metadata", operator_id)
    return OperatorEntry(operator_id, "", (), {})


def _entry(folder: Folder, name: str, operator_id: int) -> OperatorEntry:
    path = f"{folder.path}/{name}"
    documents = read_log(folder, name)
    try:
        document = documents[0]
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


def _store_name(name: Any, path: str) -> str:
    """The name of a folder, checked to stay inside the checkpoint."""
    if not isinstance(name, str) or not _STORE_NAME.fullmatch(name):
        raise corrupt_file(path, f"found a store named {str(name)[:80]!r}, expected a plain name such as default")
    return name


def query_job(query_id: str, batch: Batch) -> Job:
    """Return the query as of a batch as a job: its sources, with their positions from the log of offsets."""
    unrecorded = "Which operator feeds which is not recorded in the checkpoint; their numbers count from the sink."
    offsets = batch.offsets
    inputs = None if offsets is None else tuple(_source(number, line) for number, line in enumerate(offsets))
    return Job(f"query {query_id}" if query_id else "query", unrecorded, inputs=inputs)


def _source(number: int, line: str) -> JobInput:
    numbered = _NUMBERED.fullmatch(line)
    name, position = numbered.groups() if numbered else (str(number), line)
    if position == _NOTHING:
        return JobInput(f"source {name}", "nothing read yet")
    shown = position if len(position) <= _MOST_SHOWN else position[:_MOST_SHOWN] + "…"
    return JobInput(f"source {name}", f"read up to {shown}")
