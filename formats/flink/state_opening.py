"""A state in one snapshot, from what is listed of it: how its rows are read, how many bytes it has, and which of its
columns a user may give types for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statestore.formats.engine import StateAt, StateFile, StateSize
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.flink.element_forms import enumerator_bytes
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import DAMAGED, MISSING, handles_bytes
from statestore.formats.flink.snapshot_states import OpenedSnapshot, ShownState
from statestore.formats.flink.state_at import UNREADABLE, CoordinatorAt, ElementsAt, KeyedAt, Origin, UnreadableAt
from statestore.formats.flink.streams.operator_rows import COORDINATOR, OperatorForm
from statestore.formats.flink.streams.state_form import MAP_VALUE, VALUE, KeyedForm, assumption


def state_in(
    origin: Origin, version: int, snapshot: OpenedSnapshot, wanted: ShownState, operator: OperatorSnapshot
) -> StateAt:
    """The state in a snapshot. One that was not registered yet, or not any more, has no rows.

    ``operator`` is that of the snapshot, or where it lacks the operator, that of the newest one.
    """
    label = f"{snapshot.files.path}, state {wanted.name}"
    own = snapshot.operator(wanted.identity[0])
    found = None if own is None else snapshot.states().get(wanted.identity)
    error = None if found is None else found.error
    if found is None and own is not None:
        error = snapshot.error_of(own.id)
    if error is not None:
        known = found or wanted
        return UnreadableAt(version, error, UNREADABLE if known.form is None else known.schema)
    known = wanted if found is None else found
    form, files, code = known.form, snapshot.files, snapshot.settings.code
    label += "" if form is None else assumption(form.map_key if isinstance(form, KeyedForm) else form.key)
    stored = None if own is None else snapshot.stored(own.id)
    if isinstance(form, KeyedForm):
        places: Sequence[Any] = ()
        if found is not None and stored is not None:
            places = (*stored.keyed, *(stored.timers if form.kind == "timers" else ()))
        key = None if found is None else found.key
        groups, others = operator.max_parallelism, snapshot.keyed_forms(operator.id)
        read = tuple((each, known.form_in(each)) for each in places)
        return KeyedAt(origin, version, files, operator, form, known.schema, key, groups, read, label, others, code)
    assert isinstance(form, OperatorForm)
    if form.mode == COORDINATOR:
        content = None if stored is None else enumerator_bytes(operator)
        return CoordinatorAt(origin, version, files, operator, form, content, label)
    elements = () if found is None or stored is None else stored.elements
    if form.key is not None:  # every subtask has the whole map
        holders = [each for each in elements if any(state.name == form.name for state in each.handle.states)]
        elements = tuple(holders[:1])
    return ElementsAt(origin, version, files, operator, form, tuple(elements), label, code)


def state_size(
    snapshot: OpenedSnapshot,
    operator: OperatorSnapshot,
    found: ShownState,
    files: Sequence[StateFile],
    broken: CorruptError | None,
    incomplete: Sequence[str],
    *,
    alone: bool,
) -> StateSize:
    """The bytes of an operator's state in its ``files``, and what is wrong with them.

    ``broken`` is the error of a newer checkpoint, ``incomplete`` are those that are left out. ``alone``: the operator
    has no other state, so that the bytes are those of the state.
    """
    missing, damaged = ([each.name for each in files if each.role == role] for role in (MISSING, DAMAGED))
    where = snapshot.files.path
    problems = [f"files that the snapshot needs are missing: {', '.join(missing[:5])}"] if missing else []
    problems += [f"files have another size than {where} says: {', '.join(damaged[:5])}"] if damaged else []
    problems += [f"{found.error}"] if found.error is not None else []
    problems += [] if broken is None else [broken.message]
    total = handles_bytes(operator)
    details = [f"operator {found.operator}: {total} bytes in {len(files)} files, of all its states"]
    if snapshot.metadata.is_unaligned:
        details.append(
            "the checkpoint is unaligned: records in flight are part of it, which the state does not have yet"
        )
    if incomplete:
        details.append(f"not complete, and left out: {', '.join(incomplete)}")
    return StateSize(
        total if alone else None,
        files=len(files),
        writer=f"Flink metadata version {snapshot.metadata.version}",
        problems=tuple(problems),
        damaged=bool(missing or damaged or broken) or isinstance(found.error, CorruptError),
        details=tuple(details),
    )


def check_column(name: str, column: str, states: Sequence[ShownState]) -> None:
    """Check that one of the states has the column for which a type is given; "" is that of its values.

    Raises InvalidInputError FLINK_TYPE.
    """
    wanted = {column} if column else {VALUE, MAP_VALUE}
    columns = [column for each in states if each.form is not None for column in each.declarable]
    if columns and not wanted.intersection(columns):
        raise InvalidInputError(
            ErrorCode.FLINK_TYPE,
            f"option type gives a type for {column or VALUE} of {name!r}, which has columns {', '.join(columns)}",
        )
