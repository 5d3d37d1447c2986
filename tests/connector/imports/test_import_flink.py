"""Keyed state that Flink wrote becomes keyed stores with the same rows, from every form of snapshot."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from support.flink.fixtures import fixture, manifest, truth
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.formats.flink.source import FlinkSource
from statestore.formats.jobs import KeyedOperator, OperatorState

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # workers lack this file

RUNS = (
    "rocksdb",
    "hashmap",
    "odd-names",
    "types-rocksdb",
    "types-hashmap",
    "sql",
    "sql-1.20",
    "sql-distinct",
    "sql-window",
    "sql-types",
    "sql-top",
    "windows-rocksdb",
    "windows-hashmap",
    "shapes-rocksdb",
    "heap-timers",
    "max-1024-hashmap",
    "avro-rocksdb",
    "void-hashmap",
)
QUICK = ("sql", "sql-top", "heap-timers")
NO_TIMES = "time64"
NANOSECONDS = (
    "t_localdatetime",
    "t_instant",
    "t_sqltimestamp",
)  # some values have them; this shows while rows are read
UNREADABLE = ("animal", "instant", "local-date-time", "sql-timestamp", "string")  # some values: Kryo, half a character
REFUSED = {  # what keyed stores cannot hold, by run and operator: the states, and words of the reason
    ("types-rocksdb", "all-types"): (("t_localtime", *NANOSECONDS), NO_TIMES),
    ("types-hashmap", "all-types"): (("t_localtime", *NANOSECONDS), NO_TIMES),
    ("shapes-rocksdb", "shapes"): (("local-time", *UNREADABLE), NO_TIMES),
    ("sql", "Join[11]"): (("right-records",), "holds double"),
    ("sql-1.20", "115accac129e6ec16ea19dd58155876e"): (("right-records",), "holds double"),
    ("sql-types", "Rank[4]"): (("data-state-with-append",), NO_TIMES),
    ("sql-types", "Join[12]"): (("left-records",), NO_TIMES),
    ("sql-types", "GroupAggregate[19]"): ((), NO_TIMES),  # the key
    ("avro-rocksdb", "avro"): (("generic", "generics", "generic-map", "pair"), "type null"),
    ("avro-rocksdb", "avro-recursive"): (("recursive",), "type null"),
    ("void-hashmap", "sets"): (("many", "set"), "type null"),
    ("sql-top", "Rank[14]"): ((), "struct without fields"),
}
NULL_KEYS = ("GroupAggregate", "GlobalWindowAggregate", "Rank[5]", "31f81da09f79cf70eddc73a57253e7e8")


def ours(store: KeyedStore, state: str) -> pa.Table:
    return store.scan(state).read_all()


def expected(source: FlinkSource, state: OperatorState, whole_key: bool, schema: pa.Schema) -> pa.Table:
    """The rows of a state in the columns of the store, without the code that imports them."""
    rows = rows_of(source, state.state)
    columns = []
    for name in ("timestamp_ms", "key", "namespace", "position", "map_key", "value", "map_value"):
        if name not in rows.schema.names:
            continue
        column = rows[name].combine_chunks()
        if name == "timestamp_ms":
            columns.append(column.cast(pa.timestamp("ms", "UTC")))
        elif pa.types.is_struct(column.type) and (name == "namespace" or (name == "key" and not whole_key)):
            columns += column.flatten()
        else:
            columns.append(column)
    if not {"value", "map_value"} & set(rows.schema.names):
        columns.append(pa.array([True] * len(rows)))
    assert len(columns) == len(schema), state.name
    return pa.table([column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)


def counted(rows: pa.Table) -> Counter[str]:
    """The rows as texts; dates as days, for Python has none before the year 1."""
    days = [column.cast(pa.int32()) if pa.types.is_date(column.type) else column for column in rows.columns]
    return Counter(map(str, pa.table(days, rows.schema.names).to_pylist()))


def compare(source: FlinkSource, operator: KeyedOperator, made: Any, whole_key: bool) -> None:
    """Compare every state of a store with that of the source."""
    place = Path(made.path)
    store: KeyedStore = statestore.connect(place.parent).open_store(place.name)
    names = {each.source: each.name for each in made.states}
    assert sorted(names.values()) == sorted(store.states())
    for state in operator.states:
        if state.name in names:
            found = ours(store, names[state.name])
            assert counted(found) == counted(expected(source, state, whole_key, found.schema)), state.name


@pytest.mark.parametrize("run", mostly_slow(RUNS, QUICK))
def test_every_operator_is_imported_or_refused_by_name(run: str, tmp_path: Path) -> None:
    """Of the newest snapshot; older ones and other forms have equal rows, which the tests of the engine show."""
    snapshot = manifest(run)["snapshots"][-1]
    place = fixture(run) / snapshot["path"]
    source = source_at(place)
    operators = source.keyed_operators()
    assert operators
    for number, operator in enumerate(operators):
        options: dict[str, Any] = {"operator": operator.name, "last_access": "drop"}
        refused, words = REFUSED.get((run, operator.name), ((), ""))
        if words:
            with pytest.raises(statestore.StateStoreError, match=words):
                statestore.import_keyed(place, tmp_path / "w" / "refused", **options)
            if not refused:
                continue
            options["states"] = [each.name for each in operator.states if each.name not in refused]
        whole = operator.name.startswith(NULL_KEYS)
        if whole:
            with pytest.raises(statestore.InvalidInputError, match="NULL_KEY"):
                statestore.import_keyed(place, tmp_path / "w" / "refused", **options)
            options["whole_key"] = True
        made = statestore.import_keyed(place, tmp_path / "w" / f"s{number}", **options)
        assert made.key_groups == operator.key_groups and made.source_version == snapshot["checkpoint_id"]
        assert {each.source for each in made.states} == {each.name for each in operator.states} - set(refused)
        compare(source, operator, made, whole)


@pytest.mark.parametrize(
    ("run", "operator", "state", "words"),
    [
        ("types-rocksdb", "all-types", "t_localdatetime", "WRONG_SCHEMA.*t_localdatetime.*lose data"),
        ("shapes-rocksdb", "shapes", "animal", "FLINK_OPAQUE.*Puppy"),
        ("shapes-rocksdb", "shapes", "instant", "WRONG_SCHEMA.*instant.*lose data"),
        ("shapes-hashmap", "shapes", "set", "FLINK_OPAQUE.*shapes.set"),
        ("opaque-hashmap", "opaque", "z-long", "FLINK_OPAQUE"),
    ],
)
def test_values_that_cannot_be_imported_are_refused_and_leave_nothing(
    run: str, operator: str, state: str, words: str, tmp_path: Path
) -> None:
    place = fixture(run) / manifest(run)["snapshots"][-1]["path"]
    with pytest.raises(statestore.StateStoreError, match=words):
        statestore.import_keyed(place, tmp_path / "w" / "s", operator=operator, states=[state])
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "w"])


def test_times_that_no_store_holds_are_imported_as_text(tmp_path: Path) -> None:
    """As Java's ``toString`` writes them, which is how the job wrote its truth."""
    snapshot = manifest("types-rocksdb")["snapshots"][-1]
    states = ["t_localtime", "t_localdatetime", "t_instant"]
    statestore.import_keyed(
        fixture("types-rocksdb") / snapshot["path"],
        tmp_path / "w" / "s",
        states=states,
        type=";".join(f"all-types.{state}=string" for state in states),
    )
    store = statestore.connect(tmp_path / "w").open_store("s")
    for state in states:
        lines = [each for each in truth("types-rocksdb", snapshot["truth"]) if each["state"] == state]
        assert {row["key"]: row["value"] for row in ours(store, state).to_pylist()} == {
            line["key"]: line["value"] for line in lines
        }


def test_a_key_is_found_where_our_stores_look_for_it(tmp_path: Path) -> None:
    place = fixture("rocksdb") / "savepoint-b1d1ae-6d93ce300080"
    statestore.import_keyed(place, tmp_path / "w" / "s", operator="kv-string", last_access="drop")
    store = statestore.connect(tmp_path / "w").open_store("s")
    rows = ours(store, "count").to_pylist()
    assert len(rows) == 20
    for row in rows:
        assert store.scan("count", filter=("key", "=", row["key"])).read_all().to_pylist() == [row]


@pytest.mark.slow
def test_a_keyed_job_goes_on_with_the_counts_of_flink(tmp_path: Path, spark: SparkSession) -> None:
    """Each key goes on from the truth that the Flink job recorded; a key that it never saw begins at 0."""
    place = fixture("rocksdb") / "savepoint-b1d1ae-6d93ce300080"
    statestore.import_keyed(place, tmp_path / "w" / "s", operator="kv-string", last_access="drop", tasks=2)
    (snapshot,) = [each for each in manifest("rocksdb")["snapshots"] if each["checkpoint_id"] == 4]
    counts = {
        line["key"]: line["value"]
        for line in truth("rocksdb", snapshot["truth"])
        if (line["operator"], line["state"]) == ("kv-string", "count")
    }
    clicks = spark.createDataFrame([(key,) for key in [*counts, *counts, "nobody"]], "key string")
    emitted = statestore.run_keyed(
        clicks, counting, key="key", store=tmp_path / "w" / "s", output="key string, count bigint"
    )
    found = {row["key"]: row["count"] for row in emitted.collect()}
    assert found == {**{key: value + 2 for key, value in counts.items()}, "nobody": 1}
    store = statestore.connect(tmp_path / "w").open_store("s")
    before = {row["key"]: row["value"] for row in store.scan("count", version=1).read_all().to_pylist()}
    assert before == counts


def counting(backend: Any) -> Any:
    count = backend.value_state("count", "bigint", default=0)

    def process(key: str, rows: pa.Table) -> Any:
        count.update(count.value() + rows.num_rows)
        yield {"key": key, "count": count.value()}

    return process
