"""Cells of columns in the form in which programs of ``tests/engines/flink/python`` write what they kept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The cells of a column. A decimal stays one, for `agree`."""
    return [_plain(cell) for cell in column]


def _plain(cell: pa.Scalar) -> Any:
    if not cell.is_valid:
        return None
    kind = cell.type
    if pa.types.is_struct(kind):
        return {name: _plain(part) for name, part in cell.items()}
    if pa.types.is_list(kind):
        return plain(cell.values)
    if pa.types.is_map(kind):
        return [list(pair) for pair in zip(*map(plain, cell.values.flatten()), strict=True)]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return {"instant": list(divmod(cell.value, 10**9))}
    value = cell.as_py()
    if pa.types.is_timestamp(kind):
        return str(value.replace(tzinfo=None))
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return value if isinstance(value, str | int | float | Decimal) else str(value)


def agree(found: Any, wanted: Any) -> bool:
    """Return whether a cell is what a program wrote; a decimal by its value, as texts may have zeros at the end."""
    if isinstance(found, Decimal):
        return isinstance(wanted, str) and found == Decimal(wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(agree, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(agree(found[name], wanted[name]) for name in found)
    return type(found) is type(wanted) and bool(found == wanted)
