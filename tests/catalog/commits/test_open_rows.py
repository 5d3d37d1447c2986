"""The index of open rows changes no answer: random bulk commits with it, without it, and against the model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.properties import few_or_many
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.commits import open_rows as module
from statestore.catalog.commits.open_row_lookup import OpenRows
from statestore.catalog.commits.sorted_records import by_time_within
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.reads.belief import newest_ends, with_closures
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.packed_sort import sorted_with_positions

KEYS = [f"k{number}" for number in range(12)]
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9), st.integers(0, 60)), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["write"] * 6 + ["compact", "foreign"]), ROWS), max_size=10)


@pytest.fixture(autouse=True)
def _small_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "MIN_KEYS", 1)
    yield


def as_table(rows: list[tuple[str, Any, int]]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key for key, _, _ in rows], pa.string()),
            "v": pa.array([value for _, value, _ in rows], pa.int64()),
            "timestamp": pa.array([time for _, _, time in rows], pa.int64()),
            "_change_type": ["delete" if value is None else "insert" for _, value, _ in rows],
        }
    )


def listed(found: OpenRows) -> list[tuple[int, str, int]]:
    names = [found.names[address >> 32] for address in found.address.tolist()]
    rows = (found.address & np.uint64(0xFFFFFFFF)).tolist()
    return sorted(zip(found.hashes.tolist(), names, rows, strict=True))


def open_rows(store: statestore.VersionedStore) -> list[tuple[int, str, int]]:
    """(key hash, segment, row) of every open row, by reading them all."""
    files, log_state = store._files, store._files.log.newest()
    found = []
    for segment in with_closures(log_state.segments, log_state.closures):
        if segment.meta.role != "belief":
            rows = np.flatnonzero(newest_ends(files, segment) == OPEN)
            keys = [files.open_segment(segment.meta).column_array("k").take(pa.array(rows))]
            found += [
                (h, segment.meta.name, row) for h, row in zip(hash_keys(keys).tolist(), rows.tolist(), strict=True)
            ]
    return sorted(found)


@few_or_many(8, 60, steps=STEPS)
def test_commits_with_the_index_are_those_of_the_model(steps: list[tuple[str, list[tuple[str, Any, int]]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = statestore.connect(Path(folder) / "w")
        store = catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"})
        writer_of(store._files).bulk_commits = 1
        model = Model()
        for what, rows in steps:
            if what == "compact":
                store.compact(full=True)
                continue
            if what == "foreign":  # as by another process: the index knows nothing of it
                kept = writer_of(store._files).exchange_index(None)
            store.write(as_table(rows))
            if what == "foreign":
                writer_of(store._files).exchange_index(kept)
            for row in rows:
                model.put(*row)
            found = writer_of(store._files).index
            if isinstance(found, OpenRows) and found.version == store._files.log.newest().version:
                assert listed(found) == open_rows(store)
        for key in KEYS:
            assert as_tuple(store.get(key)) == model.get(key)
            for time in range(0, 61, 7):
                assert as_tuple(store.get(key, as_of=time)) == model.get(key, time)
        store.close()


def as_tuple(record: statestore.Record | None) -> tuple[Any, ...] | None:
    return None if record is None else tuple(record)


def test_keys_that_share_a_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys in four hashes: the index gives up, or compares the keys."""
    from statestore.catalog.commits import new_files
    from statestore.catalog.commits import record_timelines as resolve

    def colliding(columns: Any) -> Any:
        return hash_keys(columns) % np.uint64(4)

    monkeypatch.setattr(resolve, "hash_keys", colliding)
    monkeypatch.setattr(new_files, "hash_keys", colliding)
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    writer_of(store._files).bulk_commits = 1
    for round_ in range(4):
        store.write(as_table([(key, round_, round_ * 10) for key in KEYS[round_ * 3 : round_ * 3 + 3]]))
    store.write(as_table([(key, 9, 50) for key in KEYS]))
    rows = store.scan(columns=["k", "v"]).read_all().to_pylist()
    assert sorted((row["k"], row["v"]) for row in rows) == sorted((key, 9) for key in KEYS)
    store.close()


def bulk(store: statestore.VersionedStore, value: int, time: int, keys: list[str] = KEYS) -> None:
    store.write(as_table([(key, value, time) for key in keys]))


def index_of(store: statestore.VersionedStore) -> OpenRows:
    found = writer_of(store._files).index
    assert isinstance(found, OpenRows)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[statestore.VersionedStore]:
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    writer_of(store._files).bulk_commits = 1
    yield store
    store.close()


def test_commits_without_the_index_are_caught_up_with(store: statestore.VersionedStore) -> None:
    """Foreign commits with new keys, late records and tombstones; nothing is made anew."""
    bulk(store, 1, 10)
    kept = writer_of(store._files).exchange_index(None)
    writer_of(store._files).bulk_commits = -9
    store.write(as_table([("k0", 2, 20), ("new", 2, 5), ("k1", None, 20), ("k2", 2, 5)]))
    store.write(as_table([("k0", 3, 30), ("k3", 3, 10), ("new", None, 30)]))
    assert writer_of(store._files).exchange_index(kept) is None
    built = writer_of(store._files).bulk_commits
    bulk(store, 4, 40)
    assert index_of(store) is kept and writer_of(store._files).bulk_commits == built
    assert listed(index_of(store)) == open_rows(store)


def test_a_value_taken_back_leaves_the_index(store: statestore.VersionedStore) -> None:
    """Its row ends and none comes in its place: the index loses its key."""
    bulk(store, 1, 10)
    kept = index_of(store)
    store.write(as_table([("k0", None, 10)]))
    assert index_of(store) is kept and len(kept.hashes) == len(KEYS) - 1
    bulk(store, 2, 20, KEYS[1:])
    assert index_of(store) is kept
    assert listed(index_of(store)) == open_rows(store)
    assert store.get("k0") is None


@pytest.mark.parametrize("known", [True, False])
def test_the_index_follows_a_compaction(store: statestore.VersionedStore, known: bool) -> None:
    """After one of this process by the moves, after one of another process by reading the new segments."""
    for round_ in range(4):
        bulk(store, round_, 10 * round_, KEYS[: 9 + round_])
    kept, built = index_of(store), writer_of(store._files).bulk_commits
    store.compact(full=True)
    if not known:
        module._noted.clear()
    bulk(store, 9, 90, KEYS[3:])
    assert index_of(store) is kept and writer_of(store._files).bulk_commits == built
    assert listed(index_of(store)) == open_rows(store)


@pytest.mark.parametrize("keep", ["all", "first", "last", "none"])
def test_the_index_follows_compactions_and_commits_of_others_between_them(
    store: statestore.VersionedStore, keep: str
) -> None:
    """The index misses deletes, new keys and late records before, between and after two compactions."""
    bulk(store, 1, 10)
    kept = writer_of(store._files).exchange_index(None)
    assert isinstance(kept, OpenRows)
    writer_of(store._files).bulk_commits = -99
    for round_ in range(1, 4):
        time = 20 * round_
        store.write(as_table([("k0", round_, time), (f"n{round_}", 1, time), ("k1", 2, time - 15), ("k2", None, time)]))
        store.write(as_table([(f"k{round_ + 3}", None, 10), ("k3", None, time), ("k3", 1, time)]))
        if round_ < 3:
            writer_of(store._files).exchange_index(kept)
            store.compact(full=True)
            writer_of(store._files).exchange_index(None)
    noted = module._noted[store._files]
    assert len(noted) == 2
    if keep != "all":
        noted[:] = {"first": noted[:1], "last": noted[1:], "none": []}[keep]
    writer_of(store._files).exchange_index(kept)
    writer_of(store._files).bulk_commits = 1
    bulk(store, 4, 100, KEYS[5:])
    assert index_of(store) is kept
    assert listed(index_of(store)) == open_rows(store)


def test_moves_are_kept_within_bounds(store: statestore.VersionedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for round_ in range(3):
        bulk(store, round_, 10 * round_)
    monkeypatch.setattr(module, "MAX_MOVED", 5)
    store.compact(full=True)
    assert module._noted[store._files] == []
    bulk(store, 9, 90)
    assert listed(index_of(store)) == open_rows(store)


def test_an_index_that_outgrows_its_bound_is_given_up(
    store: statestore.VersionedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    bulk(store, 1, 10, KEYS[:8])
    assert len(index_of(store).hashes) == 8
    bulk(store, 2, 20, KEYS)
    assert writer_of(store._files).index is None and writer_of(store._files).bulk_commits == module.GIVEN_UP
    bulk(store, 3, 30, KEYS)
    assert {row["v"] for row in store.scan(columns=["v"]).read_all().to_pylist()} == {3}


def test_names_of_segments_that_are_gone_are_forgotten(store: statestore.VersionedStore) -> None:
    for round_ in range(68):  # more than 64 names
        bulk(store, round_, 10 * round_, KEYS[:2])
    store.compact(full=True)
    bulk(store, 9, 900)
    assert len(index_of(store).names) < 5
    assert listed(index_of(store)) == open_rows(store)


def test_an_older_log_state_gets_no_index(store: statestore.VersionedStore) -> None:
    """A writer that lags behind searches the segments; the index stays for the others."""
    bulk(store, 1, 10)
    old = store._files.log.newest()
    bulk(store, 2, 20)
    kept = index_of(store)
    assert module.take_index(store._files, old, 100) is None
    assert index_of(store) is kept


def test_whoever_takes_the_index_has_it_alone(store: statestore.VersionedStore) -> None:
    bulk(store, 1, 10)
    log_state = store._files.log.newest()
    taken = module.take_index(store._files, log_state, 100)
    assert taken is not None and writer_of(store._files).index is None
    bulk(store, 2, 20)
    newer = index_of(store)
    module.give_back(store._files, taken)
    assert index_of(store) is newer


@settings(deadline=None)
@given(st.sets(st.integers(0, 2**64 - 1), min_size=1), st.sets(st.integers(0, 2**64 - 1)))
def test_the_directory_finds_what_a_search_finds(known: set[int], others: set[int]) -> None:
    """Search with all keys known, which makes the directory, and after that with new ones."""
    hashes = np.array(sorted(known), np.uint64)
    numbers = np.arange(len(hashes))
    index = OpenRows(0, hashes, numbers.astype(np.uint64), numbers, ["s"])
    index.replace(hashes, numbers.astype(np.uint64), numbers, index.find(hashes))
    probes = np.array(sorted(known | others), np.uint64)
    position, entry = index.find(probes)
    assert probes[position].tolist() == sorted(known)
    assert entry.tolist() == numbers.tolist()
    index.replace(probes, np.arange(len(probes), dtype=np.uint64), np.arange(len(probes)), (position, entry))
    assert index.hashes.tolist() == probes.tolist() and index.start.tolist() == list(range(len(probes)))


@given(st.lists(st.integers(0, 9) | st.integers(0, 2**64 - 1)))
def test_sorting_with_positions_is_a_stable_sort(values: list[int]) -> None:
    array = np.array(values, np.uint64)
    ordered, position = sorted_with_positions(array)
    assert position.tolist() == np.argsort(array, kind="stable").tolist()
    assert ordered.tolist() == sorted(values)


@given(st.lists(st.tuples(st.sampled_from([0, 5, 2**63]), st.integers(-(10**12), 10**12) | st.integers(-2, 2))))
def test_sorting_by_time_within_hashes_is_stable(rows: list[tuple[int, int]]) -> None:
    hashes = np.array([hash_ for hash_, _ in rows], np.uint64)
    times = np.array([time for _, time in rows], np.int64)
    order = by_time_within(*sorted_with_positions(hashes), times)
    assert order.tolist() == sorted(range(len(rows)), key=lambda n: rows[n])


def test_a_key_that_takes_the_hash_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plainest commit compares the keys, and is made again without what the hash promised; nothing stays behind."""
    from statestore.catalog.commits import new_files
    from statestore.catalog.commits import publish_commit as write
    from statestore.catalog.commits import record_timelines as resolve

    def colliding(columns: Any) -> Any:
        return np.array([int(key[-1]) for key in columns[0].to_pylist()], np.uint64)

    plain = []

    def at_once(*arguments: Any) -> Any:
        plain.append(prepare_at_once(*arguments))
        return plain[-1]

    prepare_at_once = write._prepare_at_once
    monkeypatch.setattr(resolve, "hash_keys", colliding)
    monkeypatch.setattr(new_files, "hash_keys", colliding)
    monkeypatch.setattr(write, "_prepare_at_once", at_once)
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    writer_of(store._files).bulk_commits = 1
    for time, name in enumerate(["a", "a", "b", "a", "b"]):
        store.write(as_table([(f"{name}{n}", time, time) for n in range(5 + time)]))
    assert [prepared is None for prepared in plain] == [False, False, True]
    rows = store.scan(columns=["k", "v"]).read_all().to_pylist()
    expected = {f"a{n}": 3 for n in range(8)} | {f"b{n}": 4 for n in range(9)}
    assert {row["k"]: row["v"] for row in rows} == expected and len(rows) == len(expected)
    assert store.vacuum(older_than=0, dry_run=True) == []
    store.close()


def test_the_index_is_carried_on(tmp_path: Path) -> None:
    """A store that only this process writes builds it once."""
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    built = []
    for round_ in range(6):
        store.write(as_table([(key, round_, round_ * 10 + 5) for key in KEYS[: 6 + round_]]))
        built.append(writer_of(store._files).bulk_commits)
        assert open_rows(store)
    store.write(as_table([("k0", 1, 3), ("k1", None, 70)]))
    assert built == [1, 2, 2, 2, 2, 2] and writer_of(store._files).bulk_commits == 2
    found = writer_of(store._files).index
    assert isinstance(found, OpenRows)
    assert listed(found) == open_rows(store)
    store.close()
