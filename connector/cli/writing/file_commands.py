"""Commands that write rows of a store to a data file, and rows of a data file to a store."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from statestore.connector.cli.grammar import arguments as args
from statestore.connector.cli.grammar.engine_flags import NONE, Selected
from statestore.connector.terminal.output import say
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

STDOUT = Path("-")
Format = Annotated[
    str | None,
    typer.Option("--format", help="parquet, arrow, csv, tsv or json (JSON lines); by default as the file's suffix."),
]


def export(
    path: args.Path_,
    store: args.OnlyStore = None,
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The file to write, which is replaced if it exists; - is stdout.")
    ],
    form: Format = None,
    as_of: args.AsOf = None,
    version: args.Version = None,
    history: Annotated[bool, typer.Option("--history", help="Every version of every key.")] = False,
    changes: Annotated[bool, typer.Option("--changes", help="The change feed.")] = False,
    columns: args.Columns = None,
    where: Annotated[str | None, typer.Option("--where", help="Only rows for which this SQL holds.")] = None,
    selected: Selected = NONE,
) -> None:
    """Write the rows of a store to a file, now or as of a moment.

    Rows are written in batches, and the file appears when it is whole. To stdout (-o -, with --format) they go as they
    arrive, with arrow as an IPC stream.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.grammar.argument_texts import column_names, moment, named, say_seconds
    from statestore.connector.cli.reading.queries import passing
    from statestore.connector.files.data_files import format_of, write_file, write_stream
    from statestore.formats.state_table import Query

    chosen = format_of(out, form)
    bytes_out = getattr(sys.stdout, "buffer", None)  # none where another program has put a text in its place
    if out == STDOUT and chosen == "arrow" and (bytes_out is None or sys.stdout.isatty()):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            "--out is -, where text is shown, and arrow is binary; name a file, or use a pipe",
        )
    if not out.parent.is_dir():
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"--out is {out}, and {out.parent} is no folder; make it, or name another file"
        )
    if sum((history, changes, as_of is not None)) > 1 or (changes and version is not None):
        raise InvalidInputError(
            ErrorCode.CONFLICTING_OPTIONS,
            "--history, --changes and --as-of exclude each other, and --changes goes with no --version; give one",
        )
    warehouse = open_warehouse(path, selected).pin()
    table = warehouse.open(name := named(warehouse, store))
    say_seconds(warehouse, name, {"--as-of": as_of})
    query = Query(
        mode="history" if history else "changes" if changes else "state",
        columns=column_names(columns),
        as_of=moment(as_of, "--as-of"),
        version=version,
    )
    if out == STDOUT:
        sys.stdout.flush()
        stream = io.BytesIO() if bytes_out is None else bytes_out
        rows = write_stream(stream, chosen, table.schema(query), passing(table, query, where))
        if bytes_out is None:
            sys.stdout.write(stream.getvalue().decode())
        stream.flush()
    else:
        rows = write_file(out, chosen, table.schema(query), passing(table, query, where))
    say(f"{rows} row{'' if rows == 1 else 's'}" + ("" if out == STDOUT else f" in {out}"))


def load(
    path: args.Path_,
    store: args.Store,
    file: Annotated[Path, typer.Argument(help="The file with rows.", show_default=False)],
    form: Format = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Take only these columns of the file: a,b,c.")
    ] = None,
    timestamp: Annotated[
        str, typer.Option("--timestamp", help="The column with the state times of a versioned store.")
    ] = "timestamp",
) -> None:
    """Write the rows of a file to a store, in one commit.

    The file has the store's key and value columns, and for a versioned store a column with the times (epoch
    milliseconds, or with a zone). A column `_change_type` may mark deletions, as in the change feed.
    """
    from statestore.connector.cli.grammar.argument_texts import names_in
    from statestore.connector.cli.writing.commits import load_rows, say_written
    from statestore.connector.files.data_files import format_of

    written = load_rows(path, store, file, format_of(file, form), names_in(columns, "--columns"), timestamp)
    say_written(written, store)
