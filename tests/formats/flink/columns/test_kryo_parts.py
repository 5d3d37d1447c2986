"""Values of Kryo whose parts are objects of their own, against what they were: dates that times share, and wrappers.

``tests/data/flink/kryo_parts.json.xz`` is of Flink 1.20.0 and 2.1.0, and of Flink 1.20.1 with its Scala API.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink.kryo_truth import RELEASES, decoded, outcome
from support.flink.value_model import in_each_way, varint
from support.paths import DATA

from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns.kryo_columns import type_of
from statestore.formats.flink.columns.kryo_object_types import shown_type
from statestore.formats.flink.columns.kryo_tapes import forms_of, tape_of
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.kryo_sample import _without
from statestore.formats.flink.layouts.type_layouts import whose
from statestore.formats.flink.serializers.flink_types import KryoOf, Opaque
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput

each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])
ANY, SCALA = "java.lang.Object", "scala"
OBJECTS = tuple(
    JobClass(f"WriteObjects${name}$", constants=constants, is_final=True)
    for name, constants in (
        ("Weekday", ("Monday", "Tuesday", "Wednesday")),
        ("Level", ("Low", "High")),
        ("Empty", ("Empty",)),
        ("Full", ("Full",)),
        ("Gap", ("Below", "Above")),
    )
)
OFFSET_OF_A_REGION = re.compile(r"(Z|[+-][0-9:]+)(?=\[)")
"""The part of a text that Kryo 5 does not write."""


@cache
def written(release: str) -> list[dict[str, Any]]:
    """The lines that ``WriteParts`` wrote with a release of Flink, or ``WriteObjects`` with its Scala API."""
    found = json.loads(lzma.decompress((DATA / "flink" / "kryo_parts.json.xz").read_bytes()))
    lines: list[dict[str, Any]] = found[release]
    return lines


def kind_of(release: str, class_name: str = ANY, **changed: Any) -> KryoOf:
    (line,) = [line for line in written(release) if line["class"] == class_name and "snapshot" in line]
    found = read_snapshot(DataInput(bytes.fromhex(line["snapshot"]), "a snapshot"))
    assert isinstance(found, KryoOf)
    is_scala = release == SCALA
    return replace(
        found, **{"is_old": release != "2.1.0", "is_scala": is_scala, "classes": is_scala * OBJECTS, **changed}
    )


def values(release: str, class_name: str = ANY) -> list[tuple[bytes, Any]]:
    """Bytes and truths. Sets of characters are read of Kryo 5."""
    lines = [line for line in written(release) if line["class"] == class_name and "bytes" in line]
    known = [(bytes.fromhex(line["bytes"]), line["value"]) for line in lines]
    return [each for each in known if release == "2.1.0" or b"sun.nio" not in each[0]]


def clock(nanos: int) -> str:
    seconds, part = divmod(nanos, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or part:
        text += f":{seconds % 60:02}"
    for zeros, width in ((10**6, 3), (10**3, 6), (1, 9)):
        if part and part % zeros == 0:
            return f"{text}.{part // zeros:0{width}}"
    return text


def java_text(tag: str, value: str) -> Any:
    """The text of Java for a time: its ``toString``, with all time of a duration in seconds."""
    number = int(value) if tag != "bytes" else 0
    if tag == "date":
        return str(np.datetime64(number, "D"))
    if tag == "time":
        return clock(number)
    if tag == "local":
        days, nanos = divmod(number, 86400 * 10**9)
        return f"{np.datetime64(days, 'D')}T{clock(nanos)}"
    if tag == "timestamp":
        return f"{np.datetime64(number, 'ns')}".rstrip("0") + "Z"
    assert tag == "duration"
    whole, part = divmod(abs(number), 10**9)
    return f"PT{'-' if number < 0 else ''}{whole}{f'.{part:09}'.rstrip('0').rstrip('.')}S"


def shown(truth: Any, is_old: bool) -> Any:
    """The parsed JSON of a truth."""
    if isinstance(truth, str):
        return truth if is_old else OFFSET_OF_A_REGION.sub("", truth)
    if isinstance(truth, list):
        return [shown(each, is_old) for each in truth]
    if not isinstance(truth, dict):
        return truth
    ((tag, value),) = truth.items()
    if tag != "map":
        return java_text(tag, value)
    pairs = [(shown(key, is_old), shown(each, is_old)) for key, each in value]
    named = all(
        isinstance(key, str) and not isinstance(old, dict) for (key, _), (old, _) in zip(pairs, value, strict=True)
    )
    return dict(pairs) if named else [{"key": key, "value": each} for key, each in pairs]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", [*RELEASES, SCALA])
def test_values_that_share_parts_are_what_they_were(release: str) -> None:
    """Lists of times whose dates and times of day are the same objects, alone and in zoned ones, and all others."""
    known = values(release)
    found = decoded(kind_of(release), [octets for octets, _ in known])
    for text, (octets, truth) in zip(found, known, strict=True):
        assert json.loads(text or "null") == shown(truth, release != "2.1.0"), octets.hex()
    assert len(known) > 150


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_times_of_one_day_have_a_column(release: str) -> None:
    kind, typed = kind_of(release), 0
    for octets, truth in values(release):
        data = np.frombuffer(octets, np.uint8)
        found = shown_type(type_of(tape_of(forms_of(kind), data, np.array([0]), np.array([len(data)]))))
        if found == pa.list_(pa.timestamp("ns")):
            (row,) = decoded(replace(kind, column=found), [octets])
            assert [{"local": str(each.value)} for each in row] == truth
            typed += 1
    assert typed > 50


@pytest.mark.usefixtures("each_way")
def test_values_of_scala_have_typed_columns() -> None:
    known = values(SCALA)
    texts = [(octets, truth) for octets, truth in known if isinstance(truth, str)]
    names = [(octets, truth) for octets, truth in texts if b"WriteObjects" in octets]
    durations = [each for each in known if isinstance(each[1], dict) and "duration" in each[1]]
    assert len(names) > 5 and len(durations) > 3
    assert decoded(kind_of(SCALA, column=pa.string()), [octets for octets, _ in names]) == [truth for _, truth in names]
    found = decoded(kind_of(SCALA, column=pa.duration("ns")), [octets for octets, _ in durations])
    nanos = [pa.scalar(each, pa.duration("ns")).value for each in found]
    assert nanos == [int(truth["duration"]) for _, truth in durations]


@pytest.mark.parametrize("release", RELEASES)
def test_a_text_of_an_address_has_a_port(release: str) -> None:
    """At most 65535, which no other text says."""
    octets = next(octets for octets, truth in values(release) if truth == "localhost:65535")
    kind = kind_of(release)
    for compiled in (False, True):
        assert outcome(replace(kind, column=pa.string()), [octets], compiled) == ["localhost:65535"]
        assert "fields that no such object has" in outcome(kind, [octets[:-1] + b"\4"], compiled)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_addresses_have_hosts_and_ports_of_any_length(release: str) -> None:
    hosts = [("a.example", 0), ("b", 7), ("shop.example", 65535), ("c.example", 443), ("d", 10), ("e", 99999 - 34465)]
    numbered = [("::1", 80), *hosts, ("f::", 8080)]
    kind = kind_of(release, column=pa.string())
    for chosen in (hosts, numbered):
        rows = [b"S\1" + _ascii(host) + varint(port) for host, port in chosen]
        shown = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in chosen]
        assert decoded(kind, rows) == shown
        lists = [b"\1\0java.util.ArrayLis\xf4\1" + b"\1" * (release == "1.20.0") + row for row in rows]
        if release == "1.20.0":  # among other values
            assert decoded(replace(kind, column=None), [*lists, rows[0]]) == [
                *(f'["{each}"]' for each in shown), f'"{shown[0]}"'
            ]  # fmt: skip


def _ascii(found: str) -> bytes:
    """A text that ends with bit 80; one of one character has its length in front."""
    data = found.encode()
    return data[:-1] + bytes((data[-1] | 0x80,)) if len(data) > 1 else b"\x82" + data


@pytest.mark.usefixtures("each_way")
def test_ids_that_are_not_declared_are_refused() -> None:
    (below, _), (above, _), (itself, _) = values(SCALA, "scala.Option")
    with pytest.raises(StateStoreError, match=r"constant 8 of enum WriteObjects\$Gap\$.*at most 2"):
        decoded(kind_of(SCALA, "scala.Option"), [above])
    for octets in (below, itself):  # an ID below 0, and an Enumeration that is a value itself
        with pytest.raises(UnsupportedError, match="only the job's classes decode"):
            decoded(kind_of(SCALA, "scala.Option"), [octets])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("is_scala", [False, True])
def test_objects_of_scala_are_refused_with_the_options_that_read_them(is_scala: bool) -> None:
    """A value of an Enumeration names the object, as only the Scala API writes it."""
    (day, _), *_ = values(SCALA)
    empty = next(octets for octets, truth in values(SCALA) if truth == "Empty")
    for octets, name in ((day, "Weekday"), (empty, "Empty")):
        with pytest.raises(UnsupportedError, match="only the job's classes decode") as raised:
            decoded(kind_of(SCALA, classes=(), is_scala=is_scala), [octets])
        assert f"'class:WriteObjects${name}$=enum<...>' with its values in the order of their" in str(raised.value)
        assert f"'class:WriteObjects${name}$=enum<{name}>'" in str(raised.value)
    assert decoded(kind_of(SCALA, is_scala=is_scala), [day, empty]) == ['"Monday"', '"Empty"']


def test_a_state_says_which_option_reads_an_object() -> None:
    found = _without(kind_of(SCALA, classes=()), (True, "shop.Shape$Empty$", b""))
    other = _without(kind_of(SCALA, has_defaults=True), (True, "shop.Empty$", b""))
    assert isinstance(found, Opaque) and "--type 'class:shop.Shape$Empty$=enum<Empty>'" in whose(found)
    assert isinstance(other, Opaque) and "enum<" not in whose(other)
    declared = JobClass("shop.Empty$", constants=("Empty",), is_final=True)
    assert settings_of({"type": "class:shop.Empty$=enum<Empty>"}).classes == (declared,)
    with pytest.raises(InvalidInputError, match="whose form is known"):
        settings_of({"type": "class:scala.None$=enum<None>"})


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("release", RELEASES)
def test_numbers_of_a_later_scala_are_read(release: str) -> None:
    """Bytes that Scala 2.13.18 gave: a BigInt within 64 bits is a long behind a null, another has the least long."""
    name, java = b"\1\0scala.math.BigIn\xf4\1", b"java.math.BigIntege\xf2\1\x0e\1\x8e\xe9\x0f\xf6\xc3s\xe0\xeeN?\n\xd2"
    least, big = b"\xff" * 9, "123456789012345678901234567890"
    rows = [
        name + b"\0" + varint(10),
        name + b"\1\1" + java + least,
        name + b"\1\1" + java,
        name + b"\0\1",
        name + b"\0" + least,
    ]
    expected = ["5", big, big, "-1", str(-(2**63))]
    assert decoded(kind_of(release), rows) == expected
    assert decoded(kind_of(release, column=pa.string()), rows) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_classes_of_scala_without_its_api_are_their_fields(release: str) -> None:
    """Bytes that Flink wrote for values of Scala 2.13.18."""
    rows = [
        b"\1\0scala.None\xa4\1",
        b"\1\0scala.Som\xe5\1\3\1\x82x",
        b"\1\0scala.util.Righ\xf4\1\3\1\x82x",
        b"\1\0scala.Tuple\xb2\1\3\1\x82a\2\n",
        b"\1\0scala.concurrent.duration.FiniteDuratio\xee\1\n\1\4",
        b"\1\0scala.math.BigDecima\xec\1\1\1java.math.BigDecima\xec\1\3\0\x96\4\x9e\xa4\x83\xd5\x0b\1D\1\7",
    ]
    expected = [None, '"x"', '{"right":"x"}', '["a",5]', '"PT5S"', "1.50"]
    for compiled in (False, True):
        assert outcome(kind_of(release), rows, compiled) == expected


@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("release", [*RELEASES, SCALA])
def test_damaged_parts_are_other_values_or_errors(release: str, step: int) -> None:
    """Never another exception, nor endless time; the compiled walk and the plain one agree on each."""
    chance, kind = random.Random(13), kind_of(release)
    for octets, _ in values(release)[::step]:
        changed = [octets[: chance.randrange(len(octets))]]
        for _ in range(5):
            place = chance.randrange(len(octets))
            changed.append(
                octets[:place] + bytes([chance.choice((0, 1, 2, 3, 5, chance.randrange(256)))]) + octets[place + 1 :]
            )
        for each in changed:
            assert outcome(kind, [each], True) == outcome(kind, [each], False)


@pytest.mark.usefixtures("each_way")
def test_a_number_of_scala_is_one_of_the_job_without_its_api() -> None:
    """A class that a job of Flink 1.11 registered has the number of a wrapper of Scala: its fields are a text."""
    registered = bytes.fromhex("0e0148617373ef")
    with pytest.raises(UnsupportedError, match="only the job's classes decode"):
        decoded(kind_of("1.20.0"), [registered])
