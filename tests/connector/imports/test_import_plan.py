"""An import that cannot be whole is refused by name, and leaves no store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.engines.imported import every_kind, made, moment, one_operator, operator_engine
from support.engines.operator_engine import MadeState, OperatorStateAt, write_operators
from support.engines.toys import write_toys
from support.flink.metadata_bytes import Operator, i32, in_place, key_groups, metadata, subtask
from support.flink.snapshot_bytes import LONG, header, mapped, snapshot, state
from support.keyed.keyed_backends import refused

import statestore
from statestore.connector.imports import imported_rows
from statestore.connector.imports.import_keyed import import_keyed
from statestore.formats import engines
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with operator_engine():
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """The place of a store that no refused import makes."""
    yield tmp_path / "w" / "users"
    assert not (tmp_path / "w").exists() or list((tmp_path / "w").iterdir()) == []


def counts(keys: list[Any], kind: pa.DataType | None = None, name: str = "count") -> MadeState:
    return made(name, "value", {"key": keys, "value": list(range(len(keys)))}, kind, value=pa.int64())


def test_an_existing_store_is_not_changed(tmp_path: Path) -> None:
    source = one_operator(tmp_path, counts(["a"]))
    statestore.import_keyed(source, tmp_path / "w" / "users")
    with refused("STORE_EXISTS", "users"):
        statestore.import_keyed(source, tmp_path / "w" / "users")
    (tmp_path / "w" / "file").write_text("")
    with refused("STORE_EXISTS", "file"):
        statestore.import_keyed(source, tmp_path / "w" / "file")
    statestore.connect(tmp_path / "w").drop_store("users")
    assert statestore.import_keyed(source, tmp_path / "w" / "users").version == 1


def test_a_store_made_meanwhile_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = one_operator(tmp_path, counts(["a"]))
    catalog = statestore.connect(tmp_path / "w")

    def progress(state: str, rows: int, most: int | None) -> None:
        catalog.create_store("users", key={"k": "int"}, value={"v": "int"}).close()

    with refused("STORE_EXISTS", "users"):
        statestore.import_keyed(source, tmp_path / "w" / "users", progress=progress)
    assert catalog.open_store("users", read_only=True).spec.kind == "versioned"
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["users"]


def test_several_operators_need_a_name(tmp_path: Path, store: Path) -> None:
    source = write_operators(tmp_path / "s", {"first": [counts(["a"])], "second": [counts(["b"])], "none": []})
    with refused("MISSING_OPTION", "operator=", "first, second"):
        statestore.import_keyed(source, store)
    with refused("STATE_NOT_FOUND", "'frist'", "did you mean 'first'"):
        statestore.import_keyed(source, store, operator="frist")
    with refused("STATE_NOT_FOUND", "'coutn'", "did you mean 'count'"):
        statestore.import_keyed(source, store, operator="first", states=["coutn"])
    with refused("VERSION_NOT_FOUND"):
        statestore.import_keyed(source, store, operator="first", version=3)


def test_a_source_without_keyed_operators(tmp_path: Path, store: Path) -> None:
    with refused("STATE_NOT_FOUND", "no operator with keyed state"):
        statestore.import_keyed(write_operators(tmp_path / "s", {"none": []}), store)
    statestore.connect(tmp_path / "other").create_store("t", key={"k": "int"}, value={"v": "int"}).close()
    with refused("UNSUPPORTED_ENGINE", "stores of statestore itself"):
        statestore.import_keyed(tmp_path / "other", store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "BUILT_IN", ("support.engines.toy_engine",))
        with refused("UNSUPPORTED_ENGINE", "without operators"):
            statestore.import_keyed(write_toys(tmp_path / "toys"), store)
    with refused("PATH_NOT_FOUND"):
        statestore.import_keyed(tmp_path / "nowhere", store)


def test_places_that_no_store_can_have(tmp_path: Path, store: Path) -> None:
    source = one_operator(tmp_path, counts(["a"]))
    before = sorted(source.rglob("*"))
    with refused("INVALID_LOCATION", "stays unchanged"):
        statestore.import_keyed(source, source / "users")
    with refused("UNSUPPORTED_PATH"):
        statestore.import_keyed(source, "hdfs://namenode/users")
    assert sorted(source.rglob("*")) == before


def test_types_that_cannot_be_stored_are_named(tmp_path: Path, store: Path) -> None:
    times = made("noon", "value", {"key": ["a"], "value": [1]}, value=pa.time64("us"))
    floats = made(
        "m", "map", {"key": ["a"], "map_key": [1.0], "map_value": [1]}, map_key=pa.float64(), map_value=pa.int8()
    )
    source = one_operator(tmp_path, counts(["a"]), times, floats)
    with refused("UNSUPPORTED_TYPE", "noon: ", "time64", "m: ", "floating point", "states="):
        statestore.import_keyed(source, store)
    with refused("UNSUPPORTED_TYPE", "double"):
        statestore.import_keyed(write_operators(tmp_path / "d", {"o": [counts([1.5], pa.float64())]}), store)


def test_nanoseconds_that_microseconds_cannot_hold(tmp_path: Path, store: Path) -> None:
    source = one_operator(tmp_path, made("t", "value", {"key": ["a"], "value": [1001]}, value=pa.timestamp("ns")))
    with refused("WRONG_SCHEMA", "'t'", "would lose data"):
        statestore.import_keyed(source, store)


def test_nulls_in_keys(tmp_path: Path, store: Path) -> None:
    kind = pa.struct([("a", pa.string()), ("b", pa.int32())])
    source = one_operator(tmp_path, counts([{"a": "x", "b": 1}, {"a": "y", "b": None}], kind))
    with refused("NULL_KEY", "'b' is null in 1 of", "whole_key=True"):
        statestore.import_keyed(source, store)
    with refused("WRONG_KEY", "expected 2 names, for a, b"):
        statestore.import_keyed(source, store, key=["only"])
    with refused("WRONG_SCHEMA", "valid_from"):
        statestore.import_keyed(source, store, key=["valid_from", "b"])


def test_states_with_a_time_to_live_need_a_word(tmp_path: Path, store: Path) -> None:
    limited = made(
        "n",
        "value",
        {"key": ["a"], "value": [1], "last_access": [moment(0)]},
        value=pa.int64(),
        last_access=pa.timestamp("us", tz="UTC"),
    )
    source = one_operator(tmp_path, limited)
    with refused("MISSING_OPTION", "states n ", 'last_access="keep"'):
        statestore.import_keyed(source, store)
    wrong: Any = "both"
    with refused("INVALID_OPTION", "keep or drop"):
        statestore.import_keyed(source, store, last_access=wrong)


def test_two_rows_of_one_key(tmp_path: Path, store: Path) -> None:
    source = one_operator(tmp_path, *every_kind(), counts(["a", "b", "a"], name="twice"))
    with refused("ROW_CORRUPT", "'twice' has two rows of {'key': 'a'}"):
        statestore.import_keyed(source, store)


def test_a_source_that_fails_on_the_way(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = OperatorStateAt.rows

    def rows(self: Any, part: Any, columns: Any, filters: Any) -> Any:
        yield from read(self, part, columns, filters)
        if self.state == "counter.sums":
            raise CorruptError(ErrorCode.FLINK_FILE, "a damaged file")

    monkeypatch.setattr(OperatorStateAt, "rows", rows)
    with refused("FLINK_FILE", "a damaged file"):
        statestore.import_keyed(one_operator(tmp_path, *every_kind()), store)


def test_the_remains_of_a_killed_import_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "w" / f".rebuilt-{'0' * 32}-users"
    (left / "users" / "segments").mkdir(parents=True)
    statestore.import_keyed(one_operator(tmp_path, counts(["a"])), tmp_path / "w" / "users")
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["users"]


def test_a_key_group_that_does_not_fit_in_memory(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_rows, "MOST_BYTES", 100)
    with refused("BATCH_TOO_LARGE", "bytes of rows of one state"):
        statestore.import_keyed(one_operator(tmp_path, counts(["a", "b" * 200])), store)


# Keys that only the classes of a Flink job decode: never bytes of a key and more as a key

FIVE = struct.pack(">q", 5)
OWN = snapshot("com.example.MoneySerializer$Snap", 1)


def _savepoint(folder: Path, key: bytes, description: bytes, stored: bytes, value: bytes) -> Path:
    """A canonical savepoint of one state with one entry, in key group 0."""
    head = header(key, description)
    entry = i32(len(stored) + 1) + b"\x80" + stored + i32(len(value)) + value
    keyed = key_groups(7, 0, [len(head)], in_place(head + b"\0\0" + entry + b"\xff\xff"))
    folder.mkdir()
    (folder / "_metadata").write_bytes(metadata(Operator(uid="op", subtasks=[subtask(keyed=keyed)])))
    return folder


def test_keys_in_front_of_map_keys_are_refused_until_their_type_is_given(tmp_path: Path) -> None:
    description = state("m", mapped(LONG, LONG), "MAP")
    source = _savepoint(tmp_path / "source", OWN, description, FIVE + b"\0" + FIVE, b"\0" + FIVE)
    with pytest.raises(UnsupportedError, match="m: its keys cannot be told from what follows them"):
        import_keyed(source, tmp_path / "warehouse" / "store")
    done = import_keyed(source, tmp_path / "warehouse" / "store", type="op.m.key=bigint")
    assert [each.described for each in done.states] == ["map of bigint -> bigint"]


def test_keys_in_front_of_namespaces_of_the_job_are_refused(tmp_path: Path) -> None:
    source = _savepoint(tmp_path / "source", LONG, state("n", LONG, namespace=OWN), FIVE + b"abc", FIVE)
    with pytest.raises(UnsupportedError, match="n: its keys cannot be told from what follows them"):
        import_keyed(source, tmp_path / "warehouse" / "store")
