"""The work of a tracked batch whose function is called for each record, then for keys that time out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.connector.keyed.emitted_records import checked_row
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, TaskRows
from statestore.connector.keyed.task_results import function_failed
from statestore.connector.tracked.column_calls import EPOCH
from statestore.connector.tracked.spec import Form
from statestore.connector.tracked.state import State
from statestore.connector.tracked.tracked_states import Keys, TrackedStates
from statestore.formats.kernels.arrays import Bools
from statestore.formats.values.canonical import from_arrow, plain
from statestore.formats.values.key_codec import KeyCodec, ValueCodec


@dataclass(frozen=True)
class RecordCalls:
    """The `Work` that calls a function for each record. ``values`` are the positions of the columns that make up a
    record's value; ``timeout`` is in microseconds."""

    function: Callable[..., Any]
    form: Form
    state_type: pa.DataType
    timeout: int | None
    values: tuple[int, ...]

    def __call__(self, batch: KeyedBatch, task: int, backend: KeyedBackend, task_rows: TaskRows) -> Iterator[Emitted]:
        """Yield the emitted rows. Raises InvalidInputError FUNCTION_FAILED, which names the key."""
        timed = self.timeout is not None
        states = TrackedStates(backend, self.state_type, batch.job.key_groups, timed=timed)
        run = _Run(self, batch)
        yield from run.records(states, task_rows)
        if self.timeout is not None:
            idle = states.idle(batch.time - self.timeout)
            yield from run.timed_out(states, idle)


class _Run:
    """One batch of a task."""

    def __init__(self, work: RecordCalls, batch: KeyedBatch) -> None:
        self.work, self.batch = work, batch
        self.time = EPOCH + timedelta(microseconds=batch.time)
        self.state = State()
        self.codec = ValueCodec(batch.job.output)
        self.keys = KeyCodec(batch.job.columns)
        self.states = ValueCodec(pa.schema([pa.field("state", work.state_type)]))
        self.canonical = from_arrow(work.state_type)
        self.shown = plain(work.state_type, dict) or _same

    def records(self, states: TrackedStates, task_rows: TaskRows) -> Iterator[Emitted]:
        if not task_rows.rows.num_rows:
            return
        order = pa.array(np.argsort(task_rows.arrival.to_numpy(), kind="stable"))
        keys, codes = states.distinct([column.take(order) for column in task_rows.keys])
        users = self._users(keys)
        before = states.get(keys)
        canonical = self._canonical(before)
        changed = np.zeros(len(keys), bool)
        state, call, shown = self.state, self._call, self.shown
        for code, value in zip(codes.tolist(), _values(task_rows.rows.take(order), self.work.values), strict=True):
            state._wrap(shown(canonical[code]))
            answer = call(users[code], value)
            if state._is_removed:
                canonical[code], changed[code] = None, True
            elif state._is_updated:
                canonical[code], changed[code] = self._checked(users[code], state.get()), True
            if answer is not None:
                yield answer
        self._store(states, keys, canonical, changed, before.is_valid().to_numpy(zero_copy_only=False))

    def timed_out(self, states: TrackedStates, idle: Keys) -> Iterator[Emitted]:
        if not len(idle):
            return
        for user, value in zip(self._users(idle), self._canonical(states.get(idle)), strict=True):
            if value is None:  # a record came for the key, which had no state
                continue
            self.state._wrap(self.shown(value), timing_out=True)
            answer = self._call(user, None)
            if answer is not None:
                yield answer
        states.remove(idle)

    def _store(
        self,
        states: TrackedStates,
        keys: Keys,
        canonical: list[Any],
        changed: Bools,
        before: Bools,
    ) -> None:
        there = np.array([value is not None for value in canonical])
        put = changed & there
        if put.any():
            rows = [(value,) for value, kept in zip(canonical, put.tolist(), strict=True) if kept]
            states.put(keys.only(put), self.states.to_columns(rows)[0], self.batch.time)
        kept = there & ~changed
        if kept.any():
            states.touch(keys.only(kept), self.batch.time)
        gone = before & ~there
        if gone.any():
            states.remove(keys.only(gone))

    def _call(self, key: Any, value: Any) -> Any:
        work = self.work
        try:
            if work.form == "value":
                answer = work.function(value, self.state)
            else:
                answer = work.function(self.time, key, value, self.state)
            return None if answer is None else checked_row(self.codec, answer)
        except Exception as error:
            raise function_failed(f"the function failed for key {key!r} of {self.batch.label}", error) from error

    def _checked(self, key: Any, value: Any) -> Any:
        """The canonical form of a new state; an error that names the key if it is not of the state's type.

        Later calls in this batch get the form that calls in the next batch would get, without changes that were made in
        place and not updated.
        """
        try:
            return self.states.normalize((value,))[0]
        except Exception as error:
            raise function_failed(f"the state of key {key!r} of {self.batch.label}", error) from error

    def _canonical(self, states: pa.Array) -> list[Any]:
        values: list[Any] = states.to_pylist()
        return values if self.canonical is None else [self.canonical(state) for state in values]

    def _users(self, keys: Keys) -> list[Any]:
        cells = zip(*(column.to_pylist() for column in keys.columns), strict=True)
        return [self.keys.to_user(self.keys.normalize(cell)) for cell in cells]


def _values(rows: pa.Table, indexes: tuple[int, ...]) -> list[Any]:
    """The value of each record, as users write it: maps are dicts."""
    if not indexes:
        return [None] * rows.num_rows
    columns = [_as_users(rows.column(index)) for index in indexes]
    if len(indexes) == 1:
        return columns[0]
    names = [rows.schema.names[index] for index in indexes]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _as_users(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    canonical, shown = from_arrow(column.type), plain(column.type, dict)
    if canonical is None or shown is None:
        return values
    return [shown(canonical(value)) for value in values]


def _same(value: Any) -> Any:
    return value
