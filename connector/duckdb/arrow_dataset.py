"""A reading as an Arrow dataset, which every release of DuckDB scans.

DuckDB asks the dataset for a scanner with the columns and filters of each query. Dead rows are cut out before DuckDB
sees a batch. Filters on key columns are pushed, because tables find keys by index. On all other columns DuckDB filters
finished batches several times faster than Arrow would. Those columns are declared as an extension type: DuckDB reads it
as the type it wraps and pushes no comparison into it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.formats.errors import StateStoreError
from statestore.formats.values.filters import Filter, Op, limits_of_either, one_of


class ReadingDataset(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset that DuckDB scans with the columns and filters of each query."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(_declared(reading).empty_table())
        self._reading = reading

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: object) -> _Scan:
        try:
            return _Scan(_scan(self._reading, columns, filter))
        except StateStoreError as error:
            self._reading.error = error
            raise


def _declared(reading: Reading) -> pa.Schema:
    """The schema declared to DuckDB; batches have the plain types."""
    pushed = {PIN_COLUMN, *(reading.source_name(name) for name in reading.table.key_columns)}
    return pa.schema([f if f.name in pushed else f.with_type(_Unpushed(f.type)) for f in reading.source_schema()])


def _scan(reading: Reading, columns: Sequence[str] | None, expression: pc.Expression | None) -> pa.RecordBatchReader:
    """A lazy reader. The scan is planned at once, so that most errors are raised before the first batch."""
    schema = reading.source_schema()
    pushed = read_pushed(expression, schema, PIN_COLUMN)
    asked = schema.names if columns is None else list(columns)
    if pushed.complete:
        return reading.scan(pushed.pin, pushed.filters, asked, False)
    needed = list(dict.fromkeys([*asked, *pushed.columns]))
    reader = reading.scan(pushed.pin, pushed.filters, needed, False)
    return ds.Scanner.from_batches(reader, columns=asked, filter=expression).to_reader()


@dataclass(frozen=True)
class _Scan:
    """The two members of a pyarrow Scanner that DuckDB uses."""

    reader: pa.RecordBatchReader

    @property
    def projected_schema(self) -> pa.Schema:
        return self.reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


class _Unpushed(pa.ExtensionType):  # type: ignore[misc]
    """Another name for a type, which makes DuckDB evaluate comparisons itself."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "statestore.unpushed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Unpushed:
        return cls(storage)


# Filters that DuckDB pushes into a scan, read back as `Filter`s.
#
# DuckDB passes a filter to an Arrow dataset as an opaque ``pyarrow`` expression. Its pickled form is an Arrow IPC file:
# the schema's metadata is the expression in prefix order (``call``, ``field_ref``, ``literal``, ``options``, ``end``),
# and the one record batch holds the literals. Metadata keys repeat there, and pyarrow's own mapping would merge them,
# so they are read through the Arrow C data interface.

_COMPARISONS: dict[str, Op] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


@dataclass(frozen=True)
class _Field:
    path: tuple[str, ...]


@dataclass(frozen=True)
class _Constant:
    scalar: pa.Scalar


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: tuple[Node, ...]
    options: pa.Scalar | None = None


Node = _Field | _Constant | _Call


@dataclass(frozen=True)
class _PushedFilter:
    """A conjunction: ``filters`` are the parts that a `StateTable` can apply, and what follows from others.

    ``pin`` is the value that the column ``pin_column`` must equal. ``complete`` is False if there are parts that only
    Arrow can evaluate. ``columns`` are all columns that the whole expression reads.
    """

    pin: int | None = None
    filters: tuple[Filter, ...] = ()
    complete: bool = True
    columns: tuple[str, ...] = ()


def read_pushed(expression: pc.Expression | None, schema: pa.Schema, pin_column: str) -> _PushedFilter:
    """Split a pushed expression over ``schema`` into its parts."""
    if expression is None:
        return _PushedFilter()
    root = _parse_expression(expression)
    pin, complete, filters = None, True, list[Filter]()
    for part in _conjuncts(root):
        found = _as_filter(part, schema)
        if found is None:
            complete = False
            filters += _limits(part, schema)
        elif found.column == pin_column and found.op == "=":
            pin = found.value
        else:
            filters.append(found)
    return _PushedFilter(pin, tuple(filters), complete, tuple(sorted(set(_columns(root)))))


def _parse_expression(expression: pc.Expression) -> Node:
    """The syntax tree of a pyarrow expression."""
    (serialized,) = expression.__reduce__()[1]
    with pa.ipc.open_file(serialized) as file:
        tokens = iter(_metadata_pairs(file.schema))
        return _parse(next(tokens), tokens, file.get_batch(0))


def _parse(token: tuple[str, str], tokens: Iterator[tuple[str, str]], literals: pa.RecordBatch) -> Node:
    kind, text = token
    if kind == "literal":
        return _Constant(literals.column(int(text))[0])
    if kind == "field_ref":
        return _Field((text,))
    if kind == "nested_field_ref":
        return _Field(tuple(next(tokens)[1] for _ in range(int(text))))
    if kind != "call":
        raise ValueError(f"unknown part {kind!r} in a serialized pyarrow expression")
    arguments, options = [], None
    for token in tokens:
        if token[0] == "end":
            break
        if token[0] == "options":
            options = literals.column(int(token[1]))[0]
        else:
            arguments.append(_parse(token, tokens, literals))
    return _Call(text, tuple(arguments), options)


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, _Call) and node.name in ("and_kleene", "and"):
        for argument in node.arguments:
            yield from _conjuncts(argument)
    else:
        yield node


def _columns(node: Node) -> Iterator[str]:
    if isinstance(node, _Field):
        yield node.path[0]
    elif isinstance(node, _Call):
        for argument in node.arguments:
            yield from _columns(argument)


def _as_filter(node: Node, schema: pa.Schema) -> Filter | None:
    if not isinstance(node, _Call):
        return None
    if node.name == "if_else":
        return _guarded_membership(node, schema)
    if node.name in ("or_kleene", "or"):
        branches = [[_as_filter(each, schema) for each in _conjuncts(branch)] for branch in node.arguments]
        known = [[each for each in branch if each is not None] for branch in branches]
        return one_of(known, schema) if list(map(len, known)) == list(map(len, branches)) else None
    field = node.arguments[0] if node.arguments else None
    if not isinstance(field, _Field):
        return None
    column, path = field.path[0], field.path[1:]
    kind = schema.field(column).type
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    if node.name == "is_valid":
        return Filter(column, "is_not_null", path=path)
    if node.name == "is_null":
        return None if _option(node, "nan_is_null") else Filter(column, "is_null", path=path)
    if node.name == "is_in":
        values = _option(node, "value_set")
        if values is None or None in values:
            return None
        return Filter(column, "in", tuple(map(_hashable, values)), path)
    operator = _COMPARISONS.get(node.name)
    if operator is None or len(node.arguments) != 2 or not isinstance(constant := node.arguments[1], _Constant):
        return None
    value = constant.scalar
    if not value.is_valid or not _same_family(value.type, kind):
        return None
    return Filter(column, operator, value.as_py(), path)


def _limits(node: Node, schema: pa.Schema) -> tuple[Filter, ...]:
    """Return filters that all rows pass for which a node is true, where OR has no filter of its meaning."""
    if not isinstance(node, _Call) or node.name not in ("or_kleene", "or"):
        return ()
    branches = []
    for branch in node.arguments:
        found = [(part, _as_filter(part, schema)) for part in _conjuncts(branch)]
        branches.append([f for part, one in found for f in (_limits(part, schema) if one is None else (one,))])
    return limits_of_either(branches)


def _guarded_membership(node: _Call, schema: pa.Schema) -> Filter | None:
    """``if_else(is_valid(c), is_in(c, …), null)``, DuckDB's spelling of ``c IN (…)``."""
    if len(node.arguments) != 3:
        return None
    guard, member, otherwise = node.arguments
    if not isinstance(otherwise, _Constant) or otherwise.scalar.is_valid:
        return None
    valid, found = _as_filter(guard, schema), _as_filter(member, schema)
    if valid is None or found is None or valid.op != "is_not_null" or found.op != "in" or valid.name != found.name:
        return None
    return found


def _hashable(value: Any) -> Any:
    """A value of a list with structs and lists as tuples, because plans are kept by their filters."""
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _option(node: _Call, name: str) -> Any:
    return None if node.options is None else node.options[name].as_py()


def _same_family(literal: pa.DataType, column: pa.DataType) -> bool:
    """Return whether a comparison of Python values has the result of Arrow's comparison."""
    if literal == column:
        return True
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, _is_text, _is_bytes)
    return any(test(literal) and test(column) for test in tests)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))


class _ArrowSchema(ctypes.Structure):
    """The head of the C data interface's ``struct ArrowSchema``."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    """All metadata pairs in order, repeated keys included."""
    capsule = schema.__arrow_c_schema__()  # owns the memory read below
    pointer = _capsule_pointer(capsule, b"arrow_schema")
    position = _ArrowSchema.from_address(pointer).metadata or 0
    if not position:
        return []

    def number() -> int:
        nonlocal position
        value = ctypes.c_int32.from_address(position).value
        position += 4
        return value

    def text() -> str:
        nonlocal position
        length = number()
        value = ctypes.string_at(position, length)
        position += length
        return value.decode()

    return [(text(), text()) for _ in range(number())]
