"""A database of a hot tier that holds less than its mark requires, or is another one, is not opened as if it were
whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from statestore.catalog.stores.live.hot_tier import ONE, HotTier
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.catalog.stores.live.tier_position import DatabaseMark

Marks = tuple[DatabaseMark, ...]
ROWS: dict[bytes, bytes | None] = {b"%03d" % number: b"value" for number in range(100)}


def by_puts(tier: HotTier) -> None:
    for key, value in ROWS.items():
        tier.put(ONE, key, value)


def by_ingestion(tier: HotTier) -> None:
    """Ingest rows into an empty database, so that they have no sequence numbers."""
    tier.database(ONE)
    tier.ingest(ONE, ROWS)


def database(root: Path) -> Path:
    return root / "rocksdb" / "s"


def manifest(root: Path) -> Path:
    return database(root) / (database(root) / "CURRENT").read_text().strip()


def empty(root: Path) -> tuple[Marks, int]:
    """A tier without rows: its marks, and the length of its MANIFEST."""
    tier = HotTier(root, "s")
    tier.database(ONE)
    marks = tier.marks()
    tier.close()
    return marks, manifest(root).stat().st_size


def filled(root: Path, marks: Marks, fill: Callable[[HotTier], None]) -> tuple[Marks, int]:
    """The marks of that tier with rows, and the length that its MANIFEST had without them."""
    tier = HotTier(root, "s")
    tier.open(marks)
    without = manifest(root).stat().st_size
    fill(tier)
    tier.flush()
    marks = tier.marks()
    tier.close()
    return marks, without


def rows(root: Path, marks: Marks) -> int:
    tier = HotTier(root, "s")
    try:
        tier.open(marks)
        return len(list(tier.scan(ONE)))
    finally:
        tier.close()


def open_elsewhere(root: Path) -> None:
    """Open the database like a process that dies before it makes a mark: RocksDB begins a new MANIFEST."""
    before = manifest(root).name
    Rdict(str(database(root)), Options(raw_mode=True)).close()
    assert manifest(root).name != before


fills = pytest.mark.parametrize("fill", [by_puts, by_ingestion])


@fills
def test_a_whole_database_is_opened(tmp_path: Path, fill: Callable[[HotTier], None]) -> None:
    marks, _ = filled(tmp_path, empty(tmp_path)[0], fill)
    assert rows(tmp_path, marks) == len(ROWS)
    open_elsewhere(tmp_path)
    assert rows(tmp_path, marks) == len(ROWS)


@fills
def test_a_manifest_that_lost_its_end(tmp_path: Path, fill: Callable[[HotTier], None]) -> None:
    marks, without = filled(tmp_path, empty(tmp_path)[0], fill)
    path = manifest(tmp_path)
    path.write_bytes(path.read_bytes()[:without])
    with pytest.raises(TierBrokenError, match="was cut or changed"):
        rows(tmp_path, marks)


def test_a_manifest_that_was_changed(tmp_path: Path) -> None:
    marks, _ = filled(tmp_path, empty(tmp_path)[0], by_puts)
    path = manifest(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(TierBrokenError, match="was cut or changed"):
        rows(tmp_path, marks)


def test_a_manifest_that_lost_its_end_and_was_opened_since(tmp_path: Path) -> None:
    """Another MANIFEST follows, which says nothing of what is missing; the sequence number does."""
    marks, without = filled(tmp_path, empty(tmp_path)[0], by_puts)
    path = manifest(tmp_path)
    path.write_bytes(path.read_bytes()[:without])
    open_elsewhere(tmp_path)
    with pytest.raises(TierBrokenError, match="ends at sequence number"):
        rows(tmp_path, marks)


@fills
def test_an_older_copy_of_the_same_database(tmp_path: Path, fill: Callable[[HotTier], None]) -> None:
    marks, _ = empty(tmp_path)
    shutil.copytree(database(tmp_path), tmp_path / "copy")
    marks, _ = filled(tmp_path, marks, fill)
    shutil.rmtree(database(tmp_path))
    shutil.copytree(tmp_path / "copy", database(tmp_path))
    with pytest.raises(TierBrokenError, match="or a later one"):
        rows(tmp_path, marks)


def test_another_database_in_its_place(tmp_path: Path) -> None:
    """Though it is younger, and has seen more writes."""
    marks, _ = filled(tmp_path / "a", empty(tmp_path / "a")[0], by_puts)
    other, _ = filled(tmp_path / "b", empty(tmp_path / "b")[0], by_puts)
    for _ in range(2):
        other, _ = filled(tmp_path / "b", other, by_puts)
    shutil.rmtree(database(tmp_path / "a"))
    shutil.copytree(database(tmp_path / "b"), database(tmp_path / "a"))
    with pytest.raises(TierBrokenError, match="is another database"):
        rows(tmp_path / "a", marks)
