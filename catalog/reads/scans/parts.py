"""Parts: consecutive rows of one record batch of a segment, as compiled loops take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from statestore.catalog.reads.row_ends import SegmentWithClosures
from statestore.catalog.reads.scan import Piece
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.stored_column import StoredColumn

GROUP_ROWS = 1 << 17  # rows of parts that are judged at once


class Part(NamedTuple):
    """``length`` rows from ``first`` on of the batch ``number``, the first of which is the row ``row`` of the segment.

    ``cut``: some of them may not belong to the answer.
    """

    file: Segment
    segment: SegmentWithClosures
    number: int
    first: int
    length: int
    row: int
    cut: bool

    @property
    def piece(self) -> Piece:
        return Piece(self.segment, self.row, self.row + self.length, self.cut)


def groups_of_parts(files: SegmentFiles, pieces: Iterable[Piece]) -> Iterator[list[Part]]:
    """Yield the parts of these pieces in their order, so many at once as have at most GROUP_ROWS rows."""
    group: list[Part] = []
    room = GROUP_ROWS
    file: Segment | None = None
    for piece in pieces:
        segment = piece.segment
        if file is None or file.meta is not segment.meta:
            file = files.open_segment(segment.meta)
        row = piece.start
        for number, first, end in file.parts(piece.start, piece.stop):
            while first < end:
                length = min(end - first, room)
                group.append(Part(file, segment, number, first, length, row, piece.cut))
                first, row, room = first + length, row + length, room - length
                if not room:
                    yield group
                    group, room = [], GROUP_ROWS
                    file = files.open_segment(segment.meta)  # a scan may take hours
    if group:
        yield group


def by_segment(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield neighbours that are of one segment together."""
    for _, mine in groupby(parts, key=attrgetter("file")):
        yield list(mine)


def stored_columns(parts: Iterable[Part], name: str) -> list[StoredColumn]:
    """Return the column of each part's batch."""
    found: list[StoredColumn] = []
    for mine in by_segment(parts):
        found += mine[0].file.stored(name, [part.number for part in mine])
    return found
