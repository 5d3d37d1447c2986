"""A store as the target of one statement or stream: the objects that Spark asks for, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql.types import StructField, StructType

from statestore.connector.spark.frame_writer import write_frame
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering, entries, schema_of, thrown
from statestore.connector.spark.source import SOURCE_NAME
from statestore.formats.places.locations import parse_location

_UPDATES_AS_APPENDS = "org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend"
_NOTHING = ("metric.CustomMetric", "metric.CustomTaskMetric")


@dataclass(frozen=True)
class Destination:
    """A store and the options of one write to it, and for each column of the statement the name in the rows."""

    path: str
    options: Mapping[str, str]
    renamed: Mapping[str, str]


class TableWriteBuilder(JavaObject):
    """Spark's first question: whether the rows replace those that are current."""

    def __init__(self, jvm: Jvm, destination: Destination, info: Any) -> None:
        super().__init__(jvm)
        self._destination = destination
        self._info = info
        self._overwrite = False

    def truncate(self) -> TableWriteBuilder:
        self._overwrite = True
        return self

    def build(self) -> TableWrite:
        return TableWrite(self._jvm, self._destination, self._info, self._overwrite)

    class Java:
        # A store replaces the row of a key, so the rows that a stream updates are written like those that it appends.
        implements = (CONNECTOR + "write.SupportsTruncate", _UPDATES_AS_APPENDS)


class TableWrite(JavaObject):
    """A write. Spark hands over the DataFrame of a statement, and asks for a sink only in a stream."""

    def __init__(self, jvm: Jvm, destination: Destination, info: Any, overwrite: bool) -> None:
        super().__init__(jvm)
        self._destination = destination
        self._info = info
        self._overwrite = overwrite

    def description(self) -> str:
        return f"{'overwrite' if self._overwrite else 'append'} {parse_location(self._destination.path)}"

    def toInsertableRelation(self) -> FrameTarget:
        return FrameTarget(self._jvm, self._destination, self._overwrite)

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


class FrameTarget(JavaObject):
    """The store as what takes the DataFrame of a statement."""

    def __init__(self, jvm: Jvm, destination: Destination, overwrite: bool) -> None:
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


def table_write_builder(jvm: Jvm, path: str, renamed: Mapping[str, str], info: Any) -> TableWriteBuilder:
    """Return the builder of a write to the store at ``path``."""
    return TableWriteBuilder(jvm, Destination(path, entries(info.options()), renamed), info)
