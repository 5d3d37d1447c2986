"""Properties of Spark's types that Arrow's types lack, in Python, in DuckDB and on the command line.

``data/spark/types.tar.xz`` is a checkpoint of Spark 4.3.0 whose state is one struct with a field of each type, and
``truth.json``: the names of these types and every value as text, both from Spark's own ``statestore`` source.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import truth_of_types, types_checkpoint
from support.command_line import run

import statestore
from statestore.catalog.warehouse import inspect
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.spark.checkpoint.spark_schema import arrow_fields, parse_schema
from statestore.formats.spark.rows.key_encoding import UNKNOWN, pinned
from statestore.formats.spark.rows.value_columns import calendar_intervals
from statestore.formats.values.declared_types import DECLARED
from statestore.formats.values.types import shown_field


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return inspect(CHECKPOINT).table("state").scan().read_all()


CHECKPOINT = types_checkpoint()
SPATIAL = {"geometry": "geometry(OGC:CRS84)", "geography": "geography(OGC:CRS84, SPHERICAL)"}


def member(table: pa.Table, name: str) -> pa.Field:
    return table.schema.field("value").type.field("first").type.field(name)


def values(table: pa.Table, name: str) -> list[Any]:
    """The values from the first of the four keys on."""
    found = sorted(table.to_pylist(), key=lambda row: row["key"]["n"])
    return [row["value"]["first"][name] for row in found]


def test_every_type_has_the_name_that_spark_gives_it(rows: pa.Table) -> None:
    named = {field.name: shown_field(field) for field in rows.schema.field("value").type.field("first").type}
    assert named == truth_of_types()["types"] | SPATIAL


def test_texts_are_those_that_spark_reads(rows: pa.Table) -> None:
    for name in ("lcase", "unicode", "unicode_ci", "rtrim", "de", "fixed", "varying"):
        assert values(rows, name) == [row[name] for row in truth_of_types()["rows"]]


def test_a_collation_is_in_the_metadata_of_its_field_at_any_depth(rows: pa.Table) -> None:
    assert member(rows, "lcase").metadata[DECLARED] == b"string collate UTF8_LCASE"
    assert member(rows, "texts").type.value_field.metadata[DECLARED] == b"string collate UTF8_LCASE"
    texts = member(rows, "text_map").type
    assert texts.key_field.metadata[DECLARED] == b"string collate UTF8_LCASE"
    assert texts.item_field.metadata[DECLARED] == b"string collate UNICODE_CI"


def test_year_month_intervals_are_months(rows: pa.Table) -> None:
    assert member(rows, "year_month").type == pa.int32()
    assert values(rows, "year_month") == [14, 26, 38, 50]
    assert values(rows, "year") == [12, 24, 36, 48]
    assert values(rows, "month") == [-1, -2, -3, -4]
    assert values(rows, "year_month_map")[1] == [(25, 2)]


def test_calendar_intervals_are_months_days_and_nanoseconds(rows: pa.Table) -> None:
    nanoseconds = ((4 * 60 + 5) * 60) * 10**9 + 6_500_000_000
    assert [tuple(each) for each in values(rows, "calendar")] == [(12 + n, -3, nanoseconds) for n in (1, 2, 3, 4)]
    assert [each and tuple(each) for each in values(rows, "calendars")[0]] == [(1, 0, 0), None]
    assert values(rows, "no_calendar") == [None] * 4


def test_a_geometry_is_its_system_and_its_well_known_binary(rows: pa.Table) -> None:
    point = bytes.fromhex("0101000000000000000000F03F0000000000000040")
    assert values(rows, "geometry")[0] == values(rows, "geography")[0] == {"srid": 4326, "wkb": point}


def test_comparisons_outside_of_spark_go_byte_by_byte() -> None:
    state = inspect(CHECKPOINT).table("state")
    assert state.scan(filter=("value.first.lcase", "=", "curry")).read_all().num_rows == 1
    assert state.scan(filter=("value.first.lcase", "=", "CURRY")).read_all().num_rows == 0
    query = "SELECT count(*) AS n FROM state WHERE value.first.lcase {}= 'CURRY'"
    assert statestore.sql(CHECKPOINT, query.format("")).to_pylist() == [{"n": 0}]
    assert statestore.sql(CHECKPOINT, query.format("COLLATE NOCASE ")).to_pylist() == [{"n": 2}]


def test_duckdb_reads_intervals_of_both_kinds() -> None:
    query = (
        "SELECT value.first.year_month AS months, DATE '2024-01-31' + value.first.calendar AS later, "
        "value.first.calendars[1] AS one FROM state WHERE key.n = 1"
    )
    found = statestore.sql(CHECKPOINT, query).to_pylist()
    later = datetime.datetime(2025, 2, 25, 4, 5, 6, 500_000)
    assert [(row["months"], row["later"], tuple(row["one"])) for row in found] == [(14, later, (1, 0, 0))]


def test_the_command_line_says_the_declared_types_and_prints_every_value() -> None:
    shown = run("sql", CHECKPOINT, 'SELECT "type" FROM "state$schema" WHERE "column" = \'value\'', "--json").out
    assert "lcase:string collate UTF8_LCASE" in shown and "year_month:interval year to month" in shown
    printed = run("scan", CHECKPOINT, "state", "--json").rows
    assert sorted(row["value"]["first"]["year_month"] for row in printed) == [14, 26, 38, 50]
    assert all(row["value"]["first"]["calendar"] for row in printed)


def test_columns_without_an_interval_are_read_though_another_is_beyond_arrow() -> None:
    cell = pa.array([bytes(8) + (1 << 62).to_bytes(8, "little")])
    with pytest.raises(UnsupportedError, match=r"an interval of 4611686018427387904 microseconds .* read the other"):
        calendar_intervals(cells_of(cell))
    most = 9_223_372_036_854_774
    cell = pa.array([bytes(8) + number.to_bytes(8, "little", signed=True) for number in (most, -most)])
    assert [each[2] for each in calendar_intervals(cells_of(cell)).to_pylist()] == [most * 1000, -most * 1000]


def schema_json(metadata: Any, kind: Any = "string") -> str:
    field = {"name": "w", "type": kind, "nullable": True, "metadata": metadata}
    return json.dumps({"type": "struct", "fields": [field]})


@pytest.mark.parametrize(
    ("metadata", "kind", "declared"),
    [
        ({}, "string", None),
        ({"__COLLATIONS": {"w": "spark.UTF8_BINARY"}}, "string", None),
        ({"__COLLATIONS": {"w": "icu.sr_Cyrl_SRB_CI_AI"}}, "string", b"string collate sr_Cyrl_SRB_CI_AI"),
        ({"__COLLATIONS": {"x": "icu.UNICODE"}}, "string", None),
        ({}, "string collate UNICODE_CI", b"string collate UNICODE_CI"),
        ({}, "char(3)", b"char(3)"),
        ({}, "interval minute to second", b"interval minute to second"),
        ({}, "interval day to second", None),
    ],
)
def test_schemas_of_any_release_state_collations(metadata: Any, kind: str, declared: bytes | None) -> None:
    (field,) = arrow_fields(parse_schema(schema_json(metadata, kind)))
    assert (field.metadata or {}).get(DECLARED) == declared


@pytest.mark.parametrize(
    "metadata", [7, [], {"__COLLATIONS": 7}, {"__COLLATIONS": ["w"]}, {"__COLLATIONS": {"w": "spark.\ud800"}}]
)
def test_metadata_that_is_none_is_damage(metadata: Any) -> None:
    with pytest.raises(CorruptError, match="expected the JSON of a struct"):
        parse_schema(schema_json(metadata))


@pytest.mark.parametrize("name", ["spark.a b", "7", 7, None])
def test_a_collation_that_has_no_name_is_refused(name: Any) -> None:
    text = schema_json({"__COLLATIONS": {"w": name}})
    if name is None:
        assert arrow_fields(parse_schema(text))[0].metadata is None
        return
    with pytest.raises(UnsupportedError, match="type 'string collate"):
        parse_schema(text)


def test_keys_with_a_collation_are_not_looked_up_by_their_bytes() -> None:
    nested = {"type": "struct", "fields": json.loads(schema_json({"__COLLATIONS": {"w": "icu.UNICODE"}}))["fields"]}
    for kind, given in (("string", "curry"), (nested, {"w": "curry"})):
        metadata = {"__COLLATIONS": {"w": "icu.UNICODE"}} if kind == "string" else {}
        values = pinned(parse_schema(schema_json(metadata, kind)), {"w": given})
        assert values == ([UNKNOWN] if kind == "string" else [[UNKNOWN]])


def test_spark_s_own_metadata_of_a_field_is_kept() -> None:
    (field,) = arrow_fields(parse_schema(schema_json({"spark.watermarkDelayMs": 10_000, "odd": {"a": 1}}, "timestamp")))
    assert field.metadata == {b"SPARK::metadata::json": b'{"spark.watermarkDelayMs": 10000}'}
