"""`State`: the state of a key in a call of the user's function, with the rules of Spark's first trackStateByKey.

The object is valid for one call of the function (SPARK-11290; ``org.apache.spark.streaming.State``). There is no update
after a remove, and neither update nor remove while the state is timing out.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError


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
