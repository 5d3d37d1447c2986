"""Classes of a jar, by their class files, against Java's reflection; damaged and hostile jars and class files."""

from __future__ import annotations

import random
import shutil
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.flink.reflected_classes import differences, job_jar, truth_of_jar
from support.object_store import object_store

from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.java_classes.class_file import ENUM, ClassFile, read_class_file
from statestore.formats.flink.java_classes.class_places import find_class_file, places_of
from statestore.formats.flink.java_classes.enum_constants import constants_of
from statestore.formats.flink.java_classes.job_code import JobCode, described
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField

COLOR = "shop.Shapes$Color"
NAMES = sorted(truth_of_jar())


def code_at(*places: Path) -> JobCode:
    return JobCode(places_of(",".join(map(str, places))))


def entries() -> dict[str, bytes]:
    with zipfile.ZipFile(job_jar()) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}


def file_of(name: str) -> ClassFile:
    return read_class_file(entries()[f"{name.replace('.', '/')}.class"], name)


def test_every_class_of_a_jar_is_that_of_reflection() -> None:
    """Fields with their generic types in the order of the file, constants, flags, interfaces and the class above."""
    truth = truth_of_jar()
    assert len(truth) == 24
    files = [file_of(name) for name in truth]
    assert differences(files, truth) == []
    assert [each.name for each in files if described(each) is None] == []
    assert sum(len(each["fields"]) for each in truth.values()) > 40
    assert truth["shop.Many"]["constants"] == [f"C{number}" for number in range(300)]


def test_a_class_is_described() -> None:
    text, outer = JavaType("java.lang.String"), JavaType("shop.Shapes$Outer")
    assert code_at(job_jar()).class_named("shop.Shapes$Book") == JobClass(
        "shop.Shapes$Book",
        (JobField("title", text), JobField("extra", JavaType("java.lang.Object"))),
        "shop.Shapes$Item",
        is_final=True,
    )
    inner = code_at(job_jar()).class_named("shop.Shapes$Outer$Inner")
    assert inner is not None and inner.parameters == ("B",)
    assert inner.fields == (
        JobField("outer", JavaType("", variable="A")),
        JobField("own", JavaType("java.lang.Comparable", variable="B")),
        JobField("this$0", outer, is_synthetic=True),
    )


def test_enums_are_found_by_their_constants_with_bodies() -> None:
    code = code_at(job_jar())
    for name in (COLOR, f"{COLOR}$1"):
        found = code.enum_of(name)
        assert found is not None and (found.name, found.constants) == (COLOR, ("RED", "GREEN", "BLUE"))
    found = code.enum_of("WriteKryo$Color$1")
    assert found is not None and found.constants == ("RED", "GREEN", "BLUE")
    assert [code.enum_of(name) for name in ("shop.Shapes$Book", "shop.Shapes$Color$2", "java.time.DayOfWeek")] == [
        None
    ] * 3


def test_classes_of_other_forms_are_unknown() -> None:
    """What the job writes itself, what its annotations change, collections, and where a class above is nowhere."""
    code = code_at(job_jar())
    for name in ("Own", "Written", "BelowWritten", "Bound", "Names"):
        assert code.class_named(f"shop.Shapes${name}") is None
        assert "form of their own" in code.reason(f"shop.Shapes${name}")
    assert code.class_named("shop.Nowhere") is None
    assert code.reason("shop.Nowhere") == f"{job_jar()} has no class shop.Nowhere"


def test_a_class_leads_to_others() -> None:
    found = {each.name for each in code_at(job_jar()).reached_from("shop.Shapes$Below")}
    assert found == {f"shop.Shapes{name}" for name in ("$Below", "", "$Color", "$Outer", "$Outer$Inner")}


def test_places_are_looked_at_in_order(tmp_path: Path) -> None:
    """A folder of class files, and a jar of Spring with the classes in a folder; only the first has the class."""
    folder, jar = tmp_path / "classes", tmp_path / "boot.jar"
    with zipfile.ZipFile(job_jar()) as archive:
        archive.extractall(folder)
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/versions/17/shop/Many.class", b"other")
        archive.writestr("x/BOOT-INF/classes/shop/Many.class", b"other")
        for name, data in entries().items():
            archive.writestr(f"BOOT-INF/classes/{name}", data)
    whole = [code_at(job_jar()).class_named(name) for name in NAMES]
    for places in ([folder], [jar], [jar, folder]):
        assert [code_at(*places).class_named(name) for name in NAMES] == whole
    (folder / "shop" / "Many.class").write_bytes(b"damaged")
    assert code_at(jar, folder).class_named("shop.Many") is not None
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*classes/shop/Many.class.*expected cafebabe"):
        code_at(folder, jar).class_named("shop.Many")


@pytest.mark.parametrize("form", ["stored", "prefixed", "64 bits"])
def test_jars_of_each_form_are_read(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "job.jar"
    if form == "64 bits":
        monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
        monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 5)
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED if form == "stored" else zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"PK\5\6 a comment"
        for name, data in entries().items():
            archive.writestr(name, data)
    if form == "prefixed":
        jar.write_bytes(b"#!/bin/sh\nexec java -jar $0\n" + jar.read_bytes())
    known = code_at(job_jar())
    assert [code_at(jar).class_named(name) for name in NAMES] == [known.class_named(name) for name in NAMES]


@pytest.mark.slow
def test_a_jar_in_an_object_store_takes_few_requests(tmp_path: Path) -> None:
    """Its size and its directory, and the entries of classes that are asked for."""
    with zipfile.ZipFile(job_jar()) as archive:
        archive.extractall(tmp_path / "classes")
    shutil.copy(job_jar(), tmp_path)
    with object_store() as store:
        store.upload(tmp_path, "jars")
        for place, requests in (("jars/job.jar", 5), ("jars/classes", 4)):
            store.clear()
            code = JobCode(places_of(store.uri(place)))
            assert code.class_named(COLOR) == code_at(job_jar()).class_named(COLOR)
            assert code.class_named("shop.Nowhere") is None
            assert code.class_named("shop.Nowhere") is None
            assert len(store.requests) == requests
        with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*no.jar is no file"):
            places_of(store.uri("jars/no.jar"))


def test_names_of_values_lead_out_of_no_place(tmp_path: Path) -> None:
    """The names of classes are from the bytes of a state."""
    inside = tmp_path / "a"
    inside.mkdir()
    for name, data in entries().items():
        if "/" not in name:
            (tmp_path / name).write_bytes(data)
    for name in ("..WriteKryo$Color", "../WriteKryo$Color", "", ".", "a..b", "\0", "[Lshop.Many;", "C:\\x", "x" * 9999):
        for place in (inside, job_jar()):
            assert code_at(place).class_named(name) is None
    (inside / "b").mkdir()
    shutil.copy(tmp_path / "WriteKryo$Color.class", inside / "b")
    with pytest.raises(InvalidInputError, match=r"found class WriteKryo.Color, expected b.WriteKryo.Color"):
        code_at(inside).class_named("b.WriteKryo$Color")


def test_constants_are_in_the_order_of_their_numbers() -> None:
    """Not in that of the fields, which a tool may have sorted or renamed; and unknown where other code makes them."""
    file = file_of(COLOR)
    assert constants_of(replace(file, fields=file.fields[::-1])) == ("RED", "GREEN", "BLUE")
    assert constants_of(replace(file, initializer=b"")) is None
    assert constants_of(replace(file, initializer=file.initializer[:20])) is None
    less = tuple(each for each in file.fields if each.name != "BLUE")
    assert constants_of(replace(file, fields=less)) == ("RED", "GREEN")
    more = (*file.fields, replace(file.fields[0], name="YELLOW", flags=ENUM))
    assert constants_of(replace(file, fields=more)) is None
    other = JobCode()
    other.found[COLOR] = replace(file, fields=more)
    assert other.class_named(COLOR) is None
    assert "does not say for sure in which order" in other.reason(COLOR)


def test_classes_above_one_another_end() -> None:
    code, file = JobCode(), file_of("shop.Shapes$Book")
    for number in range(999):
        for name, above in (
            (f"shop.A{number % 9}", f"shop.A{(number + 1) % 9}"),
            (f"shop.B{number}", f"shop.B{number + 1}"),
        ):
            code.found[name] = replace(file, name=name, superclass=above)
    assert code.enum_of("shop.A0") is None
    assert len(list(code.reached_from("shop.A0"))) == 9
    assert code.class_named("shop.B0") is None


@given(st.sampled_from(sorted(entries().items())), st.randoms(use_true_random=False))
def test_damaged_class_files_are_refused_or_other_classes(entry: tuple[str, bytes], chance: random.Random) -> None:
    name, data = entry
    octets = bytearray(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)
    for _ in range(chance.randrange(4) if octets else 0):
        octets[chance.randrange(len(octets))] = chance.randrange(256)
    try:
        described(read_class_file(bytes(octets), name))
    except InvalidInputError as error:
        assert error.code == "INVALID_OPTION" and name in error.message


@given(st.binary(max_size=200))
def test_other_bytes_are_no_class_file(data: bytes) -> None:
    for octets in (data, entries()["shop/Many.class"][:10] + data):
        with pytest.raises(InvalidInputError, match="INVALID_OPTION"):
            read_class_file(octets, "some file")


def test_damaged_jars_are_refused(tmp_path: Path) -> None:
    chance, jar, whole = random.Random(7), tmp_path / "job.jar", job_jar().read_bytes()
    known = code_at(job_jar()).class_named("shop.Many")
    refused = 0
    for number in range(60):
        octets = bytearray(whole)
        for _ in range(3):
            octets[-chance.randrange(1, 1 << chance.randrange(2, 15))] = chance.randrange(256)
        jar.write_bytes(octets[: chance.randrange(len(octets))] if number % 3 == 0 else octets)
        try:
            found = code_at(jar).class_named("shop.Many")
            assert found in (known, None)
        except InvalidInputError as error:
            assert error.code == "INVALID_OPTION" and str(jar) in error.message
            refused += 1
    assert refused > 20


def test_entries_that_are_too_large_are_not_inflated(tmp_path: Path) -> None:
    jar = tmp_path / "job.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("shop/Many.class", bytes(17 << 20))
    with pytest.raises(InvalidInputError, match=r"job.jar, entry shop/Many.class: found 17825792 bytes, more than"):
        code_at(jar).class_named("shop.Many")
    octets = bytearray(jar.read_bytes())
    for sign, place in ((b"PK\1\2", 24), (b"PK\3\4", 22)):  # now both headers tell a lie
        struct.pack_into("<I", octets, octets.find(sign) + place, 100)
    jar.write_bytes(octets)
    with pytest.raises(InvalidInputError, match=r"entry shop/Many.class: found 101 bytes of another length"):
        code_at(jar).class_named("shop.Many")


def test_places_that_are_no_jars_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"INVALID_OPTION.*no.jar is no file and no folder; expected the job's jar"
    ):
        places_of(str(tmp_path / "no.jar"))
    for content in (b"", b"text", b"PK\5\6" + bytes(18), b"PK\5\6" + b"\xff" * 18):
        (tmp_path / "a.jar").write_bytes(content)
        places = places_of(str(tmp_path / "a.jar"))
        if content.endswith(bytes(18)):
            assert find_class_file(places, "shop.Many", {}) is None
            continue
        with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*a.jar: found .*expected a jar of the job"):
            find_class_file(places, "shop.Many", {})
    (tmp_path / "a.jar").unlink()
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*a.jar"):
        find_class_file(places, "shop.Many", {})
