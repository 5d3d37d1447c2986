"""Values of Kryo that the programs of ``tests/engines/flink/kryo`` wrote, and whether what is read is their truth.

A map is {"map": [[key, value], ...]}, a number that is no integer {"float"} or {"double": text}, a big number
{"big": text}, bytes {"bytes": hex}; a time has the text or the numbers of its kind.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from typing import Any

import numpy as np

from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf, replaced
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput
from support.flink.value_model import ORIGIN, cells, walking
from support.paths import DATA

RELEASES = ("1.20.0", "2.1.0")


@cache
def written(release: str) -> list[dict[str, Any]]:
    """The lines that ``WriteKryo`` wrote with a release of Flink."""
    found: dict[str, list[dict[str, Any]]] = json.loads(lzma.decompress((DATA / "flink" / "kryo.json.xz").read_bytes()))
    return found[release]


@cache
def kinds(release: str) -> dict[str, FlinkType]:
    """The types by the classes of the serializers."""

    def change(kind: FlinkType) -> FlinkType:
        assert isinstance(kind, KryoOf)
        return KryoOf(kind.serializer, kind.class_name, None, kind.registrations, release < "2")

    lines = [line for line in written(release) if "snapshot" in line]
    return {
        line["class"]: replaced(read_snapshot(DataInput(bytes.fromhex(line["snapshot"]), "a snapshot")), change)
        for line in lines
    }


def values(release: str, class_name: str = "java.lang.Object") -> list[tuple[bytes, Any]]:
    lines = [line for line in written(release) if line["class"] == class_name and "bytes" in line]
    return [(bytes.fromhex(line["bytes"]), line["value"]) for line in lines]


def of_json(truth: Any) -> Any:
    """The parsed JSON of a value: numbers are their texts; a time has only to be a text."""
    if truth is None or isinstance(truth, bool | str):
        return truth
    if isinstance(truth, int):
        return str(truth)
    if isinstance(truth, list):
        return [of_json(each) for each in truth]
    ((tag, value),) = truth.items()
    if tag != "map":
        return (tag, value)
    if all(isinstance(key, str) for key, _ in value):
        return {key: of_json(each) for key, each in value}
    return [{"key": of_json(key), "value": of_json(each)} for key, each in value]


def is_json(found: Any, expected: Any) -> bool:
    """Whether parsed JSON, with numbers as texts, is what `of_json` says."""
    if isinstance(expected, tuple):
        tag, text = expected
        if tag in ("float", "double"):
            width = np.float32 if tag == "float" else np.float64
            return bool(width(found) == width(text)) or text == "NaN"
        return found == text if tag in ("big", "bytes") else isinstance(found, str)
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(is_json, found, expected))
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(is_json(found[key], expected[key]) for key in found)
    return bool(found == expected)


def decoded(kind: FlinkType, octets: list[bytes]) -> list[Any]:
    """The values of a type in these bytes, one each."""
    (column,) = decode_cells([kind], cells(*octets), [True], ORIGIN)
    assert column is not None
    column.validate(full=True)
    found: list[Any] = column.to_pylist()
    return found


def outcome(kind: FlinkType, octets: list[bytes], compiled: bool) -> list[Any] | str:
    """The values, or the message of the error."""
    with walking(compiled):
        try:
            return decoded(kind, octets)
        except StateStoreError as error:
            return str(error)
