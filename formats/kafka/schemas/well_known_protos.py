"""Files of Protobuf that a schema may import without having them: those of Google, and of Confluent's registry.

Each is written as short as its layout allows. A file that comes with a schema counts in place of the one here.
"""

from __future__ import annotations

_GOOGLE = "google/protobuf/"
_TYPE = "google/type/"
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_MONTHS = (
    "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER",
    "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
)


def _named(name: str, unknown: str, symbols: str) -> str:
    values = " ".join(f"{symbol} = {number};" for number, symbol in enumerate((unknown, *symbols.split())))
    return f"enum {name} {{ {values} }}"


_SHORT = {
    f"{_GOOGLE}any.proto": "message Any { string type_url = 1; bytes value = 2; }",
    f"{_GOOGLE}duration.proto": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    f"{_GOOGLE}empty.proto": "message Empty {}",
    f"{_GOOGLE}field_mask.proto": "message FieldMask { repeated string paths = 1; }",
    f"{_GOOGLE}source_context.proto": "message SourceContext { string file_name = 1; }",
    f"{_GOOGLE}struct.proto": """
        message Struct { map<string, Value> fields = 1; }
        message Value {
          oneof kind {
            NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
            Struct struct_value = 5; ListValue list_value = 6;
          }
        }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
    f"{_GOOGLE}timestamp.proto": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    f"{_GOOGLE}wrappers.proto": " ".join(f"message {name}Value {{ {name.lower()} value = 1; }}" for name in _WRAPPED),
    f"{_TYPE}date.proto": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    f"{_TYPE}dayofweek.proto": _named("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", _MONTHS[1]),
    f"{_TYPE}decimal.proto": "message Decimal { string value = 1; }",
    f"{_TYPE}fraction.proto": "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    f"{_TYPE}latlng.proto": "message LatLng { double latitude = 1; double longitude = 2; }",
    f"{_TYPE}money.proto": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    f"{_TYPE}month.proto": _named("Month", "MONTH_UNSPECIFIED", _MONTHS[0]),
    f"{_TYPE}timeofday.proto": (
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
    "confluent/meta.proto": (
        "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }"
    ),
    "confluent/type/decimal.proto": "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
}
_PACKAGES = {"confluent/meta.proto": "confluent", "confluent/type/decimal.proto": "confluent.type"}

WELL_KNOWN = {
    path: f'syntax = "proto3"; package {_PACKAGES.get(path, path.rpartition("/")[0].replace("/", "."))}; {text}'
    for path, text in _SHORT.items()
}
"""Texts by the path with which they are imported."""
