"""The work that puts initial states, before the first batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, TaskRows
from statestore.connector.tracked.tracked_states import TrackedStates
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.exact_cast import cast_exactly


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
