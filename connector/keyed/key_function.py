"""The work of `run_keyed`: a user's function, called once in each task, registers states and returns the function of a
key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.connector.keyed.emitted_records import checked_row, rows_of
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, TaskRows
from statestore.connector.keyed.rows_by_key import rows_by_key
from statestore.connector.keyed.task_results import function_failed
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.values.key_codec import ValueCodec

Process: TypeAlias = Callable[[Any, pa.RecordBatch], "Iterable[Any] | None"]
"""The function of a key: it is called with the key and its rows, and returns the rows to emit."""
Function: TypeAlias = Callable[[KeyedBackend], Process]
"""Called once for each task and batch with its backend: it registers states and returns the function of a key."""


@dataclass(frozen=True)
class KeyFunction:
    """The `Work` that calls a function for each key."""

    function: Function

    def __call__(self, batch: KeyedBatch, task: int, backend: KeyedBackend, task_rows: TaskRows) -> Iterator[Emitted]:
        """Yield the emitted rows of each key; InvalidInputError FUNCTION_FAILED names the key."""
        process = _made(self.function, batch, task, backend)
        codec = ValueCodec(batch.job.output)
        for key, rows in rows_by_key(batch.job.columns, task_rows.keys, task_rows.rows, task_rows.arrival):
            backend.set_current_key(key)
            try:
                for row in rows_of(process(key, rows)):
                    if row is not None:
                        yield checked_row(codec, row)
            except GeneratorExit:
                raise
            except Exception as error:
                raise function_failed(f"the function failed for key {key!r} of {batch.label}", error) from error


def key_function(function: Any) -> KeyFunction:
    """Return the work that calls ``function``. Raises InvalidInputError INVALID_OPTION."""
    if not callable(function):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"the function is {type(function).__name__}; expected one that takes a backend"
        )
    return KeyFunction(function)


def _made(function: Function, batch: KeyedBatch, task: int, backend: KeyedBackend) -> Process:
    try:
        process = function(backend)
        if not callable(process):
            raise TypeError(f"it returned {type(process).__name__}, expected the function of a key")
    except StateStoreError:
        raise
    except Exception as error:
        raise function_failed(f"the function failed for task {task} of {batch.label}, before any key", error) from error
    return process
