"""Captured stores of small states, written version by version as a capture writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.catalog import connect
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.store_spec import Captured
from statestore.catalog.store_kinds import new_captured_spec
from statestore.catalog.stores.versioned.captured_store import CapturedStore

APPLICATION = "capture:source-1"
PATH = "/jobs/counts"
BAG = Captured("source-1", PATH, "events", "list", ("batch", "batches"), ("k",), (), ("_copy",))
BAG_COLUMNS = (pa.schema({"k": pa.string(), "_copy": pa.int64()}), pa.schema({"n": pa.int64()}))
KEYED = Captured("source-1", PATH, "counts", "aggregate", ("batch", "batches"), ("k",), ("k",))
KEYED_COLUMNS = (pa.schema({"k": pa.string()}), pa.schema({"n": pa.int64()}))
FLOATS = Captured("source-1", PATH, "rates", "aggregate", ("batch", "batches"), ("f",), ("f",), ("_row",))
FLOATS_COLUMNS = (pa.schema({"_row": pa.binary()}), pa.schema({"f": pa.float64(), "n": pa.int64()}))

Cells = Mapping[tuple[Any, ...], tuple[Any, ...]]
"""Rows of a store by their keys."""


def new_store(
    warehouse: Path | str, name: str, captured: Captured, columns: tuple[pa.Schema, pa.Schema]
) -> CapturedStore:
    store = connect(warehouse).create_described(new_captured_spec(name, *columns, captured))
    assert isinstance(store, CapturedStore)
    return store


def capture(store: CapturedStore, version: SourceVersion, old: Cells, new: Cells, after: int | None) -> int:
    """Write what turned one content of the store into another, as the changes of a version."""
    gone = [(*key, *(None for _ in store.spec.value), "delete") for key in old if key not in new]
    put = [(*key, *cells, "insert") for key, cells in new.items() if old.get(key) != cells]
    fields = [*store.spec.key, *store.spec.value, pa.field("_change_type", pa.string())]
    columns: Sequence[Sequence[Any]] = list(zip(*gone, *put, strict=True)) or [()] * len(fields)
    rows = pa.table({f.name: pa.array(c, f.type) for f, c in zip(fields, columns, strict=True)})
    times = pa.array([version.time] * rows.num_rows, pa.timestamp("us", "UTC"))
    rows = rows.append_column("timestamp", times)
    return store.write(rows, "append", (APPLICATION, version.version), source=version, after=after)
