"""A reading as a source of DuckDB's own Arrow scan, from DuckDB 2 on (docs/decisions/018-duckdb.md).

DuckDB offers a source each predicate of a query and evaluates those itself that the source does not accept. Accepted
are the pin, and predicates on key columns, because tables find keys by index. Of the marks DuckDB only has to know
where there are dead rows. All other columns DuckDB filters faster than Arrow would.

The modules of DuckDB that this one imports are private. Where they cannot be imported, views are Arrow datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import _seam
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, exact_value

from statestore.connector.duckdb.kept_rows import MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.identifiers import quoted
from statestore.formats.errors import StateStoreError
from statestore.formats.values.filters import Filter, Op, one_of

_COMPARISONS: dict[str, Op] = {"=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NULL_TESTS: dict[str, Op] = {"IS NULL": "is_null", "IS NOT NULL": "is_not_null"}


class ScanSource(ArrowScanSource):
    """The columns of a reading behind its marks, which are the first column because ``count(*)`` reads that."""

    schema_is_stable = True

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._given = reading

    @property
    def reading(self) -> Reading:
        """The reading whose rows these are."""
        return self._given

    @cached_property
    def _schema(self) -> pa.Schema:
        return self.reading.marked_schema()

    @cached_property
    def _keys(self) -> pa.Schema:
        keys = {self.reading.source_name(name) for name in self.reading.key_columns}
        return pa.schema([field for field in self._schema if field.name in keys])

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream without predicates. DuckDB only asks whether the method is there."""
        return self.stream(None, ())[0]

    def accepts(self, predicate: Node) -> bool:
        if _pin_of(predicate) is not None:
            self.reading.planned_scans += 1  # each scan has this predicate once
            return True
        return (
            self.reading.passes_uncut if _is_marks_test(predicate) else key_filters(predicate, self._keys) is not None
        )

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """A lazy stream. The scan is planned now, so that most errors are raised before the first batch."""
        pin = next((pin for pin in map(_pin_of, filters) if pin is not None), None)
        found = [each for predicate in filters for each in key_filters(predicate, self._keys) or ()]
        names = self._schema.names
        asked = names if columns is None else [names[index] for index in columns]
        dead_allowed = not any(map(_is_marks_test, filters))
        try:
            reader = self.reading.scan(pin, found, asked, dead_allowed)
        except StateStoreError as error:
            self.reading.error = error
            raise
        return reader.__arrow_c_stream__(), columns is not None


def registered(connection: duckdb.DuckDBPyConnection, source: ScanSource) -> _seam.SourceHandle:
    """Return a handle with the name by which statements of all cursors read the source, as long as the handle lives."""
    return _seam.register_source(connection, source)


def create_source_view(
    connection: duckdb.DuckDBPyConnection, name: str, columns: str, source: ScanSource, condition: str
) -> None:
    """Create a view over a source, which the view owns.

    The statement is made and bound once. A relation would be bound by each step that leads to it.
    """
    handle = registered(connection, source)
    text = f"SELECT {columns} FROM {quoted(handle.name)} WHERE {condition}"
    _seam.create_view(connection, name, text, replace=True, sources=[handle])


def _pin_of(predicate: Node) -> int | None:
    """The transaction with which a predicate compares the pin; None for any other predicate."""
    match predicate:
        case Binary(op="=", left=Col(parts=(name,)), right=Lit(value=int(pin))) if name == PIN_COLUMN:
            return pin
    return None


def _is_marks_test(predicate: Node) -> bool:
    match predicate:
        case Postfix(op="IS NOT NULL", operand=Col(parts=(name,))):
            return bool(name == MARKS)
    return False


def key_filters(predicate: Node, keys: pa.Schema) -> tuple[Filter, ...] | None:
    """The predicate as filters that together have exactly its meaning; None if it is not one on ``keys``, or has no
    such filters."""
    found: list[Filter] = []
    for part in _operands(predicate, "AND"):
        branches = [_conjunction(each, keys) for each in _operands(part, "OR")]
        known = [branch for branch in branches if branch is not None]
        one = one_of(known, keys) if len(branches) > 1 else None
        if len(known) < len(branches) or (one is None and len(branches) > 1):
            return None
        found += known[0] if one is None else [one]
    return tuple(found)


def _operands(predicate: Node, operator: str) -> list[Node]:
    """Return the operands of AND or OR in order, at any depth; the predicate itself where it is another one."""
    found: list[Node] = []
    left = [predicate]
    while left:
        match left.pop():
            case Binary(op=op, left=first, right=second) if op == operator:
                left += (second, first)
            case other:
                found.append(other)
    return found


def _conjunction(predicate: Node, keys: pa.Schema) -> list[Filter] | None:
    """The filters of comparisons that all must hold; None where one has no filter."""
    found = [_key_filter(each, keys) for each in _operands(predicate, "AND")]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _key_filter(predicate: Node, keys: pa.Schema) -> Filter | None:
    match predicate:
        case Binary(op=op, left=Col(parts=parts), right=Lit() as constant) if op in _COMPARISONS:
            kind = _type_at(parts, keys)
            if kind is None or not exact_value(constant):
                return None
            if pa.types.is_floating(kind) and op != "=":  # NaN is greater than every number for DuckDB
                return None
            return Filter(parts[0], _COMPARISONS[op], _value(constant, kind), parts[1:])
        case In(operand=Col(parts=parts), values=values):
            kind = _type_at(parts, keys)
            if kind is None:
                return None
            constants = [value for value in values if isinstance(value, Lit) and exact_value(value)]
            if len(constants) != len(values):
                return None
            return Filter(parts[0], "in", tuple(_value(value, kind) for value in constants), parts[1:])
        case Postfix(op=op, operand=Col(parts=parts)) if op in _NULL_TESTS:
            return None if _type_at(parts, keys) is None else Filter(parts[0], _NULL_TESTS[op], path=parts[1:])
    return None


def _type_at(parts: tuple[str, ...], keys: pa.Schema) -> pa.DataType | None:
    """The type of a key column, or of a field inside one."""
    if not parts or keys.get_field_index(parts[0]) < 0:
        return None
    kind = keys.field(parts[0]).type
    for name in parts[1:]:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def _value(constant: Lit, kind: pa.DataType) -> Any:
    """The constant as users write it in a filter; DuckDB gives an instant as microseconds."""
    if constant.type == "TIMESTAMP WITH TIME ZONE":
        return pa.scalar(constant.value, pa.timestamp("us", kind.tz)).as_py()
    return constant.value
