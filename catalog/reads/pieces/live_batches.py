"""Record batches without their dead rows, copied as little as pays.

A consumer pays for each batch (4 microseconds to write one as a stream, and more in an engine), and a copy costs about
8 nanoseconds a row where many rows lie together and 25 where single rows are gathered. So long runs of live rows are
passed as slices, shorter ones are copied together, and small batches are joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Bools, Ints

SLICED_ROWS = 1_000  # a run of so many live rows is passed as a slice
COPIED_RUN_ROWS = 256  # shorter runs are gathered row by row
SCATTERED_RUN_ROWS = 16  # where the mean run is shorter, long ones are not looked for
JOINED_ROWS = 1_000  # smaller batches are joined
JOINED_MOST_ROWS = 1 << 16


def live_batches(batch: pa.RecordBatch, keep: Bools) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch that are marked in ``keep``, in their order."""
    changes = keep[1:] != keep[:-1]
    live = int(np.count_nonzero(keep))
    if live < SCATTERED_RUN_ROWS * (np.count_nonzero(changes) // 2 + 1):
        if live:
            yield batch.take(pa.array(np.flatnonzero(keep)))
        return
    edges = np.flatnonzero(changes) + 1
    bounds = np.concatenate((np.zeros(int(keep[0]), np.int64), edges, np.full(int(keep[-1]), len(keep))))
    starts, stops = bounds[::2], bounds[1::2]
    long = np.flatnonzero(stops - starts >= SLICED_ROWS)
    at = 0
    for run in long.tolist():
        yield from _copied(batch, keep, starts[at:run], stops[at:run])
        yield batch.slice(int(starts[run]), int(stops[run] - starts[run]))
        at = run + 1
    yield from _copied(batch, keep, starts[at:], stops[at:])


def _copied(batch: pa.RecordBatch, keep: Bools, starts: Ints, stops: Ints) -> Iterator[pa.RecordBatch]:
    """Yield a copy of these runs of rows as one batch."""
    if not len(starts):
        return
    if len(starts) == 1:
        yield batch.slice(int(starts[0]), int(stops[0] - starts[0]))
        return
    if int((stops - starts).sum()) >= COPIED_RUN_ROWS * len(starts):
        pairs = zip(starts.tolist(), (stops - starts).tolist(), strict=True)
        yield pa.concat_batches([batch.slice(start, count) for start, count in pairs])
        return
    first, last = int(starts[0]), int(stops[-1])
    yield batch.slice(first, last - first).take(pa.array(np.flatnonzero(keep[first:last])))


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these batches, those of small ones together and later than those of large ones."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows >= JOINED_ROWS:
            yield batch
        elif batch.num_rows:
            small.append(batch)
            rows += batch.num_rows
            if rows >= JOINED_MOST_ROWS:
                yield pa.concat_batches(small)
                small, rows = [], 0
    if small:
        yield small[0] if len(small) == 1 else pa.concat_batches(small)
