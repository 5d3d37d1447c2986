"""Arguments and options shared by several commands, their completion in a shell, and the flags for the options of
engines.
"""

from __future__ import annotations

import functools
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

if typing.TYPE_CHECKING:
    from statestore.formats.engine_offer import EngineOption

STORE_FILE, KEYED = "store.json", b'"keyed"'  # loading the catalog would take too long for a shell


def complete_path(incomplete: str) -> list[str]:
    """Directories that begin with the typed text."""
    parent, _, begun = incomplete.rpartition("/")
    folder = Path(f"{parent}/" if parent or incomplete.startswith("/") else ".").expanduser()
    try:
        found = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name.startswith(begun))
    except OSError:
        return []
    shown = [name for name in found if begun.startswith(".") or not name.startswith(".")]
    prefix = incomplete[: len(incomplete) - len(begun)]
    return [f"{prefix}{name}" for name in shown]


def complete_store(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the stores at the path typed before, and of the tables of keyed stores."""
    path = ctx.params.get("path")
    if path is None:
        return []
    root = Path(path).expanduser()
    try:
        found = (
            [root.resolve()]
            if (root / STORE_FILE).is_file()
            else [p.parent for p in root.glob(f"*/{STORE_FILE}") if p.is_file()]
        )
        names = {p.name for p in found}
        if any(KEYED in (p / STORE_FILE).read_bytes() for p in found):
            names |= _tables(root)
    except OSError:
        return []
    return sorted(name for name in names if name.startswith(incomplete) and not name.startswith("."))


def _tables(root: Path) -> set[str]:
    from statestore.catalog.warehouse import open_warehouse
    from statestore.formats.errors import StateStoreError

    try:
        return set(open_warehouse(root).pin().tables())
    except StateStoreError:
        return set()


def _argument(text: str, **more: Any) -> Any:
    return typer.Argument(help=text, show_default=False, **more)


Path_ = Annotated[
    str,
    _argument(
        "A warehouse or one of its stores, a checkpoint of Spark, a savepoint or checkpoint of Flink, a directory of "
        "Kafka Streams; also s3://…, gs://…, abfs://… or hdfs://….",
        autocompletion=complete_path,
    ),
]
Store = Annotated[str, _argument("The store's name.", autocompletion=complete_store)]
OnlyStore = Annotated[
    str | None,
    _argument("The store's name; may be left out where there is one.", autocompletion=complete_store),
]
AnyStore = Annotated[str | None, _argument("One store (all of them if left out).", autocompletion=complete_store)]
Key = Annotated[
    str,
    _argument(
        'The key: its text for one column (binary also as base64:… or hex:…), JSON ({"a": 1, "b": "x"}) for several. '
        "A text that begins with - is given after --; a number below zero need not be."
    ),
]
KeyOrPrefix = Annotated[
    str,
    _argument(
        'The key: its text for one column (binary also as base64:… or hex:…), JSON ({"a": 1, "b": "x"}) for several; '
        "JSON with the first columns only means all keys that begin so. A text that begins with - is given after --; "
        "a number below zero need not be."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of tables.")]
Form = Annotated[str | None, typer.Option("--format", help="table, csv, tsv or json (as --json).")]
Full = Annotated[bool, typer.Option("--full", help="Do not shorten cells on a terminal.")]
AsOf = Annotated[str | None, typer.Option("--as-of", help="State time: ISO-8601 with a zone, or epoch milliseconds.")]
Version = Annotated[int | None, typer.Option("--version", help="As recorded by this commit.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Print at most this many rows.")]
Columns = Annotated[str | None, typer.Option("--columns", help="Only these columns: a,b,c.")]

POINT = "a version (12), latest, a state time (ISO-8601 with a zone, or epoch milliseconds as 1357016400000ms)"


# Flags for the options of engines, on every command that reads: ``batchId`` is ``--batch-id``. Flags for the settings
# of edits: ``partitions`` is ``--partitions``.

COMPLETING = "_STATESTORE_COMPLETE"  # set while a shell completes a command; loading Arrow would take too long then
Selected = Mapping[str, str]
"""The type of a command's parameter ``selected``: the options of engines, by their names in Spark."""
NONE: Selected = {}
Settings = Mapping[str, Any]
"""The type of a command's parameter ``settings``: the settings of an edit that engines offer, by their names."""
NO_SETTINGS: Settings = {}
SETTINGS = "Settings of TARGET, by engine"
"""The title of these flags in the help of a command."""
_KINDS = {"int": int, "bool": bool, "text": str}


def with_engine_flags(
    command: Callable[..., None], options: Mapping[str, EngineOption], settings: Mapping[str, EngineOption]
) -> Callable[..., None]:
    """Return a command that takes each of the ``options`` of engines as a flag, and passes those that are given to
    ``selected``; and the ``settings`` of edits, which it passes to ``settings`` where it has such a parameter."""
    hints = typing.get_type_hints(command, include_extras=True)
    named = inspect.signature(command).parameters
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in named.items()
        if name not in ("selected", "settings")
    ]
    taken = {*named, *options}
    offered = {f"set_{name}": each for name, each in settings.items() if name not in taken and "settings" in named}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from statestore.formats.engine_arguments import engine_options_of

        asked = {name: value for name in options if (value := given.pop(name)) is not None}
        chosen = {each.name: value for name, each in offered.items() if (value := given.pop(name)) is not None}
        if "settings" in named:
            given["settings"] = chosen
        command(**given, selected=engine_options_of("statestore", asked))

    flags = [_parameter(name, _flag(name), option, hidden=True) for name, option in options.items()]
    flags += [_parameter(name, _flag(each.name), each, panel=SETTINGS) for name, each in offered.items()]
    run.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *flags)}
    return run


def epilog(options: Mapping[str, EngineOption]) -> str:
    """Return the last paragraph of the help of a command that reads."""
    names = ", ".join(map(_flag, options))
    return f"Options that select the state of an engine (docs/reference.md): {names}."


def engine_flags(*, installed: bool) -> dict[str, EngineOption]:
    """Return the options of engines, with or without those of installed packages; none while a shell completes."""
    if COMPLETING in os.environ:
        return {}
    from statestore.formats.engine_arguments import arguments_of_engines

    return arguments_of_engines(installed=installed)


def setting_flags(*, installed: bool) -> dict[str, EngineOption]:
    """Return the settings of edits that engines offer, as `engine_flags` returns options."""
    if COMPLETING in os.environ:
        return {}
    from statestore.formats.edit_settings import settings_of_engines

    return settings_of_engines(installed=installed)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parameter(
    name: str, spelled: str, option: EngineOption, *, hidden: bool = False, panel: str | None = None
) -> inspect.Parameter:
    if option.kind == "bool":
        spelled = f"{spelled}/--no-{spelled.removeprefix('--')}"
    annotation: Any = _KINDS[option.kind] | None
    more = typer.Option(spelled, help=option.meaning, hidden=hidden, rich_help_panel=panel)
    annotation = Annotated[annotation, more]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
