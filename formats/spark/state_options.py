"""The options of Spark's own ``statestore`` source, for checkpoints: same spelling, defaults and conflicts.

Three are not Spark's: the types of state without a schema file, and whether to show a batch that was not committed.
They are parsed in `statestore.formats.spark.checkpoint.given_types`. Settings of edits stand here, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from statestore.formats.engine_offer import EngineOption
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

OPTIONS = (
    EngineOption("batchId", "int", "the state after this batch; the same as versionAsOf", alias="versionAsOf"),
    EngineOption("operatorId", "int", "the stateful operator, counted from the sink; 0"),
    EngineOption("storeName", "text", "a store or column family as it is kept; `default`"),
    EngineOption("joinSide", "text", "`left` or `right`, the rows a join has buffered"),
    EngineOption("stateVarName", "text", "a variable of transformWithState"),
    EngineOption("readRegisteredTimers", "bool", "the timers of transformWithState"),
    EngineOption("flattenCollectionTypes", "bool", "a row an element of list and map state; true"),
    EngineOption(
        "snapshotStartBatchId", "int", "build the state on the snapshot of this batch, to get past a damaged one"
    ),
    EngineOption("snapshotPartitionId", "int", "the partition, with snapshotStartBatchId"),
    EngineOption(
        "changeStartBatchId",
        "int",
        "what the batches from this one on wrote to the store; needs readChangeFeed",
        feed=True,
    ),
    EngineOption("changeEndBatchId", "int", "up to this batch, inclusive; the last", feed=True),
    EngineOption(
        "keyType",
        "text",
        "the columns of keys where no schema file says them (Spark 3.0 and earlier): `k int, at timestamp` for all "
        "states, or `left=k int; right=k int`",
        describes=True,
    ),
    EngineOption("valueType", "text", "the columns of values, likewise", describes=True),
    EngineOption(
        "uncommitted",
        "bool",
        "also show the batch that was begun and not committed, once all its state is written; false",
        describes=True,
        unsettled=True,
    ),
)
EDIT_SETTINGS = (
    EngineOption("partitions", "int", "the number of partitions that the query goes on with"),
    EngineOption("provider", "text", "`hdfs` or `rocksdb`, the provider of the state store"),
    EngineOption("changelogs", "bool", "whether RocksDB is to write changelogs"),
    EngineOption("codec", "text", "the codec of state files: `lz4`, `zstd`, `snappy` or `lzf`"),
    EngineOption("compact", "bool", "keep the newest batch alone, without a trace of rows that are deleted"),
    EngineOption(
        "sink",
        "text",
        "the output of the query, which is checked if the edit is a batch; `none` if it has none",
    ),
)
"""What the copies of a checkpoint can be asked to be (`statestore.formats.spark.edit_settings`)."""
JoinSide = Literal["left", "right", "none"]


@dataclass(frozen=True)
class StateSelection:
    """The state that a read selects. ``snapshot``: (batch, partition) to start from.

    ``feed``: (first, last) batch of changes; the last is by default the newest committed one.
    """

    operator_id: int = 0
    store_name: str = "default"
    join_side: JoinSide = "none"
    variable: str | None = None
    timers: bool = False
    flat: bool = True
    batch_id: int | None = None
    snapshot: tuple[int, int] | None = None
    feed: tuple[int, int | None] | None = None


_FEED = "readChangeFeed"
_REQUIRED, _CONFLICT = "STDS_REQUIRED_OPTION_UNSPECIFIED", "STDS_CONFLICT_OPTIONS"
_SIDES: dict[str, JoinSide] = {"left": "left", "right": "right", "none": "none"}


def wrong(found: str, spark_class: str = "STDS_INVALID_OPTION_VALUE") -> InvalidInputError:
    """The error for options of a state read that are wrong or conflict."""
    return InvalidInputError(ErrorCode.STATE_SELECTION, f"option {found} (Spark: {spark_class})")


def selection_of(given: Mapping[str, str]) -> StateSelection | None:
    """The state that the options select; None without any of them.

    Raises InvalidInputError STATE_SELECTION for values that are not allowed and options that do not go together.
    """
    options = {name.lower(): value for name, value in given.items()}
    if not any(option.name.lower() in options for option in OPTIONS if not option.describes):
        return None
    _refuse_conflicts(options)
    return StateSelection(
        operator_id=_number(options, "operatorId") or 0,
        store_name=_text(options, "storeName") or "default",
        join_side=_side(options),
        variable=_text(options, "stateVarName"),
        timers=_flag(options, "readRegisteredTimers", False),
        flat=_flag(options, "flattenCollectionTypes", True),
        batch_id=_number(options, "batchId"),
        snapshot=_snapshot_options(options),
        feed=_feed(options),
    )


def _is_feed(options: Mapping[str, str]) -> bool:
    """Return whether the change feed asked for is Spark's own, batch by batch."""
    return any(option.feed and option.name.lower() in options for option in OPTIONS)


def _refuse_conflicts(options: Mapping[str, str]) -> None:
    side, store = _side(options) != "none", options.get("storename", "default") != "default"
    timers = _flag(options, "readRegisteredTimers", False)
    for first, second, both in (
        ("joinSide", "storeName", side and store),
        ("stateVarName", "readRegisteredTimers", timers and "statevarname" in options),
        ("batchId", "versionAsOf", {"batchid", "versionasof"} <= set(options)),
        ("batchId", "timestampAsOf", {"batchid", "timestampasof"} <= set(options)),
    ):
        if both:
            raise wrong(f"{first} and option {second} exclude each other; give one", _CONFLICT)
    if _is_feed(options):
        if not _flag(options, _FEED, False):
            raise wrong(f"changeStartBatchId or changeEndBatchId needs {_FEED}=true")
        if "changestartbatchid" not in options:
            raise wrong("changeStartBatchId is missing; a change feed needs it", _REQUIRED)
        for name in ("batchId", "snapshotStartBatchId", "snapshotPartitionId"):
            if name.lower() in options:
                raise wrong(f"{name} does not go with {_FEED}; give changeStartBatchId", _CONFLICT)
        if side:
            raise wrong(f"joinSide does not go with {_FEED}; read a storeName", _CONFLICT)


def _feed(options: Mapping[str, str]) -> tuple[int, int | None] | None:
    if not _is_feed(options):
        return None
    first, last = _number(options, "changeStartBatchId"), _number(options, "changeEndBatchId")
    assert first is not None
    if last is not None and last < first:
        raise wrong(f"changeEndBatchId is {last}; expected at least changeStartBatchId, {first}")
    return first, last


def _snapshot_options(options: Mapping[str, str]) -> tuple[int, int] | None:
    batch, partition = _number(options, "snapshotStartBatchId"), _number(options, "snapshotPartitionId")
    if batch is None and partition is None:
        return None
    if batch is None or partition is None:
        missing = "snapshotStartBatchId" if batch is None else "snapshotPartitionId"
        raise wrong(f"{missing} is missing; snapshotStartBatchId and snapshotPartitionId go together", _REQUIRED)
    return batch, partition


def _side(options: Mapping[str, str]) -> JoinSide:
    text = options.get("joinside", "none").lower()
    if text not in _SIDES:
        raise wrong(f"joinSide is {options['joinside']!r}; expected left, right or none")
    return _SIDES[text]


def _text(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower())
    if text is not None and not text.strip():
        raise wrong(f"{name} is empty", "STDS_INVALID_OPTION_VALUE.IS_EMPTY")
    return text


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        raise wrong(f"{name} is {text!r}; expected a whole number")
    if int(text) < 0:
        raise wrong(f"{name} is {text}; expected 0 or more", "STDS_INVALID_OPTION_VALUE.IS_NEGATIVE")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise wrong(f"{name} is {options[name.lower()]!r}; expected true or false")
    return text == "true"
