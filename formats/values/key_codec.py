"""Single keys and values: conversion from what users write to canonical tuples, to Arrow columns, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.canonical import Convert, ErrorPath, canonical, members_of, nullable, plain
from statestore.formats.values.key_hash import hash_of_hashes, scalar_hash

Row = tuple[Any, ...]
"""One canonical value (``statestore.formats.values.canonical``) per column."""

# Types that are never a row: checking for them first spares most keys slower checks.
_BARE = frozenset((str, int, bytes, bool, float, Decimal, date, datetime, np.int32, np.int64, np.float64, np.bool_))


class _RowCodec(ABC):
    """The part that codecs of keys and of values have in common."""

    _code: ErrorCode
    _what: str

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names = tuple(schema.names)
        self._converts: list[Convert] = [self._convert(field) for field in schema]
        self._bare = _BARE if len(schema) == 1 else frozenset()
        self._only = schema.field(0).type if len(schema) == 1 else None
        self._to_arrow = [plain(field.type, list) for field in schema]
        self._to_user = [plain(field.type, dict) for field in schema]
        self._plain = not any(self._to_user)

    def __reduce__(self) -> tuple[type, tuple[pa.Schema]]:
        return type(self), (self.schema,)

    @abstractmethod
    def _convert(self, field: pa.Field) -> Convert:
        """Convert a value that a user wrote for a column to its canonical value."""

    def to_columns(self, rows: Sequence[Row]) -> list[pa.Array]:
        """One array per column, of the schema's types, from normalized rows."""
        columns = []
        for number, (field, convert) in enumerate(zip(self.schema, self._to_arrow, strict=True)):
            cells = [row[number] for row in rows]
            columns.append(pa.array(map(convert, cells) if convert else cells, field.type, size=len(cells)))
        return columns

    def to_user(self, row: Row) -> Any:
        """Convert a normalized row for users: the bare value of a single column, else a dict."""
        if self._plain:
            if len(row) == 1:
                return row[0]
            if len(row) == 2:  # two columns are common, and this takes half the time of a zip
                names = self._names
                return {names[0]: row[0], names[1]: row[1]}
            return dict(zip(self._names, row))  # noqa: B905 - both have one cell a column
        cells = [to(cell) if to else cell for to, cell in zip(self._to_user, row, strict=True)]
        return cells[0] if len(cells) == 1 else dict(zip(self._names, cells, strict=True))

    def _row(self, value: Any) -> Row:
        members = self._members(value)
        return tuple([convert(member) for convert, member in zip(self._converts, members, strict=True)])

    def _members(self, value: Any) -> Row:
        """The members, one per column, of a row whose type is not in ``_BARE``."""
        if type(value) is tuple and len(value) == len(self._names):
            return value
        if isinstance(value, (tuple, dict, Mapping)) and not self._is_bare(value):
            members = members_of(value, self._names)
            if members is None and not self._is_of_fields(value):
                raise self._wrong(value)
            return (value,) if members is None else members
        if len(self._names) != 1:
            raise self._wrong(value)
        return (value,)

    def _is_bare(self, value: Any) -> bool:
        """Return whether a dict or row with names is itself the value of a single struct or map column."""
        if self._only is None or not pa.types.is_nested(self._only):
            return False
        if pa.types.is_map(self._only):  # the keys of a map may be anything, so names cannot decide
            return isinstance(value, Mapping)
        named = value if isinstance(value, Mapping) else getattr(value, "__fields__", getattr(value, "_fields", None))
        return pa.types.is_struct(self._only) and named is not None and set(named) != set(self._names)

    def _is_of_fields(self, value: Any) -> bool:
        """Return whether a tuple that has not one member per column has one per field of a single struct column."""
        return False

    def _wrong(self, value: Any) -> InvalidInputError:
        if isinstance(value, Mapping):
            shape = f"columns {', '.join(n if isinstance(n, str) else shown(n) for n in value) or '(none)'}"
        elif isinstance(value, tuple):
            shape = f"a tuple of {len(value)}"
        else:
            shape = f"a single {type(value).__name__}"
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema) or "(none)"
        form = f"{{{', '.join(f'{field.name!r}: {_form(field.type)}' for field in self.schema)}}}"
        return InvalidInputError(
            self._code,
            f"{self._what} has the columns {columns}; found {shape}. Write a dict of the columns or a tuple in order, "
            f"as in {form}.",
        )


def _form(kind: pa.DataType) -> str:
    """Return how a value of a type is written."""
    if not pa.types.is_struct(kind):
        return "…"
    return f"{{{', '.join(f'{field.name!r}: {_form(field.type)}' for field in kind)}}}"


class KeyValues(_RowCodec):
    """Keys of one schema, of any type, for lookups; `KeyCodec` also hashes them. Picklable."""

    _code = ErrorCode.WRONG_KEY
    _what = "The key"

    def _convert(self, field: pa.Field) -> Convert:
        convert = canonical(ErrorPath(self._code, field.name, field.type))
        depth = _only_fields(field.type)

        def not_null(value: Any) -> Any:
            if value is None:
                raise InvalidInputError(
                    ErrorCode.NULL_KEY, f"Key column {field.name!r} is null; expected {field.type}."
                )
            if depth and not isinstance(value, (tuple, Mapping)):
                for _ in range(depth):
                    value = (value,)
            return convert(value)

        return not_null

    def _is_of_fields(self, value: Any) -> bool:
        if self._only is None or not pa.types.is_struct(self._only):
            return False
        return type(value) is tuple and len(value) == self._only.num_fields

    def normalize(self, key: Any) -> Row:
        """The canonical form of a key given as dict, tuple, or, for a single column, bare value.

        A single list column takes a bare list; a single struct column a bare dict, except one whose only name is the
        column's. A tuple is one member per column, or, for a single struct column of several fields, one member per
        field. A struct of one field is also named by the bare value of that field. Raises InvalidInputError: NULL_KEY,
        or WRONG_KEY naming column, found and expected.
        """
        if type(key) in self._bare:
            return (self._converts[0](key),)
        if key is None:
            raise InvalidInputError(ErrorCode.NULL_KEY, f"A key cannot be null; expected {', '.join(self._names)}.")
        return self._row(key)


def _only_fields(kind: pa.DataType) -> int:
    """Return the number of structs of one field, each in the other, that are around a value that is no struct."""
    depth = 0
    while pa.types.is_struct(kind) and kind.num_fields == 1:
        depth, kind = depth + 1, kind.field(0).type
    return 0 if pa.types.is_struct(kind) else depth


class KeyCodec(KeyValues):
    """Keys of one schema that a store can have. Picklable."""

    def __init__(self, schema: pa.Schema) -> None:
        """Make the codec. Raises UnsupportedError UNSUPPORTED_KEY_TYPE if a column has a type that keys cannot have."""
        super().__init__(schema)
        self._hashes = [scalar_hash(field.type) for field in schema]
        self._only_hash = self._hashes[0] if len(schema) == 1 else None

    def hash(self, key: Row) -> int:
        """The hash of a normalized key, equal to that of ``hash_keys``."""
        if self._only_hash is not None:
            return self._only_hash(key[0])
        return hash_of_hashes([of(cell) for of, cell in zip(self._hashes, key, strict=True)])


class ValueCodec(_RowCodec):
    """Values of one schema; any column may be null. Picklable."""

    _code = ErrorCode.WRONG_VALUE
    _what = "The value"

    def _convert(self, field: pa.Field) -> Convert:
        return nullable(canonical(ErrorPath(self._code, field.name, field.type)))

    def normalize(self, value: Any) -> Row:
        """The canonical form of a value given as dict, tuple, or, for a single column, bare value.

        The rules of keys apply, with two exceptions: None is the null of a single column, and a dict for a single map
        column is always the map. Raises InvalidInputError WRONG_VALUE naming column, found and expected; a dict has to
        name every column.
        """
        if type(value) in self._bare:
            return (self._converts[0](value),)
        return self._row(value)
