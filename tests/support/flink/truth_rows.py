"""Rows of a Flink state in the form of the truth that a job recorded, cell by cell.

The jobs wrote a JSON line for each (operator, state, key, namespace). This gives the same lines from columns, by the
types that were recovered from the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.layouts.type_layouts import has_column
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    KryoOf,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    PrimitiveArray,
    RawOf,
    RowDataOf,
    RowOf,
    StringArray,
    TableValue,
    TupleOf,
    UnionOf,
    is_absent,
)
from statestore.formats.flink.streams.operator_rows import OperatorForm
from statestore.formats.flink.streams.state_form import KeyedForm

_NOTHING = pa.scalar(None)
Line = tuple[str, str]
"""(key and namespace, value), both as JSON."""


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def lines_of(form: KeyedForm | OperatorForm, rows: pa.Table) -> dict[str, str]:
    """The lines of a state: from key and namespace to the value, as JSON. Timers have no value."""
    if isinstance(form, OperatorForm):
        return _elements(form, rows)
    keys = [cell(form.key, each) for each in rows["key"]]
    spaces = [cell(form.namespace, each) for each in rows["namespace"]] if form.has_namespace else [None] * len(rows)
    if form.kind == "timers":
        times = rows["timestamp_ms"].to_pylist()
        return {as_json([key, space, time]): "" for key, space, time in zip(keys, spaces, times, strict=True)}
    found: dict[str, Any] = {}
    if form.kind == "map":
        assert form.map_key is not None
        for row, (key, space) in enumerate(zip(keys, spaces, strict=True)):
            value = cell(form.element, rows["map_value"][row]) if form.has_value else None
            entry = [cell(form.map_key, rows["map_key"][row]), value]
            found.setdefault(as_json([key, space]), []).append(entry)
        return {key: as_json(sorted(entries, key=lambda entry: _text(entry[0]))) for key, entries in found.items()}
    values = [cell(form.element, each) for each in rows["value"]] if form.has_value else [None] * len(rows)
    if form.kind == "list" and not form.whole:
        positions = rows["position"].to_pylist()
        for key, space, position, value in sorted(
            zip(keys, spaces, positions, values, strict=True), key=lambda each: each[2]
        ):
            listed = found.setdefault(as_json([key, space]), [])
            assert len(listed) == position
            listed.append(value)
        return {key: as_json(listed) for key, listed in found.items()}
    lines = {as_json([key, space]): as_json(value) for key, space, value in zip(keys, spaces, values, strict=True)}
    assert len(lines) == len(rows)
    return lines


def lines_of_truth(truth: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The lines that a job recorded for one state, in the form of `lines_of`."""
    found: dict[str, str] = {}
    for line in truth:
        key = [line["key"], line["namespace"]]
        if line["kind"] == "timer":
            found[as_json([*key, line["value"]])] = ""
            continue
        value = line["value"]
        if line["kind"] in ("map", "broadcast"):
            value = sorted(value, key=lambda entry: _text(entry[0]))
        if line["kind"] == "broadcast":  # each subtask has the whole map; it is shown once
            assert found.setdefault("broadcast", as_json(value)) == as_json(value)
            continue
        found[as_json(key)] = as_json(value)
    return found


def _elements(form: OperatorForm, rows: pa.Table) -> dict[str, str]:
    if form.key is not None:
        values = rows["map_value"] if has_column(form.value) else [_NOTHING] * len(rows)
        entries = [
            [cell(form.key, key), cell(form.value, value)] for key, value in zip(rows["map_key"], values, strict=True)
        ]
        return {"broadcast": as_json(sorted(entries, key=lambda entry: _text(entry[0])))}
    found: dict[str, Any] = {}
    values = rows["value"] if has_column(form.value) else [_NOTHING] * len(rows)
    for subtask, value in zip(rows["subtask"].to_pylist(), values, strict=True):
        found.setdefault(as_json([subtask, None]), []).append(cell(form.value, value))
    return {key: as_json(values) for key, values in found.items()}


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def cell(kind: FlinkType, value: pa.Scalar) -> Any:
    """A cell as the jobs wrote it."""
    if isinstance(kind, KryoOf):
        return _by_column(value)
    if isinstance(kind, Opaque):
        return "opaque"
    if not value.is_valid:
        return None
    if isinstance(kind, (Nullable, OptionOf, RawOf)):
        return cell(kind.value, value)
    if isinstance(kind, Basic):
        return _basic(kind.name, value)
    if isinstance(kind, PrimitiveArray):
        if kind.element == "char":
            return list(value.as_py())
        return {"$bytes": value.as_py().hex()} if kind.element == "byte" else value.as_py()
    if isinstance(kind, (ListOf, ArrayOf, MaskedListOf)):
        items = [cell(kind.element, each) for each in value.values]
        return {"$set": sorted(items, key=_text)} if isinstance(kind, ListOf) and kind.is_set else items
    if isinstance(kind, StringArray):
        return value.as_py()
    if isinstance(kind, MapOf):
        return _map(kind.key, kind.value, value)
    if isinstance(kind, (TupleOf, RowOf)):
        parts = iter(value.values())  # void fields have no column
        return [cell(each, next(parts)) if has_column(each) else None for each in kind.fields]
    if isinstance(kind, PojoOf):
        return _pojo(kind, value)
    if isinstance(kind, EnumOf):
        return value.as_py()
    if isinstance(kind, EitherOf):
        if value["left"].is_valid:
            return {"left": cell(kind.left, value["left"])}
        return {"right": cell(kind.right, value["right"])}
    if isinstance(kind, RowDataOf):
        return logical(kind.row, value)
    if isinstance(kind, TableValue):
        return logical(kind.kind, value)
    if isinstance(kind, AvroOf):
        return _avro(json.loads(kind.schema), value, {})
    if isinstance(kind, UnionOf):
        _, name, case = next(each for each in kind.cases if value[each[1]].is_valid)
        return cell(case, value[name])
    raise AssertionError(kind)


def _by_column(value: pa.Scalar) -> Any:
    """A value of Kryo, whose column alone says what it is."""
    if pa.types.is_map(value.type) and value.is_valid:
        return {"$map": [[_by_column(each["key"]), _by_column(each["value"])] for each in value.values]}
    return value.as_py()


def _pojo(kind: PojoOf, value: pa.Scalar) -> Any:
    found = {name: cell(each, value[name]) if has_column(each) else None for name, each in kind.fields}
    for _, subclass in (*kind.registered, *kind.unregistered):
        if isinstance(subclass, PojoOf):
            for name, each in subclass.fields:
                if name not in found and value[name].is_valid:
                    found[name] = cell(each, value[name])
    return found


def _map(key: FlinkType, item: FlinkType, value: pa.Scalar) -> Any:
    entries = [[cell(key, each["key"]), cell(item, each["value"])] for each in value.values]
    return {"$map": sorted(entries, key=lambda entry: _text(entry[0]))}


def _basic(name: str, value: pa.Scalar) -> Any:
    if name == "time_window":
        return {each: value[each].value // 1000 for each in ("start", "end")}
    if name in ("date", "sql_date", "sql_time"):
        return {"$millis": value.value // 1000}
    if name == "sql_timestamp":
        return {"$millis": value.value // 1_000_000, "$nanos": value.value % 1_000_000_000}
    if name in ("instant", "local_date_time"):
        return _moment(value.value, "Z" if name == "instant" else "")
    if name == "local_time":
        return _clock(value.value)
    if name == "local_date":
        return _day(value.value)
    found = value.as_py()
    return _float(found) if isinstance(found, float) else found


def _day(days: int) -> str:
    """A date as Java's ``toString`` has it: at least four digits of a year."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    number = int(year)
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{sign}{abs(number):04d}-{month}-{day}"


def _float(found: float) -> Any:
    if found != found or found in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(found)]
    return found


def _moment(nanos: int, zone: str) -> str:
    date = _day(nanos // 86_400_000_000_000)
    return f"{date}T{_clock(nanos % 86_400_000_000_000, bool(zone))}{zone}"


def _clock(nanos: int, seconds: bool = False) -> str:
    """A time of day as Java's ``toString`` has it: without seconds of 0, with 3, 6 or 9 digits of a second."""
    second, part = divmod(nanos, 1_000_000_000)
    text = f"{second // 3600:02d}:{second // 60 % 60:02d}"
    if second % 60 or part or seconds:
        text += f":{second % 60:02d}"
    if part:
        digits = f"{part:09d}"
        text += "." + (digits[:3] if digits[3:] == "000000" else digits[:6] if digits[6:] == "000" else digits)
    return text


def logical(kind: Logical, value: pa.Scalar) -> Any:
    """A cell of Flink SQL."""
    if not value.is_valid:
        return None
    if kind.root == "ROW":
        present = [each for each in kind.children if not is_absent(each)]
        return [logical(each, value[number]) for number, each in enumerate(present)]
    if kind.raw:
        return cell(kind.raw[0], value)
    if kind.root == "ARRAY":
        return [logical(kind.children[0], each) for each in value.values]
    if kind.root in ("MAP", "MULTISET"):
        item = kind.children[1] if kind.root == "MAP" else Logical("INTEGER")
        entries = [[logical(kind.children[0], each["key"]), logical(item, each["value"])] for each in value.values]
        return {"$map": sorted(entries, key=lambda entry: _text(entry[0]))}
    if kind.root == "BYTES":
        return {"$bytes": value.as_py().hex()}
    if kind.root == "DECIMAL":
        return format(value.as_py(), "f")
    if kind.root == "DATE":
        return _day(value.value)
    if kind.root == "TIME":
        return _clock(value.value * (1000 if value.type.unit == "us" else 1))
    if kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        nanos = value.value * (1000 if value.type.unit == "us" else 1)
        return _moment(nanos, "Z" if kind.root == "TIMESTAMP_LTZ" else "")
    if kind.root == "DAY_TIME":
        return value.value // {"ms": 1, "us": 1000}[value.type.unit]
    found = value.as_py()
    return _float(found) if isinstance(found, float) else found


def _avro(schema: Any, value: pa.Scalar, known: dict[str, Any]) -> Any:
    """A cell by its Avro schema: of a union, which is a struct of its branches, the value of the one that it has.

    ``known`` are the named types that were met before.
    """
    if not value.is_valid:
        return None
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        if len(branches) == 1:
            return _avro(branches[0], value, known)
        found = [_avro(each, value[number], known) for number, each in enumerate(branches) if value[number].is_valid]
        (one,) = found
        return one
    if isinstance(schema, str) and schema in known and known[schema]["type"] == "record":
        record = known[schema]
        return _avro(record, _inner(record, value) if pa.types.is_binary(value.type) else value, known)
    if isinstance(schema, str):
        return _avro(known[schema], value, known) if schema in known else _plain(value)
    if "name" in schema:
        known[schema["name"]] = known[f"{schema.get('namespace')}.{schema['name']}"] = schema
    kind = schema["type"]
    if kind == "record":
        return {each["name"]: _avro(each["type"], value[each["name"]], known) for each in schema["fields"]}
    if kind == "array":
        return [_avro(schema["items"], each, known) for each in value.values]
    if kind == "map":
        entries = [[each["key"].as_py(), _avro(schema["values"], each["value"], known)] for each in value.values]
        return {"$map": sorted(entries, key=lambda entry: _text(entry[0]))}
    return _avro(kind, value, known) if isinstance(kind, (dict, list)) else _plain(value)


def _inner(schema: dict[str, Any], value: pa.Scalar) -> pa.Scalar:
    """A record inside of itself, which is shown as its bytes."""
    cells = cells_of(pa.array([value.as_py()], pa.binary()))
    (column,) = decode_cells([AvroOf("", json.dumps(schema))], cells, [True], "a record inside of itself")
    assert column is not None
    return column[0]


def _plain(value: pa.Scalar) -> Any:
    """A cell by its Arrow type alone."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return {"$bytes": value.as_py().hex()}
    if pa.types.is_decimal(kind):
        return format(value.as_py(), "f")
    if pa.types.is_date(kind):
        return _day(value.value)
    if pa.types.is_timestamp(kind):
        scale = {"ms": 1_000_000, "us": 1000, "ns": 1}[kind.unit]
        return _moment(value.value * scale, "Z" if kind.tz else "")
    if pa.types.is_time(kind):
        return _clock(value.value * {"ms": 1_000_000, "us": 1000, "ns": 1}[kind.unit])
    found = value.as_py()
    return _float(found) if isinstance(found, float) else found
