"""Positions and the column family ``offsets``: Kafka's own bytes, and bytes that are none."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import strategies as st
from support.parameters import named
from support.properties import few_or_many
from support.stores.kafka_vectors import encodings

from statestore.formats.errors import CorruptError
from statestore.formats.kafka.directory.stored_offsets import (
    Position,
    StoredOffsets,
    decode_offsets_family,
    decode_position,
    merge_positions,
)
from statestore.formats.kafka_rows.byte_reader import int32, sized

REFUSED = r"KAFKA_BYTES.*found.*expected"


def encoded(position: Position) -> bytes:
    parts = [b"\0", int32(len(position))]
    for topic, offsets in position.items():
        parts += (sized(topic.encode()), int32(len(offsets)), *(pack(">iq", *entry) for entry in offsets.items()))
    return b"".join(parts)


def test_positions_of_kafka() -> None:
    for case in encodings("position"):
        expected = {topic: {int(n): offset for n, offset in found.items()} for topic, found in case["decoded"].items()}
        with named(case):
            assert decode_position(bytes.fromhex(case["hex"])) == expected
            assert encoded(expected).hex() == case["hex"]


@few_or_many(
    25,
    100,
    position=st.dictionaries(
        st.text(max_size=4), st.dictionaries(st.integers(0, 9), st.integers(0, 2**63 - 1), max_size=3), max_size=3
    ),
    padded=st.booleans(),
)
def test_positions_are_read(position: Position, padded: bool) -> None:
    """Kafka's buffer has 8 + 32 bytes, for a topic 32 + its name + 32, for an offset 32 + 64: bits where bytes are
    meant; zeros follow a position in it."""
    size = 40 + sum(64 + len(topic.encode()) + 96 * len(offsets) for topic, offsets in position.items())
    data = encoded(position).ljust(size if padded else 0, b"\0")
    assert decode_position(data) == position
    for bad in (data + b"\x00", data[:-1], data + b"x", *([data[:-1] + b"\1"] if padded else [])):
        with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*position"):
            decode_position(bad)


def test_positions_of_segments_are_merged() -> None:
    positions: list[Position] = [{"a": {0: 3, 1: 1}}, {"a": {0: 2}, "b": {0: 0}}]
    assert merge_positions(positions) == {"a": {0: 3, 1: 1}, "b": {0: 0}}


def test_the_offsets_family_is_read() -> None:
    """Topics may hold hyphens: the last one parts topic and partition."""
    position: Position = {"t": {0: 1}}
    rows = {b"app-s-changelog-3": pack(">q", 7), b"status": bytes(8), b"position": encoded(position)}
    assert decode_offsets_family(rows) == StoredOffsets(True, position, {("app-s-changelog", 3): 7})
    assert decode_offsets_family({b"status": pack(">q", 1)}).closed_cleanly is False
    assert decode_offsets_family({}).closed_cleanly is None
    for bad in ({b"status": bytes(7)}, {b"status": bytes(7) + b"\x02"}, {b"topic": bytes(8)}, {b"t-x": bytes(8)}):
        with pytest.raises(CorruptError, match="KAFKA_BYTES"):
            decode_offsets_family(bad)


@pytest.mark.parametrize(
    "data",
    [
        "0100000000",  # version
        "00ffffffff",
        "007fffffff",
        "0000000001ffffffff",
        "0000000001000000017400000001" + "00" * 11,
        "000000000100000001ff00000000",
    ],
)
def test_wrong_fields_are_refused(data: str) -> None:
    with pytest.raises(CorruptError, match=REFUSED):
        decode_position(bytes.fromhex(data))


def test_cut_positions_are_refused() -> None:
    whole = encoded({"t": {0: 1}})
    for size in range(len(whole)):
        with pytest.raises(CorruptError, match=REFUSED):
            decode_position(whole[:size])


@few_or_many(25, 100, data=st.binary(max_size=60), front=st.integers(0, 30))
def test_any_bytes_are_read_or_refused(data: bytes, front: int) -> None:
    """No other error, and none of them takes long."""
    for found in (data, encoded({"t": {0: 1}})[:front] + data, b"\0" + b"\xff" * 60):
        try:
            decode_position(found)
        except CorruptError as error:
            assert error.code == "KAFKA_BYTES"
