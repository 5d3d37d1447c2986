"""Where a compaction moved the rows of a range of keys: a file for the process that publishes the compaction.

It needs the file only if commits came meanwhile: their closures name rows at their old places. No commit names the
file. It belongs to the claim of the compaction, like the segments, so vacuum removes what a dead one leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.log.storage import Storage
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.ipc_file import encode_file, open_file, verify_column
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef, SegmentMeta

Numbers = npt.NDArray[np.int32]
Closed = tuple[str, int, Ints, Ints]  # segment, version, rows ascending, their ends in epoch microseconds

SCHEMA = pa.schema([pa.field(name, pa.int32(), nullable=False) for name in ("old", "row", "new", "place")])
GONE = -1


@dataclass(frozen=True)
class MovedRows:
    """Old and new places of rows: the number of the old segment and the row there, ascending, and of the new one.

    ``new`` is GONE where the row has no new place.
    """

    old: Numbers
    row: Numbers
    new: Numbers
    place: Numbers

    def of_closures(self, number: int, rows: Ints) -> tuple[Ints, Numbers, Numbers]:
        """Return (positions in ``rows``, new segments, rows there) for rows of the old segment ``number``."""
        low, high = np.searchsorted(self.old, (number, number + 1))
        mine = self.row[low:high]
        at = np.searchsorted(mine, rows)
        found = at < len(mine)
        found[found] = mine[at[found]] == rows[found]
        positions, at = np.flatnonzero(found), at[found] + low
        kept = self.new[at] != GONE
        return positions[kept], self.new[at[kept]], self.place[at[kept]]


def write_moves(storage: Storage, new: NewFiles, moved: MovedRows) -> FileRef:
    """Write the moves to a file of the claim that ``new`` has."""
    name = new.new_name(".moves.arrow")
    new.written[name] = 0  # so that it is removed if the task fails
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in vars(moved).values()], schema=SCHEMA)
    data, ref = encode_file(name, SCHEMA, [batch])
    storage.create_many({name: data})
    return ref


def read_moves(storage: Storage, ref: FileRef, new_segments: Sequence[SegmentMeta]) -> MovedRows:
    """Read the moves of one file. Raises CorruptError SEGMENT_CORRUPT for a row that no new segment has."""
    verified = VerifiedBytes(ref, storage.opened(ref))
    _, batches = open_file(verified, lambda stored: _check_schema(ref, stored))
    if len(batches) != 1:
        raise corrupt(ref, f"it has {len(batches)} batches, expected one")
    columns: list[Any] = [verify_column(verified, batches[0], n).to_numpy() for n in range(len(SCHEMA))]
    moved = MovedRows(*columns)
    rows = np.array([meta.rows for meta in new_segments], np.int64)
    kept = moved.new != GONE
    new, place = moved.new[kept], moved.place[kept]
    if len(new) and (new.min() < 0 or new.max() >= len(rows) or place.min() < 0 or (place >= rows[new]).any()):
        raise corrupt(ref, "it moves rows to places that no new segment has")
    return moved


def _check_schema(ref: FileRef, stored: pa.Schema) -> None:
    if not stored.equals(SCHEMA):
        raise corrupt(ref, "it is no list of moved rows")


def moved_closures(
    files: SegmentFiles,
    removed: Sequence[SegmentMeta],
    pieces: Iterable[ClosureSlice],
    moves: Iterable[tuple[Sequence[SegmentMeta], FileRef]],
) -> list[Closed]:
    """Return closures on removed segments at the rows' new locations, one file of moves after the other.

    ``moves`` has each file with the new segments that its numbers mean.
    """
    numbers = {meta.name: number for number, meta in enumerate(removed)}
    closed = [
        (numbers[piece.segment], piece.version, *files.closures(piece, removed[numbers[piece.segment]].rows))
        for piece in pieces
    ]
    found: dict[tuple[int, str], list[tuple[Ints, Ints]]] = {}
    for new_segments, ref in moves:
        moved = read_moves(files.storage, ref, new_segments)
        for number, version, rows, ends in closed:
            positions, new, place = moved.of_closures(number, rows)
            for target in np.unique(new).tolist():
                mine = new == target
                parts = found.setdefault((version, new_segments[target].name), [])
                parts.append((place[mine].astype(np.int64), ends[positions[mine]]))
    result = []
    for (version, name), parts in sorted(found.items()):
        rows, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(rows)
        result.append((name, version, rows[order], ends[order]))
    return result
