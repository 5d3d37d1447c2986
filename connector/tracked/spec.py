"""What is tracked and how: `StateSpec`, built step by step as in Spark's first trackStateByKey."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from statestore.formats.errors import InvalidInputError
from statestore.formats.values.times import duration_ms

Form = Literal["value", "record", "columns"]


@dataclass(frozen=True)
class StateSpec:
    """Begin with `function` or `vectorized`; each further call answers a new spec."""

    call: Callable[..., Any]
    form: Form
    initial: Any = None
    partitions: int | None = None
    timeout_ms: int | None = None

    @classmethod
    def function(cls, function: Callable[..., Any]) -> StateSpec:
        """For each record ``function(value, state)`` or ``function(batch_time, key, value, state)``, which may change
        the `State` and answers what to emit, or None. ``value`` is the record without its key: bare if it is one
        column, else a dict; None while the state is timing out. ``batch_time`` is a datetime in UTC.

        Raises InvalidInputError INVALID_OPTION.
        """
        return cls(function, "value" if _parameters(function) == 2 else "record")

    @classmethod
    def vectorized(cls, function: Callable[..., Any]) -> StateSpec:
        """For all keys of a task at once ``function(batch_time, keys, rows, states)``: see `track_state_by_key`."""
        if not callable(function):
            raise _no_function(function)
        return cls(function, "columns")

    def initial_state(self, rows: Any) -> StateSpec:
        """States to begin with, before the first batch: a DataFrame of Spark, an Arrow table or pandas, of the key
        columns and those of the state."""
        return replace(self, initial=rows)

    def num_partitions(self, count: int) -> StateSpec:
        """How many tasks the keys are cut into, at most the key groups of the store; it may be another number later."""
        if type(count) is not int or count < 1:
            raise InvalidInputError("INVALID_OPTION", f"num_partitions is {count!r}; expected an int of at least 1")
        return replace(self, partitions=count)

    def timeout(self, duration: int | timedelta | str) -> StateSpec:
        """Keys without a record for this long (int milliseconds, timedelta, "30 minutes") time out: the function is
        called once more for them, in the first batch that begins later, and their state is removed."""
        found = duration_ms(duration, "timeout")
        if not found:
            raise InvalidInputError("INVALID_DURATION", f"timeout is {duration!r}; expected more than nothing")
        return replace(self, timeout_ms=found)


def _parameters(function: Any) -> int:
    if not callable(function):
        raise _no_function(function)
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise _no_function(function) from None
    positional = [p for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    if len(positional) not in (2, 4):
        raise _no_function(function)
    return len(positional)


def _no_function(found: Any) -> InvalidInputError:
    told = getattr(found, "__name__", type(found).__name__)
    return InvalidInputError(
        "INVALID_OPTION", f"the function is {told}; expected f(value, state) or f(batch_time, key, value, state)"
    )
