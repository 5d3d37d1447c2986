"""`StateSpec`: the tracking function and its settings, built step by step as in Spark's first trackStateByKey."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.times import duration_ms

Form = Literal["value", "record", "columns"]


@dataclass(frozen=True)
class StateSpec:
    """A tracking function with its settings. Begin with `function` or `vectorized`; each further call returns a new
    spec."""

    call: Callable[..., Any]
    form: Form
    initial: Any = None
    partitions: int | None = None
    timeout_ms: int | None = None

    @classmethod
    def function(cls, function: Callable[..., Any]) -> StateSpec:
        """Track with ``function(value, state)`` or ``function(batch_time, key, value, state)``, called for each record.

        The function may change the `State` and returns the rows to emit, or None. ``value`` is the record without its
        key: the bare value if it is one column, else a dict; None while the state is timing out. ``batch_time`` is a
        datetime in UTC. Raises InvalidInputError INVALID_OPTION.
        """
        return cls(function, "value" if _parameters(function) == 2 else "record")

    @classmethod
    def vectorized(cls, function: Callable[..., Any]) -> StateSpec:
        """Track with ``function(batch_time, keys, rows, states)``, called for all keys of a task: see
        `track_state_by_key`."""
        if not callable(function):
            raise _no_function(function)
        return cls(function, "columns")

    def initial_state(self, rows: Any) -> StateSpec:
        """Begin with these states before the first batch: a DataFrame of Spark, pandas or Polars or an Arrow table with
        the key columns and the columns of the state.

        Raises InvalidInputError INVALID_OPTION for a LazyFrame of Polars.
        """
        if type(rows).__module__.partition(".")[0] == "polars":
            rows = _of_polars(rows)
        return replace(self, initial=rows)

    def num_partitions(self, count: int) -> StateSpec:
        """Set the number of tasks among which keys are divided, at most the key groups of the store. It may change at a
        restart."""
        if type(count) is not int or count < 1:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"num_partitions is {count!r}; expected an int of at least 1"
            )
        return replace(self, partitions=count)

    def timeout(self, duration: int | timedelta | str) -> StateSpec:
        """Let keys time out that have had no record for this long (int milliseconds, timedelta, "30 minutes"). In the
        first batch that begins later, the function is called once more for such a key, and its state is removed."""
        milliseconds = duration_ms(duration, "timeout")
        if not milliseconds:
            raise InvalidInputError(
                ErrorCode.INVALID_DURATION, f"timeout is {duration!r}; expected a duration greater than 0"
            )
        return replace(self, timeout_ms=milliseconds)


def _parameters(function: Any) -> int:
    if not callable(function):
        raise _no_function(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise _no_function(function) from None
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if len(positional) not in (2, 4):
        raise _no_function(function)
    return len(positional)


def _no_function(given_function: Any) -> InvalidInputError:
    name = getattr(given_function, "__name__", type(given_function).__name__)
    return InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f"the function is {name}; expected f(value, state) or f(batch_time, key, value, state)",
    )


def _of_polars(frame: Any) -> pa.Table:
    """Return a frame as an Arrow table of types that Spark takes."""
    if not hasattr(frame, "to_arrow"):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"the initial state is a {type(frame).__name__} of Polars; expected a DataFrame: call collect() on it",
        )
    import polars

    return pa.table(frame.to_arrow(compat_level=polars.CompatLevel.oldest()))
