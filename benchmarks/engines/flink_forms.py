"""Snapshots of Flink in which one state has a form that is measured, for ``benchmarks/engine_forms.py``.

Serializer snapshots are those that Flink's own classes wrote, or are put together from their parts as the tests do
(``tests/support/flink``); Kryo's are of ``tests/data/flink/kryo.json.xz``. Values are written here. A form has some
thousand entries, with nulls, which are repeated: keys are hot.
"""

from __future__ import annotations

import json
import lzma
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from support.flink import metadata_bytes as meta
from support.flink import snapshot_bytes as types

from benchmarks.engines.flink_snapshots import FIRST_KEY, GROUPS, group_of
from benchmarks.engines.kafka_forms import varint

KRYO = Path(__file__).resolve().parents[2] / "tests" / "data" / "flink" / "kryo.json.xz"
DISTINCT = 4096
VERSION = 4
"""The version of ``_metadata`` of Flink 1.20. Of 2.x, Kryo would be another one."""
SCALA = "org.apache.flink.api.scala.typeutils."
DOUBLE = types.simple("Double")
BYTES = types.snapshot(f"{types.BASE}array.BytePrimitiveArraySerializer$BytePrimitiveArraySerializerSnapshot")
DECIMAL = types.simple("BigDec")
OPERATOR = meta.Operator.id
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
Values = Callable[[int], bytes]


@dataclass(frozen=True)
class Form:
    """A state: its serializer and the value of the entry of each number. ``options`` are those of its reader."""

    serializer: bytes
    value: Values
    kind: str = "VALUE"
    name: str = "measured"
    options: Mapping[str, str] = field(default_factory=dict)


# Values


def text(found: str) -> bytes:
    """A text of fewer than 127 characters of ASCII, as ``StringValue`` writes it."""
    return bytes((len(found) + 1,)) + found.encode()


def note(number: int) -> str | None:
    return None if number % 4 == 0 else f"note {number}"


def tags(number: int) -> list[str]:
    return [f"tag {number} {each}" for each in range(number % 6)]


def pojo(number: int) -> bytes:
    noted = note(number)
    last = b"\1" if noted is None else b"\0" + text(noted)
    return struct.pack(">BBqB", 2, 0, number, 0) + text(f"item {number}") + last + struct.pack(">Bd", 0, number / 4)


def case_class(number: int) -> bytes:
    noted = note(number)
    last = b"\0" if noted is None else b"\1" + text(noted)
    return struct.pack(">q", number) + text(f"item {number}") + last + struct.pack(">d", number / 4)


def row(number: int) -> bytes:
    noted = note(number)
    return bytes((0x20 if noted is None else 0,)) + (b"" if noted is None else text(noted)) + struct.pack(">q", number)


def sql_row(number: int) -> bytes:
    """A binary row of SQL: an inner row of a number and a text."""
    name = f"item {number}".encode()
    is_short = len(name) < 8
    place = name.ljust(7, b"\0") + bytes((0x80 | len(name),)) if is_short else struct.pack("<q", 24 << 32 | len(name))
    inner = bytes(8) + struct.pack("<q", number) + place + (b"" if is_short else name + bytes(-len(name) % 8))
    outer = bytes(8) + struct.pack("<q", 16 << 32 | len(inner)) + inner
    return struct.pack(">i", len(outer)) + outer


def python_row(number: int) -> bytes:
    """A row of PyFlink's coders, as the one element of a list of byte arrays."""
    noted = (note(number) or "").encode()
    mask = bytes((0x20 if not noted else 0,))
    found = mask + (struct.pack(">i", len(noted)) + noted if noted else b"") + struct.pack(">q", number)
    return struct.pack(">i", len(found)) + found


def listed(number: int) -> bytes:
    return struct.pack(">i", len(tags(number))) + b"".join(map(text, tags(number)))


def mapped(number: int) -> bytes:
    entries = [text(each) + struct.pack(">Bi", 0, number) for each in tags(number)]
    return struct.pack(">i", len(entries)) + b"".join(entries)


def decimal(number: int) -> bytes:
    unscaled = (number * 7919).to_bytes(4, "big")
    return struct.pack(">i", len(unscaled) + 4) + unscaled + struct.pack(">i", 2)


def uuid_text(number: int) -> bytes:
    return text(f"{number:08x}-0000-4000-8000-{number * 7919:012x}")


# Values that Kryo writes


def ascii_of(found: str) -> bytes:
    """A text of ASCII, of which bit 80 marks the last character."""
    data = found.encode()
    return data[:-1] + bytes((data[-1] | 0x80,))


def named(class_name: str) -> bytes:
    """A class that is written by its name, and the mark of an object that is not null."""
    return b"\1\0" + ascii_of(class_name) + b"\1"


def kryo_list(number: int) -> bytes:
    found = b"".join(b"\3\1" + ascii_of(each) for each in tags(number))
    return named("java.util.ArrayList") + varint(len(tags(number))) + found


def kryo_map(number: int) -> bytes:
    found = b"".join(b"\3\1" + ascii_of(each) + b"\2" + varint(number * 2) for each in tags(number))
    return named("java.util.HashMap") + varint(len(tags(number))) + found


def kryo_objects(number: int) -> bytes:
    """A list of objects of a class, each with the fields of the POJO in the order of their names."""
    found = named("java.util.ArrayList") + varint(number % 6)
    for each in range(number, number + number % 6):
        noted = note(each)
        found += b"\1\1" + (ascii_of("shop.Item") if each == number else b"") + b"\1" + varint(2 * each)
        found += b"\1" + ascii_of(f"item {each}") + (b"\0" if noted is None else b"\1" + ascii_of(noted))
        found += struct.pack(">d", each / 4)
    return found


def pojos(number: int) -> bytes:
    return struct.pack(">i", number % 6) + b"".join(pojo(number + each) for each in range(number % 6))


def kryo_decimal(number: int) -> bytes:
    unscaled = (number * 7919).to_bytes(4, "big")
    return named("java.math.BigDecimal") + varint(len(unscaled) + 1) + unscaled + varint(4)


def kryo_uuid(number: int) -> bytes:
    found = real_kryo("java.util.UUID")
    return found[number % len(found)]


def kryo_duration(number: int) -> bytes:
    """Nanoseconds and seconds, the fields in the order of their names."""
    return named("java.time.Duration") + varint(2 * number * 79_000) + varint(2 * number)


def kryo_finite_duration(number: int) -> bytes:
    """A count of seconds: their constant of ``TimeUnit`` is the fourth."""
    return named("scala.concurrent.duration.FiniteDuration") + varint(2 * number) + b"\1\4"


def kryo_enumeration(number: int) -> bytes:
    return (
        named("scala.Enumeration$Val")
        + b"\1\1"
        + ascii_of("shop.Weekday$")
        + b"\1"
        + struct.pack(">i", number % len(WEEKDAYS))
    )


def weekday(number: int) -> bytes:
    return text(WEEKDAYS[number % len(WEEKDAYS)])


def kryo_address(number: int) -> bytes:
    """A class that Flink's Kryo registers by number."""
    return b"S\1" + ascii_of(f"host-{number}.shop.example") + varint(number + 1024)


def address(number: int) -> bytes:
    return text(f"host-{number}.shop.example:{number + 1024}")


@cache
def kryo_lines() -> Sequence[dict[str, Any]]:
    with lzma.open(KRYO) as file:
        found: list[dict[str, Any]] = json.load(file)["1.20.0"]
    return found


@cache
def real_kryo(class_name: str) -> list[bytes]:
    return [bytes.fromhex(each["bytes"]) for each in kryo_lines() if each["class"] == class_name and "bytes" in each]


def kryo(class_name: str) -> bytes:
    """The serializer of Kryo for a class, as Flink 1.20 writes it."""
    lines = (each for each in kryo_lines() if each["class"] == class_name)
    return bytes.fromhex(next(each["snapshot"] for each in lines if "snapshot" in each))


def of_1_20(name: str) -> bytes:
    return types.printed("1.20.3")["SNAP", name][1]


ITEM = {"id": types.LONG, "name": types.STRING, "note": types.STRING, "score": DOUBLE}
CASE_CLASS = types.composite(
    f"{SCALA}ScalaCaseClassSerializerSnapshot",
    *(types.LONG, types.STRING, of_1_20("scala-option"), DOUBLE),
    version=2,
    outer=meta.utf("shop.Item"),
)
PYTHON = {"type": f"{OPERATOR}.python-state-row=struct<f0: string, f1: bigint>"}
JSON = {"type": f"{OPERATOR}.measured.value=json"}
FORMS = {
    "POJO": Form(types.pojo("shop.Item", ITEM), pojo),
    "case class of Scala": Form(CASE_CLASS, case_class),
    "Row": Form(of_1_20("row"), row),
    "row of SQL": Form(types.printed("2.3.0")["SNAP", "rowdata-structured"][1], sql_row),
    "row of PyFlink": Form(types.listed(BYTES), python_row, "LIST", "python-state-row", PYTHON),
    "list": Form(types.listed(types.STRING), listed),
    "list of Kryo": Form(kryo("java.util.List"), kryo_list),
    "list of Kryo as JSON": Form(
        kryo("java.util.List"), kryo_list, options={"type": f"{OPERATOR}.measured.value=json"}
    ),
    "list of POJOs": Form(types.listed(types.pojo("shop.Item", ITEM)), pojos),
    "objects of Kryo": Form(
        kryo("java.util.List"),
        kryo_objects,
        options={"type": "class:shop.Item=class<long id, String name, String note, double score>"},
    ),
    "map": Form(types.mapped(types.STRING, types.INT), mapped),
    "map of Kryo": Form(kryo("java.util.Map"), kryo_map),
    "decimal": Form(DECIMAL, decimal),
    "decimal of Kryo": Form(kryo("java.lang.Object"), kryo_decimal),
    "text of a UUID": Form(types.STRING, uuid_text),
    "UUID of Kryo": Form(kryo("java.util.UUID"), kryo_uuid),
    "Duration of Kryo": Form(kryo("java.lang.Object"), kryo_duration),
    "FiniteDuration of Kryo": Form(kryo("java.lang.Object"), kryo_finite_duration),
    "text of a name": Form(types.STRING, weekday),
    "Enumeration of Kryo": Form(
        kryo("java.lang.Object"),
        kryo_enumeration,
        options={"type": f"class:shop.Weekday$=enum<{', '.join(WEEKDAYS)}>"},
    ),
    "text of an address": Form(types.STRING, address),
    "InetSocketAddress of Kryo": Form(kryo("java.lang.Object"), kryo_address),
}


# Snapshots


@dataclass(frozen=True)
class Entry:
    group: int
    key: bytes
    value: bytes

    @property
    def stored_key(self) -> bytes:
        return bytes((self.group,)) + self.key


def entries(value: Values, first: int = 0) -> list[list[Entry]]:
    """Different entries by key group: a key of long, a namespace, the value."""
    groups: list[list[Entry]] = [[] for _ in range(GROUPS)]
    for number in range(first, first + DISTINCT):
        group = group_of(FIRST_KEY + number)
        groups[group].append(Entry(group, struct.pack(">qB", FIRST_KEY + number, 0), value(number)))
    return groups


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(form: Form, second: bool = False) -> bytes:
    """The header of a backend; ``second``: its state is that of the second API."""
    state = types.state(form.name, form.serializer, form.kind, number=4 if second else 0)
    return types.header(types.LONG, state)


def write_metadata(folder: Path, handle: bytes, version: int = VERSION) -> Path:
    operator = meta.Operator(
        subtasks=[meta.subtask(keyed=handle, version=version)],
        parallelism=1,
        max_parallelism=GROUPS,
    )
    (folder / "_metadata").write_bytes(meta.metadata(operator, version=version))
    return folder


def write_stream(file: Path, form: Form, times: int, second: bool = False) -> bytes:
    """Write a canonical stream in which each entry stands so often; return where each key group begins and the file."""
    offsets = []
    with file.open("wb") as out:
        out.write(header(form, second))
        for group in entries(form.value):
            offsets.append(out.tell())
            if group:
                frames = b"".join(framed(each.stored_key) + framed(each.value) for each in group)
                last = group[-1]
                tail = framed(bytes((last.group | 0x80, *last.key))) + framed(last.value)
                out.write(b"\0\0" + frames * times)
                out.seek(-len(tail), 1)
                out.write(tail)
            out.write(b"\xff\xff")
    return struct.pack(f">ii{GROUPS}q", 0, GROUPS, *offsets) + meta.relative(file.name, file.stat().st_size)


def savepoint(folder: Path, form: Form, rows: int, version: int = VERSION, second: bool = False) -> Path:
    folder.mkdir(parents=True)
    groups = write_stream(folder / "state", form, rows // DISTINCT, second)
    return write_metadata(folder, (b"\3" if version == 2 else b"\7") + groups, version)


def native(folder: Path, form: Form, rows: int, second: bool = False) -> Path:
    """A checkpoint of RocksDB, or of ForSt, whose files are alike."""
    folder.mkdir(parents=True)
    database = Rdict(str(folder), Options(raw_mode=True))
    table = database.create_column_family(form.name, Options(raw_mode=True))
    for first in range(0, rows, DISTINCT):
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(database.get_column_family_handle(form.name))
        for group in entries(form.value, first):
            for each in group:
                batch.put(each.stored_key, each.value)
        database.write(batch)
    for group in entries(form.value):
        for each in group[::33]:
            del table[each.stored_key]
    table.flush()
    table.close()
    database.close()
    written = header(form, second)
    (folder / "header").write_bytes(written)
    files = [*folder.glob("*.sst"), *folder.glob("MANIFEST-*"), folder / "CURRENT"]
    shared = [(each.name, meta.relative(each.name, each.stat().st_size)) for each in files]
    return write_metadata(folder, meta.rocksdb(0, GROUPS, meta.relative("header", len(written)), shared, []))


def logged(folder: Path, form: Form, rows: int) -> Path:
    """A checkpoint of the changelog backend: half of the rows are materialized, and as many changes were logged.

    Each key was set some times, and one in 33 is removed at the end.
    """
    folder.mkdir(parents=True)
    base = b"\7" + write_stream(folder / "state", form, 1)
    described = types.state(form.name, form.serializer, form.kind)
    body = b"\x08" + struct.pack(">i", 6) + described + b"\0\0" + struct.pack(">hB", 0, 0)
    sets = struct.pack(">iii", GROUPS + 1, 1, -1) + framed(body)
    for number, group in enumerate(entries(form.value)):
        changes = b"".join(framed(b"\1\0\0" + each.key + each.value) for each in group) * (rows // DISTINCT)
        removed = [framed(b"\0\0\0" + each.key) for each in group[::33]]
        count = len(group) * (rows // DISTINCT) + len(removed)
        sets += struct.pack(">ii", count, number) + changes + b"".join(removed)
    (folder / "changes").write_bytes(b"\0" + sets)
    range_of = struct.pack(">ii", 0, GROUPS)
    size = struct.pack(">q", len(sets))
    files = b"\x0a" + range_of + struct.pack(">iq", 1, 0) + meta.relative("changes", len(sets))
    files += size + size + meta.utf("handle")
    handle = b"\x08" + range_of + size + struct.pack(">i", 1) + base + struct.pack(">i", 1) + files
    return write_metadata(folder, handle + struct.pack(">q", 1) + meta.utf("handle"))
