"""A key is found without a read of the whole state: each engine, each spelling of the key, each door.

Rows are counted as they come from storage, before filters are applied to them, and of larger states the bytes that any
library reads, pages of mapped files included. Where an engine's files have no order or index by which a key could be
found, the whole state is read, and the last test says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack
from support.keyed.keyed_made import make
from support.parameters import mostly_slow
from support.rows_read import BytesRead, RowsRead

import statestore
from benchmarks.engines import flink_snapshots, kafka_directory
from statestore.catalog.reads.arguments import Point
from statestore.connector.explorer.differences import bounded_difference
from statestore.connector.explorer.limits import Limits
from statestore.formats.rocksdb import scan as rocksdb_scan
from statestore.formats.rocksdb.opened_families import opened_family as OPENED
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

PLACES: dict[str, tuple[str, int]] = {
    "own store": ("items", 2),
    "own store, struct": ("sales", 2),
    "keyed store": ("sessions.counts", 1),
    "kafka directory": ("stock", 1),
    "kafka directory, versioned": ("menu", 1),
    "flink heap": ("kv-string.count", 2),
    "flink heap, tuple": ("kv-tuple.n", 2),
    "flink heap, checkpoint": ("kv-tuple.n", 2),
    "flink rocksdb": ("kv-string.count", 1),
    "flink rocksdb, tuple": ("kv-tuple.n", 1),
    "flink rocksdb, pojo": ("kv-pojo.latest", 1),
    "flink rocksdb, row": ("Join[12].left-records", 3),
    "spark hdfs": ("state", 20),
    "spark rocksdb, window": ("state", 1),
}
"""The state of each place, and the most rows of one key that are read: for Spark's HDFS-backed store a partition."""


QUICK = ("own store, struct", "flink rocksdb, row")


def snapshot_of(run: str, form: str) -> Path:
    """Return the newest snapshot of a run that is a checkpoint of RocksDB, or a snapshot of the heap."""
    found = [each["path"] for each in manifest(run)["snapshots"] if form in each["path"]]
    return fixture(run) / str(found[-1])


def make_own(folder: Path) -> Path:
    catalog = statestore.connect(folder)
    for name, kind in (("items", "string"), ("sales", "struct<shop:string,item:int>")):
        with catalog.create_store(name, key={"key": kind}, value={"price": "double"}) as store:
            for number in range(60):
                key = f"item-{number}" if kind == "string" else {"shop": f"shop-{number}", "item": number}
                store.put(key, float(number), timestamp=number)
            store.commit()
    return folder


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """Return a function that gives the path and the options of a place, each made once."""
    made: dict[str, tuple[Path, dict[str, Any]]] = {}

    def kafka() -> tuple[Path, dict[str, Any]]:
        folder = unpack("orders", tmp_path_factory.mktemp("kafka"))
        return folder / "state" / "orders", {"stores_file": str(stores_file("orders", folder / "stores.toml"))}

    def keyed() -> tuple[Path, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("keyed")
        make(folder)
        return folder, {}

    def own() -> tuple[Path, dict[str, Any]]:
        return make_own(tmp_path_factory.mktemp("own")), {}

    def at(name: str) -> tuple[Path, dict[str, Any]]:
        first = name.split(",")[0]
        if name.startswith("spark"):
            return checkpoint_path(
                f"spark4.3.0-{'win' if 'window' in name else 'agg'}__{'hdfs' if 'hdfs' in name else 'rkcl'}"
            ), {}
        if name.startswith("flink"):
            run = "sql-types" if name.endswith("row") else first.removeprefix("flink ").replace("heap", "hashmap")
            canonical = run == "hashmap" and not name.endswith("checkpoint")
            return snapshot_of(run, "savepoint" if canonical else "chk-"), {}
        if first not in made:
            made[first] = {"own store": own, "keyed store": keyed}.get(first, kafka)()
        return made[first]

    return at


def spellings(column: str, key: Any) -> Iterator[Any]:
    """Yield every way to name a key of one column."""
    yield from (key, (key,), {column: key})
    if isinstance(key, dict):
        yield tuple(key.values())
        yield {column: tuple(key.values())}
        yield from key.values() if len(key) == 1 else ()


def literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{name}': {literal(part)}" for name, part in value.items()) + "}"
    if isinstance(value, bool | int):
        return str(value)
    return f"'{value}'" if isinstance(value, str) else f"TIMESTAMPTZ '{value}'"


def conditions_of(column: str, key: Any) -> Iterator[str]:
    yield f"{literal(key)} = {column}"
    yield f"{column} IN ({literal(key)}, {literal(key)})"
    if isinstance(key, dict):
        yield " AND ".join(f"{column}.{name} = {literal(value)}" for name, value in leaves(key))


def leaves(key: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in key.items():
        inner = leaves(value) if isinstance(value, dict) else None
        yield from [(f'"{name}"', value)] if inner is None else ((f'"{name}".{under}', each) for under, each in inner)


@pytest.mark.parametrize("place", mostly_slow(list(PLACES), QUICK))
def test_a_key_is_read_alone_however_it_is_named(
    place: str, warehouses: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, most = PLACES[place]
    path, options = warehouses(place)
    table, counted = statestore.inspect(path, **options).table(state), RowsRead(monkeypatch)
    rows, column = table.scan().read_all(), table.table.key_columns[0]
    row = next(each for each in rows.to_pylist() if all(value is not None for value in flat(each[column])))
    key, is_whole = row[column], table.table.lookup_columns[0] == table.table.row_key
    assert most < len(rows)
    for named in spellings(column, key) if is_whole else ():
        assert counted.of(table.get, named) == row, named
        assert 1 <= counted.rows <= most, named

    def history(named: Any) -> pa.Table:
        return table.history(key=named).read_all()

    def scan(chosen: tuple[Any, ...]) -> pa.Table:
        return table.scan(filter=chosen).read_all()

    def sql(condition: str) -> pa.Table:
        return statestore.sql(str(path), f'SELECT * FROM "{state}" WHERE {condition}', **options)

    for named in spellings(column, key) if place.startswith(("own", "keyed", "spark")) else ():
        found = counted.of(history, named)
        assert 1 <= len(found) <= counted.rows <= most * len(found), named
    if place.startswith("spark"):  # changes of stores are counted below, and those of a keyed store are rows of history
        changes = (
            f"changes('{state}', {table.table.kept_versions()[0] + 1}) WHERE {list(conditions_of(column, key))[-1]}"
        )
        for feed in (
            lambda: table.changes(filter=(column, "=", key)).read_all(),
            lambda: statestore.sql(str(path), f"SELECT * FROM {changes}", **options),
        ):
            found = counted.of(feed)
            assert 1 <= counted.rows <= most * len(found)
    for chosen in ((column, "=", key), (column, "in", [key, key])):
        assert len(counted.of(scan, chosen)) >= 1
        assert 1 <= counted.rows <= most, chosen
    for condition in conditions_of(column, key):
        assert len(counted.of(sql, condition)) >= 1
        assert 1 <= counted.rows <= most, condition


LARGE: dict[str, tuple[str, float]] = {
    "flink heap": ("00000000000000000000000000000001.balance", 0.1),
    "flink rocksdb": ("00000000000000000000000000000001.balance", 0.25),
    "kafka": ("kv", 0.25),
    "kafka, versioned": ("kv", 0.25),
    "own": ("kv", 0.1),
    "own, window": ("kv", 0.35),
}
"""The state of each large place, and the most that a look-up of a key reads, as a share of all bytes. The rows of a key
in a window store of ours are found in the column of the key: its index has the key with the window."""

ROWS = 20_000
NUMBERS = range(7, ROWS, 5000)
KEYS: dict[str, list[Any]] = {
    "flink heap": [flink_snapshots.FIRST_KEY + number for number in NUMBERS],
    "flink rocksdb": [flink_snapshots.FIRST_KEY + number for number in NUMBERS],
    "kafka": [f"user-{number:08}" for number in NUMBERS],
    "own": [f"user-{number:08}" for number in NUMBERS],
}


def make_large_store(folder: Path, *, is_window: bool) -> Path:
    more: dict[str, Any] = {"kind": "window", "retention": "1 day", "window_size": 10} if is_window else {}
    cells: list[list[Any]] = [[f"user-{number:08}" for number in range(ROWS)], list(range(ROWS)), [0] * ROWS]
    names = ["key", "value", "window_start" if is_window else "timestamp"]
    with statestore.connect(folder).create_store(
        "kv", key={"key": "string"}, value={"value": "bigint"}, **more
    ) as store:
        for share in (1, 2):
            store.put_all(pa.table([pa.array(each[::share]) for each in cells], names))
            store.commit()
    return folder


def make_large(place: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    if place.startswith("own"):
        return make_large_store(folder, is_window=place.endswith("window")), {}
    if place.startswith("flink"):
        groups = flink_snapshots.entries(ROWS)
        write = flink_snapshots.write_canonical if place.endswith("heap") else flink_snapshots.write_incremental
        write(folder / "chk-1", groups)
        return folder / "chk-1", {}
    kind = "versioned" if place.endswith("versioned") else "timestamped-key-value"
    family = "default" if place.endswith("versioned") else "keyValueWithTimestamp"
    rows = kafka_directory.versioned(ROWS) if place.endswith("versioned") else kafka_directory.timestamped(ROWS)
    application = folder / "application"
    kafka_directory.write_store(application / "0_0" / "rocksdb" / "kv", {family: rows})
    (application / "kafka-streams-process-metadata").write_text('{"processId": "00000000-0000-0000-0000-000000000000"}')
    return application, {"kind": kind, "key_serde": "string", "value_serde": "long"}


@pytest.mark.filterwarnings("ignore::statestore.StateStoreWarning")  # files of a Kafka application without offsets
@pytest.mark.parametrize("place", mostly_slow(list(LARGE), ("kafka, versioned",)))
def test_a_look_up_reads_few_bytes_at_every_door(place: str, tmp_path: Path) -> None:
    state, most = LARGE[place]
    path, options = make_large(place, tmp_path)
    table, is_own = statestore.inspect(path, **options).table(state), place.startswith("own")
    counted = BytesRead(path, mapped=is_own)
    first, last, *_ = keys = KEYS[place.split(",")[0]]
    typed = table.table.schema(Query()).field("key").type
    named = {"key": last}, (last,), pa.scalar(last, typed)
    conditions = [*conditions_of("key", last), f"key IS NOT DISTINCT FROM {literal(last)}"]
    listed = " OR ".join(f"key = {literal(key)}" for key in keys)
    given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]

    def attached(condition: str, *values: Any) -> pa.Table:
        return selected(f'main."{state}" WHERE {condition}', *values)

    def selected(source: str, *values: Any) -> pa.Table:
        with statestore.attach(str(path), **options) as connection:
            return connection.sql(f"SELECT * FROM {source}", params=values or None).to_arrow_table()

    def ask(condition: str) -> pa.Table:
        return statestore.sql(str(path), f'SELECT * FROM "{state}" WHERE {condition}', **options)

    def printed() -> list[Any]:
        return run("get", path, state, str(last), "--json", *given).rows

    def changed(chosen: tuple[Any, ...]) -> pa.Table:
        return table.changes(1, 2, filter=chosen).read_all()

    def differing() -> pa.Table:
        chosen = Filter("key", "=", last)
        return bounded_difference(table.table, Point(1), Point(2), Limits(), [chosen]).read_all()

    spelled = [f"{door} {each}" for door in ("sql", "attach") for each in conditions[1:]]
    reads: list[tuple[str, Callable[[], Any], int]] = [
        *((f"get {each!r}", partial(table.get, each), 1) for each in named),
        ("filter", lambda: table.scan(filter=("key", "in", keys)).read_all(), len(keys)),
        *((f"sql {each}", partial(ask, each), 1) for each in conditions),
        *((f"attach {each}", partial(attached, each), 1) for each in conditions[:-1]),
        ("sql, listed", partial(ask, listed), len(keys)),
        ("attach, listed", partial(attached, listed), len(keys)),
        ("attach, given", partial(attached, "key = ?", last), 1),
        ("command line", printed, 1),
    ]
    if "kafka" not in place or "versioned" in place:
        reads += [(f"history {each!r}", partial(counted_history, table, each), 1) for each in named]
    if is_own:
        feed = f"changes('{state}', 1, 2) WHERE key = {literal(last)}"
        reads = [each for each in reads if each[0] not in spelled] + [
            ("changes", partial(changed, ("key", "=", last)), 1),
            ("changes, listed", partial(changed, ("key", "in", keys)), len(keys)),
            ("sql, changes", lambda: statestore.sql(str(path), f"SELECT * FROM {feed}"), 1),
            ("attach, changes", partial(selected, feed), 1),
            ("explorer, difference", differing, 0),
        ]
    table.get(first)  # what a process does once: it loads libraries
    ask(f"key = {literal(first)}")
    attached(f"key = {literal(first)}")
    printed()
    table.scan().read_all()
    assert len(counted.of(table.scan().read_all)) == ROWS
    whole, taken = counted.bytes, dict[str, int]()
    if is_own:  # a scan of mapped files reads nothing yet, and checksums are computed when a part is first read
        whole = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        changed(("key", "=", first))
        table.history().read_all().to_pylist()
    for door, read, rows in reads:
        found = counted.of(read)
        assert (1 if isinstance(found, dict) else len(found)) >= rows, door
        taken[door] = counted.bytes
    assert {door: read for door, read in taken.items() if read > most * whole} == {}


FAMILIES = {
    "flink": 1,
    "kafka, timestamped": 1,
    "kafka, upgraded": 2,
    "kafka, session": 1,
    "spark": 4,
}
"""The column families in which a key may be, each of which is opened; of Spark, the partitions, which are not."""


def make_of_many(place: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    if place == "flink":
        return make_large("flink rocksdb", folder)
    kind, where = "timestamped-key-value", Path("rocksdb", "kv")
    families: dict[str, Any] = {"keyValueWithTimestamp": kafka_directory.timestamped(ROWS)}
    if place.endswith("upgraded"):
        odd = (row for number, row in enumerate(kafka_directory.timestamped(ROWS)) if number % 2)
        even = (row for number, row in enumerate(kafka_directory.plain(ROWS)) if not number % 2)
        families = {"default": even, "keyValueWithTimestamp": odd}
    if place.endswith("session"):
        kind, where = "session", Path("kv", f"kv.{kafka_directory.START}")
        families = {"default": kafka_directory.session(ROWS)}
    application = folder / "application"
    kafka_directory.write_store(application / "0_0" / where, families)
    (application / "kafka-streams-process-metadata").write_text('{"processId": "00000000-0000-0000-0000-000000000000"}')
    return application, {"kind": kind, "key_serde": "string", "value_serde": "long"}


@pytest.mark.filterwarnings("ignore::statestore.StateStoreWarning")  # files of a Kafka application without offsets
@pytest.mark.parametrize("place", mostly_slow(list(FAMILIES), ("flink", "spark")))
def test_many_keys_are_looked_up_in_one_go(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database is opened once for all of them, and their rows are decoded together."""
    if place == "spark":
        path, options = checkpoint_path("spark4.3.0-agg__rkcl"), dict[str, Any]()
    else:
        path, options = make_of_many(place, tmp_path)
    state = {"spark": "state", "flink": LARGE["flink rocksdb"][0]}.get(place, "kv")
    table, counted = statestore.inspect(path, **options).table(state), RowsRead(monkeypatch)
    known = table.scan(columns=["key"]).read_all()["key"].to_pylist()
    keys, opened = known[:: max(1, len(known) // 300)], list[str]()
    assert place == "spark" or len(keys) >= 300

    def spied(directory: Path, families: Any, **more: Any) -> Any:
        opened.append(str(directory))
        return OPENED(directory, families, **more)

    monkeypatch.setattr(rocksdb_scan, "opened_family", spied)
    found = counted.of(lambda: table.scan(filter=("key", "in", [*keys, keys[0]])).read_all())
    monkeypatch.undo()
    assert sorted(map(str, found["key"].to_pylist())) == sorted(map(str, keys))
    assert counted.rows == len(keys)
    assert counted.batches <= FAMILIES[place] + 1  # families are merged in spans of keys that both have
    if place == "spark":
        assert not opened  # its table files are read where they lie
    else:
        assert 1 <= len(opened) <= FAMILIES[place]


def counted_history(table: Any, key: Any) -> pa.Table:
    return table.history(key=key).read_all()


@pytest.mark.parametrize("place", mostly_slow(["spark hdfs", "spark rocksdb, window"], ()))
def test_a_key_of_spark_is_looked_up_in_the_files_of_one_partition(
    place: str, warehouses: Callable[..., Any], tmp_path: Path
) -> None:
    shared, options = warehouses(place)
    path = tmp_path / "checkpoint"  # other processes of the tests open the files of the shared one
    shutil.copytree(shared, path)
    table, counted = statestore.inspect(path, **options).table("state"), BytesRead(path)
    row = table.scan().read_all().to_pylist()[0]
    key, (first, last) = row["key"], table.table.kept_versions()
    partitions = [name for name in (path / "state" / "0").iterdir() if name.name.isdecimal()]
    chosen = ("key", "=", key)
    assert len(partitions) > 1

    def fresh() -> Any:
        return statestore.inspect(path, **options).table("state")

    def differing() -> pa.Table:
        points = Point(first), Point(last)
        return bounded_difference(fresh().table, *points, Limits(), [Filter("key", "=", key)]).read_all()

    reads: list[Callable[[], Any]] = [
        lambda: fresh().get(key),
        lambda: fresh().history(key=key).read_all(),
        lambda: fresh().changes(filter=chosen).read_all(),
        differing,
    ]
    assert counted.of(reads[0]) == row
    touched = set[Path]()
    for read in reads:
        assert counted.of(read)
        opened = {file.parent for file in counted.opened if file.suffix in (".delta", ".snapshot", ".zip", ".sst")}
        touched |= opened & set(partitions)
    assert len(touched) == 1  # all of them look for one key


def flat(value: Any) -> list[Any]:
    return [leaf for part in value.values() for leaf in flat(part)] if isinstance(value, dict) else [value]


def test_a_key_with_a_hash_of_its_own_is_looked_for_in_a_whole_heap_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key groups have no index, and only the class of the key computes its group."""
    table = statestore.inspect(snapshot_of("hashmap", "savepoint")).table("kv-pojo.latest")
    rows, counted = table.scan().read_all().to_pylist(), RowsRead(monkeypatch)
    assert counted.of(table.get, rows[0]["key"]) == rows[0]
    assert counted.rows == len(rows)
