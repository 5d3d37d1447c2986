"""All records of a key side by side: a partition is read once, or, if it is large, once for each range of key hashes.

Keys are grouped by Arrow, which compares their bytes. Hashes only decide in which reading a key is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.kafka.changelogs.records import HEADERS, Records
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.values.xxh64 import xxh64_strings

HELD_BYTES = 128 << 20  # of keys and values; with all that is computed from them, some three times as much
_EACH = 120  # bytes that a record takes besides
_END = 1 << 64
_LEAST_WIDTH = 1 << 44  # records of one key cannot be separated, and narrower ranges would be many


@dataclass(frozen=True)
class KeyRange:
    """All records of some keys of a partition, in the order of the log.

    ``number`` counts the records of the partition from 0 on. Records with the same ``code`` have the same key.
    ``missing`` and ``offset`` as in `Records`.
    """

    partition: int
    number: Ints
    offset: Ints | None
    timestamp: Ints
    missing: Ints | None
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    code: Ints

    def __len__(self) -> int:
        return len(self.number)

    def by_key(self) -> Ints:
        """Positions ordered by key, and for a key in the order of the log."""
        order: Ints = np.argsort(self.code, kind="stable")
        return order

    def by_time(self) -> Ints:
        """Positions ordered by key, timestamp and the order of the log."""
        order: Ints = np.lexsort((self.timestamp, self.code))
        return order


def in_key_ranges(
    read: Callable[[], Iterator[Records]], partition: int, held_bytes: int = HELD_BYTES
) -> Iterator[KeyRange]:
    """Yield ranges that together hold all records of ``read``, often one. Each must be released before the next."""
    first = 0
    while first < _END:
        last, found = _one_range(read, partition, first, held_bytes)
        if found is not None:
            yield found
        del found
        first = last + 1


@dataclass
class _Piece:
    number: Ints
    offset: Ints | None
    timestamp: Ints
    missing: Ints | None
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    hashes: Hashes | None = None

    @property
    def weight(self) -> int:
        return int(self.key.nbytes + self.value.nbytes + self.headers.nbytes) + _EACH * len(self.number)

    def within(self, first: int, last: int) -> _Piece:
        if self.hashes is None:
            ends = np.frombuffer(self.key.buffers()[1], np.int32)[: len(self.key) + 1].astype(np.int64)
            data = self.key.buffers()[2]
            content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
            self.hashes = xxh64_strings(content, ends)
        return self._select((self.hashes >= np.uint64(first)) & (self.hashes <= np.uint64(last)))

    def _select(self, kept: Bools) -> _Piece:
        chosen = pa.array(kept)
        assert self.hashes is not None
        return _Piece(
            self.number[kept],
            None if self.offset is None else self.offset[kept],
            self.timestamp[kept],
            None if self.missing is None else self.missing[kept],
            self.key.filter(chosen),
            self.value.filter(chosen),
            self.headers.filter(chosen),
            self.hashes[kept],
        )


def _one_range(
    read: Callable[[], Iterator[Records]], partition: int, first: int, held_bytes: int
) -> tuple[int, KeyRange | None]:
    last, weight, number = _END - 1, 0, 0
    held: list[_Piece] = []
    for records in read():
        batch = records.batch(("key", "value", "headers"))
        piece = _Piece(
            np.arange(number, number + len(records)), records.offset, records.timestamp, records.missing, *batch.columns
        )
        number += len(records)
        if first or last < _END - 1:
            piece = piece.within(first, last)
        held.append(piece)
        weight += piece.weight
        while weight > held_bytes and last - first > _LEAST_WIDTH:
            last = first + (last - first) // 2
            held = [each.within(first, last) for each in held]
            weight = sum(each.weight for each in held)
    held = [each for each in held if len(each.number)]
    return last, _joined(partition, held) if held else None


def _joined(partition: int, held: list[_Piece]) -> KeyRange:
    offsets = [each.offset for each in held if each.offset is not None]
    missing = [each.missing for each in held if each.missing is not None]
    keys = pa.chunked_array([each.key for each in held], pa.binary()).combine_chunks()
    return KeyRange(
        partition,
        np.concatenate([each.number for each in held]),
        np.concatenate(offsets) if len(offsets) == len(held) else None,
        np.concatenate([each.timestamp for each in held]),
        np.concatenate(missing) if len(missing) == len(held) else None,
        keys,
        pa.chunked_array([each.value for each in held], pa.binary()).combine_chunks(),
        pa.chunked_array([each.headers for each in held], HEADERS).combine_chunks(),
        keys.dictionary_encode().indices.to_numpy(),
    )
