"""Arrow columns as bytes in the forms of Kafka's serdes: what `serde_columns` decodes, encoded.

Bytes that were decoded come back as they were, but for those that Kafka's own serializers would not write: a UUID with
upper-case letters, and a NaN of doubles with other bits than Java's. Values with a schema: see `schema_encoders`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.columns.schema_encoders import (
    NOTHING,
    Stored,
    is_by_schema,
    is_json_by_schema,
    with_schema_cells,
)
from statestore.formats.kafka.columns.serde_columns import WRAPPED, cell_serde, is_json
from statestore.formats.kafka.schemas.registry_requests import without_credentials
from statestore.formats.kafka.schemas.schema_files import has_schema
from statestore.formats.kafka_rows.serdes import FORMS, RAW, serde_name, serializer
from statestore.formats.kernels.arrays import Ints

_US_PER_MS = 1000


def check_encoder(name: str) -> None:
    """Raise UnsupportedError EDIT_UNSUPPORTED for a serde whose values are not encoded."""
    if is_by_schema(name):
        return
    wrapped = WRAPPED.fullmatch(name.strip())
    if wrapped is not None and not has_schema(name) and not is_by_schema(wrapped[2]):
        check_encoder(wrapped[2])
        if wrapped[1].lower() == "list":
            _check_plain(wrapped[2], name)
    elif name.strip().lower() != "json":
        _check_plain(name, name)


def _check_plain(inner: str, name: str) -> None:
    try:
        serializer(inner.strip())
    except UnsupportedError:
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED,
            f"serde {shown(without_credentials(name), 80)}: its values are read, and not written; write these records "
            "with a producer that has the serializer, or give their bytes: read the state with serde bytes",
        ) from None


def encoded(name: str, values: pa.Array, what: str, stored: Stored = NOTHING) -> pa.BinaryArray:
    """The bytes of a column of the serde's type, null where the column is.

    ``what`` names the column in messages; ``stored`` has the ids of schemas. Raises UnsupportedError as
    `check_encoder`, and InvalidInputError WRONG_VALUE for a value that the serde cannot have; for serdes with a schema
    also as `with_schema_cells`.
    """
    check_encoder(name)
    values = values.cast(cell_serde(name).type)
    if is_by_schema(name):
        if is_json_by_schema(name):
            _json(values, what)
        found = with_schema_cells(name, values.drop_null(), what, stored.present(values.is_valid())).binary()
        return found.take(_places(values)) if values.null_count else found
    wrapped = WRAPPED.fullmatch(name.strip())
    if wrapped is not None and wrapped[1].lower() != "list":
        return _windowed(wrapped[2], values, what, is_session=wrapped[1].lower() == "session-windowed")
    if name.strip().lower() == "json":
        return _json(values, what)
    plain = None if wrapped is not None else serde_name(name.strip())
    if plain in FORMS:
        return _numbers(values, FORMS[plain], is_double=plain == "Double")
    if plain == "String" or plain in RAW:
        return values.cast(pa.binary())
    encode = serializer(name.strip())
    found = pa.array([encode(value) for value in values.to_pylist()], pa.binary())
    if plain == "UUID" and pc.any(pc.not_equal(found, values.cast(pa.binary()))).as_py():
        raise InvalidInputError(
            ErrorCode.WRONG_VALUE, f"{what}: expected UUIDs in lower-case letters with hyphens, as they are shown"
        )
    return found


def _numbers(values: pa.Array, form: str, *, is_double: bool) -> pa.BinaryArray:
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    if is_double:
        numbers = np.where(np.isnan(numbers), np.nan, numbers)  # as Java's serializer, which knows one NaN
    found = fixed_cells(numbers.astype(f">{numbers.dtype.str[1:]}"))
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.binary())) if values.null_count else found


def fixed_cells(numbers: npt.NDArray[np.generic]) -> pa.BinaryArray:
    """The bytes of numbers, or of records of them, each as a cell."""
    data = np.frombuffer(np.ascontiguousarray(numbers).tobytes(), np.uint8)
    width, count = numbers.dtype.itemsize, len(numbers)
    return Cells(data, np.arange(count, dtype=np.int64) * width, np.full(count, width, np.int64)).copied()


def _json(values: pa.Array, what: str) -> pa.BinaryArray:
    for text in values.to_pylist():
        if text is not None and not is_json(text):
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE, f"{what}: found {shown(text, 80)}, expected JSON as text; it is written as it is"
            )
    return values.cast(pa.binary())


def _windowed(inner: str, values: pa.Array, what: str, *, is_session: bool) -> pa.BinaryArray:
    names = ("session_end", "session_start") if is_session else ("window_start",)
    present = values.drop_null()
    keys = encoded(inner, present.field("key"), f"{what}.key")
    if keys.null_count:
        raise InvalidInputError(ErrorCode.WRONG_VALUE, f"{what}: found a null key of a window, expected a value")
    found = with_numbers(keys, [milliseconds(present.field(name), f"{what}.{name}") for name in names])
    return found if not values.null_count else found.take(_places(values))


def _places(values: pa.Array) -> pa.Array:
    """For each cell its position among those that are not null."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(valid) - 1, mask=~valid)


def with_numbers(keys: pa.BinaryArray, numbers: list[Ints]) -> pa.BinaryArray:
    """Keys with these numbers behind each, big-endian: int64, or int32 where they are of that type."""
    for each in numbers:
        keys = pc.binary_join_element_wise(keys, fixed_cells(each.astype(f">i{each.dtype.itemsize}")), b"")
    return keys


def milliseconds(times: pa.Array, what: str) -> Ints:
    """Times as epoch milliseconds. Raises InvalidInputError WRONG_VALUE for a null, or fractions of milliseconds."""
    if times.null_count:
        raise InvalidInputError(ErrorCode.WRONG_VALUE, f"{what}: found null, expected a time")
    found: Ints = times.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64)
    fractions = found % _US_PER_MS != 0
    if fractions.any():
        raise InvalidInputError(
            ErrorCode.WRONG_VALUE,
            f"{what}: found {times[int(fractions.argmax())]}, expected whole milliseconds, as Kafka's times are",
        )
    return found // _US_PER_MS
