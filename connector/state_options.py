"""The options of Spark's own ``statestore`` source, for checkpoints: same spelling, defaults and conflicts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from statestore.catalog.engines.checkpoint_selection import JoinSide, StateSelection, wrong

NAMES = (
    "batchId",
    "operatorId",
    "storeName",
    "joinSide",
    "snapshotStartBatchId",
    "snapshotPartitionId",
    "changeStartBatchId",
    "changeEndBatchId",
    "stateVarName",
    "readRegisteredTimers",
    "flattenCollectionTypes",
)
_FEED = "readChangeFeed"
_REQUIRED, _CONFLICT = "STDS_REQUIRED_OPTION_UNSPECIFIED", "STDS_CONFLICT_OPTIONS"
_SIDES: dict[str, JoinSide] = {"left": "left", "right": "right", "none": "none"}


def selection_of(given: Mapping[str, str]) -> StateSelection | None:
    """What the options select; None if there is none of them.

    Raises InvalidInputError STATE_SELECTION for values that are not allowed and options that do not go together.
    """
    options = {name.lower(): value for name, value in given.items()}
    if not any(name.lower() in options for name in NAMES):
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
        snapshot=_snapshot(options),
        feed=_feed(options),
    )


def is_state_feed(given: Mapping[str, str]) -> bool:
    """Whether the change feed asked for is that of Spark's source, batch by batch, and not ours."""
    return any(name.lower() in ("changestartbatchid", "changeendbatchid") for name in given)


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
    if is_state_feed(options):
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
    if not is_state_feed(options):
        return None
    first, last = _number(options, "changeStartBatchId"), _number(options, "changeEndBatchId")
    assert first is not None
    if last is not None and last < first:
        raise wrong(f"changeEndBatchId is {last}; expected at least changeStartBatchId, {first}")
    return first, last


def _snapshot(options: Mapping[str, str]) -> tuple[int, int] | None:
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
