"""State as of a version: a base file, and on top of it the newest change of each key.

Rows are record batches (key: binary, value: binary). The changes since the base are held in memory, folded to one per
key as they are read. If they are too many, only those of some keys are held (``hash_passes``). The base streams past
them, without the keys that changed. A merge appends to the value before it, with the store's delimiter between
(RocksDB's StringAppendOperator). A merge onto no value is a put.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import cells_of, ends_of
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.rocksdb.rows import BATCH_ROWS, ROW_SCHEMA
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT, Changes, change_kernels
from statestore.formats.values.without_pandas import arrow_numbers, arrow_scalar, bools, numbers
from statestore.formats.values.xxh64 import U64s, xxh64_strings

_BATCH_BYTES = 256 << 20
_FOLD_BYTES = 16 << 20  # bytes as `weight_of` counts them
_ROW_WEIGHT = 128  # added to the bytes of key and value for their positions in arrays
_SEED = int.from_bytes(os.urandom(7))


Parts = tuple[npt.NDArray[np.uint8], pa.LargeBinaryArray, pa.LargeBinaryArray]


@dataclass(frozen=True)
class Overlay:
    """One change per key. MERGE appends to the value in the base."""

    kind: npt.NDArray[np.uint8]
    keys: pa.LargeBinaryArray
    values: pa.LargeBinaryArray
    delimiter: bytes

    @cached_property
    def index(self) -> tuple[U64s, Ints]:
        """(hashes of the keys, ascending, their rows)."""
        hashes = _hashes(self.keys)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


def overlay_of(
    changes: Iterable[Changes],
    delimiter: bytes = b"",
    fit: Callable[[list[Parts]], list[Parts]] = lambda folded: folded,
) -> Overlay:
    """The newest change of each key; ``changes`` are in the order in which they were made.

    ``fit`` reduces the newest changes so far to those that are held. It never admits a key again that it has dropped.
    """
    folded, weight, limit = [parts_of(None)], 0, _FOLD_BYTES
    for change in changes:
        folded.append(parts_of(change))
        weight += weight_of(folded[-1])
        if weight > limit:
            folded = fit([_newest(folded, delimiter)])
            weight = weight_of(folded[0])
            # Each row is folded only a few times, and little more is held than the result.
            limit = weight + max(_FOLD_BYTES, min(weight, 2 * _FOLD_BYTES), weight // 4)
    ((kind, keys, values),) = fit([_newest(folded, delimiter)])
    return Overlay(kind, keys, values, delimiter)


class Replay:
    """Batches of the base with the overlay applied, in any order, by several threads; after all of them, the rest."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._unmet = overlay.kind == MERGE

    def over(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """A batch of the base without the rows that changed, and with merges applied."""
        rows, positions = changed_rows(batch.column("key"), self._overlay)
        if not len(rows):
            return [batch]
        merges = self._overlay.kind[positions] == MERGE
        self._unmet[positions[merges]] = False
        kept = np.ones(batch.num_rows, np.bool_)
        kept[rows] = False
        left = [batch.filter(arrow_numbers(kept))]
        return [*left, _merged(batch, rows[merges], positions[merges], self._overlay)] if merges.any() else left

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were put, and merges onto no value."""
        new = np.flatnonzero((self._overlay.kind == PUT) | self._unmet)
        yield from (_rows(self._overlay, some) for some in rows_in_batches(self._overlay, new))


def rows_in_batches(overlay: Overlay, rows: Ints) -> Iterator[Ints]:
    """Yield these rows of an overlay in their order, as many at a time as make a batch."""
    ends = np.cumsum(cells_of(overlay.values).size[rows])
    at = 0
    while at < len(rows):
        # Batches of huge values have few rows, because an Arrow array of 32-bit offsets must hold them.
        before = int(ends[at - 1]) if at else 0
        until = max(at + 1, min(at + BATCH_ROWS, int(np.searchsorted(ends, before + _BATCH_BYTES))))
        yield rows[at:until]
        at = until


def parts_of(change: Changes | None) -> Parts:
    """(kinds, keys, values) of changes; empty for None."""
    if change is None:
        nothing = pa.nulls(0, pa.large_binary())
        return np.empty(0, np.uint8), nothing, nothing
    keys, values = change.keys.copied(corrupt_row), change.values.copied(corrupt_row)
    return change.kind, keys.cast(pa.large_binary()), values.cast(pa.large_binary())


def weight_of(parts: Parts) -> int:
    """The approximate number of bytes that rows take while they are held."""
    kind, keys, values = parts
    return len(kind) * _ROW_WEIGHT + int(keys.nbytes) + int(values.nbytes)


def _newest(parts: list[Parts], delimiter: bytes) -> Parts:
    """Fold parts to one row per key."""
    kind = np.concatenate([part[0] for part in parts])
    keys = pa.concat_arrays([part[1] for part in parts])
    values = pa.concat_arrays([part[2] for part in parts])
    group, distinct = _grouped(keys)
    row = np.arange(len(kind))
    base = np.full(len(distinct), -1, np.int64)  # per key the last row that is not a merge
    whole = kind != MERGE
    base[group[whole]] = row[whole]  # of equal indices the last assignment wins
    live = ~whole & (row > base[group])
    if not live.any():
        if len(base) == len(kind):  # each key occurs once: base is every row in order
            return kind, keys, values
        return kind[base], distinct, values.take(arrow_numbers(base))
    return _folded_merges(kind, values, group, base, live, distinct, delimiter)


def _grouped(keys: pa.LargeBinaryArray) -> tuple[Ints, pa.LargeBinaryArray]:
    """(number of each row's key, the keys by number)."""
    kernels = change_kernels()
    if kernels is None or not len(keys):
        coded = keys.dictionary_encode()
        return numbers(coded.indices).astype(np.int64), coded.dictionary
    spans = cells_of(keys)
    slots = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int64)
    group = np.empty(len(keys), np.int64)
    count = kernels.group_keys(spans.data, spans.start, spans.size, _SEED, slots, np.empty(len(keys), np.uint64), group)
    if count == len(keys):
        return group, keys
    first = np.empty(count, np.int64)
    first[group[::-1]] = np.arange(len(keys))[::-1]
    return group, keys.take(arrow_numbers(first))


def _folded_merges(
    kind: npt.NDArray[np.uint8],
    values: pa.LargeBinaryArray,
    group: Ints,
    base: Ints,
    live: Bools,
    keys: pa.LargeBinaryArray,
    delimiter: bytes,
) -> Parts:
    live = live.copy()
    live[base[(base >= 0) & (kind[base] == PUT)]] = True  # the first operand of each key that was put
    rows = np.flatnonzero(live)
    rows = rows[np.argsort(group[rows], kind="stable")]
    counts = np.bincount(group[rows], minlength=len(keys))
    operands = pa.LargeListArray.from_arrays(arrow_numbers(ends_of(counts)), values.take(arrow_numbers(rows)))
    folded = pc.binary_join(operands, arrow_scalar(delimiter, pa.large_binary()))
    kinds = np.where(base < 0, np.uint8(MERGE), np.where(counts > 0, np.uint8(PUT), np.uint8(DELETE)))
    return kinds.astype(np.uint8), keys, folded


def _hashes(keys: pa.Array) -> U64s:
    if not len(keys):
        return np.empty(0, np.uint64)
    form: npt.DTypeLike = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    offsets = np.frombuffer(keys.buffers()[1], form)[keys.offset : keys.offset + len(keys) + 1]
    data = keys.buffers()[2]
    return xxh64_strings(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), offsets)


def changed_rows(keys: pa.BinaryArray, overlay: Overlay) -> tuple[Ints, Ints]:
    """(rows of the keys that the overlay changes, ascending, and the overlay's row for each)."""
    nothing = np.empty(0, np.int64)
    if not len(overlay.keys) or not len(keys):
        return nothing, nothing
    sorted_hashes, order = overlay.index
    hashes = _hashes(keys)
    entries = np.searchsorted(sorted_hashes, hashes)
    rows = np.flatnonzero(sorted_hashes[np.minimum(entries, len(sorted_hashes) - 1)] == hashes)
    positions = order[entries[rows]]
    same = pc.equal(keys.take(arrow_numbers(rows)).cast(pa.large_binary()), overlay.keys.take(arrow_numbers(positions)))
    if pc.all(same).as_py() is not False:  # for no rows it is null
        return rows, positions
    # Two keys have one hash. Chance does not produce that, but an attacker could.
    index = pc.index_in(keys.cast(pa.large_binary()), overlay.keys)
    found = pc.is_valid(index)
    return np.flatnonzero(bools(found)), numbers(index.filter(found)).astype(np.int64)


def _merged(batch: pa.RecordBatch, rows: Ints, positions: Ints, overlay: Overlay) -> pa.RecordBatch:
    """The base's values of these rows, with the overlay's merges appended."""
    before = batch.column("value").take(arrow_numbers(rows))
    after = overlay.values.take(arrow_numbers(positions)).cast(pa.binary())
    joined = pc.binary_join_element_wise(before, after, arrow_scalar(overlay.delimiter, pa.binary()))
    return pa.RecordBatch.from_arrays([batch.column("key").take(arrow_numbers(rows)), joined], schema=ROW_SCHEMA)


def _rows(overlay: Overlay, rows: Ints) -> pa.RecordBatch:
    first, last = int(rows[0]), int(rows[-1])
    whole = last - first + 1 == len(rows)  # true if the rows are contiguous, because they ascend
    columns = [
        (column.slice(first, len(rows)) if whole else column.take(arrow_numbers(rows))).cast(pa.binary())
        for column in (overlay.keys, overlay.values)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
