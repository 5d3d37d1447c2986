"""One object for each table at a path, from metadata: what `inspect` and the report say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statestore.catalog.describe.store_summary import StoreSummary, summarize
from statestore.catalog.engines.engine_summary import EngineSummary, summarize_state
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.warehouse import Warehouse, open_warehouse
from statestore.connector.terminal.output import human_duration
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import format_time
from statestore.formats.values.types import shown_field

KNOWN_OF_STORES = (
    "keys", "rows", "version", "oldest_version", "from", "to", "kept_from", "segments", "deltas", "bytes",
    "changelog_bytes", "uncommitted", "cache_bytes", "unreferenced_bytes", "last_commit", "writer",
)  # fmt: skip


def summaries(path: str | Path) -> list[dict[str, Any]]:
    """An object for each table at ``path``: sizes in bytes, times as ISO-8601, null where nothing is known."""
    warehouse = open_warehouse(path)
    return [_summary(warehouse, name) for name in warehouse.tables()]


def _summary(warehouse: Warehouse, name: str) -> dict[str, Any]:
    item: dict[str, Any] = {"store": name, "kind": None, "key": None, "value": None}
    item |= {"retention": None, "retention_ms": None, "partitions": None, **dict.fromkeys(KNOWN_OF_STORES)}
    item |= {"health": [], "status": "ok"}
    try:
        about = warehouse.about(name)
        kept = about.retention
        item |= {"kind": about.kind, "retention": None if kept is None else human_duration(kept), "retention_ms": kept}
        table = warehouse.table(name)
        item |= _columns(table)
        if isinstance(table, VersionedTable):
            item |= _of_store(summarize(table.storage, table.spec))
        elif isinstance(table, EngineTable):
            item |= _of_state(summarize_state(table))
        else:
            item["oldest_version"], item["version"] = table.kept_versions()
    except StateStoreError as error:
        what = "damaged" if isinstance(error, CorruptError | NotFoundError) else "can not be read"
        item |= {"health": [f"{what}: {error}"], "status": "damaged"}
    return item


def _columns(table: StateTable) -> dict[str, Any]:
    fields = {field.name: shown_field(field) for field in table.schema(Query())}
    keys = table.row_key or table.key_columns
    values = [name for name in fields if name not in (*keys, "valid_from", "valid_to")]
    return {"key": {name: fields[name] for name in keys}, "value": {name: fields[name] for name in values}}


def _of_store(found: StoreSummary) -> dict[str, Any]:
    return {
        "keys": found.keys,
        "rows": found.rows,
        "version": found.version,
        "oldest_version": found.oldest_version,
        "from": _time(found.first_time),
        "to": _time(found.stream_time),
        "kept_from": _time(found.kept_from),
        "segments": found.segments,
        "deltas": found.deltas,
        "bytes": found.bytes,
        "changelog_bytes": found.changelog_bytes,
        "uncommitted": found.uncommitted,
        "cache_bytes": found.cache_bytes,
        "unreferenced_bytes": found.unreferenced_bytes,
        "last_commit": _time(found.last_commit),
        "writer": found.writer,
        "health": list(found.problems),
        "status": "damaged" if found.damaged else "attention" if found.problems else "ok",
    }


def _of_state(found: EngineSummary) -> dict[str, Any]:
    size, word = found.size, found.word
    ranges = [{f"first_{word}": first, f"last_{word}": last, "partitions": n} for first, last, n in size.partitions]
    notes = [_repartitioned(found)] if len(ranges) > 1 else []
    return {
        "keys": size.rows,
        "rows": size.rows,
        "partitions": ranges or None,
        "version": found.newest,
        "oldest_version": found.oldest,
        "from": _time(found.first_time),
        "to": _time(found.last_time),
        "kept_from": _time(found.first_time),
        "segments": size.files,
        "bytes": size.bytes,
        "unreferenced_bytes": size.unreferenced_bytes,
        "retention": f"{found.count} {word if found.count == 1 else found.words}",
        "last_commit": _time(found.last_time),
        "writer": size.writer,
        "health": [*notes, *size.problems],
        "status": "damaged" if size.damaged else "attention" if size.problems else "ok",
    }


def _repartitioned(found: EngineSummary) -> str:
    """How the number of partitions changed."""
    (_, _, count), *later = found.size.partitions
    return f"{count} partitions" + "".join(f", from {found.word} {first} on {n}" for first, _, n in later)


def _time(us: int | None) -> str | None:
    return None if us is None else format_time(us)
