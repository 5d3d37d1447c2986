"""The state of a key, as the user's function sees it: `State`, with the rules of Spark's first trackStateByKey.

It is for one call of the function (SPARK-11290; ``org.apache.spark.streaming.State``): no update after a remove,
neither update nor remove while the state is timing out.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.errors import InvalidInputError, NotFoundError


class State:
    """What a key has. ``None`` is no state: updating to it is refused."""

    __slots__ = ("_exists", "_removed", "_timing_out", "_updated", "_value")

    def __init__(self) -> None:
        self._wrap(None)

    def exists(self) -> bool:
        """Whether there is a state; false after `remove`."""
        return self._exists

    def get(self) -> Any:
        """The state. Raises NotFoundError NO_STATE where there is none."""
        if not self._exists:
            raise NotFoundError("NO_STATE", "the key has no state; ask exists(), or get_option(), which answers None")
        return self._value

    def get_option(self) -> Any:
        """The state, or None where there is none."""
        return self._value if self._exists else None

    def update(self, value: Any) -> None:
        """Set the state. Raises InvalidInputError STATE_REMOVED, STATE_TIMING_OUT or NULL_VALUE."""
        self._check("update")
        if value is None:
            raise InvalidInputError("NULL_VALUE", "None cannot be a state; call remove() to have none")
        self._value, self._exists, self._updated = value, True, True

    def remove(self) -> None:
        """Have no state. Raises InvalidInputError STATE_REMOVED or STATE_TIMING_OUT."""
        self._check("remove")
        self._value, self._exists, self._updated, self._removed = None, False, False, True

    def is_timing_out(self) -> bool:
        """Whether the key was idle for the timeout: this call is the last that sees the state."""
        return self._timing_out

    # Of whoever calls the function

    def _wrap(self, value: Any, *, timing_out: bool = False) -> None:
        """A state for the next call; None: there is none."""
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
            raise InvalidInputError("STATE_REMOVED", f"cannot {what} the state: it was removed in this call")
        if self._timing_out:
            raise InvalidInputError(
                "STATE_TIMING_OUT", f"cannot {what} the state: it is timing out, and removed anyway"
            )
