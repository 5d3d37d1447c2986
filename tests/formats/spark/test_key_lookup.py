"""Look-ups by key in checkpoints: the bytes that are looked up are those that real queries stored."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from support.checkpoints.spark_state_fixtures import (
    ARCHIVE,
    LOCAL,
    MORE,
    QUICK,
    checkpoint_path,
    index,
    multiset,
    opened,
)
from support.checkpoints.unsafe_row_model import row_bytes
from support.parameters import mostly_slow
from support.rows_read import BytesRead

import statestore
from statestore.catalog.engines.engine_table import EngineTable, PartSplit
from statestore.catalog.reads.table import Table
from statestore.formats.engines import EngineOpening
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.kept_results import forget_results
from statestore.formats.places.locations import parse_location
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.spark_schema import StructOf, parse_schema
from statestore.formats.spark.checkpoint.state_views import StateView, state_views
from statestore.formats.spark.key_lookup import key_lookup, placement_hashes
from statestore.formats.spark.read_parts import LookupPart
from statestore.formats.spark.rows.key_encoding import UNKNOWN, pinned, ranges_of, row_starts
from statestore.formats.spark.rows.key_placement import partition_of
from statestore.formats.spark.source import open_source
from statestore.formats.spark.state_rows import read_state
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

NAMES = sorted(index())
KEYS = ("key", "partition_id")


def user_views(name: str) -> Iterator[StateView]:
    checkpoint = opened(name)
    for operator in checkpoint.operators:
        yield from (state_view for state_view in state_views(checkpoint, operator) if state_view.user)


def table_of(name: str, state_view: StateView) -> EngineTable:
    location = parse_location(checkpoint_path(name))
    shown = open_source(location).shown.items()
    state = next(
        n for n, each in shown if (each.operator_id, each.view_name) == (state_view.operator_id, state_view.name)
    )
    return EngineTable(EngineOpening("spark", location), state_view.name, state)


def read(table: EngineTable, *filters: Filter) -> pa.Table:
    query = Query(filters=filters)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in leaves(part, (*path, name))]
    return [(path, value)]


def filters_of(row: dict[str, Any]) -> list[Filter]:
    """Filters for equality with all key columns of a row."""
    found = []
    for column in ("key", "user_map_key"):
        if column in row:
            found += [Filter(column, "=", value, path) for path, value in leaves(row[column])]
    return found


SLOW = {"spark4.3.0-twsttl__rkav", "spark4.3.0-join__rkj4", "spark4.0.1-agg__rk2"}


@pytest.mark.parametrize("name", mostly_slow(NAMES, set(QUICK) - SLOW))
def test_looking_up_a_key_finds_what_a_scan_finds(name: str) -> None:
    chance = random.Random(name)
    looked_up = 0
    for state_view in user_views(name):
        table = table_of(name, state_view)
        rows = read(table).to_pylist()
        named = [row for row in rows if all(item.value is not None for item in filters_of(row))]
        for row in chance.sample(named, min(len(named), 2)):
            filters = filters_of(row)
            for count in range(1, len(filters) + 1):
                expected = [r for r in rows if filters_of(r)[:count] == filters[:count]]
                found = read(table, *filters[:count])
                assert multiset(found) == multiset(pa.Table.from_pylist(expected, found.schema)), (
                    state_view.name,
                    count,
                )
                split = table.splits(Query(filters=tuple(filters[:count])))[0]
                looked_up += isinstance(split, PartSplit) and isinstance(split.part, LookupPart)
    assert (looked_up > 0) is not any(kind in name for kind in ("rkav", "limit"))  # Avro; the one key of a limit


@pytest.mark.parametrize("name", mostly_slow(NAMES, QUICK))
def test_a_lookup_reads_little_besides_its_key(name: str) -> None:
    """The ranges hold the key that is looked for, and few others, as the rows behind them show without any filter."""
    checkpoint = opened(name)
    for state_view in user_views(name):
        if state_view.shape != "rows" or state_view.listed:
            continue
        everything = sum(
            batch.num_rows for part in state_view.store.partitions for batch in read_state(checkpoint, state_view, part)
        )
        for partition in state_view.store.partitions:
            keys = [
                each
                for batch in read_state(checkpoint, state_view, partition, columns=KEYS)
                for each in batch.to_pylist()
            ]
            for row in keys[:3]:
                if any(value is None for _, value in leaves(row["key"])):
                    continue
                found = key_lookup(checkpoint, state_view, filters_of(row))
                if found is None:
                    continue
                near = [
                    each
                    for batch in read_state(checkpoint, state_view, partition, columns=KEYS, lookup=found.ranges)
                    for each in batch.to_pylist()
                ]
                assert row in near
                assert len(near) == 1 < max(everything, 2)


UNPLACED = ("limit", "aggmulti", "keys", "time")  # one partition, arrays, times
ALL_NAMES = mostly_slow(
    [(archive, name) for archive in (ARCHIVE, MORE) for name in sorted(index(archive))],
    [(ARCHIVE, "spark4.3.0-join__rkj4"), (ARCHIVE, "spark4.3.0-sess__rkcl"), (ARCHIVE, "spark4.3.0-twsttl__rkav")],
)
PLACED = [name for name in NAMES if any(kind in name for kind in ("agg__", "dedup__", "win__", "fmgws"))]


@pytest.mark.parametrize("name", PLACED)
def test_keys_are_where_their_hash_says(name: str) -> None:
    checkpoint = opened(name)
    for state_view in user_views(name):
        count = len(state_view.store.partitions)
        for partition in state_view.store.partitions:
            for batch in read_state(checkpoint, state_view, partition, columns=("key",)):
                for row in batch.to_pylist():
                    filters = filters_of(row)
                    if any(item.value is None for item in filters):
                        continue
                    found = key_lookup(checkpoint, state_view, filters)
                    assert found is not None and found.hash is not None
                    assert partition_of(found.hash, count) == partition


@pytest.mark.parametrize(("archive", "name"), ALL_NAMES)
def test_rows_are_in_the_partition_of_their_key(archive: Path, name: str) -> None:
    """In every layout of state, in every release that places rows strictly, and in every encoding."""
    checkpoint = open_checkpoint(LOCAL, str(checkpoint_path(name, archive)))
    for state_view in [view for each in checkpoint.operators for view in state_views(checkpoint, each) if view.user]:
        count = state_view.store.count
        for partition in state_view.store.partitions:
            for batch in read_state(checkpoint, state_view, partition, columns=("key",)):
                keys = batch.column("key")[:20]
                for key in [] if repeated(keys.type) else keys.to_pylist():
                    hashes = placement_hashes(checkpoint, state_view, [Filter("key", "=", key)])
                    if hashes is not None:
                        assert {partition_of(each, count) for each in hashes} == {partition}, (state_view.name, key)
                    elif not any(kind in name for kind in UNPLACED):
                        raise AssertionError(f"{state_view.name}: nothing says where {key} is")


def repeated(kind: pa.DataType) -> bool:
    """Return whether a struct has a name twice, at any depth."""
    if not pa.types.is_struct(kind):
        return False
    names = [field.name for field in kind]
    return len(set(names)) < len(names) or any(repeated(field.type) for field in kind)


def schema_of(*kinds: str) -> StructOf:
    return struct_of(**{f"c{number}": kind for number, kind in enumerate(kinds)})


def struct_of(**kinds: Any) -> StructOf:
    return parse_schema(json.dumps(struct_json(**kinds)))


def struct_json(**kinds: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "binary": st.binary(max_size=20),
    "decimal(10,2)": st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-2)),
    "decimal(30,3)": st.integers(-(10**29), 10**29).map(lambda n: Decimal(n).scaleb(-3)),
}


@settings(max_examples=50)
@given(st.data())
def test_every_row_is_within_the_bounds_of_its_first_columns(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    schema = schema_of(*kinds)
    row = [data.draw(VALUES[kind]) for kind in kinds]
    known = data.draw(st.integers(1, len(row)))
    open_values = [value if data.draw(st.booleans()) else None for value in row[known:]]
    stored = row_bytes(tuple(row[:known] + open_values), schema)
    pins = {f"c{number}": value for number, value in enumerate(row[:known])}
    values = pinned(schema, pins)
    assert values[known:] == [UNKNOWN] * (len(row) - known)
    starts = row_starts(schema, values)
    assert starts is not None
    whole = known == len(row)
    assert any(holds(within, stored) for within in ranges_of(b"", starts, whole=whole))
    if whole:
        assert stored in [start.head for start in starts]


def holds(within: KeyRange, key: bytes) -> bool:
    first = within.first or b""
    behind = key[len(first) + within.hole :]
    return first <= key and (within.stop is None or key < within.stop) and behind.startswith(within.rest)


def test_strings_are_looked_up_behind_a_window_of_unknown_times() -> None:
    schema = struct_of(k="string", w=struct_json(start="timestamp", end="timestamp"))
    starts = row_starts(schema, pinned(schema, {"k": "abc"}))
    assert starts is not None and any(b"abc" in start.head for start in starts)


def test_strings_are_looked_up_behind_a_hole_of_slots() -> None:
    schema = struct_of(k="string", n="long", t="string")
    starts = row_starts(schema, pinned(schema, {"k": "abc"}))
    assert starts is not None and {(start.hole, start.rest) for start in starts} == {
        (16, b"abc\0\0\0\0\0"),
        (8, b"abc\0\0\0\0\0"),  # a null's slot is known
        (0, b""),
    }


SEVERAL = "spark4.3.0-win__rkcl"  # keys of a window, which is a struct, and a text


def named_forms(key: dict[str, Any]) -> dict[str, list[Filter]]:
    """One key, named in every way."""
    turned = dict(reversed(key.items()))
    rows = [Filter("key", "in", (key, tuple(key.values())))]
    return {
        "dict": [Filter("key", "=", key)],
        "other order": [Filter("key", "=", turned)],
        "tuple": [Filter("key", "=", tuple(deep(value) for value in key.values()))],
        "row": [Filter("key", "=", Row(**turned))],
        "null-safe": [Filter("key", "<=>", key)],
        "one of some": [Filter("key", "in", (key,))],
        "twice": rows,
        "fields": [Filter("key", "=", value, (name,)) for name, value in key.items()],
        "leaves": [Filter("key", "=", value, path) for path, value in leaves(key)],
        "leaves in": [Filter("key", "in", (value,), path) for path, value in leaves(key)],
    }


def deep(value: Any) -> Any:
    return tuple(map(deep, value.values())) if isinstance(value, dict) else value


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", SEVERAL, "spark4.3.0-sess__rkcl", "spark4.3.0-twsttl__rkcl"])
def test_however_a_key_is_named_the_same_is_looked_up(name: str) -> None:
    checkpoint = opened(name)
    state_view = next(view for view in user_views(name) if view.shape == "rows" and not view.listed)
    rows = read_state(checkpoint, state_view, state_view.store.partitions[0], columns=("key",))
    keys = (row for batch in rows for row in batch.column("key").to_pylist())
    key = next(each for each in keys if all(value is not None for _, value in leaves(each)))
    found = {form: key_lookup(checkpoint, state_view, filters) for form, filters in named_forms(key).items()}
    assert found["dict"] is not None and found["dict"].ranges
    assert {form: each and each.ranges for form, each in found.items()} == dict.fromkeys(found, found["dict"].ranges)
    places = [placement_hashes(checkpoint, state_view, filters) for filters in named_forms(key).values()]
    assert places[0] is not None and len(places[0]) == 1 and places == places[:1] * len(places)


def test_several_whole_keys_are_looked_up_together() -> None:
    """Not every combination of their parts."""
    checkpoint = opened(SEVERAL)
    (state_view,) = user_views(SEVERAL)
    rows = read_state(checkpoint, state_view, 0, columns=("key",))
    keys = [row for batch in rows for row in batch.column("key").to_pylist()][:3]
    found = key_lookup(checkpoint, state_view, [Filter("key", "in", tuple(keys))])
    single = [key_lookup(checkpoint, state_view, [Filter("key", "=", key)]) for key in keys]
    assert found is not None and found.ranges == tuple(
        sorted((each for one in single if one for each in one.ranges), key=lambda within: within.first or b"")
    )


def test_what_names_no_key_is_no_lookup() -> None:
    checkpoint = opened(SEVERAL)
    (state_view,) = user_views(SEVERAL)
    for value in ("text", ("too", "many", "parts"), {"other": 1}, {}, None, 7):
        assert key_lookup(checkpoint, state_view, [Filter("key", "=", value)]) is None
        assert placement_hashes(checkpoint, state_view, [Filter("key", "=", value)]) is None


def test_a_text_that_stands_for_several_stored_ones_is_no_lookup() -> None:
    """Bytes that are no UTF-8 are shown as U+FFFD, so a key that is shown so is found among the rows alone."""
    name = "spark4.3.0-agg__hdfs"
    checkpoint = opened(name)
    (state_view,) = user_views(name)
    for text, is_lookup in (("a", True), ("a\ufffd", False)):
        for filters in (
            [Filter("key", "=", {"k": text})],
            [Filter("key", "=", (text,))],
            [Filter("key", "in", ({"k": "b"}, {"k": text}))],
            [Filter("key", "=", text, ("k",))],
        ):
            assert (key_lookup(checkpoint, state_view, filters) is not None) == is_lookup
            assert (placement_hashes(checkpoint, state_view, filters) is not None) == is_lookup


READS: dict[str, Callable[[Table, dict[str, Any]], object]] = {
    "get": lambda table, key: table.get(key),
    "get, by column": lambda table, key: table.get({"key": key}),
    "get, tuple": lambda table, key: table.get((tuple(key.values()),)),
    "get, bare": lambda table, key: table.get(key["k"]),
    "get, bare in a tuple": lambda table, key: table.get((key["k"],)),
    "get, bare by column": lambda table, key: table.get({"key": key["k"]}),
    "get, past": lambda table, key: table.get(key, version=2),
    "get, absent": lambda table, key: table.get({"k": "no such key"}),
    "history": lambda table, key: table.history(key=key).read_all(),
    "history, bare": lambda table, key: table.history(key=key["k"]).read_all(),
    "history, past": lambda table, key: table.history(key=key, version=2).read_all(),
    "changes": lambda table, key: table.changes(filter=("key.k", "=", key["k"])).read_all(),
    "scan": lambda table, key: table.scan(filter=("key", "in", [key])).read_all(),
}


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", SEVERAL])
def test_a_struct_key_is_named_by_its_fields(name: str) -> None:
    table = statestore.inspect(checkpoint_path(name)).table("state")
    row = table.scan().read_all().to_pylist()[0]
    key, parts = row["key"], tuple(row["key"].values())
    for named in (key, {"key": key}, parts, (parts,), {"key": parts}, *(parts if len(parts) == 1 else ())):
        assert table.get(named) == row, named
        found = table.history(key=named).read_all().column("key").to_pylist()
        assert found == [key] * len(found) != []


def test_a_key_of_type_null_is_found() -> None:
    """The one key of a global limit."""
    found = statestore.inspect(checkpoint_path("spark4.3.0-limit__rkcl"))
    limit = found.table(found.tables()[0])
    (row,) = limit.scan().read_all().to_pylist()
    assert row["key"] == {"key": None}
    assert limit.get(row["key"]) == limit.get((row["key"],)) == row
    assert limit.history(key=row["key"]).read_all().num_rows > 0


def test_what_cannot_be_a_struct_key_is_refused_with_its_spelling() -> None:
    several = statestore.inspect(checkpoint_path(SEVERAL)).table("state")
    for named in ("k7", ("k7",), ("a", "b", "c"), {"other": 1}):
        with pytest.raises(InvalidInputError, match=r"(?s)WRONG_KEY.*(window|key)"):
            several.get(named)
    with pytest.raises(InvalidInputError, match=r"as in \{'key': \{'window': \{'start': …, 'end': …\}"):
        several.get(("a", "b", "c"))


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl"])
def test_a_key_is_read_from_its_partition_alone(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name  # other processes of the tests open the files of the one that all share
    shutil.copytree(checkpoint_path(name), folder)
    table = statestore.inspect(folder).table("state")
    rows = table.scan().read_all().to_pylist()
    row = max(rows, key=lambda row: int(row["partition_id"]))  # the schema is in the folder of partition 0
    assert row["partition_id"] > 0
    reading = BytesRead(folder)
    for ask, question in READS.items():
        forget_results()
        reading.of(question, table, row["key"])
        data = (path.relative_to(folder / "state" / "0") for path in reading.opened if "state" in path.parts)
        read_from = {path.parts[0] for path in data if "_metadata" not in path.parts and path.parts[0].isdecimal()}
        assert read_from == {str(row["partition_id"])} or ask == "get, absent", ask
        assert len(read_from) == 1, ask
