"""As-of joins with tables in which a key has several rows: right if ``on`` distinguishes the rows, else refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.checkpoint_tables import TIME, all_rows, began, left_rows, micros, tables
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import checkpoint_path, plain
from support.keyed.keyed_kinds import keyed
from support.parameters import mostly_slow

import statestore
from statestore.catalog.reads.lookup import rows_at_times
from statestore.catalog.reads.table import Table
from statestore.connector.asof import join_on_arrow as arrow_engine
from statestore.formats.state_table import Query

ENGINES = ("arrow", "duckdb")
CHECKPOINTS = [
    "spark4.3.0-agg__hdfs",
    "spark4.3.0-agg__rkcl",
    "spark4.3.0-aggmulti__rkcl",  # keys of several types, floating-point numbers among them
    "spark4.3.0-sess__rkcl",
    "spark4.3.0-join__rkcl",
    "spark4.3.0-twsttl__rkav",
    "spark4.3.0-twsttl__rkcl",
]


def expected(left: pa.Table, states: dict[int, pa.Table], times: dict[int, int], key: tuple[str, ...]) -> list[Any]:
    """The other columns of the key's row in the newest batch that had begun at that time; None if there was none."""
    by_batch = {}
    for batch, state in states.items():
        rest = [name for name in state.column_names if name not in key]
        keys = list(zip(*(plain(_one(state[name])) for name in key), strict=True))
        values = list(zip(*(plain(_one(state[name])) for name in rest), strict=True))
        assert len(set(keys)) == len(keys)
        by_batch[batch] = dict(zip(keys, values, strict=True))
    asked = list(zip(*(plain(_one(left[name])) for name in key), strict=True))
    found = []
    for cells, moment in zip(asked, plain(_one(left["t"])), strict=True):
        begun = [batch for batch in states if times[batch] <= moment]
        found.append(by_batch[max(begun)].get(cells) if begun else None)
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def check_joins(
    table: Table, path: Path, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, moments: list[int]
) -> None:
    states = all_rows(table)
    times = {batch: micros(began(path, batch)) for batch in states}
    left = left_rows(states, key, moments)
    rest = [name for name in table.schema.names if name not in key]
    truth = expected(left, states, times, key)
    for engine, few in (("arrow", 0), ("arrow", 1 << 20), ("duckdb", 0)):
        monkeypatch.setattr(arrow_engine, "FEW_KEYS", few)
        monkeypatch.setattr(arrow_engine, "FEW_NESTED_KEYS", few)
        named = left.rename_columns([f"l_{name}" for name in left.column_names])
        on = {f"l_{name}": name for name in key}
        joined = statestore.asof_join(named, table, on=on, left_time="l_t", how="left", engine=engine)
        cells = list(zip(*(plain(_one(joined[name])) for name in rest), strict=True))
        assert [None if row == (None,) * len(rest) else row for row in cells] == truth
    few_keys = left.slice(0, 5).rename_columns([f"l_{name}" for name in left.column_names])
    joined = statestore.asof_join(few_keys, table, on=on, left_time="l_t", how="left")
    assert joined.num_rows == min(5, left.num_rows)


@pytest.mark.parametrize("name", mostly_slow(CHECKPOINTS, [CHECKPOINTS[0], *CHECKPOINTS[2:4]]))
def test_each_state_of_a_checkpoint(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint_path(name)
    for table in tables(path).values():
        key = table.table.row_key
        first, last = table.table.kept_versions()
        begun = [micros(began(path, batch)) for batch in range(first, last + 1)]
        if not key:
            for on in ("key", ["key"], {"k": "key"}):
                refused(table, on, "JOIN_KIND.*equal ones.*aggregate")
            continue
        if key != ("key",):
            refused(table, "key", f"JOIN_KIND.*distinguished by {key[1]}.*add {key[1]}, or aggregate")
        refused(table, [*key, "partition_id"], "WRONG_KEY")
        moments = sorted({begun[0] - 1, begun[0], begun[-1] + 1, *begun[1::2], *(moment - 1 for moment in begun[2::2])})
        check_joins(table, path, key, monkeypatch, moments)


def refused(table: Table, on: Any, said: str) -> None:
    schema = table.schema
    names = [on] if isinstance(on, str) else list(on)
    left = pa.table({**{name: pa.nulls(1, schema.field("key").type) for name in names}, "t": pa.array([0])})
    for engine in ENGINES:
        with pytest.raises(statestore.StateStoreError, match=said):
            statestore.asof_join(left, table, on=on, left_time="t", engine=engine)
    with pytest.raises(statestore.StateStoreError, match=said):
        statestore.asof_join(left.to_pandas(), table, on=on, left_time="t")


def test_a_left_row_of_before_what_is_kept_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says whether the row's key had a value then; from the oldest batch on all state is known."""
    name = "spark4.3.0-agg__hdfs"
    path = purged(name, tmp_path, 4)
    table = tables(path)["state"]
    first, last = table.table.kept_versions()
    assert first > 0
    begun = [micros(began(checkpoint_path(name), batch)) for batch in range(first, last + 1)]
    check_joins(table, path, ("key",), monkeypatch, [begun[0], begun[0] + 1, begun[-1]])
    late = left_rows(all_rows(table), ("key",), [begun[0], begun[0] - 1]).rename_columns(["k", "t"])
    for engine in ENGINES:
        for how in ("inner", "left"):
            with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*'state' is known from"):
                statestore.asof_join(late, table, on={"k": "key"}, left_time="t", how=how, engine=engine)


@pytest.mark.parametrize("discarded", mostly_slow([False, True], [True]))
def test_each_state_of_a_keyed_store(discarded: bool, tmp_path: Path) -> None:
    found, times = keyed(tmp_path)
    if discarded:
        with statestore.connect(tmp_path).open_store("s") as store:
            store.discard(1)
    kept = (2, 3) if discarded else (1, 2, 3)
    step = timedelta(microseconds=1)
    moments = [times[version - 1] + delta for version in kept for delta in (-step, step * 0, step)]
    known = [moment for moment in moments if not discarded or moment >= times[1]]
    for state in ("value", "map", "list", "windows"):
        table = found.table(f"s.{state}")
        key = table.table.row_key
        if len(key) > 1:
            refused_keyed(table, key[1])
        rows = {version: table.scan(version=version).read_all().to_pylist() for version in kept}
        keys = sorted({tuple(row[name] for name in key) for some in rows.values() for row in some})
        asked = [(*cells, moment) for moment in known for cells in keys]
        truth = []
        for *cells, moment in asked:
            begun = [version for version in kept if times[version - 1] <= moment]
            same = [r["value"] for r in rows[max(begun)] if [r[n] for n in key] == cells] if begun else []
            truth.append(same[0] if same else None)
        schema = table.schema
        columns = [pa.array([row[n] for row in asked], schema.field(name).type) for n, name in enumerate(key)]
        left = pa.table([*columns, pa.array([row[-1] for row in asked], TIME)], names=[*key, "t"])
        for engine in ENGINES:
            joined = statestore.asof_join(left, table, on=list(key), left_time="t", how="left", engine=engine)
            assert joined["value"].to_pylist() == truth
            if discarded:
                early = left.set_column(len(key), "t", pa.array([times[1] - step] * left.num_rows, TIME))
                with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
                    statestore.asof_join(early, table, on=list(key), left_time="t", how="left", engine=engine)


def refused_keyed(table: Table, further: str) -> None:
    left = pa.table({"k": ["a"], "t": pa.array([datetime.now(UTC)], TIME)})
    for engine in ENGINES:
        with pytest.raises(statestore.UnsupportedError, match=f"JOIN_KIND.*distinguished by {further}"):
            statestore.asof_join(left, table, on="k", left_time="t", engine=engine)


@pytest.fixture(params=[False, True], ids=["history", "look-ups"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let joins of a few rows read the history, or look each left row up."""
    monkeypatch.setattr(rows_at_times, "ROWS_A_LOOKUP", 0 if request.param else 1 << 40)


@pytest.mark.usefixtures("way")
def test_windows_of_a_live_store_by_key_and_window(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store(
        "w", kind="window", key={"page": "string"}, value={"n": "bigint"}, retention="1 hour", window_size="1 minute"
    ) as store:
        for value, start in ((1, 0), (5, 0), (7, 60_000)):
            store.put("home", value, window_start=start)
            store.commit()
        history = store.history().read_all().to_pylist()
        table = statestore.inspect(str(tmp_path)).table("w")
        key = table.table.row_key
        assert key[0] == "page" and len(key) > 1
        moments = [row["valid_from"] for row in history]
        left = pa.table(
            [pa.array([r[n] for r in history for _ in moments], table.schema.field(n).type) for n in key]
            + [pa.array(moments * len(history), TIME)],
            names=[*key, "t"],
        )
        truth = [
            next(
                (
                    row["n"]
                    for row in history
                    if all(row[n] == asked[n] for n in key)
                    and row["valid_from"] <= asked["t"]
                    and (row["valid_to"] is None or asked["t"] < row["valid_to"])
                ),
                None,
            )
            for asked in left.to_pylist()
        ]
        assert any(truth)
        for engine in ENGINES:
            joined = statestore.asof_join(left, store, on=list(key), left_time="t", how="left", engine=engine)
            assert joined["n"].to_pylist() == truth


@pytest.mark.usefixtures("way")
def test_struct_and_list_keys_are_looked_up_with_any_number_of_them(tmp_path: Path) -> None:
    kinds: list[tuple[str, Callable[[int], Any]]] = [
        ("struct<a:int,b:string>", lambda n: {"a": n, "b": f"b{n}"}),
        ("array<int>", lambda n: [n, n + 1]),
    ]
    catalog = statestore.connect(tmp_path)
    for number, (kind, cell) in enumerate(kinds):
        with catalog.create_store(f"s{number}", key={"k": kind}, value={"v": "int"}) as store:
            for n in range(100):
                store.put((cell(n),), n, timestamp=1000 + n)
            store.commit()
            key = store.table.schema(Query()).field("k").type
            for count in (0, 1, 3, 40, 100):
                left = pa.table(
                    {"k": pa.array([cell(n) for n in range(count)], key), "t": pa.array([2000] * count, pa.int64())}
                )
                for engine in ENGINES:
                    joined = statestore.asof_join(left, store, on="k", left_time="t", engine=engine)
                    assert joined["v"].to_pylist() == list(range(count))
