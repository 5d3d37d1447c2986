"""Differences between directories that share table files, beside those of plain dictionaries."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from support.rocksdb.database_histories import Database, Model
from support.rocksdb.rocksdb_tables import DELETE, Form

from statestore.formats.errors import CorruptError
from statestore.formats.rocksdb import differing_ranges, scan, table_difference, table_scan
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.stored_difference import Differing
from statestore.formats.rocksdb.table_difference import rocksdb_difference
from statestore.formats.rocksdb.table_file import read_at

Found = dict[bytes, tuple[bytes | None, bytes | None]]


def pairs(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    batch.validate(full=True)
    return list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def found_between(old: Path, new: Path, ranges: tuple[KeyRange, ...] = (KeyRange(),)) -> Found:
    found: Found = {}

    def note(one: Differing) -> None:
        told: list[tuple[bytes, bytes | None, bytes | None]] = [
            *((key, None, value) for key, value in pairs(one.added)),
            *((key, value, None) for key, value in pairs(one.removed)),
        ]
        for (key, old_value), (other, new_value) in zip(pairs(one.before), pairs(one.after), strict=True):
            assert key == other
            told.append((key, old_value, new_value))
        assert len(told) == one.count > 0
        for key, before, after in told:
            assert key not in found
            found[key] = before, after

    list(rocksdb_difference(old, new, note, key_ranges=ranges, delimiter=b","))
    return found


def expected_between(old: Model, new: Model, within: KeyRange = KeyRange()) -> Found:  # noqa: B008 (frozen)
    return {
        key: (old.get(key), new.get(key))
        for key in old.keys() | new.keys()
        if old.get(key) != new.get(key)
        and (within.first is None or key >= within.first)
        and (within.stop is None or key < within.stop)
    }


def check_history(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare all versions of a random history with each other; return how many keys differed."""
    random = Random(seed)
    monkeypatch.setattr(table_scan, "RANGE_BYTES", random.choice([1, 300, 2000, 1 << 20]))
    form = Form(block_entries=random.choice([1, 3, 16]))
    database = Database(folder, random, form, merges=random.random() < 0.5)
    keys = [b"%0*d" % (random.choice([2, 9, 20]), number) for number in range(random.choice([2, 30, 400]))]
    versions: list[tuple[Path, Model]] = [(database.version(), {})]
    for _ in range(random.randrange(2, 7)):
        for _ in range(random.randrange(0, 4)):
            database.write(keys, random.choice([1, 5, 100]))
            if random.random() < 0.3:
                database.compact(whole=random.random() < 0.2)
        if random.random() < 0.3:
            database.compact(whole=random.random() < 0.3)
        versions.append((database.version(), dict(database.model)))
    differing = 0
    for number, (old, before) in enumerate(versions):
        new, after = versions[min(number + 1, len(versions) - 1)] if random.random() < 0.6 else random.choice(versions)
        within = KeyRange() if random.random() < 0.7 else KeyRange(random.choice(keys), random.choice([None, *keys]))
        expected = expected_between(before, after, within)
        assert found_between(old, new, (within,)) == expected, (seed, old, new, within)
        differing += len(expected)
    return differing


@pytest.mark.parametrize("seed", range(100, 102))
def test_differences_without_compiled_loops(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_difference, "wants_scanner", lambda _: False)
    check_history(tmp_path, seed, monkeypatch)


@pytest.fixture
def scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, "scanner")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.usefixtures("scanner")
def test_differences_of_random_histories(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_history(tmp_path, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 500))
@pytest.mark.usefixtures("scanner")
def test_differences_of_more_histories(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_history(tmp_path, seed, monkeypatch)


def database(folder: Path, count: int) -> tuple[Database, list[bytes]]:
    """A compacted database with many blocks."""
    made, keys = Database(folder, Random(1), Form(), merges=False), [b"%06d" % number for number in range(count)]
    for _ in range(8):
        made.write(keys, count)
    made.compact(whole=True)
    return made, keys


@pytest.mark.usefixtures("scanner")
def test_shared_files_are_read_where_keys_may_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, keys = database(tmp_path, 3000)
    old, before = made.version(), dict(made.model)
    made.write(keys[1000:1004], 20)
    new = made.version()
    read: list[int] = []

    def counted(descriptor: int, offset: int, size: int, path: str, into: object) -> None:
        read.append(size)
        read_at(descriptor, offset, size, path, into)  # type: ignore[arg-type]

    monkeypatch.setattr(differing_ranges, "read_at", counted)
    assert found_between(old, new) == expected_between(before, made.model)
    stored = sum(file.stat().st_size for file in tmp_path.glob("stored-*.sst"))
    assert stored > 40_000
    assert 0 < sum(read) < 2000  # the new file, and two blocks of eight entries


@pytest.mark.usefixtures("scanner")
def test_a_deletion_hides_a_row_of_a_shared_file_and_shows_it_again(tmp_path: Path) -> None:
    made, keys = database(tmp_path, 40)
    key = next(each for each in keys if each in made.model)
    value, old = made.model[key], made.version()
    made.sequence += 1
    made.levels[0].append(made._stored([(key, made.sequence, DELETE, b"")]))
    new = made.version()
    assert found_between(old, new) == {key: (value, None)}
    assert found_between(new, old) == {key: (None, value)}


@pytest.mark.usefixtures("scanner")
def test_a_compaction_changes_no_row(tmp_path: Path) -> None:
    made, keys = database(tmp_path, 200)
    made.write(keys, 50)
    old = made.version()
    made.compact(whole=True)
    assert found_between(old, made.version()) == {}


@pytest.mark.usefixtures("scanner")
def test_damage_of_a_file_of_one_version_is_an_error(tmp_path: Path) -> None:
    made, keys = database(tmp_path, 200)
    old = made.version()
    made.write(keys, 50)
    new = made.version()
    path = made.levels[0][-1].path
    data = path.read_bytes()
    for at in range(0, len(data), 37):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            assert found_between(old, new)
        except CorruptError as error:
            assert path.name in error.message
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptError):
        found_between(old, new)
