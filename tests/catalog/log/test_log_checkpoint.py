"""Opening a store: from checkpoints and the log, damaged or whole, always the same log state."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from obstore.store import MemoryStore
from support.object_stores.doubles import object_storage
from support.stores.log_entries import entry, folded, plain, random_log, segment

from statestore.catalog.log.entries import CommitEntry, entry_name, write_entry
from statestore.catalog.log.log_checkpoint import (
    LOG_CHECKPOINT_INTERVAL,
    load_log_state,
    write_log_checkpoint,
)
from statestore.catalog.log.log_names import LOG_CHECKPOINTS as FOLDER
from statestore.catalog.log.log_state import EMPTY, LogState, advance
from statestore.catalog.log.storage import LocalStorage, Storage
from statestore.catalog.log.version_chunks import CHUNK_VERSIONS
from statestore.formats.errors import CorruptError, NotFoundError

LOG = random_log(90, seed=7)
LOG_STATES = list(accumulate(LOG, advance, initial=EMPTY))[1:]


def checkpoint(version: int) -> str:
    return f"{FOLDER}{version:020d}.arrow"


def written(storage: Storage, log: list[CommitEntry], *checkpoints: int) -> Storage:
    for commit in log:
        write_entry(storage, commit)
    for version in checkpoints:
        write_log_checkpoint(storage, LOG_STATES[version])
    return storage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 commits and a checkpoint of the first 65."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        written(LocalStorage(folder), LOG, 64)
    return folder


@pytest.fixture
def storage(whole: Path, tmp_path: Path) -> LocalStorage:
    """A copy of the whole log, whose files are never changed in place."""
    return LocalStorage(shutil.copytree(whole, tmp_path / "log of 90", copy_function=os.link))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync; power cuts are the subject of test_storage."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def replace_file(storage: LocalStorage, name: str, change: Callable[[bytes], bytes]) -> None:
    data = storage.read(name)
    storage.delete(name)
    storage.create(name, change(data))


@pytest.mark.parametrize("seed", range(5))
def test_folded_and_replayed_are_equal(seed: int) -> None:
    """The checkpoint of a random log, the replay of the log, and the plain model are the same thing."""
    log = random_log(150, seed)
    replayed = list(accumulate(log, advance, initial=EMPTY))[-1]
    storage = object_storage(MemoryStore())
    write_log_checkpoint(storage, replayed)
    assert plain(load_log_state(storage)) == plain(replayed) == folded(log)


def test_entries_after_the_checkpoint_are_replayed(storage: LocalStorage) -> None:
    assert plain(load_log_state(storage)) == folded(LOG)


@pytest.mark.parametrize("version", [0, 1, 63, 64, 65, 89])
def test_any_version_can_be_loaded(storage: LocalStorage, version: int) -> None:
    """Before, at and after the checkpoint, from nothing and from a base before or after it."""
    for base in (None, LOG_STATES[0], LOG_STATES[64], LOG_STATES[89]):
        assert plain(load_log_state(storage, version, base)) == folded(LOG[: version + 1])


@pytest.mark.parametrize("base", [None, LOG_STATES[70]])
def test_a_version_that_is_not_there_is_an_error(storage: LocalStorage, base: LogState | None) -> None:
    with pytest.raises(NotFoundError, match=r"VERSION_NOT_FOUND.*no version 90; versions 0 to 89"):
        load_log_state(storage, 90, base)


def test_a_base_without_news_is_answered_itself(storage: LocalStorage) -> None:
    newest = load_log_state(storage)
    assert load_log_state(storage, base=newest) is newest


def test_versions_go_on_after_a_checkpoint(storage: LocalStorage) -> None:
    """Transactions in the checkpoint are still found, and new commits are appended."""
    loaded = load_log_state(storage, 64)
    for commit in LOG[:65]:
        if commit.transaction is not None:
            assert loaded.versions.find_transaction(*commit.transaction) is not None
    assert plain(advance(loaded, LOG[65])) == folded(LOG[:66])


def test_a_store_without_log_is_damaged(tmp_path: Path) -> None:
    for base in (None, EMPTY):
        with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*00000\.json is missing"):
            load_log_state(LocalStorage(tmp_path), base=base)


def test_a_checkpoint_is_written_once_and_the_newest_two_stay(tmp_path: Path) -> None:
    storage = written(LocalStorage(tmp_path), LOG[:40], 10, 20, 30)
    before = storage.read(checkpoint(30))
    write_log_checkpoint(storage, LOG_STATES[30])
    assert [item.name for item in storage.list(FOLDER)] == [checkpoint(20), checkpoint(30)]
    assert storage.read(checkpoint(30)) == before


def test_a_checkpoint_that_nobody_would_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statestore.catalog.log.log_checkpoint.MAX_METADATA_BYTES", 2_000)
    storage = written(LocalStorage(tmp_path), LOG[:70], 64)
    assert not storage.list(FOLDER)
    assert load_log_state(storage).version == 69


def test_a_reader_is_not_disturbed_by_a_vanishing_checkpoint(storage: LocalStorage) -> None:
    class Vanishing(LocalStorage):
        def read(self, name: str) -> bytes:
            if name.startswith(FOLDER):
                self.delete(name)
            return super().read(name)

    assert plain(load_log_state(Vanishing(storage.root))) == folded(LOG)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    """Wherever the damage lies; the log says the same."""
    log = LOG[:6]
    storage = LocalStorage(tmp_path)
    written(storage, log, 5)
    data = storage.read(checkpoint(5))
    for position in range(0, len(data), 13):
        damaged = data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :]
        replace_file(storage, checkpoint(5), lambda _, damaged=damaged: damaged)  # type: ignore[misc]
        assert plain(load_log_state(storage)) == folded(log)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
def test_a_cut_checkpoint_is_passed_over(storage: LocalStorage, length: int) -> None:
    replace_file(storage, checkpoint(64), lambda data: data[:length])
    assert plain(load_log_state(storage)) == folded(LOG)


def test_an_older_checkpoint_helps_where_the_newest_is_damaged(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    written(storage, LOG[:40], 10, 30)
    replace_file(storage, checkpoint(30), lambda data: data[:-1])
    storage.delete(entry_name(5))
    assert plain(load_log_state(storage)) == folded(LOG[:40])


def test_a_gap_is_not_taken_for_the_end(storage: LocalStorage) -> None:
    """A store with a damaged log checkpoint and a lost entry must not open at an older version."""
    replace_file(storage, checkpoint(64), lambda data: b"x" + data)
    storage.delete(entry_name(30))
    for version in (None, 80):
        with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*00030\.json is missing, but version 64"):
            load_log_state(storage, version)


def test_a_gap_behind_the_newest_checkpoint_is_not_the_end(storage: LocalStorage) -> None:
    """Else the next commit would take the place of the lost one."""
    storage.delete(entry_name(80))
    with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*00080\.json is missing"):
        load_log_state(storage)


def test_a_damaged_entry_is_an_error(storage: LocalStorage) -> None:
    replace_file(storage, entry_name(70), lambda data: data[:-5])
    with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*00070\.json"):
        load_log_state(storage)


def test_a_checkpoint_under_another_name_is_passed_over(storage: LocalStorage) -> None:
    storage.create(checkpoint(80), storage.read(checkpoint(64)))
    assert plain(load_log_state(storage)) == folded(LOG)
    assert plain(load_log_state(storage, 80)) == folded(LOG[:81])


@pytest.mark.parametrize("name", ["5.arrow", ".tmp-0", f"{'٣' * 20}.arrow", f"{'9' * 20}.arrow.bak", "x/1.arrow"])
def test_other_files_beside_checkpoints_do_not_matter(storage: LocalStorage, name: str) -> None:
    storage.create(FOLDER + name, b"x")
    assert plain(load_log_state(storage)) == folded(LOG)


FORGED: list[tuple[str, Any]] = [
    ("version", 63),
    ("version", "64"),
    ("segments", [{}]),
    ("segments", None),
    ("segments", [{**json.loads(json.dumps(vars(segment(1)), default=vars)), "file": {"name": "x"}}]),
    ("closures", []),
    ("closures", {"segments/unknown.arrow": []}),
    ("changelogs", {"../x": 1}),
    ("changelogs", {"x": "1"}),
    ("horizon", ["1", 2]),
    ("horizon", 1),
]


@pytest.mark.parametrize(("key", "value"), FORGED)
def test_a_forged_checkpoint_is_passed_over(storage: LocalStorage, key: str, value: Any) -> None:
    """Though its checksum is right."""

    def forge(data: bytes) -> bytes:
        table = pa.ipc.open_file(data[:-8]).read_all()
        state = json.loads(table.schema.metadata[b"statestore.state"])
        metadata = {**table.schema.metadata, b"statestore.state": json.dumps({**state, key: value})}
        return sealed(table.replace_schema_metadata(metadata))

    replace_file(storage, checkpoint(64), forge)
    assert plain(load_log_state(storage)) == folded(LOG)


@pytest.mark.parametrize("column", ["timestamp", "operation", "writer", "stream_time"])
def test_nulls_and_other_types_in_a_checkpoint_are_not_read(storage: LocalStorage, column: str) -> None:
    def forge(data: bytes) -> bytes:
        table = pa.ipc.open_file(data[:-8]).read_all()
        position = table.schema.get_field_index(column)
        return sealed(table.set_column(position, column, pa.nulls(len(table), table.schema.field(position).type)))

    replace_file(storage, checkpoint(64), forge)
    assert plain(load_log_state(storage)) == folded(LOG)


def sealed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data + xxhash.xxh3_64_digest(data)


@dataclass(frozen=True)
class Counting(LocalStorage):
    """Storage that records every file that is read."""

    read_names: list[str] = field(default_factory=list)

    def read(self, name: str) -> bytes:
        self.read_names.append(name)
        return super().read(name)


def test_thousands_of_commits_are_opened_by_their_tail(tmp_path: Path) -> None:
    """From the newest checkpoint and the longest tail there can be, and nothing before; equal to the plain model."""
    log = random_log(CHUNK_VERSIONS + 200, seed=11)
    storage = LocalStorage(tmp_path)
    log_state = EMPTY
    for commit in log:
        log_state = advance(log_state, commit)
        if commit.version == len(log) - LOG_CHECKPOINT_INTERVAL:
            write_log_checkpoint(storage, log_state)
    for commit in log[-LOG_CHECKPOINT_INTERVAL + 1 :]:
        write_entry(storage, commit)
    counting = Counting(tmp_path)
    loaded = load_log_state(counting)
    tail = [entry_name(commit.version) for commit in log[-LOG_CHECKPOINT_INTERVAL + 1 :]]
    assert set(counting.read_names) == {checkpoint(len(log) - LOG_CHECKPOINT_INTERVAL), *tail, entry_name(len(log))}
    assert len(counting.read_names) == len(tail) + 2, "each once"
    assert plain(loaded) | {"changelogs": None} == folded(log) | {"changelogs": None}
    assert plain(loaded) == plain(log_state)


def test_entries_that_nobody_folded_cost_one_request_each(tmp_path: Path) -> None:
    """One look for news where there is none; on an object store each request is a round trip."""
    asked: list[str] = []

    class Counting(LocalStorage):
        def read(self, name: str) -> bytes:
            asked.append(name)
            return super().read(name)

        def exists(self, name: str) -> bool:
            asked.append(name)
            return super().exists(name)

    storage = Counting(tmp_path)
    written(storage, [entry(version) for version in range(5)])
    base = load_log_state(storage, 0)
    asked.clear()
    newest = load_log_state(storage, base=base)
    assert asked == [entry_name(1), *map(entry_name, range(1, 6)), entry_name(4)]
    asked.clear()
    load_log_state(storage, base=newest)
    assert asked == [entry_name(5), entry_name(4)]
