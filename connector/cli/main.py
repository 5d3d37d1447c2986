"""The command line. Commands hand data to `output`; exit 0 good, 1 failed, 2 wrong usage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from statestore.connector.cli.output import say, say_error, show_table
from statestore.formats.errors import InvalidInputError, StateStoreError

app = typer.Typer(
    name="statestore",
    help="Time-travel tables for stream-processor state.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PathArgument = Annotated[Path, typer.Argument(help="A warehouse, or the directory of one store.", show_default=False)]
StoreArgument = Annotated[str, typer.Argument(help="The store's name.", show_default=False)]
KeyArgument = Annotated[
    str, typer.Argument(help='The key: its text for one column, JSON ({"a": 1, "b": "x"}) for several.')
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON lines instead of tables.")]
AsOfOption = Annotated[
    str | None, typer.Option("--as-of", help="State time: ISO-8601 with a zone, or epoch milliseconds.")
]
VersionOption = Annotated[int | None, typer.Option("--version", help="As recorded by this commit.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Print at most so many rows.")]


@app.command()
def inspect(path: PathArgument, as_json: JsonOption = False) -> None:
    """What is here: stores, their schemas, keys, versions, time span and bytes."""
    from statestore.connector.cli.summary import summary_table

    show_table(summary_table(path), as_json=as_json)


@app.command()
def sql(
    path: PathArgument,
    query: Annotated[str, typer.Argument(help="DuckDB SQL; tables take TIMESTAMP AS OF and VERSION AS OF.")],
    as_json: JsonOption = False,
    limit: LimitOption = 1000,
    allow_external_access: Annotated[
        bool, typer.Option("--allow-external-access", help="Let the query read other files.")
    ] = False,
) -> None:
    """Answer one SQL statement over the tables at PATH."""
    from statestore.connector.sql import sql as answer

    _show(answer(str(path), query, allow_external_access=allow_external_access), limit, as_json)


@app.command()
def get(
    path: PathArgument,
    store: StoreArgument,
    key: KeyArgument,
    as_of: AsOfOption = None,
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """The value of one key, now or as of a moment."""
    from statestore.connector.cli.reading import read_key

    found = read_key(path, store, key, mode="snapshot", as_of=as_of, version=version)
    if not found.num_rows:
        say(f"no value for this key in {store}")
        raise typer.Exit(1)
    show_table(found, as_json=as_json)


@app.command()
def history(
    path: PathArgument,
    store: StoreArgument,
    key: KeyArgument,
    version: VersionOption = None,
    limit: LimitOption = 1000,
    as_json: JsonOption = False,
) -> None:
    """Every version of one key with its interval, oldest first."""
    from statestore.connector.cli.reading import read_key

    _show(read_key(path, store, key, mode="history", version=version).sort_by("valid_from"), limit, as_json)


@app.command()
def versions(path: PathArgument, store: StoreArgument, limit: LimitOption = 1000, as_json: JsonOption = False) -> None:
    """The store's commits, newest first: time, writer, rows, bytes."""
    from statestore.connector.cli.reading import read_table

    table = read_table(path, f"{store}$versions").sort_by([("version", "descending")])
    _show(table, limit, as_json)


@app.command()
def demo(
    engine: Annotated[str, typer.Option("--engine", help="spark, or duckdb (needs no Java).")] = "spark",
    out: Annotated[Path, typer.Option("--out", help="Folder for the warehouse and the plot.")] = Path(
        "statestore-demo"
    ),
    as_json: JsonOption = False,
) -> None:
    """Flights of 2013 joined with the weather known at their departure: why time travel matters."""
    from statestore.connector.demo.run import run_demo

    if engine not in ("spark", "duckdb"):
        raise InvalidInputError("INVALID_OPTION", f"--engine {engine}: expected spark or duckdb")
    run_demo(engine, out, as_json=as_json)


def _show(table: Any, limit: int, as_json: bool) -> None:
    show_table(table.slice(0, limit), as_json=as_json)
    if table.num_rows > limit:
        say(f"{table.num_rows - limit} more rows; --limit {table.num_rows} shows all")


def main() -> None:
    """Entry point: errors of the tree, and those of files, become one line on stderr."""
    try:
        app(prog_name="statestore")
    except StateStoreError as error:
        say_error(str(error))
        sys.exit(2 if isinstance(error, InvalidInputError) else 1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:  # a folder that may not be read or written, a full disk
        say_error(str(error))
        sys.exit(1)
