"""Rows that the new table files of a directory say alone, beside plain dictionaries of random histories."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
from support.rocksdb.database_histories import Database, Model
from support.rocksdb.rocksdb_tables import Form

from statestore.formats.rocksdb import scan, table_scan
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import TableEntry, read_families
from statestore.formats.rocksdb.written_entries import WrittenEntries, written_entries

Step = tuple[str, bytes, bytes | None]


def steps_of(directory: Path, files: list[TableEntry], within: KeyRange) -> list[Step]:
    found: list[Step] = []

    def note(one: WrittenEntries) -> None:
        for kind, rows in (("put", one.put), ("added", one.added)):
            rows.validate(full=True)
            found.extend((kind, *pair) for pair in zip(*(each.to_pylist() for each in rows.columns), strict=True))
        found.extend(("deleted", key, None) for key in one.deleted.to_pylist())

    list(written_entries(directory, files, note, within=within, delimiter=b","))
    assert len({key for _, key, _ in found}) == len(found)
    return found


def applied(model: Model, steps: list[Step]) -> Model:
    after = dict(model)
    for kind, key, value in steps:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = after[key] + b"," + value if kind == "added" and key in after else value
    return after


def files_of(directory: Path) -> dict[Path, TableEntry]:
    return {(directory / each.name).resolve(): each for each in read_families(directory)["default"].files}


def check_history(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Take each version to all later ones that have its files; return the kinds of steps that there were."""
    random = Random(seed)
    monkeypatch.setattr(table_scan, "RANGE_BYTES", random.choice([1, 300, 2000, 1 << 20]))
    database = Database(folder, random, Form(block_entries=random.choice([1, 3, 16])), merges=seed % 4 != 0)
    keys = [b"%04d" % number for number in range(random.choice([2, 30, 400]))]
    versions: list[tuple[Path, Model]] = [(database.version(), {})]
    for _ in range(8):
        for _ in range(random.randrange(0, 3)):
            database.write(keys, random.choice([1, 5, 100]))
            if random.random() < 0.2:
                database.compact(whole=random.random() < 0.3)
        versions.append((database.version(), dict(database.model)))
    kinds: set[str] = set()
    for (old, before), (new, after) in itertools.combinations(versions, 2):
        had, has = files_of(old), files_of(new)
        if not had.keys() <= has.keys():
            continue
        within = KeyRange() if random.random() < 0.7 else KeyRange(random.choice(keys), random.choice([None, *keys]))
        steps = steps_of(new, [entry for path, entry in has.items() if path not in had], within)
        for _, key, _ in steps:
            assert (within.first is None or key >= within.first) and (within.stop is None or key < within.stop)
        expected = {
            key: value
            for key, value in {**before, **after}.items()
            if within.first is not None and (key < within.first or (within.stop is not None and key >= within.stop))
        }
        inside = {key: value for key, value in after.items() if key not in expected}
        outside = {key: before[key] for key in expected if key in before}
        assert applied(before, steps) == {**inside, **outside}, (seed, old, new, within)
        kinds.update(kind for kind, _, _ in steps)
    return kinds


@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
@pytest.mark.parametrize("seed", range(5))
def test_new_files_take_a_version_to_the_next(
    seed: int, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reader == "scanner":
        pytest.importorskip("numba")
    monkeypatch.setenv(scan.READER, reader)
    kinds: set[str] = set()
    for part in range(4):
        kinds |= check_history(tmp_path / str(part), 4 * seed + part, monkeypatch)
    assert kinds == {"put", "added", "deleted"}


def test_there_may_be_no_new_file(tmp_path: Path) -> None:
    directory = Database(tmp_path, Random(1), Form(), merges=False).version()
    assert steps_of(directory, [], KeyRange()) == []
