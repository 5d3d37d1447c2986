"""The work of `run_keyed`: a user's function, called once in each task, registers states and returns the function of a
key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.connector.keyed.keyed_job import Emitted, KeyedBatch, TaskRows
from statestore.connector.keyed.task import checked_row, function_failed, rows_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.serdes.natural_keys import keys_to_bytes
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

Process: TypeAlias = Callable[[Any, pa.RecordBatch], "Iterable[Any] | None"]
"""The function of a key: it is called with the key and its rows, and returns the rows to emit."""
Function: TypeAlias = Callable[[KeyedBackend], Process]
"""Called once for each task and batch with its backend: it registers states and returns the function of a key."""


@dataclass(frozen=True)
class _KeyFunction:
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


def key_function(function: Any) -> _KeyFunction:
    """Return the work that calls ``function``. Raises InvalidInputError INVALID_OPTION."""
    if not callable(function):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"the function is {type(function).__name__}; expected one that takes a backend"
        )
    return _KeyFunction(function)


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


# The rows of a task by key: sorted as columns, so that each key's rows are a slice.


def rows_by_key(
    columns: pa.Schema, keys: list[pa.Array], rows: pa.Table, arrival: pa.Array
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield each key, as users write it, with its rows in the order of ``arrival``; keys in order of their first rows.

    ``keys`` are the key columns of the rows, in the types of ``columns``.
    """
    if not rows.num_rows:
        return
    order = np.argsort(arrival.to_numpy(), kind="stable")
    arrived = [key.take(pa.array(order)) for key in keys]
    # Codes are assigned in order of appearance, so sorting by them keeps both orders.
    codes = keys_to_bytes(columns, arrived).dictionary_encode().indices.to_numpy()
    by_key = np.argsort(codes, kind="stable")
    sorted_rows = rows.take(pa.array(order[by_key])).combine_chunks().to_batches()[0]
    begins = np.flatnonzero(np.diff(codes[by_key], prepend=-1))
    codec, first = KeyCodec(columns), pa.array(by_key[begins])
    cells = zip(*(key.take(first).to_pylist() for key in arrived), strict=True)
    ends = [*begins[1:].tolist(), rows.num_rows]
    for cell, begin, end in zip(cells, begins.tolist(), ends, strict=True):
        yield codec.to_user(codec.normalize(cell)), sorted_rows.slice(begin, end - begin)
