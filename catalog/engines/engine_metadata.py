"""Metadata of an engine's state for `MetadataTable`: its versions, the files that a version needs, its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.catalog.describe.metadata_table import (
    SCHEMA_SCHEMA,
    SEGMENTS_SCHEMA,
    SNAPSHOTS_SCHEMA,
)
from statestore.catalog.engines.engine_table import EngineTable, version_row
from statestore.catalog.log.version_rows import VERSIONS_SCHEMA, rows_table
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.values.types import shown_field


@dataclass(frozen=True)
class EngineMetadata:
    """Metadata of one table. All known versions are listed, including those that can no longer be read."""

    state: EngineTable

    def pin(self) -> EngineMetadata:
        return self if self.state.pinned is not None else EngineMetadata(self.state.pin())

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def identity(self) -> str:
        return f"{self.state.identity}/{self.state.state}"

    def versions(self) -> tuple[int, int]:
        listed = self.state.ask(lambda source: source.versions(self.state.state))
        return listed[0].number, listed[-1].number

    def table(self, suffix: str, version: int) -> pa.Table:
        """Return a metadata table as of a version; unknown counts are null."""
        return self.state.ask(lambda source: self._table(source, suffix, version))

    def _table(self, source: Source, suffix: str, version: int) -> pa.Table:
        if suffix == "schema":
            return rows_table(SCHEMA_SCHEMA, self._columns(source, version))
        if suffix == "segments":
            return rows_table(SEGMENTS_SCHEMA, self._files(source, version))
        listed = [each for each in source.versions(self.state.state) if each.number <= version]
        if suffix == "snapshots":
            return rows_table(SNAPSHOTS_SCHEMA, (version_row(each) for each in listed if each.holds_state))
        return rows_table(VERSIONS_SCHEMA, map(version_row, listed))

    def _files(self, source: Source, version: int) -> Iterator[dict[str, Any]]:
        at = source.at(self.state.state, self._with_state(source, version))
        for file in at.files():
            yield {
                "name": file.name,
                "role": file.role,
                "rows": file.rows,
                "bytes": file.bytes,
                "first_commit": file.first,
                "last_commit": file.last,
            }

    def _columns(self, source: Source, version: int) -> Iterator[dict[str, Any]]:
        state = self.state.state
        info = source.info(state)
        newest = version == source.last_known(state)
        columns = info.columns if newest else source.at(state, self._with_state(source, version)).schema
        for field in columns:
            role = info.roles.get(field.name, "key" if field.name in info.key else "value")
            yield {"column": field.name, "type": shown_field(field), "role": role}

    def _with_state(self, source: Source, version: int) -> int:
        """Return the version, or the newest readable one before it where the version only records an event."""
        state = self.state.state
        by_number = {each.number: each for each in source.versions(state)}
        if version in by_number and by_number[version].holds_state:
            return version
        before = [n for n, each in by_number.items() if n < version and each.holds_state and each.readable]
        if not before:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{self.name}: no {source.version_words[0]} before version {version} is kept",
            )
        return max(before)
