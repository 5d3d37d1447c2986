"""Commands that write: they make, fill and remove stores, export rows to a data file and load them from one, and import
the keyed state of an engine.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NONE, Selected
from statestore.connector.terminal import Grid, agreed, cell, form_of, progress, say, show_grid, show_objects
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

NewStore = Annotated[str, typer.Argument(help="The name of the new store.", show_default=False)]
Duration = str | None


def create(
    path: args.Path_,
    store: NewStore,
    key: Annotated[str, typer.Option("--key", help="Key columns with their types: item:string,shop:bigint.")],
    value: Annotated[
        str | None,
        typer.Option("--value", help="Value columns with their types: price:double. A keyed store has none."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="versioned, key_value, window, join_window, session or keyed.")
    ] = "versioned",
    history_retention: Annotated[
        Duration, typer.Option("--history-retention", help="Of a versioned store: keep history so long (30 days).")
    ] = None,
    retention: Annotated[
        Duration, typer.Option("--retention", help="Of windows and sessions: keep them so long (1 day).")
    ] = None,
    window_size: Annotated[
        Duration, typer.Option("--window-size", help="Of a window store: from a window's start to its end.")
    ] = None,
    window_before: Annotated[
        Duration, typer.Option("--window-before", help="Of a join-window store: how far before its own time.")
    ] = None,
    window_after: Annotated[
        Duration, typer.Option("--window-after", help="Of a join-window store: how far after its own time.")
    ] = None,
    segment_interval: Annotated[
        Duration, typer.Option("--segment-interval", help="Width of the segments that expire as a whole.")
    ] = None,
    num_segments: Annotated[
        int | None, typer.Option("--num-segments", help="Of a join-window store: parts of its retention (3).")
    ] = None,
    retain_duplicates: Annotated[
        bool, typer.Option("--retain-duplicates", help="Of a window store: keep every put of a key and window.")
    ] = False,
    time_ordered: Annotated[
        bool, typer.Option("--time-ordered", help="Of a window store: windows in order of start, then key.")
    ] = False,
    batched_changelog: Annotated[
        bool, typer.Option("--batched-changelog", help="Of a join-window store: log a key's last value only.")
    ] = False,
    serde: Annotated[str | None, typer.Option("--serde", help="natural (the default) or kafka.")] = None,
    key_groups: Annotated[int | None, typer.Option("--key-groups", help="Parts that keys are hashed into.")] = None,
) -> None:
    """Create a store, and the warehouse where it does not exist."""
    from statestore.connector.cli.argument_texts import duration
    from statestore.connector.cli.commits import create_store

    options = {
        "history_retention": duration(history_retention),
        "retention": duration(retention),
        "window_size": duration(window_size),
        "window_before": duration(window_before),
        "window_after": duration(window_after),
        "segment_interval": duration(segment_interval),
        "num_segments": num_segments,
        "retain_duplicates": retain_duplicates or None,
        "time_ordered": time_ordered or None,
        "batched_changelog": batched_changelog or None,
        "serde": serde,
        "key_groups": key_groups,
    }
    create_store(path, store, kind, key, value, {name: of for name, of in options.items() if of is not None})
    say(f"created {store}, a {kind} store, in {path}")


def put(
    path: args.Path_,
    store: args.Store,
    key: args.Key,
    value: Annotated[
        str, typer.Argument(help="The value: its text for one column, JSON for several.", show_default=False)
    ],
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", help="State time: ISO-8601 with a zone, or epoch milliseconds. Default: now."),
    ] = None,
) -> None:
    """Put one value and commit it.

    The key of a window or session has its times too, as in the output of `get`.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import say_seconds
    from statestore.connector.cli.commits import put_value, say_written

    if timestamp is not None:
        say_seconds(open_warehouse(path), store, {"--timestamp": timestamp})

    say_written(put_value(path, store, key, value, timestamp), store)


def drop(
    path: args.Path_,
    store: args.Store,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a store and everything in it, after a question."""
    from statestore.connector.cli.commits import drop_store, existing

    existing(path, store)
    if not yes and not agreed(f"Remove {store} and all its history from {path}?"):
        say(f"{store} stays")
        raise typer.Exit(1)
    drop_store(path, store)
    say(f"removed {store}")


# Commands that write rows of a store to a data file, and rows of a data file to a store.

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
    from statestore.connector.cli.argument_texts import column_names, moment, named, say_seconds
    from statestore.connector.cli.queries import passing
    from statestore.connector.data_files import format_of, write_file, write_stream
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
    from statestore.connector.cli.argument_texts import names_in
    from statestore.connector.cli.commits import load_rows, say_written
    from statestore.connector.data_files import format_of

    written = load_rows(path, store, file, format_of(file, form), names_in(columns, "--columns"), timestamp)
    say_written(written, store)


# The command that makes a keyed store of an engine's keyed state.

Source = Annotated[
    str,
    typer.Argument(
        help="A savepoint or checkpoint with keyed state, such as one of Flink.",
        show_default=False,
        autocompletion=args.complete_path,
    ),
]
ImportedStore = Annotated[
    str,
    typer.Argument(
        help="The path of the new keyed store, like warehouse/sessions.",
        show_default=False,
        autocompletion=args.complete_path,
    ),
]


def import_store(
    source: Source,
    store: ImportedStore,
    operator: Annotated[
        str | None, typer.Option("--operator", help="The operator, by name or id (needed if there are several).")
    ] = None,
    states: Annotated[str | None, typer.Option("--states", help="Only these states: a,b,c.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Names for the key columns: a,b,c.")] = None,
    whole_key: Annotated[
        bool, typer.Option("--whole-key", help="Keep a key of several fields as one column; fields may be null.")
    ] = False,
    last_access: Annotated[
        str | None,
        typer.Option("--last-access", help="Times of last access of states with a time to live: keep or drop."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="Divide the files as for so many tasks (default: as the operator).")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", help="Of several checkpoints, this one.")] = None,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Make a keyed store of the keyed state of one operator, for run_keyed and run_keyed_stream to go on with.

    The store appears when everything is in it; an existing store is never changed.
    """
    from statestore.connector.cli.argument_texts import names_in
    from statestore.connector.imports.import_keyed import import_states

    shown = form_of(form, as_json)  # a wrong form is reported before the import
    chosen: Any = last_access
    with progress() as advance:
        made = import_states(
            source,
            store,
            selected,
            operator=operator,
            states=names_in(states, "--states"),
            key=names_in(key, "--key"),
            whole_key=whole_key,
            last_access=chosen,
            tasks=tasks,
            version=version,
            progress=lambda state, rows, most: advance(f"import {state}", rows, most),
        )
    rows = [{"state": each.name, "from": each.source, "is": each.described, "rows": each.rows} for each in made.states]
    if not show_objects(list(rows[0]), rows, shown):
        show_grid(
            Grid(list(rows[0]), [False, False, False, True], [list(map(cell, row.values())) for row in rows]), full=full
        )
    keys = ", ".join(made.key.names)
    say(
        f"operator {made.operator} is version {made.version} of {made.path}, keyed by {keys}, in "
        f"{made.key_groups} key groups"
    )
