"""The questions of the page, over HTTP: rows as Arrow streams, all else as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import pyarrow as pa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from statestore.catalog.reads.difference import Point
from statestore.connector.explorer.answering import Line, Lines
from statestore.connector.explorer.axis import commits_of, versions_of
from statestore.connector.explorer.beliefs import beliefs_of
from statestore.connector.explorer.differences import DIFF_ROWS, by_column, difference_of
from statestore.connector.explorer.growth.routes import growth_routes
from statestore.connector.explorer.leaving.leave_routes import leave_routes
from statestore.connector.explorer.limits import ASKED, Limits
from statestore.connector.explorer.lives import FIRST_ROWS, count_of_life, life_of
from statestore.connector.explorer.moments import moment_of
from statestore.connector.explorer.pages import MAX_ROWS, count_of, page_of
from statestore.connector.explorer.places import Places
from statestore.connector.explorer.questions import names_of, number_of, query_of, sorting_of
from statestore.connector.explorer.shown_rows import shown_rows
from statestore.connector.explorer.spools import Spool, Spools
from statestore.connector.explorer.sql_answers import Answers
from statestore.connector.explorer.sql_routes import sql_routes
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import parse_time

STATIC = {"licenses.txt": "text/plain", "app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml"}
MAX_COMMITS = 200
Given = Mapping[str, str]
Asked = Callable[[Request], Awaitable[Response]]
Work = Callable[[StateTable, Given, Limits], Any]


def application(places: Places, spools: Spools) -> Starlette:
    """Return the application that answers for some places; `guard.Guard` decides who may ask it."""
    lines = Lines()

    def overview(given: Given) -> Any:
        return places.overview()

    def marks(given: Given) -> Any:
        return places.marks()

    def tables(given: Given) -> Any:
        return places.tables(_place(given), names_of(given, "names"))

    def job(given: Given) -> Any:
        return places.job(_place(given))

    def news(given: Given) -> Any:
        return places.news(_place(given), given.get("table", ""))

    def of_places(look: Callable[[Given], Any]) -> Asked:
        async def asked(request: Request) -> Response:
            return await lines.looks.answered(request, lambda limits: look(request.query_params))

        return asked

    def of_table(work: Work, line: Line) -> Asked:
        async def asked(request: Request) -> Response:
            given = request.query_params
            return await line.answered(request, lambda limits: _twice(places, given, limits, work))

        return asked

    def rows(table: StateTable, given: Given, limits: Limits) -> pa.Table:
        query = query_of(table, given)
        offset, limit = (number_of(given, name, default) or 0 for name, default in (("offset", 0), ("limit", MAX_ROWS)))
        place = _place(given)
        spool_of = partial(spools.of, place, table, query, limits)
        page = page_of(table, query, sorting_of(table, given), offset, limit, spool_of, limits)
        facts = {"total": "" if page.total is None else str(page.total), "last": "1" if page.is_last else ""}
        return shown_rows(page.rows).replace_schema_metadata(facts)

    def count(table: StateTable, given: Given, limits: Limits) -> dict[str, int]:
        return {"rows": count_of(table, query_of(table, given), limits)}

    def versions(table: StateTable, given: Given, limits: Limits) -> pa.Table:
        chosen = given.get("only")
        if chosen:
            numbers = [number_of({"version": each}, "version", None) or 0 for each in chosen.split(",")]
            return commits_of(table, numbers[:MAX_COMMITS])
        first, last = table.kept_versions()
        return versions_of(table).replace_schema_metadata({"first": str(first), "last": str(last)})

    def life(table: StateTable, given: Given, limits: Limits) -> pa.Table:
        return life_of(table, _of_key(table, given), number_of(given, "limit", FIRST_ROWS) or 0, limits)

    def life_count(table: StateTable, given: Given, limits: Limits) -> dict[str, int]:
        return {"rows": count_of_life(table, _of_key(table, given), limits)}

    def beliefs(table: StateTable, given: Given, limits: Limits) -> pa.Table:
        return beliefs_of(table, _of_key(table, given), limits)

    def difference(table: StateTable, given: Given, limits: Limits) -> Spool:
        old, new = (_point(given, name) for name in ("from_", "to_"))
        filters = query_of(table, {"where": given.get("where", "")}).filters
        place = _place(given)
        key = ("diff", place, table.identity, table.name, table.kept_versions(), old, new, repr(filters))
        return spools.kept(key, lambda path: difference_of(path, table, old, new, filters, limits), limits)

    def diff(table: StateTable, given: Given, limits: Limits) -> pa.Table:
        found = difference(table, given, limits)
        rows = found.rows(None, 0, min(number_of(given, "limit", DIFF_ROWS) or 0, DIFF_ROWS), limits)
        return shown_rows(rows).replace_schema_metadata({**found.facts, "kept": str(found.count)})

    def diff_rows(table: StateTable, given: Given, limits: Limits) -> pa.Table:
        found = difference(table, given, limits)
        offset, limit = number_of(given, "offset", 0) or 0, min(number_of(given, "limit", MAX_ROWS) or 0, MAX_ROWS)
        rows = by_column(found.rows(None, offset, limit, limits))
        last = "1" if offset + limit >= found.count else ""
        return rows.replace_schema_metadata({"total": str(found.count), "last": last})

    async def progress(request: Request) -> Response:
        known = ASKED.get(request.query_params.get("ask", ""))
        if known is None:
            return JSONResponse({"rows": None, "looked": None, "of": None})
        return JSONResponse({"rows": known.rows, "looked": known.looked, "of": known.of})

    def moment(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return moment_of(table, given.get("text", ""))

    routes = [
        Route("/", _static("index.html", "text/html")),
        *(Route(f"/static/{name}", _static(name, kind)) for name, kind in STATIC.items()),
        Route("/api/progress", progress),
        *(Route(f"/api/{look.__name__}", of_places(look)) for look in (overview, marks, tables, job, news)),
        *(Route(f"/api/{work.__name__}", of_table(work, lines.looks)) for work in (versions, moment)),
        *(
            Route(f"/api/{work.__name__}", of_table(work, lines.reads))
            for work in (rows, count, life, life_count, beliefs, diff, diff_rows)
        ),
        *growth_routes(places, lines.reads),
        *leave_routes(places, spools, of_table, lines),
        *sql_routes(places, Answers(spools.folder), lines),
    ]
    return Starlette(routes=routes)


def _twice(places: Places, given: Given, limits: Limits, work: Work) -> Any:
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


def _point(given: Given, prefix: str) -> Point:
    as_of = given.get(f"{prefix}as_of") or None
    moment = None if as_of is None else parse_time(as_of, f"{prefix}as_of")
    return Point(number_of(given, f"{prefix}version", None), moment)


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(_: Request) -> Response:
        return Response((files("statestore.connector.explorer") / "static" / name).read_bytes(), media_type=kind)

    return send
