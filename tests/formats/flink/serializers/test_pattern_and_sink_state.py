"""State of patterns (CEP) and of sinks that commit in two phases: values that Flink 1.20.3 and 2.1.0 wrote.

The bytes are those of ``tests/engines/flink/released/serializers/src/WriteSerialized.java``, the values those that it
gave to the serializers of Flink.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.flink.snapshot_bytes import LONG, STRING, composite, printed, snapshot
from support.flink.value_model import cells, column_of, decoded, in_each_way

from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.compatibility import compatibility
from statestore.formats.flink.serializers.flink_types import FlinkType, TupleOf
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.snapshot.data_input import DataInput

both_ways = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])

SINK = "org.apache.flink.streaming.api.functions.sink."
CLASS = "TwoPhaseCommitSinkFunction$StateSerializerSnapshot"
PATTERN = "org.apache.flink.cep.nfa.NFAStateSerializerSnapshot"
EVENT, NODE = (printed("2.3.0")["SNAP", name][1] for name in ("eventid", "nodeid"))
DEWEY = snapshot("org.apache.flink.cep.nfa.DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot")

_NODE = {"event_id": {"id": 7, "timestamp": -1}, "page": "päge:中"}
_BEGUN = {
    "state": "start",
    "previous_node": None,
    "version": [1],
    "start_timestamp": -1,
    "previous_timestamp": -1,
    "start_event": None,
}
_GOING = {
    "state": "middle:0",
    "previous_node": _NODE,
    "version": [1, 1, 0],
    "start_timestamp": 1_700_000_000_000,
    "previous_timestamp": 5,
    "start_event": {"id": 3, "timestamp": 9},
}
_BEGUN_BYTES = "067374617274000000000100000001ffffffffffffffffffffffffffffffff00"
_GOING_BYTES = (
    "096d6964646c653a300100000007ffffffffffffffff0770e40167653aad9c0100000003000000010000000100000000"
    "0000018bcfe56800000000000000000501000000030000000000000009"
)
MATCHES: dict[str, Any] = {
    f"00000001{_BEGUN_BYTES}00000000": {"partial_matches": [_BEGUN], "completed_matches": []},
    "0000000000000000": {"partial_matches": [], "completed_matches": []},
    f"00000002{_GOING_BYTES}{_BEGUN_BYTES}00000001{_GOING_BYTES}": {
        "partial_matches": [_GOING, _BEGUN],
        "completed_matches": [_GOING],
    },
}
ENTRIES: dict[str, Any] = {
    "00000002000000020100000007ffffffffffffffff0770e40167653aad9c010000000100000004"
    "0000000000000000020000000100000000": [
        {"references": 2, "edge": {"target": _NODE, "version": [4]}},
        {"references": 0, "edge": {"target": None, "version": [1, 0]}},
    ],
    "00000000": [],
}
_HELD = {"transaction": "tx-1", "started_ms": 1_700_000_000_000}
_HELD_BYTES = "0574782d310000018bcfe56800"
TRANSACTIONS: dict[str, Any] = {
    "000000000000": {"pending": None, "to_commit": [], "context": None},
    f"01{_HELD_BYTES}00000002{_HELD_BYTES}{_HELD_BYTES}01fffffffffffffffb": {
        "pending": _HELD,
        "to_commit": [_HELD, _HELD],
        "context": -5,
    },
    f"0000000001{_HELD_BYTES}00": {"pending": None, "to_commit": [_HELD], "context": None},
}


def read(data: bytes) -> FlinkType:
    source = DataInput(data, "file")
    kind = read_snapshot(source)
    source.end()
    return kind


def sink(version: int, outer: bytes = b"", package: str = "") -> FlinkType:
    return read(composite(f"{SINK}{package}{CLASS}", STRING, LONG, version=version, outer=outer))


CASES = {
    "matches": (lambda: read(printed("2.3.0")["SNAP", "nfastate"][1]), MATCHES),
    "entries": (lambda: read(printed("2.3.0")["SNAP", "node"][1]), ENTRIES),
    "transactions": (lambda: sink(4, b"\1", "legacy."), TRANSACTIONS),
}


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_that_flink_was_given(case: str, both_ways: bool) -> None:
    kind, rows = CASES[case][0](), CASES[case][1]
    assert decoded(kind, *map(bytes.fromhex, rows)) == list(rows.values())


@pytest.mark.parametrize("case", CASES)
def test_cut_values_are_refused(case: str, both_ways: bool) -> None:
    kind, rows = CASES[case][0](), CASES[case][1]
    for whole in map(bytes.fromhex, rows):
        for end in range(len(whole)):
            with pytest.raises(StateStoreError, match="FLINK_ROW"):
                decode_cells([kind], cells(whole[:end]), [True], "state 'x'")
        with pytest.raises(StateStoreError, match="FLINK_ROW"):
            decode_cells([kind], cells(whole + b"\0"), [True], "state 'x'")


def test_older_snapshots_have_fewer_parts() -> None:
    """Version 1 of a pattern's state has no time before; a sink's may be null since version 3, or as version 4 says."""
    first = read(composite(PATTERN, DEWEY, NODE, EVENT, version=1))
    assert "start_timestamp long, start_event" in shown(first)
    second = read(composite(PATTERN, DEWEY, NODE, EVENT, version=2, outer=b"\0"))
    assert first == second
    assert isinstance(first, TupleOf)
    whole, times = bytes.fromhex(f"00000001{_BEGUN_BYTES}00000000"), 16
    shorter = whole[: -5 - times // 2] + whole[-5:]
    (row,) = column_of(first, shorter).to_pylist()
    assert row["partial_matches"] == [{name: each for name, each in _BEGUN.items() if name != "previous_timestamp"}]

    third = read(printed("2.3.0")["SNAP", "nfastate"][1])
    assert compatibility(first, third).outcome == compatibility(sink(2), sink(3)).outcome == "unknown"
    assert compatibility(third, third).outcome == "as is"

    required, nullable = "tuple(pending tuple(", "tuple(pending option(tuple("
    for kind, start in (
        (sink(2), required),
        (sink(3), nullable),
        (sink(4, b"\0"), required),
        (sink(4, b"\1"), nullable),
    ):
        assert shown(kind).startswith(start)
    assert decoded(sink(2), bytes.fromhex(f"{_HELD_BYTES}0000000000")) == [
        {"pending": _HELD, "to_commit": [], "context": None}
    ]
