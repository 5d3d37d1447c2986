"""Tables that users write: checked, converted to the store's schema, and cut into batches of records.

Times may come as text, here and on the left side of an as-of join.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.times import MAX_MS, MIN_MS, TICK, parse_instant
from statestore.formats.values.types import TIME, conform

CHANGE_TYPE = "_change_type"
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
INSTANT = pa.timestamp("us", "UTC")
# Forms that Arrow and `parse_instant` read alike. Arrow takes others, too, such as an hour without minutes.
_COMMON = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?[0-5]\d)?)$"


def batches_of(data: Any) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow table, batch or reader, a pandas DataFrame, or any object with an Arrow
    stream (Polars, DuckDB, `Rows`).

    The index of a pandas DataFrame is no column.
    """
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        yield from pa.Table.from_pandas(data, preserve_index=False).to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(data)
    else:
        raise InvalidInputError(
            ErrorCode.WRONG_INPUT,
            f"put_all got {type(data).__name__}; expected a pyarrow Table, RecordBatch or RecordBatchReader, "
            "a pandas or Polars DataFrame, or another object with an Arrow stream",
        )


def record_batch(spec: StoreSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` in the record schema.

    It has the key, the value, ``timestamp`` (see `times_of`) and optionally
    ``_change_type``, in which ``delete`` removes and ``update_preimage`` is left out. Raises InvalidInputError
    WRONG_SCHEMA, NULL_KEY, NULL_TIMESTAMP, NAIVE_DATETIME, TIME_OUT_OF_RANGE.
    """
    names = batch.schema.names
    if "timestamp" not in names:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"the rows for store {spec.name!r} have columns {', '.join(names)}; a column `timestamp` "
            "(int64 epoch milliseconds, a timestamp with time zone, or texts like 2024-05-01T09:30Z) is missing; "
            "add it",
        )
    times = times_of(batch.column(names.index("timestamp")), "timestamp")
    deleted = np.zeros(batch.num_rows, bool)
    kept = None
    if CHANGE_TYPE in names:
        deleted, kept = change_types(batch.column(names.index(CHANGE_TYPE)))
    rest = [n for n in names if n not in ("timestamp", CHANGE_TYPE)]
    data = conform(batch.select(rest), pa.schema([*spec.key, *spec.value]))
    for name in spec.key_names:
        if data.column(name).null_count:
            raise InvalidInputError(
                ErrorCode.NULL_KEY,
                f"key column {name!r} of store {spec.name!r} holds a null; every row needs its whole key",
            )
    arrays = [*data.columns, pa.array(times).cast(TIME), pa.array(deleted)]
    result = pa.RecordBatch.from_arrays(arrays, schema=spec.record_schema())
    return result if kept is None else result.filter(kept)


def latest_time(batch: pa.RecordBatch, at_least: int) -> int:
    """Return the greatest time (epoch microseconds) in a batch of the record schema, and at least ``at_least``."""
    if not batch.num_rows:
        return at_least
    return max(at_least, int(pc.max(batch.column("timestamp").view(pa.int64())).as_py()))


def times_of(column: pa.Array, name: str) -> Ints:
    """Return the epoch microseconds, floored to the millisecond, of a column of times: epoch milliseconds, zoned
    timestamps, or texts with an offset.

    Raises InvalidInputError NULL_TIMESTAMP, NAIVE_DATETIME, INVALID_TIME, TIME_OUT_OF_RANGE or WRONG_SCHEMA, which
    names the column.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise InvalidInputError(ErrorCode.NULL_TIMESTAMP, f"{_shown(name)} holds a null; every row needs its time")
    if is_text(column.type):
        column = instants_of(column, name)
    if pa.types.is_integer(column.type):
        return _in_range(column.cast(pa.int64()).to_numpy(zero_copy_only=False), 1, name) * TICK
    if not pa.types.is_timestamp(column.type):
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"column `{name}` is {column.type}; expected int64 epoch milliseconds, a timestamp with time zone, or "
            "texts like 2024-05-01T09:30Z",
        )
    if column.type.tz is None:
        raise InvalidInputError(
            ErrorCode.NAIVE_DATETIME,
            f"column `{name}` is {column.type} without a time zone, so its moments are ambiguous; "
            "expected timestamp[us, tz=UTC] (or int64 epoch milliseconds); give it a zone before "
            "writing",
        )
    ticks = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    numbers = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    if column.type.unit == "s":
        return _in_range(numbers, 1_000, name) * 1_000 * TICK
    return _in_range(numbers // ticks, 1, name) * TICK


def _shown(name: str) -> str:
    """Return the name of a column of times; that of the state time has another one in statements."""
    return f"column `{name}`" + (" (`valid_from` in SQL)" if name == "timestamp" else "")


def _in_range(numbers: Ints, milliseconds: int, name: str) -> Ints:
    """Return ``numbers``, each worth so many milliseconds, if all are between years 1 and 9999.

    Raises InvalidInputError TIME_OUT_OF_RANGE otherwise.
    """
    low, high = MIN_MS // milliseconds, MAX_MS // milliseconds
    outside = np.flatnonzero((numbers < low) | (numbers > high))
    if len(outside):
        raise InvalidInputError(
            ErrorCode.TIME_OUT_OF_RANGE,
            f"{_shown(name)} holds {numbers[outside[0]] * milliseconds} ms in row {outside[0]}; expected epoch "
            f"milliseconds from {MIN_MS} (year 1) to {MAX_MS} (year 9999); check the unit",
        )
    return numbers


def change_types(column: pa.Array) -> tuple[npt.NDArray[np.bool_], pa.Array | None]:
    """Return (mask of rows that delete, mask of rows to keep: None if these are all)."""
    if pa.types.is_string(column.type):
        deletes, inserts = pc.equal(column, "delete"), pc.equal(column, "insert")
        if deletes.true_count + inserts.true_count + column.null_count == len(column):  # as in most tables
            return deletes.fill_null(False).to_numpy(zero_copy_only=False), None
    known = pc.is_in(column, pa.array([*CHANGE_TYPES, None], pa.string())).to_numpy(zero_copy_only=False)
    if not known.all():
        wrong = column[int(np.flatnonzero(~known)[0])].as_py()
        raise InvalidInputError(
            ErrorCode.WRONG_CHANGE_TYPE,
            f"column `_change_type` holds {wrong!r}; expected one of {', '.join(CHANGE_TYPES)}",
        )
    deleted = pc.fill_null(pc.equal(column, "delete"), False).to_numpy(zero_copy_only=False)
    preimages = pc.equal(column, "update_preimage")
    # Most tables have none, and a filter would copy all of them.
    return deleted, pc.invert(pc.fill_null(preimages, False)) if pc.any(preimages).as_py() else None


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
