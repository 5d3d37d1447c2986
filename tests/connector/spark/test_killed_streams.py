"""Streams out of stores and into stores have each record exactly once, whichever process of Spark is killed.

A worker that dies in a task is replaced. Where a process dies that plans a source or commits a batch, the query fails,
and is started again from its checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.killed_rows import AMOUNTS, FILES, ROWS, VERSIONS, Case, changes, counted, joined, run, version_rows
from support.local_cluster import MASTER
from support.parameters import thinned

import statestore


def written_files(place: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows in files that Spark's sink has committed: its log names them."""
    log = place / "found" / "_spark_metadata"
    names = {
        json.loads(line)["path"].rpartition("/")[2]
        for entry in log.iterdir()
        if not entry.name.startswith(".")
        for line in entry.read_text().splitlines()[1:]
    }
    tables = [pq.read_table(place / "found" / name, columns=list(columns)) for name in names]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def check_feed(place: Path) -> None:
    rows = written_files(place, "_commit_version", "_change_type", "id", "v")
    assert Counter(rows) == Counter(changes())


def check_feed_of_checkpoint(place: Path) -> None:
    seen = Counter[int]()
    expected = Counter[tuple[Any, ...]]()
    for batch in range(FILES):
        before = seen.copy()
        seen.update(user for user, _ in AMOUNTS[batch * ROWS : (batch + 1) * ROWS])
        for user in seen:
            if seen[user] > before[user] > 0:
                expected[batch, "update_preimage", user, before[user]] += 1
            if seen[user] > before[user]:
                expected[batch, "update_postimage" if before[user] else "insert", user, seen[user]] += 1
    assert Counter(written_files(place, "_commit_version", "_change_type", "user", "n")) == expected


def check_records(place: Path) -> None:
    assert Counter(written_files(place, "user", "n")) == counted()


def check_joined(place: Path) -> None:
    assert Counter(written_files(place, "id", "amount", "v")) == joined()


def check_joined_with_grace(place: Path) -> None:
    """Rows of the last second wait on."""
    missing = (expected := joined()) - (found := Counter(written_files(place, "id", "amount", "v")))
    assert found <= expected
    assert 500 < missing.total() < 3_000
    assert min(amount for _, amount, _ in missing) > 8_000


def found_in_store(place: Path, operation: str, *, history: bool) -> Counter[tuple[Any, ...]]:
    """The rows of the store, in which each of three batches is one commit, before and after a vacuum."""
    with statestore.connect(place / "w").open_store("found") as store:
        versions = [row for row in store.versions().to_pylist() if row["operation"] == operation]
        assert [row["batch"] for row in versions] == [0, 1, 2]
        assert len({row["application"] for row in versions}) == 1
        counted = []
        for _ in range(2):
            if history:
                rows = store.history(columns=["id", "v", "valid_from"]).read_all().to_pylist()
            else:
                rows = store.scan(columns=["id", "v"]).read_all().to_pylist()
            counted.append(Counter(tuple(row.values()) for row in rows))
            store.vacuum(0)
        assert counted[0] == counted[1]
    assert not (place / "w" / "found" / "staging").exists()
    assert statestore.connect(place / "w").verify("found").ok
    return counted[0]


def found_history(place: Path) -> Counter[tuple[int, int, int]]:
    found = found_in_store(place, "write", history=True)
    return Counter({(row[0], row[1], round(row[2].timestamp() * 1000)): count for row, count in found.items()})


def check_copy(place: Path) -> None:
    expected = ((each, v, n * 1000) for n in range(1, VERSIONS + 1) for each, v in version_rows(n).items())
    assert found_history(place) == Counter(expected)


def check_append(place: Path) -> None:
    assert found_history(place) == Counter((user, amount, amount) for user, amount in AMOUNTS)


def check_append_few(place: Path) -> None:
    expected = Counter((user, amount, amount) for user, amount in AMOUNTS if amount % 100 == 0)
    assert found_history(place) == expected


def check_live(place: Path) -> None:
    expected = Counter((amount, user) for user, amount in AMOUNTS)
    assert found_in_store(place, "write", history=False) == expected


def sums() -> Counter[tuple[Any, ...]]:
    found = Counter[int]()
    for user, amount in AMOUNTS:
        found[user] += amount
    return Counter(found.items())


def check_complete(place: Path) -> None:
    assert found_in_store(place, "overwrite", history=False) == sums()


def check_update(place: Path) -> None:
    assert found_in_store(place, "write", history=False) == sums()


CHECKS = {
    "feed": check_feed,
    "feed_of_live_store": check_feed,
    "feed_of_checkpoint": check_feed_of_checkpoint,
    "records": check_records,
    "copy": check_copy,
    "append": check_append,
    "append_few": check_append_few,
    "live": check_live,
    "complete": check_complete,
    "update": check_update,
    "joined": check_joined,
    "joined_with_grace": check_joined_with_grace,
}
TASKS: list[Case] = [
    ("feed_of_checkpoint", "read", "middle", 2, "worker", 0),
    ("complete", "stage", "middle", 1, "worker", 0),
    ("joined_with_grace", "join", "after", 2, "worker", 0),
    ("copy", "function", "middle", 2, "worker", 0),
    ("feed", "read", "middle", 2, "worker", 0),
    ("feed_of_live_store", "read", "middle", 1, "worker", 0),
    ("records", "emitted", "last", 2, "worker", 0),
    ("append", "stage", "message", 2, "worker", 0),
    ("append_few", "stage", "first", 2, "worker", 0),
    ("update", "stage", "message", 1, "worker", 0),
    ("joined", "join", "after", 2, "worker", 0),
]
"""Deaths in tasks, which Spark repeats: first those that are run also where a share of the cases is.

`test_killed_batches` has the other steps.
"""
DRIVERS: list[Case] = [
    ("feed", "source initialOffset", "before", 1, "worker", 0),
    ("feed", "source commit", "before", 1, "worker", 0),
    ("copy", "source partitions", "after", 1, "worker", 2),
    ("copy", "commit of the store", "after", 1, "worker", 0),
    ("append", "commit", "before", 1, "worker", 1),
    ("live", "commit", "after", 1, "worker", 1),
]
"""Deaths in processes beside the driver that plan a source or commit a batch; they end the query.

The last number is how often the process passes the place before: 0 in the first batch.
"""
EXECUTORS: list[Case] = [("copy", "function", "middle", 1, "executor", 0)]  # each costs a new executor


@pytest.mark.slow
@pytest.mark.parametrize(
    ("master", "cases", "starts"),
    [("local[2,4]", thinned(TASKS, 2), 1), ("local[2,4]", DRIVERS, 2), (MASTER, EXECUTORS, 1)],
    ids=["tasks", "processes of the driver", "executors"],
)
def test_each_record_is_there_once(tmp_path: Path, master: str, cases: Sequence[Case], starts: int) -> None:
    for number, (case, came) in enumerate(zip(cases, run("killed_streams", tmp_path, master, cases), strict=True)):
        assert came["deaths"] == case[3], (case, came)
        # A query that has to be started again may fail once more on a busy machine: Spark waits 15 s for a process.
        assert came["starts"] == starts or came["starts"] > starts > 1, (case, came["errors"])
        CHECKS[case[0]](tmp_path / str(number))
