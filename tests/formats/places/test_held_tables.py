"""Large tables are the same rows in a file that nobody finds."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StorageError
from statestore.formats.places import held_tables
from statestore.formats.places.held_tables import held, held_batches, held_rows

ROWS = pa.table({"word": [f"word {number}" for number in range(1000)], "count": [*range(999), None]})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(held_tables, "LARGE", 2000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def files_mapped() -> int:
    return Path("/proc/self/maps").read_text().count("(deleted)")


def test_a_large_table_is_in_a_file_without_a_name(tmp_path: Path) -> None:
    before, allocated = files_mapped(), pa.total_allocated_bytes()
    table = held(ROWS)
    assert table.equals(ROWS)
    assert files_mapped() > before and pa.total_allocated_bytes() - allocated < ROWS.nbytes
    assert not list(tmp_path.iterdir())
    assert held(ROWS.slice(0, 3)).equals(ROWS.slice(0, 3))


def test_batches_keep_their_bounds() -> None:
    batches = [batch for size in (1, 0, 700, 299) for batch in [pa.record_batch({"n": list(range(size))})]]
    batches = [batch.cast(pa.schema([("n", pa.int64())])) for batch in batches]
    assert [each.to_pydict() for each in held_batches(batches)] == [each.to_pydict() for each in batches]
    assert held_batches([]) == []


def test_batches_are_taken_one_by_one_and_their_errors_stay_theirs() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches(max_chunksize=100)
        raise FileNotFoundError("of the source")

    with pytest.raises(FileNotFoundError, match="of the source"):
        held_rows(ROWS.schema, failing())


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Full:
        def write_batch(self, batch: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pa.ipc, "new_file", lambda *given: Full())
    with pytest.raises(StorageError, match="cannot write a temporary file in: No space left") as caught:
        held(ROWS)
    assert caught.value.code == ErrorCode.DISK_FAILED and str(tmp_path) in str(caught.value)
