"""Guesses of the serde of sampled keys or values, from their bytes alone.

No bytes prove a serde: the eight letters of "december" are also a number. So a guess is never certain, except for
``Bytes``, which shows whatever is there. Kafka's own serdes are the candidates (``org.apache.kafka.common.
serialization``), and JSON text, alone or behind the id of its schema in a registry.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LONG_LIMIT, _INTEGER_LIMIT = 1 << 56, 1 << 24
"""Numbers above are seldom; floating-point numbers and text have such bytes."""
_READABLE_SHARE = 0.8
_LEAST_SHARE = 0.6
"""Share of numbers of a fixed size that must be usual ones: the least and greatest long are longs, too."""


@dataclass(frozen=True)
class SerdeGuess:
    """A guess: the serde's name as options have it, the evidence as a sentence, and whether it is beyond doubt."""

    name: str
    evidence: str
    certain: bool = False


def guess_serde(sample: Collection[bytes]) -> SerdeGuess:
    """Guess the serde of sampled keys or values; Bytes where nothing fits all of them."""
    distinct = sorted(set(sample))
    if not any(distinct):
        found = "all of them are empty" if distinct else "there are none"
        return SerdeGuess("Bytes", f"nothing to judge by: {found}", True)
    sizes = sorted(set(map(len, distinct)))
    for name, meaning, fitting in _CANDIDATES:
        count = fitting(distinct)
        if count >= _LEAST_SHARE * len(distinct):
            return SerdeGuess(name, f"{count} of {len(distinct)} distinct samples {meaning}")
    registry = {data[1:5] for data in distinct if len(data) > 5 and data[0] == 0}
    if registry and all(len(data) > 5 and data[0] == 0 for data in distinct) and len(registry) <= 8:
        ids = ", ".join(str(int.from_bytes(found, "big")) for found in sorted(registry))
        return SerdeGuess("Bytes", f"they begin as values of a schema registry do, with schema id {ids}", True)
    return SerdeGuess("Bytes", f"{len(distinct)} distinct samples of {_shown(sizes)} bytes fit no other serde", True)


def _is_uuid(sample: Sequence[bytes]) -> bool:
    return all(UUID.fullmatch(data) for data in sample)


def _is_json(sample: Sequence[bytes]) -> bool:
    return all(data[:1] in (b"{", b"[") and _loads(data) for data in sample)


def _loads(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _is_json_schema(sample: Sequence[bytes]) -> bool:
    """Return whether all are texts, objects or lists of JSON behind 00 and a schema id.

    A number behind an id could as well be Avro.
    """
    return all(data[:1] == b"\0" and data[5:6] in (b"{", b"[", b'"') and _is_strict_json(data[5:]) for data in sample)


def _is_strict_json(data: bytes) -> bool:
    try:
        json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_text(sample: Sequence[bytes]) -> bool:
    """Return whether all are UTF-8, and most of the characters are readable."""
    try:
        texts = [data.decode() for data in sample]
    except UnicodeDecodeError:
        return False
    characters = "".join(texts)
    readable = sum(character.isprintable() or character in "\t\n\r" for character in characters)
    return readable >= _READABLE_SHARE * len(characters)


def _is_boolean(sample: Sequence[bytes]) -> bool:
    return all(data in (b"\0", b"\1") for data in sample)


def _whole(size: int, limit: int) -> Callable[[Sequence[bytes]], int]:
    def fitting(sample: Sequence[bytes]) -> int:
        if any(len(data) != size for data in sample):
            return 0
        return sum(-limit <= int.from_bytes(data, "big", signed=True) < limit for data in sample)

    return fitting


def _floating(form: str, least: float, most: float) -> Callable[[Sequence[bytes]], int]:
    layout = struct.Struct(form)

    def fitting(sample: Sequence[bytes]) -> int:
        if any(len(data) != layout.size for data in sample):
            return 0
        numbers = [layout.unpack(data)[0] for data in sample]
        return sum(number == 0 or least <= abs(number) <= most for number in numbers)

    return fitting


def _all(fits: Callable[[Sequence[bytes]], bool]) -> Callable[[Sequence[bytes]], int]:
    return lambda sample: len(sample) if fits(sample) else 0


_CANDIDATES: tuple[tuple[str, str, Callable[[Sequence[bytes]], int]], ...] = (
    ("UUID", "are UUIDs as text", _all(_is_uuid)),
    ("json", "are JSON objects or lists", _all(_is_json)),
    ("json-schema", "are JSON behind 00 and the id of a schema", _all(_is_json_schema)),
    ("Boolean", "are the byte 00 or 01", _all(_is_boolean)),
    ("String", "are readable text in UTF-8", _all(_is_text)),
    ("Long", "(all have 8 bytes) are whole numbers below 2^56", _whole(8, _LONG_LIMIT)),
    ("Double", "(all have 8 bytes) are numbers from 1e-9 to 1e15", _floating(">d", 1e-9, 1e15)),
    ("Integer", "(all have 4 bytes) are whole numbers below 2^24", _whole(4, _INTEGER_LIMIT)),
    ("Float", "(all have 4 bytes) are numbers from 1e-6 to 1e9", _floating(">f", 1e-6, 1e9)),
    ("Short", "have 2 bytes", _whole(2, 1 << 15)),
)


def _shown(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
