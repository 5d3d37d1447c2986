"""Drops and creations of stores of one name in an object store, whatever comes between any two of their requests.

A delete of ``store.json`` whose answer was lost may be carried out at any moment after it was sent, so also when the
drop was repeated and a new store has the name. Each test makes one call, once for each of its requests: just before
that request something happens. What is there afterwards is a store with its rows, or none.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore
from support.object_stores.doubles import location_in
from support.parameters import mostly_slow

import statestore
from statestore.catalog.catalog import Catalog
from statestore.catalog.warehouse import open_warehouse

REQUESTS = ("put", "get", "head", "list", "list_with_delimiter", "delete")
Event = Callable[["Name"], object]


class Died(BaseException):
    """The process ends."""


class Name:
    """The name of a store, below which a store may have been dropped already, and what is known of it."""

    def __init__(self, folder: Path, dropped: bool) -> None:
        self.bucket = MemoryStore()
        self.location = location_in(self.bucket)
        self._folder = folder
        self.machine = "mine"
        self.created: list[str] = []  # what the creations have answered, by the row of each store
        self.removed: set[str] = set()  # stores of which a drop has answered
        if dropped:
            self.create("first")
            self.drop()

    def catalog(self) -> Catalog:
        return Catalog(self.location, local=str(self._folder / self.machine), cache=str(self._folder / "cache"))

    def create(self, row: str) -> None:
        with self.catalog().create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
            self.created.append(row)
            store.put(row, 1, timestamp=1_000)
            store.commit()

    def drop(self) -> None:
        rows = self.rows()
        self.catalog().drop_store("s")
        self.removed |= set(rows or ())

    def rows(self) -> list[str] | None:
        """Return the rows of the store; None if there is none. The catalog lists it in either case."""
        try:
            store = self.catalog().open_store("s", read_only=True)
        except statestore.NotFoundError as error:
            assert error.code == "STORE_NOT_FOUND"
            assert self.catalog().stores() == []
            return None
        with store:
            assert self.catalog().stores() == ["s"]
            return [row["k"] for row in store.scan().read_all().to_pylist()]

    def late_delete(self) -> None:
        """Remove the description, as a delete does that was sent for an older store: there has to have been one."""
        if not obstore.list(self.bucket, "warehouse/s/dropped").collect():
            return
        with suppress(FileNotFoundError):
            obstore.delete(self.bucket, "warehouse/s/store.json")

    def check(self) -> None:
        """Check the store, and that the name has a whole life after whatever happened to it."""
        rows = self.rows()
        if rows is not None:
            assert not self.removed & set(rows)
            with pytest.raises(statestore.InvalidInputError, match="STORE_EXISTS"):
                self.create("no")
            with self.catalog().open_store("s", auto_compact=False) as store:
                store.put("more", 2, timestamp=2_000)
                store.commit()
                found = [row["k"] for row in store.scan().read_all().to_pylist()]
            assert sorted(found) == sorted([*rows, "more"])
            self.drop()
        self.create("next")
        self.late_delete()
        assert self.rows() == ["next"]


@contextmanager
def before_request(number: int, event: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let something happen just before a request; yield the numbers of the requests up to it.

    The request may be that of a thread for which nobody waits, so what happens is waited for at the end.
    """
    seen: list[int] = []
    ended = threading.Event()
    with monkeypatch.context() as patch:

        def after_event(send: Callable[..., Any]) -> Callable[..., Any]:
            def request(*given: Any, **options: Any) -> Any:
                if len(seen) <= number:
                    seen.append(len(seen))
                    if len(seen) == number + 1:
                        seen.append(-1)
                        try:
                            event()
                        finally:
                            ended.set()
                return send(*given, **options)

            return request

        for name in REQUESTS:
            patch.setattr(obstore, name, after_event(getattr(obstore, name)))
        try:
            yield seen
        finally:
            assert -1 not in seen or ended.wait(60)


def at_each_request(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Event,
    event: Event,
    prepare: Event = lambda name: None,
    dropped: bool = True,
    every: int = 1,
) -> Iterator[tuple[Name, BaseException | None]]:
    """Yield the name after the call, and what the call has raised, for each request before which the event comes, or
    for each fifth of them where ``every`` is 5."""
    for number in itertools.count(step=every):
        name, raised = Name(folder / str(number), dropped), None
        prepare(name)

        def elsewhere(name: Name = name) -> None:
            name.machine = "theirs"
            event(name)
            name.machine = "mine"

        with before_request(number, elsewhere, monkeypatch) as seen:
            try:
                call(name)
            except (statestore.StateStoreError, Died) as error:
                raised = error
        if -1 not in seen:
            assert number > 3
            return
        yield name, raised


def die(name: Name) -> None:
    raise Died


def create_old(name: Name) -> None:
    name.create("old")


def create_mine(name: Name) -> None:
    name.create("mine")


def create_other(name: Name) -> None:
    with suppress(statestore.InvalidInputError):
        name.create("other")


def create_then_late_delete(name: Name) -> None:
    create_other(name)
    name.late_delete()


def late_delete_then_create(name: Name) -> None:
    name.late_delete()
    create_other(name)


def replace_old(name: Name) -> None:
    name.drop()
    name.create("other")


CALLS: dict[str, tuple[Event, Event]] = {
    "create": (create_mine, lambda name: None),
    "open": (Name.rows, create_old),
    "drop": (Name.drop, create_old),
}


@pytest.mark.parametrize(("call", "every"), mostly_slow([("drop", 5), *((call, 1) for call in CALLS)], [("drop", 5)]))
def test_a_late_delete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, every: int) -> None:
    made, prepare = CALLS[call]
    for name, raised in at_each_request(tmp_path, monkeypatch, made, Name.late_delete, prepare, every=every):
        assert raised is None
        assert name.rows() == {"create": ["mine"], "open": ["old"], "drop": None}[call]
        name.late_delete()
        assert name.rows() == {"create": ["mine"], "open": ["old"], "drop": None}[call]
        name.check()


DEATHS = [("create", False, True, 5), ("drop", False, False, 5)]


@pytest.mark.parametrize(
    ("call", "dropped", "late", "every"),
    mostly_slow([*DEATHS, *product(["create", "drop"], [False, True], [False, True], [1])], DEATHS),
)
def test_a_process_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, dropped: bool, late: bool, every: int
) -> None:

    def create(name: Name) -> None:
        name.catalog().create_store("s", key={"k": "string"}, value={"v": "bigint"}).close()

    made, prepare = (create, lambda name: None) if call == "create" else CALLS[call]
    for name, raised in at_each_request(tmp_path, monkeypatch, made, die, prepare, dropped, every):
        assert raised is None or isinstance(raised, Died)  # a listing that was begun early is not always waited for
        if late:
            name.late_delete()
        name.machine = "mine"
        assert name.rows() in {"create": ([], None), "drop": (["old"], None)}[call]
        name.check()


CREATIONS = [create_other, create_then_late_delete, late_delete_then_create]


@pytest.mark.parametrize(
    ("dropped", "event", "every"),
    mostly_slow(
        [(False, create_then_late_delete, 5), *product([False, True], CREATIONS, [1])],
        [(False, create_then_late_delete, 5)],
    ),
)
def test_two_creations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: bool, event: Event, every: int
) -> None:
    for name, raised in at_each_request(tmp_path, monkeypatch, create_mine, event, dropped=dropped, every=every):
        assert raised is None or "STORE_EXISTS" in str(raised)
        created = [row for row in name.created if row != "first"]
        # Two first creations agree on one identity, so that both open the same store.
        assert len(created) == 1 or not dropped
        assert sorted(name.rows() or ()) == sorted(created)
        name.check()


@pytest.mark.parametrize(("dropped", "every"), mostly_slow([(False, 5), (False, 1), (True, 1)], [(False, 5)]))
def test_a_whole_life_of_a_store_during_the_creation_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: bool, every: int
) -> None:
    def life(name: Name) -> None:
        with suppress(statestore.InvalidInputError):
            name.create("other")
            name.drop()

    for name, raised in at_each_request(tmp_path, monkeypatch, create_mine, life, dropped=dropped, every=every):
        assert raised is None or "STORE_EXISTS" in str(raised)
        assert name.rows() == (["mine"] if raised is None else None)
        name.late_delete()
        assert name.rows() == (["mine"] if raised is None else None)
        name.check()


@pytest.mark.parametrize(
    ("dropped", "event", "every"),
    mostly_slow(
        [(False, replace_old, 5), *product([False, True], [Name.drop, replace_old], [1])], [(False, replace_old, 5)]
    ),
)
def test_two_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: bool, event: Event, every: int) -> None:
    def drop_unless_new(name: Name) -> None:
        name.catalog().drop_store("s")

    for name, raised in at_each_request(tmp_path, monkeypatch, drop_unless_new, event, create_old, dropped, every):
        assert raised is None or any(code in str(raised) for code in ("STORE_REPLACED", "STORE_NOT_FOUND"))
        rows = name.rows()
        assert rows in (None, ["other"])
        name.check()


def test_the_store_is_found_by_every_door(tmp_path: Path) -> None:
    name = Name(tmp_path, dropped=True)
    name.create("mine")
    name.late_delete()
    for uri in (name.location.uri, name.location.at("s").uri):
        warehouse = open_warehouse(uri)
        assert list(warehouse.stores()) == ["s"], uri
        assert statestore.attach(uri).sql("SELECT k FROM s").fetchall() == [("mine",)]
    with name.catalog().open_store("s") as store:
        store.put("more", 1, timestamp=2_000)
        store.commit()
        store.compact(full=True)
        assert store.vacuum() == []
    verified = name.catalog().verify("s")
    assert verified.ok and not any("description" in item for item, _ in verified.unreferenced)
    with pytest.raises(statestore.InvalidInputError, match="STORE_EXISTS"):
        name.create("no")
    name.catalog().rebuild("s", "key_value").close()
    assert name.catalog().stores() == ["s"]
    name.drop()
    assert name.rows() is None
    assert {item["path"].split("/")[2] for item in obstore.list(name.bucket, "warehouse/s").collect()} == {"dropped"}


def test_two_stores_with_copies_are_not_chosen_from(tmp_path: Path) -> None:
    """A process that died while it created a store in the place of one whose description was removed."""
    name = Name(tmp_path, dropped=True)
    name.create("mine")
    (copied,) = (
        item["path"] for item in obstore.list(name.bucket, "warehouse/s").collect() if "description" in item["path"]
    )
    data = bytes(obstore.get(name.bucket, copied).bytes())
    folder = copied.split("/")[2]
    other = data.replace(folder.encode(), b"0" * 32)
    other = other.replace(name.catalog().locate("s")[1].store_id.encode(), b"1" * 32)
    obstore.put(name.bucket, f"warehouse/s/{'0' * 32}/description.json", other)
    assert name.rows() == ["mine"]
    name.late_delete()
    with pytest.raises(statestore.CorruptError, match="STORE_CORRUPT"):
        name.rows()
