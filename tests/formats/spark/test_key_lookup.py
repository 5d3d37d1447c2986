"""Look-ups by key in checkpoints: the bytes that are looked up are those that real queries stored."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index, multiset, opened
from support.checkpoints.unsafe_row_model import row_bytes
from support.parameters import mostly_slow

from statestore.catalog.engines.engine_table import EngineTable, PartSplit
from statestore.formats.engines import EngineOpening
from statestore.formats.places.locations import parse_location
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.spark.checkpoint.spark_schema import StructOf, parse_schema
from statestore.formats.spark.checkpoint.state_views import StateView, state_views
from statestore.formats.spark.key_lookup import key_lookup
from statestore.formats.spark.lookup_parts import LookupPart
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


@pytest.mark.parametrize("name", mostly_slow(NAMES, set(QUICK) - {"spark4.3.0-twsttl__rkav"}))
def test_looking_up_a_key_finds_what_a_scan_finds(name: str) -> None:
    chance = random.Random(name)
    looked_up = 0
    for state_view in user_views(name):
        table = table_of(name, state_view)
        rows = read(table).to_pylist()
        for row in chance.sample(rows, min(len(rows), 3)):
            filters = filters_of(row)
            if any(item.value is None for item in filters):
                continue
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
