"""`get_many` returns for each key what `get` returns, in the order of the keys, in every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import statestore
from statestore.catalog.stores.versioned.versioned_reads import FEW_KEYS
from statestore.formats.errors import InvalidInputError, NotFoundError

KEYS = [f"k{number}" for number in range(60)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """A store of several segments, with late rows and deletes."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint", "t": "string"}) as made:
        random = np.random.default_rng(1)
        for commit in range(8):
            for _ in range(80):
                key = KEYS[int(random.zipf(1.4)) % len(KEYS)]
                value = None if random.random() < 0.1 else {"v": commit, "t": None if random.random() < 0.3 else "x"}
                made.put(key, value, commit * 100 - int(random.integers(0, 150)) + 200)
            made.commit()
            if commit == 4:
                made.compact(full=True)
        yield made


def test_it_is_get_of_each_key_at_every_time(store: Any) -> None:
    asked = [*KEYS[::-1], "none", KEYS[3], KEYS[3]]
    times = 1 + FEW_KEYS // len(asked)
    for moment in (None, *range(0, 1100, 37)):
        expected = [store.get(key, as_of=moment) for key in asked]
        assert store.get_many(asked, as_of=moment) == expected
        assert store.get_many(asked * times, as_of=moment) == expected * times, "many keys are looked up together"
    assert any(record is not None for record in store.get_many(asked, as_of=500))


def test_pending_puts_of_the_handle_are_seen(store: Any) -> None:
    store.put("k1", {"v": -1, "t": "pending"}, 2000)
    store.put("k2", None, 2000)
    store.put("new", {"v": -2, "t": None}, 10)
    for moment in (None, 5, 10, 500, 1999, 2000, 2001):
        asked = ["k2", "new", "k1", "k3"]
        assert store.get_many(asked, as_of=moment) == [store.get(key, as_of=moment) for key in asked]
    assert store.get_many(["k1", "k2"])[0].value == {"v": -1, "t": "pending"}


def test_keys_may_be_an_arrow_array_or_any_iterable(store: Any) -> None:
    expected = [store.get(key) for key in KEYS]
    assert store.get_many(pa.array(KEYS)) == expected
    assert store.get_many(pa.chunked_array([KEYS[:7], KEYS[7:]])) == expected
    assert store.get_many(iter(KEYS)) == expected == store.get_many(tuple({"k": key} for key in KEYS))
    assert store.get_many([]) == []


def test_a_single_key_is_refused(store: Any) -> None:
    for wrong in ("k1", b"k1", {"k": "k1"}, 7, None):
        with pytest.raises(InvalidInputError, match="WRONG_KEY"):
            store.get_many(wrong)


def test_errors_are_those_of_get(store: Any) -> None:
    for key, moment in ((7, None), (None, None), ("k1", "yesterday"), ("k1", 2**60)):
        with pytest.raises(InvalidInputError) as of_get:
            store.get(key, as_of=moment)
        with pytest.raises(InvalidInputError) as of_many:
            store.get_many(["k1", key], as_of=moment)
        assert (of_many.value.code, of_many.value.message) == (of_get.value.code, of_get.value.message)
    store.close()
    with pytest.raises(InvalidInputError, match="STORE_CLOSED"):
        store.get_many(["k1"])


def test_commits_of_others_are_seen_and_a_dropped_store_is_not_answered_for(store: Any, tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    assert store.get_many(["other"]) == [None]
    with catalog.open_store("s") as other:
        other.put("other", {"v": 1, "t": "o"}, 5000)
        other.commit()
    assert store.get_many(["other"])[0].value == {"v": 1, "t": "o"}
    catalog.drop_store("s")
    with pytest.raises(NotFoundError):
        store.get_many(["other"])


def test_retention_and_expiry_hide_what_get_hides(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}, history_retention=100) as made:
        for time, value in ((0, 1), (50, 2), (90, None), (300, 3)):
            made.put("a", value, time)
            made.put("b", value or 7, time)
        made.put("old", 1, 250)
        made.commit()
        for moment in (None, 0, 60, 95, 199, 200, 260, 300):
            assert made.get_many(["a", "b", "old"], as_of=moment) == [
                made.get(k, as_of=moment) for k in ("a", "b", "old")
            ]
        made.expire(before=270)
        for moment in (None, 100, 260, 280, 300):
            assert made.get_many(["a", "b", "old"], as_of=moment) == [
                made.get(k, as_of=moment) for k in ("a", "b", "old")
            ]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"a": "string", "n": "int"}, value={"v": "decimal(9,2)"}) as made:
        for number in range(30):
            made.put((f"x{number % 5}", number), number, 10 + number)
        made.commit()
        keys = [(f"x{number % 5}", number) for number in range(-2, 32)]
        array = pa.array([{"a": a, "n": n} for a, n in keys], pa.struct([("a", pa.string()), ("n", pa.int32())]))
        assert made.get_many(keys) == [made.get(key) for key in keys] == made.get_many(array)
        assert made.get_many(keys, as_of=20) == [made.get(key, as_of=20) for key in keys]


@pytest.mark.parametrize("options", [{"serde": "kafka", "history_retention": 1000}, {"kind": "key_value"}])
def test_live_stores_have_it_too(tmp_path: Path, options: dict[str, Any]) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}, **options) as made:
        for number in range(20):
            made.put(f"k{number % 7}", number, number)
        asked = [f"k{number}" for number in range(9, -1, -1)]
        assert made.get_many(asked) == [made.get(key) for key in asked]
        if "kind" not in options:
            assert made.get_many(asked, as_of=9) == [made.get(key, as_of=9) for key in asked]


def test_lookups_follow_many_commits(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}) as made:
        truth: dict[str, dict[int, int]] = {}
        random = np.random.default_rng(2)
        with catalog.open_store("s", read_only=True) as reader:
            for commit in range(60):
                for time in range(commit * 4, commit * 4 + 4):
                    key = f"k{random.integers(0, 12)}"
                    truth.setdefault(key, {})[time] = commit
                    made.put(key, commit, time)
                made.commit()
                if commit % 10 == 9:
                    for key, times in truth.items():
                        for moment in range(0, commit * 4 + 4, 17):
                            started = [time for time in times if time <= moment]
                            found = reader.get(key, as_of=moment)
                            assert (found and found.value) == (times[max(started)] if started else None)
                            assert made.get(key, as_of=moment) == found
