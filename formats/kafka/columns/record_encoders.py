"""Rows of a store as records of its changelog: what `store_kinds.logged_rows` decodes, encoded.

    key                                record key                              record timestamp
    plain, versioned                   key                                     the value's, where the store keeps it
    window, also time-ordered          key | start:int64 | sequence:int32      a version's: its valid_from
    session, also time-ordered         key | end:int64 | start:int64

The value is bare in every kind; headers, where the store keeps them, are those of the record. Buffers of operators have
no way back.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.columns.header_columns import HEADERS, empty_headers
from statestore.formats.kafka.columns.serde_encoders import milliseconds, with_numbers
from statestore.formats.kafka.columns.store_form import StoreKind
from statestore.formats.kafka.columns.time_columns import UNKNOWN
from statestore.formats.kernels.arrays import Ints

ENCODED_FORMS = ("plain", "versioned", "window", "time-ordered window", "session", "time-ordered session")
"""The forms of rows that are encoded (`StoreKind.rows`)."""
WINDOWS, SESSIONS = ("window", "time-ordered window"), ("session", "time-ordered session")


def suffix_size(kind: StoreKind) -> int:
    """The bytes behind the user's key in the key of a record."""
    return 12 if kind.rows in WINDOWS else 16 if kind.rows in SESSIONS else 0


def record_keys(kind: StoreKind, keys: pa.BinaryArray, rows: pa.RecordBatch) -> pa.BinaryArray:
    """The keys of records of rows whose user keys are ``keys``.

    Raises InvalidInputError WRONG_VALUE for a key or time that is null, a time that is no whole millisecond, and for a
    session that ends before it starts.
    """
    if keys.null_count:
        raise InvalidInputError(ErrorCode.WRONG_VALUE, "key: found null, expected a value, as records without are lost")
    if kind.rows in WINDOWS:
        starts = milliseconds(rows.column("window_start"), "window_start")
        numbers = rows.column("sequence") if kind.duplicates else pa.array(np.zeros(len(rows), np.int32))
        return with_numbers(keys, [starts, numbers.to_numpy(zero_copy_only=False).astype(np.int32)])
    if kind.rows in SESSIONS:
        starts, ends = (milliseconds(rows.column(name), name) for name in ("session_start", "session_end"))
        if (ends < starts).any():
            at = int((ends < starts).argmax())
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE,
                f"session_end: found {rows.column('session_end')[at]} before session_start "
                f"{rows.column('session_start')[at]}, expected a session that ends at or after its start",
            )
        return with_numbers(keys, [ends, starts])
    return keys


def kept_timestamps(kind: StoreKind, rows: pa.RecordBatch) -> Ints | None:
    """The timestamps of records in milliseconds, where the kind has them in its rows; UNKNOWN for a null."""
    name = "valid_from" if kind.has_past else "timestamp" if kind.timestamp else None
    if name is None:
        return None
    column = rows.column(name)
    filled = column.fill_null(pa.scalar(UNKNOWN * 1000, pa.int64()).cast(column.type))
    return milliseconds(filled, name)


def kept_headers(kind: StoreKind, rows: pa.RecordBatch) -> pa.ListArray:
    """The headers of records, none where the kind does not keep them."""
    if not kind.headers:
        return empty_headers(len(rows))
    found = rows.column("headers").cast(HEADERS)
    return found.fill_null(pa.scalar([], HEADERS)) if found.null_count else found
