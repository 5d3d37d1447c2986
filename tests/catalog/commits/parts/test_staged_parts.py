"""Files that tasks write into an object store have page tables, as files of the process that commits have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.object_stores.doubles import memory_location
from support.object_stores.request_record import recorded

from statestore.catalog.catalog import Catalog
from statestore.catalog.checks.verification import verify_store
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log import storage_objects
from statestore.catalog.stores.versioned.natural_versioned import write_parts
from statestore.catalog.stores.versioned.task_writes import task_write
from statestore.formats.segments.page_table import PAGED_FILE_BYTES

ROWS = 200_000


def fetched_bytes(keys: list[str]) -> int:
    """The bytes of the ranges in a record of requests."""
    ranges = [key.rpartition("[")[2].rstrip(")").split(", ") for key in keys if "[" in key]
    return sum(int(stop) - int(start) for start, stop in ranges)


def test_a_scan_of_the_past_fetches_pages_of_staged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    location = memory_location()
    numbers = np.random.default_rng(7).permutation(ROWS)
    rows = pa.table(
        {
            "item": [f"item-{number:07d}" for number in numbers],
            "note": [f"note {number * 7919 % 1_000_003}" for number in numbers],
            "timestamp": np.arange(ROWS),
        }
    )
    catalog = Catalog(location, cache=str(tmp_path / "writer"))
    store: Any = catalog.create_store("notes", key={"item": "string"}, value={"note": "string"})
    with store:
        folder = StagingFolder.of_new_write(store._storage)
        plan = task_write(store._storage, store.spec)
        assert plan is not None
        parts = plan.in_folder(folder).stage((0,), iter(rows.to_batches(50_000)))
        write_parts(store, parts)
        segments = store.table.files().log.newest().segments
        refs = [ref for meta in segments for ref in (meta.file, meta.index) if ref is not None]
        assert verify_store(store._storage, "notes").ok
    large = [ref for ref in refs if ref.bytes > PAGED_FILE_BYTES]
    assert len(large) == 2 and all(ref.tail_checksum for ref in large), refs  # a segment and its key index

    monkeypatch.setattr(storage_objects, "WHOLE_BYTES", 0)  # as if the files were larger
    reader = Catalog(location, cache=str(tmp_path / "reader")).open_store("notes", auto_compact=False)
    with reader, recorded() as record:
        found = reader.scan(as_of=999).read_all()
    assert sorted(found["item"].to_pylist()) == sorted(rows["item"].to_pylist()[:1_000])
    segment = max(refs, key=lambda ref: ref.bytes if "index" not in ref.name else 0)
    of_segment = [each.key for each in record.requests if segment.name in each.key]
    assert len(of_segment) <= 4, record
    assert 0 < fetched_bytes(of_segment) < segment.bytes / 8, record
