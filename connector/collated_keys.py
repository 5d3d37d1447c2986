"""Refusal of keys with a collation: their engine does not compare them byte by byte, but joins and keyed state here
do."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.declared_types import has_collation
from statestore.formats.values.types import shown_field


def check_not_collated(schema: pa.Schema, names: Iterable[str]) -> None:
    """Raise UnsupportedError COLLATED_KEY for a column among ``names`` in which texts with different bytes can be
    equal."""
    for name in names:
        index = schema.get_field_index(name)
        if index >= 0 and has_collation(schema.field(index)):
            raise collated_key(name, shown_field(schema.field(index)))


def collated_key(column: str, kind: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.COLLATED_KEY,
        f"column {column!r} is {kind}, and keys are compared byte by byte: keys that are equal by the collation would "
        "stay apart; make it a plain string, for instance with lower(…) or collate(…, 'UTF8_BINARY')",
    )
