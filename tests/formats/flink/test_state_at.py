"""Every snapshot of the fixtures against what its job recorded, cell by cell."""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa
import pytest
from support.flink.fixtures import BACKEND_NAMES, MORE_NAMES, NAMES, fixture, manifest, truth
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.truth_rows import lines_of, lines_of_truth
from support.parameters import mostly_slow

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.snapshot_states import ShownState
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import ElementsAt, KeyedAt
from statestore.formats.kernels import compiled_use

# Snapshots that every run of the tests reads, by run and place in its manifest: each backend, form and kind of value.
QUICK = [
    ("async-forst", 1),
    ("async-forst-local", 0),
    ("async-sql-2.1", 0),
    ("avro-hashmap", 0),
    ("changelog", 0),
    ("custom-rocksdb", 1),
    ("file-merging", 1),
    ("heap-timers", 0),
    ("logged-generic", 0),
    ("logged-hashmap-snappy", 2),
    ("logged-rocksdb", 1),
    ("logged-windows-1.20", 1),
    ("max-32768-rocksdb-snappy", 1),
    ("operator-1.20", 0),
    ("operator-hashmap-snappy", 1),
    ("rescaled-small", 2),
    ("rocksdb-1.20", 1),
    ("shapes-hashmap", 0),
    ("sql-types", 1),
    ("types-rocksdb", 1),
    ("void-hashmap", 0),
    ("void-rocksdb", 0),
    ("wide-hashmap", 0),
    ("windows-rocksdb", 0),
]

COMPILED = [
    ("types-hashmap", 0),
    ("wide-rocksdb", 1),
    ("file-merging", 0),
    ("sql-types", 1),
    ("logged-hashmap-snappy", 1),
]

# Shown as bytes: the operator's states, and the class that their columns name.
KRYO = "KryoSerializer"
AS_BYTES: dict[str, dict[str, str]] = {
    "rocksdb": {"opaque/m-kryo": KRYO, "opaque/m-kryo-map": KRYO},
    "custom-rocksdb": {
        **{f"simple/m-{name}": "shop.Money$MoneySerializer" for name in ("price", "payments", "accounts")},
        **{f"body/m-{name}": "shop.Scaled$ScaledS" for name in ("ratio", "ratios")},
    },
}
# The class in lists that Kryo wrote.
LINE = {"type": "class:shop.Order$Line=class<String article, int pieces>"}
GIVEN = {"rescaled-small-1.20": LINE, "operator-1.20": LINE}
# Refused: values without a known end in heap snapshots, and values that no column can hold.
OPAQUE, BEYOND = "FLINK_OPAQUE", "FLINK_UNSUPPORTED"
SHAPES = {"animal": OPAQUE, "string": BEYOND, "instant": BEYOND, "local-date-time": BEYOND}
REFUSED: dict[str, dict[str, str]] = {
    "opaque-hashmap": {f"opaque/{name}": OPAQUE for name in ("m-kryo", "m-kryo-map", "m-subclass")},
    "custom-hashmap": {
        **{f"simple/m-{name}": OPAQUE for name in ("price", "payments", "accounts")},
        **{f"body/m-{name}": OPAQUE for name in ("ratio", "ratios")},
    },
    "shapes-hashmap": {f"shapes/{name}": code for name, code in SHAPES.items()},
    "shapes-rocksdb": {f"shapes/{name}": code for name, code in SHAPES.items()},
    "void-rocksdb": {"sets/marks": BEYOND},  # elements without bytes: Flink reads one less than it stored
}
# Operators of heap snapshots of which other states may lie behind such values.
MAY_BE_BEHIND = {
    ("opaque-hashmap", "opaque"),
    ("custom-hashmap", "simple"),
    ("custom-hashmap", "body"),
    ("shapes-hashmap", "shapes"),
}

# States of Flink's own operators, of which no job knows.
UNKNOWN_TO_JOBS = ("SourceReaderState",)
WITHOUT_TYPE = ("logged-generic/doubles/count",)  # keys of which no file says the type
SQL_RUNS = ("async-sql-2.1", "sql-distinct", "sql-top", "sql-types", "sql-types-hashmap", "sql-window")


def recorded(run: str, file: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The lines of truth by operator id and stored name of the state."""
    ids = manifest(run).get("operator_ids", {})
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in truth(run, file):
        found.setdefault((ids.get(line["operator"], line["operator"]), line["state"]), []).append(line)
    return found


def shown_states(source: FlinkSource) -> list[ShownState]:
    (number,) = [number for number, _ in source.refs]
    return list(source.opened(number).states().values())


def uid_of(run: str, state: ShownState) -> str:
    ids: dict[str, str] = manifest(run).get("operator_ids", {})
    return next((uid for uid, number in ids.items() if number == state.identity[0]), state.identity[0])


def check(run: str, number: int) -> None:
    """Compare every state of a snapshot with what its job recorded, cell by cell, and its errors with those known."""
    snapshot = manifest(run)["snapshots"][number]
    known, source = recorded(run, snapshot["truth"]), source_at(fixture(run) / snapshot["path"], GIVEN.get(run))
    assert set(source.states()) == {each.name for each in shown_states(source)}
    seen = set()
    for state in shown_states(source):
        place, uid = (state.identity[0], state.identity[2]), uid_of(run, state)
        name = f"{uid}/{state.identity[2]}"
        seen.add(place)
        refused = REFUSED.get(run, {}).get(name)
        try:
            rows = rows_of(source, state.name)
        except StateStoreError as error:
            expected = OPAQUE if refused is None and (run, uid) in MAY_BE_BEHIND else refused
            assert isinstance(error, UnsupportedError) and error.code == expected, (name, error)
            continue
        assert refused is None, f"{name} was read"
        at = source.at(state.name, source.newest(state.name))
        assert isinstance(at, KeyedAt | ElementsAt)
        serializer = AS_BYTES.get(run, {}).get(name)
        if serializer is not None:
            check_bytes(at, rows, serializer, known[place])
        elif place in known:
            assert lines_of(at.form, rows) == lines_of_truth(known[place]), name
        else:
            is_known = state.identity[2] in UNKNOWN_TO_JOBS or run in SQL_RUNS or f"{run}/{name}" in WITHOUT_TYPE
            assert not rows.num_rows or is_known, name
    assert set(known) <= seen


def check_bytes(at: KeyedAt | ElementsAt, rows: pa.Table, serializer: str, known: list[dict[str, Any]]) -> None:
    """The column says whose bytes it has, and each key of the job has some."""
    named = [field for field in at.schema if field.metadata and b"statestore.serializer" in field.metadata]
    (field,) = named
    assert pa.types.is_binary(field.type)
    assert serializer in field.metadata[b"statestore.serializer"].decode()
    assert rows[field.name].null_count < rows.num_rows
    if known[0]["kind"] != "broadcast":
        assert set(lines_of(at.form, rows)) == set(lines_of_truth(known))


def compiled(monkeypatch: pytest.MonkeyPatch, is_loaded: bool) -> None:
    """Read with compiled loops, or without them, however much is read."""
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: is_loaded)
    monkeypatch.setattr(compiled_use, "load_if_it_pays", lambda _: None)


@pytest.mark.parametrize(("run", "number"), QUICK)
def test_each_state_has_the_rows_that_the_job_recorded(run: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compiled loops, which a test of their own compares with the same truth."""
    compiled(monkeypatch, False)
    check(run, number)


@pytest.mark.slow
@pytest.mark.parametrize("run", [*NAMES, *MORE_NAMES, *BACKEND_NAMES])
def test_each_snapshot_of_a_run_has_the_rows_that_the_job_recorded(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(monkeypatch, False)
    for number in range(len(manifest(run)["snapshots"])):
        if (run, number) not in QUICK:
            check(run, number)


@pytest.mark.parametrize(
    ("run", "number"),
    mostly_slow(
        [*COMPILED, ("rocksdb", 0), ("avro-hashmap", 0)],
        COMPILED,
    ),
)
def test_compiled_loops_read_the_same(run: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module(compiled_use.COMPILED)
    compiled(monkeypatch, True)
    check(run, number)


@pytest.mark.parametrize("run", mostly_slow(["rocksdb", "rocksdb-1.20", "wide-rocksdb"], ["wide-rocksdb"]))
@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
def test_both_readers_of_rocksdb_read_the_same(run: str, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_ROCKSDB_READER", reader)
    check(run, 0)


@pytest.mark.parametrize("run", mostly_slow(["heap-timers", "void-hashmap"], ["void-hashmap"]))
def test_rows_can_be_counted_without_any_column(run: str) -> None:
    source = source_at(fixture(run) / manifest(run)["snapshots"][0]["path"])
    for state in source.states():
        at = source.at(state, source.newest(state))
        counted = sum(rows.num_rows for part in at.parts(()) for rows in at.rows(part, (), ()))
        assert (state, counted) == (state, rows_of(source, state).num_rows)


@pytest.mark.parametrize("state", ["instant", "local-date-time"])
def test_times_beyond_a_timestamp_can_be_read_as_text(state: str) -> None:
    """The job's values are texts of Java's ``toString`` already."""
    snapshot = manifest("shapes-rocksdb")["snapshots"][0]
    source = source_at(fixture("shapes-rocksdb") / snapshot["path"], {"type": f"shapes.{state}=string"})
    rows = rows_of(source, f"shapes.{state}")
    known = [line for line in truth("shapes-rocksdb", snapshot["truth"]) if line["state"] == state]
    keys = rows["key"].cast(pa.string()).to_pylist()
    assert dict(zip(keys, rows["value"].to_pylist(), strict=True)) == {line["key"]: line["value"] for line in known}


@pytest.mark.parametrize("run", ["void-hashmap", "void-rocksdb"])
def test_values_that_say_nothing_have_no_column(run: str) -> None:
    source = source_at(fixture(run) / manifest(run)["snapshots"][0]["path"])
    found = {name: source.info(name).columns for name in source.states()}
    placed = [f"{name}: {kind}" for name, kind in (("key_group", "int32"), ("stored_bytes", "int32"))]
    told = {name: [f"{each.name}: {each.type}" for each in schema] for name, schema in found.items()}
    for state, *columns in [
        ("sets.tags", "map_key: string"),
        ("sets.numbers", "map_key: int64"),
        ("sets.expiring", "map_key: string", "last_access: timestamp[us, tz=UTC]"),
        ("sets.flag",),
        ("sets.lapsing", "last_access: timestamp[us, tz=UTC]"),
        ("sets.marks", "position: int32"),
        ("sets.set", "value: map<string, null>"),
        ("sets.many", "value: list<item: null>"),
        ("sets.tuple", "value: struct<f0: int64, f2: string>"),
        ("sets.visitor", "value: struct<at: int64, name: string>"),
    ]:
        assert told[state] == ["key: int64", *columns, *placed], state
    assert told["everywhere.members"] == ["map_key: string"]
    assert told["everywhere.signs"] == ["subtask: int32", "position: int32", placed[1]]
