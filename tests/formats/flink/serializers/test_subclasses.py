"""Subclasses of POJOs that files do not describe, as a user declares them.

The job ``Pets`` keeps animals of three classes on the heap. Its checkpoint and its canonical savepoint were written
before Flink had met most of the subclasses; the truth is what the job itself held.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.archives import unpacked
from support.flink.running.job import Run, read_run
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.truth_rows import lines_of, lines_of_truth
from support.paths import DATA

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.description_file import as_tree, from_tree
from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.serializers.flink_types import Basic, ListOf, MapOf, Nullable, Opaque, PojoOf
from statestore.formats.flink.serializers.subclasses import (
    Subclass,
    has_declared,
    subclass_of,
    with_bytes,
    with_subclasses,
)
from statestore.formats.flink.state_at import ElementsAt, KeyedAt
from statestore.formats.flink.streams.stored_states import merged

BASE, CAT, DOG = "shop.Animals$Animal", "shop.Animals$Cat", "shop.Animals$Dog"
CATS = f"class:{CAT}=struct<mice: map<string, int>> extends {BASE}"
DOGS = f"class:{DOG}=struct<tricks: array<string>, barks: boolean> extends {BASE}"
STRING, INT = Basic("string"), Basic("int")
KIND = PojoOf("a.Base", (("b", INT), ("d", STRING)))


@pytest.fixture(scope="module")
def run() -> Run:
    return read_run(unpacked(DATA / "flink" / "subclasses.tar.xz") / "pets-hashmap")


def compared(run: Run, number: int, options: dict[str, str]) -> dict[str, bool | str]:
    """Whether each state has the rows of the truth, or the error of its read."""
    names = {identity: uid for uid, identity in run.operators.items()}
    truth: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in run.snapshots[number].truth:
        truth.setdefault((line["operator"], line["state"]), []).append(line)
    source = source_at(run.snapshots[number].folder, options)
    found: dict[str, bool | str] = {}
    for state in source.opened(source.refs[-1][0]).states().values():
        place = (names[state.identity[0]], state.identity[2])
        if place not in truth:
            continue
        at = source.at(state.name, source.newest(state.name))
        assert isinstance(at, KeyedAt | ElementsAt)
        try:
            found[state.name] = lines_of(at.form, rows_of(source, state.name)) == lines_of_truth(truth[place])
        except UnsupportedError as error:
            found[state.name] = str(error)
    assert len(found) == 7
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_states_with_declared_subclasses_have_the_rows_of_the_job(run: Run, number: int) -> None:
    found = compared(run, number, {"type": f"{CATS};{DOGS}"})
    assert found == dict.fromkeys(found, True)


def test_without_a_declaration_the_class_and_the_option_are_named(run: Run) -> None:
    on_heap, canonical = compared(run, 0, {}), compared(run, 1, {})
    assert canonical["pets.a-first"] is True and canonical["pets.z-last"] is True
    for name in ("one", "named", "pair"):
        error = str(canonical[f"pets.{name}"])
        assert "[FLINK_OPAQUE]" in error and "--type 'class:shop.Animals$" in error and f"extends {BASE}'" in error
    refused = [error for error in on_heap.values() if isinstance(error, str)]
    assert len(refused) >= 4
    assert all("FLINK_OPAQUE" in error and "class:shop.Animals$" in error for error in refused)


def test_a_declared_class_that_does_not_fit_is_refused(run: Run) -> None:
    source = source_at(run.snapshots[0].folder, {"type": f"{CATS.replace('map<string, int>', 'bigint')};{DOGS}"})
    for state in ("pets.one", "pets.many", "pets.pair", "pets.named"):
        with pytest.raises(StateStoreError, match="FLINK_"):
            rows_of(source, state)


def test_values_are_shown_as_bytes_where_a_frame_ends_them(run: Run) -> None:
    bytes_of = f"class:{CAT}=binary extends {BASE};class:{DOG}=binary extends {BASE}"
    source = source_at(run.snapshots[1].folder, {"type": bytes_of})
    rows = rows_of(source, "pets.one")
    assert rows.num_rows == 23
    known = {line["key"]: line["value"] for line in run.snapshots[1].truth if line["state"] == "one"}
    for row in rows.to_pylist():
        value, truth = row["value"], known[row["key"]]
        kind = "Cat" if "mice" in truth else "Dog" if "barks" in truth else ""
        assert [name for name in ("Cat", "Dog") if value.get(name) is not None] == ([kind] if kind else [])
        if not kind:
            assert (value["legs"], value["name"], value["size"]) == (truth["legs"], truth["name"], truth["size"])


def decoded(kind: PojoOf, *cells: bytes) -> list[Any]:
    (column,) = decode_cells([kind], cells_of(pa.array(cells, pa.binary())), [True], "op.s")
    assert column is not None
    found: list[Any] = column.to_pylist()
    return found


def test_fields_lie_in_the_order_of_their_names() -> None:
    declared = subclass_of("a.Sub", "struct<e: int, a: boolean, c: array<int>> extends a.Base")
    kind = with_subclasses(KIND, [declared])
    ((name, subclass),) = kind.unregistered
    assert name == "a.Sub" and isinstance(subclass, PojoOf)
    assert [field for field, _ in subclass.fields] == ["a", "b", "c", "d", "e"]
    assert dict(subclass.fields)["c"] == Nullable(ListOf(Nullable(INT)))
    assert with_subclasses(kind, [replace(declared, fields=())]) == kind  # the file counts
    assert with_subclasses(KIND, [replace(declared, base="a.Other")]) == KIND
    assert has_declared((1, kind)) and not has_declared(KIND)
    assert pickle.loads(pickle.dumps(declared)) == declared


def test_lists_and_maps_of_a_field_may_be_null_within() -> None:
    declared = subclass_of("a.Sub", "struct<m: map<string, array<array<int>>>> extends a.Base")
    assert declared.fields is not None
    inner = Nullable(ListOf(Nullable(ListOf(Nullable(INT)))))
    assert dict(declared.fields)["m"] == Nullable(MapOf(Nullable(STRING), inner))


def test_bytes_of_a_subclass_have_a_column_of_their_own() -> None:
    kind = with_bytes(KIND, [Subclass("a.Sub", "a.Base", None), Subclass("a.Far", "a.Other", None)])
    assert isinstance(kind, PojoOf)
    plain = b"\2\0" + (7).to_bytes(4) + b"\0\2d"
    assert decoded(kind, plain, b"\4\0\5a.Sub\2\1\2\3", b"\1") == [
        {"b": 7, "d": "d", "Sub": None},
        {"b": None, "d": None, "Sub": b"\2\1\2\3"},
        None,
    ]


def test_a_subclass_with_an_opaque_field_names_the_option() -> None:
    sub = PojoOf("a.Sub", (("b", INT), ("c", Opaque("K", "a.K")), ("d", STRING)))
    kind = replace(KIND, registered=(("a.Sub", sub),))
    with pytest.raises(UnsupportedError, match=r"--type 'class:a\.Sub=struct<\.\.\.> extends a\.Base'"):
        decoded(kind, b"\x08\0\2")
    as_bytes = with_bytes(kind, [Subclass("a.Sub", "a.Base", None)])
    assert isinstance(as_bytes, PojoOf)
    assert decoded(as_bytes, b"\x08\0\2xyz") == [{"b": None, "d": None, "Sub": b"\2xyz"}]


def test_what_a_file_says_counts_for_more_than_a_declaration() -> None:
    written = replace(KIND, unregistered=(("a.Sub", PojoOf("a.Sub", (("b", INT), ("c", STRING), ("d", STRING)))),))
    given = with_subclasses(KIND, [subclass_of("a.Sub", "struct<c: int> extends a.Base")])
    assert merged([given, written], "x") == merged([written, given], "x") == written


def test_options_with_faults_are_refused() -> None:
    found = settings_of({"type": "class:a.Sub=struct<c: int> extends a.Base"}).subclasses
    assert found == (Subclass("a.Sub", "a.Base", (("c", INT),)),)
    with pytest.raises(InvalidInputError, match=r"two types of class 'a\.Sub'"):
        settings_of({"type": "class:a.Sub=binary extends a.Base;class:a.Sub=struct<c: int> extends a.Base"})
    with pytest.raises(InvalidInputError, match=r"field d for class a\.Sub, which class a\.Base has, too"):
        with_subclasses(KIND, [subclass_of("a.Sub", "struct<d: int> extends a.Base")])


def test_damaged_values_of_a_declared_subclass_are_values_or_errors(tmp_path: Path) -> None:
    kind = with_subclasses(KIND, [subclass_of("a.Sub", "struct<c: array<string>, e: bigint> extends a.Base")])
    whole = b"\4\0\5a.Sub\2\0" + (7).to_bytes(4) + b"\0\0" + (1).to_bytes(4) + b"\0\2x\0\2d\0" + (9).to_bytes(8)
    assert decoded(kind, whole)[0]["c"] == ["x"]
    random = np.random.default_rng(5)
    for _ in range(400):
        damaged = bytearray(whole[: random.integers(len(whole) + 1)])
        for place in random.integers(len(damaged) or 1, size=random.integers(3)):
            if damaged:
                damaged[place] = random.integers(256)
        try:
            assert len(decoded(kind, bytes(damaged))) == 1
        except StateStoreError:
            continue


def test_a_description_has_a_declared_subclass_as_any_other() -> None:
    kind = with_subclasses(KIND, [subclass_of("a.Sub", "struct<c: int> extends a.Base")])
    read = from_tree(as_tree(kind), "x")
    assert isinstance(read, PojoOf) and dict(read.unregistered)["a.Sub"] == PojoOf(
        "a.Sub", (*KIND.fields[:1], ("c", INT), *KIND.fields[1:])
    )
