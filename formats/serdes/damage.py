"""What readers of stored rows say of bytes that are no row."""

from __future__ import annotations

from statestore.formats.errors import CorruptError


def corrupt(found: str) -> CorruptError:
    """``found`` says what was found and what was expected."""
    return CorruptError("ROW_CORRUPT", f"a stored row cannot be read: {found}; remove the hot tier, it is made anew")
