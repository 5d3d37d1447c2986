"""Spark's aggregate functions as those that tasks compute."""

from __future__ import annotations

import contextlib
from typing import Any

from statestore.connector.spark.planner.aggregation import Aggregate, Aggregation
from statestore.connector.spark.planner.predicates import NotTranslated, reference


def aggregation_of(pushed: Any) -> Aggregation | None:
    """The aggregation of Spark's planner; None if some of it is not computed here."""
    try:
        groups = tuple(_column(item) for item in pushed.groupByExpressions())
        return Aggregation(groups, tuple(_function(item) for item in pushed.aggregateExpressions()))
    except NotTranslated:
        return None


def groups_of(pushed: Any) -> tuple[str, ...]:
    """The columns by which the rows are grouped, without expressions."""
    found = []
    for item in pushed.groupByExpressions():
        with contextlib.suppress(NotTranslated):
            found.append(_column(item))
    return tuple(found)


def _function(item: Any) -> Aggregate:
    name = str(item.getClass().getSimpleName())
    if name == "CountStar":
        return Aggregate("rows")
    if name == "Count" and not item.isDistinct():
        return Aggregate("count", _column(item.column()))
    if name == "Sum" and not item.isDistinct():
        return Aggregate("sum", _column(item.column()))
    if name == "Min":
        return Aggregate("min", _column(item.column()))
    if name == "Max":
        return Aggregate("max", _column(item.column()))
    raise NotTranslated


def _column(expression: Any) -> str:
    names = reference(expression)
    if len(names) != 1:
        raise NotTranslated
    return names[0]
