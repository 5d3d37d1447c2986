"""Metadata of a state of a keyed store: the versions of its log, the files that a snapshot has it in, its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.catalog.describe.metadata_table import (
    SCHEMA_SCHEMA,
    SEGMENTS_SCHEMA,
    SNAPSHOTS_SCHEMA,
    VERSIONS_SCHEMA,
    rows_table,
)
from statestore.catalog.keyed.rows.row_keys import PLACE
from statestore.catalog.keyed.snapshots.snapshot_handle import Handle
from statestore.catalog.keyed.snapshots.snapshot_log import Entry
from statestore.catalog.keyed.tables.keyed_table import KeyedTable
from statestore.formats.errors import NotFoundError
from statestore.formats.segments.segment_meta import FileRef
from statestore.formats.state_table import Query
from statestore.formats.values.types import type_name

FULL, INCREMENTAL = "state", "database"
"""Roles of files: the rows of one state, or a table file of a database, which may hold all states of a task."""


@dataclass(frozen=True)
class KeyedMetadata:
    """What `MetadataTable` tells of a state. All versions of the store's log are told of."""

    state: KeyedTable

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def identity(self) -> str:
        return self.state.identity

    def versions(self) -> tuple[int, int]:
        return 1, self.state.log().newest

    def table(self, suffix: str, version: int) -> pa.Table:
        """What nobody has counted is null."""
        if suffix == "schema":
            return rows_table(SCHEMA_SCHEMA, self._columns(version))
        if suffix == "segments":
            return rows_table(SEGMENTS_SCHEMA, self._files(version))
        if suffix == "snapshots":
            return rows_table(SNAPSHOTS_SCHEMA, self._snapshots(version))
        return rows_table(VERSIONS_SCHEMA, self._versions(version))

    def _versions(self, version: int) -> Iterator[dict[str, Any]]:
        kept = self.state.log().retained()
        for entry in self.state.log().entries[:version]:
            application, batch = entry.transaction or (None, None)
            size = None
            if entry.version in kept:
                size = sum(f.bytes for part in entry.handles for f in new_files(part, self.state.state).values())
            yield {
                "version": entry.version,
                "timestamp": entry.timestamp,
                "operation": entry.operation,
                "writer": entry.writer,
                "application": application,
                "batch": batch,
                "bytes": size,
            }

    def _snapshots(self, version: int) -> Iterator[dict[str, Any]]:
        kept = self.state.log().retained()
        for entry in self.state.log().entries[:version]:
            if entry.operation == "snapshot":
                yield {"version": entry.version, "timestamp": entry.timestamp, "readable": entry.version in kept}

    def _files(self, version: int) -> Iterator[dict[str, Any]]:
        first: dict[str, int] = {}
        for entry in self.state.log().retained().values():
            for part in entry.handles:
                for name in part.files():
                    first.setdefault(name, entry.version)
        for part in self._snapshot(version).handles:
            rows = {table.file.name: table.groups[-1] for table in part.tables.values()}
            for name, file in files_of(part, self.state.state).items():
                yield {
                    "name": name,
                    "role": FULL if part.kind == "full" else INCREMENTAL,
                    "rows": rows.get(name),
                    "bytes": file.bytes,
                    "first_commit": first[name],
                    "last_commit": first[name],
                }

    def _snapshot(self, version: int) -> Entry:
        """What the store was like at a version: that snapshot, or if it was a discard the newest that is kept."""
        log = self.state.log()
        if log.entries[version - 1].operation == "snapshot":
            found = log.snapshot(version)
        else:
            found = max((e for e in log.retained().values() if e.version < version), key=_version, default=None)
        if found is None:
            raise NotFoundError("VERSION_NOT_FOUND", f"{self.name}: no snapshot of before version {version} is kept")
        return found

    def _columns(self, version: int) -> Iterator[dict[str, Any]]:
        newest = version == self.state.log().newest
        query = Query() if newest else Query(version=self._snapshot(version).version)
        keys = self.state.spec.key_names
        for field in self.state.schema(query):
            role = "key" if field.name in keys else _ROLES.get(field.name, "namespace")
            yield {"column": field.name, "type": type_name(field.type), "role": role}


_ROLES = {"value": "value", "user_key": "user_key", PLACE.name: PLACE.name}


def files_of(part: Handle, state: str) -> dict[str, FileRef]:
    """The files of a part that hold rows of a state: of a database all its table files."""
    if all(spec.name != state for spec in part.states):
        return {}
    found = list(part.shared.values())
    if state in part.tables:
        found.append(part.tables[state].file)
    return {file.name: file for file in found}


def new_files(part: Handle, state: str) -> dict[str, FileRef]:
    """Those that the snapshot it builds on did not have."""
    return {name: file for name, file in files_of(part, state).items() if name not in part.reused}


def _version(entry: Entry) -> int:
    return entry.version
