"""Compiled merge of sorted runs of entries into rows: the newest version of a key wins, deletes hide, operands join.

A run is a stretch of entries in order of key and, for one key, from new to old. Rows come out as *pieces*: entries
whose values, joined with the merge operator's delimiter, are the row's value; a plain put is a row of one piece.
"""

from __future__ import annotations

import numpy as np

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.block_kernels import MERGE, NO_OPERATOR, PUT, SAME_VERSION, UNSORTED
from statestore.formats.kernels.codec_kernels import copy_bytes
from statestore.formats.kernels.compiled import U64, Words, big_word, inlined, kernel


@inlined
def byte_order(a: Bytes, start_a: int, size_a: int, b: Bytes, start_b: int, size_b: int, skip: int) -> int:
    """Return -1, 0 or 1 as bytes in ``a`` come before those in ``b``, are equal to them, or follow them.

    Their first ``skip`` bytes are known to be equal.
    """
    i, both = skip, min(size_a, size_b)
    while i < both:
        x, y = big_word(a, start_a + i), big_word(b, start_b + i)
        if both - i < 8:
            rest = U64(64 - 8 * (both - i))
            x, y = x >> rest, y >> rest
        if x != y:
            return -1 if x < y else 1
        i += 8
    return 0 if size_a == size_b else -1 if size_a < size_b else 1


@kernel
def common_prefix(keys: Bytes, key_start: Ints, first: Ints, stop: Ints) -> int:
    """Number of bytes that all user keys of the runs have in common at their start. The runs are sorted."""
    best = -1
    origin = -1
    for run in range(len(first)):
        if first[run] == stop[run]:
            continue
        if origin < 0:
            origin = first[run]
            best = key_start[origin + 1] - key_start[origin] - 8
        for entry in (first[run], stop[run] - 1):
            most = min(best, key_start[entry + 1] - key_start[entry] - 8)
            best = 0
            while best < most and keys[key_start[entry] + best] == keys[key_start[origin] + best]:
                best += 1
    return max(best, 0)


@kernel
def merge_runs(
    keys: Bytes,
    key_start: Ints,
    tag: Words,
    head: Words,
    first: Ints,
    stop: Ints,
    skip: int,
    joins: bool,
    piece: Ints,
    row_end: Ints,
    count: Ints,
) -> int:
    """Fill in pieces and, per row, where its pieces end; ``count``: rows, pieces.

    ``first`` and ``stop`` are the runs and are used up. ``skip`` comes from ``common_prefix``; ``head`` is working
    memory. ``joins`` says whether operands may be joined. ``piece`` and ``row_end`` are as long as ``tag``.
    """
    # Heads are compared first, and inline: passing many arrays to a function costs more than the comparison.
    for run in range(len(first)):
        for entry in range(first[run], stop[run]):
            size = key_start[entry + 1] - key_start[entry] - 8 - skip
            if size >= 8:
                head[entry] = big_word(keys, key_start[entry] + skip)
            elif size > 0:
                rest = U64(64 - 8 * size)
                head[entry] = (big_word(keys, key_start[entry] + skip) >> rest) << rest
            else:
                head[entry] = U64(0)
    order = np.empty(len(first), np.int64)
    active = 0
    for run in range(len(first)):
        if first[run] < stop[run]:
            order[active] = run
            active += 1
            _settle(keys, key_start, tag, first, skip, order, active)
    rows, pieces, begun = 0, 0, 0
    last_head, last_tag, last_start, last_size = U64(0), U64(0), 0, -1
    open_row = False
    while active > 0:
        run = order[0]
        entry = first[run]
        found, version, start = head[entry], tag[entry], key_start[entry]
        size = key_start[entry + 1] - start - 8
        if last_size < 0 or found > last_head:
            direction = -1
        elif found < last_head:
            direction = 1
        else:
            direction = byte_order(keys, last_start, last_size, keys, start, size, skip)
        if direction > 0 or (direction == 0 and last_tag < version):
            return UNSORTED
        if direction == 0 and last_tag == version:
            return SAME_VERSION
        last_head, last_tag, last_start, last_size = found, version, start, size
        if direction != 0 and open_row:
            rows = _close(piece, row_end, begun, pieces, rows)
            open_row = False
        if direction != 0 or open_row:
            if direction != 0:
                begun = pieces
            kind = version & U64(0xFF)
            if kind == U64(PUT):
                piece[pieces] = entry
                pieces += 1
                rows = _close(piece, row_end, begun, pieces, rows)
                open_row = False
            elif kind == U64(MERGE):
                if not joins:
                    return NO_OPERATOR
                piece[pieces] = entry
                pieces += 1
                open_row = True
            elif open_row:
                rows = _close(piece, row_end, begun, pieces, rows)
                open_row = False
        entry += 1
        first[run] = entry
        if entry == stop[run]:
            active -= 1
            for i in range(active):
                order[i] = order[i + 1]
            continue
        found = head[entry]
        slot = 0
        while slot + 1 < active:
            other = first[order[slot + 1]]
            if head[other] > found:
                break
            if head[other] == found:
                direction = _order_of(keys, key_start, other, entry, skip)
                if direction > 0 or (direction == 0 and tag[other] < tag[entry]):
                    break
            order[slot] = order[slot + 1]
            slot += 1
        order[slot] = run
    if open_row:
        rows = _close(piece, row_end, begun, pieces, rows)
    count[0], count[1] = rows, pieces
    return 0


@inlined
def _order_of(keys: Bytes, key_start: Ints, a: int, b: int, skip: int) -> int:
    size_a, size_b = key_start[a + 1] - key_start[a] - 8, key_start[b + 1] - key_start[b] - 8
    return byte_order(keys, key_start[a], size_a, keys, key_start[b], size_b, skip)


@inlined
def _settle(keys: Bytes, key_start: Ints, tag: Words, first: Ints, skip: int, order: Ints, active: int) -> None:
    """Move the last run in ``order`` to its position: by its next key, then from new to old."""
    slot = active - 1
    run = order[slot]
    entry = first[run]
    while slot > 0:
        other = first[order[slot - 1]]
        direction = _order_of(keys, key_start, entry, other, skip)
        if direction > 0 or (direction == 0 and tag[entry] < tag[other]):
            break
        order[slot] = order[slot - 1]
        slot -= 1
    order[slot] = run


@inlined
def _close(piece: Ints, row_end: Ints, begun: int, pieces: int, rows: int) -> int:
    """End a row and reverse its pieces, so that they go from old to new."""
    i, j = begun, pieces - 1
    while i < j:
        piece[i], piece[j] = piece[j], piece[i]
        i += 1
        j -= 1
    row_end[rows] = pieces
    return rows + 1


@kernel
def measure_rows(
    key_start: Ints,
    value_size: Ints,
    piece: Ints,
    row_end: Ints,
    rows: int,
    first: int,
    most_rows: int,
    most_bytes: int,
    delimiter: int,
    total: Ints,
) -> int:
    """The end of a batch that starts at row ``first``; ``total``: the bytes of its keys and of its values."""
    at = row_end[first - 1] if first > 0 else 0
    total[0], total[1] = 0, 0
    row = first
    while row < rows and row - first < most_rows:
        entry = piece[at]
        key = key_start[entry + 1] - key_start[entry] - 8
        value = delimiter * (row_end[row] - at - 1)
        while at < row_end[row]:
            value += value_size[piece[at]]
            at += 1
        if total[0] + key > most_bytes or total[1] + value > most_bytes:
            break
        total[0] += key
        total[1] += value
        row += 1
    return row


@kernel
def gather_rows(
    keys: Bytes,
    key_start: Ints,
    plain: Bytes,
    value_start: Ints,
    value_size: Ints,
    piece: Ints,
    row_end: Ints,
    first: int,
    stop: int,
    delimiter: Bytes,
    joint: int,
    key_end: np.ndarray,
    key_out: Bytes,
    value_end: np.ndarray,
    value_out: Bytes,
) -> None:
    """Write rows ``first`` to ``stop`` as Arrow offsets and bytes; the byte arrays have slack."""
    at = row_end[first - 1] if first > 0 else 0
    key_at, value_at = 0, 0
    key_end[0] = value_end[0] = 0
    for row in range(first, stop):
        entry = piece[at]
        size = key_start[entry + 1] - key_start[entry] - 8
        copy_bytes(keys, key_start[entry], key_out, key_at, size)
        key_at += size
        begun = at
        while at < row_end[row]:
            entry = piece[at]
            if at > begun:
                for i in range(joint):
                    value_out[value_at + i] = delimiter[i]
                value_at += joint
            copy_bytes(plain, value_start[entry], value_out, value_at, value_size[entry])
            value_at += value_size[entry]
            at += 1
        key_end[row - first + 1] = key_at
        value_end[row - first + 1] = value_at
