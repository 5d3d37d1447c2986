"""Routes by which what the page shows leaves it: as a text to copy, and as a file to download."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from statestore.connector.explorer.answering import Line, Lines
from statestore.connector.explorer.leaving.copies import Source, absolute, copies_of
from statestore.connector.explorer.leaving.exports import MEDIA, Offers, export
from statestore.connector.explorer.leaving.reach import reach_of
from statestore.connector.explorer.leaving.shown_view import view_of
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.places import Places
from statestore.connector.explorer.questions import number_of
from statestore.connector.explorer.spools import Spools
from statestore.formats.state_table import StateTable

PIECE = 1 << 20
Given = Mapping[str, str]
OfTable = Callable[[Callable[[StateTable, Given, Limits], Any], Line], Callable[[Request], Awaitable[Response]]]


def leave_routes(places: Places, spools: Spools, of_table: OfTable, lines: Lines) -> list[Route]:
    """Return the routes; ``of_table`` makes the answer to a request of work on the table that it names,
    in a line."""
    offers = Offers(spools.folder)

    def copies(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        path = absolute(places.paths[number_of(given, "place", 0) or 0])
        return copies_of(Source(table, path, places.options), view_of(table, given))

    def exported(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return export(table, given, spools, offers, limits)

    def reach(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return reach_of(table, view_of(table, given))

    async def download(request: Request) -> Response:
        if request.method != "GET":  # HEAD, which Starlette adds, would use up the ticket
            return PlainTextResponse("A file is downloaded by GET.\n", 405, {"allow": "GET"})
        offered = offers.take(request.path_params["ticket"])
        if offered is None:
            return PlainTextResponse(
                "This file was downloaded before, or others came after it; export it again.\n", 404
            )
        size = offered.path.stat().st_size
        file = offered.path.open("rb")
        with suppress(OSError):  # a system that keeps open files removes it with the folder
            offered.path.unlink()
        headers = {"content-disposition": f'attachment; filename="{offered.name}"', "content-length": str(size)}
        return StreamingResponse(_pieces(file), media_type=MEDIA[offered.form], headers=headers)

    return [
        Route("/api/copies", of_table(copies, lines.looks)),
        Route("/api/export", of_table(exported, lines.exports)),
        Route("/api/reach", of_table(reach, lines.looks)),
        Route("/download/{ticket}", download),
    ]


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece
