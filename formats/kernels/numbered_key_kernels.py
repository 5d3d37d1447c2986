"""Compiled loops that number byte strings by their content, and join byte strings of one owner.

The table has a region for each group, of which no string is in another one, so that strings of one group that follow
each other need little memory at a time. A region has open addressing. A slot is one more than the number of a string
in its low half, with half of the string's hash in the high one, or 0 where it is free. Strings are compared by that
half of SipHash-1-3 under a secret of the reader, which nobody can choose to meet, and then by their bytes.
"""

from __future__ import annotations

import numpy as np

from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.change_kernels import equal_bytes
from statestore.formats.kernels.compiled import I64, U64, Words, inlined, kernel, word
from statestore.formats.kernels.newest_kernels import sip_round

_V0, _V1 = U64(0x736F6D6570736575), U64(0x646F72616E646F6D)
_V2, _V3 = U64(0x6C7967656E657261), U64(0x7465646279746573)
_LOW, _HIGH = U64(0xFFFFFFFF), U64(0xFFFFFFFF << 32)


@inlined
def _hashed(data: Bytes, at: int, size: int, secret: Words) -> Words:
    """The 64 bits of SipHash-1-3 of ``data[at : at + size]``."""
    a, b, c, d = secret[0] ^ _V0, secret[1] ^ _V1, secret[0] ^ _V2, secret[1] ^ _V3
    stop = at + size
    while at + 8 <= stop:
        read = word(data, at)
        d ^= read
        a, b, c, d = sip_round(a, b, c, d)
        a ^= read
        at += 8
    read = U64(size) << U64(56)
    for i in range(stop - at):
        read |= U64(data[at + i]) << U64(8 * i)
    d ^= read
    a, b, c, d = sip_round(a, b, c, d)
    a ^= read
    c ^= U64(0xFF)
    for _ in range(3):
        a, b, c, d = sip_round(a, b, c, d)
    found: Words = a ^ b ^ c ^ d
    return found


@kernel
def hash_strings(data: Bytes, start: Ints, size: Ints, secret: Words, hashes: Words) -> None:
    """Fill in the hash of each string."""
    for i in range(len(start)):
        hashes[i] = _hashed(data, start[i], size[i], secret)


@kernel
def number_strings(
    data: Bytes,
    start: Ints,
    size: Ints,
    group: Ints,
    hashes: Words,
    regions: Ints,
    slots: Words,
    first: Ints,
    number: Ints,
    newest: Bools,
) -> int:
    """Fill in the number of each string, whether no later one has it, and the place of the first one of each number.

    ``regions[g]`` to ``regions[g + 1]`` are the slots of group g, a power of two, more than the strings of the group.
    Returns how many strings are different.
    """
    count = 0
    last = np.empty(len(start), np.int32)
    for i in range(len(start)):
        found = hashes[i]
        tag = found & _HIGH
        base = regions[group[i]]
        mask = regions[group[i] + 1] - base - 1
        slot = I64(found & _LOW) & mask
        mine = I64(-1)
        while slots[base + slot] != 0:
            if slots[base + slot] & _HIGH == tag:
                other = first[I64(slots[base + slot] & _LOW) - 1]
                if size[other] == size[i] and equal_bytes(data, start[other], data, start[i], size[i]):
                    mine = I64(slots[base + slot] & _LOW) - 1
                    break
            slot = (slot + 1) & mask
        if mine < 0:
            mine = count
            first[count] = i
            count += 1
            slots[base + slot] = tag | U64(count)
        else:
            newest[last[mine]] = False
        number[i] = mine
        newest[i] = True
        last[mine] = i
    return count


@kernel
def find_strings(
    data: Bytes,
    start: Ints,
    size: Ints,
    group: Ints,
    secret: Words,
    regions: Ints,
    slots: Words,
    first: Ints,
    own: Bytes,
    own_start: Ints,
    own_size: Ints,
    number: Ints,
) -> int:
    """Fill in the numbers of other strings, -1 where there is none; returns how many have one.

    Without ``group`` the first byte of the hash is the group.
    """
    count = 0
    for i in range(len(start)):
        number[i] = -1
        found = U64(0)
        if len(group) == 0:
            found = _hashed(data, start[i], size[i], secret)
            mine = I64(found >> U64(56))
        else:
            mine = group[i]
        if mine < 0 or mine + 1 >= len(regions):
            continue
        base = regions[mine]
        mask = regions[mine + 1] - base - 1
        if mask < 0:
            continue
        if len(group) != 0:
            found = _hashed(data, start[i], size[i], secret)
        tag = found & _HIGH
        slot = I64(found & _LOW) & mask
        while slots[base + slot] != 0:
            if slots[base + slot] & _HIGH == tag:
                other = first[I64(slots[base + slot] & _LOW) - 1]
                if own_size[other] == size[i] and equal_bytes(own, own_start[other], data, start[i], size[i]):
                    number[i] = I64(slots[base + slot] & _LOW) - 1
                    count += 1
                    break
            slot = (slot + 1) & mask
    return count


@kernel
def join_strings(
    data: Bytes, start: Ints, size: Ints, owner: Ints, joiner: int, has: Bools, at: Ints, target: Bytes
) -> None:
    """Write strings to where the next one of each owner belongs, with ``joiner`` behind those that it ``has``.

    There is room for all. ``at`` becomes where each owner's strings end.
    """
    for i in range(len(start)):
        mine = owner[i]
        place = at[mine]
        if has[mine]:
            target[place] = joiner
            place += 1
        has[mine] = True
        source = start[i]
        for k in range(size[i]):
            target[place + k] = data[source + k]
        at[mine] = place + size[i]
