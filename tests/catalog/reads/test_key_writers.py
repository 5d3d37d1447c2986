"""The commits that wrote a key are those of a model, also after compaction, and in an object store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import statestore
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter, parse_filters

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
