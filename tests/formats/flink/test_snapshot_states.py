"""States by the names and types that users see: names that collide, types given by users, operators that differ."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.fixtures import fixture, manifest
from support.flink.metadata_bytes import Operator, i32, in_place, key_groups, metadata, relative, rocksdb, subtask
from support.flink.snapshot_bytes import INT, LONG, header, snapshot, state
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.flink import kryo_sample
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt


def _savepoint(names: Sequence[str], group: int = 0, key: bytes = LONG) -> bytes:
    """A canonical savepoint of value states of bigint; each has key 7 and as value its place among the names."""
    head = header(key, *(state(name, LONG) for name in names))
    block = b""
    for number in range(len(names)):
        stored = bytes([group | 0x80]) + struct.pack(">q", 7) + b"\0"
        entry = i32(len(stored)) + stored + i32(8) + struct.pack(">q", number)
        block += struct.pack(">H", number) + entry
    return key_groups(7, group, [len(head)], in_place(head + block + b"\xff\xff"))


def _opened(
    folder: Path, *operators: Operator, number: int = 7, options: Mapping[str, str] | None = None
) -> FlinkSource:
    place = folder / f"chk-{number}"
    place.mkdir()
    (place / "_metadata").write_bytes(metadata(*operators, checkpoint_id=number))
    return source_at(folder, options)


@pytest.mark.parametrize("names", [["a$b", "a_b"], ["a_b", "a$b"], ["A_b", "a/b", "a_b_2"]])
def test_a_name_means_the_state_whose_own_name_it_is(tmp_path: Path, names: list[str]) -> None:
    source = _opened(tmp_path, Operator(uid="op", subtasks=[subtask(keyed=_savepoint(names))]))
    assert len(source.states()) == len(names)
    for number, name in enumerate(names):
        listed = source.listed_as(f"op.{name}")
        assert listed is not None
        assert rows_of(source, listed)["value"].to_pylist() == [number]


def _differing() -> Operator:
    """An operator whose subtasks have keys of other types."""
    return Operator(
        id="ab" * 16,
        uid="odd",
        subtasks=[subtask(0, keyed=_savepoint(["n"])), subtask(1, keyed=_savepoint(["n"], 1, INT))],
    )


def test_an_operator_whose_subtasks_differ_leaves_the_others_readable(tmp_path: Path) -> None:
    good = Operator(uid="op", subtasks=[subtask(keyed=_savepoint(["n"]))])
    source = _opened(tmp_path, good, _differing())
    assert source.states() == ["odd.unreadable", "op.n"]
    assert rows_of(source, "op.n").num_rows == 1
    with pytest.raises(UnsupportedError, match=r"chk-7/_metadata, operator odd: keys has other types in some subtasks"):
        rows_of(source, "odd.unreadable")


def test_a_checkpoint_in_which_an_operator_cannot_be_read_is_never_empty(tmp_path: Path) -> None:
    _opened(tmp_path, _differing(), number=1)
    same = Operator(id="ab" * 16, uid="odd", subtasks=[subtask(keyed=_savepoint(["n"]))])
    source = _opened(tmp_path, same, number=2)
    assert rows_of(source, "odd.n").num_rows == 1
    with pytest.raises(UnsupportedError, match="other types in some subtasks"):
        rows_of(source, "odd.n", 1)
    with pytest.raises(UnsupportedError, match="other types in some subtasks"):
        source.shared_schema("odd.n")


@pytest.mark.parametrize("column", ["map_key", "map_value"])
def test_a_type_for_a_column_that_the_state_does_not_have_is_refused(tmp_path: Path, column: str) -> None:
    good = Operator(uid="op", subtasks=[subtask(keyed=_savepoint(["n"]))])
    source = _opened(tmp_path, good, options={"type": f"op.n.{column}=bigint"})
    with pytest.raises(InvalidInputError, match=f"{column} of 'op.n', which has columns key, value"):
        source.states()


def _given(text: str) -> FlinkSource:
    run = "operator-rocksdb"
    place = fixture(run) / manifest(run)["snapshots"][0]["path"]
    return source_at(place, {"type": text})


def test_types_are_given_for_operator_state_too() -> None:
    source = _given("rules.rules=struct<weight: int, active: boolean>; buffers.split=binary")
    assert rows_of(source, "rules.rules")["map_value"].type.names == ["weight", "active"]
    assert rows_of(source, "buffers.split")["value"].type == pa.binary()
    with pytest.raises(InvalidInputError, match="does not fit"):
        _given("buffers.split=string").states()
    with pytest.raises(InvalidInputError, match="does not fit"):
        _given("rules.rules.map_key=bigint").states()


def test_a_broadcast_map_with_bytes_for_values_is_one_value() -> None:
    rows = rows_of(_given("rules.rules=binary"), "rules.rules")
    assert rows.column_names == ["subtask", "position", "value", "stored_bytes"]
    assert rows["value"].type == pa.binary()


def _checkpoint(*files: str) -> Operator:
    """An operator with state in RocksDB; each file is of the same name in the shared folder."""
    meta = in_place(header(LONG, state("n", LONG)))
    pairs = [(name, relative(name, 1)) for name in files]
    return Operator(uid="op", subtasks=[subtask(keyed=rocksdb(0, 128, meta, pairs, [("CURRENT", in_place(b"x"))]))])


@pytest.mark.parametrize(
    ("older", "newer", "equal"),
    [
        (["000001.sst", "MANIFEST-000001"], ["000001.sst", "MANIFEST-000002"], True),
        (["000001.sst"], ["000002.sst"], False),
        (["000001.sst"], ["000001.sst", "000003.log"], False),
        (["000001.sst"], ["000001.sst", "000003.blob"], False),
    ],
)
def test_checkpoints_with_equal_files_of_rows_have_equalrows_of(
    tmp_path: Path, older: list[str], newer: list[str], equal: bool
) -> None:
    _opened(tmp_path, _checkpoint(*older), number=1)
    source = _opened(tmp_path, _checkpoint(*newer), number=2)
    first, second = (source.content(source.at("op.n", number), range(128)) for number in (1, 2))
    assert first is not None
    assert (first == second) is equal


def test_an_operator_has_key_groups(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="expected a max parallelism from 1 to 32768"):
        _opened(tmp_path, Operator(max_parallelism=0))


def test_windows_beyond_timestamps_are_shown_in_milliseconds_where_asked_for(tmp_path: Path) -> None:
    window = snapshot(
        "org.apache.flink.streaming.api.windowing.windows.TimeWindow$Serializer$TimeWindowSerializerSnapshot"
    )
    head = header(LONG, state("n", LONG, namespace=window))
    stored = b"\x80" + struct.pack(">qqq", 7, -(2**63), 2**63 - 1)
    block = b"\0\0" + i32(len(stored)) + stored + i32(8) + struct.pack(">q", 5) + b"\xff\xff"
    whole = Operator(uid="op", subtasks=[subtask(keyed=key_groups(7, 0, [len(head)], in_place(head + block)))])
    source = _opened(tmp_path, whole)
    with pytest.raises(UnsupportedError, match="struct<start: bigint, end: bigint> for a time window"):
        rows_of(source, "op.n")
    rows = rows_of(source_at(tmp_path, {"type": "op.n.namespace=struct<start: bigint, end: bigint>"}), "op.n")
    assert rows["namespace"].to_pylist() == [{"start": -(2**63), "end": 2**63 - 1}]
    assert rows["key"].to_pylist() == [7] and rows["value"].to_pylist() == [5]


def test_state_of_kryo_is_sampled_once_for_all_who_open_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that met a damaged file is not remembered: with the file whole again, the state is looked at anew."""
    saved = next(each for each in sorted(fixture("rocksdb").glob("savepoint-*")) if len(list(each.iterdir())) > 1)
    place = Path(shutil.copytree(saved, tmp_path / saved.name))
    looked: list[int] = []
    look = kryo_sample._look

    def counted(batches: Iterator[pa.RecordBatch]) -> None:
        looked.append(1)
        look(batches)

    def refused(*_: object) -> Iterator[pa.RecordBatch]:
        raise CorruptError(ErrorCode.FLINK_FILE, "found a file that is cut")

    def asked() -> tuple[int, dict[str, pa.Schema]]:
        looked.clear()
        shown = source_at(place)._states()
        return len(looked), {name: each.schema for name, each in shown.items() if each.form is not None}

    monkeypatch.setattr(kryo_sample, "_look", counted)
    with monkeypatch.context() as damaged:
        damaged.setattr(KeyedAt, "rows", refused)
        assert asked()[0]
    first, schemas = asked()
    assert first
    assert asked() == (0, schemas)
