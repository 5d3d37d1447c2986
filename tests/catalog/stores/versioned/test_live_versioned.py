"""Random histories of versioned stores with Kafka's serdes against the dictionary model, its hot tier lost at times."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.stores.live_places import PLACES, kept_of, warehouse_in
from support.stores.versioned_model import Model

import statestore

EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "5"))
PHASES = tuple(Phase) if EXAMPLES > 10 else (Phase.explicit, Phase.reuse, Phase.generate)
RETENTION = 60
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
TIMES = st.integers(0, 40) | st.integers(0, 200)
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("ab"), st.none() | st.integers(0, 9), TIMES),
    st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(0, 9), TIMES),
    st.tuples(st.sampled_from(["commit", "reopen", "lose", "flush", "compact"])),
)


class Subject:
    def __init__(self, folder: Path, place: str) -> None:
        self.catalog = warehouse_in(folder, place)
        self.store: Any = self.catalog.create_store(
            "s", **COLUMNS, history_retention=RETENTION, segment_interval=20, serde="kafka"
        )
        self.model = Model(retention=RETENTION)
        self.versions: dict[int, int] = {}  # of the store to that of the model

    def put(self, key: str, value: int | None, time: int) -> None:
        if value is None and time in self.model.current.get(key, {}):
            return  # where Kafka's answer depends on its rows (decision 022)
        assert tuple(self.store.put(key, value, timestamp=time)) == self.model.put(key, value, time)

    def commit(self) -> None:
        version = self.store.commit()
        if version not in self.versions:
            self.model.commit()
            self.versions[version] = len(self.model.states) - 1

    def reopen(self) -> None:
        self.store.close()
        self.store = self.catalog.open_store("s")

    def lose(self) -> None:
        self.commit()  # how many records were refused since the last commit is known to the tier alone
        self.store.close()
        shutil.rmtree(kept_of(self.catalog) / "live", ignore_errors=True)
        self.store = self.catalog.open_store("s")

    def flush(self) -> None:
        self.store.flush()

    def compact(self) -> None:
        self.store.compact(full=True)

    def check(self) -> None:
        for key in "ab":
            assert self.found(key, None) == self.model.get(key)
            for moment in range(0, 210, 7):
                assert self.found(key, moment) == self.model.get(key, moment), (key, moment)

    def found(self, key: str, moment: int | None) -> Any:
        record = self.store.get(key) if moment is None else self.store.get(key, as_of=moment)
        return None if record is None else tuple(record)

    def check_tables(self) -> None:
        for version, number in self.versions.items():
            for moment in (10, 60, 150):
                rows = self.store.scan(version=version, as_of=moment, columns=["k", "v"]).read_all().to_pylist()
                expected = {(key, value) for key, value, *_ in self.model.state_at(number, moment)}
                assert {tuple(row.values()) for row in rows} == expected
        assert self.store.dropped_records == self.model.dropped


@pytest.mark.quick("directory")
@pytest.mark.parametrize("place", PLACES)
@given(steps=st.lists(STEPS, max_size=40))
@settings(max_examples=EXAMPLES * 3, deadline=None, phases=PHASES)
def test_answers_are_those_of_the_model(place: str, steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(Path(folder) / "w", place)
        try:
            for verb, *arguments in steps:
                getattr(subject, verb)(*arguments)
                if verb != "put":
                    subject.check()
            subject.commit()
            subject.check()
            subject.check_tables()
        finally:
            subject.store.close()


@pytest.fixture(params=PLACES)
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> statestore.Catalog:
    return warehouse_in(tmp_path, request.param)


@pytest.fixture
def store(catalog: statestore.Catalog) -> Any:
    return catalog.create_store("s", **COLUMNS, history_retention=100, serde="kafka")


def test_bulk_puts_and_writes(store: Any) -> None:
    """Bulk puts equal single ones; a record that is too late at its turn is refused and counted."""
    table = pa.table({"k": ["a", "b", "a"], "v": pa.array([1, 2, 3], pa.int64()), "timestamp": [0, 150, 10]})
    assert store.put_all(table) == (2, 1)
    assert (store.get("a"), store.get("b"), store.dropped_records) == ((1, 0, None), (2, 150, None), 1)
    version = store.write(table.slice(1, 1).set_column(2, "timestamp", pa.array([160])), transaction=("job", 1))
    assert [tuple(record) for record in store.get_versions("b")] == [(2, 160, None), (2, 150, 160)]
    assert store.write(table, transaction=("job", 1)) == version
    later = table.slice(0, 1).set_column(2, "timestamp", pa.array([170]))
    store.write(later, mode="overwrite")
    assert (store.get("b"), store.get("a").value, store.get("b", as_of=165).value) == (None, 1, 2)
    assert store.scan(columns=["k"]).read_all()["k"].to_pylist() == ["a"]


def test_delete_answers_what_was_valid_then(store: Any) -> None:
    store.put("a", 1, timestamp=10)
    store.put("a", 2, timestamp=20)
    assert store.delete("a", timestamp=15) == (1, 10, 20)
    assert (store.get("a", as_of=17), store.get("a")) == (None, (2, 20, None))
    assert store.delete("b", timestamp=datetime(1970, 1, 1, tzinfo=UTC)) is None


def test_another_handle_reads_what_is_committed(store: Any, catalog: statestore.Catalog) -> None:
    store.put("a", 1, timestamp=10)
    store.commit()
    store.put("a", 2, timestamp=20)
    with catalog.open_store("s") as other:
        assert (other.get("a"), store.get("a")) == ((1, 10, None), (2, 20, None))
        store.commit()
        assert other.get("a") == (2, 20, None)
        assert [tuple(record) for record in other.get_versions("a", ascending=True)] == [(1, 10, 20), (2, 20, None)]


def test_restore_judges_expiry_by_the_whole_batch(store: Any) -> None:
    store.restore([("a", 1, 0), ("a", 2, 10), ("b", 3, 500)])
    assert (store.get("a").value, store.get("a", as_of=5), store.dropped_records) == (2, None, 0)


def test_history_retention_is_needed(tmp_path: Path) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"MISSING_OPTION.*history_retention"):
        statestore.connect(tmp_path).create_store("s", **COLUMNS, serde="kafka")
