"""Arguments and options shared by several commands, and their completion in a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
