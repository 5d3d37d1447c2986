"""Ids of operators, as Flink makes them from the uids that a job gives."""

from __future__ import annotations

import re

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_HEX = re.compile(r"[0-9a-f]{32}", re.IGNORECASE)


def operator_id(uid: str) -> str:
    """The id of the operator with a uid, as 32 hexadecimal digits.

    It is the 128-bit murmur3 hash (x64, seed 0) of the uid's UTF-8 bytes. Source:
    ``org.apache.flink.streaming.api.graph.StreamGraphHasherV2.generateUserSpecifiedHash``.
    """
    data = uid.encode("utf-8", "replace")  # Java writes "?" for half a surrogate pair
    h1 = h2 = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        h1 ^= _mixed_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mixed_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    h2 ^= _mixed_2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= _mixed_1(int.from_bytes(data[whole : whole + 8], "little"))
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _finished(h1), _finished(h2)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return (h1.to_bytes(8, "little") + h2.to_bytes(8, "little")).hex()


def is_operator_id(text: str) -> bool:
    """Return whether a text has the form of an operator's id."""
    return _HEX.fullmatch(text) is not None


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> 64 - by) & _MASK


def _mixed_1(number: int) -> int:
    return _rotated(number * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_2(number: int) -> int:
    return _rotated(number * _C2 & _MASK, 33) * _C1 & _MASK


def _finished(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
