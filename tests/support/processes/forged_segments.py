"""Segments whose bytes are changed under right checksums, each read in full: run as a process, whose crash is seen.

Every nth byte is changed, n being the argument. Prints how many of the segments were refused.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

from statestore.formats.errors import StateStoreError
from statestore.formats.segments.regions import checksum_regions
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import SegmentMeta
from support.stores.segment_tables import random_table, store_schema, write

SMALL = random_table(20)


@cache
def small() -> tuple[bytes, SegmentMeta]:
    data, meta = write(SMALL)
    return data.to_pybytes(), meta


def forged(content: bytes, meta: SegmentMeta, **changes: Any) -> SegmentMeta:
    """A commit with the checksums of these bytes, as an attacker (or a bug) could write it."""
    ref = replace(meta.file, bytes=len(content), checksums=checksum_regions(pa.py_buffer(content)))
    return replace(meta, file=replace(ref, **changes))


def _try_forgeries(step: int) -> int:
    """Read forged segments; return the number of them that were refused."""
    content, meta = small()
    framing = {place for start, length in meta.file.metadata_ranges for place in range(start, start + length)}
    refused = 0
    for position in range(0, len(content), step):
        for change in (1, 0x80, 0xFF) if position in framing else (0x80,):
            damaged = bytearray(content)
            damaged[position] ^= change
            refused += _is_refused(bytes(damaged), meta)
    return refused


def _is_refused(content: bytes, meta: SegmentMeta) -> bool:
    try:
        segment = Segment(forged(content, meta), pa.py_buffer(content), store_schema(SMALL))
        segment.verify_all()
        for name in SMALL.column_names:
            segment.column(name).take(pa.array(range(SMALL.num_rows)))
    except StateStoreError:
        return True
    return False


if __name__ == "__main__":
    print(_try_forgeries(int(sys.argv[1])))
