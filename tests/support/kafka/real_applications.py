"""Three applications that ran on the real Kafka Streams: their stored rows, their changelogs, their stores' answers.

No file names the serdes of the stores that an operator makes for itself; they are here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.columns.store_kinds import KINDS, StoreForm, logged_rows, stored_rows
from support.archives import unpacked
from support.paths import DATA

APPLICATIONS = ("orders", "bookings", "ledger")
BOOKKEEPING = "offsets"  # the family that holds no rows
ALIASES = {"in-memory-key-value": "key-value", "global-timestamped-key-value": "timestamped-key-value"}
OPERATORS_SERDES = {
    "closed-windows-suppressed-store": ("time-windowed<string>", "string"),
    "deliveries-outer-shared-join-store": ("string", "string/long"),
    "held-back-suppressed-store": ("string", "long"),
    "order-customers-subscription-store": ("string/integer", "bytes"),
    "priced-orders-Buffer": ("string", "string"),
    "days-closed-suppressed-store": ("time-windowed<string>", "long"),
    "priced-stays-Buffer": ("string", "double"),
    "room-owners-subscription-store": ("long/string", "bytes"),
    "upsell-left-shared-join-store": ("long", "string"),
}

Row = dict[str, Any]
Raw = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Application:
    """The contents of one archive. Rows are read when they are asked for: tests are named by the truth alone."""

    folder: Path

    @cached_property
    def truth(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "truth.json").read_text("utf-8"))
        return found

    @cached_property
    def raw(self) -> dict[tuple[str, str, str], Raw]:
        """The rows of each (task or "global", store, family)."""
        raw: dict[tuple[str, str, str], Raw] = defaultdict(list)
        for row in lines((self.folder / "raw.jsonl").read_text("utf-8")):
            if row["family"] != BOOKKEEPING:
                task, folder, below = (*row["directory"].split("/"), "")[:3]
                place = task, below if folder == "rocksdb" else folder, row["family"]
                raw[place].append((bytes.fromhex(row["key"]), bytes.fromhex(row["value"])))
        return dict(raw)

    @cached_property
    def changelogs(self) -> dict[str, list[Row]]:
        files = (self.folder / "changelog").glob("*.jsonl")
        return {path.name.removesuffix(".jsonl"): lines(path.read_text("utf-8")) for path in files}

    def stores(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.truth["stores"]
        return found

    def stored(self, store: dict[str, Any], task: str) -> list[Row]:
        """The rows of all families, decoded."""
        form = form_of(store)
        batches = [
            stored_rows(form, family, *raw_columns(self.raw.get((task, store["name"], family), [])))
            for family in KINDS[form.kind].families
        ]
        return [row for batch in batches for row in plain_rows(batch)]

    def logged(self, store: dict[str, Any]) -> list[Row]:
        """The records of the store's changelog, decoded."""
        records = self.changelogs[store["changelog"]]
        return plain_rows(logged_rows(form_of(store), *record_columns(records)))


@cache
def application(name: str) -> Application:
    """Read an archive."""
    return Application(unpacked(DATA / "kafka" / f"{name}.tar.xz") / name)


def lines(text: str) -> list[Row]:
    return [json.loads(line) for line in text.splitlines()]


def form_of(store: dict[str, Any]) -> StoreForm:
    key, value = OPERATORS_SERDES.get(store["name"], (store["key_serde"], store["value_serde"]))
    return StoreForm(ALIASES.get(store["kind"], store["kind"]), key, value, store.get("window_size_ms"))


def raw_columns(rows: Raw) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    return pa.array([key for key, _ in rows], pa.binary()), pa.array([value for _, value in rows], pa.binary())


def record_columns(records: list[Row]) -> tuple[pa.BinaryArray, pa.BinaryArray, pa.Int64Array, pa.ListArray]:
    """Keys, values, timestamps and headers of changelog records."""
    headers = [[{"name": name, "value": data(value)} for name, value in record["headers"]] for record in records]
    return (
        pa.array([data(record["key"]) for record in records], pa.binary()),
        pa.array([data(record["value"]) for record in records], pa.binary()),
        pa.array([record["timestamp"] for record in records], pa.int64()),
        pa.array(headers, HEADERS),
    )


SPARK_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def topic_table(name: str, topic: str) -> pa.Table:
    """A recorded changelog as ``format("kafka")`` with ``includeHeaders`` gives a topic."""
    records = application(name).changelogs[topic]
    headers = [[{"key": k, "value": data(v)} for k, v in each["headers"]] or None for each in records]
    times = pa.array([each["timestamp"] * 1000 for each in records], pa.int64())
    return pa.table(
        {
            "key": pa.array([data(each["key"]) for each in records], pa.binary()),
            "value": pa.array([data(each["value"]) for each in records], pa.binary()),
            "topic": pa.array([topic] * len(records)),
            "partition": pa.array([each["partition"] for each in records], pa.int32()),
            "offset": pa.array([each["offset"] for each in records], pa.int64()),
            "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * len(records), pa.int32()),
            "headers": pa.array(headers, SPARK_HEADERS),
        }
    )


def data(found: str | None) -> bytes | None:
    return None if found is None else bytes.fromhex(found)


def plain_rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch, as `truth` has them: times in milliseconds, bytes as hex, headers as pairs."""
    batch.validate(full=True)
    milliseconds = [
        column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        for column in batch.columns
    ]
    rows = zip(*milliseconds, strict=True)
    times = [pa.types.is_timestamp(field.type) for field in batch.schema]
    return [
        {
            name: None if cell is None else cell // 1000 if is_time else plain(cell)
            for name, is_time, cell in zip(batch.schema.names, times, row, strict=True)
        }
        for row in rows
    ]


def plain(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.hex()
    if isinstance(cell, list):
        return [[header["name"], plain(header["value"])] for header in cell]
    return cell
