"""Records of Avro that contain themselves, as real jobs wrote them: in heap checkpoints nothing says where one ends."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from support.flink.fixtures import truth
from support.flink.keyed_blocks import blocks, heap_states, window_of

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, Prefix
from statestore.formats.flink.streams.heap_records import HeapState, heap_records
from statestore.formats.flink.streams.savepoint_entries import savepoint_entries

SAME = ("id", "small", "name", "side", "grid", "uuid")
TEXTS = ("amount", "share", "day")


def told(kind: FlinkType, records: pa.Array) -> list[Any]:
    """The records with those inside of them, which are decoded again, as far as the truth has the same form."""
    (inner,) = decode_cells([kind], cells_of(records.field("parent")), [True], "parents")
    assert inner is not None
    parents = told(kind, inner) if inner.null_count < len(inner) else [None] * len(inner)
    return [
        each and {**{name: each[name] for name in SAME}, **{name: str(each[name]) for name in TEXTS}, "parent": parent}
        for each, parent in zip(records.to_pylist(), parents, strict=True)
    ]


def expected(value: Any) -> Any:
    return value and {**{name: value[name] for name in (*SAME, *TEXTS)}, "parent": expected(value["parent"])}


def true_values(run: str) -> dict[str, Any]:
    lines = truth(run, "truth-1.jsonl")
    return {line["key"]: expected(line["value"]) for line in lines if line["state"] == "recursive"}


def test_a_heap_checkpoint_has_the_records_and_what_lies_behind_them() -> None:
    found: dict[str, Any] = {}
    for header, part, start, end in blocks("avro-hashmap", "checkpoint"):
        names = [each.name for each in header.states]
        if "recursive" not in names:
            continue
        number, states = names.index("recursive"), heap_states(header)
        for batch in heap_records(window_of(header, part, start, end, 4), states, number, [False, True, True]):
            _, keys, records = batch.columns
            assert keys is not None and records is not None
            found |= zip(keys.to_pylist(), told(header.states[number].value, records), strict=True)
        states.append(HeapState("none", [Basic("void")]))
        window = window_of(header, part, start, end, 4)
        assert list(heap_records(window, states, len(states) - 1, [])) == []
        assert window.is_empty()
    assert found == true_values("avro-hashmap")


def test_a_savepoint_has_the_records() -> None:
    found: dict[str, Any] = {}
    for header, part, start, end in blocks("avro-rocksdb", "savepoint-canonical"):
        names = [each.name for each in header.states]
        if "recursive" not in names:
            continue
        number = names.index("recursive")
        kind = header.states[number].value
        for keys, values in savepoint_entries(window_of(header, part, start, end, 0), number, len(names)):
            kinds = [Prefix(1), header.key, header.states[number].namespace]
            _, texts, _ = decode_cells(kinds, keys, [False, True, False], "recursive")
            (records,) = decode_cells([kind], values, [True], "recursive")
            assert texts is not None and records is not None
            found |= zip(texts.to_pylist(), told(kind, records), strict=True)
    assert found == true_values("avro-rocksdb")
