"""The work of a tracked batch whose function is called once in each task, with columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, TaskRows
from statestore.connector.keyed.task_results import function_failed
from statestore.connector.tracked.tracked_states import Keys, TrackedStates
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.values.exact_cast import cast_exactly
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
