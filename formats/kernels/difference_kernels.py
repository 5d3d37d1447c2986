"""Compiled comparison of the merged rows of two versions of a database, and the blocks that a set of keys may be in.

Both versions' entries lie in the same buffers, so an entry of a file that both have is one place, and equal to itself.
"""

from __future__ import annotations

import numpy as np

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import inlined, kernel
from statestore.formats.kernels.merge_kernels import byte_order

ADDED, REMOVED, CHANGED = 0, 1, 2


@kernel
def mark_blocks(
    keys: Bytes,
    key_start: Ints,
    first: int,
    stop: int,
    separators: Bytes,
    separator_start: Ints,
    begin: int,
    end: int,
    needed: np.ndarray,
) -> None:
    """Mark the blocks from ``begin`` to ``end`` of a file that may have keys of a run of entries, which is sorted.

    A block's keys are above the separator before it and up to its own. The versions of one key may go on in the next
    block, whose separator is then no smaller.
    """
    block = begin
    for entry in range(first, stop):
        size = key_start[entry + 1] - key_start[entry] - 8
        direction = -1
        while block < end:
            start = separator_start[block]
            direction = byte_order(
                separators, start, separator_start[block + 1] - start, keys, key_start[entry], size, 0
            )
            if direction >= 0:
                break
            block += 1
        if block == end:
            return
        needed[block - begin] = True
        while direction == 0 and block + 1 < end:
            block += 1
            needed[block - begin] = True
            start = separator_start[block]
            direction = byte_order(
                separators, start, separator_start[block + 1] - start, keys, key_start[entry], size, 0
            )


@inlined
def _length(value_size: Ints, piece: Ints, first: int, stop: int, joint: int) -> int:
    """The bytes of a row's value: its pieces, and a delimiter between each two."""
    total = joint * (stop - first - 1)
    for i in range(first, stop):
        total += value_size[piece[i]]
    return total


@inlined
def _same_value(
    plain: Bytes,
    value_start: Ints,
    value_size: Ints,
    piece_a: Ints,
    first_a: int,
    stop_a: int,
    piece_b: Ints,
    first_b: int,
    stop_b: int,
    delimiter: Bytes,
    joint: int,
) -> bool:
    if stop_a - first_a == 1 and stop_b - first_b == 1:
        a, b = piece_a[first_a], piece_b[first_b]
        if a == b:
            return True
        if value_size[a] != value_size[b]:
            return False
        return byte_order(plain, value_start[a], value_size[a], plain, value_start[b], value_size[b], 0) == 0
    if stop_a - first_a == stop_b - first_b:
        same = True
        for i in range(stop_a - first_a):
            if piece_a[first_a + i] != piece_b[first_b + i]:
                same = False
                break
        if same:
            return True
    size = _length(value_size, piece_a, first_a, stop_a, joint)
    if size != _length(value_size, piece_b, first_b, stop_b, joint):
        return False
    # Operands may be joined in one file and apart in another: the bytes of the joined values count.
    number_a, number_b, at_a, at_b = first_a, first_b, 0, 0
    for _ in range(size):
        while at_a == value_size[piece_a[number_a]] + joint:
            number_a, at_a = number_a + 1, 0
        while at_b == value_size[piece_b[number_b]] + joint:
            number_b, at_b = number_b + 1, 0
        size_a, size_b = value_size[piece_a[number_a]], value_size[piece_b[number_b]]
        x = plain[value_start[piece_a[number_a]] + at_a] if at_a < size_a else delimiter[at_a - size_a]
        y = plain[value_start[piece_b[number_b]] + at_b] if at_b < size_b else delimiter[at_b - size_b]
        if x != y:
            return False
        at_a += 1
        at_b += 1
    return True


@inlined
def _keep(piece: Ints, row_end: Ints, first: int, stop: int, kept: int) -> int:
    """Move a row's pieces to the end of those kept before; none of them is moved backwards."""
    at = row_end[kept - 1] if kept > 0 else 0
    for i in range(first, stop):
        piece[at] = piece[i]
        at += 1
    row_end[kept] = at
    return kept + 1


@kernel
def keep_differing(
    keys: Bytes,
    key_start: Ints,
    plain: Bytes,
    value_start: Ints,
    value_size: Ints,
    piece_a: Ints,
    end_a: Ints,
    rows_a: int,
    piece_b: Ints,
    end_b: Ints,
    rows_b: int,
    delimiter: Bytes,
    joint: int,
    kind: Bytes,
    count: Ints,
) -> None:
    """Leave only the differing rows in the pieces and row ends of both sides, in order of key.

    ``kind`` says of each key that differs whether it was added, removed or changed; it has room for the rows of both.
    ``count``: differing keys, rows left of the first side, and of the second.
    """
    a, b, at_a, at_b, found, kept_a, kept_b = 0, 0, 0, 0, 0, 0, 0
    while a < rows_a or b < rows_b:
        if a == rows_a:
            direction = 1
        elif b == rows_b:
            direction = -1
        else:
            x, y = piece_a[at_a], piece_b[at_b]
            direction = 0
            if x != y:
                size_x, size_y = key_start[x + 1] - key_start[x] - 8, key_start[y + 1] - key_start[y] - 8
                direction = byte_order(keys, key_start[x], size_x, keys, key_start[y], size_y, 0)
        stop_a = end_a[a] if direction <= 0 else at_a
        stop_b = end_b[b] if direction >= 0 else at_b
        if direction == 0 and _same_value(
            plain, value_start, value_size, piece_a, at_a, stop_a, piece_b, at_b, stop_b, delimiter, joint
        ):
            a, b, at_a, at_b = a + 1, b + 1, stop_a, stop_b
            continue
        if direction <= 0:
            kept_a = _keep(piece_a, end_a, at_a, stop_a, kept_a)
            a, at_a = a + 1, stop_a
        if direction >= 0:
            kept_b = _keep(piece_b, end_b, at_b, stop_b, kept_b)
            b, at_b = b + 1, stop_b
        kind[found] = REMOVED if direction < 0 else ADDED if direction > 0 else CHANGED
        found += 1
    count[0], count[1], count[2] = found, kept_a, kept_b
