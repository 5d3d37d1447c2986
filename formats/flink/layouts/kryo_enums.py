"""Enums of a job in values of Kryo, which writes a constant as its number: a user declares their constants.

A constant with a body is written under a class of its own, ``Color$1``, with the number that it has in ``Color``.
"""

from __future__ import annotations

import re

from statestore.formats.flink.layouts.kryo_classes import is_public
from statestore.formats.flink.serializers.flink_types import KryoOf

CLASS = "class:"
"""The word in front of a class that is declared, where the name of a state stands otherwise."""
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


def in_the_way(kind: KryoOf, name: str | None) -> tuple[str, ...]:
    """The classes of a job of which one may stand in the way of a value: that of a name, else those with numbers.

    None are told where the job gave serializers that may write them.
    """
    names = (name,) if name is not None else (kind.class_name, *(each for each, _ in kind.registrations))
    given = dict(kind.registrations)
    if kind.has_defaults:
        return ()
    return tuple(each for each in dict.fromkeys(names) if _is_of_a_job(each) and not given.get(each))


def remedy_for(kind: KryoOf, name: str | None) -> str:
    """The option to give if a class that stands in the way is an enum; "" where it would not help.

    ``name`` is None where a number stood for the class: that of the serializer has one.
    """
    given = dict(kind.registrations)
    if name is None and kind.class_name in given:
        name = kind.class_name
    if name is None or kind.has_defaults or not _is_of_a_job(name):
        return ""
    declared = dict(kind.enums)
    whole = _BODY.sub("", name)
    if whole in declared or not _is_class(whole):
        whole = name
    if whole in declared or given.get(whole) or given.get(name) or is_public(whole):
        return ""
    return (
        f"give --classes with the job's jar; or, if {whole} is an enum, give --type '{CLASS}{whole}=enum<...>' with "
        "its constants in their order"
    )


def _is_of_a_job(name: str) -> bool:
    return _is_class(name) and not name.startswith(_NEVER_OF_A_JOB)


def _is_class(name: str) -> bool:
    return all(map(_is_name, name.split(".")))


def _is_name(name: str) -> bool:
    return name.replace("$", "_").isidentifier()
