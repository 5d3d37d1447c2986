"""Reads, writes and keyed jobs of DataFrames have each row exactly once, whichever process of Spark is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.killed_rows import AMOUNTS, VERSIONS, Case, changes, counted, joined, run, state
from support.local_cluster import MASTER
from support.parameters import thinned

import statestore

Rows = Counter[tuple[Any, ...]]


def check_unplanned(_: Path, rows: Rows) -> None:
    assert rows == Counter(state(VERSIONS).items())


def check_unplanned_changes(_: Path, rows: Rows) -> None:
    assert rows == Counter(changes())


def check_sql(_: Path, rows: Rows) -> None:
    assert rows == Counter(state(3).items())


def check_joined(_: Path, rows: Rows) -> None:
    assert rows == joined()


def found_in_store(place: Path, operation: str) -> list[tuple[Any, ...]]:
    """The rows of the one commit of the job, before and after a vacuum; the history without what was there before."""
    with statestore.connect(place / "w").open_store("found") as store:
        operations = store.versions().to_pylist()
        assert [row["batch"] for row in operations if row["application"] == "job"] == [1]
        # The store was created, and had a row; afterwards it is compacted in the background.
        assert [row["operation"] for row in operations if row["operation"] != "compact"][2:] == [operation]
        found = []
        for _ in range(2):
            rows = store.history(columns=["id", "v", "valid_from"]).read_all().to_pylist()
            found.append(sorted(tuple(row.values()) for row in rows if row["id"] >= 0))
            store.vacuum(0)
        assert found[0] == found[1]
        assert (store.get(-1) is None) == (operation == "overwrite")
    assert not (place / "w" / "found" / "staging").exists()
    assert statestore.connect(place / "w").verify("found").ok
    return [(each, v, round(time.timestamp() * 1000)) for each, v, time in found[0]]


def check_appended(place: Path, _: Rows) -> None:
    assert found_in_store(place, "write") == sorted((user, amount, amount) for user, amount in AMOUNTS)


def check_appended_few(place: Path, _: Rows) -> None:
    expected = sorted((user, amount, amount) for user, amount in AMOUNTS if amount % 100 == 0)
    assert found_in_store(place, "write") == expected


def check_overwritten(place: Path, _: Rows) -> None:
    expected = sorted((user, amount, amount) for user, amount in AMOUNTS if amount >= 8_000)
    assert found_in_store(place, "overwrite") == expected


def check_keyed(place: Path, rows: Rows, batches: tuple[int, ...] = (1,), name: str = "seen") -> None:
    assert rows == counted()
    with statestore.connect(place / "w").open_store("found") as store:
        versions = [row for row in store.versions().to_pylist() if row["operation"] == "snapshot"]
        assert tuple(row["batch"] for row in versions) == batches
        found = {row["user"]: row["value"] for row in store.scan(name).read_all().to_pylist()}
        store.vacuum(0)
        assert store.vacuum(0) == []
        assert {row["user"]: row["value"] for row in store.scan(name).read_all().to_pylist()} == found
    assert found == Counter(user for user, _ in AMOUNTS)
    assert statestore.connect(place / "w").verify("found").ok


def check_tracked(place: Path, rows: Rows) -> None:
    check_keyed(place, rows, name="state")


def check_keyed_stream(place: Path, rows: Rows) -> None:
    check_keyed(place, rows, batches=(0, 1, 2))


CHECKS = {
    "unplanned": check_unplanned,
    "unplanned_changes": check_unplanned_changes,
    "sql": check_sql,
    "joined": check_joined,
    "appended": check_appended,
    "appended_few": check_appended_few,
    "overwritten": check_overwritten,
    "keyed": check_keyed,
    "tracked": check_tracked,
    "keyed_stream": check_keyed_stream,
}
TASKS: list[Case] = [
    ("tracked", "function", "middle", 2, "worker", 0),
    ("keyed_stream", "emitted", "middle", 2, "worker", 0),
    ("unplanned", "read", "middle", 2, "worker", 0),
    ("overwritten", "stage", "message", 2, "worker", 0),
    ("unplanned_changes", "read", "middle", 1, "worker", 0),
    ("sql", "read", "last", 2, "worker", 0),
    ("joined", "join", "after", 2, "worker", 1),
    ("appended", "stage", "middle", 2, "worker", 0),
    ("appended_few", "stage", "message", 2, "worker", 0),
    ("keyed", "keyed", "last", 2, "worker", 0),
    ("keyed_stream", "keyed", "last", 2, "worker", 4),
]
"""Deaths in tasks, which Spark repeats: first those at steps that the few cases of `test_killed_streams` lack."""
COMMITS: list[Case] = [
    ("appended", "commit", "before", 1, "worker", 0),
    ("appended", "commit", "after", 1, "worker", 0),
    *((what, "commit of the store", "after", 1, "worker", 0) for what in ("appended", "appended_few", "overwritten")),
]
"""Deaths of the process that commits a write; the write fails, and is repeated with its transaction."""
EXECUTORS: list[Case] = [("tracked", "function", "middle", 1, "executor", 0)]  # each costs a new executor


@pytest.mark.slow
@pytest.mark.parametrize(
    ("master", "cases", "starts"),
    [("local[2,4]", thinned(TASKS, 2), 1), ("local[2,4]", COMMITS, 2), (MASTER, EXECUTORS, 1)],
    ids=["tasks", "commits", "executors"],
)
def test_each_row_is_there_once(tmp_path: Path, master: str, cases: Sequence[Case], starts: int) -> None:
    came = run("killed_batches", tmp_path, master, cases)
    for number, (case, answer) in enumerate(zip(cases, came, strict=True)):
        assert (answer["starts"], answer["deaths"]) == (starts, case[3]), (case, answer["errors"])
        CHECKS[case[0]](tmp_path / str(number), Counter(map(tuple, answer["rows"] or ())))
