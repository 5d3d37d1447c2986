"""``_metadata`` files written by hand, field by field as the description of the format says."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

MAGIC = bytes.fromhex("4960672d")
NULL = b"\0"


def i32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def i64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


def utf(text: str) -> bytes:
    """A text of characters up to U+FFFF without NUL."""
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def in_place(data: bytes, name: str = "bytes") -> bytes:
    return b"\x01" + utf(name) + i32(len(data)) + data


def file(uri: str, size: int) -> bytes:
    return b"\x02" + i64(size) + utf(uri)


def relative(path: str, size: int) -> bytes:
    return b"\x06" + utf(path) + i64(size)


def segment(uri: str, start: int, size: int) -> bytes:
    return b"\x0f" + i64(start, size) + i32(1) + utf(uri) + utf("logical")


def key_groups(kind: int, first: int, offsets: Sequence[int], stream: bytes) -> bytes:
    """Types 3, 7 and 12."""
    tail = utf("handle") if kind == 12 else b""
    return bytes([kind]) + i32(first, len(offsets)) + i64(*offsets) + stream + tail


def rocksdb(
    first: int, groups: int, meta: bytes, shared: Sequence[tuple[str, bytes]], private: Sequence[tuple[str, bytes]]
) -> bytes:
    """Type 5, which Flink wrote before 1.16."""
    found = b"\x05" + i64(9) + utf("backend") + i32(first, groups) + meta
    for files in (shared, private):
        found += i32(len(files)) + b"".join(utf(name) + handle for name, handle in files)
    return found


def subtask(
    index: int = 0,
    *,
    keyed: bytes = NULL,
    raw: bytes = NULL,
    operator: bytes = b"",
    channels: Sequence[bytes] = (),
    version: int = 3,
    states: int = 0,
) -> bytes:
    """The state of a subtask; ``channels`` are handles of input channels, ``states`` a number that version 2 has."""
    managed = i32(1) + operator if operator else i32(0)
    if version == 2:
        return i32(index) + i64(-1) + i32(states) + managed + i32(0) + keyed + raw
    return i32(index) + managed + i32(0) + keyed + raw + i32(len(channels)) + b"".join(channels) + i32(0)


@dataclass(frozen=True)
class Operator:
    """An operator; ``subtasks`` is None where it is fully finished."""

    id: str = "0123456789abcdef" * 2
    subtasks: Sequence[bytes] | None = ()
    name: str = ""
    uid: str = ""
    parallelism: int = 2
    max_parallelism: int = 128
    coordinator: bytes = NULL

    def written(self, version: int) -> bytes:
        head = utf(self.name) + utf(self.uid) if version >= 5 else b""
        head += bytes.fromhex(self.id) + i32(self.parallelism, self.max_parallelism)
        head += i32(1) if version == 2 else self.coordinator
        if self.subtasks is None:
            return head + i32(-1)
        return head + i32(len(self.subtasks)) + b"".join(self.subtasks)


def properties() -> bytes:
    """A Java object without fields."""
    head = bytes.fromhex("aced0005") + b"\x73\x72" + utf("org.apache.flink.runtime.checkpoint.CheckpointProperties")
    return head + i64(2) + b"\x02" + struct.pack(">H", 0) + b"\x78\x70"


def metadata(*operators: Operator, version: int = 6, checkpoint_id: int = 7, masters: Sequence[bytes] = ()) -> bytes:
    """A whole file; ``masters`` are the bodies of master states."""
    found = MAGIC + i32(version) + i64(checkpoint_id) + i32(len(masters))
    for master in masters:
        found += bytes.fromhex("c96b1696") + i32(len(master)) + master
    found += i32(len(operators)) + b"".join(operator.written(version) for operator in operators)
    return found + (properties() if version > 3 else b"")
