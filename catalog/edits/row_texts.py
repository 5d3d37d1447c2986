"""Rows as lines of JSON, column by column: the text that `json.dumps` makes of each row, with its names sorted.

An edit may remove a million rows. Texts, whole numbers and structs of these are put together by Arrow. Every other
value is written by itself, which takes a tenth of what a whole row takes.
"""

from __future__ import annotations

import json
from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values
from statestore.formats.values.without_pandas import arrow_scalar

_PLAIN_TEXT = r"^[ !#-\[\]-~]*$"
"""Texts that JSON has as they are between quotes, with all else escaped."""
_PLAIN_BYTES = np.zeros(256, np.bool_)
_PLAIN_BYTES[[byte for byte in range(ord(" "), ord("~") + 1) if byte not in b'"\\']] = True
_encoded = json.JSONEncoder(sort_keys=True).encode


def json_lines(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as the text of a JSON object, in the terms in which doors print values."""
    columns = {name: rows.column(name) for name in rows.schema.names}
    return _object(columns, rows.num_rows)


def large_text(text: str) -> pa.Scalar:
    """Return a text as a scalar of the type of the texts here."""
    return arrow_scalar(text, pa.string()).cast(pa.large_string())


def _object(members: dict[str, pa.Array], count: int) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for name in sorted(members):
        before = f"{'' if not parts else ', '}{json.dumps(name)}: "
        parts += [large_text(f"{'' if parts else '{'}{before}"), _texts(members[name])]
    if not parts:
        return pa.array(["{}"] * count, pa.large_string())
    return pc.binary_join_element_wise(*parts, large_text("}"), large_text(""))


def _texts(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value of a column."""
    kind = column.type
    if pa.types.is_struct(kind) and len({field.name for field in kind}) == kind.num_fields:
        members = dict(zip((field.name for field in kind), column.flatten(), strict=True))
        found = _object(members, len(column))
    elif pa.types.is_integer(kind):
        found = column.cast(pa.large_string())
    elif pa.types.is_boolean(kind):
        found = pc.if_else(column, large_text("true"), large_text("false"))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = _quoted(column.cast(pa.large_string()))
    elif pa.types.is_floating(kind):
        found = _numbers(column)
    else:
        return pa.array([_encoded(plain(value)) for value in python_values(column)], pa.large_string())
    null = large_text("null")
    return pc.if_else(column.is_valid(), found, null) if column.null_count else found


def _numbers(column: pa.Array) -> pa.Array:
    values: list[float] = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy().tolist()
    return pa.array([repr(each) if isfinite(each) else _encoded(plain(each)) for each in values], pa.large_string())


def _quoted(texts: pa.Array) -> pa.Array:
    mark = large_text('"')
    found = pc.binary_join_element_wise(mark, texts, mark, large_text(""))
    if _are_plain(texts):
        return found
    is_plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN_TEXT), True)
    others = texts.filter(pc.invert(is_plain))
    if not len(others):
        return found
    escaped = pa.array([_encoded(text) for text in others.to_pylist()], pa.large_string())
    return pc.replace_with_mask(found, pc.invert(is_plain), escaped)


def _are_plain(texts: pa.Array) -> bool:
    """Return whether no text needs an escape, from a look at all their bytes together."""
    _, offsets, data = texts.buffers()
    if data is None:
        return True
    ends = np.frombuffer(offsets, np.int64)[[texts.offset, texts.offset + len(texts)]]
    return bool(_PLAIN_BYTES[np.frombuffer(data, np.uint8)[ends[0] : ends[1]]].all())
