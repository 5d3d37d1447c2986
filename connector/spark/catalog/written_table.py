"""A store as the target of a write in SQL: its columns under the names by which they are read.

``valid_from`` of a versioned store is written as ``timestamp``, the time of the record. Columns that follow from others
(``valid_to``, ``window_end``, ``sequence``) are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql.types import StructField, StructType

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.warehouse import rows_spec
from statestore.connector.spark.filters import filter_of
from statestore.connector.spark.frame_writer import write_frame
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering, entries, schema_of, thrown
from statestore.connector.spark.location import open_store_at
from statestore.connector.spark.planner.planned_table import Face, PlannedTable
from statestore.connector.spark.schema import arrow_schema, spark_schema
from statestore.connector.spark.source import SOURCE_NAME
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter
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
    def newWriteBuilder(self, info: Any) -> _TableWriteBuilder:
        return _table_write_builder(self._jvm, self._target.path, self._target.renamed, info)

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
    def newWriteBuilder(self, info: Any) -> _TableWriteBuilder:
        path = self._path()
        return _table_write_builder(self._jvm, path, target_of(path, rows_spec(path)).renamed, info)

    @answering
    def truncateTable(self, *options: Any) -> bool:
        _delete_rows(self._path(), ())
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
        _delete_rows(self._path(), filters)

    class Java:
        implements = (CONNECTOR + "catalog.SupportsRead", CONNECTOR + "catalog.SupportsDeleteV2")


def _is_always_true(predicate: Any) -> bool:
    """Return whether it is the condition of a DELETE without WHERE."""
    return str(predicate.name()) == "ALWAYS_TRUE"


# A store as the target of one statement or stream: the objects that Spark asks for, one after another.

_UPDATES_AS_APPENDS = "org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend"
_NOTHING = ("metric.CustomMetric", "metric.CustomTaskMetric")


@dataclass(frozen=True)
class _Destination:
    """A store and the options of one write to it, and for each column of the statement the name in the rows."""

    path: str
    options: Mapping[str, str]
    renamed: Mapping[str, str]


class _TableWriteBuilder(JavaObject):
    """Spark's first question: whether the rows replace those that are current."""

    def __init__(self, jvm: Jvm, destination: _Destination, info: Any) -> None:
        super().__init__(jvm)
        self._destination = destination
        self._info = info
        self._overwrite = False

    def truncate(self) -> _TableWriteBuilder:
        self._overwrite = True
        return self

    def build(self) -> _TableWrite:
        return _TableWrite(self._jvm, self._destination, self._info, self._overwrite)

    class Java:
        # A store replaces the row of a key, so the rows that a stream updates are written like those that it appends.
        implements = (CONNECTOR + "write.SupportsTruncate", _UPDATES_AS_APPENDS)


class _TableWrite(JavaObject):
    """A write. Spark hands over the DataFrame of a statement, and asks for a sink only in a stream."""

    def __init__(self, jvm: Jvm, destination: _Destination, info: Any, overwrite: bool) -> None:
        super().__init__(jvm)
        self._destination = destination
        self._info = info
        self._overwrite = overwrite

    def description(self) -> str:
        return f"{'overwrite' if self._overwrite else 'append'} {parse_location(self._destination.path)}"

    def toInsertableRelation(self) -> _FrameTarget:
        return _FrameTarget(self._jvm, self._destination, self._overwrite)

    @answering
    def toStreaming(self) -> Any:
        """The sink of Spark's Python data source, for the path and with the columns as the store names them."""
        to, info = self._destination, self._info
        given = schema_of(info.schema())
        fields = [StructField(to.renamed.get(f.name, f.name), f.dataType, f.nullable) for f in given]
        schema = self._jvm.struct(StructType(fields))
        options = {**to.options, "path": to.path}
        text_map = self._jvm.kind("org.apache.spark.sql.util.CaseInsensitiveStringMap")(self._jvm.map(options))
        lookup = self._jvm.static("org.apache.spark.sql.execution.datasources.DataSource", "lookupDataSourceV2")
        provider = lookup(SOURCE_NAME, self._jvm.session.sessionState().conf()).get()
        transforms = self._jvm.array(CONNECTOR + "expressions.Transform", ())
        table = provider.getTable(schema, transforms, self._jvm.map(options))
        nothing = self._jvm.static("java.util.Optional", "empty")()
        made = self._jvm.kind(CONNECTOR + "write.LogicalWriteInfoImpl")
        builder = table.newWriteBuilder(made(info.queryId(), schema, text_map, nothing, nothing))
        return (builder.truncate() if self._overwrite else builder).build().toStreaming()

    def supportedCustomMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + _NOTHING[0], ())

    def reportDriverMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + _NOTHING[1], ())

    class Java:
        implements = (CONNECTOR + "write.V1Write",)


class _FrameTarget(JavaObject):
    """The store as what takes the DataFrame of a statement."""

    def __init__(self, jvm: Jvm, destination: _Destination, overwrite: bool) -> None:
        super().__init__(jvm)
        self._destination = destination
        self._overwrite = overwrite

    @answering
    def insert(self, data: Any, overwrite: bool) -> None:
        """Write the rows. Whether they replace the current ones was said to the builder."""
        from pyspark.sql import DataFrame

        to = self._destination
        rows = DataFrame(data, self._jvm.spark)
        named = rows.toDF(*(to.renamed.get(name, name) for name in rows.columns))
        try:
            write_frame(named, to.path, to.options, overwrite=self._overwrite)
        except CapturedException as error:  # an error of the query
            raise (error if error._origin is None else thrown(error._origin)) from None

    class Java:
        implements = ("org.apache.spark.sql.sources.InsertableRelation",)


def _table_write_builder(jvm: Jvm, path: str, renamed: Mapping[str, str], info: Any) -> _TableWriteBuilder:
    """Return the builder of a write to the store at ``path``."""
    return _TableWriteBuilder(jvm, _Destination(path, entries(info.options()), renamed), info)


# DELETE: tombstones for the rows that a condition selects, as one commit.
#
# A row of a versioned store ends one millisecond after the newest moment that the store knows: what it was until then
# stays, and a read of the newest state no longer has it. Rows of other kinds end with the commit.

_MILLISECOND = 1_000


def _delete_rows(path: str, filters: tuple[Filter, ...]) -> int:
    """Delete the rows of the newest state that pass ``filters``; return their number. Nothing selected: no commit.

    Raises ConflictError STORE_LOCKED if another process has a live store open.
    """
    with open_store_at(parse_location(path)) as store:
        table: VersionedTable = store.table
        spec = store.spec
        query = Query(columns=tuple(spec.key_names), filters=filters)
        batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
        keys = pa.Table.from_batches(batches, schema=table.schema(query))
        if not keys.num_rows:
            return 0
        columns = {name: keys[name] for name in keys.column_names}
        columns |= {field.name: pa.nulls(keys.num_rows, field.type) for field in spec.value}
        if spec.kind == "versioned":
            moment = table.files().log.newest().stream_time_us + _MILLISECOND
            columns["timestamp"] = pa.array(np.full(keys.num_rows, moment)).cast(TIME)
        columns["_change_type"] = pa.array(["delete"] * keys.num_rows)
        store.put_all(pa.table(columns))
        store.commit()
        return int(keys.num_rows)
