"""Live stores in every door: Python, DuckDB, SQL and the command line show the same rows, now and as of any time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run

import statestore
from statestore.formats.values.times import format_duration

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
MINUTE = 60_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits of each kind."""
    root = tmp_path_factory.mktemp("doors")
    catalog = statestore.connect(root)
    with catalog.create_store("counts", kind="key_value", **COLUMNS) as counts:
        counts.put("a", 1)
        counts.put("b", 2)
        counts.commit()
        counts.put("a", 3)
        counts.delete("b")
        counts.commit()
    with catalog.create_store("windows", kind="window", retention="1 hour", window_size=MINUTE, **COLUMNS) as windows:
        for number in range(40):
            windows.put("a", number, number * MINUTE)
        windows.commit()
        for number in range(30, 80):
            windows.put("a", 100 + number, number * MINUTE)
            windows.put("b", number, number * MINUTE)
        windows.commit()
    with catalog.create_store("sessions", kind="session", retention="1 hour", **COLUMNS) as sessions:
        sessions.put("a", 0, 10, 1)
        sessions.commit()
        sessions.remove("a", 0, 10)
        sessions.put("a", 0, 20, 2)
        sessions.commit()
    with catalog.create_store("joins", kind="join_window", retention="1 hour", window_before=5, **COLUMNS) as joins:
        joins.put("a", 1, 10)
        joins.put("a", 2, 10)
        joins.commit()
    with catalog.create_store("prices", serde="kafka", history_retention="1 day", **COLUMNS) as prices:
        prices.put("a", 8, timestamp=0)
        prices.put("a", 10, timestamp=4)
        prices.commit()
        prices.put("a", 9, timestamp=2)
        prices.commit()
    return root


QUERIES = [
    ("counts", "", {}, "k, v"),
    ("counts", " VERSION AS OF 1", {"version": 1}, "k, v"),
    ("windows", "", {}, "k, window_start, window_end, v"),
    ("windows", " TIMESTAMP AS OF '1970-01-01 01:05:00Z'", {"as_of": 65 * MINUTE}, "k, window_start, window_end, v"),
    ("windows", " VERSION AS OF 1", {"version": 1}, "k, window_start, v, valid_from, valid_to"),
    ("windows", " TIMESTAMP AS OF '1970-01-01T00:00Z'", {"as_of": 0}, "k, window_start, v"),
    ("sessions", "", {}, "k, session_start, session_end, v"),
    ("sessions", " VERSION AS OF 1", {"version": 1}, "k, session_start, session_end, v"),
    ("joins", "", {}, "k, event_time, sequence, v"),
    ("prices", " TIMESTAMP AS OF '1970-01-01 00:00:00.003Z'", {"as_of": 3}, "k, v, valid_from, valid_to"),
]


@pytest.mark.parametrize(("name", "suffix", "coordinates", "columns"), QUERIES)
def test_sql_answers_what_python_does(
    warehouse: Path, name: str, suffix: str, coordinates: dict[str, int], columns: str
) -> None:
    asked = statestore.sql(str(warehouse), f"SELECT {columns} FROM {name}{suffix} ORDER BY ALL").to_pylist()
    scanned = statestore.inspect(warehouse).table(name).scan(**coordinates, columns=columns.split(", ")).read_all()
    order = [(column, "ascending") for column in scanned.schema.names]
    assert asked == scanned.sort_by(order).to_pylist() != []


def test_what_the_tables_hold(warehouse: Path) -> None:
    """Counted by hand: a window is shown for an hour of stream time, which the second commit moved to minute 79."""
    state = statestore.inspect(warehouse)
    windows = state.table("windows")
    assert windows.scan().read_all().num_rows == 110  # minutes 20 to 79 of a, 30 to 79 of b
    assert windows.scan(as_of=65 * MINUTE).read_all().num_rows == 60 + 36
    assert windows.scan(version=1).read_all()["v"].to_pylist() == list(range(40))
    believed = state.table("prices").scan(as_of=3, version=1, columns=["v"]).read_all()
    assert believed["v"].to_pylist() == [8]
    first = windows.history(key="a", filter=("window_start", "=", datetime(1970, 1, 1, 0, 5, tzinfo=UTC))).read_all()
    assert first["valid_to"].to_pylist() == [datetime(1970, 1, 1, 1, 5, tzinfo=UTC)]
    changes = state.table("sessions").changes().read_all().to_pylist()
    assert [(c["_commit_version"], c["_change_type"], c["v"]) for c in changes] == [
        (1, "insert", 1),
        (2, "delete", 1),
        (2, "insert", 2),
    ]


def test_attached_views(warehouse: Path) -> None:
    con = statestore.attach(str(warehouse))
    (counted,) = con.sql("SELECT count(*), min(window_start), max(v) FROM windows WHERE k = 'b'").fetchall()
    assert counted == (50, datetime(1970, 1, 1, 0, 30, tzinfo=UTC), 79)
    assert con.sql("SELECT k, v FROM counts").fetchall() == [("a", 3)]


def test_command_line(warehouse: Path) -> None:
    """A key is the user's: all its windows and sessions are meant."""

    def rows(command: str, *arguments: str) -> list[dict[str, Any]]:
        return run(command, warehouse, *arguments, "--json").rows

    kinds = {row["store"]: (row["kind"], row["retention"]) for row in rows("inspect")}
    assert kinds == {
        "counts": ("key_value", None),
        "windows": ("window", "1 hour"),
        "sessions": ("session", "1 hour"),
        "joins": ("join_window", "1 hour"),
        "prices": ("versioned", "1 day"),
    }
    assert len(rows("get", "windows", "b")) == 50
    assert [row["v"] for row in rows("history", "sessions", "a")] == [2]
    assert [row["v"] for row in rows("get", "prices", "a", "--as-of", "3")] == [9]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (250, "250 ms"), (1_000, "1 second"), (5_400_000, "90 minutes"), (30 * 86_400_000, "30 days")],
)
def test_durations_for_people(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
