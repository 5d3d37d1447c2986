"""Enums of a job in values of Kryo, which writes a constant as its number: a user declares their constants.

A constant with a body is written under a class of its own, ``Color$1``, with the number that it has in ``Color``. The
values of an ``Enumeration`` of Scala are written as the class of its object, ``Weekday$``, and their ID. An object of
Scala that is a value itself, as a ``case object``, is its own only constant.
"""

from __future__ import annotations

import re

from statestore.formats.flink.layouts.kryo_classes import is_public
from statestore.formats.flink.serializers.flink_types import KryoOf

CLASS = "class:"
"""The word in front of a class that is declared, where the name of a state stands otherwise."""
_ENUMERATION_VALUE = "scala.Enumeration$Val"
_EXPECTED = "expected the constants of an enum in their order, such as class:shop.Color=enum<RED, GREEN, BLUE>"
_ENUM = re.compile(r"enum\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_BODY = re.compile(r"\$[0-9]+$")
_NEVER_OF_A_JOB = ("java.", "javax.", "jdk.", "sun.", "scala.")


def enum_of(class_name: str, text: str) -> tuple[str, tuple[str, ...]]:
    """A class and the constants that a user declares for it. Raises ValueError with what was found and expected."""
    if not _is_class(class_name):
        raise ValueError(f"names class {class_name!r}, which no class of Java has as its name; {_EXPECTED}")
    if is_public(class_name):
        raise ValueError(f"declares class {class_name}, whose form is known; leave it out")
    found = _ENUM.fullmatch(text.strip())
    constants = () if found is None else tuple(each.strip() for each in found[1].split(","))
    if not constants or not all(map(_is_name, constants)):
        raise ValueError(f"has {text!r} for class {class_name}; {_EXPECTED}")
    if len(set(constants)) < len(constants):
        twice = next(each for each in constants if constants.count(each) > 1)
        raise ValueError(f"has constant {twice} twice for class {class_name}; {_EXPECTED}")
    return class_name, constants


def remedy_for(kind: KryoOf, name: str | None) -> str:
    """The option to give if a class that stands in the way is an enum; "" where it would not help.

    ``name`` is None where a number stood for the class: that of the serializer has one.
    """
    given = dict(kind.registrations)
    if name is None and kind.class_name in given:
        name = kind.class_name
    if name == _ENUMERATION_VALUE:
        return f"give --type '{CLASS}shop.Weekday$=enum<...>' for each Enumeration, with its values in their order"
    if name is None or kind.has_defaults or not _is_class(name) or name.startswith(_NEVER_OF_A_JOB):
        return ""
    declared = dict(kind.enums)
    if name.endswith("$"):
        own = re.split(r"[.$]", name[:-1])[-1]
        return (
            ""
            if name in declared or given.get(name) or not own
            else (
                f"if {name} is an object, give --type '{CLASS}{name}=enum<{own}>', and if it is an Enumeration, "
                f"'{CLASS}{name}=enum<...>' with its values in the order of their IDs from 0 on"
            )
        )
    whole = _BODY.sub("", name)
    if whole in declared or not _is_class(whole):
        whole = name
    if whole in declared or given.get(whole) or given.get(name) or is_public(whole):
        return ""
    return f"if {whole} is an enum, give --type '{CLASS}{whole}=enum<...>' with its constants in their order"


def _is_class(name: str) -> bool:
    return all(map(_is_name, name.split(".")))


def _is_name(name: str) -> bool:
    return name.replace("$", "_").isidentifier()
