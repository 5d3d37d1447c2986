"""Imports into object stores: the store appears at the end, or never; what a killed import left is removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.command_line import run
from support.engines.imported import every_kind, made, one_operator, operator_engine
from support.engines.operator_engine import MadeState, OperatorStateAt
from support.keyed.keyed_backends import catalog_of, refused
from support.places import MEMORY, S3, below, in_places

import statestore
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.store_locations import storage_at
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.places.locations import parse_location

pytest_plugins = ["support.keyed.keyed_place_fixtures"]
PLACES = (MEMORY,)


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with operator_engine():
        yield


def counts(keys: list[Any]) -> MadeState:
    return made("count", "value", {"key": keys, "value": list(range(len(keys)))}, value=pa.int64())


def objects(place: str, name: str = "users") -> list[str]:
    return [item.name for item in storage_at(parse_location(below(place, name))).list("")]


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the source fail after some states were read."""
    read = OperatorStateAt.rows

    def rows(self: Any, part: Any, columns: Any, filters: Any) -> Any:
        yield from read(self, part, columns, filters)
        if self.state == "counter.sums":
            raise CorruptError(ErrorCode.FLINK_FILE, "a damaged file")

    monkeypatch.setattr(OperatorStateAt, "rows", rows)


@in_places(MEMORY, S3)
def test_a_store_appears_at_the_end(place: str, tmp_path: Path) -> None:
    catalog, seen = statestore.connect(place), []

    def progress(state: str, rows: int, most: int | None) -> None:
        seen.append(catalog.stores())

    source = one_operator(tmp_path, *every_kind())
    result = statestore.import_keyed(source, below(place, "users"), progress=progress)
    assert seen and not any(seen) and catalog.stores() == ["users"]
    assert result.path.startswith("s3://") and "?" not in result.path, "nothing secret is printed"
    with refused("STORE_EXISTS", "users"):
        statestore.import_keyed(source, below(place, "users"))
    with catalog.open_store("users") as store:
        assert store.retained() == [1] and store.vacuum(0, dry_run=True) == []
    catalog.drop_store("users")
    assert statestore.import_keyed(source, below(place, "users"), tasks=1).version == 1
    assert catalog.verify("users").ok


def test_an_import_that_fails_leaves_nothing(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch)
    with refused("FLINK_FILE", "a damaged file"):
        statestore.import_keyed(one_operator(tmp_path, *every_kind()), below(place, "users"))
    assert objects(place) == [] and statestore.connect(place).stores() == []


def test_a_store_made_meanwhile_is_not_changed(place: str, tmp_path: Path) -> None:
    catalog = statestore.connect(place)

    def progress(state: str, rows: int, most: int | None) -> None:
        catalog.create_store("users", "keyed", key={"k": "int"}).close()

    with refused("STORE_EXISTS", "users"):
        statestore.import_keyed(one_operator(tmp_path, counts(["a"])), below(place, "users"), progress=progress)
    assert catalog.open_store("users").spec.folder == "" and catalog.verify("users").ok
    assert sorted(objects(place)) == ["log/00000000000000000000.json", "store.json"]


def test_the_remains_of_a_killed_import_are_removed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the vacuum of the next store of that name, after a day."""
    with monkeypatch.context() as patch:
        failing(patch)
        patch.setattr(ObjectStorage, "delete_many", lambda *given: None)
        with refused("FLINK_FILE"):
            statestore.import_keyed(one_operator(tmp_path / "first", *every_kind()), below(place, "users"))
    left = objects(place)
    assert left
    statestore.import_keyed(one_operator(tmp_path / "second", counts(["a"])), below(place, "users"))
    store = statestore.connect(place).open_store("users")
    assert sorted(each.name for each in store.vacuum(0, dry_run=True)) == sorted(left)
    assert store.vacuum("1 day") == []
    now = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + 25 * 3_600_000_000_000)
        assert sorted(each.name for each in store.vacuum("1 day")) == sorted(left)
    assert not set(left) & set(objects(place)) and catalog_of(store).verify("users").ok


def test_the_command_imports_into_an_object_store(place: str, tmp_path: Path) -> None:
    found = run("import", one_operator(tmp_path, *every_kind()), below(place, "users"), "--json")
    assert found.code == 0, found.err
    assert statestore.inspect(place).table("users.count").scan().read_all().num_rows == 40
