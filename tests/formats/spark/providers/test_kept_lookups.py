"""Keys of checkpoints that are asked for again: what is opened and read, and that no answer is older than its files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints.large_checkpoints import words, write_checkpoint
from support.checkpoints.rocksdb_checkpoints import write_rocksdb_checkpoint
from support.checkpoints.small_checkpoints import write_small_checkpoint
from support.rows_read import BytesRead

import statestore
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.providers import kept_positions

pytestmark = pytest.mark.usefixtures("settled")

KEYS = 2000


def by_thirds(batch: int, keys: int) -> tuple[Ints, Ints]:
    """Batch 0 puts all, then each batch a third of the keys by their order, and deletes the least of these."""
    if not batch:
        return np.arange(keys), np.empty(0, np.int64)
    third = np.argsort(words(np.arange(keys)))[(batch - 1) * keys // 3 : batch * keys // 3]
    return third[1:], third[:1]


def ask(folder: Path, number: int) -> Any:
    found = statestore.inspect(folder).table("state").get({"word": words(np.array([number]))[0].decode()})
    return None if found is None else found["value"]["count"]


def test_a_further_key_opens_the_table_files_that_may_hold_it_and_reads_a_block_of_each(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    states = write_rocksdb_checkpoint(folder, KEYS, 4, by_thirds)
    table = statestore.inspect(folder).table("state")
    asked = [{"word": word.decode()} for word in words(np.arange(KEYS)).tolist()]
    order = np.argsort(words(np.arange(KEYS))).tolist()
    for at in (5, 700, 1500):  # each in the first file and one other
        table.get(asked[order[at]])
    reading = BytesRead(folder)
    for number in (order[at] for at in (0, 5, 6, 700, 701, KEYS // 3, 1500, KEYS - 1)):
        found = reading.of(table.get, asked[number])
        assert (None if found is None else found["value"]["count"]) == states[-1].get(number)
        assert {path.suffix for path in reading.opened} == {".sst"}
        assert len(reading.opened) == 2, number
        assert reading.bytes <= 2 * 5000, number


def test_an_answer_follows_each_change_of_the_files(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_rocksdb_checkpoint(old, KEYS, 2, by_thirds)
    write_rocksdb_checkpoint(new, KEYS, 3, by_thirds)
    folder = tmp_path / "checkpoint"
    asked = np.argsort(words(np.arange(KEYS)))[[0, 1, 700]].tolist()
    shutil.copytree(old, folder)
    for _ in range(2):
        assert [ask(folder, number) for number in asked] == [None, 1, 0]
    shutil.copytree(new, folder, dirs_exist_ok=True)
    for _ in range(2):
        assert [ask(folder, number) for number in asked] == [None, 1, 2]


@pytest.mark.parametrize("way", ["damaged", "cut", "removed"])
def test_a_table_file_that_is_not_whole_any_more_is_an_error_of_its_keys(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "checkpoint"
    write_rocksdb_checkpoint(folder, KEYS, 2, by_thirds)
    early, late = np.argsort(words(np.arange(KEYS)))[[1, 700]].tolist()
    assert [ask(folder, number) for number in (early, early, late)] == [1, 1, 0]
    newest = max((folder / "state" / "0" / "0" / "SSTs").glob("*.sst"))
    content = newest.read_bytes()
    if way == "damaged":
        newest.write_bytes(bytes(len(content)))
    elif way == "cut":
        newest.write_bytes(content[:-1])
    else:
        newest.unlink()
    for _ in range(2):
        with pytest.raises(StateStoreError, match=r"SPARK_STATE_(FILE|NOT_FOUND)"):
            ask(folder, early)
    newest.write_bytes(content)
    assert [ask(folder, number) for number in (early, late)] == [1, 0]


@pytest.mark.parametrize("changelogs", [False, True])
def test_records_are_read_once_for_keys_of_a_partition(tmp_path: Path, changelogs: bool) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 8, partitions=4, words=60, changelogs=changelogs)
    table = statestore.inspect(made.folder).table("state")
    state, words_asked = made.state(), [f"key-{number:06d}" for number in range(60)]
    for again in (False, True):
        reading = BytesRead(made.folder)
        for word in words_asked:
            found = reading.of(table.get, {"word": word})
            row = None if found is None else (found["value"]["count"], found["value"]["total"])
            assert row == state.get(word), word
            assert not again or not [path for path in reading.opened if path.suffix in (".delta", ".changelog")], word


def test_a_batch_that_is_committed_is_answered_at_once(tmp_path: Path) -> None:
    before = write_small_checkpoint(tmp_path / "checkpoint", 5, partitions=4, words=60)
    after = write_small_checkpoint(tmp_path / "after", 6, partitions=4, words=60)
    word = next(word for word, row in after.batches[-1].items() if row is not None)
    table = statestore.inspect(before.folder).table("state")
    for made in (before, before, after):
        if made is after:
            shutil.copytree(after.folder, before.folder, dirs_exist_ok=True)
        expected = made.state().get(word)
        found = table.get({"word": word})
        assert (None if found is None else (found["value"]["count"], found["value"]["total"])) == expected
    many = [{"word": each} for each in after.state()]
    rows = table.scan(filter=("key", "in", many)).read_all().to_pylist()
    assert {row["key"]["word"]: (row["value"]["count"], row["value"]["total"]) for row in rows} == after.state()


def test_records_of_larger_files_are_found_by_their_places_and_their_blocks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_positions, "LEAST_STORED", 0)
    made = write_checkpoint(tmp_path / "checkpoint", 60_000, 4, partitions=2, snapshots=2)
    table = statestore.inspect(made).table("state")
    rows = {row["key"]["word"]: row["value"] for row in table.scan().read_all().to_pylist()}
    asked = [word.decode() for word in words(np.arange(6, 60_000, 1499)).tolist()]
    assert 0 < len(rows.keys() & asked) < len(asked)
    whole = sum(file.stat().st_size for file in made.rglob("*.snapshot"))
    for again in (False, True):
        reading = BytesRead(made)
        for word in asked:
            found = reading.of(table.get, {"word": word})
            assert (found and found["value"]) == rows.get(word), word
            assert not again or reading.bytes < whole // 8, word
    found = table.scan(filter=("key", "in", [{"word": word} for word in asked])).read_all().to_pylist()
    assert {row["key"]["word"]: row["value"] for row in found} == {word: rows[word] for word in rows.keys() & asked}


def test_places_are_not_used_of_files_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is replaced by one of the same size and with its times, and another loses its end."""
    monkeypatch.setattr(kept_positions, "LEAST_STORED", 0)
    made = write_small_checkpoint(tmp_path / "checkpoint", 6, partitions=1, words=40, checksums=False)
    other = write_small_checkpoint(tmp_path / "other", 6, partitions=1, words=40, seed=9, checksums=False)
    table = statestore.inspect(made.folder).table("state")
    asked = [{"word": f"key-{number:06d}"} for number in range(40)]

    def found() -> dict[str, tuple[int, float]]:
        rows = [row for key in asked if (row := table.get(key)) is not None]
        return {row["key"]["word"]: (row["value"]["count"], row["value"]["total"]) for row in rows}

    assert found() == found() == made.state()
    deltas = sorted((made.folder / "state" / "0" / "0").glob("*.delta"))
    before = [path.stat() for path in deltas]
    for path, times in zip(deltas, before, strict=True):
        path.write_bytes((other.folder / "state" / "0" / "0" / path.name).read_bytes())
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found() == found() == other.state()
    deltas[3].write_bytes(deltas[3].read_bytes()[:-30])
    with pytest.raises(StateStoreError, match=r"4\.delta"):
        found()
