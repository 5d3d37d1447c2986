"""Objects that a job has thrown: Flink writes every ``Throwable`` by Java's serialization, behind its class in Kryo.

They are rare, so they are walked one by one. No class is loaded; class and message are shown, as ``toString`` does.
"""

from __future__ import annotations

from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.faults import Short
from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.java_objects import JavaObject, read_java_object
from statestore.formats.kernels.kryo_forms import TEXT
from statestore.formats.kernels.kryo_parts import text

_NAMED = b"\1\0"
_NEW = 1
_MOST = 1 << 20


def is_thrown(kind: KryoOf) -> bool:
    """Return whether all values of a type are objects that were thrown."""
    return kind.class_name == "java.lang.Throwable"


def thrown(data: memoryview, at: int, end: int) -> tuple[str, int] | None:
    """The class and message of what was thrown, and the position behind it; None for other bytes.

    Raises Short where the object does not end within the bytes.
    """
    octets = bytes(data[at : min(end, at + _MOST)])
    if octets[:2] != _NAMED:
        return None
    tag, start, size, behind = text(octets, 2, len(octets))
    if behind < 0 or size == 0 or behind >= len(octets) or octets[behind] != _NEW:
        return None
    name = octets[start : start + size - 1] + bytes([octets[start + size - 1] & (0x7F if tag == TEXT else 0xFF)])
    source = DataInput(octets, "an object of Java", behind + 1, len(octets))
    try:
        found = read_java_object(source)
    except StateStoreError:
        raise Short(len(octets) + 1, len(octets)) from None
    message = found.fields.get("detailMessage") if isinstance(found, JavaObject) else None
    shown = name.decode("utf-8", "replace")
    return (f"{shown}: {message}" if isinstance(message, str) else shown), at + source.at
