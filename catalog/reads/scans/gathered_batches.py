"""Record batches of the rows of pieces that belong to a window, read from many small pieces as if from one.

A batch costs its maker and its consumer some ten microseconds each, and a history has its rows in hundreds of pieces.
So only long parts whose rows all belong to the answer are passed as views of the file. The rows of all others are
judged together, and copied together into batches that fit into a processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from statestore.catalog.reads.scan import CHUNK_ROWS, VERSION_COLUMN, Piece, TimeRange
from statestore.catalog.reads.scans.chosen_rows import ChosenRows, all_chosen, chosen_rows
from statestore.catalog.reads.scans.gathered_columns import (
    GatheredColumn,
    TooMuchTextError,
    rows_between,
    usual_bytes,
)
from statestore.catalog.reads.scans.parts import Part, groups_of_parts, stored_columns
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment_write import end_column

VIEWED_BYTES = 1 << 17  # a part of so many bytes is passed as a view of the file
BATCH_BYTES = 1 << 22  # of a batch of copied rows
LEAST_ROWS = 1 << 10  # of such a batch, if there are enough
KEPT_ROWS = 1 << 15  # chosen rows, and no fewer, are copied before more rows are judged
END = "valid_to"


def gathered_batches(
    files: SegmentFiles, pieces: Sequence[Piece], window: TimeRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces that belong to the window, in any order, with the columns of ``schema``.

    VERSION_COLUMN is the commit that wrote a row.
    """
    reading = _Reading(files, window, schema)
    waiting: list[ChosenRows] = []
    rows = 0
    for parts in groups_of_parts(files, pieces):
        plain = [part for part in parts if reading.is_plain(part)]
        yield from reading.views(plain, None)
        others = parts if not plain else [part for part in parts if not reading.is_plain(part)]
        if not others:
            continue
        chosen = chosen_rows(files, others, window, reading.shows_ends)
        whole = reading.whole_parts(chosen)
        if whole:
            found = chosen.only(whole)
            yield from reading.views(found.parts, found)
            left = set(range(len(others))) - set(whole)
            chosen = chosen.only(sorted(left))
        waiting.append(chosen)
        rows += chosen.count
        if rows >= KEPT_ROWS:
            yield from reading.copies(all_chosen(waiting))
            waiting, rows = [], 0
    if rows:
        yield from reading.copies(all_chosen(waiting))


class _Reading:
    """One read: its columns and how they are passed on."""

    def __init__(self, files: SegmentFiles, window: TimeRange, schema: pa.Schema) -> None:
        self._files = files
        self._window = window
        self._stored = ["_added" if name == VERSION_COLUMN else name for name in schema.names]
        self.shows_ends = END in schema.names
        self._schema = schema
        self._viewed_rows = VIEWED_BYTES / max(sum(usual_bytes(kind) for kind in schema.types), 1)

    def is_plain(self, part: Part) -> bool:
        """Return whether a part is passed as a view of the file, and no end need be computed."""
        if part.cut or part.length < self._viewed_rows:
            return False
        return not self.shows_ends or (self._window.newest and not part.segment.closures)

    def whole_parts(self, chosen: ChosenRows) -> list[int]:
        """Return the numbers of parts that are passed as views, but for their ends."""
        counts = (chosen.bounds[1:] - chosen.bounds[:-1]).tolist()
        return [
            number
            for number, (part, count) in enumerate(zip(chosen.parts, counts, strict=True))
            if count == part.length >= self._viewed_rows
        ]

    def views(self, parts: list[Part], chosen: ChosenRows | None) -> Iterator[pa.RecordBatch]:
        """Yield all rows of each part as a view, with the ends of ``chosen`` if there are any."""
        if not parts:
            return
        bounds = [] if chosen is None else chosen.bounds.tolist()
        stored = [() if chosen and name == END else stored_columns(parts, name) for name in self._stored]
        for number, part in enumerate(parts):
            arrays = [
                columns[number].array.slice(part.first, part.length)
                if columns
                else _ends(chosen, *bounds[number : number + 2])
                for columns in stored
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def copies(self, chosen: ChosenRows) -> Iterator[pa.RecordBatch]:
        """Yield copies of the chosen rows."""
        for file in {id(part.file): part.file for part in chosen.parts}.values():
            self._files.check_length(file.meta.file)  # the consumer may have taken its time
        columns = [None if name == END and self.shows_ends else GatheredColumn(chosen, name) for name in self._stored]
        row_bytes = sum(8.0 if column is None else column.row_bytes for column in columns)
        most = int(min(max(BATCH_BYTES / row_bytes, LEAST_ROWS), CHUNK_ROWS))
        batches = -(-chosen.count // most)
        for number in range(batches):
            first, stop = number * chosen.count // batches, (number + 1) * chosen.count // batches
            yield from self._copied(columns, chosen, first, stop)

    def _copied(
        self, columns: list[GatheredColumn | None], chosen: ChosenRows, first: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        some = rows_between(chosen, first, stop)
        try:
            arrays = [_ends(chosen, first, stop) if column is None else column.rows(some) for column in columns]
        except TooMuchTextError:
            if stop - first == 1:
                raise
            middle = (first + stop) // 2
            yield from self._copied(columns, chosen, first, middle)
            yield from self._copied(columns, chosen, middle, stop)
            return
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _ends(chosen: ChosenRows | None, first: int, stop: int) -> pa.Array:
    assert chosen is not None
    assert chosen.ends is not None
    return end_column(chosen.ends[first:stop])
