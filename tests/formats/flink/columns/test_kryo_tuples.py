"""Flink's tuples in values of Kryo, which Flink's KryoSerializer wrote: they are known without a declaration."""

from __future__ import annotations

import json
import lzma
from functools import cache
from typing import Any

import pytest
from support.flink.kryo_truth import RELEASES, decoded
from support.flink.value_model import in_each_way
from support.paths import DATA

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])
TUPLE = "org.apache.flink.api.java.tuple.Tuple"
HOLDER = "WriteTuples$Holder"
DECLARED = (
    f"class:{HOLDER}=class<Object any, {TUPLE}2<String, Integer> pair, {TUPLE}3<Long, List<String>, Double> three>"
)


@cache
def written(release: str) -> list[dict[str, Any]]:
    octets = (DATA / "flink" / "kryo_tuples.json.xz").read_bytes()
    found: dict[str, list[dict[str, Any]]] = json.loads(lzma.decompress(octets))
    return found[release]


def kind_of(release: str, class_name: str, classes: tuple[JobClass, ...] = ()) -> KryoOf:
    (snapshot,) = (each["snapshot"] for each in written(release) if each["class"] == class_name and "snapshot" in each)
    found = read_snapshot(DataInput(bytes.fromhex(snapshot), "a snapshot"))
    assert isinstance(found, KryoOf)
    return KryoOf(found.serializer, found.class_name, None, found.registrations, release < "2", classes=classes)


def values(release: str, class_name: str) -> tuple[list[bytes], list[Any]]:
    lines = [each for each in written(release) if each["class"] == class_name and "bytes" in each]
    return [bytes.fromhex(each["bytes"]) for each in lines], [each["value"] for each in lines]


def shown(truth: Any) -> Any:
    """The truth as JSON shows it."""
    if isinstance(truth, list):
        return [shown(each) for each in truth]
    if not isinstance(truth, dict):
        return truth
    if "tuple" in truth:
        cells = {f"f{place}": shown(each) for place, each in enumerate(truth["tuple"])}
        return {"class": f"{TUPLE}{len(cells)}", **{name: cells[name] for name in sorted(cells)}}
    if "fields" in truth:
        any_object, pair, three = map(shown, truth["fields"])
        return {"class": HOLDER, "any": any_object, "pair": pair, "three": three}
    return {key: shown(each) for key, each in truth.items()}


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_tuples_have_their_fields(release: str) -> None:
    """Tuples of all kinds of arities, within one another, in lists and maps, twice in one value, with null fields."""
    octets, truth = values(release, "java.lang.Object")
    assert [json.loads(text) for text in decoded(kind_of(release, "java.lang.Object"), octets)] == shown(truth)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_tuples_are_read_in_fields_of_declared_classes(release: str) -> None:
    """With the types that the field gives them, so that texts and numbers in them do not tell their classes."""
    octets, truth = values(release, HOLDER)
    kind = kind_of(release, HOLDER, settings_of({"type": DECLARED}).classes)
    assert [json.loads(text) for text in decoded(kind, octets)] == shown(truth)


def test_kryo_2_may_have_kept_types_of_a_tuple() -> None:
    """So a tuple outside of such a field is refused beside a class with one; the other tuples are not."""
    classes = settings_of({"type": DECLARED}).classes
    octets, truth = values("1.20.0", f"{TUPLE}2")
    with pytest.raises(UnsupportedError, match="only the job's classes decode"):
        decoded(kind_of("1.20.0", f"{TUPLE}2", classes), octets)
    assert [json.loads(text) for text in decoded(kind_of("1.20.0", f"{TUPLE}2"), octets)] == shown(truth)
    octets, truth = values("2.1.0", f"{TUPLE}2")
    assert [json.loads(text) for text in decoded(kind_of("2.1.0", f"{TUPLE}2", classes), octets)] == shown(truth)
