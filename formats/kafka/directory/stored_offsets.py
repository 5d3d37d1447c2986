"""Offsets as bytes: positions (``PositionSerde``) and the column family ``offsets`` of 4.3 and later (KIP-1035).

    position                 00 | topics:int32 | (length:int32 | topic | n:int32 | (partition:int32 | offset:int64)*)*
    key "status"             int64: 1 open, 0 closed cleanly
    key "position"           a position
    key "<topic>-<n>"        int64: changelog offset of the last record applied

A position is also the value of the changelog header ``c``. Kafka stores a position with the whole buffer into which it
was written. It makes the buffer too large by counting bits for bytes, so zeros follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statestore.formats.kafka_rows.byte_reader import Reader, corrupt

Position = dict[str, dict[int, int]]

FAMILY = "offsets"
STATUS_KEY, POSITION_KEY = b"status", b"position"
OPEN, CLOSED = 1, 0
VERSION = 0


@dataclass(frozen=True)
class StoredOffsets:
    """Content of the family ``offsets``. ``closed_cleanly`` is None where the store does not record it."""

    closed_cleanly: bool | None = None
    position: Position = field(default_factory=dict)
    changelog: dict[tuple[str, int], int] = field(default_factory=dict)


def decode_position(data: bytes) -> Position:
    """Offsets by topic and partition. Raises CorruptError KAFKA_BYTES."""
    reader = Reader("position", data)
    version = reader.u8("version")
    if version != VERSION:
        raise reader.error(f"found version {version}, expected {VERSION}")
    position: Position = {}
    for _ in range(reader.count(reader.i32("topics"), 8, "topics")):
        topic = reader.text(reader.sized("topic"), "topic")
        number = reader.count(reader.i32("partitions"), 12, "partitions")
        position[topic] = {reader.i32("partition"): reader.i64("offset") for _ in range(number)}
    if len(data) == _buffer_size(position) and not any(data[reader.at :]):
        return position
    reader.end()
    return position


def merge_positions(positions: list[Position]) -> Position:
    """The greatest offset of each partition: the position of a store from the positions of its segments."""
    merged: Position = {}
    for position in positions:
        for topic, offsets in position.items():
            of_topic = merged.setdefault(topic, {})
            for partition, offset in offsets.items():
                of_topic[partition] = max(offset, of_topic.get(partition, offset))
    return merged


def decode_offsets_family(rows: Mapping[bytes, bytes]) -> StoredOffsets:
    """Decode all rows of the family. Raises CorruptError KAFKA_BYTES."""
    status = None
    position: Position = {}
    changelog = {}
    for key, value in rows.items():
        if key == STATUS_KEY:
            status = _status(value)
        elif key == POSITION_KEY:
            position = decode_position(value)
        else:
            changelog[_topic_partition(key)] = _offset(value)
    return StoredOffsets(None if status is None else status == CLOSED, position, changelog)


def _buffer_size(position: Mapping[str, Mapping[int, int]]) -> int:
    return 40 + sum(64 + len(topic.encode()) + 96 * len(offsets) for topic, offsets in position.items())


def _topic_partition(key: bytes) -> tuple[str, int]:
    reader = Reader("key of family offsets", key)
    topic, _, partition = reader.text(key, "topic and partition").rpartition("-")
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise reader.error(f"found {key[:80]!r}, expected <topic>-<partition>")
    return topic, int(partition)


def _offset(value: bytes) -> int:
    reader = Reader("offset", value)
    found = reader.i64("offset")
    reader.end()
    return found


def _status(value: bytes) -> int:
    found = _offset(value)
    if found not in (OPEN, CLOSED):
        raise corrupt("status", f"found {found}, expected {OPEN} (open) or {CLOSED} (closed)")
    return found
