"""Compiled loops over the keys of changes: which change of each key is the newest, without holding any key.

Keys are compared by 128 bits of SipHash-2-4 (Aumasson and Bernstein 2012) under a secret of the reader. That two of a
billion keys agree in them has a chance of less than 1 in 10**20, and nobody can choose keys that do.

The table of keys has open addressing. A slot is three words: the halves of a hash, and one more than the number of the
newest change, or 0 where the slot is free. The number of slots is a power of two.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.compiled import U64, Words, inlined, kernel, word

_V0, _V1 = U64(0x736F6D6570736575), U64(0x646F72616E646F6D)
_V2, _V3 = U64(0x6C7967656E657261), U64(0x7465646279746573)
_WIDE, _SECOND = U64(0xEE), U64(0xDD)


@inlined
def _rotated(x: Any, bits: int) -> Any:
    return (x << U64(bits)) | (x >> U64(64 - bits))


@inlined
def sip_round(a: Any, b: Any, c: Any, d: Any) -> Any:
    """One round of SipHash."""
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    return a, b, c, d


@inlined
def _hashed(data: Bytes, at: int, size: int, secret: Words) -> Any:
    """(low half, high half) of the 128-bit hash of ``data[at : at + size]``."""
    a, b, c, d = secret[0] ^ _V0, secret[1] ^ _V1 ^ _WIDE, secret[0] ^ _V2, secret[1] ^ _V3
    stop = at + size
    while at + 8 <= stop:
        read = word(data, at)
        d ^= read
        a, b, c, d = sip_round(a, b, c, d)
        a, b, c, d = sip_round(a, b, c, d)
        a ^= read
        at += 8
    read = U64(size) << U64(56)
    for i in range(stop - at):
        read |= U64(data[at + i]) << U64(8 * i)
    d ^= read
    a, b, c, d = sip_round(a, b, c, d)
    a, b, c, d = sip_round(a, b, c, d)
    a ^= read
    c ^= _WIDE
    for _ in range(4):
        a, b, c, d = sip_round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= _SECOND
    for _ in range(4):
        a, b, c, d = sip_round(a, b, c, d)
    return low, a ^ b ^ c ^ d


@kernel
def sip_hashes(data: Bytes, start: Ints, size: Ints, secret: Words, low: Words, high: Words) -> None:
    """Fill in the halves of the hash of each string."""
    for i in range(len(start)):
        low[i], high[i] = _hashed(data, start[i], size[i], secret)


@inlined
def _slot_of(a: Any, b: Any, table: Words, last: Any) -> Any:
    """Position of the words of a key's slot, or of the free slot where it would be."""
    slot = a & last
    at = slot * U64(3)
    while table[at + U64(2)] != 0 and (table[at] != a or table[at + U64(1)] != b):
        slot = (slot + U64(1)) & last
        at = slot * U64(3)
    return at


@kernel
def note_newest(
    data: Bytes,
    start: Ints,
    size: Ints,
    secret: Words,
    within: Words,
    table: Words,
    newest: Bytes,
    counts: Ints,
    room: int,
) -> int:
    """Enter changes in the table and mark those that are the newest of their keys so far.

    ``within``: first and last of the low halves that are entered; other changes are not marked. ``counts``: how many
    keys the table holds, and the number of the next change. Stops when the table holds ``room`` keys, and returns how
    many changes were entered.
    """
    last = U64(len(table) // 3 - 1)
    for i in range(len(start)):
        if counts[0] >= room:
            return i
        number = counts[1]
        counts[1] += 1
        a, b = _hashed(data, start[i], size[i], secret)
        if a < within[0] or a > within[1]:
            continue
        newest[number] = 1
        at = _slot_of(a, b, table, last)
        before = table[at + U64(2)]
        if before != 0:
            newest[before - U64(1)] = 0
        else:
            table[at], table[at + U64(1)] = a, b
            counts[0] += 1
        table[at + U64(2)] = U64(number + 1)
    return len(start)


@kernel
def move_keys(table: Words, within: Words, wider: Words, newest: Bytes) -> int:
    """Move the keys of one table to another, without the keys outside ``within``; returns how many were moved."""
    last = U64(len(wider) // 3 - 1)
    moved = 0
    for at in range(0, len(table), 3):
        a, b, row = table[at], table[at + 1], table[at + 2]
        if row == 0:
            continue
        if a < within[0] or a > within[1]:
            newest[row - U64(1)] = 0
            continue
        to = _slot_of(a, b, wider, last)
        wider[to], wider[to + U64(1)], wider[to + U64(2)] = a, b, row
        moved += 1
    return moved


@kernel
def find_unchanged(
    data: Bytes, start: Ints, size: Ints, secret: Words, within: Words, table: Words, found: Bools
) -> int:
    """Mark the keys that lie ``within`` and are not in the table; returns their number."""
    last = U64(len(table) // 3 - 1)
    count = 0
    for i in range(len(start)):
        a, b = _hashed(data, start[i], size[i], secret)
        inside = a >= within[0] and a <= within[1] and table[_slot_of(a, b, table, last) + U64(2)] == 0
        found[i] = inside
        count += inside
    return count
