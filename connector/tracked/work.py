"""The work of a tracked batch: calls of the user's function once in each task, with columns, or for each record and
then for keys that time out; and the initial states, which are put before the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, TaskRows
from statestore.connector.keyed.task import checked_row, function_failed
from statestore.connector.tracked.spec import Form, State
from statestore.connector.tracked.tracked_states import Keys, TrackedStates
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.values.canonical import from_arrow, plain
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.types import conform

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEY = "key"
"""The column of the rows with the index of their key among the keys."""


@dataclass(frozen=True)
class ColumnCalls:
    """The `Work` that calls a function with columns. ``values`` are the positions of the columns that make up a
    record's value; ``timeout`` is in microseconds."""

    function: Callable[..., Any]
    state_type: pa.DataType
    timeout: int | None
    values: tuple[int, ...]

    def __call__(self, batch: KeyedBatch, task: int, backend: KeyedBackend, task_rows: TaskRows) -> Iterator[Emitted]:
        """Yield the emitted rows. Raises InvalidInputError FUNCTION_FAILED."""
        states = TrackedStates(backend, self.state_type, batch.job.key_groups, timed=self.timeout is not None)
        order = pa.array(np.argsort(task_rows.arrival.to_numpy(), kind="stable"))
        keys, codes = states.distinct([column.take(order) for column in task_rows.keys])
        idle = _idle(states, keys, None if self.timeout is None else batch.time - self.timeout)
        every = keys if idle is None else keys.with_others(idle)
        if not len(every):
            return
        before = states.get(every)
        timing_out = np.arange(len(every)) >= len(keys)
        rows = task_rows.rows.take(order).select(list(self.values)).append_column(KEY, pa.array(codes))
        after, emitted = self._called(batch, every, rows, before, timing_out)
        _store(states, every, before, after, timing_out, batch.time)
        if emitted is not None:
            yield from emitted

    def _called(
        self, batch: KeyedBatch, keys: Keys, rows: pa.Table, before: pa.Array, timing_out: Bools
    ) -> tuple[pa.Array, list[pa.RecordBatch] | None]:
        """The states after the call, one for each key, and the emitted rows."""
        states = pa.record_batch({"state": before, "timing_out": pa.array(timing_out)})
        whole = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
        if len(whole) > 1:
            raise InvalidInputError(
                ErrorCode.BATCH_TOO_LARGE,
                f"{rows.num_rows} rows of a task in {batch.label} have a column of more than 2 GiB, too much for one "
                "Array; divide them among more tasks with num_partitions, or into smaller batches",
            )
        try:
            answer = self.function(EPOCH + timedelta(microseconds=batch.time), _one(keys, batch), whole[0], states)
            after, emitted = answer if isinstance(answer, tuple) else (answer, None)
            after = before if after is None else _checked(after, self.state_type, len(keys))
            if emitted is None:
                return after, None
            table = pa.Table.from_batches([emitted]) if isinstance(emitted, pa.RecordBatch) else emitted
            return after, [conform(part, batch.job.output) for part in table.to_batches() if part.num_rows]
        except Exception as error:
            raise function_failed(f"the function failed in {batch.label}", error) from error


def _idle(states: TrackedStates, keys: Keys, before: int | None) -> Keys | None:
    """Keys that time out and have no row in the batch."""
    if before is None:
        return None
    idle = states.idle(before)
    return idle.only(~idle.among(keys))


def _store(states: TrackedStates, keys: Keys, before: pa.Array, after: pa.Array, timing_out: Bools, time: int) -> None:
    there = after.is_valid().to_numpy(zero_copy_only=False) & ~timing_out
    if there.any():
        states.put(keys.only(there), after.filter(pa.array(there)), time)
    gone = ~there & (before.is_valid().to_numpy(zero_copy_only=False) | timing_out)
    if gone.any():
        states.remove(keys.only(gone))


def _one(keys: Keys, batch: KeyedBatch) -> pa.Array:
    """The keys as one array; keys of several columns are structs."""
    if len(keys.columns) == 1:
        return keys.columns[0]
    return pa.StructArray.from_arrays(keys.columns, fields=list(batch.job.columns))


def _checked(after: Any, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(after, pa.ChunkedArray):
        after = after.combine_chunks()
    if not isinstance(after, pa.Array) or len(after) != count:
        what = f"{len(after)} values" if isinstance(after, pa.Array) else type(after).__name__
        raise InvalidInputError(
            ErrorCode.WRONG_VALUE, f"the states are {what}; expected a pyarrow Array with one for each of {count} keys"
        )
    return cast_exactly(after, kind)


# The work of a tracked batch whose function is called for each record, then for keys that time out.


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


# The work that puts initial states, before the first batch.


@dataclass(frozen=True)
class InitialStates:
    """The `Work` that puts initial states. ``values`` are the positions of the columns that make up a state."""

    state_type: pa.DataType
    timed: bool
    values: tuple[int, ...]

    def __call__(self, batch: KeyedBatch, task: int, backend: KeyedBackend, task_rows: TaskRows) -> Iterator[Emitted]:
        """Put the states and emit nothing. Raises InvalidInputError WRONG_INITIAL_STATE."""
        states = TrackedStates(backend, self.state_type, batch.job.key_groups, timed=self.timed)
        keys, codes = states.distinct(task_rows.keys)
        if len(keys) != len(codes):
            twice = int(np.flatnonzero(np.bincount(codes) > 1)[0])
            repeated = {name: c[twice].as_py() for name, c in zip(batch.job.columns.names, keys.columns, strict=True)}
            raise InvalidInputError(
                ErrorCode.WRONG_INITIAL_STATE, f"the initial state has key {repeated} twice; expected it once"
            )
        if len(keys):
            states.put(keys, self._states(task_rows.rows), batch.time)
        yield from ()

    def _states(self, rows: pa.Table) -> pa.Array:
        columns = [rows.column(index).combine_chunks() for index in self.values]
        names = [rows.schema.names[index] for index in self.values]
        of_columns = pa.types.is_struct(self.state_type)
        if not columns or (len(columns) > 1 and not of_columns):
            raise InvalidInputError(
                ErrorCode.WRONG_INITIAL_STATE,
                f"beside its key the initial state has the columns {', '.join(names) or '(none)'}; "
                f"expected those of {self.state_type}",
            )
        column = columns[0]
        if of_columns and not (len(columns) == 1 and pa.types.is_struct(column.type)):
            column = pa.StructArray.from_arrays(columns, names=names)
        try:
            states = cast_exactly(column, self.state_type)
        except pa.ArrowException as error:
            raise InvalidInputError(
                ErrorCode.WRONG_INITIAL_STATE,
                f"the initial state is {column.type}, expected {self.state_type} ({error})",
            ) from error
        if states.null_count:
            raise InvalidInputError(
                ErrorCode.WRONG_INITIAL_STATE, f"{states.null_count} initial states are null; leave them out"
            )
        return states
