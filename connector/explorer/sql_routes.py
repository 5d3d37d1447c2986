"""The routes of questions in SQL. Each has the place, the statement, and a text that distinguishes one run of it from
another, so that all requests about one run are answered from its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from statestore.connector.explorer.answering import Lines
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.pages import MAX_ROWS, shown_as, shown_rows
from statestore.connector.explorer.questions import Sorting, number_of
from statestore.connector.explorer.sql_answers import Answer, Answers, Key, kind_of, points_of
from statestore.connector.sql.limited_statement import names_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, shown

Given = Mapping[str, str]


def sql_routes(places: OpenedPaths, answers: Answers, lines: Lines) -> list[Route]:
    """Return the routes below /api/sql."""

    def of_answer(path: str, part: Callable[[Answer, Given, Limits], Any]) -> Route:
        async def asked(request: Request) -> Response:
            given = request.query_params
            line = lines.reads if _is_kept(answers, given) else lines.statements
            return await line.answered(
                request, lambda limits: part(_answer(places, answers, given, limits), given, limits)
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


def _answer(places: OpenedPaths, answers: Answers, given: Given, limits: Limits) -> Answer:
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
    limit = min(number_of(given, "limit", MAX_ROWS) or 0, MAX_ROWS)
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
