"""Whole columns of Kafka's bytes as Arrow and numpy, without a Python call per row.

Rows are binary columns without nulls unless said otherwise. CorruptError KAFKA_BYTES names the expected form of a cell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kafka_rows.byte_reader import corrupt
from statestore.formats.kafka_rows.serdes import FORMS, arrow_type_of, serde_name

Ints = npt.NDArray[np.int64]

MAX_CELL = 2**31 - 1
NUMBERS = {"Integer": ">i4", "Long": ">i8", "Short": ">i2", "Float": ">f4", "Double": ">f8"}
assert NUMBERS.keys() == FORMS.keys()


def deserialize_column(name: str, rows: pa.BinaryArray) -> pa.Array:
    """Deserialize a column to the type `arrow_type_of`; null cells stay null."""
    found, kind = serde_name(name), arrow_type_of(name)
    if found in NUMBERS:
        return _numbers(found, rows, kind)
    if found == "Boolean":
        return _booleans(rows)
    if found == "Void":
        if len(rows) > rows.null_count:
            raise corrupt("Void", f"found {len(rows) - rows.null_count} values, expected nulls")
        return pa.nulls(len(rows))
    return _text(found, rows) if kind == pa.string() else rows


def require_length(what: str, rows: pa.BinaryArray, size: int) -> None:
    """Check that each cell has at least ``size`` bytes."""
    shortest = pc.min(pc.binary_length(rows)).as_py() if len(rows) else size
    if shortest < size:
        raise corrupt(what, f"found {shortest} bytes, expected at least {size}")


def int_field(rows: pa.BinaryArray, at: int, form: str = ">i8") -> Ints:
    """The integer in each cell at byte ``at``, which counts from the end if negative. Cells must be long enough."""
    kind = np.dtype(form)
    data, begin, end = bounds(rows)
    positions = (begin if at >= 0 else end) + at
    cells: Ints = data[positions[:, None] + np.arange(kind.itemsize)].view(kind).reshape(-1).astype(np.int64)
    return cells


def cut(rows: pa.BinaryArray, front: int, back: int) -> pa.BinaryArray:
    """Each cell without its first ``front`` and last ``back`` bytes."""
    # Without a stop, pyarrow fails where cells are shorter than ``front`` + 1 bytes.
    return pc.binary_slice(rows, front, -back if back else MAX_CELL)


def bounds(rows: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """(all bytes, begin, end) of the cells."""
    if not len(rows):
        nothing = np.empty(0, np.int64)
        return np.empty(0, np.uint8), nothing, nothing
    offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1].astype(np.int64)
    data = rows.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), offsets[:-1], offsets[1:]


def _exactly(what: str, rows: pa.BinaryArray, size: int) -> tuple[pa.BinaryArray, npt.NDArray[np.bool_] | None]:
    """Return the rows with zeros for nulls, and which rows are null. Checks that each cell has ``size`` bytes."""
    missing = rows.is_null().to_numpy(zero_copy_only=False) if rows.null_count else None
    rows = rows.fill_null(bytes(size)) if rows.null_count else rows
    lengths = pc.min_max(pc.binary_length(rows)).as_py() if len(rows) else {"min": size, "max": size}
    if lengths["min"] != size or lengths["max"] != size:
        raise corrupt(what, f"found {lengths['min']} to {lengths['max']} bytes, expected {size}")
    return rows, missing


def _numbers(name: str, rows: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    form = np.dtype(NUMBERS[name])
    rows, missing = _exactly(name, rows, form.itemsize)
    data, begin, end = bounds(rows)
    cells = data[begin[0] : end[-1]].view(form) if len(rows) else np.empty(0, form)
    return pa.array(cells.astype(form.newbyteorder("=")), kind, mask=missing)


def _booleans(rows: pa.BinaryArray) -> pa.Array:
    rows, missing = _exactly("Boolean", rows, 1)
    data, begin, end = bounds(rows)
    cells = data[begin[0] : end[-1]] if len(rows) else data
    if (cells > 1).any():
        raise corrupt("Boolean", f"found byte {cells.max():02x}, expected 00 or 01")
    return pa.array(cells.astype(bool), pa.bool_(), mask=missing)


def _text(name: str, rows: pa.BinaryArray) -> pa.StringArray:
    try:
        found = rows.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise corrupt(name, f"found bytes that are not ({error}), expected UTF-8") from error
    if name == "UUID" and not _all_match(found, "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"):
        raise corrupt(name, "found text that is no UUID, expected 36 characters with four hyphens")
    return pc.utf8_lower(found) if name == "UUID" else found


def _all_match(texts: pa.StringArray, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False
