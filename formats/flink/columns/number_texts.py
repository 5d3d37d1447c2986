"""Java's BigInteger and BigDecimal as text, exactly as their ``toString`` writes them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import gather
from statestore.formats.kernels.arrays import Bytes, Ints

_FIELD = 4  # the length field of n bytes is n + 4; 1, 2, 3 are the numbers 0, 1, 10
_SMALL = (0, 0, 1, 10)
_LEAST_EXPONENT = -6
_WORD = 8


def number_texts(data: Bytes, start: Ints, field: Ints, scaled: bool) -> pa.Array:
    """The texts of numbers whose bytes begin at ``start`` behind the length field; 0 is null."""
    missing = field == 0
    size = np.maximum(field - _FIELD, 0)
    digits = _digits(data, start, field, size)
    if not scaled:
        return pa.array(digits, pa.string(), mask=missing)
    scale = gather(data, np.where(missing, 0, start + size), ">i4").tolist()
    texts = [_scaled(text, each) for text, each in zip(digits, scale, strict=True)]
    return pa.array(texts, pa.string(), mask=missing)


def _digits(data: Bytes, start: Ints, field: Ints, size: Ints) -> list[str]:
    short = size <= _WORD
    values = np.zeros(len(start), np.int64)
    for small in (2, 3):
        values[field == small] = _SMALL[small]
    for width in range(1, _WORD + 1):
        mine = np.flatnonzero(size == width)
        if len(mine):
            first = gather(data, start[mine], "i1").astype(np.int64)
            for place in range(1, width):
                first = (first << 8) | gather(data, start[mine] + place, "u1").astype(np.int64)
            values[mine] = first
    texts: list[str] = pa.array(values).cast(pa.string()).to_pylist()
    for number in np.flatnonzero(~short).tolist():
        at, length = int(start[number]), int(size[number])
        whole = int.from_bytes(data[at : at + length].tobytes(), "big", signed=True)
        texts[number] = f"{Decimal(whole):f}"  # str() of an int refuses long ones
    return texts


def _scaled(text: str, scale: int) -> str:
    """``BigDecimal.toString``: plain if the scale is not negative and the exponent at least -6."""
    if not scale:
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    exponent = len(digits) - 1 - scale
    if scale > 0 and exponent >= _LEAST_EXPONENT:
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}" + (f"E{exponent:+d}" if exponent else "")
