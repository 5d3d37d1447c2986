"""A job as far as a restore needs it: operators by id, their parallelism, and their states with types.

It is read from a snapshot of the job, or from a file (`statestore.formats.flink.description_file`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.element_forms import operator_forms
from statestore.formats.flink.serializers.backend_header import StateKind
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot, Subtask
from statestore.formats.flink.snapshot_states import OpenedSnapshot
from statestore.formats.flink.streams.stored_states import StoredStates, only_header

StateForm = StateKind | Literal["split list", "union list", "broadcast"]
"""The kind of a keyed state, or that of an operator state."""
OPERATOR_FORMS: tuple[StateForm, ...] = ("split list", "union list", "broadcast")
Backend = Literal["rocksdb", "heap"]
_LEAST_GROUPS, _MOST_GROUPS = 128, 1 << 15


@dataclass(frozen=True)
class DescribedState:
    """A state. ``namespace`` is None for operator state and for timers, whose type has it.

    ``map_key`` is that of broadcast state. ``value`` is the whole type of the serializer, of operator lists that of an
    element. ``is_second``: it is a keyed state of Flink's second API; None where that is not known.
    """

    name: str
    form: StateForm
    value: FlinkType
    namespace: FlinkType | None = None
    map_key: FlinkType | None = None
    is_second: bool | None = None

    @property
    def is_keyed(self) -> bool:
        return self.form not in OPERATOR_FORMS


@dataclass(frozen=True)
class DescribedOperator:
    """An operator. None is what is not known; a ``max_parallelism`` of None is one that the job does not set.

    ``has_uid``: the job gives it a uid; None where a snapshot of Flink 1.x does not say. ``may_be_default``: the max
    parallelism is the one that Flink chooses for this parallelism, so the job may not set it. ``holds_state`` is false
    where Flink drops it without asking. ``custom`` names state of a form of the job's own. ``error``: some of its state
    cannot be read.
    """

    id: str
    label: str
    has_uid: bool | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    may_be_default: bool = False
    finished: bool = False
    holds_state: bool = True
    backend: Backend | None = None
    key: FlinkType | None = None
    states: tuple[DescribedState, ...] = ()
    custom: str = ""
    error: StateStoreError | None = None


@dataclass(frozen=True)
class JobDescription:
    """The operators of a job; ``version`` is that of the metadata its Flink writes, None where it is not known.

    ``is_whole``: a state that it does not list is none of the job's. A snapshot lists only those that the job had
    registered when it was taken.
    """

    name: str
    operators: tuple[DescribedOperator, ...]
    version: int | None = None
    is_whole: bool = False


def job_of(snapshot: OpenedSnapshot) -> JobDescription:
    """The job of a snapshot. Raises as `OpenedSnapshot.stored` for damaged and missing files."""
    labels = snapshot.labels
    operators = tuple(_operator(snapshot, each, labels[each.id]) for each in snapshot.metadata.operators)
    return JobDescription(snapshot.files.path, operators, snapshot.metadata.version)


def default_max_parallelism(parallelism: int) -> int:
    """The max parallelism that Flink chooses where a job sets none.

    Source: ``KeyGroupRangeAssignment.computeDefaultMaxParallelism``.
    """
    wanted = parallelism + parallelism // 2
    return min(max(1 << max(wanted - 1, 0).bit_length(), _LEAST_GROUPS), _MOST_GROUPS)


def _operator(snapshot: OpenedSnapshot, operator: OperatorSnapshot, label: str) -> DescribedOperator:
    stored = snapshot.stored(operator.id)
    uid_known = operator.uid is not None or label in snapshot.settings.uids.values()
    key: FlinkType | None = None
    states: tuple[DescribedState, ...] = ()
    error = stored.error
    try:
        key, states = stored.key, _states(stored)
    except UnsupportedError as found:  # subtasks with types that differ
        error = found
    return DescribedOperator(
        operator.id,
        label,
        True if uid_known else None if snapshot.metadata.version < 5 else False,
        operator.parallelism,
        operator.max_parallelism if operator.max_parallelism > 0 else None,
        operator.max_parallelism == default_max_parallelism(operator.parallelism),
        operator.finished or (bool(operator.subtasks) and all(each.finished for each in operator.subtasks)),
        operator.coordinator is not None or any(_has_state(each) for each in operator.subtasks),
        _backend(operator, stored),
        key,
        states,
        "raw operator state" if any(each.raw_operator is not None for each in operator.subtasks) else "",
        error,
    )


def _states(stored: StoredStates) -> tuple[DescribedState, ...]:
    found = [
        DescribedState(each.name, each.kind, each.value, each.namespace, is_second=each.is_second)
        if each.kind != "timers"
        else DescribedState(each.name, each.kind, each.value)
        for each in map(only_header, stored.keyed_states())
    ]
    for form in operator_forms(stored, whole=True):
        kind: StateForm = (
            "broadcast" if form.key is not None else "union list" if form.mode == "union" else "split list"
        )
        found.append(DescribedState(form.name, kind, form.value, map_key=form.key))
    return tuple(found)


def _has_state(subtask: Subtask) -> bool:
    """Source: ``OperatorSubtaskState.hasState``."""
    parts = (subtask.managed_keyed, subtask.raw_keyed, subtask.managed_operator, subtask.raw_operator)
    return any(each is not None for each in parts) or subtask.channels > 0


def _backend(operator: OperatorSnapshot, stored: StoredStates) -> Backend | None:
    """The backend that wrote the state; None for canonical savepoints, which have one form for all."""
    parts = [part for each in stored.keyed for part in (each, *each.materialized)]
    if any(isinstance(each.managed_keyed, RocksHandle) for each in operator.subtasks):
        return "rocksdb"
    if any(isinstance(each.handle, RocksHandle) for each in parts):
        return "rocksdb"
    for each in parts:
        if isinstance(each.handle, KeyGroupHandle) and each.handle.form != "savepoint":
            return each.handle.form
    return None
