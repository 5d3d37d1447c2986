"""Values that only coders of PyFlink write behind a length: decimals as text, pickles, and texts that are plain."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.flink.columns.faults import Wrong, refuse
from statestore.formats.flink.columns.text_columns import utf8

_MOST_DIGITS = 6200  # Python writes 6,144 digits and an exponent at most in its widest usual context
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]{1,6})?$"
_CONTROL = r"[\x00-\x1f\x7f]"
_PICKLE, _PROTOCOLS, _STOP = 0x80, 5, ord(".")


def decimals_of_text(cells: Cells, column: pa.Decimal128Type) -> pa.Array:
    """Decimals of the text that ``str`` of Python makes of them.

    Raises Wrong for other text, and for a number of more digits than the column's type has, before or behind the point.
    """
    refuse((cells.size < 1) | (cells.size > _MOST_DIGITS), "a decimal of another size", "text of a number")
    texts = utf8(cells)
    other = pc.invert(pc.match_substring_regex(texts, _DECIMAL))
    refuse(other.to_numpy(zero_copy_only=False), "text that is no decimal number", "digits")
    try:
        return texts.cast(column)
    except pa.ArrowInvalid:
        raise Wrong(
            "a number that does not fit the decimal", f"at most {column.precision} digits, {column.scale} of a fraction"
        ) from None


def pickles(cells: Cells) -> pa.Array:
    """Pickles as they are. Raises Wrong for bytes that do not begin and end as a pickle does."""
    refuse(cells.size < 3, "bytes that are no pickle", "at least 3")
    last = gather(cells.data, cells.start + cells.size - 1, "u1")
    protocol = gather(cells.data, cells.start + 1, "u1")
    wrong = (cells.first_bytes() != _PICKLE) | (protocol > _PROTOCOLS) | (last != _STOP)
    refuse(wrong, "bytes that are no pickle", "80 and the protocol in front, 2e at the end")
    return cells.binary()


def plain_text(cells: Cells) -> pa.Array:
    """Texts of at least one character, none of control. Raises Wrong for others."""
    expected = "text, or a type that is given for it"
    refuse(cells.size < 1, "bytes that may be an empty text or something else", expected)
    texts = utf8(cells)
    control = np.asarray(pc.match_substring_regex(texts, _CONTROL))
    refuse(control, "bytes that may be text with characters of control or something else", expected)
    return texts
