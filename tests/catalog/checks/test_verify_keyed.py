"""`verify` finds every defect of a keyed store; vacuum removes files that no kept snapshot names, and no others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import xxhash
from support.parameters import mostly_slow

import statestore
from statestore.catalog.checks.verify_report import Verification
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import snapshot_log
from statestore.catalog.keyed.snapshots.snapshot_log import read_log
from statestore.catalog.log.log_checkpoint import LOG_CHECKPOINT_INTERVAL
from statestore.catalog.log.storage import Storage


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a full snapshot (1), an incremental one (2) with outputs, and one that was discarded (3)."""
    root = tmp_path_factory.mktemp("warehouse")
    store = statestore.connect(root).create_store("s", kind="keyed", key={"k": "string"}, key_groups=8)
    with store.backend() as backend:
        write(backend, 0)
        store.commit([backend.snapshot("full").result()])
        write(backend, 1)
        store.commit([backend.snapshot("incremental").result()], transaction=("app", 1))
        write(backend, 2)
        store.discard(store.commit([backend.snapshot("full").result()]))
    return root


def write(backend: statestore.KeyedBackend, number: int) -> None:
    value, elements = backend.value_state("v", "bigint"), backend.list_state("l", "string")
    for key in range(20):
        backend.set_current_key(f"k{key}")
        value.update(key + number)
        elements.add(str(number))


@pytest.fixture
def warehouse(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "copy"))


def verified(root: Path) -> Verification:
    (found,) = statestore.verify(root)
    return found


def files(root: Path, *folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (root / "s" / folder).glob("*") if path.is_file())


def test_a_healthy_store_is_verified(healthy: Path) -> None:
    found = verified(healthy)
    assert found.ok and not found.notes and not found.unreferenced
    assert (found.snapshots, found.versions, found.log_entries) == (2, (1, 4), 5)
    assert found.rows == (20 + 20) + (20 + 40)
    assert "each of 2 kept snapshots has every key group once" in found.verified


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def removed(path: Path) -> None:
    path.unlink()


DAMAGES = (flipped, cut, removed)


@pytest.mark.parametrize("first", mostly_slow(range(len(DAMAGES)), [0]))
def test_damage_of_any_file_is_told_by_its_name(first: int, healthy: Path, tmp_path: Path) -> None:
    """Every damage of every file, in as many runs as there are damages: the next file has the next damage."""
    names = [path.relative_to(healthy) for path in files(healthy, "segments", "shared", "private", "log", ".")]
    assert len(names) >= 2 + 2 + 3 + 5 + 1
    for name, damage in zip(names, cycle(DAMAGES[first:] + DAMAGES[:first]), strict=False):
        root = Path(shutil.copytree(healthy, tmp_path / name.name))
        damage(root / name)
        if name.name == "store.json" and damage is removed:
            continue  # then it is no store of a warehouse
        found = verified(root)
        assert not found.ok, name
        if name.name == f"{4:020d}.json" and damage is removed:
            continue  # the newest entry goes unnoticed, except that files of the snapshot it discarded are missed
        assert str(name.relative_to("s")) in {problem.file for problem in found.problems}, name
        assert found.verified == "nothing: see the problems"


def rewritten(root: Path, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Replace a log entry by a different one with the right checksum."""
    path = root / "s" / "log" / f"{version:020d}.json"
    document = json.loads(path.read_bytes())
    change(document["log"]["versions"][0])
    canonical = json.dumps(document["log"], sort_keys=True, separators=(",", ":")).encode()
    document["checksum"] = xxhash.xxh3_64_hexdigest(canonical)
    path.write_text(json.dumps(document))


def problems(root: Path) -> set[str]:
    return {problem.code for problem in verified(root).problems}


def test_rows_in_another_key_group_are_found(warehouse: Path) -> None:
    """The index of key groups is shifted by a group: every file is as it was written."""

    def shift(entry: dict[str, Any]) -> None:
        part = entry["handles"][0]
        groups = part["tables"]["v"]["groups"]
        part["tables"]["v"]["groups"] = [0, *groups[:-2], groups[-1]]

    rewritten(warehouse, 1, shift)
    assert problems(warehouse) == {"WRONG_KEY_GROUP"}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("timestamp", 1, "LOG_WRONG"),
        ("discarded", 7, "LOG_WRONG"),
        ("version", 9, "LOG_CORRUPT"),
        ("operation", "forget", "LOG_CORRUPT"),
        ("transaction", ["app", "seven"], "LOG_CORRUPT"),
    ],
)
def test_an_entry_that_can_not_be_is_found(warehouse: Path, field: str, value: object, code: str) -> None:
    rewritten(warehouse, 4, lambda entry: entry.update({field: value}))
    assert code in problems(warehouse)


@pytest.mark.parametrize(
    "name", ["../escape.arrow", "shared/../../x.sst", "/etc/passwd", "log/00000000000000000000.json", "segments/x"]
)
def test_a_name_that_leads_elsewhere_is_refused(warehouse: Path, name: str) -> None:
    def change(entry: dict[str, Any]) -> None:
        part = entry["handles"][0]
        part["tables"]["v"]["file"]["name"] = name

    rewritten(warehouse, 1, change)
    assert "LOG_CORRUPT" in problems(warehouse)
    with pytest.raises(statestore.CorruptError, match="LOG_CORRUPT"):
        statestore.connect(warehouse).open_store("s").retained()


def test_an_entry_that_is_missing_is_no_end_of_the_log(warehouse: Path) -> None:
    """Else an old state would be read as the newest, and a commit would take the place of one that was."""
    (warehouse / "s" / "log" / f"{2:020d}.json").unlink()
    store = statestore.connect(warehouse).open_store("s")
    for call in (store.versions, store.backend):
        with pytest.raises(statestore.CorruptError, match="is missing"):
            call()


def test_vacuum_removes_what_no_kept_snapshot_names(warehouse: Path) -> None:
    root = warehouse / "s"
    ours = [root / "shared" / ("a" * 32 + ".sst"), root / "segments" / ("b" * 32 + ".arrow.tmp")]
    others = [root / "shared" / "notes.txt", root / "README"]
    before = set(files(warehouse, "segments", "shared", "private", "log", "."))
    for path in (*ours, *others):
        path.write_bytes(b"12345")
    store = statestore.connect(warehouse).open_store("s")
    assert store.vacuum("1 day") == []
    assert {item.name for item in store.vacuum(0, dry_run=True)} == {str(path.relative_to(root)) for path in ours}
    assert {item.name for item in store.vacuum(0)} == {str(path.relative_to(root)) for path in ours}
    assert set(files(warehouse, "segments", "shared", "private", "log", ".")) == before | set(others)
    assert verified(warehouse).ok


@pytest.fixture
def long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyedStore]:
    """A store that was folded twice, with snapshots discarded between."""
    monkeypatch.setattr(snapshot_log, "LOG_CHECKPOINT_INTERVAL", 4)
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "string"}, key_groups=8)
    with store.backend() as backend:
        for number in range(6):
            write(backend, number)
            version = store.commit([backend.snapshot("incremental").result()], transaction=("app", number))
            backend.notify_complete(version)
            if number:
                store.discard(store.retained()[0])
    yield store


def test_a_folded_log_says_the_same(long_log: KeyedStore, tmp_path: Path) -> None:
    folded = sorted(path.name for path in (tmp_path / "s" / "log" / "_checkpoint").glob("*"))
    assert folded == [f"{4:020d}.json", f"{8:020d}.json"]
    reopened = statestore.connect(tmp_path).open_store("s")
    assert reopened.retained() == long_log.retained() == [10]
    assert [reopened.transaction_version(("app", number)) for number in range(7)] == [1, 2, 4, 6, 8, 10, None]
    found = verified(tmp_path)
    assert found.ok and found.checkpoints == 2


def test_a_damaged_checkpoint_is_passed_over_for_the_entries(long_log: KeyedStore, tmp_path: Path) -> None:
    for path in (tmp_path / "s" / "log" / "_checkpoint").glob("*"):
        flipped(path)
    assert statestore.connect(tmp_path).open_store("s").retained() == [10]
    assert [problem.code for problem in verified(tmp_path).problems] == ["LOG_CORRUPT"] * 2


def test_opening_reads_no_entry_that_was_folded(
    long_log: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = snapshot_log.read_snapshot_entry

    def counted(storage: Storage, version: int) -> snapshot_log.SnapshotEntry:
        read.append(version)
        return original(storage, version)

    monkeypatch.setattr(snapshot_log, "read_snapshot_entry", counted)
    assert read_log(long_log._storage).newest == 11
    assert read == [9, 10, 11]
    assert LOG_CHECKPOINT_INTERVAL == 64


def test_a_checkpoint_that_says_something_else_is_found(long_log: KeyedStore, tmp_path: Path) -> None:
    _, newer = sorted((tmp_path / "s" / "log" / "_checkpoint").glob("*"))
    document = json.loads(newer.read_bytes())
    document["log"]["versions"][0]["writer"] = "somebody else"
    canonical = json.dumps(document["log"], sort_keys=True, separators=(",", ":")).encode()
    newer.write_text(json.dumps({**document, "checksum": xxhash.xxh3_64_hexdigest(canonical)}))
    assert [problem.code for problem in verified(tmp_path).problems] == ["CHECKPOINT_WRONG"]
