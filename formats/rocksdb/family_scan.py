"""Rows of a column family row by row: for lookups, small states, and forms unknown to the scanner."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import pyarrow as pa

from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import Family, opened_family, rows_in

_MOST_HOLES = 2000
"""Most jumps from hole to hole. A jump takes some microseconds, as long as a scan takes for a hundred rows."""


def scan_family(
    directory: Path,
    family: str,
    ranges: Sequence[KeyRange],
    batch_rows: int,
    most_rows: int | None = None,
    *,
    delimiter: bytes | None = None,
) -> Generator[pa.RecordBatch, None, list[KeyRange]]:
    """Yield the rows of each range in key order, with operands merged as the directory's OPTIONS say.

    The scan ends after ``most_rows`` and returns the remaining ranges. Raises as `opened_families`, also about
    ``delimiter``.
    """
    rows_read = 0
    with opened_family(directory, family, delimiter=delimiter) as table:
        for number, within in enumerate(ranges):
            if within.rest and most_rows is not None:
                left = yield from _skipping(table, within, batch_rows)
                if left is not None:
                    return [left, *ranges[number + 1 :]]
                continue
            for batch in rows_in(table, within, batch_rows):
                yield batch
                rows_read += batch.num_rows
                if most_rows is not None and rows_read >= most_rows:
                    last: bytes = batch.column(0)[-1].as_py()
                    return [KeyRange(last + b"\0", within.stop), *ranges[number + 1 :]]
    return []


def _skipping(table: Family, within: KeyRange, batch_rows: int) -> Generator[pa.RecordBatch, None, KeyRange | None]:
    """Yield the rows with ``rest`` behind each existing hole; return what is left after too many holes."""
    assert within.first is not None
    end, at = len(within.first) + within.hole, within.first
    for _ in range(_MOST_HOLES):
        met = next((key for key, _ in table.pairs(KeyRange(at, within.stop))), None)
        if met is None:
            return None
        if len(met) >= end:
            target = met[:end] + within.rest
            behind = successor(target)
            yield from rows_in(table, KeyRange(max(target, met), behind), batch_rows)
            after = successor(met[:end])
        else:
            after = met + b"\0"
        if after is None or (within.stop is not None and after >= within.stop):
            return None
        at = after
    return KeyRange(at, within.stop)
