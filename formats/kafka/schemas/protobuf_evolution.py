"""A check that bytes of a message mean the same by a later or earlier message of that name.

Protobuf reads any bytes by any message: what does not fit is skipped or cut, and then a value is lost or another one.
A reader may have more fields or fewer, other names, and types with more room; what else differs is refused, so that
nobody takes such values for those that were written.
"""

from __future__ import annotations

from statestore.formats.kafka.schemas.protobuf_schema import ProtoField, ProtoMessage

_WIDER = {
    "bool": {"int32", "int64", "uint32", "uint64"},
    "enum": {"int32", "int64"},
    "int32": {"int64", "enum"},
    "uint32": {"uint64", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
}
"""The other types by which values of a type are the same."""


def difference(writer: ProtoMessage, reader: ProtoMessage) -> str | None:
    """Return words for what the writer's values cannot be by the reader; None where all can."""
    waiting, seen = [(writer, reader)], set()
    while waiting:
        ours, theirs = waiting.pop()
        if (ours.name, theirs.name) in seen:
            continue
        seen.add((ours.name, theirs.name))
        fields = {each.number: each for each in theirs.fields}
        for field in ours.fields:
            other = fields.get(field.number)
            if other is None:
                continue
            if not _fits(field, other):
                return (
                    f"field {field.number} of message {theirs.name} is {_shown(other)} {other.name}, and was written "
                    f"as {_shown(field)} {field.name}"
                )
            if field.message is not None and other.message is not None:
                waiting.append((field.message, other.message))
    return None


def _fits(field: ProtoField, other: ProtoField) -> bool:
    shapes = field.shape == other.shape or (field.shape == "one" and other.shape == "list")
    if other.form == "enum" and other.closed and field.form != "enum":
        return False  # a number without a name would be left out
    return shapes and (field.form == other.form or other.form in _WIDER.get(field.form, ()))


def _shown(field: ProtoField) -> str:
    return {"one": "", "list": "repeated ", "map": "map "}[field.shape] + field.form
