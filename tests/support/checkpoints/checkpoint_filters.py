"""Filters chosen at random, near values of a table, and the rows that pass them in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from statestore.formats.values.filters import Filter
from support.filter_truth import holds

Rows = list[dict[str, Any]]
NULL_TESTS = ["is_null", "is_not_null"]
EQUALITY = ["=", "=", "<=>", "in", "in"]
ORDER = ["!=", "<", "<=", ">", ">="]
TEXT = ["starts_with", "ends_with", "contains"]


def places(schema: pa.Schema) -> list[tuple[tuple[str, ...], pa.DataType]]:
    """Columns and the fields inside of them."""

    def within(path: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
        yield path, kind
        for field in kind if pa.types.is_struct(kind) else ():
            yield from within((*path, field.name), field.type)

    return [found for field in schema for found in within((field.name,), field.type)]


def cell(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = row
    for name in path:
        found = None if found is None else found[name]
    return found


def holds_kind(kind: pa.DataType, test: Any) -> bool:
    return test(kind) or any(holds_kind(kind.field(number).type, test) for number in range(kind.num_fields))


def random_filter(chance: random.Random, schema: pa.Schema, rows: Rows) -> Filter:
    """Most values are those of some row, some are next to it, some are null."""
    path, kind = chance.choice(places(schema))
    operators = [*NULL_TESTS]
    # Maps have no one equality, and a column of nulls has no value.
    if not holds_kind(kind, lambda part: pa.types.is_map(part) or pa.types.is_null(part)):
        operators += EQUALITY
        operators += [] if pa.types.is_nested(kind) else ORDER
        operators += TEXT if pa.types.is_string(kind) or pa.types.is_binary(kind) else []
    operator: Any = chance.choice(operators)
    values = [cell(row, path) for row in rows] or [None]

    def value() -> Any:
        found = chance.choice(values)
        return chance.choice([found, found, found, found, next_to(chance, found), None])

    if operator in NULL_TESTS:
        return Filter(path[0], operator, None, path[1:])
    wanted = tuple(value() for _ in range(chance.randint(0, 3))) if operator == "in" else value()
    return Filter(path[0], operator, wanted, path[1:])


def next_to(chance: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + chance.choice([-1, 1])
    if isinstance(value, float):
        return chance.choice([value + 0.5, -value, float("nan")])
    if isinstance(value, Decimal):
        return chance.choice([value + Decimal("0.001"), -value])
    if type(value) in (str, bytes):
        return chance.choice([value + value[:1], value[:3], value[:0]])
    if isinstance(value, date):
        return value + timedelta(**{"seconds" if isinstance(value, datetime) else "days": chance.choice([-1, 1])})
    return value


def passing(rows: Rows, filters: list[Filter]) -> Rows:
    return [row for row in rows if all(holds(f.op, cell(row, (f.column, *f.path)), f.value) for f in filters)]


def as_written(item: Filter) -> tuple[Any, ...]:
    """The filter as users of Python write it."""
    return (item.name, item.op) if item.op in NULL_TESTS else (item.name, item.op, item.value)
