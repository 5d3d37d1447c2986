"""Hash codes of columns of keys against those of single keys, which other tests compare with Java's."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from statestore.formats.flink.columns.key_bytes import java_hash
from statestore.formats.flink.columns.key_hashes import has_java_hash, java_hashes
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, RowOf, TupleOf

TUPLE = "org.apache.flink.api.java.tuple.Tuple2"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "char": st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]),
}


def check(kind: FlinkType, values: list[Any]) -> None:
    assert has_java_hash(kind)
    codes = java_hashes(kind, pa.array(values, arrow_type(kind)))
    assert codes.dtype == np.uint32
    assert codes.tolist() == [java_hash(kind, each) for each in values]


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_a_column_has_the_hash_codes_of_its_values(name: str, data: st.DataObject) -> None:
    check(Basic(name), data.draw(st.lists(VALUES[name], max_size=20)))


@given(st.lists(st.tuples(TEXTS, st.floats(), st.integers(-9, 9)), max_size=20))
def test_tuples_have_those_of_their_fields(rows: list[tuple[str, float, int]]) -> None:
    inner = TupleOf((Basic("double"), Basic("int")), class_name=TUPLE)
    values = [{"f0": text, "f1": {"f0": number, "f1": whole}} for text, number, whole in rows]
    check(TupleOf((Basic("string"), inner), class_name=TUPLE), values)


@pytest.mark.parametrize(
    "kind",
    [
        TupleOf((Basic("int"), Basic("int"))),
        TupleOf((Basic("int"), RowOf((Basic("int"),), True)), class_name=TUPLE),
        Basic("long", "org.apache.flink.types.LongValue"),
        Basic("void"),
        RowOf((Basic("int"),), True),
    ],
)
def test_classes_of_a_job_have_none(kind: FlinkType) -> None:
    assert not has_java_hash(kind)
