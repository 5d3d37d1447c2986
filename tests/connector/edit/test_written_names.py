"""Names as people write them mean what the whole names mean; a name that may mean two things is refused."""

from __future__ import annotations

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path

import statestore
from statestore.formats.edits import StateEdit
from statestore.formats.errors import StateStoreError

AGG = "spark4.3.0-agg__hdfs"
VARIABLES = "spark4.3.0-twsttl__rkcl"

SAME = {
    "fields": (
        "UPDATE state SET sum = 26 WHERE k = 'key-00-'",
        "UPDATE state SET value.sum = 26 WHERE key.k = 'key-00-'",
    ),
    "fields behind an alias": (
        "UPDATE state s SET SUM = s.sum + count WHERE s.k = 'key-00-'",
        "UPDATE state SET value.sum = value.sum + value.count WHERE key.k = 'key-00-'",
    ),
    "a key of one field": ("DELETE FROM state WHERE key = 'key-00-'", "DELETE FROM state WHERE key.k = 'key-00-'"),
    "keys of one field": (
        "DELETE FROM state WHERE state.key IN ('key-00-', 'key-16-', 'none')",
        "DELETE FROM state WHERE key.k IN ('key-00-', 'key-16-')",
    ),
    "a range of keys": (
        "DELETE FROM state WHERE key BETWEEN 'key-30-' AND 'key-39-' OR key LIKE 'key-0%'",
        "DELETE FROM state WHERE key.k BETWEEN 'key-30-' AND 'key-39-' OR key.k LIKE 'key-0%'",
    ),
    "a whole key": ("DELETE FROM state WHERE key = {'k': 'key-00-'}", "DELETE FROM state WHERE key.k = 'key-00-'"),
    "columns of another table go first": (
        "UPDATE state SET sum = sum FROM (VALUES ('key-00-', 7)) s(k, sum) WHERE key.k = k",
        "UPDATE state SET value.sum = 7 WHERE key.k = 'key-00-'",
    ),
    "fields beside another table": (
        "UPDATE state SET sum = v + count FROM (VALUES ('key-00-', 7)) s(x, v) WHERE k = x",
        "UPDATE state SET value.sum = 7 + value.count WHERE key.k = 'key-00-'",
    ),
    "a merge": (
        "MERGE INTO state USING (VALUES ('key-00-', 7)) s(x, v) ON k = x "
        "WHEN MATCHED AND count > 100 THEN DELETE WHEN MATCHED THEN UPDATE SET sum = v + count",
        "UPDATE state SET value.sum = 7 + value.count WHERE key.k = 'key-00-'",
    ),
    "names in functions": (
        "UPDATE state SET value = struct_update(value, sum := sum + 1) WHERE k = 'key-00-'",
        "UPDATE state SET value.sum = value.sum + 1 WHERE key.k = 'key-00-'",
    ),
    "names of an inner query are its own": (
        "DELETE FROM state WHERE k IN (SELECT k FROM (VALUES ('key-00-')) s(k))",
        "DELETE FROM state WHERE key.k = 'key-00-'",
    ),
    "parameters of functions": (
        "DELETE FROM state WHERE k = list_filter(['key-00-', 'z'], sum -> sum < 'l')[1]",
        "DELETE FROM state WHERE key.k = 'key-00-'",
    ),
}


def edited(text: str, name: str = AGG) -> StateEdit:
    edit = statestore.edit(checkpoint_path(name))
    edit.sql(text)
    (found,) = edit.edits()
    return found


@pytest.mark.parametrize("name", SAME)
def test_short_names_mean_the_whole_ones(name: str) -> None:
    short, whole = map(edited, SAME[name])
    assert short.removed.num_rows and whole.removed.num_rows
    assert (short.removed.to_pylist(), short.added.to_pylist()) == (whole.removed.to_pylist(), whole.added.to_pylist())


def test_a_field_at_any_depth_is_found() -> None:
    found = edited("UPDATE tval SET n = 7 WHERE id = 20", VARIABLES)
    assert [row["value"]["value"]["n"] for row in found.added.to_pylist()] == [7]


REFUSED = {
    "UPDATE state SET nope = 1": "COLUMN_NOT_FOUND.*it has key \\(k\\), value \\(count, sum",
    "DELETE FROM state WHERE k = (SELECT max(k) FROM state)": "written with its column: key.k",
    'DELETE FROM state WHERE k = "key-00-"': "stands in single quotes: 'key-00-'",
    "DELETE FROM state WHERE k = ?": "no parameters; write the values",
    "DELETE FROM state WHERE k = NULL": "WHERE with = NULL holds for no row; write IS NULL",
    "DELETE FROM state WHERE NOT k <> NULL": "write IS NOT NULL",
    "BEGIN; DELETE FROM state; COMMIT": "an edit is a transaction by itself",
    "DELETE state WHERE k = 'key-00-'": "write DELETE FROM",
    "DELETE FROM state ORDER BY k LIMIT 1": "choose rows by a condition",
    "INSERT INTO state VALUES ({'k': 'a'}, NULL) ON CONFLICT DO NOTHING": "write MERGE INTO",
    "INSERT OR REPLACE INTO state VALUES ({'k': 'a'}, NULL)": "write MERGE INTO",
    "DELETE FROM state WHERE k = 'a' RETURNING *": "a preview shows the rows",
    "DELETE FROM state WHERE value = 3": r"INVALID_SQL.*value is no single value, it has value\.count, value\.sum",
    "DELETE FROM state s WHERE s.value IN ('a', 'b')": r"compare these, as in value\.count = … AND value\.sum = …",
    "UPDATE state SET value['sum'] = 1": "a field of a struct as value.n",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_says_what_to_write(text: str) -> None:
    edit = statestore.edit(checkpoint_path(AGG))
    with pytest.raises(StateStoreError, match=f"(?s){REFUSED[text]}"):
        edit.sql(text)
    assert not edit.edits()


def test_a_name_that_may_mean_two_fields_is_refused() -> None:
    edit = statestore.edit(checkpoint_path("spark4.3.0-sess__rkcl"))
    with pytest.raises(StateStoreError, match=r"INVALID_SQL.*k may be key.k or value.k; write which"):
        edit.sql("DELETE FROM state WHERE k = 'a'")
