"""Files of a checkpoint in place of their neighbours: verify tells the keys that lookups do not find."""

from __future__ import annotations

import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.large_checkpoints import write_checkpoint
from support.checkpoints.spark_state_fixtures import ARCHIVE, LOCAL, MORE, checkpoint_path, index
from support.parameters import mostly_slow

import statestore
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.spark_schema import SparkType, StructOf, parse_schema
from statestore.formats.spark.checkpoint.state_views import state_views
from statestore.formats.spark.misplaced_keys import placement_check
from statestore.formats.spark.providers import change_runs
from statestore.formats.spark.rows.key_placement import hash_of, partition_of, partitions_of
from statestore.formats.spark.source import open_source
from statestore.formats.spark.state_rows import read_state

ALL_NAMES = mostly_slow(
    [(archive, name) for archive in (ARCHIVE, MORE) for name in sorted(index(archive))],
    [(ARCHIVE, "spark4.3.0-join__rkj4"), (ARCHIVE, "spark4.3.0-sess__rkcl"), (ARCHIVE, "spark4.3.0-twsttl__rkav")],
)


@pytest.mark.parametrize(("archive", "name"), ALL_NAMES)
def test_no_row_of_a_whole_checkpoint_is_misplaced(archive: Path, name: str) -> None:
    checkpoint = open_checkpoint(LOCAL, str(checkpoint_path(name, archive)))
    for view in [view for each in checkpoint.operators for view in state_views(checkpoint, each) if view.user]:
        for partition in view.store.partitions:
            check = placement_check(checkpoint, view, partition)
            for batch in read_state(checkpoint, view, partition) if check is not None else ():
                assert check is not None
                check.add(batch)
                assert check.misplaced == 0, (view.name, partition)


@pytest.mark.parametrize(
    ("name", "file", "state", "batch", "plain"),
    mostly_slow(
        [
            ("spark4.3.0-agg__hdfs", "state/0/{}/6.delta", "state", 5, True),
            ("spark4.3.0-agg__hdfs", "state/0/{}/4.snapshot", "state", 3, True),
            ("spark4.3.0-join__hdfs", "state/0/{}/right-keyWithIndexToValue/6.delta", "right", 5, True),
            ("spark4.3.0-twsttl__rkcl", "state/0/{}/2.changelog", "mp", 1, False),
            ("spark4.3.0-sess__rkcl", "state/0/{}/5.changelog", "state", 4, False),
            ("spark4.3.0-sess__rkcl", "state/0/{}/6.changelog", "state", None, False),  # only histories read it
        ],
        2,
    ),
)
@pytest.mark.parametrize("deep", [False, True])
def test_a_file_of_another_partition(
    tmp_path: Path, name: str, file: str, state: str, batch: int | None, plain: bool, deep: bool
) -> None:
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    shutil.copy(path / file.format(0), path / file.format(1))
    (found,) = [each for each in statestore.verify(path, deep=deep) if each.store == state]
    of_file = [each for each in found.problems if each.file == str(path / file.format(1))]
    told = [each for each in of_file if "keys belong to partition 0, expected keys of partition 1" in each.message]
    assert len(told) == (deep or plain)
    # Another base is told twice: it also differs from the changes before it.
    assert len(of_file) - len(told) == (deep and "snapshot" in file)
    for problem in told:
        first = None if problem.versions is None else problem.versions[0]
        assert first == batch if deep else first is not None


def test_keys_of_several_files_are_counted_apart(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "checkpoint"))
    for file in ("5.delta", "6.delta"):
        shutil.copy(path / "state/0/0" / file, path / "state/0/1" / file)
    (found,) = statestore.verify(path, deep=True)
    told = {Path(each.file).name: each for each in found.problems}
    assert set(told) == {"5.delta", "6.delta"}
    assert told["5.delta"].versions == (4, 5) and told["6.delta"].versions == (5, 5)


def streamed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of times that each file is opened from now on, by its path."""
    opened: Counter[str] = Counter()
    stream, verified = Folder.stream, change_runs._verified

    def counted(folder: Folder, name: str | int, **options: Any) -> IO[bytes]:
        opened[f"{folder.path}/{name}"] += 1
        return stream(folder, name, **options)

    def counted_small(folder: Folder, file: DataFile, within: int) -> bytes | None:
        content = verified(folder, file, within)
        if content is not None:  # another file is streamed
            opened[f"{folder.path}/{file.name}"] += 1
        return content

    monkeypatch.setattr(Folder, "stream", counted)
    monkeypatch.setattr(change_runs, "_verified", counted_small)
    return opened


def test_each_file_of_changes_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches there are: with one look a batch, the looks at all files would be their square."""
    path = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "checkpoint"))
    for base in path.glob("state/0/*/*.snapshot"):  # only changes are left
        base.unlink()
    (path / "state/0/1/3.delta").write_bytes(b"damaged")  # no obstacle to the others
    shutil.copy(path / "state/0/0/5.delta", path / "state/0/1/5.delta")
    source = open_source(parse_location(path))
    opened = streamed(monkeypatch)
    (found,) = source.file_findings("state", range(6))
    assert found.file == str(path / "state/0/1/5.delta") and found.version is None
    deltas = {file: count for file, count in opened.items() if file.endswith(".delta")}
    damaged = deltas.pop(str(path / "state/0/1/3.delta"))  # once more for what is wrong with it
    assert len(deltas) == 2 * 6 - 1 and set(deltas.values()) == {1} and damaged == 2


def test_no_file_is_opened_to_know_of_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", 40, 9, 2, snapshots=4)
    opened = streamed(monkeypatch)
    (found,) = statestore.verify(path)
    assert found.ok and {each.kind: (each.files, each.checked_files) for each in found.coverage} == {
        "snapshot": (2, 0),
        "delta": (2, 0),
    }
    files = {Path(file).name: count for file, count in opened.items() if file.endswith((".delta", ".snapshot"))}
    assert files == {"8.snapshot": 1, "9.delta": 1}


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    '"integer"': (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    '"byte"': (pa.int8(), st.integers(-128, 127)),
    '"long"': (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    '"boolean"': (pa.bool_(), st.booleans()),
    '"double"': (pa.float64(), st.floats(allow_nan=False)),
    '"float"': (pa.float32(), st.floats(width=32, allow_nan=False)),
    '"string"': (pa.string(), st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]))),
    '"binary"': (pa.binary(), st.binary(max_size=40)),
    '"date"': (pa.date32(), st.dates()),
    '"timestamp_ntz"': (pa.timestamp("us"), st.datetimes()),
    '"decimal(9,2)"': (pa.decimal128(9, 2), st.decimals(-9999999, 9999999, places=2)),
    '"decimal(38,0)"': (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},'
    '{"name":"b","type":"string","nullable":true,"metadata":{}}]}': (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text("abcdé", max_size=9)).map(
            lambda pair: {"a": pair[0], "b": pair[1]}
        ),
    ),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_columns_have_the_partitions_of_their_rows(data: st.DataObject) -> None:
    """Compare with the hash of one key, which lookups in real checkpoints rely on."""
    chosen = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    count = data.draw(st.integers(1, 6))
    schema = schema_of(*chosen)
    cells = [data.draw(st.lists(st.none() | KINDS[kind][1], min_size=count, max_size=count)) for kind in chosen]
    front = [[None, *column] for column in cells]  # an offset in the arrays
    columns = [pa.array(column, KINDS[kind][0])[1:] for column, kind in zip(front, chosen, strict=True)]
    found = partitions_of(columns, [field.type for field in schema.fields], 7)
    assert found is not None
    for row, place in enumerate(found.tolist()):
        values = [_canonical(column[row]) for column in cells]
        whole = hash_of(schema, values)
        assert whole is not None and place == partition_of(whole, 7), values


def _canonical(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else value


def test_what_has_no_certain_place() -> None:
    strings = pa.array(["a", "b\ufffd", "x" * 100_000, None])
    found = partitions_of([strings], kinds_of('"string"'), 5)
    assert found is not None and (found >= 0).tolist() == [True, False, False, True]
    assert partitions_of([pa.nulls(2)], kinds_of('"void"'), 5) is None


def test_every_nan_has_one_place() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF0000000000001, -1], np.int64).view(np.float64)
    found = partitions_of([pa.array(nans)], kinds_of('"double"'), 1 << 20)
    whole = hash_of(schema_of('"long"'), [0x7FF8000000000000])
    assert found is not None and whole is not None
    assert found.tolist() == [partition_of(whole, 1 << 20)] * 3


def schema_of(*kinds: str) -> StructOf:
    fields = [
        f'{{"name":"c{number}","type":{kind},"nullable":true,"metadata":{{}}}}' for number, kind in enumerate(kinds)
    ]
    return parse_schema(f'{{"type":"struct","fields":[{",".join(fields)}]}}')


def kinds_of(*kinds: str) -> list[SparkType]:
    return [field.type for field in schema_of(*kinds).fields]


def listed(element: str) -> str:
    return f'{{"type":"array","elementType":{element},"containsNull":true}}'


PAIR = next(kind for kind in KINDS if "struct" in kind)
LISTS: list[tuple[str, pa.DataType, Any, int]] = [
    ('"integer"', pa.int32(), [1, 2, 3], -1685303714),
    ('"integer"', pa.int32(), [1, None, 3], -1897719776),
    ('"integer"', pa.int32(), [], 49276284),
    ('"integer"', pa.int32(), None, 49276284),
    ('"string"', pa.string(), ["a", None, "lentil dal", ""], -1419795126),
    (listed('"long"'), pa.list_(pa.int64()), [[1, 2], [], None, [-1]], -1641155312),
    (PAIR, KINDS[PAIR][0], [{"a": 1, "b": "x"}, None, {"a": None, "b": "yy"}], 1203081947),
    ('"double"', pa.float64(), [-0.0, 0.0, float("nan"), 1.5], 1642987835),
    ('"decimal(30,2)"', pa.decimal128(30, 2), [Decimal("12345678901234567890.25"), None], 1033214844),
    ('"boolean"', pa.bool_(), [True, False], -57098228),
]
"""Lists by the type of their elements, with ``hash(list, 'end')`` as Spark 4.3 answers it."""


@pytest.mark.parametrize(("element", "kind", "cell", "found"), LISTS)
def test_lists_have_the_hash_of_spark(element: str, kind: pa.DataType, cell: Any, found: int) -> None:
    lists = pa.array([[], cell, None, cell], pa.list_(kind))[1:]  # an offset in the arrays
    columns = [lists, pa.array(["end", "end", "end"])]
    places = partitions_of(columns, kinds_of(listed(element), '"string"'), 1009)
    assert places is not None and places.tolist() == [found % 1009, 49276284 % 1009, found % 1009]


def test_keys_with_lists_lie_where_their_hash_says() -> None:
    checkpoint = open_checkpoint(LOCAL, str(checkpoint_path("spark4.3.0-aggmulti__hdfs")))
    (view,) = state_views(checkpoint, checkpoint.operators[0])
    for partition in view.store.partitions:
        for batch in read_state(checkpoint, view, partition):
            key = batch.column("key")
            places = partitions_of(key.flatten(), [field.type for field in view.family.key.fields], view.store.count)
            assert places is not None and set(places.tolist()) == {partition}


def test_very_long_lists_and_maps_have_no_known_place() -> None:
    lists = pa.array([[1], [1] * 5_000], pa.list_(pa.int32()))
    places = partitions_of([lists], kinds_of(listed('"integer"')), 7)
    assert places is not None and places[0] >= 0 and places[1] == -1
    of_maps = listed('{"type":"map","keyType":"long","valueType":"long","valueContainsNull":true}')
    empty = pa.array([None, []], pa.list_(pa.map_(pa.int64(), pa.int64())))
    assert partitions_of([empty], kinds_of(of_maps), 7) is None
