"""`asof_join` on Arrow, DuckDB and pandas against a plain model, and against the store's own point reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.in_memory_table import MemoryTable
from support.properties import few_or_many

import statestore
from statestore.catalog.reads.table import Table
from statestore.connector.asof import join_on_arrow as arrow_engine
from statestore.connector.asof import join_on_duckdb
from statestore.connector.collated_keys import check_not_collated
from statestore.formats.state_table import Query
from statestore.formats.values.declared_types import DECLARED

KEYS = ["a", "b", "c", ""]
PUT = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 99)), st.integers(0, 30))
ROW = st.tuples(st.one_of(st.none(), st.sampled_from([*KEYS, "z"])), st.one_of(st.none(), st.integers(-5, 40)))
NEVER = 1 << 60
COLLATED = {DECLARED: b"string collate UTF8_LCASE"}


def left_of(rows: Sequence[tuple[str | None, int | None]]) -> pa.Table:
    columns = [[key for key, _ in rows], [time for _, time in rows], list(range(len(rows)))]
    arrays = [pa.array(c, t) for c, t in zip(columns, (pa.string(), pa.int64(), pa.int64()), strict=True)]
    return pa.table(arrays, names=["item", "at", "n"])


def filled(root: Path, commits: list[list[tuple[str, int | None, int]]], **options: Any) -> Any:
    store = statestore.connect(root).create_store(
        "prices", key={"item": "string"}, value={"price": "bigint"}, **options
    )
    for puts in commits:
        for key, value, time in puts:
            store.put(key, value, timestamp=time)
        store.commit()
    return store


def model(versions: dict[tuple[str, int], int | None], key: str | None, time: int | None) -> int | None:
    """The value of the newest version at or before ``time``; ``versions`` by (key, time), None for a tombstone."""
    if key is None or time is None:
        return None
    known = [(t, value) for (k, t), value in versions.items() if k == key and t <= time]
    return max(known)[1] if known else None


def expected(versions: dict[tuple[str, int], int | None], rows: list[Any], how: str) -> list[dict[str, Any]]:
    joined = [{"item": k, "at": t, "n": n, "price": model(versions, k, t)} for n, (k, t) in enumerate(rows)]
    return [row for row in joined if how == "left" or row["price"] is not None]


@few_or_many(
    6, 100, st.lists(st.lists(PUT, max_size=6), min_size=1, max_size=4), st.lists(ROW, max_size=12), st.booleans()
)
def test_each_engine_against_the_model(
    tmp_path_factory: pytest.TempPathFactory, commits: list[Any], rows: list[Any], compacted: bool
) -> None:
    # A null put right after a value of its own time leaves no trace (see Timeline), which this model does not know.
    commits = [list({(key, time): (key, value, time) for key, value, time in puts}.values()) for puts in commits]
    seen: set[tuple[str, int]] = set()
    for puts in commits:
        puts[:] = [put for put in puts if (put[0], put[2]) not in seen]
        seen |= {(key, time) for key, _, time in puts}
    commits = [puts for puts in commits if puts]
    with filled(tmp_path_factory.mktemp("w"), commits) as store:
        if compacted:
            store.compact(full=True)
        left = left_of(rows)
        for version in (None, len(commits) // 2):
            kept = commits if version is None else commits[:version]
            versions = {(key, time): value for puts in kept for key, value, time in puts}
            for how in ("inner", "left"):
                truth = expected(versions, rows, how)
                for engine in ("arrow", "duckdb"):
                    found = statestore.asof_join(
                        left, store, on="item", left_time="at", how=how, version=version, engine=engine
                    )
                    assert found.to_pylist() == truth
                    assert found.schema.names == ["item", "at", "n", "price"]


@pytest.mark.slow
@few_or_many(
    10, 100, st.lists(PUT, min_size=1, max_size=12), st.lists(ROW, min_size=1, max_size=12), st.integers(0, 20)
)
def test_the_retention_rule_is_that_of_get(
    tmp_path_factory: pytest.TempPathFactory, puts: list[Any], rows: list[Any], retention: int
) -> None:
    with filled(tmp_path_factory.mktemp("w"), [puts], history_retention=retention) as store:
        for expire in (False, True):
            if expire:
                store.expire()
            points = [None if k is None or t is None else store.get(k, as_of=t) for k, t in rows]
            truth = [None if point is None else point.value for point in points]
            for engine in ("arrow", "duckdb"):
                found = statestore.asof_join(left_of(rows), store, on="item", left_time="at", how="left", engine=engine)
                assert found["price"].to_pylist() == truth


def test_many_rows_and_versions_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statestore.connector.asof.join.PIECE_ROWS", 700)
    keys = [f"k{n % 500}" for n in range(5_000)]
    puts = pa.table({"item": keys, "price": range(5_000), "timestamp": [n * 7 % 4_999 for n in range(5_000)]})
    rows = [(f"k{n % 520}", n * 13 % 5_200) for n in range(3_000)]
    left = left_of(rows)
    with filled(tmp_path, []) as store:
        for start in range(0, 5_000, 1_000):
            store.write(puts.slice(start, 1_000))
        newest = {(r["item"], r["timestamp"]): r["price"] for r in puts.to_pylist()}
        by_key: dict[str, list[tuple[int, int]]] = {}
        for (key, time), price in newest.items():
            by_key.setdefault(key, []).append((time, price))
        truth = [max([(t, p) for t, p in by_key.get(k, []) if t <= at], default=(0, None))[1] for k, at in rows]
        reader = pa.RecordBatchReader.from_batches(left.schema, left.to_batches(max_chunksize=300))
        answers = [
            statestore.asof_join(reader, store, on="item", left_time="at", how="left").read_all(),
            statestore.asof_join(left, store, on="item", left_time="at", how="left"),
            statestore.asof_join(left, store, on="item", left_time="at", how="left", engine="duckdb"),
        ]
        monkeypatch.setattr(arrow_engine, "FEW_KEYS", 0)  # reads the history instead of looking keys up
        answers.append(statestore.asof_join(left, store, on="item", left_time="at", how="left"))
    for answer in answers:
        assert answer["price"].to_pylist() == truth
        assert answer["n"].to_pylist() == list(range(3_000))


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
@pytest.mark.parametrize(("asked", "answer"), [("bac", [2, 1, None]), ("b", [2]), ("a", [1]), ("c", [None])])
def test_keys_whose_hashes_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, asked: str, answer: list[int | None]
) -> None:
    """Keys of equal hashes are on one side, on the other, or on both."""
    with filled(tmp_path, [[("a", 1, 0), ("b", 2, 5)]]) as store:
        for module in (arrow_engine, join_on_duckdb):
            monkeypatch.setattr(
                module, "hash_keys", lambda columns: pa.nulls(len(columns[0])).is_null().cast("uint64").to_numpy()
            )
        left = left_of([(key, 9) for key in asked])
        found = statestore.asof_join(left, store, on="item", left_time="at", how="left", engine=engine)
    assert found["price"].to_pylist() == answer


def test_keys_with_a_collation_are_refused_on_either_side(tmp_path: Path) -> None:
    """Texts of other bytes may be equal by it."""

    class Collated(MemoryTable):
        def schema(self, query: Query) -> pa.Schema:
            known = super().schema(query)
            place = known.get_field_index("item")
            return known if place < 0 else known.set(place, known.field(place).with_metadata(COLLATED))

    said = r"COLLATED_KEY.*column 'item' is string collate UTF8_LCASE"
    plain = left_of([("a", 9)])
    collated = plain.cast(pa.schema([field.with_metadata(COLLATED) for field in plain.schema]))
    rows: list[Any] = [("a", 1.0, 0, None)]
    with filled(tmp_path, [[("a", 1, 0)]]) as store:
        for left in (collated, collated.to_reader()):
            with pytest.raises(statestore.UnsupportedError, match=said):
                statestore.asof_join(left, store, on="item", left_time="at")
    with pytest.raises(statestore.UnsupportedError, match=said):
        statestore.asof_join(plain, Table(Collated("rates", [rows])), on="item", left_time="at")
    nested = pa.field("k", pa.struct([pa.field("of", pa.list_(pa.field("item", pa.string(), metadata=COLLATED)))]))
    with pytest.raises(statestore.UnsupportedError, match="COLLATED_KEY"):
        check_not_collated(pa.schema([nested]), ["k"])


def test_several_key_columns_and_chosen_columns(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"x": "int", "y": "string"}, value={"v": "double", "w": "array<int>"}) as store:
        store.put({"x": 1, "y": "a"}, {"v": 0.5, "w": [1, None]}, timestamp=10)
        store.commit()
        moments = [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
        left = pa.table(
            {"ex": pa.array([1, 1], pa.int64()), "v": ["a", "a"], "t": pa.array(moments, pa.timestamp("ns", "UTC"))}
        )
        found = statestore.asof_join(
            left,
            store,
            on={"v": "y", "ex": "x"},
            left_time="t",
            how="left",
            columns=["w", "v", "valid_from"],
            prefix="s_",
        )
        assert found.schema.names == ["ex", "v", "t", "s_w", "s_v", "s_valid_from"]
        assert found["s_w"].to_pylist() == [None, [1, None]]
        assert found["s_valid_from"].to_pylist()[1] == datetime(1970, 1, 1, 0, 0, 0, 10_000, tzinfo=UTC)


def test_each_kind_of_left_side_and_of_store(tmp_path: Path) -> None:
    with filled(tmp_path, [[("a", 1, 0), ("a", 2, 5)]]) as store:
        left = left_of([("a", 3), ("a", 7), ("b", 7)])
        for thing in (store, str(tmp_path / "prices"), statestore.inspect(tmp_path).table("prices")):
            assert statestore.asof_join(left, thing, on="item", left_time="at")["price"].to_pylist() == [1, 2]
        frame = statestore.asof_join(left.to_pandas(), store, on="item", left_time="at")
        assert type(frame).__name__ == "DataFrame" and frame["price"].tolist() == [1, 2]
        connection = duckdb.connect()
        connection.execute("CREATE TABLE orders AS SELECT 'a' AS item, 7 AS at UNION ALL SELECT 'a', 3")
        relation = statestore.asof_join(connection.table("orders"), store, on="item", left_time="at")
        assert relation.aggregate("sum(price)").fetchall() == [(3,)]
        assert statestore.asof_join(left.slice(0, 0), store, on="item", left_time="at", how="left").num_rows == 0


def test_a_key_value_store_is_read_by_the_time_of_its_commits(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("k", kind="key_value", key={"item": "string"}, value={"price": "bigint"}) as store:
        store.put("a", 1)
        store.commit()
        store.put("a", 2)
        store.commit()
        left = left_of([("a", 0), ("a", 1 << 45)])
        found = statestore.asof_join(left, store, on="item", left_time="at", how="left")
        assert found["price"].to_pylist() == [None, 2]
        assert statestore.asof_join(left, store, on="item", left_time="at", version=1)["price"].to_pylist() == [1]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"how": "outer"}, "INVALID_OPTION.*'outer'"),
    ({"on": "nope"}, "COLUMN_NOT_FOUND.*'nope'.*item, at, n"),
    ({"on": ["item", "n"]}, r"WRONG_KEY.*keyed by item"),
    ({"on": {"n": "item"}}, "WRONG_KEY.*'n' is int64"),
    ({"left_time": "when"}, "COLUMN_NOT_FOUND.*'when'"),
    ({"left_time": "item"}, "INVALID_TIME.*`item`, row 0, is 'a'"),
    ({"columns": ["cost"]}, "COLUMN_NOT_FOUND.*'cost'"),
    ({"version": 9}, "VERSION_NOT_FOUND.*0 to 1"),
    ({"engine": "polars"}, "INVALID_OPTION.*'polars'"),
    ({"engine": "spark"}, "UNSUPPORTED_ENGINE"),
    ({"grace": "1 hour"}, "INVALID_OPTION.*grace"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with filled(tmp_path, [[("a", 1, 0)]]) as store, pytest.raises(statestore.StateStoreError, match=said):
        statestore.asof_join(left_of([("a", 1)]), store, **{"on": "item", "left_time": "at", **options})


def test_further_refusals(tmp_path: Path) -> None:
    with filled(tmp_path, [[("a", 1, 0)]]) as store:
        left = left_of([("a", 1)])
        with pytest.raises(statestore.InvalidInputError, match=r"NAME_CLASH.*'price'.*prefix"):
            statestore.asof_join(left.append_column("price", left["n"]), store, on="item", left_time="at")
        naive = left.set_column(1, "at", left["at"].cast(pa.timestamp("ms")))
        with pytest.raises(statestore.InvalidInputError, match="NAIVE_DATETIME"):
            statestore.asof_join(naive, store, on="item", left_time="at")
        with pytest.raises(statestore.InvalidInputError, match=r"WRONG_INPUT.*list"):
            statestore.asof_join([1], store, on="item", left_time="at")
        with pytest.raises(statestore.InvalidInputError, match=r"WRONG_INPUT.*int"):
            statestore.asof_join(left, 7, on="item", left_time="at")
    sessions = statestore.connect(tmp_path).create_store(
        "s", kind="session", key={"item": "string"}, value={"n": "int"}, retention="1 hour"
    )
    with sessions, pytest.raises(statestore.UnsupportedError, match=r"JOIN_KIND.*session"):
        statestore.asof_join(left, sessions, on="item", left_time="at")
