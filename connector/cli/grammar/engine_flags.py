"""Flags for the options of engines, on every command that reads: ``batchId`` is ``--batch-id``."""

from __future__ import annotations

import functools
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

if typing.TYPE_CHECKING:
    from statestore.formats.engine import EngineOption

COMPLETING = "_STATESTORE_COMPLETE"  # set while a shell completes a command; loading Arrow would take too long then
Selected = Mapping[str, str]
"""The type of a command's parameter ``selected``: the options of engines, by their names in Spark."""
NONE: Selected = {}
_KINDS = {"int": int, "bool": bool, "text": str}


def with_engine_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes each option of an engine as a flag, and passes those that are given to
    ``selected``."""
    options = _options()
    hints = typing.get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "selected"
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from statestore.formats.engine_arguments import engine_options_of

        asked = {name: value for name in options if (value := given.pop(name)) is not None}
        command(**given, selected=engine_options_of("statestore", asked))

    flags = [_parameter(name, option) for name, option in options.items()]
    run.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *flags)}
    return run


def epilog() -> str:
    """Return the last paragraph of the help of a command that reads."""
    names = ", ".join(_flag(name) for name in _options())
    return f"Options that select the state of an engine (docs/reference.md): {names}."


def _options() -> dict[str, EngineOption]:
    if COMPLETING in os.environ:
        return {}
    from statestore.formats.engine_arguments import arguments_of_engines

    return arguments_of_engines()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parameter(name: str, option: EngineOption) -> inspect.Parameter:
    spelled = _flag(name)
    if option.kind == "bool":
        spelled = f"{spelled}/--no-{spelled.removeprefix('--')}"
    annotation: Any = _KINDS[option.kind] | None
    annotation = Annotated[annotation, typer.Option(spelled, help=option.meaning, hidden=True)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
