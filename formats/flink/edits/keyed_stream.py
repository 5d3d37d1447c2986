"""Writing the stream of a subtask's keyed state in a canonical savepoint, key group after key group.

The stream is the header of the state backend and a block for each key group that has entries
(`statestore.formats.flink.streams.savepoint_entries` has the form of a block). The header is written as it was read,
apart from the byte that says whether blocks are compressed: they are not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.flink.changelog.stored_entries import fixed_bytes, joined_bytes
from statestore.formats.kernels.arrays import Ints

Entries: TypeAlias = tuple[Cells, Cells]
"""Stored keys and values."""
Section: TypeAlias = tuple[int, Iterable[Entries]]
"""The number of a state in the header, and its entries in one key group, in batches."""
Put: TypeAlias = Callable[[bytes | memoryview], object]

_COMPRESSED = 4  # the byte of the header behind the version
_END, _MARK = b"\xff\xff", 0x80


@dataclass(frozen=True)
class Framed:
    """One or more entries as a stream has them, without a mark; the last one begins at byte ``last``."""

    content: memoryview
    last: int


FramedSection: TypeAlias = tuple[int, Iterable[Framed]]


@dataclass(frozen=True)
class WrittenStream:
    """The place of each key group's block, 0 where there is none, and the bytes of the stream."""

    offsets: tuple[int, ...]
    bytes: int


def write_stream(
    put: Put, header: bytes, first_group: int, groups: int, found: Iterable[tuple[int, Iterable[FramedSection]]]
) -> WrittenStream:
    """Write a stream of ``groups`` key groups from ``first_group`` on, by ``put``, piece after piece.

    ``found`` are the key groups that may have entries, ascending, with the sections of each. Memory holds two batches.
    """
    put(header[:_COMPRESSED] + b"\0" + header[_COMPRESSED + 1 :])
    at, offsets = len(header), [0] * groups
    for group, sections in found:
        start = at
        for number, batches in sections:
            at += _section(put, number, batches)
        if at > start:
            offsets[group - first_group] = start
            put(_END)
            at += len(_END)
    return WrittenStream(tuple(offsets), at)


def _section(put: Put, number: int, batches: Iterable[Framed]) -> int:
    """Write the entries of a state, of which the last one is marked; return the bytes written."""
    others = iter(batches)
    first = next(others, None)
    if first is None:
        return 0
    put(number.to_bytes(2, "big"))
    size = 2
    for each, following in _with_next(first, others):
        if following is None:
            mark = each.last + 4  # behind the length
            put(each.content[:mark])
            put(bytes([each.content[mark] | _MARK]))
            put(each.content[mark + 1 :])
        else:
            put(each.content)
        size += len(each.content)
    return size


def _with_next(first: Framed, others: Iterator[Framed]) -> Iterator[tuple[Framed, Framed | None]]:
    held = first
    for each in itertools.chain(others, (None,)):
        yield held, each
        if each is not None:
            held = each


def framed_batches(batches: Iterable[Entries]) -> Iterator[Framed]:
    """Yield entries as a stream has them."""
    for keys, values in batches:
        if len(keys):
            yield whole(framed_entries([keys.copied()], keys.size, values))


def framed_entries(key_parts: Sequence[pa.BinaryArray], sizes: Ints, values: Cells) -> pa.BinaryArray:
    """The bytes of each entry in a stream; ``key_parts`` are what stored keys of these sizes are made of."""
    return joined_bytes([_lengths(sizes), *key_parts, _lengths(values.size), values.copied()])


def whole(entries: pa.BinaryArray) -> Framed:
    """All of one or more entries, without a copy."""
    _, ends, data = entries.buffers()
    offsets = np.frombuffer(ends, np.int32)[entries.offset : entries.offset + len(entries) + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    return Framed(memoryview(data)[start:stop], int(offsets[-2]) - start)


def _lengths(sizes: Ints) -> pa.BinaryArray:
    return fixed_bytes(np.ascontiguousarray(sizes.astype(">i4")).view(np.uint8), 4)
