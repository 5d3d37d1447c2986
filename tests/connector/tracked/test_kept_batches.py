"""Emitted records as a stream of their own, without Spark: the versions that it reads, and its errors about lost
ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import catalog_of, refused
from support.keyed.tracked_cases import count_and_pair
from support.keyed.tracked_tasks import Tracking
from support.places import DIRECTORY, MEMORY, in_places

from statestore.connector.tracked.kept_batches import EmittedReader, Offset
from statestore.tracked import StateSpec

pytest_plugins = ["support.keyed.keyed_place_fixtures"]
PLACES = (DIRECTORY, pytest.param(MEMORY, marks=pytest.mark.slow))
Record = tuple[str, int]


@pytest.fixture
def tracking(place: str) -> Tracking:
    return made(place)


def made(root: str | Path) -> Tracking:
    return Tracking(root, StateSpec.function(count_and_pair), output={"word": "string", "total": "bigint"})


def reader(tracking: Tracking) -> Any:
    return EmittedReader(tracking.place)


def read(tracking: Tracking, start: Offset, end: Offset) -> list[Record]:
    """Read as Spark does after a restart: offsets are JSON in its checkpoint."""
    start, end = json.loads(json.dumps([start, end]))
    found = reader(tracking)
    batches = [batch for part in found.partitions(start, end) for batch in found.read(part)]
    return [(row["word"], row["total"]) for batch in batches for row in batch.to_pylist()]


def test_each_record_is_told_once(tracking: Tracking) -> None:
    """Micro-batches of one version, of none, of several with empty ones between, from several tasks."""
    offset = reader(tracking).initialOffset()
    assert read(tracking, offset, reader(tracking).latestOffset()) == []
    emitted: list[list[Record]] = []
    for words in (["a", "b"], [], ["a"], [], [], ["b", "c", "a"]):
        emitted.append(tracking.batch([(word, 1) for word in words], tasks=1 + len(words)))
        if len(emitted) in (1, 2, 5):
            latest = reader(tracking).latestOffset()
            expected = [record for each in emitted[offset["version"] : len(emitted)] for record in each]
            assert sorted(read(tracking, offset, latest)) == sorted(expected)
            assert read(tracking, latest, latest) == []
            offset = latest
    assert sorted(read(tracking, offset, reader(tracking).latestOffset())) == sorted(emitted[-1])


def test_initial_states_are_no_records(tracking: Tracking) -> None:
    tracking.put_initial([("a", 5)])
    start = reader(tracking).initialOffset()
    assert read(tracking, start, reader(tracking).latestOffset()) == []
    tracking.batch([("a", 1)])
    assert read(tracking, start, reader(tracking).latestOffset()) == [("a", 6)]


def test_it_begins_with_what_is_kept(tracking: Tracking) -> None:
    """A batch that was discarded before it was read is missing, unless it emitted nothing."""
    start = reader(tracking).initialOffset()
    for words in (["a"], [], ["a"], ["a"]):
        tracking.batch([(word, 1) for word in words])
    behind = {**start, "version": 1}
    tracking.store.discard(2)
    assert read(tracking, start, reader(tracking).latestOffset()) == [("a", 1), ("a", 2), ("a", 3)]
    tracking.store.discard(1)
    tracking.store.vacuum(0, dry_run=True)
    assert read(tracking, behind, reader(tracking).latestOffset()) == [("a", 2), ("a", 3)]
    assert read(tracking, reader(tracking).initialOffset(), reader(tracking).latestOffset()) == [("a", 2), ("a", 3)]
    with refused("RECORDS_NOT_KEPT", "version 1 ", "retained"):
        reader(tracking).partitions(start, reader(tracking).latestOffset())


def test_another_store_in_its_place(tracking: Tracking, place: str) -> None:
    tracking.batch([("a", 1)])
    offset = reader(tracking).latestOffset()
    catalog_of(tracking.store).drop_store("t")
    other = made(place)
    for _ in range(2):
        other.batch([("a", 1)])
    with refused("STORE_REPLACED", str(other.place), "new checkpoint"):
        reader(other).partitions(offset, reader(other).latestOffset())


@in_places(DIRECTORY)
def test_an_older_copy_of_the_store(tracking: Tracking, tmp_path: Path) -> None:
    tracking.batch([("a", 1)])
    shutil.copytree(tracking.place.path, tmp_path / "copy")
    tracking.batch([("a", 1)])
    offset = reader(tracking).latestOffset()
    shutil.rmtree(tracking.place.path)
    (tmp_path / "copy").rename(tracking.place.path)
    with refused("STORE_REPLACED", "up to version 2"):
        reader(tracking).partitions(offset, reader(tracking).latestOffset())
