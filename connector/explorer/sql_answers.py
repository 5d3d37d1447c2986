"""Answers of statements, kept in files from which pages and points of a chart are read, and the routes to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer.answering import Lines
from statestore.connector.explorer.limits import SECONDS_BETWEEN, Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.pages import MAX_ROWS as PAGE_ROWS
from statestore.connector.explorer.pages import shown_as, shown_rows
from statestore.connector.explorer.questions import Sorting, number_of
from statestore.connector.explorer.row_files import RowFile
from statestore.connector.sql.limited_statement import names_of, run_limited
from statestore.connector.sql.sql_duckdb import error_of_duckdb
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, shown
from statestore.formats.notices import notices_to
from statestore.formats.values.unique_names import unique_names

KEPT = 4
MAX_ROWS = 1_000_000
MAX_BYTES = 1 << 30
BATCH_ROWS = 2_048  # as many as a vector of DuckDB has, because rows may be wide
Given = Mapping[str, str]
Key = tuple[int, str, str]
"""A place, a statement, and what distinguishes one run of it from others."""


@dataclass(frozen=True)
class Answer:
    """The rows of one statement, of which the file has the first ones if it ``is_cut``."""

    row_file: RowFile
    schema: pa.Schema
    is_cut: bool
    seconds: float


@dataclass
class _Written:
    """Writes the rows of a relation into a file, up to MAX_ROWS rows or MAX_BYTES bytes."""

    path: Path
    limits: Limits
    schema: pa.Schema | None = None
    sizes: list[int] = field(default_factory=list)
    is_cut: bool = False

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        reader = relation.to_arrow_reader(BATCH_ROWS)
        names = unique_names(reader.schema.names, ignore_case=False)
        self.schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
        with pa.OSFile(str(self.path), "wb") as file, pa.ipc.new_file(file, self.schema) as writer:
            rows = written = 0
            for batch in self.limits.watched(_read(reader)):
                room = 0 if written > MAX_BYTES else MAX_ROWS - rows
                if room:
                    kept = batch.slice(0, room)
                    writer.write_batch(pa.RecordBatch.from_arrays(kept.columns, schema=self.schema))
                    self.sizes.append(kept.num_rows)
                    rows, written = rows + kept.num_rows, written + kept.nbytes
                if room < batch.num_rows:
                    self.is_cut = True
                    break
        return pa.table({})


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows. Raises duckdb.Error."""
    try:
        yield from (batch for batch in reader if batch.num_rows)
    except (OSError, pa.ArrowException) as error:
        raise error_of_duckdb(str(error)) from error


@dataclass
class Answers:
    """The newest KEPT answers, in a folder that is removed by whoever made it. One statement runs at a time, so that
    the memory for one is the memory for all."""

    folder: Path
    _kept: dict[Key, Answer] = field(default_factory=dict)
    _kept_lock: threading.Lock = field(default_factory=threading.Lock)
    _running: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0

    def of(self, key: Key, warehouse: Warehouse, limits: Limits) -> Answer:
        """Return the answer to the statement of a key, which runs when no such answer is kept."""
        found = self._known(key)
        while found is None and not self._running.acquire(timeout=SECONDS_BETWEEN):
            if limits.gone.is_set():
                limits.check()
        if found is None:
            try:
                found = self._known(key)  # another request may have asked for the same meanwhile
                if found is None:
                    self._number += 1
                    found = _answer(self.folder / f"sql{self._number}.arrow", key[1], warehouse, limits)
                    self._keep(key, found)
            finally:
                self._running.release()
        limits.heard(found.row_file.notices)
        return found

    def has(self, key: Key) -> bool:
        """Return whether the answer of a key is kept."""
        with self._kept_lock:
            return key in self._kept

    def _known(self, key: Key) -> Answer | None:
        with self._kept_lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
            return found

    def _keep(self, key: Key, answer: Answer) -> None:
        with self._kept_lock:
            self._kept[key] = answer
            for old in list(self._kept)[:-KEPT]:
                self._kept.pop(old).row_file.path.unlink(missing_ok=True)


def _answer(path: Path, text: str, warehouse: Warehouse, limits: Limits) -> Answer:
    own = Limits(limits.seconds, limits.gone)  # the time in which others ran does not count
    rows = _Written(path, own)
    notices: list[str] = []
    try:
        # DuckDB plans scans in threads of its own. All other questions have a block, so these take nobody else's.
        with notices_to(notices.append), notices_to(notices.append, all_threads=True):
            run_limited(warehouse, text, rows, own)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if rows.schema is None:
        raise InvalidInputError(ErrorCode.INVALID_SQL, "the statement has no rows; expected one that reads")
    starts = np.cumsum(np.array([0, *rows.sizes], np.int64))
    row_file = RowFile(path, starts[:-1], int(starts[-1]), notices=list(dict.fromkeys(notices)))
    return Answer(row_file, rows.schema, rows.is_cut, time.monotonic() - own.begun)


# Points of a chart: two columns of an answer as numbers, times or texts, and a third one that names the series.

MAX_POINTS = 5_000


def kind_of(kind: pa.DataType) -> str:
    """Return how a chart takes a column: as a ``number``, a ``time``, or as ``text``."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "time" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "text"


def points_of(answer: Answer, given: Given, limits: Limits) -> pa.Table:
    """Return ``x``, ``y`` and ``series`` of the first MAX_POINTS rows.

    Numbers are doubles and times epoch milliseconds. Rows whose x or y is null or no finite number are left out. The
    metadata has the number of all rows as ``rows``, of those that were looked at as ``seen``, and of those left out as
    ``left_out``.
    """
    x, y = _column(answer, given, "x"), _column(answer, given, "y")
    series = _column(answer, given, "series") if given.get("series") else None
    if kind_of(answer.schema.field(y).type) != "number":
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"y is {shown(given.get('y'))} of type {answer.schema.field(y).type}; expected a column of numbers",
        )
    rows = answer.row_file.rows(None, 0, MAX_POINTS, limits)
    named = pa.nulls(rows.num_rows, pa.string()) if series is None else _values(rows, series, as_text=True)
    found = pa.table({"x": _values(rows, x), "y": _values(rows, y), "series": named})
    kept = found.filter(pc.and_(_is_drawable(found["x"]), _is_drawable(found["y"])))
    facts = {"rows": answer.row_file.count, "seen": rows.num_rows, "left_out": rows.num_rows - kept.num_rows}
    return kept.replace_schema_metadata({name: str(value) for name, value in facts.items()})


def _column(answer: Answer, given: Given, name: str) -> int:
    wanted = given.get(name) or ""
    if wanted not in answer.schema.names:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{name} is {shown(wanted)}; expected one of {', '.join(answer.schema.names)}"
        )
    return int(answer.schema.get_field_index(wanted))


def _values(rows: pa.Table, at: int, as_text: bool = False) -> pa.Array:
    column = rows.column(at)
    kind = "text" if as_text else kind_of(column.type)
    if kind == "text":
        return shown_rows(rows.select([at])).column(0)
    if kind == "number":
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    per_ms = {"s": 1e-3, "ms": 1, "us": 1e3, "ns": 1e6}[column.type.unit]
    return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), per_ms)


def _is_drawable(column: pa.ChunkedArray) -> pa.Array:
    known = pc.is_valid(column)
    if not pa.types.is_floating(column.type):
        return known
    return pc.and_(known, pc.fill_null(pc.is_finite(column), False))


# The routes of questions in SQL. Each has the place, the statement, and a text that distinguishes one run of it from
# another, so that all requests about one run are answered from its rows.


def sql_routes(places: OpenedPaths, answers: Answers, lines: Lines) -> list[Route]:
    """Return the routes below /api/sql."""

    def of_answer(path: str, part: Callable[[Answer, Given, Limits], Any]) -> Route:
        async def asked(request: Request) -> Response:
            given = request.query_params
            line = lines.reads if _is_kept(answers, given) else lines.statements
            return await line.answered(
                request, lambda limits: part(_current_answer(places, answers, given, limits), given, limits)
            )

        return Route(path, asked)

    async def names(request: Request) -> Response:
        given = request.query_params
        return await lines.looks.answered(request, lambda limits: names_of(places.warehouse(_place(given))))

    return [
        of_answer("/api/sql", _facts),
        of_answer("/api/sql/rows", _rows),
        of_answer("/api/sql/points", points_of),
        Route("/api/sql/names", names),
    ]


def _is_kept(answers: Answers, given: Given) -> bool:
    with suppress(StateStoreError):  # of a wrong place, which the answer names
        return answers.has(_key(given))
    return False


def _key(given: Given) -> Key:
    return _place(given), given.get("sql") or "", given.get("run") or ""


def _place(given: Given) -> int:
    return number_of(given, "place", 0) or 0


def _current_answer(places: OpenedPaths, answers: Answers, given: Given, limits: Limits) -> Answer:
    """Return the answer of the pinned tables, or of the newest ones if files of the pinned ones are gone."""
    key = place, text, _ = _key(given)
    if not text.strip():
        raise InvalidInputError(ErrorCode.INVALID_SQL, "there is no statement; type one, such as FROM and a table")
    try:
        return answers.of(key, places.warehouse(place), limits)
    except StateStoreError as error:
        places.renew_after(place, error)
    return answers.of(key, places.warehouse(place), limits)


def _facts(answer: Answer, given: Given, limits: Limits) -> dict[str, Any]:
    columns = [
        {"name": field.name, "type": shown_as(field).metadata[b"type"].decode(), "kind": kind_of(field.type)}
        for field in answer.schema
    ]
    return {"rows": answer.row_file.count, "cut": answer.is_cut, "seconds": answer.seconds, "columns": columns}


def _rows(answer: Answer, given: Given, limits: Limits) -> pa.Table:
    offset = number_of(given, "offset", 0) or 0
    limit = min(number_of(given, "limit", PAGE_ROWS) or 0, PAGE_ROWS)
    rows = answer.row_file.rows(_sorting(answer, given.get("sort") or ""), offset, limit, limits)
    facts = {"total": str(answer.row_file.count), "last": "1" if offset + limit >= answer.row_file.count else ""}
    return shown_rows(rows).replace_schema_metadata(facts)


def _sorting(answer: Answer, text: str) -> Sorting | None:
    """Return the order of a column, or of one after a minus, the greatest first."""
    names = answer.schema.names
    if not text or text in names:
        return Sorting(text, False) if text else None
    if text.startswith("-") and text[1:] in names:
        return Sorting(text[1:], True)
    raise InvalidInputError(
        ErrorCode.INVALID_OPTION, f"sort is {shown(text)}; expected one of {', '.join(names)}, or that after a minus"
    )
