"""`StateSpec`, the tracking function and its settings, built step by step as in Spark's first trackStateByKey, and
`State`, the state of a key in a call of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
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


# `State`: the state of a key in a call of the user's function, with the rules of Spark's first trackStateByKey.
#
# The object is valid for one call of the function (SPARK-11290; ``org.apache.spark.streaming.State``). There is no
# update after a remove, and neither update nor remove while the state is timing out.


class State:
    """The state of a key. ``None`` means no state: an update to it is refused."""

    __slots__ = ("_exists", "_removed", "_timing_out", "_updated", "_value")

    def __init__(self) -> None:
        self._wrap(None)

    def exists(self) -> bool:
        """Return whether there is a state; false after `remove`."""
        return self._exists

    def get(self) -> Any:
        """Return the state. Raises NotFoundError NO_STATE if there is none."""
        if not self._exists:
            raise NotFoundError(
                ErrorCode.NO_STATE, "the key has no state; check exists(), or call get_option(), which returns None"
            )
        return self._value

    def get_option(self) -> Any:
        """Return the state, or None if there is none."""
        return self._value if self._exists else None

    def update(self, value: Any) -> None:
        """Set the state. Raises InvalidInputError STATE_REMOVED, STATE_TIMING_OUT or NULL_VALUE."""
        self._check("update")
        if value is None:
            raise InvalidInputError(ErrorCode.NULL_VALUE, "None cannot be a state; call remove() to remove the state")
        self._value, self._exists, self._updated = value, True, True

    def remove(self) -> None:
        """Remove the state. Raises InvalidInputError STATE_REMOVED or STATE_TIMING_OUT."""
        self._check("remove")
        self._value, self._exists, self._updated, self._removed = None, False, False, True

    def is_timing_out(self) -> bool:
        """Return whether the key was idle for the timeout; if so, this is the last call with this state."""
        return self._timing_out

    # For the caller of the function

    def _wrap(self, value: Any, *, timing_out: bool = False) -> None:
        """Set the state for the next call; None: there is none."""
        self._value, self._exists = value, value is not None
        self._updated, self._removed, self._timing_out = False, False, timing_out

    @property
    def _is_updated(self) -> bool:
        return self._updated

    @property
    def _is_removed(self) -> bool:
        return self._removed

    def _check(self, what: str) -> None:
        if self._removed:
            raise InvalidInputError(ErrorCode.STATE_REMOVED, f"cannot {what} the state: it was removed in this call")
        if self._timing_out:
            raise InvalidInputError(
                ErrorCode.STATE_TIMING_OUT, f"cannot {what} the state: it is timing out and is removed after this call"
            )
