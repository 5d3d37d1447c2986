"""``SELECT … FROM prices CHANGES FROM VERSION 3 TO VERSION 7`` of Spark 4.3: the change feed as Spark's changelog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from statestore.connector.spark.catalog.moment import version_number
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering
from statestore.connector.spark.planner.planned_table import Face, PlannedTable
from statestore.connector.spark.planner.scan_builder import TableScanBuilder
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query, StateTable


def change_query(table: StateTable, context: Any) -> Query:
    """The query of a range of changes. A bound that is left out is that of the kept changes.

    Raises UnsupportedError UNSUPPORTED_STATEMENT for net changes.
    """
    if str(context.deduplicationMode().toString()) == "NET_CHANGES":
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT,
            "net changes are not computed; compare two versions with a join, or in Python with table.diff",
        )
    span = context.range()
    kind = str(span.getClass().getSimpleName())
    query = Query(mode="changes")
    if kind == "VersionRange":
        first = version_number(str(span.startingVersion())) + (0 if span.startingBoundInclusive() else 1)
        last = None
        if span.endingVersion().isPresent():
            last = version_number(str(span.endingVersion().get())) - (0 if span.endingBoundInclusive() else 1)
        return replace(query, start_version=first, end_version=last)
    if kind == "TimestampRange":
        start = int(span.startingTimestamp()) + (0 if span.startingBoundInclusive() else 1)
        end = None
        if span.endingTimestamp().isPresent():
            end = int(span.endingTimestamp().get()) - (0 if span.endingBoundInclusive() else 1)
        return replace(query, start_time=start, end_time=end)
    return query


class Changes(JavaObject):
    """The change feed of a table. Rows are those of `Table.changes`: each update has its row before and after."""

    def __init__(self, jvm: Jvm, face: Face) -> None:
        super().__init__(jvm)
        self._face = face
        self._table = PlannedTable(jvm, face)

    def identity(self) -> tuple[Any, ...]:
        return self._table.identity()

    def name(self) -> str:
        return self._face.name

    def columns(self) -> Any:
        return self._table.columns()

    def containsCarryoverRows(self) -> bool:
        return False

    def containsIntermediateChanges(self) -> bool:
        return True

    def representsUpdateAsDeleteAndInsert(self) -> bool:
        return False

    def rowId(self) -> Any:
        return self._jvm.references(self._face.table.row_key)

    def rowVersion(self) -> Any:
        return self._jvm.static(CONNECTOR + "expressions.Expressions", "column")("_commit_version")

    @answering
    def newScanBuilder(self, options: Any) -> TableScanBuilder:
        return self._table.newScanBuilder(options)

    class Java:
        implements = (CONNECTOR + "catalog.Changelog",)
