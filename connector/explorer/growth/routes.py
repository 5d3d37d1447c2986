"""The routes of the growth of a table. Each part has its own, because some of them read the whole history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer.answering import Line
from statestore.connector.explorer.growth.ages import ages_of
from statestore.connector.explorer.growth.keys import biggest_keys, busiest_keys
from statestore.connector.explorer.growth.over_versions import sizes_of
from statestore.connector.explorer.growth.skew import skew_of
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.places import Places
from statestore.connector.explorer.questions import number_of, query_of
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import StateTable

Given = Mapping[str, str]
Part = Callable[[Warehouse, StateTable, Given, Limits], Any]


def growth_routes(places: Places, line: Line) -> list[Route]:
    """Return the routes below /api/growth."""

    def route(name: str, part: Part) -> Route:
        async def asked(request: Request) -> Response:
            given = request.query_params
            return await line.answered(request, lambda limits: _of_newest(places, given, limits, part))

        return Route(f"/api/growth/{name}", asked)

    return [
        route("versions", lambda warehouse, table, given, limits: sizes_of(warehouse, table, _reads(given), limits)),
        route("busiest", lambda warehouse, table, given, limits: busiest_keys(table, limits)),
        route("biggest", lambda warehouse, table, given, limits: biggest_keys(table, query_of(table, given), limits)),
        route("skew", lambda warehouse, table, given, limits: skew_of(table, query_of(table, given), limits)),
        route("ages", lambda warehouse, table, given, limits: ages_of(table, query_of(table, given), limits)),
    ]


def _reads(given: Given) -> bool:
    return given.get("read") == "1"


def _of_newest(places: Places, given: Given, limits: Limits, part: Part) -> Any:
    """Do the work on the pinned table, and once more on its newest state if the files of the pinned one are gone."""
    number, name = number_of(given, "place", 0) or 0, given.get("table", "")
    try:
        return _done(places, number, name, given, limits, part)
    except StateStoreError as error:
        places.renew_after(number, error)
    return _done(places, number, name, given, limits, part)


def _done(places: Places, number: int, name: str, given: Given, limits: Limits, part: Part) -> Any:
    warehouse = places.warehouse(number)
    return part(warehouse, warehouse.open(name), given, limits)
