"""Columns of times as text, which rows to write and the left side of an as-of join may have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.times import parse_instant

INSTANT = pa.timestamp("us", "UTC")
# Forms that Arrow and `parse_instant` read alike. Arrow takes others, too, such as an hour without minutes.
_COMMON = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?[0-5]\d)?)$"


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def instants_of(texts: pa.Array, name: str) -> pa.Array:
    """Return a column of texts like 2024-05-01T09:30Z as timestamps with time zone; null stays null.

    The texts have the grammar of `parse_time`, without numbers, which a column of integers holds. Raises
    InvalidInputError NAIVE_DATETIME, INVALID_TIME, INVALID_TIME_ZONE or TIME_OUT_OF_RANGE, which names the column and
    the row.
    """
    texts = texts.cast(pa.string())
    if pc.all(pc.match_substring_regex(texts, _COMMON), min_count=0).as_py():
        try:
            return texts.cast(INSTANT)
        except pa.ArrowInvalid:
            pass  # a text that looks like a time and is none, like February 30
    found = [None if text is None else _instant(text, name, row) for row, text in enumerate(texts.to_pylist())]
    return pa.array(found, pa.int64()).cast(INSTANT)


def _instant(text: str, name: str, row: int) -> int:
    instant = parse_instant(text, f"column `{name}`, row {row},")
    if text.strip().removesuffix("ms").lstrip("+-").isdigit():
        raise InvalidInputError(
            ErrorCode.INVALID_TIME,
            f"column `{name}` holds {shown(text)} in row {row}; expected texts in ISO-8601 with a zone, like "
            "2024-05-01T09:30:00Z, or a column of int64 epoch milliseconds",
        )
    return instant
