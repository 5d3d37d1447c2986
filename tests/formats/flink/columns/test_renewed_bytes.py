"""Values that take the place of stored ones: they keep what their columns do not tell, and read as they were given."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink import kryo_truth
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import source_at

from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.kryo_object_types import JSON, shown_type
from statestore.formats.flink.columns.kryo_renewed import kryo_content
from statestore.formats.flink.columns.kryo_survey import taking_notes
from statestore.formats.flink.columns.kryo_tapes import forms_of, tape_of
from statestore.formats.flink.columns.renewed_bytes import decoded, renewed
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.edits.stored_rows import SubtaskRows, rows_by_group
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, KryoOf, Nullable, PojoOf, RowOf
from statestore.formats.flink.streams.keyed_columns import stored_element

READ_ALONE = re.compile(r"Zone|Offset|Period|java\.time\.(Year|MonthDay)|Locale|\[|Optional|Empty|Immutable|Atomic")
"""Classes of which an object is no plain content, or a constant that is never changed."""


def typed(kind: KryoOf, octets: bytes) -> KryoOf | None:
    """The type with the column that a value tells, None for one without or with JSON."""
    with taking_notes(1) as (places, notes):
        try:
            kryo_truth.decoded(replace(kind, place=places[0]), [octets])
        except StateStoreError:
            return None
    found = notes.types.get(places[0], pa.null())
    return None if found in (JSON, pa.null()) else replace(kind, column=shown_type(found))


def written_by_kryo(release: str) -> Iterator[tuple[KryoOf, bytes]]:
    for class_name, plain in kryo_truth.kinds(release).items():
        assert isinstance(plain, KryoOf)
        for octets, _ in kryo_truth.values(release, class_name):
            kind = typed(plain, octets)
            if kind is not None:
                yield kind, octets


@pytest.mark.parametrize("release", kryo_truth.RELEASES)
def test_contents_are_those_that_kryo_wrote(release: str) -> None:
    """All numbers, texts and times, and collections and maps of those that Kryo numbers itself."""
    seen = 0
    for kind, octets in written_by_kryo(release):
        tape = tape_of(forms_of(kind), np.frombuffer(octets, np.uint8), np.array([0]), np.array([len(octets)]))
        if pa.types.is_nested(kind.column) or READ_ALONE.search(octets.decode("latin-1").replace("\xf4", "t")):
            continue
        value = decoded(kind, octets)
        found = [kryo_content(kind, tape, value, most) for most in (63 if kind.is_old else 32, 0)]
        if not any(each is not None and octets.endswith(each) for each in found):
            assert kind.column == pa.string(), (octets.hex(), value)  # texts of times with a zone
            continue
        seen += 1
    assert seen > 140


@pytest.mark.parametrize("release", kryo_truth.RELEASES)
def test_a_value_of_kryo_becomes_any_other_of_its_class(release: str) -> None:
    """Two values that Kryo wrote of one class: one in the place of the other is what Kryo wrote of it."""
    by_front: dict[tuple[Any, ...], list[tuple[KryoOf, bytes]]] = {}
    for kind, octets in written_by_kryo(release):
        named = re.match(rb"\x01\x00[\x00-\x7f]+[\x80-\xff]\x01?", octets)
        front = named[0] if named else octets[: 1 if octets[0] < 85 else 4]  # objects of the job's have others inside
        if not pa.types.is_nested(kind.column):
            by_front.setdefault((kind.class_name, str(kind.column), front), []).append((kind, octets))
    changed = 0
    for known in by_front.values():
        for (kind, old), (_, new) in itertools.pairwise(known):
            value = decoded(kind, new)
            try:
                found = renewed(kind, old, value)
            except NoBytesError:
                continue
            assert found == new or (isinstance(value, float) and math.isnan(value)), (old.hex(), new.hex(), value)
            changed += old != new
    assert changed > 90


LISTS = {
    "1.20.0": ("0100" + b"java.util.ArrayLis".hex() + "f401" + "02" + "030161e2" + "00", ["xyz", None, "a"],
               "03" + "03017879fa" + "00" + "03018261"),
    "2.1.0": ("0100" + b"java.util.ArrayLis".hex() + "f401" + "83" + "0301" + "0161e2" + "00", ["xyz", "a"],
              "83" + "0300" + "017879fa" + "018261"),
}  # fmt: skip


@pytest.mark.parametrize("release", kryo_truth.RELEASES)
def test_a_list_of_kryo_is_of_the_class_that_it_was(release: str) -> None:
    """By the form of Kryo 2 and 5, whose truth `test_contents_are_those_that_kryo_wrote` has."""
    stored, value, content = LISTS[release]
    old = bytes.fromhex(stored)
    kind = typed(kryo_truth.kinds(release)["java.lang.Object"], old)  # type: ignore[arg-type]
    assert kind is not None and decoded(kind, old) == ["ab", None]
    found = renewed(kind, old, value)
    assert found.hex() == stored[: stored.index("f401") + 4] + content and decoded(kind, found) == value


def stored_values(run: str, place: int) -> Iterator[tuple[FlinkType, bytes]]:
    """The stored values of all keyed states of a snapshot, but lists."""
    source = source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])
    snapshot = source.opened(source.refs[-1][0])
    for operator in snapshot.metadata.operators:
        forms = snapshot.keyed_forms(operator.id)
        for stored in snapshot.stored(operator.id).keyed:
            rows = SubtaskRows(snapshot.files, stored, forms, operator.max_parallelism, "a test")
            for _, sections in rows_by_group(rows):
                for number, batches in sections:
                    form = forms[stored.header.states[number].name]
                    for _, values in batches:
                        if form.kind in ("value", "map", "reducing", "aggregating"):
                            yield from ((stored_element(form), values.cell(place)) for place in range(len(values)))


def own_fields(kind: PojoOf) -> list[str]:
    return [name for name, part in kind.fields if part == Basic("int")]


@pytest.mark.parametrize(("run", "place"), [("shapes-rocksdb", 1), ("rocksdb-1.20", 1), ("types-rocksdb", 0)])
def test_a_changed_field_leaves_the_rest_as_it_is(run: str, place: int) -> None:
    """In POJOs with subclasses and with fields of Kryo, and rows of any kind: all bytes but those of a number."""
    changed = 0
    for kind, octets in stored_values(run, place):
        inner = kind.value if isinstance(kind, Nullable) else kind
        names = own_fields(inner) if isinstance(inner, PojoOf) else []
        if isinstance(inner, RowOf):
            names = [f"f{number}" for number, part in enumerate(inner.fields) if part == Basic("int")]
        try:
            value = decoded(kind, octets)
        except StateStoreError:
            continue
        if not names or value is None or value[names[0]] is None:
            continue
        number = value[names[0]]
        other = 1_234_567_890
        found = renewed(kind, octets, {**value, names[0]: other})
        assert decoded(kind, found) == {**value, names[0]: other}
        assert len(found) == len(octets) and other.to_bytes(4, "big") in found
        differing = [at for at, (one, two) in enumerate(zip(octets, found, strict=True)) if one != two]
        assert differing[-1] - differing[0] < 4
        assert renewed(kind, found, {**value, names[0]: number}) == octets
        changed += 1
    assert changed > 5
