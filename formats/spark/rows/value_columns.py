"""Conversion of single values of Spark's types, as numbers or bytes, to Arrow columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.spark_schema import SPATIAL, VARIANT, DecimalOf, Plain, arrow_type
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, unsupported
from statestore.formats.values.without_pandas import arrow_numbers

FIXED_CELL = 8
DECIMAL_BYTES = 16
NANOS = 1000
"""Nanoseconds, which Arrow counts in calendar intervals, of a microsecond, which Spark counts."""
_INTERVAL_BYTES = 16
_MAX_INTERVAL = (1 << 63) // NANOS - 1
_SRID_BYTES = 4


def plain_values(kind: Plain, numbers: npt.NDArray[Any], nulls: Bools | None) -> pa.Array:
    """Convert the numbers in slots to the column type of ``kind``."""
    if pa.types.is_boolean(kind.arrow):
        return arrow_numbers(numbers != 0, nulls)
    values = arrow_numbers(numbers, nulls)
    return values if values.type == kind.arrow else values.view(kind.arrow)


def decimals_of_longs(kind: DecimalOf, unscaled: Ints, nulls: Bools | None) -> pa.Array:
    """Convert decimals of at most 18 digits."""
    words = np.empty((len(unscaled), 2), "<i8")
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    return _decimals(kind, words, nulls)


def decimals_of_spans(kind: DecimalOf, spans: Cells) -> pa.Array:
    """Convert decimals in big-endian two's complement of at most 16 bytes."""
    if len(spans) and not 1 <= int(spans.size.min()) <= int(spans.size.max()) <= DECIMAL_BYTES:
        raise corrupt_row(
            f"found a decimal of {int(spans.size.min())} to {int(spans.size.max())} bytes, expected 1 to 16"
        )
    negative = gather(spans.data, spans.start, "<i1") < 0
    digits = np.where(negative, np.uint8(0xFF), np.uint8(0))[:, None].repeat(DECIMAL_BYTES, 1)
    for index in range(int(spans.size.max()) if len(spans) else 0):
        has = spans.size > index
        digits[has, index] = gather(spans.data, (spans.start + spans.size - 1 - index)[has], "<u1")
    return _decimals(kind, digits.view("<i8"), None)


def _decimals(kind: DecimalOf, words: npt.NDArray[np.int64], nulls: Bools | None) -> pa.Array:
    validity = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(arrow_type(kind), len(words), [validity, pa.py_buffer(np.ascontiguousarray(words))])


def text_of(cells: pa.Array) -> pa.Array:
    """Decode bytes as text; invalid UTF-8 becomes U+FFFD, as where Spark shows it."""
    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid:
        # Spark allows any bytes in a string (cast of binary); that is rare enough for a loop over rows.
        return pa.array(
            [None if cell is None else cell.decode(errors="replace") for cell in cells.to_pylist()], pa.string()
        )


def calendar_intervals(spans: Cells) -> pa.Array:
    """Decode months:int32 | days:int32 | microseconds:int64. Arrow counts nanoseconds, up to 292 years of them."""
    spans.require(_INTERVAL_BYTES, "an interval", corrupt_row)
    words = np.empty((len(spans), 2), "<i8")
    words[:, 0] = gather(spans.data, spans.start, "<i8")
    micros = gather(spans.data, spans.start + 8, "<i8")
    beyond = (micros < -_MAX_INTERVAL) | (micros > _MAX_INTERVAL)
    if beyond.any():
        raise unsupported(
            f"an interval of {int(micros[np.argmax(beyond)])} microseconds besides its months and days; expected at "
            f"most {_MAX_INTERVAL}; read the other columns"
        )
    words[:, 1] = micros * NANOS
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(spans), [None, pa.py_buffer(words)])


def variants(spans: Cells) -> pa.Array:
    """Decode size of the value:int32 | value | metadata."""
    spans.require(4, "a variant", corrupt_row)
    size = gather(spans.data, spans.start, "<i4").astype(np.int64)
    if ((size < 0) | (size > spans.size - 4)).any():
        raise corrupt_row("found a variant whose value is larger than the variant")
    value = Cells(spans.data, spans.start + 4, size)
    metadata = Cells(spans.data, value.start + size, spans.size - 4 - size)
    return pa.StructArray.from_arrays(
        [value.copied(corrupt_row), metadata.copied(corrupt_row)], fields=list(VARIANT.arrow)
    )


def spatial_values(spans: Cells) -> pa.Array:
    """Decode id of the system of coordinates:int32 | well-known binary."""
    spans.require(_SRID_BYTES, "a geometry", corrupt_row)
    systems = pa.array(gather(spans.data, spans.start, "<i4"), pa.int32())
    shapes = Cells(spans.data, spans.start + _SRID_BYTES, spans.size - _SRID_BYTES)
    return pa.StructArray.from_arrays([systems, shapes.copied(corrupt_row)], fields=list(SPATIAL.arrow))


def spread(values: pa.Array, nulls: Bools | None) -> pa.Array:
    """Insert nulls between ``values``, which are those of the other rows."""
    if nulls is None:
        return values
    positions = np.cumsum(~nulls) - 1
    return values.take(pa.array(positions, mask=nulls))
