"""Types that a user gives for states of PyFlink, whose snapshots do not say what its coders wrote.

An operator of PyFlink keeps its keyed and broadcast state in the state backend of Java, as byte arrays under the name
``python-state-NAME``. A value, reducing or aggregating state is a list with one element there. Each byte array of a
list has the elements that one bundle added, one after another. Source: ``BeamKeyedStateStore`` of Flink,
``pyflink.fn_execution.coders.from_type_info`` and ``coder_impl_slow``.
"""

from __future__ import annotations

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    Basic,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    PrimitiveArray,
    PythonBytes,
    PythonLeaf,
    PythonValue,
    RowOf,
    TableValue,
    TupleOf,
)
from statestore.formats.values.types import parse_type

PREFIX = "python-state-"
_WINDOW = "struct<start: bigint not null, end: bigint not null>"
OWN_STATES = {
    "merging-window-set": f"map<{_WINDOW}, {_WINDOW}>",
    "tumble-count-assigner": "bigint",
    "accumulators": "pickle",
    "window_state": "pickle",
}
"""Types of states that PyFlink keeps for itself, by their names. A job may call one of its own so."""
_PICKLE, _TIME = pa.large_binary(), pa.time32("ms")
_MILLIS, _LOCAL_MILLIS = pa.timestamp("ms", tz="UTC"), pa.timestamp("ms")
_NANOS, _LOCAL_NANOS = pa.timestamp("ns", tz="UTC"), pa.timestamp("ns")
_COMPACT, _MICRO = 3, 6
_WORDS: dict[str, pa.DataType] = {
    "pickle": _PICKLE,
    "time": _TIME,
    **{f"timestamp({digits})": _MILLIS if digits <= _COMPACT else _NANOS for digits in range(10)},
    **{f"timestamp_ntz({digits})": _LOCAL_MILLIS if digits <= _COMPACT else _LOCAL_NANOS for digits in range(10)},
}
"""Further words of types, in lower case; ``timestamp_ltz`` is ``timestamp``. No other word gives one of these."""
_TEXT = TableValue(Logical("STRING"))
_LEAVES: dict[pa.DataType, FlinkType] = {
    pa.string(): _TEXT,
    pa.binary(): PrimitiveArray("byte"),
    pa.bool_(): Basic("boolean"),
    pa.int8(): Basic("byte"),
    pa.int16(): Basic("short"),
    pa.int32(): Basic("int"),
    pa.int64(): Basic("long"),
    pa.float32(): Basic("float"),
    pa.float64(): Basic("double"),
    pa.date32(): PythonLeaf("date", pa.date32()),
    _TIME: PythonLeaf("time", _TIME),
    _PICKLE: PythonLeaf("pickle", pa.binary()),
    pa.timestamp("us", tz="UTC"): Basic("instant"),
    pa.timestamp("us"): TableValue(Logical("TIMESTAMP", _COMPACT)),
    _MILLIS: TableValue(Logical("TIMESTAMP_LTZ", _COMPACT)),
    _LOCAL_MILLIS: TableValue(Logical("TIMESTAMP", _COMPACT)),
    _NANOS: TableValue(Logical("TIMESTAMP_LTZ", _MICRO)),
    _LOCAL_NANOS: TableValue(Logical("TIMESTAMP", _MICRO)),
}
_PRIMITIVES = frozenset({"boolean", "short", "int", "long", "float", "double"})
DEFAULT_MAP_KEY = PythonValue(PythonLeaf("plain_text", pa.string()))
"""The keys of a map state of which a user gave the type of the values alone."""


def of_state(name: str, kind: FlinkType) -> FlinkType:
    """The type of values in a state, by its stored name: byte arrays are PyFlink's where the name has its prefix."""
    is_python = name.startswith(PREFIX) and kind == PrimitiveArray("byte")
    return PythonBytes() if is_python else kind


def python_value(text: str) -> PythonValue:
    """The type of a value that a coder of PyFlink wrote, from the type that a user gave.

    ``struct<a: string, n: int>`` is a Row, and a tuple where each field is ``not null``: ``struct<f0: string not null,
    f1: int not null>``. ``array<int>`` is a list or an array of objects, ``array<int not null>`` a primitive array.
    ``timestamp`` is an Instant, ``timestamp_ntz`` a SQL timestamp, ``timestamp_ltz(3)`` and ``timestamp_ntz(6)`` those
    of SQL with a precision, ``decimal`` the text of a number, ``pickle`` the bytes of a pickle.
    Raises InvalidInputError FLINK_TYPE.
    """
    return PythonValue(_coded(_parsed(text)))


def python_entry(text: str) -> tuple[PythonValue, PythonValue] | None:
    """The types of keys and values of a map state, if the type is a map; None if it is another type.

    Raises as `python_value`.
    """
    declared = _parsed(text)
    if not pa.types.is_map(declared):
        return None
    return PythonValue(_coded(declared.key_type)), PythonValue(_coded(declared.item_type))


def _parsed(text: str) -> pa.DataType:
    try:
        return parse_type(text, _WORDS, not_null=True)
    except UnsupportedError as error:
        raise InvalidInputError(ErrorCode.FLINK_TYPE, error.message) from None


def _coded(declared: pa.DataType) -> FlinkType:
    if declared in _LEAVES:
        return _LEAVES[declared]
    if pa.types.is_decimal(declared):
        return PythonLeaf("decimal", declared)
    if pa.types.is_list(declared):
        element = _coded(declared.value_type)
        if declared.value_field.nullable:
            return ArrayOf(element)
        if element == Basic("byte"):
            raise _refused("array<tinyint not null>, which PyFlink writes as bytes; give binary")
        if isinstance(element, Basic) and element.name in _PRIMITIVES:
            return PrimitiveArray(element.name)
        return ListOf(element)
    if pa.types.is_map(declared):
        return MapOf(_coded(declared.key_type), _coded(declared.item_type))
    if pa.types.is_struct(declared):
        return _fields(declared)
    raise _refused(f"{declared}, which no coder of PyFlink writes")


def _fields(declared: pa.StructType) -> FlinkType:
    names = tuple(field.name for field in declared)
    if not names or "" in names or len({name.lower() for name in names}) < len(names):
        raise _refused(f"fields {', '.join(map(repr, names)) or 'none'}; expected names that differ, also without case")
    fields = tuple(_coded(field.type) for field in declared)
    strict = {not field.nullable for field in declared}
    if strict == {True}:
        return TupleOf(fields, names)
    if strict == {False}:
        return RowOf(fields, True, names)
    raise _refused("a struct of which only some fields are not null; expected all, for a tuple, or none, for a Row")


def _refused(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.FLINK_TYPE, f"type for a value of PyFlink: found {found}")
