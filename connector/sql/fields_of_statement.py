"""The fields of struct columns that a statement reads, so that a view has only these, and no others are decoded.

DuckDB tells a source which columns a scan needs, and not which fields inside them, although its optimizer knows: the
plan of ``SELECT sum(value.count) FROM state`` has a scan of ``value.count``. So the plan is asked for first, which
reads no row and takes 2 ms. A view with fewer fields has another type, which a statement may notice: by
``typeof(value)``, ``value.*`` or a field's position. So only statements of parts that know fields by name are looked
at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from statestore.connector.duckdb.attach import HAS_SOURCES
from statestore.connector.duckdb.reading import Reading

Path = tuple[str, ...]
_SCAN = "PYTHON_ARROW_SCAN"
_BY_NAME = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset),
    *(exp.Table, exp.TableAlias, exp.Subquery, exp.Paren, exp.Alias, exp.Column, exp.Dot, exp.Identifier, exp.Distinct),
    *(exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Like, exp.Case, exp.If),
    *(exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Coalesce, exp.Abs, exp.Round, exp.Lower, exp.Upper),
)
"""Parts of statements in which no answer depends on the number, the order or the types of fields that are not named."""


def names_its_fields(tree: exp.Expr | None) -> bool:
    """Return whether a statement has only parts that know fields of structs by their names."""
    if not HAS_SOURCES or not isinstance(tree, exp.Select):
        return False
    for node in tree.walk():
        if isinstance(node, exp.Star):
            if not isinstance(node.parent, exp.Count):
                return False
        elif type(node) not in _BY_NAME or (isinstance(node, exp.TableAlias) and node.columns):
            return False
    return True


def fields_read(
    connection: duckdb.DuckDBPyConnection, text: str, readings: Sequence[Reading]
) -> Mapping[Reading, tuple[Path, ...]]:
    """The paths to the fields that a statement reads of the structs of readings.

    Columns of which it reads all have no path, nor have those of which it is not known. Raises nothing for a statement
    that DuckDB refuses: running it says why.
    """
    if not any(pa.types.is_struct(kind) for reading in readings for kind in reading.schema.types):
        return {}
    before = sum(reading.planned_scans for reading in readings)
    try:
        rows = connection.execute(f"EXPLAIN (FORMAT json) {text}").fetchall()
        scans = [scan for _, plan in rows for root in json.loads(plan) for scan in _scans(root)]
    except (duckdb.Error, ValueError):
        return {}
    planned = sum(reading.planned_scans for reading in readings) - before
    names = {name for scan in scans for name in scan}
    paths = {reading: _paths_by_text(reading) for reading in readings}
    if len(scans) != planned or not names <= {name for known in paths.values() for name in known}:
        return {}  # the plan does not show every scan, or in other words
    needed = {reading: [path for name in names for path in known.get(name, ())] for reading, known in paths.items()}
    found = {reading: _of_structs(reading, tuple(paths)) for reading, paths in needed.items()}
    return {reading: paths for reading, paths in found.items() if paths}


def _of_structs(reading: Reading, needed: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths that lead into columns which are not needed in whole, by the names in the table."""
    whole = {path[0] for path in needed if len(path) == 1}
    named = dict(zip(reading.source_names, reading.schema.names, strict=True))
    return tuple(sorted({(named[path[0]], *path[1:]) for path in needed if len(path) > 1 and path[0] not in whole}))


def _scans(root: dict[str, Any]) -> Iterator[Sequence[str]]:
    """Yield the columns and fields that each scan of a plan needs, by their text in the plan."""
    left = [root]
    while left:
        node = left.pop()
        left += node["children"]
        if node["name"] == _SCAN:
            found = node["extra_info"].get("Projections", [])
            yield [found] if isinstance(found, str) else found


def _paths_by_text(reading: Reading) -> dict[str, list[Path]]:
    """The columns of a reading and all fields inside, by their text in a plan, which several may have in common."""
    found: dict[str, list[Path]] = {}
    left: list[tuple[Path, pa.DataType]] = [((field.name,), field.type) for field in reading.marked_schema()]
    while left:
        path, kind = left.pop()
        found.setdefault(".".join(path), []).append(path)
        if pa.types.is_struct(kind):
            left += [((*path, field.name), field.type) for field in kind]
    return found
