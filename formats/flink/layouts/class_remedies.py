"""The options that read a value of Kryo with objects of a job's class.

A constant of an enum with a body is written under a class of its own, ``Color$1``. The values of an ``Enumeration`` of
Scala are written as the class of its object, ``Weekday$``, and their ID. An object of Scala that is a value itself, as
a ``case object``, is its own only constant.
"""

from __future__ import annotations

import re

from statestore.formats.flink.layouts import kryo_scala as scala
from statestore.formats.flink.layouts.class_declarations import CLASS, is_class_name
from statestore.formats.flink.layouts.kryo_classes import is_public
from statestore.formats.flink.serializers.flink_types import KryoOf

_BODY = re.compile(r"\$[0-9]+$")
_ARRAY = re.compile(r"\[+L(.+);")
_NEVER_OF_A_JOB = ("java.", "javax.", "jdk.", "sun.", "scala.")


def in_the_way(kind: KryoOf, name: str | None) -> tuple[str, ...]:
    """The classes of a job of which one may stand in the way of a value: that of a name, else those with numbers.

    None are told where the job gave serializers that may write them.
    """
    names = (name,) if name is not None else (kind.class_name, *(each for each, _ in kind.registrations))
    given = dict(kind.registrations)
    if kind.has_defaults:
        return ()
    found = dict.fromkeys(map(_element, names))
    return tuple(each for each in found if _is_of_a_job(each) and not given.get(each))


def remedy_for(kind: KryoOf, name: str | None) -> str:
    """The options to give where a class stands in the way; "" where they would not help.

    ``name`` is None where a number stood for the class: that of the serializer has one.
    """
    given = dict(kind.registrations)
    if name is None and kind.class_name in given:
        name = kind.class_name
    if kind.is_old and not kind.is_scala and (name in scala.NAMED or (name is None and _holds_scala(kind))):
        return "if the job has Flink's Scala API, give --classes with its jar, flink-scala of Flink's lib"
    if name is None or kind.has_defaults or not _is_of_a_job(_element(name)):
        return ""
    name = _element(name)
    declared = {each.name for each in kind.classes}
    if name.endswith("$"):
        own = re.split(r"[.$]", name[:-1])[-1]
        if name in declared or given.get(name) or not own:
            return ""
        return (
            f"if {name} is an object, give --type '{CLASS}{name}=enum<{own}>', and if it is an Enumeration, "
            f"'{CLASS}{name}=enum<...>' with its values in the order of their IDs from 0 on"
        )
    whole = _BODY.sub("", name)
    if whole in declared or not is_class_name(whole):
        whole = name
    if whole in declared or given.get(whole) or given.get(name) or is_public(whole):
        return ""
    return (
        f"give --classes with the job's jar, or declare it: --type '{CLASS}{whole}=class<...>' with its fields, as int "
        "qty, or =enum<...> with its constants"
    )


def _holds_scala(kind: KryoOf) -> bool:
    """Whether a class of the job that is known has a field of a class of Scala."""
    return any(field.type.name.startswith("scala.") for each in kind.classes for field in each.fields)


def _element(name: str) -> str:
    """The class of the elements of an array, or the class."""
    found = _ARRAY.fullmatch(name)
    return name if found is None else found[1]


def _is_of_a_job(name: str) -> bool:
    return is_class_name(name) and not name.startswith(_NEVER_OF_A_JOB)
