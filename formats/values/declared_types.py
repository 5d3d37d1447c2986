"""Types that an engine declares and Arrow does not have, kept beside the Arrow type in the metadata of the field.

A string with a collation is a ``string`` in Arrow, an interval of years and months an ``int32``. The field's metadata
has the engine's name of the type: ``statestore.type`` is ``string collate UTF8_LCASE`` or ``interval year to month``,
as Spark writes it. Fields inside structs, lists and maps have such metadata, too. Comparisons here go by the Arrow
type: texts are compared byte by byte, whatever the collation.
"""

from __future__ import annotations

import pyarrow as pa

DECLARED = b"statestore.type"
COLUMN_METADATA = b"SPARK::metadata::json"
"""Key of the metadata that a user gave a column in the engine, as JSON.

It is Spark's own key, which Spark passes on.
"""
_COLLATED = b"string collate "


def declared_type(field: pa.Field) -> str | None:
    """The engine's name of the field's type; None where the Arrow type is complete."""
    found = (field.metadata or {}).get(DECLARED)
    return None if found is None else found.decode(errors="replace")


def has_collation(field: pa.Field) -> bool:
    """Return whether the field is, or holds at any depth, a text that its engine does not compare byte by byte."""
    if (field.metadata or {}).get(DECLARED, b"").startswith(_COLLATED):
        return True
    kind = field.type
    return pa.types.is_nested(kind) and any(has_collation(kind.field(number)) for number in range(kind.num_fields))
