"""A rebuild in an object store that dies before any request, or is overtaken, loses no store and no commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore
from support.parameters import mostly_slow
from support.places import vacuumed
from support.stores.attempted_tasks import AttemptedTasks
from support.stores.live_places import machines

import statestore
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.entries import encode_entry, entry_name, read_entry
from statestore.catalog.log.log_names import REPLACEMENT, replacement_name
from statestore.catalog.log.storage import Guard, UnsettledError
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.store_spec import FOLDER
from statestore.catalog.upkeep import compaction_rules, store_objects
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.ranges import task_runs
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, StorageError

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
Machines = tuple[statestore.Catalog, statestore.Catalog]


def rows(catalog: statestore.Catalog) -> dict[str, int]:
    """The values of all keys of store ``s``."""
    with catalog.open_store("s", read_only=True) as store:
        table = store.scan(columns=["k", "v"]).read_all()
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def names_in(catalog: statestore.Catalog) -> list[str]:
    """The names of all objects below the name of store ``s``."""
    return [item.name for item in catalog.object_storage("s").list("")]


def rebuild_and_die(catalog: statestore.Catalog, *key_groups: int, **given: Any) -> None:
    """Rebuild store ``s`` several times, each time by a process that dies before it removes the replaced files."""

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_objects, "_remove", die)
        for groups in key_groups:
            with pytest.raises(Killed):
                catalog.rebuild("s", key_groups=groups, **given)


REQUESTS = ("put", "get", "head", "list", "delete")


class Killed(BaseException):
    """The end of the process: no error handler may do anything after it."""


@contextmanager
def requests_until(number: int) -> Iterator[list[str]]:
    """Die before the request with this number, from 1; yield the requests that were made."""
    made: list[str] = []

    def counted(name: str, send: Callable[..., Any]) -> Callable[..., Any]:
        def sending(*given: Any, **named: Any) -> Any:
            if len(made) + 1 >= number:
                raise Killed
            made.append(name)
            return send(*given, **named)

        return sending

    with pytest.MonkeyPatch.context() as patch:
        for name in REQUESTS:
            patch.setattr(obstore, name, counted(name, getattr(obstore, name)))
        yield made


WINDOW: dict[str, Any] = {"retention": "1 hour", "window_size": 10}
TASKS = AttemptedTasks(parallelism=3, attempts=2)
"""Each task runs twice, and the files of the second attempt are nobody's."""
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "versioned": ({}, {"kind": "key_value"}),
    "in tasks": ({}, {"kind": "versioned", "history_retention": "1 day", "spark": TASKS}),
    "key_value": ({"kind": "key_value"}, {"serde": "kafka"}),
    "window": (
        {"kind": "window", "retention": "1 hour", "window_size": 10},
        {"retention": "2 hours", "window_size": 10},
    ),
}


@pytest.fixture(autouse=True)
def tasks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take `AttemptedTasks` for a session, and a store of two rows for worth several tasks."""
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=1))


@pytest.fixture
def both(tmp_path: Path) -> Machines:
    first, second = machines(MemoryStore(), tmp_path)
    return first, second


def put(store: Any, key: str, value: int, time: int = 1_000) -> None:
    if store.spec.kind == "key_value":
        store.put(key, value)
    else:
        store.put(key, value, time)


def fill(catalog: statestore.Catalog, kind: str, commits: int = 3) -> dict[str, int]:
    with catalog.create_store("s", **COLUMNS, **KINDS[kind][0]) as store:
        for number in range(commits):
            put(store, f"k{number}", number)
            store.commit()
    return {f"k{number}": number for number in range(commits)}


def remains_of(catalog: statestore.Catalog) -> list[str]:
    """The objects of rebuilds that did not replace the store."""
    return [name for name in names_in(catalog) if not name.startswith(("log/0", "segments/", "store.json"))]


def requests_of(kind: str, folder: Path) -> int:
    first, second = machines(MemoryStore(), folder)
    fill(first, kind)
    with requests_until(1_000_000) as made:
        second.rebuild("s", **KINDS[kind][1]).close()
    return len(made)


@pytest.mark.quick("versioned")
@pytest.mark.parametrize("kind", KINDS)
def test_a_rebuilt_store_is_there_for_everybody(both: Machines, kind: str) -> None:
    expected = fill(both[0], kind)
    with both[1].open_store("s", read_only=True) as before:
        with both[0].rebuild("s", **KINDS[kind][1]) as store:
            put(store, "new", 7)
            store.commit()
        for ask in (before.refresh, lambda: before.scan().read_all()):
            with pytest.raises(NotFoundError, match="STORE_REPLACED"):
                ask()
    expected["new"] = 7
    assert [rows(catalog) for catalog in both] == [expected] * 2
    with both[1].rebuild("s", **KINDS[kind][1], key_groups=64) as again:  # one after the other
        assert again.spec.key_groups == 64
    assert [rows(catalog) for catalog in both] == [expected] * 2
    for catalog in both:
        assert catalog.stores() == ["s"]
        assert (catalog.verify("s").problems, catalog.verify("s").unreferenced) == ((), ())
        with pytest.raises(InvalidInputError, match="STORE_EXISTS"):
            catalog.create_store("s", **COLUMNS)
    segments = [name for name in names_in(both[0]) if "segments/" in name]
    assert len({name.partition("segments/")[0] for name in segments}) == 1  # those of the old stores are gone
    both[1].drop_store("s")
    assert all(name.startswith("dropped/") for name in names_in(both[0]))
    assert fill(both[0], kind) == rows(both[1])


PARTS = 20


@pytest.mark.quick("versioned-5")
@pytest.mark.parametrize("part", mostly_slow(range(PARTS), [5]))
@pytest.mark.parametrize("kind", mostly_slow(KINDS, ["versioned", "in tasks", "key_value"]))
def test_a_rebuild_that_dies_before_any_request_loses_nothing(tmp_path: Path, kind: str, part: int) -> None:
    """The store is the old one or the new one, can be written, rebuilt again and dropped."""
    ran = len(TASKS.jobs)
    count = requests_of(kind, tmp_path / "all")
    assert len(TASKS.jobs) - ran == (kind == "in tasks")
    for number in itertools.count(part + 1, PARTS):
        first, second = machines(MemoryStore(), tmp_path / str(number))
        expected = fill(first, kind)
        with requests_until(number), pytest.raises(Killed):
            second.rebuild("s", **KINDS[kind][1]).commit()
            raise Killed
        assert first.stores() == ["s"] and rows(first) == expected, number
        live = "takeover" if first.locate("s")[1].kind != "versioned" else ""
        with first.open_store("s", **({live: True} if live else {})) as store:
            put(store, "after", 9, 2_000)
            store.commit()
        assert rows(second) == {**expected, "after": 9}, number
        second.rebuild("s", **KINDS[kind][1]).close()
        assert rows(first) == {**expected, "after": 9}, number
        assert first.verify("s").ok
        folders = {name.rpartition("segments/")[0] for name in names_in(first) if "segments/" in name}
        assert len(folders) == 1, number  # what the killed one left is gone, and what it replaced
        first.drop_store("s")
        assert all(name.startswith("dropped/") for name in names_in(first)), number
        if number > count:
            break


def test_a_rebuild_removes_what_earlier_ones_left_that_died(both: Machines) -> None:
    """Rebuilds die after they replaced the store, before they removed its files; one died in a version long trimmed."""
    expected = fill(both[0], "versioned")
    storage = both[0].object_storage("s")
    storage.create(replacement_name(1, "0" * 32), b"")
    storage.create(f"{'0' * 32}/segments/left", b"")
    rebuild_and_die(both[1], 8, 16)
    storage.delete(entry_name(1))
    segments = [name for name in names_in(both[0]) if "segments/" in name]
    assert len({name.rpartition("segments/")[0] for name in segments}) == 4
    both[1].rebuild("s", key_groups=32).close()
    segments = [name for name in names_in(both[0]) if "segments/" in name]
    assert len({name.rpartition("segments/")[0] for name in segments}) == 1
    assert rows(both[0]) == expected and both[0].verify("s").ok


def before_the_entry(monkeypatch: pytest.MonkeyPatch, act: Callable[[ObjectStorage, str, Any], None]) -> None:
    """Do something just before the entry that replaces the store is created."""
    create_object = ObjectStorage.create

    def creating(self: ObjectStorage, name: str, data: Any, guard: Guard | None = None) -> None:
        if name.startswith("log/0") and b'"replacement"' in bytes(data):
            act(self, name, data)
        create_object(self, name, data, guard)

    monkeypatch.setattr(ObjectStorage, "create", creating)


def test_a_commit_that_is_first_overtakes_the_rebuild(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fill(both[0], "versioned")
    writer = both[1].open_store("s")
    writer.put("late", 5, 2_000)
    before_the_entry(monkeypatch, lambda *_: None if writer.commit() == 4 else pytest.fail("no commit"))
    with pytest.raises(ConflictError, match="REBUILD_OVERTAKEN"):
        both[0].rebuild("s", "key_value")
    assert rows(both[0]) == {**expected, "late": 5}
    assert not remains_of(both[0])
    writer.close()


def test_a_commit_that_is_later_is_refused(both: Machines) -> None:
    fill(both[0], "versioned")
    writer = both[1].open_store("s")
    writer.put("late", 5, 2_000)
    both[0].rebuild("s", "key_value").close()
    with pytest.raises(NotFoundError, match="STORE_REPLACED"):
        writer.commit()
    assert "late" not in rows(both[0])


def test_writes_that_wait_on_this_machine_keep_the_store(both: Machines) -> None:
    fill(both[0], "versioned")
    writer = both[0].open_store("s")
    writer.put("late", 5, 2_000)
    with pytest.raises(ConflictError, match="REBUILD_OVERTAKEN"):
        both[0].rebuild("s", "key_value")
    writer.commit()
    assert rows(both[1])["late"] == 5


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_lost_answer_is_settled(both: Machines, monkeypatch: pytest.MonkeyPatch, carried_out: bool) -> None:
    expected = fill(both[0], "versioned")
    create_object = ObjectStorage.create

    def losing(storage: ObjectStorage, name: str, data: Any) -> None:
        if carried_out:
            create_object(storage, name, data)
        raise UnsettledError(ErrorCode.REQUEST_FAILED, "no answer; the object may yet appear")

    before_the_entry(monkeypatch, losing)
    if carried_out:
        both[0].rebuild("s", "key_value").close()
        assert both[1].locate("s")[1].kind == "key_value"
    else:
        with pytest.raises(ConflictError, match="REBUILD_OVERTAKEN"):
            both[0].rebuild("s", "key_value")
        assert both[1].locate("s")[1].kind == "versioned"
    assert rows(both[1]) == expected


def test_an_open_live_store_is_not_rebuilt(both: Machines) -> None:
    fill(both[0], "key_value")
    with both[0].open_store("s") as store:
        store.put("a", 1)
        for catalog in both:
            with pytest.raises(ConflictError, match="STORE_LOCKED"):
                catalog.rebuild("s", serde="kafka")
        store.commit()
    assert rows(both[1])["a"] == 1


def test_a_refused_replay_leaves_the_store(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fill(both[0], "versioned")

    def failing(*_: Any) -> None:
        raise StorageError(ErrorCode.REQUEST_FAILED, "the store is gone for a moment")

    monkeypatch.setattr("statestore.catalog.stores.versioned.replay_in_tasks.replay", failing)
    with pytest.raises(StorageError):
        both[0].rebuild("s", "key_value")
    assert rows(both[1]) == expected
    assert not remains_of(both[0])


def test_the_entry_says_where_the_new_store_is(both: Machines) -> None:
    fill(both[0], "versioned", commits=2)
    storage = both[0].locate("s")[0]
    both[0].rebuild("s", "key_value").close()
    entry = read_entry(storage, 3)
    assert (entry.operation, entry.rows) == ("replace", 0)
    assert storage.exists(f"{entry.replacement}/store.json")
    assert b'"format":4' in encode_entry(entry)


# Vacuum finds whatever rebuilds in an object store left: killed ones, failed ones, and tasks that outlived them.


def filled(folder: Path) -> Machines:
    """Two machines' handles of one warehouse, with a store of three rows."""
    first, second = machines(MemoryStore(), folder)
    with first.create_store("s", **COLUMNS) as store:
        for number in range(3):
            store.put(f"k{number}", number, 1_000)
            store.commit()
    return first, second


@pytest.fixture
def both_filled(tmp_path: Path) -> Machines:
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
    both_filled: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, made = StagingFolder._put, []

    def keeping(folder: StagingFolder, name: str, data: Any) -> None:
        made.append((folder.storage, name, bytes(data)))
        put(folder, name, data)

    def fail() -> None:
        raise RuntimeError("the cluster is gone")

    monkeypatch.setattr(StagingFolder, "_put", keeping)
    before = set(names_in(both_filled[0]))
    with pytest.raises(RuntimeError, match="gone"):
        both_filled[0].rebuild("s", spark=AttemptedTasks(parallelism=3, then=fail))
    assert set(names_in(both_filled[0])) == before and made
    for storage, name, data in made:
        storage.create_many({name: data})
    late = set(names_in(both_filled[0])) - before
    assert len(late) == len(made)
    assert set(vacuum(both_filled[1])) == late
    assert set(names_in(both_filled[0])) == before and rows(both_filled[0]) == ROWS


def test_vacuum_leaves_a_rebuild_that_is_under_way(both_filled: Machines) -> None:
    found: list[str] = []

    def vacuum_as_ever() -> None:
        with both_filled[1].open_store("s", auto_compact=False) as store:
            assert store.vacuum() == store.vacuum(older_than="1 day") == []
            found.extend(item.name for item in store.vacuum(older_than=0, dry_run=True))

    with both_filled[0].rebuild("s", key_groups=9, spark=AttemptedTasks(parallelism=3, then=vacuum_as_ever)) as store:
        assert store.spec.key_groups == 9
    folder = own_folder(both_filled[1])
    assert any(name.startswith(f"{folder}/segments/") for name in found)
    assert f"{folder}/store.json" in found and any(REPLACEMENT.fullmatch(name) for name in found)
    assert rows(both_filled[1]) == ROWS and both_filled[1].verify("s").ok


def test_a_rebuild_that_vacuum_may_take_for_a_dead_one_is_not_published(
    both_filled: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names_in(both_filled[0])
    monkeypatch.setattr(store_objects, "MOST_SECONDS", -1)
    for session in (None, twice()):
        with pytest.raises(ConflictError, match="FILES_TOO_OLD"):
            both_filled[0].rebuild("s", key_groups=9, spark=session)
    assert names_in(both_filled[0]) == before and rows(both_filled[1]) == ROWS


def test_vacuum_keeps_the_way_to_the_newest_of_many_stores(both_filled: Machines) -> None:
    """The store has a folder since it followed a dropped one, and was rebuilt by processes that then died."""
    both_filled[0].drop_store("s")
    with both_filled[0].create_store("s", **COLUMNS) as store:
        for key, value in ROWS.items():
            store.put(key, value, 1_000)
        store.commit()
    before = both_filled[0].open_store("s", read_only=True)
    late = f"segments/{'0' * 32}.arrow"
    both_filled[0].object_storage("s").within("").create_many({late: b"of the dropped store"})
    rebuild_and_die(both_filled[1], 8, 16, spark=twice())
    replaced = [
        name for name in names_in(both_filled[0]) if "/segments/" in name and own_folder(both_filled[0]) not in name
    ]
    assert len(replaced) > 2
    assert set(vacuum(both_filled[0])) == {*replaced, late}
    assert rows(both_filled[0]) == rows(both_filled[1]) == ROWS and both_filled[1].locate("s")[1].key_groups == 16
    assert len(kept(both_filled[0])) == 3
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        before.refresh()
    assert vacuum(both_filled[1]) == []
    both_filled[1].drop_store("s")
    assert all(name.startswith("dropped/") for name in names_in(both_filled[0]))
