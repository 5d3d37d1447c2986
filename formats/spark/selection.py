"""Selection of the state to read: the options of Spark's own ``statestore`` source, with its defaults.

Conflicts and wrong values are refused as in Spark (``StateSourceOptions``). Messages name Spark's error classes, so
that users who know these find them.
"""

from __future__ import annotations

from dataclasses import replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.locations import Location
from statestore.formats.spark.checkpoint.checkpoint import DEFAULT_STORE, Checkpoint, Operator
from statestore.formats.spark.checkpoint.given_types import Given
from statestore.formats.spark.checkpoint.opened_checkpoints import open_now
from statestore.formats.spark.checkpoint.state_views import TIMERS, StateView, state_views
from statestore.formats.spark.feed_source import FeedSource
from statestore.formats.spark.source import CheckpointSource, state_name
from statestore.formats.spark.state_at import Shown
from statestore.formats.spark.state_options import StateSelection, wrong
from statestore.formats.spark.unrecorded_state import check_given


def selected_source(location: Location, selection: StateSelection, given: Given) -> CheckpointSource | FeedSource:
    """A source with the one selected state.

    Raises InvalidInputError STATE_SELECTION for options that do not go together or with this checkpoint, and
    NotFoundError SPARK_STATE_NOT_FOUND for a batch that is not committed.
    """
    newest = open_now(location, given=given)
    check_given(newest)
    checkpoint = open_now(location, _batch(newest, location, selection), newest)
    operator = _operator(checkpoint, selection)
    state_view = _state_view(checkpoint, operator, selection)
    name = state_name(checkpoint, operator, state_view)
    if selection.feed is not None:
        first, last = selection.feed[0], checkpoint.batch.batch_id
        if first > last:
            raise wrong(f"changeStartBatchId is {first}; expected at most the last batch, {last}")
        return FeedSource(location, checkpoint, replace(state_view, flat=selection.flat), first, name)
    if selection.snapshot is not None:
        _check_snapshot_options(checkpoint, state_view, *selection.snapshot)
    kind = operator.name or "Spark state"
    shown = Shown(operator.operator_id, state_view.name, kind, selection.flat, selection.snapshot)
    return CheckpointSource(location, newest, {name: shown})


def _batch(newest: Checkpoint, location: Location, selection: StateSelection) -> int | None:
    number = selection.batch_id if selection.feed is None else selection.feed[1]
    batches = newest.batches
    if number is not None and number not in batches:
        name = "batchId" if selection.feed is None else "changeEndBatchId"
        raise NotFoundError(
            ErrorCode.VERSION_NOT_FOUND,
            f"option {name} is {number}; {location} has the committed batches {batches[0]} to {batches[-1]} "
            "(Spark: STDS_COMMITTED_BATCH_UNAVAILABLE)",
        )
    return number


def _operator(checkpoint: Checkpoint, selection: StateSelection) -> Operator:
    for operator in checkpoint.operators:
        if operator.operator_id == selection.operator_id:
            return operator
    listed = ", ".join(str(operator.operator_id) for operator in checkpoint.operators) or "none"
    raise wrong(
        f"operatorId is {selection.operator_id}; {checkpoint.root.path} has the stateful operators {listed}",
        "STDS_FAILED_TO_READ_STATE_SCHEMA",
    )


def _state_view(checkpoint: Checkpoint, operator: Operator, selection: StateSelection) -> StateView:
    by_name = {state_view.name: state_view for state_view in state_views(checkpoint, operator)}
    if selection.timers or selection.variable is not None:
        return _of_variables(operator, selection, by_name)
    if selection.join_side != "none":
        if selection.join_side not in by_name:
            raise wrong(f"joinSide is {selection.join_side}; operator {_called(operator)} is no stream-stream join")
        return by_name[selection.join_side]
    if selection.store_name not in by_name:
        raise _no_store(operator, selection, by_name)
    return by_name[selection.store_name]


def _of_variables(operator: Operator, selection: StateSelection, by_name: dict[str, StateView]) -> StateView:
    if selection.timers:
        if TIMERS not in by_name:
            raise wrong(f"readRegisteredTimers is true; operator {_called(operator)} keeps no timers")
        return by_name[TIMERS]
    if selection.variable not in operator.variables or selection.variable not in by_name:
        listed = ", ".join(operator.variables) or "none"
        raise wrong(
            f"stateVarName is {selection.variable!r}; the state variables of operator {_called(operator)} are {listed}"
        )
    return by_name[str(selection.variable)]


def _no_store(operator: Operator, selection: StateSelection, by_name: dict[str, StateView]) -> InvalidInputError:
    if selection.store_name == DEFAULT_STORE and operator.variables:
        listed = ", ".join(operator.variables)
        return wrong(
            f"stateVarName is missing: operator {_called(operator)} has the state variables {listed}; name one, or say "
            "readRegisteredTimers=true",
            "STDS_REQUIRED_OPTION_UNSPECIFIED",
        )
    if selection.store_name == DEFAULT_STORE and {"left", "right"} & set(by_name):
        return wrong(
            f"joinSide is missing: operator {_called(operator)} is a join; say left or right, or give storeName",
            "STDS_FAILED_TO_READ_STATE_SCHEMA",
        )
    return wrong(
        f"storeName is {selection.store_name!r}; operator {_called(operator)} has {', '.join(by_name)}",
        "STDS_FAILED_TO_READ_STATE_SCHEMA",
    )


def _check_snapshot_options(checkpoint: Checkpoint, state_view: StateView, batch_id: int, partition: int) -> None:
    if batch_id > checkpoint.batch.batch_id:
        raise wrong(f"snapshotStartBatchId is {batch_id}; expected at most the batch read, {checkpoint.batch.batch_id}")
    if partition not in state_view.store.partitions:
        listed = ", ".join(map(str, state_view.store.partitions))
        raise wrong(
            f"snapshotPartitionId is {partition}; expected one of the partitions {listed}",
            "CANNOT_LOAD_STATE_STORE.SNAPSHOT_PARTITION_ID_NOT_FOUND",
        )


def _called(operator: Operator) -> str:
    return f"{operator.operator_id} ({operator.name})" if operator.name else str(operator.operator_id)
