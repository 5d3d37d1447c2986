"""The commits that wrote or deleted a key, also those whose rows others replaced since.

Each row that a commit wrote is stored as long as a version from before its replacement can be read. So the rows of a
key in all segments, and what ended them, name all these commits.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures, cells_of, with_closures
from statestore.catalog.reads.fetching import fetch_files, fetch_rows
from statestore.catalog.reads.scan import keys_may_match
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.filters import Filter, mask

CAUSES = ("_added", "_closed", "_dropped")


def key_writers(files: SegmentFiles, log_state: LogState, filters: tuple[Filter, ...], hashes: list[int]) -> Ints:
    """Return the commits, ascending, that wrote, ended or replaced rows of the keys which the filters name.

    ``hashes`` are those of the keys.
    """
    metas = [meta for meta in log_state.segments if keys_may_match(files, meta, filters)]
    fetch_files(files, [meta.index for meta in metas])
    found = [
        (segment, rows)
        for segment in with_closures(metas, log_state.closures)
        if len(rows := _rows_of(files, segment, hashes))
    ]
    fetch_rows(files, [(segment, row, row + 1) for segment, rows in found for row in rows.tolist()])
    versions = [_causes(files, segment, rows, filters) for segment, rows in found]
    return np.unique(np.concatenate([np.empty(0, np.int64), *versions]))


def _rows_of(files: SegmentFiles, segment: SegmentWithClosures, hashes: list[int]) -> Ints:
    index = files.index(segment.meta)
    return np.array(sorted({row for hash in hashes for row in index.find(hash)}), np.int64)


def _causes(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints, filters: tuple[Filter, ...]) -> Ints:
    meta, file = segment.meta, files.open_segment(segment.meta)
    names = files.spec.key_names
    keys = pa.RecordBatch.from_arrays([file.take(name, rows) for name in names], names=list(names))
    chosen = mask(filters, keys)
    if chosen is not None:
        rows = rows[chosen.to_numpy(zero_copy_only=False)]
    parts = [cells_of(file, name, rows) for name in CAUSES if name != "_dropped" or meta.role == "belief"]
    parts[1] = parts[1][parts[1] > 0]  # of an end that no commit has given
    if segment.closures:
        parts.append(files.pending(meta, segment.closures).versions_of(rows, len(segment.closures)))
    return np.concatenate(parts)
