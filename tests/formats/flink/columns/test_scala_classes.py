"""Classes of a job in Scala in the values of Kryo, as those of a sealed trait, against what the job recorded.

``tests/data/flink/scala-events.tar.xz`` has savepoints of ``SaveEvents`` by Flink 1.20.1 with Scala 2.12, the truth,
and the classes of ``Events.scala`` with one of the job itself, which refers to Flink's Scala API.
"""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import unpacked
from support.flink.class_truth import object_json
from support.flink.kryo_truth import decoded, is_json, outcome
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.value_model import in_each_way
from support.paths import DATA

from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.found_classes import rows_with_classes
from statestore.formats.flink.java_classes.class_file import read_class_file
from statestore.formats.flink.java_classes.class_places import places_of
from statestore.formats.flink.java_classes.job_code import JobCode, described
from statestore.formats.flink.java_classes.scala_classes import values_of
from statestore.formats.flink.layouts.kryo_scala import is_final
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])
PLACES = ("hashmap/canonical", "rocksdb/native")
STATES = ("scala.one", "scala.all", "scala.map", "scala.click", "scala.stop", "scala.order", "java.one", "java.all",
          "java.map", "java.click", "java.stop")  # fmt: skip
_S = "scala.collection."
DECLARED = {
    "Event": "interface",
    "Click": f"class<String user, int n, {_S}immutable.List<String> tags, scala.Option<Object> o>",
    "Order": f"""class<long id, {_S}Seq<shop.Line> lines, scala.math.BigDecimal total, scala.Option<String> note,
        long price>""",
    "Line": "class<String sku, int count, scala.Tuple2<Object, Object> size>",
    "Many": f"""class<{_S}immutable.Vector<Object> v, {_S}immutable.Map<String, shop.Line> m,
        {_S}immutable.Set<String> s, scala.Tuple3<String, Object, scala.Option<shop.Line>> t,
        scala.util.Either<String, shop.Click> e,
        scala.math.BigInt big, scala.Enumeration$Value day, scala.Enumeration$Value level,
        {_S}immutable.TreeMap<String, Object> sorted, {_S}mutable.ArrayBuffer<shop.Line> buffer, double[] array,
        {_S}immutable.List<shop.Cents> cents, scala.Symbol symbol, {_S}Seq<Object> ordering, Object any,
        scala.Some<Object> some, List<Integer> list, java.time.Instant at, scala.util.Left<Object, String> left,
        scala.Option<shop.Event> self>""",
    "Box<T>": f"class<T value, {_S}immutable.List<T> more>",
    "Cents": "final class<long amount>",
    "Stop$": "enum<Stop>",
    "Counted$": "enum<Counted>",
    "Nested$Leaf": "class<double x>",
    "Nested": "abstract class<>",
    "Nested$Node": "class<shop.Nested left, shop.Nested right> extends shop.Nested",
    "Nested$Nothing$": "enum<Nothing>",
    "Weekday$": "enum<Monday, Tuesday, Wednesday>",
}


@cache
def folder() -> Path:
    return unpacked(DATA / "flink" / "scala-events.tar.xz")


@cache
def truth() -> dict[str, dict[str, Any]]:
    """The value of each state by key."""
    found: dict[str, dict[str, Any]] = {}
    for line in (folder() / "truth.jsonl").read_text().splitlines():
        each = json.loads(line)
        found.setdefault(each["state"], {})[each["key"]] = each["value"]
    return found


def is_right(found: Any, expected: Any, *, names: bool = True) -> bool:
    """Whether a cell, or parsed JSON, is a truth of `object_json`; objects have their fields in any order.

    Without ``names``: those of a case class are f0, f1 and so on, in the order of ``expected``.
    """
    if isinstance(found, dict) and isinstance(expected, list):  # a tuple with its own serializer
        return is_right(list(found.values()), expected, names=names)
    if isinstance(found, dict) and isinstance(expected, dict) and "class" in expected:
        fields = {name: each for name, each in expected.items() if name != "class" or "class" in found}
        keys = list(fields) if names else list(found)
        assert len(found) == len(fields)
        return set(found) == set(keys) and all(
            is_right(found[key], each, names=names) for key, each in zip(keys, fields.values(), strict=True)
        )
    if isinstance(found, dict) and isinstance(expected, dict):
        return list(found) == list(expected) and all(is_right(found[name], expected[name]) for name in found)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(
            is_right(one, other, names=names) for one, other in zip(found, expected, strict=True)
        )
    return is_json(str(found) if isinstance(found, int) and not isinstance(found, bool) else found, expected)


def expected_of(value: Any) -> Any:
    """The truth of a cell with the fields of objects as they are in the class, where `object_json` sorts them."""
    if isinstance(value, dict) and "object" in value:
        return {"class": value["object"], **{name: expected_of(each) for name, each in value["fields"]}}
    return [expected_of(each) for each in value] if isinstance(value, list) else object_json(value)


def wrong_cells(place: str, name: str, options: dict[str, str]) -> tuple[int, list[tuple[Any, Any]]]:
    """The number of cells of a state, and those that are not what the job recorded."""
    (saved,) = (folder() / place).iterdir()
    table = rows_of(source_at(saved, {"uids": "scala,java", **options}), name)
    is_map, is_text = name.endswith(".map"), name.rpartition(".")[2] in ("one", "all", "map")
    column = table.schema.field("map_value" if is_map else "value")
    assert not pa.types.is_binary(column.type), column.metadata
    assert pa.types.is_string(column.type) == (is_text or name.endswith(".stop"))
    found: dict[str, list[Any]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: str(row.get("map_key", f"{row.get('position', 0):04}"))):
        cell = row[column.name]
        if is_text:
            cell = json.loads(cell, parse_int=str, parse_float=str)
        found.setdefault(row["key"], []).append([row["map_key"], cell] if is_map else cell)
    assert found.keys() == truth()[name].keys()
    pairs: list[tuple[Any, Any]] = []
    for key, cells in found.items():
        known = truth()[name][key]
        pairs += zip(cells, known if name.endswith((".all", ".map")) else [known], strict=True)
    names = not name.endswith(".order")
    return len(pairs), [pair for pair in pairs if not is_right(pair[0], expected_of(pair[1]), names=names)]


def job_jar() -> Path:
    return folder() / "job.jar"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The classes of the jar in a folder."""
    place = tmp_path_factory.mktemp("classes")
    with zipfile.ZipFile(job_jar()) as archive:
        archive.extractall(place)
    return place


@pytest.mark.local_files
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", STATES)
def test_states_of_a_sealed_trait_are_read_by_the_jar(place: str, name: str) -> None:
    """Also those of an operator that has no type of the Scala API: the job's own class refers to it."""
    count, wrong = wrong_cells(place, name, {"classes": str(job_jar())})
    assert wrong == [] and count >= 14


@pytest.mark.local_files
def test_a_folder_of_classes_reads_the_same(classes: Path) -> None:
    for name in ("java.all", "scala.map"):
        (saved,) = (folder() / PLACES[0]).iterdir()
        given = [{"uids": "scala,java", "classes": str(each)} for each in (job_jar(), classes)]
        one, other = (rows_of(source_at(saved, options), name) for options in given)
        assert one.equals(other) and one.num_rows > 30


@pytest.mark.local_files
def test_columns_of_one_class_have_its_fields() -> None:
    (saved,) = (folder() / PLACES[1]).iterdir()
    found = rows_of(source_at(saved, {"uids": "scala,java", "classes": str(job_jar())}), "java.click")
    assert found.schema.field("value").type == pa.struct(
        {"user": pa.string(), "n": pa.int32(), "tags": pa.list_(pa.string()), "o": pa.int64()}
    )


@pytest.mark.local_files
def test_all_kinds_of_classes_are_in_the_truth() -> None:
    text = json.dumps(truth())
    for name in ("Click", "Order", "Line", "Many", "Box", "Visit", "Slow", "Crowd", "Derived", "Nested$Node", "Cents"):
        assert f'"shop.{name}"' in text
    for name in ("Stop", "Counted", "Nothing", "Monday", "low level", "high level", "Next"):
        assert f'"{name}"' in text


@pytest.mark.local_files
def test_declarations_read_what_the_jar_reads() -> None:
    """Read a state beside one with a case class by its own serializer, which says that the job has the Scala API."""
    given = ";".join(f"class:shop.{name}={text}" for name, text in DECLARED.items())
    for name in ("scala.click", "scala.stop", "scala.order"):
        count, wrong = wrong_cells(PLACES[1], name, {"type": given})
        assert wrong == [] and count == 14


@pytest.mark.local_files
def test_what_cannot_be_read_names_the_option(classes: Path, tmp_path: Path) -> None:
    """Nothing says that the job has the Scala API, by which lists are written, but a jar with its class does."""
    own = tmp_path / "own"
    shutil.copytree(classes / "shop", own / "shop")
    (saved,) = (folder() / PLACES[1]).iterdir()
    found = rows_of(source_at(saved, {"uids": "scala,java", "classes": str(own)}), "java.click").schema.field("value")
    assert pa.types.is_binary(found.type)
    told = found.metadata[b"statestore.serializer"].decode()
    assert "of shop.Click with scala.collection.immutable." in told
    assert "(if the job has Flink's Scala API, give --classes with its jar, flink-scala of Flink's lib)" in told
    with zipfile.ZipFile(tmp_path / "flink-scala.jar", "w") as archive:
        archive.writestr("org/apache/flink/runtime/types/FlinkScalaKryoInstantiator.class", b"")
    for given in (f"{own},{tmp_path / 'flink-scala.jar'}", f"{tmp_path / 'flink-scala.jar'},{own}"):
        count, wrong = wrong_cells(PLACES[1], "java.click", {"classes": given})
        assert wrong == [] and count == 14


def test_values_of_an_enumeration_are_in_the_order_of_their_ids() -> None:
    code = JobCode(places_of(str(job_jar())))
    days, levels = (code.class_named(f"shop.{name}$") for name in ("Weekday", "Level"))
    assert days is not None and days.constants == ("Monday", "Tuesday", "Wednesday")
    assert levels is not None and levels.constants == ("low level", "Middle", "", "", "", "high level", "Next")
    counted = code.class_named("shop.Counted$")
    assert counted is not None and counted.constants == ("Counted",)
    assert [each.name for each in counted.fields] == ["volume", "name"]


def test_code_of_another_form_says_no_values() -> None:
    """Each change of one byte of a constructor gives the values, none, or others of the class's own constants."""
    code = JobCode(places_of(str(job_jar())))
    code.class_named("shop.Level$")
    file = code.found["shop.Level$"]
    assert file is not None
    whole = values_of(file)
    ((name, octets),) = file.codes
    texts = {"low level", "high level", "Low", "Middle", "High", "Next", ""}
    for place in range(len(octets)):
        for other in (0, 1, 4, 0x2A, 0x12, 0xB1, 0xB4, 0xB6, 0xFF):
            changed = octets[:place] + bytes([other]) + octets[place + 1 :]
            try:
                found = values_of(replace(file, codes=((name, changed),)))
            except StateStoreError:
                continue
            assert found is None or set(found) <= texts
    assert values_of(replace(file, codes=((name, octets[:-10]),))) is None
    assert values_of(replace(file, codes=())) is None and whole is not None


def test_lazy_vals_have_bits() -> None:
    code = JobCode(places_of(str(job_jar())))
    crowd, visit, slow = (code.class_named(f"shop.{name}") for name in ("Crowd", "Visit", "Slow"))
    assert crowd is not None and visit is not None and slow is not None
    assert [(each.name, each.bitmap, each.bit) for each in crowd.fields if each.bit] == [
        (f"l{number}", "bitmap$0", 1 << number) for number in range(10)
    ]
    assert {each.name: each.bit for each in visit.fields if each.bit} == {"score": 1, "label": 2}
    assert {each.name: each.bit for each in slow.fields if each.bit} == {"only": 1}


CHAIN = (
    JobClass("shop.Any", is_abstract=True),
    JobClass(
        "shop.Chain",
        (
            JobField("bitmap$0", JavaType("boolean")),
            JobField("next", JavaType("shop.Any")),
            JobField("only", JavaType("java.lang.Object"), bitmap="bitmap$0", bit=1),
        ),
        is_final=True,
    ),
)


@pytest.mark.usefixtures("each_way")
def test_lazy_vals_in_one_another_are_kept_apart() -> None:
    kind = KryoOf("kryo", "java.lang.Object", None, classes=CHAIN)
    front = b"\1\0shop.Chai\xee\1"
    inner = [(0, b"\0", None), (1, b"\2\6", "3"), (1, b"\0", None)]
    for first, octets, shown in inner:
        for second, others, last in inner:
            value = front + bytes([first]) + b"\1\0\1" + bytes([second]) + b"\0" + others + octets
            (text,) = decoded(kind, [value])
            inside = {"class": "shop.Chain", "next": None, "only": last}
            assert json.loads(text, parse_int=str) == {"class": "shop.Chain", "next": inside, "only": shown}
    wrong = front + b"\0\0\1\1java.util.ArrayLis\xf4\1\1\2\6"
    for compiled in (False, True):
        assert "found a value of a lazy val that was not computed" in outcome(kind, [wrong], compiled)


def test_damaged_lazy_vals_are_other_values_or_errors() -> None:
    """Never another exception: truncations, and random changes of single bytes, in both walks."""
    chance, kind = random.Random(3), KryoOf("kryo", "java.lang.Object", None, classes=CHAIN)
    value = b"\1\0shop.Chai\xee\1\0\1\0\1\1\0\2\6\2\x8c\1"
    for _ in range(150):
        place = chance.randrange(len(value))
        changed = value[:place] + bytes([chance.choice((0, 1, 2, 3, 4, chance.randrange(256)))]) + value[place + 1 :]
        for octets in (changed, changed[: chance.randrange(len(value))]):
            assert outcome(kind, [octets], True) == outcome(kind, [octets], False)


def test_damaged_classes_of_scala_are_refused_or_other_classes() -> None:
    chance = random.Random(4)
    with zipfile.ZipFile(job_jar()) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name.startswith("shop/") and "." in name}
    known = 0
    for name, octets in sorted(files.items()):
        for _ in range(20):
            place = chance.randrange(len(octets))
            changed = octets[:place] + bytes([chance.randrange(256)]) + octets[place + 1 :]
            try:
                known += described(read_class_file(changed, name)) is not None
            except InvalidInputError:
                continue
    assert known > 100


def test_private_vals_of_two_traits_keep_their_names() -> None:
    """One name that two fields would have is told apart as Scala does."""
    fields = [JobField(name, JavaType("int")) for name in ("shop$A$$x", "shop$B$$x", "shop$B$$y", "$outer", "a$1")]
    given = JobClass("shop.Two", tuple(fields), is_final=True)
    kind = KryoOf("kryo", "java.lang.Object", None, classes=(given,))
    (text,) = decoded(kind, [b"\1\0shop.Tw\xef\1\2\4\6\10\12"])
    assert json.loads(text) == {"class": "shop.Two", "$outer": 1, "a$1": 2, "shop$A$$x": 3, "shop$B$$x": 4, "y": 5}


def test_fields_of_an_option_without_the_scala_api_have_the_types_that_kryo_kept() -> None:
    """Kryo writes the fields of a ``Some`` then, and those of a final class without it; a tuple is refused."""
    text, option = JavaType("java.lang.String"), "scala.Option"
    for held, octets, shown in (
        (JavaType(option, arguments=(text,)), b"\1\1scala.Som\xe5\1\1a\xe2", '{"class":"shop.Held","o":"ab"}'),
        (JavaType(option, arguments=(JavaType("java.lang.Object"),)), b"\1\1scala.Som\xe5\1\2\6",
         '{"class":"shop.Held","o":3}'),
        (JavaType("scala.Product", arguments=(text,)), b"\1\1scala.Tuple\xb1\1\3\1a\xe2", "FLINK_OPAQUE"),
    ):  # fmt: skip
        given = JobClass("shop.Held", (JobField("o", held),), is_final=True)
        kind = KryoOf("kryo", "java.lang.Object", None, classes=(given,))
        for compiled in (False, True):
            found = outcome(kind, [b"\1\0shop.Hel\xe4\1" + octets], compiled)
            assert found == [shown] or (isinstance(found, str) and shown in found), found
    assert is_final("scala.Some", is_scala=False) and is_final("scala.collection.immutable.Vector", is_scala=True)
    assert is_final("scala.collection.immutable.Vector", is_scala=False) is None


# Types that Kryo keeps


def test_values_by_types_that_kryo_kept_are_right_or_refused() -> None:
    """Each with the classes that its own bytes name, as those of a value in which a class is met for the first time.

    Kryo had the types of fields of other values then, whose classes are not known here.
    """
    place = unpacked(DATA / "flink" / "kryo-kept.tar.xz")
    snapshot, *lines = map(json.loads, (place / "values.jsonl").read_text().splitlines())
    kind = read_snapshot(DataInput(bytes.fromhex(snapshot["snapshot"]), "a snapshot"))
    assert isinstance(kind, KryoOf)
    code = settings_of({"classes": str(place / "kept.jar")}).code
    right = refused = 0
    for line in lines:
        octets = bytes.fromhex(line["bytes"])
        fresh = JobCode(code.places, code.directories, code.found, code.classes)

        def rows(change: Callable[[FlinkType], FlinkType] | None, octets: bytes = octets) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"value": decoded(kind if change is None else change(kind), [octets])})

        try:
            (batch,) = rows_with_classes(fresh, rows)
        except StateStoreError:
            refused += 1
            continue
        text = batch["value"][0].as_py()
        parsed = None if text is None else json.loads(text, parse_int=str, parse_float=str)
        assert is_json(parsed, object_json(line["value"])), (text, line["value"])
        right += 1
    assert right > 300 and refused > 50
