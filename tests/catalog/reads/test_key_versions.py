"""Newest versions of a key are known before its older ones are read, and all commits that wrote it are found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stores.versioned_checks import check_newest_first, create
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.formats.state_table import NewestBatch, Query
from statestore.formats.values.filters import Filter, parse_filters

HOT = Filter("k", "=", "a")


def written(folder: Path, commits: list[list[tuple[str, int | None, int]]]) -> tuple[VersionedStore, Model]:
    store, model = create(statestore.connect(folder)), Model(None)
    for commit in commits:
        for key, value, time in commit:
            store.put(key, value, timestamp=time)
            model.put(key, value, time)
        store.commit()
        model.commit()
    return store, model


def newest_first(store: VersionedStore, query: Query, rows: int) -> Iterator[NewestBatch] | None:
    return store.table.newest_first(query, rows)


def batches_for(store: VersionedStore, wanted: int) -> int:
    """Return how many batches a reader takes that wants the newest rows of the hot key."""
    starts: list[int] = []
    batches = newest_first(store, Query(mode="history", filters=(HOT,)), wanted)
    assert batches is not None
    for taken, (rows, rest) in enumerate(batches, 1):
        starts = sorted([*starts, *(each.value for each in rows["valid_from"])])[-wanted:]
        if rest is None or (len(starts) == wanted and starts[0] >= rest):
            return taken
    return 0


def test_the_latest_start_of_a_segment_bounds_it(tmp_path: Path) -> None:
    """The first segment has the oldest and the newest row."""
    store, model = written(tmp_path, [[("a", 1, 1), ("a", 2, 100)], [("a", 3, 50), ("a", 4, 60)]])
    with store:
        for version in range(store.version + 1):
            check_newest_first(store, model, version)


@pytest.mark.parametrize("compacted", [False, True])
def test_late_rows_and_deletes(tmp_path: Path, compacted: bool) -> None:
    """Every version has the newest rows of the model, also when most rows of a segment belong to later versions."""
    chance = random.Random(5)
    commits = [
        [(chance.choice("aaab"), chance.choice([None, 1, 2, 3]), chance.randrange(24)) for _ in range(6)]
        for _ in range(12)
    ]
    store, model = written(tmp_path, commits)
    with store:
        if compacted:
            store.compact()
            while len(model.states) <= store.version:
                model.same_again()
        for version in range(store.version + 1):
            check_newest_first(store, model, version)


def test_older_segments_are_not_read(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [[("a", number, number * 10), ("b", 1, number)] for number in range(30)])
    with store:
        assert batches_for(store, 1) <= 2
        assert batches_for(store, 5) <= 7
        assert batches_for(store, 1_000) == 30


def test_other_questions_are_read_in_another_order(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [[("a", 1, 1)]])
    with store:
        assert newest_first(store, Query(mode="history"), 1) is None
        assert newest_first(store, Query(filters=(HOT,)), 1) is None
        assert newest_first(store, Query(mode="history", filters=(Filter("v", "=", 1),)), 1) is None
        with pytest.raises(statestore.NotFoundError, match="COLUMN_NOT_FOUND"):
            newest_first(store, Query(mode="history", columns=("x",), filters=(HOT,)), 1)


# The commits that wrote a key, also after compaction


KEYS = ["a", "b", "c", "", "é"]
START = 1_714_550_000_000


def of_key(item: str, shop: int) -> tuple[Filter, ...]:
    return parse_filters([("item", "=", item), ("shop", "=", shop)])


@pytest.mark.quick("0")
@pytest.mark.parametrize("seed", range(4))
def test_writers_are_all_commits_that_put_or_deleted_the_key(tmp_path: Path, seed: int) -> None:
    made = random.Random(seed)
    catalog = statestore.connect(tmp_path / "own")
    store = catalog.create_store("prices", key={"item": "string", "shop": "int"}, value={"price": "double"})
    wrote: dict[tuple[str, int], set[int]] = {(key, shop): set() for key in KEYS for shop in (1, 2)}
    for number in range(24):
        touched = made.sample(sorted(wrote), made.randrange(4))
        for key in touched:
            # Few moments, so that rows replace each other, and all rows of a commit may be gone.
            moment = START + 1000 * (number // 6 + made.randrange(3))
            if made.random() < 0.4:
                store.delete(key, timestamp=moment)
            else:
                store.put(key, made.random(), timestamp=moment)
        store.put(("other", 1), float(number), timestamp=START + 10_000)
        version = store.commit()
        for key in touched:
            wrote[key].add(version)
        if made.random() < 0.2:
            store.compact(full=made.random() < 0.5)
        if number == 16:
            store.expire(before=START + 1000)
        if number % 3 < 2:
            continue
        table = statestore.inspect(tmp_path / "own").open("prices")
        first, _ = table.kept_versions()
        half = (first + version) // 2
        for (name, shop), versions in wrote.items():
            found = table.writers(Query(mode="history", filters=of_key(name, shop)))
            assert found == sorted(each for each in versions if each >= first), (number, name, shop)
            found = table.writers(Query(mode="history", filters=of_key(name, shop), version=half))
            assert found == sorted(each for each in versions if first <= each <= half), (number, name, shop)
    store.close()


def test_other_filters_are_no_keys(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    with catalog.create_store("prices", key={"item": "string", "shop": "int"}, value={"price": "double"}) as store:
        store.put(("a", 1), 1.0, timestamp=START)
        store.commit()
    table = statestore.inspect(tmp_path / "own").open("prices")
    assert table.writers(Query(mode="history", filters=parse_filters([("item", "=", "a")]))) is None
    assert table.writers(Query(mode="history")) is None
    more = parse_filters([("item", "=", "a"), ("shop", "in", (1, 2, 3))])
    assert table.writers(Query(mode="history", filters=more)) == [1]
