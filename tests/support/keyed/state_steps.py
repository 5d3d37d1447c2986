"""Steps of a keyed state with their answers: rows are (operation, arguments…, answer).

``key`` and ``at`` set the current key and namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from statestore.catalog.keyed.backend import KeyedBackend
from support.keyed.keyed_backends import Mean, refused


class Refused(str):
    """An answer that is an error with this code."""


Step = tuple[Any, ...]


STATES: dict[str, Callable[[KeyedBackend, Any], Any]] = {
    "value": lambda backend, by: backend.value_state("s", "bigint", namespace=by),
    "value_default": lambda backend, by: backend.value_state("s", "bigint", default=41, namespace=by),
    "list": lambda backend, by: backend.list_state("s", "bigint", namespace=by),
    "map": lambda backend, by: backend.map_state("s", "string", "bigint", namespace=by),
    "reducing": lambda backend, by: backend.reducing_state("s", "string", lambda a, b: a + b, namespace=by),
    "aggregating": lambda backend, by: backend.aggregating_state("s", Mean(), namespace=by),
}


def run(backend: KeyedBackend, state: Any, steps: list[Step]) -> None:
    """Do the steps and compare every answer with the table."""
    for number, (operation, *arguments, answer) in enumerate(steps):
        if operation == "key":
            call: Callable[..., Any] = backend.set_current_key
        elif operation == "at":
            call = state.set_current_namespace
        else:
            call = getattr(state, operation)
        told = f"step {number}: {operation} {arguments}"
        if isinstance(answer, Refused):
            with refused(answer):
                listed(call(*arguments))
        else:
            assert listed(call(*arguments)) == answer, told


def listed(found: Any) -> Any:
    return list(found) if isinstance(found, Iterator) else found


class Renamed:
    """A backend that registers states under a different name than the requested one."""

    def __init__(self, backend: KeyedBackend, name: str) -> None:
        self._backend, self._name = backend, name

    def __getattr__(self, method: str) -> Any:
        return lambda name, *rest, **named: getattr(self._backend, method)(self._name, *rest, **named)


def calls_of(state: Any) -> list[Callable[[], Any]]:
    """Every operation of a state on stored rows."""
    arguments: dict[str, tuple[Any, ...]] = {
        "update": (["x"],) if hasattr(state, "add_all") else (1,),
        "add": (1,),
        "add_all": ([],),
        "put": ("x", 1),
        "put_all": ({},),
        "remove": ("x",),
        "contains": ("x",),
        "get": ("x",) if hasattr(state, "put") else (),
    }
    for name in ("value", "clear", "entries", "keys", "values", "is_empty"):
        arguments[name] = ()
    if len(state.spec.namespace):
        arguments["merge_namespaces"] = 1, []
    return [partial(getattr(state, name), *given) for name, given in arguments.items() if hasattr(state, name)]
