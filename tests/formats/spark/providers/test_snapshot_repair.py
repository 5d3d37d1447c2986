"""Snapshots that cannot be read beside whole deltas or changelogs: the rows are those of the batch, with a notice."""

from __future__ import annotations

import io
import json
import shutil
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import LOCAL, checkpoint_path, index, multiset, truth

import statestore
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.notices import StateStoreWarning
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.checkpoint.state_views import find_state_view
from statestore.formats.spark.providers import snapshot_repair
from statestore.formats.spark.providers.partition_load import files_of_batch, open_partition
from statestore.formats.spark.state_difference import changes_between
from statestore.formats.spark.state_rows import read_state

HDFS, CHANGELOG, FORMAT_2 = "spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl", "spark4.3.0-agg__rkv2"
VARIABLES = "spark4.3.0-twsttl__rkcl"
Damage = Callable[[Path], object]


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(checkpoint_path(name), tmp_path / name))


def bases(path: Path, partition: int = 0) -> list[Path]:
    """The snapshots of a partition, the newest first."""
    files = [
        *(path / "state/0" / str(partition)).glob("*.snapshot"),
        *(path / "state/0" / str(partition)).glob("*.zip"),
    ]
    return sorted(files, key=lambda file: -int(file.stem.split("_")[0]))


def rows(path: Path, name: str | None = None, batch: int | None = None, **options: Any) -> Counter[Any]:
    checkpoint = open_checkpoint(LOCAL, str(path), batch)
    found = find_state_view(checkpoint, 0, name)
    batches = [batch for part in found.store.partitions for batch in read_state(checkpoint, found, part, **options)]
    return multiset(pa.Table.from_batches(batches, found.schema))


def expected(name: str, read: str = "op0~last") -> Counter[Any]:
    return multiset(truth(index()[name]["reads"][read]))


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def all_but_the_end(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def other_bytes(file: Path) -> None:
    file.write_bytes(b"damaged")


def one_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if file.suffix != ".sst" else 20] ^= 1  # of a table file, in its first block
    file.write_bytes(data)


def metadata(change: Callable[[dict[str, Any]], object]) -> Damage:
    """A zip that is whole, with other metadata."""

    def damage(file: Path) -> None:
        with zipfile.ZipFile(file) as members:
            held = {name: members.read(name) for name in members.namelist()}
        version, document = held["metadata"].split(b"\n", 1)
        found = json.loads(document)
        change(found)
        held["metadata"] = version + b"\n" + json.dumps(found).encode()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as written:
            for name, data in held.items():
                written.writestr(name, data)
        file.write_bytes(packed.getvalue())

    return damage


def without_member(name: str) -> Damage:
    def damage(file: Path) -> None:
        with zipfile.ZipFile(file) as members:
            held = {each: members.read(each) for each in members.namelist() if not each.startswith(name)}
        with zipfile.ZipFile(file, "w") as written:
            for each, data in held.items():
                written.writestr(each, data)

    return damage


def own_tables(damage: Damage) -> Damage:
    """Damage to the table files that only this zip has."""

    def of_zip(file: Path) -> None:
        def tables(each: Path) -> set[str]:
            with zipfile.ZipFile(each) as members:
                document = json.loads(members.read("metadata").split(b"\n", 1)[1])
            return {str(table["dfsSstFileName"]) for table in document["sstFiles"]}

        others = [tables(each) for each in file.parent.glob("*.zip") if each != file]
        for name in tables(file).difference(*others):
            damage(file.parent / "SSTs" / name)

    return of_zip


OF_FILES: dict[str, Damage] = {
    "half": half,
    "end": all_but_the_end,
    "bytes": other_bytes,
    "empty": lambda file: file.write_bytes(b""),
    "bit": one_bit,
}
OF_ZIPS: dict[str, Damage] = {
    "no table list": metadata(lambda found: found.pop("sstFiles")),
    "no manifest": without_member("MANIFEST"),
    "no metadata": without_member("metadata"),
    "no table files": own_tables(lambda file: file.unlink()),
    "half a table file": own_tables(half),
    "a bit of a table file": own_tables(one_bit),
}
CASES = [(name, kind, damage) for name in (HDFS, CHANGELOG, FORMAT_2) for kind, damage in OF_FILES.items()]
CASES += [(name, kind, damage) for name in (CHANGELOG, FORMAT_2) for kind, damage in OF_ZIPS.items()]


@pytest.mark.parametrize(("name", "kind", "damage"), CASES, ids=[f"{name}-{kind}" for name, kind, _ in CASES])
def test_the_rows_are_those_of_the_batch(name: str, kind: str, damage: Damage, copied: Callable[[str], Path]) -> None:
    path = copied(name)
    (newest, *_) = bases(path)
    damage(newest)
    with pytest.warns(StateStoreWarning, match=f"{newest.name} cannot be read") as told:
        assert rows(path) == expected(name)
    assert len({str(each.message) for each in told}) == 1


@pytest.mark.parametrize("name", [HDFS, CHANGELOG, FORMAT_2])
def test_without_any_snapshot_the_changes_are_the_state(name: str, copied: Callable[[str], Path]) -> None:
    path = copied(name)
    for file in bases(path, 0):
        half(file)
    for file in bases(path, 1):
        file.unlink()  # nothing is wrong with a state that has none, so there is no notice
    with pytest.warns(StateStoreWarning, match="read from the empty state and the 6 files") as told:
        assert rows(path) == expected(name)
    assert all("state/0/0:" in str(each.message) for each in told)


@pytest.mark.parametrize("name", [HDFS, CHANGELOG, FORMAT_2])
def test_without_the_changes_the_error_is_that_of_the_snapshot(name: str, copied: Callable[[str], Path]) -> None:
    path = copied(name)
    newest = bases(path)[0]
    other_bytes(newest)
    version = int(newest.stem.split("_")[0])
    for file in (path / "state/0/0").glob(f"{version}*"):
        if file != newest and file.suffix in (".delta", ".changelog"):
            file.unlink()
    with pytest.raises(CorruptError, match=newest.name):
        rows(path)


def test_a_snapshot_that_the_user_names_is_read_or_refused(copied: Callable[[str], Path]) -> None:
    path = copied(CHANGELOG)
    newest = bases(path)[0]
    other_bytes(newest)
    with pytest.raises(CorruptError, match=newest.name):
        rows(path, base_version=6)
    assert rows(path, base_version=3) == expected(CHANGELOG)


def test_zips_of_another_lineage_are_no_way_out(copied: Callable[[str], Path]) -> None:
    """Checkpoint format 2: what a failed attempt left has the version, another uid, and other rows."""
    path = copied(FORMAT_2)
    newest, older = bases(path)
    half(newest)
    with zipfile.ZipFile(older) as members:
        left = members.read("metadata").replace(b'"numKeys":', b'"numKeys":9')
    (older.parent / "5_00000000-0000-0000-0000-000000000000.zip").write_bytes(older.read_bytes())
    assert left
    with pytest.warns(StateStoreWarning, match=f"read from {older.name} and the 3 files"):
        assert rows(path) == expected(FORMAT_2)


def test_ids_of_column_families_come_from_another_zip(copied: Callable[[str], Path]) -> None:
    path = copied(VARIABLES)
    half(bases(path)[0])
    for name in ("val", "lst", "timers"):
        with pytest.warns(StateStoreWarning):
            assert rows(path, name) == expected(VARIABLES, f"op0~last~{name}")
    for file in bases(path):
        half(file)
    with pytest.raises(CorruptError, match="not a readable zip"):  # no zip tells the families apart
        rows(path, "val")


@pytest.mark.parametrize("name", [HDFS, CHANGELOG])
def test_a_large_snapshot_fails_once_rows_of_it_were_returned(
    name: str, copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row comes twice and none is missing: rows that were handed out cannot be taken back."""
    path = copied(name)
    damage = all_but_the_end if name == HDFS else own_tables(one_bit)
    damage(bases(path)[0])
    monkeypatch.setattr(snapshot_repair, "HELD_BYTES", -1)
    try:
        with pytest.warns(StateStoreWarning):
            assert rows(path) == expected(name)
    except CorruptError as error:
        assert bases(path)[0].name in error.message


@pytest.mark.parametrize("name", [HDFS, CHANGELOG, FORMAT_2])
def test_every_door_reads_on(name: str, copied: Callable[[str], Path]) -> None:
    path = copied(name)
    whole = statestore.inspect(checkpoint_path(name)).table("state")
    half(bases(path)[0])
    table = statestore.inspect(path).table("state")
    with pytest.warns(StateStoreWarning):
        key = table.scan().read_all().to_pylist()[0]["key"]
    reads: list[Callable[[Any], object]] = [
        lambda each: multiset(each.scan(filter=("key", "=", key)).read_all()),
        lambda each: each.get(key),
        lambda each: multiset(each.history().read_all()),
        lambda each: multiset(each.changes(start_version=2).read_all()),
        lambda each: multiset(each.diff(start_version=1).read_all().select(["_change", "key"])),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StateStoreWarning)  # some of them begin with the empty state
        assert [read(table) for read in reads] == [read(whole) for read in reads]


def test_files_of_a_batch_are_those_that_are_read(copied: Callable[[str], Path]) -> None:
    path = copied(CHANGELOG)
    half(bases(path)[0])
    checkpoint = open_checkpoint(LOCAL, str(path))
    view = find_state_view(checkpoint, 0)
    names = [file.name for file in files_of_batch(open_partition(checkpoint, view.store, 0, "default"))]
    assert names[0] == "3.zip" and names[-3:] == ["4.changelog", "5.changelog", "6.changelog"]


def test_states_are_compared_in_the_order_of_their_keys(copied: Callable[[str], Path]) -> None:
    """Rows of a zip come by key, and those that are read past a damaged one do not."""
    path = copied(CHANGELOG)
    half(bases(path)[0])
    whole = _compared(checkpoint_path(CHANGELOG))
    with pytest.warns(StateStoreWarning):
        assert _compared(path) == whole
    assert whole


def _compared(root: Path) -> list[tuple[int, bytes]]:
    """(kind, key) of the differences between the states of batch 2 and of batch 5."""
    opened = []
    for number in (2, 5):
        checkpoint = open_checkpoint(LOCAL, str(root), number)
        opened.append(open_partition(checkpoint, find_state_view(checkpoint, 0).store, 0, "default"))
    found = [change for _, change in changes_between(opened[:1], opened[1:])]
    return sorted(
        (int(kind), key)
        for each in found
        for kind, key in zip(each.kind, each.keys.copied(corrupt_row).to_pylist(), strict=True)
    )


def test_damage_to_changes_is_no_damage_to_a_snapshot(copied: Callable[[str], Path]) -> None:
    path = copied(CHANGELOG)
    other_bytes(path / "state/0/0/5.changelog")
    with pytest.raises(StateStoreError, match=r"5\.changelog"):
        rows(path, batch=4)
    assert rows(path) == expected(CHANGELOG)
    other_bytes(bases(path)[0])
    with pytest.raises(StateStoreError, match=r"5\.changelog"):
        rows(path)


def test_a_missing_batch_is_no_damage(copied: Callable[[str], Path]) -> None:
    path = copied(CHANGELOG)
    (path / "state/0/0/5.changelog").unlink()
    with pytest.raises(NotFoundError, match="no file of version 5"):
        rows(path, batch=4)
