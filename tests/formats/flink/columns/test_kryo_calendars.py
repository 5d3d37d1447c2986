"""Calendars, contexts of numbers, statistics and URLs, as Flink's KryoSerializer wrote them, against what they were.

``tests/data/flink/kryo_described.json.xz`` is of Flink 1.20.0 and 2.1.0, see ``tests/engines/flink/README.md``.
"""

from __future__ import annotations

import datetime
import json
import lzma
import random
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from support.flink.kryo_truth import RELEASES, decoded, outcome
from support.flink.value_model import in_each_way
from support.paths import DATA

from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@cache
def lines(release: str) -> list[dict[str, Any]]:
    """The lines of values of any class that ``WriteDescribed`` wrote with a release of Flink."""
    found = json.loads(lzma.decompress((DATA / "flink" / "kryo_described.json.xz").read_bytes()))[release]
    return [line for line in found if line["class"] == "java.lang.Object"]


def kind_of(release: str, column: pa.DataType | None = None) -> KryoOf:
    (line,) = [line for line in lines(release) if "snapshot" in line]
    found = read_snapshot(DataInput(bytes.fromhex(line["snapshot"]), "a snapshot"))
    assert isinstance(found, KryoOf)
    return replace(found, is_old=release < "2", column=column)


def known(release: str, text: str = "") -> list[tuple[bytes, Any]]:
    """Bytes and truths, of truths with a text."""
    found = [line for line in lines(release) if "value" in line and text in json.dumps(line["value"])]
    return [(bytes.fromhex(line["bytes"]), line["value"]) for line in found]


def at(truth: Any) -> datetime.datetime:
    """The time of a truth."""
    return EPOCH + datetime.timedelta(milliseconds=int(truth["millis"]))


def is_shown(found: Any, truth: Any) -> bool:
    """Whether parsed JSON shows a truth."""
    if isinstance(truth, list):
        return len(found) == len(truth) and all(map(is_shown, found, truth))
    if not isinstance(truth, dict):
        return bool(found == truth)
    if "map" in truth:
        return all(is_shown(found[key], each) for key, each in truth["map"]) and len(found) == len(truth["map"])
    if "millis" in truth:
        return datetime.datetime.fromisoformat(found) == at(truth)
    texts = [found[name] for name in ("count", "sum", "min", "max")]
    return all(float(one) == float(other) for one, other in zip(texts, truth["statistics"], strict=True))


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_classes_of_the_jdk_with_private_fields_are_what_they_were(release: str) -> None:
    """Alone, in lists with nulls and the same object again, in maps and arrays."""
    values = known(release)
    assert len(values) > 25
    for text, (octets, truth) in zip(decoded(kind_of(release), [octets for octets, _ in values]), values, strict=True):
        assert is_shown(json.loads(text), truth), (text, truth, octets.hex())


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_calendars_have_a_column_of_timestamps(release: str) -> None:
    values = [each for each in known(release, "millis") if isinstance(each[1], dict) and "millis" in each[1]]
    rows = decoded(kind_of(release, pa.timestamp("us", "UTC")), [octets for octets, _ in values])
    assert rows == [at(truth) for _, truth in values]
    assert len(values) == 5


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("release", RELEASES)
def test_damaged_ones_are_other_values_or_errors(release: str, step: int) -> None:
    """Never another exception; the compiled walk and the plain one agree on each."""
    chance, kind = random.Random(17), kind_of(release)
    for octets, _ in known(release)[::step]:
        for _ in range(5):
            place = chance.randrange(len(octets))
            new = bytes([chance.choice((0, 1, 2, 3, 5, 0x80, 0xFF, chance.randrange(256)))])
            changed = octets[:place] + new + octets[place + 1 :]
            assert outcome(kind, [changed], True) == outcome(kind, [changed], False)
        cut = octets[: chance.randrange(len(octets))]
        assert outcome(kind, [cut], True) == outcome(kind, [cut], False)
