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
    VERSIONS_SCHEMA,
    rows_table,
)
from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.engine import Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.values.types import shown_field


@dataclass(frozen=True)
class EngineMetadata:
    """Metadata of one table. All known versions are listed, including those that can no longer be read."""

    state: EngineTable

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def identity(self) -> str:
        return f"{self.state.identity}/{self.state.state}"

    def versions(self) -> tuple[int, int]:
        known = self.state.source.versions(self.state.state)
        return known[0].number, known[-1].number

    def table(self, suffix: str, version: int) -> pa.Table:
        """Return a metadata table as of a version; unknown counts are null."""
        if suffix == "schema":
            return rows_table(SCHEMA_SCHEMA, self._columns(version))
        if suffix == "segments":
            return rows_table(SEGMENTS_SCHEMA, self._files(version))
        known = [each for each in self.state.source.versions(self.state.state) if each.number <= version]
        if suffix == "snapshots":
            return rows_table(SNAPSHOTS_SCHEMA, (_row(each) for each in known if each.holds_state))
        return rows_table(VERSIONS_SCHEMA, map(_row, known))

    def _files(self, version: int) -> Iterator[dict[str, Any]]:
        at = self.state.source.at(self.state.state, self._with_state(version))
        for file in at.files():
            yield {
                "name": file.name,
                "role": file.role,
                "rows": file.rows,
                "bytes": file.bytes,
                "first_commit": file.first,
                "last_commit": file.last,
            }

    def _columns(self, version: int) -> Iterator[dict[str, Any]]:
        source, state = self.state.source, self.state.state
        info = source.info(state)
        newest = version == source.last_known(state)
        columns = info.columns if newest else source.at(state, self._with_state(version)).schema
        for field in columns:
            role = info.roles.get(field.name, "key" if field.name in info.key else "value")
            yield {"column": field.name, "type": shown_field(field), "role": role}

    def _with_state(self, version: int) -> int:
        """Return the version, or the newest readable one before it where the version only records an event."""
        source, state = self.state.source, self.state.state
        known = {each.number: each for each in source.versions(state)}
        if version in known and known[version].holds_state:
            return version
        before = [n for n, each in known.items() if n < version and each.holds_state and each.readable]
        if not before:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{self.name}: no {source.version_words[0]} before version {version} is kept",
            )
        return max(before)


def _row(version: Version) -> dict[str, Any]:
    return {
        "version": version.number,
        "timestamp": version.time,
        "stream_time": version.stream_time,
        "readable": version.readable,
        **version.facts,
    }
