"""Metadata of an engine's state: the tables of its versions, of the files that a version needs and of its columns, and
its summary.
"""

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
from statestore.catalog.describe.table_summary import TableSummary
from statestore.catalog.engines.engine_table import EngineTable, version_row
from statestore.catalog.log.version_rows import VERSIONS_SCHEMA, rows_table
from statestore.formats.engine import Source, StateAt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
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

    def total_bytes(self, version: int) -> int:
        """Return the bytes of the files that a version needs."""
        return self.state.ask(lambda source: self._needed_by(source, version).total_bytes())

    def _needed_by(self, source: Source, version: int) -> StateAt:
        return source.at(self.state.state, self._with_state(source, version))

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
        for file in self._needed_by(source, version).files():
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


# Summary of one state of an engine: versions, times and sizes, from metadata only


def summarize_state(table: EngineTable) -> TableSummary:
    """Return the summary of a state.

    Raises NotFoundError if no version can be read, InvalidInputError CONFLICTING_OPTIONS for a table as of a version.
    """
    source, state = table.source, table.state
    if table.bound is not None:
        raise InvalidInputError(
            ErrorCode.CONFLICTING_OPTIONS,
            f"{source.path} was opened as of version {table.bound}, and a summary is of all versions; leave out the "
            "version",
        )
    word, words = source.version_words
    kept = source.kept(state)
    times = [version.time for version in source.versions(state, sorted({kept[0], kept[-1]}))]
    known = [time for time in times if time is not None]
    # A clock may have been set back: the oldest version was valid at most until the newest began.
    first, last = (min(known), known[-1]) if len(known) == len(times) else (None, None)
    size = source.size(state)
    ranges = tuple({f"first_{word}": a, f"last_{word}": b, "partitions": n} for a, b, n in size.partitions)
    return TableSummary(
        version=kept[-1],
        oldest_version=kept[0],
        keys=size.rows,
        rows=size.rows,
        first_time=first,
        last_time=last,
        kept_from=first,
        segments=size.files,
        bytes=size.bytes,
        unreferenced_bytes=size.unreferenced_bytes,
        last_commit=last,
        writer=size.writer,
        partitions=ranges,
        kept=f"{len(kept)} {word if len(kept) == 1 else words}",
        problems=size.problems,
        notes=(_repartitioned(size.partitions, word),) if len(ranges) > 1 else (),
        details=size.details,
        damaged=size.damaged,
    )


def _repartitioned(ranges: tuple[tuple[int, int, int], ...], word: str) -> str:
    """Describe how the number of partitions changed."""
    (_, _, count), *later = ranges
    return f"{count} partitions" + "".join(f", from {word} {first} on {number}" for first, _, number in later)
