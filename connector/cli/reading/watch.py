"""The command that prints changes as new versions appear."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.connector.cli.grammar import arguments as args
from statestore.connector.cli.grammar.engine_flags import NONE, Selected
from statestore.connector.terminal.output import say
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.replaced_versions import is_gone

if TYPE_CHECKING:
    import pyarrow as pa

    from statestore.formats.state_table import StateTable
    from statestore.formats.values.filters import Filter


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
    from statestore.connector.cli.grammar.argument_texts import column_names, duration, named
    from statestore.connector.key_text import asked_key
    from statestore.connector.terminal.forms import form_of, show_rows
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
