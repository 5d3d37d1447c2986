"""Values written are what a plain model of Flink's serializers writes, and what Flink itself has stored."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from support.flink.fixtures import MORE_NAMES, NAMES, fixture, manifest
from support.flink.snapshot_reads import source_at
from support.flink.value_model import cells, column_of, encoded, types, values
from support.parameters import mostly_slow
from support.properties import few_or_many

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.column_bytes import column_bytes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.key_bytes import java_hash
from statestore.formats.flink.columns.value_bytes import plain_values, value_bytes
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.edits.stored_rows import SubtaskRows, rows_by_group
from statestore.formats.flink.layouts.type_layouts import arrow_type, has_column
from statestore.formats.flink.serializers.flink_types import (
    Basic,
    FlinkType,
    Joined,
    Logical,
    Nullable,
    PojoOf,
    RowDataOf,
    SpanOf,
    TableValue,
    TtlOf,
    TupleOf,
)
from statestore.formats.flink.snapshot.handles import ChangelogHandle, KeyGroupHandle
from statestore.formats.flink.streams.keyed_columns import stored_element
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.values.key_groups import key_groups, murmur_of


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[FlinkType, Any]:
    kind = draw(types)
    return kind, draw(values(kind))


@few_or_many(100, 1500, typed_values())
def test_bytes_are_those_of_the_model(typed: tuple[FlinkType, Any]) -> None:
    kind, value = typed
    (plain,) = plain_values(pa.array([value], arrow_type(kind))) if has_column(kind) else (None,)
    try:
        found = value_bytes(kind, plain)
    except NoBytesError:
        assume(False)
        return
    assert found == encoded(kind, value)


POJO = PojoOf("A", (("a", Basic("int")), ("b", Basic("string"))))


@st.composite
def typed_columns(draw: st.DrawFn) -> tuple[FlinkType, pa.Array]:
    kind = draw(types)
    return kind, pa.array(draw(st.lists(values(kind), max_size=4)), arrow_type(kind))


@few_or_many(60, 800, typed_columns())
def test_bytes_of_a_column_are_those_of_its_values(typed: tuple[FlinkType, pa.Array]) -> None:
    kind, column = typed
    try:
        expected = [value_bytes(kind, each) for each in plain_values(column)]
    except NoBytesError:
        assume(False)
        return
    assert column_bytes(kind, column).to_pylist() == expected


BASICS = [Basic(name) for name in ("string", "long", "int", "short", "byte", "boolean", "float", "double")]
FLAT = st.sampled_from(
    [
        *BASICS,
        TupleOf((Basic("string"), Basic("long"))),
        PojoOf("A", (("a", Basic("int")), ("b", Basic("string")))),
        Nullable(Basic("double")),
        TtlOf(Basic("string")),
    ]
)


@few_or_many(60, 600, FLAT.flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values(kind), max_size=6))))
def test_bytes_of_flat_columns_are_those_of_the_model(typed: tuple[FlinkType, list[Any]]) -> None:
    kind, rows = typed
    assert column_bytes(kind, pa.array(rows, arrow_type(kind))).to_pylist() == [encoded(kind, each) for each in rows]


@few_or_many(40, 400, st.sampled_from(BASICS[:6]).flatmap(lambda kind: st.tuples(st.just(kind), values(kind))))
def test_key_groups_of_a_column_are_those_of_java(typed: tuple[FlinkType, Any]) -> None:
    kind, value = typed
    assume(value is not None)
    code = java_hash(kind, value)
    assert code is not None
    assert key_groups([pa.array([value], arrow_type(kind))], 1000).tolist() == [murmur_of(code) % 1000]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Basic("bigdecimal"), "1.50", "00000006" + "0096" + "00000002"),
        (Basic("bigdecimal"), "1E+3", "00000002" + "fffffffd"),
        (Basic("bigdecimal"), "0.00", "00000001" + "00000002"),
        (Basic("biginteger"), "-129", "00000006" + "ff7f"),
        (Basic("local_date"), -1, "000007b1" + "0c1f"),
        (Basic("local_date"), -735_525, "ffffffd4" + "030f"),
        (Basic("local_date_time"), -1, "000007b10c1f" + "173b3b" + "3b9ac9ff"),
        (Basic("sql_timestamp"), -1, "ffffffffffffffff" + "3b9ac9ff"),
        (Basic("date"), None, "8000000000000000"),
        (POJO, {"a": None, "b": "x"}, "02" + "01" + "00" + "0278"),
        (TableValue(Logical("DECIMAL", 20, 2)), "1.5", None),
    ],
)  # fmt: skip
def test_bytes_of_single_values(kind: FlinkType, value: Any, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(NoBytesError):
            value_bytes(kind, value)
        return
    assert value_bytes(kind, value).hex() == expected
    assert plain_values(column_of(kind, bytes.fromhex(expected))) == [value]


ROW = Logical(
    "ROW",
    children=(
        Logical("BIGINT"),
        Logical("STRING"),
        Logical("DECIMAL", 30, 3),
        Logical("TIMESTAMP", 9),
        Logical("ARRAY", children=(Logical("STRING"),)),
        Logical("MAP", children=(Logical("INTEGER"), Logical("DOUBLE"))),
        Logical("ROW", children=(Logical("BOOLEAN"), Logical("TIME"), Logical("FLOAT")), names=("x", "y", "z")),
    ),
    names=("a", "b", "c", "d", "e", "f", "g"),
)
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "b": st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
        "c": st.none() | st.decimals(-(10**26), 10**26, places=3),
        "d": st.none() | st.integers(-(2**62), 2**62),
        "e": st.none() | st.lists(st.none() | st.text("abcdefgh", max_size=12), max_size=40),
        "f": st.none() | st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(-5, 5)), max_size=4),
        "g": st.none()
        | st.fixed_dictionaries(
            {
                "x": st.none() | st.booleans(),
                "y": st.none() | st.integers(0, 86_399_999).map(lambda each: each * 1000),
                "z": st.none() | st.floats(-5, 5, width=32),
            }
        ),
    }
)


@few_or_many(40, 400, ROWS)
def test_rows_of_sql_come_back(row: dict[str, Any]) -> None:
    kind = RowDataOf(ROW)
    assert plain_values(column_of(kind, value_bytes(kind, row))) == [row]


ALL = [(name, place) for name in (*NAMES, *MORE_NAMES) for place in range(len(manifest(name)["snapshots"]))]
OF_OTHER_TYPES = ("custom", "opaque", "shapes", "operator", "sql-")
OF_OTHER_KINDS = [("shapes-rocksdb", "rows")]  # rows with a kind, which no column shows
QUICK = [("types-rocksdb", 0), ("rocksdb", 2), ("sql", 1), ("avro-rocksdb", 0)]


def _written_again(kind: FlinkType, stored: Cells, origin: str) -> int:
    """Compare values as they are stored with what is written for their columns; return how many were."""
    try:
        (column,) = decode_cells([kind], stored, [True], origin)
    except StateStoreError:
        return 0
    plain = [None] * len(stored) if column is None else plain_values(column)
    count = 0
    for number, value in enumerate(plain):
        try:
            found = value_bytes(kind, value)
        except NoBytesError:
            continue
        is_null = isinstance(kind, Nullable) and value is None  # what follows is not read, and differs by the backend
        assert is_null or found.hex() == stored.cell(number).hex(), (origin, kind, value)
        count += 1
    return count


@pytest.mark.parametrize(("run", "place"), mostly_slow(ALL, QUICK))
def test_stored_values_are_written_again_as_they_are(run: str, place: int) -> None:
    source = source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])
    snapshot = source.opened(source.refs[-1][0])
    done = every = 0
    for operator in snapshot.metadata.operators:
        forms = snapshot.keyed_forms(operator.id)
        for stored in snapshot.stored(operator.id).keyed:
            is_heap = isinstance(stored.handle, KeyGroupHandle) and stored.handle.form == "heap"
            if isinstance(stored.handle, ChangelogHandle) or is_heap:
                continue
            rows = SubtaskRows(snapshot.files, stored, forms, operator.max_parallelism, run)
            for _, sections in rows_by_group(rows):
                for number, batches in sections:
                    form = forms[stored.header.states[number].name]
                    for _, cells_of_values in batches:
                        if (run, form.name) in OF_OTHER_KINDS:
                            continue
                        every += len(cells_of_values)
                        done += _of_state(form, cells_of_values, run)
    assert done >= every * 0.75 or run.startswith(OF_OTHER_TYPES), (
        done,
        every,
    )


def _of_state(form: KeyedForm, stored: Cells, origin: str) -> int:
    if form.kind == "timers":
        return len(stored)
    if form.kind != "list" or form.whole:
        return _written_again(stored_element(form), stored, f"{origin} {form.name}")
    try:
        (lists,) = decode_cells([Joined(SpanOf(stored_element(form)))], stored, [True], origin)
    except StateStoreError:
        return 0
    assert lists is not None
    elements = lists.flatten().to_pylist()
    same = _written_again(stored_element(form), cells(*elements), f"{origin} {form.name}")
    return len(stored) if same == len(elements) else 0
