"""Commands that show change: between two points of a store, between two tables, and every change of some versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NONE, POINT, Selected
from statestore.connector.cli.read_commands import say_more, say_rest
from statestore.connector.terminal import form_of, say, show_rows


def diff(
    path: args.Path_,
    store: args.OnlyStore = None,
    *,
    start: Annotated[str, typer.Option("--from", help=f"Before: {POINT}, or both as 12@TIME.")],
    end: Annotated[
        str, typer.Option("--to", help="After: in the same forms; an earlier point shows the reverse.")
    ] = "latest",
    columns: Annotated[str | None, typer.Option("--columns", help="Compare only these value columns: a,b.")] = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print how two points of a store differ: keys added, changed (old → new) and removed.

    A number alone is a version; state times are ISO-8601 with a zone.
    """
    from statestore.catalog.reads.difference import difference
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import column_names, named, point, say_meant_times
    from statestore.connector.cli.differences import first_and_counts, show

    chosen = form_of(form, as_json)
    warehouse = open_warehouse(path, selected).pin()
    table = warehouse.open(name := named(warehouse, store))
    say_meant_times(warehouse, name, {"--from": start, "--to": end})
    reader = difference(table, point(start, "--from"), point(end, "--to"), column_names(columns))
    shown, counts = first_and_counts(reader, limit)
    show(shown, chosen, full)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("added", "changed", "removed"))
    say(f"{kinds} (from {start} to {end})")
    say_more(counts.total(), limit)


def compare(
    path: args.Path_,
    other: Annotated[Path, typer.Argument(help="The path of the other table.", metavar="{other}")],
    columns: Annotated[str | None, typer.Option("--columns", help="Compare only these value columns: a,b.")] = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print how the newest state of one table differs from that of another: a state directory from its changelog.

    Both are paths of tables, such as logs/application-counts-changelog and
    application/counts.
    """
    from statestore.catalog.reads.difference import compare as compared
    from statestore.catalog.warehouse import open_table
    from statestore.connector.cli.argument_texts import column_names
    from statestore.connector.cli.differences import first_and_counts, show

    chosen = form_of(form, as_json)
    reader = compared(open_table(path, selected), open_table(other, selected), column_names(columns))
    shown, counts = first_and_counts(reader, limit)
    show(shown, chosen, full)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("added", "changed", "removed"))
    say(f"{kinds} (from {path} to {other})")
    say_more(counts.total(), limit)


def changes(
    path: args.Path_,
    store: args.OnlyStore = None,
    start: Annotated[str | None, typer.Option("--from", help=f"First, inclusive: {POINT}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Last, inclusive: in the same forms.")] = None,
    columns: args.Columns = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print the change feed: every insert, update and delete in a range of versions or of state times."""
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import column_names, named, say_meant_times
    from statestore.connector.cli.queries import change_range, scan_rows

    chosen = form_of(form, as_json)
    warehouse = open_warehouse(path, selected).pin()
    table = warehouse.open(name := named(warehouse, store))
    say_meant_times(warehouse, name, {"--from": start, "--to": end})
    rows = scan_rows(table, change_range(table, start, end, column_names(columns)), limit)
    show_rows(rows.schema, rows.batches(), chosen, full=full)
    say_rest(rows)
