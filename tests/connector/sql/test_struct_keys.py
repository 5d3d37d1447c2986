"""Comparisons of whole structs in a statement: those of fields that follow, and answers that stay what they were."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path

import statestore
from statestore.connector.sql.sql_statement import DuckDBSQL, find_references, parse
from statestore.connector.sql.struct_keys import compare_fields

TIME = pa.timestamp("us", "UTC")
KEYS = pa.schema(
    [
        ("key", pa.struct([("k", pa.string()), ("n", pa.int8()), ("t", pa.struct([("d", TIME)]))])),
        ("other", pa.int64()),
        ("pair", pa.struct([("p", pa.int32()), ("q", pa.int64())])),
    ]
)
K, N = "STRUCT_EXTRACT(key, 'k')", "STRUCT_EXTRACT(key, 'n')"
T = "STRUCT_EXTRACT(STRUCT_EXTRACT(key, 't'), 'd')"
P, Q = "STRUCT_EXTRACT(pair, 'p')", "STRUCT_EXTRACT(pair, 'q')"
MOMENT = "CAST('2024-05-01 00:00:00+00' AS TIMESTAMPTZ)"


@pytest.mark.parametrize(
    ("condition", "added"),
    [
        ("key = {'k': 'a', 'n': -1, 't': NULL}", f"{K} = 'a' AND {N} = -1"),
        (f"key = ROW('a', 1, {{'d': {MOMENT}}})", f"{K} = 'a' AND {N} = 1 AND {T} = {MOMENT}"),
        ("key IN (('a', 1, NULL), ('b', NULL, NULL))", f"{K} IN ('a', 'b')"),
        ("{'K': 'a', 'n': 1, 't': NULL} = key", f"{K} = 'a' AND {N} = 1"),
        ("NOT key = {'k': 'a', 'n': NULL, 't': NULL}", f"{K} = 'a'"),
        ("key IS NOT DISTINCT FROM ('a', 1, NULL)", f"{K} = 'a' AND {N} = 1"),
        ("key = ANY([('a', 1, NULL), ('b', 2, NULL)])", f"{K} IN ('a', 'b') AND {N} IN (1, 2)"),
        ("key = ('a', NULL, NULL) OR (key IN (('b', 1, NULL)))", f"{K} IN ('a', 'b')"),
        ("pair IN ((1, 2), (3, 4))", f"(({P} = 1 AND {Q} = 2) OR ({P} = 3 AND {Q} = 4))"),
        ("other IS NOT DISTINCT FROM 1", "other = 1"),
        ("other = -1.0 OR other = 2", "other IN (-1, 2)"),
        ("other = ANY([1, 2])", "other IN (1, 2)"),
        ("other = 1.5 OR other = 2", ""),
        ("other IN (1, 2) OR other = 3", ""),  # DuckDB offers these itself
        ("key = ('a', 1, NULL) OR other = 1", f"{K} = 'a' AND {N} = 1"),
        ("key = {'n': 1, 'k': 'a', 't': NULL}", ""),  # DuckDB pairs fields by name or by place, as its release does
        ("key = {'k': 7, 'n': 128, 't': {'d': '2024-05-01'}}", ""),  # other types, or a number the type does not hold
        ("key = {'k': upper('a'), 'n': 1.0, 't': NULL}", ""),
        ("key = {'k': 'a'}", ""),
        ("key <> {'k': 'a', 'n': 1, 't': NULL}", ""),
        ("other = 1", ""),
        ("value = {'k': 'a', 'n': 1, 't': NULL}", ""),
        ("u.key = {'k': 'a', 'n': 1, 't': NULL}", ""),
        ("EXISTS (SELECT 1 FROM (SELECT 1 AS key) WHERE key = ROW('a', 1, NULL))", ""),
    ],
)
def test_a_comparison_of_a_struct_gets_those_of_its_fields(condition: str, added: str) -> None:
    text = f"SELECT * FROM state AS s WHERE {condition}"
    tree = parse(text, DuckDBSQL)
    before = tree.sql(dialect=DuckDBSQL)
    assert compare_fields(find_references(tree, text)[0], KEYS) is bool(added)
    found = tree.sql(dialect=DuckDBSQL)
    assert (f" AND {added})" in found and before.split("WHERE ")[0] in found) if added else found == before


@pytest.mark.parametrize(
    ("tables", "column", "is_changed"),
    [
        ("state", "key", True),
        ("state", "state.key", True),
        ("state, other_table", "key", False),
        ("state JOIN other_table ON true", "state.key", True),
        ("state AS s JOIN state AS u ON true", "u.key", False),
        ("(SELECT * FROM state)", "key", False),
    ],
)
def test_only_a_column_that_is_the_tables_beyond_doubt_is_compared(tables: str, column: str, is_changed: bool) -> None:
    text = f"SELECT * FROM {tables} WHERE {column} = ROW('a', 1, NULL)"
    assert compare_fields(find_references(parse(text, DuckDBSQL), text)[0], KEYS) is is_changed


CONDITIONS = [
    "key = {'k': 'a'}",
    "NOT (key = {'k': 'a'})",
    "(key = {'k': 'a'}) IS NULL",
    "key = {'k': NULL}",
    "key = {'K': 'a'}",
    "key = ROW('a')",
    "key NOT IN ({'k': 'a'}, {'k': 'b'})",
    "key IN ({'k': 'a'}, {'k': NULL})",
    "CASE WHEN key = {'k': 'a'} THEN false ELSE true END",
    "key = {'k': 'a'} OR key = {'k': 'b'}",
    "NOT (key = {'k': 'a'} OR key IS NOT DISTINCT FROM {'k': 'b'})",
    "key IS NOT DISTINCT FROM {'k': NULL}",
    "key = ANY([{'k': 'a'}, {'k': NULL}])",
]


@pytest.mark.slow
def test_answers_are_those_of_duckdb_alone() -> None:
    """DuckDB compares whole structs of an attached state itself. The state has a key whose field is null."""
    path = str(checkpoint_path("spark4.3.0-agg__hdfs"))
    names = [row["key"]["k"] for row in statestore.inspect(path).table("state").scan().read_all().to_pylist()]
    assert None in names
    one, other, *_ = [name for name in names if name]
    with statestore.attach(path) as connection:
        for condition in CONDITIONS:
            named = condition.replace("'a'", f"'{one}'").replace("'b'", f"'{other}'")
            query = f"SELECT key FROM state WHERE {named} ORDER BY ALL"
            expected = connection.sql(query).to_arrow_table().to_pylist()
            assert statestore.sql(path, query).to_pylist() == expected, condition
