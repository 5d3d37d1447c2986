"""The questions of the page, over HTTP: rows as Arrow streams, all else as JSON. The axis of versions and the moments
that a person types are answered here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from statestore.connector.explorer.answering import Line, Lines
from statestore.connector.explorer.differences import DIFF_ROWS, by_column, difference_of
from statestore.connector.explorer.exports import export_routes
from statestore.connector.explorer.growth import growth_routes
from statestore.connector.explorer.key_life import FIRST_ROWS, beliefs_of, count_of_life, life_of, milliseconds
from statestore.connector.explorer.limits import ASKED, Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.pages import MAX_ROWS, count_of, page_of, shown_rows
from statestore.connector.explorer.questions import names_of, number_of, point_of, query_of, sorting_of
from statestore.connector.explorer.row_files import RowFile, RowFiles
from statestore.connector.explorer.sql_answers import Answers, sql_routes
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, shown
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import format_time, parse_time

STATIC = {
    "licenses.txt": "text/plain",
    "app.js": "text/javascript",
    "app.css": "text/css",
    "icon.svg": "image/svg+xml",
}
MAX_COMMITS = 200
Given = Mapping[str, str]
Asked = Callable[[Request], Awaitable[Response]]
Work = Callable[[StateTable, Given, Limits], Any]


def application(places: OpenedPaths, row_files: RowFiles) -> Starlette:
    """Return the application that answers for some places; `guard.Guard` decides who may ask it."""
    lines = Lines()
    answers = _Answers(places, row_files)

    def of_places(look: Callable[[Given], Any]) -> Asked:
        async def asked(request: Request) -> Response:
            return await lines.looks.answered(request, lambda limits: look(request.query_params))

        return asked

    def of_table(work: Work, line: Line) -> Asked:
        async def asked(request: Request) -> Response:
            given = request.query_params
            return await line.answered(request, lambda limits: _twice(places, given, limits, work))

        return asked

    looks = (answers.overview, answers.marks, answers.tables, answers.job, answers.news)
    reads = (answers.rows, answers.count, answers.life, answers.life_count, answers.beliefs, answers.diff)
    routes = [
        Route("/", _static("index.html", "text/html")),
        *(Route(f"/static/{name}", _static(name, kind)) for name, kind in STATIC.items()),
        Route("/api/progress", _progress),
        *(Route(f"/api/{look.__name__}", of_places(look)) for look in looks),
        *(Route(f"/api/{work.__name__}", of_table(work, lines.looks)) for work in (answers.versions, answers.moment)),
        *(Route(f"/api/{work.__name__}", of_table(work, lines.reads)) for work in (*reads, answers.diff_rows)),
        *growth_routes(places, lines.reads),
        *export_routes(places, row_files, of_table, lines),
        *sql_routes(places, Answers(row_files.folder), lines),
    ]
    return Starlette(routes=routes)


@dataclass(frozen=True)
class _Answers:
    """The answers about places and tables. Each public method is a route of its name."""

    places: OpenedPaths
    row_files: RowFiles

    def overview(self, given: Given) -> Any:
        return self.places.overview()

    def marks(self, given: Given) -> Any:
        return self.places.marks()

    def tables(self, given: Given) -> Any:
        return self.places.tables(_place(given), names_of(given, "names"))

    def job(self, given: Given) -> Any:
        return self.places.job(_place(given))

    def news(self, given: Given) -> Any:
        return self.places.news(_place(given), given.get("table", ""))

    def rows(self, table: StateTable, given: Given, limits: Limits) -> pa.Table:
        query = query_of(table, given)
        offset, limit = (number_of(given, name, default) or 0 for name, default in (("offset", 0), ("limit", MAX_ROWS)))
        place = _place(given)
        file_of = partial(self.row_files.of, place, table, query, limits)
        page = page_of(table, query, sorting_of(table, given), offset, limit, file_of, limits)
        facts = {"total": "" if page.total is None else str(page.total), "last": "1" if page.is_last else ""}
        return shown_rows(page.rows).replace_schema_metadata(facts)

    def count(self, table: StateTable, given: Given, limits: Limits) -> dict[str, int]:
        return {"rows": count_of(table, query_of(table, given), limits)}

    def versions(self, table: StateTable, given: Given, limits: Limits) -> pa.Table:
        chosen = given.get("only")
        if chosen:
            numbers = [number_of({"version": each}, "version", None) or 0 for each in chosen.split(",")]
            return _commits_of(table, numbers[:MAX_COMMITS])
        first, last = table.kept_versions()
        return _versions_of(table).replace_schema_metadata({"first": str(first), "last": str(last)})

    def life(self, table: StateTable, given: Given, limits: Limits) -> pa.Table:
        return life_of(table, _of_key(table, given), number_of(given, "limit", FIRST_ROWS) or 0, limits)

    def life_count(self, table: StateTable, given: Given, limits: Limits) -> dict[str, int]:
        return {"rows": count_of_life(table, _of_key(table, given), limits)}

    def beliefs(self, table: StateTable, given: Given, limits: Limits) -> pa.Table:
        return beliefs_of(table, _of_key(table, given), limits)

    def _difference(self, table: StateTable, given: Given, limits: Limits) -> RowFile:
        old, new = (point_of(given, name) for name in ("from_", "to_"))
        filters = query_of(table, {"where": given.get("where", "")}).filters
        place = _place(given)
        key = ("diff", place, table.identity, table.name, table.kept_versions(), old, new, repr(filters))
        return self.row_files.kept(key, lambda path: difference_of(path, table, old, new, filters, limits), limits)

    def diff(self, table: StateTable, given: Given, limits: Limits) -> pa.Table:
        found = self._difference(table, given, limits)
        rows = found.rows(None, 0, min(number_of(given, "limit", DIFF_ROWS) or 0, DIFF_ROWS), limits)
        return shown_rows(rows).replace_schema_metadata({**found.facts, "kept": str(found.count)})

    def diff_rows(self, table: StateTable, given: Given, limits: Limits) -> pa.Table:
        found = self._difference(table, given, limits)
        offset, limit = number_of(given, "offset", 0) or 0, min(number_of(given, "limit", MAX_ROWS) or 0, MAX_ROWS)
        rows = by_column(found.rows(None, offset, limit, limits))
        last = "1" if offset + limit >= found.count else ""
        return rows.replace_schema_metadata({"total": str(found.count), "last": last})

    def moment(self, table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return moment_of(table, given.get("text", ""))


async def _progress(request: Request) -> Response:
    known = ASKED.get(request.query_params.get("ask", ""))
    if known is None:
        return JSONResponse({"rows": None, "looked": None, "of": None})
    return JSONResponse({"rows": known.rows, "looked": known.looked, "of": known.of})


def _twice(places: OpenedPaths, given: Given, limits: Limits, work: Work) -> Any:
    """Do the work on the pinned table, and once more on its newest state if the files of the pinned one are gone."""
    number, name = _place(given), given.get("table", "")
    try:
        return work(places.table(number, name), given, limits)
    except StateStoreError as error:
        places.renew_after(number, error)
    return work(places.table(number, name), given, limits)


def _place(given: Given) -> int:
    return number_of(given, "place", 0) or 0


def _of_key(table: StateTable, given: Given) -> Query:
    query = query_of(table, given, "history")
    if not query.filters:
        raise InvalidInputError(ErrorCode.MISSING_OPTION, "key: type a key, or its first parts")
    return query


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(_: Request) -> Response:
        return Response((files("statestore.connector.explorer") / "static" / name).read_bytes(), media_type=kind)

    return send


# The versions of a table, as the axis of the scrubber and as the commits that explain a change.

MARKS = 4_000
"""Places on the axis of versions; of more commits, some share one."""


def _versions_of(table: StateTable) -> pa.Table:
    """Return the axis of versions, oldest first.

    Each place on it has a ``version``, a ``time`` (epoch milliseconds), ``commits`` and ``changes``: the rows that were
    written or deleted, null where this is unknown. ``missing`` is the number of versions of a source that were gone
    before a capture could read them, in the gaps that the commits bridge.
    """
    found = table.versions()
    numbers = found["version"].cast(pa.float64()).to_numpy()
    size = max(1, -(-len(numbers) // MARKS))
    starts = np.arange(0, len(numbers), size)
    last = np.minimum(starts + size, len(numbers)) - 1
    if not len(numbers):
        starts = last = np.empty(0, np.int64)
    changes = [found[name].cast(pa.float64()) for name in ("rows", "tombstones") if name in found.column_names]
    known = changes[0] if changes else pa.chunked_array([pa.nulls(len(numbers), pa.float64())])
    for each in changes[1:]:
        known = pc.add(known, pc.fill_null(each, 0.0))
    whole = known.to_numpy() if len(numbers) else np.empty(0)
    missing = _missing_before(found)
    return pa.table(
        {
            "version": numbers[last],
            "time": milliseconds(found["timestamp"]).take(pa.array(last)),
            "commits": (last - starts + 1).astype(np.float64),
            "changes": pa.array(np.add.reduceat(whole, starts) if len(whole) else whole, from_pandas=True),
            "missing": (np.add.reduceat(missing, starts) if len(missing) else missing).astype(np.float64),
        }
    )


def _missing_before(versions: pa.Table) -> Ints:
    """Return the number of versions of a source that are missing before each commit."""
    if "missing_from" not in versions.column_names:
        return np.zeros(versions.num_rows, np.int64)
    counts = pc.add(pc.subtract(versions["missing_to"], versions["missing_from"]), 1)
    found: Ints = pc.fill_null(counts, 0).to_numpy()
    return found


def _commits_of(table: StateTable, versions: Sequence[int]) -> pa.Table:
    """Return all that is known of some commits, as texts."""
    found = table.versions()
    return shown_rows(found.filter(pc.is_in(found["version"], pa.array(versions, found["version"].type))))


# Moments as the page takes them: a version, a time, or both, as in ``statestore diff``.

_NUMBER = re.compile(r"[0-9]{1,16}")
_UTC = re.compile(r"\s*UTC$")  # as the page shows times


def moment_of(table: StateTable, text: str) -> dict[str, Any]:
    """Return the ``version`` that a text names, and ``as_of``, a state time as text, where it names one, too.

    The text is a version (``12``), ``latest``, a time, which stands for the newest version that was committed by then,
    or ``12@TIME``: that state time as version 12 recorded it. A time is anything that ``--as-of`` takes. ``note`` says
    what a person should know of the answer. Raises InvalidInputError INVALID_OPTION, and NotFoundError for no such
    version.
    """
    first, last = table.kept_versions()
    version, at, time = (part.strip() for part in _UTC.sub("Z", text.strip()).partition("@"))
    as_of = format_time(parse_time(time, "state time")) if at else ""
    if version.lower() in ("latest", "newest") or (at and not version):
        return {"version": last, "as_of": as_of, "note": ""}
    if _NUMBER.fullmatch(version) and first <= int(version) <= last:
        return {"version": int(version), "as_of": as_of, "note": ""}
    if at or (_NUMBER.fullmatch(version) and len(version) < 9):  # shorter than any time in epoch seconds since 1973
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"version {shown(version)}: expected one of {first} to {last}, or latest"
        )
    moment = parse_time(version, "go to")
    versions = table.versions()
    committed = versions.filter(pc.less_equal(versions["timestamp"].cast(pa.int64()), moment))["version"]
    kept = [each for each in committed.to_pylist() if first <= each <= last]
    note = "" if kept else f"nothing is kept of that time; version {first} is the oldest"
    return {"version": max(kept, default=first), "as_of": "", "note": note}
