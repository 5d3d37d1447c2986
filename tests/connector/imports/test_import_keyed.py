"""Keyed state of an operator becomes a keyed store with the same rows, and backends of the store go on with them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.command_line import run
from support.engines.imported import (
    WINDOW,
    every_kind,
    made,
    moment,
    one_operator,
    operator_engine,
    window,
)
from support.engines.operator_engine import MadeState, OperatorStateAt
from support.keyed.keyed_backends import Mean, catalog_of, local, refused
from support.places import DIRECTORY, MEMORY, S3, below, in_places

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.store_locations import storage_at
from statestore.connector.imports import imported_rows
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.places.locations import parse_location
from statestore.formats.values.key_groups import key_groups

pytest_plugins = ["support.keyed.keyed_place_fixtures"]
PLACES = (DIRECTORY, MEMORY)
WINDOWS = {"window_start": "timestamp", "window_end": "timestamp"}
NAMES = {"_timer_state/event_ends": "_timer_state_event_ends"}


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with operator_engine():
        yield


def imported(root: Path, *states: MadeState, place: str = "", **options: Any) -> KeyedStore:
    """The store of an operator with these states, in a warehouse ``w`` below ``place``."""
    warehouse = below(place or root, "w")
    result = statestore.import_keyed(one_operator(root, *states), below(warehouse, "users"), **options)
    assert result.version == 1 and result.source_version == 7
    store: KeyedStore = statestore.connect(warehouse).open_store("users")
    assert statestore.verify(warehouse)[0].ok
    return store


def rows(store: KeyedStore, state: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.scan(state, **query).read_all().to_pylist()
    return found


def expected(state: MadeState) -> list[dict[str, Any]]:
    """The rows of a state as the store's table has them."""
    found = []
    for row in state.rows.to_pylist():
        made_row: dict[str, Any] = {}
        if "timestamp_ms" in row:
            made_row["_due"] = row["timestamp_ms"] * 1000
        made_row["key"] = row["key"]
        if "namespace" in row:
            made_row |= {"window_start": row["namespace"]["start"], "window_end": row["namespace"]["end"]}
        if "map_key" in row:
            made_row |= {"user_key": row["map_key"], "value": row["map_value"]}
        else:
            made_row |= {"position": row["position"]} if "position" in row else {}
            made_row["value"] = row.get("value", True)
        found.append(made_row)
    return found


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    times = [row | {"_due": int(row["_due"].timestamp() * 1e6)} if "_due" in row else row for row in found]
    return sorted(map(str, times)) == sorted(map(str, wanted))


@pytest.mark.quick("directory-in many runs", "memory-in memory")
@pytest.mark.parametrize("run_bytes", [1 << 26, 500], ids=["in memory", "in many runs"])
def test_every_state_has_its_rows(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int) -> None:
    monkeypatch.setattr(imported_rows.GroupedRows, "__init__", _with_runs_of(run_bytes))
    states = every_kind()
    store = imported(tmp_path, *states, place=place)
    assert store.states() == sorted(NAMES.get(state.name, state.name) for state in states)
    for state in states:
        assert same(rows(store, NAMES.get(state.name, state.name)), expected(state)), state.name
    assert catalog_of(store).stores() == ["users"] and store.vacuum(0, dry_run=True) == []
    if place == str(tmp_path):
        assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["users"]
        assert not (tmp_path / "w" / "users" / "runs").exists()


def _with_runs_of(size: int) -> Any:
    made_as_before: Any = imported_rows.GroupedRows.__init__

    def init(self: Any, *arguments: Any) -> None:
        made_as_before(self, *arguments, size)

    return init


def test_segments_are_sorted_as_a_snapshot_sorts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_rows.GroupedRows, "__init__", _with_runs_of(700))
    store = imported(tmp_path, *every_kind(), tasks=1)
    with store.backend(directory=local(tmp_path)) as backend:
        store.commit(backend.snapshot("full").result())
    for state in store.states():
        names = [column for column in store.scan(state).schema.names if column != "_due"]
        first, second = (store.scan(state, version=version).read_all().select(names) for version in (1, 2))
        assert first.to_pylist() == second.to_pylist(), state


def test_every_key_is_found_in_its_key_group(tmp_path: Path) -> None:
    store = imported(tmp_path, *every_kind())
    for number in range(40):
        assert rows(store, "count", filter=("key", "=", f"user-{number}")) == [
            {"key": f"user-{number}", "value": number}
        ]
    with store.backend(directory=local(tmp_path)) as backend:
        keys = list(backend.keys("count"))
    groups = key_groups([pa.array(keys)], 16)
    assert len(keys) == 40 and groups.tolist() == sorted(groups.tolist())


@pytest.mark.quick("directory")
def test_a_keyed_function_goes_on(place: str, tmp_path: Path) -> None:
    store = imported(tmp_path, *every_kind(), place=place)
    parts = []
    for groups in store.task_groups(3):
        with store.backend(groups, directory=local(tmp_path)) as backend:
            count = backend.value_state("count", "bigint", default=0)
            clicks = backend.list_state("clicks", "int")
            seconds = backend.map_state("seconds", "string", "double")
            sums = backend.reducing_state("sums", "bigint", lambda a, b: a + b, namespace=WINDOWS)
            means = backend.aggregating_state("means", Mean())
            for number in range(41):
                if backend.key_group(f"user-{number}") not in groups:
                    continue
                backend.set_current_key(f"user-{number}")
                known = number < 40
                assert count.value() == (number if known else 0)
                count.update(count.value() + 1)
                old = [p * 10 + number for p in range(number % 4)] if known else []
                assert clicks.get() == old
                clicks.add(-1)
                assert clicks.get() == [*old, -1]
                pages = (
                    {f"page {p}": None if p == 2 else number + p / 2 for p in range(number % 3 + 1)} if known else {}
                )
                assert dict(seconds.entries()) == pages
                assert means.get() == (number * 7 / (number + 1) if known else None)
                means.add(0)
                for minute in range(number % 3 if known else 0):
                    sums.set_current_namespace(_window(minute * 10))
                    assert sums.get() == number + minute
                    sums.add(100)
            parts.append(backend.snapshot("incremental").result())
    store.commit(parts)
    assert {row["key"]: row["value"] for row in rows(store, "count")} == {f"user-{n}": n + 1 for n in range(40)} | {
        "user-40": 1
    }
    assert same(rows(store, "sums"), [row | {"value": row["value"] + 100} for row in expected(every_kind()[3])])


def _window(minute: int) -> dict[str, Any]:
    return {f"window_{name}": time for name, time in window(minute).items()}


def test_timers_are_due(tmp_path: Path) -> None:
    store = imported(tmp_path, *every_kind())
    with store.backend(directory=local(tmp_path)) as backend:
        ticks, ends = (
            backend.timer_state("ticks"),
            backend.timer_state(NAMES["_timer_state/event_ends"], namespace=WINDOWS),
        )
        due = ticks.due(5_000_000)
        assert sorted(due.keys[0].to_pylist()) == [f"user-{number}" for number in range(5)]
        ticks.remove(due.stored)
        assert len(ticks.due(1 << 62).times) == 35
        found = ends.due(2_000_000)
        assert sorted(zip(*(column.to_pylist() for column in (*found.keys, *found.namespaces)), strict=True)) == [
            (f"user-{number}", moment(0), moment(10)) for number in range(2)
        ]


def test_timers_beyond_the_range_of_times_are_never_due(tmp_path: Path) -> None:
    last = (1 << 63) - 1
    times = [last, last - 1, 5, -last - 1]
    timers = made(
        "ticks", "event timers", {"key": ["a", "a", "b", "c"], "timestamp_ms": times}, timestamp_ms=pa.int64()
    )
    store = imported(tmp_path, timers)
    with store.backend(directory=local(tmp_path)) as backend:
        due = backend.timer_state("ticks").due(last)
        assert sorted(zip(due.times.tolist(), due.keys[0].to_pylist(), strict=True)) == [(-last, "c"), (5000, "b")]
    assert store.scan("ticks").read_all().num_rows == 3


POJO = pa.struct([("name", pa.string()), ("value", pa.int32()), ("timestamp", pa.int64())])


def pojos(*keys: tuple[Any, ...]) -> MadeState:
    cells = [None if key is None else dict(zip(("name", "value", "timestamp"), key, strict=True)) for key in keys]
    return made("n", "value", {"key": cells, "value": list(range(len(keys)))}, POJO, value=pa.int64())


def test_a_key_of_several_fields_becomes_columns(tmp_path: Path) -> None:
    store = imported(tmp_path, pojos(("a", 1, 2), ("b", 1, 2)))
    assert store.spec.key.names == ["name", "key_value", "key_timestamp"]
    with store.backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("n", "bigint")
        backend.set_current_key({"name": "b", "key_value": 1, "key_timestamp": 2})
        assert state.value() == 1


def test_columns_of_keys_and_namespaces_have_distinct_names(tmp_path: Path) -> None:
    kind = pa.struct([("Window_Start", pa.int32()), ("n", pa.int32())])
    key = {"Window_Start": 1, "n": 2}
    sums = made(
        "s", "value", {"key": [key], "namespace": [window(0)], "value": [3]}, kind, namespace=WINDOW, value=pa.int64()
    )
    store = imported(tmp_path, sums)
    assert store.spec.key.names == ["key_Window_Start", "n"]
    assert store.scan("s").schema.names == ["key_Window_Start", "n", "window_start", "window_end", "value"]


def test_key_columns_get_the_names_that_are_given(tmp_path: Path) -> None:
    store = imported(tmp_path, pojos(("a", 1, 2)), key=["who", "what", "day"])
    assert rows(store, "n") == [{"who": "a", "what": 1, "day": 2, "value": 0}]


def test_a_whole_key_may_have_null_fields(tmp_path: Path) -> None:
    store = imported(tmp_path, pojos((None, 1, 2), ("b", None, 3)), whole_key=True)
    with store.backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("n", "bigint")
        backend.set_current_key({"name": None, "value": 1, "timestamp": 2})
        assert state.value() == 0
        backend.set_current_key({"name": "b", "value": None, "timestamp": 3})
        assert state.value() == 1


def test_a_map_without_values_becomes_a_map_to_true(tmp_path: Path) -> None:
    times = {"last_access": pa.timestamp("ms", tz="UTC")}
    tags = {"key": ["a", "a", "b"], "map_key": ["x", "y", "x"]}
    limited = {"key": ["a"], "last_access": [moment(1)]}
    states = [made("tags", "map", tags), made("seen", "value", limited, **times)]
    store = imported(tmp_path, *states, last_access="keep")
    assert [tuple(row.values()) for row in rows(store, "tags")] == [
        ("a", "x", True),
        ("a", "y", True),
        ("b", "x", True),
    ]
    assert rows(store, "seen") == [{"key": "a", "value": {"value": True, "last_access": moment(1)}}]


def test_last_access_is_kept_or_dropped(tmp_path: Path) -> None:
    times = {"last_access": pa.timestamp("ms", tz="UTC")}
    rows_of = {"key": ["a", "b"], "value": [1, None], "last_access": [moment(1), moment(2)]}
    limited = made("n", "value", rows_of, value=pa.int64(), **times)
    kept = imported(tmp_path / "kept", limited, last_access="keep")
    assert {row["key"]: row["value"] for row in rows(kept, "n")} == {
        "a": {"value": 1, "last_access": moment(1)},
        "b": {"value": None, "last_access": moment(2)},
    }
    dropped = imported(tmp_path / "dropped", limited, last_access="drop")
    assert {row["key"]: row["value"] for row in rows(dropped, "n")} == {"a": 1, "b": None}


TYPES = [
    (pa.string(), ["", "ä\0b", "x"]),
    (pa.int64(), [-(1 << 63), 0, 7]),
    (pa.bool_(), [True, False]),
    (pa.binary(), [b"", b"\0\xff"]),
    (pa.date32(), [moment(0).date()]),
    (pa.timestamp("ns", tz="UTC"), [moment(0), moment(1)]),
    (pa.timestamp("ms"), [moment(0).replace(tzinfo=None)]),
    (pa.decimal128(10, 2), ["1.25", "-3.00"]),
    (pa.dictionary(pa.int32(), pa.string()), ["red", "green", "red"]),
    (pa.list_(pa.int32()), [[], [1, None]]),
]


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_types_survive_in_keys_namespaces_and_values(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    given = pa.array(values, kind) if not pa.types.is_decimal(kind) else pa.array(values).cast(kind)
    distinct = given.dictionary_decode().unique() if pa.types.is_dictionary(kind) else given
    table = pa.table({"key": distinct, "namespace": distinct, "map_key": distinct, "map_value": distinct})
    store = imported(tmp_path, MadeState("m", "map", table))
    wanted = [{"key": v, "namespace": v, "user_key": v, "value": v} for v in _plain(distinct)]
    assert sorted(map(str, rows(store, "m"))) == sorted(map(str, wanted))
    with store.backend(directory=local(tmp_path)) as backend:
        spec = store.scan("m").schema
        state = backend.map_state("m", spec.field("user_key").type, spec.field("value").type, namespace=_of(spec))
        for value in _plain(distinct):
            backend.set_current_key(value)
            state.set_current_namespace(value)
            assert list(state.entries()) == [(value, value)]


def _plain(column: pa.Array) -> list[Any]:
    micros = column.cast(pa.timestamp("us", column.type.tz)) if pa.types.is_timestamp(column.type) else column
    found: list[Any] = micros.to_pylist()
    return found


def _of(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {"namespace": schema.field("namespace").type}


def test_files_are_divided_as_the_operator_was(tmp_path: Path) -> None:
    source = one_operator(tmp_path, *every_kind(), key_groups=10, parallelism=3)
    told: list[tuple[str, int, int | None]] = []
    result = statestore.import_keyed(source, tmp_path / "w" / "users", progress=lambda *step: told.append(step))
    assert told[-1][1:] == (sum(state.rows for state in result.states), None)
    assert (result.tasks, result.key_groups, result.operator) == (3, 10, "counter")
    assert {state.name: state.rows for state in result.states}["count"] == 40
    files = statestore.inspect(tmp_path / "w").table("users.count$segments").scan().read_all()
    assert files.num_rows == 3
    few = statestore.import_keyed(source, tmp_path / "w" / "few", tasks=1, operator="COUNTER", states=["count", "sums"])
    assert [state.name for state in few.states] == ["count", "sums"] and few.tasks == 1


def test_the_windows_of_a_state_are_kept_apart(tmp_path: Path) -> None:
    sums = made(
        "sums", "value", {"key": ["a", "a"], "namespace": [window(0), window(10)], "value": [1, 2]},
        namespace=WINDOW, value=pa.int64(),
    )  # fmt: skip
    store = imported(tmp_path, sums)
    found = rows(store, "sums", filter=[("key", "=", "a"), ("window_end", "=", moment(20))])
    assert found == [{"key": "a", "window_start": moment(10), "window_end": moment(20), "value": 2}]


# Object stores: the store appears at the end, or never; what a killed import left is removed


def counts(keys: list[Any]) -> MadeState:
    return made("count", "value", {"key": keys, "value": list(range(len(keys)))}, value=pa.int64())


def objects(place: str, name: str = "users") -> list[str]:
    return [item.name for item in storage_at(parse_location(below(place, name))).list("")]


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the source fail after some states were read."""
    read = OperatorStateAt.rows

    def rows(self: Any, part: Any, columns: Any, filters: Any) -> Any:
        yield from read(self, part, columns, filters)
        if self.state == "counter.sums":
            raise CorruptError(ErrorCode.FLINK_FILE, "a damaged file")

    monkeypatch.setattr(OperatorStateAt, "rows", rows)


@in_places(MEMORY, S3)
def test_a_store_appears_at_the_end(place: str, tmp_path: Path) -> None:
    catalog, seen = statestore.connect(place), []

    def progress(state: str, rows: int, most: int | None) -> None:
        seen.append(catalog.stores())

    source = one_operator(tmp_path, *every_kind())
    result = statestore.import_keyed(source, below(place, "users"), progress=progress)
    assert seen and not any(seen) and catalog.stores() == ["users"]
    assert result.path.startswith("s3://") and "?" not in result.path, "nothing secret is printed"
    with refused("STORE_EXISTS", "users"):
        statestore.import_keyed(source, below(place, "users"))
    with catalog.open_store("users") as store:
        assert store.retained() == [1] and store.vacuum(0, dry_run=True) == []
    catalog.drop_store("users")
    assert statestore.import_keyed(source, below(place, "users"), tasks=1).version == 1
    assert catalog.verify("users").ok


@in_places(MEMORY)
def test_an_import_that_fails_leaves_nothing(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch)
    with refused("FLINK_FILE", "a damaged file"):
        statestore.import_keyed(one_operator(tmp_path, *every_kind()), below(place, "users"))
    assert objects(place) == [] and statestore.connect(place).stores() == []


@in_places(MEMORY)
def test_a_store_made_meanwhile_is_not_changed(place: str, tmp_path: Path) -> None:
    catalog = statestore.connect(place)

    def progress(state: str, rows: int, most: int | None) -> None:
        catalog.create_store("users", "keyed", key={"k": "int"}).close()

    with refused("STORE_EXISTS", "users"):
        statestore.import_keyed(one_operator(tmp_path, counts(["a"])), below(place, "users"), progress=progress)
    assert catalog.open_store("users").spec.folder == "" and catalog.verify("users").ok
    assert sorted(objects(place)) == ["log/00000000000000000000.json", "store.json"]


@in_places(MEMORY)
def test_the_remains_of_a_killed_import_are_removed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the vacuum of the next store of that name, after a day."""
    with monkeypatch.context() as patch:
        failing(patch)
        patch.setattr(ObjectStorage, "delete_many", lambda *given: None)
        with refused("FLINK_FILE"):
            statestore.import_keyed(one_operator(tmp_path / "first", *every_kind()), below(place, "users"))
    left = objects(place)
    assert left
    statestore.import_keyed(one_operator(tmp_path / "second", counts(["a"])), below(place, "users"))
    store = statestore.connect(place).open_store("users")
    assert sorted(each.name for each in store.vacuum(0, dry_run=True)) == sorted(left)
    assert store.vacuum("1 day") == []
    now = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + 25 * 3_600_000_000_000)
        assert sorted(each.name for each in store.vacuum("1 day")) == sorted(left)
    assert not set(left) & set(objects(place)) and catalog_of(store).verify("users").ok


@in_places(MEMORY)
def test_the_command_imports_into_an_object_store(place: str, tmp_path: Path) -> None:
    found = run("import", one_operator(tmp_path, *every_kind()), below(place, "users"), "--json")
    assert found.code == 0, found.err
    assert statestore.inspect(place).table("users.count").scan().read_all().num_rows == 40
