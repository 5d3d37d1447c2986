"""The reads of a table as methods of a keyed store, which take the name of a state first."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from statestore.catalog.reads.table import Table

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def of_state(
    read: Callable[Concatenate[Table, Arguments], Answer],
) -> Callable[Concatenate[Any, str, Arguments], Answer]:
    """Return a read of `Table` as a method of a store that has tables by the names of states."""

    def read_state(store: Any, state: str, *args: Arguments.args, **given: Arguments.kwargs) -> Answer:
        return read(store.table(state), *args, **given)

    itself, *others = inspect.signature(read).parameters.values()
    state = inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
    functools.update_wrapper(read_state, read)
    read_state.__qualname__ = f"KeyedStore.{read.__name__}"  # Python's own error for a call without the state says it
    read_state.__signature__ = inspect.Signature([itself, state, *others])  # type: ignore[attr-defined]
    return read_state  # type: ignore[return-value]  # may be called with state= by name, too
