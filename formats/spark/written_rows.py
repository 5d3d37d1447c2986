"""The rows of a state that several batches wrote to keys, and how long each of them existed.

Rows are compared as they are stored, without checksums. Rows of a join's side are compared as they are shown: without
their number and whether they were matched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.kernels.arrays import OPEN, Bools, Ints
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT
from statestore.formats.spark.providers.replay import Parts, parts_of
from statestore.formats.spark.state_columns import Decoder, decode_entries, split_entries

_PART_BYTES = 256 << 20


@dataclass(frozen=True)
class Writes:
    """Writes to keys as they are stored, batch by batch."""

    kind: npt.NDArray[np.uint8]
    batch: Ints
    partition: Ints
    keys: pa.LargeBinaryArray
    values: pa.LargeBinaryArray

    @cached_property
    def key_codes(self) -> tuple[Ints, pa.LargeBinaryArray]:
        """(number of each key, the keys by number)."""
        coded = self.keys.dictionary_encode()
        return coded.indices.to_numpy().astype(np.int64), coded.dictionary


@dataclass(frozen=True)
class WrittenRows:
    """Written rows of the state view; each exists from batch ``start`` until ``end``.

    Rows of equal ``content`` are equal. ``partition_ids`` are the partitions that were written to at start and at end.
    """

    key: Ints
    content: Ints
    start: Ints
    end: Ints
    partition_ids: tuple[Ints, Ints]
    keys: Cells
    entries: Cells

    @cached_property
    def example(self) -> Ints:
        """The position of one row of each content."""
        return np.unique(self.content, return_index=True)[1].astype(np.int64)

    def partitions(self, content: Ints, batch: Ints) -> Ints:
        """The partitions that these batches, which start or end rows of these contents, wrote to or deleted in.

        All such rows of one batch are in one partition, as Spark places rows by their key.
        """
        ended = self.end < OPEN
        contents = np.concatenate((self.content, self.content[ended], content))
        batches = np.concatenate((self.start, self.end[ended], batch))
        partition_ids = np.concatenate((self.partition_ids[0], self.partition_ids[1][ended]))
        _, first, pair = np.unique(pair_codes(contents, batches), return_index=True, return_inverse=True)
        return partition_ids[first[pair[len(partition_ids) :]]]

    def columns(self, decoder: Decoder, content: Ints) -> list[pa.Array]:
        """The columns of the state view for these contents."""
        distinct, inverse = np.unique(content, return_inverse=True)
        rows = self.example[distinct]  # each row once: decoders take repeated spans for a forgery of sizes
        columns = decode_entries(decoder, self.keys.select(rows), self.entries.select(rows))
        return [column.take(pa.array(inverse)) for column in columns]


def joined_writes(parts: Iterable[tuple[int, int, Parts]]) -> Writes:
    """Join the writes of batches to partitions, in order."""
    found = [(0, 0, parts_of(None)), *parts]
    counts = [len(part[0]) for _, _, part in found]
    return Writes(
        np.concatenate([part[0] for _, _, part in found]),
        np.repeat(np.array([batch for batch, _, _ in found], np.int64), counts),
        np.repeat(np.array([partition for _, partition, _ in found], np.int64), counts),
        pa.concat_arrays([part[1] for _, _, part in found]),
        pa.concat_arrays([part[2] for _, _, part in found]),
    )


def written_rows(decoder: Decoder, writes: Writes) -> WrittenRows:
    """The written rows, whose columns ``decoder`` decodes, all of a flat state view. Raises CorruptError
    SPARK_STATE_ROW."""
    merges = writes.kind == MERGE
    if merges.any() and not decoder.state_view.listed:
        raise corrupt_row(f"found values added to values of {decoder.state_view.name}, which is no list")
    key, _ = writes.key_codes
    last = ends_of_writes(key, ~merges)
    ended = np.minimum(last, len(last) - 1)
    ends = np.where(last < OPEN, writes.batch[ended], OPEN)
    rows = np.flatnonzero((writes.kind != DELETE) & (ends > writes.batch))
    counts, entries = split_entries(decoder, cells_of(writes.keys).select(rows), cells_of(writes.values).select(rows))
    rows = rows if counts is None else np.repeat(rows, counts)
    keys = cells_of(writes.keys).select(rows)
    content = _contents(decoder, key[rows], keys, entries)
    partition_ids = writes.partition[rows], writes.partition[ended[rows]]
    return WrittenRows(key[rows], content, writes.batch[rows], ends[rows], partition_ids, keys, entries)


def puts(rows: pa.RecordBatch) -> Parts:
    """Puts that would write these stored rows."""
    kind = np.full(rows.num_rows, PUT, np.uint8)
    return kind, rows.column("key").cast(pa.large_binary()), rows.column("value").cast(pa.large_binary())


def _contents(decoder: Decoder, key: Ints, keys: Cells, entries: Cells) -> Ints:
    if decoder.state_view.shape == "join-side":
        shown = decode_entries(decoder, keys, entries)
        return pair_codes(*(row_codes(column) for column in shown))
    return pair_codes(key, _codes(entries))


def _codes(strings: Cells) -> Ints:
    """A number for each string; equal strings have equal numbers."""
    ends = np.cumsum(strings.size)
    cuts = np.unique(np.searchsorted(ends, np.arange(_PART_BYTES, int(strings.size.sum()) + 1, _PART_BYTES)))
    parts = [
        strings.select(part).copied(corrupt_row).cast(pa.large_binary())
        for part in np.split(np.arange(len(ends)), cuts)
    ]
    return row_codes(pa.concat_arrays(parts))


# Numbers for the values of a column: equal numbers for equal values of any type


def row_codes(column: pa.Array) -> Ints:
    """A number for each row, from 0 on without gaps. Nulls are equal, NaNs are equal, and 0.0 and -0.0 differ.

    Structs, lists and maps are compared by their members. Maps are equal if their entries are, in the same order.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_struct(kind):
        members = [column.field(number) for number in range(kind.num_fields)]
        return pair_codes(*(row_codes(member) for member in members), _missing(column))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        members = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        return pair_codes(_of_sequences(column.offsets, members), _missing(column))
    codes: Ints = column.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return codes


def pair_codes(*codes: Ints) -> Ints:
    """A number for each row of several numbers, from 0 on without gaps."""
    numbers = codes[0]
    for other in codes[1:]:
        width = int(other.max(initial=0)) + 1
        numbers = np.unique(numbers * width + other, return_inverse=True)[1].astype(np.int64)
    return numbers


def _missing(column: pa.Array) -> Ints:
    flags: Ints = column.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return flags


def _of_sequences(offsets: pa.Array, members: list[pa.Array]) -> Ints:
    ends = offsets.to_numpy()
    first, last = int(ends[0]), int(ends[-1])
    codes = pair_codes(*(row_codes(member.slice(first, last - first)) for member in members))
    bounds = pa.py_buffer(((ends - first) * 8).astype(np.int64))
    strings = pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, bounds, pa.py_buffer(codes)])
    return row_codes(strings)


# Lifetimes of rows from the writes to their keys: numbers only, all keys at once. Batches are ascending numbers; rows
# with the same content have the same number.


Columns = tuple[Ints, Ints, Ints]


def ends_of_writes(keys: Ints, replaces: Bools) -> Ints:
    """The next write to the same key that replaces the current rows, OPEN without one.

    Writes are in the order in which they were made. Writes that do not replace add a row.
    """
    count = len(keys)
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    positions = np.where(replaces[order], np.arange(count), count)
    at_or_after = np.append(np.minimum.accumulate(positions[::-1])[::-1], count)
    after = at_or_after[1:]
    found = np.minimum(after, count - 1)
    ends = np.where((after < count) & (sorted_keys[found] == sorted_keys), order[found], OPEN)
    result = np.empty(count, np.int64)
    result[order] = ends
    return result


def net_changes(content: Ints, start: Ints, end: Ints) -> Columns:
    """(content, batch, number of rows) of each change, by content and batch; a negative number means removed rows.

    A row that is removed and added again in one batch is no change.
    """
    closed = end < OPEN
    contents, batches = np.concatenate((content, content[closed])), np.concatenate((start, end[closed]))
    counts = np.repeat(np.array([1, -1]), (len(content), int(closed.sum())))
    order = np.lexsort((batches, contents))
    contents, batches = contents[order], batches[order]
    first = np.flatnonzero(np.append(True, (np.diff(contents) != 0) | (np.diff(batches) != 0))[: len(contents)])
    net = np.add.reduceat(counts[order], first) if len(first) else np.empty(0, np.int64)
    kept = net != 0
    return contents[first][kept], batches[first][kept], net[kept]


def intervals(content: Ints, start: Ints, end: Ints) -> Columns:
    """(content, first batch, end) of each row without its unchanged rewrites; of equal rows the newest ends first."""
    contents, batches, net = net_changes(content, start, end)
    total = np.cumsum(net)
    begins = np.append(True, np.diff(contents) != 0)[: len(contents)]
    before_group = (total - net)[begins]
    after = total - np.repeat(before_group, np.diff(np.append(np.flatnonzero(begins), len(contents))))
    # Rows form a stack: each start is paired with the next end at its height.
    size = np.abs(net)
    owner = np.repeat(np.arange(len(net)), size)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
    height = np.minimum(after, after - net)[owner] + within
    order = np.lexsort((batches[owner], height, contents[owner]))
    owner, height = owner[order], height[order]
    opens = np.flatnonzero(net[owner] > 0)
    following = np.minimum(opens + 1, max(len(owner) - 1, 0))
    ended = (opens + 1 < len(owner)) & (net[owner[following]] < 0)
    first, last = owner[opens], owner[following]
    return contents[first], batches[first], np.where(ended, batches[last], OPEN)
