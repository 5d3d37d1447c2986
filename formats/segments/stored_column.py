"""A checked column of one record batch with the addresses of its buffers, from which compiled loops gather."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class StoredColumn(NamedTuple):
    """An array and where its bytes are, as long as somebody holds the array.

    ``validity`` is the address of its validity bits, 0 where no value is null. ``values`` is that of its values, or of
    the offsets of texts, whose bytes begin at ``text``. All are 0 for an array that begins inside its buffers, and for
    nested ones.
    """

    array: pa.Array
    validity: int
    values: int
    text: int
    text_bytes: int


def stored_column(array: pa.Array) -> StoredColumn:
    """Return a checked array with its addresses."""
    if array.offset or array.type.num_fields or not len(array):
        return StoredColumn(array, 0, 0, 0, 0)
    validity, values, *texts = array.buffers()
    text = texts[0] if texts else None
    return StoredColumn(
        array,
        validity.address if validity is not None and array.null_count else 0,
        values.address if values is not None else 0,
        text.address if text is not None else 0,
        text.size if text is not None else 0,
    )
