"""Runs of work in many tasks: what a cluster does for upkeep, without a name of the cluster.

Upkeep divides its work into numbered pieces. A task gets the function and a number, runs in any process that sees the
store's files, and returns a text. A task may run twice, or die and run again: its answer counts once, whichever attempt
gave it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError

if TYPE_CHECKING:
    import pyarrow as pa

Work = Callable[[int], str]
Read = Callable[[int], "Iterator[pa.RecordBatch]"]
"""Function from a number to rows (destination: int32, key: binary, value: binary)."""
Write = Callable[[int, "Iterator[pa.RecordBatch]"], str]
"""Function from a destination and its rows (key, value) to an answer."""
_KINDS: dict[str, type[StateStoreError]] = {kind.__name__: kind for kind in StateStoreError.__subclasses__()}


class TaskRuns(Protocol):
    """A way to run tasks."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at a time, about."""

    def run(self, work: Work, count: int) -> list[str]:
        """Return the answers of ``work`` to the numbers from 0 to ``count`` - 1, in their order.

        ``work`` can be pickled. Raises the error of a task that failed for good.
        """

    def move(self, read: Read, count: int, write: Write, destinations: int) -> list[str]:
        """Read the rows of the numbers from 0 to ``count`` - 1 in tasks, and give all rows of each destination to one
        task; return the answers of ``write`` by destination, also of those without rows.

        Rows come in any order. Both functions can be pickled, and either may run again. Raises as `run`.
        """


_made: list[Callable[[Any], TaskRuns]] = []


def offer_runs(make: Callable[[Any], TaskRuns]) -> None:
    """Set the function that makes task runs of a session; the layer above, which knows the sessions, has it."""
    _made[:] = [make]


def runs_of(session: Any) -> TaskRuns:
    """Return the task runs of a session. Raises InvalidInputError WRONG_INPUT for a value that is no session."""
    (make,) = _made
    return make(session)


# Errors of the tree as a part of answers


def text_of_error(error: StateStoreError) -> str:
    return json.dumps([type(error).__name__, error.code, error.message])


def error_of_text(text: str) -> StateStoreError:
    """Return the error of which `text_of_error` made a text, in another process."""
    kind, code, message = json.loads(text)
    return _KINDS.get(kind, StateStoreError)(ErrorCode.__members__.get(code, code), message)
