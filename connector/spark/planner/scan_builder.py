"""The pushes of Spark's planner into one scan: columns, filters, limits, orders and aggregates."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from statestore.catalog.reads.captured import has_own_key
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.spark.filters import NotTranslated, filter_of, limits_of, reference
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering, schema_of
from statestore.connector.spark.planner.aggregation import (
    Aggregate,
    Aggregation,
    aggregation_of,
    groups_of,
    is_plain,
    result_schema,
)
from statestore.connector.spark.planner.hashed_scan import HashedScan
from statestore.connector.spark.planner.read_plan import (
    MAX_SORTED,
    WIDE,
    Order,
    ReadPlan,
    can_sort,
    few_keys,
    read_here,
    unconverted,
)
from statestore.connector.spark.planner.task_scan import LocalRows, TaskScan
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


class TableScanBuilder(JavaObject):
    """Collects what the planner pushes, and builds the scan.

    ``table`` is that of the plan (`StateTable.for_plan`), ``lasting`` the same without what only the plan needs.
    """

    def __init__(
        self, jvm: Jvm, table: StateTable, query: Query, schema: StructType, shown: str, lasting: StateTable
    ) -> None:
        super().__init__(jvm)
        self._table = table
        self._lasting = lasting
        self._query = query
        self._whole = schema
        self._schema = schema
        self._shown = shown
        self._arrow = arrow_schema(schema)
        self._taken: list[tuple[Any, Filter]] = []
        self._limits: tuple[Filter, ...] = ()  # that follow from what is left to Spark
        self._aggregation: Aggregation | None = None
        self._total: tuple[Aggregation, pa.Table] | None = None  # an aggregation whose result is here
        self._by_key = False
        self._limit: int | None = None
        self._orders: tuple[Order, ...] = ()

    # Columns and rows

    def pruneColumns(self, wanted: Any) -> None:
        self._schema = pruned(self._whole, schema_of(wanted))

    @answering
    def pushPredicates(self, predicates: Any) -> Any:
        if self._jvm.spark.conf.get(PUSHDOWN_CONF, "true") != "true":
            return predicates
        left = []
        for predicate in predicates:
            found = filter_of(predicate, self._arrow)
            if found is None:
                left.append(predicate)
                self._limits += limits_of(predicate, self._arrow)
            else:
                self._taken.append((predicate, found))
                self._by_key |= found.op == "is_not_null" and (found.name,) == self._table.row_key
        return self._jvm.array(CONNECTOR + "expressions.filter.Predicate", left)

    def pushedPredicates(self) -> Any:
        return self._jvm.array(CONNECTOR + "expressions.filter.Predicate", [given for given, _ in self._taken])

    def supportsIterativePushdown(self) -> bool:
        return False

    # Aggregates

    @answering
    def supportCompletePushDown(self, pushed: Any) -> bool:
        """Return whether the result is here, in one row: then Spark plans no aggregate, and no task."""
        found = aggregation_of(pushed, self._unique())
        if found is None or found.groups or result_schema(found, self._whole) is None:
            return False
        if self._total is None or self._total[0] != found:
            rows = read_here(self._plan(found))
            # Several rows are the parts of a sum that no row holds. Spark adds them up, and reports that.
            self._total = None if rows is None or len(rows) > 1 else (found, rows)
        return self._total is not None

    def pushAggregation(self, pushed: Any) -> bool:
        found = aggregation_of(pushed, None if self._total is None else self._unique())
        if self._is_by_key(groups_of(pushed)):
            self._by_key = True
            return False
        if found is None or result_schema(found, self._whole) is None:
            return False
        self._aggregation = found
        return True

    def _unique(self) -> str | None:
        """The key of one column, whose values differ for Spark as they do here; None where there is no such column.

        The keys of stores have no nulls; a captured state may have others than its store.
        """
        table, key = self._table, self._table.row_key
        if not isinstance(table, VersionedTable) or not has_own_key(table.spec):
            return None
        if self._query.mode != "state" or len(key) != 1 or key[0] not in self._whole.names:
            return None
        return key[0] if is_plain(self._whole[key[0]].dataType) else None

    def _is_by_key(self, groups: tuple[str, ...]) -> bool:
        """Return whether every group is one row, so that nothing is saved."""
        key = self._table.row_key
        return bool(key) and self._query.mode == "state" and set(key) <= set(groups)

    # First rows

    def pushLimit(self, limit: int) -> bool:
        self._limit = limit
        return True

    def pushTopN(self, orders: Any, limit: int) -> bool:
        if limit > MAX_SORTED:
            return False
        try:
            self._orders = tuple(self._order(each) for each in orders)
        except NotTranslated:
            return False
        self._limit = limit
        return True

    def isPartiallyPushed(self) -> bool:
        return True

    def _order(self, pushed: Any) -> Order:
        names = reference(pushed.expression())
        if len(names) != 1 or names[0] not in self._arrow.names:
            raise NotTranslated
        field = self._whole[names[0]]
        if not can_sort(self._arrow.field(names[0]).type) or "collate" in field.dataType.simpleString():
            raise NotTranslated
        descending = str(pushed.direction().toString()) == "DESC"
        return Order(names[0], descending, str(pushed.nullOrdering().toString()) == "NULLS FIRST")

    # The scan

    @answering
    def build(self) -> LocalRows | TaskScan:
        plan = self._plan(self._aggregation)
        description = self._described(plan)
        total = self._total
        rows = total[1] if total is not None and total[0] == plan.aggregation else read_here(plan)
        self._table = self._lasting  # Java's garbage may keep this object, but files only stay for a scan's tasks
        if rows is not None:
            plan = replace(plan, table=self._lasting)
            return LocalRows(self._jvm, plan, rows, f"{description}, read while planning")
        if self._is_divided(plan):
            plan = replace(plan, ranges=max(2, self._tasks()))
            return HashedScan(self._jvm, plan, f"{description}, {plan.ranges} ranges of key hashes")
        return TaskScan(self._jvm, unconverted(plan), description)

    def _is_divided(self, plan: ReadPlan) -> bool:
        """Return whether the query joins or groups by the key: then no row has to move for it.

        Spark infers that the key of an inner join is not null, and pushes that. A read for another purpose is cheaper
        undivided.
        """
        table, key = plan.table, plan.table.row_key
        whole = plan.aggregation is None and plan.limit is None and not few_keys(table, plan.query)
        divides = table.hashed_splits(plan.query, 2) is not None
        return self._by_key and whole and len(key) == 1 and key[0] in plan.schema.names and divides

    def _plan(self, aggregation: Aggregation | None) -> ReadPlan:
        filters = tuple(found for _, found in self._taken)
        wanted = self._schema if aggregation is None else of_paths(self._whole, aggregation.paths)
        needed = [*wanted.names, *(order.column for order in self._orders if order.column not in wanted.names)]
        asked = {field.name: field for field in wanted}
        schema = StructType([asked.get(field.name, field) for field in self._whole if field.name in needed])
        if not schema.names:
            schema = StructType([_narrowest(self._whole)])
        query = replace(
            self._query,
            columns=tuple(schema.names),
            fields=paths_of(self._whole, schema),
            filters=(*self._query.filters, *filters, *self._limits),
        )
        plan = ReadPlan(self._table, query, schema, self._limit, self._orders, aggregation)
        return replace(plan, tasks=self._tasks())

    def _tasks(self) -> int:
        return int(self._jvm.spark.sparkContext.defaultParallelism)

    def _described(self, plan: ReadPlan) -> str:
        parts = [f"statestore {self._shown}"]
        if self._taken:
            parts.append(f"filters [{', '.join(str(given.toString()) for given, _ in self._taken)}]")
        if plan.aggregation is not None:
            functions = [_shown(item) for item in plan.aggregation.functions]
            by = f" by {', '.join(plan.aggregation.groups)}" if plan.aggregation.groups else ""
            parts.append(f"aggregates [{', '.join(functions)}{by}]")
        if plan.orders:
            parts.append(f"first {plan.limit} by {', '.join(order.column for order in plan.orders)}")
        elif plan.limit is not None:
            parts.append(f"first {plan.limit}")
        return ", ".join(parts)

    class Java:
        implements = tuple(
            CONNECTOR + "read." + name
            for name in (
                "SupportsPushDownRequiredColumns",
                "SupportsPushDownV2Filters",
                "SupportsPushDownAggregates",
                "SupportsPushDownTopN",
                "SupportsPushDownLimit",
            )
        )


def _shown(item: Aggregate) -> str:
    return f"{item.function}({'.'.join((item.column, *item.path))})" if item.column is not None else "count(*)"


def _narrowest(schema: StructType) -> Any:
    """The column that costs least to read, where Spark needs only the number of rows."""
    return min(schema, key=lambda field: field.dataType.typeName() in WIDE)


# The fields of struct columns that a statement needs: Spark's pruned schema as paths into a table's columns.


def pruned(whole: StructType, wanted: StructType) -> StructType:
    """The fields of ``whole`` that ``wanted`` names, at any depth of structs, in the order of ``whole``."""
    names = set(wanted.names)
    return StructType([_pruned_field(field, wanted[field.name]) for field in whole if field.name in names])


def _pruned_field(field: StructField, wanted: StructField) -> StructField:
    if not isinstance(field.dataType, StructType) or not isinstance(wanted.dataType, StructType):
        return field
    return StructField(field.name, pruned(field.dataType, wanted.dataType), field.nullable, field.metadata)


def of_paths(whole: StructType, paths: Collection[tuple[str, ...]]) -> StructType:
    """The fields of ``whole`` to which paths lead, in the order of ``whole``."""
    found = []
    for field in whole:
        inside = [path[1:] for path in paths if path[0] == field.name]
        if inside and all(inside) and isinstance(field.dataType, StructType):
            found.append(StructField(field.name, of_paths(field.dataType, inside), field.nullable, field.metadata))
        elif inside:
            found.append(field)
    return StructType(found)


def paths_of(whole: StructType, schema: StructType) -> tuple[tuple[str, ...], ...]:
    """The paths to what ``schema`` has of those struct columns of which it does not have all."""
    return tuple(
        path
        for field in schema
        if _differ(whole[field.name].dataType, field.dataType)
        for path in _paths(whole[field.name], field)
    )


def _paths(whole: StructField, field: StructField) -> Iterator[tuple[str, ...]]:
    if not _differ(whole.dataType, field.dataType):
        yield (field.name,)
        return
    assert isinstance(whole.dataType, StructType)
    assert isinstance(field.dataType, StructType)
    for each in field.dataType:
        for path in _paths(whole.dataType[each.name], each):
            yield (field.name, *path)


def _differ(whole: DataType, part: DataType) -> bool:
    """Return whether ``part``, made by `pruned`, lacks fields."""
    if not isinstance(whole, StructType) or not isinstance(part, StructType):
        return False
    return whole.names != part.names or any(_differ(whole[name].dataType, part[name].dataType) for name in part.names)
