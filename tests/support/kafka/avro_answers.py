"""Values of Avro columns in the form in which Avro's own library answers, to compare both.

A union is [branch, value], a float its bits, bytes are hex, a record is the list of its values, a map is sorted pairs.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa

from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.columns.store_kinds import StoreForm, stored_rows
from statestore.formats.kafka.schemas.given_schemas import SchemaSet, set_as_text
from support.paths import TESTS

WRITER, READER = 5, 6
RECORDED = TESTS / "data" / "kafka" / "avro-answers.json.xz"
"""Answers of Avro's own library, which tests/engines/kafka/test_avro_answers.py has recorded."""


def serde_of(pair: dict[str, Any]) -> str:
    """The serde of values with the ids WRITER and READER."""
    schemas = {WRITER: (json.dumps(pair["writer"]),), READER: (json.dumps(pair["reader"]),)}
    return f"avro:{set_as_text(SchemaSet(schemas, schemas[READER], READER))}"


def decoded(serde: str, cells: list[bytes | None]) -> pa.Array:
    """The values of rows with keys k0, k1, ..."""
    keys = pa.array([b"k%d" % number for number in range(len(cells))], pa.binary())
    batch = stored_rows(StoreForm("key-value", value_serde=serde), "default", keys, pa.array(cells, pa.binary()))
    batch.validate(full=True)
    return batch["value"]


def framed(data: bytes, number: int = WRITER) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def differences(pair: dict[str, Any], answers: list[list[Any]]) -> list[str]:
    """What differs between the columns of a pair's values and the answers of Avro's own library."""
    found: list[str] = []
    good: list[tuple[bytes, Any]] = []
    serde = serde_of(pair)
    for value, answer in zip(pair["values"], answers, strict=True):
        cell = framed(bytes.fromhex(value))
        try:
            (own,) = shown(pair["reader"], decoded(serde, [cell]))
        except StateStoreError as error:
            if len(answer) == 2:
                found.append(f"{value}: {error}, expected {answer[1]}")
            continue
        if len(answer) == 1:
            found.append(f"{value}: {own}, expected {answer[0]}")
        elif own != answer[1]:
            found.append(f"{value}: {own}, expected {answer[1]}")
        else:
            good.append((cell, own))
    cells = [cell for cell, _ in good for _ in range(2)]
    if not found and good:
        together = shown(pair["reader"], decoded(serde, [None, *cells, None])[1:-1])
        if together != [own for _, own in good for _ in range(2)]:
            found.append(f"together {together}")
    return found


def shown(schema: Any, column: pa.Array) -> list[Any]:
    """The values of a column of a schema."""
    return [_shown(schema, value) for value in column.to_pylist()]


def _shown(schema: Any, value: Any) -> Any:
    if isinstance(schema, list):
        return _branch(schema, value)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("null", "boolean", "int", "long", "string", "enum"):
        return value
    if kind == "float":
        return struct.unpack("<i", struct.pack("<f", value))[0]
    if kind == "double":
        return struct.unpack("<q", struct.pack("<d", value))[0]
    if kind in ("bytes", "fixed"):
        return value.hex()
    if kind == "array":
        return [_shown(schema["items"], each) for each in value]
    if kind == "map":
        return sorted([name, _shown(schema["values"], each)] for name, each in value)
    return [_shown(field["type"], value[field["name"]]) for field in schema["fields"]]


def _branch(union: list[Any], value: Any) -> Any:
    if value is None:
        return [union.index("null"), None]
    others = [branch for branch in union if branch != "null"]
    if len(others) == 1:
        return [union.index(others[0]), _shown(others[0], value)]
    (at,) = [number for number, each in enumerate(value.values()) if each is not None]
    return [union.index(others[at]), _shown(others[at], [*value.values()][at])]
