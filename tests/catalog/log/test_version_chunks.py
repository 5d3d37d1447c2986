"""The list of commits in chunks: equal to the plain model, read only when it is asked for, and its damage."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from obstore.store import MemoryStore
from support.object_stores.doubles import object_storage
from support.stores.log_entries import captured_log, captured_of, entry, folded, plain, random_log
from support.stores.short_chunks import LENGTH, short_chunks

from statestore.catalog.log.entries import CommitEntry, entry_name, write_entry
from statestore.catalog.log.frames import sealed
from statestore.catalog.log.log_checkpoint import load_log_state, read_log_checkpoint, write_log_checkpoint
from statestore.catalog.log.log_names import LOG_CHECKPOINTS, STORE_FILE, log_checkpoint_name
from statestore.catalog.log.log_state import EMPTY, LogState, advance
from statestore.catalog.log.storage import LocalStorage, Storage
from statestore.catalog.log.version_chunks import CHUNKS, NO_TIME, ChunkRef, read_chunk
from statestore.formats.errors import CorruptError

AnyStorage = TypeVar("AnyStorage", bound=Storage)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with short_chunks():
        yield


def identified(storage: AnyStorage) -> AnyStorage:
    """Return the storage of a store with the identity of `captured_log`."""
    storage.create(STORE_FILE, json.dumps({"id": "s" * 32}).encode())
    return storage


@dataclass(frozen=True)
class Counting(LocalStorage):
    """Storage that records every file that is read."""

    read_names: list[str] = field(default_factory=list)

    def read(self, name: str) -> bytes:
        self.read_names.append(name)
        return super().read(name)


def ordered_log(count: int, seed: int) -> list[CommitEntry]:
    """Random commits as writers make them: a transaction stands once, and times never decrease."""
    log, seen = [], set()
    time: int | None = None
    for commit in random_log(count, seed):
        transaction = commit.transaction if commit.transaction not in seen else None
        seen.add(transaction)
        if commit.stream_time is not None:
            time = max(time or 0, commit.stream_time)
        log.append(replace(commit, transaction=transaction, stream_time=time))
    return log


def stored(storage: Storage, log: list[CommitEntry], every: int = 4, entries: bool = True) -> LogState:
    """Commit the log with a checkpoint now and then, by processes that know only what they read."""
    log_state = EMPTY
    for commit in log:
        if entries:
            write_entry(storage, commit)
        log_state = advance(log_state, commit)
        if commit.version and commit.version % every == 0:
            write_log_checkpoint(storage, log_state)
            if commit.version % (3 * every) == 0:
                name = log_checkpoint_name(commit.version)
                log_state = read_log_checkpoint(name, storage.read(name), storage)
    return log_state


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("remote", [False, True])
def test_chunks_and_tail_are_the_log(tmp_path: Path, seed: int, remote: bool) -> None:
    """Whoever wrote them, from memory or on other chunks; at versions just before, at and after their ends."""
    log = ordered_log(4 * LENGTH + 5, seed)
    storage: Storage = object_storage(MemoryStore()) if remote else LocalStorage(tmp_path)
    assert plain(stored(storage, log)) == folded(log)
    assert plain(load_log_state(storage)) == folded(log)
    for version in (LENGTH - 1, LENGTH, LENGTH + 1, 2 * LENGTH, 3 * LENGTH - 1, 4 * LENGTH + 4):
        assert plain(load_log_state(storage, version)) == folded(log[: version + 1])
    assert len(storage.list(CHUNKS)) == 4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [3, 1_000])
def test_captured_versions_are_kept_with_their_gaps(
    tmp_path: Path, seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In entries, chunks and checkpoints from the first one on; the commits before it stay as they were."""
    monkeypatch.setattr("statestore.catalog.log.source_versions.KEPT_GAPS", most)
    ordered, begins = ordered_log(4 * LENGTH + 5, seed), LENGTH + 3 * seed
    log = captured_log(ordered, begins, seed)
    storage = identified(LocalStorage(tmp_path))
    for log_state, known in (
        (stored(storage, log), log),
        *((load_log_state(storage, version), log[: version + 1]) for version in range(LENGTH - 2, len(log), 7)),
    ):
        assert plain(log_state) == folded(known)
        assert log_state.captured == captured_of(known, most)
        kept_from = -1 if log_state.horizon is None else log_state.horizon.time
        every = getattr(captured_of(known, 1_000), "gaps", ())
        assert list(log_state.gaps) == [gap for gap in every if gap.until > kept_from]
    formats = [json.loads(storage.read(entry_name(version)))["commit"]["format"] for version in range(len(log))]
    assert formats == [6 if commit.source else 3 for commit in log]
    chunks = [storage.read(item.name) for item in storage.list(CHUNKS)]
    assert [b"log-chunk/2" in data for data in chunks] == [False, True, True, True]
    (tmp_path / "uncaptured").mkdir()
    uncaptured = identified(LocalStorage(tmp_path / "uncaptured"))
    stored(uncaptured, [replace(commit, store="s" * 32) for commit in ordered])
    assert uncaptured.list(CHUNKS)[0].name == storage.list(CHUNKS)[0].name, "which has the checksum of its bytes"


def test_gaps_are_known_without_a_chunk(tmp_path: Path) -> None:
    storage = identified(Counting(tmp_path))
    stored(storage, captured_log(ordered_log(4 * LENGTH + 5, 1), 1, 1))
    storage.read_names.clear()
    assert len(load_log_state(storage).gaps) > 3
    assert not [name for name in storage.read_names if name.startswith(CHUNKS)]


def test_opening_and_committing_read_no_chunk(tmp_path: Path) -> None:
    log = ordered_log(5 * LENGTH, seed=9)
    storage = Counting(tmp_path)
    stored(storage, [replace(c, transaction=("app", c.version)) for c in log])
    storage.read_names.clear()
    log_state = load_log_state(storage)
    versions = log_state.versions
    assert versions.dropped_total == sum(commit.dropped for commit in log)
    assert versions.stream_time_at(log_state.version) == log_state.stream_time_us
    assert versions.timestamp_at(log_state.version) == log[-1].timestamp
    assert versions.writer_at(log_state.version) == log[-1].writer
    assert versions.operations_after(log_state.version - 2) == [commit.operation for commit in log[-2:]]
    assert versions.find_transaction("app", 5 * LENGTH) is None and versions.find_transaction("other", 1) is None
    assert versions.find_transaction("app", 4 * LENGTH - 1) == 4 * LENGTH - 1, "the newest of a chunk"
    advanced = advance(log_state, entry(len(log)))
    assert len(advanced.versions) == len(log) + 1
    assert not [name for name in storage.read_names if name.startswith(CHUNKS)]
    assert versions.find_transaction("app", 3) == 3
    assert [name for name in storage.read_names if name.startswith(CHUNKS)], "an older one is looked up"


def test_checkpoints_do_not_grow_with_the_number_of_commits(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    log = [entry(version, added=(), transaction=("app", version)) for version in range(20 * LENGTH + 5)]
    stored(storage, log)
    sizes = {item.name: item.bytes for item in storage.list(LOG_CHECKPOINTS)}
    landmarks = [log_checkpoint_name(version) for version in range(LENGTH, len(log), LENGTH)]
    assert sizes.keys() >= set(landmarks) and len(sizes) <= len(landmarks) + 2
    assert max(sizes.values()) - min(sizes.values()) < 20 * 40 + 64 * LENGTH


def test_single_commits_and_bisection_agree_with_the_columns(tmp_path: Path) -> None:
    log = ordered_log(3 * LENGTH + 7, seed=3)
    stored(LocalStorage(tmp_path), log)
    versions = load_log_state(LocalStorage(tmp_path)).versions
    truth = folded(log)
    times = truth["stream_time"]
    for version in range(len(log)):
        assert versions.timestamp_at(version) == truth["timestamp"][version]
        assert versions.stream_time_at(version) == times[version]
        assert versions.writer_at(version) == truth["writer"][version]
        assert versions.operations_after(version - 1) == truth["operation"][version:]
    for limit in sorted({*times, *(time - 1 for time in times), times[-1] + 1}):
        expected = max((version for version, time in enumerate(times) if time <= limit), default=-1)
        assert versions.last_until("stream_time", limit) == expected
    asked = np.array([3, 0, LENGTH, 2 * LENGTH + 1, len(log)])
    assert versions.stream_time_before(asked).tolist() == [times[v - 1] if v else NO_TIME for v in asked]
    late = np.array([len(log), 3 * LENGTH + 1])
    assert versions.stream_time_before(late).tolist() == [times[v - 1] for v in late]


def test_transactions_of_many_applications_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when checkpoints name only the newest few applications."""
    monkeypatch.setattr("statestore.catalog.log.version_chunks.KEPT_APPLICATIONS", 3)
    log = [entry(v, transaction=(f"app {v % 7}", v), added=()) for v in range(3 * LENGTH + 2)]
    stored(LocalStorage(tmp_path), log)
    versions = load_log_state(LocalStorage(tmp_path)).versions
    for version in range(len(log)):
        assert versions.find_transaction(f"app {version % 7}", version) == version
        assert versions.find_transaction(f"app {version % 7}", version + 1) is None
    assert versions.find_transaction("unknown", 1) is None


def test_a_log_state_with_chunks_can_be_sent_and_copied(tmp_path: Path) -> None:
    log = ordered_log(2 * LENGTH + 3, seed=5)
    stored(LocalStorage(tmp_path), log)
    log_state = load_log_state(LocalStorage(tmp_path))
    assert plain(copy.deepcopy(log_state)) == plain(pickle.loads(pickle.dumps(log_state))) == folded(log)


def test_branches_write_their_own_chunks(tmp_path: Path) -> None:
    """A commit that lost its race may have been folded in memory, but no chunk has it."""
    log = ordered_log(LENGTH, seed=6)
    base = list(accumulate(log, advance, initial=EMPTY))[-1]
    lost, won = (advance(base, entry(LENGTH, added=(), writer=writer)) for writer in ("lost", "won"))
    for log_state in (lost, won):
        folder = tmp_path / log_state.versions.writer_at(LENGTH)
        folder.mkdir()
        write_log_checkpoint(LocalStorage(folder), log_state)
    for writer in ("lost", "won"):
        found = load_log_state(LocalStorage(tmp_path / writer), LENGTH)
        assert plain(found) == folded([*log, entry(LENGTH, added=(), writer=writer)])


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path)
    stored(storage, LOG)
    return storage


LOG = ordered_log(2 * LENGTH + 3, seed=8)


def chunk_names(storage: Storage) -> list[str]:
    return [item.name for item in storage.list(CHUNKS)]


def test_a_damaged_chunk_is_made_from_the_entries(storage: LocalStorage) -> None:
    """Wherever the damage lies. Without the entries it is an error, and never a wrong list."""
    path = storage.root / chunk_names(storage)[1]
    data = path.read_bytes()
    for position in range(0, len(data), 211):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        assert plain(load_log_state(storage)) == folded(LOG)
    path.unlink()
    assert plain(load_log_state(storage)) == folded(LOG)
    storage.delete(entry_name(LENGTH + 3))
    with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*_chunks/.*entries that have the same content are gone"):
        _ = load_log_state(storage).versions.rows
    assert load_log_state(storage).versions.timestamp_at(2 * LENGTH + 1) == LOG[2 * LENGTH + 1].timestamp


@pytest.mark.parametrize("damage", [b"", b"x", b"ARROW1" + bytes(40)])
def test_other_bytes_are_no_chunk(storage: LocalStorage, damage: bytes) -> None:
    name = chunk_names(storage)[0]
    checksum = name[-22:-6]
    (storage.root / name).write_bytes(damage)
    with pytest.raises(CorruptError, match="LOG_CORRUPT"):
        read_chunk(storage, ChunkRef(0, len(damage), checksum))


def test_a_damaged_chunk_that_is_in_the_way_is_replaced(tmp_path: Path) -> None:
    """A writer died, the disk failed, and the next writer makes the chunk again."""
    storage = LocalStorage(tmp_path)
    log_state = stored(storage, LOG[: LENGTH + 1], every=LENGTH)
    (name,) = chunk_names(storage)
    for item in storage.list(LOG_CHECKPOINTS):
        storage.delete(item.name)
    (tmp_path / name).write_bytes(b"broken")
    fresh = list(accumulate(LOG[: LENGTH + 1], advance, initial=EMPTY))[-1]
    assert plain(fresh) == plain(log_state)
    write_log_checkpoint(storage, fresh)
    for version in range(LENGTH + 1):
        storage.delete(entry_name(version))
    name = log_checkpoint_name(LENGTH)
    assert plain(read_log_checkpoint(name, storage.read(name), storage)) == folded(LOG[: LENGTH + 1])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chunks", [[1]]),
        ("chunks", [[-1, "0" * 16]]),
        ("chunks", [[1, "../../../../x"]]),
        ("chunks", []),
        ("chunks", None),
        ("newest", {"a": [2**63, 1]}),
        ("newest", {"a": [1, -1]}),
        ("newest", {"a": 1}),
        ("complete", 1),
        ("dropped", -1),
        ("files", []),
        ("files", [["../x", 1, "", []]]),
    ],
)
def test_a_forged_checkpoint_is_passed_over(storage: LocalStorage, key: str, value: object) -> None:
    """Its checksum is right; the log says the same."""
    name = storage.list(LOG_CHECKPOINTS)[-1].name
    table = pa.ipc.open_file(storage.read(name)[:-8]).read_all()
    state = json.loads(table.schema.metadata[b"statestore.state"]) | {key: value}
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata({**table.schema.metadata, b"statestore.state": json.dumps(state).encode()})
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.replace_schema_metadata(schema.metadata))
    (storage.root / name).write_bytes(sealed(sink.getvalue().to_pybytes()))
    with pytest.raises(CorruptError, match="LOG_CORRUPT"):
        read_log_checkpoint(name, storage.read(name), storage)
    assert plain(load_log_state(storage)) == folded(LOG)
