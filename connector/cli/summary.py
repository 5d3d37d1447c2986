"""`statestore inspect`: one row per store, from metadata alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.discovery import Warehouse, open_warehouse
from statestore.connector.cli.output import human_bytes, human_duration
from statestore.connector.cli.reading import read_all
from statestore.formats.state_table import Query


def summary_table(path: Path) -> pa.Table:
    """Name, columns, versions, rows kept, live time span, bytes and last writer of every store at ``path``."""
    warehouse = open_warehouse(path)
    return pa.Table.from_pylist([_summary(warehouse, name) for name in warehouse.tables()])


def _summary(warehouse: Warehouse, name: str) -> dict[str, object]:
    versions = read_all(warehouse.table(f"{name}$versions"), Query())
    segments = read_all(warehouse.table(f"{name}$segments"), Query())
    schema = read_all(warehouse.table(f"{name}$schema"), Query()).to_pylist()
    values = segments.filter(pc.and_(pc.invert(segments["tombstones"]), pc.not_equal(segments["role"], "belief")))
    about = warehouse.about(name)
    last = versions.slice(versions.num_rows - 1).to_pylist()[0]
    size = sum(segments["bytes"].to_pylist()) + sum(segments["index_bytes"].to_pylist())
    return {
        "store": name,
        "kind": about.kind,
        "retention": None if about.retention is None else human_duration(about.retention),
        "key": ", ".join(f"{c['column']} {c['type']}" for c in schema if c["role"] == "key"),
        "value": ", ".join(f"{c['column']} {c['type']}" for c in schema if c["role"] == "value"),
        "version": last["version"],
        "rows": pc.sum(values["rows"]).as_py() or 0,
        "from": pc.min(values["min_valid_from"]).as_py(),
        "to": last["stream_time"],
        "size": human_bytes(size),
        "last_commit": last["timestamp"],
        "writer": last["writer"],
    }
