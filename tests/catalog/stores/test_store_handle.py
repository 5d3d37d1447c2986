"""A handle, table or connection never continues with another store than the one it was opened on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stores.log_entries import sealed_commit, verbose_commit

import statestore
from statestore.catalog.checks.verification import verify
from statestore.catalog.commits import changelogs as acknowledged
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.log.entries import CommitEntry, entry_name, read_entry, write_entry
from statestore.catalog.log.log_checkpoint import load_log_state, write_log_checkpoint
from statestore.catalog.log.storage import LocalStorage, Storage
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import store_folders, vacuum
from statestore.formats.changelogs.changelog_writer import ChangelogWriter
from statestore.formats.places.file_presence import names_in

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


def filled(catalog: statestore.Catalog, name: str, commits: int) -> VersionedStore:
    """A store with one row a commit, ``name`` and a number as keys."""
    store: VersionedStore = catalog.create_store("s", **COLUMNS)
    for number in range(commits):
        store.put(f"{name}{number}", number, timestamp=1000 + number)
        store.commit()
    return store


def keys_of(store: VersionedStore) -> set[str]:
    return {row["k"] for row in store.scan().read_all().to_pylist()}


@pytest.fixture(params=[1, 3, 5], ids=["younger", "same age", "older"])
def replaced(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[VersionedStore, VersionedStore]:
    """A store of three commits that was dropped, and a new one of the same name."""
    catalog = statestore.connect(tmp_path)
    old = filled(catalog, "old", 3)
    old.history().read_all()
    statestore.connect(tmp_path).drop_store("s")
    return old, filled(statestore.connect(tmp_path), "new", request.param)


READS: dict[str, Callable[[VersionedStore], object]] = {
    "scan": lambda store: store.scan().read_all(),
    "history": lambda store: store.history().read_all(),
    "changes": lambda store: store.changes(start_version=0).read_all(),
    "versions": lambda store: store.versions(),
    "refresh": lambda store: store.refresh(),
    "compact": lambda store: store.compact(full=True),
    "expire": lambda store: store.expire(before=1001),
    "vacuum": lambda store: store.vacuum(older_than=0),
    "write": lambda store: store.write(pa.table({"k": ["x"], "v": [1], "timestamp": [9000]})),
}


@pytest.mark.quick("older-*", "same age-scan", "same age-write", "younger-scan", "younger-vacuum")
@pytest.mark.parametrize("read", READS)
def test_a_handle_does_not_go_on_with_another_store(replaced: tuple[VersionedStore, VersionedStore], read: str) -> None:
    old, new = replaced
    expected, version = keys_of(new), new.version
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        READS[read](old)
    assert (keys_of(new), new.refresh()) == (expected, version)
    assert verify(new._storage.root)[0].ok  # type: ignore[attr-defined]


def test_point_reads_notice_a_while_later(replaced: tuple[VersionedStore, VersionedStore]) -> None:
    """Until they notice, they return the rows of the old store."""
    old, _ = replaced
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        for _ in range(200):
            found = old.get("old0")
            assert found is not None and found.value == 0


def test_a_commit_does_not_reach_another_store(replaced: tuple[VersionedStore, VersionedStore]) -> None:
    """Earlier puts do not reach it either: the new store's next handle takes in none of them."""
    old, new = replaced
    expected, version = keys_of(new), new.version
    with contextlib.suppress(statestore.StateStoreError):
        old.put("old0", 77, timestamp=9000)
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        old.commit()
    old.close()
    new.close()
    with statestore.connect(new._storage.root.parent).open_store("s") as again:  # type: ignore[attr-defined]
        assert again.commit() == version
        assert keys_of(again) == expected
    assert verify(new._storage.root)[0].ok  # type: ignore[attr-defined]


def test_a_transaction_of_the_old_store_is_not_answered_as_committed(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    old = filled(catalog, "old", 1)
    old.put("a", 1, timestamp=2000)
    old.commit(transaction=("app", 1))
    statestore.connect(tmp_path).drop_store("s")
    filled(statestore.connect(tmp_path), "new", 2)
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        old.commit(transaction=("app", 1))


def test_a_log_checkpoint_does_not_reach_another_store(replaced: tuple[VersionedStore, VersionedStore]) -> None:
    """A checkpoint written after the store was replaced, or put into its folder, is refused."""
    old, new = replaced
    storage = new._storage
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        write_log_checkpoint(storage, old._log_state)
    assert not storage.list("log/_checkpoint/")
    write_log_checkpoint(storage, load_log_state(storage))
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        load_log_state(storage, store=old.spec.store_id)
    assert load_log_state(storage, store=new.spec.store_id).version == new.version


def test_no_entry_is_made_where_the_description_is_gone(tmp_path: Path) -> None:
    """No entry is made in a folder without a description, for instance one that is being removed."""
    store = filled(statestore.connect(tmp_path), "old", 1)
    entry = replace(read_entry(store._storage, 1), version=2)
    (tmp_path / "s" / "store.json").unlink()
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        write_entry(store._storage, entry)
    assert not (tmp_path / "s" / entry_name(2)).exists()


def test_a_put_makes_no_changelog_in_another_store(replaced: tuple[VersionedStore, VersionedStore]) -> None:
    """Its rows would be acknowledged and never read."""
    old, new = replaced
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        old.put("old0", 77, timestamp=9000)
    assert not list((new._storage.root / "changelog").glob("*"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["versioned", "key_value"])
def test_a_changelog_of_another_store_is_not_taken_in(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A handle may make one between its look at the store and the moment at which another one takes the place."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind=kind, **COLUMNS) as old:
        old.put("old", 1, timestamp=1000)
        (file,) = (tmp_path / "s" / "changelog").iterdir()
        left = file.read_bytes()
    catalog.drop_store("s")
    catalog.create_store("s", kind=kind, **COLUMNS).close()
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(left)
    with catalog.open_store("s") as new:
        new.put("new", 2, timestamp=2000)
        assert new.get("old") is None
        new.commit()
        assert keys_of(new) == {"new"}
        assert "its records belong to another store" in caplog.text
        assert file.read_bytes() == left
        name = f"changelog/{file.name}"
        assert name in [each for each, _ in catalog.verify("s").unreferenced]
        assert [each.name for each in new.vacuum(older_than=0, dry_run=True)] == [name] and file.exists()
        assert new.vacuum(older_than="1 day") == []
        assert [each.name for each in new.vacuum(older_than=0)] == [name] and not file.exists()
        assert catalog.verify("s").unreferenced == () and keys_of(new) == {"new"}


def test_vacuum_leaves_a_changelog_of_another_store_whose_writer_lives(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as old:
        old.put("old", 1, timestamp=1000)
        (tmp_path / "s").rename(tmp_path / "away")
        with catalog.create_store("s", **COLUMNS) as new:
            new.commit()
            (tmp_path / "away" / "changelog").rename(tmp_path / "s" / "changelog")
            assert new.vacuum(older_than=0) == []
    (left,) = (tmp_path / "s" / "changelog").iterdir()
    with catalog.open_store("s") as new:
        assert [each.name for each in new.vacuum(older_than=0)] == [f"changelog/{left.name}"]


def test_vacuum_of_a_store_that_is_replaced_meanwhile_spares_the_puts_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog of the new store is of another store for the old handle, and its writer is gone."""
    catalog = statestore.connect(tmp_path)
    old = filled(catalog, "old", 1)

    def overtaken(folder: Path) -> list[str]:
        if folder.name == "changelog":
            monkeypatch.setattr(vacuum, "names_in", names_in)
            catalog.drop_store("s")
            with catalog.create_store("s", **COLUMNS) as new:
                new.put("new", 1, timestamp=1000)
        return names_in(folder)

    monkeypatch.setattr(vacuum, "names_in", overtaken)
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        old.vacuum(older_than=0)
    with catalog.open_store("s") as again:
        assert again.get("new") is not None


def test_a_store_is_replaced_while_a_changelog_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put would be acknowledged by a file that is never read."""
    catalog = statestore.connect(tmp_path)
    old = filled(catalog, "old", 1)

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(acknowledged, "ChangelogWriter", ChangelogWriter)
        catalog.drop_store("s")
        filled(catalog, "new", 1)
        (tmp_path / "s" / "changelog").mkdir(exist_ok=True)
        return ChangelogWriter(*given)

    monkeypatch.setattr(acknowledged, "ChangelogWriter", overtaken)
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        old.put("late", 1, timestamp=9000)
    assert list((tmp_path / "s" / "changelog").iterdir()) == []


def test_a_store_that_takes_the_place_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look of a commit and its log entry: the entry is not made in the new store."""
    old = filled(statestore.connect(tmp_path), "old", 3)
    old.put("late", 1, timestamp=9000)
    made: list[VersionedStore] = []

    def overtaken(storage: Storage, entry: CommitEntry) -> None:
        monkeypatch.setattr(write, "write_entry", write_entry)
        statestore.connect(tmp_path).drop_store("s")
        made.append(filled(statestore.connect(tmp_path), "new", 3))
        write_entry(storage, entry)

    monkeypatch.setattr(write, "write_entry", overtaken)
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        old.commit()
    assert keys_of(made[0]) == {"new0", "new1", "new2"}
    assert made[0].refresh() == 3


def test_attached_connections_and_sql(tmp_path: Path) -> None:
    filled(statestore.connect(tmp_path), "old", 3)
    connection = statestore.attach(str(tmp_path))
    assert len(connection.sql("SELECT k FROM s").fetchall()) == 3
    statestore.connect(tmp_path).drop_store("s")
    filled(statestore.connect(tmp_path), "new", 5)
    with pytest.raises(Exception, match="STORE_REPLACED"):
        connection.sql("SELECT k FROM s").fetchall()
    found = statestore.sql(str(tmp_path), "SELECT k FROM s").to_pylist()
    assert {row["k"] for row in found} == {f"new{number}" for number in range(5)}


def test_rebuild_waits_for_no_commit_that_it_would_lose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is made while the rebuild looks away is seen: the old store stays, with the commit."""
    catalog = statestore.connect(tmp_path)
    store = filled(catalog, "old", 3)
    claims_given_up = store_folders._claims_given_up

    def after_a_commit(folder: Path) -> bool:
        # A writer that had begun before the folder changed its name ends now: it is in the moved folder.
        inside = LocalStorage(folder)
        entry = read_entry(inside, 3)
        log_state = load_log_state(inside)
        write_entry(inside, write.new_entry(log_state, "write", NewFiles(), transaction=("app", 1)))
        assert entry.version == 3
        return claims_given_up(folder)

    monkeypatch.setattr(store_folders, "_claims_given_up", after_a_commit)
    with pytest.raises(statestore.ConflictError, match="REBUILD_OVERTAKEN"):
        catalog.rebuild("s", key_groups=64)
    assert store.refresh() == 4
    assert keys_of(store) == {"old0", "old1", "old2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_a_handle_beside_a_rebuild(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    store = filled(catalog, "old", 3)
    catalog.rebuild("s", key_groups=64).close()
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        store.put("old0", 77, timestamp=9000)
        store.commit()
    with catalog.open_store("s") as rebuilt:
        assert keys_of(rebuilt) == {"old0", "old1", "old2"}
    assert catalog.verify("s").ok


def test_a_live_store_is_not_dropped_under_its_writer(tmp_path: Path) -> None:
    """Two hot tiers in one folder would write over each other's files."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind="key_value", **COLUMNS) as store:
        store.put("a", 1)
        with pytest.raises(statestore.ConflictError, match="STORE_LOCKED"):
            statestore.connect(tmp_path).drop_store("s")
        store.commit()
    catalog.drop_store("s")
    assert catalog.stores() == []


def test_an_interrupted_creation_gives_its_identity_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 0 was written, the description was not: the store that is made then has the identity of version 0."""
    catalog = statestore.connect(tmp_path)
    create = LocalStorage.create

    def dying(self: LocalStorage, name: str, *arguments: Any) -> None:
        if name == "store.json":
            raise KeyboardInterrupt
        create(self, name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", dying)
        with pytest.raises(KeyboardInterrupt):
            catalog.create_store("s", **COLUMNS)
    store = filled(catalog, "new", 2)
    assert {read_entry(store._storage, version).store for version in range(3)} == {store.spec.store_id}
    assert catalog.verify("s").ok


def test_logs_of_the_first_format_go_on(tmp_path: Path) -> None:
    """Their entries have no identity; those that are added have one, and everything reads as one log."""
    store = filled(statestore.connect(tmp_path), "old", 2)
    for version in range(3):
        path = tmp_path / "s" / entry_name(version)
        commit = verbose_commit(path)
        del commit["store"]
        commit["format"] = 1
        path.write_bytes(sealed_commit(commit))
    store.close()
    with statestore.connect(tmp_path).open_store("s") as again:
        again.put("new", 5, timestamp=5000)
        assert again.commit() == 3
        assert keys_of(again) == {"old0", "old1", "new"}
        assert [read_entry(again._storage, version).store for version in range(4)] == ["", "", "", again.spec.store_id]
    assert statestore.connect(tmp_path).verify("s").ok


def test_verify_names_entries_of_another_store(tmp_path: Path) -> None:
    """Entries of another store, as a copy of the wrong folder leaves them, are reported."""
    for name in ("one", "two"):
        with filled(statestore.connect(tmp_path / name), name, 2):
            pass
    source, target = (tmp_path / name / "s" / entry_name(2) for name in ("one", "two"))
    target.write_bytes(source.read_bytes())
    found = verify(tmp_path / "two")[0]
    assert ("STORE_REPLACED", entry_name(2)) in [(problem.code, problem.file) for problem in found.problems]
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        statestore.connect(tmp_path / "two").open_store("s")


def test_a_changelog_under_another_name_is_damage(tmp_path: Path) -> None:
    """The log says by names how much of a changelog is committed: renamed, its records would be taken in again."""
    catalog = statestore.connect(tmp_path)
    for key in ("a", "b"):
        store = catalog.create_store(key, **COLUMNS)
        store.put(key, 1, timestamp=1000)
        store.close()
    (left,) = (tmp_path / "a" / "changelog").glob("*.changelog")
    left.rename(left.with_name("0" * 20 + left.name[20:]))
    with pytest.raises(statestore.CorruptError, match=r"CHANGELOG_CORRUPT.*was renamed"):
        catalog.open_store("a")
    assert [problem.code for problem in catalog.verify("a").problems] == ["CHANGELOG_CORRUPT"]
    (right,) = (tmp_path / "b" / "changelog").glob("*.changelog")
    right.write_bytes(left.with_name("0" * 20 + left.name[20:]).read_bytes())
    with pytest.raises(statestore.CorruptError, match="CHANGELOG_CORRUPT"):
        catalog.open_store("b")


def test_verify_of_a_store_that_is_rebuilt_meanwhile_reports_no_damage(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3).close()
    rebuilt: list[int] = []

    def once(event: Any) -> None:
        if not rebuilt:
            rebuilt.append(1)
            catalog.rebuild("s", key_groups=64).close()

    assert verify(tmp_path, "s", once)[0].ok and rebuilt
