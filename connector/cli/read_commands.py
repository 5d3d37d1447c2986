"""Commands that read: a summary of all stores, one key, a whole store, its versions, statements of SQL, the report and
the explorer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore.connector import terminal
from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NONE, Selected
from statestore.connector.terminal import (
    DELIMITERS,
    Grid,
    cell,
    fits,
    form_of,
    human_bytes,
    progress,
    say,
    show_blocks,
    show_delimited,
    show_grid,
    show_line,
    show_rows,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from statestore.catalog.warehouse import Warehouse
    from statestore.connector.cli.queries import LimitedRows


def inspect(
    path: args.Path_,
    compatible_with: Annotated[
        str | None,
        typer.Option(
            "--compatible-with",
            help="Say instead what becomes of each state when this job is started from it: a savepoint or checkpoint "
            "of the job, or a file as `describe` prints it.",
        ),
    ] = None,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """List the stores and tables with their schemas, keys, versions, time spans, bytes, retention, last writer and
    health."""

    chosen = form_of(form, as_json)
    if compatible_with is not None:
        from statestore.connector.cli.restoring import show_restore

        show_restore(path, compatible_with, selected, chosen, full=full)
        return
    from statestore.catalog.engines.places_below import listed_below
    from statestore.catalog.summaries import summaries
    from statestore.catalog.warehouse import open_warehouse

    described = summaries(path, selected)
    if chosen == "json":
        for summary in described:
            show_line(summary)
    elif chosen in DELIMITERS:
        show_delimited([*SHOWN, "health"], map(_whole_cells, described), DELIMITERS[chosen])
    else:
        width = terminal.terminal_width()
        shown = _columns_within(described, None if full else width)
        if shown is None:
            show_blocks(_as_grid(described), width, fold=True)
        else:
            show_grid(_as_grid(described, shown), full=True)  # nothing is cut
            hidden = [_heading(name) for name in SHOWN if name not in shown]
            if hidden:
                say(f"no room for {', '.join(hidden)}; --full shows all")
        if len(described) == 1:
            for name, text in described[0].get("facts", {}).items():
                say(f"{name}: {text}")
            for detail in described[0].get("details", []):
                say(detail)
        else:
            _say_captures(described)
        warehouse = open_warehouse(path, selected).pin()
        is_edit = _say_edit(warehouse)
        for name in warehouse.waiting():
            say(f"{name}: a keyed store without a snapshot yet")
        if not warehouse.tables() and not warehouse.waiting() and not is_edit:
            say(f"{warehouse.path} holds no state yet: it was made, and no store is in it")
        others = warehouse.beside()
        if others:
            say(f"not shown, each with a path of its own: {listed_below(others, Path(warehouse.path))}")
    damaged, unreadable = (
        [summary["store"] for summary in described if summary["status"] == status]
        for status in ("damaged", "unreadable")
    )
    if unreadable:
        say(f"cannot be read: {', '.join(unreadable)}; the health of each says why")
    if damaged:
        say(f"damaged: {', '.join(damaged)}; `statestore verify` reports what is affected")
    if damaged or unreadable:
        raise typer.Exit(1)


def _say_captures(described: Sequence[dict[str, Any]]) -> None:
    """Tell of each captured store how far its capture came."""
    from statestore.catalog.describe.captured_summary import duration_in_words

    for summary in described:
        found = summary.get("captured")
        if found is not None:
            lag = duration_in_words(found["lag_seconds"])
            say(f"{summary['store']}: captured up to version {found['newest']} of {found['newest_time']}, {lag} ago")


def _say_edit(warehouse: Warehouse) -> bool:
    """Tell of the edit that made the state; return whether one did."""
    try:
        receipt = warehouse.receipt()
    except CorruptError as error:
        say(str(error))
        return True
    for line in receipt.lines() if receipt is not None else []:
        say(line)
    return receipt is not None


def describe(path: args.Path_, selected: Selected = NONE) -> None:
    """Print a TOML file with what is known and guessed of the states at PATH, to be corrected and given to later
    reads, or to inspect --compatible-with."""
    from statestore.catalog.warehouse import open_warehouse

    typer.echo(open_warehouse(path, selected).describe(), nl=False)


def sql(
    path: args.Path_,
    query: Annotated[
        str | None,
        typer.Argument(
            help="DuckDB SQL; tables take TIMESTAMP AS OF and VERSION AS OF. From stdin if it is - or left out.",
            show_default=False,
        ),
    ] = None,
    as_json: args.Json = False,
    form: args.Form = None,
    limit: args.Limit = 1000,
    full: args.Full = False,
    allow_external_access: Annotated[
        bool, typer.Option("--allow-external-access", help="Let the query read other files.")
    ] = False,
    selected: Selected = NONE,
) -> None:
    """Run one SQL statement over the tables at PATH."""
    from statestore.connector.sql.query import answer_or_stop, for_statement
    from statestore.connector.sql.sql_duckdb import FirstRows

    chosen, first = form_of(form, as_json), FirstRows(limit)
    opened = partial(for_statement, str(path), selected)
    found = answer_or_stop(opened, _statement(query), allow_external_access, first)
    show_rows(found.schema, found.to_batches(), chosen, full=full)
    say_more(first.total, limit)


def shell(path: args.Path_, selected: Selected = NONE) -> None:
    """Start an SQL shell over the tables at PATH, or run the statements of a pipe.

    Statements end in ; and .help lists further commands. Exit code 1 if a statement of a pipe failed, 130 if Ctrl-C
    ended it.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.shell import Session, piped

    open_warehouse(path, selected)  # a wrong path is reported before the first statement
    session = Session(str(path), selected, interactive=sys.stdin.isatty())
    if not session.interactive:
        session.run(piped(sys.stdin))
        if session.failures:
            raise typer.Exit(1)
        return
    from statestore.connector.cli.shell_prompt import terminal_prompt

    session.run(terminal_prompt(session))


def get(
    path: args.Path_,
    store: args.Store,
    key: args.KeyOrPrefix,
    as_of: args.AsOf = None,
    version: args.Version = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print the value of one key, now or as of a moment; for a window or session store, its windows or sessions."""
    from statestore.connector.cli.argument_texts import moment
    from statestore.connector.cli.queries import first_value, read_key
    from statestore.formats.values.times import format_time

    chosen = form_of(form, as_json)
    rows = read_key(path, selected, store, key, mode="state", as_of=as_of, version=version)
    if not rows.num_rows:
        first = None if as_of is None else first_value(path, selected, store, key)
        early = first is not None and first > (moment(as_of, "--as-of") or 0)
        say(f"no value for this key in {store}")
        if first is not None and early:
            say(f"the first value of this key is from {format_time(first)}")
        raise typer.Exit(1)
    _show_some(rows, limit, chosen, full)


def history(
    path: args.Path_,
    store: args.Store,
    key: args.KeyOrPrefix,
    start: Annotated[str | None, typer.Option("--from", help="Versions valid at or after this state time.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Versions valid at or before this state time.")] = None,
    version: args.Version = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print every version of one key with its interval, oldest first."""
    from statestore.catalog.engines.history_columns import oldest_first
    from statestore.connector.cli.queries import read_key

    chosen = form_of(form, as_json)
    rows = read_key(path, selected, store, key, mode="history", version=version, start=start, end=end)
    if not rows.num_rows:
        say(f"no version of this key in {store}" + ("" if start is end is None else " at these times"))
        raise typer.Exit(1)
    _show_some(oldest_first(rows), limit, chosen, full)


def scan(
    path: args.Path_,
    store: args.OnlyStore = None,
    as_of: args.AsOf = None,
    version: args.Version = None,
    columns: args.Columns = None,
    where: Annotated[str | None, typer.Option("--where", help="Only rows for which this SQL holds.")] = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print the rows of a store, now or as of a moment, in no particular order; reading stops at --limit."""
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import column_names, moment, named, say_seconds
    from statestore.connector.cli.queries import scan_rows, where_rows
    from statestore.formats.state_table import Query

    chosen = form_of(form, as_json)
    warehouse = open_warehouse(path, selected).pin()
    table = warehouse.open(name := named(warehouse, store))
    say_seconds(warehouse, name, {"--as-of": as_of})
    query = Query(columns=column_names(columns), as_of=moment(as_of, "--as-of"), version=version)
    rows = scan_rows(table, query, limit) if where is None else where_rows(path, selected, table, query, where, limit)
    show_rows(rows.schema, rows.batches(), chosen, full=full)
    say_rest(rows)


def versions(
    path: args.Path_,
    store: args.OnlyStore = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print the store's commits, newest first: time, writer, rows, bytes."""
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import named
    from statestore.connector.cli.queries import read_table

    name = named(open_warehouse(path, selected).pin(), store)
    _show_some(
        read_table(path, selected, f"{name}$versions").sort_by([("version", "descending")]),
        limit,
        form_of(form, as_json),
        full,
    )


def report(
    path: args.Path_,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    store: Annotated[
        str | None, typer.Option("--store", help="Only this store.", autocompletion=args.complete_store)
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Also show the lifeline of this key, given as text.")] = None,
    as_json: args.Json = False,
    selected: Selected = NONE,
) -> None:
    """Write one self-contained HTML page: sizes, keys and churn over versions, key groups over time, the biggest and
    busiest keys, and lifelines of keys."""
    from statestore.connector.report.write import write_page

    with progress() as advance:
        written = write_page(path, out, selected, store=store, key=key, progress=advance)
    size = written.stat().st_size
    if as_json:
        show_line({"report": str(written), "bytes": size})
    else:
        say(f"{written} ({human_bytes(size)}); open it in a browser")


def _statement(query: str | None) -> str:
    """Return the SQL that was given or stands at stdin. Raises InvalidInputError INVALID_SQL where nobody gives one."""
    if query not in (None, "-"):
        return str(query)
    if query is None and sys.stdin.isatty():
        raise InvalidInputError(
            ErrorCode.INVALID_SQL,
            "QUERY is missing; give one, or a pipe to stdin; statestore shell asks for statements",
        )
    return sys.stdin.read().removeprefix("\ufeff")


# `explore`: serves the explorer until Ctrl-C.


def explore(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Warehouses, stores or state of engines.")],
    port: Annotated[int, typer.Option("--port", help="The port of 127.0.0.1 to listen at; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")] = False,
    selected: Selected = NONE,
) -> None:
    """Serve a page on this machine that scrubs through the past of the state at the paths, until Ctrl-C.

    A folder of several of them, such as the checkpoints of several queries, stands for all that it holds now.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.explorer.server import explorer, opened_paths

    places = opened_paths(paths, selected)
    for path in places:
        try:
            open_warehouse(path, selected)  # a wrong path is reported before a browser opens
        except StateStoreError as error:
            if path in paths:
                raise
            say(f"{path} is shown with its error: {error}")
    made = explorer(places, selected, port)
    typer.echo(made.url)
    say("Ctrl-C ends it; the address holds a token, so keep it to yourself")
    made.run(in_browser=not no_browser)


# `statestore inspect` as a table: one row for each table; a damaged store does not hide the others.

SHOWN = (
    "store",
    "kind",
    "key",
    "value",
    "keys",
    "version",
    "from",
    "to",
    "bytes",
    "disk_bytes",
    "retention",
    "last_commit",
    "writer",
)
GIVE_WAY = ("writer", "last_commit", "retention", "from", "kind", "version", "to", "bytes")  # the first one goes first
SIZES = {"bytes": "live", "disk_bytes": "on disk"}
NUMBERS = ("keys", "version", *SIZES)


def _as_grid(found: list[dict[str, Any]], shown: Sequence[str] = SHOWN) -> Grid:
    """The objects of `summaries` as cells."""
    rows = [[*(_cell(name, item[name]) for name in shown), "; ".join(item["health"]) or "ok"] for item in found]
    names = [_heading(name) for name in (*shown, "health")]
    return Grid(names, [name in NUMBERS for name in (*shown, "health")], rows)


def _heading(name: str) -> str:
    """Return the words above a column."""
    return SIZES.get(name, name.replace("_", " "))


def _whole_cells(summary: dict[str, Any]) -> list[str | None]:
    """Return the cells of CSV: numbers of bytes, the retention null where it has no end."""
    cells = [
        cell(summary[name]) if name in SIZES or name == "retention" else _cell(name, summary[name]) for name in SHOWN
    ]
    return [*cells, "; ".join(summary["health"]) or "ok"]


def _columns_within(found: list[dict[str, Any]], width: int | None) -> Sequence[str] | None:
    """Return the columns that fit a terminal of this width without a cut; all where the width is None.

    The columns of GIVE_WAY are left out one by one. None: the others, with the key and the value, have no room.
    """
    shown = list(SHOWN)
    for name in (None, *GIVE_WAY):
        if name is not None:
            shown.remove(name)
        if width is None or fits(_as_grid(found, shown)) <= width:
            return shown
    return None


def _cell(name: str, value: Any) -> str | None:
    if isinstance(value, dict):
        return cell(", ".join(f"{column} {kind}" for column, kind in value.items()))
    if name == "retention" and value is None:
        return "for ever"
    return human_bytes(value) if name in SIZES and value is not None else cell(value)


# Rows printed up to a limit, and the number of those that are left.


def _show_some(table: pa.Table, limit: int, form: str, full: bool) -> None:

    show_rows(table.schema, table.slice(0, limit).to_batches(), form, full=full)
    say_more(table.num_rows, limit)


def say_rest(rows: LimitedRows) -> None:
    if not rows.cut:
        return
    total = rows.total()
    if total is None:
        say("more rows; a greater --limit shows them")
    else:
        say_more(total, rows.limit)


def say_more(count: int, limit: int) -> None:
    if count > limit:
        left = count - limit
        say(f"{left} more row{'s' if left > 1 else ''}; --limit {count} shows all")
