"""Whether Flink restores state that was written with one type into serializers of another, by Flink's own rules.

Source: ``resolveSchemaCompatibility`` of each snapshot class, and ``CompositeTypeSerializerUtil``, of Flink 1.20 and
2.3. Not told apart, because no file's bytes differ by it: SQL types that differ in nullability or in the length of a
text, and Java's types that one class of `flink_types` stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from statestore.formats.flink.serializers.flink_types import (
    MOST_DEPTH,
    ArrayOf,
    AvroOf,
    EitherOf,
    EnumOf,
    FlinkType,
    Joined,
    ListOf,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    RowOf,
    Shown,
    TimerOf,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
)
from statestore.formats.flink.serializers.snapshot_classes import CEP, SINK
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.values.avro_names import NAMED, PRIMITIVES, candidates, full_name
from statestore.formats.values.expansion import parse_json

Outcome = Literal["as is", "after migration", "unknown", "incompatible"]
_ORDER: tuple[Outcome, ...] = ("as is", "after migration", "unknown", "incompatible")


@dataclass(frozen=True)
class Compatibility:
    """Whether a state is restored, and why not simply as it is ("" where it is).

    "after migration": Flink rewrites values when it restores them. It does so for values only: a key or a namespace
    must be compatible as it is. "unknown": the decision takes the job's classes.
    """

    outcome: Outcome
    reason: str = ""


AS_IS = Compatibility("as is")


def same_bytes(old: FlinkType, new: FlinkType) -> str | None:
    """None if state written with ``old`` is restored with ``new`` as it is, else the outcome and its reason."""
    found = compatibility(old, new)
    return None if found == AS_IS else f"{found.outcome}: {found.reason}"


def compatibility(old: FlinkType, new: FlinkType) -> Compatibility:
    """The outcome for state that was written with ``old`` and is restored with serializers of ``new``."""
    if isinstance(old, Shown):
        return compatibility(old.value, new)
    if isinstance(new, Shown):
        return compatibility(old, new.value)
    if isinstance(old, Opaque) or isinstance(new, Opaque):
        return _opaque(old, new)
    if isinstance(old, TtlOf) != isinstance(new, TtlOf):
        return Compatibility(
            "unknown", "a time to live was added or removed, which Flink 1.20 refuses and 2.x migrates"
        )
    if type(old) is not type(new):
        return _different(old, new)
    if isinstance(old, PojoOf) and isinstance(new, PojoOf):
        return _pojo(old, new)
    if isinstance(old, EnumOf) and isinstance(new, EnumOf):
        return _enum(old, new)
    if isinstance(old, AvroOf) and isinstance(new, AvroOf):
        return _avro(old, new)
    return _parts(old, new)


def _different(old: FlinkType, new: FlinkType) -> Compatibility:
    if {type(old), type(new)} == {ListOf, MaskedListOf}:
        return Compatibility("unknown", "one of two lists has a mask of nulls, which Flink migrates for linked lists")
    return Compatibility("incompatible", f"{shown(old)} became {shown(new)}")


def _worst(found: Iterable[tuple[str, Compatibility]]) -> Compatibility:
    """The worst of the results of parts, with the part's name before its reason."""
    worst = AS_IS
    for name, each in found:
        if _ORDER.index(each.outcome) > _ORDER.index(worst.outcome):
            worst = Compatibility(each.outcome, f"{name}: {each.reason}" if name else each.reason)
    return worst


def _parts(old: FlinkType, new: FlinkType) -> Compatibility:
    """Types whose class and nested types decide."""
    if isinstance(old, (TupleOf, RowOf)) and isinstance(new, (TupleOf, RowOf)):
        if isinstance(old, TupleOf) and isinstance(new, TupleOf):
            if old.is_scala != new.is_scala:
                return _different(old, new)
            if old.fields != new.fields and (old.class_name + new.class_name).startswith((CEP, SINK)):
                return Compatibility("unknown", "Flink has other rules for the state of patterns and of sinks")
        if len(old.fields) != len(new.fields):
            return Compatibility("incompatible", f"{len(old.fields)} fields became {len(new.fields)}")
        found = _worst(
            (f"field {number}", compatibility(*pair))
            for number, pair in enumerate(zip(old.fields, new.fields, strict=True))
        )
        if isinstance(old, RowOf) and isinstance(new, RowOf) and old.kind_bits != new.kind_bits:
            return _worst([("", found), ("", Compatibility("after migration", "one of two rows has the row's kind"))])
        return found
    if isinstance(old, UnionOf) and isinstance(new, UnionOf):
        if [tag for tag, _, _ in old.cases] != [tag for tag, _, _ in new.cases]:
            return _different(old, new)
        return _worst(
            (name, compatibility(mine, yours))
            for (_, name, mine), (_, _, yours) in zip(old.cases, new.cases, strict=True)
        )
    if isinstance(old, Nullable) and isinstance(new, Nullable):
        if old.padding != new.padding:
            return Compatibility("incompatible", f"the padding of a null changed from {old.padding} to {new.padding}")
        return compatibility(old.value, new.value)
    if isinstance(old, ListOf) and isinstance(new, ListOf) and old.is_set != new.is_set:
        return _different(old, new)
    pairs = _pairs(old, new)
    if pairs is None:
        return AS_IS if old == new else _different(old, new)
    return _worst((name, compatibility(mine, yours)) for name, mine, yours in pairs)


def _pairs(old: FlinkType, new: FlinkType) -> list[tuple[str, FlinkType, FlinkType]] | None:
    """The nested types of two types of one class; None: there are none, so that the types must be equal."""
    if isinstance(old, (ListOf, MaskedListOf, ArrayOf, Joined)) and isinstance(
        new, (ListOf, MaskedListOf, ArrayOf, Joined)
    ):
        return [("element", old.element, new.element)]
    if isinstance(old, MapOf) and isinstance(new, MapOf):
        return [("key", old.key, new.key), ("value", old.value, new.value)]
    if isinstance(old, TraversableOf) and isinstance(new, TraversableOf):
        return [("element", old.element, new.element)]
    if isinstance(old, OptionOf) and isinstance(new, OptionOf):
        return [("", old.value, new.value)]
    if isinstance(old, TryOf) and isinstance(new, TryOf):
        return [("success", old.value, new.value), ("failure", old.failure, new.failure)]
    if isinstance(old, EitherOf) and isinstance(new, EitherOf):
        return [("left", old.left, new.left), ("right", old.right, new.right)]
    if isinstance(old, TimerOf) and isinstance(new, TimerOf):
        return [("key", old.key, new.key), ("namespace", old.namespace, new.namespace)]
    if isinstance(old, TtlOf) and isinstance(new, TtlOf):
        return [("", old.value, new.value)]
    return None


def _pojo(old: PojoOf, new: PojoOf) -> Compatibility:
    """Fields may come and go; a field that stays must be compatible, and so must a registered subclass."""
    if old.class_name != new.class_name:
        return Compatibility("incompatible", f"class {old.class_name} became {new.class_name}")
    before, after = dict(old.fields), dict(new.fields)
    found = _worst(
        [
            *((f"field {name}", compatibility(kind, after[name])) for name, kind in old.fields if name in after),
            *_common("registered subclass", old.registered, new.registered),
        ]
    )
    gone = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    changes = [f"field {name} removed" for name in gone] + [f"field {name} added" for name in added]
    if changes:
        return _worst([("", found), ("", Compatibility("after migration", ", ".join(changes)))])
    return found


def _common(
    what: str, old: tuple[tuple[str, FlinkType], ...], new: tuple[tuple[str, FlinkType], ...]
) -> list[tuple[str, Compatibility]]:
    after = dict(new)
    return [(f"{what} {name}", compatibility(kind, after[name])) for name, kind in old if name in after]


def _enum(old: EnumOf, new: EnumOf) -> Compatibility:
    """Constants may be added anywhere; Flink keeps the numbers of the old ones, but not those of Scala's."""
    if old.class_name != new.class_name:
        return Compatibility("incompatible", f"class {old.class_name} became {new.class_name}")
    kept = dict(zip(new.constants, new.ids or new.constants, strict=True))
    before = zip(old.constants, old.ids or old.constants, strict=True)
    gone = [name for name, number in before if kept.get(name) != number]
    how = "removed or renumbered" if old.ids else "removed"
    return Compatibility("incompatible", f"constants {', '.join(gone)} {how}") if gone else AS_IS


def _avro(old: AvroOf, new: AvroOf) -> Compatibility:
    if old.schema == new.schema:
        return AS_IS
    problem = resolves(old.schema, new.schema)
    if problem is None:
        return Compatibility("after migration", "the Avro schema changed, and Avro resolves the change")
    outcome: Outcome = "incompatible" if problem.is_certain else "unknown"
    return Compatibility(outcome, f"the Avro schema changed: {problem.text}")


def _opaque(old: FlinkType, new: FlinkType) -> Compatibility:
    if not (isinstance(old, Opaque) and isinstance(new, Opaque)):
        return Compatibility("unknown", f"{shown(old)} became {shown(new)}")
    if old.serializer == new.serializer and old.class_name != new.class_name:
        return Compatibility("incompatible", f"class {old.class_name} became {new.class_name}")
    if old.serializer != new.serializer:
        return Compatibility("unknown", f"serializer {old.serializer} became {new.serializer}")
    return Compatibility("unknown", f"serializer {old.serializer} decides, with the job's classes")


# Schema resolution of Avro: ``org.apache.avro.SchemaCompatibility``, which Flink calls, and its specification 1.11


_PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
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
    if depth > MOST_DEPTH:
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
        if depth > MOST_DEPTH:
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
    for _ in range(MOST_DEPTH):
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
