"""Write connect.tar.xz with fastavro, which is not a dependency of the tests: ``python write_files.py ARCHIVE``."""

import io
import sys
import tarfile
from typing import Any

import fastavro  # type: ignore[import-not-found]

SYNC = b"0123456789abcdef"
FIRST = 1_714_550_400_000
SCHEMA = {
    "type": "record",
    "name": "Price",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}


def row(n: int) -> dict[str, Any]:
    """Record ``n``; the tests have the same function."""
    return {
        "id": n % 4,
        "name": None if n % 5 == 0 else f"n\u00e9{n}",
        "price": n / 4,
        "tags": [f"t{i}" for i in range(n % 3)],
        "more": {"x": n, "y": None} if n % 2 else {},
        "kind": "ab"[n % 2],
        "at": FIRST + n,
        "raw": bytes([n % 256, 255]),
    }


def container(schema: Any, rows: list[Any], codec: str = "null") -> bytes:
    """A container in blocks of about 300 bytes."""
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, rows, codec=codec, sync_interval=300, sync_marker=SYNC)
    return buffer.getvalue()


def files() -> dict[str, bytes]:
    """The files by their names."""
    found = {}
    for codec in ("null", "deflate", "snappy", "zstandard"):
        found[f"rows-{codec}.avro"] = container(SCHEMA, [row(n) for n in range(40)], codec)
    for first, stop in ((0, 6), (6, 10)):
        stem = f"topics/shop-prices/partition=0/shop-prices+0+{first:010d}"
        found[f"{stem}.avro"] = container(SCHEMA, [row(n) for n in range(first, stop)])
        found[f"{stem}.keys.avro"] = container("string", [f"k{n % 4}" for n in range(first, stop)])
    return found


with tarfile.open(sys.argv[1], "w:xz") as archive:
    for name, data in files().items():
        info = tarfile.TarInfo(f"connect/{name}")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
