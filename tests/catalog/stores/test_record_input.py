"""Frames of every library, times as text, and change types, wherever a store takes rows, keys or moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import refused

import statestore
from statestore.catalog.stores.record_input import CHANGE_TYPES, change_types
from statestore.formats.errors import InvalidInputError

TEXTS = ["2024-05-01T09:30Z", "2024-05-01 11:30:00.5+02:00", "2024-05-01T09:30:01.000+0000"]
MOMENTS = [1714555800000, 1714555800500, 1714555801000]
ROWS = pa.table({"item": ["a", "b", "a"], "price": [1.0, 2.0, 3.0], "timestamp": TEXTS})
FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas().set_index(pd.Index([7, 8, 9][: len(table)])),
    "polars": polars.DataFrame,
    "duckdb": lambda table: duckdb.from_arrow(table),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with statestore.connect(tmp_path).create_store(
        "prices", key={"item": "string"}, value={"price": "double"}
    ) as opened:
        yield opened


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_are_written_and_joined(store: Any, frame: str) -> None:
    assert store.put_all(FRAMES[frame](ROWS)) == (3, 0)
    store.commit()
    store.write(FRAMES[frame](ROWS))
    assert store.history("a").to_arrow()["valid_from"].to_pylist() == [
        datetime.fromtimestamp(ms / 1000, UTC) for ms in (MOMENTS[0], MOMENTS[2])
    ]
    left = pa.table({"item": ["a", "b"], "at": ["2024-05-01T09:30:00.999Z", "2024-05-01T09:30Z"]})
    joined = statestore.asof_join(FRAMES[frame](left), store, on="item", left_time="at", how="left")
    rows = joined.fetchall() if frame == "duckdb" else pa.table(joined).to_pylist()
    assert [tuple(row.values()) if isinstance(row, dict) else row for row in rows] == [
        ("a", "2024-05-01T09:30:00.999Z", 1.0),
        ("b", "2024-05-01T09:30Z", None),
    ]
    assert type(joined).__module__.split(".")[0] == type(FRAMES[frame](left)).__module__.split(".")[0]


def test_rows_of_a_read_are_rows_to_write_and_to_join(store: Any, tmp_path: Path) -> None:
    store.write(ROWS)
    other = statestore.connect(tmp_path).create_store(
        "copy", kind="key_value", key={"item": "string"}, value={"price": "double"}
    )
    assert other.put_all(store.scan(columns=["item", "price"])) == (2, 0)
    assert other.get("a") == 3.0
    other.close()
    joined = statestore.asof_join(store.scan(columns=["item", "valid_from"]), store, on="item", left_time="valid_from")
    assert isinstance(joined, pa.RecordBatchReader) and joined.read_all().num_rows == 2


def test_many_keys_come_in_frames(store: Any) -> None:
    store.write(ROWS)
    expected = [store.get("a"), store.get("b"), store.get("z")]
    keys = pa.table({"item": ["a", "b", "z"]})
    for given in (
        keys,
        polars.DataFrame(keys),
        polars.DataFrame(keys)["item"],
        keys.to_pandas(),
        keys["item"],
        ["a", "b", "z"],
    ):
        assert store.get_many(given) == expected
    with refused("WRONG_KEY"):
        store.get_many("a")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("2024-05-01 09:30", "NAIVE_DATETIME", "like 2024-05-01 09:30Z"),
        ("2024-05-01", "NAIVE_DATETIME", "like 2024-05-01T00:00:00Z"),
        ("1714555800000", "INVALID_TIME", "int64 epoch milliseconds"),
        ("2024-05-01T09Z", "INVALID_TIME", "ISO-8601"),
        ("2024-02-30T09:30Z", "INVALID_TIME", "ISO-8601"),
        ("2024-05-01 09:30 Mars/Base", "INVALID_TIME_ZONE", "an offset"),
        ("yesterday", "INVALID_TIME", "2013-01-01T05:00:00Z"),
    ],
)
def test_a_column_of_texts_says_which_row_is_no_moment(store: Any, text: str, code: str, words: str) -> None:
    rows = ROWS.set_column(2, "timestamp", pa.array([TEXTS[0], text, "nothing"]))
    with refused(code, "column `timestamp`", "row 1", text, words):
        store.put_all(rows)


def test_a_text_is_a_moment_wherever_one_is_taken(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    columns: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
    at, later = "2024-05-01T09:30Z", "2024-05-01T11:31+02:00"
    ms = MOMENTS[0]
    for serde in ("natural", "kafka"):
        with catalog.create_store(
            f"versioned-{serde}", **columns, serde=serde, history_retention="9 days"
        ) as versioned:
            assert versioned.put("a", 1, at).accepted
            versioned.restore([("a", 2, later)])
            assert versioned.get("a", as_of=at).valid_from == ms
            assert [each.value for each in versioned.get_versions("a", at, later, ascending=True)] == [1, 2]
            assert versioned.get_many(["a"], as_of=at)[0].value == 1
            assert versioned.delete("a", later).value == 2
            versioned.commit()
            versioned.expire(before=at)
    with catalog.create_store("window", "window", **columns, retention="1 day", window_size="1 minute") as window:
        window.put("a", 1, at)
        window.restore([("a", 2, later)])
        assert [row.start for row in window.fetch("a", at, later)] == [ms, ms + 60_000]
        assert window.fetch("a", at) == 1
        assert (
            len(list(window.fetch_all(at, later))) == len(list(window.backward_fetch_range("a", "b", at, later))) == 2
        )
    with catalog.create_store("session", "session", **columns, retention="1 day") as session:
        session.put("a", at, later, 1)
        assert session.fetch_session("a", at, later) == 1
        assert len(list(session.find_sessions("a", at, later))) == 1
        session.remove("a", at, later)
    with catalog.create_store("join", "join_window", **columns, retention="1 day", window_before="1 minute") as join:
        join.put("a", 1, at)
        assert [row.value for row in join.fetch("a", later)] == [1]
    with catalog.create_store("key_value", "key_value", **columns) as values:
        values.put("a", 1, at)
        values.put_if_absent("b", 1, timestamp=at)
        values.delete("a", at)
        with refused("NAIVE_DATETIME", "2024-05-01 09:30Z"):
            values.put("a", 1, "2024-05-01 09:30")
    with refused("NAIVE_DATETIME", "'2024-05-01T00:00:00Z'"):
        catalog.open_store("versioned-natural").put("a", 1, datetime(2024, 5, 1))


# Change types of a written table say which rows delete and which are left out.


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_every_mixture_of_change_types(kind: pa.DataType) -> None:
    for names in product([*CHANGE_TYPES, None], repeat=3):
        deleted, kept = change_types(pa.array(["delete", *names], kind).slice(1))
        assert deleted.tolist() == [name == "delete" for name in names]
        expected = [name != "update_preimage" for name in names]
        assert all(expected) if kept is None else kept.to_pylist() == expected


def test_an_unknown_change_type_is_named() -> None:
    with pytest.raises(InvalidInputError, match="holds 'upsert'"):
        change_types(pa.array(["insert", "upsert", "delete"]))
