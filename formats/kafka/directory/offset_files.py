"""``.checkpoint`` and ``<store>.position``: offsets by topic and partition as text (``OffsetCheckpoint``).

    0                             version
    2                             number of entries
    orders 0 41                   topic, partition, offset; any run of white space between them
    orders 1 -4                   -4: unknown

A file that would be empty is not written, so a missing one is normal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError

Offsets = dict[str, dict[int, int | None]]

VERSION = 0
UNKNOWN_OFFSET = -4
_LINE_END = re.compile("\r\n|\n|\r")
_SPACE = re.compile("[ \t\x0b\f]+")
_NUMBER = re.compile("[+-]?[0-9]{1,19}")


def encode_offsets(offsets: Mapping[str, Mapping[int, int | None]]) -> str:
    """Encode the file's text, entries in the order given; an offset of None is written as unknown."""
    lines = [
        f"{topic} {partition} {UNKNOWN_OFFSET if offset is None else offset}"
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    ]
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines))


def decode_offsets(data: bytes | str, name: str = ".checkpoint") -> Offsets:
    """Offsets by topic and partition, None where unknown.

    Raises CorruptError KAFKA_FILE, naming the file ``name`` and what was found and expected. Negative offsets other
    than "unknown" are left out, as Kafka does.
    """
    lines = _lines(_text(data, name))
    version = _number(name, lines[0], 32) if lines else None
    if version != VERSION:
        raise _corrupt(name, f"found version {version}, expected {VERSION}")
    if len(lines) < 2:
        raise _corrupt(name, "found the end after its first line, expected the number of entries")
    expected = _number(name, lines[1], 32)
    found: Offsets = {}
    for line in lines[2:]:
        topic, partition, offset = _entry(name, line)
        if offset is not None and offset < 0:
            expected -= 1
        else:
            found.setdefault(topic, {})[partition] = offset
    entries = sum(map(len, found.values()))
    if entries != expected:
        raise _corrupt(name, f"found {entries} entries, expected {expected}")
    return found


def _text(data: bytes | str, name: str) -> str:
    try:
        return data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise _corrupt(name, f"found {error}, expected UTF-8") from error


def _lines(text: str) -> list[str]:
    lines = _LINE_END.split(text)
    return lines if lines[-1] else lines[:-1]


def _entry(name: str, line: str) -> tuple[str, int, int | None]:
    pieces = _SPACE.split(line.rstrip(" \t\x0b\f"))
    if len(pieces) != 3:
        raise _corrupt(name, f"found line {line[:80]!r}, expected topic, partition and offset")
    topic, partition, offset = pieces[0], _number(name, pieces[1], 32), _number(name, pieces[2], 64)
    if not topic or partition < 0:
        raise _corrupt(name, f"found line {line[:80]!r}, expected a topic and a partition of 0 or more")
    return topic, partition, None if offset == UNKNOWN_OFFSET else offset


def _number(name: str, text: str, bits: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _corrupt(name, f"found {text[:40]!r}, expected a number of {bits} bits")
    return number


def _corrupt(name: str, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.KAFKA_FILE, f"file {name}: {found}; restore it from a copy, or delete it to do without"
    )
