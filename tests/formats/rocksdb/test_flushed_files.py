"""The files that memory was flushed to, by the MANIFESTs that RocksDB itself wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from statestore.formats.rocksdb.flushed_files import flushed_since
from statestore.formats.rocksdb.manifest import families_of, manifest_of

Listing = dict[str, bytes]


def options() -> Options:
    found = Options(raw_mode=True)
    found.set_disable_auto_compactions(True)
    return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Rdict]:
    with closing(Rdict(str(tmp_path / "database"), options())) as found:
        yield found


def listing_of(database: Rdict) -> Listing:
    """Flush, and return what a checkpoint has beside table files."""
    database.flush()
    folder = Path(database.path())
    return {path.name: path.read_bytes() for path in (folder / "CURRENT", manifest_of(folder))}


def flushed(before: Listing, after: Listing, *, filtered: bool = False) -> int | None:
    """Return the number of files."""
    family = families_of(after, "here")["default"]
    found = flushed_since(before, after, family, "here", filtered=filtered)
    return None if found is None else len(found)


def put(database: Rdict, *keys: int) -> None:
    for key in keys:
        database[b"%d" % key] = b"value"


def flush_and_put(database: Any) -> None:
    database.flush()
    put(database, 8)


def compact_and_put(database: Any) -> None:
    database.compact_range(None, None)
    put(database, 8)


@pytest.mark.parametrize(
    ("between", "expected", "filtered"),
    [
        (lambda database: None, 1, 1),
        (flush_and_put, 2, 2),
        (compact_and_put, None, None),
    ],
    ids=["one flush", "two flushes", "a compaction of what was written"],
)
def test_files_that_hold_all_that_was_written(
    database: Rdict, between: Callable[[Rdict], object], expected: int | None, filtered: int | None
) -> None:
    put(database, 1, 2, 3)
    before = listing_of(database)
    put(database, 3, 4)
    between(database)
    after = listing_of(database)
    assert flushed(before, after) == expected
    assert flushed(before, after, filtered=True) == filtered
    assert flushed(before, before) == 0


def test_a_compaction_of_what_was_there_adds_nothing_but_may_remove(database: Rdict) -> None:
    put(database, 1, 2, 3)
    database.flush()
    put(database, 2, 3, 4)
    before = listing_of(database)
    database.compact_range(None, None)
    after = listing_of(database)
    assert flushed(before, after) == 0
    assert flushed(before, after, filtered=True) is None
    put(database, 5)
    assert flushed(before, listing_of(database)) == 1


def test_a_database_that_was_opened_anew_does_not_tell(tmp_path: Path) -> None:
    path = str(tmp_path / "database")
    with closing(Rdict(path, options())) as database:
        put(database, 1)
        before = listing_of(database)
    with closing(Rdict(path, options())) as database:
        put(database, 2)
        after = listing_of(database)
        assert flushed(before, after) is None
        put(database, 3)
        assert flushed(after, listing_of(database)) == 1
