"""Messages that Redpanda Console has saved as JSON: an array of objects, whose keys and values are objects, too.

    {"partitionID": 0, "offset": 7, "timestamp": 1714550400000, "headers": [...],
     "key": {"payload": "k0", "rawPayload": "azA=", "encoding": "text", "isPayloadNull": false, "size": 2},
     "value": ...}

``rawPayload`` has the topic's bytes in base64; it is there where raw data was included. Without it a payload is known
to be the topic's bytes where it is text of the size that the bytes had. Any other one was decoded, and is refused.
"""

from __future__ import annotations

import json
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
_PAYLOAD = dict.fromkeys(("payload", "rawPayload", "encoding", "isPayloadNull"), "VARCHAR") | {"size": "BIGINT"}
_MESSAGE = json.dumps(dict.fromkeys(_NUMBERS.values(), "BIGINT") | {"key": _PAYLOAD, "value": _PAYLOAD})
"""The fields of a message that are read, and their types; what is not of its type is null."""
_IS_NULL = "coalesce(r.{0}.isPayloadNull = 'true', false)"
_BYTES = """CASE
    WHEN {1} THEN NULL
    WHEN r.{0}.rawPayload IS NOT NULL THEN try(from_base64(r.{0}.rawPayload))
    WHEN r.{0}.encoding = 'text' THEN encode(r.{0}.payload)
END"""


def message_batches(stream: Any, path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of the messages. Raises InvalidInputError KAFKA_RECORDS where their bytes are not in the file."""
    import duckdb

    before = 0
    with duckdb.connect(config={"threads": 1}) as connection:
        for texts in lines(stream, path):
            valid = _run(connection, texts, ["json_valid(c)"])[0]
            _refuse(texts, valid, path, before, "expected JSON in each element")
            cells = [_cells(name) for name in ("key", "value")]
            asked = [*(f"r.{name}" for name in _NUMBERS.values()), *(each for both in cells for each in both)]
            *numbers, key, key_known, value, value_known = _run(connection, texts, asked, _MESSAGE)
            for name, column in zip(_NUMBERS.values(), numbers, strict=True):
                _refuse(texts, column.is_valid(), path, before, f"expected a number as {name}")
            for name, is_known in (("key", key_known), ("value", value_known)):
                what = f"expected the {name} with rawPayload of as many bytes as its size, because a payload that was "
                what += "decoded, or is too large to be shown, is not the topic's bytes"
                _refuse(texts, is_known, path, before, f"{what}; save the messages again with raw data included")
            before += len(texts)
            yield pa.RecordBatch.from_arrays([*numbers, key, value], [*_NUMBERS, "key", "value"])


def _cells(name: str) -> tuple[str, str]:
    """The bytes of a key or value, and whether they are as many as the topic's: a large payload is left out."""
    is_null = _IS_NULL.format(name)
    found = _BYTES.format(name, is_null)
    return found, f"{is_null} OR coalesce(octet_length({found}) = r.{name}.size, false)"


def _run(connection: duckdb.DuckDBPyConnection, texts: pa.Array, asked: list[str], message: str = "") -> list[pa.Array]:
    """The values of expressions over JSON texts ``c``, or over their records ``r`` of the fields of ``message``."""
    connection.register("lot", pa.table({"c": texts}))
    lot = f"(SELECT from_json(c, '{message}') AS r FROM lot)" if message else "lot"
    columns = ", ".join(f"{each} AS c{n}" for n, each in enumerate(asked))
    found: Any = connection.sql(f"SELECT {columns} FROM {lot}").to_arrow_table()
    return [each.combine_chunks() for each in found.columns]


def _refuse(texts: pa.Array, good: pa.Array, path: str, before: int, expected: str) -> None:
    if not pc.all(good).as_py():
        row = pc.index(good, False).as_py()
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}, element {before + row + 1}: found {shown(texts[row].as_py(), 160)}, {expected}",
        )
