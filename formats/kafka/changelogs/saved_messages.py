"""Messages that Redpanda Console has saved as JSON: an array of objects, whose keys and values are objects, too.

    {"partitionID": 0, "offset": 7, "timestamp": 1714550400000, "headers": [...],
     "key": {"payload": "k0", "rawPayload": "azA=", "encoding": "text", "isPayloadNull": false, "size": 2},
     "value": ...}

``rawPayload`` has the topic's bytes in base64; it is there where raw data was included. Without it a payload is known
to be the topic's bytes where it is text of the size that the bytes had. Any other one was decoded, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.connect_values import lines

if TYPE_CHECKING:
    import duckdb

_NUMBERS = {"partition": "partitionID", "offset": "offset", "timestamp": "timestamp"}
_BYTES = """CASE
    WHEN json_extract_string(c, '$.{0}.isPayloadNull') = 'true' THEN NULL
    WHEN json_type(c, '$.{0}.rawPayload') = 'VARCHAR' THEN try(from_base64(json_extract_string(c, '$.{0}.rawPayload')))
    ELSE encode(json_extract_string(c, '$.{0}.payload'))
END"""
_IS_KNOWN = """coalesce(
    json_extract_string(c, '$.{0}.isPayloadNull') = 'true'
    OR (json_type(c, '$.{0}.rawPayload') = 'VARCHAR'
        AND try(from_base64(json_extract_string(c, '$.{0}.rawPayload'))) IS NOT NULL)
    OR (json_extract_string(c, '$.{0}.encoding') = 'text' AND json_type(c, '$.{0}.payload') = 'VARCHAR'
        AND json_type(c, '$.{0}.rawPayload') IS NULL
        AND octet_length(encode(json_extract_string(c, '$.{0}.payload')))
            = try_cast(json_extract_string(c, '$.{0}.size') AS BIGINT)), false)"""


def message_batches(stream: Any, path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of the messages. Raises InvalidInputError KAFKA_RECORDS where their bytes are not in the file."""
    import duckdb

    before = 0
    with duckdb.connect(config={"threads": 1}) as connection:
        for texts in lines(stream, path):
            valid = _run(connection, texts, ["json_valid(c)"])[0]
            _refuse(texts, valid, path, before, "expected JSON in each element")
            numbers = [f"try_cast(json_extract_string(c, '$.{name}') AS BIGINT)" for name in _NUMBERS.values()]
            known = [_IS_KNOWN.format(name) for name in ("key", "value")]
            cells = [_BYTES.format(name) for name in ("key", "value")]
            found = _run(connection, texts, [*numbers, *known, *cells])
            for name, column in zip(_NUMBERS.values(), found, strict=False):
                _refuse(texts, column.is_valid(), path, before, f"expected a number as {name}")
            for name, is_known in zip(("key", "value"), found[3:5], strict=True):
                what = f"expected rawPayload of the {name}, because its payload was decoded and is not the topic's "
                _refuse(texts, is_known, path, before, f"{what}bytes; save the messages again with raw data included")
            before += len(texts)
            yield pa.RecordBatch.from_arrays([*found[:3], *found[5:]], [*_NUMBERS, "key", "value"])


def _run(connection: duckdb.DuckDBPyConnection, texts: pa.Array, expressions: list[str]) -> list[pa.Array]:
    connection.register("lot", pa.table({"c": texts}))
    columns = ", ".join(f"{each} AS c{n}" for n, each in enumerate(expressions))
    found: Any = connection.sql(f"SELECT {columns} FROM lot").to_arrow_table()
    return [each.combine_chunks() for each in found.columns]


def _refuse(texts: pa.Array, good: pa.Array, path: str, before: int, expected: str) -> None:
    if not pc.all(good).as_py():
        row = pc.index(good, False).as_py()
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}, element {before + row + 1}: found {shown(texts[row].as_py(), 160)}, {expected}",
        )
