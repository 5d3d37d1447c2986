"""HTTP routes that export the current view: as a text to copy, and as a file to download."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from statestore.catalog.reads.arguments import keys_named
from statestore.connector.data_files import is_binary, write_file
from statestore.connector.explorer.answering import Line, Lines
from statestore.connector.explorer.copies import Source, absolute, copies_of
from statestore.connector.explorer.differences import bounded_difference, matching
from statestore.connector.explorer.edit_copies import edits_of
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.questions import ShownView, Sorting, number_of, view_of
from statestore.connector.explorer.row_files import RowFiles
from statestore.connector.terminal import delimited_cell
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values
from statestore.formats.values.unique_names import unique_names

PIECE = 1 << 20
Given = Mapping[str, str]
OfTable = Callable[[Callable[[StateTable, Given, Limits], Any], Line], Callable[[Request], Awaitable[Response]]]


def export_routes(places: OpenedPaths, row_files: RowFiles, of_table: OfTable, lines: Lines) -> list[Route]:
    """Return the routes; ``of_table`` makes the answer to a request of work on the table that it names,
    in a line."""
    offers = _Offers(row_files.folder)

    def copies(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        path = absolute(places.paths[number_of(given, "place", 0) or 0])
        return copies_of(Source(table, path, places.options), view_of(table, given))

    def edits(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return edits_of(table, given, places, row_files, limits)

    def exported(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return export(table, given, row_files, offers, limits)

    def reach(table: StateTable, given: Given, limits: Limits) -> dict[str, Any]:
        return _reach_of(table, view_of(table, given))

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
        Route("/api/edits", of_table(edits, lines.reads)),
        Route("/api/export", of_table(exported, lines.exports)),
        Route("/api/reach", of_table(reach, lines.looks)),
        Route("/download/{ticket}", download),
    ]


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece


# Files to download: all that the page shows, with its types.
#
# A file is written before it is offered, so an error is a sentence on the page, and what is downloaded is whole.
# Batches go from the table into the file, so the memory is that of a batch.

SECONDS = 3600.0
MAX_BYTES = 16 << 30
KEPT = 4  # files that are offered at a time
CHUNK = 20_000  # sorted rows that are gathered at a time
MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.file",
}
Batches = tuple[pa.Schema, Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class _Offered:
    """A file that waits for its download, with the name that the browser gives it."""

    path: Path
    name: str
    form: str


@dataclass
class _Offers:
    """The newest KEPT files, each of which is downloaded once. ``folder`` is removed by whoever made it."""

    folder: Path
    _kept: dict[str, _Offered] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, offered: _Offered) -> str:
        """Return the ticket for a file, which nobody can guess."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._kept[ticket] = offered
            for old in list(self._kept)[:-KEPT]:
                self._kept.pop(old).path.unlink(missing_ok=True)
        return ticket

    def take(self, ticket: str) -> _Offered | None:
        """Return the file of a ticket, which is then used up."""
        with self._lock:
            return self._kept.pop(ticket, None)


def export(
    table: StateTable, given: Mapping[str, str], row_files: RowFiles, offers: _Offers, limits: Limits
) -> dict[str, Any]:
    """Write what the page shows in the ``form`` parquet, csv or arrow; return its ticket, name and number of rows.

    CSV has a column for each field of a struct, and lists, maps and binary as texts. Raises InvalidInputError for what
    is not understood, UnsupportedError UNSUPPORTED_TYPE for a column that the format cannot hold, and EXPLORER_LIMIT.
    """
    form = given.get("form") or ""
    if form not in MEDIA:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"form is {shown(form)}; expected one of {', '.join(MEDIA)}")
    limits.seconds = SECONDS
    view = view_of(table, given)
    schema, batches = _rows_of(table, view, number_of(given, "place", 0) or 0, row_files, limits)
    if form == "csv":
        schema, batches = _flat(schema, batches)
    name = f"{_safe(table.name)}{_suffix(view)}.{form}"
    path = offers.folder / f"export-{secrets.token_hex(8)}.{form}"
    rows = write_file(path, form, schema, _bounded(batches, limits))
    return {"ticket": offers.add(_Offered(path, name, form)), "name": name, "rows": rows, "bytes": path.stat().st_size}


def _rows_of(table: StateTable, view: ShownView, place: int, row_files: RowFiles, limits: Limits) -> Batches:
    if view.kind == "compare":
        found = bounded_difference(table, view.old, view.new, limits, view.filters)
        return found.schema, (matching(batch, view.filters) for batch in limits.watched(iter(found)))
    if view.kind == "life":
        query = Query(mode="history", columns=tuple(view.life_columns(table)), filters=tuple(view.filters))
        sorting: Sorting | None = Sorting(view.life_start(table), False, nulls_first=True)
    else:
        query = Query(filters=tuple(view.filters), version=view.new.version, as_of=view.new.as_of)
        sorting = view.sorting
    schema = table.schema(query)
    if sorting is None:
        return schema, limits.read(table, query)
    row_file = row_files.of(place, table, query, limits)
    chunks = (row_file.rows(sorting, at, CHUNK, limits) for at in range(0, row_file.count, CHUNK))
    return schema, (batch for chunk in chunks for batch in chunk.to_batches())


def _bounded(batches: Iterator[pa.RecordBatch], limits: Limits) -> Iterator[pa.RecordBatch]:
    written = 0
    limits.check()
    for batch in batches:
        written += batch.nbytes
        if written > MAX_BYTES:
            raise UnsupportedError(
                ErrorCode.EXPLORER_LIMIT,
                f"the rows take more than {MAX_BYTES >> 30} GiB, which is the most that the explorer offers as a file; "
                "add a filter, or take statestore export, which has no limit",
            )
        yield batch
        limits.check()


def _flat(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Batches:
    """Return the rows with a column for each field of a struct, and with texts for what CSV cannot hold."""
    return _flat_batch(pa.RecordBatch.from_pylist([], schema)).schema, map(_flat_batch, batches)


def _flat_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    pairs = zip(batch.schema.names, batch.columns, strict=True)
    parts = [part for name, column in pairs for part in _parts(name, column)]
    return pa.RecordBatch.from_arrays(
        [_texts(column) for _, column in parts], names=unique_names([n for n, _ in parts], ignore_case=False)
    )


def _texts(column: pa.Array) -> pa.Array:
    """Return lists, maps and binary as the command line prints them into CSV; other columns as they are."""
    if not pa.types.is_nested(column.type) and not is_binary(column.type):
        return column
    return pa.array([delimited_cell(plain(value)) for value in python_values(column)], pa.string())


def _parts(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if not pa.types.is_struct(column.type):
        yield name, column
        return
    for number, each in enumerate(column.type):
        yield from _parts(f"{name}.{each.name}", pc.struct_field(column, [number]))


def _safe(name: str) -> str:
    """Return a name of a file that holds nothing that a header, a shell or a file system takes for its own."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:80] or "table"


def _suffix(view: ShownView) -> str:
    if view.kind == "life":
        return "-life"
    version = "" if view.new.version is None else f"-v{view.new.version}"
    return f"-compared{version}" if view.kind == "compare" else version


# How many rows a filtered question may have to look at.


def _reach_of(table: StateTable, view: ShownView) -> dict[str, Any]:
    """Return whether the filters name whole keys, as ``lookup``, and the most rows that are read with them and without
    any, as ``read`` and ``all``; None where only a read finds a number."""
    query = Query(filters=tuple(view.filters), version=view.new.version, as_of=view.new.as_of)
    whole = Query(version=view.new.version, as_of=view.new.as_of)
    return {"lookup": keys_named(table, query) is not None, "read": _rows(table, query), "all": _rows(table, whole)}


def _rows(table: StateTable, query: Query) -> int | None:
    bounds = [split.rows for split in table.splits(query)]
    known = [each for each in bounds if each is not None]
    return sum(known) if len(known) == len(bounds) else None
