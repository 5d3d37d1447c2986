"""Objects of a job's classes, which Flink's KryoSerializer wrote, by the declarations of these classes."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink.class_truth import (
    DECLARED,
    TIGHT,
    W,
    cycles,
    declared,
    fields_of,
    kind_of,
    object_json,
    values,
    written,
)
from support.flink.kryo_truth import RELEASES, decoded, is_json, outcome
from support.flink.reflected_classes import job_jar
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.value_model import ORIGIN, cells, in_each_way

from benchmarks.engines import flink_forms
from benchmarks.engines.flink_forms import OPERATOR, Form, kryo
from benchmarks.engines.flink_snapshots import FIRST_KEY
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.flink import kryo_sample
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.kryo_columns import type_of
from statestore.formats.flink.columns.kryo_object_types import shown_type
from statestore.formats.flink.columns.kryo_tapes import forms_of, tape_of
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.found_classes import rows_with_classes
from statestore.formats.flink.layouts.class_declarations import class_of, declared_text
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf, Opaque
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])
CLASSES = declared(DECLARED)
CLASSES_JAR = job_jar().with_name("classes.jar")
NAMES = ["Object", "List", "Item", "registered"]
OBJECTS = ["Item", "Open", "Poly", "Drawing", "Boxes", "Node", "Inner"]


def objects(release: str, class_name: str) -> list[tuple[bytes, Any]]:
    """The values that are objects of a class."""
    known = values(release, "Item") if class_name == "Item" else values(release, "Object")
    return [each for each in known if isinstance(each[1], dict) and each[1].get("object") == W + class_name]


def with_column(kind: KryoOf, known: list[tuple[bytes, Any]]) -> KryoOf:
    """The type with the column that all of these values have."""
    sizes = [len(octets) for octets, _ in known]
    data = np.frombuffer(b"".join(octets for octets, _ in known), np.uint8)
    tape = tape_of(forms_of(kind), data, np.cumsum([0, *sizes[:-1]]), np.array(sizes))
    return replace(kind, column=shown_type(type_of(replace(tape, objects=forms_of(kind).objects))))


def assert_cell(found: Any, truth: Any, kind: pa.DataType, is_text: bool = False) -> None:
    """Check a cell of a typed column; ``is_text``: it is the JSON of the value."""
    if truth is None:
        assert found is None
    elif is_text:
        assert is_json(json.loads(found, parse_int=str, parse_float=str), object_json(truth)), (found, truth)
    elif pa.types.is_struct(kind):
        told = {field.name: field for field in kind}
        assert told.keys() == found.keys() == {name for name, _ in fields_of(truth)}
        assert {field.metadata[b"statestore.class"].decode() for field in kind} == {truth["object"]}
        for name, value in fields_of(truth):
            assert_cell(found[name], value, told[name].type, b"statestore.json" in told[name].metadata)
    elif pa.types.is_list(kind):
        assert len(found) == len(truth)
        for one, other in zip(found, truth, strict=True):
            assert_cell(one, other, kind.value_type)
    elif pa.types.is_map(kind):
        for one, other in zip(found, truth["map"], strict=True):
            assert_cell(one[0], other[0], kind.key_type)
            assert_cell(one[1], other[1], kind.item_type)
    elif isinstance(truth, dict):
        ((tag, text),) = truth.items()
        if tag == "millis":
            text = datetime.datetime.fromtimestamp(int(text) / 1000, datetime.UTC)
        elif tag == "date":
            text = datetime.date(1970, 1, 1) + datetime.timedelta(int(text))
        elif tag == "instant":
            found = found.value
            text = int(text)
        elif tag in ("float", "double"):
            text = float(np.float32(text)) if tag == "float" else float(text)
        elif tag == "big":
            found, text = Decimal(found), Decimal(text)
        assert found == text
    else:
        assert found == truth


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_objects_that_flink_wrote_are_json_with_their_fields(release: str, name: str) -> None:
    """Fields of all kinds, in superclasses and with hidden names; objects in lists, maps, arrays, more than once."""
    known = values(release, name)
    found = decoded(kind_of(release, name, CLASSES), [octets for octets, _ in known])
    assert len(known) >= 9
    for text, (_, truth) in zip(found, known, strict=True):
        assert is_json(json.loads(text, parse_int=str, parse_float=str), object_json(truth)), (text, truth)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("class_name", OBJECTS)
def test_objects_of_one_class_have_a_struct(release: str, class_name: str) -> None:
    known = objects(release, class_name)
    kind = with_column(kind_of(release, "Item" if class_name == "Item" else "Object", CLASSES), known)
    assert kind.column is not None and pa.types.is_struct(kind.column)
    for cell, (_, truth) in zip(decoded(kind, [octets for octets, _ in known]), known, strict=True):
        assert_cell(cell, truth, kind.column)


def test_fields_have_the_declared_types_in_the_declared_order() -> None:
    known = objects("1.20.0", "Item")
    column = with_column(kind_of("1.20.0", "Item", CLASSES), known).column
    assert column is not None
    assert [field.name for field in column][:6] == ["id", "Base.name", "stamp", "name", "qty", "price"]
    found = {field.name: field.type for field in column}
    assert found["qty"] == pa.int32() and found["big"] == pa.int64() and found["tags"] == pa.list_(pa.string())
    assert found["counts"] == pa.map_(pa.string(), pa.int32()) and found["numbers"] == pa.list_(pa.int32())
    assert found["day"] == pa.date32() and found["tiny"] == pa.int8() and found["maybe"] == pa.string()
    empty = {"Open": DECLARED["Open"].replace("List raw", "List<Long> raw")}
    octets = next(octets for octets, truth in objects("1.20.0", "Open") if ["raw", None] in truth["fields"])
    column = with_column(kind_of("1.20.0", "Object", declared(empty)), [(octets, None)]).column
    assert column is not None and column.field("raw").type == pa.list_(pa.int64())


@pytest.mark.parametrize("release", RELEASES)
def test_classes_with_the_same_fields_are_told_apart(release: str) -> None:
    """A column of two classes is JSON, which names them; a column of one has no value of the other."""
    drawings = objects(release, "Drawing")
    found = with_column(kind_of(release, "Object", CLASSES), drawings)
    assert found.column is not None and found.column.field("main").type == pa.string()
    text = "".join(cell["main"] or "" for cell in decoded(found, [octets for octets, _ in drawings]))
    assert '"class":"WriteClasses$Circle"' in text and '"class":"WriteClasses$Square"' in text
    (circle, _), *_ = [each for each in drawings if "Circle" in str(each[1]["fields"][0])]
    (square, _), *_ = [each for each in drawings if "Square" in str(each[1]["fields"][0])]
    with pytest.raises(StateStoreError, match=r"another class.*give the type json"):
        decoded(with_column(kind_of(release, "Object", CLASSES), [(circle, None)]), [square])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_an_object_within_itself_is_refused(release: str) -> None:
    assert len(cycles(release)) == 2
    for octets in cycles(release):
        with pytest.raises(UnsupportedError, match="within itself"):
            decoded(kind_of(release, "Object", CLASSES), [octets])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_the_kept_types_of_generic_classes_are_not_guessed(release: str) -> None:
    """Kryo 2 writes the second box as it wrote the first, Kryo 5 with the class of its value."""
    ((octets, truth),) = values(release, "Tight")
    kind = kind_of(release, "Tight", declared({**DECLARED, **TIGHT}))
    if release < "2":
        assert "only the job's classes decode" in outcome(kind, [octets], True)
        return
    (text,) = decoded(kind, [octets])
    assert json.loads(text, parse_int=str) == object_json(truth)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("class_name", "changed"),
    [
        ("Inner", "class<int v>"),
        ("Inner", "class<String s>"),
        ("Inner", "class<int v, String s, String t>"),
        ("Inner", "class<Integer v, String s>"),
        ("Inner", "class<long v, CharSequence s>"),
        ("Point", "class<int x, int y, String label>"),
        ("Node", f"class<{W}Node next, int v>"),
        ("Circle", f"class<float r, {W}Color color>"),
        ("Color", "enum<RED, GREEN {}, BLUE>"),
    ],
)
def test_a_wrong_declaration_is_refused(release: str, class_name: str, changed: str) -> None:
    kind = kind_of(release, "Object", declared({**DECLARED, class_name: changed}))
    known = [each for name in OBJECTS[2:] for each in objects(release, name)]
    found = [outcome(kind, [octets], False) for octets, _ in known]
    assert any(isinstance(each, str) and ("FLINK_ROW" in each or "FLINK_OPAQUE" in each) for each in found)
    for each, (_, truth) in zip(found, known, strict=True):
        if not isinstance(each, str) and class_name not in str(truth):
            assert is_json(json.loads(each[0], parse_int=str, parse_float=str), object_json(truth))


@pytest.mark.parametrize("step", [30, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("release", RELEASES)
def test_damaged_objects_are_other_values_or_errors(release: str, step: int) -> None:
    """Never another exception, nor endless time: truncations, and random changes of single bytes."""
    chance = random.Random(3)
    for name in NAMES:
        kind = kind_of(release, name, CLASSES)
        for octets, _ in values(release, name)[::step]:
            for _ in range(4):
                place = chance.randrange(len(octets))
                changed = octets[:place] + bytes([chance.randrange(256)]) + octets[place + 1 :]
                for each in (changed, octets[:place]):
                    assert outcome(kind, [each], True) == outcome(kind, [each], False)


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_job_gave_a_serializer_stays_opaque(release: str) -> None:
    kind = kind_of(release, "Object", CLASSES)
    own = replace(kind, registrations=(*kind.registrations, (f"{W}Point", True)))
    polys = [octets for octets, truth in objects(release, "Poly") if "Point" in str(truth)]
    for octets in polys:
        assert "only the job's classes decode" in outcome(own, [octets], False)


@pytest.mark.parametrize("release", RELEASES)
def test_a_sample_finds_the_column_or_the_class_that_is_not_declared(release: str) -> None:
    octets = [octets for octets, _ in objects(release, "Inner")]

    def batches(form: tuple[FlinkType]) -> Iterator[pa.RecordBatch]:
        (column,) = decode_cells(form, cells(*octets), [True], ORIGIN)
        yield pa.record_batch([column], ["value"])

    found = [
        kryo_sample._sampled((kind_of(release, "Object", classes),), lambda parts: parts, batches)[0]
        for classes in (CLASSES, ())
    ]
    assert isinstance(found[0], KryoOf) and found[0].column == pa.struct({"v": pa.int32(), "s": pa.string()})
    assert isinstance(found[1], Opaque) and f"--type 'class:{W}Inner=class<...>'" in found[1].remedy


# The option


def test_declarations_are_those_of_java() -> None:
    text = (
        "class:shop.Box<T> = final class<T value, Map<String, List<? extends T>> all,int[][] grid> extends shop.Base;"
    )
    box, base = settings_of({"type": text + "class:shop.Base=abstract class<>"}).classes[::-1]
    assert base == JobClass("shop.Base", is_abstract=True)
    assert box == JobClass(
        "shop.Box",
        (
            JobField("value", JavaType("", variable="T")),
            JobField("all", JavaType("java.util.Map", arguments=(
                JavaType("java.lang.String"),
                JavaType("java.util.List", arguments=(JavaType("", variable="?"),)),
            ))),
            JobField("grid", JavaType("int", 2)),
        ),
        "shop.Base", is_final=True, parameters=("T",),
    )  # fmt: skip
    assert class_of("shop.Row", "record<int n>").is_record and class_of("shop.Shape", "interface").is_abstract
    plain = class_of("shop.Item", "final class<String sku, java.util.List<Integer> n, shop.Color[] c>")
    assert declared_text(plain) == "final class<String sku, List<Integer> n, shop.Color[] c>"
    assert class_of("shop.Item", declared_text(plain)) == plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class:shop.Item=class<String>", "has field 'String' for class shop.Item; expected its type and its name"),
        ("class:shop.Item=class<String a", "has 'class<String a' for class shop.Item; expected class<String sku"),
        ("class:shop.Item=class<List<String a>", "has 'class<List<String a>' for class shop.Item"),
        ("class:shop.Item=class<int a, long a>", "has field a twice for class shop.Item"),
        ("class:shop.Item=class<List<int> a>", r"has type 'List<int>' for class shop.Item"),
        ("class:shop.Item=class<List<String b> a>", r"has type 'List<String b>' for class shop.Item"),
        ("class:shop.Item=class<int a> extends", "has 'class<int a> extends' for class shop.Item"),
        ("class:shop.Item=class<shop.Other a>", "has no class shop.Other, which field a of class shop.Item has"),
        ("class:shop.Item=class<> extends shop.Other", "has no class shop.Other, which class shop.Item extends"),
        ("class:a.A=class<> extends a.B;class:a.B=class<> extends a.A", "has class a.A among the classes that it"),
        ("class:shop.Item<T=class<T a>", "names class 'shop.Item<T'"),
        ("class:java.util.UUID=class<long a>", "whose form is known; leave it out"),
        ("class:shop.Item=record<int a> extends shop.Base", "has 'record<int a> extends shop.Base'"),
        ("class:shop.Item=class<int a>;class:shop.Item=class<int b>", "two types of class 'shop.Item'"),
    ],
)
def test_a_wrong_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"INVALID_OPTION.*option type.*({message})"):
        settings_of({"type": text})


# Snapshots

OPTION = {"type": ";".join(f"class:{W}{name}={text}" for name, text in DECLARED.items())}
ROWS = 512
WRITERS = [flink_forms.savepoint, flink_forms.native, flink_forms.logged]


@pytest.mark.parametrize("write", WRITERS, ids=["savepoint", "rocksdb", "changelog"])
def test_lists_of_objects_in_snapshots_are_columns(
    write: Callable[[Path, Form, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the class and the option that reads it where it is not declared."""
    known = [each for each in values("1.20.0", "List") if "Base" not in str(each[1]) and "Item" not in str(each[1])]
    monkeypatch.setattr(flink_forms, "DISTINCT", ROWS)
    form = Form(kryo("java.util.List"), lambda number: known[number % len(known)][0])
    place = write(tmp_path / "state", form, ROWS)
    state = f"{OPERATOR}.measured"
    plain = source_at(place)
    try:
        refused = str(rows_of(plain, state).schema.field("value").metadata)
    except UnsupportedError as error:
        refused = str(error)
    assert f"--type 'class:{W}Point=class<...>'" in refused
    found = rows_of(source_at(place, OPTION), state)
    column = found.schema.field("value").type
    assert pa.types.is_list(column) and pa.types.is_struct(column.value_type)
    for row in found.to_pylist():
        assert_cell(row["value"], known[(row["key"] - FIRST_KEY) % len(known)][1], column)
    assert found.num_rows > ROWS // 2
    assert rows_of(source_at(place, {"classes": str(CLASSES_JAR)}), state).equals(found)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_jar_reads_what_declarations_read(release: str, name: str) -> None:
    """With the classes that each value is found to have, looked up in the jar."""
    code, plain = settings_of({"classes": str(CLASSES_JAR)}).code, kind_of(release, name, ())

    def read(octets: bytes) -> Iterator[pa.RecordBatch]:
        def rows(change: Callable[[FlinkType], FlinkType] | None) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"value": decoded(plain if change is None else change(plain), [octets])})

        return rows_with_classes(code, rows)

    known = values(release, name)
    for octets, truth in known:
        (batch,) = read(octets)
        text = batch["value"][0].as_py()
        assert is_json(json.loads(text, parse_int=str, parse_float=str), object_json(truth)), (text, truth)


def test_all_lines_are_read() -> None:
    for release in RELEASES:
        assert {line["class"] for line in written(release)} == {*NAMES, "Tight", "Optional"}
