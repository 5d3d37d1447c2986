"""Columns of times as text, which rows to write and the left side of an as-of join may have."""

from __future__ import annotations

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.times import parse_time

INSTANT = pa.timestamp("us", "UTC")


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def instants_of(texts: pa.Array, name: str) -> pa.Array:
    """Return a column of texts like 2024-05-01T09:30Z as timestamps with time zone; null stays null.

    Each text has an offset. Raises InvalidInputError NAIVE_DATETIME, INVALID_TIME or TIME_OUT_OF_RANGE, which names the
    column and the row.
    """
    try:
        return texts.cast(pa.string()).cast(INSTANT)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _wrong_text(texts, name) from None


def _wrong_text(texts: pa.Array, name: str) -> InvalidInputError:
    """Return the error for the first text that Arrow does not read as a moment."""
    for row, text in enumerate(texts):
        try:
            text.cast(pa.string()).cast(INSTANT)
        except pa.ArrowInvalid:
            try:
                parse_time(text.as_py(), f"column `{name}`, row {row},")
            except InvalidInputError as error:
                return error
            return InvalidInputError(
                ErrorCode.INVALID_TIME,
                f"column `{name}` holds {shown(text.as_py())} in row {row}; expected in each row ISO-8601 with an "
                "offset and at most six decimals, like 2024-05-01T09:30:00Z, or a column of int64 epoch milliseconds",
            )
    return InvalidInputError(ErrorCode.INVALID_TIME, f"column `{name}` holds texts that are no times")
