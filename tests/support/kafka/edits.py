"""Edits of Kafka's sources in tests: sources opened with what is true of their stores, and targets in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from statestore.formats.edits import EditedSource, EditOptions, EditPlan, StateEdit
from statestore.formats.engine import Source
from statestore.formats.kafka.engine import open_state
from statestore.formats.places.locations import parse_location

Row = dict[str, Any]
VERSION = 1


@dataclass(frozen=True)
class FolderTarget:
    """A target that is a folder."""

    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder)

    def create(self, path: str) -> IO[bytes]:
        return (self.folder / path).open("xb")


def source_at(path: Path | str, stores: Path | None = None, /, **options: str) -> Source:
    """The source at a path; ``stores``: the file with what is true of its stores."""
    given = dict(options) if stores is None else {"storesfile": str(stores), **options}
    return open_state(parse_location(str(path)), given)


def columns_of(source: Source, state: str) -> list[str]:
    """The columns of a state without those of its placement."""
    info = source.info(state)
    return [name for name in info.columns.names if name not in info.placement]


def state_table(source: EditedSource, state: str) -> pa.Table:
    """The rows of a state, without their placement."""
    assert isinstance(source, Source)
    at, names = source.at(state, VERSION), columns_of(source, state)
    batches = [
        batch.select(names) for part in at.parts(()) for batch in at.rows(part, source.info(state).columns.names, ())
    ]
    return pa.Table.from_batches(batches, pa.schema([source.info(state).columns.field(name) for name in names]))


def edit_of(source: Source, state: str, removed: pa.Table, added: pa.Table) -> StateEdit:
    info = source.info(state)
    return StateEdit(state, tuple(n for n in info.row_key if n not in info.placement), removed, added)


def planned(
    source: Source, *edits: StateEdit, settings: Mapping[str, str] | None = None, allow_late: bool = False
) -> EditPlan:
    return source.edit_plan(VERSION, edits, EditOptions(allow_late=allow_late, settings=settings or {}))


def written(plan: EditPlan, folder: Path) -> dict[str, int]:
    """Write all files of a plan into a new folder; return the sizes that it tells."""
    folder.mkdir()
    target, sizes = FolderTarget(folder), dict[str, int]()
    for part in plan.parts():
        sizes.update(plan.write(part, target))
    sizes.update(plan.finish(target))
    return sizes


def records_in(folder: Path, topic: str) -> list[Row]:
    """The records of a topic's file, keys and values as bytes."""
    lines = (folder / f"{topic}.jsonl").read_text("utf-8").splitlines()
    found: Sequence[Row] = [json.loads(line) for line in lines]
    return [{**row, "key": bytes.fromhex(row["key"]), "value": unhexed(row["value"])} for row in found]


def unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def rows_table(source: EditedSource, state: str, rows: Sequence[Row]) -> pa.Table:
    """Rows in the form of the truth (times in milliseconds, headers as pairs) as those of an edit of a state."""
    assert isinstance(source, Source)
    schema, names = source.info(state).columns, columns_of(source, state)
    front = "session" if "session_start" in names else "window"
    found: list[Row] = []
    for row in rows:
        cells = {f"{front}_{name}" if name in ("start", "end") else name: cell for name, cell in row.items()}
        pairs = cells.get("headers", [])
        cells["headers"] = [{"name": name, "value": unhexed(value)} for name, value in pairs]
        found.append({"expired": False, **cells})
    fields = [schema.field(name) for name in names]
    return pa.Table.from_arrays([_column(field, found) for field in fields], schema=pa.schema(fields))


def _column(field: pa.Field, rows: Sequence[Row]) -> pa.Array:
    values = [row[field.name] for row in rows]
    if pa.types.is_timestamp(field.type):
        return pa.array([None if value is None else value * 1000 for value in values], pa.int64()).cast(field.type)
    return pa.array(values, field.type)


TOPIC = "shop-stock-changelog"
Logged = tuple[int, int, bytes, bytes | None]
"""A record: partition, timestamp, key and value."""


def made_changelog(folder: Path, records: Sequence[Logged], topic: str = TOPIC) -> Path:
    """Write a changelog as JSON lines into a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[Row] = [
        {
            "partition": partition,
            "timestamp": timestamp,
            "key": key.hex(),
            "value": None if value is None else value.hex(),
            "headers": [],
        }
        for partition, timestamp, key, value in records
    ]
    (folder / f"{topic}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return folder
