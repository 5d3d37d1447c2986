"""Commands that show change: between two points of a store, between two tables, every change of some versions, and
changes as new versions appear.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NONE, POINT, Selected
from statestore.connector.cli.read_commands import say_more, say_rest
from statestore.connector.terminal import form_of, say, show_rows
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.replaced_versions import is_gone

if TYPE_CHECKING:
    import pyarrow as pa

    from statestore.formats.state_table import StateTable
    from statestore.formats.values.filters import Filter


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


# The command that prints changes as new versions appear.


def watch(
    path: args.Path_,
    store: args.OnlyStore = None,
    key: Annotated[
        str | None, typer.Argument(help="Only changes of this key, or of the keys that begin so; as for get.")
    ] = None,
    columns: args.Columns = None,
    interval: Annotated[str, typer.Option("--interval", help="How often to look for a newer version.")] = "1 second",
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many new versions.")] = None,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print the changes of each new version of a store, or of a running query's state, until Ctrl-C."""
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import column_names, duration, named
    from statestore.connector.key_text import asked_key
    from statestore.formats.state_table import Query
    from statestore.formats.values.times import duration_ms

    chosen = form_of(form, as_json)
    seconds = (duration_ms(duration(interval), "--interval") or 0) / 1000
    warehouse = open_warehouse(path, selected)
    table = warehouse.open(named(warehouse, store))
    filters = () if key is None else asked_key(table, key, partial=True)
    query = Query(mode="changes", columns=column_names(columns))
    schema = table.schema(query)
    found = new_versions(table, count, lambda: time.sleep(seconds))
    with contextlib.suppress(KeyboardInterrupt):
        if chosen == "table":
            for first, last in found:
                show_rows(schema, changes_of(table, query.columns, filters, first, last), chosen, full=full)
                sys.stdout.flush()
        else:
            show_rows(schema, _as_they_come(table, query.columns, filters, found), chosen)


def new_versions(table: StateTable, count: int | None, wait: Callable[[], None]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of the versions that appeared since the last look, until there were ``count``.

    ``wait`` is called where there is none.
    """
    seen = table.kept_versions()[1]
    say(f"{table.name} is at version {seen}; changes are printed as newer ones appear")
    left = count
    while left is None or left > 0:
        newest = table.kept_versions()[1]
        if newest <= seen:
            wait()
            continue
        last = newest if left is None else min(newest, seen + left)
        oldest = table.change_start()
        if oldest > seen:
            last = max(last, oldest)
            say(
                f"{table.name} has no version {seen} any more: the changes up to version {oldest} are not known, and "
                f"those after it are printed; keep more versions to see all"
            )
        if last > oldest:
            yield max(seen, oldest) + 1, last
        left = None if left is None else left - (last - seen)
        seen = last


def changes_of(
    table: StateTable, columns: tuple[str, ...] | None, filters: tuple[Filter, ...], first: int, last: int
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a range of versions. Where a version of it was removed meanwhile, a line says which changes
    are not known."""
    from statestore.formats.state_table import Query

    query = Query(mode="changes", columns=columns, filters=filters, start_version=first, end_version=last)
    some = ""
    try:
        bound = table.pin()
        for split in bound.splits(query):
            for batch in bound.read(split, query):
                some = "some of "
                yield batch
    except NotFoundError as error:
        if not is_gone(error) and error.code != ErrorCode.VERSION_NOT_FOUND:
            raise
        say(f"{table.name}: {some}the changes of versions {first} to {last} are not known: {error.message}")


def _as_they_come(
    table: StateTable,
    columns: tuple[str, ...] | None,
    filters: tuple[Filter, ...],
    found: Iterator[tuple[int, int]],
) -> Iterator[pa.RecordBatch]:
    sys.stdout.flush()
    for first, last in found:
        yield from changes_of(table, columns, filters, first, last)
        sys.stdout.flush()  # what was yielded is printed, and may be read through a pipe
