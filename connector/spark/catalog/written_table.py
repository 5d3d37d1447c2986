"""A store as the target of a write in SQL: its columns under the names by which they are read.

``valid_from`` of a versioned store is written as ``timestamp``, the time of the record. Columns that follow from others
(``valid_to``, ``window_end``, ``sequence``) are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.warehouse import rows_spec
from statestore.connector.spark.catalog.deletes import delete_rows
from statestore.connector.spark.catalog.table_writes import TableWriteBuilder, table_write_builder
from statestore.connector.spark.jvm import CONNECTOR, Jvm, answering, schema_of
from statestore.connector.spark.planner.planned_table import Face, PlannedTable
from statestore.connector.spark.planner.predicates import filter_of
from statestore.connector.spark.schema import arrow_schema, spark_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.types import TIME

STATE_TIME = "valid_from"
RECORD_TIME = "timestamp"
END = "valid_to"
COMPUTED = (END, "window_end", "sequence")


@dataclass(frozen=True)
class Target:
    """A store that is written. ``renamed``: the names of columns in the statement, and in the rows for the store."""

    path: str
    schema: StructType
    renamed: Mapping[str, str] = field(default_factory=dict)


def target_of(path: str, spec: StoreSpec) -> Target:
    """The target of writes into a store, with the columns in the order in which they are read."""
    fields = [pa.field(each.name, each.type, True, each.metadata) for each in (*spec.key, *spec.value)]
    if spec.kind == "versioned":
        fields.append(pa.field(STATE_TIME, TIME))
    written = pa.schema([each for each in fields if each.name not in COMPUTED or each.name in spec.user_key.names])
    renamed = {STATE_TIME: RECORD_TIME} if spec.kind == "versioned" else {}
    return Target(path, spark_schema(written, marked=False), renamed)


class WrittenTable(PlannedTable):
    """A table as the target of INSERT. Spark resolves the columns of a statement against those that are written."""

    _can = ("BATCH_READ", "V1_BATCH_WRITE", "TRUNCATE", "STREAMING_WRITE")

    def __init__(self, jvm: Jvm, face: Face, target: Target, properties: dict[str, str] | None = None) -> None:
        super().__init__(jvm, face, properties)
        self._target = target
        self._schema = target.schema

    @answering
    def newWriteBuilder(self, info: Any) -> TableWriteBuilder:
        return table_write_builder(self._jvm, self._target.path, self._target.renamed, info)

    class Java:
        implements = (CONNECTOR + "catalog.SupportsRead", CONNECTOR + "catalog.SupportsWrite")


class StagedTable(WrittenTable):
    """The new table of CREATE TABLE AS SELECT. If the query fails, the table goes.

    ``check`` raises an error of this package for columns that the query must not have.
    """

    def __init__(
        self,
        jvm: Jvm,
        face: Face,
        target: Target,
        properties: dict[str, str],
        drop: Callable[[], object],
        check: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(jvm, face, target, properties)
        self._drop = drop
        self._check = check

    @answering
    def newWriteBuilder(self, info: Any) -> Any:
        self._check(schema_of(info.schema()).names)
        return super().newWriteBuilder(info)

    def commitStagedChanges(self) -> None:
        """Nothing: the rows have been committed."""

    @answering
    def abortStagedChanges(self) -> None:
        self._drop()

    class Java:
        implements = (
            CONNECTOR + "catalog.StagedTable",
            CONNECTOR + "catalog.SupportsRead",
            CONNECTOR + "catalog.SupportsWrite",
        )


class RowLevelTable(WrittenTable):
    """A table as the target of INSERT, or of a MERGE that only inserts: Spark makes that an INSERT of a join."""

    @answering
    def newRowLevelOperationBuilder(self, info: Any) -> Any:
        raise whole_rows(self._face.name, str(info.command().toString()))

    class Java:
        implements = (*WrittenTable.Java.implements, CONNECTOR + "catalog.SupportsRowLevelOperations")


def whole_rows(table: str, command: str) -> UnsupportedError:
    """The error for a statement that changes single columns of rows."""
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_STATEMENT,
        f"{command} of {table}: a store takes whole rows; INSERT INTO replaces the rows of the keys that it names from "
        "their valid_from on, and DELETE FROM … WHERE ends rows",
    )


class TruncatableTable(PlannedTable):
    """A store that is read, written by a stream, or emptied: `toTable` of a stream and TRUNCATE TABLE load the table as
    a read does.

    ``path`` returns the directory of the store.
    """

    _can: tuple[str, ...] = ("BATCH_READ", "STREAMING_WRITE")

    def __init__(self, jvm: Jvm, face: Face, path: Callable[[], str], properties: dict[str, str] | None = None) -> None:
        super().__init__(jvm, face, properties)
        self._path = path

    def supportedCustomMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + "metric.CustomMetric", ())

    @answering
    def newWriteBuilder(self, info: Any) -> TableWriteBuilder:
        path = self._path()
        return table_write_builder(self._jvm, path, target_of(path, rows_spec(path)).renamed, info)

    @answering
    def truncateTable(self, *options: Any) -> bool:
        delete_rows(self._path(), ())
        return True

    class Java:
        implements = (
            CONNECTOR + "catalog.SupportsRead",
            CONNECTOR + "catalog.SupportsWrite",
            CONNECTOR + "catalog.TruncatableTable",
        )


class DeletableTable(TruncatableTable):
    """A table as the target of DELETE: the rows that a condition selects now get tombstones."""

    _can = ("BATCH_READ",)

    def canDeleteWhere(self, predicates: Any) -> bool:
        schema = arrow_schema(self._schema)
        return all(_is_always_true(each) or filter_of(each, schema) is not None for each in predicates)

    @answering
    def deleteWhere(self, predicates: Any, *options: Any) -> None:
        schema = arrow_schema(self._schema)
        filters = tuple(found for each in predicates if (found := filter_of(each, schema)) is not None)
        delete_rows(self._path(), filters)

    class Java:
        implements = (CONNECTOR + "catalog.SupportsRead", CONNECTOR + "catalog.SupportsDeleteV2")


def _is_always_true(predicate: Any) -> bool:
    """Return whether it is the condition of a DELETE without WHERE."""
    return str(predicate.name()) == "ALWAYS_TRUE"
