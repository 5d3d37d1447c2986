"""Values that connectors' own serializers wrote: their bytes, and the rows that a reader has to show for them.

``tests/engines/flink/connectors`` writes the lines; ``tests/data/flink/connector_bytes.json.xz`` has those of two
releases of the connector of Kafka.
"""

from __future__ import annotations

import base64
import datetime
import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from support.paths import DATA

_STARTS = {-1: "latest", -2: "earliest", -3: "committed"}
_STOPS = {-(1 << 63): "none", -1: "latest", -3: "committed"}
_LEGACY = {
    -915623761776: "not_set",
    -915623761775: "earliest",
    -915623761774: "latest",
    -915623761773: "committed",
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_POSITIONS = {"position", "stop_position", "high_watermark"}
_OWNERSHIPS = ("implicit_by_subtask_id", "explicit_by_writer_state")


@dataclass(frozen=True)
class WrittenElement:
    """An element of a state in a form, and its rows: cells by column. Columns that are not named may hold anything."""

    form: str
    element: bytes
    rows: tuple[dict[str, Any], ...]


@cache
def recorded() -> tuple[WrittenElement, ...]:
    """The elements of the file."""
    with lzma.open(DATA / "flink" / "connector_bytes.json.xz") as file:
        return tuple(written(json.load(file)))


def written(lines: Iterable[dict[str, Any]]) -> Iterator[WrittenElement]:
    """The elements of lines that the program wrote."""
    for line in lines:
        element = base64.b64decode(line["bytes"])
        yield WrittenElement(line["form"], element, tuple(_row(line["form"], element, row) for row in line["rows"]))


def same_order(form: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows, and the entries of maps in them, in an order that does not depend on Java's hash maps."""
    if form == "kafka_enumerator":
        return sorted(rows, key=lambda row: row["partition"])
    return [row | {name: sorted(row[name]) for name in _POSITIONS & row.keys() if row[name]} for row in rows]


def _row(form: str, element: bytes, line: dict[str, Any]) -> dict[str, Any]:
    row = dict(line)
    if "starting" in row:
        start, stop = row.pop("starting"), row.pop("stopping")
        row |= {"offset": start if start >= 0 else None, "offset_from": _STARTS.get(start, "offset")}
        row |= {"stop_offset": stop if stop >= 0 else None, "stop_at": _STOPS.get(stop, "offset")}
    if form == "kafka_consumer":
        offset = row.pop("offset")
        row |= {"processed_offset": None if offset in _LEGACY else offset}
        row |= {"offset_from": _LEGACY.get(offset, "offset")}
    if form == "kafka_writer" and element[:4] == bytes((0, 0, 0, 1)):
        row = {name: cell if name == "transactional_id_prefix" else None for name, cell in row.items()}
    elif form == "kafka_writer":
        row["ownership"] = _OWNERSHIPS[row["ownership"]]
    for name in [name for name in row if name == "modified" or name.endswith("_ms")]:
        millis = row.pop(name)
        row[name.removesuffix("_ms")] = None if millis is None else _EPOCH + datetime.timedelta(milliseconds=millis)
    for name in _POSITIONS & row.keys():
        row[name] = None if row[name] is None else [tuple(pair) for pair in row[name]]
    for name in [name for name in row if name.endswith("_hex")]:
        digits = row.pop(name)
        row[name.removesuffix("_hex")] = None if digits is None else bytes.fromhex(digits)
    return row
