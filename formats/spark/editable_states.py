"""Which states can be edited row by row, and which edits Spark would undo at once.

Where rows of several families or stores belong together (the numbered rows of a join and their count, entries of lists
and their counter, times to live and their index), an edit of one without the others would break the query. They are
edited together (``join_edits``, ``variable_edits``); where it is not known which rows these are, the state is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Operator
from statestore.formats.spark.checkpoint.checkpoint_files import parse_json, read_log
from statestore.formats.spark.checkpoint.spark_schema import BINARY, VOID, Field, StructOf
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.key_lookup import SESSION_START, is_session
from statestore.formats.values.without_pandas import arrow_scalar, bools, without_nulls

_ALONE = (
    "stateStoreSave",
    "dedupe",
    "dedupeWithinWatermark",
    "sessionWindowStateStoreSaveExec",
    "flatMapGroupsWithState",
    "applyInPandasWithState",
    "",  # Spark 3.5 names no operators
)
"""The operators each of whose rows stands alone."""
_BUFFERED = ("stateStoreSave", "sessionWindowStateStoreSaveExec", "")
_BUFFER = "buf"  # the column of an aggregate whose buffer only its own code reads
COUNTS, NUMBERED = "keyToNumValues", "keyWithIndexToValue"
BY_TIME, TIMES_OF_KEYS = "keyWithTsToValues", "tsWithKey"
"""The kinds of stores or families of a side of a join."""
_DELAY = "spark.watermarkDelayMs"
_EXPIRES = "expiresAtMicros"
EXPIRES_MS = "ttlExpirationMs"
TIMES = ("expirationMs", "expiryTimestampMs")
"""The first columns of families by which Spark finds what has expired, and timers that are due."""
_TTL, _TIMERS = "$ttl_", ("$procTimers", "$eventTimers")
_ERASED_WHOLE = "delete the row in one edit, and insert it in whole in a second one"


def check_editable(checkpoint: Checkpoint, name: str, state_view: StateView) -> None:
    """Raise UnsupportedError EDIT_UNSUPPORTED for a state whose rows cannot be edited one by one."""
    operator = checkpoint.operator(state_view.operator_id)
    found = _reason(operator, state_view)
    if found:
        reason, advice = found
        raise not_editable(f"state {name} of {checkpoint.root.path} cannot be edited: {reason}; {advice}")
    state_view.store.check_partitions(checkpoint.root.path)


def _reason(operator: Operator, view: StateView) -> tuple[str, str] | None:
    """(why rows of a state view cannot be edited, what to do); None where they can."""
    if not view.family.recorded or view.family.opaque:
        return "no schema file says its types, so it is read by guess", "restore the schema file from a copy"
    if view.shape == "join-side":
        return _reason_of_side(operator, view)
    if not view.flat:
        return "whole collections are shown", "leave out flattenCollectionTypes=false"
    if operator.variables:
        return _reason_of_variable(view)
    if operator.name not in _ALONE or not view.user:
        return f"its operator is {operator.name or 'unknown'}", f"expected one of {', '.join(filter(None, _ALONE))}"
    is_unknown = view.store.prefix_columns is None and SESSION_START in view.family.key.names
    if is_unknown and not is_session(view.store, view.family):
        return "Spark 3.5 did not record how its keys are stored", "let Spark 4.0 or later run a batch of the query"
    return None


def _reason_of_side(operator: Operator, view: StateView) -> tuple[str, str] | None:
    recorded = {
        family.name if store.has_families else store.name: family.recorded
        for store in operator.stores
        for family in store.families
    }
    if view.family.name.endswith(BY_TIME):
        return _reason_of_times(view)
    for kind in (COUNTS, NUMBERED):
        if not recorded.get(f"{view.name}-{kind}"):
            return f"no schema says how {view.name}-{kind} is stored", "restore its schema file from a copy"
    return None


def _reason_of_times(view: StateView) -> tuple[str, str] | None:
    """As `_reason` for a side of a join of state format 4, of which releases of Spark have several forms."""
    times = next((family for family in view.store.families if family.name == f"{view.name}-{TIMES_OF_KEYS}"), None)
    if times is None or not times.recorded or [field.type for field in times.value.fields] != [VOID]:
        found = "no schema" if times is None or not times.recorded else f"the columns {', '.join(times.value.names)}"
        return (
            f"of {view.name}-{TIMES_OF_KEYS}, whose rows follow, found {found}, expected one column without values",
            "let the query change it, or edit one of join state format 3",
        )
    return None


def _reason_of_variable(view: StateView) -> tuple[str, str] | None:
    if not view.user:
        return "Spark keeps it for itself", "edit the variable, and its rows follow"
    families = {family.name: family for family in view.store.families}
    for name in companions_of(view):
        family = families.get(name)
        if family is None or not family.recorded:
            return f"no schema says how {name}, whose rows follow, is stored", "restore its schema file from a copy"
        if name.startswith((_TTL, *_TIMERS)) and (len(family.key.fields) != 2 or family.key.names[0] not in TIMES):
            return (
                f"{name}, whose rows follow, has the columns {', '.join(family.key.names)}, expected one of "
                f"{' or '.join(TIMES)}, and the key",
                "let a later release of Spark run the query anew",
            )
    if f"{_TTL}{view.name}" in families and view.value.names != ("value", EXPIRES_MS):
        return (
            f"its rows expire, and have the columns {', '.join(view.value.names)}, expected value, {EXPIRES_MS}",
            "restore its schema file from a copy",
        )
    return None


def companions_of(view: StateView) -> tuple[str, ...]:
    """The families that have rows for those of a variable of transformWithState, or of its timers."""
    families, name = {family.name for family in view.store.families}, view.name
    if view.shape == "timers":
        return (view.family.name.replace("_keyToTimestamp", "_timestampToKey"),)
    expires = f"{_TTL}{name}" in families
    if view.shape != "list":
        return (f"{_TTL}{name}",) if expires else ()
    if expires:
        return (f"$count_{name}", f"$min_{name}", f"{_TTL}{name}")
    counter = f"$rowCounter_{name}"
    return (counter,) if counter in families else ()


def check_buffers(name: str, operator: Operator, state_view: StateView, before: pa.Array, after: pa.Array) -> None:
    """Raise InvalidInputError EDIT_REFUSED if buffers of aggregates, as only Spark's code writes them, are changed.

    ``before`` and ``after`` are the values of the same rows.
    """
    if operator.name not in _BUFFERED or not len(before):
        return
    for number, field in enumerate(state_view.value.fields):
        if field.type != BINARY or field.name.partition("_")[0] != _BUFFER:
            continue
        differs = pc.not_equal(pc.struct_field(before, [number]), pc.struct_field(after, [number]))
        changed = pc.coalesce(differs, pc.is_null(differs))
        if pc.any(changed).as_py():
            raise refused(
                f"state {name}: value.{field.name} is the buffer of an aggregate that only Spark can compute, and the "
                f"edit changes it in {pc.sum(changed).as_py()} rows; {_ERASED_WHOLE}",
            )


# What the watermark removes


def next_watermark(checkpoint: Checkpoint) -> int:
    """The watermark of the next batch, in epoch milliseconds; 0: there is none."""
    batch = checkpoint.batch.batch_id
    document = read_log(checkpoint.root.at("commits"), batch)[0]
    found = document.get("nextBatchWatermarkMs") if isinstance(document, dict) else None
    return found if type(found) is int else 0


def late_rows(state_view: StateView, rows: pa.Table, watermark_ms: int) -> Bools:
    """Return which rows a batch with a watermark removes, because their time has passed."""
    late = np.zeros(rows.num_rows, np.bool_)
    if not watermark_ms:
        return late
    limit = arrow_scalar(watermark_ms * 1000, pa.int64())
    for times in _event_times(state_view, rows):
        late |= bools(without_nulls(pc.less_equal(times, limit)))
    return late


def _event_times(view: StateView, rows: pa.Table) -> Iterator[pa.Array]:
    """Yield the times by which Spark removes rows, as microseconds."""
    if view.shape not in ("rows", "join-side"):
        return
    for column, schema in ((0, view.family.key), (1, view.value)):
        cells = rows.column(column).combine_chunks()
        for number, field in enumerate(schema.fields):
            if field.name == _EXPIRES and column == 1:
                yield pc.struct_field(cells, [number])
            elif has_delay(field):
                is_window = isinstance(field.type, StructOf) and field.type.names == ("start", "end")
                yield pc.struct_field(cells, [number, 1] if is_window else [number]).cast(pa.int64())


def has_delay(field: Field) -> bool:
    """Return whether a column has a watermark."""
    try:
        found = parse_json(field.metadata, field.name)
    except StateStoreError:
        return False
    return isinstance(found, dict) and _DELAY in found
