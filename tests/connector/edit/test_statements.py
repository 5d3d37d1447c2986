"""Statements change a state as they change a table of DuckDB with the same rows; what is not determined is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.engines.toy_edits import Model, same, write_source
from support.engines.toys import write_package
from support.properties import few_or_many

import statestore
from statestore.connector.edit.edit import Edit
from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError


@dataclass(frozen=True)
class Said:
    """A statement, and the query of the rows of its state that several rows of another table mean."""

    text: str
    unclear: str = ""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(tmp_path_factory.mktemp("package") / "toys.zip"))
        yield


# Random rows and statements

KEYS, FIELDS = ["a", "b", "c"], ["x", "y"]
TOYS = st.dictionaries(st.tuples(st.sampled_from(KEYS), st.sampled_from(FIELDS)), st.integers(0, 5), max_size=6)
QUEUES = st.dictionaries(
    st.sampled_from(KEYS),
    st.lists(st.none() | st.integers(0, 3).map(float), min_size=1, max_size=4),
)


@st.composite
def conditions(draw: Any, value: str, others: bool) -> str:
    key, number = draw(st.sampled_from([*KEYS, "d"])), draw(st.integers(0, 4))
    found = [
        f"k = '{key}'",
        f"'{key}' = k AND {value} > {number}",
        f"k IN ('{key}', 'b', 'zz')",
        f"{value} >= {number}",
        f"{value} IS NULL OR k = '{key}'",
        f"k LIKE '{key}%' AND NOT {value} = {number}",
        f"{value} = (SELECT max(n) FROM toys)",
        f"EXISTS (SELECT 1 FROM queues q WHERE q.item = {value})",
        "true",
    ]
    if others:
        found += [f"k = '{key}' AND field = 'x'", f"(k, field) IN (('{key}', 'x'), ('b', 'y'))", "field IN ('y', 'q')"]
    return str(draw(st.sampled_from(found)))


@st.composite
def sources(draw: Any) -> str:
    """Rows of (k, field, v), of which some may repeat."""
    if draw(st.integers(0, 5)) == 0:
        return "(SELECT k, 'x' AS field, count(*) AS v FROM queues GROUP BY k) AS s"
    row = st.tuples(st.sampled_from([*KEYS, "d"]), st.sampled_from(FIELDS), st.integers(0, 9))
    rows = ", ".join(f"('{k}', '{name}', {v})" for k, name, v in draw(st.lists(row, min_size=1, max_size=3)))
    return f"(VALUES {rows}) AS s(k, field, v)"


@st.composite
def updates(draw: Any) -> Said:
    state, value = draw(st.sampled_from([("toys", "n"), ("queues", "item")]))
    is_map = state == "toys"
    sets = [f"{value} = {value} + 1", f"{value} = {draw(st.integers(0, 9))}", f"{value} = NULL"]
    if is_map:
        sets += ["k = k || 'z'", f"field = 'x', {value} = 7", f"k = 'a', {value} = length(field)", f"{value} = '12'"]
    else:
        sets += ["item = item / 2", "item = (SELECT count(*) FROM toys WHERE toys.k = queues.k)"]
    changed = draw(st.sampled_from(sets))
    if draw(st.booleans()):
        where = draw(st.just("") | conditions(value, is_map).map(" WHERE {}".format))
        return Said(f"UPDATE {state} SET {changed}{where}")
    source = draw(sources())
    on = f"{state}.k = s.k" + (" AND s.field = toys.field" if is_map and draw(st.booleans()) else "")
    on += draw(st.sampled_from(["", " AND s.v > 2"]))
    changed = draw(st.sampled_from([f"{value} = s.v", f"{value} = {state}.{value} + s.v"]))
    unclear = f"SELECT 1 FROM {state}, {source} WHERE {on} GROUP BY {state}.rowid HAVING count(*) > 1"
    return Said(f"UPDATE {state} SET {changed} FROM {source} WHERE {on}", unclear)


@st.composite
def deletes(draw: Any) -> Said:
    state, value = draw(st.sampled_from([("toys", "n"), ("queues", "item")]))
    if draw(st.integers(0, 3)) == 0:
        return Said(f"DELETE FROM {state} USING {draw(sources())} WHERE {state}.k = s.k")
    return Said(f"DELETE FROM {state} WHERE {draw(conditions(value, state == 'toys'))}")


@st.composite
def inserts(draw: Any) -> Said:
    row = st.tuples(st.sampled_from([*KEYS, "e"]), st.sampled_from([*FIELDS, "w"]), st.integers(0, 9))
    k, name, v = draw(row)
    return Said(
        draw(
            st.sampled_from(
                [
                    f"INSERT INTO toys VALUES ('{k}', '{name}', {v})",
                    f"INSERT INTO toys (n, field, k) VALUES ({v}, '{name}', '{k}'), ({v}, 'v', '{k}')",
                    f"INSERT INTO toys BY NAME SELECT '{name}' AS field, k FROM toys WHERE n > {v}",
                    f"INSERT INTO toys SELECT k || 'q', field, n FROM toys WHERE field = '{name}'",
                    f"INSERT INTO toys WITH t AS (SELECT k FROM queues GROUP BY k) SELECT k, 'u', {v} FROM t",
                    f"INSERT INTO queues (k, item) VALUES ('{k}', {v}), ('{k}', NULL)",
                    f"INSERT INTO queues (k, item) SELECT '{k}', n FROM toys ORDER BY n, k, field",
                ]
            )
        )
    )


@st.composite
def merges(draw: Any) -> Said:
    source = draw(sources())
    on = draw(st.sampled_from(["t.k = s.k AND t.field = s.field", "s.k = t.k", "t.n = s.v"]))
    changes = [
        ("true", "WHEN MATCHED THEN UPDATE SET n = s.v"),
        ("t.n > 2", "WHEN MATCHED AND t.n > 2 THEN DELETE"),
        ("s.v < 4", "WHEN MATCHED AND s.v < 4 THEN UPDATE SET n = t.n * 10"),
    ]
    chosen = draw(st.lists(st.sampled_from(changes), max_size=2, unique=True))
    chosen.sort(key=lambda change: change[0] == "true")  # a clause behind one without a condition is an error
    clauses = [clause for _, clause in chosen]
    clauses += draw(
        st.sampled_from(
            [
                [],
                ["WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.field, s.v)"],
                ["WHEN NOT MATCHED AND s.v > 3 THEN INSERT (k, field, n) VALUES (s.k, s.field, 1)"],
                ["WHEN NOT MATCHED BY SOURCE AND t.n > 1 THEN DELETE"],
                ["WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = 100"],
            ]
        )
    )
    if not clauses:
        clauses = ["WHEN NOT MATCHED THEN DO NOTHING"]
    fires = " OR ".join(f"({condition})" for condition, _ in chosen) or "false"
    unclear = f"SELECT 1 FROM toys t, {source} WHERE ({on}) AND ({fires}) GROUP BY t.rowid HAVING count(*) > 1"
    return Said(f"MERGE INTO toys t USING {source} ON {on} {' '.join(clauses)}", unclear)


STATEMENTS = st.lists(updates() | deletes() | inserts() | merges(), min_size=1, max_size=4)


ABSENT = object()  # in place of the value of a row that is not there, which None is not: a value may be null


# The truth: the same statements on tables of DuckDB


class Truth:
    """Tables of DuckDB with the rows of the states. Lists are in the order of their rows."""

    def __init__(self, model: Model) -> None:
        self.tables = duckdb.connect(config={"threads": 1})
        self.tables.execute("CREATE TABLE toys (k VARCHAR, field VARCHAR, n BIGINT)")
        self.tables.execute("CREATE TABLE queues (k VARCHAR, item DOUBLE)")
        self._insert("toys", [(*key, n) for key, n in model.toys.items()])
        self._insert("queues", [(k, item) for k, items in model.queues.items() for item in items])

    def _insert(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            self.tables.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row))

    def run(self, said: Said) -> bool:
        """Run a statement; return whether it is to be refused, and then change nothing."""
        if said.unclear and self.tables.execute(said.unclear).fetchall():
            return False
        self.tables.execute("BEGIN")
        self.tables.execute(said.text)
        twice = "SELECT 1 FROM toys GROUP BY k, field HAVING count(*) > 1"
        is_refused = bool(self.tables.execute(twice).fetchall())
        self.tables.execute("ROLLBACK" if is_refused else "COMMIT")
        return not is_refused

    def model(self) -> Model:
        toys = self.tables.execute("SELECT k, field, n FROM toys").fetchall()
        queues: dict[str, list[float | None]] = {}
        for k, item in self.tables.execute("SELECT k, item FROM queues ORDER BY rowid").fetchall():
            queues.setdefault(k, []).append(item)
        return Model({(k, name): n for k, name, n in toys}, queues)


def run(edit: Edit, said: Said) -> bool:
    try:
        edit.sql(said.text)
    except StateStoreError as error:
        assert error.code == ErrorCode.EDIT_REFUSED, (said.text, error)
        return False
    return True


def applied(model: Model, edits: Sequence[StateEdit]) -> Model:
    """The rows after edits, which must remove whole units as they are, and change each that they name."""
    found: Any = {"toys": dict(model.toys), "queues": {k: list(items) for k, items in model.queues.items()}}
    for edit in edits:
        units = {"toys": ("k", "field"), "queues": ("k",)}
        assert edit.unit == units[edit.state]
        removed, added = _units(edit, edit.removed), _units(edit, edit.added)
        for unit in {**removed, **added}:
            before, after = removed.get(unit, ABSENT), added.get(unit, ABSENT)
            assert before != after, "a unit that ends as it began"
            assert found[edit.state].pop(unit, ABSENT) == before, "rows that the source has otherwise"
        found[edit.state].update(added)
    return Model(found["toys"], found["queues"])


def _units(edit: StateEdit, rows: pa.Table) -> dict[Any, Any]:
    assert rows.schema.names == (["k", "field", "n"] if edit.state == "toys" else ["k", "item"])
    found: dict[Any, Any] = {}
    for row in rows.to_pylist():
        if edit.state == "toys":
            assert (row["k"], row["field"]) not in found
            found[row["k"], row["field"]] = row["n"]
        else:
            found.setdefault(row["k"], []).append(row["item"])
    return found


@few_or_many(12, 600, TOYS, QUEUES, STATEMENTS)
def test_statements_do_what_they_do_to_tables(
    tmp_path_factory: pytest.TempPathFactory, toys: Any, queues: Any, statements: list[Said]
) -> None:
    model = Model(toys, queues)
    source = write_source(tmp_path_factory.mktemp("case") / "source", {1: model})
    truth, edit = Truth(model), statestore.edit(source)
    for said in statements:
        assert run(edit, said) == truth.run(said), said.text
        assert same(applied(model, edit.edits()), truth.model()), said.text
        seen = [edit_rows(edit, name) for name in ("toys", "queues")]
        assert seen == [sorted(map(repr, rows)) for rows in rows_of(truth.model())], said.text


def rows_of(model: Model) -> list[list[tuple[Any, ...]]]:
    toys = [(k, name, n) for (k, name), n in model.toys.items()]
    return [toys, [(k, item) for k, items in model.queues.items() for item in items]]


def edit_rows(edit: Edit, name: str) -> list[str]:
    """All rows of a state as a later statement sees them."""
    table = edit.table(name)._state.edited_table()
    from statestore.formats.state_table import Query

    batches = [batch for split in table.splits(Query()) for batch in table.read(split, Query())]
    columns = [name for name in table.schema(Query()).names if name != "place"]
    return sorted(repr(tuple(row[c] for c in columns)) for batch in batches for row in batch.to_pylist())
