"""States of Flink's own value classes (``StringValue`` and others) and sets that real jobs wrote, framed and not.

The job has subclasses with fields of Kryo in one state: what lies behind these in a heap checkpoint's block is lost.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.flink.fixtures import truth
from support.flink.keyed_blocks import blocks, heap_states, window_of

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, Prefix
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.streams.heap_records import HeapState, heap_records
from statestore.formats.flink.streams.savepoint_entries import savepoint_entries

CLASSES = {
    "string-value": "StringValue",
    "int-value": "IntValue",
    "long-value": "LongValue",
    "boolean-value": "BooleanValue",
    "set": "set(string)",
}


def true_values(run: str, state: str) -> dict[str, Any]:
    values = {line["key"]: line["value"] for line in truth(run, "truth-1.jsonl") if line["state"] == state}
    return {key: each["$set"] if isinstance(each, dict) else each for key, each in values.items()}


def by_key(keys: pa.Array | None, values: pa.Array | None) -> dict[str, Any]:
    assert keys is not None and values is not None
    plain = [sorted(each) if isinstance(each, list) else each for each in values.to_pylist()]
    return dict(zip(keys.cast(pa.string()).to_pylist(), plain, strict=True))


@pytest.mark.parametrize("state", CLASSES)
def test_a_heap_checkpoint_has_the_values_that_the_job_counted(state: str) -> None:
    found: dict[str, Any] = {}
    lost = 0
    for header, part, start, end in blocks("shapes-hashmap", "checkpoint"):
        number = [each.name for each in header.states].index(state)
        assert shown(header.states[number].value) == CLASSES[state]
        states = heap_states(header)
        window = window_of(header, part, start, end, 4)
        try:
            for batch in heap_records(window, states, number, [False, True, True]):
                found |= by_key(*batch.columns[1:])
        except UnsupportedError as error:
            assert "subclass shop.Animals$Puppy" in error.message
            lost += 1
    known = true_values("shapes-hashmap", state)
    assert found == {key: known[key] for key in found}
    assert len(known) - len(found) <= 2 * lost < len(known)  # at most two keys lie in one key group


def test_records_of_all_states_fill_the_blocks_of_a_heap_checkpoint() -> None:
    filled = lost = 0
    for header, part, start, end in blocks("shapes-hashmap", "checkpoint"):
        states = heap_states(header)
        window = window_of(header, part, start, end, 4)
        states.append(HeapState("none", [Basic("void")]))
        try:
            assert list(heap_records(window, states, len(states) - 1, [])) == []  # up to the end of the block, exactly
        except UnsupportedError as error:
            assert "subclass shop.Animals$Puppy" in error.message
            lost += 1
        else:
            filled += window.is_empty()
    animals = [line["value"] for line in truth("shapes-hashmap", "truth-1.jsonl") if line["state"] == "animal"]
    assert filled == 128 - lost
    assert 0 < lost <= sum("tricks" in animal for animal in animals)


@pytest.mark.parametrize("state", CLASSES)
def test_a_savepoint_has_the_values_that_the_job_counted(state: str) -> None:
    found: dict[str, Any] = {}
    for header, part, start, end in blocks("shapes-rocksdb", "savepoint-canonical"):
        number = [each.name for each in header.states].index(state)
        window = window_of(header, part, start, end, 0)
        for keys, values in savepoint_entries(window, number, len(header.states)):
            kinds: list[FlinkType] = [Prefix(1), header.key, header.states[number].namespace]
            columns = decode_cells(kinds, keys, [False, True, False], state)
            found |= by_key(columns[1], decode_cells([header.states[number].value], values, [True], state)[0])
    assert found == true_values("shapes-rocksdb", state)
