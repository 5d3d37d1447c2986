"""Checkpoints of many small files, byte for byte as Spark writes them: 200 partitions, few rows a batch, no snapshot.

A query counts and sums by word. Each partition of a batch is a delta, or a changelog of RocksDB, of one LZ4 block and
an empty one, and has its checksums beside it.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from xxhash import xxh32_intdigest

from statestore.formats.spark.checkpoint.spark_schema import STRING, Field, StructOf
from statestore.formats.spark.rows.key_placement import hash_of, partition_of

BEGAN_MS = 1_700_000_000_000
_PROVIDER = "org.apache.spark.sql.execution.streaming.state."
_KEY = StructOf((Field("word", STRING, True),))
_END = b"\xff\xff\xff\xff"
_FRAME = struct.Struct("<8sBiii")
_SEED, _BITS = 0x9747B28C, 0x0FFFFFFF
_RAW, _PACKED = 0x15, 0x25
_CHUNK = 512
_LZ4 = pa.Codec("lz4_raw")


@dataclass
class SmallFiles:
    """A written checkpoint: ``batches`` has for each batch the words it wrote, with (count, total); None: removed."""

    folder: Path
    partitions: int
    batches: list[dict[str, tuple[int, float] | None]] = field(default_factory=list)

    def state(self, batch: int | None = None) -> dict[str, tuple[int, float]]:
        """The rows as of a batch, the newest by default."""
        rows: dict[str, tuple[int, float] | None] = {}
        for written in self.batches[: None if batch is None else batch + 1]:
            rows |= written
        return {word: row for word, row in rows.items() if row is not None}

    def partition(self, word: str) -> int:
        return partition_of_word(word, self.partitions)


def write_small_checkpoint(
    folder: Path,
    batches: int,
    partitions: int = 200,
    rows: int = 30,
    words: int = 4000,
    seed: int = 5,
    *,
    changelogs: bool = False,
    checksums: bool = True,
) -> SmallFiles:
    """Each batch writes about ``rows`` words and removes one in ten of those that it would write again."""
    chance, made = random.Random(seed), SmallFiles(folder, partitions)
    store = folder / "state" / "0"
    write = _write_checked if checksums else _write
    write(folder / "metadata", b'{"id":"00000000-0000-4000-8000-000000000000"}')
    info = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": [info]}
    write(store / "_metadata" / "metadata", _log(operator))
    schemas = _schema(("word", "string")), _schema(("count", "long"), ("total", "double"))
    schema = _utf("v2") + b"".join((1).to_bytes(4) + _utf(text) for text in schemas)
    write(store / "0" / "_metadata" / "schema", schema)
    settings = {
        "spark.sql.streaming.stateStore.providerClass": _PROVIDER
        + ("RocksDBStateStoreProvider" if changelogs else "HDFSBackedStateStoreProvider"),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    }
    now: dict[str, tuple[int, float]] = {}
    for batch in range(batches):
        written: dict[str, tuple[int, float] | None] = {}
        for _ in range(rows):
            word = f"key-{chance.randrange(words):06d}"
            count, total = now.get(word, (0, 0.0))
            written[word] = None if count and chance.random() < 0.1 else (count + 1, total + chance.randrange(100) / 4)
        parts: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        for word, row in written.items():
            parts[partition_of_word(word, partitions)].append(record(word, row, versioned=changelogs))
            now.pop(word, None)
            if row is not None:
                now[word] = row
        made.batches.append(written)
        said = {"batchWatermarkMs": 0, "batchTimestampMs": BEGAN_MS + 1000 * batch, "conf": settings}
        write(folder / "offsets" / str(batch), _log(said) + b'\n{"logOffset":%d}' % batch)
        kind = "changelog" if changelogs else "delta"
        for number, records in parts.items():
            write(store / str(number) / f"{batch + 1}.{kind}", lz4_stream(b"".join(records) + _END))
        write(folder / "commits" / str(batch), _log({"nextBatchWatermarkMs": 0}))
    return made


def partition_of_word(word: str, partitions: int) -> int:
    """The partition where Spark puts a word."""
    found = hash_of(_KEY, [word])
    assert found is not None
    return partition_of(found, partitions)


def record(word: str, row: tuple[int, float] | None, *, versioned: bool = False) -> bytes:
    """A record of a file of changes; RocksDB has a byte of version in front of each row."""
    front = b"\0" if versioned else b""
    text = word.encode()
    padded = text + bytes(-len(text) % 8)
    key = front + struct.pack("<qII", 0, len(text), 16) + padded
    head = len(key).to_bytes(4) + key
    if row is None:
        return head + _END
    value = front + struct.pack("<qqd", 0, *row)
    return head + len(value).to_bytes(4) + value


def lz4_stream(plain: bytes) -> bytes:
    """The bytes that Spark's codec ``lz4`` writes for less than a block: one frame, and the empty one at the end."""
    packed = bytes(_LZ4.compress(plain, asbytes=True))
    kind, block = (_RAW, plain) if len(packed) >= len(plain) else (_PACKED, packed)
    check = xxh32_intdigest(plain, _SEED) & _BITS
    head = _FRAME.pack(b"LZ4Block", kind, len(block), len(plain), check)
    return head + block + _FRAME.pack(b"LZ4Block", _RAW, 0, 0, 0)


def side_file(content: bytes) -> bytes:
    """The file with the checksums of a file's chunks."""
    sums = (zlib.crc32(content[at : at + _CHUNK]) for at in range(0, len(content), _CHUNK))
    return b"crc\0" + _CHUNK.to_bytes(4) + b"".join(each.to_bytes(4) for each in sums)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _write_checked(path: Path, content: bytes) -> None:
    _write(path, content)
    path.with_name(f".{path.name}.crc").write_bytes(side_file(content))


def _log(document: object) -> bytes:
    return b"v1\n" + json.dumps(document, separators=(",", ":")).encode()


def _schema(*fields: tuple[str, str]) -> str:
    listed = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return json.dumps({"type": "struct", "fields": listed})


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()
