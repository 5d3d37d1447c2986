"""Values that Flink's KryoSerializer wrote, of Kryo 2 and Kryo 5, come back in columns and as JSON."""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink.kryo_truth import RELEASES, decoded, is_json, kinds, of_json, outcome, values, written
from support.flink.value_model import ORIGIN, cells, in_each_way, walking

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink import kryo_sample
from statestore.formats.flink.columns import decoding
from statestore.formats.flink.columns.decoding import decode_cells, decode_records
from statestore.formats.flink.columns.kryo_columns import type_of
from statestore.formats.flink.columns.kryo_object_types import JSON as NO_TYPE
from statestore.formats.flink.columns.kryo_object_types import shown_type, type_of_both
from statestore.formats.flink.columns.kryo_tapes import forms_of, tape_of
from statestore.formats.flink.layouts.type_layouts import whose
from statestore.formats.flink.serializers.flink_types import (
    Basic,
    FlinkType,
    KryoOf,
    MapOf,
    Opaque,
    PojoOf,
    TupleOf,
)

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])


def is_value(found: Any, truth: Any) -> bool:
    """Whether a cell of a typed column is the value."""
    if truth is None or isinstance(truth, bool | str | int):
        return bool(found == truth)
    if isinstance(truth, list):
        return isinstance(found, list) and len(found) == len(truth) and all(map(is_value, found, truth))
    ((tag, value),) = truth.items()
    if tag == "map":
        pairs = zip(found, value, strict=True)
        return all(is_value(mine[0], yours[0]) and is_value(mine[1], yours[1]) for mine, yours in pairs)
    if tag in ("float", "double"):
        return bool(found == float(value) or value == "NaN" or np.float32(found) == np.float32(value))
    if tag == "bytes":
        return bool(found.hex() == value)
    if tag == "big":
        return bool(found == value)
    if tag == "millis":
        return bool(round(found.timestamp() * 1000) == int(value))
    if tag == "date":
        return bool((found - datetime.date(1970, 1, 1)).days == int(value))
    if tag == "time":
        return bool(
            ((found.hour * 60 + found.minute) * 60 + found.second) * 10**6 + found.microsecond == int(value) // 1000
        )
    return int(found.value) == int(value)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_values_that_flink_wrote_are_json(release: str) -> None:
    known = values(release)
    found = decoded(kinds(release)["java.lang.Object"], [octets for octets, _ in known])
    for text, (_, truth) in zip(found, known, strict=True):
        read = None if text is None else json.loads(text, parse_int=str, parse_float=str)
        assert is_json(read, of_json(truth)), (text, truth)


CONTAINERS = {
    "java.util.ArrayList": "[]",
    "java.util.LinkedList": "[]",
    "java.util.HashSet": "[]",
    "java.util.HashMap": "{}",
    "java.util.LinkedHashMap": "{}",
    "java.util.TreeSet": "[]",
}


@pytest.mark.usefixtures("each_way")
def test_names_of_classes_count_from_the_begin_of_each_value() -> None:
    """Lists of empty containers, whose classes have other numbers in each value."""
    generator = random.Random(7)
    rows, expected = [], []
    for _ in range(200):
        known = ["java.util.ArrayList"]
        chosen = generator.choices(list(CONTAINERS), k=generator.randrange(8))
        octets = b"\1\0java.util.ArrayLis\xf4\1" + bytes((len(chosen),))
        for name in chosen:
            number = known.index(name) if name in known else len(known)
            octets += bytes((1, number))
            if number == len(known):
                known.append(name)
                octets += name[:-1].encode() + bytes((ord(name[-1]) | 0x80,))
            octets += b"\1\0" + b"\0" * (name == "java.util.TreeSet")  # which has a comparator
        rows.append(octets)
        expected.append("[" + ",".join(map(CONTAINERS.__getitem__, chosen)) + "]")
    assert decoded(kinds("1.20.0")["java.lang.Object"], rows) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_a_value_of_one_type_has_a_column(release: str) -> None:
    kind, typed = kinds(release)["java.lang.Object"], 0
    assert isinstance(kind, KryoOf)
    for octets, truth in values(release):
        data = np.frombuffer(octets, np.uint8)
        found = type_of(tape_of(forms_of(kind), data, np.array([0]), np.array([len(data)])))
        if found != NO_TYPE:
            column = KryoOf(kind.serializer, kind.class_name, None, kind.registrations, kind.is_old, shown_type(found))
            (value,) = decoded(column, [octets])
            assert is_value(value, truth), (found, value, truth)
            typed += 1
    assert typed > 300


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("class_name", "column"),
    [("java.util.UUID", pa.string()), ("java.util.Date", pa.timestamp("us", "UTC")), ("java.util.Optional", None)],
)
def test_a_registered_class_is_read_by_its_number(release: str, class_name: str, column: pa.DataType | None) -> None:
    kind = kinds(release)[class_name]
    assert isinstance(kind, KryoOf)
    shown = KryoOf(kind.serializer, class_name, None, kind.registrations, kind.is_old, column)
    known = values(release, class_name)
    found = decoded(shown, [octets for octets, _ in known])
    if column is None:
        assert all(
            is_json(json.loads(a, parse_int=str, parse_float=str), of_json(b))
            for a, (_, b) in zip(found, known, strict=True)
        )
    else:
        assert all(is_value(value, truth) for value, (_, truth) in zip(found, known, strict=True))


def shown(truth: Any, release: str) -> Any:
    """Return the text that is shown: Kryo 5 does not write the offset of a time in a region, which ``toString`` has."""
    if isinstance(truth, str) and release >= "2":
        return re.sub(r"(Z|[+-][0-9:]+)(?=\[)", "", truth)
    if isinstance(truth, list):
        return [shown(each, release) for each in truth]
    return {tag: shown(value, release) for tag, value in truth.items()} if isinstance(truth, dict) else truth


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("class_name", ["java.io.Serializable", "java.lang.Cloneable"])
def test_times_with_zones_and_locales_are_the_texts_of_java(release: str, class_name: str) -> None:
    """Alone and in others, of all years, and with objects that come twice. Locales are read of Kryo 5."""
    if class_name == "java.lang.Cloneable" and release < "2":
        with pytest.raises(UnsupportedError, match="KryoSerializer of"):
            decoded(kinds(release)[class_name], [values(release, class_name)[0][0]])
        return
    known = [(octets, shown(truth, release)) for octets, truth in values(release, class_name)]
    found = decoded(kinds(release)[class_name], [octets for octets, _ in known])
    for text, (_, truth) in zip(found, known, strict=True):
        assert is_json(json.loads(text, parse_int=str, parse_float=str), of_json(truth)), (text, truth)


@pytest.mark.parametrize("release", RELEASES)
def test_damaged_times_with_zones_are_other_values_or_errors(release: str) -> None:
    chance, kind = random.Random(11), kinds(release)["java.io.Serializable"]
    for octets, _ in values(release, "java.io.Serializable")[::5]:
        for _ in range(6):
            place = chance.randrange(len(octets))
            changed = octets[:place] + bytes([chance.randrange(256)]) + octets[place + 1 :]
            for each in (changed, octets[:place]):
                assert outcome(kind, [each], True) == outcome(kind, [each], False)


@pytest.mark.parametrize("release", RELEASES)
def test_texts_of_one_class_have_a_column(release: str) -> None:
    kind = kinds(release)["java.io.Serializable"]
    assert isinstance(kind, KryoOf)
    known = [(octets, shown(truth, release)) for octets, truth in values(release, "java.io.Serializable")]
    known = [each for each in known if isinstance(each[1], str)]
    column = KryoOf(kind.serializer, kind.class_name, None, kind.registrations, kind.is_old, pa.string())
    assert decoded(column, [octets for octets, _ in known]) == [truth for _, truth in known]
    assert len(known) > 100


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_objects_that_follow_one_another_tell_their_ends(release: str) -> None:
    known = values(release)
    data = np.frombuffer(b"".join(octets + bytes([7]) for octets, _ in known), np.uint8)
    kind, at, rows = [kinds(release)["java.lang.Object"], Basic("byte")], 0, 0
    while rows < len(known):
        found = decode_records(kind, data, at, len(data), len(known) - rows, [False, True], ORIGIN, True)
        assert found.columns[1] is not None and set(found.columns[1].to_pylist()) == {7}
        at, rows = found.at, rows + found.rows
    assert at == len(data)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("class_name", ["WriteKryo$Holder", "java.util.List"])
def test_a_class_of_a_job_is_refused_by_the_name_of_its_serializer(release: str, class_name: str) -> None:
    lines = [
        line for line in written(release) if line["class"] == class_name and "WriteKryo$" in str(line.get("value"))
    ]
    assert lines
    for line in lines:
        with pytest.raises(UnsupportedError, match="KryoSerializer of"):
            decoded(kinds(release)[class_name], [bytes.fromhex(line["bytes"])])


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("release", RELEASES)
def test_damaged_objects_are_other_values_or_errors(release: str, step: int) -> None:
    """Never another exception, nor endless time: truncations, and random changes of single bytes.

    The compiled walk and the plain one agree on each.
    """
    chance, kind = random.Random(7), kinds(release)["java.lang.Object"]
    for octets, _ in values(release)[:120:step]:
        changed = [octets[: chance.randrange(len(octets))] for _ in range(3)]
        for _ in range(8):
            place = chance.randrange(len(octets))
            changed.append(octets[:place] + bytes([chance.randrange(256)]) + octets[place + 1 :])
        for each in changed:
            found = outcome(kind, [each], True)
            assert found == outcome(kind, [each], False)
            if isinstance(found, list):
                (text,) = found
                assert text is None or json.loads(text) is not NotImplemented


@pytest.mark.parametrize("room", [0, 16, 1 << 20])
@pytest.mark.parametrize("release", RELEASES)
def test_objects_of_two_fields_are_kept_apart(release: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects have room on the tape of one walk."""
    known, kind = values(release)[:200], kinds(release)["java.lang.Object"]
    octets = [one + other for (one, _), (other, _) in zip(known, reversed(known), strict=True)]
    monkeypatch.setattr(decoding, "_MOST_ENTRIES", room)
    with walking(True):
        found = decoded(TupleOf((kind, kind)), octets)
        texts = decoded(kind, [each for each, _ in known])
    assert [row["f0"] for row in found] == texts
    assert [row["f1"] for row in found] == texts[::-1]


@pytest.mark.parametrize("release", RELEASES)
def test_a_name_after_another_is_read_by_its_own_form(release: str) -> None:
    """The walk remembers the bytes of the last name; one that begins with them, or ends in it, is another."""
    kind = kinds(release)["java.lang.Object"]
    names = ["java.util.TreeSet", "java.util.Date", "java.util.TreeMap", "java.util.Date", "java.util.DateX"]
    values_of = {"java.util.TreeSet": b"\0\0", "java.util.TreeMap": b"\0\0", "java.util.Date": b"\0"}
    if release >= "2":
        values_of |= {"java.util.TreeSet": b"\1\0", "java.util.TreeMap": b"\1\0"}
    named = [each[:-1].encode() + bytes([ord(each[-1]) | 0x80]) for each in names]
    rows = [b"\1\0" + name + b"\1" + values_of.get(each, b"") for name, each in zip(named, names, strict=True)]
    for compiled in (False, True):
        assert outcome(kind, rows[:4], compiled) == ["[]", '"1970-01-01T00:00:00Z"', "{}", '"1970-01-01T00:00:00Z"']
        assert "only the job's classes decode" in outcome(kind, rows[3:], compiled)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_the_class_that_stands_in_the_way_is_named(release: str) -> None:
    (line,) = [line for line in written(release) if line["class"] == "java.util.List" and "WriteKryo$" in str(line)]
    with pytest.raises(UnsupportedError, match=r"of class WriteKryo\$Own, whose form is not public"):
        decoded(kinds(release)["java.util.List"], [bytes.fromhex(line["bytes"])])


@pytest.mark.parametrize("release", RELEASES)
def test_a_sample_finds_the_class_that_stands_in_the_way(release: str) -> None:
    (line,) = [line for line in written(release) if line["class"] == "java.util.List" and "WriteKryo$" in str(line)]

    def batches(form: tuple[FlinkType]) -> Iterator[pa.RecordBatch]:
        (column,) = decode_cells(form, cells(bytes.fromhex(line["bytes"])), [True], ORIGIN)
        yield pa.record_batch([column], ["value"])

    kind = kinds(release)["java.util.List"]
    (found,) = kryo_sample._sampled((kind,), lambda types: types, batches)
    assert isinstance(found, Opaque) and not isinstance(found, KryoOf)
    assert (
        "KryoSerializer of java.util.List with WriteKryo$Own (give --classes with the job's jar, or declare it: --type "
        "'class:WriteKryo$Own=class<...>'" in whose(found)
    )


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_numbers_and_times_in_json_are_those_of_java(release: str) -> None:
    """Big numbers of any scale and durations of any sign, against plain arithmetic."""
    tags = {"big", "duration"}
    known = [(octets, truth) for octets, truth in values(release) if isinstance(truth, dict) and tags & truth.keys()]
    found = decoded(kinds(release)["java.lang.Object"], [octets for octets, _ in known])
    assert {tag for _, truth in known for tag in truth} == tags
    for text, (_, truth) in zip(found, known, strict=True):
        ((tag, value),) = truth.items()
        if tag == "duration":
            whole, part = divmod(abs(int(value)), 10**9)
            fraction = f".{part:09d}".rstrip("0").rstrip(".")
            value = f"PT{'-' if int(value) < 0 else ''}{whole}{fraction}S"
        assert text == (value if tag == "big" else f'"{value}"')


def test_a_value_of_another_type_than_the_sample_is_refused_with_advice() -> None:
    kind = kinds("1.20.0")["java.lang.Object"]
    assert isinstance(kind, KryoOf)
    column = KryoOf(kind.serializer, kind.class_name, None, kind.registrations, True, pa.int64())
    text = next(octets for octets, truth in values("1.20.0") if truth == "Kryo")
    with pytest.raises(UnsupportedError, match="give the type json"):
        decoded(column, [text])


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.null(), pa.string(), pa.string()),
        (pa.list_(pa.null()), pa.list_(pa.int8()), pa.list_(pa.int8())),
        (pa.list_(pa.string()), pa.string(), NO_TYPE),
        (pa.struct({"key": pa.string(), "item": pa.null()}), pa.struct({"key": pa.null(), "item": pa.int8()}),
         pa.struct({"key": pa.string(), "item": pa.int8()})),
    ],
)  # fmt: skip
def test_types_of_more_values_are_joined(one: pa.DataType, other: pa.DataType, both: pa.DataType) -> None:
    assert type_of_both(one, other) == both and type_of_both(other, one) == both


def test_fields_around_a_value_are_read() -> None:
    kind = kinds("1.20.0")["java.lang.Object"]
    octets, _ = values("1.20.0")[5]
    pojo = PojoOf("shop.Basket", (("count", Basic("int")), ("tags", kind), ("total", Basic("int"))))
    (found,) = decoded(TupleOf((pojo,)), [b"\2" + b"\0\0\0\0\5" + b"\0" + octets + b"\0\0\0\0\6"])
    assert found["f0"]["count"] == 5 and found["f0"]["total"] == 6


def test_keys_of_a_map_are_sampled_and_never_null() -> None:
    """A map of Arrow has no key that is null: one that Kryo wrote is refused."""
    kind = kinds("1.20.0")["java.lang.Object"]
    assert isinstance(kind, KryoOf)
    octets, truth = next(each for each in values("1.20.0") if isinstance(each[1], str))
    maps = [b"\0\0\0\1" + key + b"\0" + b"\0\0\0\5" for key in (octets, b"\0")]

    def batches(form: tuple[FlinkType]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(decode_cells(form, cells(maps[0]), [True], ORIGIN), ["value"])

    (found,) = kryo_sample._sampled((MapOf(kind, Basic("int")),), lambda types: types, batches)
    assert found == MapOf(replace(kind, column=pa.string()), Basic("int"))
    assert decoded(found, maps[:1]) == [[(truth, 5)]]
    with pytest.raises(StateStoreError, match="a key that is null"):
        decoded(found, maps)
