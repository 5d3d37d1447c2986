"""Tables as the commands read them: text arguments become times and queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.arguments import Point
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.cli.argument_texts import moment, point, say_seconds
from statestore.connector.key_text import asked_key
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.interrupts import held_back
from statestore.formats.state_table import Mode, Query, StateTable
from statestore.formats.values.times import format_time


def read_key(
    path: str | Path,
    selected: Mapping[str, str],
    store: str,
    key: str,
    *,
    mode: Mode,
    version: int | None = None,
    as_of: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> pa.Table:
    """The rows of one key; InvalidInputError WRONG_KEY if the text is not a key of the store."""
    warehouse = open_warehouse(path, selected).pin()
    table = warehouse.open(store)
    say_seconds(warehouse, store, {"--as-of": as_of, "--from": start, "--to": end})
    query = Query(
        mode=mode,
        version=version,
        as_of=moment(as_of, "--as-of"),
        start_time=moment(start, "--from"),
        end_time=moment(end, "--to"),
        filters=asked_key(table, key, partial=True),
    )
    return read_all(table, query)


def first_value(path: str | Path, selected: Mapping[str, str], store: str, key: str) -> int | None:
    """Return the time of the oldest value of a key that is known, in epoch microseconds; None if there is none."""
    table = open_warehouse(path, selected).pin().open(store)
    query = Query(mode="history", filters=asked_key(table, key, partial=True))
    names = table.schema(query).names
    if "valid_from" not in names:
        return None
    found = pc.min(read_all(table, replace(query, columns=("valid_from",))).column("valid_from"))
    return None if found.as_py() is None else int(found.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())


def change_range(table: StateTable, start: str | None, end: str | None, columns: tuple[str, ...] | None) -> Query:
    """The query for the changes between two points, both versions or both times; ``latest`` as an end goes with
    either."""
    first = Point() if start is None else point(start, "--from")
    if start is not None and first == Point():  # latest: the changes of the newest version
        first = Point(table.kept_versions()[1])
    last = Point() if end is None else point(end, "--to")
    times = (first.as_of, last.as_of) != (None, None)
    if times and (first.version, last.version) != (None, None):
        raise InvalidInputError(
            ErrorCode.CONFLICTING_OPTIONS,
            f"changes from {start} to {end}: give two versions or two times, not one of each",
        )
    if times:
        return Query(mode="changes", columns=columns, start_time=first.as_of, end_time=last.as_of)
    return Query(mode="changes", columns=columns, start_version=first.version, end_version=last.version)


@dataclass
class LimitedRows:
    """Some rows of a table. ``batches`` yields up to ``limit`` of them; then ``cut`` is true if there are more.

    ``total`` returns the number of all rows, or None where only a read of them finds it.
    """

    schema: pa.Schema
    source: Iterator[pa.RecordBatch]
    limit: int
    total: Callable[[], int | None]
    cut: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        room = self.limit
        for batch in self.source:
            if batch.num_rows > room:
                self.cut = True
                if room:
                    yield batch.slice(0, room)
                return
            yield batch
            room -= batch.num_rows

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), schema=self.schema)


def scan_rows(table: StateTable, query: Query, limit: int) -> LimitedRows:
    """The first rows of a scan; segments that these rows do not need are not read."""
    splits = table.splits(query)
    batches = (batch for split in splits for batch in table.read(split, query) if batch.num_rows)
    return LimitedRows(table.schema(query), batches, limit, lambda: table.count(query))


def passing(table: StateTable, query: Query, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query for which a DuckDB expression is true (None: all), in batches.

    Raises InvalidInputError INVALID_SQL.
    """
    if where is None:
        for split in table.splits(query):
            yield from table.read(split, query)
        return
    with held_back():
        import duckdb

    names = table.schema(query).names
    whole = replace(query, columns=None)
    columns = [*table.schema(whole).names, *(name for name in names if name not in table.schema(whole).names)]
    whole = replace(query, columns=tuple(columns))
    with duckdb.connect(config={"enable_external_access": "false"}) as database:
        database.execute("SET TimeZone = 'UTC'")
        for split in table.splits(whole):
            for batch in table.read(split, whole):
                rows = pa.Table.from_batches([batch])
                try:
                    with held_back():
                        marks = database.from_arrow(rows).project(f"({where}) IS TRUE AS kept").to_arrow_table()
                except duckdb.Error as error:
                    raise InvalidInputError(ErrorCode.INVALID_SQL, f"--where {where}: {error}") from error
                if marks.num_columns != 1 or marks.num_rows != rows.num_rows:
                    raise InvalidInputError(ErrorCode.INVALID_SQL, f"--where {where}: expected one expression")
                yield from rows.filter(marks.column(0)).select(names).to_batches()


def where_rows(
    path: str | Path, selected: Mapping[str, str], table: StateTable, query: Query, where: str, limit: int
) -> LimitedRows:
    """The rows for which a DuckDB expression is true."""
    from statestore.connector.identifiers import quoted
    from statestore.connector.sql.query import answer_or_stop, for_statement

    columns = "*" if query.columns is None else ", ".join(map(quoted, query.columns))
    version = "" if query.version is None else f" AT (VERSION => {query.version})"
    time = "" if query.as_of is None else f" TIMESTAMP AS OF '{format_time(query.as_of)}'"
    text = f"SELECT {columns} FROM {quoted(table.name)}{version}{time} WHERE ({where}) LIMIT {limit + 1}"
    try:
        found = answer_or_stop(partial(for_statement, str(path), selected), text)
    except InvalidInputError as error:
        if error.code != ErrorCode.INVALID_SQL:
            raise
        # The position is one in this statement, which nobody typed.
        said = re.sub(r"^line \d+, column \d+: |, near '.*'$", "", error.message, flags=re.DOTALL)
        raise InvalidInputError(ErrorCode.INVALID_SQL, f"--where {where}: {said}") from error
    return LimitedRows(found.schema, iter(found.to_batches()), limit, lambda: None)


def read_table(path: str | Path, selected: Mapping[str, str], name: str, query: Query | None = None) -> pa.Table:
    return read_all(open_warehouse(path, selected).pin().open(name), query or Query())


def read_all(table: StateTable, query: Query) -> pa.Table:
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, schema=table.schema(query))
