"""Whether Avro reads data of one schema with another: the schema resolution of Avro's specification.

Source: ``org.apache.avro.SchemaCompatibility``, which Flink asks, and Avro's specification 1.11, "Schema Resolution".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statestore.formats.values.avro_names import NAMED, PRIMITIVES, candidates, full_name
from statestore.formats.values.expansion import parse_json

_PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_MAX_DEPTH = 64
_MOST_COMPARED = 100_000  # pairs of types: branches of unions in unions multiply


@dataclass(frozen=True)
class Problem:
    """Why a schema does not resolve. ``is_certain``: Avro refuses it; else it cannot be told here."""

    text: str
    is_certain: bool = True


def resolves(writer: str, reader: str) -> Problem | None:
    """None if data written with schema ``writer`` can be read with schema ``reader``, else the problem."""
    try:
        pair = _Pair({}, {}, set())
        old = _named(parse_json(writer), "", pair.old, 0)
        new = _named(parse_json(reader), "", pair.new, 0)
        return pair.problem(old, new, "", 0)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        return Problem(f"a schema cannot be read ({type(error).__name__})", is_certain=False)


def _named(schema: Any, space: str, found: dict[str, Any], depth: int) -> Any:
    """Return a schema with full names. Its named types are added to ``found`` by these."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(schema, str):
        full = next((name for name in candidates(schema, space) if name in found), schema)
        return schema if schema in PRIMITIVES else full
    if isinstance(schema, list):
        return [_named(each, space, found, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = dict(schema)
    kind = schema.get("type")
    if isinstance(kind, str) and kind in NAMED:
        name = full_name(schema, space)
        if name is None:
            raise ValueError("a type without a name")
        named["full name"], space = name
        found[name[0]] = named
    elif kind not in ("array", "map"):
        named["type"] = _named(kind, space, found, depth + 1)
    for part in ("items", "values"):
        if part in schema:
            named[part] = _named(schema[part], space, found, depth + 1)
    if "fields" in schema:
        named["fields"] = [
            {**field, "type": _named(field["type"], space, found, depth + 1)} for field in schema["fields"] or []
        ]
    return named


@dataclass
class _Pair:
    old: dict[str, Any]
    new: dict[str, Any]
    open: set[tuple[str, str]]
    left: int = _MOST_COMPARED

    def problem(self, old: Any, new: Any, place: str, depth: int) -> Problem | None:
        if depth > _MAX_DEPTH:
            return Problem("nested too deeply", is_certain=False)
        self.left -= 1
        if self.left < 0:
            return Problem("the schemas have too many branches to compare", is_certain=False)
        old, new = _resolved(old, self.old), _resolved(new, self.new)
        at = f" at {place}" if place else ""
        if isinstance(old, list):
            return next((bad for each in old if (bad := self.problem(each, new, place, depth + 1))), None)
        if isinstance(new, list):
            found = [self.problem(old, each, place, depth + 1) for each in new]
            if any(each is None for each in found):
                return None
            certain = all(each.is_certain for each in found if each)
            return Problem(f"{_kind(old)}{at} is in no branch of the new union", certain)
        kind, other = _kind(old), _kind(new)
        if kind in PRIMITIVES or other in PRIMITIVES:
            if kind == other or other in _PROMOTED.get(kind, ()):
                return None
            return Problem(f"{kind}{at} became {other}")
        if kind != other:
            return Problem(f"{kind}{at} became {other}")
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return self.problem(old[part], new[part], f"{place}[]", depth + 1)
        return self.named(old, new, place, depth)

    def named(self, old: Any, new: Any, place: str, depth: int) -> Problem | None:
        at = f" at {place}" if place else ""
        mine, yours = old["full name"], new["full name"]
        aliases = [str(each) for each in new.get("aliases") or []]
        if mine.rpartition(".")[2] != yours.rpartition(".")[2] and mine not in aliases:
            if any(each.rpartition(".")[2] == mine.rpartition(".")[2] for each in aliases):
                return Problem(f"{mine}{at} became {yours} with an alias", is_certain=False)
            return Problem(f"{mine}{at} became {yours}")
        if old["type"] == "enum":
            gone = [each for each in old["symbols"] if each not in new["symbols"]]
            return Problem(f"symbols {', '.join(gone)}{at} removed") if gone and "default" not in new else None
        if old["type"] == "fixed":
            return None if old["size"] == new["size"] else Problem(f"the size of {mine}{at} changed")
        if (mine, yours) in self.open:
            return None
        self.open.add((mine, yours))
        before = {field["name"]: field for field in old["fields"]}
        for field in new["fields"]:
            names = [field["name"], *(field.get("aliases") or [])]
            source = next((before[name] for name in names if name in before), None)
            below = f"{place}.{field['name']}" if place else str(field["name"])
            if source is None:
                if "default" not in field:
                    return Problem(f"field {below} added without a default")
                continue
            if bad := self.problem(source["type"], field["type"], below, depth + 1):
                return bad
        return None


def _resolved(schema: Any, named: dict[str, Any]) -> Any:
    """A schema without a name in its place, or a type in a type."""
    for _ in range(_MAX_DEPTH):
        if isinstance(schema, str) and schema not in PRIMITIVES:
            schema = named[schema]
        elif isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
            schema = schema["type"]
        else:
            return schema
    raise ValueError("a type that is itself")


def _kind(schema: Any) -> str:
    kind = schema if isinstance(schema, str) else str(schema["type"])
    return "record" if kind == "error" else kind
