"""Change feeds against the model: events in parts of any size, related rows found in every way, and what is read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.parameters import thinned
from support.stores.versioned_checks import CHANGE, HORIZON, check_changes, rows_of
from support.stores.versioned_pair import Pair
from support.stores.versioned_pair import small_thresholds as small_thresholds

import statestore
from statestore.catalog.reads import change_events, change_rows, changes, replaced_rows
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.formats.segments.segment import Segment

EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "3"))

puts = st.tuples(st.sampled_from(["a", "b", "c"]), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, HORIZON - 1))
steps = st.one_of(
    st.tuples(st.just("put_all"), st.lists(puts, min_size=1, max_size=8)),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("compact"), st.booleans()),
)


@contextmanager
def read_in(way: str) -> Iterator[None]:
    """Let change feeds use compiled loops or not, in small parts or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_events, "copies_pay", lambda rows: "compiled" in way)
        if "small" in way:
            patch.setattr(changes, "SPLIT_EVENTS", 2)
            patch.setattr(changes, "SAMPLED", 1)
            patch.setattr(changes, "KEPT_SPLITS", 1)
            patch.setattr(replaced_rows, "MATCHED_ROWS", 2)
            patch.setattr(replaced_rows, "FEW_SHARE", 0)
            patch.setattr(change_rows, "BATCH_BYTES", 100)
        if "marks" in way:
            patch.setattr(replaced_rows, "FEW_TIMES", -1)
            patch.setattr(replaced_rows, "_LEAST_BITS", 1)
            patch.setattr(replaced_rows, "_MOST_BITS", 2)
        if "hashes" in way:
            patch.setattr(replaced_rows, "SAME_TIMES", 0)
        yield


WAYS = (
    "numpy",
    "compiled",
    "numpy, small",
    "compiled, small, hashes",
    "numpy, marks, hashes",
    "compiled, small, marks",
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=4, max_size=16))
def test_changes_are_those_of_the_model_in_parts_of_any_size(program: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, None, True)
        for name, argument in program:
            pair.step(name, argument)
        pair.step("commit", None)
        for _ in range(2):
            for way in WAYS:
                with read_in(way):
                    check_changes(pair.store, pair.model)
                    check_keys(pair)
                    check_order(pair.store)
            pair.step("compact", True)
        pair.store.close()


def check_keys(pair: Pair) -> None:
    expected = [row for row in pair.model.changes(0, pair.store.version) if row[2] in ("a", "c")]
    found = pair.store.changes(start_version=0, filter=("k", "in", ["a", "c"]))
    assert sorted(rows_of(found, *CHANGE)) == expected


def check_order(store: VersionedStore) -> None:
    """Check that changes come by version and start, and each preimage right before its postimage."""
    found = rows_of(store.changes(start_version=0), "_commit_version", "valid_from", "k", "_change_type")
    assert [row[:2] for row in found] == sorted(row[:2] for row in found)
    for row, following in pairwise([*found, None]):
        if row is not None and row[3] == "update_preimage":
            assert following == (*row[:3], "update_postimage")


Late = list[tuple[int | None, int] | None]  # values with their times, one commit each; None: a full compaction

LATE_VALUES: list[Late] = [
    [(3, 4), (None, 2), (8, 3), (2, 1), None, (None, 2)],
    [(5, 4), (None, 1), (6, 0), (1, 2), (2, 1), None],
    [(6, 4), (None, 2), (4, 3), None, (4, 0), (6, 2)],
    [(None, 4), (None, 1), (None, 3), None, (8, 0), (None, 1)],
]


@pytest.mark.parametrize("program", LATE_VALUES)
def test_a_row_that_commits_shortened_again_and_again_is_replaced_once(program: Late, tmp_path: Path) -> None:
    """Compaction keeps such a row several times, and what the last commit replaced is none of the feed's own rows."""
    run_late(program, tmp_path)


@pytest.mark.slow
def test_late_values_of_one_key_are_changes_of_the_model(tmp_path: Path) -> None:
    chance = np.random.default_rng(43)
    for number in thinned(range(40 * EXAMPLES), 10 * EXAMPLES):
        program: Late = []
        for _ in range(chance.integers(4, 9)):
            program.append((None if chance.random() < 0.3 else int(chance.integers(9)), int(chance.integers(5))))
            if chance.random() < 0.4:
                program.append(None)
        run_late(program, tmp_path / str(number))


def run_late(program: Late, folder: Path) -> None:
    pair = Pair(str(folder), None, False)
    for step in program:
        if step is None:
            pair.step("compact", True)
        else:
            pair.step("put_all", [("a", *step)])
            pair.step("commit", None)
    for way in ("numpy", "compiled"):
        with read_in(way):
            check_changes(pair.store, pair.model)
    pair.store.close()


KEYS, COMMITS = 2_000, 12


def many(commit: int) -> pa.Table:
    """Changes of hot keys and of others, some late, some of times that repeat."""
    random = np.random.default_rng(commit)
    keys = (KEYS * random.random(500) ** 3).astype(int)
    times = commit * 1_000 + random.integers(0, 500, len(keys)) * 2
    times[:30] -= random.integers(0, 4_000, 30)
    return pa.table(
        {
            "item": [f"item-{key}" for key in keys],
            "price": random.random(len(keys)),
            "note": pa.array([None if key % 3 else "note" for key in keys], pa.string()),
            "timestamp": np.maximum(times, 0),
            "_change_type": np.where(random.random(len(keys)) < 0.05, "delete", "insert"),
        }
    )


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of late records and hot keys, compacted by the way."""
    path = tmp_path_factory.mktemp("prices")
    catalog = statestore.connect(path)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double", "note": "string"}) as store:
        for commit in range(COMMITS):
            store.put_all(many(commit))
            store.commit()
    return path


def test_columns_that_nobody_asked_for_are_not_read(prices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    column = Segment._column

    def watched(self: Segment, number: int, position: int, for_few: bool = False) -> Any:
        read.add(self.schema.names[position])
        return column(self, number, position, for_few)

    with read_in("numpy"), statestore.connect(prices).open_store("prices", read_only=True) as store:
        whole = store.changes(start_version=2).read_all()
        monkeypatch.setattr(Segment, "_column", watched)
        for wanted in (["_change_type"], ["item", "_commit_version"]):
            found = store.changes(start_version=2, columns=wanted).read_all()
            assert found.equals(whole.select(wanted))
    assert "item" in read
    assert not read & {"price", "note"}


def test_sql_counts_changes_without_their_values(prices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    column = Segment._column

    def watched(self: Segment, number: int, position: int, for_few: bool = False) -> Any:
        read.add(self.schema.names[position])
        return column(self, number, position, for_few)

    monkeypatch.setattr(Segment, "_column", watched)
    with statestore.connect(prices).open_store("prices", read_only=True) as store:
        expected = sum(batch.num_rows for batch in store.changes(start_version=0, columns=["item"]))
    read.clear()
    with read_in("numpy"):
        found = statestore.sql(str(prices), "SELECT count(*) AS n FROM changes('prices', 0)")
    assert found["n"].to_pylist() == [expected]
    assert not read & {"price", "note"}


def test_batches_of_changes_are_small(prices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer holds some megabytes of a feed at a time, however long it is."""
    monkeypatch.setattr(change_rows, "BATCH_BYTES", 1 << 12)
    with statestore.connect(prices).open_store("prices", read_only=True) as store:
        sizes = [batch.nbytes for batch in store.changes(start_version=0)]
    assert len(sizes) > COMMITS
    assert max(sizes) < 1 << 13
