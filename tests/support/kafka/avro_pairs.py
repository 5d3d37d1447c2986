"""Pairs of Avro schemas, of a writer and of a later or earlier reader, with values of the writer, by a seed.

    python -m support.kafka.avro_pairs COUNT SEED

prints them as lines, which the program in tests/engines/kafka/resolution answers.
"""

from __future__ import annotations

import copy
import json
import random
import struct
import sys
from typing import Any

from support.kafka.avro_model import varint

_SCALARS = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
_WIDER |= {"string": ["bytes"], "bytes": ["string"]}
_MOST_DEPTH = 3


class Pairs:
    """A generator: each pair has names of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def pair(self, values: int = 4) -> dict[str, Any]:
        """A writer's schema, a reader's, and values of the writer as hex."""
        self._names = 0
        writer = self._record(0) if self._random.random() < 0.8 else self._schema(0)
        reader = self._changed(copy.deepcopy(writer))
        found = [self._value(writer).hex() for _ in range(values)]
        return {"writer": writer, "reader": reader, "values": found}

    def _name(self, letter: str) -> str:
        self._names += 1
        space = self._random.choice(["", "", "a.b."])
        return f"{space}{letter}{self._names}"

    def _schema(self, depth: int, union: bool = True) -> Any:
        some = self._random
        kinds = ["scalar"] * 4 + ["enum", "fixed"]
        if depth < _MOST_DEPTH:
            kinds += ["record", "array", "map"] + (["union"] * 3 if union else [])
        kind = some.choice(kinds)
        if kind == "scalar":
            return some.choice(_SCALARS)
        if kind == "record":
            return self._record(depth)
        if kind == "enum":
            symbols = some.sample("ABCDE", some.randint(1, 4))
            return {"type": "enum", "name": self._name("E"), "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name("F"), "size": some.randint(0, 3)}
        if kind == "array":
            return {"type": "array", "items": self._schema(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self._schema(depth + 1)}
        return self._union(depth)

    def _union(self, depth: int) -> list[Any]:
        found: list[Any] = ["null"] if self._random.random() < 0.6 else []
        for _ in range(self._random.randint(1, 3)):
            branch = self._schema(depth + 1, union=False)
            if _kind(branch) not in map(_kind, found):
                found.append(branch)
        self._random.shuffle(found)
        return found

    def _record(self, depth: int) -> dict[str, Any]:
        fields = [self._field(f"f{number}", depth) for number in range(self._random.randint(0, 4))]
        return {"type": "record", "name": self._name("R"), "fields": fields}

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        return {"name": name, "type": self._schema(depth + 1)}

    def _changed(self, schema: Any) -> Any:
        """A schema somewhat different, most often one that can read the other."""
        some = self._random
        if some.random() < 0.02:
            return self._schema(2)
        if isinstance(schema, str):
            wider = [to for to in _WIDER.get(schema, []) if (schema, to) != ("bytes", "string")]
            changed = some.choice(wider) if wider and some.random() < 0.3 else schema
            return ["null", changed] if changed != "null" and some.random() < 0.15 else changed
        if isinstance(schema, list):
            return self._changed_union(schema)
        kind = schema["type"]
        if kind in ("enum", "fixed", "record") and some.random() < 0.15:
            new = self._name(schema["name"].rpartition(".")[2][0])
            if some.random() < 0.7:
                schema["aliases"] = [schema["name"] if "." in schema["name"] else self._rooted(new, schema["name"])]
            schema["name"] = new
        if kind == "enum" and some.random() < 0.5:
            schema["symbols"] = some.sample("ABCDE", some.randint(1, 4))
            if some.random() < 0.5:
                schema["default"] = some.choice(schema["symbols"])
        elif kind == "array":
            schema["items"] = self._changed(schema["items"])
        elif kind == "map":
            schema["values"] = self._changed(schema["values"])
        elif kind == "record":
            self._change_fields(schema)
        return schema

    def _rooted(self, new: str, old: str) -> str:
        """An alias without a namespace means the one of its type, so the old name is only right without one."""
        return old if "." not in new else f"{new.rpartition('.')[0]}.{old}"

    def _changed_union(self, union: list[Any]) -> Any:
        some = self._random
        branches: list[Any] = []
        for branch in union:
            if len(union) > 1 and some.random() < 0.15:
                continue
            changed = self._changed(branch)
            changed = branch if isinstance(changed, list) else changed
            if _kind(changed) not in map(_kind, branches):
                branches.append(changed)
        if some.random() < 0.2:
            extra = self._schema(_MOST_DEPTH, union=False)
            if _kind(extra) not in map(_kind, branches):
                branches.append(extra)
        if some.random() < 0.3:
            some.shuffle(branches)
        if len(branches) == 1 and some.random() < 0.5:
            return branches[0]
        return branches or union

    def _change_fields(self, record: dict[str, Any]) -> None:
        some = self._random
        fields = []
        for field in record["fields"]:
            if some.random() < 0.15:
                continue
            field["type"] = self._changed(field["type"])
            if some.random() < 0.15:
                field["aliases"] = [field["name"]]
                field["name"] = f"new_{field['name']}"
            fields.append(field)
        if some.random() < 0.4:
            kind = self._schema(2)
            added = {"name": "added", "type": kind}
            if some.random() < 0.9:
                added["default"] = self._json(kind)
            fields.insert(some.randint(0, len(fields)), added)
        if some.random() < 0.3:
            some.shuffle(fields)
        record["fields"] = fields

    def _json(self, schema: Any) -> Any:
        """A default."""
        some = self._random
        if isinstance(schema, list):
            return self._json(schema[0])
        kind = schema if isinstance(schema, str) else schema["type"]
        scalars: dict[str, Any] = {
            "null": None,
            "boolean": some.random() < 0.5,
            "int": some.randint(-(2**31), 2**31 - 1),
            "long": some.randint(-(2**63), 2**63 - 1),
            "float": some.choice([0.5, -2.25, 1e10]),
            "double": some.choice([0.1, -2.5, 1e300]),
            "bytes": some.choice(["", "\u00ff\u0000a"]),
            "string": some.choice(["", "\u00e9t\u00e9"]),
        }
        if kind in scalars:
            return scalars[kind]
        if kind == "enum":
            return some.choice(schema["symbols"])
        if kind == "fixed":
            return "\u00fe" * schema["size"]
        if kind == "array":
            # A default with entries without bytes is refused: in a value they could be any number.
            return (
                [self._json(schema["items"]) for _ in range(some.randint(0, 2))] if _has_bytes(schema["items"]) else []
            )
        if kind == "map":
            return {name: self._json(schema["values"]) for name in ("x", "y")[: some.randint(0, 2)]}
        return {field["name"]: self._json(field["type"]) for field in schema["fields"]}

    def _value(self, schema: Any) -> bytes:
        some = self._random
        if isinstance(schema, list):
            branch = some.randrange(len(schema))
            return varint(branch) + self._value(schema[branch])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "null":
            return b""
        if kind == "boolean":
            return some.choice([b"\0", b"\1"])
        if kind in ("int", "long"):
            bits = some.randint(0, 31 if kind == "int" else 63)
            return varint(some.randint(-(1 << bits), (1 << bits) - 1))
        if kind == "float":
            return struct.pack("<f", some.choice([0.0, -0.0, some.uniform(-10, 10), 1e38]))
        if kind == "double":
            return struct.pack("<d", some.choice([0.0, -0.0, some.uniform(-10, 10), 1e308]))
        if kind in ("bytes", "string"):
            data = some.choice(["", "a", "\u00e9t\u00e9", "\U0001f600"]).encode()
            return varint(len(data)) + data
        if kind == "enum":
            return varint(some.randrange(len(schema["symbols"])))
        if kind == "fixed":
            return some.randbytes(schema["size"])
        if kind == "record":
            return b"".join(self._value(field["type"]) for field in schema["fields"])
        entries = [self._value(schema["items" if kind == "array" else "values"]) for _ in range(some.randint(0, 2))]
        if kind == "map":
            entries = [varint(1) + bytes([97 + number]) + entry for number, entry in enumerate(entries)]
        if not any(entries):  # entries without bytes are refused: they could be any number
            entries = []
        return (varint(len(entries)) if entries else b"") + b"".join(entries) + b"\0"


def _has_bytes(schema: Any) -> bool:
    """Return whether each value of a schema has a byte."""
    if schema == "null" or (isinstance(schema, dict) and schema["type"] == "fixed" and not schema["size"]):
        return False
    record = isinstance(schema, dict) and schema["type"] == "record"
    return not record or any(_has_bytes(field["type"]) for field in schema["fields"])


def _kind(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))


def pairs(count: int, seed: int) -> list[dict[str, Any]]:
    """So many pairs."""
    made = Pairs(seed)
    return [made.pair() for _ in range(count)]


if __name__ == "__main__":
    for each in pairs(int(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps(each))
