"""Filters that DuckDB pushes into a scan, read back as `Filter`s.

DuckDB passes a filter to an Arrow dataset as an opaque ``pyarrow`` expression. Its pickled form is an Arrow IPC file:
the schema's metadata is the expression in prefix order (``call``, ``field_ref``, ``literal``, ``options``, ``end``),
and the one record batch holds the literals. Metadata keys repeat there, and pyarrow's own mapping would merge them, so
they are read through the Arrow C data interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.values.filters import Filter, Op, limits_of_either, one_of

_COMPARISONS: dict[str, Op] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


@dataclass(frozen=True)
class Field:
    path: tuple[str, ...]


@dataclass(frozen=True)
class Constant:
    scalar: pa.Scalar


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Node, ...]
    options: pa.Scalar | None = None


Node = Field | Constant | Call


@dataclass(frozen=True)
class PushedFilter:
    """A conjunction: ``filters`` are the parts that a `StateTable` can apply, and what follows from others.

    ``pin`` is the value that the column ``pin_column`` must equal. ``complete`` is False if there are parts that only
    Arrow can evaluate. ``columns`` are all columns that the whole expression reads.
    """

    pin: int | None = None
    filters: tuple[Filter, ...] = ()
    complete: bool = True
    columns: tuple[str, ...] = ()


def read_pushed(expression: pc.Expression | None, schema: pa.Schema, pin_column: str) -> PushedFilter:
    """Split a pushed expression over ``schema`` into its parts."""
    if expression is None:
        return PushedFilter()
    root = parse_expression(expression)
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
    return PushedFilter(pin, tuple(filters), complete, tuple(sorted(set(_columns(root)))))


def parse_expression(expression: pc.Expression) -> Node:
    """The syntax tree of a pyarrow expression."""
    (serialized,) = expression.__reduce__()[1]
    with pa.ipc.open_file(serialized) as file:
        tokens = iter(_metadata_pairs(file.schema))
        return _parse(next(tokens), tokens, file.get_batch(0))


def _parse(token: tuple[str, str], tokens: Iterator[tuple[str, str]], literals: pa.RecordBatch) -> Node:
    kind, text = token
    if kind == "literal":
        return Constant(literals.column(int(text))[0])
    if kind == "field_ref":
        return Field((text,))
    if kind == "nested_field_ref":
        return Field(tuple(next(tokens)[1] for _ in range(int(text))))
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
    return Call(text, tuple(arguments), options)


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, Call) and node.name in ("and_kleene", "and"):
        for argument in node.arguments:
            yield from _conjuncts(argument)
    else:
        yield node


def _columns(node: Node) -> Iterator[str]:
    if isinstance(node, Field):
        yield node.path[0]
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _columns(argument)


def _as_filter(node: Node, schema: pa.Schema) -> Filter | None:
    if not isinstance(node, Call):
        return None
    if node.name == "if_else":
        return _guarded_membership(node, schema)
    if node.name in ("or_kleene", "or"):
        branches = [[_as_filter(each, schema) for each in _conjuncts(branch)] for branch in node.arguments]
        known = [[each for each in branch if each is not None] for branch in branches]
        return one_of(known, schema) if list(map(len, known)) == list(map(len, branches)) else None
    field = node.arguments[0] if node.arguments else None
    if not isinstance(field, Field):
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
    if operator is None or len(node.arguments) != 2 or not isinstance(constant := node.arguments[1], Constant):
        return None
    value = constant.scalar
    if not value.is_valid or not _same_family(value.type, kind):
        return None
    return Filter(column, operator, value.as_py(), path)


def _limits(node: Node, schema: pa.Schema) -> tuple[Filter, ...]:
    """Return filters that all rows pass for which a node is true, where OR has no filter of its meaning."""
    if not isinstance(node, Call) or node.name not in ("or_kleene", "or"):
        return ()
    branches = []
    for branch in node.arguments:
        found = [(part, _as_filter(part, schema)) for part in _conjuncts(branch)]
        branches.append([f for part, one in found for f in (_limits(part, schema) if one is None else (one,))])
    return limits_of_either(branches)


def _guarded_membership(node: Call, schema: pa.Schema) -> Filter | None:
    """``if_else(is_valid(c), is_in(c, …), null)``, DuckDB's spelling of ``c IN (…)``."""
    if len(node.arguments) != 3:
        return None
    guard, member, otherwise = node.arguments
    if not isinstance(otherwise, Constant) or otherwise.scalar.is_valid:
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


def _option(node: Call, name: str) -> Any:
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
