"""Segments whose bytes are changed under right checksums, each read in full: run as a process, whose crash is seen.

Every nth byte is changed, n being the first argument; the second may be ``compressed`` or ``coded``. Prints how many of
the segments were refused.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.errors import StateStoreError
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.regions import checksum_regions
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta
from support.stores.segment_tables import (
    random_table,
    segment_table,
    store_schema,
    typed_values,
    write,
    write_in_blocks,
)

SMALL = random_table(20)


def _compressible(rows: int) -> pa.Table:
    starts = np.arange(rows) * 1000
    ends = np.where(starts % 3000 == 0, OPEN, starts + 5000)
    keys = pa.array([f"key-{number % 50}" for number in range(rows)])
    return segment_table(keys, starts, ends, typed_values(rows), [1] * rows, np.where(ends == OPEN, 0, 2))


COMPRESSED = _compressible(200)
CODED = COMPRESSED.add_column(1, "price", pa.array([None if n % 9 == 0 else n / 100 for n in range(200)]))


@cache
def small() -> tuple[bytes, SegmentMeta]:
    data, meta = write(SMALL)
    return data.to_pybytes(), meta


@cache
def compressed() -> tuple[bytes, SegmentMeta]:
    data, meta = write_in_blocks([COMPRESSED], compression=Compression(least_saving=0.0))
    return data.to_pybytes(), meta


@cache
def coded() -> tuple[bytes, SegmentMeta]:
    """Compressed rows whose numbers are coded: times, versions, prices and offsets of text."""
    data, meta = write_in_blocks([CODED], compression=Compression(least_saving=0.0, plain=("valid_to",), coded=True))
    return data.to_pybytes(), meta


def forged(content: bytes, meta: SegmentMeta, **changes: Any) -> SegmentMeta:
    """A commit with the checksums of these bytes, as an attacker (or a bug) could write it."""
    ref = replace(meta.file, bytes=len(content), checksums=checksum_regions(pa.py_buffer(content)))
    return replace(meta, file=replace(ref, **changes))


def _try_forgeries(step: int, table: pa.Table, content: bytes, meta: SegmentMeta) -> int:
    """Read forged segments; return the number of them that were refused."""
    framing = {place for start, length in meta.file.metadata_ranges for place in range(start, start + length)}
    refused = 0
    for position in range(0, len(content), step):
        for change in (1, 0x80, 0xFF) if position in framing else (0x80,):
            damaged = bytearray(content)
            damaged[position] ^= change
            refused += _is_refused(bytes(damaged), meta, table)
    return refused


def _is_refused(content: bytes, meta: SegmentMeta, table: pa.Table) -> bool:
    try:
        segment = Segment(forged(content, meta), pa.py_buffer(content), store_schema(table))
        segment.verify_all()
        for name in table.column_names:
            segment.column(name).take(pa.array(range(table.num_rows)))
    except StateStoreError:
        return True
    return False


if __name__ == "__main__":
    kinds = {"small": (SMALL, small), "compressed": (COMPRESSED, compressed), "coded": (CODED, coded)}
    table, made = kinds[(*sys.argv[2:], "small")[0]]
    print(_try_forgeries(int(sys.argv[1]), table, *made()))
