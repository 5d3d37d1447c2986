"""Messages of two schemas, made with Protobuf's own library, and what they mean: what columns are compared with."""

from __future__ import annotations

import base64
import functools
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(),
    "string": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
    "uint32": st.integers(0, 2**32 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
}
_DECIMALS = ("uint64", "fixed64")
_OPTIONAL, _REPEATED = 1, 3


def descriptors() -> bytes:
    """A descriptor set: file ``three.proto`` with package ``shop`` in proto3, which imports ``two.proto`` in proto2.

    Message ``All`` has every type alone, optional and repeated, a oneof, a map, and messages; ``Few`` has only some of
    its fields. They are not the first messages of their file.
    """
    found = descriptor_pb2.FileDescriptorSet()
    _file(found, "two.proto", "old", "proto2")
    _file(found, "three.proto", "shop", "proto3").dependency.append("two.proto")
    return bytes(found.SerializeToString())


def serde(message: str, prefix: str = "protobuf-plain") -> str:
    """The name of the serde of a message, with the descriptor set in it."""
    return f"{prefix}:base64,{base64.b64encode(descriptors()).decode()}#{message}"


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    return pool


def message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def _file(found: Any, name: str, package: str, syntax: str) -> Any:
    file = found.file.add(name=name, package=package, syntax=syntax)
    proto3 = syntax == "proto3"
    color = file.enum_type.add(name="Color")
    for symbol, number in (("RED", 0), ("BLUE", 2), ("NEGATIVE", -1)):
        color.value.add(name=symbol, number=number)
    file.message_type.add(name="First")
    part = file.message_type.add(name="Part")
    _field(part, "amount", 1, "sint64", proto3)
    _field(part, "notes", 2, "string", proto3, repeated=True)
    _field(part, "color", 3, f".{package}.Color", proto3)
    for whole in ("All", "Few"):
        message = file.message_type.add(name=whole)
        message.nested_type.add(name="Empty")
        for number, (name_, form) in enumerate([*((each, each) for each in SCALARS), ("color", f".{package}.Color")]):
            if whole == "Few" and number % 3:
                continue
            _field(message, f"own_{name_}", 1 + number, form, proto3)
            _field(message, f"list_{name_}", 41 + number, form, proto3, repeated=True)
            if proto3:
                _optional(message, f"maybe_{name_}", 81 + number, form)
        if whole == "All":
            _field(message, "part", 121, f".{package}.Part", proto3)
            _field(message, "parts", 122, f".{package}.Part", proto3, repeated=True)
            _field(message, "empty", 123, f".{package}.{whole}.Empty", proto3)
            _map(message, f".{package}.{whole}", "prices", 124, "string", "double", proto3)
            _map(message, f".{package}.{whole}", "by_number", 2000, "int32", f".{package}.Part", proto3)
            _field(message, "itself", 125, f".{package}.All", proto3)
            message.oneof_decl.insert(0, descriptor_pb2.OneofDescriptorProto(name="choice"))
            for field in message.field:
                if field.HasField("oneof_index"):
                    field.oneof_index += 1
            for name_, number, form in (("a", 130, "string"), ("b", 131, "int32"), ("c", 132, f".{package}.Part")):
                _field(message, name_, number, form, proto3)
                message.field[-1].oneof_index = 0
            message.nested_type.add(name="Last")
            _field(message.nested_type[-1], "x", 1, "int32", proto3)
    return file


def _field(message: Any, name: str, number: int, form: str, proto3: bool, *, repeated: bool = False) -> None:
    field = message.field.add(name=name, number=number, label=_REPEATED if repeated else _OPTIONAL)
    if form.startswith("."):
        field.type = FieldDescriptor.TYPE_ENUM if form.endswith("Color") else FieldDescriptor.TYPE_MESSAGE
        field.type_name = form
    else:
        field.type = getattr(FieldDescriptor, f"TYPE_{form.upper()}")
    if repeated and not proto3 and form in ("int32", "double", "sint64"):
        field.options.packed = True


def _optional(message: Any, name: str, number: int, form: str) -> None:
    _field(message, name, number, form, True)
    message.oneof_decl.add(name=f"_{name}")
    message.field[-1].oneof_index = len(message.oneof_decl) - 1
    message.field[-1].proto3_optional = True


def _map(message: Any, owner: str, name: str, number: int, key: str, value: str, proto3: bool) -> None:
    entry = message.nested_type.add(name="".join(word.title() for word in name.split("_")) + "Entry")
    entry.options.map_entry = True
    _field(entry, "key", 1, key, proto3)
    _field(entry, "value", 2, value, proto3)
    message.field.add(
        name=name, number=number, label=_REPEATED, type=FieldDescriptor.TYPE_MESSAGE, type_name=f"{owner}.{entry.name}"
    )


def messages(name: str, depth: int = 2) -> st.SearchStrategy[Any]:
    """Messages with a few of their fields."""
    kind = message_class(name)
    fields = list(kind.DESCRIPTOR.fields)

    @st.composite
    def made(draw: st.DrawFn) -> Any:
        found = kind()
        for field in draw(st.lists(st.sampled_from(fields), max_size=6)) if fields else []:
            _set(draw, found, field, depth)
        return found

    return made()


def _set(draw: st.DrawFn, found: Any, field: Any, depth: int) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        entries = getattr(found, field.name)
        for key in draw(st.lists(_values(field.message_type.fields_by_name["key"]), max_size=3)):
            if value.message_type is None:
                entries[key] = draw(_values(value))
            else:
                entries[key].CopyFrom(draw(messages(value.message_type.full_name, depth - 1)))
    elif field.message_type is not None:
        if depth <= 0:
            return
        inner = messages(field.message_type.full_name, depth - 1)
        if field.is_repeated:
            getattr(found, field.name).extend(draw(st.lists(inner, max_size=3)))
        else:
            getattr(found, field.name).CopyFrom(draw(inner))
    elif field.is_repeated:
        getattr(found, field.name).extend(draw(st.lists(_values(field), max_size=4)))
    else:
        setattr(found, field.name, draw(_values(field)))


def _values(field: Any) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        known = [value.number for value in field.enum_type.values]
        return st.sampled_from(known if field.enum_type.is_closed else [*known, 77, -5])
    return SCALARS[_form(field)]


def _form(field: Any) -> str:
    forms = {getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name for name in SCALARS}
    return forms[field.type]


def plain(found: Any) -> dict[str, Any]:
    """A message as the row that a column of it has."""
    return {field.name: _plain(found, field) for field in found.DESCRIPTOR.fields}


def _plain(found: Any, field: Any) -> Any:
    value = getattr(found, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        return [(key, _one(of, value[key], found.DESCRIPTOR)) for key in sorted(value)]
    if field.is_repeated:
        return [_one(field, each, found.DESCRIPTOR) for each in value]
    if field.has_presence and not found.HasField(field.name):
        return None
    return _one(field, value, found.DESCRIPTOR)


def _one(field: Any, value: Any, owner: Any) -> Any:
    if field.message_type is not None:
        return value.SerializeToString(deterministic=True) if field.message_type is owner else plain(value)
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        return str(value) if symbol is None else symbol.name
    return Decimal(value) if _form(field) in _DECIMALS else value
