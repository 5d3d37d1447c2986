"""Types that an engine declares and Arrow does not have, kept beside the Arrow type in the metadata of the field.

A string with a collation is a ``string`` to Arrow, an interval of years and months an ``int32``. The field says what
the engine calls it: ``statestore.type`` is ``string collate UTF8_LCASE`` or ``interval year to month``, as Spark writes
it. Fields inside structs, lists and maps have such metadata, too. Comparisons here go by the Arrow type: of texts byte
by byte, whatever the collation.
"""

from __future__ import annotations

import pyarrow as pa

DECLARED = b"statestore.type"
COLUMN_METADATA = b"SPARK::metadata::json"
"""Key of what a user stated of a column in the engine, as JSON: Spark's own key, which it passes on."""
_COLLATED = b"string collate "


def declared_type(field: pa.Field) -> str | None:
    """What the engine calls the type of the field, None where the Arrow type says all."""
    found = (field.metadata or {}).get(DECLARED)
    return None if found is None else found.decode(errors="replace")


def has_collation(field: pa.Field) -> bool:
    """Whether the field is, or holds at any depth, a text that its engine does not compare byte by byte."""
    if (field.metadata or {}).get(DECLARED, b"").startswith(_COLLATED):
        return True
    kind = field.type
    return pa.types.is_nested(kind) and any(has_collation(kind.field(number)) for number in range(kind.num_fields))
