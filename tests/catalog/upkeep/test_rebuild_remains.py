"""Vacuum finds whatever rebuilds in an object store left: killed ones, failed ones, and tasks that outlived them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from support.parameters import mostly_slow
from support.places import vacuumed
from support.stores.attempted_tasks import AttemptedTasks
from support.stores.killed_requests import Killed, requests_until
from support.stores.live_places import machines
from support.stores.rebuilt_stores import COLUMNS, Machines, few_rows_are_worth_a_task, names_in, rebuild_and_die, rows

import statestore
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.log_names import REPLACEMENT
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.store_spec import FOLDER
from statestore.catalog.upkeep import store_objects
from statestore.formats.errors import ConflictError


@pytest.fixture(autouse=True)
def tasks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows_are_worth_a_task(monkeypatch)


def filled(folder: Path) -> Machines:
    """Two machines' handles of one warehouse, with a store of three rows."""
    first, second = machines(MemoryStore(), folder)
    with first.create_store("s", **COLUMNS) as store:
        for number in range(3):
            store.put(f"k{number}", number, 1_000)
            store.commit()
    return first, second


@pytest.fixture
def both(tmp_path: Path) -> Machines:
    return filled(tmp_path)


def twice() -> AttemptedTasks:
    """Tasks that run twice: the files of the second attempts are nobody's."""
    return AttemptedTasks(parallelism=3, attempts=2)


ROWS = {"k0": 0, "k1": 1, "k2": 2}


def own_folder(catalog: statestore.Catalog) -> str:
    """The folder of the newest store; empty for one that was never rebuilt."""
    storage = catalog.locate("s")[0]
    assert isinstance(storage, ObjectStorage)
    last = storage.location.path.rpartition("/")[2]
    return last if FOLDER.fullmatch(last) else ""


def vacuum(catalog: statestore.Catalog) -> list[str]:
    with catalog.open_store("s", auto_compact=False) as store:
        return vacuumed(store)


def needless(catalog: statestore.Catalog) -> list[str]:
    """The objects below the store's name, which was rebuilt once at most, that neither the newest store has nor the log
    before it.
    """
    own = own_folder(catalog)
    return [*(n for n in names_in(catalog) if _is_needless(n, own)), *(n for n, _ in catalog.verify("s").unreferenced)]


def _is_needless(name: str, own: str) -> bool:
    folder = name.partition("/")[0]
    if FOLDER.fullmatch(folder):
        return folder != own
    intent = REPLACEMENT.fullmatch(name)
    return (bool(own) and folder in ("segments", "staging")) or (intent is not None and intent[2] != own)


def kept(catalog: statestore.Catalog) -> list[str]:
    """The folders of stores below the store's name."""
    return sorted({name.partition("/")[0] for name in names_in(catalog) if FOLDER.fullmatch(name.partition("/")[0])})


@pytest.mark.slow
@pytest.mark.parametrize("part", mostly_slow(range(12), [7]))
def test_vacuum_removes_what_a_rebuild_left_that_died_before_any_request(tmp_path: Path, part: int) -> None:
    first, second = filled(tmp_path / "all")
    with requests_until(1_000_000) as made:
        second.rebuild("s", key_groups=9, spark=twice()).close()
    for number in itertools.count(part + 1, 12):
        first, second = filled(tmp_path / str(number))
        with requests_until(number), pytest.raises(Killed):
            second.rebuild("s", key_groups=9, spark=twice()).close()
            raise Killed
        vacuum(first)
        assert needless(first) == [], number
        assert vacuum(first) == [], number
        assert rows(first) == rows(second) == ROWS and first.verify("s").ok, number
        if number > len(made):
            break


def test_vacuum_removes_what_a_task_writes_after_the_rebuild_failed(
    both: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, made = StagingFolder._put, []

    def keeping(folder: StagingFolder, name: str, data: Any) -> None:
        made.append((folder.storage, name, bytes(data)))
        put(folder, name, data)

    def fail() -> None:
        raise RuntimeError("the cluster is gone")

    monkeypatch.setattr(StagingFolder, "_put", keeping)
    before = set(names_in(both[0]))
    with pytest.raises(RuntimeError, match="gone"):
        both[0].rebuild("s", spark=AttemptedTasks(parallelism=3, then=fail))
    assert set(names_in(both[0])) == before and made
    for storage, name, data in made:
        storage.create_many({name: data})
    late = set(names_in(both[0])) - before
    assert len(late) == len(made)
    assert set(vacuum(both[1])) == late
    assert set(names_in(both[0])) == before and rows(both[0]) == ROWS


def test_vacuum_leaves_a_rebuild_that_is_under_way(both: Machines) -> None:
    found: list[str] = []

    def vacuum_as_ever() -> None:
        with both[1].open_store("s", auto_compact=False) as store:
            assert store.vacuum() == store.vacuum(older_than="1 day") == []
            found.extend(item.name for item in store.vacuum(older_than=0, dry_run=True))

    with both[0].rebuild("s", key_groups=9, spark=AttemptedTasks(parallelism=3, then=vacuum_as_ever)) as store:
        assert store.spec.key_groups == 9
    folder = own_folder(both[1])
    assert any(name.startswith(f"{folder}/segments/") for name in found)
    assert f"{folder}/store.json" in found and any(REPLACEMENT.fullmatch(name) for name in found)
    assert rows(both[1]) == ROWS and both[1].verify("s").ok


def test_a_rebuild_that_vacuum_may_take_for_a_dead_one_is_not_published(
    both: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names_in(both[0])
    monkeypatch.setattr(store_objects, "MOST_SECONDS", -1)
    for session in (None, twice()):
        with pytest.raises(ConflictError, match="FILES_TOO_OLD"):
            both[0].rebuild("s", key_groups=9, spark=session)
    assert names_in(both[0]) == before and rows(both[1]) == ROWS


def test_vacuum_keeps_the_way_to_the_newest_of_many_stores(both: Machines) -> None:
    """The store has a folder since it followed a dropped one, and was rebuilt by processes that then died."""
    both[0].drop_store("s")
    with both[0].create_store("s", **COLUMNS) as store:
        for key, value in ROWS.items():
            store.put(key, value, 1_000)
        store.commit()
    before = both[0].open_store("s", read_only=True)
    late = f"segments/{'0' * 32}.arrow"
    both[0].object_storage("s").within("").create_many({late: b"of the dropped store"})
    rebuild_and_die(both[1], 8, 16, spark=twice())
    replaced = [name for name in names_in(both[0]) if "/segments/" in name and own_folder(both[0]) not in name]
    assert len(replaced) > 2
    assert set(vacuum(both[0])) == {*replaced, late}
    assert rows(both[0]) == rows(both[1]) == ROWS and both[1].locate("s")[1].key_groups == 16
    assert len(kept(both[0])) == 3
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        before.refresh()
    assert vacuum(both[1]) == []
    both[1].drop_store("s")
    assert all(name.startswith("dropped/") for name in names_in(both[0]))
