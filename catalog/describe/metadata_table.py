"""Metadata tables for every door: `<table>$versions`, `$segments`, `$snapshots` and `$schema`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from statestore.catalog.log.version_rows import VERSIONS_SCHEMA
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.replaced_versions import again
from statestore.formats.state_table import Query, StateTable
from statestore.formats.table_columns import check_filter_columns, chosen_columns, narrowed
from statestore.formats.values.filters import mask
from statestore.formats.values.types import TIME

SEGMENTS_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("role", pa.string()),
        ("tombstones", pa.bool_()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("index_bytes", pa.int64()),
        ("min_valid_from", TIME),
        ("max_valid_from", TIME),
        ("min_valid_to", TIME),
        ("max_valid_to", TIME),
        ("first_commit", pa.int64()),
        ("last_commit", pa.int64()),
        ("pending_closures", pa.int64()),
    ]
)
SNAPSHOTS_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", TIME),
        ("stream_time", TIME),
        ("readable", pa.bool_()),
    ]
)
SCHEMA_SCHEMA = pa.schema([("column", pa.string()), ("type", pa.string()), ("role", pa.string())])
TABLES = {
    "versions": VERSIONS_SCHEMA,
    "segments": SEGMENTS_SCHEMA,
    "snapshots": SNAPSHOTS_SCHEMA,
    "schema": SCHEMA_SCHEMA,
}


class MetadataSource(Protocol):
    """A store or an engine's state that has metadata; can be pickled."""

    @property
    def name(self) -> str:
        """The name of the table with state."""

    @property
    def identity(self) -> str:
        """An id that no two sources share."""

    def pin(self) -> MetadataSource:
        """Return the source bound to its present state."""

    def versions(self) -> tuple[int, int]:
        """(oldest, newest) version that the metadata covers."""

    def table(self, suffix: str, version: int) -> pa.Table:
        """One of `TABLES`, in its schema, as of a version."""

    def total_bytes(self, version: int) -> int:
        """The sum of the known sizes of all files, with their indexes, that a version needs."""


@dataclass(frozen=True)
class MetadataSplit:
    """The whole table as one split: metadata is small."""

    version: int
    rows: int


@dataclass(frozen=True)
class MetadataTable(StateTable):
    """A metadata table as a `StateTable`; it is read as of the newest commit, or of ``version``."""

    source: MetadataSource
    suffix: str

    @property
    def name(self) -> str:
        return f"{self.source.name}${self.suffix}"

    @property
    def identity(self) -> str:
        return f"{self.source.identity}${self.suffix}"

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) version that the metadata covers."""
        return self.source.versions()

    def versions(self) -> pa.Table:
        """Return the versions of the table with state."""
        return self.source.table("versions", self.source.versions()[1])

    def pin(self) -> MetadataTable:
        """Return the table bound to the newest version that there is now."""
        source = self.source.pin()
        return self if source is self.source else replace(self, source=source)

    def for_results(self) -> MetadataTable:
        """Return the table itself: a split has its version."""
        return self

    def schema(self, query: Query) -> pa.Schema:
        schema = TABLES[self.suffix]
        if query.mode != "state" or query.as_of is not None:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"{self.name} is a metadata table: it has no history, no changes and no state time; ask for a version",
            )
        return chosen_columns(schema, query, self.name)

    def count(self, query: Query) -> int | None:
        """Return the number of rows of the table."""
        return None if query.filters else sum(split.rows for split in self.splits(query))

    def splits(self, query: Query) -> list[MetadataSplit]:
        """Return the split of the table.

        Raises NotFoundError VERSION_NOT_FOUND, COLUMN_NOT_FOUND or InvalidInputError INVALID_FILTER.
        """
        self.schema(query)
        check_filter_columns(query.filters, TABLES[self.suffix], query, self.name)
        return again(lambda: self._splits(query))

    def _splits(self, query: Query) -> list[MetadataSplit]:
        oldest, newest = self.source.versions()
        if query.version is not None and not oldest <= query.version <= newest:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{self.source.name!r} has no version {query.version}; versions {oldest} to {newest} are known",
            )
        if query.version is not None:
            return [MetadataSplit(query.version, self._table(query.version).num_rows)]
        return [MetadataSplit(newest, self._known(newest).num_rows)]

    def read(self, split: MetadataSplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        table = self._known(split.version)
        if table.num_rows != split.rows:
            raise self._gone(split.version)
        for batch in table.combine_chunks().to_batches():
            selected = mask(query.filters, batch) if query.filters else None
            kept = batch if selected is None else batch.filter(selected)
            yield narrowed(kept, schema)

    def _known(self, version: int) -> pa.Table:
        """Return the table as of a version that was just there. Raises NotFoundError VERSION_GONE if it is gone."""
        try:
            return self._table(version)
        except NotFoundError as error:
            if error.code != ErrorCode.VERSION_NOT_FOUND:
                raise
            raise self._gone(version) from error

    def _gone(self, version: int) -> NotFoundError:
        return NotFoundError(
            ErrorCode.VERSION_GONE,
            f"{self.name}: what was listed up to version {version} was replaced since by newer versions; read again",
        )

    def _table(self, version: int) -> pa.Table:
        return self.source.table(self.suffix, version)
