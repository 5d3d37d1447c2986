"""The command that watches a store: its changes as new versions appear, and statements that say when they are not as
they should be.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NONE, Selected
from statestore.connector.cli.read_commands import say_more
from statestore.connector.terminal import form_of, json_objects, say, show_rows
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.replaced_versions import is_gone

if TYPE_CHECKING:
    import pyarrow as pa

    from statestore.formats.state_table import StateTable
    from statestore.formats.values.filters import Filter

ALERT = 3
"""The exit status where a statement has returned rows."""


def watch(
    path: args.Path_,
    store: args.OnlyStore = None,
    key: Annotated[
        str | None, typer.Argument(help="Only changes of this key, or of the keys that begin so; as for get.")
    ] = None,
    columns: args.Columns = None,
    alert: Annotated[
        list[str] | None,
        typer.Option(
            "--alert",
            help="Instead of changes, run this SQL statement over the version that is there and each new one; rows end "
            "the command with exit code 3. May be repeated.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            help="With --alert, run this command where there are rows, and go on. It gets them as JSON lines on stdin, "
            "and STATESTORE_TABLE, STATESTORE_VERSION and STATESTORE_ALERT.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="With --alert, check the version that is there, and end: 0, or 3 for rows.")
    ] = False,
    interval: Annotated[str, typer.Option("--interval", help="How often to look for a newer version.")] = "1 second",
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many new versions.")] = None,
    limit: args.Limit = 1000,
    as_json: args.Json = False,
    form: args.Form = None,
    full: args.Full = False,
    selected: Selected = NONE,
) -> None:
    """Print the changes of each new version of a store, or of a running query's state, until Ctrl-C.

    With --alert "SELECT * FROM counts WHERE n > 1000000" the rows of a statement over each version instead.
    """
    from statestore.catalog.warehouse import open_warehouse
    from statestore.connector.cli.argument_texts import column_names, duration, named
    from statestore.connector.key_text import asked_key
    from statestore.formats.state_table import Query
    from statestore.formats.values.times import duration_ms

    chosen = form_of(form, as_json)
    seconds = (duration_ms(duration(interval), "--interval") or 0) / 1000
    if not alert and (run is not None or once):
        raise InvalidInputError(ErrorCode.MISSING_OPTION, "--run and --once go with --alert")
    if alert and (key is not None or columns is not None):
        raise InvalidInputError(
            ErrorCode.CONFLICTING_OPTIONS, "a key and --columns select changes; with --alert the statement selects"
        )
    command = None if run is None else _command(run)
    warehouse = open_warehouse(path, selected)
    table = warehouse.open(named(warehouse, store))
    with contextlib.suppress(KeyboardInterrupt):
        if alert:
            shown = Shown(chosen, full, limit)
            checks = Checks(str(path), selected, table.name, tuple(alert), command, shown, ends=command is None)
            watch_alerts(table, checks, 0 if once else count, lambda: time.sleep(seconds))
            return
        filters = () if key is None else asked_key(table, key, partial=True)
        query = Query(mode="changes", columns=column_names(columns))
        schema = table.schema(query)
        found = new_versions(table, count, lambda: time.sleep(seconds))
        if chosen == "table":
            for first, last in found:
                batches = changes_of(table, query.columns, filters, first, last)
                some = next((batch for batch in batches if batch.num_rows), None)
                if some is not None:
                    show_rows(schema, itertools.chain([some], batches), chosen, full=full)
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
    """Yield the changes of a range of versions. A line says where there are none, and where a version of it was removed
    meanwhile, whose changes are not known."""
    from statestore.formats.state_table import Query

    query = Query(mode="changes", columns=columns, filters=filters, start_version=first, end_version=last)
    some, which = "", f"version {first}" if first == last else f"versions {first} to {last}"
    try:
        bound = table.pin()
        for split in bound.splits(query):
            for batch in bound.read(split, query):
                some = some or ("some of " if batch.num_rows else "")
                yield batch
        if not some:
            say(f"{table.name}: {which} without changes{' of this key' if filters else ''}")
    except NotFoundError as error:
        if not is_gone(error) and error.code != ErrorCode.VERSION_NOT_FOUND:
            raise
        say(f"{table.name}: {some}the changes of {which} are not known: {error.message}")


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


# Statements over each version.


@dataclass(frozen=True)
class Shown:
    """The form in which rows are printed, whether in full, and how many of them."""

    form: str
    full: bool
    limit: int


@dataclass(frozen=True)
class Checks:
    """Statements about one table. ``command`` is run where one returns rows; ``ends``: rows end the watch."""

    path: str
    selected: Mapping[str, str]
    table: str
    statements: tuple[str, ...]
    command: Sequence[str] | None
    shown: Shown
    ends: bool

    def at(self, version: int) -> bool:
        """Run all statements with the table at a version, and tell of their rows; return whether there are any."""
        from statestore.connector.sql.query import answer_or_stop, for_statement
        from statestore.connector.sql.sql_duckdb import FirstRows

        failed = False
        for statement in self.statements:
            first = FirstRows(self.shown.limit)
            opened = partial(for_statement, self.path, self.selected)
            try:
                rows = answer_or_stop(opened, statement, first=first, versions={self.table: version})
            except NotFoundError as error:
                if not is_gone(error) and error.code != ErrorCode.VERSION_NOT_FOUND:
                    raise
                say(f"{self.table}: version {version} cannot be checked: {error.message}")
                return failed
            if first.total:
                failed = True
                self._tell(statement, version, rows, first.total)
        return failed

    def _tell(self, statement: str, version: int, rows: pa.Table, total: int) -> None:
        say(f"{self.table}: alert at version {version}, {total} row{'' if total == 1 else 's'}: {statement}")
        if self.command is None:
            show_rows(rows.schema, rows.to_batches(), self.shown.form, full=self.shown.full)
            say_more(total, self.shown.limit)
            sys.stdout.flush()
            return
        lines = [f"{json.dumps(row)}\n" for batch in rows.to_batches() for row in json_objects(batch)]
        about = {"STATESTORE_TABLE": self.table, "STATESTORE_VERSION": str(version), "STATESTORE_ALERT": statement}
        done = subprocess.run(self.command, input="".join(lines).encode(), env={**os.environ, **about}, check=False)
        if done.returncode:
            say(f"{self.table}: {self.command[0]} ended with status {done.returncode}")


def watch_alerts(table: StateTable, checks: Checks, count: int | None, wait: Callable[[], None]) -> None:
    """Check the newest version, and each newer one until there were ``count``. Raises Exit with status ALERT where rows
    end the watch, and after the last check where the newest version alone is checked."""
    failed = False
    for version in versions_to_check(table, count, wait):
        failed = checks.at(version)
        if failed and (checks.ends or count == 0):
            raise typer.Exit(ALERT)


def versions_to_check(table: StateTable, count: int | None, wait: Callable[[], None]) -> Iterator[int]:
    """Yield the newest version, and each newer one until there were ``count``. ``wait`` is called where there is none.

    A line says which versions were removed before they could be checked.
    """
    seen = table.kept_versions()[1]
    if count != 0:
        say(f"{table.name} is at version {seen}, which is checked, as each newer one is")
    yield seen
    end = None if count is None else seen + count
    while end is None or seen < end:
        oldest, newest = table.kept_versions()
        if newest <= seen:
            wait()
            continue
        last = newest if end is None else min(newest, end)
        if oldest > seen + 1:
            gone = min(oldest - 1, last)
            which = f"version {gone}" if gone == seen + 1 else f"versions {seen + 1} to {gone}"
            say(f"{table.name}: {which} cannot be checked: removed meanwhile; look more often, or keep more versions")
        yield from range(max(seen + 1, oldest), last + 1)
        seen = last


def _command(text: str) -> Sequence[str]:
    """Return the words of a command. Raises InvalidInputError INVALID_OPTION for one that cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"--run {text}: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"--run {text}: expected a command that can be run")
    return words
