"""Descriptors and signatures of a class file as types: `Ljava/util/List<TT;>;` is a list of a variable T.

Source: The Java Virtual Machine Specification, 4.3.2 "Field Descriptors" and 4.7.9.1 "Signatures".
"""

from __future__ import annotations

from dataclasses import replace

from statestore.formats.flink.serializers.job_classes import JavaType

_PRIMITIVES = {"B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short",
               "Z": "boolean"}  # fmt: skip
WILD = "?"
"""The name of the variable of a wildcard."""
_OBJECT = "java.lang.Object"
_MOST_DIMENSIONS = 255
_MOST_NESTED = 64
"""Types in one another. Deeper ones have no arguments, as raw types have none."""


class _Unreadable(Exception):
    """A signature in no form of the specification, or one that is nested too deep."""


def type_of_field(descriptor: str, signature: str, bounds: dict[str, str]) -> JavaType | None:
    """The type of a field; None for a descriptor that no field has.

    The descriptor says which class it is. The signature adds arguments and variables, and is left out where it is no
    signature, or one of another class: no compiler writes such a one, tools that change classes may. ``bounds`` are
    the classes that bound the variables of the class.
    """
    try:
        found, end = _type(descriptor, 0, bounds, 0)
        if end != len(descriptor) or found.arguments or found.variable or not _is_plain(descriptor):
            return None
    except (_Unreadable, IndexError):
        return None
    if not signature:
        return found
    try:
        generic, end = _type(signature, 0, bounds, 0)
    except (_Unreadable, IndexError):
        return found
    if end != len(signature) or generic.dimensions != found.dimensions:
        return found
    if generic.variable:
        return replace(generic, name="" if found.name == _OBJECT else found.name)
    return generic if generic.name == found.name else found


def parameters_of(signature: str) -> tuple[dict[str, str], tuple[JavaType, ...]]:
    """The variables of a class, each with the class that bounds it, and the arguments of the class that it extends.

    Both are empty for a class without a signature, or with one that cannot be read.
    """
    bounds: dict[str, str] = {}
    try:
        at = 0
        if signature[:1] == "<":
            at = 1
            while signature[at] != ">":
                end = signature.index(":", at)
                name, at = signature[at:end], end
                bounds[name] = ""
                is_first = True
                while signature[at] == ":":
                    at += 1
                    if signature[at] == ":":  # no class, interfaces alone
                        continue
                    bound, at = _type(signature, at, bounds, 0)
                    if is_first:
                        bounds[name], is_first = "" if bound.name == _OBJECT else bound.name, False
            at += 1
        if not signature:
            return {}, ()
        extended, _ = _type(signature, at, bounds, 0)
    except (_Unreadable, IndexError, ValueError):
        return {}, ()
    return bounds, extended.arguments


def _is_plain(descriptor: str) -> bool:
    return "<" not in descriptor and ".." not in descriptor


def _type(text: str, at: int, bounds: dict[str, str], depth: int) -> tuple[JavaType, int]:
    """The type at a position, and the position behind it."""
    if depth > _MOST_NESTED:
        raise _Unreadable
    dimensions = 0
    while text[at] == "[":
        dimensions, at = dimensions + 1, at + 1
    if dimensions > _MOST_DIMENSIONS:
        raise _Unreadable
    sign = text[at]
    if sign in _PRIMITIVES:
        return JavaType(_PRIMITIVES[sign], dimensions), at + 1
    if sign == "T":
        end = text.find(";", at)
        if end < 0:
            raise _Unreadable
        name = text[at + 1 : end]
        return JavaType(bounds.get(name, ""), dimensions, (), name), end + 1
    if sign != "L":
        raise _Unreadable
    name, at = "", at + 1
    arguments: tuple[JavaType, ...] = ()
    begin = at
    while True:
        sign = text[at]
        if sign not in "<;.":
            at += 1
            continue
        name, arguments = f"{name}{text[begin:at]}", ()
        if sign == "<":
            arguments, at = _arguments(text, at + 1, bounds, depth + 1)
            sign = text[at]
        if sign == ";":
            if not name:
                raise _Unreadable
            return JavaType(name.replace("/", "."), dimensions, arguments), at + 1
        if sign != ".":
            raise _Unreadable
        name, at = f"{name}$", at + 1
        begin = at


def _arguments(text: str, at: int, bounds: dict[str, str], depth: int) -> tuple[tuple[JavaType, ...], int]:
    """The arguments from a position on, and the position behind their end. A wildcard is its upper bound."""
    found = []
    while text[at] != ">":
        sign = text[at]
        if sign == "*":
            found.append(JavaType(_OBJECT, variable=WILD))
            at += 1
            continue
        kind, at = _type(text, at + 1 if sign in "+-" else at, bounds, depth)
        if sign == "-":
            kind = JavaType(_OBJECT, variable=WILD)
        elif sign == "+":
            kind = JavaType("", variable=WILD) if kind.variable else replace(kind, variable=WILD)
        found.append(kind)
    return tuple(found), at + 1
