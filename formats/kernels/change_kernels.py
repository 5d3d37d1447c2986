"""Compiled loops over the records of state files: where each record begins, and which records have equal keys."""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, U64, Words, inlined, kernel, store_word, word

_MIX = U64(0x9E3779B97F4A7C15)


@inlined
def _big_int32(data: Bytes, at: int) -> Any:
    found = (I64(data[at]) << 24) | (I64(data[at + 1]) << 16) | (I64(data[at + 2]) << 8) | I64(data[at + 3])
    return found - (found >> 31 << 32)


@kernel
def record_spans(
    data: Bytes, front: int, key_start: Ints, key_size: Ints, value_start: Ints, value_size: Ints, found: Ints
) -> int:
    """Fill in where the keys and values of complete records lie, as many as there is room for; returns their number.

    A record is ``front`` bytes that end with the size of a key, the key, the size of the value, the value. ``found``:
    where the records end; whether they end with an impossible size (1), or for lack of bytes or room (0); the last two
    sizes.
    """
    count, at, length = 0, 0, len(data)
    key, value, odd = 0, 0, 0
    while count < len(key_start) and at + front <= length:
        key = _big_int32(data, at + front - 4)
        if key < 0:
            odd = 1
            break
        end = at + front + key
        if end + 4 > length:
            break
        value = _big_int32(data, end)
        if value < -1:
            odd = 1
            break
        if end + 4 + max(value, 0) > length:
            break
        key_start[count], key_size[count], value_start[count], value_size[count] = at + front, key, end + 4, value
        count += 1
        at = end + 4 + max(value, 0)
    found[0], found[1], found[2], found[3] = at, odd, key, value
    return count


@kernel
def group_keys(data: Bytes, start: Ints, size: Ints, seed: int, slots: Ints, hashes: Words, group: Ints) -> int:
    """Number equal keys alike, in the order of their first row; returns the number of groups.

    ``slots`` is all -1, and its length is a power of two above the number of keys. ``seed`` is unpredictable, so that
    keys cannot be chosen to collide.
    """
    last = U64(len(slots) - 1)
    groups = 0
    for row in range(len(start)):
        at, stop = start[row], start[row] + size[row]
        mixed = U64(seed) ^ U64(size[row])
        while at + 8 <= stop:
            mixed = _mixed(mixed ^ word(data, at))
            at += 8
        while at < stop:
            mixed = _mixed(mixed ^ U64(data[at]))
            at += 1
        hashes[row] = mixed
        slot = mixed & last
        while True:
            first = slots[slot]
            if first < 0:
                slots[slot] = row
                group[row] = groups
                groups += 1
                break
            if hashes[first] == mixed and _equal(data, start[first], size[first], start[row], size[row]):
                group[row] = group[first]
                break
            slot = (slot + U64(1)) & last
    return groups


@inlined
def _mixed(x: Any) -> Any:
    x = (x ^ (x >> U64(32))) * _MIX
    return x ^ (x >> U64(29))


@inlined
def equal_bytes(data: Bytes, at: int, other: Bytes, behind: int, size: int) -> bool:
    """Return whether ``data[at : at + size]`` is ``other[behind : behind + size]``."""
    i = 0
    while i + 8 <= size:
        if word(data, at + i) != word(other, behind + i):
            return False
        i += 8
    while i < size:
        if data[at + i] != other[behind + i]:
            return False
        i += 1
    return True


@inlined
def _equal(data: Bytes, a: int, size_a: int, b: int, size_b: int) -> bool:
    return size_a == size_b and equal_bytes(data, a, data, b, size_a)


@inlined
def _put_big_int32(data: Bytes, at: int, number: Any) -> None:
    for i in range(4):
        data[at + i] = (number >> (24 - 8 * i)) & 255


@inlined
def _copied(target: Bytes, at: int, source: Bytes, start: int, size: int) -> None:
    i = 0
    while i + 8 <= size:
        store_word(target, at + i, word(source, start + i))
        i += 8
    while i < size:
        target[at + i] = source[start + i]
        i += 1


@kernel
def join_records(
    keys: Bytes,
    key_start: Ints,
    key_size: Ints,
    values: Bytes,
    value_start: Ints,
    value_size: Ints,
    kind: int,
    target: Bytes,
) -> bool:
    """Write records as `record_spans` reads them: the byte ``kind`` unless it is negative, the size of a key, the key,
    the size of the value, the value.

    Returns False if a key or a value lies outside of its bytes, or the records do not fill ``target``.
    """
    at = 0
    front = 4 if kind < 0 else 5
    for i in range(len(key_start)):
        key, begin, value, first = key_size[i], key_start[i], value_size[i], value_start[i]
        if key < 0 or begin < 0 or begin + key > len(keys) or value < 0 or first < 0 or first + value > len(values):
            return False
        if at + front + key + 4 + value > len(target):
            return False
        if kind >= 0:
            target[at] = kind
        at += front
        _put_big_int32(target, at - 4, key)
        _copied(target, at, keys, begin, key)
        at += key
        _put_big_int32(target, at, value)
        _copied(target, at + 4, values, first, value)
        at += 4 + value
    return at == len(target)
