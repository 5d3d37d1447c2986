"""Declarations that a refusal suggests for objects in Kryo, of classes that the same snapshot has as POJOs or enums.

``tests/data/flink/kryo_described.json.xz`` is of Flink 1.20.0 and 2.1.0, see ``tests/engines/flink/README.md``.
"""

from __future__ import annotations

import json
import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.flink import snapshot_bytes as types
from support.flink.class_truth import fields_of
from support.flink.kryo_truth import RELEASES
from support.flink.snapshot_reads import rows_of, source_at
from support.paths import DATA

from benchmarks.engines import flink_forms
from benchmarks.engines.flink_forms import OPERATOR, Form
from benchmarks.engines.flink_snapshots import FIRST_KEY

D = "WriteDescribed$"
STATE = f"{OPERATOR}.measured"
ROWS = 96
OPTION = re.compile(r"--type '([^']*)'")


@cache
def written(release: str) -> list[dict[str, Any]]:
    """The lines that ``WriteDescribed`` wrote with a release of Flink."""
    found = json.loads(lzma.decompress((DATA / "flink" / "kryo_described.json.xz").read_bytes()))
    lines: list[dict[str, Any]] = found[release]
    return lines


def lists(release: str, element: str) -> list[tuple[bytes, Any]]:
    """Bytes and truths of lists whose elements have this text in their truth."""
    lines = [line for line in written(release) if line["class"] == "java.util.List" and "value" in line]
    return [(bytes.fromhex(line["bytes"]), line["value"]) for line in lines if element in json.dumps(line["value"])]


def described(release: str, name: str) -> bytes:
    """The snapshot of a POJO or an enum that Flink wrote."""
    (line,) = [line for line in written(release) if line["class"] == D + name and "described" in line]
    return bytes.fromhex(line["described"])


def saved(
    place: Path, release: str, known: list[tuple[bytes, Any]], *others: bytes, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A savepoint with lists of Kryo, and states of these serializers beside."""
    (line,) = [line for line in written(release) if line["class"] == "java.util.List" and "snapshot" in line]
    form = Form(bytes.fromhex(line["snapshot"]), lambda number: known[number % len(known)][0])
    plain = flink_forms.header(form)
    states = [types.state(f"other-{number}", each, "VALUE") for number, each in enumerate(others)]
    own = types.state(form.name, form.serializer, form.kind)
    assert plain.count(own) == 1
    first = plain.index(own)
    count = (1 + len(states)).to_bytes(2, "big")
    header = plain[: first - 2] + count + own + b"".join(states) + plain[first + len(own) :]
    monkeypatch.setattr(flink_forms, "DISTINCT", ROWS)
    monkeypatch.setattr(flink_forms, "header", lambda *_: header)
    return flink_forms.savepoint(place, form, ROWS, version=4 if release < "2" else 5)


def suggested(place: Path) -> str:
    """The option that a state without a declaration asks for, which is in the metadata of its column, too."""
    plain = source_at(place)
    facts = plain.info(STATE).facts
    needed = facts["type_needed"]
    (field,) = [each for each in plain.at(STATE, plain.newest(STATE)).schema if each.name == "value"]
    assert needed in field.metadata[b"statestore.serializer"].decode()
    return needed


def plain_value(truth: Any) -> Any:
    if isinstance(truth, list):
        return [plain_value(each) for each in truth]
    if isinstance(truth, dict) and "object" in truth:
        return {name: plain_value(value) for name, value in fields_of(truth)}
    return float(truth["double"]) if isinstance(truth, dict) and "double" in truth else truth


@pytest.mark.parametrize("release", RELEASES)
def test_the_class_of_a_pojo_in_the_same_snapshot_is_suggested(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With int and Integer as the values have them; the option that the text has reads all rows."""
    known = lists(release, f"{D}Line")
    place = saved(tmp_path / "state", release, known, described(release, "Line"), monkeypatch=monkeypatch)
    needed = suggested(place)
    (option,) = OPTION.findall(needed)
    assert option == f"class:{D}Line=class<int qty, Long serial, String sku>"
    assert "compare it with the code" in needed and "--classes" in needed
    assert source_at(place).info(STATE).columns.field("value").type == "binary"  # nothing is applied by itself
    found = rows_of(source_at(place, {"type": option}), STATE)
    for row in found.to_pylist():
        assert row["value"] == plain_value(known[(row["key"] - FIRST_KEY) % len(known)][1])
    assert found.num_rows > ROWS // 2


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_classes_within_a_suggested_one_are_declared_with_it(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Superclasses, final classes, enums with bodies, arrays, and what Flink leaves to Kryo."""
    known = lists(release, f"{D}Item")
    place = saved(tmp_path / "state", release, known, described(release, "Item"), monkeypatch=monkeypatch)
    (option,) = OPTION.findall(suggested(place))
    assert f"class:{D}Place=final class<int row, long shelf>" in option
    assert f"class:{D}Color=enum<RED, GREEN, BLUE>" in option and f"class:{D}Size=enum<S, M {{}}>" in option
    found = rows_of(source_at(place, {"type": option}), STATE)
    for row in found.to_pylist():
        truth = plain_value(known[(row["key"] - FIRST_KEY) % len(known)][1])
        for one, other in zip(row["value"], truth, strict=True):
            for name in ("sku", "qty", "serial", "price", "fresh", "color", "size", "owner", "place", "counts", "tags"):
                assert one[name] == other[name]


@pytest.mark.parametrize("release", RELEASES)
def test_the_constants_of_an_enum_are_suggested_and_not_used(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot keeps constants in the order of an older class, which Kryo does not."""
    known = lists(release, '["RED", "BLUE", "RED"]')
    place = saved(tmp_path / "state", release, known, described(release, "Color"), monkeypatch=monkeypatch)
    (option,) = OPTION.findall(suggested(place))
    assert option == f"class:{D}Color=enum<RED, GREEN, BLUE>"
    rows = rows_of(source_at(place, {"type": option}), STATE)["value"].to_pylist()
    assert rows and all(each == ["RED", "BLUE", "RED"] for each in rows)


def test_a_description_that_does_not_fit_is_told_and_not_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = types.pojo(f"{D}Line", {"qty": types.STRING, "sku": types.STRING})
    known = lists("1.20.0", f"{D}Line")
    needed = suggested(saved(tmp_path / "state", "1.20.0", known, other, monkeypatch=monkeypatch))
    assert f"--type 'class:{D}Line=class<...>'" in needed
    assert f"has it as POJO {D}Line(qty string, sku string), of which no declaration could be made that fits" in needed


def test_a_class_that_is_described_nowhere_has_a_form_to_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = lists("1.20.0", f"{D}Line")
    needed = suggested(
        saved(tmp_path / "state", "1.20.0", known, described("1.20.0", "Color"), monkeypatch=monkeypatch)
    )
    assert f"--type 'class:{D}Line=class<...>'" in needed and "this snapshot" not in needed


def test_elements_that_cannot_be_told_apart_say_why_and_which_option_divides_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """POJOs with objects of Kryo in the middle: with their class declared, elements are rows with all fields."""
    known = lists("1.20.0", f"{D}Line")
    (line,) = [each for each in written("1.20.0") if each["class"] == "java.util.List" and "snapshot" in each]
    pojo = types.pojo("shop.Order", {"a": types.INT, "np": bytes.fromhex(line["snapshot"]), "z": types.STRING})

    def element(number: int) -> bytes:
        return b"\2\0" + number.to_bytes(4, "big") + b"\0" + known[number % len(known)][0] + b"\0\3zz"

    monkeypatch.setattr(flink_forms, "DISTINCT", ROWS)
    form = Form(types.listed(pojo), lambda number: element(number) + b"," + element(number + 1), "LIST")
    place = flink_forms.savepoint(tmp_path / "state", form, ROWS)
    plain = source_at(place)
    facts = plain.info(STATE).facts
    assert "nothing says where one ends that has Kryo java.util.List" in facts["elements"]
    assert f"--type 'class:{D}Line=class<...>'" in facts["type_needed"]
    assert "position" not in rows_of(plain, STATE).schema.names
    asked = source_at(place, {"type": f"class:{D}Line=class<int qty, Long serial, String sku>"})
    assert "elements" not in asked.info(STATE).facts
    for row in rows_of(asked, STATE).to_pylist():
        truth = plain_value(known[row["value"]["a"] % len(known)][1])
        assert row["value"]["np"] == truth and row["value"]["z"] == "zz"
        assert row["value"]["a"] == row["key"] - FIRST_KEY + row["position"]
