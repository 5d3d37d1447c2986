"""Topics of Kafka whose records have a form that is measured, for ``benchmarks/engine_forms.py``.

A topic is a file of an export, or what a sink of Kafka Connect writes. Nine in ten records have a key of their own, the
others one of a hundred hot keys; where a form has nulls, 3 % of the records are deletes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DISTINCT = 4096
TOPIC = "shop-items-changelog"
START = 1_700_000_000_000
DELETED, HOT = 0.03, 0.1
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "score", "type": "double"},
]
SCHEMA = {"type": "record", "name": "Item", "fields": FIELDS}
NEWER = {**SCHEMA, "fields": [*FIELDS, {"name": "quantity", "type": "int", "default": 1}]}


def item(number: int) -> dict[str, Any]:
    note = None if number % 4 == 0 else f"note {number}"
    return {"id": number, "name": f"item {number}", "note": note, "score": number / 4}


# Values of serdes


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def zigzag(number: int) -> bytes:
    """A number that is not negative, as Avro writes it."""
    return varint(number << 1)


def avro_text(text: str) -> bytes:
    return zigzag(len(text)) + text.encode()


def avro(number: int) -> bytes:
    found = item(number)
    note = b"\0" if found["note"] is None else b"\2" + avro_text(found["note"])
    return zigzag(number) + avro_text(found["name"]) + note + struct.pack("<d", found["score"])


def avro_5(number: int) -> bytes:
    return b"\0\0\0\0\5" + avro(number)


def avro_5_or_6(number: int) -> bytes:
    return b"\0\0\0\0\6" + avro(number) + zigzag(number % 9) if number % 2 else avro_5(number)


def json_text(number: int) -> bytes:
    return json.dumps(item(number)).encode()


def json_schema(number: int) -> bytes:
    return b"\0\0\0\0\5" + json_text(number)


def protobuf(number: int) -> bytes:
    found = item(number)
    parts = b"\x08" + varint(number)
    for tag, text in ((b"\x12", found["name"]), (b"\x1a", found["note"])):
        parts += b"" if text is None else tag + varint(len(text)) + text.encode()
    return b"\0\0\0\0\5\0" + parts + b"\x21" + struct.pack("<d", found["score"])


def write_descriptor(file: Path) -> None:
    """Write the descriptor set of a message with the fields of the record, as ``protoc`` does."""
    from google.protobuf import descriptor_pb2

    kinds = {"id": "TYPE_INT64", "name": "TYPE_STRING", "note": "TYPE_STRING", "score": "TYPE_DOUBLE"}
    found = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto2")
    message = found.message_type.add(name="Item")
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label="LABEL_OPTIONAL")
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[found]).SerializeToString())


# Records


@dataclass(frozen=True)
class Records:
    """Records of a topic, of which ``value`` makes the values."""

    count: int
    value: Callable[[int], bytes]
    deletes: bool = True

    @cached_property
    def chosen(self) -> Any:
        return np.random.default_rng(3).permutation(self.count)

    @cached_property
    def keys(self) -> pa.Array:
        """Texts of 12 characters."""
        numbers = np.where(self.chosen < self.count * HOT, self.chosen % 100, self.chosen)
        return pc.binary_join_element_wise("key-", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0"), "")

    @cached_property
    def values(self) -> pa.Array:
        some = pa.array([self.value(number) for number in range(DISTINCT)], pa.binary())
        gone = self.chosen % 100 < DELETED * 100 if self.deletes else np.zeros(self.count, bool)
        return some.take(pa.array(np.arange(self.count) % DISTINCT, mask=gone))

    @cached_property
    def texts(self) -> pa.Array:
        return self.values.cast(pa.string())

    @cached_property
    def times(self) -> pa.Array:
        return pa.array(START + np.arange(self.count))

    @cached_property
    def offsets(self) -> pa.Array:
        return pa.array(np.arange(self.count))


def lines(*parts: str | pa.Array) -> pa.Array:
    """Lines of text that are put together of parts; a null part makes a null line."""
    wide = pa.large_string()
    found = [pa.scalar(part, wide) if isinstance(part, str) else part.cast(wide) for part in parts]
    return pc.binary_join_element_wise(*found, pa.scalar("", wide))


def write_lines(file: Path, *parts: str | pa.Array, first: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    found = lines(*parts, "\n")
    with file.open("wb") as out:
        out.write(first.encode())
        out.write(memoryview(found.buffers()[2]))
    return file


def quoted(texts: pa.Array) -> pa.Array:
    """JSON's text of texts whose only special characters are quotes; null for null."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.coalesce(pc.binary_join_element_wise('"', escaped, '"', ""), "null")


# Files of topics. Each returns the file, for a peer that reads it, too


def parquet(folder: Path, records: Records) -> Path:
    folder.mkdir(parents=True)
    columns = {
        "key": records.keys.cast(pa.binary()),
        "value": records.values,
        "timestamp": records.times,
        "offset": records.offsets,
    }
    pq.write_table(pa.table(columns), folder / f"{TOPIC}.parquet", compression="none", use_dictionary=False)
    return folder / f"{TOPIC}.parquet"


def json_lines(folder: Path, records: Records) -> Path:
    """The project's own lines of JSON, with keys and values in hexadecimal digits."""
    keys, values = (pa.array(map(_hex, part.to_pylist()), pa.string()) for part in (records.keys, records.values))
    return write_lines(
        folder / f"{TOPIC}.jsonl",
        *('{"key":', quoted(keys), ',"value":', quoted(values)),
        *(',"timestamp":', records.times, ',"offset":', records.offsets, "}"),
    )


def _hex(data: str | bytes | None) -> str | None:
    return None if data is None else (data.encode() if isinstance(data, str) else data).hex()


def kcat(folder: Path, records: Records) -> Path:
    return write_lines(
        folder / f"{TOPIC}.jsonl",
        *(f'{{"topic":"{TOPIC}","partition":0,"offset":', records.offsets, ',"tstype":"create","ts":', records.times),
        *(',"broker":1,"key":', quoted(records.keys), ',"payload":', quoted(records.texts), "}"),
    )


def console(folder: Path, records: Records) -> Path:
    return write_lines(
        folder / f"{TOPIC}.txt",
        *("CreateTime:", records.times, "\tPartition:0\tOffset:", records.offsets),
        *("\t", records.keys, "\t", pc.coalesce(records.texts, "null")),
    )


def csv(folder: Path, records: Records) -> Path:
    values = pc.replace_substring(records.texts, '"', '""')
    return write_lines(
        folder / f"{TOPIC}.csv",
        *(records.keys, ',"', values, '",', records.times),
        first="Key,Value,ts\n",
    )


CSV: Mapping[str, str] = {"record_columns": "key=Key,value=Value,timestamp=ts"}
CONNECT: Mapping[str, str] = {"record_columns": "key=name", "value_serde": "json"}
"""A sink stores no keys unless it is told to; the key is a field of the value."""


def _sunk(folder: Path, suffix: str) -> Path:
    found = folder / "topics" / TOPIC / "partition=0" / f"{TOPIC}+0+0000000000.{suffix}"
    found.parent.mkdir(parents=True)
    return found


def _sunk_columns(records: Records) -> dict[str, pa.Array]:
    numbers = np.arange(records.count)
    notes = pa.array(numbers % DISTINCT).cast(pa.string())
    return {
        "id": pa.array(numbers),
        "name": records.keys,
        "note": pc.if_else(pa.array(numbers % 4 == 0), None, pc.binary_join_element_wise("note ", notes, "")),
        "score": pa.array(numbers / 4),
    }


def connect_json(folder: Path, records: Records) -> Path:
    found = _sunk_columns(records)
    return write_lines(
        _sunk(folder, "json"),
        *('{"id":', found["id"], ',"name":', quoted(found["name"]), ',"note":', quoted(found["note"])),
        *(',"score":', found["score"], "}"),
    )


def connect_parquet(folder: Path, records: Records) -> Path:
    file = _sunk(folder, "parquet")
    pq.write_table(pa.table(_sunk_columns(records)), file)
    return file


def connect_avro(folder: Path, records: Records) -> Path:
    """A container without compression, in blocks of 1,000 records."""
    file, mark = _sunk(folder, "avro"), bytes(range(16))
    about = {b"avro.schema": json.dumps(SCHEMA).encode(), b"avro.codec": b"null"}
    entries = b"".join(zigzag(len(name)) + name + zigzag(len(text)) + text for name, text in about.items())
    notes = [avro(number)[len(zigzag(number)) + len(avro_text(item(number)["name"])) :] for number in range(DISTINCT)]
    names = records.keys.to_pylist()
    with file.open("wb") as out:
        out.write(b"Obj\x01" + zigzag(len(about)) + entries + b"\0" + mark)
        for first in range(0, records.count, 1000):
            numbers = range(first, min(first + 1000, records.count))
            block = b"".join(zigzag(n) + avro_text(names[n]) + notes[n % DISTINCT] for n in numbers)
            out.write(zigzag(len(numbers)) + zigzag(len(block)) + block + mark)
    return file
