"""Edits in Python: what they write, what they show before, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines.toy_edits import NOW, Model, opened, read, same, tree, write_source
from support.engines.toys import write_package

import statestore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(tmp_path_factory.mktemp("package") / "toys.zip"))
        yield


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def toys_of(edit: Any) -> dict[tuple[str, str], Any]:
    """The rows of ``toys`` that an edit adds or changes."""
    added = [row for each in edit.edits() if each.state == "toys" for row in each.added.to_pylist()]
    return {(row["k"], row["field"]): row["n"] for row in added}


def queue_of(edit: Any, k: str) -> list[Any]:
    rows = [row for each in edit.edits() if each.state == "queues" for row in each.added.to_pylist()]
    return [row["item"] for row in rows if row["k"] == k]


def test_the_target_is_written_at_the_end_of_the_block(source: Path, tmp_path: Path) -> None:
    before = tree(source)
    with statestore.edit(source, tmp_path / "target") as edit:
        edit.sql("UPDATE toys SET n = 26 WHERE k = 'a' AND field = 'x'; DELETE FROM queues WHERE k = 'c'")
        edit.sql("INSERT INTO toys VALUES ('d', 'x', 7)")
        assert not (tmp_path / "target").exists()
    assert edit.receipt is not None and edit.receipt.target_version == 2
    toys = {**NOW.toys, ("a", "x"): 26, ("d", "x"): 7}
    queues = {k: items for k, items in NOW.queues.items() if k != "c"}
    assert same(read(opened(tmp_path / "target"), 2), Model(toys, queues))
    assert tree(source) == before
    assert edit.receipt.proves("DELETE FROM queues WHERE k = 'c'")


def test_an_error_in_the_block_leaves_no_target(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), statestore.edit(source, tmp_path / "target") as edit:
        edit.sql("DELETE FROM toys")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_text_that_is_refused_changes_nothing(source: Path) -> None:
    edit = statestore.edit(source)
    edit.sql("UPDATE toys SET n = 5 WHERE k = 'b'")
    with pytest.raises(StateStoreError, match=r"'toys' has a row of k 'c', field 'x' already"):
        edit.sql("DELETE FROM toys WHERE k = 'a'; INSERT INTO toys VALUES ('c', 'x', 1)")
    assert toys_of(edit) == {("b", "x"): 5}


def test_without_a_target_nothing_is_written(source: Path, tmp_path: Path) -> None:
    with statestore.edit(source) as edit:
        edit.sql("DELETE FROM toys")
    assert edit.receipt is None
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_older_version_is_edited(source: Path, tmp_path: Path) -> None:
    with statestore.edit(source, tmp_path / "target", version=1) as edit:
        edit.sql("UPDATE toys SET n = n + (SELECT count(*) FROM toys VERSION AS OF 2)")
    assert read(opened(tmp_path / "target"), 1).toys == {("z", "x"): 13}


def test_a_preview_shows_rows_before_and_after(source: Path) -> None:
    edit = statestore.edit(source)
    edit.sql("UPDATE toys SET n = 26 WHERE field = 'y'; INSERT INTO queues VALUES ('c', 1)")
    shown = str(edit.preview())
    assert "toys: 1 changed\n  changed k a, field y: n 2 → 26" in shown
    assert "queues: 1 added\n  added k c: item 1.0" in shown
    assert f"version 2 of {source} becomes version 2 of a target" in shown


def test_a_preview_has_the_rows_that_follow_and_the_refusal(source: Path) -> None:
    edit = statestore.edit(source)
    edit.sql("DELETE FROM toys WHERE k = 'c'")
    followed = [each for each in edit.preview().changes if each.followed]
    assert [(each.state, dict(each.counts)) for each in followed] == [("totals", {"removed": 1})]
    edit.sql("UPDATE totals SET count = 9 WHERE k = 'a'")
    refused = edit.preview().refused
    assert refused is not None and refused.code == ErrorCode.EDIT_REFUSED


# Rows without SQL


def test_rows_are_put_and_deleted(source: Path) -> None:
    edit = statestore.edit(source)
    toys, queues = edit.table("toys"), edit.table("queues")
    toys.put({"k": "a", "field": "x", "n": 10})
    toys.put({"k": "e", "field": "x", "n": 11})
    queues.put({"k": "a", "item": 5.0})
    assert toys.delete(("b", "x")) == 1 and toys.delete(filter=("n", "=", 4)) == 1 and toys.delete(("q", "x")) == 0
    assert toys_of(edit) == {("a", "x"): 10, ("e", "x"): 11}
    assert queue_of(edit, "a") == [1.0, 1.0, None, 5.0]
    (changed,) = [each for each in edit.edits() if each.state == "toys"]
    assert {(row["k"], row["n"]) for row in changed.removed.to_pylist()} == {("a", 1), ("b", 3), ("c", 4)}


def test_a_table_is_put(source: Path) -> None:
    edit = statestore.edit(source)
    edit.table("toys").put_all(pa.table({"n": pa.array([1, 2], pa.int32()), "k": ["a", "z"], "field": ["x", "x"]}))
    assert toys_of(edit) == {("z", "x"): 2}  # the other row is as it was
    edit.sql("UPDATE toys SET n = n * 10 WHERE k = 'z'")
    assert toys_of(edit) == {("z", "x"): 20}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"k": "a", "field": "x"}, "has the columns k, field, n"),
        ({"k": "a", "field": "x", "n": 2.5}, "n"),
        ({"k": "a", "field": "x", "n": 2**70}, "n"),
        ({"k": "a", "field": "x", "n": 1, "more": 2}, "found k, field, n, more"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(source: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(StateStoreError, match=message) as refused:
        statestore.edit(source).table("toys").put(row)
    assert refused.value.code == ErrorCode.WRONG_VALUE


# Other tables


def test_rows_come_from_other_paths(source: Path, tmp_path: Path) -> None:
    with statestore.connect(tmp_path / "warehouse").create_store(
        "prices", key={"item": "string"}, value={"price": "bigint"}
    ) as store:
        store.put("d", 40, timestamp=1000)
        store.put("d", 41, timestamp=2000)
        store.commit()
    edit = statestore.edit(source)
    edit.sql(
        f"INSERT INTO toys SELECT item, 'p', price FROM '{tmp_path}/warehouse/prices' TIMESTAMP AS OF "
        f"'1970-01-01T00:00:01.500Z'; INSERT INTO toys SELECT k, 'old', n FROM \"{source}/toys\" VERSION AS OF 1"
    )
    assert toys_of(edit) == {("d", "p"): 40, ("z", "old"): 9}


def test_data_files_are_read_where_that_is_allowed(source: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["f"], "field": ["x"], "n": [3]}), tmp_path / "rows.parquet")
    text = f"INSERT INTO toys SELECT * FROM '{tmp_path}/rows.parquet'"
    with pytest.raises(StateStoreError, match="allow_external_access=True"):
        statestore.edit(source).sql(text)
    edit = statestore.edit(source, allow_external_access=True)
    edit.sql(text)
    assert toys_of(edit) == {("f", "x"): 3}


# Refusals


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("ALTER TABLE toys ADD COLUMN x INT", ErrorCode.UNSUPPORTED_STATEMENT, "expected UPDATE, DELETE"),
        ("DROP TABLE toys", ErrorCode.UNSUPPORTED_STATEMENT, "expected UPDATE, DELETE"),
        ("SELECT 1", ErrorCode.UNSUPPORTED_STATEMENT, "expected UPDATE, DELETE"),
        ("UPDATE toys SET n = 1 RETURNING n", ErrorCode.UNSUPPORTED_STATEMENT, "RETURNING"),
        ("DELETE FROM toys LIMIT 1", ErrorCode.UNSUPPORTED_STATEMENT, "LIMIT"),
        (
            "INSERT INTO toys VALUES ('a', 'x', 1) ON CONFLICT DO NOTHING",
            ErrorCode.UNSUPPORTED_STATEMENT,
            "ON CONFLICT",
        ),
        ("INSERT OR REPLACE INTO toys VALUES ('a', 'x', 1)", ErrorCode.UNSUPPORTED_STATEMENT, "INSERT OR"),
        ("INSERT INTO toys VALUES ('a', 'w', DEFAULT)", ErrorCode.UNSUPPORTED_STATEMENT, "DEFAULT"),
        ("UPDATE toys VERSION AS OF 1 SET n = 1", ErrorCode.UNSUPPORTED_STATEMENT, "AS OF is the past"),
        ("DELETE FROM toys$versions", ErrorCode.UNSUPPORTED_STATEMENT, "metadata"),
        ("DELETE FROM toys WHERE random() < 0.5", ErrorCode.UNSUPPORTED_STATEMENT, "other rows each time"),
        (
            "DELETE FROM queues WHERE k IN (SELECT k FROM queues USING SAMPLE 1 ROWS)",
            ErrorCode.UNSUPPORTED_STATEMENT,
            "other rows each time",
        ),
        (
            "MERGE INTO toys USING toys o TABLESAMPLE 50% ON toys.k = o.k WHEN MATCHED THEN DELETE",
            ErrorCode.UNSUPPORTED_STATEMENT,
            "other rows each time",
        ),
        (
            "WITH s AS (SELECT k FROM toys USING SAMPLE 1) UPDATE toys SET n = 1 FROM s WHERE toys.k = s.k",
            ErrorCode.UNSUPPORTED_STATEMENT,
            "other rows each time",
        ),
        ("UPDATE toys SET n = max(n)", ErrorCode.UNSUPPORTED_STATEMENT, r"SET n = MAX\(n\) is of several rows"),
        ("UPDATE toys SET n = unnest([1, 2])", ErrorCode.UNSUPPORTED_STATEMENT, "has several values for one row"),
        ("UPDATE toys SET n = row_number() OVER ()", ErrorCode.UNSUPPORTED_STATEMENT, "is of several rows"),
        ("DELETE FROM toys WHERE k = '\udcff'", ErrorCode.INVALID_SQL, "no UTF-8"),
        (f"DELETE FROM toys WHERE {'(' * 3000}n = 1{')' * 3000}", ErrorCode.INVALID_SQL, "nested too deeply"),
        ("UPDATE queues SET place = 1", ErrorCode.EDIT_REFUSED, "'place' of 'queues' says where"),
        ("INSERT INTO queues (k, place) VALUES ('a', 1)", ErrorCode.EDIT_REFUSED, "place of 'queues' says where"),
        ("INSERT INTO toys VALUES ('a', 'q')", ErrorCode.INVALID_SQL, "'toys' has 3 columns, k, field, n"),
        ("INSERT INTO toys (k, n) VALUES ('a', 1)", ErrorCode.INVALID_SQL, "have no field"),
        ("UPDATE toys SET n = 1, N = 2", ErrorCode.INVALID_SQL, "n twice"),
        ("UPDATE toys SET nn = 1", ErrorCode.COLUMN_NOT_FOUND, "no column 'nn'; it has k, field, n"),
        ("DELETE FROM toy", ErrorCode.TABLE_NOT_FOUND, "did you mean 'toys'"),
        ("DELETE FROM toys WHERE nn = 1", ErrorCode.INVALID_SQL, '"nn" not found'),
        ("DELETE FRM toys", ErrorCode.UNSUPPORTED_STATEMENT, "a name before FROM"),
        ("\n  UPDATE toys SEET n = 1", ErrorCode.INVALID_SQL, "line 2"),
        ("UPDATE toys SET n = 2.5", ErrorCode.WRONG_VALUE, r"'n' of 'toys' is int64, which does not hold '2.5'"),
        ("UPDATE toys SET n = 'two'", ErrorCode.WRONG_VALUE, "does not hold 'two'"),
        ("UPDATE toys SET n = '2.5'", ErrorCode.WRONG_VALUE, "does not hold '2.5'"),
        ("UPDATE toys SET n = 9223372036854775808", ErrorCode.WRONG_VALUE, "does not hold '9223372036854775808'"),
        ("UPDATE toys SET n = [1]", ErrorCode.WRONG_VALUE, "is int64, and is given list"),
        (
            "INSERT INTO toys VALUES ('v', 'x', 1), ('v', 'x', 2)",
            ErrorCode.EDIT_REFUSED,
            "two rows of k 'v', field 'x'",
        ),
        ("UPDATE toys SET k = 'c'", ErrorCode.EDIT_REFUSED, "k 'c', field 'x'"),
        (
            "MERGE INTO toys t USING queues s ON t.k = s.k WHEN MATCHED THEN DELETE",
            ErrorCode.EDIT_REFUSED,
            "several rows of the source of MERGE match the row of k 'a'",
        ),
        (
            "MERGE INTO toys t USING queues s ON t.k = s.k WHEN MATCHED THEN UPDATE SET *",
            ErrorCode.INVALID_SQL,
            "source of MERGE has no field, n",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(source: Path, text: str, code: ErrorCode, message: str) -> None:
    edit = statestore.edit(source)
    with pytest.raises(StateStoreError, match=message) as refused:
        edit.sql(text)
    assert refused.value.code == code
    assert edit.edits() == []


def test_a_target_that_exists_is_refused_before_any_statement(source: Path) -> None:
    with pytest.raises(StateStoreError) as refused:
        statestore.edit(source, source.parent)
    assert refused.value.code == ErrorCode.TARGET_EXISTS


def test_a_target_of_too_long_a_name_is_told_to_be_so(source: Path) -> None:
    edit = statestore.edit(source, source.with_name("t" * 250))
    edit.sql("UPDATE toys SET n = 9 WHERE k = 'c'")
    with pytest.raises(StateStoreError, match=r"DISK_FAILED.*choose a shorter name"):
        edit.apply()


def test_a_store_is_not_edited(tmp_path: Path) -> None:
    statestore.connect(tmp_path / "w").create_store("s", key={"k": "string"}, value={"v": "int"}).close()
    with pytest.raises(StateStoreError) as refused:
        statestore.edit(tmp_path / "w")
    assert refused.value.code == ErrorCode.EDIT_UNSUPPORTED


def test_positions_are_those_in_the_text(source: Path) -> None:
    with pytest.raises(StateStoreError, match=r"^\[INVALID_SQL\] line 3, column 25: "):
        statestore.edit(source).sql("DELETE FROM toys;\n\n DELETE FROM toys WHERE nn = 1")
    merge = "MERGE INTO toys USING queues s ON toys.k = s.k WHEN"
    for text, name in (
        ("UPDATE toys SET n = 1, nn = 1", "nn"),
        ("UPDATE toys SET n = 1, toys.nn = 1", "toys.nn"),
        ("INSERT INTO toys (k, nn) VALUES ('a', 1)", "nn"),
        (f"{merge} MATCHED THEN UPDATE SET nn = 1", "nn"),
        (f"{merge} NOT MATCHED THEN INSERT (k, nn) VALUES ('a', 1)", "nn"),
    ):
        column = text.index(name) + 1
        with pytest.raises(StateStoreError, match=rf"^\[COLUMN_NOT_FOUND\] line 2, column {column}: "):
            statestore.edit(source).sql(f"DELETE FROM toys;\n{text}")


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("UPDATE toys SET n = 9 WHERE k = 'A' COLLATE NOCASE AND field = 'x'", {("a", "x"): 9}),
        ("UPDATE toys SET n = 9 WHERE upper(k) = 'A' AND field = 'y'", {("a", "y"): 9}),
        ("UPDATE toys AS t SET t.n = 9 WHERE T.K = 'c'", {("c", "x"): 9}),
        ("UPDATE TOYS SET N = 9 WHERE (k) = ('c') AND (field = 'x')", {("c", "x"): 9}),
        ("UPDATE toys SET (n, field) = (9, 'q') WHERE k = 'c'", {("c", "q"): 9}),
        ("WITH s AS (SELECT 'c' AS c) UPDATE toys SET n = 9 FROM s WHERE toys.k = s.c", {("c", "x"): 9}),
        ("WITH s AS (SELECT 'w' AS c) INSERT INTO toys WITH t AS (FROM s) SELECT c, 'x', 9 FROM t", {("w", "x"): 9}),
        ("UPDATE toys SET n = 9 FROM toys VERSION AS OF 1 o, queues q WHERE toys.n = o.n - 5 AND q.k = toys.k",
         {("c", "x"): 9}),
        ("MERGE INTO toys USING (SELECT 9 AS n, 'x' AS field, 'c' AS k) s ON toys.k = s.k AND toys.field = s.field "
         "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", {("c", "x"): 9}),
        ("MERGE INTO toys USING (SELECT 9 AS n, 'x' AS field, 'w' AS k) s ON toys.k = s.k "
         "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT BY NAME", {("w", "x"): 9}),
        ("MERGE INTO toys USING (SELECT 'c' AS a, 'w' AS b) s ON toys.k = s.a WHEN MATCHED THEN UPDATE SET k = s.b",
         {("w", "x"): 4}),
        ("TRUNCATE toys; INSERT INTO toys VALUES ('c', 'x', 9)", {("c", "x"): 9}),
        ("INSERT INTO toys FROM (VALUES ('w', 'x', 9)) t", {("w", "x"): 9}),
        ("UPDATE toys SET n = 9 WHERE k IN (SELECT q.k FROM queues q WHERE q.item = toys.n + 3.5) AND field = 'x'",
         {("c", "x"): 9}),
        ("UPDATE toys SET n = 9 FROM queues q WHERE toys.k IN (q.k, 'z') AND toys.field IN ('x', 'w') AND q.item = 7.5",
         {("c", "x"): 9}),
        ("UPDATE toys SET n = 9 WHERE (k, field) IN (SELECT k, 'x' FROM queues WHERE item = 7.5)", {("c", "x"): 9}),
        ("UPDATE toys SET n = 9 WHERE k IN (SELECT k FROM queues GROUP BY k HAVING max(item) = 7.5) AND field IN ('x')",
         {("c", "x"): 9}),
        ("UPDATE toys SET n = 9 FROM (VALUES ('c', '4'), ('a', 'no')) s(k, v) WHERE toys.k = s.k AND toys.n = "
         "CAST(s.v AS INT) AND toys.k > 'b'", {("c", "x"): 9}),
    ],
)  # fmt: skip
def test_statements_of_many_forms(source: Path, text: str, changed: dict[tuple[str, str], int]) -> None:
    edit = statestore.edit(source)
    edit.sql(text)
    assert toys_of(edit) == changed


def test_a_condition_that_chance_decides_is_asked_once(source: Path) -> None:
    """A number by chance is another one when it is asked for again, so rows of no key or of two would go."""
    chosen = "SELECT arg_max(k, r) AS k FROM (SELECT k, random() AS r FROM queues)"
    statement = f"DELETE FROM queues USING ({chosen}) s WHERE queues.k = s.k"
    for _ in range(12):
        edit = statestore.edit(source)
        edit.sql(statement)
        (removed,) = (each.removed for each in edit.edits())
        assert len(set(removed["k"].to_pylist())) == 1
