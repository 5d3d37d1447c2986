"""Hash codes of columns of keys, for types whose hash code no class of a job defines.

These are the types of `statestore.formats.flink.columns.key_bytes.java_hash`, which has the rule for one key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.flink.columns.key_bytes import is_tuple_of_flink
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, TupleOf
from statestore.formats.kernels.arrays import U32s
from statestore.formats.values.key_groups import hash_codes

_AS_COLUMNS = ("string", "long", "int", "short", "byte", "boolean")
_FLOATS = ("float", "double")


def has_java_hash(kind: FlinkType) -> bool:
    """Return whether `java_hashes` knows the hash codes of keys of a type, as it is in the file."""
    if isinstance(kind, TupleOf):
        return is_tuple_of_flink(kind) and all(map(has_java_hash, kind.fields))
    return isinstance(kind, Basic) and not kind.class_name and kind.name in (*_AS_COLUMNS, *_FLOATS, "char")


def java_hashes(kind: FlinkType, column: pa.Array) -> U32s:
    """Java's ``hashCode`` of each key, none of which is null, as the bits of an int; for types of `has_java_hash`."""
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
