"""Headers of keyed backends: those that Flink wrote against what its jobs counted, and some written by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from support.flink.fixtures import NAMES, truth
from support.flink.headers import HeaderBytes, keyed_headers
from support.flink.metadata_bytes import i32, utf
from support.flink.snapshot_bytes import LONG, STRING, VOID, header, listed, mapped, state
from support.parameters import mostly_slow, named

from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.flink.serializers.backend_header import UNKNOWN_MAP_KEY, BackendHeader, read_backend_header
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    Basic,
    EnumOf,
    FlinkType,
    KryoOf,
    ListOf,
    Logical,
    MapOf,
    Nullable,
    Opaque,
    PojoOf,
    PrimitiveArray,
    RowDataOf,
    RowOf,
    StringArray,
    TimerOf,
    TtlOf,
    TupleOf,
)
from statestore.formats.flink.snapshot.operator_ids import operator_id

TEXTS = {"string", "char", "biginteger", "bigdecimal", "local_date", "local_time", "local_date_time", "instant"}
MILLIS = {"date", "sql_date", "sql_time", "sql_timestamp"}
recorded = cache(truth)
INTEGERS = {"long": 63, "int": 31, "short": 15, "byte": 7}


def fits(kind: FlinkType, value: Any) -> bool:
    """Whether a value, as the jobs wrote it down, can be one of a type."""
    if isinstance(kind, Nullable):
        return value is None or fits(kind.value, value)
    if isinstance(kind, TtlOf):
        return fits(kind.value, value)
    if isinstance(kind, Opaque):
        return True
    if isinstance(kind, Basic):
        return fits_basic(kind.name, value)
    if isinstance(kind, PrimitiveArray):
        return "$bytes" in value if kind.element == "byte" else all(fits(Basic(kind.element), each) for each in value)
    if isinstance(kind, StringArray):
        return all(each is None or isinstance(each, str) for each in value)
    if isinstance(kind, ListOf):
        return isinstance(value, list) and all(fits(kind.element, each) for each in value)
    if isinstance(kind, ArrayOf):
        return all(each is None or fits(kind.element, each) for each in value)
    if isinstance(kind, MapOf):
        pairs = value["$map"] if isinstance(value, dict) else value
        return all(fits(kind.key, key) and (each is None or fits(kind.value, each)) for key, each in pairs)
    if isinstance(kind, (TupleOf, RowOf)):
        nulls = isinstance(kind, RowOf)
        return len(kind.fields) == len(value) and all(
            (nulls and each is None) or fits(field, each) for field, each in zip(kind.fields, value, strict=True)
        )
    if isinstance(kind, EnumOf):
        return value in kind.constants
    if isinstance(kind, PojoOf):
        return fits_pojo(kind, value)
    if isinstance(kind, RowDataOf):
        return fits_logical(kind.row, value)
    raise AssertionError(kind)


def fits_basic(name: str, value: Any) -> bool:
    if name in INTEGERS:
        return type(value) is int and -(1 << INTEGERS[name]) <= value < 1 << INTEGERS[name]
    if name in TEXTS:
        return isinstance(value, str)
    if name in MILLIS:
        return "$millis" in value and (name == "sql_timestamp") == ("$nanos" in value)
    if name == "time_window":
        return set(value) == {"start", "end"}
    if name in ("float", "double"):
        return isinstance(value, float)
    return (name == "boolean" and isinstance(value, bool)) or (name == "void" and value is None)


def fits_pojo(kind: PojoOf, value: dict[str, Any]) -> bool:
    known = dict(kind.fields)
    for _, other in kind.unregistered:
        known |= dict(other.fields) if isinstance(other, PojoOf) else {}
    own = {name for name, _ in kind.fields} <= set(value)
    return own and all(each is None or name not in known or fits(known[name], each) for name, each in value.items())


def fits_logical(kind: Logical, value: Any) -> bool:
    if value is None:
        return True
    if kind.root == "ROW":
        return len(kind.children) == len(value) and all(map(fits_logical, kind.children, value))
    python: dict[str, type] = {"BIGINT": int, "DOUBLE": float, "BOOLEAN": bool, "STRING": str, "DECIMAL": str}
    return type(value) is python[kind.root]


@cache
def read(found: HeaderBytes) -> BackendHeader:
    return read_backend_header(found.data, "header", found.end)


def test_every_run_has_headers() -> None:
    assert len(keyed_headers()) > 100
    assert {each.run for each in keyed_headers()} == set(NAMES) - {"changelog"}


def test_kinds_and_types_fit_what_the_job_counted() -> None:
    for found in keyed_headers():
        with named(found.run):
            check_types(found)


def check_types(found: HeaderBytes) -> None:
    states = {each.name: each for each in read(found).states}
    key = read(found).key
    checked = set()
    for line in recorded(found.run, found.truth):
        if found.operator not in (line["operator"], operator_id(line["operator"])):
            continue
        if line["kind"] == "timer" and line["state"] not in states:
            continue  # heap timers of a checkpoint lie in raw keyed state
        known = states[line["state"]]
        checked.add(line["state"])
        assert known.kind == {"timer": "timers"}.get(line["kind"], line["kind"])
        assert fits(key, line["key"]), (key, line["key"])
        assert fits(known.namespace, line["namespace"]), (known, line["namespace"])
        if line["kind"] == "timer":
            assert known.value == TimerOf(key, known.namespace)
        else:
            assert fits(known.value, line["value"]), (known, line["value"])
    assert checked or found.operator in ("win-session", operator_id("win-session"))  # all sessions were closed


def test_the_header_ends_where_the_first_key_group_begins() -> None:
    for found in keyed_headers():
        assert read(found).end == found.end, found
        assert read_backend_header(found.data + b"more", "header", None) == read(found), found


def test_compressed_runs_say_so() -> None:
    assert {each.run for each in keyed_headers() if read(each).compressed} == {"wide-hashmap", "wide-rocksdb"}


def test_kryo_names_the_class_and_what_is_registered() -> None:
    (found,) = (each for each in keyed_headers() if each.run == "opaque-hashmap")
    states = {each.name: each.value for each in read(found).states}
    registered = (("StateGen$Opaque", False), ("org.apache.avro.generic.GenericData$Array", True))
    serializer = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer"
    assert states["m-kryo"] == KryoOf(serializer, "StateGen$Opaque", registrations=registered)


def test_roles_may_come_in_any_order() -> None:
    for namespace_first in (True, False):
        data = header(STRING, state("a", LONG, namespace=LONG, namespace_first=namespace_first))
        (found,) = read_backend_header(data, "h", len(data)).states
        assert (found.namespace, found.value) == (Basic("long"), Basic("long"))


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        *[("VALUE", "value"), ("LIST", "list"), ("MAP", "map"), ("REDUCING", "reducing")],
        *[("AGGREGATING", "aggregating"), ("FOLDING", "value"), ("UNKNOWN", "unknown"), (None, "unknown")],
    ],
)
def test_the_option_gives_the_kind(option: str | None, kind: str) -> None:
    data = header(STRING, state("a", LONG, option))
    assert read_backend_header(data, "h", None).states[0].kind == kind


@pytest.mark.parametrize("version", [1, 4, 5, 7])
def test_other_versions_are_refused_by_their_number(version: int) -> None:
    with pytest.raises(UnsupportedError, match=rf"FLINK_UNSUPPORTED.*version {version} .*expected 6"):
        read_backend_header(header(STRING, version=version), "h", None)


def test_a_list_of_the_second_api_has_the_type_of_its_elements() -> None:
    (found,) = read_backend_header(header(STRING, state("new one", LONG, "LIST", number=4)), "h", None).states
    assert (found.kind, found.value) == ("list", ListOf(Basic("long")))


def test_a_map_of_the_second_api_without_a_type_of_keys_has_unknown_ones() -> None:
    (found,) = read_backend_header(header(STRING, state("new one", LONG, "MAP", number=4)), "h", None).states
    assert (found.kind, found.value) == ("map", MapOf(UNKNOWN_MAP_KEY, Basic("long")))


@pytest.mark.parametrize(
    "data",
    [
        header(STRING, state("a", LONG, number=5)),
        header(STRING, state("a", LONG, number=1)),
        header(STRING, state("a", LONG, namespace=None)),
        header(STRING, utf("a") + i32(0, 0, 2) + 2 * (utf("VALUE_SERIALIZER") + i32(2) + LONG)),
        header(STRING, utf("a") + i32(0, 0, 1) + utf("VALUE") + i32(2) + LONG),
        header(STRING)[:-2] + b"\xff\xff",
        header(STRING, state("a", LONG)) + b"more",
    ],
)
def test_what_flink_does_not_write_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptError, match="FLINK_METADATA"):
        read_backend_header(data, "h", len(data))


def test_a_cut_header_is_damage_at_every_byte() -> None:
    data = header(mapped(STRING, listed(LONG)), state("a", LONG), state("b", listed(STRING), "LIST", namespace=VOID))
    for size in range(len(data)):
        with pytest.raises(CorruptError, match="FLINK_METADATA"):
            read_backend_header(data[:size], "h", None)


@pytest.mark.parametrize(("run", "step"), mostly_slow([("sql", 47), ("sql", 11), ("hashmap", 47), ("hashmap", 11)], 2))
def test_flipped_bytes_give_an_error_of_ours_or_a_header(run: str, step: int) -> None:
    """Bytes of the longest header of a run, with one bit and with all bits changed."""
    found = max((each for each in keyed_headers() if each.run == run), key=lambda each: each.end)
    for at in range(0, found.end, step):
        for mask in (0x01 << (at % 8), 0xFF):
            damaged = bytearray(found.data[: found.end])
            damaged[at] ^= mask
            try:
                made = read_backend_header(bytes(damaged), "h", found.end)
            except StateStoreError as error:
                assert error.code in ("FLINK_METADATA", "FLINK_UNSUPPORTED")
            else:
                assert made.end == found.end
