"""A live store never answers with rows that its table will not have: the loss of acknowledged writes is detected."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.stores.live import tier_position as tier_checkpoint
from statestore.formats.errors import CorruptError

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The changelog of a store with ten rows committed, and ten that were flushed."""
    with statestore.connect(tmp_path).create_store("s", kind="key_value", **COLUMNS) as store:
        for number in range(10):
            store.put(f"k{number}", number)
        store.commit()
        for number in range(10, 20):
            store.put(f"k{number}", number)
        store.flush()
    (found,) = (tmp_path / "s/changelog").iterdir()
    return found


def rows(store: Any) -> tuple[int, int]:
    """The rows of the live store, and of its table after a commit."""
    live = len(list(store.all()))
    store.commit()
    return live, store.scan().read_all().num_rows


def restart_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boot = tmp_path.parent / f"{tmp_path.name}-boot"
    boot.write_text("another run\n")
    monkeypatch.setattr(tier_checkpoint, "BOOT_ID", boot)


def zero(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:600] + bytes(len(data) - 600))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
    "last byte cut": lambda file: os.truncate(file, file.stat().st_size - 1),
    "gone": lambda file: file.unlink(),
    "folder gone": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("boot", ["the same run of the machine", "another run"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_changelog_that_lost_flushed_writes_is_refused(
    tmp_path: Path, file: Path, damage: str, boot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every door that writes or reads the live rows refuses it; the table is read as before; verify reports it."""
    DAMAGE[damage](file)
    if boot == "another run":
        restart_machine(monkeypatch, tmp_path)
        if damage == "last byte cut":
            (found,) = statestore.verify(tmp_path)
            assert found.ok, "the sync mark at the end is not forced to the disk itself"
            return
    (found,) = statestore.verify(tmp_path)
    assert [problem.code for problem in found.problems] == ["CHANGELOG_CORRUPT"]
    assert "of acknowledged writes were there" in found.problems[0].message
    catalog = statestore.connect(tmp_path)
    with catalog.open_store("s") as store:
        for ask in (lambda: store.get("k0"), lambda: list(store.all()), lambda: store.put("a", 1), store.commit):
            with pytest.raises(CorruptError, match=r"CHANGELOG_CORRUPT.*move .*live away"):
                ask()
        assert store.scan().read_all().num_rows == 10
    (tmp_path / "s/live").rename(tmp_path / "moved")
    with catalog.open_store("s") as store:
        live, committed = rows(store)
        assert live == committed and 10 <= live < (21 if damage == "last byte cut" else 20)
    assert statestore.verify(tmp_path)[0].ok


def test_damage_within_the_length_is_found_by_the_commit_and_by_verify(tmp_path: Path, file: Path) -> None:
    """A tail of zeros reads as if it had never been written; the checkpoint knows better."""
    zero(file)
    (found,) = statestore.verify(tmp_path)
    assert [problem.code for problem in found.problems] == ["CHANGELOG_CORRUPT"]
    with statestore.connect(tmp_path).open_store("s") as store:
        with pytest.raises(CorruptError, match=r"CHANGELOG_CORRUPT.*were acknowledged"):
            rows(store)
        assert store.scan().read_all().num_rows == 10


def test_damage_of_an_older_file_is_found_by_the_commit(tmp_path: Path, file: Path) -> None:
    """The tier continues from the newest file, and reads the others for a commit only."""
    with file.open("ab") as torn:
        torn.write(b"x")
    catalog = statestore.connect(tmp_path)
    with catalog.open_store("s") as store:
        store.put("a", 1)
        store.flush()
    assert len(list(file.parent.iterdir())) == 2, "a file that ends with half a frame is not gone on with"
    zero(file)
    with catalog.open_store("s") as store:
        with pytest.raises(CorruptError, match=r"CHANGELOG_CORRUPT.*were acknowledged"):
            store.commit()
        assert store.scan().read_all().num_rows == 10


def test_the_checkpoint_of_another_store_says_nothing(tmp_path: Path, file: Path) -> None:
    """A checkpoint that was copied or left behind with a folder has no effect."""
    (tmp_path / "s/live").rename(tmp_path / "left")
    catalog = statestore.connect(tmp_path)
    catalog.drop_store("s")
    catalog.create_store("s", kind="key_value", **COLUMNS).close()
    shutil.rmtree(tmp_path / "s/live", ignore_errors=True)
    (tmp_path / "left").rename(tmp_path / "s/live")
    assert statestore.verify(tmp_path)[0].ok
    with catalog.open_store("s") as store:
        assert list(store.all()) == []
        store.put("a", 1)
        assert rows(store) == (1, 1)


def test_a_checkpoint_is_removed_durably(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could come back after a power cut, and demand changelogs that were taken back since."""
    synced: list[tuple[Path, bool]] = []
    folder = tmp_path / "s/live"
    monkeypatch.setattr(
        tier_checkpoint, "sync_folder", lambda path: synced.append((path, (folder / tier_checkpoint.FILE).exists()))
    )
    tier_checkpoint.remove_position(folder)
    assert synced == [(folder, False)]


def test_after_a_power_cut_only_what_was_flushed_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were put and not flushed may be gone with the machine, though a checkpoint had seen them."""
    store = statestore.connect(tmp_path).create_store("s", kind="key_value", **COLUMNS)
    store.put("flushed", 1)
    store.flush()
    (file,) = (tmp_path / "s/changelog").iterdir()
    flushed = file.stat().st_size
    store.put("put", 2)
    store._save_tier()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "s", copy / "s")
    store.close()
    os.truncate(copy / "s/changelog" / file.name, flushed)
    with pytest.raises(CorruptError), statestore.connect(copy).open_store("s") as same_run:
        same_run.get("flushed")
    restart_machine(monkeypatch, tmp_path)
    assert statestore.verify(copy)[0].ok
    with statestore.connect(copy).open_store("s") as after:
        assert rows(after) == (1, 1)


def test_a_machine_without_boot_ids_is_taken_as_restarted(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_checkpoint, "BOOT_ID", tmp_path / "missing")
    with statestore.connect(tmp_path).open_store("s") as store:
        store.put("unsynced", 1)
        store._save_tier()
        end = store._changelogs.extents()[0][1]
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "s", copy / "s")
    os.truncate(copy / "s/changelog" / file.name, end)
    with statestore.connect(copy).open_store("s") as store:
        assert rows(store) == (20, 20)


def test_what_was_committed_or_taken_back_is_not_missed(tmp_path: Path, file: Path) -> None:
    """A process that dies between its commit, or the repetition of a transaction, and the tier's next checkpoint."""
    catalog = statestore.connect(tmp_path)
    checkpoint = tmp_path / "s/live/checkpoint.json"
    with catalog.open_store("s") as store:
        store.get("k0")
        before = checkpoint.read_bytes()
        store.commit(transaction=("app", 1))
    checkpoint.write_bytes(before)
    assert not file.exists() and statestore.verify(tmp_path)[0].ok
    with catalog.open_store("s") as store:
        store.put("again", 1)
        store.flush()
        store._make_anew = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            store.commit(transaction=("app", 1))
        store._changelogs.close()
        os.close(store._lock)
        store._lock = None
    assert statestore.verify(tmp_path)[0].ok
    with catalog.open_store("s") as store:
        assert rows(store) == (20, 20)


def test_the_checkpoint_of_an_older_release_is_not_read_for_what_it_does_not_say(tmp_path: Path, file: Path) -> None:
    checkpoint = tier_checkpoint.read_position(tmp_path / "s/live")
    assert checkpoint is not None and checkpoint.held == ((file.name, file.stat().st_size - 28, file.stat().st_size),)
    folder = tmp_path / "s/live"
    (folder / "checkpoint.json").unlink()
    with statestore.connect(tmp_path).open_store("s") as store:
        assert rows(store) == (20, 20)
