"""Values as stores keep them, as columns: the bare value, and the timestamp and headers before it.

    bare             value
    timestamped      timestamp:int64 | value                                       KIP-258
    headers          length:varint | headers | timestamp:int64 | value             KIP-1271
    session-headers  length:varint | headers | aggregation

Timestamp -1 is unknown, and null in the column. A row that an older release wrote lies in an older column family in an
older form: then the timestamp is null, and the headers are empty, as when Kafka upgrades the row.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.kafka.columns.header_columns import empty_headers, header_column, read_sized_headers
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.time_columns import TIME, timestamps

ValueForm = Literal["bare", "timestamped", "headers", "session-headers"]

_TIME_BYTES = 8
_REMEDY = "choose another kind of store"


def split_values(
    form: ValueForm, keys: pa.BinaryArray, values: pa.BinaryArray, *, timestamp: bool, headers: bool
) -> tuple[Cells, dict[str, pa.Array]]:
    """(bare values, columns ``timestamp`` and ``headers`` as wanted) of values in this form.

    Raises CorruptError KAFKA_BYTES about the first value that has not the form.
    """
    cells, origin = cells_of(values), Origin("value", keys)
    found: dict[str, pa.Array] = {}
    if form in ("headers", "session-headers"):
        cursor = Cursor(cells)
        encoded = read_sized_headers(cursor)
        milliseconds = cursor.int64() if form == "headers" else None
        rest = cursor.rest()
        origin.refuse(cells, cursor.bad, "headers with their size in front of the value (KIP-1271)", _REMEDY)
        if timestamp:
            found["timestamp"] = (
                pa.nulls(len(cells), TIME)
                if milliseconds is None
                else timestamps(milliseconds, origin.named("timestamp"))
            )
        if headers:
            found["headers"] = header_column(encoded, origin)
        return rest, found
    if form == "timestamped":
        origin.refuse(cells, cells.size < _TIME_BYTES, "a timestamp of 8 bytes in front of the value", _REMEDY)
        if timestamp:
            found["timestamp"] = timestamps(cells.numbers(0, ">i8"), origin.named("timestamp"))
        cells = cells.cut(_TIME_BYTES)
    elif timestamp:
        found["timestamp"] = pa.nulls(len(cells), TIME)
    if headers:
        found["headers"] = empty_headers(len(cells))
    return cells, found
