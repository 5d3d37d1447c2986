"""Keys that cut a set of table files into parts of about the same size, from a few entries of their indexes.

What is read here is not trusted and need not be right: any keys cut rows into parts that together are the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.rocksdb.fields import Fields, Malformed, block_entries
from statestore.formats.rocksdb.key_ranges import KeyRange

SAMPLES = 64
_TAIL = 53
_MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
_MAX_INDEX = 1 << 28
_CODECS = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
_OLDEST_DELTA_FORMAT, _NEWEST_FORMAT = 4, 5

ReadAt = Callable[[int, int], bytes]
"""(offset, size) to bytes."""


def split_points(files: Sequence[tuple[int, ReadAt]], parts: int, within: KeyRange) -> list[bytes]:
    """Up to ``parts - 1`` keys inside a range, ascending, of files as (size, reader).

    None where the indexes of the files are not of the usual kind.
    """
    samples = []
    for size, read in files:
        keys = sample_keys(size, read)
        samples += [(key, size / len(keys)) for key in keys if within.holds_inside(key)]
    samples.sort()
    total = sum(weight for _, weight in samples)
    reached = itertools.accumulate(weight for _, weight in samples)
    points: list[bytes] = []
    wanted = 1
    for (key, _), held in zip(samples, reached, strict=True):
        if wanted < parts and held >= total * wanted / parts:
            wanted += 1
            if not points or key > points[-1]:
                points.append(key)
    return points


def sample_keys(size: int, read: ReadAt) -> list[bytes]:
    """At most SAMPLES keys of a table file, evenly spread, ascending; none if its index is not of the usual kind."""
    try:
        return list(_samples(size, read))
    except (Malformed, OSError, ValueError, pa.ArrowException):
        return []


def _samples(size: int, read: ReadAt) -> Iterator[bytes]:
    tail = read(size - _TAIL, _TAIL)
    version = int.from_bytes(tail[-12:-8], "little")
    if not tail.endswith(_MAGIC) or not _OLDEST_DELTA_FORMAT <= version <= _NEWEST_FORMAT:
        return
    fields = Fields(tail[1:-12])
    metaindex, index = _handle(fields), _handle(fields)
    where = dict(_entries(read, metaindex)).get(b"rocksdb.properties", b"")
    properties = dict(_entries(read, _handle(Fields(where))))
    if properties.get(b"rocksdb.block.based.table.index.type", bytes(4)) != bytes(4):
        return
    strip = 0 if properties.get(b"rocksdb.index.key.is.user.key") == b"\x01" else 8
    block = _block(read, index)
    count = int.from_bytes(block[-4:], "little")
    restarts = np.frombuffer(block[:-4], "<u4", count, len(block) - 4 - 4 * count)
    for at in restarts[:: max(1, count // SAMPLES)].tolist():
        entry = Fields(block, at)
        entry.varint()  # nothing is shared at a restart
        key = entry.string()
        yield key[: len(key) - strip]


def _entries(read: ReadAt, handle: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    return block_entries(_block(read, handle))


def _handle(fields: Fields) -> tuple[int, int]:
    return fields.varint(), fields.varint()


def _block(read: ReadAt, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    if size > _MAX_INDEX:
        raise Malformed(f"an index of {size} bytes")
    raw = read(offset, size + 5)
    if len(raw) < size + 5:
        raise Malformed("a block behind the end of the file")
    if raw[size] == 0:
        return raw[:size]
    codec = _CODECS.get(raw[size])
    if codec is None:
        raise Malformed(f"compression type {raw[size]}")
    fields = Fields(raw[:size])
    length = fields.varint()
    if codec == "snappy":  # its own header
        fields.at = 0
    if length > _MAX_INDEX:
        raise Malformed(f"an index of {length} bytes")
    plain: bytes = pa.Codec(codec).decompress(fields.take(fields.left), length).to_pybytes()
    return plain
