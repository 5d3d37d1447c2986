"""The error of readers of stored rows for bytes that are not a row."""

from __future__ import annotations

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError


def corrupt(found: str) -> CorruptError:
    """The error for damaged bytes; ``found`` names what was found and what was expected."""
    return CorruptError(
        ErrorCode.ROW_CORRUPT, f"a stored row cannot be read: {found}; remove the hot tier, it is made anew"
    )
