"""Verification: a healthy store of every kind is verified, and every damage is reported with its file and effect."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from support.stores.log_entries import sealed_commit, verbose_commit

import statestore
from statestore.catalog.checks import verification, verify_data
from statestore.catalog.checks.verification import verify_store
from statestore.catalog.checks.verify_report import Progress, Verification
from statestore.catalog.commits import new_files
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.log import leases
from statestore.catalog.log.leases import held_from
from statestore.catalog.log.log_checkpoint import load_log_state, write_log_checkpoint
from statestore.catalog.log.log_state import file_names
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.errors import NotFoundError
from statestore.formats.segments.key_index import encode_index
from statestore.formats.segments.regions import REGION_BYTES
from statestore.formats.segments.segment_meta import to_json
from statestore.formats.values.key_hash import hash_keys

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "double", "tags": "array<string>"}}
MINUTE = 60_000


def rows(store: Any, numbers: range, time: int) -> None:
    count = len(numbers)
    store.put_all(
        pa.table(
            {
                "k": [f"key {n}" for n in numbers],
                "v": [n / 3 for n in numbers],
                "tags": [["x", None]] * count,
                "timestamp": pa.array([time] * count, pa.int64()),
            }
        )
    )


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of store, and in `versioned` every kind of file: index, belief, closures, checkpoint, changelog."""
    root = tmp_path_factory.mktemp("healthy")
    catalog = statestore.connect(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_files, "INDEX_MIN_ROWS", 30)
        patch.setattr(write, "LOG_CHECKPOINT_INTERVAL", 3)
        with catalog.create_store("versioned", **COLUMNS, history_retention="1 day") as store:
            store.auto_compact = False  # a compaction leaves the files that it replaced
            rows(store, range(60), 1000)
            store.commit()
            rows(store, range(20), 3000)
            store.commit()
            rows(store, range(10), 2000)
            store.commit()
            store.delete("key 3", timestamp=4000)
            store.commit(transaction=("app", 1))
            store.compact(full=True)
            rows(store, range(5, 15), 3500)
            rows(store, range(55, 65), 5000)
            store.commit()
            store.put("key 1", (1.5, ["y"]), timestamp=9000)
            store.put("key 2", (2.5, []), timestamp=9000)
        with catalog.create_store("counts", "key_value", **COLUMNS) as counts:
            for number in range(3):
                counts.put("a", (float(number), []))
                counts.put(f"b{number}", (1.0, None))
                counts.commit()
            counts.delete("a")
            counts.commit()
            counts.put("a", (9.0, []))
        with catalog.create_store("windows", "window", retention="1 hour", window_size=MINUTE, **COLUMNS) as windows:
            for number in range(0, 180, 10):
                windows.put("a", (1.0, []), number * MINUTE)
                if number % 50 == 0:
                    windows.commit()
            windows.commit()
        with catalog.create_store("sessions", "session", retention="1 hour", **COLUMNS) as sessions:
            sessions.put("a", 0, 10, (1.0, []))
            sessions.commit()
            sessions.remove("a", 0, 10)
            sessions.put("a", 0, 20, (2.0, []))
            sessions.commit()
        with catalog.create_store("joins", "join_window", retention="1 hour", window_before=5, **COLUMNS) as joins:
            joins.put("a", (1.0, []), 10)
            joins.put("a", (2.0, []), 10)
            joins.commit()
        with catalog.create_store(
            "kafka", serde="kafka", history_retention="1 day", key={"k": "string"}, value={"v": "bigint"}
        ) as kafka:
            kafka.put("a", 8, timestamp=0)
            kafka.commit()
            kafka.put("a", 9, timestamp=2)
        catalog.create_store("empty", **COLUMNS).close()
    return root


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    """A copy of `versioned` for a test to damage."""
    return shutil.copytree(healthy / "versioned", tmp_path / "versioned")


def verify(folder: Path) -> Verification:
    return verify_store(LocalStorage(folder), folder.name)


KINDS = ["versioned", "counts", "windows", "sessions", "joins", "kafka", "empty"]


@pytest.mark.parametrize("name", KINDS)
def test_a_healthy_store_is_verified(healthy: Path, name: str) -> None:
    found = verify(healthy / name)
    assert found.ok, found.problems
    files = [path for path in (healthy / name).rglob("*") if path.is_file()]
    cache = [path for path in files if path.relative_to(healthy / name).parts[0] == "live"]
    own = [path for path in files if path not in cache and path.name != "writer.lock"]
    assert (found.files, found.bytes) == (len(own), sum(path.stat().st_size for path in own))
    assert found.cache_bytes == sum(path.stat().st_size for path in cache)
    assert found.unreferenced == ()
    log_state = load_log_state(LocalStorage(healthy / name))
    assert found.versions == (0, log_state.version) and found.log_entries == log_state.version + 1
    assert found.rows == sum(meta.rows for meta in log_state.segments)
    assert f"every byte of {found.files} files" in found.verified
    with pytest.raises(AttributeError, match="it is called verified"):
        _ = found.vouches  # type: ignore[attr-defined]


def test_the_example_has_every_kind_of_file(healthy: Path) -> None:
    log_state = load_log_state(LocalStorage(healthy / "versioned"))
    assert {meta.role for meta in log_state.segments} >= {"open", "closed", "belief", "delta"}
    assert {meta.tombstone for meta in log_state.segments} == {False, True}
    assert any(meta.index for meta in log_state.segments) and log_state.closures
    found = verify(healthy / "versioned")
    assert (found.checkpoints, found.uncommitted) == (2, 2)
    assert verify(healthy / "counts").uncommitted == verify(healthy / "kafka").uncommitted == 1
    superseded = {f"segments/{path.name}" for path in (healthy / "versioned/segments").iterdir()} - file_names(
        log_state
    )
    assert superseded  # which compaction replaced, and no vacuum has removed


def test_progress_ends_at_its_total(healthy: Path) -> None:
    events: list[Progress] = []
    verify_store(LocalStorage(healthy / "versioned"), "versioned", events.append)
    done = [event.done for event in events]
    assert done == sorted(done) and len(done) > 20
    assert events[-1].done == events[-1].total <= events[0].total * 3


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.quick("0.73")
@pytest.mark.parametrize("place", [0.0, 0.1, 0.37, 0.5, 0.73, 0.9, 1.0])
def test_a_flipped_bit_in_any_file_is_told(store: Path, place: float) -> None:
    """Every flipped bit is reported except at the end of a changelog, which looks like a put that was never
    finished."""
    for name in _files(store):
        path = store / name
        saved = path.read_bytes()
        damaged = bytearray(saved)
        position = min(int(place * len(saved)), len(saved) - 1)
        damaged[position] ^= 4
        path.write_bytes(damaged)
        found = verify(store)
        told = [problem for problem in found.problems if problem.file == name]
        if name.startswith("changelog/") and not told:
            assert any(note.startswith(f"{name}: ") for note in found.notes), (name, position)
        else:
            assert told and not found.ok, (name, position)
            assert all(Path(name).name in p.message for p in told)
            assert all(problem.affects for problem in found.problems)
            assert found.verified == "nothing: see the problems"
        path.write_bytes(saved)
    assert verify(store).ok


@pytest.mark.quick("<lambda>0")
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_another_length_is_told(store: Path, change: Callable[[bytes], bytes]) -> None:
    for name in _files(store):
        saved = (store / name).read_bytes()
        (store / name).write_bytes(change(saved))
        found = verify(store)
        told = [problem for problem in found.problems if problem.file == name]
        assert told or (name.startswith("changelog/") and any(name in note for note in found.notes)), name
        (store / name).write_bytes(saved)


def test_a_missing_file_is_told(store: Path) -> None:
    """A missing file that an answer needs is reported; a checkpoint, a superseded segment and a changelog may be
    missing."""
    log_state = load_log_state(LocalStorage(store))
    needed = file_names(log_state) | {"store.json"} | {f"log/{v:020d}.json" for v in range(log_state.version)}
    for name in sorted(needed):
        saved = (store / name).read_bytes()
        (store / name).unlink()
        problems = verify(store).problems
        assert [problem.file for problem in problems] == [name]
        assert name in problems[0].message and problems[0].affects
        (store / name).write_bytes(saved)
    for path in (*(store / "log/_checkpoint").iterdir(), *(store / "changelog").iterdir()):
        path.unlink()
    assert verify(store).ok


def test_the_last_entry_leaves_files_that_belong_to_nobody(store: Path) -> None:
    """A removed last entry goes unnoticed, but its files are reported."""
    log_state = load_log_state(LocalStorage(store))
    added = {m.name for m in log_state.segments if m.min_added == log_state.version}
    (store / f"log/{log_state.version:020d}.json").unlink()
    for path in (store / "log/_checkpoint").iterdir():
        if path.name == f"{log_state.version:020d}.arrow":
            path.unlink()
    found = verify(store)
    assert found.ok and {name for name, _ in found.unreferenced} >= added > set()
    assert any("belong to no commit" in note for note in found.notes)


def test_lost_entries_that_a_checkpoint_covers(store: Path) -> None:
    (store / f"log/{1:020d}.json").unlink()
    (problem,) = verify(store).problems
    assert "as long as the next checkpoint exists" in problem.affects and problem.versions == (1, 1)
    for path in (store / "log/_checkpoint").iterdir():
        path.unlink()
    problems = verify(store).problems
    assert [p.file for p in problems] == [f"log/{1:020d}.json"]
    assert problems[0].affects == "every read and write of the store"


def test_a_gap_of_any_length_is_one_problem(store: Path) -> None:
    """The number in a file's name is no reason to look for as many files."""
    newest = load_log_state(LocalStorage(store)).version
    (store / f"log/{10**17:020d}.json").write_bytes(b"{}")
    gap, forged = verify(store).problems
    assert gap.versions == (newest + 1, 10**17 - 1)
    assert forged.file == f"log/{10**17:020d}.json" and forged.affects == "every read and write of the store"


def test_every_damaged_region_is_told(tmp_path: Path) -> None:
    """A problem has the region's number, its checksums, and the versions and times that it may concern."""
    with statestore.connect(tmp_path).create_store("big", key={"k": "bigint"}, value={"v": "binary"}) as store:
        count = 4000
        store.write(
            pa.table(
                {
                    "k": pa.array(range(count)),
                    "v": [random.Random(1).randbytes(1000)] * count,
                    "timestamp": pa.array([5000] * count, pa.int64()),
                }
            )
        )
    (path,) = (tmp_path / "big/segments").iterdir()
    data = bytearray(path.read_bytes())
    for region in (0, 2, 3):
        data[region * REGION_BYTES + 500_000] ^= 1
    path.write_bytes(data)
    found = verify(tmp_path / "big")
    assert [problem.region for problem in found.problems] == [0, 2, 3]
    for problem in found.problems:
        assert (
            problem.expected
            != problem.found
            == xxhash.xxh3_64_hexdigest(data[(problem.region or 0) * REGION_BYTES :][:REGION_BYTES])
        )
        assert (problem.versions, problem.times) == ((1, 1), (5_000_000, None))
        assert problem.affects == "rows valid from 1970-01-01T00:00:05.000Z to now, as versions 1 to 1 recorded them"


def test_all_problems_are_collected(store: Path) -> None:
    log_state = load_log_state(LocalStorage(store))
    names = sorted(file_names(log_state))[:3]
    for name in names:
        path = store / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    (store / "store.json").write_bytes(b"{}")
    assert {problem.file for problem in verify(store).problems} == {*names, "store.json"}


# Defects that checksums do not show


def _rewrite(folder: Path, version: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an entry as a writer with a bug could have written it."""
    path = folder / f"log/{version:020d}.json"
    commit = verbose_commit(path)
    change(commit)
    path.write_bytes(sealed_commit(commit))
    for checkpoint in (folder / "log/_checkpoint").glob("*"):
        checkpoint.unlink()


def _set(field: str, value: Any, commit: dict[str, Any]) -> None:
    (meta,) = [m for m in commit["added"] if m["role"] == "open" and not m["tombstone"]]
    assert meta[field] != value
    meta[field] = value


STATISTICS: list[tuple[str, Any]] = [
    ("min_valid_from", 2_000_000),
    ("max_valid_from", 2_000_000),
    ("min_valid_to", 5_000_000),
    ("max_valid_to", 5_000_000),
    ("min_added", 0),
    ("max_added", 9),
    ("last_closed", 1),
    ("split_closed", 1),
    ("late_added", 4),
    ("key_groups", [0, 3]),
    ("key_min", ["key 7"]),
    ("key_max", ["key 8"]),
]


@pytest.mark.parametrize(("field", "value"), STATISTICS)
def test_statistics_that_are_not_those_of_the_rows(store: Path, field: str, value: Any) -> None:
    """A read would skip a segment that it needs."""
    _rewrite(store, 5, partial(_set, field, value))
    problems = verify(store).problems
    assert {problem.code for problem in problems} == {"INVARIANT"}
    assert any(field.partition("_")[2] in p.message or "key" in p.message for p in problems)


def test_an_index_of_other_rows(store: Path) -> None:
    """A point read would miss keys, though the index is whole and in order."""
    storage = LocalStorage(store)
    log_state = load_log_state(storage)
    (meta,) = [m for m in log_state.segments if m.role == "open" and not m.tombstone]
    spec = statestore.connect(store.parent).locate("versioned")[1]
    hashes = hash_keys([SegmentFiles(storage, spec).open_segment(meta).column_array("k")])
    name = f"segments/{'0' * 32}.index.arrow"
    data, ref = encode_index(name, np.roll(hashes, 1))
    storage.create(name, data)

    def mislead(commit: dict[str, Any]) -> None:
        for added in commit["added"]:
            if added["file"]["name"] == meta.name:
                added["index"] = to_json(ref)

    _rewrite(store, 5, mislead)
    assert any("the key index does not lead to the rows" in problem.message for problem in verify(store).problems)


def test_closures_that_are_forgotten(store: Path) -> None:
    """Then a key has two values at one moment."""
    version = load_log_state(LocalStorage(store)).version
    _rewrite(store, version, lambda commit: commit.update(closures=[], closed=0))
    problems = verify(store).problems
    assert any("keys have two rows at one moment" in p.message for p in problems)
    assert {"LOG_WRONG", "INVARIANT"} == {p.code for p in problems}  # and the bytes do not add up


def test_keys_are_compared_in_parts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is larger than memory is compared by parts of the keys' hashes; the count stays the same."""
    version = load_log_state(LocalStorage(store)).version
    _rewrite(store, version, lambda commit: commit.update(closures=[], closed=0))
    told = [p.message for p in verify(store).problems if "two rows" in p.message]
    monkeypatch.setattr(verify_data, "PART_ROWS", 7)
    assert [p.message for p in verify(store).problems if "two rows" in p.message] == told != []


def test_a_checkpoint_that_says_something_else(store: Path) -> None:
    storage = LocalStorage(store)
    log_state = load_log_state(storage, version=3)
    _rewrite(store, 3, lambda commit: commit.update(writer="somebody else"))
    write_log_checkpoint(storage, log_state)
    (problem,) = verify(store).problems
    assert problem.code == "CHECKPOINT_WRONG" and "commits differ" in problem.message


LOGS: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("time", lambda commit: commit.update(timestamp=0), "was committed before"),
    ("stream time", lambda commit: commit.update(stream_time=1), "decreases the stream time"),
    ("transaction", lambda commit: commit.update(transaction=["app", 1]), "which an earlier version committed"),
    ("length", lambda commit: commit.update(bytes=7), "records 7 added bytes"),
    ("removed", lambda commit: commit.update(removed=["segments/none.arrow"]), "removes segment segments/none.arrow"),
]


@pytest.mark.parametrize(("change", "told"), [case[1:] for case in LOGS], ids=[case[0] for case in LOGS])
def test_entries_that_do_not_fit_together(store: Path, change: Callable[[dict[str, Any]], object], told: str) -> None:
    version = load_log_state(LocalStorage(store)).version
    _rewrite(store, version, change)
    problems = verify(store).problems
    assert any(told in problem.message for problem in problems), problems


def test_foreign_and_left_over_files_are_listed(store: Path) -> None:
    for name in ("notes.txt", f"segments/{'0' * 32}.arrow", "log/notes", "segments/.tmp-1234"):
        (store / name).write_bytes(b"mine")
    found = verify(store)
    assert found.ok
    assert sorted(name for name, _ in found.unreferenced) == [
        "log/notes",
        "notes.txt",
        "segments/.tmp-1234",
        f"segments/{'0' * 32}.arrow",
    ]
    assert "4 files (16 bytes) belong to no commit" in found.notes


def test_a_compaction_and_vacuum_meanwhile_are_no_damage(store: Path) -> None:
    """A file that was needed when the verification began and was removed by the rules is not missed."""

    def vacuum(event: Progress) -> None:
        if event.file == "store.json":
            with statestore.connect(store.parent).open_store("versioned") as handle:
                handle.commit()
                handle.compact(full=True)
                handle.vacuum(older_than=0)

    found = verify_store(LocalStorage(store), "versioned", vacuum)
    assert found.ok, found.problems


def test_vacuum_spares_the_files_of_a_store_that_is_verified(store: Path) -> None:
    held: list[int | None] = []

    def vacuum(event: Progress) -> None:
        held.append(held_from(store))
        if len(held) == 5:
            with statestore.connect(store.parent).open_store("versioned") as handle:
                handle.delete("key-0", timestamp=10_000_000)
                handle.commit()
                handle.compact(full=True)
                handle.vacuum(older_than=0)

    version = load_log_state(LocalStorage(store)).version
    found = verify_store(LocalStorage(store), "versioned", vacuum)
    assert found.ok, found.problems
    assert len(held) > 10
    assert set(held) == {version}
    assert held_from(store) is None


def test_a_store_is_verified_again_where_nothing_keeps_its_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vacuum between the check of the bytes and that of the rows."""
    monkeypatch.setattr(leases, "_HAS_LOCKS", False)
    passes: list[str] = []

    def vacuum(event: Progress) -> None:
        if event.file == "store.json":
            passes.append("begun")
        if passes == ["begun"] and event.done > event.total * 0.7 and event.file.startswith("segments/"):
            passes.append("vacuumed")
            with statestore.connect(store.parent).open_store("versioned") as handle:
                handle.commit()
                handle.compact(full=True)
                handle.vacuum(older_than=0)

    found = verify_store(LocalStorage(store), "versioned", vacuum)
    assert passes == ["begun", "vacuumed", "begun"]
    assert found.ok, found.problems


def test_stores_of_a_path(healthy: Path, tmp_path: Path) -> None:
    """All stores of a warehouse, one of them, or a store's own folder; one without a description is not passed over."""
    assert [found.store for found in verification.verify(healthy)] == sorted(KINDS)
    assert [found.store for found in verification.verify(healthy, "counts")] == ["counts"]
    assert [found.store for found in verification.verify(healthy / "joins")] == ["joins"]
    assert statestore.connect(healthy).verify("sessions").ok
    broken = shutil.copytree(healthy / "versioned", tmp_path / "broken")
    (broken / "store.json").unlink()
    assert [(found.store, found.ok) for found in verification.verify(tmp_path)] == [("broken", False)]
    for path, store, code in [
        (tmp_path, "none", "STORE_NOT_FOUND"),
        (tmp_path / "none", None, "PATH_NOT_FOUND"),
        (tmp_path / "broken" / "log", None, "NOTHING_HERE"),
    ]:
        with pytest.raises(NotFoundError, match=code):
            verification.verify(path, store)
    with pytest.raises(NotFoundError, match="STORE_NOT_FOUND"):
        statestore.connect(healthy).verify("none")
