"""Wrong input and damaged files: one clear error of the right class and code, and nothing is lost by it."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from versioned_checks import Put, as_table, check_answers, check_points, create
from versioned_model import Model

import statestore
from statestore import ConflictError, CorruptError, InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.catalog import write
from statestore.catalog.discovery import open_table, open_warehouse
from statestore.catalog.segment_files import _shared
from statestore.catalog.stores.versioned import VersionedStore
from statestore.formats.state_table import Query

TIMES = (None, 2, 5, 9)
ROWS: list[list[Put]] = [
    [("a", 1, 2), ("b", 2, 3), ("c", 3, 4)],
    [("a", 4, 8), ("b", None, 9)],
    [("a", 5, 5), ("c", 6, 10)],
]


@dataclass
class Warehouse:
    root: Path
    model: Model

    @property
    def folder(self) -> Path:
        return self.root / "s"

    def open(self) -> VersionedStore:
        _shared.clear()  # as a process that starts now
        return statestore.connect(self.root).open_store("s", auto_compact=False)

    def check(self) -> None:
        with self.open() as store:
            check_points(store, self.model)
            check_answers(store, self.model, TIMES)

    def entry(self, version: int) -> Path:
        return self.folder / f"log/{version:020d}.json"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Three commits and a pending put."""
    model = Model()
    with create(statestore.connect(tmp_path)) as store:
        for rows in ROWS:
            store.write(as_table(rows))
            for row in rows:
                model.put(*row)
            model.commit()
        store.put("d", 7, timestamp=11)
        model.put("d", 7, 11)
    return Warehouse(tmp_path, model)


def refused(kind: type[StateStoreError], code: str, call: Callable[[], object], *parts: str) -> StateStoreError:
    """The error of ``call``; its message holds the parts, and it crosses a process border unchanged."""
    with pytest.raises(StateStoreError) as caught:
        call()
    error = caught.value
    assert (type(error), error.code) == (kind, code), error
    for part in parts:
        assert part in error.message, f"{part!r} is not in: {error.message}"
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.code, str(copied)) == (kind, code, str(error))
    return error


# --- Calls ------------------------------------------------------------------------------------------------------------

CALLS: dict[str, tuple[type[StateStoreError], str, Callable[[Any], object], tuple[str, ...]]] = {
    "naive datetime": (
        InvalidInputError,
        "NAIVE_DATETIME",
        lambda s: s.put("a", 1, timestamp=datetime(2020, 1, 1)),
        ("timestamp", "tzinfo"),
    ),
    "naive as_of": (InvalidInputError, "NAIVE_DATETIME", lambda s: s.scan(as_of=datetime(2020, 1, 1)), ("as_of",)),
    "text as a time": (InvalidInputError, "INVALID_TIME", lambda s: s.get("a", as_of="2020"), ("as_of", "2020")),
    "float as a time": (InvalidInputError, "INVALID_TIME", lambda s: s.put("a", 1, timestamp=1.5), ("timestamp",)),
    "bool as a time": (InvalidInputError, "INVALID_TIME", lambda s: s.put("a", 1, timestamp=True), ("timestamp",)),
    "microseconds": (
        InvalidInputError,
        "TIME_OUT_OF_RANGE",
        lambda s: s.put("a", 1, timestamp=1_700_000_000_000_000),
        ("timestamp", "253402300799999", "microseconds"),
    ),
    "before year 1": (InvalidInputError, "TIME_OUT_OF_RANGE", lambda s: s.scan(as_of=-(10**14)), ("as_of",)),
    "column of times out of range": (
        InvalidInputError,
        "TIME_OUT_OF_RANGE",
        lambda s: s.put_all(as_table([("a", 1, 10**15)])),
        ("timestamp", str(10**15)),
    ),
    "column of naive times": (
        InvalidInputError,
        "NAIVE_DATETIME",
        lambda s: s.put_all(pa.table({"k": ["a"], "v": [1], "timestamp": pa.array([0], pa.timestamp("us"))})),
        ("timestamp", "time zone"),
    ),
    "no timestamp": (
        InvalidInputError,
        "WRONG_SCHEMA",
        lambda s: s.put_all(pa.table({"k": ["a"], "v": [1]})),
        ("timestamp",),
    ),
    "null timestamp": (
        InvalidInputError,
        "NULL_TIMESTAMP",
        lambda s: s.put_all(pa.table({"k": ["a"], "v": [1], "timestamp": pa.array([None], pa.int64())})),
        ("timestamp",),
    ),
    "missing column": (
        InvalidInputError,
        "WRONG_SCHEMA",
        lambda s: s.put_all(pa.table({"k": ["a"], "timestamp": [1]})),
        ("v",),
    ),
    "one column too many": (
        InvalidInputError,
        "WRONG_SCHEMA",
        lambda s: s.put_all(pa.table({"k": ["a"], "v": [1], "price": [1], "timestamp": [1]})),
        ("price",),
    ),
    "column of another type": (
        InvalidInputError,
        "WRONG_SCHEMA",
        lambda s: s.put_all(pa.table({"k": ["a"], "v": ["x"], "timestamp": [1]})),
        ("v", "string", "bigint"),
    ),
    "wrong change type": (
        InvalidInputError,
        "WRONG_CHANGE_TYPE",
        lambda s: s.put_all(
            as_table([("a", 1, 1)]).drop_columns("_change_type").append_column("_change_type", [["x"]])
        ),
        ("'x'", "delete"),
    ),
    "not a table": (InvalidInputError, "WRONG_INPUT", lambda s: s.put_all([("a", 1, 2)]), ("list",)),
    "null key": (InvalidInputError, "NULL_KEY", lambda s: s.put(None, 1, timestamp=20), ("k",)),
    "null in the key": (InvalidInputError, "NULL_KEY", lambda s: s.put({"k": None}, 1, timestamp=20), ("k",)),
    "null in a key column": (
        InvalidInputError,
        "NULL_KEY",
        lambda s: s.put_all(pa.table({"k": pa.array([None], pa.string()), "v": [1], "timestamp": [1]})),
        ("k",),
    ),
    "key of another type": (InvalidInputError, "WRONG_KEY", lambda s: s.get(5), ("k", "string")),
    "key of another shape": (InvalidInputError, "WRONG_KEY", lambda s: s.get(("a", "b")), ("k",)),
    "value of another type": (
        InvalidInputError,
        "WRONG_VALUE",
        lambda s: s.put("a", "x", timestamp=20),
        ("v", "int64"),
    ),
    "value out of range": (InvalidInputError, "WRONG_VALUE", lambda s: s.put("a", 2**63, timestamp=20), ("v", "int64")),
    "version that is not there": (NotFoundError, "VERSION_NOT_FOUND", lambda s: s.scan(version=9), ("9", "0 to 3")),
    "negative version": (NotFoundError, "VERSION_NOT_FOUND", lambda s: s.history(version=-1), ("-1", "0 to 3")),
    "version that is no number": (InvalidInputError, "INVALID_VERSION", lambda s: s.scan(version="1"), ("'1'",)),
    "changes of a version that is not there": (
        NotFoundError,
        "VERSION_NOT_FOUND",
        lambda s: s.changes(start_version=2, end_version=7),
        ("7", "0 to 3"),
    ),
    "changes backwards": (
        InvalidInputError,
        "INVALID_RANGE",
        lambda s: s.changes(start_version=2, end_version=1),
        ("2", "1"),
    ),
    "history backwards": (InvalidInputError, "INVALID_RANGE", lambda s: s.history(start=5, end=1), ("start",)),
    "unknown column": (NotFoundError, "COLUMN_NOT_FOUND", lambda s: s.scan(columns=["price"]), ("price", "k, v")),
    "filter on an unknown column": (
        NotFoundError,
        "COLUMN_NOT_FOUND",
        lambda s: s.scan(filter=("price", ">", 1)),
        ("price", "k, v"),
    ),
    "unknown operator": (InvalidInputError, "INVALID_FILTER", lambda s: s.scan(filter=("v", "=>", 1)), ("=>",)),
    "filter of another shape": (InvalidInputError, "INVALID_FILTER", lambda s: s.scan(filter="v > 1"), ()),
    "filter of another type": (
        InvalidInputError,
        "INVALID_FILTER",
        lambda s: s.scan(filter=("v", ">", "x")).read_all(),
        ("v", "int64"),
    ),
    "no transaction": (InvalidInputError, "INVALID_TRANSACTION", lambda s: s.commit(transaction="app"), ("'app'",)),
    "write mode": (
        InvalidInputError,
        "INVALID_MODE",
        lambda s: s.write(as_table([("a", 1, 20)]), mode="upsert"),
        ("'upsert'", "append"),
    ),
    "overwrite with the past": (
        InvalidInputError,
        "OVERWRITE_TOO_OLD",
        lambda s: s.write(as_table([("a", 1, 2)]), mode="overwrite"),
        ("1970-01-01T00:00:00.002Z", "1970-01-01T00:00:00.010Z"),
    ),
    "nothing to expire by": (InvalidInputError, "NO_RETENTION", lambda s: s.expire(), ("history_retention",)),
    "negative age": (InvalidInputError, "INVALID_DURATION", lambda s: s.vacuum(older_than=-1), ("older_than",)),
    "age in words": (InvalidInputError, "INVALID_DURATION", lambda s: s.vacuum(older_than="soon"), ("soon",)),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_call(warehouse: Warehouse, case: str) -> None:
    kind, code, call, parts = CALLS[case]
    with warehouse.open() as store:
        refused(kind, code, lambda: call(store), *parts)
        check_points(store, warehouse.model)
    warehouse.check()


def test_one_wrong_row_refuses_its_batch(warehouse: Warehouse) -> None:
    """put_all and write take in all rows of a batch or none."""
    rows = pa.table({"k": ["a", None], "v": [1, 2], "timestamp": [20, 21]})
    with warehouse.open() as store:
        refused(InvalidInputError, "NULL_KEY", lambda: store.put_all(rows), "k")
        refused(InvalidInputError, "NULL_KEY", lambda: store.write(rows), "k")
    warehouse.check()


def test_closed_handle(warehouse: Warehouse) -> None:
    store = warehouse.open()
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", 1, timestamp=1),
        lambda: store.get("a"),
        lambda: list(store.get_versions("a")),
        lambda: store.delete("a", timestamp=1),
        lambda: store.put_all(as_table([])),
        lambda: store.write(as_table([])),
        lambda: store.scan(),
        lambda: store.history(),
        lambda: store.changes(),
        lambda: store.commit(),
        lambda: store.compact(),
        lambda: store.expire(before=1),
        lambda: store.vacuum(),
        lambda: store.versions(),
        lambda: store.restore([("a", 1, 1)]),
        lambda: store.flush(),
    ]
    for call in calls:
        refused(InvalidInputError, "STORE_CLOSED", call, "'s'", "open_store")
    warehouse.check()


# --- Stores and names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "../s", "a/b", "/etc", "a\\b", "s$versions", "a\0b", ".s", "x" * 300]
)
def test_invalid_names(tmp_path: Path, name: str) -> None:
    catalog = statestore.connect(tmp_path / "w")
    for call in (lambda: create(catalog, name), lambda: catalog.open_store(name), lambda: catalog.drop_store(name)):
        refused(InvalidInputError, "INVALID_NAME", call, "name")
    assert list(tmp_path.rglob("*")) == [tmp_path / "w"]


def test_missing_store(warehouse: Warehouse) -> None:
    catalog = statestore.connect(warehouse.root)
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: catalog.open_store("ss"), "'ss'", "did you mean 's'")
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: catalog.drop_store("ss"), "'ss'")
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: open_table(warehouse.root / "other"), "other")
    refused(NotFoundError, "TABLE_NOT_FOUND", lambda: open_table(f"{warehouse.folder}$version"), "$versions")
    refused(NotFoundError, "PATH_NOT_FOUND", lambda: open_warehouse(warehouse.root / "other"), "other")
    (warehouse.root / "empty").mkdir()
    refused(NotFoundError, "NOTHING_HERE", lambda: open_warehouse(warehouse.root / "empty"), "empty")
    refused(NotFoundError, "TABLE_NOT_FOUND", lambda: open_warehouse(warehouse.root).table("t"), "'t'", "s")
    assert not (warehouse.root / "other").exists()
    file = warehouse.root / "file"
    file.write_text("")
    refused(InvalidInputError, "NOT_A_WAREHOUSE", lambda: statestore.connect(file), str(file))
    warehouse.check()


def test_store_that_exists(warehouse: Warehouse) -> None:
    catalog = statestore.connect(warehouse.root)
    refused(InvalidInputError, "STORE_EXISTS", lambda: create(catalog), "'s'", "open_store")
    warehouse.check()


SPECS: dict[str, tuple[type[StateStoreError], str, dict[str, Any], str]] = {
    "unknown type": (UnsupportedError, "UNSUPPORTED_TYPE", {"value": {"v": "bigit"}}, "bigint"),
    "floating point key": (UnsupportedError, "UNSUPPORTED_TYPE", {"key": {"k": "double"}}, "k"),
    "map in a key": (UnsupportedError, "UNSUPPORTED_TYPE", {"key": {"k": "array<map<string,int>>"}}, "k"),
    "nanoseconds": (UnsupportedError, "UNSUPPORTED_TYPE", {"value": {"v": pa.timestamp("ns")}}, "ns"),
    "unsigned": (UnsupportedError, "UNSUPPORTED_TYPE", {"value": {"v": pa.uint32()}}, "bigint"),
    "no key": (InvalidInputError, "WRONG_SCHEMA", {"key": {}}, "key"),
    "reserved name": (InvalidInputError, "WRONG_SCHEMA", {"value": {"valid_from": "int"}}, "valid_from"),
    "column in both": (InvalidInputError, "WRONG_SCHEMA", {"value": {"k": "int"}}, "k"),
    "schema of another kind": (InvalidInputError, "WRONG_SCHEMA", {"key": "string"}, "key"),
    "kind": (UnsupportedError, "UNSUPPORTED_KIND", {"kind": "versionned"}, "versioned"),
    "serde": (UnsupportedError, "UNSUPPORTED_SERDE", {"serde": "avro"}, "natural"),
    "key groups": (InvalidInputError, "INVALID_KEY_GROUPS", {"key_groups": 0}, "key_groups"),
    "key groups of another type": (InvalidInputError, "INVALID_KEY_GROUPS", {"key_groups": True}, "key_groups"),
    "retention": (InvalidInputError, "INVALID_DURATION", {"history_retention": "30 dayz"}, "history_retention"),
    "negative retention": (InvalidInputError, "INVALID_DURATION", {"history_retention": -5}, "history_retention"),
}


@pytest.mark.parametrize("case", SPECS)
def test_wrong_description(tmp_path: Path, case: str) -> None:
    kind, code, options, part = SPECS[case]
    catalog = statestore.connect(tmp_path)
    arguments: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}, **options}
    refused(kind, code, lambda: catalog.create_store("s", **arguments), part)
    assert list(tmp_path.iterdir()) == []


# --- Damaged files ----------------------------------------------------------------------------------------------------


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def _replaced(path: Path, damage: Callable[[Path], object]) -> None:
    """Damage a copy and put it in place: a mapped file that is changed is another matter."""
    other = path.with_name("damaged")
    shutil.copy(path, other)
    damage(other)
    other.rename(path)


def _read_everything(store: VersionedStore) -> None:
    store.history().read_all()


@pytest.mark.parametrize("damage", [_truncate, _flip, Path.unlink], ids=["truncated", "flipped", "missing"])
@pytest.mark.parametrize("suffix", ["segment", "closures"])
def test_damaged_data_file(warehouse: Warehouse, suffix: str, damage: Callable[[Path], None]) -> None:
    """Reads that need the file are refused, others answer, writes elsewhere go on, and the copy makes it whole."""
    entry = json.loads(warehouse.entry(3).read_text())["commit"]
    found = entry["added"][0]["file"] if suffix == "segment" else entry["closures"][0]["file"]
    path = warehouse.folder / found["name"]
    saved = path.read_bytes()
    if damage is Path.unlink:
        path.unlink()
    else:
        _replaced(path, damage)
    kind: type[StateStoreError] = NotFoundError if damage is Path.unlink else CorruptError
    code = "SEGMENT_TRUNCATED" if damage is _truncate else "SEGMENT_CORRUPT"
    code = "FILE_NOT_FOUND" if damage is Path.unlink else code
    with warehouse.open() as store:
        refused(kind, code, lambda: _read_everything(store), found["name"])
        refused(kind, code, lambda: store.compact(full=True), found["name"])
        check_answers(store, warehouse.model, TIMES, versions=[0, 1, 2])
        assert store.versions().num_rows == 4
    path.write_bytes(saved)
    warehouse.check()


def _other_version(path: Path) -> None:
    document = json.loads(path.read_text())
    document["commit"]["rows"] += 1
    path.write_text(json.dumps(document))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": _truncate,
    "flipped": _flip,
    "empty": lambda path: path.write_bytes(b""),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfe"),
    "another document": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 100_000),
}


@pytest.mark.parametrize("damage", [*DAMAGES, "changed"])
@pytest.mark.parametrize("version", [0, 1, 3])
def test_damaged_log_entry(warehouse: Warehouse, version: int, damage: str) -> None:
    saved = warehouse.entry(version).read_bytes()
    _replaced(warehouse.entry(version), DAMAGES.get(damage, _other_version))
    refused(CorruptError, "LOG_CORRUPT", warehouse.open, warehouse.entry(version).name)
    warehouse.entry(version).write_bytes(saved)
    warehouse.check()


@pytest.mark.parametrize("missing", [[0], [1], [2], [1, 2], [0, 1, 2]])
def test_missing_log_entries(warehouse: Warehouse, missing: list[int]) -> None:
    """Never an older store in place of the one that was: its next commit would take a version that is taken."""
    saved = {version: warehouse.entry(version).read_bytes() for version in missing}
    for version in missing:
        warehouse.entry(version).unlink()
    refused(CorruptError, "LOG_CORRUPT", warehouse.open, warehouse.entry(missing[0]).name)
    for version, data in saved.items():
        warehouse.entry(version).write_bytes(data)
    warehouse.check()


def test_log_entry_of_another_version(warehouse: Warehouse) -> None:
    shutil.copy(warehouse.entry(3), warehouse.entry(4))
    refused(CorruptError, "LOG_CORRUPT", warehouse.open, warehouse.entry(4).name, "3")
    warehouse.entry(4).unlink()
    warehouse.check()


@pytest.fixture
def with_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setattr(write, "CHECKPOINT_INTERVAL", 1)
    model = Model()
    with create(statestore.connect(tmp_path)) as store:
        for rows in ROWS:
            store.write(as_table(rows))
            for row in rows:
                model.put(*row)
            model.commit()
    return Warehouse(tmp_path, model)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("all_of_them", [False, True])
def test_damaged_checkpoint(with_checkpoints: Warehouse, damage: str, all_of_them: bool) -> None:
    """The older one, or the log, says the same."""
    checkpoints = sorted((with_checkpoints.folder / "log/_checkpoint").iterdir())
    assert len(checkpoints) == 2
    for path in checkpoints if all_of_them else checkpoints[1:]:
        _replaced(path, DAMAGES[damage])
    with_checkpoints.check()


def test_checkpoint_covers_lost_entries(with_checkpoints: Warehouse) -> None:
    for version in range(3):
        with_checkpoints.entry(version).unlink()
    with_checkpoints.check()
    for path in (with_checkpoints.folder / "log/_checkpoint").iterdir():
        _replaced(path, _flip)
    refused(CorruptError, "LOG_CORRUPT", with_checkpoints.open, with_checkpoints.entry(0).name)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_description(warehouse: Warehouse, damage: str) -> None:
    path = warehouse.folder / "store.json"
    saved = path.read_bytes()
    _replaced(path, DAMAGES[damage])
    refused(CorruptError, "STORE_CORRUPT", warehouse.open, str(path))
    refused(CorruptError, "STORE_CORRUPT", lambda: open_table(warehouse.folder).schema(Query()), str(path))
    assert statestore.connect(warehouse.root).stores() == ["s"]
    path.write_bytes(saved)
    warehouse.check()


def test_every_flipped_bit_of_the_description(warehouse: Warehouse) -> None:
    """What no reader can vouch for is refused: another retention or type would be another answer."""
    path = warehouse.folder / "store.json"
    saved = path.read_bytes()
    for position in range(len(saved)):
        path.write_bytes(saved[:position] + bytes([saved[position] ^ 1 << position % 7]) + saved[position + 1 :])
        try:
            _, spec = statestore.connect(warehouse.root).locate("s")
        except CorruptError:
            continue
        path.write_bytes(saved)
        assert spec == statestore.connect(warehouse.root).locate("s")[1], saved[max(position - 20, 0) : position + 1]


def test_damaged_changelog(warehouse: Warehouse) -> None:
    """Damage before acknowledged frames is refused; a torn tail, which was never acknowledged, is not missed."""
    with warehouse.open() as store:
        store.put("e", 8, timestamp=12)
        store.put("e", 9, timestamp=13)
        path = store._changelogs._writer.path  # type: ignore[union-attr]
    saved = path.read_bytes()
    _replaced(path, _flip)
    refused(CorruptError, "CHANGELOG_CORRUPT", warehouse.open, path.name)
    refused(CorruptError, "CHANGELOG_CORRUPT", warehouse.open, path.name)
    path.write_bytes(saved + saved[:30])
    for row in [("e", 8, 12), ("e", 9, 13)]:
        warehouse.model.put(*row)
    warehouse.check()


FOREIGN = [
    "notes.txt",
    "log/notes.txt",
    "log/00000000000000000099.json.bak",
    "log/_checkpoint/notes.arrow",
    "segments/notes.txt",
    "segments/notes.arrow",
    "changelog/notes.txt",
    "changelog/notes.changelog",
    ".DS_Store",
]


def test_foreign_files(warehouse: Warehouse) -> None:
    """Files that are not the store's change no answer, and nothing removes them."""
    for name in FOREIGN:
        (warehouse.folder / name).parent.mkdir(exist_ok=True)
        (warehouse.folder / name).write_text("mine")
    (warehouse.folder / "log/_checkpoint/00000000000000000002.arrow").write_text("mine, too")
    (warehouse.root / "notes.txt").write_text("mine")
    (warehouse.root / "notes").mkdir()
    warehouse.check()
    with warehouse.open() as store:
        store.commit()
        warehouse.model.commit()
        store.compact(full=True)
        warehouse.model.same_again()
        store.vacuum(older_than=0)
    warehouse.check()
    assert all((warehouse.folder / name).read_text() == "mine" for name in FOREIGN)
    assert statestore.connect(warehouse.root).stores() == ["s"]


def test_directory_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "s" / "log").mkdir(parents=True)
    (tmp_path / "s" / "log" / "notes.txt").write_text("mine")
    catalog = statestore.connect(tmp_path)
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: catalog.open_store("s"), "'s'")
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: catalog.drop_store("s"), "'s'")
    assert (tmp_path / "s" / "log" / "notes.txt").read_text() == "mine"


def test_every_class_of_error_is_in_the_tree() -> None:
    for kind in (NotFoundError, ConflictError, CorruptError, InvalidInputError, UnsupportedError):
        assert issubclass(kind, StateStoreError)
