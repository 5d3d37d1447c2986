"""Flink's types as short texts for people: ``POJO com.x.Person(age int, name string)``."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    Joined,
    KryoOf,
    LengthOf,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    Prefix,
    PrimitiveArray,
    PythonBytes,
    PythonElements,
    PythonLeaf,
    PythonValue,
    RawOf,
    RowDataOf,
    RowOf,
    Shown,
    SortedLong,
    StringArray,
    TableValue,
    TimerOf,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
    is_absent,
)

KRYO = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer"
_MOST_CONSTANTS = 20


def shown(kind: FlinkType) -> str:
    """A type in one line. What cannot be decoded says so; a class in Flink's own package stands without it."""
    if isinstance(kind, Basic):
        return kind.class_name.rpartition(".")[2] or kind.name
    if isinstance(kind, SortedLong):
        return "long"
    if isinstance(kind, PrimitiveArray):
        return "bytes" if kind.element == "byte" else f"{kind.element}[]"
    if isinstance(kind, StringArray):
        return "string[]"
    if isinstance(kind, ListOf):
        return f"{'set' if kind.is_set else 'list'}({shown(kind.element)})"
    if isinstance(kind, (MaskedListOf, Joined)):
        return f"list({shown(kind.element)})"
    if isinstance(kind, ArrayOf):
        return f"array({shown(kind.element)})"
    if isinstance(kind, MapOf):
        return f"map({shown(kind.key)}, {shown(kind.value)})"
    if isinstance(kind, TraversableOf) and kind.is_map and isinstance(kind.element, TupleOf):
        return f"map({', '.join(map(shown, kind.element.fields))})"
    if isinstance(kind, TraversableOf):
        return f"collection({shown(kind.element)})"
    if isinstance(kind, OptionOf):
        return f"option({shown(kind.value)})"
    if isinstance(kind, Nullable):
        return f"nullable {shown(kind.value)}"
    if isinstance(kind, TupleOf):
        return f"{f'case class {kind.class_name}' if kind.is_scala else 'tuple'}({_fields(kind.names, kind.fields)})"
    if isinstance(kind, RowOf):
        return f"row({_fields(kind.names, kind.fields)})"
    return _with_class(kind)


def _with_class(kind: FlinkType) -> str:
    if isinstance(kind, EnumOf):
        more = ", ..." if len(kind.constants) > _MOST_CONSTANTS else ""
        return f"enum {kind.class_name}({', '.join(kind.constants[:_MOST_CONSTANTS])}{more})"
    if isinstance(kind, PojoOf):
        fields = ", ".join(f"{name} {shown(each)}" for name, each in kind.fields)
        others = [name for name, _ in (*kind.registered, *kind.unregistered)]
        subclasses = f" with subclasses {', '.join(others)}" if others else ""
        return f"POJO {kind.class_name}({fields}){subclasses}"
    if isinstance(kind, KryoOf):
        return f"Kryo {kind.class_name}"
    if isinstance(kind, Opaque):
        if kind.serializer == KRYO:
            return f"Kryo {kind.class_name} (not decoded)"
        of = f" of {kind.class_name}" if kind.class_name else ""
        return f"{kind.serializer or 'no serializer'}{of} (not decoded)"
    if isinstance(kind, AvroOf):
        return f"Avro {kind.class_name}" if kind.class_name else "Avro"
    if isinstance(kind, RowDataOf):
        return _logical(kind.row)
    if isinstance(kind, TableValue):
        return _logical(kind.kind)
    if isinstance(kind, Logical):
        return _logical(kind)
    return _around(kind)


def _around(kind: FlinkType) -> str:
    if isinstance(kind, EitherOf):
        return f"either({shown(kind.left)}, {shown(kind.right)})"
    if isinstance(kind, TryOf):
        return f"try({shown(kind.value)})"
    if isinstance(kind, UnionOf):
        return f"union({', '.join(f'{name} {shown(each)}' for _, name, each in kind.cases)})"
    if isinstance(kind, TtlOf):
        return f"{shown(kind.value)} with its last access"
    if isinstance(kind, TimerOf):
        return f"timer({shown(kind.key)}, {shown(kind.namespace)})"
    if isinstance(kind, Shown):
        return f"{shown(kind.value)} as {kind.column}"
    if isinstance(kind, PythonBytes):
        return "bytes of a coder of PyFlink (not decoded)"
    if isinstance(kind, (PythonValue, RawOf)):
        return shown(kind.value)
    if isinstance(kind, PythonElements):
        return f"list({shown(kind.element)})"
    if isinstance(kind, PythonLeaf):
        return "string" if kind.name == "plain_text" else kind.name
    if isinstance(kind, Prefix):
        return "key group"
    if isinstance(kind, LengthOf):
        return "length"
    return type(kind).__name__


def _fields(names: tuple[str, ...], kinds: Iterable[FlinkType]) -> str:
    texts = [shown(each) for each in kinds]
    if names:
        texts = [f"{name} {text}" for name, text in zip(names, texts, strict=True)]
    return ", ".join(texts)


def _logical(kind: Logical) -> str:
    if kind.raw:
        return f"RAW({shown(kind.raw[0])})"
    if kind.root == "DECIMAL":
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return f"{kind.root}({kind.precision})"
    if not kind.children:
        return kind.root
    texts = ["" if is_absent(each) else _logical(each) for each in kind.children]
    if kind.root != "ROW":
        return f"{kind.root}<{', '.join(texts)}>"
    if kind.names:
        texts = [text and f"{name} {text}" for name, text in zip(kind.names, texts, strict=True)]
    return f"ROW({', '.join(filter(None, texts))})"
