"""All records of a key side by side: a partition is read once, or, if it is large, once for each range of key hashes.

Keys are grouped by Arrow, which compares their bytes. Hashes only decide in which reading a key is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.hash_passes import HashPass, HashRange, SecretHashes, in_passes
from statestore.formats.kafka.changelogs.records import Records
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kernels.arrays import Bools, Hashes, Ints

HELD_BYTES = 256 << 20  # of keys and values; with all that is computed from them, some three times as much
_EACH = 56  # bytes that a record takes besides


@dataclass(frozen=True)
class KeyRange:
    """All records of some keys of a partition, in the order of the log.

    ``number`` counts the records of the partition from 0 on. Records with the same ``code`` have the same key.
    ``missing`` and ``offset`` as in `Records`. ``stream_time`` is the greatest timestamp of the partition's records up
    to each record.
    """

    partition: int
    number: Ints
    offset: Ints | None
    timestamp: Ints
    stream_time: Ints
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
    read: Callable[[], Iterator[Records]],
    partition: int,
    held_bytes: int = HELD_BYTES,
    keys: Collection[bytes] | None = None,
) -> Iterator[KeyRange]:
    """Yield ranges that together hold all records of ``read``, often one. Each must be released before the next.

    ``keys``: only the records of these keys. Others still count for numbers and stream time.
    """
    for _, found in in_passes(HashRange(SecretHashes()), held_bytes, partial(_one_range, read, partition, keys)):
        if found is not None:
            yield found
        del found


@dataclass
class _Piece:
    number: Ints
    offset: Ints | None
    timestamp: Ints
    stream_time: Ints
    missing: Ints | None
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    hashes: Hashes | None = None

    @property
    def weight(self) -> int:
        return int(self.key.nbytes + self.value.nbytes + self.headers.nbytes) + _EACH * len(self.number)

    def within(self, kept: HashRange) -> _Piece:
        """The part of the piece whose hashes lie in a range. Hashes are computed once, and filtered with the rest."""
        if self.hashes is None:
            self.hashes = _hashes(kept, cells_of(self.key))
        return self._select(kept.inside(self.hashes))

    def _select(self, kept: Bools) -> _Piece:
        chosen = pa.array(kept)
        assert self.hashes is not None
        return _Piece(
            self.number[kept],
            None if self.offset is None else self.offset[kept],
            self.timestamp[kept],
            self.stream_time[kept],
            None if self.missing is None else self.missing[kept],
            self.key.filter(chosen),
            self.value.filter(chosen),
            self.headers.filter(chosen),
            self.hashes[kept],
        )


def _hashes(kept: HashRange, keys: Cells) -> Hashes:
    assert kept.hashing is not None
    return kept.hashing.of(keys)


def _one_range(
    read: Callable[[], Iterator[Records]], partition: int, keys: Collection[bytes] | None, part: HashPass
) -> KeyRange | None:
    number = 0
    seen = np.iinfo(np.int64).min
    held: list[_Piece] = []
    for records in read():
        numbers = np.arange(number, number + len(records))
        number += len(records)
        stream_time = np.maximum(np.maximum.accumulate(records.timestamp), seen)
        seen = stream_time[-1]
        if keys is not None:
            asked = of_keys(records.key, keys)
            numbers, records, stream_time = numbers[asked], records.select(asked), stream_time[asked]
            if not len(records):
                continue
        hashes = None
        if not part.kept.is_whole:
            hashes = _hashes(part.kept, records.key)
            inside = np.flatnonzero(part.kept.inside(hashes))
            hashes, numbers, records = hashes[inside], numbers[inside], records.select(inside)
            stream_time = stream_time[inside]
        key, value, headers = records.batch(("key", "value", "headers")).columns
        piece = _Piece(
            numbers, records.offset, records.timestamp, stream_time, records.missing, key, value, headers, hashes
        )
        held.append(piece)
        part.weight += piece.weight
        while part.weight > part.most and not part.is_narrow:
            part.narrow(4)
            held = [each.within(part.kept) for each in held]
            part.weight = sum(each.weight for each in held)
    held = [each for each in held if len(each.number)]
    return _joined(partition, held) if held else None


def of_keys(found: Cells, keys: Collection[bytes]) -> Ints:
    """Positions of the cells that are one of the keys."""
    likely = np.flatnonzero(np.isin(found.size, [len(key) for key in keys]))
    if not len(likely):
        return likely
    same = pc.is_in(found.select(likely).copied(), value_set=pa.array(list(keys), pa.binary()))
    chosen: Ints = likely[same.to_numpy(zero_copy_only=False)]
    return chosen


def _joined(partition: int, held: list[_Piece]) -> KeyRange:
    offsets = [each.offset for each in held if each.offset is not None]
    missing = [each.missing for each in held if each.missing is not None]
    keys = pa.chunked_array([each.key for each in held], pa.binary()).combine_chunks()
    return KeyRange(
        partition,
        np.concatenate([each.number for each in held]),
        np.concatenate(offsets) if len(offsets) == len(held) else None,
        np.concatenate([each.timestamp for each in held]),
        np.concatenate([each.stream_time for each in held]),
        np.concatenate(missing) if len(missing) == len(held) else None,
        keys,
        pa.chunked_array([each.value for each in held], pa.binary()).combine_chunks(),
        pa.chunked_array([each.headers for each in held], HEADERS).combine_chunks(),
        keys.dictionary_encode().indices.to_numpy(),
    )
