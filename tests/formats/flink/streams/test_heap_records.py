"""Blocks of heap snapshots with values of users' serializers, whose ends only given types say."""

from __future__ import annotations

from typing import Any

import pytest
from support.flink.value_model import int32, record, utf

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, Opaque, TimerOf
from statestore.formats.flink.streams.block_bytes import BlockWindow
from statestore.formats.flink.streams.heap_records import HeapState, heap_records
from statestore.formats.flink.streams.keyed_columns import stepped_kinds
from statestore.formats.flink.streams.state_form import KeyedForm, Typed, form_of

VOID, LONG, INT, UTF = Basic("void"), Basic("long"), Basic("int"), Basic("utf")
OWN = Opaque("com.x.OwnSnapshot")
KINDS: list[list[FlinkType]] = [[VOID, LONG, UTF], [VOID, LONG, INT], [VOID, LONG, LONG]]
STATES = [HeapState(f"state {number}", kinds) for number, kinds in enumerate(KINDS)]
ROWS: list[list[list[Any]]] = [[[None, 1, "a\0"], [None, 2, "😀"]], [[None, 3, 4]], [[None, 5, 6]]]


def written(*numbers: int) -> bytes:
    """A block with the records of these states."""
    found = b""
    for number in numbers:
        records = b"".join(record(KINDS[number], row) for row in ROWS[number])
        found += number.to_bytes(2, "big") + int32(len(ROWS[number])) + records
    return found


def found(block: bytes, states: list[HeapState], state: int, to_the_end: bool) -> list[Any]:
    window = BlockWindow(iter((block,)), "file")
    batches = heap_records(window, states, state, [False, True, True], to_the_end=to_the_end)
    rows: list[Any] = []
    for each in batches:
        _, keys, values = each.columns
        assert keys is not None and values is not None
        rows += [[None, key, value] for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)]
    return rows


@pytest.mark.parametrize("to_the_end", [False, True])
@pytest.mark.parametrize("state", range(3))
def test_each_state_has_its_records(state: int, to_the_end: bool) -> None:
    assert found(written(1, 0, 2), STATES, state, to_the_end) == ROWS[state]


def test_what_lies_behind_tells_that_a_given_type_is_too_short() -> None:
    states = [HeapState("state 0", [VOID, LONG, INT]), *STATES[1:]]
    block = written(1) + b"\0\0" + int32(1) + record(KINDS[0], [None, 1, "long"])
    assert found(block, states, 0, False) == [[None, 1, int.from_bytes(utf("long")[:4], "big")]]
    with pytest.raises(CorruptError, match=r"FLINK_FILE.*file.*correct the types given"):
        found(block, states, 0, True)
    assert found(block, STATES, 0, True) == [[None, 1, "long"]]


def test_a_state_occurs_once_in_a_block() -> None:
    with pytest.raises(CorruptError, match=r"FLINK_FILE.*state 1 twice.*restore the file"):
        found(written(1, 1, 0), STATES, 0, False)
    with pytest.raises(CorruptError, match=r"FLINK_FILE.*state 0 twice.*correct the types given"):
        found(written(0, 0), STATES, 0, True)


def test_states_behind_that_cannot_be_decoded_are_left_alone() -> None:
    states = [*STATES[:2], HeapState("state 2", [VOID, LONG, OWN])]
    assert found(written(0, 2, 1), states, 0, True) == ROWS[0]
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*state 1.*state 2.*OwnSnapshot"):
        found(written(0, 2, 1), states, 1, True)


def form(own_key: FlinkType, own_value: FlinkType, **given: str) -> KeyedForm:
    return form_of(KeyedStateHeader("s", "value", VOID, own_value, {}), own_key, Typed(given, "state s"))


def test_a_state_is_stepped_over_with_the_types_of_the_file_where_these_say_its_length() -> None:
    assert stepped_kinds(form(LONG, INT), form(LONG, INT, value="binary"), LONG) == [VOID, LONG, INT]
    assert stepped_kinds(form(LONG, INT), None, OWN) == [VOID, LONG, INT]


def test_a_state_is_stepped_over_with_given_types_elsewhere() -> None:
    assert stepped_kinds(form(OWN, OWN), form(OWN, OWN, key="bigint", value="utf"), OWN) == [VOID, LONG, UTF]
    assert stepped_kinds(form(OWN, OWN), form(OWN, OWN, value="utf"), OWN) == [VOID, OWN, UTF]


def test_the_type_given_for_one_states_keys_is_that_of_the_others() -> None:
    assert stepped_kinds(form(OWN, INT), form(OWN, INT), LONG) == [VOID, LONG, INT]
    timers = form_of(KeyedStateHeader("t", "timers", VOID, TimerOf(OWN, VOID), {}), OWN, Typed({}, "state t"))
    assert stepped_kinds(timers, timers, LONG) == [TimerOf(LONG, VOID)]
