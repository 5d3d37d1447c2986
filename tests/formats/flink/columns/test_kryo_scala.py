"""Values of Scala that Kryo wrote as Flink's Scala API tells it to, against what they were.

``tests/data/flink/kryo_scala.json.xz`` and ``scala-numbers.tar.xz`` are of Flink 1.20.1 with Scala 2.12.
"""

from __future__ import annotations

import json
import lzma
import random
import struct
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink.kryo_truth import decoded, is_json, of_json, outcome
from support.flink.metadata_bytes import Operator, i32, in_place, key_groups, metadata, subtask, utf
from support.flink.snapshot_bytes import LONG, header, optional_map, state
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.value_model import ORIGIN, in_each_way, walking
from support.paths import DATA

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.columns import decoding
from statestore.formats.flink.columns.decoding import decode_records
from statestore.formats.flink.columns.kryo_columns import type_of
from statestore.formats.flink.columns.kryo_object_types import shown_type
from statestore.formats.flink.columns.kryo_tapes import forms_of, tape_of
from statestore.formats.flink.layouts.kryo_scala import NUMBERED
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, KryoOf, TupleOf, replaced
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.serializers.type_search import of_scala
from statestore.formats.flink.snapshot.data_input import DataInput

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])
ANY, DECIMAL, WHOLE = "java.lang.Object", "scala.math.BigDecimal", "scala.math.BigInt"


@cache
def written() -> list[dict[str, Any]]:
    """The lines that ``WriteScala`` wrote."""
    found: list[dict[str, Any]] = json.loads(lzma.decompress((DATA / "flink" / "kryo_scala.json.xz").read_bytes()))
    return found


@cache
def kinds() -> dict[str, FlinkType]:
    """The types by what wrote them. In those of the Scala API it is known that the job has it."""

    def known(kind: FlinkType) -> FlinkType:
        return replace(kind, is_scala=True) if isinstance(kind, KryoOf) else kind

    lines = [line for line in written() if "snapshot" in line]
    found = {line["class"]: read_snapshot(DataInput(bytes.fromhex(line["snapshot"]), "a snapshot")) for line in lines}
    return {name: replaced(kind, known) if of_scala(kind) else kind for name, kind in found.items()}


def values(class_name: str, own: bool = False) -> list[tuple[bytes, Any]]:
    """Bytes and truths; ``own``: only those of classes whose form is not read, else only the others."""
    lines = [line for line in written() if line["class"] == class_name and "bytes" in line]
    return [
        (bytes.fromhex(line["bytes"]), line["value"])
        for line in lines
        if ("57726974655363616c61" in line["bytes"] or "52616e67e5" in line["bytes"]) == own
    ]


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_int=str, parse_float=str)


def test_only_serializers_of_the_scala_api_say_that_a_job_has_it() -> None:
    assert {name for name, kind in kinds().items() if of_scala(kind)} == {"case Price", "case Bag"}


def test_numbers_of_classes_end_before_those_of_flink() -> None:
    names = [name for name, _ in NUMBERED]
    assert 10 + len(names) == 73 and names.index("scala.Some") == 5 and names.index("scala.Tuple2") == 27
    assert names.index("scala.runtime.BoxedUnit") == 62 and len(set(names)) == 63


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(
    "class_name", [ANY, DECIMAL, WHOLE, "scala.collection.mutable.Map", "scala.Option", "scala.Symbol"]
)
def test_values_that_kryo_wrote_are_json(class_name: str) -> None:
    known = values(class_name)
    found = decoded(kinds()[class_name], [octets for octets, _ in known])
    for text, (_, truth) in zip(found, known, strict=True):
        assert is_json(parsed(text), of_json(truth)), (text, truth)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("class_name", [DECIMAL, WHOLE])
def test_big_numbers_have_a_column_of_texts(class_name: str) -> None:
    """Big numbers have any scale, context and hash code."""
    kind, known = kinds()[class_name], values(class_name)
    assert isinstance(kind, KryoOf) and len(known) > 30
    data, sizes = np.frombuffer(b"".join(octets for octets, _ in known), np.uint8), [len(octets) for octets, _ in known]
    tape = tape_of(forms_of(kind), data, np.cumsum([0, *sizes[:-1]]), np.array(sizes))
    assert shown_type(type_of(tape)) == pa.string() and len(tape.tag) == len(known)
    found = decoded(replace(kind, column=pa.string()), [octets for octets, _ in known])
    assert found == [truth["big"] for _, truth in known]


@pytest.mark.usefixtures("each_way")
def test_fields_around_big_numbers_are_read() -> None:
    known = values("case Price")
    kind = kinds()["case Price"]
    assert isinstance(kind, TupleOf)
    for row, (_, truth) in zip(decoded(kind, [octets for octets, _ in known]), known, strict=True):
        name, amount, count, last = row.values()
        assert [name, {"big": amount}, {"big": count}, last] == truth


@pytest.mark.usefixtures("each_way")
def test_collections_of_named_classes_are_read_where_the_scala_api_is_known() -> None:
    known = values("case Bag")
    for row, (_, truth) in zip(decoded(kinds()["case Bag"], [octets for octets, _ in known]), known, strict=True):
        first, kept, found, last = row.values()
        assert [first, {"map": [list(each) for each in kept]}, last] == [truth[0], truth[1], truth[3]]
        assert is_json(parsed(found), of_json(truth[2])), (found, truth)


def test_a_named_collection_is_refused_where_the_scala_api_is_not_known() -> None:
    """Kryo without it writes a list of one 0 as this list of null and an empty list."""
    octets = b"\1\0scala.collection.immutable.$colon$colo\xee\1\2\0\1\1scala.collection.immutable.Nil\xa4\1\0"
    kind = kinds()[ANY]
    assert isinstance(kind, KryoOf)
    for compiled in (False, True):
        assert outcome(replace(kind, is_scala=True), [octets], compiled) == ["[null,[]]"]
        assert "of class scala.collection.immutable.$colon$colon" in outcome(kind, [octets], compiled)


def test_a_big_number_of_a_later_scala_is_refused_of_a_job_of_the_scala_api() -> None:
    """Scala 2.13, for which there is no such API, keeps a small number as a long beside a BigInteger that is null."""
    kind = kinds()[WHOLE]
    assert isinstance(kind, KryoOf)
    for compiled in (False, True):
        assert outcome(kind, [b"\x57\1\0\x0e"], compiled) == ["7"]
        assert "only the job's classes decode" in outcome(replace(kind, is_scala=True), [b"\x57\1\0\x0e"], compiled)


def test_a_serializer_of_a_job_for_collections_of_scala_makes_them_opaque() -> None:
    (line,) = [line for line in written() if "snapshot" in line and line["class"] == ANY]
    octets, none = bytes.fromhex(line["snapshot"]), optional_map([])
    assert octets.endswith(none + none)
    for name, is_known in (("scala.collection.Seq", False), ("shop.Seq", True)):
        given = octets[: -len(none)] + optional_map([(name, utf(name), None)])
        assert isinstance(read_snapshot(DataInput(given, "a snapshot")), KryoOf) == is_known


@pytest.mark.usefixtures("each_way")
def test_a_side_without_a_value_is_read_at_the_end() -> None:
    """Left(null), and a list of two Eithers, as a column of maps."""
    kind = kinds()[ANY]
    assert isinstance(kind, KryoOf)
    assert decoded(kind, [b"\x12\1\0", b"\x13\1\2\6"]) == ['{"left":null}', '{"right":3}']
    column = replace(kind, column=pa.list_(pa.map_(pa.string(), pa.int32())))
    assert decoded(column, [b"\x14\1\2\x12\1\0\x13\1\2\6"]) == [[[("left", None)], [("right", 3)]]]


@pytest.mark.usefixtures("each_way")
def test_classes_of_a_job_are_refused_by_name() -> None:
    known = values(ANY, own=True)
    assert len(known) == 4
    for octets, _ in known:
        with pytest.raises(UnsupportedError, match=r"of class (WriteScala\$|scala.collection.immutable.Range)"):
            decoded(kinds()[ANY], [octets])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("class_name", [ANY, DECIMAL, WHOLE])
def test_objects_that_follow_one_another_tell_their_ends(class_name: str) -> None:
    known = values(class_name)
    data = np.frombuffer(b"".join(octets + bytes([7]) for octets, _ in known), np.uint8)
    kind, at, rows = [kinds()[class_name], Basic("byte")], 0, 0
    while rows < len(known):
        found = decode_records(kind, data, at, len(data), len(known) - rows, [False, True], ORIGIN, True)
        assert found.columns[1] is not None and set(found.columns[1].to_pylist()) == {7}
        at, rows = found.at, rows + found.rows
    assert at == len(data)


@pytest.mark.parametrize("room", [0, 16, 1 << 20])
def test_objects_of_two_fields_are_kept_apart(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects have room on the tape of one walk."""
    known, kind = values(ANY)[:100], kinds()[ANY]
    octets = [one + other for (one, _), (other, _) in zip(known, reversed(known), strict=True)]
    monkeypatch.setattr(decoding, "_MOST_ENTRIES", room)
    with walking(True):
        found = decoded(TupleOf((kind, kind)), octets)
        texts = decoded(kind, [each for each, _ in known])
    assert [row["f0"] for row in found] == texts
    assert [row["f1"] for row in found] == texts[::-1]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("class_name", [ANY, DECIMAL, WHOLE, "case Price", "case Bag"])
def test_damaged_objects_are_other_values_or_errors(class_name: str, step: int) -> None:
    """Never another exception, nor endless time: truncations, and random changes of single bytes.

    The compiled walk and the plain one agree on each.
    """
    chance, kind = random.Random(11), kinds()[class_name]
    for octets, _ in values(class_name)[:80:step]:
        changed = [octets[: chance.randrange(len(octets))] for _ in range(2)]
        for _ in range(6):
            place = chance.randrange(len(octets))
            changed.append(octets[:place] + bytes([chance.randrange(256)]) + octets[place + 1 :])
        for each in changed:
            assert outcome(kind, [each], True) == outcome(kind, [each], False)


@pytest.fixture(scope="module")
def savepoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The savepoints that ``SaveScala`` took, by backend and form."""
    folder = tmp_path_factory.mktemp("scala")
    with tarfile.open(DATA / "flink" / "scala-numbers.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.local_files
@pytest.mark.parametrize("place", ["hashmap/canonical", "hashmap/native", "rocksdb/native"])
def test_case_classes_with_big_numbers_have_columns(savepoints: Path, place: str) -> None:
    (folder,) = (savepoints / place).iterdir()
    truth = json.loads((folder.parents[1] / "truth.json").read_text())
    source = source_at(folder)
    found: dict[tuple[str, str], Any] = {}
    for name in ("one", "total", "all", "map"):
        listed = next(each for each in source.states() if each.endswith(f".{name}"))
        for row in rows_of(source, listed).to_pylist():
            value = row["map_value" if name == "map" else "value"]
            if isinstance(value, dict):
                value = list(value.values())
            if name == "map":
                value = [row["map_key"], value]
            if name == "all":
                value = [*found.get((name, row["key"]), []), value]
            found[name, row["key"]] = value
    assert found == {(name, key): value for (name, key), value in truth} and len(found) == 36


def test_random_bytes_are_values_or_errors() -> None:
    chance = random.Random(5)
    for class_name in (ANY, "case Bag"):
        for _ in range(150):
            octets = bytes(
                chance.choice((0, 1, 2, 3, chance.randrange(10, 75), chance.randrange(256))) for _ in range(20)
            )
            try:
                decoded(kinds()[class_name], [octets])
            except StateStoreError:
                continue


@pytest.mark.local_files
@pytest.mark.parametrize("has_scala_api", [False, True])
def test_a_state_of_the_scala_api_says_how_those_beside_it_are_written(tmp_path: Path, has_scala_api: bool) -> None:
    """A list in a state of any class, beside a case class or alone."""
    snapshots = {line["class"]: bytes.fromhex(line["snapshot"]) for line in written() if "snapshot" in line}
    states = [state("any", snapshots[ANY]), *([state("price", snapshots["case Price"])] if has_scala_api else [])]
    octets = b"\1\0scala.collection.immutable.$colon$colo\xee\1\1\2\6"
    stored = b"\x80" + struct.pack(">q", 7) + b"\0"
    head = header(LONG, *states)
    block = struct.pack(">H", 0) + i32(len(stored)) + stored + i32(len(octets)) + octets + b"\xff\xff"
    place = tmp_path / "chk-7"
    place.mkdir()
    keyed = key_groups(7, 0, [len(head)], in_place(head + block))
    (place / "_metadata").write_bytes(metadata(Operator(id="ab" * 16, subtasks=[subtask(keyed=keyed)]), version=4))
    (found,) = rows_of(source_at(tmp_path), f"{'ab' * 16}.any")["value"].to_pylist()
    assert found == ([3] if has_scala_api else octets)
