"""A writer of a broker's segment files in plain Python, record by record, and the archives of real ones."""

from __future__ import annotations

import json
import struct
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.paths import DATA

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
START = 1_700_000_000_000
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Logged:
    """A record of a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def row(self, partition: int = 0) -> dict[str, Any]:
        """The record as a row of a batch of records."""
        headers = [{"name": name, "value": value} for name, value in self.headers]
        return {
            "partition": partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "key": self.key,
            "value": self.value,
            "headers": headers,
        }


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _crc_table()[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


def varint(number: int) -> bytes:
    number = (number << 1 ^ number >> 63) & (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_bytes(record: Logged, base: int, base_time: int) -> bytes:
    headers = b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
    body = b"\0" + varint(record.timestamp - base_time) + varint(record.offset - base)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers)) + headers
    return varint(len(body)) + body


def xerial(data: bytes, block: int = 40) -> bytes:
    """Snappy as Java's producer frames it."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block):
        packed = pa.Codec("snappy").compress(data[at : at + block], asbytes=True)
        out += struct.pack(">i", len(packed)) + packed
    return out


def compressed(codec: str, data: bytes) -> bytes:
    if codec == "none":
        return data
    if codec == "gzip":
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        return xerial(data)
    packed: bytes = pa.Codec(codec).compress(data, asbytes=True)
    return packed


def batch_bytes(
    records: Sequence[Logged],
    *,
    base: int | None = None,
    last: int | None = None,
    codec: str = "none",
    attributes: int = 0,
    producer: int = -1,
    max_time: int | None = None,
    records_bytes: bytes | None = None,
) -> bytes:
    """A record batch of format 2. ``base`` and ``last``: offsets that compaction left in place."""
    base = records[0].offset if base is None else base
    last = records[-1].offset if last is None else last
    base_time = records[0].timestamp if records else START
    body = b"".join(record_bytes(record, base, base_time) for record in records)
    body = compressed(codec, body) if records_bytes is None else records_bytes
    most = max((record.timestamp for record in records), default=-1) if max_time is None else max_time
    rest = struct.pack(
        ">hiqqqhii", attributes | CODECS[codec], last - base, base_time, most, producer, 0, -1, len(records)
    )
    rest += body
    return struct.pack(">qiibI", base, len(rest) + 9, 0, 2, crc32c(rest)) + rest


def marker_bytes(offset: int, producer: int, commit: bool) -> bytes:
    """A transaction marker."""
    record = Logged(offset, START, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0))
    return batch_bytes([record], attributes=TRANSACTIONAL | CONTROL, producer=producer)


@dataclass
class LogWriter:
    """Appends batches to a log, and knows by a plain model what a consumer is given."""

    next: int = 0
    batches: list[bytes] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    all: list[tuple[Logged, int | None]] = field(default_factory=list)  # with the number of its transaction
    outcome: dict[int, bool] = field(default_factory=dict)  # by the number of the transaction: committed
    _open: dict[int, int] = field(default_factory=dict)

    def append(
        self,
        rows: Sequence[tuple[int, bytes | None, bytes | None, Headers]],
        *,
        codec: str = "none",
        producer: int = -1,
        transactional: bool = False,
        appended_at: int | None = None,
    ) -> None:
        records = [
            Logged(self.next + number, time, key, value, headers)
            for number, (time, key, value, headers) in enumerate(rows)
        ]
        attributes = TRANSACTIONAL * transactional | LOG_APPEND_TIME * (appended_at is not None)
        self._batch(
            batch_bytes(records, codec=codec, attributes=attributes, producer=producer, max_time=appended_at),
            len(records),
        )
        transaction = self._open.setdefault(producer, len(self._open) + len(self.outcome)) if transactional else None
        for record in records:
            time = record.timestamp if appended_at is None else appended_at
            self.all.append((Logged(record.offset, time, record.key, record.value, record.headers), transaction))

    def end(self, producer: int, commit: bool) -> None:
        """Write the marker that ends the producer's transaction."""
        self._batch(marker_bytes(self.next, producer, commit), 1)
        transaction = self._open.pop(producer, None)
        if transaction is not None:
            self.outcome[transaction] = commit

    def _batch(self, data: bytes, count: int) -> None:
        self.batches.append(data)
        self.bases.append(self.next)
        self.next += count

    def committed(self) -> list[Logged]:
        """What a consumer under read_committed is given: nothing from the first open transaction on."""
        stable = min((r.offset for r, t in self.all if t is not None and t not in self.outcome), default=self.next)
        return [r for r, t in self.all if r.offset < stable and (t is None or self.outcome[t])]

    def write(self, folder: Path, cuts: Sequence[int] = ()) -> Path:
        """Write the segment files; a new one begins before each batch of ``cuts``."""
        folder.mkdir(parents=True, exist_ok=True)
        starts = sorted({0, *(cut for cut in cuts if 0 < cut < len(self.batches))})
        for start, stop in zip(starts, [*starts[1:], len(self.batches)], strict=True):
            base = self.bases[start] if self.bases else 0
            (folder / f"{base:020d}.log").write_bytes(b"".join(self.batches[start:stop]))
        return folder


def unpacked(name: str, to: Path) -> Path:
    """Unpack an archive of test data and return its folder."""
    with tarfile.open(DATA / "kafka" / f"{name}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    return to / name


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a batch of records as the archives have it: bytes as hex."""
    headers = [[header["name"], _hex(header["value"])] for header in row["headers"]]
    return {**row, "key": _hex(row["key"]), "value": _hex(row["value"]), "headers": headers}


def _hex(data: bytes | None) -> str | None:
    if data is not None and len(data) >= 100_000 and not any(data):
        return f"zeros:{len(data)}"
    return None if data is None else data.hex()
