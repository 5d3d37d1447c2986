"""Serializer snapshots and backend headers: those that Flink's own classes wrote, and some written by hand.

``tests/data/flink/serializers.tar.xz`` holds what two Java programs printed with Flink 1.20.3 and 2.3.0: the snapshots
of many serializers, with the length that each declares, and headers with a user's serializers. The programs lie beside.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache

from support.flink.metadata_bytes import i32, i64, utf
from support.paths import DATA

VERSIONS = ("1.20.3", "2.3.0")
BASE = "org.apache.flink.api.common.typeutils.base."
RUNTIME = "org.apache.flink.api.java.typeutils.runtime."


@cache
def printed(version: str) -> Mapping[tuple[str, str], tuple[int, bytes]]:
    """Bytes that a version of Flink wrote, by SNAP or HEAD and name: declared length (0 for a header) and bytes."""
    with tarfile.open(DATA / "flink" / "serializers.tar.xz") as archive:
        part = archive.extractfile(f"{version}.txt")
        assert part is not None
        lines = [line.split() for line in part.read().decode().splitlines()]
    found = {("SNAP", words[1]): (int(words[2]), bytes.fromhex(words[3])) for words in lines if words[0] == "SNAP"}
    return found | {("HEAD", words[1]): (0, bytes.fromhex(words[2])) for words in lines if words[0] == "HEAD"}


def i16(number: int) -> bytes:
    return struct.pack(">h", number)


def snapshot(name: str, version: int = 3, body: bytes = b"") -> bytes:
    return utf(name) + i32(version) + body


def simple(name: str) -> bytes:
    """A serializer without parameters of package ``base``."""
    return snapshot(f"{BASE}{name}Serializer${name}SerializerSnapshot")


LONG, STRING, INT = simple("Long"), simple("String"), simple("Int")
VOID = snapshot("org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot")


def nested(*snapshots: bytes) -> bytes:
    return i32(1333245, 1, len(snapshots)) + b"".join(snapshots)


def composite(name: str, *snapshots: bytes, version: int = 1, outer: bytes = b"") -> bytes:
    return snapshot(name, 3, i32(911108, version) + outer + nested(*snapshots))


def listed(element: bytes) -> bytes:
    return composite(f"{BASE}ListSerializerSnapshot", element)


def mapped(key: bytes, value: bytes) -> bytes:
    return composite(f"{BASE}MapSerializerSnapshot", key, value)


def tupled(*fields: bytes) -> bytes:
    name = utf(f"org.apache.flink.api.java.tuple.Tuple{len(fields)}")
    return composite(f"{RUNTIME}TupleSerializerSnapshot", *fields, version=2, outer=name)


def optional_map(entries: Sequence[tuple[str, bytes | None, bytes | None]]) -> bytes:
    def frame(part: bytes | None) -> bytes:
        return b"\0" if part is None else b"\1" + i32(len(part)) + part

    parts = (utf(name) + frame(key) + frame(value) for name, key, value in entries)
    return i64(0x4F2C69A3D70) + i32(len(entries)) + b"".join(parts)


def pojo(
    name: str,
    fields: Mapping[str, bytes | None],
    registered: Mapping[str, bytes] | None = None,
    unregistered: Mapping[str, bytes] | None = None,
) -> bytes:
    body = utf(name) + optional_map([(each, utf(name) + utf(each), kind) for each, kind in fields.items()])
    for others in (registered or {}, unregistered or {}):
        body += optional_map([(each, b"", kind) for each, kind in others.items()])
    return snapshot(f"{RUNTIME}PojoSerializerSnapshot", 2, body)


def state(
    name: str,
    value: bytes,
    kind: str | None = "VALUE",
    namespace: bytes | None = VOID,
    number: int = 0,
    namespace_first: bool = False,
) -> bytes:
    """The description of a state; ``kind`` None: no option, ``namespace`` None: no such serializer (timers)."""
    options = i32(0) if kind is None else i32(1) + utf("KEYED_STATE_TYPE") + utf(kind)
    roles = [utf("VALUE_SERIALIZER") + i32(2) + value]
    if namespace is not None:
        roles.append(utf("NAMESPACE_SERIALIZER") + i32(2) + namespace)
    if namespace_first:
        roles.reverse()
    return utf(name) + i32(number) + options + i32(len(roles)) + b"".join(roles)


def header(key: bytes, *states: bytes, version: int = 6, compressed: int = 0) -> bytes:
    return i32(version) + bytes([compressed]) + i32(2) + key + i16(len(states)) + b"".join(states)
