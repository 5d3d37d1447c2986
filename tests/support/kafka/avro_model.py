"""Avro's binary encoding of single values, by the specification: what columns are compared with; any schemas."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

Schema = str | dict[str, Any] | list[Any]


def encode(schema: Any, value: Any, blocks: int = 0) -> bytes:
    """Encode a value; arrays and maps in blocks of at most ``blocks`` entries with their sizes, or in one without."""
    if isinstance(schema, list):
        branch = next(number for number, one in enumerate(schema) if (one == "null") == (value is None))
        return varint(branch) + encode(schema[branch], value, blocks)
    form = schema if isinstance(schema, str) else schema["type"]
    if form == "null":
        return b""
    if form == "boolean":
        return b"\1" if value else b"\0"
    if form in ("int", "long"):
        return varint(value)
    if form in ("float", "double"):
        return struct.pack("<f" if form == "float" else "<d", value)
    if form in ("bytes", "string"):
        data = value.encode() if isinstance(value, str) else value
        return varint(len(data)) + bytes(data)
    if form == "fixed":
        return bytes(value)
    if form == "enum":
        return varint(schema["symbols"].index(value))
    if form == "record":
        return b"".join(encode(field["type"], value[field["name"]], blocks) for field in schema["fields"])
    if form == "array":
        return in_blocks([encode(schema["items"], one, blocks) for one in value], blocks)
    assert form == "map", form
    return in_blocks([encode("string", name) + encode(schema["values"], one, blocks) for name, one in value], blocks)


def in_blocks(entries: list[bytes], most: int) -> bytes:
    found = b""
    for at in range(0, len(entries), most or len(entries) or 1):
        part = entries[at : at + (most or len(entries))]
        data = b"".join(part)
        found += varint(-len(part)) + varint(len(data)) + data if most else varint(len(part)) + data
    return found + b"\0"


def varint(number: int) -> bytes:
    """Encode a zig-zag varint of 64 bits."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


# Schemas and their values


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=4),
    "string": st.text(max_size=4),
}
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([*SCALARS]),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda values: {"type": "map", "values": values}, inner)
        | st.builds(lambda one: [one, "null"], inner.filter(lambda one: not isinstance(one, list)))
        | st.builds(lambda one: ["null", one], inner.filter(lambda one: not isinstance(one, list)))
        | st.builds(
            lambda kinds: {
                "type": "record",
                "name": "R",
                "fields": [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)],
            },
            st.lists(inner, min_size=1, max_size=3),
        )
    ),
    max_leaves=5,
)


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.none() | values_of(next(one for one in schema if one != "null"))
    if isinstance(schema, str):
        return SCALARS[schema]
    if schema["type"] == "array":
        return st.lists(values_of(schema["items"]), max_size=4)
    if schema["type"] == "map":
        return st.lists(st.tuples(st.text(max_size=3), values_of(schema["values"])), max_size=4)
    return st.fixed_dictionaries({field["name"]: values_of(field["type"]) for field in schema["fields"]})
