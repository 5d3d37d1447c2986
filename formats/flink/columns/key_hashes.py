"""Hash codes of columns of keys, for types whose hash code no class of a job defines.

These are the types of `statestore.formats.flink.columns.key_bytes.java_hash`, which has the rule for one key, and rows
of Flink SQL. A row may be of several classes, each with its own hash code: here it is that of ``BinaryRowData``, of
which the planner makes keys. Whoever uses it checks that keys lie where it puts them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.hashed_words import mixed_words
from statestore.formats.flink.columns.key_bytes import is_tuple_of_flink
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, RowDataOf, SpanOf, TupleOf
from statestore.formats.kernels.arrays import U32s
from statestore.formats.kernels.murmur3 import finished
from statestore.formats.values.key_groups import hash_codes

_AS_COLUMNS = ("string", "long", "int", "short", "byte", "boolean")
_FLOATS = ("float", "double")
_SIZE, _SEED = 4, 42  # int32 in front of a row; ``MurmurHashUtils.DEFAULT_SEED``


def has_java_hash(kind: FlinkType) -> bool:
    """Return whether `java_hashes` knows the hash codes of keys of a type, as it is in the file."""
    return isinstance(kind, RowDataOf) or _is_of_jdk(kind)


def hashed_as(kind: FlinkType) -> FlinkType:
    """The type of the column of keys that `java_hashes` takes: of rows of SQL their bytes."""
    return SpanOf(kind) if isinstance(kind, RowDataOf) else kind


def _is_of_jdk(kind: FlinkType) -> bool:
    if isinstance(kind, TupleOf):
        return is_tuple_of_flink(kind) and all(map(_is_of_jdk, kind.fields))
    return isinstance(kind, Basic) and not kind.class_name and kind.name in (*_AS_COLUMNS, *_FLOATS, "char")


def java_hashes(kind: FlinkType, column: pa.Array) -> U32s:
    """Java's ``hashCode`` of each key, none of which is null, as the bits of an int.

    ``kind`` is one of `has_java_hash`, and the column of type `hashed_as`.
    """
    if isinstance(kind, RowDataOf):
        rows = cells_of(column).cut(_SIZE)
        state = mixed_words(np.full(len(rows), _SEED, np.uint32), rows, np.arange(len(rows)))
        return finished(state, rows.size.astype(np.uint32))
    if isinstance(kind, TupleOf):
        codes = np.zeros(len(column), np.uint32)
        for number, each in enumerate(kind.fields):
            codes = codes * np.uint32(31) + java_hashes(each, pc.struct_field(column, [number]))
        return codes
    assert isinstance(kind, Basic)
    if kind.name in _FLOATS:
        return _of_floats(kind.name, column)
    return hash_codes(column)  # that of a char is that of a text of this one unit


def _of_floats(name: str, column: pa.Array) -> U32s:
    """The bits of each number, those of a double folded; all NaNs have the same."""
    numbers = column.to_numpy(zero_copy_only=False)
    if name == "float":
        bits: U32s = numbers.astype(np.float32).view(np.uint32).copy()
        bits[np.isnan(numbers)] = 0x7FC00000
        return bits
    words = numbers.astype(np.float64).view(np.uint64).copy()
    words[np.isnan(numbers)] = 0x7FF8000000000000
    folded: U32s = (words ^ (words >> np.uint64(32))).astype(np.uint32)
    return folded
