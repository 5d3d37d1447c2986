"""Descriptions of a few hundred bytes that expand to more types than memory holds are refused at once."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.layouts.avro_layouts import avro_layout
from statestore.formats.flink.serializers.compatibility import resolves
from statestore.formats.kafka.schemas.avro_schema import parse_schema
from statestore.formats.kafka.store_settings import read_settings
from statestore.formats.values.expansion import MOST_TYPES, parse_toml


def doubling(levels: int) -> str:
    """A record of two fields of the record before, and so on."""
    schema: Any = {"type": "record", "name": "a0", "fields": [{"name": "x", "type": "int"}]}
    for i in range(1, levels):
        fields = [{"name": "l", "type": schema}, {"name": "r", "type": f"a{i - 1}"}]
        schema = {"type": "record", "name": f"a{i}", "fields": fields}
    return json.dumps(schema)


def in_arrays(levels: int) -> str:
    """The same through arrays, maps and unions, which also name a type again."""
    schema: Any = {"type": "record", "name": "a0", "fields": [{"name": "x", "type": "long"}]}
    for i in range(1, levels):
        again = f"a{i - 1}"
        fields = [
            {"name": "l", "type": {"type": "array", "items": schema}},
            {"name": "m", "type": {"type": "map", "values": again}},
            {"name": "u", "type": ["null", again]},
        ]
        schema = {"type": "record", "name": f"a{i}", "fields": fields}
    return json.dumps(schema)


READERS: tuple[Callable[[str], object], ...] = (parse_schema, lambda text: avro_layout(text, "Bomb"))


@pytest.mark.parametrize("read", READERS, ids=["kafka", "flink"])
@pytest.mark.parametrize("bomb", [doubling(24), in_arrays(20)], ids=["fields", "arrays"])
def test_a_schema_that_names_the_one_before_again_is_refused(read: Callable[[str], object], bomb: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedError, match=f"more than {MOST_TYPES} types"):
            read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("read", READERS, ids=["kafka", "flink"])
def test_a_type_may_be_named_again(read: Callable[[str], object]) -> None:
    assert read(doubling(10)) is not None
    wide = {"type": "record", "name": "w", "fields": [{"name": f"f{i}", "type": "int"} for i in range(5_000)]}
    assert read(json.dumps(wide)) is not None


@pytest.mark.parametrize("read", READERS, ids=["kafka", "flink"])
def test_a_name_stands_for_the_type_of_its_namespace(read: Callable[[str], Any]) -> None:
    """A name stands for one without a namespace only where the namespace has no such type, as in Avro's own parser."""
    outer = {"type": "record", "name": "A", "fields": [{"name": "n", "type": "int"}]}
    inner = {"type": "record", "name": "ns.A", "fields": [{"name": "t", "type": "string"}]}
    other = {"type": "enum", "name": "E", "symbols": ["x"]}
    names = [inner, "A", "E"]
    within = {"type": "record", "name": "ns.B", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(names)]}
    fields = [{"name": f"g{i}", "type": each} for i, each in enumerate([outer, other, within, "A"])]
    column = read(json.dumps({"type": "record", "name": "R", "fields": fields})).column
    assert str(column) == (
        "struct<g0: struct<n: int32>, g1: string, g2: struct<f0: struct<t: string>, f1: struct<t: string>, "
        "f2: string>, g3: struct<n: int32>>"
    )


def test_schemas_are_compared_by_full_names() -> None:
    a = {"type": "record", "name": "A", "namespace": "", "fields": [{"name": "n", "type": "int"}]}
    inner = {"type": "record", "name": "ns.A", "fields": [{"name": "t", "type": "string"}]}

    def schema(last: str) -> str:
        within = [{"name": "x", "type": inner}, {"name": "y", "type": last}]
        fields = [{"name": "a", "type": a}, {"name": "b", "type": {"type": "record", "name": "ns.B", "fields": within}}]
        return json.dumps({"type": "record", "name": "R", "fields": fields})

    assert resolves(schema("A"), schema("ns.A")) is None
    problem = resolves(schema("A"), schema("int"))
    assert problem is not None and problem.is_certain


@pytest.mark.parametrize("read", READERS, ids=["kafka", "flink"])
def test_half_a_surrogate_pair_is_no_name(read: Callable[[str], object]) -> None:
    with pytest.raises(StateStoreError, match="half a surrogate pair"):
        read('{"type": "record", "name": "R", "fields": [{"name": "\\ud800", "type": "int"}]}')
    whole = '{"type": "record", "name": "R", "fields": [{"name": "\\ud83d\\ude00", "type": "int"}]}'
    assert "\U0001f600" in str(read(whole))


def test_a_record_inside_itself_stays_what_it_was() -> None:
    node = {"name": "next", "type": ["null", "node"]}
    schema = json.dumps({"type": "record", "name": "node", "fields": [{"name": "n", "type": "int"}, node]})
    assert avro_layout(schema, "Node").column is not None
    with pytest.raises(UnsupportedError, match="contains itself"):
        parse_schema(schema)


def test_comparing_schemas_is_bounded() -> None:
    union: Any = "int"
    for _ in range(5):
        union = [{"type": "array", "items": union} for _ in range(8)]
    problem = resolves(json.dumps(union), json.dumps(union))
    assert problem is None or not problem.is_certain


def test_keys_of_many_parts_are_refused(tmp_path: Any) -> None:
    for text in (
        "\n".join(f"{'a.' * 900}b{i} = 1" for i in range(2)),
        f'x = {{ a = """\n""", {"a." * 20_000}b = 1, z = "" }}',
        'a."\u2028".'.join(["a." * 900] * 3) + "b = 1",
        f"{'a.' * 20_000}b = 1",
        f"[{'a.' * 20_000}b]",
        f"x = {{ {'a.' * 20_000}b = 1 }}",
        "x = " + "[" * 5_000,
    ):
        with pytest.raises(ValueError):
            parse_toml(text)
        path = tmp_path / "stores.toml"
        path.write_text(text)
        with pytest.raises(StateStoreError, match="STORES_FILE"):
            read_settings(str(path))
    assert parse_toml(f'x = "{"a." * 2_000}"\n[a.b]\nc.d = 1.5\n') == {"x": "a." * 2_000, "a": {"b": {"c": {"d": 1.5}}}}
