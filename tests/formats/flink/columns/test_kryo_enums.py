"""Enums of a job in values of Kryo, which Flink's KryoSerializer wrote as numbers, by the declaration of a user."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flink import metadata_bytes as meta
from support.flink import snapshot_bytes as types
from support.flink.kryo_truth import RELEASES, decoded, is_json, kinds, of_json, outcome, values
from support.flink.reflected_classes import job_jar
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.value_model import in_each_way, varint
from support.parameters import mostly_slow

from benchmarks.engines import flink_forms
from benchmarks.engines.flink_forms import OPERATOR, Form, kryo, real_kryo
from benchmarks.engines.flink_snapshots import FIRST_KEY
from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.flink import kryo_sample, snapshot_states
from statestore.formats.flink import source as flink_source
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.found_classes import with_classes
from statestore.formats.flink.kryo_sample import _without
from statestore.formats.flink.layouts.type_layouts import whose
from statestore.formats.flink.serializers.flink_types import KryoOf, Opaque
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput

NAME = "WriteKryo$Color"
COLORS = (JobClass(NAME, constants=("RED", "GREEN", "BLUE")),)
DECLARED = f"class:{NAME}=enum<RED, GREEN {{}}, BLUE>"
CLASSES = ["java.lang.Comparable", NAME]
each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])


def kind_of(release: str, class_name: str = CLASSES[0], **changed: Any) -> KryoOf:
    found = kinds(release)[class_name]
    assert isinstance(found, KryoOf)
    return replace(found, **{"classes": COLORS, **changed})


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("class_name", CLASSES)
def test_constants_that_flink_wrote_have_their_names(release: str, class_name: str) -> None:
    """By name and by number, with bodies, alone and in lists, sets, maps, ``EnumSet`` and ``EnumMap``."""
    known = values(release, class_name)
    found = decoded(kind_of(release, class_name), [octets for octets, _ in known])
    for text, (_, truth) in zip(found, known, strict=True):
        assert is_json(json.loads(text, parse_int=str), of_json(truth)), (text, truth)
    assert len(known) == 15


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("class_name", CLASSES)
def test_constants_have_typed_columns(release: str, class_name: str) -> None:
    known = values(release, class_name)

    def shown(column: pa.DataType, *places: int) -> list[Any]:
        return decoded(kind_of(release, class_name, column=column), [known[place][0] for place in places])

    assert shown(pa.string(), 0, 1, 10) == ["RED", "GREEN", "BLUE"]
    assert shown(pa.list_(pa.string()), 2, 8, 9) == [["BLUE", "GREEN", None, "RED", "GREEN"], ["GREEN", "BLUE"], []]
    assert shown(pa.map_(pa.string(), pa.int64()), 6, 7) == [
        [("RED", 1), ("GREEN", 2)],
        [("GREEN", 5), ("BLUE", None)],
    ]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("class_name", CLASSES)
def test_an_enum_that_is_not_declared_is_refused_with_the_option_that_reads_it(release: str, class_name: str) -> None:
    """The whole enum is named where the bytes name the class of a constant with a body."""
    for octets, _ in values(release, class_name)[:2]:
        with pytest.raises(
            UnsupportedError, match=r"declare it: --type 'class:WriteKryo\$Color=class<...>' .* or =enum<"
        ):
            decoded(kind_of(release, class_name, classes=()), [octets])
    other = (JobClass(f"{NAME}s", constants=("RED", "GREEN", "BLUE")),)
    with pytest.raises(UnsupportedError, match="only the job's classes decode"):
        decoded(kind_of(release, class_name, classes=other), [octets])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("column", [None, pa.string()])
def test_a_declaration_with_too_few_constants_is_refused(release: str, column: pa.DataType | None) -> None:
    kind = kind_of(release, classes=(JobClass(NAME, constants=("RED",)),), column=column)
    (red, _), (green, _), *_ = values(release, CLASSES[0])
    assert decoded(kind, [red]) == ['"RED"' if column is None else "RED"]
    with pytest.raises(CorruptError, match=r"FLINK_ROW.*constant 2 of enum WriteKryo\$Color.*at most 1.*correct the"):
        decoded(kind, [red, green])


@pytest.mark.parametrize("release", RELEASES)
def test_constants_of_several_enums_are_kept_apart(release: str) -> None:
    size, zone = ("S", "M"), ("NORTH", "SOUTH", "EAST", "WEST")
    classes = (JobClass("shop.Size", constants=size), *COLORS, JobClass("shop.Zone", constants=zone))
    kind = kind_of(release, classes=classes)
    marker = b"\1" if release < "2" else b""

    def constant(class_name: str, number: int) -> bytes:
        return b"\1\0" + class_name[:-1].encode() + bytes([ord(class_name[-1]) | 0x80]) + marker + varint(number)

    rows = [constant("shop.Zone", 4), constant("shop.Size", 2), values(release, CLASSES[0])[0][0]]
    for compiled in (False, True):
        assert outcome(kind, rows, compiled) == ['"WEST"', '"M"', '"RED"']
        assert "constant 3 of enum shop.Size" in outcome(kind, [*rows, constant("shop.Size", 3)], compiled)


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_job_gave_a_serializer_stays_opaque(release: str) -> None:
    own = kind_of(release, registrations=(("java.lang.Comparable", False), (NAME, True)))
    by_number = kind_of(release, registrations=(("java.lang.Comparable", False), (NAME, False)))
    (red, _), (green, _), *_ = values(release, CLASSES[0])
    for octets in (red, green):
        found = outcome(own, [octets], False)
        assert "only the job's classes decode" in found and ("enum<" in found) == (octets == green)
    assert outcome(by_number, [red], False) == ['"RED"']
    # Constants with bodies have the number of the enum then, so a class with such a name is another one.
    assert "only the job's classes decode" in outcome(by_number, [green], False)


def test_a_class_that_no_job_has_brings_no_option() -> None:
    kind = kind_of("1.20.0")

    def told(kind: KryoOf, name: str | None) -> str:
        found = _without(kind, (True, name, b""))
        assert isinstance(found, Opaque)
        return whose(found)

    assert "enum<" in told(kind, "shop.Size$2")
    assert "'class:shop.Size=class<" in told(kind, "[[Lshop.Size;")
    for name in ("java.io.File", "[Ljava.io.File;", "scala.Some", "a b", None):
        assert "enum<" not in told(kind, name)
    assert "enum<" not in told(replace(kind, has_defaults=True), "shop.Size")
    assert told(kind, f"{NAME}$400").count(f"class:{NAME}$400=class<") == 1


def test_serializers_for_subclasses_are_noted() -> None:
    """The enum may be written by one of them."""
    snapshot, none = kryo(CLASSES[0]), types.optional_map([])
    assert snapshot.endswith(none + none)
    given = snapshot[: -len(none)] + types.optional_map([("shop.HasCode", meta.utf("shop.HasCode"), None)])
    found = read_snapshot(DataInput(given, "a snapshot"))
    assert isinstance(found, KryoOf) and found.has_defaults
    assert not kind_of("1.20.0").has_defaults


@pytest.mark.parametrize("release", RELEASES)
def test_damaged_constants_are_other_values_or_errors(release: str) -> None:
    chance = random.Random(13)
    for class_name in CLASSES:
        kind = kind_of(release, class_name)
        for octets, _ in values(release, class_name)[::2]:
            for _ in range(5):
                place = chance.randrange(len(octets))
                changed = octets[:place] + bytes([chance.randrange(256)]) + octets[place + 1 :]
                for each in (changed, octets[:place]):
                    assert outcome(kind, [each], True) == outcome(kind, [each], False)


def test_declarations_are_read_from_the_option() -> None:
    text = "class:shop.Color = enum< RED,GREEN >; counts.value=bigint ;class:Size=ENUM<S>"
    found = settings_of({"type": f"{text};class:shop.Color=enum<RED,GREEN>"})
    assert [(each.name, each.constants, each.is_final) for each in found.classes] == [
        ("Size", ("S",), True),
        ("shop.Color", ("RED", "GREEN"), True),
    ]
    assert found.types == {"counts": {"value": "bigint"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class:shop.Color=string", "has 'string' for class shop.Color; expected class<.*or enum<RED"),
        ("class:shop.Color=enum<>", "has 'enum<>'"),
        ("class:shop.Color=enum<RED,,BLUE>", "has 'enum<RED,,BLUE>'"),
        ("class:shop.Color=enum<RED,BLUE,RED>", "has constant RED twice"),
        ("class:shop.=enum<RED>", "names class 'shop.'"),
        ("class:[Lshop.Color;=enum<RED>", "expected state=type|names class"),
        ("class:java.time.DayOfWeek=enum<MON>", "whose form is known; leave it out"),
        ("class:int=enum<MON>", "whose form is known; leave it out"),
        ("class:shop.Color=enum<RED>;class:shop.Color=enum<BLUE>", "two types of class 'shop.Color'"),
    ],
)
def test_a_declaration_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"INVALID_OPTION.*option type.*({message})"):
        settings_of({"type": text})


# Snapshots


def heap(folder: Path, form: Form, rows: int) -> Path:
    """A checkpoint of the heap, in which a state of numbers lies behind that of the form in each key group."""
    folder.mkdir(parents=True)
    states = [types.state(form.name, form.serializer), types.state("numbers", types.LONG)]
    found, offsets = types.header(types.LONG, *states), []
    for number, group in enumerate(flink_forms.entries(form.value)):
        offsets.append(len(found))
        written = [b"".join(b"\0" + each.key[:8] + each.value for each in group)]
        written.append(b"".join(b"\0" + each.key[:8] * 2 for each in group))
        parts = (struct.pack(">Hi", place, len(group)) + records for place, records in enumerate(written))
        found += struct.pack(">i", number) + b"".join(parts)
    (folder / "state").write_bytes(found)
    return flink_forms.write_metadata(folder, meta.key_groups(3, 0, offsets, meta.relative("state", len(found))))


def tagged(number: int) -> bytes:
    """A POJO with a field of Kryo between others."""
    octets = real_kryo(CLASSES[0])
    return struct.pack(">BBqB", 2, 0, number, 0) + octets[number % len(octets)] + struct.pack(">Bq", 0, -number)


FIELDS = {"id": types.LONG, "tags": kryo(CLASSES[0]), "total": types.LONG}
ROWS = 1024
"""So many that no key group is without a row."""
WRITERS = [flink_forms.savepoint, flink_forms.native, flink_forms.logged, heap]
DECLARED_READS = [(write, {"type": DECLARED}) for write in WRITERS]
READS = [*DECLARED_READS, *((write, {"classes": str(job_jar())}) for write in WRITERS)]


@pytest.mark.parametrize(("write", "given"), mostly_slow(READS, [*DECLARED_READS, READS[-1]]))
def test_enums_in_fields_of_snapshots_are_read(
    write: Callable[[Path, Form, int], Path], given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fields behind, which are not read without the declaration or the job's jar."""
    monkeypatch.setattr(flink_forms, "DISTINCT", ROWS)
    place = write(tmp_path / "state", Form(types.pojo("shop.Item", FIELDS), tagged), ROWS)
    state = f"{OPERATOR}.measured"
    plain = source_at(place)
    try:
        assert "Color" in str(plain.at(state, plain.newest(state)).schema.field("value").type.field(1).metadata)
        refused = str(rows_of(plain, state).schema.field("value").type.field(1).metadata)
    except UnsupportedError as error:
        refused = str(error)
    assert f"give --classes with the job's jar, or declare it: --type 'class:{NAME}=class<" in refused
    source = source_at(place, given)
    truth = [value for _, value in values("1.20.0", CLASSES[0])]
    numbers = set()
    for row in rows_of(source, state).to_pylist():
        number, value = row["key"] - FIRST_KEY, row["value"]
        assert (value["id"], value["total"]) == (number, -number)
        assert is_json(json.loads(value["tags"], parse_int=str), of_json(truth[number % len(truth)]))
        numbers.add(number)
    removed = {
        int.from_bytes(each.key[:8], "big") - FIRST_KEY for group in flink_forms.entries(tagged) for each in group[::33]
    }
    kept = set(range(ROWS)) - (removed if write in (flink_forms.native, flink_forms.logged) else set())
    assert numbers == kept
    if write is heap:
        assert rows_of(source_at(place, given), f"{OPERATOR}.numbers").num_rows == ROWS  # also where it is read alone
        behind = {row["key"]: row["value"] for row in rows_of(source, f"{OPERATOR}.numbers").to_pylist()}
        assert behind == {FIRST_KEY + number: FIRST_KEY + number for number in range(ROWS)}
        with pytest.raises(UnsupportedError, match="class:"):
            rows_of(source_at(place), f"{OPERATOR}.numbers")


# Enums of a job's jar


def written_once(folder: Path, enum_at: int, monkeypatch: pytest.MonkeyPatch, *, texts: bool = False) -> Path:
    """A savepoint of texts and numbers, or of texts alone, of which one is a constant of the enum in their place."""
    monkeypatch.setattr(flink_forms, "DISTINCT", ROWS)
    text, number = b"\3\1ta\xe2", b"\2\6"  # "tab" and 3
    constant = values("1.20.0", CLASSES[0])[0][0]
    others = (text, text if texts else number)
    form = Form(kryo("java.lang.Object"), lambda place: constant if place == enum_at else others[place % 2])
    return flink_forms.savepoint(folder, form, ROWS)


def test_a_class_behind_the_sample_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each row is read once, wherever the class is; without the jar the refusal says what to do."""
    monkeypatch.setattr(kryo_sample, "ROWS", 1)
    state = f"{OPERATOR}.measured"
    for number, enum_at in enumerate((0, 511, ROWS - 1)):
        place = written_once(tmp_path / str(number), enum_at, monkeypatch)
        source = source_at(place, {"classes": str(job_jar())})
        at = source.at(state, source.newest(state))
        assert at.schema.field("value").type == pa.string()
        others = ['"tab"', "3"]
        truth = {FIRST_KEY + place: '"RED"' if place == enum_at else others[place % 2] for place in range(ROWS)}
        for _ in range(2):
            rows = rows_of(source, state).to_pylist()
            assert len(rows) == ROWS and {row["key"]: row["value"] for row in rows} == truth
    with pytest.raises(UnsupportedError, match=r"class WriteKryo.Color.*give --classes with the job's jar"):
        rows_of(source_at(place), state)
    typed = source_at(place, {"classes": str(job_jar()), "type": f"{state}=json"})
    assert {row["key"]: row["value"] for row in rows_of(typed, state).to_pylist()} == truth


def test_a_constant_behind_a_sample_of_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant is of another type than a text, though it would fit the column alone."""
    monkeypatch.setattr(kryo_sample, "ROWS", 1)
    place, state = written_once(tmp_path / "state", ROWS - 1, monkeypatch, texts=True), f"{OPERATOR}.measured"
    for given in ({"classes": str(job_jar())}, {"type": DECLARED}):
        with pytest.raises(UnsupportedError, match=r"found a value that is no text.*give the type json"):
            rows_of(source_at(place, given), state)


def test_a_jar_without_the_class_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kryo_sample, "ROWS", 1)
    place, jar = written_once(tmp_path / "state", ROWS - 1, monkeypatch), tmp_path / "other.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("shop/Other.class", b"")
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*; .*other.jar has no class WriteKryo.Color$"):
        rows_of(source_at(place, {"classes": str(jar)}), f"{OPERATOR}.measured")


def test_tasks_know_what_was_found_in_a_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine may not have the jar."""
    place, jar = written_once(tmp_path / "state", 3, monkeypatch), tmp_path / "job.jar"
    shutil.copy(job_jar(), jar)
    source, state = source_at(place, {"classes": str(jar)}), f"{OPERATOR}.measured"
    known = rows_of(source, state)
    sent = pickle.dumps(source)
    jar.unlink()
    monkeypatch.setattr(flink_source, "_opened", {})
    snapshot_states._forms_of.cache_clear()
    assert rows_of(pickle.loads(sent), state).equals(known)
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*job.jar is no file and no folder"):
        source_at(place, {"classes": str(jar)})


def test_classes_that_are_looked_up_are_known_beside_those_that_are_declared() -> None:
    found = {each.name: each for each in COLORS}
    assert with_classes(kind_of("1.20.0", classes=()), found) == kind_of("1.20.0")
    some = kind_of("1.20.0", classes=(), has_defaults=True)
    assert with_classes(some, found) == some
    both = with_classes(kind_of("1.20.0"), {NAME: JobClass(NAME), "shop.Item": JobClass("shop.Item")})
    assert both == kind_of("1.20.0", classes=(*COLORS, JobClass("shop.Item")))


def test_what_the_job_gave_a_serializer_is_not_read() -> None:
    """Neither declared nor looked up, as only that serializer knows the form."""
    octets = [content for content, _ in values("1.20.0", NAME)]
    kind = kind_of("1.20.0", NAME, registrations=((NAME, True),))
    assert "whose form is not public" in outcome(kind, octets, compiled=False)


def test_a_declaration_and_a_jar_have_to_agree() -> None:
    jar = str(job_jar())
    assert settings_of({"type": DECLARED, "classes": jar}).classes == COLORS
    for text, message in (
        (f"class:{NAME}=enum<GREEN {{}}, RED, BLUE>", "which is .* as enum<RED, GREEN, BLUE> in .*job.jar"),
        ("class:shop.Shapes$Book=enum<A>", "which is .* as final class<.* in .*job.jar"),
    ):
        with pytest.raises(InvalidInputError, match=f"INVALID_OPTION.*{message}.*leave one of them out"):
            settings_of({"type": text, "classes": jar})
