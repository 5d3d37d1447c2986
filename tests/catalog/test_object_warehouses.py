"""Stores in an object store: what a put that was lost on the way does, what is local, what dropping leaves."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from support.object_stores.doubles import memory_location

import statestore
from statestore.catalog.catalog import Catalog, connect
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.reads import segment_files
from statestore.catalog.upkeep.store_objects import check_create_only
from statestore.catalog.warehouse import inspect
from statestore.formats.errors import (
    CommitUnknownError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from statestore.formats.places import object_clients
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.places.object_clients import object_client, with_options

KEY, VALUE = {"item": "string"}, {"price": "double"}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    monkeypatch.setattr(object_clients, "PAUSES", (0.0,))


@pytest.fixture
def location() -> Location:
    return memory_location()


@pytest.fixture
def store(location: Location) -> Any:
    return made(location)


def made(location: Location) -> Any:
    return Catalog(location).create_store("prices", key=KEY, value=VALUE)


def writes(store: Any) -> int:
    operations = store.table.files().log.newest().versions.operation
    return int(operations.count("write"))


class Puts:
    """Puts of log entries that fail for a while, before or after they were carried out."""

    def __init__(self, fail: int, carried_out: Callable[[int], bool]) -> None:
        self.left = fail
        self.carried_out = carried_out
        self.held: list[Callable[[], Any]] = []
        self._put = obstore.put

    def __call__(self, store: Any, path: str, data: Any, **options: Any) -> Any:
        if "/log/" not in path or not self.left:
            return self._put(store, path, data, **options)
        self.left -= 1
        data = bytes(data)
        if self.carried_out(self.left):
            self._put(store, path, data, **options)
        else:
            self.held.append(lambda: self._put(store, path, data, **options))
        raise GenericError("connection reset by peer")


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_put_without_an_answer_is_one_commit(store: Any, monkeypatch: pytest.MonkeyPatch, carried_out: bool) -> None:
    monkeypatch.setattr(obstore, "put", Puts(1, lambda left: carried_out))
    store.put("curry", 8.0, timestamp=1_000)
    assert store.commit() == 1
    assert writes(store) == 1


def test_a_commit_of_unknown_outcome_is_repeated_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All attempts fail, none is known to be there; the next call of commit makes it."""
    monkeypatch.setattr(obstore, "put", Puts(3, lambda left: False))
    store.put("curry", 8.0, timestamp=1_000)
    with pytest.raises(CommitUnknownError, match=r"COMMIT_UNKNOWN.*did not answer") as caught:
        store.commit()
    assert not store.was_committed(caught.value.commit)
    assert store.commit() == 1
    assert writes(store) == 1


def test_a_put_that_arrives_late_is_recognised(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of the first call is carried out while the second call is on its way: one commit, not two."""
    puts = Puts(3, lambda left: False)
    monkeypatch.setattr(obstore, "put", puts)
    store.put("curry", 8.0, timestamp=1_000)
    with pytest.raises(CommitUnknownError):
        store.commit()
    put = puts._put

    def late(other: Any, path: str, data: Any, **options: Any) -> Any:
        if "/log/" in path and puts.held:
            puts.held.pop(0)()
            puts.held.clear()
        return put(other, path, data, **options)

    monkeypatch.setattr(obstore, "put", late)
    assert store.commit() == 1
    assert writes(store) == 1
    assert store.history().read_all().num_rows == 1


def test_exists_may_be_said_of_nothing(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 answers a conflict while two puts of a name are under way, and obstore takes it for an existing object."""
    put, left = obstore.put, [2]

    def conflicting(other: Any, path: str, data: Any, **options: Any) -> Any:
        if "/log/" in path and left[0]:
            left[0] -= 1
            raise AlreadyExistsError("409 ConditionalRequestConflict")
        return put(other, path, data, **options)

    monkeypatch.setattr(obstore, "put", conflicting)
    store.put("curry", 8.0, timestamp=1_000)
    assert store.commit() == 1


def test_puts_wait_on_this_machine(
    location: Location, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine does not see them, and does not take them over; this one does."""
    store.put("curry", 8.0, timestamp=1_000)
    store.close()
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "another machine"))
    with Catalog(location).open_store("prices") as other:
        assert other.commit() == 0
        assert other.get("curry") is None
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    with Catalog(location).open_store("prices") as again:
        assert again.commit() == 1
        assert again.get("curry").value == 8.0


def test_a_log_that_is_being_dropped_is_not_damaged(location: Location, store: Any) -> None:
    """Its entries go in any order, after the description."""
    for version in range(1, 5):
        store.put("curry", 8.0, timestamp=1_000 * version)
        store.commit()
    table = inspect(location.uri).table("prices")
    storage = ObjectStorage(location.at("prices"))
    storage.delete(entry_name(2))
    segment_files._shared.clear()  # of which another process knows nothing
    with pytest.raises(CorruptError, match="LOG_CORRUPT"):
        table.scan()
    storage.delete(STORE_FILE)
    segment_files._shared.clear()
    for read in (table.scan, table.history, table.versions):
        with pytest.raises(NotFoundError, match="STORE_REPLACED"):
            read()


def test_a_late_write_of_a_dropped_store_meets_no_other_one(location: Location, store: Any) -> None:
    store.put("curry", 8.0, timestamp=1_000)
    store.commit()
    stale = ObjectStorage(location.at("prices"))
    Catalog(location).drop_store("prices")
    assert Catalog(location).stores() == []
    with made(location) as other:
        stale.create("log/00000000000000000003.json", b"late")
        for version in range(1, 5):
            other.put("naan", 2.0, timestamp=1_000 * version)
            assert other.commit() == version
    with Catalog(location).open_store("prices") as again:
        assert [row["item"] for row in again.scan().read_all().to_pylist()] == ["naan"]
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        store.scan().read_all()
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        store.put("dal", 1.0, timestamp=2_000)
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        store.commit()


def test_a_store_that_overwrites_is_refused(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *a, **options: put(*a, **{**options, "mode": "overwrite"}))
    with pytest.raises(UnsupportedError, match=r"NO_CREATE_ONLY_PUT.*If-None-Match"):
        check_create_only(ObjectStorage(location))


def test_a_store_that_keeps_its_promise_is_asked_once(location: Location) -> None:
    check_create_only(ObjectStorage(location))
    check_create_only(ObjectStorage(location))
    assert ObjectStorage(location).read("warehouse.json")


SECRETS = ("hush-key", "hush-secret", "hush-token", "aHVzaC1zZWNyZXQ")


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/wh?access_key=hush-key&secret_key=hush-secret&session_token=hush-token",
        "s3://hush-key:hush-secret@bucket/wh",
        "az://bucket/wh?account_name=a&account_key=aHVzaC1zZWNyZXQ=",
    ],
)
def test_credentials_are_not_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    location = parse_location(text)
    catalog = Catalog(location)
    storage = catalog.object_storage("prices")
    shown = [repr(catalog), str(location), repr(location), str(storage), repr(storage), repr(object_client(location))]

    def refuse(*_: Any, **__: Any) -> None:
        raise GenericError("no connection")

    for name in ("get", "put", "head", "list", "list_with_delimiter", "delete"):
        monkeypatch.setattr(obstore, name, refuse)
    for call in (lambda: connect(text), catalog.stores, lambda: storage.read("a"), lambda: storage.list("")):
        with pytest.raises(StorageError, match="REQUEST_FAILED") as caught:
            call()
        shown.append(str(caught.value))
    assert not [each for each in shown if any(secret in each for secret in SECRETS)]
    assert pickle.loads(pickle.dumps(storage)) == ObjectStorage(storage.location)


def test_options_are_those_of_both_clients() -> None:
    given = {"aws_access_key_id": "k", "secret_access_key": "s", "endpoint": "http://127.0.0.1:9", "region": "r"}
    found = with_options(parse_location("s3://bucket/wh"), given)
    assert found.options == "access_key=k&secret_key=s&scheme=http&endpoint_override=127.0.0.1%3A9&region=r"
    assert object_client(found).store.config["endpoint"] == "http://127.0.0.1:9"


def test_unknown_options_are_refused() -> None:
    location = with_options(parse_location("s3://bucket/wh"), {"nonsense": "hush-secret"})
    with pytest.raises(InvalidInputError, match="INVALID_LOCATION") as caught:
        object_client(location)
    assert "hush-secret" not in str(caught.value)


def test_options_of_object_stores_are_for_object_stores(tmp_path: Path) -> None:
    for option in ({"options": {"region": "r"}}, {"local": tmp_path}, {"cache": tmp_path}):
        with pytest.raises(InvalidInputError, match="INVALID_OPTION"):
            statestore.connect(tmp_path / "warehouse", **option)
    assert list(tmp_path.iterdir()) == []


def test_vacuum_keeps_what_a_commit_may_name(store: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"INVALID_DURATION.*24 hours"):
        store.vacuum(older_than="1 hour")
    assert store.vacuum(older_than="1 hour", dry_run=True) == []
    assert store.vacuum(older_than="2 days") == []
