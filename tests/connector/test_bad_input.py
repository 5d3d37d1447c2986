"""Wrong calls: one clear error of the right class and code, and no data is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.refusals import Warehouse, refused, three_commits
from support.stores.versioned_checks import as_table, check_points, create

import statestore
from statestore import ConflictError, CorruptError, InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.catalog.warehouse import open_table, open_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return three_commits(tmp_path)


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
    "history backwards": (
        InvalidInputError,
        "INVALID_RANGE",
        lambda s: s.history(start_time=5, end_time=1),
        ("start",),
    ),
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
        ("key 'a'", "1970-01-01T00:00:00.002Z", "1970-01-01T00:00:00.008Z"),
    ),
    "nothing to expire by": (InvalidInputError, "NO_RETENTION", lambda s: s.expire(), ("history_retention",)),
    "negative age": (InvalidInputError, "INVALID_DURATION", lambda s: s.vacuum(older_than=-1), ("older_than",)),
    "age in words": (InvalidInputError, "INVALID_DURATION", lambda s: s.vacuum(older_than="soon"), ("soon",)),
}


def test_wrong_calls(warehouse: Warehouse) -> None:
    with warehouse.open() as store:
        for case, (kind, code, call, parts) in CALLS.items():
            try:
                refused(kind, code, partial(call, store), *parts)
                check_points(store, warehouse.model)
            except BaseException as error:
                error.add_note(case)
                raise
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


def test_wrong_descriptions(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    for case, (kind, code, options, part) in SPECS.items():
        arguments: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}, **options}
        refused(kind, code, partial(catalog.create_store, "s", **arguments), part)
        assert list(tmp_path.iterdir()) == [], case


def test_every_class_of_error_is_in_the_tree() -> None:
    for kind in (NotFoundError, ConflictError, CorruptError, InvalidInputError, UnsupportedError):
        assert issubclass(kind, StateStoreError)
