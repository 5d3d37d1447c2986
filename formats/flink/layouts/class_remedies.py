"""What a user can declare to read a value of Kryo with objects of a job's class.

A constant of an enum with a body is written under a class of its own, ``Color$1``.
"""

from __future__ import annotations

import re

from statestore.formats.flink.layouts.class_declarations import CLASS, is_class_name
from statestore.formats.flink.layouts.kryo_classes import is_public
from statestore.formats.flink.serializers.flink_types import KryoOf

_BODY = re.compile(r"\$[0-9]+$")
_NEVER_OF_A_JOB = ("java.", "javax.", "jdk.", "sun.", "scala.")


def remedy_for(kind: KryoOf, name: str | None) -> str:
    """The option to give where a class stands in the way; "" where it would not help.

    ``name`` is None where a number stood for the class: that of the serializer has one.
    """
    given = dict(kind.registrations)
    if name is None and kind.class_name in given:
        name = kind.class_name
    if name is None or kind.has_defaults or not is_class_name(name) or name.startswith(_NEVER_OF_A_JOB):
        return ""
    declared = {each.name for each in kind.classes}
    whole = _BODY.sub("", name)
    if whole in declared or not is_class_name(whole):
        whole = name
    if whole in declared or given.get(whole) or given.get(name) or is_public(whole):
        return ""
    return (
        f"declare it: --type '{CLASS}{whole}=class<...>' with its fields, as int qty, or =enum<...> with its constants"
    )
